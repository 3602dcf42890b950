//! The timer schemes that corewheel grew out of: small, readable and right, behind one trait.
//!
//! Varghese and Lauck ("Hashed and Hierarchical Timing Wheels", 1987) describe a timer module by four routines:
//! `START_TIMER`, `STOP_TIMER`, `PER_TICK_BOOKKEEPING` and `EXPIRY_PROCESSING`. They compare seven schemes by what
//! each routine costs when n timers are outstanding. The last three rows are what well-known systems made of them.
//!
//! | scheme | how it keeps the timers | start | stop | tick | accuracy |
//! |---|---|---|---|---|---|
//! | 1 [`Countdown`] | in no order: every tick counts every timer down | O(1) | O(1) | O(n) | exact |
//! | 2 [`OrderedList`] | one list, the earliest first | O(n) | O(1) | O(1) | exact |
//! | 3 [`Tree`] | a balanced search tree | O(log n) | O(log n) | O(log n) | exact |
//! | 3 [`IndexedHeap`] | a binary heap that knows where each timer is | O(log n) | O(log n) | O(1) | exact |
//! | 4 [`SimpleWheel`] | a ring with one slot per tick | O(1) | O(1) | O(1) | exact, limited range |
//! | 5 [`SortedSlots`] | a ring of few slots, each an ordered list | O(n / slots) | O(1) | O(1) | exact |
//! | 6 [`RoundsWheel`] | a ring of few slots, each timer counts revolutions | O(1) | O(1) | O(n / slots) | exact |
//! | 7 [`Hierarchy`] | rings of ever wider slots; timers move down (cascade) | O(levels) | O(1) | O(1) | exact, limited range |
//! | [`Netty`] | scheme 6, with queues between callers and worker | O(1) | O(1) | O(n / slots) | up to a tick of its own late |
//! | [`Kafka`] | scheme 7, levels made on demand, a heap of slots that are in use | O(levels) | O(1) | O(1) | exact |
//! | [`Linux`] | scheme 7 without moving: a far timer fires with its wide slot | O(levels) | O(1) | O(1) | late by about an eighth |
//!
//! How to read it: scheme 1 pays for every timer at every tick, scheme 2 pays when a timer starts. A tree halves the
//! search at each step. A wheel needs no search: the deadline *is* the place in an array, but the array has to be as long as
//! the longest interval. Schemes 5 and 6 fold a long array into a short one, so that slots hold timers of different
//! revolutions; scheme 7 keeps far timers in coarse slots and sorts them out as they come near. Linux saves the
//! sorting out and is late instead.
//!
//! The costs of the tick are those of a tick in which nothing is due, averaged over a revolution; a timer that
//! expires costs O(1) more (O(log n) for scheme 3). Those with `slots` are O(1) while there are fewer timers than
//! slots.
//!
//! Every scheme runs in virtual time: one call of [`Scheme::per_tick`] is one tick. All pass the same test against a
//! model (`tests/schemes.rs`), each with its own documented [`Accuracy`]; [`measure`] times their routines.

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

use std::fmt;

pub use countdown::Countdown;
pub use heap::IndexedHeap;
pub use hierarchy::Hierarchy;
pub use kafka::Kafka;
pub use linux::Linux;
pub use list::OrderedList;
pub use measure::{ROUTINES, Row, measure, steps};
pub use netty::Netty;
pub use rounds::RoundsWheel;
pub use simple::SimpleWheel;
pub use sorted::SortedSlots;
pub use store::Handle;
pub use tree::Tree;

/// The longest interval of a scheme that has no limit of its own: 34 years of milliseconds.
pub const LONGEST: u64 = 1 << 40;

/// A timer module: the four routines of Varghese and Lauck.
pub trait Scheme {
    /// What tables and plots call it.
    const NAME: &'static str;
    /// How late a timer may fire. None ever fires early.
    const ACCURACY: Accuracy;
    /// The longest interval that [`start_timer`](Self::start_timer) takes.
    const RANGE: u64 = LONGEST;
    /// How the routines grow with the number of timers.
    const COST: Cost;

    /// No timers, at tick 0.
    fn new() -> Self;

