//! The open connections of one core, each with an idle timeout.
//!
//! ```text
//! accept  arms the timer          packet  resets it to a whole timeout
//! close   cancels it              expiry  removes it and hands its socket to `on_idle`
//! ```
//!
//! A packet costs O(1) for any number of connections, and a silent connection costs nothing. This
//! code is generic over the socket: the server runs it on real ones, and
//! `tests/idle_connections.rs` on a hundred thousand simulated ones in virtual time.
//!
//! A key may be reused as soon as its connection is closed. It needs no generation: a timer ends
//! exactly once, so a timer that `close` has cancelled cannot expire the next connection with this
//! key.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use corewheel::{TimerHandle, local_timer};
use slab::Slab;

/// The open connections of this core.
pub(crate) struct Connections<S> {
    table: Rc<Table<S>>,
}

/// The state shared with the callbacks of the timers.
struct Table<S> {
    idle: Duration,
    open: RefCell<Slab<Connection<S>>>,
    on_idle: Box<dyn Fn(S, Duration)>,
}

struct Connection<S> {
    socket: S,
    idle_timer: TimerHandle,
    /// The arrival of its last packet, by the core's clock.
    heard: Instant,
}

impl<S: 'static> Connections<S> {
    /// `on_idle` gets the socket of a connection that was silent for `idle`, and the exact length
    /// of the silence.
    pub(crate) fn new(idle: Duration, on_idle: impl Fn(S, Duration) + 'static) -> Self {
        let table = Table { idle, open: RefCell::new(Slab::new()), on_idle: Box::new(on_idle) };
        Self { table: Rc::new(table) }
    }

    /// Adds a connection and arms its timeout. Returns its key.
    pub(crate) fn accept(&self, socket: S) -> usize {
        let mut open = self.table.open.borrow_mut();
        let slot = open.vacant_entry();
        let key = slot.key();
        let heard = local_timer().now();
        let table = Rc::clone(&self.table);
        // The closure is two words, so it is stored in place and not boxed.
        let idle_timer = local_timer().add(self.table.idle, move || table.expire(key));
        slot.insert(Connection { socket, idle_timer, heard });
        key
    }

    /// Resets the timeout of an open connection. Returns false if the timer was cancelled, and then
    /// it stays cancelled.
    pub(crate) fn packet(&self, key: usize) -> bool {
        let mut open = self.table.open.borrow_mut();
        let connection = &mut open[key];
        connection.heard = local_timer().now();
        connection.idle_timer.reset(self.table.idle)
    }

    /// Removes a connection and returns its socket. `None` if it is closed already.
    pub(crate) fn close(&self, key: usize) -> Option<S> {
        let connection = self.table.open.borrow_mut().try_remove(key)?;
        // The timer will not fire, even if another thread cancelled it first.
        connection.idle_timer.cancel();
        Some(connection.socket)
    }

    /// Runs `act` on the socket. `None` if the connection is closed. `act` must not use the other
    /// connections.
    pub(crate) fn with<R>(&self, key: usize, act: impl FnOnce(&mut S) -> R) -> Option<R> {
        let mut open = self.table.open.borrow_mut();
        open.get_mut(key).map(|connection| act(&mut connection.socket))
    }

    /// The handle of a connection's timeout, which any thread may cancel.
    pub(crate) fn idle_timer(&self, key: usize) -> Option<TimerHandle> {
        let open = self.table.open.borrow();
        open.get(key).map(|connection| connection.idle_timer)
    }
}

impl<S> Table<S> {
    /// Runs on the core's thread when the timer fires.
    fn expire(&self, key: usize) {
        let connection = self.open.borrow_mut().remove(key);
        let silent_for = local_timer().now() - connection.heard;
        (self.on_idle)(connection.socket, silent_for);
    }
}
