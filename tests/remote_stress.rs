//! Several shards by the real clock: everybody adds to everybody, moves, cancels and waits from everywhere. Every timer ends
//! once (P2), the answers are true (P3), nothing runs before the deadline it was last given (P1), the sums hold, and what was
//! captured is dropped once, also where all this races with the ends of the shards (P11).
#![cfg(feature = "std")]

mod common;

use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use common::operations;
use corewheel::{
    AddErrorReason, Cancel, Config, Cores, Counts, ShardRef, TimerHandle, local_timer,
};

/// What the threads themselves know of one timer.
struct Record {
    begun: Instant,
    runs: AtomicU8,
    /// Cancels that were answered with `Cancelled`.
    cancels: AtomicU8,
    drops: AtomicU8,
    /// In nanoseconds since the beginning.
    ran_at: AtomicU64,
    /// Not before: by what its mover has been told so far.
    due: AtomicU64,
    /// Somebody was told that it ended.
    ended: AtomicBool,
}

impl Record {
    fn new(begun: Instant) -> Arc<Self> {
        let count = || AtomicU8::new(0);
        Arc::new(Self {
            begun,
            runs: count(),
            cancels: count(),
            drops: count(),
            ran_at: AtomicU64::new(0),
            due: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        })
    }

    fn after(&self, delay: Duration) -> u64 {
        u64::try_from((self.begun.elapsed() + delay).as_nanos()).expect("small")
    }

