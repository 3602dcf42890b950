//! Delayed operations. Of four operations, two wait for an event, one is forced, and one times out.
//! With two cores, the other core makes the events.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use std::{mem, thread};

use corewheel::purgatory::{
    Completion, DelayedOperation, OperationId, Purgatory, PurgatoryGroup, WatchOutcome,
};
use corewheel::{Config, Core, Cores, ManualClock, local_timer};
use fastrand::Rng;
use slotmap::{DefaultKey, Key, KeyData, SlotMap};

use super::{SEED, run_in_settings};
use crate::across::{Lock, Shareable};
use crate::measure::{Sample, process_cpu_nanos};
use crate::plan::Job;
use crate::timers::TimerSet;

const TICK: Duration = Duration::from_millis(1);

/// Operations that a core adds in a pass.
const ADDS_PER_PASS: usize = 64;
/// The number of waiting operations above which a core adds none.
const WAITING_MAX: u64 = 4096;
/// The timeouts of operations, in ticks; a core's time advances by a tick after each pass. Every
/// key has an event within `LONG_TIMEOUT_TICKS`.
const LONG_TIMEOUT_TICKS: u64 = 30_000;
const SHORT_TIMEOUT_TICKS: u64 = 10;

const SETTINGS: [(&str, Layout); 3] = [
    ("1-core", Layout { cores: 1, event_makers_own_keys: false }),
    ("2-cores", Layout { cores: 2, event_makers_own_keys: false }),
    ("2-cores-far", Layout { cores: 2, event_makers_own_keys: true }),
];

pub fn run<D: PurgatoryPeer>(job: Job) -> Vec<Sample> {
    run_in_settings(&SETTINGS, |layout| run_in_layout::<D>(job, layout))
}

fn run_in_layout<D: PurgatoryPeer>(job: Job, layout: Layout) -> Vec<Sample> {
    let (keys, durations) = (job.n, job.durations());
    let state = SharedState::new_leaked(keys, layout);
    let cores = on_cores(layout, move |purgatory: D, core| {
        let mut load = CoreLoad::new(purgatory, core, state, layout);
        while !state.is_over.load(Relaxed) {
            load.pass();
        }
        load.added
    });
    thread::sleep(durations.warm_up_max);
    let (start, cpu, before) = (Instant::now(), process_cpu_nanos(), ended_counts(state));
    // Measures longer if no operation has ended, because the machine was too busy to run the
    // threads.
    while start.elapsed() < durations.timed || ended_counts(state) == before {
        thread::sleep(durations.timed);
    }
    let (elapsed, cpu, after) = (start.elapsed(), process_cpu_nanos() - cpu, ended_counts(state));
    state.is_over.store(true, Relaxed);
    let added: u64 =
        cores.join().into_iter().map(|added| added.expect("the load does not panic")).sum();
    assert!(ended_counts(state).iter().sum::<u64>() <= added, "each operation ends once");
    let [by_condition, by_force_or_expiry] = [0, 1].map(|i| (after[i] - before[i]) as f64);
    let ended = by_condition + by_force_or_expiry;
    vec![
        job.sample("rate", "k/s", ended / elapsed.as_secs_f64() / 1e3),
        job.sample("cpu", "ns", cpu / ended),
        job.sample("by-event", "%", by_condition / ended * 100.0),
    ]
}

fn on_cores<D: PurgatoryPeer, R: Send + 'static>(
    layout: Layout,
    run: impl Fn(D, &Core) -> R + Send + Sync + 'static,
) -> Cores<R> {
    let clocks: Arc<[ManualClock]> = (0..layout.cores).map(|_| ManualClock::new()).collect();
    let cores = Cores::builder().threads(layout.cores).config({
        let clocks = Arc::clone(&clocks);
        move |core| Config::new().tick(TICK).clock(&clocks[core])
    });
    let shared = D::new_shared(layout);
    let cores =
        cores.start(move |core| run(D::new(&shared, &core, clocks[core.index()].clone()), &core));
    cores.expect("threads can be started")
}

fn ended_counts(state: &SharedState) -> [u64; 2] {
    [0, 1].map(|i| state.per_core.iter().map(|counts| counts.read()[i]).sum())
}

struct CoreLoad<D: PurgatoryPeer> {
    purgatory: D,
    state: &'static SharedState,
    layout: Layout,
    core: usize,
    rng: Rng,
    added: u64,
    ids_to_force: Vec<D::Id>,
    /// The key on which this core makes the next event.
    next_event_key: usize,
    events_made: u64,
}

