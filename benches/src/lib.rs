//! The loads that the benches put on corewheel: the same on every run, on every machine.
//!
//! The model is a server with one idle timeout of [`TIMEOUT`] ticks per connection. Each operation acts on a random
//! connection, so that it misses the cache as often as it would there, and virtual time moves on by one tick every
//! [`OPERATIONS_PER_TICK`] operations, so that what an operation puts off is paid within the same measurement.

use corewheel::{Key, Wheel};
use fastrand::Rng;

/// An idle timeout: 30 s in ticks of 1 ms.
pub const TIMEOUT: u64 = 30_000;

/// A million operations a second on ticks of 1 ms.
pub const OPERATIONS_PER_TICK: u32 = 1000;

/// How many timers are live: one core of a small server, and one of a large one.
pub const LIVE: [usize; 2] = [1000, 100_000];

/// Counts operations and says when a tick has passed.
#[derive(Clone, Debug, Default)]
pub struct Pace(u32);

impl Pace {
    /// Counts one operation; true for every [`OPERATIONS_PER_TICK`]th.
    pub fn tick(&mut self) -> bool {
        self.0 = (self.0 + 1) % OPERATIONS_PER_TICK;
        self.0 == 0
    }
}

/// A wheel that holds the idle timeout of each of a number of connections.
#[derive(Debug)]
pub struct Connections {
    wheel: Wheel<u64>,
    keys: Vec<Key>,
    rng: Rng,
    pace: Pace,
}

impl Connections {
    /// `live` connections, each heard from within the last half of a [`TIMEOUT`].
    pub fn new(live: usize) -> Self {
        let mut rng = Rng::with_seed(1);
        let mut wheel = Wheel::new();
        let keys = (0..live).map(|id| wheel.insert(TIMEOUT - rng.u64(..TIMEOUT / 2), id as u64)).collect();
        Self { wheel, keys, rng, pace: Pace::default() }
    }

    /// A request ends and another begins: one timer is removed, one inserted.
    pub fn replace(&mut self) -> Option<u64> {
        let chosen = self.rng.usize(..self.keys.len());
        let removed = self.wheel.remove(self.keys[chosen]);
        self.keys[chosen] = self.wheel.insert(self.wheel.now() + TIMEOUT, chosen as u64);
        self.keep_pace();
        removed
    }

    /// A packet arrives: one timer moves to a full timeout from now.
    pub fn touch(&mut self) -> bool {
        let key = self.keys[self.rng.usize(..self.keys.len())];
        let moved = self.wheel.reset(key, self.wheel.now() + TIMEOUT);
        self.keep_pace();
        moved
    }

    /// Silence for one tick; the sum of what the expired timers held.
    pub fn pass(&mut self) -> u64 {
        self.wheel.advance(self.wheel.now() + 1).map(|(_, id)| id).sum()
    }

    fn keep_pace(&mut self) {
        if self.pace.tick() {
            self.pass();
        }
    }
}
