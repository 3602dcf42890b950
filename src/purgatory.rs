//! Delayed operations: they complete early, when a condition on some key holds, or time out; never both.
//!
//! It is what Kafka calls a purgatory: a produce request that waits until followers have caught up, a fetch that waits for
//! enough bytes, a join that waits for all members. An operation is parked on one core, with a timer and a watch on each of
//! its keys; an event on a key has it look at its condition again.
//!
//! # Exactly once
//!
//! An operation lives and completes on its own core, so nothing of it is ever raced for. Its timer is the only completion flag:
//! whoever completes it has cancelled the timer, or is the timer. While its own `try_complete` runs, an operation is *out*: who
//! completes it meanwhile (the timer in a turn of the user's, a `force_complete` inside) claims the timer and leaves
//! word, and it is completed that way when it comes back.
//!
//! # No sweep
//!
//! A completed operation leaves all its lists at once, in a step per key (`watches`); on other cores, when the message that
//! says so has come there ([`PurgatoryCounts::unsent`]). So nothing has to be searched for what is finished.
//!
//! # Several cores
//!
//! A [`PurgatoryGroup`] says which core a key belongs to. An operation that watches a key of another core has a watch there,
//! and an event there sends it a message. When it hears that such a watch is in place it looks at its condition once more, and
//! so it does when all of them are: no event falls between.
//!
//! Nothing is sent twice and nothing is waited for. A purgatory that ends tells those that watch its keys, and the sender of a
//! message that can reach nobody, because the core or its purgatory has ended, is told (`letter`): the watch that it was about ends,
//! and an operation that can hear of no event on a key any more looks at its condition a last time for it.

mod arena;
mod group;
mod inner;
mod letter;
mod message;
mod watches;

use std::{
    any::{Any, TypeId},
    cell::RefCell,
    collections::HashMap,
    fmt,
    hash::Hash,
    rc::Rc,
    time::Duration,
};

pub use self::group::PurgatoryGroup;
use self::{arena::Id, inner::Inner};
use crate::{error::AddError, sync::per_thread};

/// Something that waits for a condition.
pub trait DelayedOperation: 'static {
    /// Whether the condition is met. If it panics, it is not.
    ///
    /// Called when the operation is added, at each event on one of its keys, and, for a key of another core, once when the watch is in
    /// place there and once if that core ends. Keep it quick, and do not turn the timer in it. An event on one of its own keys that it
    /// causes makes it called once more. An event for other operations has those look before it returns, and so on with the events that
    /// they cause: on one stack, without a bound.
    fn try_complete(&mut self) -> bool;

    /// Called once, on the core where the operation was added, when it has completed. It may use the purgatory. What it completes
    /// there ends inside it, and so on, sixteen deep; what is deeper ends when the outermost has.
    ///
    /// An operation that holds its own purgatory keeps it: both are never dropped if their thread ends first.
    fn on_complete(self, how: Completion)
    where
        Self: Sized;
}

/// What operations wait on: any value that can be compared, hashed, cloned, and sent to another core. Its own code for that, and
/// for being dropped, must not use the purgatory.
pub trait WatchKey: Hash + Eq + Clone + Send + 'static {}

impl<K: Hash + Eq + Clone + Send + 'static> WatchKey for K {}

/// How an operation has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Completion {
    /// Its condition was met.
    Condition,
    /// By [`force_complete`](Purgatory::force_complete).
    Forced,
    /// Its timeout was over.
    Expired,
}

/// What has become of an operation that was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an operation that waits can be forced by its name only"]
pub enum Outcome {
    /// It has completed already, mostly by its condition. (The code of its keys may have forced it, or taken it out.)
    Completed,
    /// It waits.
    Waits(OperationId),
}

/// Names an operation that waits, in its purgatory. It keeps nothing alive, and never means another operation of that one; in others
/// the same name is somebody else's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OperationId(Id);

/// What has become of the operations of one core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PurgatoryCounts {
    /// Operations added, those that completed at once included.
    pub added: u64,
    /// Completed by their condition.
    pub by_condition: u64,
    /// Completed by force.
    pub forced: u64,
    /// Timed out.
    pub expired: u64,
    /// Handed back by `cancel_for_key` or `drain`.
    pub handed_back: u64,
    /// Waiting now.
    pub live: u64,
    /// Watches of operations that wait, on this core; those of other cores' operations included.
    pub watches: u64,
    /// Keys that are watched on this core.
    pub keys: u64,
    /// Messages to other cores that wait for the next turn: events, watches, and those that are over.
    pub unsent: u64,
}

