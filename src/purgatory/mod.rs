//! Delayed operations: requests that wait for a condition, with a timeout.
//!
//! In Kafka, a produce request waits in a *purgatory* until enough replicas have its data, and a
//! fetch request until enough data is available. In corewheel, an operation is parked on one core,
//! with a timer and a watch on each of its keys. When the program reports an event on a key, the
//! purgatory checks the operations that watch the key.
//!
//! ```
//! use corewheel::{Config, ManualClock, local_timer};
//! use corewheel::purgatory::{Completion, DelayedOperation, Purgatory};
//! use std::{cell::Cell, rc::Rc, time::Duration};
//!
//! /// Waits until `needed` acknowledgements have arrived.
//! struct Produce {
//!     needed: u32,
//!     acknowledged: Rc<Cell<u32>>,
//! }
//!
//! impl DelayedOperation for Produce {
//!     fn try_complete(&mut self) -> bool {
//!         self.acknowledged.get() >= self.needed
//!     }
//!
//!     fn on_complete(self, how: Completion) {
//!         println!("answered, {how:?}");
//!     }
//! }
//!
//! let clock = ManualClock::new(); // virtual time, so that the example need not wait
//! Config::new().clock(&clock).install()?;
//! let purgatory = Purgatory::new();
//! let acknowledged = Rc::new(Cell::new(0));
//! for needed in [1, 3] {
//!     let produce = Produce { needed, acknowledged: Rc::clone(&acknowledged) };
//!     let _ = purgatory.try_complete_else_watch(produce, ["partition 7"], Duration::from_secs(5)).unwrap();
//! }
//! acknowledged.set(1);
//! assert_eq!(purgatory.check_and_complete(&"partition 7"), 1); // completes the first operation
//! clock.advance(Duration::from_secs(5));
//! assert_eq!(local_timer().turn().fired, 1); // the second operation times out
//! # Ok::<(), corewheel::ConfigError>(())
//! ```
//!
//! See the [guide](crate::guide::delayed_operations) for more.

// An operation stays on the core where it was added, so threads do not race to complete it. A
// parked operation ends when its timer fires or is cancelled; only one of the two happens, so the
// operation ends once. After the thread's wheel has ended, every cancel fails, and only
// `completion` in the operation's record prevents a second completion. While its `try_complete`
// runs, a parked operation is *checked out* of its record. If the timer of a checked-out operation
// fires or `force_complete` is called, `on_complete` runs after the check.
//
// When an operation ends, its watches on this core are removed at once, and messages remove its
// watches on other cores.
//
// A `PurgatoryGroup` determines the core of each key. The key's core stores all watches on the key,
// even for other cores' operations, and sends messages about events to the cores of these
// operations. When the key's core has acknowledged a watch, the operation's core checks the
// operation once more: an event may have preceded the watch.

mod group;
mod hash;
mod operation;
mod records;
mod table;

use std::{
    any::Any,
    borrow::Borrow,
    cell::{Cell, RefCell, RefMut},
    collections::VecDeque,
    fmt,
    hash::Hash,
    marker::PhantomData,
    mem,
    rc::Rc,
    time::Duration,
};

pub use self::{
    group::PurgatoryGroup,
    operation::{
        Completion, DelayedOperation, OperationId, PurgatoryCounts, WatchKey, WatchOutcome,
    },
};
use self::{
    group::{Batch, BatchReceiver, Member, Message},
    hash::BuildKeyHasher,
    operation::RecordId,
    records::NO_RECORD,
    table::{
        ConditionCheckOutcome, EventWalk, FoundWatchers, ParkedOperation, Table, WatchOnOtherCore,
        WatchingOperation,
    },
};
use crate::{
    cross_core::hooks::PanicPlace,
    error::{AddError, AddErrorReason},
    limits::{DEFERRED_COMPLETIONS_CAPACITY_MAX, NESTED_COMPLETIONS_MAX},
    local::{ClientId, ShardRef, ThreadWheel, WheelClient},
    util::sync::per_thread,
    when::{RequestedTime, When},
};

/// The delayed operations of one core. Clones share the operations, and must stay on their thread.
///
/// Operations time out in the turns of the thread's [`local_timer`](crate::local_timer). When the
/// last clone is dropped, the waiting operations are dropped too, without a call of `on_complete`.
///
/// # Memory
///
/// An operation with one watch takes about 64 bytes, plus its own size, a key and a timer. Each
/// further watch takes about 50 bytes plus a key. The hash table usually takes at most 32 bytes per
/// key.
///
/// Operations and further watches are stored in pages of up to 1,024 records. One record in use
/// keeps its whole page allocated. Some empty pages are kept, for bursts of up to 8,192 operations.
/// Unneeded memory is freed slowly during turns, and faster before an announced sleep of a second
/// or more. While the hash table still has too much memory, the loop wakes every second to free it.
///
/// # Keys
///
/// Keys may come from untrusted clients. The hash of the keys uses a random secret, so clients
/// cannot choose keys that collide or all belong to one core. But a client could learn the hash's
/// secret by timing single lookups to within a few nanoseconds, or by observing to which cores many
/// keys belong.
///
/// # Examples
///
/// ```
/// use corewheel::purgatory::{Completion, DelayedOperation, Purgatory, WatchOutcome};
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
/// let timeout = Duration::from_millis(500);
/// let waits = purgatory.try_complete_else_watch(fetch, ["partition 7"], timeout).unwrap();
/// assert!(matches!(waits, WatchOutcome::Waits(_)));
///
/// there.set(120); // something was written:
/// assert_eq!(purgatory.check_and_complete(&"partition 7"), 1);
/// assert!(purgatory.is_empty());
/// ```
pub struct Purgatory<K: WatchKey, Op: DelayedOperation>(
    Rc<SharedPurgatory<K, Op>>,
    PhantomData<*const UsePurgatoryGroupNotify>,
);

