//! The event loop of one core. It accepts connections, receives requests, and lets the turns
//! complete them.

use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use corewheel::{Core, local_timer, purgatory::PurgatoryCounts};
use mio::net::TcpStream;
use mio::{Events, Interest, Token};
use slab::Slab;

use crate::broker::Broker;
use crate::common::server::{self, Endpoint, LISTENER, WAKER};
use crate::wire::Messages;

const EVENTS: usize = 4_096;
/// How long a core waits at the end for the other cores to remove their watches, and how often it
/// looks.
const SETTLING: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(1);

/// The counts of one core.
pub(crate) struct CoreReport {
    pub(crate) counts: PurgatoryCounts,
    /// Requests whose partition belongs to another core.
    pub(crate) elsewhere: u64,
    /// The longest time that the machine let a sleep exceed its timeout.
    pub(crate) held_up: Duration,
}

struct Connection {
    /// Shared with its requests that wait.
    stream: Rc<TcpStream>,
    messages: Messages,
}

/// Serves until the core is asked to stop.
pub(crate) fn run(
    core: &Core,
    (mut poll, listener): Endpoint,
    mut broker: Broker,
) -> io::Result<CoreReport> {
    let mut connections: Slab<Connection> = Slab::new();
    let mut events = Events::with_capacity(EVENTS);
    let mut held_up = Duration::ZERO;
    let mut stopping: Option<Instant> = None;
    while stopping.is_none_or(|since| broker.counts().watches > 0 && since.elapsed() < SETTLING) {
        let sleep = local_timer().prepare_sleep();
        let timeout = if stopping.is_some() { Some(LOOK) } else { sleep.timeout() };
        let asleep = Instant::now();
        server::poll(&mut poll, &mut events, timeout)?;
        drop(sleep);
        if let Some(timeout) = timeout {
            held_up = held_up.max(asleep.elapsed().saturating_sub(timeout));
        }
        for event in &events {
            match event.token() {
                LISTENER => {
                    while let Some((mut stream, _)) = server::accept(&listener)? {
                        stream.set_nodelay(true)?;
                        let entry = connections.vacant_entry();
                        let token = Token(entry.key());
                        poll.registry().register(&mut stream, token, Interest::READABLE)?;
                        let messages = Messages::default();
                        entry.insert(Connection { stream: Rc::new(stream), messages });
                    }
                }
                WAKER => {}
                Token(key) => {
                    // The requests of a connection that has ended complete, but their answers get
                    // nowhere.
                    if connections.get_mut(key).is_some_and(|it| it.serve(&mut broker).is_err()) {
                        connections.remove(key);
                    }
                }
            }
        }
        local_timer().turn();
        if core.is_stopping() {
            stopping.get_or_insert_with(Instant::now);
        }
    }
    Ok(CoreReport { counts: broker.counts(), elsewhere: broker.elsewhere, held_up })
}

impl Connection {
    fn serve(&mut self, broker: &mut Broker) -> io::Result<()> {
        while let Some(request) = self.messages.receive(&self.stream)? {
            broker.serve(request, &self.stream)?;
        }
        Ok(())
    }
}
