//! Compares random operations, events and timeouts with a model. Cores join the group and end at
//! random. `COREWHEEL_TEST_SCALE` multiplies the number of runs, up to tenfold.

use std::{array, panic::resume_unwind, sync::Arc};

use corewheel::{
    local_timer,
    purgatory::{Completion, OperationId, Purgatory, PurgatoryCounts, WatchOutcome},
};

use crate::{
    purgatory::JoinedCores,
    support::{Op, OpRecord, TICK, scaled, seeded},
};

const CORES: usize = 3;
const KEYS: usize = 9;

/// Key `n` belongs to core `n % CORES`.
type Key = usize;

#[derive(Debug)]
struct LiveOperation {
    core: usize,
    id: OperationId,
    record: Arc<OpRecord>,
    keys: Vec<Key>,
    /// The condition holds if the levels of the keys add up to at least this number.
    required_level: u32,
    deadline: u64,
    /// The condition holds, and an event or a check that will complete the operation is in transit.
    must_end: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Membership {
    /// The thread runs, and has not joined the group.
    Outside,
    Joined,
    /// The purgatory has been dropped.
    PurgatoryDropped,
    Ended,
}

struct Model {
    joined_cores: JoinedCores<Key>,
    members: [Membership; CORES],
    levels: [u32; KEYS],
    live: Vec<LiveOperation>,
    /// The ended operations, and whether each was completed.
    ended: Vec<(Arc<OpRecord>, bool)>,
    counts: [PurgatoryCounts; CORES],
    now: u64,
}

impl Model {
    fn new() -> Self {
        Self {
            joined_cores: JoinedCores::start(CORES, &[]),
            members: [Membership::Outside; CORES],
            levels: [0; KEYS],
            live: Vec::new(),
            ended: Vec::new(),
            counts: array::from_fn(|_| PurgatoryCounts::default()),
            now: 0,
        }
    }

    fn has_joined(&self, core: usize) -> bool {
        self.members[core] == Membership::Joined
    }

    fn join(&mut self, core: usize) {
        self.joined_cores.join(core);
        self.members[core] = Membership::Joined;
        self.expect_recheck(core);
    }

    /// Ends a core or only its purgatory, which drops its operations.
    fn end(&mut self, core: usize, to: Membership) {
        match to {
            Membership::Ended => self.joined_cores.cores.end(core),
            _ => self.joined_cores.cores.run_on(core, |purgatory| *purgatory = None),
        }
        self.members[core] = to;
        let dropped = self.live.extract_if(.., |live| live.core == core);
        self.ended.extend(dropped.map(|live| (live.record, false)));
        self.expect_recheck(core);
    }

    /// Expects one more check of each operation that watches a key of `core`, because events may
    /// have been lost.
    fn expect_recheck(&mut self, core: usize) {
        let watches = |live: &&mut LiveOperation| live.keys.iter().any(|key| key % CORES == core);
        for live in self.live.iter_mut().filter(watches) {
            live.must_end |= live.record.is_met();
        }
    }

    fn do_random_step(&mut self, random: &mut fastrand::Rng) {
        let (core, key, budget) = (random.usize(..CORES), random.usize(..KEYS), random.usize(..3));
        if !self.has_joined(core) {
            return match random.u32(..60) {
                _ if self.members[core] != Membership::Outside => (),
                0..2 => self.join(core),
                2 => self.end(core, Membership::Ended),
                _ => (),
            };
        }
        match random.u32(..20) {
            0..5 => self.add(core, random),
            5..8 => self.notify_watchers(core, key, random),
            8 => self.raise_level(key),
            9 => self.force_complete(random),
            17 => self.cancel(random),
            10 => {
                let handed_back = self
                    .joined_cores
                    .run_on(core, move |purgatory| records_of(purgatory.cancel_for_key(&key)));
                let is_own = key % CORES == core;
                self.record_handed_back(&handed_back, core, |live| {
                    is_own && live.keys.contains(&key)
                });
            }
            11 if random.u32(..20) == 0 => {
                let handed_back =
                    self.joined_cores.run_on(core, |purgatory| records_of(purgatory.drain()));
                self.record_handed_back(&handed_back, core, |_| true);
            }
            12..14 => self.advance(random.u32(1..4)),
            14 => self.run_until_stalled(),
            16 => {
                _ = self
                    .joined_cores
                    .cores
                    .run_on(core, move |_| local_timer().turn_within(budget));
            }
            15 if random.u32(..20) == 0 => {
                let ways = [Membership::PurgatoryDropped, Membership::Ended];
                return self.end(core, ways[random.usize(..2)]);
            }
            _ => self.turn(core),
        }
        self.collect_ended();
        self.check_counts(core);
    }