/// The compiler's error shows this name if code requires a `Purgatory` to be `Send`.
enum UsePurgatoryGroupNotify {}

per_thread! {
    /// This thread's local purgatories: at most one for each pair of key type and operation type.
    static LOCAL_PURGATORIES: RefCell<Vec<Box<dyn Any>>> = RefCell::new(Vec::new());
}

/// Returns this thread's purgatory for these types of keys and operations.
///
/// The first call creates the purgatory, which is in no group and ends with the thread. To reach a
/// group's purgatory from any code of its thread, keep a clone in a `thread_local!`. In an exiting
/// thread, a call may return a new, empty purgatory.
///
/// **The types select the purgatory, even if they are inferred.** For example, the key `7` is
/// usually an `i32`, so its operations are not in the purgatory for `u64` keys. To name the types
/// only once, write a function such as `purgatory` in the example.
///
/// Cost after the first call: at most one comparison for each local purgatory of this thread.
///
/// # Examples
///
/// ```
/// use corewheel::purgatory::{Purgatory, local_purgatory};
/// use std::{cell::Cell, rc::Rc, time::Duration};
///
#[doc = include_str!("example.txt")]
/// fn purgatory() -> Purgatory<u64, Op> {
///     local_purgatory()
/// }
///
/// let _ = purgatory().try_complete_else_watch(op(), [7], Duration::from_secs(5))?;
/// is_met.set(true);
/// // Elsewhere on the thread:
/// assert_eq!(purgatory().check_and_complete(&7), 1);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn local_purgatory<K: WatchKey, Op: DelayedOperation>() -> Purgatory<K, Op> {
    let found = LOCAL_PURGATORIES.try_with(|purgatories| {
        let found = purgatories.borrow().iter().find_map(|any| any.downcast_ref().cloned());
        found.unwrap_or_else(|| create_local_purgatory(purgatories))
    });
    found.unwrap_or_default()
}

#[cold]
#[inline(never)]
fn create_local_purgatory<K: WatchKey, Op: DelayedOperation>(
    purgatories: &RefCell<Vec<Box<dyn Any>>>,
) -> Purgatory<K, Op> {
    let purgatory = Purgatory::new();
    purgatories.borrow_mut().push(Box::new(purgatory.clone()));
    purgatory
}

