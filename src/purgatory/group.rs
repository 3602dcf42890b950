//! The messages between the purgatories of several cores.
//!
//! A core collects its messages to another core in a *batch*, which a closure delivers on the
//! receiving core. Batches may arrive in any order. A message that depends on an earlier message is
//! sent only after the earlier message was acknowledged.
//!
//! No core resends a message or waits for an answer. If a batch cannot be delivered, usually
//! because the receiving purgatory has ended, the batch's destructor sends
//! [replies](Message::nondelivery_reply) to the sender.

use std::{
    any::Any,
    cell::RefCell,
    collections::BTreeMap,
    fmt, mem,
    rc::{self, Rc},
    sync::{self, Arc},
};

use super::{
    hash::BuildKeyHasher,
    operation::{RecordId, WatchKey},
};
use crate::{
    limits::{PURGATORY_BATCH_MESSAGES_MAX, PURGATORY_SPARE_BATCHES_MAX},
    local::{CatchDropPanic, ShardRef, ThreadWheel},
    util::sync::{AtomicBool, Ordering, SetOnce, fence, per_thread},
};

/// The purgatories of several cores. Each key belongs to one core, and operations may watch keys of
/// any core.
///
/// Each core's thread creates the core's purgatory by [`join`](Self::join), once and for one type
/// of operations. Another type needs another group. Any thread may report an event by
/// [`notify`](Self::notify), so that each core checks its operations that watch the key.
///
/// A core's purgatory ends when its last clone is dropped, at the latest when its thread exits.
/// When a core's purgatory ends, the other cores check all their operations that watch keys of the
/// core. Later events on keys of the ended core have no effect, but the operations keep their other
/// watches and timeouts.
///
/// Before you [drain](crate::LocalTimer::drain) a core's wheel,
/// [drain](crate::purgatory::Purgatory::drain) the core's purgatory and drop all its clones, even
/// in a `thread_local!`. If you drain only the wheel, events that other threads report on the
/// core's keys cause no check until the purgatory ends.
///
/// While all 2^25 - 1 nodes of a core's wheel are in use, messages from other cores to this core
/// are lost.
///
/// When a key has an event, the key's core sends one message for each watch on the key that belongs
/// to an operation of another core. Nothing slows down the senders: if events outpace the checks,
/// the queued messages take more and more memory, until the receiving wheel has no free node.
///
/// # Examples
///
/// ```
/// use corewheel::{Cores, local_timer, purgatory::{Completion, DelayedOperation, PurgatoryGroup}};
/// use std::{sync::{Arc, atomic::{AtomicBool, Ordering}}, time::Duration};
///
/// struct WaitForFlag(Arc<AtomicBool>);
///
/// impl DelayedOperation for WaitForFlag {
///     fn try_complete(&mut self) -> bool {
///         self.0.load(Ordering::Acquire)
///     }
///
///     fn on_complete(self, how: Completion) {
///         println!("answered, {how:?}");
///     }
/// }
///
/// let is_set = Arc::new(AtomicBool::new(false));
/// let (group, set) = (PurgatoryGroup::new(), Arc::clone(&is_set));
/// let events = group.clone();
/// let cores = Cores::builder().threads(2).start(move |core| {
///     let purgatory = group.join(core.index(), core.shards());
///     let wait = WaitForFlag(Arc::clone(&is_set));
///     let timeout = Duration::from_secs(10);
///     let _ = purgatory.try_complete_else_watch(wait, ["topic"], timeout).unwrap();
///     while !purgatory.is_empty() {
///         local_timer().prepare_sleep().park();
///         local_timer().turn();
///     }
///     purgatory.counts().by_condition
/// })?;
/// set.store(true, Ordering::Release);
/// events.notify(&"topic");
/// for completed in cores.join() {
///     assert_eq!(completed.unwrap(), 1);
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct PurgatoryGroup<K>(Arc<Group<K>>);

