//! Every thread adds timers to its own and to other shards, sends handles away, moves, cancels and
//! waits. Every timer ends once (P2), the answers are true (P3), and no timer runs before its last
//! deadline (P1). The counters of each shard agree with the threads' records. Each capture is
//! dropped once, also where shards end during the run (P11).
#![cfg(feature = "std")]

mod common;

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use corewheel::{
    AddErrorReason, Cancel, Config, Cores, Counts, ShardRef, TimerHandle, local_timer,
};

use common::{nanos, operations};

/// The threads' own record of one timer.
struct Record {
    begun: Instant,
    /// The number of its shard.
    shard: usize,
    runs: AtomicU8,
    /// Cancels that were answered with `Cancelled`.
    cancels: AtomicU8,
    drops: AtomicU8,
    /// In nanoseconds since `begun`.
    ran_at: AtomicU64,
    /// The deadline that its mover gave it last, in nanoseconds since `begun`.
    due: AtomicU64,
    /// A thread learned that it ended.
    ended: AtomicBool,
}

impl Record {
    fn new(begun: Instant, shard: usize, delay: Duration) -> Arc<Self> {
        let count = || AtomicU8::new(0);
        let record = Self {
            begun,
            shard,
            runs: count(),
            cancels: count(),
            drops: count(),
            ran_at: AtomicU64::new(0),
            due: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        };
        record.due.store(record.after(delay), Ordering::Relaxed);
        Arc::new(record)
    }

    fn after(&self, delay: Duration) -> u64 {
        nanos(self.begun.elapsed() + delay)
    }

    fn callback(self: &Arc<Self>) -> impl FnOnce() + Send + 'static {
        let captured = Captured(Arc::clone(self));
        move || {
            captured.0.ran_at.store(captured.0.after(Duration::ZERO), Ordering::Relaxed);
            captured.0.runs.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Called by one thread at a time.
    fn reset(&self, handle: TimerHandle, delay: Duration) -> bool {
        let (due, ended) = (self.after(delay), self.ended.load(Ordering::Relaxed));
        let moved = handle.reset(delay);
        if moved {
            assert!(!ended, "moved after it ended");
            self.due.store(due, Ordering::Relaxed);
        }
        moved
    }

    fn cancel(&self, handle: TimerHandle, wait: bool) -> Cancel {
        let answer = if wait {
            handle.cancel_wait().expect("outside of a callback")
        } else {
            handle.cancel()
        };
        match answer {
            Cancel::Cancelled => {
                self.cancels.fetch_add(1, Ordering::Relaxed);
                assert_eq!(self.runs.load(Ordering::Relaxed), 0, "cancelled, and it ran");
            }
            Cancel::Running if wait => {
                assert_eq!(self.runs.load(Ordering::Relaxed), 1, "it is over");
            }
            _ => (),
        }
        assert!(!handle.is_pending());
        if wait || answer != Cancel::Running {
            self.ended.store(true, Ordering::Relaxed);
            assert!(handle.cancel() == Cancel::Ended && !handle.reset(Duration::ZERO));
        }
        answer
    }

    fn so_far(&self) -> Ending {
        match (self.runs.load(Ordering::Relaxed), self.cancels.load(Ordering::Relaxed)) {
            (1, 0) => Ending::Fired,
            (0, 1) => Ending::Cancelled,
            (0, 0) => Ending::HandedBack,
            ends => panic!("{ends:?} runs and cancels of one timer"),
        }
    }

    /// When the timer's shard has ended, and no thread holds the timer.
    fn ending(&self) -> Ending {
        assert_eq!(self.drops.load(Ordering::Relaxed), 1, "what was captured is dropped once");
        let [ran_at, due] = [&self.ran_at, &self.due].map(|time| time.load(Ordering::Relaxed));
        let ending = self.so_far();
        assert!(ending != Ending::Fired || ran_at >= due, "early by {} ns", due - ran_at);
        ending
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    Fired,
    Cancelled,
    /// Or still live.
    HandedBack,
}

/// Numbers of endings: fired, cancelled, handed back.
fn count<'a>(
    records: impl IntoIterator<Item = &'a Arc<Record>>,
    of: fn(&Record) -> Ending,
) -> [u64; 3] {
    let mut endings = [0; 3];
    records.into_iter().for_each(|record| endings[of(record) as usize] += 1);
    endings
}

/// A capture that records its drop.
struct Captured(Arc<Record>);

impl Drop for Captured {
    fn drop(&mut self) {
        self.0.drops.fetch_add(1, Ordering::Relaxed);
    }
}

/// A timer in a thread's hands: its mover may move it, and every thread that has it may cancel it.
struct Given {
    handle: TimerHandle,
    record: Arc<Record>,
    is_mover: bool,
    /// No other thread has it, and this thread's shard fires it.
    is_sole: bool,
}

impl Given {
    fn cancel(&self, wait: bool) {
        let pending = self.handle.is_pending();
        let answer = self.record.cancel(self.handle, wait);
        if self.is_sole {
            assert_eq!(answer == Cancel::Cancelled, pending, "nobody else cancels it");
            let ending = if pending { Ending::Cancelled } else { Ending::Fired };
            assert_eq!(self.record.so_far(), ending);
        }
    }
}

/// One of the threads.
struct Worker<'run> {
    shards: &'run [ShardRef],
    /// Its own shard's number, if it has one.
    own: Option<usize>,
    others: Vec<Sender<Given>>,
    given: Receiver<Given>,
    begun: Instant,
    random: fastrand::Rng,
    held: Vec<Given>,
    records: Vec<Arc<Record>>,
    refused: u64,
}