impl<K: WatchKey, Op: DelayedOperation> Purgatory<K, Op> {
    /// Creates a purgatory that belongs to no group. For several cores see [`PurgatoryGroup`].
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::purgatory::Purgatory;
    /// use std::{cell::Cell, rc::Rc, time::Duration};
    ///
    #[doc = include_str!("example.txt")]
    /// let purgatory = Purgatory::new();
    /// let _ = purgatory.try_complete_else_watch(op(), ["topic"], Duration::from_secs(5))?;
    /// assert_eq!(purgatory.len(), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new() -> Self {
        Self(SharedPurgatory::new(None), PhantomData)
    }

    /// Completes `operation` at once if its condition holds. Otherwise parks the operation until a
    /// check finds that its condition holds, or until the timeout `when`. An event on one of the
    /// `keys` causes a check.
    ///
    /// `when` is a delay or an instant, optionally with slack or spread; see [`When`]. If the
    /// timeout has already elapsed, an operation that must wait expires in the next turn.
    ///
    /// `keys` may be empty. A key that occurs twice gets two watches. If the condition holds at
    /// once, no timer is added, and `keys` is not iterated.
    ///
    /// Cost: constant time per key on average. The hash table grows in small steps, so that no add
    /// moves many keys.
    ///
    /// # Errors
    ///
    /// Fails if the thread's wheel is full or has ended, or the thread cannot have a wheel; see
    /// [`LocalTimer::try_add`](crate::LocalTimer::try_add). The error contains the operation.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{local_timer, purgatory::{Purgatory, WatchOutcome}};
    /// use std::{cell::Cell, rc::Rc, time::Duration};
    ///
    #[doc = include_str!("example.txt")]
    /// let purgatory = Purgatory::new();
    /// let keys = ["partition 7", "partition 8"];
    /// let arrived = local_timer().now();
    /// let timeout = arrived + Duration::from_secs(5); // counts from the request's arrival
    /// let waits = purgatory.try_complete_else_watch(op(), keys, timeout)?;
    /// assert!(matches!(waits, WatchOutcome::Waits(_)));
    /// is_met.set(true);
    /// let completes = purgatory.try_complete_else_watch(op(), keys, Duration::from_secs(5))?;
    /// assert_eq!(completes, WatchOutcome::Completed);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[inline]
    #[track_caller]
    pub fn try_complete_else_watch(
        &self,
        mut operation: Op,
        keys: impl IntoIterator<Item = K>,
        when: impl Into<When>,
    ) -> Result<WatchOutcome, AddError<Op>> {
        let (purgatory, when) = (&self.0, when.into());
        let changes_before_check = purgatory.condition_change_count.get();
        if call_try_complete(&mut operation) {
            purgatory.complete_unparked(operation);
            ThreadWheel::catch_panic(PanicPlace::Drop, || drop(keys));
            return Ok(WatchOutcome::Completed);
        }
        let mut keys = keys.into_iter();
        let first_key = keys.next();
        let is_own_key =
            first_key.as_ref().is_some_and(|key| purgatory.other_core_of(key).is_none());
        let (mut key, key_of_other_core) =
            if is_own_key { (first_key, None) } else { (None, first_key) };
        if let Some(client) = purgatory.client_id.get()
            && key.is_some()
        {
            match purgatory.try_park(client, operation, key, when) {
                Ok(id) => {
                    return Ok(purgatory.watch_remaining_keys(
                        id,
                        changes_before_check,
                        None,
                        keys,
                    ));
                }
                Err(refused) => (operation, key) = refused,
            }
        }
        let When { deadline, slack, spread_range } = when;
        match purgatory.park_making_room(operation, key, (deadline, slack, spread_range)) {
            Ok(id) => Ok(purgatory.watch_remaining_keys(
                id,
                changes_before_check,
                key_of_other_core,
                keys,
            )),
            Err((reason, (operation, key))) => {
                ThreadWheel::catch_panic(PanicPlace::Drop, || drop(key.or(key_of_other_core)));
                ThreadWheel::catch_panic(PanicPlace::Drop, || drop(keys));
                Err(AddError::new(reason, operation))
            }
        }
    }

    /// Checks this core's operations that watch `key`, oldest watch first, and completes each
    /// operation whose condition holds. Returns the number of operations that this call completed
    /// because their condition held. Operations of other cores are checked later, on their own
    /// cores.
    ///
    /// **In a group, this call checks nothing and returns 0 if the key belongs to another core**,
    /// even if this core's operations watch the key. Use [`notify`](Self::notify) instead.
    ///
    /// `key` may be any borrowed form of the purgatory's keys, as in a
    /// [`HashMap`](std::collections::HashMap).
    ///
    /// Cost: one lookup in a hash table, and a [`try_complete`](Self::try_complete) or a message
    /// for each watch on the key.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::purgatory::Purgatory;
    /// use std::{cell::Cell, rc::Rc, time::Duration};
    ///
    #[doc = include_str!("example.txt")]
    /// let purgatory = Purgatory::new();
    /// let key = String::from("topic");
    /// let _ = purgatory.try_complete_else_watch(op(), [key], Duration::from_secs(5))?;
    /// assert_eq!(purgatory.check_and_complete("topic"), 0); // the condition does not hold
    /// is_met.set(true);
    /// assert_eq!(purgatory.check_and_complete("topic"), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[inline]
    pub fn check_and_complete<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        self.0.check_and_complete(key)
    }

    /// Checks one operation, and completes it if its condition holds. Returns true if this call has
    /// completed the operation because its condition held.
    ///
    /// A call inside the operation's own `try_complete` returns false, and may cause one more call
    /// of `try_complete`.
    ///
    /// Cost: one call of the operation's `try_complete`. A completion also takes constant time per
    /// key.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::purgatory::{Completion, DelayedOperation, Purgatory, WatchOutcome};
    /// use std::{cell::Cell, rc::Rc, time::Duration};
    ///
    /// struct JoinRequest(Rc<Cell<bool>>);
    ///
    /// impl DelayedOperation for JoinRequest {
    ///     fn try_complete(&mut self) -> bool {
    ///         self.0.get()
    ///     }
    ///
    ///     fn on_complete(self, how: Completion) {
    ///         println!("joined: {how:?}");
    ///     }
    /// }
    ///
    /// let is_there = Rc::new(Cell::new(false));
    /// let purgatory = Purgatory::new();
    /// let join = JoinRequest(Rc::clone(&is_there));
    /// let outcome = purgatory.try_complete_else_watch(join, ["group 1"], Duration::from_secs(5))?;
    /// let WatchOutcome::Waits(id) = outcome else { panic!("nobody is there yet") };
    /// assert!(!purgatory.try_complete(id));
    /// is_there.set(true);
    /// assert!(purgatory.try_complete(id)); // and no other operation of that key is checked
    /// assert!(!purgatory.try_complete(id)); // the operation has already completed
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_complete(&self, id: OperationId) -> bool {
        self.0.check_by_id(id.0)
    }

    /// Reports an event on `key`: each core checks its operations that watch the key.
    ///
    /// Events on another core's keys are sent in batches, at the latest when this thread next calls
    /// `turn` or prepares to sleep.
    ///
    /// Cost: for a key of this core, the cost of [`check_and_complete`](Self::check_and_complete).
    /// For a key of another core, a clone of the key and an entry in a batch of up to 64 messages.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::purgatory::Purgatory;
    /// use std::{cell::Cell, rc::Rc, time::Duration};
    ///
    #[doc = include_str!("example.txt")]
    /// let purgatory = Purgatory::new();
    /// let _ = purgatory.try_complete_else_watch(op(), ["topic"], Duration::from_secs(5))?;
    /// is_met.set(true);
    /// purgatory.notify(&"topic");
    /// assert!(purgatory.is_empty());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[inline]
    pub fn notify(&self, key: &K) {
        match self.0.other_core_of(key) {
            Some((member, core)) => member.add_event_to_batch(core, key.clone()),
            None => _ = self.0.check_and_complete(key),
        }
    }

    /// Completes an operation without a check of its condition. Returns false if the operation has
    /// completed, is being completed, or was removed.
    ///
    /// Cost: constant time per key of the operation.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::purgatory::{Purgatory, WatchOutcome};
    /// use std::{cell::Cell, rc::Rc, time::Duration};
    ///
    #[doc = include_str!("example.txt")]
    /// let purgatory = Purgatory::new();
    /// let outcome = purgatory.try_complete_else_watch(op(), ["topic"], Duration::from_secs(5))?;
    /// let WatchOutcome::Waits(id) = outcome else { panic!("its condition does not hold") };
    /// assert!(purgatory.force_complete(id));
    /// assert!(!purgatory.force_complete(id)); // the operation has completed
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[inline]
    pub fn force_complete(&self, id: OperationId) -> bool {
        let must_complete =
            self.0.table.borrow_mut().get(id.0).is_some_and(|parked| parked.try_cancel_timer());
        if must_complete {
            self.0.complete_operation(id.0.index, Completion::Forced);
        }
        must_complete
    }

    /// Removes an operation and returns it, for example because its client has disconnected.
    /// `on_complete` does not run. Returns `None` if the operation has completed or was removed, or
    /// while its `try_complete` runs.
    ///
    /// Cost: constant time per key of the operation.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::purgatory::{Purgatory, WatchOutcome};
    /// use std::{cell::Cell, rc::Rc, time::Duration};
    ///
    #[doc = include_str!("example.txt")]
    /// let purgatory = Purgatory::new();
    /// let outcome = purgatory.try_complete_else_watch(op(), ["topic"], Duration::from_secs(5))?;
    /// let WatchOutcome::Waits(id) = outcome else { panic!("its condition does not hold") };
    /// let operation: Option<Op> = purgatory.cancel(id);
    /// assert!(operation.is_some() && purgatory.cancel(id).is_none());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use = "the removed operation"]
    pub fn cancel(&self, id: OperationId) -> Option<Op> {
        self.0.take_unless_checked_out(id.0)
    }

    /// Removes the operations of this core that watch `key`, and returns them, oldest watch first.
    /// `on_complete` does not run.
    ///
    /// Does not remove an operation whose `try_complete` is running. If the key belongs to another
    /// core, the result is empty.
    ///
    /// Cost: constant time per watch on `key`, and per watch of the removed operations.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::purgatory::Purgatory;
    /// use std::{cell::Cell, rc::Rc, time::Duration};
    ///
    #[doc = include_str!("example.txt")]
    /// let purgatory = Purgatory::new();
    /// let _ = purgatory.try_complete_else_watch(op(), ["topic"], Duration::from_secs(5))?;
    /// let taken: Vec<Op> = purgatory.cancel_for_key(&"topic");
    /// assert_eq!((taken.len(), purgatory.len()), (1, 0));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use = "the removed operations"]
    pub fn cancel_for_key<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Vec<Op>
    where
        K: Borrow<Q>,
    {
        let hash = self.0.hash_builder.hash_u32(key);
        let table = self.0.table.borrow();
        let local_id = |watcher| match watcher {
            WatchingOperation::Local(index) => table.id_at(index),
            WatchingOperation::Remote { .. } => None,
        };
        let ids: Vec<RecordId> = table.watchers(hash, key).filter_map(local_id).collect();
        drop(table);
        ids.into_iter().filter_map(|id| self.0.take_unless_checked_out(id)).collect()
    }

    /// Removes all operations and returns them in no particular order. `on_complete` does not run.
    ///
    /// Does not remove an operation whose `try_complete` is running.
    ///
    /// Cost: constant time per operation record, used or free, and per watch.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::purgatory::Purgatory;
    /// use std::{cell::Cell, rc::Rc, time::Duration};
    ///
    #[doc = include_str!("example.txt")]
    /// let purgatory = Purgatory::new();
    /// for topic in ["first", "second"] {
    ///     let _ = purgatory.try_complete_else_watch(op(), [topic], Duration::from_secs(5))?;
    /// }
    /// assert_eq!(purgatory.drain().len(), 2);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use = "the removed operations"]
    pub fn drain(&self) -> Vec<Op> {
        let ids: Vec<RecordId> = self.0.table.borrow().ids().collect();
        ids.into_iter().filter_map(|id| self.0.take_unless_checked_out(id)).collect()
    }

    /// Returns the number of watches on `key` on this core, including the watches of other cores'
    /// operations.
    ///
    /// Cost: one step per watch.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::purgatory::Purgatory;
    /// use std::{cell::Cell, rc::Rc, time::Duration};
    ///
    #[doc = include_str!("example.txt")]
    /// let purgatory = Purgatory::new();
    /// let _ = purgatory.try_complete_else_watch(op(), ["topic"], Duration::from_secs(5))?;
    /// assert_eq!((purgatory.watch_count(&"topic"), purgatory.watch_count(&"other")), (1, 0));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn watch_count<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        let hash = self.0.hash_builder.hash_u32(key);
        self.0.table.borrow().watchers(hash, key).count()
    }

    /// Returns the number of waiting operations.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::purgatory::Purgatory;
    /// use std::{cell::Cell, rc::Rc, time::Duration};
    ///
    #[doc = include_str!("example.txt")]
    /// let purgatory = Purgatory::new();
    /// let _ = purgatory.try_complete_else_watch(op(), ["topic"], Duration::from_secs(5))?;
    /// assert_eq!(purgatory.len(), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn len(&self) -> usize {
        self.0.table.borrow().len()
    }

    /// Returns true if no operation waits.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::purgatory::Purgatory;
    /// use std::{cell::Cell, rc::Rc, time::Duration};
    ///
    #[doc = include_str!("example.txt")]
    /// let purgatory = Purgatory::new();
    /// let _ = purgatory.try_complete_else_watch(op(), ["topic"], Duration::from_secs(5))?;
    /// assert!(!purgatory.is_empty());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the counts of this core's operations, watches, keys and queued messages.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::purgatory::Purgatory;
    /// use std::{cell::Cell, rc::Rc, time::Duration};
    ///
    #[doc = include_str!("example.txt")]
    /// let purgatory = Purgatory::new();
    /// let _ = purgatory.try_complete_else_watch(op(), ["topic"], Duration::from_secs(5))?;
    /// is_met.set(true);
    /// purgatory.notify(&"topic");
    /// let counts = purgatory.counts();
    /// assert_eq!((counts.added, counts.by_condition, counts.live), (1, 1, 0));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn counts(&self) -> PurgatoryCounts {
        let unsent_messages = self.0.member.as_ref().map_or(0, Member::unsent_message_count);
        PurgatoryCounts { unsent_messages, ..self.0.table.borrow().counts() }
    }
}

