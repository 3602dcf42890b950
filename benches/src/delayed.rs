//! Delayed operations on one core or several: what each contender does, so that one load can be put on all of them.

use std::{
    collections::HashMap,
    mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use corewheel::{
    Config, Core, ManualClock, local_timer,
    purgatory::{Completion, DelayedOperation, OperationId, Outcome, Purgatory, PurgatoryGroup},
};

use slotmap::{DefaultKey, Key, KeyData, SlotMap};

use crate::{
    across::{Lock, Shareable},
    timers::Timers,
};

const TICK: Duration = Duration::from_millis(1);

/// One core's access to the operations.
pub trait Delayed: Sized + 'static {
    /// What all cores have in common.
    type Common: Clone + Send + Sync + 'static;
    type Id: Copy;

    /// For a run with this layout.
    fn common(layout: Layout) -> Self::Common;

    /// How the core's own timer is made.
    fn config(common: &Self::Common, core: usize) -> Config;

    /// On the core's own thread.
    fn new(common: &Self::Common, core: &Core) -> Self;

    /// Adds an operation that waits for an event on its key, at most this number of ticks. Returns
    /// `None` if it has completed.
    fn add(&mut self, operation: Operation, ticks: u64) -> Option<Self::Id>;

    fn notify(&mut self, key: usize);

    /// Completes an operation, if it has not.
    fn force(&mut self, id: Self::Id);

    /// A tick has passed on this core, which also hears what others have to say to it.
    fn tick(&mut self);
}

/// Who is where. The events on a key are all made by one core; operations on the next core wait for them.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
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

/// The state that operations check, and the counts. All relaxed: the counts are independent, and
/// each event is sent by a call that synchronizes.
pub struct Board {
    /// How many events there were on each key.
    pub events: Vec<AtomicU64>,
    /// By core.
    pub ended: Vec<Ended>,
}

/// One core's operations, and their counts.
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

pub struct Operation {
    pub board: &'static Board,
    pub key: u32,
    /// Whose it is.
    pub core: u32,
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

pub struct Corewheel {
    purgatory: Purgatory<usize, Operation>,
    clock: ManualClock,
}

impl Delayed for Corewheel {
    /// The group, and the clock of each core.
    type Common = (PurgatoryGroup<usize>, Arc<[ManualClock]>);
    type Id = OperationId;

    fn common(layout: Layout) -> Self::Common {
        let group = PurgatoryGroup::by(move |&key| layout.home(key));
        (group, (0..layout.cores).map(|_| ManualClock::new()).collect())
    }

    fn config((_, clocks): &Self::Common, core: usize) -> Config {
        Config::new().tick(TICK).clock(&clocks[core])
    }

    fn new((group, clocks): &Self::Common, core: &Core) -> Self {
        let purgatory = group.join(core.index(), core.shards());
        Self { purgatory, clock: clocks[core.index()].clone() }
    }

    fn add(&mut self, operation: Operation, ticks: u64) -> Option<OperationId> {
        let (key, timeout) = (operation.key as usize, TICK * ticks as u32);
        match self
            .purgatory
            .try_complete_else_watch(operation, [key], timeout)
            .expect("there is room")
        {
            Outcome::Waits(id) => Some(id),
            Outcome::Completed => None,
        }
    }

    fn notify(&mut self, key: usize) {
        self.purgatory.notify(&key);
    }

    fn force(&mut self, id: OperationId) {
        self.purgatory.force_complete(id);
    }