impl<D: PurgatoryPeer> CoreLoad<D> {
    fn new(purgatory: D, core: &Core, state: &'static SharedState, layout: Layout) -> Self {
        let rng = Rng::with_seed(SEED + core.index() as u64);
        let (core, ids_to_force) = (core.index(), Vec::new());
        Self {
            purgatory,
            state,
            layout,
            core,
            rng,
            added: 0,
            ids_to_force,
            next_event_key: core,
            events_made: 0,
        }
    }

    fn pass(&mut self) {
        for id in self.ids_to_force.drain(..) {
            self.purgatory.force_complete(id);
        }
        let ended: u64 = self.state.per_core[self.core].read().iter().sum();
        if self.added - ended <= WAITING_MAX {
            for number in 0..ADDS_PER_PASS {
                self.add(number % 4);
            }
            self.state.per_core[self.core].added.fetch_add(ADDS_PER_PASS as u64 / 2, Relaxed);
        } else {
            thread::yield_now();
        }
        // Limits the events, because needless ones would fill the other core's mailbox while that
        // core does not run.
        let keys = self.state.events.len();
        let added = self.state.per_core[self.layout.waiting_core(self.core)].added.load(Relaxed);
        let events_to_make =
            (added + keys as u64).saturating_sub(self.events_made).min(ADDS_PER_PASS as u64 / 2);
        for _ in 0..events_to_make {
            self.events_made += 1;
            self.state.events[self.next_event_key].fetch_add(1, Relaxed);
            self.purgatory.notify(self.next_event_key);
            self.next_event_key += self.layout.cores;
            if self.next_event_key >= keys {
                self.next_event_key = self.core;
            }
        }
        self.purgatory.tick();
    }

    fn add(&mut self, kind: usize) {
        let cores = self.layout.cores;
        let event_maker = (self.core + cores - 1) % cores;
        let key = event_maker + cores * self.rng.usize(..self.state.events.len() / cores);
        let next = self.state.events[key].load(Relaxed) + 1;
        let (required_events, ticks) = match kind {
            0 | 1 => (next, LONG_TIMEOUT_TICKS),
            2 => (u64::MAX, LONG_TIMEOUT_TICKS),
            _ => (u64::MAX, SHORT_TIMEOUT_TICKS),
        };
        let operation = Operation {
            state: self.state,
            key: key as u32,
            core: self.core as u32,
            required_events,
        };
        let id = self.purgatory.add(operation, ticks);
        self.added += 1;
        self.ids_to_force.extend(id.filter(|_| kind == 2));
    }
}

/// One core's access to the operations.
pub trait PurgatoryPeer: Sized + 'static {
    type Shared: Clone + Send + Sync + 'static;
    type Id: Copy;

    fn new_shared(layout: Layout) -> Self::Shared;

    /// Creates a core's access on its thread, whose wheel uses `clock`.
    fn new(shared: &Self::Shared, core: &Core, clock: ManualClock) -> Self;

    /// Adds an operation; returns `None` if it completes at once.
    fn add(&mut self, operation: Operation, ticks: u64) -> Option<Self::Id>;

    fn notify(&mut self, key: usize);

    fn force_complete(&mut self, id: Self::Id);

    /// Advances time by a tick, fires due timers, and handles the messages of other cores.
    fn tick(&mut self);
}

/// All events on a key come from one core, its maker. The operations that wait for them belong to
/// the core after the maker.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub cores: usize,
    /// True if the purgatory assigns a key to the core that makes its events, false if to the core
    /// whose operations wait for them.
    pub event_makers_own_keys: bool,
}

impl Layout {
    /// Returns the core whose operations wait for events of `event_maker`.
    pub fn waiting_core(self, event_maker: usize) -> usize {
        (event_maker + 1) % self.cores
    }

    pub fn owner_of_key(self, key: usize) -> usize {
        let event_maker = key % self.cores;
        if self.event_makers_own_keys { event_maker } else { self.waiting_core(event_maker) }
    }
}

/// The events that operations check, and the counts of each core. Relaxed: the counts are
/// independent, and each event is sent by a call that synchronizes.
pub struct SharedState {
    pub events: Vec<AtomicU64>,
    pub per_core: Vec<CoreCounts>,
    is_over: AtomicBool,
}

