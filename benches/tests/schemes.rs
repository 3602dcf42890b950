//! Every scheme against a model: never early, never later than its documented accuracy, exactly
//! once, never after it was stopped; stale handles are refused and the length agrees. Small
//! geometries make a revolution ordinary.

use std::collections::{BTreeMap, HashSet};

use corewheel_bench::schemes::{
    Handle, Hierarchy, Kafka, Linux, Module, Netty, RoundsWheel, Scheme, SimpleWheel, SortedSlots,
    Visitor, visit_all,
};
use fastrand::Rng;

const OPERATIONS: usize = 20_000;

/// How a timer was started.
struct Timer {
    deadline: u64,
    interval: u64,
    handle: Handle,
}

/// A scheme, and a map of the timers that it should hold.
struct Test<S> {
    module: Module<S>,
    model: BTreeMap<u64, Timer>,
    stale: Vec<Handle>,
    now: u64,
    next_id: u64,
    /// Whether a timer was as late as the scheme allows.
    was_latest: bool,
    rng: Rng,
}

impl<S: Scheme> Test<S> {
    fn new(seed: u64) -> Self {
        Self {
            module: Module::new(),
            model: BTreeMap::new(),
            stale: Vec::new(),
            now: 0,
            next_id: 0,
            was_latest: false,
            rng: Rng::with_seed(seed),
        }
    }

    /// Short, medium and long ones, some at the very limits.
    fn interval(&mut self) -> u64 {
        let longest = S::RANGE.min(100_000);
        match self.rng.u8(..8) {
            0 => self.rng.u64(..=1),
            1..=4 => self.rng.u64(..=longest.min(70)),
            5..=6 => self.rng.u64(..=longest.min(5000)),
            _ => self.rng.u64(longest / 2..=longest),
        }
    }

    fn start(&mut self) {
        let (id, interval) = (self.next_id, self.interval());
        let handle = self.module.start_timer(interval, id).expect("within the range");
        let interval = interval.max(1);
        self.model.insert(id, Timer { deadline: self.now + interval, interval, handle });
        self.next_id += 1;
    }

    fn stop(&mut self) {
        let from = self.rng.u64(..=self.next_id);
        let Some(id) = self.model.range(from..).next().map(|(&id, _)| id) else { return };
        let timer = self.model.remove(&id).expect("it was found");
        assert!(self.module.stop_timer(timer.handle), "{}: refused to stop timer {id}", S::NAME);
        self.stale.push(timer.handle);
    }

    fn stop_stale(&mut self) {
        if let Some(&handle) = self.rng.choice(&self.stale) {
            assert!(!self.module.stop_timer(handle), "{}: stopped a stale handle", S::NAME);
        }
    }

    /// Lets ticks pass one by one.
    fn pass(&mut self, ticks: u64) {
        for _ in 0..ticks {
            self.jump(1);
        }
    }

    /// Lets ticks pass at once and checks what expires.
    fn jump(&mut self, ticks: u64) {
        let mut expired = Vec::new();
        self.module.advance(ticks, &mut |id| expired.push(id));
        let first = self.now + 1;
        self.now += ticks;
        for id in expired {
            let Some(Timer { deadline, interval, handle }) = self.model.remove(&id) else {
                panic!("{}: timer {id} is not outstanding", S::NAME)
            };
            let latest = deadline + S::lateness(interval);
            assert!(deadline <= self.now, "{}: {} is early for {deadline}", S::NAME, self.now);
            assert!(first <= latest, "{}: {first} is late for {deadline}", S::NAME);
            self.was_latest |= first == latest;
            self.stale.push(handle);
        }
        assert_eq!(self.module.len(), self.model.len(), "{}: length at {}", S::NAME, self.now);
    }

    fn operate(&mut self) {
        match self.rng.u8(..20) {
            0..=8 => self.start(),
            9..=12 => self.stop(),
            13..=14 => self.stop_stale(),
            15..=18 => self.pass(1),
            _ if self.rng.u8(..8) > 0 => self.pass(30),
            _ => self.jump(200),
        }
        assert_eq!(self.module.len(), self.model.len(), "{}: length", S::NAME);
    }