    fn tick(&mut self) {
        self.clock.advance(TICK);
        local_timer().turn();
    }
}

/// A purgatory of all cores behind one lock: a map of watch lists, the operations, and a timer. As in Kafka, an operation
/// that is over leaves its list when the list is next looked through. The operations' last words are said without the lock.
pub struct Locked<T: Shareable, L: Lock> {
    inner: Arc<L::Of<Inner<T>>>,
    /// The operations that one call completes, a buffer that is kept.
    done: Vec<Operation>,
    expired: Vec<Id>,
    cores: usize,
}

pub struct Inner<T: Timers> {
    watches: HashMap<usize, Vec<Id>>,
    operations: SlotMap<Id, (Operation, T::Handle)>,
    timers: T,
    now: u64,
}

/// Where an operation is, and which of those that have been there.
pub type Id = DefaultKey;

impl<T: Timers> Inner<T> {
    fn park(&mut self, operation: Operation, ticks: u64) -> Id {
        let (watch, deadline) = (operation.key as usize, self.now + ticks);
        let id = self
            .operations
            .insert_with_key(|id| (operation, self.timers.add(deadline, [id.data().as_ffi(); 3])));
        self.watches.entry(watch).or_default().push(id);
        id
    }

    fn get(&mut self, id: Id) -> Option<&mut Operation> {
        self.operations.get_mut(id).map(|(operation, _)| operation)
    }

    /// Takes an operation out and cancels its timer.
    fn take(&mut self, id: Id) -> Option<Operation> {
        let (operation, timer) = self.operations.remove(id)?;
        self.timers.cancel(&timer);
        Some(operation)
    }

    /// Takes those out that are complete, and forgets those that are over.
    fn check(&mut self, key: usize, done: &mut Vec<Operation>) {
        let Some(list) = self.watches.get_mut(&key) else { return };
        let mut list = mem::take(list);
        list.retain(|&id| {
            let is_complete = self.get(id).map(DelayedOperation::try_complete);
            if is_complete == Some(true) {
                done.extend(self.take(id));
            }
            is_complete == Some(false)
        });
        self.watches.insert(key, list);
    }
}

impl<T: Shareable, L: Lock> Locked<T, L> {
    fn end(&mut self, how: Completion) {
        for operation in self.done.drain(..) {
            operation.on_complete(how);
        }
    }
}

impl<T: Shareable, L: Lock> Delayed for Locked<T, L> {
    type Common = (Arc<L::Of<Inner<T>>>, usize);
    type Id = Id;

    fn common(layout: Layout) -> Self::Common {
        let (watches, operations) = (HashMap::new(), SlotMap::new());
        let inner = Inner { watches, operations, timers: T::new(), now: 0 };
        (Arc::new(inner.into()), layout.cores)
    }

    fn config(_: &Self::Common, _: usize) -> Config {
        Config::new()
    }

    fn new((inner, cores): &Self::Common, _: &Core) -> Self {
        Self { inner: Arc::clone(inner), done: Vec::new(), expired: Vec::new(), cores: *cores }
    }

    fn add(&mut self, mut operation: Operation, ticks: u64) -> Option<Id> {
        if operation.try_complete() {
            operation.on_complete(Completion::Condition);
            return None;
        }
        // Every core's tick moves the time of all.
        let ticks = ticks * self.cores as u64;
        let (id, done) = L::with(&self.inner, |inner| {
            let id = inner.park(operation, ticks);
            // There may have been an event before the watch.
            let is_complete = inner.get(id).is_some_and(DelayedOperation::try_complete);
            (id, if is_complete { inner.take(id) } else { None })
        });
        let waits = done.is_none();
        self.done.extend(done);
        self.end(Completion::Condition);
        waits.then_some(id)
    }

    fn notify(&mut self, key: usize) {
        L::with(&self.inner, |inner| inner.check(key, &mut self.done));
        self.end(Completion::Condition);
    }

    fn force(&mut self, id: Id) {
        self.done.extend(L::with(&self.inner, |inner| inner.take(id)));
        self.end(Completion::Forced);
    }

    fn tick(&mut self) {
        L::with(&self.inner, |inner| {
            inner.now += 1;
            let expired = &mut self.expired;
            inner.timers.advance(inner.now, |[id, ..]| expired.push(KeyData::from_ffi(id).into()));
            self.done.extend(self.expired.drain(..).filter_map(|id| inner.take(id)));
        });
        self.end(Completion::Expired);
    }
}
