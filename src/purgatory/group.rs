//! Purgatories of several cores that share their keys.

use std::{
    any::Any,
    cell::RefCell,
    collections::HashMap,
    fmt,
    hash::{BuildHasher, RandomState},
    mem,
    rc::{Rc, Weak},
    sync::{Arc, OnceLock},
};

use super::{DelayedOperation, Purgatory, WatchKey, inner::Inner, message::Message};
use crate::{
    limits::MESSAGES_TOGETHER,
    local::{Flush, LocalTimer, ShardRef},
    sync::per_thread,
};

/// Which core a key belongs to.
type CoreOf<K> = dyn Fn(&K) -> usize + Send + Sync;

/// The purgatories of several cores: each key belongs to one of them, and operations may watch keys of any.
///
/// Each core's thread [joins](Self::join) with its own purgatory. Any thread may tell of an event: the key's core hears of
/// it, and from there every core with an operation that watches the key.
///
/// # Examples
///
/// ```
/// use corewheel::{Completion, Cores, DelayedOperation, PurgatoryGroup, local_timer};
/// use std::{sync::{Arc, atomic::{AtomicBool, Ordering}}, thread, time::Duration};
///
/// struct UntilSet(Arc<AtomicBool>);
///
/// impl DelayedOperation for UntilSet {
///     fn try_complete(&mut self) -> bool {
///         self.0.load(Ordering::Acquire)
///     }
///
///     fn on_complete(self, how: Completion) {
///         assert_eq!(how, Completion::Condition);
///     }
/// }
///
/// let is_set = Arc::new(AtomicBool::new(false));
/// let (group, set) = (PurgatoryGroup::new(), Arc::clone(&is_set));
/// let events = group.clone();
/// let cores = Cores::builder().shards(2).start(move |core| {
///     let purgatory = group.join(core.index(), core.shards());
///     let wait = UntilSet(Arc::clone(&is_set));
///     let _ = purgatory.try_complete_else_watch(wait, ["topic"], Duration::from_secs(10)).unwrap();
///     while !purgatory.is_empty() {
///         local_timer().turn();
///         let sleep = local_timer().prepare_sleep();
///         sleep.timeout().map_or_else(thread::park, thread::park_timeout);
///     }
/// })?;
/// set.store(true, Ordering::Release);
/// events.notify(&"topic");
/// cores.join().into_iter().for_each(|ended| ended.unwrap());
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct PurgatoryGroup<K>(Arc<Group<K>>);

struct Group<K> {
    number: u64,
    core_of: Box<CoreOf<K>>,
    /// Known from the first who joins.
    shards: OnceLock<Box<[ShardRef]>>,
}

/// One core's part in a group: what it has to say to the others goes together.
pub(super) struct Member<K> {
    group: Arc<Group<K>>,
    core: u32,
    /// By core.
    unsent: RefCell<Vec<Vec<Message<K>>>>,
}

/// Who takes the messages of a group on one thread.
trait Receiver<K> {
    fn receive(&self, messages: Vec<Message<K>>);
}

per_thread! {
    /// By the group's number: a `Weak<dyn Receiver<K>>`, or a `Vec<Message<K>>` of what came before it.
    static RECEIVERS: RefCell<Option<HashMap<u64, Box<dyn Any>>>> = RefCell::new(None);
}

impl<K: WatchKey> PurgatoryGroup<K> {
    /// A group whose keys are spread over the cores by a hash.
    pub fn new() -> Self {
        let hasher = RandomState::new();
        #[allow(clippy::cast_possible_truncation)] // Any bits of it will do.
        Self::by(move |key| hasher.hash_one(key) as usize)
    }

    /// A group in which `core_of` says which core a key belongs to; what it says is taken modulo the number of cores. It must
    /// say the same each time.
    pub fn by(core_of: impl Fn(&K) -> usize + Send + Sync + 'static) -> Self {
        static NUMBERS: std::sync::Mutex<u64> = std::sync::Mutex::new(0);
        let mut number = NUMBERS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *number += 1;
        Self(Arc::new(Group { number: *number, core_of: Box::new(core_of), shards: OnceLock::new() }))
    }

    /// This thread's purgatory in the group: that of the core `index` of `shards`, which are the timers of all its cores
    /// ([`Core::shards`](crate::Core::shards)) and the same for everybody. Once per core; what other cores have sent before is
    /// there at once.
    ///
    /// # Panics
    ///
    /// If there is no such core.
    pub fn join<Op: DelayedOperation>(&self, index: usize, shards: &[ShardRef]) -> Purgatory<K, Op> {
        assert!(index < shards.len(), "core {index} of {}", shards.len());
        self.0.shards.get_or_init(|| shards.into());
        let unsent = RefCell::new(shards.iter().map(|_| Vec::new()).collect());
        #[allow(clippy::cast_possible_truncation)] // There are at most 2^14 shards.
        let member = Member { group: Arc::clone(&self.0), core: index as u32, unsent };
        let inner = Rc::new(Inner::<K, Op>::new(Some(member)));
        let flush: Rc<dyn Flush> = Rc::clone(&inner) as Rc<dyn Flush>;
        LocalTimer::flush_at_the_end_of_turns(&flush);
        let receiver: Rc<dyn Receiver<K>> = Rc::clone(&inner) as Rc<dyn Receiver<K>>;
        if let Some(early) = register(self.0.number, Rc::downgrade(&receiver)) {
            receiver.receive(early);
        }
        Purgatory(inner)
    }