impl<'run> Worker<'run> {
    fn new(
        seed: u64,
        shards: &'run [ShardRef],
        own: Option<usize>,
        others: Vec<Sender<Given>>,
        given: Receiver<Given>,
    ) -> Self {
        Self {
            shards,
            own,
            others,
            given,
            begun: Instant::now(),
            random: fastrand::Rng::with_seed(seed),
            held: Vec::new(),
            records: Vec::new(),
            refused: 0,
        }
    }

    fn work(&mut self, operations: u32) {
        for _ in 0..operations {
            match self.random.u32(..100) {
                0..40 => self.add(),
                40..70 => self.reset(),
                _ => self.cancel(),
            }
        }
        self.held.extend(self.given.try_iter());
        if self.held.len() > 2_000 {
            (0..1_000).for_each(|_| self.cancel());
        }
    }

    /// Mostly within a few milliseconds, so that cancels meet turns; some far ahead, so that some
    /// are left.
    fn any_delay(&mut self) -> Duration {
        match self.random.u32(..20) {
            0 => Duration::from_secs(600),
            1..4 => Duration::ZERO,
            _ => Duration::from_micros(self.random.u64(..4_000)),
        }
    }

    /// Adds a timer to any shard, and gives the handle to any thread, or to two.
    fn add(&mut self) {
        let delay = self.any_delay();
        let is_own = self.own.is_some() && self.random.bool();
        let shard =
            self.own.filter(|_| is_own).unwrap_or_else(|| self.random.usize(..self.shards.len()));
        let record = Record::new(self.begun, shard, delay);
        let added = match (is_own, self.random.bool()) {
            (true, true) => Ok(local_timer().add(delay, record.callback())),
            (true, false) => Ok(local_timer().add_local(delay, record.callback()).share()),
            _ => self.shards[shard].try_add(delay, record.callback()),
        };
        let handle = match added {
            Ok(handle) => handle,
            Err(error) => {
                assert_eq!(error.reason(), AddErrorReason::ShutDown);
                drop(error.into_inner());
                assert_eq!(record.drops.load(Ordering::Relaxed), 1);
                assert_eq!(record.so_far(), Ending::HandedBack);
                self.refused += 1;
                return;
            }
        };
        self.records.push(Arc::clone(&record));
        for is_mover in [true, false] {
            let is_last = self.random.bool();
            let given = Given { handle, record: Arc::clone(&record), is_mover, is_sole: false };
            match self.random.usize(..2 * self.others.len()) {
                // Some of the threads may have ended.
                other if other < self.others.len() => _ = self.others[other].send(given),
                _ => self.held.push(Given { is_sole: is_own && is_mover && is_last, ..given }),
            }
            if is_last {
                break;
            }
        }
    }

    fn take(&mut self) -> Option<Given> {
        let place = self.random.usize(..self.held.len().max(1));
        (place < self.held.len()).then(|| self.held.swap_remove(place))
    }

    fn reset(&mut self) {
        let delay = self.any_delay();
        if let Some(given) = self.take() {
            let keeps = if given.is_mover {
                given.record.reset(given.handle, delay)
            } else {
                given.handle.is_pending()
            };
            assert!(keeps || !given.is_sole || given.record.so_far() == Ending::Fired);
            if keeps {
                self.held.push(given);
            }
        }
    }

    fn cancel(&mut self) {
        let wait = self.random.u32(..4) == 0;
        if let Some(given) = self.take() {
            given.cancel(wait);
        }
    }

    /// Works and turns until the time is over.
    fn work_and_turn(&mut self, deadline: Instant) {
        let most = usize::try_from(operations(40_000).min(300_000)).expect("small");
        while Instant::now() < deadline && self.records.len() < most {
            self.work(20);
            if self.random.bool() {
                local_timer().turn();
            } else {
                local_timer().turn_within(self.random.usize(1..30));
            }
            let counts = local_timer().counts();
            let ended = counts.fired + counts.cancelled + counts.handed_back;
            assert_eq!(counts.added, counts.live + ended);
            assert!(counts.held <= counts.live && counts.held <= counts.queued);
        }
    }
}

fn channels(count: usize) -> (Vec<Sender<Given>>, Vec<Receiver<Given>>) {
    (0..count).map(|_| mpsc::channel()).unzip()
}

