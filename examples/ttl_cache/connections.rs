//! The connections of one core, and which of them have something to do.

use corewheel::LocalHandle;
use mio::net::TcpStream;
use slab::Slab;

use crate::connection::Connection;
use crate::crossing::Address;

#[derive(Default)]
pub(crate) struct Connections {
    open: Slab<Connection>,
    /// Each is in here once: it knows whether it is.
    ready: Vec<usize>,
    /// So many there have been. A key is used again, this number is not.
    ever: u64,
}

impl Connections {
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    pub(crate) fn is_busy(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The key of the next one to be inserted.
    pub(crate) fn next_key(&self) -> usize {
        self.open.vacant_key()
    }

    pub(crate) fn insert(&mut self, stream: TcpStream, idle: LocalHandle) {
        self.ever += 1;
        self.open.insert(Connection::new(stream, self.ever, idle));
    }

    /// Changes a connection that has something to do now.
    pub(crate) fn touch(&mut self, key: usize, change: impl FnOnce(&mut Connection)) {
        if let Some(connection) = self.open.get_mut(key) {
            change(connection);
            if connection.becomes_ready() {
                self.ready.push(key);
            }
        }
    }

    /// Part of an answer has come for somebody, who may have gone.
    pub(crate) fn deliver(&mut self, to: Address, answer: &[u8]) {
        if self.open.get(to.connection).is_some_and(|connection| connection.id() == to.id) {
            self.touch(to.connection, |connection| connection.deliver(to.answer, to.part, answer));
        }
    }

    /// Those that have something to do now. Give the list back, for its memory.
    pub(crate) fn take_ready(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.ready)
    }

    pub(crate) fn put_back(&mut self, mut served: Vec<usize>) {
        served.clear();
        served.append(&mut self.ready);
        self.ready = served;
    }

    /// One of those that were ready is served now.
    pub(crate) fn begin(&mut self, key: usize) -> Option<&mut Connection> {
        let connection = self.open.get_mut(key)?;
        connection.begins();
        Some(connection)
    }

    /// Takes one out; its idle timer is cancelled, and dropping it closes it.
    pub(crate) fn remove(&mut self, key: usize) -> Option<Connection> {
        let connection = self.open.try_remove(key)?;
        connection.end_idle_timer();
        Some(connection)
    }
}
