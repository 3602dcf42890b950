//! Four threads do everything at once. Each has a wheel and a shard, which it ends and replaces,
//! and all share one table of handles. Each thread adds to any wheel, cancels, moves, queries and
//! turns at random, also inside callbacks. Every timer must have one ending (P2), every answer must
//! be true (P3), no timer may be early (P1), and every payload must be dropped once.
#![cfg(shuttle)]

use std::{
    cell::Cell,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use corewheel::{
    Cancel, Config, Counts, ManualClock, Shard, ShardRef, TimerHandle, When, local_timer,
};
use shuttle::{
    rand::{Rng as _, thread_rng},
    thread,
};
use shuttle_tests::explore;

const THREADS: usize = 4;
const OPERATIONS: usize = 100;
const TICK: Duration = Duration::from_millis(1);
/// Under shuttle a shard holds 63; some of these methods have no error for more.
const CROWDED: usize = 50;

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Callback,
    Periodic,
    Payload,
}

/// The record of one timer. One real thread runs all of them, so the atomics serve as cells.
#[derive(Default)]
struct Record {
    kind: Kind,
    started: AtomicU32,
    finished: AtomicU32,
    cancelled: AtomicU32,
    handed_back: AtomicU32,
    dropped: AtomicU32,
    /// One more than the number of runs that may have started in the end, by an answer; 0 without
    /// one.
    run_limit: AtomicU32,
    /// A cancel returned `Running`.
    told_running: AtomicBool,
    /// A cancel returned `Ended` before the callback had finished.
    told_ended_early: AtomicBool,
    /// The reading of the clock when it was added, plus the delay.
    not_before: Duration,
    moved: AtomicBool,
    ran_early: AtomicBool,
}

impl Record {
    fn new(kind: Kind, not_before: Duration) -> Arc<Self> {
        Arc::new(Self { kind, not_before, ..Self::default() })
    }

    fn limit_runs(&self, most: u32) {
        let limit = self.run_limit.load(Relaxed);
        self.run_limit.store(if limit == 0 { most + 1 } else { limit.min(most + 1) }, Relaxed);
    }

    fn heard(&self, answer: Cancel) {
        let (started, finished) = (self.started.load(Relaxed), self.finished.load(Relaxed));
        match answer {
            Cancel::Cancelled => {
                assert_eq!(
                    self.cancelled.fetch_add(1, Relaxed),
                    0,
                    "two were told that they cancelled it"
                );
                assert_eq!(started, finished, "cancelled while it runs");
                self.limit_runs(started);
            }
            Cancel::Running => {
                self.told_running.store(true, Relaxed);
                // It may have been claimed and not yet been called.
                self.limit_runs(finished + 1);
            }
            Cancel::Ended if finished == 0 => self.told_ended_early.store(true, Relaxed),
            Cancel::Ended => (),
        }
    }

    /// Asserts the single ending after all threads have ended.
    fn assert_ended_once(&self) {
        let [started, finished, cancelled, handed_back, dropped] =
            [&self.started, &self.finished, &self.cancelled, &self.handed_back, &self.dropped]
                .map(|count| count.load(Relaxed));
        assert_eq!((dropped, started), (1, finished), "dropped once, and no run was cut off");
        let limit = self.run_limit.load(Relaxed);
        assert!(limit == 0 || started < limit, "it ran after it had been cancelled");
        assert!(!self.ran_early.load(Relaxed), "it ran early");
        let told_running = self.told_running.load(Relaxed);
        match self.kind {
            Kind::Periodic => assert!(!told_running || cancelled == 0, "ended twice"),
            // None of them: it was pending when its shard or thread ended.
            Kind::Callback | Kind::Payload => {
                assert!(
                    started + cancelled + handed_back <= 1,
                    "{started}, {cancelled}, {handed_back}"
                );
                assert!(!told_running || started == 1, "told that it runs, but it never did");
            }
        }
        if self.kind == Kind::Callback && started == 1 {
            assert!(
                !self.told_ended_early.load(Relaxed),
                "who is told `Ended` sees what the callback did"
            );
        }
    }
}

/// A payload, or what a callback captures.
struct Captured(Arc<Record>);

impl Captured {
    fn run(&self, world: &Arc<World>) {
        self.0.started.fetch_add(1, Relaxed);
        if world.clock.elapsed() < self.0.not_before && !self.0.moved.load(Relaxed) {
            self.0.ran_early.store(true, Relaxed);
        }
        thread::yield_now();
        match world.chance(8) {
            0 => world.cancel_any(),
            1 => world.reset_any(),
            2 => world.add_callback(),
            3 => world.add_elsewhere(),
            _ => (),
        }
        self.0.finished.fetch_add(1, Relaxed);
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Relaxed);
    }
}

