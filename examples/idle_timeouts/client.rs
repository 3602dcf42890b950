//! The clients, and the plan of their actions. Times count from the start of the run.
//!
//! ```text
//! 0         connected                                                   final  end
//! |--connect--|------------------- leave --------------------------------|------|
//!             |------------------- fall silent -------| idle + allowance |
//!             |-- timer cancelled --|    silent for more than idle       |
//! ```
//!
//! Each action's times are spread evenly over its phase, because bursts of packets would dominate
//! the measured lateness.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use corewheel::{Cancel, TimerHandle};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::sleep_until;

use crate::common::load::ActiveToken;
use crate::event_loop::IdleTimers;

/// How many packets a talking connection sends per idle timeout. With three packets, one late
/// packet does not make the connection idle.
const PACKETS_PER_IDLE: u32 = 3;
/// The last phase of the run: the clients send nothing, and the last echoes arrive. The final phase
/// lasts at most a sixth of an idle timeout, so that no talking connection becomes idle.
const FINAL_PHASE: Duration = Duration::from_millis(200);
const FINAL_PHASES_PER_IDLE: u32 = 6;
/// The time that the plan leaves for late timeouts before the end of the run.
const LATE_ALLOWANCE: Duration = Duration::from_millis(300);
/// Of each ten connections, one falls silent, one leaves, one cancels its timer, and the rest talk.
const ROLE_CYCLE: u32 = 10;
const PACKET: [u8; 4] = *b"ping";

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Role {
    #[default]
    Talks,
    /// The client sends its last packet at this time, so that the server must close the connection.
    FallsSilent(Duration),
    Leaves(Duration),
    /// The client cancels its idle timer at this time and falls silent, so that the server must not
    /// close the connection.
    CancelsTimer(Duration),
}

#[derive(Debug)]
pub(crate) struct Plan {
    connections: u32,
    idle: Duration,
    packet_interval: Duration,
    connect_end: Duration,
    final_phase_start: Duration,
    end: Duration,
}

impl Plan {
    pub(crate) fn new(connections: u32, idle: Duration, run: Duration) -> Self {
        Self {
            connections,
            idle,
            packet_interval: idle / PACKETS_PER_IDLE,
            connect_end: run / 6,
            final_phase_start: run.saturating_sub(FINAL_PHASE.min(idle / FINAL_PHASES_PER_IDLE)),
            end: run,
        }
    }

    /// Returns the shortest allowed run. Clients connect in the first sixth of the run. In the rest
    /// of the run, a connection can talk, cancel its timer and stay silent for more than a timeout.
    pub(crate) fn shortest_run(idle: Duration) -> Duration {
        (idle * 3 + Duration::from_secs(1)) * 6 / 5
    }

    fn role(&self, id: u32) -> Role {
        // Every connection talks first.
        let begin = self.connect_end + self.packet_interval;
        let until = |end| self.action_time(id, begin..end);
        match id % ROLE_CYCLE {
            0 => Role::FallsSilent(until(self.before_final_phase(self.idle + LATE_ALLOWANCE))),
            1 => Role::Leaves(until(self.final_phase_start)),
            2 => Role::CancelsTimer(until(
                self.before_final_phase(self.idle + self.packet_interval + LATE_ALLOWANCE),
            )),
            _ => Role::Talks,
        }
    }

    /// Returns the time at which a silent connection without a timer sends a last packet, to check
    /// that it is still served.
    fn last_packet_at(&self, id: u32) -> Duration {
        self.action_time(id, self.before_final_phase(LATE_ALLOWANCE / 2)..self.final_phase_start)
    }

    fn before_final_phase(&self, time: Duration) -> Duration {
        self.final_phase_start.saturating_sub(time)
    }