impl<K: WatchKey> PurgatoryGroup<K> {
    /// Creates this thread's purgatory in the group. This thread's wheel must be `shards[index]`.
    ///
    /// `shards` are the wheels of all cores of the group ([`Core::shards`](crate::Core::shards)),
    /// in the same order on each core. Call `join` once on each core, for one type of operations;
    /// another type needs another group. A core that has not joined buffers the watches on its keys,
    /// even for ended operations, so add few operations before all cores have joined.
    ///
    /// # Panics
    ///
    /// - Panics if `index` is out of range.
    /// - Panics if `shards[index]` is not this thread's wheel, or this wheel has ended.
    /// - Panics if this thread has joined the group before.
    /// - Panics if the first core that joined passed a different list of shards.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::purgatory::PurgatoryGroup;
    /// use corewheel::local_timer;
    /// use std::{cell::Cell, rc::Rc, time::Duration};
    ///
    #[doc = include_str!("example.txt")]
    /// let group = PurgatoryGroup::new();
    /// let purgatory = group.join(0, &[local_timer().shard_ref()]); // a group of one core
    /// let _ = purgatory.try_complete_else_watch(op(), ["topic"], Duration::from_secs(5))?;
    /// is_met.set(true);
    /// purgatory.notify(&"topic");
    /// assert!(purgatory.is_empty());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn join<Op: DelayedOperation>(
        &self,
        index: usize,
        shards: &[ShardRef],
    ) -> Purgatory<K, Op> {
        let purgatory = SharedPurgatory::new(Some(self.make_member(index, shards)));
        // Registration cannot fail: `make_member` has checked the thread's wheel, and has called no
        // user code since.
        let _ = purgatory.register_with_wheel();
        let receiver: Rc<dyn BatchReceiver<K>> = Rc::clone(&purgatory) as _;
        if let Some(member) = &purgatory.member {
            member.register_receiver(&receiver);
        }
        Purgatory(purgatory, PhantomData)
    }
}

