//! The interface between a thread's wheel and its clients, which are purgatories.

use std::{
    mem,
    rc::{Rc, Weak},
};

/// A purgatory, which keeps many timers on a thread's wheel. It sends messages and frees memory at
/// the end of turns.
pub(crate) trait WheelClient {
    /// Expires the client's timer `index`.
    fn expire(&self, index: u32);

    /// Sends the client's queued messages to other cores.
    fn flush(&self);

    /// Frees some spare memory, or all spare memory before a long sleep. Returns true if the next
    /// turn must call `trim` again.
    fn trim(&self, is_long_sleep: bool) -> bool;
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientId(u32);

/// The clients of a wheel. Timers refer to a client by its place in `places`.
#[derive(Default)]
pub(super) struct Clients {
    places: Vec<Option<Weak<dyn WheelClient>>>,
    free: Vec<u32>,
    keeps_places: bool,
}

impl Clients {
    pub(super) fn add(&mut self, client: Weak<dyn WheelClient>) -> ClientId {
        if let Some(free) = self.free.pop() {
            self.places[free as usize] = Some(client);
            return ClientId(free);
        }
        self.places.push(Some(client));
        let last = u32::try_from(self.places.len() - 1);
        ClientId(last.unwrap_or_else(|_| panic!("more than 2^32 clients of one wheel")))
    }

    /// Removes a client. Frees the memory of all places once no client is left.
    pub(super) fn remove(&mut self, ClientId(place): ClientId) {
        self.places[place as usize] = None;
        if self.keeps_places {
            return;
        }
        self.free.push(place);
        if self.free.len() == self.places.len() {
            mem::take(self);
        }
    }

    /// Prevents the reuse of places, because drained timers refer to them.
    pub(super) fn keep_places(&mut self) {
        self.keeps_places = true;
        self.free = Vec::new();
    }

    pub(super) fn get(&self, ClientId(place): ClientId) -> Option<Rc<dyn WheelClient>> {
        self.places.get(place as usize)?.as_ref()?.upgrade()
    }

    /// Returns the identifiers of all places.
    pub(super) fn ids(&self) -> impl Iterator<Item = ClientId> + use<> {
        (0..).map(ClientId).take(self.places.len())
    }
}