    /// Returns the time of a connection's action. The actions of a role's connections are spread
    /// over `range`.
    fn action_time(&self, id: u32, range: Range<Duration>) -> Duration {
        let length = range.end.saturating_sub(range.start);
        range.start + length * (id / ROLE_CYCLE) / self.connections.div_ceil(ROLE_CYCLE)
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum ConnectionState {
    #[default]
    Open,
    Left,
    /// The client saw at this time that the server had closed the connection.
    ClosedByServer(Instant),
}

/// The client's end of one connection, and the times that the client observed.
#[derive(Debug, Default)]
pub(crate) struct Client {
    pub(crate) role: Role,
    pub(crate) state: ConnectionState,
    /// Read just before the latest packet was sent, so that the server cannot have received the
    /// packet earlier.
    pub(crate) last_sent: Option<Instant>,
    /// The longest time between two packets, or from the last packet to the server's close.
    pub(crate) longest_silence: Duration,
    /// The number of sent bytes whose echo has not arrived.
    pub(crate) unechoed_bytes: usize,
    /// The idle timer that the client has tried to cancel, and the result.
    pub(crate) cancel_attempt: Option<(TimerHandle, Cancel)>,
}

impl Client {
    /// Connects to the server and performs the actions of a role until the planned end. After the
    /// planned end, keeps the socket until the server has ended.
    pub(crate) async fn run(
        id: u32,
        plan: Arc<Plan>,
        server: SocketAddr,
        idle_timers: Arc<IdleTimers>,
        (start, active_token): (Instant, ActiveToken),
    ) -> io::Result<Self> {
        sleep_until((start + plan.connect_end * id / plan.connections).into()).await;
        let mut stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        let mut client = Self { role: plan.role(id), ..Self::default() };
        let (mut active_token, mut next, mut buffer) =
            (Some(active_token), Some(Duration::ZERO), [0; 64]);
        while matches!(client.state, ConnectionState::Open) {
            let wake_time = start + next.unwrap_or(plan.end).min(plan.end);
            tokio::select! {
                // Checks for a close first, which otherwise could count as a reaction to the next
                // packet.
                biased;
                received = stream.read(&mut buffer) => match received {
                    Ok(length) if length > 0 => {
                        client.unechoed_bytes = client.unechoed_bytes.saturating_sub(length);
                    }
                    _ if active_token.is_none() => break,
                    _ => client.note_closed(),
                },
                () = sleep_until(wake_time.into()), if active_token.is_some() => {
                    let now = start.elapsed();
                    if now >= plan.end {
                        active_token = None;
                    } else {
                        next = client.step(now, &plan, plan.last_packet_at(id), &stream, &idle_timers);
                    }
                }
            }
        }
        Ok(client)
    }

    /// Performs the next action of the role. Returns the time of the following action.
    fn step(
        &mut self,
        now: Duration,
        plan: &Plan,
        last_packet_at: Duration,
        stream: &TcpStream,
        idle_timers: &IdleTimers,
    ) -> Option<Duration> {
        let next = now + plan.packet_interval;
        if matches!(self.role, Role::Leaves(at) if now >= at) {
            self.state = ConnectionState::Left;
            return None;
        }
        self.send(stream);
        match self.role {
            Role::Talks => (next < plan.final_phase_start).then_some(next),
            Role::FallsSilent(last) => (now < last).then(|| next.min(last)),
            Role::Leaves(at) => Some(next.min(at)),
            Role::CancelsTimer(_) if now >= last_packet_at => None,
            Role::CancelsTimer(at) if now < at => Some(next.min(at)),
            Role::CancelsTimer(_) => {
                // The server may receive the latest packet after this cancel; the packet must not
                // revive the timer.
                let address = stream.local_addr().ok();
                let idle_timers = idle_timers.lock().expect("no holder panics");
                let handle = address.and_then(|address| idle_timers.get(&address).copied());
                self.cancel_attempt = handle.map(|handle| (handle, handle.cancel()));
                Some(if self.cancel_attempt.is_some() { last_packet_at } else { next })
            }
        }
    }

    pub(crate) fn has_cancelled(&self) -> bool {
        matches!(self.cancel_attempt, Some((_, Cancel::Cancelled)))
    }

    fn send(&mut self, stream: &TcpStream) {
        let now = Instant::now();
        if stream.try_write(&PACKET).is_ok_and(|length| length == PACKET.len()) {
            self.note_silence(now);
            self.last_sent = Some(now);
            self.unechoed_bytes += PACKET.len();
        } else {
            self.note_closed();
        }
    }

    fn note_closed(&mut self) {
        let now = Instant::now();
        self.note_silence(now);
        self.state = ConnectionState::ClosedByServer(now);
    }

    fn note_silence(&mut self, now: Instant) {
        let silence = self.last_sent.map_or(Duration::ZERO, |sent| now - sent);
        self.longest_silence = self.longest_silence.max(silence);
    }
}