    /// There was an event on `key`. From any thread; what it has written before is seen by the operations that look. A core's
    /// own thread better uses [`Purgatory::notify`], whose messages go together.
    pub fn notify(&self, key: &K) {
        let Some(shards) = self.0.shards.get() else { return };
        self.0.send(self.0.core_of(key, shards), vec![Message::Event { key: key.clone() }]);
    }
}

impl<K: Send + 'static> Group<K> {
    fn core_of(&self, key: &K, shards: &[ShardRef]) -> usize {
        (self.core_of)(key) % shards.len()
    }

    /// Has a core take messages in its next turn. Those to a core that has ended are of no use to anybody.
    fn send(self: &Arc<Self>, core: usize, messages: Vec<Message<K>>) {
        let number = self.number;
        if let Some(shard) = self.shards.get().and_then(|shards| shards.get(core)) {
            let _ = shard.try_run(move || deliver(number, messages));
        }
    }
}

/// Hands messages to this thread's part of a group, or keeps them until it joins.
fn deliver<K: 'static>(group: u64, messages: Vec<Message<K>>) {
    let mut messages = Some(messages);
    let receiver = RECEIVERS.try_with(|receivers| {
        let mut receivers = receivers.borrow_mut();
        let receivers = receivers.get_or_insert_default();
        let place = receivers.entry(group).or_insert_with(|| Box::new(Vec::<Message<K>>::new()));
        if let Some(early) = place.downcast_mut::<Vec<Message<K>>>() {
            early.extend(messages.take().into_iter().flatten());
        }
        place.downcast_ref::<Weak<dyn Receiver<K>>>().and_then(Weak::upgrade)
    });
    if let (Ok(Some(receiver)), Some(messages)) = (receiver, messages) {
        receiver.receive(messages);
    }
}

/// From now on messages of the group go there; what came before.
fn register<K: 'static>(group: u64, receiver: Weak<dyn Receiver<K>>) -> Option<Vec<Message<K>>> {
    let before = RECEIVERS
        .try_with(|receivers| receivers.borrow_mut().get_or_insert_default().insert(group, Box::new(receiver)));
    before.ok().flatten()?.downcast().ok().map(|early| *early)
}

impl<K> Member<K> {
    pub(super) fn core(&self) -> u32 {
        self.core
    }
}

impl<K: Send + 'static> Member<K> {
    pub(super) fn core_of(&self, key: &K) -> u32 {
        let shards = self.group.shards.get().map_or(&[] as &[ShardRef], |shards| shards);
        #[allow(clippy::cast_possible_truncation)] // There are at most 2^14 shards.
        if shards.is_empty() { self.core } else { self.group.core_of(key, shards) as u32 }
    }

    /// Says something to another core, when the loop next turns or prepares to sleep.
    pub(super) fn send(&self, core: u32, message: Message<K>) {
        let full = {
            let mut unsent = self.unsent.borrow_mut();
            let Some(messages) = unsent.get_mut(core as usize) else { return };
            messages.push(message);
            (messages.len() >= MESSAGES_TOGETHER).then(|| mem::take(messages))
        };
        match full {
            Some(messages) => self.group.send(core as usize, messages),
            None => LocalTimer::wants_flush(),
        }
    }

    pub(super) fn flush(&self) {
        let cores = self.unsent.borrow().len();
        for core in 0..cores {
            let messages = mem::take(&mut self.unsent.borrow_mut()[core]);
            if !messages.is_empty() {
                self.group.send(core, messages);
            }
        }
    }

    pub(super) fn unsent(&self) -> u64 {
        self.unsent.borrow().iter().map(|messages| messages.len() as u64).sum()
    }
}

impl<K: WatchKey, Op: DelayedOperation> Receiver<K> for Inner<K, Op> {
    fn receive(&self, messages: Vec<Message<K>>) {
        for message in messages {
            self.take_in(message);
        }
    }
}

impl<K: WatchKey, Op: DelayedOperation> Flush for Inner<K, Op> {
    fn flush(&self) {
        self.send_all();
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
        f.debug_struct("PurgatoryGroup").field("number", &self.0.number).finish_non_exhaustive()
    }
}