impl<K: WatchKey, Op: DelayedOperation> Clone for Purgatory<K, Op> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0), PhantomData)
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

/// The state that the clones of a [`Purgatory`] share.
///
/// No field is borrowed while an operation's own code runs. But the table may be borrowed while
/// keys are hashed or compared, so their `Hash`, `Eq` and `Borrow` must not use the purgatory.
struct SharedPurgatory<K: WatchKey, Op: DelayedOperation> {
    table: RefCell<Table<K, Op>>,
    hash_builder: BuildKeyHasher,
    /// Incremented at each event, and whenever a parked operation ends without an event. If
    /// `condition_change_count` changes during an add, the add checks the condition again.
    condition_change_count: Cell<u64>,
    /// The number of watches that events have reached, except the first watch of each event.
    extra_reached_watch_count: Cell<usize>,
    /// The nesting depth of `on_complete` calls.
    completion_depth: Cell<usize>,
    /// Operations completed at the maximum nesting depth, whose `on_complete` runs after the
    /// outermost `on_complete`.
    deferred_completions: RefCell<VecDeque<(Op, Completion)>>,
    /// `None` if the purgatory is in no group.
    member: Option<Member<K>>,
    /// Identifies this purgatory to the thread's wheel. Set by `join` or `park_making_room`.
    client_id: Cell<Option<ClientId>>,
}

impl<K: WatchKey, Op: DelayedOperation> SharedPurgatory<K, Op> {
    fn new(member: Option<Member<K>>) -> Rc<Self> {
        Rc::new(Self {
            table: RefCell::new(Table::new()),
            hash_builder: BuildKeyHasher::new(),
            condition_change_count: Cell::new(0),
            extra_reached_watch_count: Cell::new(0),
            completion_depth: Cell::new(0),
            deferred_completions: RefCell::default(),
            member,
            client_id: Cell::new(None),
        })
    }

    /// Parks an operation with a timer and, if there is a `key`, with a watch on this key. The key
    /// must belong to this core. Returns the operation and the key if the wheel refuses the timer.
    /// Does not make room in a full wheel.
    #[track_caller]
    #[inline(always)]
    fn try_park(
        &self,
        client: ClientId,
        operation: Op,
        key: Option<K>,
        when: When,
    ) -> Result<RecordId, (Op, Option<K>)> {
        let mut table = self.table.borrow_mut();
        let entry = key.map(|key| table.look_up_key(self.hash_builder.hash_u32(&key), key));
        let index = table.operations.vacant_index();
        let Some(timer) = ThreadWheel::add_client_timer(client, index, when) else {
            return Err((operation, entry.map(|entry| entry.key)));
        };
        let id = table.insert_parked(index, operation, timer, entry);
        drop(table);
        self.drop_unneeded_keys();
        ThreadWheel::end_sleep_for_client_timer(timer);
        Ok(id)
    }