impl SharedState {
    /// Leaks the state, because each run has its own process.
    fn new_leaked(keys: usize, layout: Layout) -> &'static Self {
        Box::leak(Box::new(Self {
            events: (0..keys).map(|_| AtomicU64::new(0)).collect(),
            per_core: (0..layout.cores).map(|_| CoreCounts::default()).collect(),
            is_over: AtomicBool::new(false),
        }))
    }
}

#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CoreCounts {
    /// Operations added that wait for a future event.
    pub added: AtomicU64,
    /// The number of operations completed by their condition, and the number by force or expiry.
    counts: [AtomicU64; 2],
}

impl CoreCounts {
    pub fn read(&self) -> [u64; 2] {
        self.counts.each_ref().map(|count| count.load(Relaxed))
    }
}

pub struct Operation {
    pub state: &'static SharedState,
    pub key: u32,
    pub core: u32,
    pub required_events: u64,
}

impl DelayedOperation for Operation {
    fn try_complete(&mut self) -> bool {
        self.state.events[self.key as usize].load(Relaxed) >= self.required_events
    }

    fn on_complete(self, how: Completion) {
        let core_counts = &self.state.per_core[self.core as usize];
        core_counts.counts[usize::from(how != Completion::Condition)].fetch_add(1, Relaxed);
    }
}

pub struct Corewheel {
    purgatory: Purgatory<usize, Operation>,
    clock: ManualClock,
}

impl PurgatoryPeer for Corewheel {
    type Shared = PurgatoryGroup<usize>;
    type Id = OperationId;

    fn new_shared(layout: Layout) -> Self::Shared {
        PurgatoryGroup::partitioned_by(move |&key| layout.owner_of_key(key))
    }

    fn new(group: &Self::Shared, core: &Core, clock: ManualClock) -> Self {
        Self { purgatory: group.join(core.index(), core.shards()), clock }
    }

    fn add(&mut self, operation: Operation, ticks: u64) -> Option<OperationId> {
        let (key, timeout) = (operation.key as usize, TICK * ticks as u32);
        let outcome = self.purgatory.try_complete_else_watch(operation, [key], timeout);
        match outcome.expect("there is room") {
            WatchOutcome::Waits(id) => Some(id),
            WatchOutcome::Completed => None,
        }
    }

    fn notify(&mut self, key: usize) {
        self.purgatory.notify(&key);
    }

    fn force_complete(&mut self, id: OperationId) {
        self.purgatory.force_complete(id);
    }

    fn tick(&mut self) {
        self.clock.advance(TICK);
        local_timer().turn();
    }
}

/// A purgatory of all cores behind one lock: watch lists, operations and timers. As in Kafka, an
/// ended operation stays in its watch list until the next check of the list. `on_complete` runs
/// outside of the lock.
pub struct Locked<T: Shareable, L: Lock> {
    state: Arc<L::Mutex<LockedState<T>>>,
    /// A buffer for the operations that a call completes.
    completed: Vec<Operation>,
    expired: Vec<Id>,
    cores: usize,
}

pub struct LockedState<T: TimerSet> {
    watches: HashMap<usize, Vec<Id>>,
    operations: SlotMap<Id, (Operation, T::Handle)>,
    timers: T,
    now: u64,
}

pub type Id = DefaultKey;

impl<T: TimerSet> LockedState<T> {
    fn insert_waiting(&mut self, operation: Operation, ticks: u64) -> Id {
        let (watch, deadline) = (operation.key as usize, self.now + ticks);
        let mut add = |id: Id| self.timers.add(deadline, [id.data().as_ffi(); 3]);
        let id = self.operations.insert_with_key(|id| (operation, add(id)));
        self.watches.entry(watch).or_default().push(id);
        id
    }

    fn get(&mut self, id: Id) -> Option<&mut Operation> {
        self.operations.get_mut(id).map(|(operation, _)| operation)
    }

    fn take(&mut self, id: Id) -> Option<Operation> {
        let (operation, timer) = self.operations.remove(id)?;
        self.timers.cancel(&timer);
        Some(operation)
    }

    /// Ends a key's operations whose conditions hold, and removes ended operations from its watch
    /// list.
    fn check(&mut self, key: usize, completed: &mut Vec<Operation>) {
        let Some(ids) = self.watches.get_mut(&key) else { return };
        let mut ids = mem::take(ids);
        ids.retain(|&id| {
            let is_complete = self.get(id).map(DelayedOperation::try_complete);
            if is_complete == Some(true) {
                completed.extend(self.take(id));
            }
            is_complete == Some(false)
        });
        self.watches.insert(key, ids);
    }
}