/// Turns until the mailbox is empty, when no thread sends requests any more. A turn consumes 1,024
/// messages, first those that an earlier turn left.
fn settled_counts() -> Counts {
    while local_timer().counts().queued > 0 {
        local_timer().turn();
    }
    local_timer().counts()
}

#[test]
fn every_timer_ends_once_wherever_it_was_added_moved_and_cancelled() {
    const SHARDS: usize = 8;
    let deadline = Instant::now() + Duration::from_millis(operations(1_000).min(20_000));
    let (senders, receivers) = channels(SHARDS);
    let seats = receivers.into_iter().map(|receiver| (senders.clone(), receiver)).collect();
    drop(senders);
    let barrier = Barrier::new(SHARDS);
    let config =
        |index: usize| Config::new().tick(Duration::from_micros([50, 100, 500, 1_000][index % 4]));
    let cores = Cores::builder().config(config).start_with(seats, move |core, (others, given)| {
        let index = core.index();
        let mut worker = Worker::new(index as u64, core.shards(), Some(index), others, given);
        // A thread that fails still meets the others, or they would wait for it.
        let worked = catch_unwind(AssertUnwindSafe(|| worker.work_and_turn(deadline)));
        barrier.wait();
        // No thread cancels from here to the last barrier: the sums must be exact.
        let counts = settled_counts();
        barrier.wait();
        let so_far = catch_unwind(AssertUnwindSafe(|| {
            let of = |shard| worker.records.iter().filter(move |record| record.shard == shard);
            (0..SHARDS).map(|shard| count(of(shard), Record::so_far)).collect::<Vec<_>>()
        }));
        barrier.wait();
        let so_far = worked.and(so_far).unwrap_or_else(|failure| resume_unwind(failure));
        // Cancels race with the ends of shards: odd threads end at once.
        if index.is_multiple_of(2) {
            worker.held.extend(worker.given.try_iter());
            worker.held.iter().for_each(|given| _ = given.record.cancel(given.handle, false));
        }
        (counts, so_far, worker.records)
    });
    let reports = cores.expect("started").join();
    let reports: Vec<_> = reports.into_iter().map(|report| report.expect("no panic")).collect();
    for (shard, (counts, ..)) in reports.iter().enumerate() {
        let sum = |ending: usize| reports.iter().map(|(_, so_far, _)| so_far[shard][ending]).sum();
        let [fired, cancelled, live]: [u64; 3] = [0, 1, 2].map(sum);
        assert_eq!((counts.fired, counts.runs, counts.cancelled), (fired, fired, cancelled));
        assert_eq!((counts.added, counts.live), (fired + cancelled + live, live));
        assert_eq!((counts.held, counts.queued, counts.handed_back), (0, 0, 0));
        assert_eq!((counts.panicked, counts.clock_regressions), (0, 0));
    }
    let endings = count(reports.iter().flat_map(|(.., records)| records), Record::ending);
    println!("{endings:?} fired, cancelled, handed back");
    assert!(endings.into_iter().all(|count| count > 0), "{endings:?}");
}

/// A shard ends while other threads add to it, move and cancel, again and again.
#[test]
fn what_races_with_the_end_of_a_shard_gets_true_answers() {
    const OTHERS: usize = 2;
    let (mut ends, mut refused) = ([0; 3], 0);
    for round in 0..operations(150).min(2_000) {
        let (sender, shards) = mpsc::channel();
        let turns = (round * 7) % 23;
        let owner = thread::spawn(move || {
            Config::new().tick(Duration::from_micros(20)).install().expect("a fresh thread");
            sender.send(local_timer().shard_ref()).expect("it is waited for");
            (0..turns).for_each(|_| _ = local_timer().turn());
            // The others may all come too late on a busy machine.
            while round % 3 == 1 && local_timer().turn().fired == 0 {}
            if round % 5 == 0 {
                // Panics without the message of `panic!`.
                resume_unwind(Box::new("as planned"));
            }
        });
        let shards = [shards.recv().expect("it has a timer")];
        let (senders, receivers) = channels(OTHERS);
        let workers = thread::scope(|scope| {
            let threads = receivers.into_iter().zip(0..).map(|(given, index)| {
                let (shards, others) = (&shards, senders.clone());
                scope.spawn(move || {
                    let mut worker = Worker::new(round * 2 + index, shards, None, others, given);
                    while worker.refused < 10 {
                        worker.work(10);
                    }
                    (worker.records, worker.held, worker.refused)
                })
            });
            let threads: Vec<_> = threads.collect();
            assert_eq!(owner.join().is_err(), round % 5 == 0);
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
        });
        for (records, held, more) in workers {
            refused += more;
            for Given { handle, .. } in held {
                assert_eq!(handle.cancel_wait(), Ok(Cancel::Ended));
                assert!(!handle.reset(Duration::ZERO) && !handle.is_pending());
            }
            let of_worker = count(&records, Record::ending);
            ends.iter_mut().zip(of_worker).for_each(|(sum, more)| *sum += more);
        }
    }
    println!("{ends:?} fired, cancelled, handed back; {refused} refused");
    assert!(ends.into_iter().all(|count| count > 0));
}