type Given = (TimerHandle, Arc<Record>);

/// The state that all threads share.
struct World {
    clock: ManualClock,
    /// Never locked while a thread can be interrupted.
    table: Mutex<Vec<Given>>,
    timers: Mutex<Vec<ShardRef>>,
    wakes: AtomicUsize,
}

impl World {
    fn chance(&self, of: usize) -> usize {
        let _ = self;
        thread_rng().gen_range(0..of)
    }

    fn delay(&self) -> Duration {
        match self.chance(8) {
            0 => Duration::ZERO,
            1 => TICK * 1000,
            ticks => TICK * u32::try_from(ticks).unwrap_or(1) / 2,
        }
    }

    fn with_table<R>(&self, step: impl FnOnce(&mut Vec<Given>) -> R) -> R {
        step(&mut self.table.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn give(&self, handle: TimerHandle, record: Arc<Record>) {
        self.with_table(|table| table.push((handle, record)));
    }

    /// Any timer, the late ones more often.
    fn any(&self) -> Option<Given> {
        let length = self.with_table(|table| table.len());
        let back = self.chance(length.max(1)).min(self.chance(length.max(1)));
        self.with_table(|table| table.get(length.wrapping_sub(1 + back)).cloned())
    }

    fn cancel_any(&self) {
        if let Some((handle, record)) = self.any() {
            record.heard(handle.cancel());
            assert!(!handle.is_pending());
        }
    }

    fn reset_any(&self) {
        if let Some((handle, record)) = self.any() {
            record.moved.store(true, Relaxed);
            let was_cancelled = record.cancelled.load(Relaxed) == 1;
            assert!(!handle.reset(self.delay()) || !was_cancelled, "a cancelled timer was moved");
        }
    }

    fn config(self: &Arc<Self>) -> Config {
        let world = Arc::clone(self);
        Config::new()
            .tick(TICK)
            .clock(&self.clock)
            .on_wake(move || _ = world.wakes.fetch_add(1, Relaxed))
    }

    /// Returns a delay, the record of a new timer, and its payload.
    fn new_timer(&self, kind: Kind) -> (Duration, Arc<Record>, Captured) {
        let delay = self.delay();
        let record = Record::new(kind, self.clock.elapsed() + delay);
        (delay, Arc::clone(&record), Captured(record))
    }

    fn add_callback(self: &Arc<Self>) {
        let (timer, world) = (local_timer(), Arc::clone(self));
        let (delay, record, captured) = self.new_timer(Kind::Callback);
        let run = move || captured.run(&world);
        let way = if timer.len() < CROWDED { self.chance(4) } else { 0 };
        let handle = match way {
            0 => match timer.try_add(delay, run) {
                Ok(handle) => handle,
                Err(error) => return drop(error),
            },
            1 => timer.add_local(delay, run).share(),
            2 => timer.add(When::after(delay).slack(TICK * 8), run),
            _ => timer.add(When::after(delay).spread(TICK * 8), run),
        };
        self.give(handle, record);
    }

    fn add_periodic(self: &Arc<Self>) {
        if local_timer().len() < CROWDED {
            let world = Arc::clone(self);
            let (delay, record, captured) = self.new_timer(Kind::Periodic);
            self.give(local_timer().add_periodic(delay, move || captured.run(&world)), record);
        }
    }

    /// Adds to the wheel of any thread, including ended threads and this one.
    fn add_elsewhere(self: &Arc<Self>) {
        let length = self.with_timers(|timers| timers.len());
        let which = self.chance(length.max(1));
        let Some(timer) = self.with_timers(|timers| timers.get(which).cloned()) else { return };
        let world = Arc::clone(self);
        let (delay, record, captured) = self.new_timer(Kind::Callback);
        match timer.try_add(delay, move || captured.run(&world)) {
            Ok(handle) => self.give(handle, record),
            Err(error) => drop(error),
        }
    }

    fn with_timers<R>(&self, step: impl FnOnce(&mut Vec<ShardRef>) -> R) -> R {
        step(&mut self.timers.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// One thread's part.
struct Worker {
    world: Arc<World>,
    shard: Shard<Captured>,
}

impl Worker {
    fn new(world: &Arc<World>) -> Self {
        let shard = Shard::with_config(world.config()).expect("valid");
        Self { world: Arc::clone(world), shard }
    }

    fn operate(&mut self) {
        let world = Arc::clone(&self.world);
        match world.chance(32) {
            0..6 => world.add_callback(),
            6 => world.add_periodic(),
            7..9 => self.add_payload(),
            9..12 => world.add_elsewhere(),
            12..15 => world.cancel_any(),
            15 => self.cancel_own(),
            16..20 => world.reset_any(),
            20 => self.reset_own(),
            21..24 => _ = local_timer().turn_within(world.chance(12)),
            24..26 => _ = local_timer().turn(),
            26..28 => self.turn(),
            28..30 => world.clock.advance(TICK * u32::try_from(world.chance(4)).unwrap_or(0)),
            30 => self.sleep(),
            _ => self.end_shard(),
        }
        assert_sum(local_timer().counts());
        assert_sum(self.shard.counts());
    }

    fn add_payload(&mut self) {
        let (delay, record, captured) = self.world.new_timer(Kind::Payload);
        if let Ok(handle) = self.shard.try_add(delay, captured) {
            self.world.give(handle, record);
        }
    }

    fn cancel_own(&mut self) {
        if let Some((handle, record)) = self.world.any()
            && let Some(payload) = self.shard.cancel(handle)
        {
            assert!(Arc::ptr_eq(&payload.0, &record), "the payload of another timer");
            record.heard(Cancel::Cancelled);
        }
    }

    fn reset_own(&mut self) {
        if let Some((handle, record)) = self.world.any() {
            record.moved.store(true, Relaxed);
            let delay = self.world.delay();
            let _ = self.shard.reset(handle, delay);
        }
    }

    /// A pass that may be abandoned.
    fn turn(&mut self) {
        self.shard.turn_within(self.world.chance(12));
        while let Some(expired) = self.shard.next_expired() {
            expired.payload.0.started.fetch_add(1, Relaxed);
            expired.payload.0.finished.fetch_add(1, Relaxed);
            if self.world.chance(8) == 0 {
                break;
            }
        }
    }

    fn sleep(&mut self) {
        let sleeps = (local_timer().prepare_sleep(), self.shard.prepare_sleep());
        thread::yield_now();
        if self.world.chance(2) == 0 {
            self.world.add_callback();
        }
        drop(sleeps);
    }

    /// Another shard takes the place, and the number, of this one.
    fn end_shard(&mut self) {
        if self.world.chance(2) == 0 {
            for (_, payload) in self.shard.drain() {
                payload.0.handed_back.fetch_add(1, Relaxed);
            }
            assert_eq!(self.shard.counts().live, 0);
            assert_sum(self.shard.counts());
        }
        self.shard = Shard::with_config(self.world.config()).expect("valid");
    }
}

fn assert_sum(counts: Counts) {
    assert_eq!(counts.added, counts.live + counts.fired + counts.cancelled + counts.handed_back);
    assert_eq!((counts.panicked, counts.clock_regressions), (0, 0));
}

thread_local! {
    /// How many timers there were in all interleavings.
    static SEEN: Cell<usize> = const { Cell::new(0) };
}

#[test]
fn every_timer_ends_once_and_every_answer_is_true() {
    explore("every_timer_ends_once_and_every_answer_is_true", || {
        let world = Arc::new(World {
            clock: ManualClock::new(),
            table: Mutex::default(),
            timers: Mutex::default(),
            wakes: AtomicUsize::new(0),
        });
        let workers: Vec<_> = (0..THREADS)
            .map(|_| {
                let world = Arc::clone(&world);
                thread::spawn(move || {
                    world.config().install().expect("a fresh thread");
                    world.with_timers(|timers| timers.push(local_timer().shard_ref()));
                    let mut worker = Worker::new(&world);
                    (0..OPERATIONS).for_each(|_| worker.operate());
                })
            })
            .collect();
        for worker in workers {
            worker.join().expect("no panic");
        }
        // They know the world, by their hooks, and it knows them.
        world.with_timers(Vec::clear);
        let given = world.with_table(std::mem::take);
        for (handle, record) in &given {
            assert_eq!(handle.cancel(), Cancel::Ended, "its shard has ended");
            record.assert_ended_once();
        }
        SEEN.set(SEEN.get() + given.len());
    });
    println!("{} timers", SEEN.get());
    assert!(SEEN.get() > 10_000, "fewer timers than there should be");
}
