//! The event loop of one core: serves its clients, and lets the turns expire keys and carry out what other cores ask.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use corewheel::{Core, Counts, local_timer};
use mio::net::TcpListener;
use mio::{Events, Poll, Token};

use crate::here::{Here, Setup};
use crate::net;
use crate::seats::{LISTENER, Seat, WAKER};

const EVENTS: usize = 1_024;
/// How many keys expire in one turn at most, before clients are served again: some 100 us' worth.
const BUDGET: usize = 256;

/// One core of the server.
pub(crate) struct EventLoop {
    poll: Poll,
    listener: TcpListener,
    here: Rc<Here>,
}

impl EventLoop {
    pub(crate) fn new((poll, listener): Seat, core: &Core, setup: &Setup) -> io::Result<Self> {
        let here = Here::install(core, setup, poll.registry().try_clone()?);
        Ok(Self { poll, listener, here })
    }

    /// Serves until the core is to end; what has become of the timers.
    pub(crate) fn run(mut self, core: &Core) -> io::Result<Counts> {
        let mut events = Events::with_capacity(EVENTS);
        while !core.is_stopping() {
            self.poll(&mut events)?;
            for event in &events {
                match event.token() {
                    LISTENER => self.accept_all(),
                    WAKER => {}
                    Token(_) => self.here.heard(event),
                }
            }
            self.serve();
            local_timer().turn_within(BUDGET);
            // The answers of other cores have come in the turn.
            self.serve();
            self.here.publish();
        }
        Ok(local_timer().counts())
    }

    fn poll(&mut self, events: &mut Events) -> io::Result<()> {
        let sleep = local_timer().prepare_sleep();
        let timeout = if self.here.is_busy() { Some(Duration::ZERO) } else { sleep.timeout() };
        net::unless_interrupted(self.poll.poll(events, timeout))
    }

    fn serve(&self) {
        self.here.work();
        self.here.send();
    }

    /// Whoever cannot be taken in is let go of: the others are served all the same.
    fn accept_all(&self) {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => drop(self.here.accept(stream)),
                Err(error) if net::is_passing(&error) => {}
                Err(_) => return,
            }
        }
    }
}