/// The state that the clones of a [`PurgatoryGroup`] share.
struct Group<K> {
    core_of: Box<dyn Fn(&K) -> usize + Send + Sync>,
    /// The cores of the group, set by the first core that joins.
    cores: SetOnce<Box<[GroupCore]>>,
}

struct GroupCore {
    shard: ShardRef,
    /// True once this core's purgatory has ended.
    has_ended: AtomicBool,
}

impl<K: WatchKey> PurgatoryGroup<K> {
    /// Creates a group that spreads the keys over the cores by a hash with a [random
    /// secret](crate::purgatory::Purgatory#keys). To choose the core of each key, use
    /// [`partitioned_by`](Self::partitioned_by).
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
    pub fn new() -> Self {
        let hasher = BuildKeyHasher::new();
        Self::partitioned_by(move |key| hasher.hash_u32(key) as usize)
    }

    /// Creates a group in which a key belongs to core `core_of(key)` modulo the number of cores.
    /// For equal keys, `core_of` must always return the same value.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::purgatory::PurgatoryGroup;
    /// use corewheel::local_timer;
    /// use std::{cell::Cell, rc::Rc, time::Duration};
    ///
    #[doc = include_str!("example.txt")]
    /// let group = PurgatoryGroup::partitioned_by(|topic: &&str| topic.len());
    /// let purgatory = group.join(0, &[local_timer().shard_ref()]); // a group of one core
    /// let _ = purgatory.try_complete_else_watch(op(), ["topic"], Duration::from_secs(5))?;
    /// is_met.set(true);
    /// purgatory.notify(&"topic");
    /// assert!(purgatory.is_empty());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn partitioned_by(core_of: impl Fn(&K) -> usize + Send + Sync + 'static) -> Self {
        let core_of = CatchDropPanic(Some(core_of));
        let core_of = move |key: &K| core_of.0.as_ref().map_or(0, |core_of| core_of(key));
        Self(Arc::new(Group { core_of: Box::new(core_of), cores: SetOnce::new() }))
    }

    /// Reports an event on `key`: each core checks, in a turn, its operations that watch the key.
    ///
    /// The conditions see everything that the calling thread wrote before the call. On a core's own
    /// thread, prefer [`Purgatory::notify`](crate::purgatory::Purgatory::notify), which sends
    /// events in batches.
    ///
    /// Returns true if the event was passed to the key's core, which handles the event unless its
    /// wheel or purgatory ends earlier. Returns false if the event has no effect:
    ///
    /// * No core has joined the group.
    /// * The purgatory of the key's core was dropped, or this core's wheel has ended.
    /// * The wheel of the key's core has no free node.
    ///
    /// Cost: two allocations, a clone of the key, and a request to the core.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::purgatory::PurgatoryGroup;
    /// use corewheel::local_timer;
    /// use std::{cell::Cell, rc::Rc, thread, time::Duration};
    ///
    #[doc = include_str!("example.txt")]
    /// let group = PurgatoryGroup::new();
    /// let purgatory = group.join(0, &[local_timer().shard_ref()]); // a group of one core
    /// let _ = purgatory.try_complete_else_watch(op(), ["topic"], Duration::from_secs(5))?;
    /// is_met.set(true);
    /// let events = group.clone();
    /// thread::spawn(move || events.notify(&"topic")).join().unwrap();
    /// local_timer().run_until(|| purgatory.is_empty());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn notify(&self, key: &K) -> bool {
        let Some(cores) = self.0.cores_if_joined() else { return false };
        let key_core = self.0.core_of(key, cores.len());
        // Events are never answered, so any core can be the batch's sender: here core 0.
        let mut batch = Batch::new(&self.0, 0, Vec::new());
        batch.0.events.push(key.clone());
        // Relaxed: the flag affects only the returned value.
        self.0.send_batch(key_core, batch)
            && !cores[key_core as usize].has_ended.load(Ordering::Relaxed)
    }

    /// Creates the membership of this thread's core. Panics as [`join`](Self::join) does.
    #[track_caller]
    pub(super) fn make_member(&self, index: usize, shards: &[ShardRef]) -> Member<K> {
        // Comes before all checks: the call may drop keys, whose destructors may drain the wheel.
        let is_first_join = with_endpoint(&self.0, |endpoint| endpoint.receiver.is_none());
        assert!(
            index < shards.len(),
            "`PurgatoryGroup::join` got index {index}, but only {} shard(s)",
            shards.len()
        );
        assert!(
            shards[index].is_of_this_thread(),
            "shard {index} is not this thread's wheel, or has ended; join on that core's thread"
        );
        let new_core = |shard: &ShardRef| GroupCore {
            shard: shard.clone(),
            has_ended: AtomicBool::new(false),
        };
        let cores = self.0.cores.get_or_init(|| shards.iter().map(new_core).collect());
        let (shard_count, group_shard_count) = (shards.len(), cores.len());
        assert!(
            shard_count == group_shard_count,
            "joined with {shard_count} shards, but other threads with {group_shard_count}"
        );
        let are_same_shards = cores.iter().map(|core| &core.shard).eq(shards);
        assert!(
            are_same_shards,
            "joined with other shards, or in another order, than other threads"
        );
        // Panics outside the closure, where `THREAD_ENDPOINTS` is not borrowed: the panic hook is
        // user code, which may run a turn.
        assert!(
            is_first_join.unwrap_or(true), // An exiting thread has no endpoints.
            "this thread has joined the group before; use a group for each type of operation"
        );
        // SeqCst: pairs with the fence in `Group::cores_if_joined`. This thread sets or finds the
        // cores before this fence, and checks the conditions of its operations after this fence.
        fence(Ordering::SeqCst);
        Member {
            group: Arc::clone(&self.0),
            #[allow(clippy::cast_possible_truncation)] // There are at most 2^14 shards.
            own_core: index as u32,
            core_count: shard_count,
            unsent_batch_by_core: RefCell::new(shards.iter().map(|_| None).collect()),
            spare_batches: RefCell::default(),
        }
    }
}

