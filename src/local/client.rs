//! The interface between a thread's wheel and its clients, which are purgatories.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    mem,
    rc::{Rc, Weak},
};

/// A client of a thread's wheel: a purgatory, which keeps many timers on the wheel. When a client
/// has requested a flush or a trim, the wheel calls `flush` or `trim` of each client at the end of
/// turns and before sleeps.
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

/// The clients of a wheel. Timers refer to a client by its index in `places`.
#[derive(Default)]
pub(super) struct Clients {
    places: Vec<Option<Weak<dyn WheelClient>>>,
    /// The indices of the free places. After `places` was shortened, also indices beyond its end,
    /// which `add` ignores.
    free_places: BinaryHeap<Reverse<u32>>,
    forbids_id_reuse: bool,
}

impl Clients {
    pub(super) fn add(&mut self, client: Weak<dyn WheelClient>) -> ClientId {
        if let Some(Reverse(free)) = self.free_places.pop()
            && let Some(place) = self.places.get_mut(free as usize)
        {
            *place = Some(client);
            return ClientId(free);
        }
        // No place is free: the lowest index in `free_places`, if any, is beyond the end of
        // `places`.
        self.free_places.clear();
        self.places.push(Some(client));
        let last = u32::try_from(self.places.len() - 1);
        ClientId(last.unwrap_or_else(|_| panic!("more than 2^32 clients of one wheel")))
    }

    /// Removes a client, and the free places after the last client. If no client is left, frees all
    /// memory. If reuse is forbidden, only marks the client's place as empty.
    pub(super) fn remove(&mut self, ClientId(place): ClientId) {
        self.places[place as usize] = None;
        if self.forbids_id_reuse {
            return;
        }
        self.free_places.push(Reverse(place));
        while self.places.pop_if(|client| client.is_none()).is_some() {}
        if self.places.is_empty() {
            mem::take(self);
        }
    }

    /// Prevents the reuse of places, because drained timers refer to them.
    pub(super) fn forbid_id_reuse(&mut self) {
        self.forbids_id_reuse = true;
        self.free_places = BinaryHeap::new();
    }

    pub(super) fn get(&self, ClientId(place): ClientId) -> Option<Rc<dyn WheelClient>> {
        self.places.get(place as usize)?.as_ref()?.upgrade()
    }

    /// Returns the identifiers of all places, including free ones.
    pub(super) fn ids(&self) -> impl Iterator<Item = ClientId> + use<> {
        (0..).map(ClientId).take(self.places.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Client;

    impl WheelClient for Client {
        fn expire(&self, _: u32) {}

        fn flush(&self) {}

        fn trim(&self, _: bool) -> bool {
            false
        }
    }

    #[test]
    fn remove_frees_trailing_ids_for_reuse() {
        let mut clients = Clients::default();
        let client: Rc<dyn WheelClient> = Rc::new(Client);
        let ids: Vec<_> = (0..10).map(|_| clients.add(Rc::downgrade(&client))).collect();
        for &id in ids[5..].iter().chain(&ids[1..5]) {
            clients.remove(id);
        }
        assert_eq!(clients.ids().count(), 1);
        for place in 1..10 {
            assert_eq!(clients.add(Rc::downgrade(&client)).0, place);
        }
    }
}
