//! The timer schemes that corewheel grew out of: small, readable and right.
//!
//! Varghese and Lauck ("Hashed and Hierarchical Timing Wheels", 1987) describe a timer module by
//! four routines: `START_TIMER`, `STOP_TIMER`, `PER_TICK_BOOKKEEPING` and `EXPIRY_PROCESSING`. They
//! compare seven schemes by what each routine costs when n timers are outstanding; [`Netty`],
//! [`Kafka`] and [`Linux`] are what well-known systems made of them. `doc/schemes.md` explains and
//! compares all of them. A scheme that is also one of the [`peers`](crate::peers) exists once.
//!
//! Every scheme runs in virtual time and passes the same test against a model as the peers
//! (`tests/peers.rs`), with its own lateness; [`measure`] times its routines.

mod kafka;
mod linux;
mod measure;
mod netty;
mod store;
mod varghese;

pub use kafka::Kafka;
pub use linux::Linux;
pub use measure::{COUNTS, measure};
pub use netty::Netty;
pub use store::Store;
pub use varghese::{Countdown, OrderedList, RoundsWheel, SortedSlots};

use crate::{
    peers::{BTree, Handle, Heap4, Linked64, Single65536},
    timers::{Payload, Timers},
};

/// How a scheme keeps its timers.
pub trait Scheme {
    /// Whether one call of [`tick`](Self::tick) serves several ticks, without a visit to each.
    const JUMPS: bool = false;

    fn new(store: &mut Store) -> Self;

    /// Places a timer, whose `due` is its deadline.
    fn start(&mut self, store: &mut Store, index: u32);

    /// Takes out a timer that is outstanding; by default out of its list.
    fn stop(&mut self, store: &mut Store, index: u32) {
        store.remove(index);
    }

    /// Serves the tick that has just begun.
    fn tick(&mut self, store: &mut Store, expire: &mut impl FnMut(Payload));
}

pub struct Module<S> {
    store: Store,
    scheme: S,
}

impl<S: Scheme> Timers for Module<S> {
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
            self.store.now = if S::JUMPS { now } else { self.store.now + 1 };
            self.scheme.tick(&mut self.store, &mut on_fire);
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Properties {
    pub name: &'static str,
    /// The longest interval. Without a limit of the scheme's own: 34 years of milliseconds.
    pub range: u64,
    pub is_start_linear: bool,
    pub is_tick_linear: bool,
    /// The most ticks that a timer of an interval fires late. None ever fires early.
    pub lateness: fn(u64) -> u64,
}

impl Properties {
    /// An exact scheme, whose routines are O(1) or O(log n).
    pub fn exact(name: &'static str) -> Self {
        let (is_start_linear, is_tick_linear) = (false, false);
        Self { name, range: 1 << 40, is_start_linear, is_tick_linear, lateness: |_| 0 }
    }
}

/// Something to do with every scheme.
pub trait Visitor {
    fn visit<T: Timers>(&mut self, properties: Properties);
}

/// Visits every scheme, and Netty's with its own tick of 100 ms and with one of 1 ms.
pub fn visit_all(visitor: &mut impl Visitor) {
    let exact = Properties::exact;
    visitor.visit::<Module<Countdown>>(Properties { is_tick_linear: true, ..exact("1-countdown") });
    visitor.visit::<Module<OrderedList>>(Properties { is_start_linear: true, ..exact("2-list") });
    visitor.visit::<BTree>(exact("3-tree"));
    visitor.visit::<Heap4>(exact("3-heap"));
    visitor.visit::<Single65536>(Properties { range: 65_535, ..exact("4-simple-wheel") });
    visitor.visit::<Module<SortedSlots>>(exact("5-sorted-slots"));
    visitor.visit::<Module<RoundsWheel>>(exact("6-rounds-wheel"));
    visitor.visit::<Linked64>(exact("7-hierarchy"));
    visitor.visit::<Module<Netty>>(Properties { lateness: |_| 100, ..exact("netty") });
    visitor.visit::<Module<Netty<1>>>(Properties { lateness: |_| 1, ..exact("netty-1ms") });
    visitor.visit::<Module<Kafka>>(exact("kafka"));
    let lateness = |interval: u64| (interval * 8 / 63).max(1);
    visitor.visit::<Module<Linux>>(Properties { range: linux::RANGE, lateness, ..exact("linux") });
}