    /// `START_TIMER`: `id` shall expire `interval` ticks from now; an interval of 0 counts as 1. `None` if the
    /// interval is beyond the range.
    fn start_timer(&mut self, interval: u64, id: u64) -> Option<Handle>;

    /// `STOP_TIMER`: whether the timer was still outstanding. It will not expire.
    fn stop_timer(&mut self, handle: Handle) -> bool;

    /// `PER_TICK_BOOKKEEPING`: one tick passes. `expire` is `EXPIRY_PROCESSING`: it gets the id of each timer that is
    /// due.
    fn per_tick(&mut self, expire: &mut impl FnMut(u64));

    /// Several ticks pass: for a scheme that must visit each of them, as many calls of [`per_tick`](Self::per_tick).
    fn advance(&mut self, ticks: u64, expire: &mut impl FnMut(u64)) {
        for _ in 0..ticks {
            self.per_tick(expire);
        }
    }

    /// How many timers are outstanding.
    fn len(&self) -> usize;

    /// Whether no timer is outstanding.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// How late a timer may fire. Shown as what it adds to the interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accuracy {
    /// In the tick of its deadline.
    Exact,
    /// At most this many ticks later.
    UpToTicks(u64),
    /// Later by at most this part of its interval, but always allowed one tick.
    Fraction {
        /// So many ...
        numerator: u64,
        /// ... of so many parts.
        denominator: u64,
    },
}

impl Accuracy {
    /// The most ticks that a timer of `interval` may be late.
    pub fn lateness(self, interval: u64) -> u64 {
        match self {
            Self::Exact => 0,
            Self::UpToTicks(ticks) => ticks,
            Self::Fraction { numerator, denominator } => {
                (interval * numerator / denominator).max(1)
            }
        }
    }
}

impl fmt::Display for Accuracy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact => f.pad("exact"),
            Self::UpToTicks(1) => f.pad("+1 tick"),
            Self::UpToTicks(ticks) => write!(f, "+{ticks} ticks"),
            Self::Fraction { numerator, denominator } => write!(f, "+{numerator}/{denominator}"),
        }
    }
}

/// How the cost of a routine grows with the number n of timers, on average.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// O(1).
    Constant,
    /// O(log n).
    Logarithmic,
    /// O(n / slots): O(1) while there are fewer timers than slots.
    PerSlot,
    /// O(n).
    Linear,
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Constant => "O(1)",
            Self::Logarithmic => "O(log n)",
            Self::PerSlot => "O(n / slots)",
            Self::Linear => "O(n)",
        })
    }
}

/// The growth of each routine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Of [`Scheme::start_timer`].
    pub start: Growth,
    /// Of [`Scheme::stop_timer`].
    pub stop: Growth,
    /// Of [`Scheme::per_tick`] when nothing is due.
    pub tick: Growth,
    /// Of what a timer that expires adds to that.
    pub expiry: Growth,
}

impl Cost {
    /// O(1) throughout.
    pub const CONSTANT: Self = Self {
        start: Growth::Constant,
        stop: Growth::Constant,
        tick: Growth::Constant,
        expiry: Growth::Constant,
    };
}

/// Something to do with every scheme.
pub trait Visitor {
    /// Does it with one of them.
    fn visit<S: Scheme>(&mut self);
}

/// Visits every scheme, in the order of the table. Netty's comes twice: with its own tick of 100 ms, and with one of
/// 1 ms as all others have.
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

/// What a scheme says about itself.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// [`Scheme::NAME`].
    pub name: &'static str,
    /// [`Scheme::ACCURACY`].
    pub accuracy: Accuracy,
    /// [`Scheme::COST`].
    pub cost: Cost,
}

/// All schemes, in the order of [`visit_all`].
pub fn all() -> Vec<About> {
    struct All(Vec<About>);
    impl Visitor for All {
        fn visit<S: Scheme>(&mut self) {
            self.0.push(About { name: S::NAME, accuracy: S::ACCURACY, cost: S::COST });
        }
    }
    let mut all = All(Vec::new());
    visit_all(&mut all);
    all.0
}

/// The names of all schemes, in the order of [`visit_all`].
pub fn names() -> Vec<&'static str> {
    all().iter().map(|about| about.name).collect()
}