    /// If necessary, registers the purgatory with the wheel and makes room in the wheel; then parks
    /// an operation. Takes the fields of a [`When`], so that the caller's fast path need not store
    /// the `When` in memory.
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn park_making_room(
        self: &Rc<Self>,
        operation: Op,
        key: Option<K>,
        (deadline, slack, spread_range): (RequestedTime, Duration, Duration),
    ) -> Result<RecordId, (AddErrorReason, (Op, Option<K>))> {
        let when = When { deadline, slack, spread_range };
        let client = self.client_id.get().map_or_else(|| self.register_with_wheel(), Ok);
        // Makes room before `try_park` borrows the table: making room drops callbacks of cancelled
        // timers, and their destructors may use the table.
        let make_room =
            |client| ThreadWheel::with(|wheel| wheel.engine_with_room().map(|_room| client))?;
        match client.and_then(make_room) {
            Ok(client) => self
                .try_park(client, operation, key, when)
                .map_err(|refused| (AddErrorReason::Full, refused)),
            Err(reason) => Err((reason, (operation, key))),
        }
    }

    /// Adds watches on an operation's remaining keys: `key_of_other_core`, the first key if it
    /// belongs to another core, and `keys`, which may belong to any core. Finally, checks the
    /// operation's condition again if `condition_change_count` differs from `changes_before_check`,
    /// even if the iterator or a key panics.
    #[inline(always)]
    fn watch_remaining_keys(
        &self,
        id: RecordId,
        changes_before_check: u64,
        key_of_other_core: Option<K>,
        keys: impl Iterator<Item = K>,
    ) -> WatchOutcome {
        let second_check = SecondCheckGuard { purgatory: self, id, changes_before_check };
        let mut keys = key_of_other_core.into_iter().chain(keys);
        // Stops early if the iterator's own code has completed or removed the operation.
        let is_waiting = keys.all(|key| self.try_watch(id, key));
        ThreadWheel::catch_panic(PanicPlace::Drop, || drop(keys));
        drop(second_check);
        // The second check or the iterator's own code may have ended the operation.
        let is_waiting = is_waiting
            && (self.condition_change_count.get() == changes_before_check
                || self.table.borrow_mut().is_parked(id));
        if is_waiting { WatchOutcome::Waits(OperationId(id)) } else { WatchOutcome::Completed }
    }

    fn complete_unparked(&self, operation: Op) {
        let mut table = self.table.borrow_mut();
        table.totals.added += 1;
        table.count_completion(Completion::Condition);
        drop(table);
        self.call_or_defer_on_complete(operation, Completion::Condition);
    }

    #[cold]
    fn register_with_wheel(self: &Rc<Self>) -> Result<ClientId, AddErrorReason> {
        let this = Rc::<Self>::downgrade(self);
        let client = ThreadWheel::with(|thread_wheel| thread_wheel.register_client(this))??;
        self.client_id.set(Some(client));
        Ok(client)
    }

    /// Adds a watch of an operation on a key. For a key of another core, queues a request to that
    /// core. Returns false if the operation has ended.
    fn try_watch(&self, id: RecordId, key: K) -> bool {
        if let Some((member, core)) = self.other_core_of(&key) {
            let is_waiting = self.table.borrow_mut().is_parked(id);
            if is_waiting {
                member.add_message_to_batch(core, Message::Watch { key, operation: id });
            } else {
                ThreadWheel::catch_panic(PanicPlace::Drop, || drop(key));
            }
            return is_waiting;
        }
        let hash = self.hash_builder.hash_u32(&key);
        let is_waiting = self.table.borrow_mut().try_watch(id, hash, key);
        self.drop_unneeded_keys();
        is_waiting
    }

