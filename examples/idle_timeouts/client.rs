//! The client's end of one connection, and the record it keeps by its own clock: what the verdict is made of.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use crate::packet::{self, Heard};
use crate::plan::{Plan, Role};
use crate::small;

/// How long to wait before a connection that could not be opened is tried again.
const RETRY: Duration = Duration::from_millis(50);
/// How long to wait before asking again whether a connection is open. On loopback it nearly always is by then.
const HANDSHAKE: Duration = Duration::from_millis(1);

/// How a connection stands, or how it has ended.
#[derive(Debug)]
pub(crate) enum Fate {
    /// Not open yet, and why the last attempt has failed.
    Unconnected(Option<io::Error>),
    Open,
    /// Closed by this end, as planned.
    Left,
    /// Closed by the server: seen at this moment.
    Closed(Instant),
}

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: u32,
    pub(crate) role: Role,
    pub(crate) fate: Fate,
    stream: Option<TcpStream>,
    /// Read before the packet was sent, so that the server cannot have heard it earlier.
    pub(crate) last_sent: Option<Instant>,
    /// The longest time between two packets, or since the last one where that is longer.
    pub(crate) longest_silence: Duration,
    /// Bytes sent for which no echo has come.
    pub(crate) unanswered: usize,
}

/// What a client does when its moment comes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Step {
    /// Sends a packet, and has its next moment then, if there is one.
    Send(Option<Duration>),
    /// Does nothing until then.
    Wait(Duration),
    /// Closes the connection.
    Leave,
}

impl Client {
    pub(crate) fn new(id: u32, role: Role) -> Self {
        Self {
            id,
            role,
            fate: Fate::Unconnected(None),
            stream: None,
            last_sent: None,
            longest_silence: Duration::ZERO,
            unanswered: 0,
        }
    }

    /// Opens the connection, or sees whether it is open by now. Gives the moment to come back where it is not.
    pub(crate) fn connect(
        &mut self,
        server: SocketAddr,
        registry: &Registry,
        token: Token,
        now: Duration,
    ) -> Option<Duration> {
        let attempt = match &self.stream {
            None => self.begin(server, registry, token),
            Some(stream) => handshake(stream),
        };
        match attempt {
            Ok(true) => {
                self.fate = Fate::Open;
                None
            }
            Ok(false) => Some(now + HANDSHAKE),
            Err(error) => {
                self.stream = None;
                self.fate = Fate::Unconnected(Some(error));
                Some(now + RETRY)
            }
        }
    }

    fn begin(&mut self, server: SocketAddr, registry: &Registry, token: Token) -> io::Result<bool> {
        let mut stream = TcpStream::connect(server)?;
        registry.register(&mut stream, token, Interest::READABLE)?;
        handshake(self.stream.insert(stream))
    }

    /// What to do now, by the plan. `released` says that the admin has cancelled the idle timer of this connection.
    pub(crate) fn step(&self, plan: &Plan, released: bool, now: Duration) -> Step {
        let next = now + plan.pause;
        match self.role {
            Role::Talks => Step::Send((next < plan.quiet).then_some(next)),
            Role::FallsSilent(last) => Step::Send((now < last).then(|| next.min(last))),
            Role::Leaves(moment) if now >= moment => Step::Leave,
            Role::Leaves(moment) => Step::Send(Some(next.min(moment))),
            Role::Released(_) => {
                let farewell = plan.farewell(self.id);
                match released {
                    _ if now >= farewell => Step::Send(None),
                    true => Step::Wait(farewell),
                    false => Step::Send(Some(next.min(farewell))),
                }
            }
        }
    }

    pub(crate) fn send(&mut self) {
        let Some(stream) = &mut self.stream else { return };
        let now = Instant::now();
        match small::send(stream, &packet::of(self.id)) {
            Ok(()) => {
                self.note_silence(now);
                self.last_sent = Some(now);
                self.unanswered += packet::LENGTH;
            }
            Err(_) => self.closed_by_server(),
        }
    }

    /// Takes the echoes that have come, and sees whether the server has closed the connection.
    pub(crate) fn receive(&mut self) {
        if !matches!(self.fate, Fate::Open) {
            return;
        }
        let mut buffer = [0; 64];
        while let Some(stream) = &mut self.stream {
            match packet::receive(stream, &mut buffer) {
                Heard::Bytes(length) => self.unanswered = self.unanswered.saturating_sub(length),
                Heard::Nothing => return,
                Heard::End => self.closed_by_server(),
            }
        }
    }

    pub(crate) fn leave(&mut self) {
        self.stream = None;
        self.fate = Fate::Left;
    }

    fn closed_by_server(&mut self) {
        let now = Instant::now();
        self.note_silence(now);
        self.stream = None;
        self.fate = Fate::Closed(now);
    }

    fn note_silence(&mut self, now: Instant) {
        if let Some(last) = self.last_sent {
            self.longest_silence = self.longest_silence.max(now - last);
        }
    }
}

/// Whether the connection is open; an error when it never will be.
fn handshake(stream: &TcpStream) -> io::Result<bool> {
    match stream.take_error()? {
        Some(error) => Err(error),
        None => Ok(stream.peer_addr().is_ok()),
    }
}
