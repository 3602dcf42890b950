//! The traits of operations and keys, and the identifiers, results and counts of operations.

use std::{hash::Hash, num::NonZeroU64};

/// A request that waits until its condition holds or its timeout has elapsed.
///
/// # Examples
///
/// ```
/// use corewheel::purgatory::{Completion, DelayedOperation, Purgatory};
/// use std::{cell::Cell, rc::Rc, time::Duration};
///
/// /// A fetch that waits for enough bytes.
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
///         println!("answered with {} bytes, {how:?}", self.there.get());
///     }
/// }
///
/// let there = Rc::new(Cell::new(0));
/// let fetch = Fetch { there: Rc::clone(&there), wanted: 100 };
/// let purgatory = Purgatory::new();
/// let _ = purgatory.try_complete_else_watch(fetch, ["partition 7"], Duration::from_secs(5))?;
/// there.set(120);
/// assert_eq!(purgatory.check_and_complete(&"partition 7"), 1);
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait DelayedOperation: 'static {
    /// Returns true if the condition holds. Unlike Kafka's method of this name, this method
    /// completes nothing: if it returns true, the purgatory calls
    /// [`on_complete`](Self::on_complete). A panic of `try_complete` counts as false.
    ///
    /// The purgatory calls `try_complete` when the operation is added, at events on its keys, when
    /// [`Purgatory::try_complete`](crate::purgatory::Purgatory::try_complete) is called, and
    /// sometimes at other times. There is no call at the timeout: the operation expires even if its
    /// condition holds. Before you report an event, write the state that `try_complete` reads:
    /// there may be no later check.
    ///
    /// `try_complete` must be quick, and must not call `turn`.
    ///
    /// `try_complete` may itself report an event on a key of this core, which checks the other
    /// operations that watch the key. Nothing limits the nesting depth of `try_complete` calls. An
    /// operation that reports an event on its own key is checked at most once more.
    fn try_complete(&mut self) -> bool;

    /// Consumes the completed operation, for example to answer its request. Called at most once, on
    /// the core where the operation was added.
    ///
    /// `on_complete` runs inside a call of `turn`, `notify` or `force_complete`, a check or an add.
    /// So a caller of `turn` or of the purgatory must hold no borrow of a `RefCell` that
    /// `on_complete` needs. A panic is caught and reported ([`Config::panic_hook`]); the operation
    /// counts as completed.
    ///
    /// [`Config::panic_hook`]: crate::Config::panic_hook
    ///
    /// `on_complete` may use the purgatory. Calls of `on_complete` nest up to 16 deep; deeper calls
    /// run after the outermost call.
    ///
    /// An operation that holds a clone of its own purgatory keeps the purgatory alive. If the
    /// thread ends while that operation waits, the operation and the purgatory leak.
    fn on_complete(self, completion: Completion)
    where
        Self: Sized;
}

/// A key that operations wait on: a value that can be compared, hashed, cloned, and sent to another
/// core.
///
/// The key's own `Hash`, `Eq`, `Borrow`, `Clone` and `Drop` must not use the purgatory.
///
/// # Examples
///
/// ```
/// use corewheel::purgatory::WatchKey;
///
/// /// A broker's key: one partition of a topic.
/// #[derive(Clone, PartialEq, Eq, Hash)]
/// struct Partition {
///     topic: String,
///     number: u32,
/// }
///
/// fn assert_is_key<K: WatchKey>() {}
/// assert_is_key::<Partition>();
/// ```
pub trait WatchKey: Hash + Eq + Clone + Send + 'static {}

impl<K: Hash + Eq + Clone + Send + 'static> WatchKey for K {}