    #[inline]
    fn check_and_complete<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        self.condition_change_count.update(|count| count + 1);
        let hash = self.hash_builder.hash_u32(key);
        let mut table = self.table.borrow_mut();
        match table.begin_event(hash, key) {
            FoundWatchers::Unwatched => 0,
            FoundWatchers::CheckedOut(index, operation) => {
                drop(table);
                usize::from(self.check_operation(index, operation))
            }
            FoundWatchers::Walk(event) => {
                drop(table);
                self.check_watchers(event)
            }
        }
    }

    /// Checks this core's operations that watch the key of an event, and sends messages about other
    /// cores' operations. Returns the number of operations that completed because their condition
    /// held.
    #[inline(never)]
    fn check_watchers(&self, mut event: EventWalk) -> usize {
        let mut completed_count = 0;
        loop {
            let mut table = self.table.borrow_mut();
            match table.advance_event(&mut event) {
                Some(WatchingOperation::Local(index)) => {
                    let operation = table.operations.record_mut(index).check_out();
                    drop(table);
                    if let Some(operation) = operation {
                        completed_count += usize::from(self.check_operation(index, operation));
                    }
                }
                Some(WatchingOperation::Remote { core, operation, watch }) => {
                    drop(table);
                    self.add_message_to_batch(
                        core,
                        Message::Recheck { operation, watch: Some(watch) },
                    );
                }
                None => (),
            }
            if !event.has_cursor {
                return completed_count;
            }
            self.extra_reached_watch_count.update(|count| count.wrapping_add(1));
        }
    }

    /// Checks an operation, unless it has ended. If the operation is checked out, requests another
    /// check. Returns true if this call completed the operation because its condition held.
    fn check_by_id(&self, id: RecordId) -> bool {
        let operation = self.table.borrow_mut().get(id).and_then(ParkedOperation::check_out);
        let has_completed =
            operation.is_some_and(|operation| self.check_operation(id.index, operation));
        if has_completed {
            self.condition_change_count.update(|count| count + 1);
        }
        has_completed
    }

    /// Checks the condition of a checked-out operation. Then completes the operation or puts it
    /// back into its record. Returns true if the operation completed because its condition held.
    #[inline(always)]
    fn check_operation(&self, index: u32, mut operation: Op) -> bool {
        let mut is_second_check = false;
        loop {
            let condition_holds = call_try_complete(&mut operation);
            let mut table = self.table.borrow_mut();
            match table.end_check(index, condition_holds, is_second_check) {
                ConditionCheckOutcome::ConditionHeld { last_watch_on_other_core_index } => {
                    self.finish_removal(table, last_watch_on_other_core_index);
                    self.call_or_defer_on_complete(operation, Completion::Condition);
                    return true;
                }
                ConditionCheckOutcome::ForcedOrExpired(completion) => {
                    self.remove_and_complete(table, index, operation, completion);
                    return false;
                }
                ConditionCheckOutcome::Waits => {
                    table.operations.record_mut(index).operation = Some(operation);
                    return false;
                }
                ConditionCheckOutcome::CheckAgain => is_second_check = true,
            }
        }
    }

    /// Completes an operation whose timer has fired or was cancelled. If the operation is checked
    /// out, [`check_operation`](Self::check_operation) completes it after `try_complete` returns.
    fn complete_operation(&self, index: u32, completion: Completion) {
        let mut table = self.table.borrow_mut();
        if let Some(operation) = table.complete_and_take(index, completion) {
            self.remove_and_complete(table, index, operation, completion);
        }
    }

    #[inline(never)]
    fn remove_and_complete(
        &self,
        mut table: RefMut<'_, Table<K, Op>>,
        index: u32,
        operation: Op,
        completion: Completion,
    ) {
        table.count_completion(completion);
        self.remove_operation(table, index);
        self.call_or_defer_on_complete(operation, completion);
    }

    fn remove_operation(&self, mut table: RefMut<'_, Table<K, Op>>, index: u32) {
        self.condition_change_count.update(|count| count + 1);
        let last_watch_on_other_core_index = table.remove(index);
        self.finish_removal(table, last_watch_on_other_core_index);
    }

    /// Drops unneeded keys, and removes an operation's watches on other cores.
    /// `last_watch_on_other_core_index` may be [`NO_RECORD`].
    #[inline(always)]
    fn finish_removal(&self, table: RefMut<'_, Table<K, Op>>, last_watch_on_other_core_index: u32) {
        drop(table);
        self.drop_unneeded_keys();
        if last_watch_on_other_core_index != NO_RECORD {
            self.unwatch_on_other_cores(last_watch_on_other_core_index);
        }
    }

    #[inline]
    fn drop_unneeded_keys(&self) {
        while mem::needs_drop::<K>() {
            let key = self.table.borrow_mut().pop_key_to_drop();
            let Some(key) = key else { break };
            ThreadWheel::catch_panic(PanicPlace::Drop, || drop(key));
        }
    }

    #[inline]
    fn call_or_defer_on_complete(&self, operation: Op, completion: Completion) {
        let outer_depth = self.completion_depth.get();
        if outer_depth == NESTED_COMPLETIONS_MAX {
            self.deferred_completions.borrow_mut().push_back((operation, completion));
            return;
        }
        self.completion_depth.set(outer_depth + 1);
        ThreadWheel::catch_panic(PanicPlace::DelayedOperation, || {
            operation.on_complete(completion);
        });
        if outer_depth == 0 && !self.deferred_completions.borrow().is_empty() {
            self.run_deferred_completions();
        }
        self.completion_depth.set(outer_depth);
    }

    #[cold]
    fn run_deferred_completions(&self) {
        loop {
            let next_completion = self.deferred_completions.borrow_mut().pop_front();
            let Some((operation, completion)) = next_completion else { break };
            ThreadWheel::catch_panic(PanicPlace::DelayedOperation, || {
                operation.on_complete(completion);
            });
        }
        self.deferred_completions.borrow_mut().shrink_to(DEFERRED_COMPLETIONS_CAPACITY_MAX);
    }

    /// Removes an operation and returns it, unless it is checked out or has ended.
    fn take_unless_checked_out(&self, id: RecordId) -> Option<Op> {
        let mut table = self.table.borrow_mut();
        let operation = table.cancel_timer_and_take(id)?;
        // Counts the operation first: the removal may call a wake hook that reads the counts.
        table.totals.handed_back += 1;
        self.remove_operation(table, id.index);
        Some(operation)
    }

    // ---- other cores

    #[inline]
    fn other_core_of(&self, key: &K) -> Option<(&Member<K>, u32)> {
        let member = self.member.as_ref()?;
        Some((member, member.other_core_of(key)?))
    }

    fn add_message_to_batch(&self, dest_core: u32, message: Message<K>) {
        if let Some(member) = &self.member {
            member.add_message_to_batch(dest_core, message);
        }
    }

    fn handle_message(&self, sender_core: u32, message: Message<K>) {
        match message {
            Message::Recheck { operation, .. } => _ = self.check_by_id(operation),
            Message::Watch { key, operation } => {
                let hash = self.hash_builder.hash_u32(&key);
                let watch =
                    self.table.borrow_mut().add_remote_watch(sender_core, operation, hash, key);
                self.add_message_to_batch(sender_core, Message::WatchAck { operation, watch });
                self.drop_unneeded_keys();
            }
            Message::WatchAck { operation, watch } => {
                let is_waiting = self.table.borrow_mut().try_record_watch_on_other_core(
                    operation,
                    sender_core,
                    watch,
                );
                if is_waiting {
                    // Without this check, an event that preceded the watch would be missed.
                    self.check_by_id(operation);
                } else {
                    self.add_message_to_batch(sender_core, Message::Unwatch { watch });
                }
            }
            Message::Unwatch { watch } => {
                self.table.borrow_mut().remove_remote_watch(watch);
                self.drop_unneeded_keys();
            }
        }
    }

    /// Handles a message, and catches panics of the key's own code. If a `Watch` message causes a
    /// panic, sends its [`nondelivery_reply`](Message::nondelivery_reply) to the sender.
    fn handle_message_catching_panic(&self, sender_core: u32, message: Message<K>) {
        let is_watch = matches!(message, Message::Watch { .. });
        let reply = if is_watch { message.nondelivery_reply() } else { None };
        let handle = || self.handle_message(sender_core, message);
        if ThreadWheel::catch_panic(PanicPlace::DelayedOperation, handle).is_none()
            && let Some(reply) = reply
        {
            self.add_message_to_batch(sender_core, reply);
        }
    }

    /// Sends messages that remove an operation's watches on other cores.
    /// `last_watch_on_other_core_index` is the index of the operation's latest
    /// [`WatchOnOtherCore`].
    fn unwatch_on_other_cores(&self, mut last_watch_on_other_core_index: u32) {
        while last_watch_on_other_core_index != NO_RECORD {
            let watch_on_other_core =
                self.table.borrow_mut().take_watch_on_other_core(last_watch_on_other_core_index);
            let WatchOnOtherCore { core, watch, previous_index } = watch_on_other_core;
            self.add_message_to_batch(core, Message::Unwatch { watch });
            last_watch_on_other_core_index = previous_index;
        }
    }
}

