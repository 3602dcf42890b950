//! The traits that users implement, the identifiers of operations, and their counts.

use std::{hash::Hash, num::NonZeroU64};

/// A request that waits until a condition holds.
pub trait DelayedOperation: 'static {
    /// Returns true if the condition holds. A panic counts as false.
    ///
    /// Called when the operation is added and at each event on one of its keys. For a key of
    /// another core it is also called once when the watch was added there, and once if that core
    /// ends. Keep it quick, and do not turn the timer in it.
    ///
    /// If it causes an event on a key of this operation, it is called once more. An event on
    /// another key checks the operations there before it returns. These checks nest on one stack
    /// without a bound.
    fn try_complete(&mut self) -> bool;

    /// Called once when the operation has completed, on the core where it was added.
    ///
    /// It may use the purgatory. Operations that it completes end inside it, up to 16 deep;
    /// operations that are nested deeper end when the outermost one has ended.
    ///
    /// An operation that holds its own purgatory keeps it alive: if their thread ends first, both
    /// leak.
    fn on_complete(self, how: Completion)
    where
        Self: Sized;
}

/// A key that operations wait on: a value that can be compared, hashed, cloned, and sent to another
/// core.
///
/// The key's own `Hash`, `Eq`, `Clone` and `Drop` must not use the purgatory.
pub trait WatchKey: Hash + Eq + Clone + Send + 'static {}

impl<K: Hash + Eq + Clone + Send + 'static> WatchKey for K {}

/// How an operation has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Completion {
    /// Its condition was met.
    Condition,
    /// [`force_complete`](crate::purgatory::Purgatory::force_complete) completed it.
    Forced,
    /// Its timeout has elapsed.
    Expired,
}

/// The result of adding an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an operation that waits can be forced by its name only"]
pub enum Outcome {
    /// The operation has completed, usually by its condition. Code of its keys may also have
    /// completed it by force or removed it.
    Completed,
    /// The operation waits.
    Waits(OperationId),
}

/// Identifies a waiting operation of one purgatory.
///
/// It keeps nothing alive, and is unique within its purgatory. Other purgatories may have an
/// operation with the same identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OperationId(pub(super) Id);

/// Identifies an operation or a watch: the index of its record, and a unique number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(Rust, packed(4))] // 12 bytes instead of 16, because messages and watches hold little else.
pub(super) struct Id {
    /// A number from one counter, never reused.
    pub(super) number: NonZeroU64,
    pub(super) index: u32,
}

impl Id {
    /// Matches no operation or watch.
    pub(super) const NONE: Self = Self { number: NonZeroU64::MIN, index: u32::MAX };
}

/// Counts of the operations of one core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PurgatoryCounts {
    /// Operations added, including those that completed at once.
    pub added: u64,
    /// Operations that completed by their condition.
    pub by_condition: u64,
    /// Operations that were forced.
    pub forced: u64,
    /// Operations that timed out.
    pub expired: u64,
    /// Operations handed back by `cancel_for_key` or `drain`.
    pub handed_back: u64,
    /// Operations that wait now.
    pub live: u64,
    /// Watches on this core, including the watches of other cores' operations.
    pub watches: u64,
    /// Keys that are watched on this core.
    pub keys: u64,
    /// Messages to other cores that wait for the next turn: events, new watches and ended ones.
    pub unsent: u64,
}