    fn level(&self, keys: &[Key]) -> u32 {
        keys.iter().map(|&key| self.levels[key]).sum()
    }

    /// Adds an operation, whose `on_complete` or `try_complete` may panic. If `try_complete`
    /// panics, it does so in each call, and the condition never holds.
    fn add(&mut self, core: usize, random: &mut fastrand::Rng) {
        let keys: Vec<_> = (0..random.usize(..4)).map(|_| random.usize(..KEYS)).collect();
        let (panics, raised) = (random.u32(..16), random.u32(..5));
        let required_level = if panics == 0 { u32::MAX } else { self.level(&keys) + raised };
        let (ticks, record, given_keys) = (random.u32(1..30), OpRecord::new(), keys.clone());
        record.set_is_met(required_level == self.level(&keys));
        let operation = Arc::clone(&record);
        let outcome = self.joined_cores.run_on(core, move |purgatory| {
            let panics_if = |is_planned| {
                move || {
                    if is_planned {
                        // Does not call the panic hook.
                        resume_unwind(Box::new("as planned"));
                    }
                }
            };
            let op = operation.op_with(panics_if(panics == 0), panics_if(panics == 1));
            purgatory.try_complete_else_watch(op, given_keys, TICK * ticks).map_err(drop)
        });
        self.counts[core].added += 1;
        match outcome.expect("there is room") {
            WatchOutcome::Completed => {
                assert!(record.is_met());
                self.counts[core].by_condition += 1;
                record.assert_ended(Completion::Condition);
                self.ended.push((record, true));
            }
            WatchOutcome::Waits(id) => {
                assert!(!record.is_met());
                let deadline = self.now + u64::from(ticks);
                self.live.push(LiveOperation {
                    core,
                    id,
                    record,
                    keys,
                    required_level,
                    deadline,
                    must_end: false,
                });
            }
        }
    }

    /// Raises the level of a key without an event.
    fn raise_level(&mut self, key: Key) {
        self.levels[key] += 1;
        let is_met = |live: &&LiveOperation| self.level(&live.keys) >= live.required_level;
        self.live.iter().filter(is_met).for_each(|live| live.record.meet_condition());
    }

    fn notify_watchers(&mut self, core: usize, key: Key, random: &mut fastrand::Rng) {
        if random.u32(..8) != 0 {
            self.raise_level(key);
        }
        if self.has_joined(key % CORES) {
            let watching = self.live.iter_mut().filter(|live| live.keys.contains(&key));
            watching.for_each(|live| live.must_end |= live.record.is_met());
        }
        match random.u32(..4) {
            0 => _ = self.joined_cores.group.notify(&key),
            1 if key % CORES == core => {
                self.joined_cores
                    .run_on(core, move |purgatory| _ = purgatory.check_and_complete(&key));
            }
            _ => self.joined_cores.run_on(core, move |purgatory| purgatory.notify(&key)),
        }
    }

    fn force_complete(&self, random: &mut fastrand::Rng) {
        let Some(live) = self.live.get(random.usize(..self.live.len().max(1))) else { return };
        let (core, id) = (live.core, live.id);
        assert!(self.joined_cores.run_on(core, move |purgatory| purgatory.force_complete(id)));
        live.record.assert_ended(Completion::Forced);
        assert!(!self.joined_cores.run_on(core, move |purgatory| purgatory.force_complete(id)));
    }

    fn cancel(&mut self, random: &mut fastrand::Rng) {
        let Some(live) = self.live.get(random.usize(..self.live.len().max(1))) else { return };
        let (core, id) = (live.core, live.id);
        let handed_back = self.joined_cores.run_on(core, move |purgatory| {
            let handed_back = purgatory.cancel(id);
            assert!(purgatory.cancel(id).is_none() && !purgatory.force_complete(id));
            records_of(Vec::from_iter(handed_back))
        });
        self.record_handed_back(&handed_back, core, |live| live.id == id);
    }