impl<K: Send + 'static> Group<K> {
    /// Returns all cores, if a core has joined.
    fn cores_if_joined(&self) -> Option<&[GroupCore]> {
        let cores = self.cores.get().or_else(|| {
            // SeqCst: pairs with the fence in `make_member`. If the joining core's fence comes
            // before this fence, the load below finds the cores. If the joining core's fence comes
            // after this fence, the joining core's checks see everything that this thread wrote
            // before `notify`.
            fence(Ordering::SeqCst);
            self.cores.get()
        });
        cores.map(|cores| &**cores)
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation)] // There are at most 2^14 shards.
    fn core_of(&self, key: &K, core_count: usize) -> u32 {
        let core = (self.core_of)(key);
        // If `core` is a valid index, avoids the slow division of `%`.
        (if core < core_count { core } else { core % core_count }) as u32
    }

    /// Sends a batch to a core. Returns false if the batch was dropped instead.
    fn send_batch(&self, dest_core: u32, batch: Batch<K>) -> bool {
        let core = self.cores_if_joined().and_then(|cores| cores.get(dest_core as usize));
        core.is_some_and(|core| core.shard.run_ignoring_timer_limit(move || batch.deliver()))
    }
}

impl<K> Clone for PurgatoryGroup<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: WatchKey> Default for PurgatoryGroup<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> fmt::Debug for PurgatoryGroup<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PurgatoryGroup").finish_non_exhaustive()
    }
}

/// A message from a core's purgatory to the purgatory of another core.
#[derive(Debug)]
pub(super) enum Message<K> {
    /// Requests a watch on a key of the receiver, for an operation of the sender.
    Watch { key: K, operation: RecordId },
    /// The sender has added the watch that the receiver's operation requested.
    WatchAck { operation: RecordId, watch: RecordId },
    /// Requests the removal of a watch on a key of the receiver.
    Unwatch { watch: RecordId },
    /// Requests a check of the receiver's operation. After an event on a key of the sender, `watch`
    /// is the operation's watch on this key. If `watch` is `None`, the key's core could not add the
    /// watch, or the purgatory of the key's core has ended.
    Recheck { operation: RecordId, watch: Option<RecordId> },
}

