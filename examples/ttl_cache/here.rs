//! One core of the server: its keys, its connections, and the ways to the other cores.
//!
//! What other cores have run here (`crossing`) and what timers run find it through the thread. Whoever does, runs in a
//! turn, and while a turn runs nothing of this is borrowed.

use std::cell::{Cell, OnceCell, RefCell};
use std::hash::RandomState;
use std::io::{self, Write};
use std::rc::Rc;
use std::time::Duration;

use corewheel::{Core, local_timer};
use mio::event::Event;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use crate::connection::Served;
use crate::connections::Connections;
use crate::crossing::{Batch, Crossing};
use crate::dispatch::Dispatch;
use crate::keys::{Keys, Room};
use crate::moment::Clock;
use crate::session::Service;

/// How many bytes are read from one connection before it is another one's turn.
const READ_MAX: usize = 16 << 10;

const TOO_MANY: &[u8] = b"-ERR max number of clients reached\r\n";

/// What all cores have in common.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) clock: Clock,
    /// Keys belong to cores by this; from outside nobody can tell which to where.
    pub(crate) hasher: RandomState,
    /// Of one core.
    pub(crate) room: Room,
    pub(crate) clients: usize,
    pub(crate) idle: Duration,
    pub(crate) service: Service,
}

/// See the module.
pub(crate) struct Here {
    pub(crate) keys: Rc<RefCell<Keys>>,
    pub(crate) crossing: RefCell<Crossing>,
    connections: RefCell<Connections>,
    setup: Setup,
    index: usize,
    registry: Registry,
    /// Requests of other cores that were carried out here.
    served: Cell<u64>,
    scratch: RefCell<Vec<u8>>,
}

thread_local! {
    static HERE: OnceCell<Rc<Here>> = const { OnceCell::new() };
}

/// Does something with this thread's core, if it is one.
pub(crate) fn with(act: impl FnOnce(&Here)) {
    if let Some(here) = HERE.with(|here| here.get().cloned()) {
        act(&here);
    }
}

impl Here {
    /// Makes this thread a core of the server.
    pub(crate) fn install(core: &Core, setup: &Setup, registry: Registry) -> Rc<Self> {
        let here = Self {
            keys: Keys::new(setup.clock, setup.room),
            crossing: RefCell::new(Crossing::new(core.index(), core.shards())),
            connections: RefCell::default(),
            setup: setup.clone(),
            index: core.index(),
            registry,
            served: Cell::new(0),
            scratch: RefCell::new(vec![0; READ_MAX]),
        };
        HERE.with(|place| Rc::clone(place.get_or_init(|| Rc::new(here))))
    }

    /// Takes a client in, or turns it away.
    pub(crate) fn accept(&self, mut stream: TcpStream) -> io::Result<()> {
        let mut connections = self.connections.borrow_mut();
        if connections.len() >= self.setup.clients {
            // Dropping the stream closes it.
            return stream.write_all(TOO_MANY);
        }
        stream.set_nodelay(true)?;
        let key = connections.next_key();
        self.registry.register(&mut stream, Token(key), Interest::READABLE | Interest::WRITABLE)?;
        let idle =
            local_timer().add_local(self.setup.idle, move || with(|here| here.close_idle(key)));
        connections.insert(stream, idle);
        Ok(())
    }

    /// The poll has something to say about a connection.
    pub(crate) fn heard(&self, event: &Event) {
        self.connections.borrow_mut().touch(event.token().0, |connection| {
            if event.is_readable() || event.is_read_closed() {
                connection.may_read(event.is_read_closed());
            }
        });
    }

    /// Serves the connections that have something to do, each for a little while.
    pub(crate) fn work(&self) {
        let ready = self.connections.borrow_mut().take_ready();
        for &key in &ready {
            self.serve(key);
        }
        self.connections.borrow_mut().put_back(ready);
    }

    /// Whether `work` has left something to do.
    pub(crate) fn is_busy(&self) -> bool {
        self.connections.borrow().is_busy()
    }

    /// Sends what other cores are asked.
    pub(crate) fn send(&self) {
        self.crossing.borrow_mut().send();
    }

    fn serve(&self, key: usize) {
        let mut connections = self.connections.borrow_mut();
        let Some(connection) = connections.begin(key) else { return };
        let mut dispatch = Dispatch {
            keys: &mut self.keys.borrow_mut(),
            crossing: &mut self.crossing.borrow_mut(),
            hasher: &self.setup.hasher,
            service: &self.setup.service,
            connection: (key, connection.id()),
        };
        match connection.serve(&mut dispatch, &mut self.scratch.borrow_mut(), self.setup.idle) {
            Served::Waits => {}
            Served::HasMore => connections.touch(key, |_| ()),
            Served::Ends => drop(connections.remove(key)),
        }
    }

    /// The answers of another core have come.
    pub(crate) fn take_back(&self, core: usize, batch: Box<Batch>) {
        let mut connections = self.connections.borrow_mut();
        for (to, answer) in batch.answers() {
            connections.deliver(to, answer);
        }
        drop(connections);
        self.crossing.borrow_mut().has_returned(core, batch);
    }

    pub(crate) fn count_served(&self, requests: usize) {
        self.served.set(self.served.get() + requests as u64);
    }

    /// Runs when a connection's idle timer fires.
    fn close_idle(&self, key: usize) {
        drop(self.connections.borrow_mut().remove(key));
    }

    /// Shows the figures of this core.
    pub(crate) fn publish(&self) {
        let (keys, figures) = (self.keys.borrow(), self.setup.service.board.of(self.index));
        figures.clients.show(self.connections.borrow().len());
        figures.keys.show(keys.len());
        figures.expiring.show(keys.expiring());
        figures.expired.show(keys.expired());
        figures.bytes.show(keys.bytes());
        figures.from_elsewhere.show(self.served.get());
    }
}