    fn record_handed_back(
        &mut self,
        handed_back: &[Arc<OpRecord>],
        core: usize,
        which: impl Fn(&LiveOperation) -> bool,
    ) {
        let expected = self.live.extract_if(.., |live| live.core == core && which(live));
        let expected: Vec<_> = expected.map(|live| live.record).collect();
        let is_back = |record| handed_back.iter().any(|other| Arc::ptr_eq(record, other));
        assert!(handed_back.len() == expected.len() && expected.iter().all(is_back));
        self.counts[core].handed_back += expected.len() as u64;
        self.ended.extend(expected.into_iter().map(|record| (record, false)));
    }

    fn advance(&mut self, ticks: u32) {
        self.now += u64::from(ticks);
        self.joined_cores.cores.clock.advance(TICK * ticks);
    }

    fn turn(&mut self, core: usize) {
        let _ = self.joined_cores.cores.turn(core);
        self.collect_ended();
        let overdue_operation =
            self.live.iter().find(|live| live.core == core && live.deadline <= self.now);
        assert!(overdue_operation.is_none(), "at {}: {overdue_operation:?}", self.now);
    }

    /// Delivers all events. Asserts that operations that must end have ended, and that only live
    /// operations have watches.
    fn run_until_stalled(&mut self) {
        // The second call delivers the answers that the end of a core causes.
        (0..2).for_each(|_| self.joined_cores.cores.run_until_stalled());
        self.collect_ended();
        let lost = self.live.iter().find(|live| live.must_end || live.deadline <= self.now);
        assert!(lost.is_none(), "at {}: {lost:?}", self.now);
        let mut watched = [0; KEYS];
        self.live.iter().flat_map(|live| &live.keys).for_each(|&key| watched[key] += 1);
        for core in (0..CORES).filter(|&core| self.has_joined(core)) {
            let (found, counts) = self.joined_cores.run_on(core, |purgatory| {
                (
                    array::from_fn::<_, KEYS, _>(|key| purgatory.watch_count(&key)),
                    purgatory.counts(),
                )
            });
            let expected: [usize; KEYS] =
                array::from_fn(|key| if key % CORES == core { watched[key] } else { 0 });
            assert_eq!(found, expected, "on core {core}");
            let keys = expected.iter().filter(|&&count| count > 0).count() as u64;
            let watches = expected.iter().sum::<usize>() as u64;
            assert_eq!((counts.watches, counts.keys, counts.unsent_messages), (watches, keys, 0));
        }
    }

    fn collect_ended(&mut self) {
        for live in self.live.extract_if(.., |live| !live.record.completions().is_empty()) {
            let counts = &mut self.counts[live.core];
            match live.record.completions()[..] {
                [Completion::Condition] => {
                    counts.by_condition += 1;
                    assert!(live.record.is_met(), "its condition is not met: {live:?}");
                }
                [Completion::Forced] => counts.forced += 1,
                [Completion::Expired] => {
                    counts.expired += 1;
                    assert!(live.deadline <= self.now, "early at {}: {live:?}", self.now);
                }
                _ => panic!("not exactly one end: {live:?}"),
            }
            self.ended.push((live.record, true));
        }
    }

    fn check_counts(&self, core: usize) {
        let counts = self.joined_cores.run_on(core, Purgatory::counts);
        let mut expected_counts = self.counts[core];
        expected_counts.live = self.live.iter().filter(|live| live.core == core).count() as u64;
        // Ignored here and compared by `run_until_stalled`, because messages in transit affect
        // these counts.
        (expected_counts.watches, expected_counts.keys, expected_counts.unsent_messages) =
            (counts.watches, counts.keys, counts.unsent_messages);
        assert_eq!(counts, expected_counts);
    }
}

fn records_of(handed_back: Vec<Op>) -> Vec<Arc<OpRecord>> {
    handed_back.into_iter().map(|op| op.record).collect()
}

#[test]
fn purgatories_on_several_cores_agree_with_the_model() {
    seeded(0..scaled(24).min(240), |random| {
        let mut model = Model::new();
        for _ in 0..500 {
            model.do_random_step(random);
        }
        model.advance(100);
        model.run_until_stalled();
        assert!(model.live.is_empty());
        for (record, is_completed) in &model.ended {
            assert_eq!(record.completions().len(), usize::from(*is_completed), "{record:?}");
            assert_eq!(Arc::strong_count(record), 1, "all operations are dropped");
        }
        for core in (0..CORES).filter(|&core| model.members[core] != Membership::Ended) {
            assert_eq!(model.joined_cores.cores.run_on(core, |_| local_timer().len()), 0);
        }
    });
}