    /// Lets the remaining timers expire, and tries every handle a second time.
    fn finish(&mut self) {
        let latest = |timer: &Timer| timer.deadline + S::lateness(timer.interval);
        let last = self.model.values().map(latest).max();
        self.pass(last.map_or(0, |last| last.saturating_sub(self.now)));
        assert!(self.model.is_empty(), "{}: a timer did not expire", S::NAME);
        assert!(self.stale.iter().all(|&handle| !self.module.stop_timer(handle)));
        let distinct: HashSet<_> = self.stale.iter().collect();
        let ended = distinct.len() as u64;
        assert_eq!(ended, self.next_id, "{}: each ended once, with its own handle", S::NAME);
    }
}

struct AgainstModel;

impl Visitor for AgainstModel {
    fn visit<S: Scheme>(&mut self) {
        for seed in 0..2 {
            let mut test = Test::<S>::new(seed);
            for _ in 0..OPERATIONS {
                test.operate();
            }
            test.finish();
            assert!(test.was_latest, "{}: never as late as documented", S::NAME);
        }
    }
}

#[test]
fn every_scheme_does_what_the_model_does() {
    visit_all(&mut AgainstModel);
}

#[test]
fn small_geometries_do_what_the_model_does() {
    let mut visitor = AgainstModel;
    visitor.visit::<SimpleWheel<8>>();
    visitor.visit::<SortedSlots<4>>();
    visitor.visit::<RoundsWheel<4>>();
    visitor.visit::<Hierarchy<1, 3>>();
    visitor.visit::<Hierarchy<2, 6>>();
    visitor.visit::<Kafka<2>>();
    visitor.visit::<Kafka<3>>();
    visitor.visit::<Netty<7>>();
}

struct Limits;

impl Visitor for Limits {
    /// The longest interval is taken, and holds for as long as a test can wait; the next one is
    /// refused.
    fn visit<S: Scheme>(&mut self) {
        let mut module = Module::<S>::new();
        module.advance(100, &mut |_| panic!("nothing was started"));
        assert_eq!(module.start_timer(S::RANGE + 1, 0), None, "{}", S::NAME);
        assert_eq!(module.len(), 0);
        let handle = module.start_timer(S::RANGE, 0).expect("the longest interval");
        module.advance(S::RANGE.min(300_000) - 1, &mut |_| panic!("{}: early", S::NAME));
        assert!(module.stop_timer(handle));
        assert_eq!(module.len(), 0);
    }
}

#[test]
fn intervals_beyond_the_range_are_refused() {
    visit_all(&mut Limits);
}

#[test]
fn kafka_jumps_over_the_ticks_between_slots() {
    let (mut kafka, mut expired) = (Module::<Kafka>::new(), Vec::new());
    for (id, interval) in [1, 30, 5000, 10_000_000_000].into_iter().enumerate() {
        kafka.start_timer(interval, id as u64);
    }
    kafka.advance(10_000_000_000, &mut |id| expired.push(id));
    assert_eq!(expired, [0, 1, 2, 3]);
}

/// By hand from the widths of the levels: 1, 8, 64, 512, 4096 ticks. The first is
/// a tick late, the last a whole slot of 4096.
#[test]
fn linux_fires_with_the_slot_behind_the_deadline() {
    for (interval, fires) in
        [(1, 2), (63, 64), (64, 72), (505, 512), (4033, 4096), (32_257, 32_768), (32_768, 36_864)]
    {
        let mut linux = Module::<Linux>::new();
        linux.start_timer(interval, 0);
        linux.advance(fires - 1, &mut |_| panic!("{interval} fired too early"));
        let mut fired = false;
        linux.per_tick(&mut |_| fired = true);
        assert!(fired, "{interval} did not fire at {fires}");
    }
}

struct Names(Vec<&'static str>);

impl Visitor for Names {
    fn visit<S: Scheme>(&mut self) {
        assert!(!self.0.contains(&S::NAME), "{}", S::NAME);
        self.0.push(S::NAME);
    }
}

#[test]
fn names_are_distinct() {
    visit_all(&mut Names(Vec::new()));
}
