//! The clients, and the plan of their actions. Times count from the start of the run.
//!
//! ```text
//! 0         connected                                                   quiet  end
//! |--connect--|------------------- leave --------------------------------|------|
//!             |------------------- fall silent -----------| idle + slack |
//!             |-- timer cancelled --|    silent for more than idle       |
//! ```
//!
//! The actions of a phase are spread evenly over it, because bursts of packets would dominate the
//! measured lateness.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use corewheel::{Cancel, TimerHandle};
use mio::net::TcpStream;

use crate::common::load::{Connector, User};
use crate::common::server;
use crate::event_loop::IdleTimers;

/// Packets that a talking connection sends per idle timeout. With three, one late packet does no
/// harm.
const PACKETS_PER_IDLE: u32 = 3;
/// The last phase of the run: the clients send nothing, and the last echoes arrive. It lasts at
/// most a sixth of an idle timeout, so that no talking connection becomes idle.
const QUIET: Duration = Duration::from_millis(200);
const QUIET_PER_IDLE: u32 = 6;
/// The lateness that the schedule allows the server at the end of the run.
const SLACK: Duration = Duration::from_millis(300);
/// The roles are assigned by `id % ROLES`.
const ROLES: u32 = 10;
const PACKET: [u8; 4] = *b"ping";

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Role {
    /// Sends packets until the end.
    Talks,
    /// Sends its last packet at this time, so that the server must close it.
    FallsSilent(Duration),
    /// Closes its connection at this time.
    Leaves(Duration),
    /// Cancels its idle timer at this time and falls silent, so that the server must leave it open.
    CancelsTimer(Duration),
}

#[derive(Debug)]
pub(crate) struct Plan {
    connections: u32,
    idle: Duration,
    /// The interval between packets of a talking connection.
    pause: Duration,
    connect: Duration,
    quiet: Duration,
    end: Duration,
}

impl Plan {
    pub(crate) fn new(connections: u32, idle: Duration, run: Duration) -> Self {
        Self {
            connections,
            idle,
            pause: idle / PACKETS_PER_IDLE,
            connect: run / 6,
            quiet: run.saturating_sub(QUIET.min(idle / QUIET_PER_IDLE)),
            end: run,
        }
    }

    /// The first sixth of the run is for connecting. The rest must suffice for a connection to
    /// talk, cancel its timer, and stay silent for more than a timeout.
    pub(crate) fn shortest_run(idle: Duration) -> Duration {
        (idle * 3 + Duration::from_secs(1)) * 6 / 5
    }

    fn role(&self, id: u32) -> Role {
        // Every connection talks before it does anything else.
        let begin = self.connect + self.pause;
        let until = |end| self.moment(id, begin..end);
        match id % ROLES {
            0 => Role::FallsSilent(until(self.before_quiet(self.idle + SLACK))),
            1 => Role::Leaves(until(self.quiet)),
            2 => Role::CancelsTimer(until(self.before_quiet(self.idle + self.pause + SLACK))),
            _ => Role::Talks,
        }
    }

    /// Returns the time at which a silent connection without a timer sends one more packet, to
    /// check that it is still served.
    fn farewell(&self, id: u32) -> Duration {
        self.moment(id, self.before_quiet(SLACK / 2)..self.quiet)
    }

    fn before_quiet(&self, time: Duration) -> Duration {
        self.quiet.saturating_sub(time)
    }

    /// Returns the time of this connection's action: the connections of a role are spread over
    /// `range`.
    fn moment(&self, id: u32, range: Range<Duration>) -> Duration {
        let length = range.end.saturating_sub(range.start);
        range.start + length * (id / ROLES) / self.connections.div_ceil(ROLES)
    }
}

/// The state of a connection, or how it has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    Unconnected,
    Open,
    Left,
    /// The client saw at this time that the server had closed it.
    ClosedByServer(Instant),
}

