//! Purgatories of several cores that share their keys.

use std::{
    cell::RefCell,
    fmt,
    hash::{BuildHasher, RandomState},
    rc::Rc,
    sync::Arc,
};

use super::{
    DelayedOperation, Purgatory, WatchKey,
    inner::Inner,
    letter::{self, Letter, Receiver},
    message::Message,
};
use crate::{
    hooks::PanicPlace,
    limits::{LETTERS_KEPT, MESSAGES_TOGETHER},
    local::{Flush, LocalTimer, ShardRef},
    sync::{Ordering, SetOnce, fence},
};

/// Which core a key belongs to.
type CoreOf<K> = dyn Fn(&K) -> usize + Send + Sync;

/// The purgatories of several cores: each key belongs to one of them, and operations may watch keys of any.
///
/// Each core's thread [joins](Self::join) with its own purgatory. Any thread may tell of an event: the key's core hears of
/// it, and from there every core with an operation that watches the key.
///
/// When a core's purgatory goes, its keys are nobody's: operations of other cores that watch one of them look at their
/// condition a last time for it, and are left with their other keys and the timeout.
///
/// # Examples
///
/// ```
/// use corewheel::{Completion, Cores, DelayedOperation, PurgatoryGroup, local_timer};
/// use std::{sync::{Arc, atomic::{AtomicBool, Ordering}}, time::Duration};
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
///     loop {
///         local_timer().turn();
///         if purgatory.is_empty() {
///             break;
///         }
///         local_timer().prepare_sleep().park();
///     }
/// })?;
/// set.store(true, Ordering::Release);
/// events.notify(&"topic");
/// cores.join().into_iter().for_each(|ended| ended.unwrap());
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct PurgatoryGroup<K>(Arc<Group<K>>);

pub(super) struct Group<K> {
    number: u64,
    core_of: Box<CoreOf<K>>,
    /// Known from the first who joins.
    shards: SetOnce<Box<[ShardRef]>>,
}

/// One core's part in a group: what it has to say to the others goes together.
pub(super) struct Member<K: Send + 'static> {
    group: Arc<Group<K>>,
    core: u32,
    /// By core.
    unsent: RefCell<Vec<Option<Letter<K>>>>,
    /// Letters that have been read.
    spare: RefCell<Vec<Letter<K>>>,
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
        Self(Arc::new(Group {
            number: *number,
            core_of: Box::new(core_of),
            shards: SetOnce::new(),
        }))
    }

    /// This thread's purgatory in the group: that of the core `index` of `shards`, which are the timers of all its cores
    /// ([`Core::shards`](crate::Core::shards)) and the same for everybody. Once per core; what other cores have asked of it
    /// before is done at once. Each core should join: what is asked of one that lives and does not is kept.
    ///
    /// # Panics
    ///
    /// If there is no such core, it is not this thread's, it has joined before, or somebody else has joined with another
    /// number of cores.
    pub fn join<Op: DelayedOperation>(
        &self,
        index: usize,
        shards: &[ShardRef],
    ) -> Purgatory<K, Op> {
        assert!(index < shards.len(), "core {index} of {}", shards.len());
        assert!(shards[index].is_own(), "core {index} is not this thread's");
        let known = self.0.shards.get_or_set(|| shards.into());
        assert!(
            shards.len() == known.len(),
            "{} cores, and {} for others",
            shards.len(),
            known.len()
        );
        // SeqCst: between the group's cores being known and any look at a condition, see `Group::shards`.
        fence(Ordering::SeqCst);
        let unsent = RefCell::new(shards.iter().map(|_| None).collect());
        #[allow(clippy::cast_possible_truncation)] // There are at most 2^14 shards.
        let member = Member {
            group: Arc::clone(&self.0),
            core: index as u32,
            unsent,
            spare: RefCell::default(),
        };
        let inner = Rc::new(Inner::<K, Op>::new(Some(member)));
        let flush: Rc<dyn Flush> = Rc::clone(&inner) as Rc<dyn Flush>;
        LocalTimer::flush_at_the_end_of_turns(&flush);
        let receiver: Rc<dyn Receiver<K>> = Rc::clone(&inner) as Rc<dyn Receiver<K>>;
        for (from, watch) in letter::register(&self.0, Rc::downgrade(&receiver)) {
            inner.take_in_alone(from, watch);
        }
        Purgatory(inner)
    }

    /// There was an event on `key`. From any thread; what it has written before is seen by the operations that look. On a
    /// core's own thread prefer [`Purgatory::notify`], whose messages go together. Cost: an allocation and a
    /// [`ShardRef::run`](crate::ShardRef::run).
    pub fn notify(&self, key: &K) {
        let Some(shards) = self.0.shards() else { return };
        // Nobody answers an event.
        self.0.post(
            self.0.core_of(key, shards),
            Letter::new(&self.0, 0, vec![Message::Event { key: key.clone() }]),
        );
    }
}