/// When dropped at the end of an add, checks the operation again if the condition change count has
/// changed: an event may have preceded a watch.
struct SecondCheckGuard<'a, K: WatchKey, Op: DelayedOperation> {
    purgatory: &'a SharedPurgatory<K, Op>,
    id: RecordId,
    /// The condition change count before the first check.
    changes_before_check: u64,
}

impl<K: WatchKey, Op: DelayedOperation> Drop for SecondCheckGuard<'_, K, Op> {
    #[inline]
    fn drop(&mut self) {
        if self.purgatory.condition_change_count.get() != self.changes_before_check {
            self.purgatory.check_by_id(self.id);
        }
    }
}

impl<K: WatchKey, Op: DelayedOperation> BatchReceiver<K> for SharedPurgatory<K, Op> {
    fn receive_batch(&self, batch: Batch<K>) {
        let Some(member) = &self.member else { return };
        let extra_reached_watches_before = self.extra_reached_watch_count.get();
        let on_event = |key: K| {
            ThreadWheel::catch_panic(PanicPlace::DelayedOperation, move || {
                self.check_and_complete(&key)
            });
        };
        member.consume_batch(batch, on_event, |sender_core, message| {
            self.handle_message_catching_panic(sender_core, message);
        });
        let extra_reached_watches =
            self.extra_reached_watch_count.get().wrapping_sub(extra_reached_watches_before);
        let _ = ThreadWheel::with_current_engine(|engine| {
            engine.backlog.charge_budget(extra_reached_watches);
        });
    }

    fn notify_remote_watchers_of_end(&self) {
        let Some(member) = &self.member else { return };
        member.mark_purgatory_ended();
        // Collects the operations first: sending a message may call a wake hook, and the hook may
        // use the table.
        let remote_watchers: Vec<_> = self.table.borrow().all_remote_watchers().collect();
        for (core, operation) in remote_watchers {
            member.add_message_to_batch(core, Message::Recheck { operation, watch: None });
        }
        member.send_unsent_batches();
    }
}

impl<K: WatchKey, Op: DelayedOperation> WheelClient for SharedPurgatory<K, Op> {
    fn expire_operation(&self, index: u32) {
        self.complete_operation(index, Completion::Expired);
    }

    fn flush_messages(&self) {
        if let Some(member) = &self.member {
            member.send_unsent_batches();
        }
    }

    fn trim_memory(&self, is_before_long_sleep: bool) -> bool {
        self.table.borrow_mut().trim_memory(is_before_long_sleep)
    }
}

impl<K: WatchKey, Op: DelayedOperation> Drop for SharedPurgatory<K, Op> {
    fn drop(&mut self) {
        let ids: Vec<RecordId> = self.table.get_mut().ids().collect();
        // Cancels all timers first: the drops below run the user's code, which may create another
        // purgatory with the same `ClientId`. A timer that is still pending could complete
        // an operation of the new purgatory.
        for &id in &ids {
            if let Some(parked) = self.table.get_mut().get(id) {
                parked.try_cancel_timer();
            }
        }
        if let Some(client) = self.client_id.take() {
            let _ = ThreadWheel::with(|wheel| wheel.unregister_client(client));
        }
        for id in ids {
            let operation = self.table.get_mut().complete_and_take(id.index, Completion::Forced);
            self.remove_operation(self.table.borrow_mut(), id.index);
            ThreadWheel::catch_panic(PanicPlace::Drop, || drop(operation));
        }
        self.notify_remote_watchers_of_end();
        // Only watches of other cores' operations remain in the table. Drops their keys.
        ThreadWheel::drop_each_catching_panic(self.table.get_mut().take_all_keys());
    }
}

/// Calls `try_complete`, and returns false if it panics.
#[inline]
fn call_try_complete<Op: DelayedOperation>(operation: &mut Op) -> bool {
    ThreadWheel::catch_panic(PanicPlace::DelayedOperation, || operation.try_complete())
        .unwrap_or(false)
}