/// The client's end of one connection, and the times that the client observed.
#[derive(Debug)]
pub(crate) struct Client {
    plan: Arc<Plan>,
    idle_timers: Arc<IdleTimers>,
    farewell: Duration,
    stream: Option<TcpStream>,
    next: Option<Duration>,
    pub(crate) role: Role,
    pub(crate) fate: Fate,
    /// Read before the packet was sent, so that the server cannot have received it earlier.
    pub(crate) last_sent: Option<Instant>,
    /// The longest time between two packets, or since the last one.
    pub(crate) longest_silence: Duration,
    /// Bytes sent whose echo has not arrived.
    pub(crate) unanswered: usize,
    /// The idle timer that it has cancelled, and the answer.
    pub(crate) cancelled: Option<(TimerHandle, Cancel)>,
}

impl Client {
    pub(crate) fn new(id: u32, plan: Arc<Plan>, idle_timers: Arc<IdleTimers>) -> Self {
        Self {
            farewell: plan.farewell(id),
            stream: None,
            next: Some(plan.connect * id / plan.connections),
            role: plan.role(id),
            fate: Fate::Unconnected,
            last_sent: None,
            longest_silence: Duration::ZERO,
            unanswered: 0,
            cancelled: None,
            plan,
            idle_timers,
        }
    }

    /// Performs the next action of its role. Returns the time of the action after it.
    fn step(&mut self, now: Duration) -> Option<Duration> {
        let next = now + self.plan.pause;
        if matches!(self.role, Role::Leaves(at) if now >= at) {
            self.stream = None;
            self.fate = Fate::Left;
            return None;
        }
        self.send();
        match self.role {
            Role::Talks => (next < self.plan.quiet).then_some(next),
            Role::FallsSilent(last) => (now < last).then(|| next.min(last)),
            Role::Leaves(at) => Some(next.min(at)),
            Role::CancelsTimer(_) if now >= self.farewell => None,
            Role::CancelsTimer(at) if now < at => Some(next.min(at)),
            Role::CancelsTimer(_) => {
                self.cancel_timer();
                Some(if self.cancelled.is_some() { self.farewell } else { next })
            }
        }
    }

    /// Cancels the idle timer while the server may be receiving the last packet, which must not
    /// bring the timer back.
    fn cancel_timer(&mut self) {
        let address = self.stream.as_ref().and_then(|stream| stream.local_addr().ok());
        let idle_timers = self.idle_timers.lock().expect("no holder panics");
        let handle = address.and_then(|address| idle_timers.get(&address).copied());
        self.cancelled = handle.map(|handle| (handle, handle.cancel()));
    }

    fn send(&mut self) {
        let Some(stream) = &mut self.stream else { return };
        let now = Instant::now();
        if server::send(stream, &PACKET).is_ok() {
            self.note_silence(now);
            self.last_sent = Some(now);
            self.unanswered += PACKET.len();
        } else {
            self.note_closed();
        }
    }

    pub(crate) fn has_cancelled(&self) -> bool {
        matches!(self.cancelled, Some((_, Cancel::Cancelled)))
    }

    fn note_closed(&mut self) {
        let now = Instant::now();
        self.note_silence(now);
        self.stream = None;
        self.fate = Fate::ClosedByServer(now);
    }

    fn note_silence(&mut self, now: Instant) {
        let silence = self.last_sent.map_or(Duration::ZERO, |sent| now - sent);
        self.longest_silence = self.longest_silence.max(silence);
    }
}

impl User for Client {
    fn act(&mut self, now: Duration, connector: &Connector<'_>) -> io::Result<Option<Duration>> {
        // Notices a close first: otherwise it would count as a reaction to the next packet.
        self.receive();
        if self.next.is_some_and(|next| next <= now) {
            if matches!(self.fate, Fate::Unconnected) {
                self.stream = Some(connector.connect()?);
                self.fate = Fate::Open;
            }
            self.next = if self.stream.is_some() { self.step(now) } else { None };
        }
        Ok(self.next)
    }

    /// Counts the echoes, and notices if the server has closed the connection.
    fn receive(&mut self) {
        let mut buffer = [0; 64];
        while let Some(stream) = &mut self.stream {
            match server::receive(stream, &mut buffer) {
                Ok(Some(length)) => self.unanswered = self.unanswered.saturating_sub(length),
                Ok(None) => return,
                Err(_) => self.note_closed(),
            }
        }
    }

    fn is_over(&self, now: Duration) -> bool {
        now >= self.plan.end
    }
}
