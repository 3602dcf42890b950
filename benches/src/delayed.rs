//! Delayed operations on one core or several: what each contender does, so that one load can be put on all of them.

mod corewheel;
mod locked;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ::corewheel::{Completion, Config, Core, DelayedOperation};

pub use self::{corewheel::Corewheel, locked::Locked};

/// One core's access to the operations.
pub trait Delayed: Sized + 'static {
    /// What all cores have in common.
    type Common: Clone + Send + Sync + 'static;
    /// Names an operation that waits.
    type Id: Copy;

    /// For a run with this layout.
    fn common(layout: Layout) -> Self::Common;

    /// How the core's own timer is made.
    fn config(common: &Self::Common, core: usize) -> Config;

    /// On the core's own thread.
    fn new(common: &Self::Common, core: &Core) -> Self;

    /// Adds an operation that waits for an event on its key, so many ticks at most. `None` if it has completed.
    fn add(&mut self, operation: Operation, ticks: u64) -> Option<Self::Id>;

    /// There was an event on a key.
    fn notify(&mut self, key: usize);

    /// Completes an operation, if it has not.
    fn force(&mut self, id: Self::Id);

    /// A tick has passed on this core, which also hears what others have to say to it.
    fn tick(&mut self);
}

/// Who is where. The events on a key are all made by one core; operations on the next core wait for them.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// How many cores.
    pub cores: usize,
    /// Whether a key belongs to the core that makes its events, and not to the one whose operations wait for them.
    pub far: bool,
}

impl Layout {
    /// The core that makes the events on a key.
    pub fn maker(self, key: usize) -> usize {
        key % self.cores
    }

    /// The core whose operations wait for the events that this one makes.
    pub fn waiting_for(self, maker: usize) -> usize {
        (maker + 1) % self.cores
    }

    /// The core that a key belongs to.
    pub fn home(self, key: usize) -> usize {
        let maker = self.maker(key);
        if self.far { maker } else { self.waiting_for(maker) }
    }
}

/// What the operations look at, and where they are counted. All relaxed: the figures stand for themselves, and who makes
/// an event tells of it in a way that carries it.
#[derive(Debug)]
pub struct Board {
    /// How many events there were on each key.
    pub events: Vec<AtomicU64>,
    /// By core.
    pub ended: Vec<Ended>,
}

/// One core's operations, and what has become of them.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Ended {
    /// How many were added that wait for an event which is to come.
    pub added: AtomicU64,
    by_condition: AtomicU64,
    otherwise: AtomicU64,
}

impl Ended {
    /// By their condition, and by force or time.
    pub fn read(&self) -> [u64; 2] {
        [self.by_condition.load(Relaxed), self.otherwise.load(Relaxed)]
    }
}

/// Waits until there were so many events on its key.
#[derive(Debug)]
pub struct Operation {
    /// Where it looks.
    pub board: &'static Board,
    /// What it waits for.
    pub key: u32,
    /// Whose it is.
    pub core: u32,
    /// How many events.
    pub wanted: u64,
}

impl DelayedOperation for Operation {
    fn try_complete(&mut self) -> bool {
        self.board.events[self.key as usize].load(Relaxed) >= self.wanted
    }

    fn on_complete(self, how: Completion) {
        let ended = &self.board.ended[self.core as usize];
        let ended =
            if how == Completion::Condition { &ended.by_condition } else { &ended.otherwise };
        ended.fetch_add(1, Relaxed);
    }
}
