//! Random operations, events and timeouts on several cores in lockstep, which join and end, against
//! a model of the documentation. Scaled by `COREWHEEL_TEST_SCALE`.

use std::{
    array,
    collections::BTreeMap,
    panic::resume_unwind,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use corewheel::{
    local_timer,
    purgatory::{
        Completion, DelayedOperation, OperationId, Outcome, Purgatory, PurgatoryCounts,
        PurgatoryGroup,
    },
};

use crate::{
    lockstep::Lockstep,
    support::{TICK, operations, seeded},
};

const CORES: usize = 3;
const KEYS: usize = 9;

/// Belongs to the core of its number modulo `CORES`.
type Key = usize;
type Waits = Purgatory<Key, Op>;

/// The level of each key.
#[derive(Default)]
struct World([AtomicU32; KEYS]);

impl World {
    /// Returns the sum of the levels of these keys.
    fn level(&self, keys: &[Key]) -> u32 {
        keys.iter().map(|&key| self.0[key].load(Ordering::Relaxed)).sum()
    }
}

/// The condition of an operation: a level that the sum of its keys must reach.
#[derive(Clone, Debug)]
struct Wish {
    keys: Vec<Key>,
    wanted: u32,
    /// Its code panics: in each check, so that it is never met, or after its completion.
    panics: Panics,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Panics {
    Never,
    Looking,
    Ending,
}

impl Wish {
    fn is_met(&self, world: &World) -> bool {
        self.panics != Panics::Looking && world.level(&self.keys) >= self.wanted
    }
}

struct Op {
    id: u64,
    wish: Wish,
    world: Arc<World>,
    ends: Arc<Mutex<Vec<(u64, Completion)>>>,
}

impl DelayedOperation for Op {
    fn try_complete(&mut self) -> bool {
        self.panic_in(Panics::Looking);
        self.wish.is_met(&self.world)
    }

    fn on_complete(self, how: Completion) {
        assert!(
            how != Completion::Condition || self.wish.is_met(&self.world),
            "its condition is not met"
        );
        self.ends.lock().expect("sound").push((self.id, how));
        self.panic_in(Panics::Ending);
    }
}

impl Op {
    /// Panics without a message if the operation is planned to panic here.
    fn panic_in(&self, place: Panics) {
        if self.wish.panics == place {
            resume_unwind(Box::new("as planned"));
        }
    }
}

/// An operation that has not ended.
#[derive(Debug)]
struct Live {
    core: usize,
    name: OperationId,
    wish: Wish,
    /// In ticks.
    deadline: u64,
    /// An event occurred after its condition was met: it ends when all cores have received that
    /// event.
    must_end: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Membership {
    /// Its thread runs, and it has not joined the group.
    Outside,
    Joined,
    /// Its purgatory is dropped.
    Left,
    /// Its thread has ended.
    Ended,
}

/// The simple model: the live operations, and the number of each kind of ending.
struct Model {
    cores: Lockstep<Option<Waits>>,
    members: [Membership; CORES],
    world: Arc<World>,
    ends: Arc<Mutex<Vec<(u64, Completion)>>>,
    live: BTreeMap<u64, Live>,
    counts: [PurgatoryCounts; CORES],
    group: PurgatoryGroup<Key>,
    next: u64,
    now: u64,
}

impl Model {
    fn new() -> Self {
        let group = PurgatoryGroup::by(|&key| key);
        Self {
            cores: Lockstep::start(CORES),
            members: [Membership::Outside; CORES],
            world: Arc::default(),
            ends: Arc::default(),
            live: BTreeMap::new(),
            counts: array::from_fn(|_| PurgatoryCounts::default()),
            group,
            next: 0,
            now: 0,
        }
    }

    fn on<R: Send + 'static>(
        &self,
        core: usize,
        ask: impl FnOnce(&Waits) -> R + Send + 'static,
    ) -> R {
        self.cores.on(core, |own| ask(own.as_ref().expect("it has joined")))
    }

    fn is_in(&self, core: usize) -> bool {
        self.members[core] == Membership::Joined
    }

    fn join(&mut self, core: usize) {
        let (group, shards) = (self.group.clone(), self.cores.shards.clone());
        self.cores.on(core, move |own| *own = Some(group.join(core, &shards)));
        self.members[core] = Membership::Joined;
        self.must_look_once_more(core);
    }

    /// Ends the membership of a core. Its operations are dropped.
    fn end(&mut self, core: usize, to: Membership) {
        match to {
            Membership::Ended => self.cores.end(core),
            _ => self.cores.on(core, |own| *own = None),
        }
        self.members[core] = to;
        self.live.retain(|_, live| live.core != core);
        self.must_look_once_more(core);
    }

    /// The operations that watch keys of this core look once more: events may have been lost.
    fn must_look_once_more(&mut self, core: usize) {
        let watches = |live: &&mut Live| live.wish.keys.iter().any(|key| key % CORES == core);
        for live in self.live.values_mut().filter(watches) {
            live.must_end |= live.wish.is_met(&self.world);
        }
    }

    fn any_step(&mut self, random: &mut fastrand::Rng) {
        let (core, key, budget) = (random.usize(..CORES), random.usize(..KEYS), random.usize(..3));
        if !self.is_in(core) {
            return match random.u32(..60) {
                _ if self.members[core] != Membership::Outside => (),
                0..2 => self.join(core),
                2 => self.end(core, Membership::Ended),
                _ => (),
            };
        }
        match random.u32(..20) {
            0..5 => self.add(core, random),
            5..8 => self.event(core, key, random),
            8 => self.raise(key),
            9 => self.force(random),
            10 => {
                let back = self.on(core, move |own| own.cancel_for_key(&key));
                self.handed_back(&back, core, |live| {
                    live.wish.keys.contains(&key) && key % CORES == core
                });
            }
            11 if random.u32(..20) == 0 => {
                let back = self.on(core, Purgatory::drain);
                self.handed_back(&back, core, |_| true);
            }
            12..14 => self.pass(random.u32(1..4)),
            14 => self.settle(),
            16 => _ = self.cores.on(core, move |_| local_timer().turn_within(budget)),
            15 if random.u32(..20) == 0 => {
                let ways = [Membership::Left, Membership::Ended];
                return self.end(core, ways[random.usize(..2)]);
            }
            _ => self.turn(core),
        }
        self.take_ends();
        self.check_counts(core);
    }

    fn add(&mut self, core: usize, random: &mut fastrand::Rng) {
        let id = self.next;
        let keys: Vec<_> = (0..random.usize(..4)).map(|_| random.usize(..KEYS)).collect();
        let panics = match random.u32(..16) {
            0 => Panics::Looking,
            1 => Panics::Ending,
            _ => Panics::Never,
        };
        let wanted = self.world.level(&keys) + random.u32(..5);
        let wish = Wish { keys: keys.clone(), wanted, panics };
        let op = Op {
            id,
            wish: wish.clone(),
            world: Arc::clone(&self.world),
            ends: Arc::clone(&self.ends),
        };
        let ticks = random.u32(1..30);
        let is_met = wish.is_met(&self.world);
        let outcome = self.on(core, move |own| own.try_complete_else_watch(op, keys, TICK * ticks));
        self.next += 1;
        self.counts[core].added += 1;
        match outcome.expect("there is room") {
            // Its end is in the list; only live operations are searched there.
            Outcome::Completed => {
                assert!(is_met);
                self.counts[core].by_condition += 1;
                assert_eq!(
                    self.ends.lock().expect("sound").pop(),
                    Some((id, Completion::Condition))
                );
            }
            Outcome::Waits(name) => {
                assert!(!is_met);
                let deadline = self.now + u64::from(ticks);
                self.live.insert(id, Live { core, name, wish, deadline, must_end: false });
            }
        }
    }

    /// Raises the level of a key without an event.
    fn raise(&self, key: Key) {
        self.world.0[key].fetch_add(1, Ordering::Relaxed);
    }

    fn event(&mut self, core: usize, key: Key, random: &mut fastrand::Rng) {
        if random.u32(..8) != 0 {
            self.raise(key);
        }
        if self.is_in(key % CORES) {
            let watching = self.live.values_mut().filter(|live| live.wish.keys.contains(&key));
            watching.for_each(|live| live.must_end |= live.wish.is_met(&self.world));
        }
        match random.u32(..4) {
            0 => self.group.notify(&key),
            1 if key % CORES == core => _ = self.on(core, move |own| own.check_and_complete(&key)),
            _ => self.on(core, move |own| own.notify(&key)),
        }
    }

    fn force(&mut self, random: &mut fastrand::Rng) {
        let Some((&id, live)) = self.live.iter().nth(random.usize(..self.live.len().max(1))) else {
            return;
        };
        let (core, name) = (live.core, live.name);
        assert!(self.on(core, move |own| own.force_complete(name)));
        assert_eq!(self.ends.lock().expect("sound").last(), Some(&(id, Completion::Forced)));
        assert!(!self.on(core, move |own| own.force_complete(name)));
    }

    fn handed_back(&mut self, back: &[Op], core: usize, which: impl Fn(&Live) -> bool) {
        let is_expected = |live: &Live| live.core == core && which(live);
        let expected = self.live.iter().filter(|(_, live)| is_expected(live));
        let expected: Vec<_> = expected.map(|(&id, _)| id).collect();
        let mut ids: Vec<_> = back.iter().map(|op| op.id).collect();
        ids.sort_unstable();
        assert_eq!(ids, expected);
        self.live.retain(|id, _| !ids.contains(id));
        self.counts[core].handed_back += ids.len() as u64;
    }

    fn pass(&mut self, ticks: u32) {
        self.now += u64::from(ticks);
        self.cores.clock.advance(TICK * ticks);
    }

    fn turn(&mut self, core: usize) {
        let _ = self.cores.turn(core);
        self.take_ends();
        let late = self.live.values().find(|live| live.core == core && live.deadline <= self.now);
        assert!(late.is_none(), "at {}: {late:?}", self.now);
    }

    /// Delivers all events. Operations that must end have ended, and only live operations have
    /// watches.
    fn settle(&mut self) {
        // The second time for the answers to an end.
        (0..2).for_each(|_| self.cores.settle());
        self.take_ends();
        let lost = self.live.values().find(|live| live.must_end || live.deadline <= self.now);
        assert!(lost.is_none(), "at {}: {lost:?}", self.now);
        let mut watched = [0; KEYS];
        self.live.values().flat_map(|live| &live.wish.keys).for_each(|&key| watched[key] += 1);
        for core in (0..CORES).filter(|&core| self.is_in(core)) {
            let (found, counts) = self.on(core, |own| {
                (array::from_fn::<_, KEYS, _>(|key| own.watched(&key)), own.counts())
            });
            let expected: [usize; KEYS] =
                array::from_fn(|key| if key % CORES == core { watched[key] } else { 0 });
            assert_eq!(found, expected, "on core {core}");
            let keys = expected.iter().filter(|&&count| count > 0).count();
            let watches: usize = expected.iter().sum();
            assert_eq!(
                (counts.watches, counts.keys, counts.unsent),
                (watches as u64, keys as u64, 0)
            );
        }
    }

    /// Takes the new endings, each once and of a live operation.
    fn take_ends(&mut self) {
        for (id, how) in self.ends.lock().expect("sound").drain(..) {
            let live = self.live.remove(&id).unwrap_or_else(|| panic!("{id} ends again, {how:?}"));
            let counts = &mut self.counts[live.core];
            match how {
                Completion::Condition => counts.by_condition += 1,
                Completion::Forced => counts.forced += 1,
                Completion::Expired => {
                    counts.expired += 1;
                    assert!(live.deadline <= self.now, "early at {}: {live:?}", self.now);
                }
            }
        }
    }

    fn check_counts(&self, core: usize) {
        let counts = self.on(core, Purgatory::counts);
        let mut expected = self.counts[core];
        expected.live = self.live.values().filter(|live| live.core == core).count() as u64;
        // `settle` compares these when no message is under way.
        (expected.watches, expected.keys, expected.unsent) =
            (counts.watches, counts.keys, counts.unsent);
        assert_eq!(counts, expected);
    }
}

#[test]
fn several_cores_keep_their_promises() {
    seeded(0..operations(24).min(240), |random| {
        let mut model = Model::new();
        for _ in 0..500 {
            model.any_step(random);
        }
        model.pass(100);
        model.settle();
        assert!(model.live.is_empty());
        assert_eq!(Arc::strong_count(&model.world), 1, "all operations are dropped");
        for core in (0..CORES).filter(|&core| model.members[core] != Membership::Ended) {
            assert_eq!(model.cores.on(core, |_| local_timer().len()), 0);
        }
    });
}