impl<K: Send + 'static> Group<K> {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The timers of the cores, if somebody has joined.
    fn shards(&self) -> Option<&[ShardRef]> {
        let shards = self.shards.get().or_else(|| {
            // SeqCst: between what the caller has done and this look. Either it finds the group's cores, or who joins comes
            // later, and its operations see what was done.
            fence(Ordering::SeqCst);
            self.shards.get()
        });
        shards.map(|shards| &**shards)
    }

    #[allow(clippy::cast_possible_truncation)] // There are at most 2^14 shards.
    fn core_of(&self, key: &K, shards: &[ShardRef]) -> u32 {
        ((self.core_of)(key) % shards.len()) as u32
    }

    /// Has a core take answers, if there are any, in its next turn.
    pub(super) fn send(self: &Arc<Self>, core: u32, answers: Vec<Message<K>>) {
        if !answers.is_empty() {
            // Nobody answers an answer.
            self.post(core, Letter::new(self, core, answers));
        }
    }

    /// Has a core take messages in its next turn.
    fn post(&self, core: u32, letter: Letter<K>) {
        if let Some(shard) = self.shards().and_then(|shards| shards.get(core as usize)) {
            shard.post(move || letter.open());
        }
    }
}

impl<K: Send + 'static> Member<K> {
    pub(super) fn core(&self) -> u32 {
        self.core
    }

    pub(super) fn core_of(&self, key: &K) -> u32 {
        self.group.shards().map_or(self.core, |shards| self.group.core_of(key, shards))
    }

    /// Says something to another core, when the loop next turns or prepares to sleep.
    pub(super) fn send(&self, core: u32, message: Message<K>) {
        let (together, full) = {
            let mut unsent = self.unsent.borrow_mut();
            let Some(place) = unsent.get_mut(core as usize) else { return };
            let letter = place.get_or_insert_with(|| self.begin_letter());
            letter.messages_mut().push(message);
            let together = letter.messages().len();
            (together, if together >= MESSAGES_TOGETHER { place.take() } else { None })
        };
        if let Some(letter) = full {
            self.post(core, letter);
        } else if together == 1 {
            LocalTimer::wants_flush();
        }
    }

    fn begin_letter(&self) -> Letter<K> {
        let spare = self.spare.borrow_mut().pop();
        spare.unwrap_or_else(|| Letter::new(&self.group, self.core, Vec::new()))
    }

    /// Keeps a letter that has been read, to write in.
    pub(super) fn keep(&self, mut letter: Letter<K>) {
        let mut spare = self.spare.borrow_mut();
        if spare.len() < LETTERS_KEPT {
            letter.hand_over(self.core);
            spare.push(letter);
        }
    }

    pub(super) fn flush(&self) {
        let cores = self.unsent.borrow().len();
        for (core, at) in (0..).zip(0..cores) {
            let letter = self.unsent.borrow_mut()[at].take();
            if let Some(letter) = letter {
                self.post(core, letter);
            }
        }
    }

    fn post(&self, core: u32, letter: Letter<K>) {
        // One that nobody takes is dropped, and so are its keys.
        LocalTimer::isolate(PanicPlace::Drop, || self.group.post(core, letter));
    }

    pub(super) fn unsent(&self) -> u64 {
        self.unsent.borrow().iter().flatten().map(|letter| letter.messages().len() as u64).sum()
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