/// How an operation has completed.
///
/// # Examples
///
/// ```
/// use corewheel::purgatory::Completion;
///
/// fn http_status(how: Completion) -> u16 {
///     match how {
///         Completion::Condition => 200,
///         Completion::Forced => 503,
///         Completion::Expired => 504,
///     }
/// }
/// assert_eq!(http_status(Completion::Expired), 504);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Completion {
    /// The operation's condition was met.
    Condition,
    /// [`force_complete`](crate::purgatory::Purgatory::force_complete) completed the operation.
    Forced,
    /// The operation's timeout has elapsed, or its [drained](crate::LocalTimer::drain) timer was
    /// [run](crate::DrainedTimer::run).
    Expired,
}

/// The result of adding an operation.
///
/// # Examples
///
/// ```
/// use corewheel::purgatory::{WatchOutcome, Purgatory};
/// use std::{cell::Cell, rc::Rc, time::Duration};
///
#[doc = include_str!("example.txt")]
/// let purgatory = Purgatory::new();
/// match purgatory.try_complete_else_watch(op(), ["topic"], Duration::from_secs(5))? {
///     WatchOutcome::Completed => println!("answered at once"),
///     WatchOutcome::Waits(id) => assert!(purgatory.force_complete(id)),
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "only the id in `Waits` can force or check the operation"]
pub enum WatchOutcome {
    /// The operation does not wait: it completed, or user code removed it during the add.
    Completed,
    /// The operation waits.
    Waits(OperationId),
}

/// Identifies a waiting operation of one purgatory.
///
/// The identifier is unique within its purgatory, and hardly ever matches an operation of another
/// purgatory.
///
/// # Examples
///
/// ```
/// use corewheel::purgatory::{OperationId, WatchOutcome, Purgatory};
/// use std::{cell::Cell, rc::Rc, time::Duration};
///
#[doc = include_str!("example.txt")]
/// let purgatory = Purgatory::new();
/// let outcome = purgatory.try_complete_else_watch(op(), ["topic"], Duration::from_secs(5))?;
/// let waiting: Option<OperationId> = match outcome {
///     WatchOutcome::Waits(id) => Some(id),
///     WatchOutcome::Completed => None,
/// };
/// is_met.set(true);
/// assert!(waiting.is_some_and(|id| purgatory.try_complete(id)));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OperationId(pub(super) RecordId);

/// Identifies an operation or a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(Rust, packed(4))] // 12 bytes instead of 16, which shrinks messages and watches.
pub(super) struct RecordId {
    /// A number that the purgatory assigns only once.
    pub(super) number: NonZeroU64,
    pub(super) index: u32,
}

impl RecordId {
    /// A `RecordId` that no operation or watch has.
    pub(super) const NONE: Self = Self { number: NonZeroU64::MIN, index: u32::MAX };
}

/// Counts of the operations, watches, keys and queued messages of one purgatory.
///
/// # Examples
///
/// ```
/// use corewheel::purgatory::{Purgatory, PurgatoryCounts};
/// use std::{cell::Cell, rc::Rc, time::Duration};
///
#[doc = include_str!("example.txt")]
/// let purgatory = Purgatory::new();
/// let _ = purgatory.try_complete_else_watch(op(), ["first", "second"], Duration::from_secs(5))?;
/// let PurgatoryCounts { added, live, watches, keys, .. } = purgatory.counts();
/// assert_eq!((added, live, watches, keys), (1, 1, 2, 2));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PurgatoryCounts {
    /// Operations added, including those that completed at once.
    pub added: u64,
    /// Operations that completed by their condition.
    pub by_condition: u64,
    /// Operations completed by `force_complete`.
    pub forced: u64,
    /// Operations that timed out.
    pub expired: u64,
    /// Operations handed back by `cancel`, `cancel_for_key` or `drain`.
    pub handed_back: u64,
    /// Operations that wait now.
    pub live: u64,
    /// Watches on this core, including the watches of other cores' operations.
    pub watches: u64,
    /// Keys that are watched on this core.
    pub keys: u64,
    /// Events and other messages that are queued for other cores.
    pub unsent_messages: u64,
}