    fn callback(self: &Arc<Self>) -> impl FnOnce() + Send + 'static {
        let captured = Captured(Arc::clone(self));
        move || {
            captured.0.ran_at.store(captured.0.after(Duration::ZERO), Ordering::Relaxed);
            captured.0.runs.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Only one thread at a time.
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
                assert_eq!(self.runs.load(Ordering::Relaxed), 1, "it is over")
            }
            _ => (),
        }
        if wait || answer != Cancel::Running {
            self.ended.store(true, Ordering::Relaxed);
            assert!(
                !handle.is_pending()
                    && handle.cancel() == Cancel::Ended
                    && !handle.reset(Duration::ZERO)
            );
        }
        answer
    }

    /// When nobody holds the timer any more: its ending.
    fn ending(&self) -> Ending {
        let count = |of: &AtomicU8| of.load(Ordering::Relaxed);
        let ends = (count(&self.runs), count(&self.cancels));
        assert_eq!(count(&self.drops), 1, "drops of what was captured, {ends:?} runs and cancels");
        match ends {
            (1, 0) => {
                let (ran_at, due) =
                    (self.ran_at.load(Ordering::Relaxed), self.due.load(Ordering::Relaxed));
                assert!(ran_at >= due, "early by {} ns", due - ran_at);
                Ending::Fired
            }
            (0, 1) => Ending::Cancelled,
            (0, 0) => Ending::HandedBack,
            ends => panic!("{ends:?} runs and cancels of one timer"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    Fired,
    Cancelled,
    HandedBack,
}

/// What a callback captures: it notices when it is dropped.
struct Captured(Arc<Record>);

impl Drop for Captured {
    fn drop(&mut self) {
        self.0.drops.fetch_add(1, Ordering::Relaxed);
    }
}

/// A timer in somebody's hands. Who is its mover may move it, and everybody may cancel it.
struct Given {
    handle: TimerHandle,
    record: Arc<Record>,
    mover: bool,
}

/// One of the threads, with or without a timer of its own.
struct Worker<'run> {
    shards: &'run [ShardRef],
    others: Vec<Sender<Given>>,
    given: Receiver<Given>,
    begun: Instant,
    random: fastrand::Rng,
    /// At most so many.
    timers: usize,
    held: Vec<Given>,
    records: Vec<Arc<Record>>,
    refused: u64,
}

impl<'run> Worker<'run> {
    fn new(
        seed: u64,
        shards: &'run [ShardRef],
        others: Vec<Sender<Given>>,
        given: Receiver<Given>,
    ) -> Self {
        Self {
            shards,
            others,
            given,
            begun: Instant::now(),
            random: fastrand::Rng::with_seed(seed),
            timers: usize::MAX,
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

    fn any_delay(&mut self) -> Duration {
        match self.random.u32(..20) {
            0 => Duration::from_secs(600),
            1..4 => Duration::ZERO,
            _ => Duration::from_micros(self.random.u64(..4_000)),
        }
    }

    /// To anybody, and the handle to anybody, or to two.
    fn add(&mut self) {
        let (delay, record) = (self.any_delay(), Record::new(self.begun));
        record.due.store(record.after(delay), Ordering::Relaxed);
        let shard = &self.shards[self.random.usize(..self.shards.len())];
        let handle = match shard.try_add(delay, record.callback()) {
            Ok(handle) => handle,
            Err(error) => {
                assert_eq!(error.reason(), AddErrorReason::ShutDown);
                drop(error.into_inner());
                assert_eq!(
                    (record.drops.load(Ordering::Relaxed), record.runs.load(Ordering::Relaxed)),
                    (1, 0)
                );
                self.refused += 1;
                return;
            }
        };
        self.records.push(Arc::clone(&record));
        for mover in [true, false] {
            let given = Given { handle, record: Arc::clone(&record), mover };
            match self.random.usize(..2 * self.others.len()) {
                // Some of the threads may have ended.
                other if other < self.others.len() => _ = self.others[other].send(given),
                _ => self.held.push(given),
            }
            if self.random.bool() {
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
            // Who does not move it only asks.
            let keeps = if given.mover {
                given.record.reset(given.handle, delay)
            } else {
                given.handle.is_pending()
            };
            if keeps {
                self.held.push(given);
            }
        }
    }

    fn cancel(&mut self) {
        if let Some(Given { handle, record, .. }) = self.take() {
            let wait = self.random.u32(..4) == 0;
            record.cancel(handle, wait);
        }
    }
}

fn channels(count: usize) -> (Vec<Sender<Given>>, Vec<Receiver<Given>>) {
    (0..count).map(|_| mpsc::channel()).unzip()
}

/// What each thread does that has a timer: works until the time is over, waits until everybody has, and turns until nothing is
/// left in its mailbox. Its counters then.
fn run(worker: &mut Worker<'_>, deadline: Instant, barrier: &Barrier) -> Counts {
    while Instant::now() < deadline && worker.records.len() < worker.timers {
        worker.work(20);
        if worker.random.bool() {
            let _ = local_timer().turn();
        } else {
            let _ = local_timer().turn_within(worker.random.usize(1..30));
        }
        let counts = local_timer().counts();
        assert_eq!(
            counts.added,
            counts.live + counts.fired + counts.cancelled + counts.handed_back
        );
        assert!(counts.held <= counts.live && counts.held <= counts.queued);
    }
    barrier.wait();
    // Nobody asks for anything more. What is left is due in ten minutes, or in some milliseconds. A turn takes in a thousand
    // messages, and at first those that an earlier one has left.
    while local_timer().counts().queued > 0 {
        let _ = local_timer().turn();
    }
    let counts = local_timer().counts();
    assert_eq!((counts.queued, counts.held, counts.panicked), (0, 0, 0));
    barrier.wait();
    counts
}

#[test]
fn every_timer_ends_once_wherever_it_was_added_moved_and_cancelled() {
    const SHARDS: usize = 6;
    let deadline = Instant::now() + Duration::from_millis(operations(1_000).min(20_000));
    let (senders, receivers) = channels(SHARDS);
    let seats = receivers.into_iter().map(|receiver| (senders.clone(), receiver)).collect();
    drop(senders);
    let barrier = Barrier::new(SHARDS);
    let config =
        |index: usize| Config::new().tick(Duration::from_micros([50, 100, 500, 1_000][index % 4]));
    let cores = Cores::builder().config(config).start_with(seats, move |core, (others, given)| {
        let mut worker = Worker::new(core.index() as u64, core.shards(), others, given);
        worker.timers = usize::try_from(operations(40_000).min(300_000)).expect("small");
        let counts = run(&mut worker, deadline, &barrier);
        (counts, worker.records, worker.held)
    });
    let reports = cores.expect("started").join();
    let (mut records, mut theirs) = (Vec::new(), Counts::default());
    for report in reports {
        let (counts, mine, _held) = report.expect("no panic");
        records.extend(mine);
        theirs.added += counts.added;
        theirs.fired += counts.fired;
        theirs.cancelled += counts.cancelled;
        theirs.live += counts.live;
    }
    let endings: Vec<_> = records.iter().map(|record| record.ending()).collect();
    let [fired, cancelled, handed_back] = [Ending::Fired, Ending::Cancelled, Ending::HandedBack]
        .map(|ending| endings.iter().filter(|&&other| other == ending).count() as u64);
    println!(
        "{} timers: {fired} fired, {cancelled} cancelled, {handed_back} handed back",
        records.len()
    );
    assert_eq!(theirs.added, records.len() as u64);
    assert_eq!((theirs.fired, theirs.cancelled, theirs.live), (fired, cancelled, handed_back));
    assert!(fired > 0 && cancelled > 0 && handed_back > 0);
}

/// A shard that ends while others add to it, move and cancel, again and again.
#[test]
fn what_races_with_the_end_of_a_shard_gets_true_answers() {
    const OTHERS: usize = 2;
    let (mut ends, mut refused, mut added) = ([0_u64; 3], 0, 0);
    for round in 0..operations(150).min(2_000) {
        let (sender, shards) = mpsc::channel();
        let turns = (round * 7) % 23;
        let owner = thread::spawn(move || {
            Config::new().tick(Duration::from_micros(20)).install().expect("a fresh thread");
            sender.send(local_timer().shard_ref()).expect("it is waited for");
            (0..turns).for_each(|_| _ = local_timer().turn());
            // The others may all come too late on a busy machine.
            while round % 3 == 1 && local_timer().turn().fired == 0 {}
            assert!(round % 5 > 0, "as it must");
        });
        let shards = [shards.recv().expect("it has a timer")];
        let (senders, receivers) = channels(OTHERS);
        let workers = thread::scope(|scope| {
            let threads = receivers.into_iter().enumerate().map(|(index, given)| {
                let (shards, others) = (&shards, senders.clone());
                scope.spawn(move || {
                    let mut worker = Worker::new(round * 2 + index as u64, shards, others, given);
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
            added += records.len();
            for Given { handle, .. } in held {
                assert_eq!(handle.cancel_wait(), Ok(Cancel::Ended));
                assert!(!handle.reset(Duration::ZERO) && !handle.is_pending());
            }
            for record in &records {
                ends[record.ending() as usize] += 1;
            }
        }
    }
    println!("{added} timers: {ends:?} fired, cancelled, handed back; {refused} refused");
    assert!(ends.into_iter().all(|count| count > 0));
}