impl<K> Message<K> {
    /// Returns the reply to the sender of this undelivered message, if one is needed.
    pub(super) fn nondelivery_reply(&self) -> Option<Self> {
        match *self {
            // The operation's core did not learn of the watch, so the sender of this message, the
            // key's core, must remove the watch.
            Self::WatchAck { watch, .. } | Self::Recheck { watch: Some(watch), .. } => {
                Some(Self::Unwatch { watch })
            }
            Self::Watch { operation, .. } => Some(Self::Recheck { operation, watch: None }),
            Self::Unwatch { .. } | Self::Recheck { watch: None, .. } => None,
        }
    }
}

/// One core's membership in a group.
pub(super) struct Member<K: Send + 'static> {
    group: Arc<Group<K>>,
    own_core: u32,
    core_count: usize,
    /// For each core, the batch that is being filled.
    unsent_batch_by_core: RefCell<Vec<Option<Batch<K>>>>,
    /// Consumed batches, kept for reuse.
    spare_batches: RefCell<Vec<Batch<K>>>,
}

impl<K: Send + 'static> Member<K> {
    /// Returns the core of a key, or `None` if the key belongs to this core.
    #[inline]
    pub(super) fn other_core_of(&self, key: &K) -> Option<u32> {
        let core = self.group.core_of(key, self.core_count);
        (core != self.own_core).then_some(core)
    }

    pub(super) fn add_message_to_batch(&self, dest_core: u32, message: Message<K>) {
        self.add_to_batch(dest_core, |batch| batch.messages.push(message));
    }

    pub(super) fn add_event_to_batch(&self, dest_core: u32, key: K) {
        self.add_to_batch(dest_core, |batch| batch.events.push(key));
    }

    #[inline]
    fn add_to_batch(&self, dest_core: u32, add_to_content: impl FnOnce(&mut BatchContent<K>)) {
        let mut unsent_batches = self.unsent_batch_by_core.borrow_mut();
        let Some(unsent_batch) = unsent_batches.get_mut(dest_core as usize) else { return };
        let batch = unsent_batch.get_or_insert_with(|| self.take_empty_batch());
        add_to_content(&mut batch.0);
        let batch_len = batch.len();
        let full_batch = unsent_batch.take_if(|_| batch_len >= PURGATORY_BATCH_MESSAGES_MAX);
        drop(unsent_batches);
        if let Some(batch) = full_batch {
            self.group.send_batch(dest_core, batch);
        } else if batch_len == 1 {
            let _ = ThreadWheel::with(ThreadWheel::request_client_flush);
        }
    }

    fn take_empty_batch(&self) -> Batch<K> {
        let spare_batch = self.spare_batches.borrow_mut().pop();
        spare_batch.unwrap_or_else(|| Batch::new(&self.group, self.own_core, Vec::new()))
    }

    /// Calls `on_event` with the key of each event of a batch, and `on_message` with the sending
    /// core and each message. Keeps up to [`PURGATORY_SPARE_BATCHES_MAX`] empty batches for reuse.
    pub(super) fn consume_batch(
        &self,
        mut batch: Batch<K>,
        on_event: impl FnMut(K),
        mut on_message: impl FnMut(u32, Message<K>),
    ) {
        let sender_core = mem::replace(&mut batch.0.sender_core, self.own_core);
        batch.0.events.drain(..).for_each(on_event);
        batch.0.messages.drain(..).for_each(|message| on_message(sender_core, message));
        let mut spare_batches = self.spare_batches.borrow_mut();
        if spare_batches.len() < PURGATORY_SPARE_BATCHES_MAX {
            spare_batches.push(batch);
        }
    }

    pub(super) fn mark_purgatory_ended(&self) {
        if let Some(cores) = self.group.cores_if_joined() {
            // Relaxed: the flag affects only the value that `PurgatoryGroup::notify` returns.
            cores[self.own_core as usize].has_ended.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn send_unsent_batches(&self) {
        for (dest_core, index) in (0..).zip(0..self.core_count) {
            let batch = self.unsent_batch_by_core.borrow_mut()[index].take();
            if let Some(batch) = batch {
                self.group.send_batch(dest_core, batch);
            }
        }
    }

    pub(super) fn unsent_message_count(&self) -> u64 {
        self.unsent_batch_by_core.borrow().iter().flatten().map(|batch| batch.len() as u64).sum()
    }

    /// Makes `receiver` receive the group's messages on this thread, beginning with the watches that
    /// other cores have requested so far.
    pub(super) fn register_receiver(&self, receiver: &Rc<dyn BatchReceiver<K>>) {
        let watches = with_endpoint(&self.group, |endpoint| {
            endpoint.receiver = Some(Rc::downgrade(receiver));
            mem::take(&mut endpoint.watches_before_join)
        });
        for (sender_core, lists) in watches.unwrap_or_default() {
            for watches in lists {
                receiver.receive_batch(Batch::new(&self.group, sender_core, watches));
            }
        }
    }
}

/// A batch of messages to one core, whose destructor sends [replies](Message::nondelivery_reply) to
/// undelivered messages.
pub(super) struct Batch<K: Send + 'static>(Box<BatchContent<K>>);

struct BatchContent<K: Send + 'static> {
    group: Arc<Group<K>>,
    /// The core that gets the replies.
    sender_core: u32,
    /// The keys of events, separate because a [`Message`] is larger than a key. The order of events
    /// relative to messages does not matter, because an acknowledged watch causes a check.
    events: Vec<K>,
    messages: Vec<Message<K>>,
}

