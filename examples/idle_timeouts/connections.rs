//! The open connections of one core, each with an idle timeout.
//!
//! ```text
//! accept  arms the timer          packet  moves it a whole timeout ahead
//! close   cancels it              expiry  takes the connection out and hands its socket to `on_idle`
//! ```
//!
//! That is O(1) per packet however many connections there are, and nothing at all for a connection that is silent.
//! Nothing here knows what a socket is, so the server runs this code on real ones and `tests/idle_connections.rs` runs
//! the same code on a hundred thousand simulated ones in virtual time.
//!
//! A key is free again as soon as its connection is closed. No generation guards it, because none is needed: a timer
//! ends exactly once, so after `close` has cancelled it, it cannot come for the key's next connection.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use corewheel::{TimerHandle, local_timer};
use slab::Slab;

/// The connections of this core and what to do with one that has been silent for too long.
pub(crate) struct Connections<S> {
    table: Rc<Table<S>>,
}

/// What the connections share with the callbacks of their timers.
struct Table<S> {
    idle: Duration,
    open: RefCell<Slab<Connection<S>>>,
    on_idle: Box<dyn Fn(S, Duration)>,
}

struct Connection<S> {
    socket: S,
    idle_timer: TimerHandle,
    /// When it was last heard of, by the clock of the core.
    heard: Instant,
}

impl<S: 'static> Connections<S> {
    /// `on_idle` gets the socket of a connection that was silent for `idle`, and how long it was silent in fact.
    pub(crate) fn new(idle: Duration, on_idle: impl Fn(S, Duration) + 'static) -> Self {
        let table = Table { idle, open: RefCell::new(Slab::new()), on_idle: Box::new(on_idle) };
        Self { table: Rc::new(table) }
    }

    /// Takes a connection in and arms its timeout; the key is what the other methods want to hear.
    pub(crate) fn accept(&self, socket: S) -> usize {
        let mut open = self.table.open.borrow_mut();
        let slot = open.vacant_entry();
        let key = slot.key();
        let heard = local_timer().now();
        let table = Rc::clone(&self.table);
        // Two words, well under the 32 bytes that are stored in place: nothing is boxed.
        let idle_timer = local_timer().add(self.table.idle, move || table.expire(key));
        slot.insert(Connection { socket, idle_timer, heard });
        key
    }

    /// Something arrived on an open connection: the timeout begins anew. `false` when the timer had been cancelled, which
    /// it then stays.
    pub(crate) fn packet(&self, key: usize) -> bool {
        let mut open = self.table.open.borrow_mut();
        let connection = &mut open[key];
        connection.heard = local_timer().now();
        connection.idle_timer.reset(self.table.idle)
    }

    /// Takes a connection out and gives its socket back; `None` when it is not there any more.
    pub(crate) fn close(&self, key: usize) -> Option<S> {
        let connection = self.table.open.borrow_mut().try_remove(key)?;
        // Whether this or an earlier cancel won is all the same: the timer will not fire.
        connection.idle_timer.cancel();
        Some(connection.socket)
    }

    /// Does something with the socket, which must not need the other connections; `None` when it is not there any more.
    pub(crate) fn with<R>(&self, key: usize, act: impl FnOnce(&mut S) -> R) -> Option<R> {
        let mut open = self.table.open.borrow_mut();
        open.get_mut(key).map(|connection| act(&mut connection.socket))
    }

    /// The handle of a connection's timeout, to be cancelled from anywhere.
    pub(crate) fn idle_timer(&self, key: usize) -> Option<TimerHandle> {
        let open = self.table.open.borrow();
        open.get(key).map(|connection| connection.idle_timer)
    }
}

impl<S> Table<S> {
    /// Runs when the timer fires, on the core's own thread, with nothing borrowed.
    fn expire(&self, key: usize) {
        let connection = self.open.borrow_mut().remove(key);
        let silent_for = local_timer().now() - connection.heard;
        (self.on_idle)(connection.socket, silent_for);
    }
}
