//! The timer schemes that corewheel grew out of: small, readable and right, behind one trait.
//!
//! Varghese and Lauck ("Hashed and Hierarchical Timing Wheels", 1987) describe a timer module by
//! four routines: `START_TIMER`, `STOP_TIMER`, `PER_TICK_BOOKKEEPING` and `EXPIRY_PROCESSING`. They
//! compare seven schemes by what each routine costs when n timers are outstanding; [`Netty`],
//! [`Kafka`] and [`Linux`] are what well-known systems made of them. `doc/schemes.md` explains and
//! compares all of them.
//!
//! Every scheme runs in virtual time: one call of [`Module::per_tick`] is one tick. All pass the
//! same test against a model (`tests/schemes.rs`), each with its own
//! [`lateness`](Scheme::lateness); [`measure`] times their routines.

mod countdown;
mod heap;
mod hierarchy;
mod kafka;
mod linux;
mod list;
mod measure;
mod netty;
mod rounds;
mod simple;
mod sorted;
mod store;
mod tree;

pub use countdown::Countdown;
pub use heap::IndexedHeap;
pub use hierarchy::Hierarchy;
pub use kafka::Kafka;
pub use linux::Linux;
pub use list::OrderedList;
pub use measure::{COUNTS, measure};
pub use netty::Netty;
pub use rounds::RoundsWheel;
pub use simple::SimpleWheel;
pub use sorted::SortedSlots;
pub use store::{Handle, Timers};
pub use tree::Tree;

/// How a scheme keeps its timers.
pub trait Scheme {
    /// The name in tables and plots.
    const NAME: &'static str;
    /// The longest interval. Without a limit of the scheme's own: 34 years of milliseconds.
    const RANGE: u64 = 1 << 40;
    /// Whether a start is O(n).
    const LINEAR_START: bool = false;
    /// Whether a tick is O(n).
    const LINEAR_TICK: bool = false;
    /// Whether one call of [`tick`](Self::tick) serves several ticks, without a visit to each.
    const JUMPS: bool = false;

    /// Returns the most ticks that a timer of `interval` fires late. None ever fires early.
    fn lateness(interval: u64) -> u64 {
        let _ = interval;
        0
    }

    /// Creates the scheme and its lists.
    fn new(timers: &mut Timers) -> Self;

    /// Places a timer, whose `due` is its deadline.
    fn start(&mut self, timers: &mut Timers, index: u32);

    /// Takes out a timer that is outstanding; by default out of its list.
    fn stop(&mut self, timers: &mut Timers, index: u32) {
        timers.remove(index);
    }

    /// Serves the tick that has just begun.
    fn tick(&mut self, timers: &mut Timers, expire: &mut impl FnMut(u64));
}

/// A timer module: the four routines of Varghese and Lauck on a scheme.
#[derive(Debug)]
pub struct Module<S> {
    timers: Timers,
    scheme: S,
}

impl<S: Scheme> Module<S> {
    /// Creates a module without timers, at tick 0.
    #[expect(clippy::new_without_default, reason = "nothing needs a default")]
    pub fn new() -> Self {
        let mut timers = Timers::default();
        let scheme = S::new(&mut timers);
        Self { timers, scheme }
    }

    /// `START_TIMER`: `id` expires `interval` ticks from now; an interval of 0 counts as 1. Returns
    /// `None` if the interval is beyond the range.
    pub fn start_timer(&mut self, interval: u64, id: u64) -> Option<Handle> {
        if interval > S::RANGE {
            return None;
        }
        let index = self.timers.allocate(self.timers.now + interval.max(1), id);
        self.scheme.start(&mut self.timers, index);
        Some(self.timers.handle(index))
    }

    /// `STOP_TIMER`: returns whether the timer was still outstanding. It will not expire.
    pub fn stop_timer(&mut self, handle: Handle) -> bool {
        let Some(index) = self.timers.find(handle) else { return false };
        self.scheme.stop(&mut self.timers, index);
        true
    }

    /// `PER_TICK_BOOKKEEPING`: one tick passes. `expire` is `EXPIRY_PROCESSING`: it gets the id of
    /// each timer that is due.
    pub fn per_tick(&mut self, expire: &mut impl FnMut(u64)) {
        self.timers.now += 1;
        self.scheme.tick(&mut self.timers, expire);
    }

    /// Lets several ticks pass.
    pub fn advance(&mut self, ticks: u64, expire: &mut impl FnMut(u64)) {
        if S::JUMPS {
            self.timers.now += ticks;
            self.scheme.tick(&mut self.timers, expire);
        } else {
            (0..ticks).for_each(|_| self.per_tick(expire));
        }
    }

    /// Returns the number of timers that are outstanding.
    #[expect(clippy::len_without_is_empty, reason = "compared with the length of the model")]
    pub fn len(&self) -> usize {
        self.timers.len
    }
}

/// Something to do with every scheme.
pub trait Visitor {
    /// Does it with one of them.
    fn visit<S: Scheme>(&mut self);
}

/// Visits every scheme. Netty's comes twice: with its own tick of 100 ms, and with one of 1 ms as
/// all others have.
pub fn visit_all(visitor: &mut impl Visitor) {
    visitor.visit::<Countdown>();
    visitor.visit::<OrderedList>();
    visitor.visit::<Tree>();
    visitor.visit::<IndexedHeap>();
    visitor.visit::<SimpleWheel>();
    visitor.visit::<SortedSlots>();
    visitor.visit::<RoundsWheel>();
    visitor.visit::<Hierarchy>();
    visitor.visit::<Netty>();
    visitor.visit::<Netty<1>>();
    visitor.visit::<Kafka>();
    visitor.visit::<Linux>();
}
