//! Earlier timer schemes, in short and readable versions.
//!
//! Varghese and Lauck ("Hashed and Hierarchical Timing Wheels", 1987) describe a timer module by
//! four routines: `START_TIMER`, `STOP_TIMER`, `PER_TICK_BOOKKEEPING` and `EXPIRY_PROCESSING`.
//! `doc/schemes.md` explains the schemes and compares them. Further schemes are among the
//! [`peers`](crate::peers).
//!
//! `tests/peers.rs` checks that each scheme fires timers with the documented lateness. The workload
//! `scheme` times the routines.

mod kafka;
mod linux;
mod netty;
mod store;
mod varghese;

pub use kafka::Kafka;
pub use linux::Linux;
pub use netty::Netty;
pub use store::Store;
pub use varghese::{Countdown, OrderedList, RoundsWheel, SortedSlots};

use crate::peers::Handle;
use crate::timers::{Payload, TimerSet};

pub trait Scheme {
    /// True if one call of [`tick`](Self::tick) processes all ticks since the previous call.
    const TICKS_AT_ONCE: bool = false;

    fn new(store: &mut Store) -> Self;

    /// Inserts a timer, whose `deadline_or_rounds` is its deadline.
    fn start(&mut self, store: &mut Store, index: u32);

    /// Removes a live timer. The default unlinks it from its list.
    fn stop(&mut self, store: &mut Store, index: u32) {
        store.remove(index);
    }

    fn tick(&mut self, store: &mut Store, expire: &mut impl FnMut(Payload));
}

pub struct SchemeTimers<S> {
    store: Store,
    scheme: S,
}

impl<S: Scheme> TimerSet for SchemeTimers<S> {
    type Handle = Handle;

    fn new() -> Self {
        let mut store = Store::default();
        let scheme = S::new(&mut store);
        Self { store, scheme }
    }

    fn add(&mut self, deadline: u64, payload: Payload) -> Handle {
        let index = self.store.allocate(deadline, payload);
        self.scheme.start(&mut self.store, index);
        self.store.handle(index)
    }

    fn cancel(&mut self, handle: &Handle) -> bool {
        let index = self.store.find(*handle);
        if let Some(index) = index {
            self.scheme.stop(&mut self.store, index);
        }
        index.is_some()
    }

    fn reset(&mut self, handle: &mut Handle, deadline: u64) -> bool {
        let Some(index) = self.store.find(*handle) else { return false };
        let payload = self.store[index].payload;
        self.scheme.stop(&mut self.store, index);
        *handle = self.add(deadline, payload);
        true
    }

    fn advance(&mut self, now: u64, mut on_fire: impl FnMut(Payload)) {
        while self.store.now < now {
            self.store.now = if S::TICKS_AT_ONCE { now } else { self.store.now + 1 };
            self.scheme.tick(&mut self.store, &mut on_fire);
        }
    }
}