/// The delayed operations of one core; its clones are the same purgatory, and none leaves the thread.
///
/// Memory, beside the operation and its timer: some 50 bytes for an operation, 40 for a watch, and some 40 and the key for a
/// key. What a burst has taken is used again, and goes back when nothing waits any more.
///
/// The operations time out in the turns of the thread's [`local_timer`](crate::local_timer). When the last clone is dropped,
/// so are the operations that wait, and `on_complete` does not run.
///
/// # Examples
///
/// ```
/// use corewheel::{Completion, DelayedOperation, Outcome, Purgatory};
/// use std::{cell::Cell, rc::Rc, time::Duration};
///
/// /// A fetch that waits until there are enough bytes.
/// struct Fetch {
///     there: Rc<Cell<usize>>,
///     wanted: usize,
/// }
///
/// impl DelayedOperation for Fetch {
///     fn try_complete(&mut self) -> bool {
///         self.there.get() >= self.wanted
///     }
///
///     fn on_complete(self, how: Completion) {
///         println!("{how:?}: {} bytes", self.there.get());
///     }
/// }
///
/// let there = Rc::new(Cell::new(0));
/// let purgatory = Purgatory::new();
/// let fetch = Fetch { there: Rc::clone(&there), wanted: 100 };
/// let waits = purgatory.try_complete_else_watch(fetch, ["partition 7"], Duration::from_millis(500)).unwrap();
/// assert!(matches!(waits, Outcome::Waits(_)));
///
/// there.set(120); // something was written:
/// assert_eq!(purgatory.check_and_complete(&"partition 7"), 1);
/// assert!(purgatory.is_empty());
/// ```
pub struct Purgatory<K: WatchKey, Op: DelayedOperation>(Rc<Inner<K, Op>>);

per_thread! {
    /// By the types of key and operation: a `Purgatory<K, Op>`.
    static LOCAL: RefCell<Option<HashMap<TypeId, Box<dyn Any>>>> = RefCell::new(None);
}

/// This thread's purgatory for such keys and operations. It is made on first use and goes when the thread ends; a thread that is
/// exiting gets a new one each time.
pub fn local_purgatory<K: WatchKey, Op: DelayedOperation>() -> Purgatory<K, Op> {
    let local = LOCAL.try_with(|local| {
        let mut local = local.borrow_mut();
        let place = local.get_or_insert_default().entry(TypeId::of::<(K, Op)>());
        place
            .or_insert_with(|| Box::new(Purgatory::<K, Op>::new()))
            .downcast_ref::<Purgatory<K, Op>>()
            .cloned()
    });
    local.ok().flatten().unwrap_or_default()
}

impl<K: WatchKey, Op: DelayedOperation> Purgatory<K, Op> {
    /// A purgatory of this thread alone; for several cores see [`PurgatoryGroup`].
    pub fn new() -> Self {
        Self(Rc::new(Inner::new(None)))
    }

    /// Completes `operation` at once if its condition is met; otherwise parks it until an event on one of the `keys` finds it
    /// met, or `timeout` is over. Keys that are given twice count twice. Without keys only the timeout, or force, completes it.
    ///
    /// One that completes at once touches neither the wheel nor the keys.
    ///
    /// Cost: constant per key, on average: a table that has to grow moves all that is in it.
    ///
    /// # Errors
    ///
    /// If the thread's timer is full or has ended; see [`LocalTimer::try_add`](crate::LocalTimer::try_add). The error carries
    /// the operation back.
    #[track_caller]
    pub fn try_complete_else_watch(
        &self,
        operation: Op,
        keys: impl IntoIterator<Item = K>,
        timeout: Duration,
    ) -> Result<Outcome, AddError<Op>> {
        self.0.add(operation, keys, timeout)
    }

    /// There was an event on `key`: each operation that watches it looks at its condition, in the order in which they came,
    /// and completes if that is met. How many of this core have completed.
    ///
    /// For a key of another core, this core's own event does nothing: use [`notify`](Self::notify).
    ///
    /// Cost: a look into a hash map, and what the conditions of those that watch the key cost.
    pub fn check_and_complete(&self, key: &K) -> usize {
        self.0.check_key(key)
    }

    /// There was an event on `key`, of whichever core it is. Events for other cores go together when the loop next turns or
    /// prepares to sleep. Cost: of a key of this core that of [`check_and_complete`](Self::check_and_complete), of another's a place in a
    /// letter for up to 64 events.
    pub fn notify(&self, key: &K) {
        self.0.notify(key);
    }

    /// Completes an operation by force. False if it has completed, or is being completed. Cost: constant per key that it watches.
    pub fn force_complete(&self, OperationId(id): OperationId) -> bool {
        self.0.complete(id, Completion::Forced)
    }

    /// Takes the operations of this core that watch `key` out, in the order in which they came, and hands them back:
    /// `on_complete` does not run. One that is looking at its condition at this moment stays; and if the key belongs to another
    /// core, that has the watches, and this finds none. Cost: constant per operation and key that it watches.
    #[must_use = "the operations that were taken out"]
    pub fn cancel_for_key(&self, key: &K) -> Vec<Op> {
        self.0.cancel_for_key(key)
    }

    /// Takes all operations out and hands them back, in no particular order: `on_complete` does not run. One that is looking at its
    /// condition at this moment stays. Cost: constant per operation and key that it watches.
    #[must_use = "the operations that were taken out"]
    pub fn drain(&self) -> Vec<Op> {
        self.0.drain()
    }

    /// How many watches there are on `key` here, those of other cores' operations included.
    pub fn watched(&self, key: &K) -> usize {
        self.0.watched(key)
    }

    /// How many operations wait.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What has become of the operations so far.
    pub fn counts(&self) -> PurgatoryCounts {
        self.0.counts()
    }
}

impl<K: WatchKey, Op: DelayedOperation> Clone for Purgatory<K, Op> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<K: WatchKey, Op: DelayedOperation> Default for Purgatory<K, Op> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: WatchKey, Op: DelayedOperation> fmt::Debug for Purgatory<K, Op> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Purgatory").field("counts", &self.counts()).finish_non_exhaustive()
    }
}
