//! The event loop of one core: it accepts, takes requests in, and lets the turns complete them.

use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use corewheel::{Core, Counts, local_timer};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use slab::Slab;

use crate::board::Board;
use crate::broker::{Broker, Refused, Totals};
use crate::net;
use crate::seats::{LISTENER, Seat, WAKER};
use crate::wire::{Heard, Messages, REQUEST, Request};

const EVENTS: usize = 4_096;

/// What a core has to say at its end.
#[derive(Debug)]
pub(crate) struct CoreReport {
    pub(crate) totals: Totals,
    pub(crate) timers: Counts,
    /// The longest that a sleep took longer than asked for: what the machine is to blame for.
    pub(crate) held_up: Duration,
}

/// One core of the server.
pub(crate) struct EventLoop {
    poll: Poll,
    listener: TcpListener,
    connections: Slab<Connection>,
    broker: Broker,
    board: Arc<Board>,
}

struct Connection {
    /// Shared with its requests that wait.
    stream: Rc<TcpStream>,
    messages: Messages<REQUEST>,
}

impl EventLoop {
    pub(crate) fn new((poll, listener): Seat, broker: Broker, board: Arc<Board>) -> Self {
        Self { poll, listener, connections: Slab::new(), broker, board }
    }

    /// Serves until the core is to end.
    pub(crate) fn run(mut self, core: &Core) -> io::Result<CoreReport> {
        let mut events = Events::with_capacity(EVENTS);
        let mut held_up = Duration::ZERO;
        while !core.is_stopping() {
            let sleep = local_timer().prepare_sleep();
            let (asleep, timeout) = (Instant::now(), sleep.timeout());
            net::unless_interrupted(self.poll.poll(&mut events, timeout))?;
            drop(sleep);
            held_up =
                held_up
                    .max(timeout.map_or(Duration::ZERO, |timeout| {
                        asleep.elapsed().saturating_sub(timeout)
                    }));
            for event in &events {
                match event.token() {
                    LISTENER => self.accept_all()?,
                    WAKER => {}
                    Token(key) => self.serve(key),
                }
            }
            local_timer().turn();
            self.board.cores[core.index()].publish(&self.broker.totals());
        }
        Ok(CoreReport { totals: self.broker.totals(), timers: local_timer().counts(), held_up })
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

    fn accept(&mut self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let place = self.connections.vacant_entry();
        self.poll.registry().register(&mut stream, Token(place.key()), Interest::READABLE)?;
        place.insert(Connection { stream: Rc::new(stream), messages: Messages::new() });
        Ok(())
    }

    /// Takes in all requests that have arrived. A connection that has ended, or asks for what makes no sense, goes; what
    /// it has asked for before completes all the same, and the answer gets nowhere.
    fn serve(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if connection.serve(&mut self.broker).is_err() {
            self.connections.remove(key);
        }
    }
}

impl Connection {
    fn serve(&mut self, broker: &mut Broker) -> Result<(), Refused> {
        loop {
            match self.messages.next(&mut &*self.stream) {
                Heard::Message(bytes) => {
                    broker.serve(Request::of(bytes).ok_or(Refused)?, &self.stream)?
                }
                Heard::Nothing => return Ok(()),
                Heard::End => return Err(Refused),
            }
        }
    }
}
