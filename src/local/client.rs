//! The interface between a thread's wheel and its clients, which are purgatories.

use std::{
    mem,
    rc::{Rc, Weak},
};

/// A client of a thread's wheel: a purgatory. If a client requests a flush, the wheel flushes every
/// client at the turn's end or before a sleep. If a client requests a trim, the wheel trims every
/// client at the turn's end or before a long sleep.
pub(crate) trait WheelClient {
    /// Completes the client's operation `client_index`, whose timer has fired.
    fn expire_operation(&self, client_index: u32);

    /// Sends the client's queued messages to other cores.
    fn flush_messages(&self);

    /// Frees some surplus memory; before a long sleep, frees much more. Returns true if the next
    /// turn must call `trim_memory` again.
    fn trim_memory(&self, is_before_long_sleep: bool) -> bool;
}

/// Identifies a client of one wheel. A later client may get the identifier of a removed client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientId(u32);

#[derive(Default)]
pub(super) struct Clients {
    /// The clients, indexed by identifier; `None` for a free identifier.
    clients_by_id: Vec<Option<Weak<dyn WheelClient>>>,
}

impl Clients {
    /// Gives the client the lowest free identifier.
    pub(super) fn add(&mut self, client: Weak<dyn WheelClient>) -> ClientId {
        let free_position = self.clients_by_id.iter().position(Option::is_none);
        let id = free_position.unwrap_or(self.clients_by_id.len());
        if free_position.is_none() {
            self.clients_by_id.push(None);
        }
        self.clients_by_id[id] = Some(client);
        ClientId(
            u32::try_from(id).unwrap_or_else(|_| panic!("more than 2^32 clients of one wheel")),
        )
    }

    /// Removes a client, frees its identifier, and truncates `clients_by_id` after the last
    /// remaining client. If no client remains, frees the memory of `clients_by_id`.
    pub(super) fn remove(&mut self, ClientId(id): ClientId) {
        self.clients_by_id[id as usize] = None;
        while self.clients_by_id.pop_if(|client| client.is_none()).is_some() {}
        if self.clients_by_id.is_empty() {
            mem::take(self);
        }
    }

    pub(super) fn get(&self, ClientId(id): ClientId) -> Option<Rc<dyn WheelClient>> {
        self.clients_by_id.get(id as usize)?.as_ref()?.upgrade()
    }

    /// Returns the identifiers up to the last client's, including the free identifiers.
    pub(super) fn ids_up_to_last(&self) -> impl Iterator<Item = ClientId> + use<> {
        (0..).map(ClientId).take(self.clients_by_id.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct NoopClient;

    impl WheelClient for NoopClient {
        fn expire_operation(&self, _: u32) {}

        fn flush_messages(&self) {}

        fn trim_memory(&self, _: bool) -> bool {
            false
        }
    }

    #[test]
    fn remove_frees_trailing_ids_for_reuse() {
        let mut clients = Clients::default();
        let client: Rc<dyn WheelClient> = Rc::new(NoopClient);
        let ids: Vec<_> = (0..10).map(|_| clients.add(Rc::downgrade(&client))).collect();
        for &id in ids[5..].iter().chain(&ids[1..5]) {
            clients.remove(id);
        }
        assert_eq!(clients.ids_up_to_last().count(), 1);
        for id in 1..10 {
            assert_eq!(clients.add(Rc::downgrade(&client)).0, id);
        }
    }
}