impl<K: Send + 'static> Batch<K> {
    fn new(group: &Arc<Group<K>>, sender_core: u32, messages: Vec<Message<K>>) -> Self {
        Self(Box::new(BatchContent {
            group: Arc::clone(group),
            sender_core,
            events: Vec::new(),
            messages,
        }))
    }

    #[inline]
    fn len(&self) -> usize {
        self.0.events.len() + self.0.messages.len()
    }

    /// Passes the batch to this thread's receiver, or drops the batch if the receiver has ended. If
    /// the thread has not joined the group, drops the events and buffers the messages. These are
    /// `Watch` messages: all others concern a watch that this core has requested or added.
    fn deliver(mut self) {
        let BatchContent { group, sender_core, messages, .. } = &mut *self.0;
        let receiver = with_endpoint(group, |endpoint| {
            if let Some(receiver) = &endpoint.receiver {
                return receiver.upgrade();
            }
            let lists = endpoint.watches_before_join.entry(*sender_core).or_default();
            match lists.last_mut() {
                Some(last) if last.len() + messages.len() <= PURGATORY_BATCH_MESSAGES_MAX => {
                    last.append(messages);
                }
                _ => lists.push(mem::take(messages)),
            }
            None
        });
        if let Some(receiver) = receiver.flatten() {
            // Charges the turn's budget for the other messages: the turn has counted the batch as
            // one message.
            let further_messages = self.len().saturating_sub(1);
            let _ = ThreadWheel::with_current_engine(|engine| {
                engine.backlog.charge_budget(further_messages);
            });
            receiver.receive_batch(self);
        }
    }
}

impl<K: Send + 'static> Drop for Batch<K> {
    fn drop(&mut self) {
        let BatchContent { group, sender_core, events, messages } = &mut *self.0;
        let replies: Vec<_> = messages.iter().filter_map(Message::nondelivery_reply).collect();
        if !replies.is_empty() {
            // Replies are never answered, so any core can be the batch's sender.
            group.send_batch(*sender_core, Batch::new(group, *sender_core, replies));
        }
        ThreadWheel::drop_each_catching_panic(messages.drain(..));
        ThreadWheel::drop_each_catching_panic(events.drain(..));
    }
}

