//! A `BTreeMap` by deadline, as in smol, async-io and glommio. The handle is the map's key.

use std::collections::BTreeMap;

use crate::timers::{Payload, ReportsDeadline, TimerSet};

pub struct BTree {
    timers: BTreeMap<Key, Payload>,
    next_id: u64,
}

/// The deadline and a unique number.
type Key = (u64, u64);

impl TimerSet for BTree {
    type Handle = Key;

    fn new() -> Self {
        Self { timers: BTreeMap::new(), next_id: 0 }
    }

    fn add(&mut self, deadline: u64, payload: Payload) -> Key {
        self.next_id += 1;
        let key = (deadline, self.next_id);
        self.timers.insert(key, payload);
        key
    }

    fn cancel(&mut self, key: &Key) -> bool {
        self.timers.remove(key).is_some()
    }

    fn reset(&mut self, key: &mut Key, deadline: u64) -> bool {
        let Some(payload) = self.timers.remove(key) else { return false };
        key.0 = deadline;
        self.timers.insert(*key, payload);
        true
    }

    fn advance(&mut self, now: u64, mut on_fire: impl FnMut(Payload)) {
        while let Some(first) = self.timers.first_entry().filter(|first| first.key().0 <= now) {
            on_fire(first.remove());
        }
    }
}

impl ReportsDeadline for BTree {
    fn next_deadline(&self) -> Option<u64> {
        self.timers.first_key_value().map(|(&(deadline, _), _)| deadline)
    }
}
