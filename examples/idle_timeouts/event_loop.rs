//! The event loop of one core: it accepts, echoes, and closes who is silent. All of a connection's life is here, on the
//! core that accepted it; only the handle of its idle timer goes elsewhere.

use std::io::{self, ErrorKind};
use std::sync::mpsc::Sender;
use std::time::Duration;

use corewheel::{Core, Counts, TimerHandle, local_timer};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

use crate::connections::Connections;
use crate::net;
use crate::packet::{self, Heard};
use crate::seats::{LISTENER, Seat, WAKER};
use crate::small;

/// How many events one pass takes at most: more than there can be connections. Whoever has spoken while the core was
/// held up must be heard before the turn that finds who was silent.
const EVENTS: usize = 32_768;

/// What a core has to say at its end.
#[derive(Debug)]
pub(crate) struct CoreReport {
    pub(crate) counts: Counts,
    /// Packets of connections whose idle timer had been cancelled: they did not bring it back.
    pub(crate) resets_refused: u64,
}

/// One core of the server.
pub(crate) struct EventLoop {
    poll: Poll,
    listener: TcpListener,
    connections: Connections<Client>,
    /// Where the handle of every connection's idle timer goes, with the number the connection gave itself.
    handles: Sender<(u32, TimerHandle)>,
    resets_refused: u64,
}

/// The server's end of a connection.
struct Client {
    stream: TcpStream,
    /// The first bytes, with which the client says who it is; complete when `greeted` is their length.
    greeting: [u8; packet::LENGTH],
    greeted: usize,
}

/// What serving a connection has come to.
enum Served {
    Nothing,
    Packet,
    /// A packet, and with it the client has said who it is.
    Greeting(u32),
    End,
}

impl EventLoop {
    pub(crate) fn new(
        (poll, listener): Seat,
        idle: Duration,
        handles: Sender<(u32, TimerHandle)>,
    ) -> Self {
        // Dropping the client closes its socket.
        let connections = Connections::new(idle, |_client, _silent_for| ());
        Self { poll, listener, connections, handles, resets_refused: 0 }
    }

    /// Serves until the core is to end.
    pub(crate) fn run(mut self, core: &Core) -> io::Result<CoreReport> {
        let mut events = Events::with_capacity(EVENTS);
        while !core.is_stopping() {
            let sleep = local_timer().prepare_sleep();
            net::unless_interrupted(self.poll.poll(&mut events, sleep.timeout()))?;
            drop(sleep);
            self.serve(&events)?;
            local_timer().turn();
        }
        Ok(CoreReport { counts: local_timer().counts(), resets_refused: self.resets_refused })
    }

    fn serve(&mut self, events: &Events) -> io::Result<()> {
        for event in events {
            match event.token() {
                LISTENER => self.accept_all()?,
                WAKER => {}
                Token(key) => self.serve_connection(key),
            }
        }
        Ok(())
    }

    fn accept_all(&mut self) -> io::Result<()> {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => self.accept(stream)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if net::is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn accept(&mut self, stream: TcpStream) -> io::Result<()> {
        let key = self.connections.accept(Client::new(stream));
        let register = |client: &mut Client| {
            self.poll.registry().register(&mut client.stream, Token(key), Interest::READABLE)
        };
        self.connections.with(key, register).unwrap_or(Ok(()))
    }

    fn serve_connection(&mut self, key: usize) {
        // It may be gone: closed by its timer since the event was reported.
        let served = self.connections.with(key, Client::serve).unwrap_or(Served::Nothing);
        match served {
            Served::Nothing => {}
            Served::Packet => self.heard_of(key),
            Served::Greeting(id) => {
                self.heard_of(key);
                self.publish(id, key);
            }
            Served::End => drop(self.connections.close(key)),
        }
    }

    fn heard_of(&mut self, key: usize) {
        let armed = self.connections.packet(key);
        self.resets_refused += u64::from(!armed);
    }

    fn publish(&self, id: u32, key: usize) {
        if let Some(handle) = self.connections.idle_timer(key) {
            // Nobody listens any more when the admin has done all it had to do.
            let _ = self.handles.send((id, handle));
        }
    }
}

impl Client {
    fn new(stream: TcpStream) -> Self {
        Self { stream, greeting: [0; packet::LENGTH], greeted: 0 }
    }

    /// Echoes all that has arrived.
    fn serve(&mut self) -> Served {
        let mut served = Served::Nothing;
        let mut buffer = [0; 1_024];
        loop {
            match packet::receive(&mut self.stream, &mut buffer) {
                Heard::Nothing => return served,
                Heard::End => return Served::End,
                Heard::Bytes(length) => {
                    if small::send(&mut self.stream, &buffer[..length]).is_err() {
                        return Served::End;
                    }
                    match self.greet(&buffer[..length]) {
                        Some(id) => served = Served::Greeting(id),
                        None if matches!(served, Served::Nothing) => served = Served::Packet,
                        None => {}
                    }
                }
            }
        }
    }

    /// The number of the connection, once: when its first packet is complete.
    fn greet(&mut self, bytes: &[u8]) -> Option<u32> {
        let missing = packet::LENGTH - self.greeted;
        let taken = missing.min(bytes.len());
        self.greeting[self.greeted..self.greeted + taken].copy_from_slice(&bytes[..taken]);
        self.greeted += taken;
        (missing > 0 && taken == missing).then(|| packet::id(self.greeting))
    }
}