/// Receives the messages of a group on one thread.
pub(super) trait BatchReceiver<K: Send + 'static> {
    fn receive_batch(&self, batch: Batch<K>);

    /// Tells other cores that their operations get no more events from this core. Called when the
    /// receiver ends or the thread exits.
    fn notify_remote_watchers_of_end(&self);
}

/// The destination of a group's messages on one thread.
struct ReceivingEndpoint<K: Send + 'static> {
    /// Keeps the group's address, the key in `THREAD_ENDPOINTS`, from being reused.
    group: sync::Weak<Group<K>>,
    /// `None` until the thread joins the group.
    receiver: Option<rc::Weak<dyn BatchReceiver<K>>>,
    /// The watches that each other core requested before this thread joined, as lists of up to
    /// [`PURGATORY_BATCH_MESSAGES_MAX`] messages. Events need no buffer, because each operation
    /// checks its condition when its watch is acknowledged.
    watches_before_join: BTreeMap<u32, Vec<Vec<Message<K>>>>,
}

impl<K: Send + 'static> Drop for ReceivingEndpoint<K> {
    fn drop(&mut self) {
        if let Some(receiver) = self.receiver.as_ref().and_then(rc::Weak::upgrade) {
            receiver.notify_remote_watchers_of_end();
        }
        let group = self.group.upgrade();
        for (sender_core, lists) in mem::take(&mut self.watches_before_join) {
            for watches in lists {
                match &group {
                    // The destructor of the batch replies to the sender.
                    Some(group) => drop(Batch::new(group, sender_core, watches)),
                    None => ThreadWheel::drop_each_catching_panic(watches),
                }
            }
        }
    }
}

/// A [`ReceivingEndpoint`], with the type of its keys erased.
trait AnyReceivingEndpoint: Any {
    fn group_has_ended(&self) -> bool;
}

impl<K: Send + 'static> AnyReceivingEndpoint for ReceivingEndpoint<K> {
    fn group_has_ended(&self) -> bool {
        self.group.strong_count() == 0
    }
}

per_thread! {
    /// The endpoints of this thread, by the address of their group.
    static THREAD_ENDPOINTS: RefCell<BTreeMap<usize, Box<dyn AnyReceivingEndpoint>>> =
        RefCell::new(BTreeMap::new());
}

/// Calls `action` with this thread's endpoint of a group, which the first call creates. Returns
/// `None` if this thread is exiting and has dropped its endpoints.
fn with_endpoint<K: Send + 'static, R>(
    group: &Arc<Group<K>>,
    action: impl FnOnce(&mut ReceivingEndpoint<K>) -> R,
) -> Option<R> {
    let result = THREAD_ENDPOINTS.try_with(|thread_endpoints| {
        let mut endpoints = thread_endpoints.borrow_mut();
        let group_address = Arc::as_ptr(group).addr();
        if !endpoints.contains_key(&group_address) {
            let all_endpoints = mem::take(&mut *endpoints).into_iter();
            let (ended_endpoints, live_endpoints) =
                all_endpoints.partition(|(_, endpoint)| endpoint.group_has_ended());
            *endpoints = live_endpoints;
            let group = Arc::downgrade(group);
            let endpoint =
                ReceivingEndpoint { group, receiver: None, watches_before_join: BTreeMap::new() };
            endpoints.insert(group_address, Box::new(endpoint));
            // Drops the endpoints of ended groups before `action`, and while `THREAD_ENDPOINTS` is
            // not borrowed, because the drop runs user code, which may join the group.
            drop(endpoints);
            drop(ended_endpoints);
            endpoints = thread_endpoints.borrow_mut();
        }
        let any_endpoint = endpoints
            .get_mut(&group_address)
            .map(|any_endpoint| &mut **any_endpoint as &mut dyn Any);
        let endpoint = any_endpoint.and_then(|any_endpoint| any_endpoint.downcast_mut());
        action(endpoint.unwrap_or_else(|| unreachable!("a group has keys of one type")))
    });
    result.ok()
}
