//! The open connections of one core, each with an idle timeout.
//!
//! ```text
//! accept  arms the timer          packet  resets it to a whole timeout
//! close   cancels it              expiry  removes it and hands its socket to `on_idle`
//! ```
//!
//! A packet costs O(1) for any number of connections, and silence costs nothing until the expiry.
//! This code is generic over the socket: the server runs it on real ones, and
//! `tests/idle_connections.rs` on a hundred thousand simulated ones in virtual time.
//!
//! The slab can reuse a connection's key as soon as the connection is closed. A key needs no
//! generation: a timer that `close` has cancelled never fires, so it cannot close the next
//! connection with this key.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use corewheel::{TimerHandle, local_timer};
use slab::Slab;

pub(crate) struct Connections<S> {
    table: Rc<Table<S>>,
}

struct Table<S> {
    idle: Duration,
    open: RefCell<Slab<Connection<S>>>,
    on_idle: Box<dyn Fn(S, Duration)>,
}

struct Connection<S> {
    socket: S,
    idle_timer: TimerHandle,
    /// The arrival of the latest packet, initially the time of the accept, on the core's clock.
    last_packet_at: Instant,
}

impl<S: 'static> Connections<S> {
    /// Creates an empty table. `on_idle` gets the socket of a connection that was silent for
    /// `idle`, and the length of the silence.
    pub(crate) fn new(idle: Duration, on_idle: impl Fn(S, Duration) + 'static) -> Self {
        let table = Table { idle, open: RefCell::new(Slab::new()), on_idle: Box::new(on_idle) };
        Self { table: Rc::new(table) }
    }

    /// Adds a connection and arms its timeout. Returns the connection's key.
    pub(crate) fn accept(&self, socket: S) -> usize {
        let mut open = self.table.open.borrow_mut();
        let slot = open.vacant_entry();
        let key = slot.key();
        let last_packet_at = local_timer().now();
        let table = Rc::clone(&self.table);
        // The closure has two words, so the timer stores it inline.
        let idle_timer = local_timer().add(self.table.idle, move || table.expire(key));
        slot.insert(Connection { socket, idle_timer, last_packet_at });
        key
    }

    /// Resets the timeout of an open connection. Returns false if the timer was cancelled.
    pub(crate) fn on_packet(&self, key: usize) -> bool {
        let mut open = self.table.open.borrow_mut();
        let connection = &mut open[key];
        connection.last_packet_at = local_timer().now();
        connection.idle_timer.reset(self.table.idle)
    }

    /// Removes a connection and returns its socket, or `None` if the connection is closed already.
    pub(crate) fn close(&self, key: usize) -> Option<S> {
        let connection = self.table.open.borrow_mut().try_remove(key)?;
        // The answer does not matter: the timer will not fire, even if another thread cancelled it
        // first.
        connection.idle_timer.cancel();
        Some(connection.socket)
    }

    /// Runs `act` on the socket of a connection. `act` must not use `self`. Returns `None` if the
    /// connection is closed.
    pub(crate) fn with_socket<R>(&self, key: usize, act: impl FnOnce(&mut S) -> R) -> Option<R> {
        let mut open = self.table.open.borrow_mut();
        open.get_mut(key).map(|connection| act(&mut connection.socket))
    }

    pub(crate) fn idle_timer(&self, key: usize) -> Option<TimerHandle> {
        let open = self.table.open.borrow();
        open.get(key).map(|connection| connection.idle_timer)
    }
}

impl<S> Table<S> {
    fn expire(&self, key: usize) {
        let connection = self.open.borrow_mut().remove(key);
        let silent_for = local_timer().now() - connection.last_packet_at;
        (self.on_idle)(connection.socket, silent_for);
    }
}