impl<T: Shareable, L: Lock> Locked<T, L> {
    fn complete_all(&mut self, how: Completion) {
        for operation in self.completed.drain(..) {
            operation.on_complete(how);
        }
    }
}

impl<T: Shareable, L: Lock> PurgatoryPeer for Locked<T, L> {
    type Shared = (Arc<L::Mutex<LockedState<T>>>, usize);
    type Id = Id;

    fn new_shared(layout: Layout) -> Self::Shared {
        let (watches, operations) = (HashMap::new(), SlotMap::new());
        let state = LockedState { watches, operations, timers: T::new(), now: 0 };
        (Arc::new(state.into()), layout.cores)
    }

    fn new((state, cores): &Self::Shared, _: &Core, _: ManualClock) -> Self {
        Self { state: Arc::clone(state), completed: Vec::new(), expired: Vec::new(), cores: *cores }
    }

    fn add(&mut self, mut operation: Operation, ticks: u64) -> Option<Id> {
        if operation.try_complete() {
            operation.on_complete(Completion::Condition);
            return None;
        }
        // The cores share one set of timers, so a tick of any core advances the time of all cores.
        let ticks = ticks * self.cores as u64;
        let (id, completed) = L::with(&self.state, |state| {
            let id = state.insert_waiting(operation, ticks);
            // Checks again, because an event may have occurred since the first check.
            let is_complete = state.get(id).is_some_and(DelayedOperation::try_complete);
            (id, if is_complete { state.take(id) } else { None })
        });
        let waits = completed.is_none();
        self.completed.extend(completed);
        self.complete_all(Completion::Condition);
        waits.then_some(id)
    }

    fn notify(&mut self, key: usize) {
        L::with(&self.state, |state| state.check(key, &mut self.completed));
        self.complete_all(Completion::Condition);
    }

    fn force_complete(&mut self, id: Id) {
        self.completed.extend(L::with(&self.state, |state| state.take(id)));
        self.complete_all(Completion::Forced);
    }

    fn tick(&mut self) {
        L::with(&self.state, |state| {
            state.now += 1;
            let expired = &mut self.expired;
            state.timers.advance(state.now, |[id, ..]| expired.push(KeyData::from_ffi(id).into()));
            self.completed.extend(self.expired.drain(..).filter_map(|id| state.take(id)));
        });
        self.complete_all(Completion::Expired);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::across::{ParkingLot, Std};
    use crate::peers::{BTree, Linked64};

    fn assert_ends_in_each_way<D: PurgatoryPeer>() {
        let layout = Layout { cores: 1, event_makers_own_keys: false };
        let state = SharedState::new_leaked(2, layout);
        let cores = on_cores(layout, move |mut purgatory: D, _| {
            let operation =
                |key, required_events| Operation { state, key, core: 0, required_events };
            let ended = || state.per_core[0].read();
            assert!(
                purgatory.add(operation(0, 0), LONG_TIMEOUT_TICKS).is_none(),
                "the condition holds"
            );
            assert_eq!(ended(), [1, 0]);

            let [by_event, by_force] = [1, 1].map(|required_events| {
                purgatory.add(operation(0, required_events), LONG_TIMEOUT_TICKS).expect("waits")
            });
            purgatory.add(operation(1, 1), 3).expect("waits");
            purgatory.notify(0);
            assert_eq!(ended(), [1, 0], "no event has come");
            purgatory.force_complete(by_force);
            purgatory.force_complete(by_force);
            assert_eq!(ended(), [1, 1]);
            state.events[0].store(1, Relaxed);
            purgatory.notify(0);
            purgatory.notify(0);
            purgatory.force_complete(by_event);
            assert_eq!(ended(), [2, 1]);

            (0..2).for_each(|_| purgatory.tick());
            assert_eq!(ended(), [2, 1]);
            (0..3).for_each(|_| purgatory.tick());
            assert_eq!(ended(), [2, 2]);
        });
        cores.join().remove(0).expect("no assertion fails");
    }

    #[test]
    fn operations_end_once_in_each_way() {
        assert_ends_in_each_way::<Corewheel>();
        assert_ends_in_each_way::<Locked<Linked64, Std>>();
        assert_ends_in_each_way::<Locked<BTree, ParkingLot>>();
    }
}
