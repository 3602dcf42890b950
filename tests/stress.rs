//! More threads than cores, by the real clock: every thread adds timers and gives handles away, others cancel them, owners
//! cancel, move and fire. At the end the threads' own records must agree with the library's counters to the last timer
//! (P2), nothing fired early (P1), and everything that was captured was dropped once.
#![cfg(feature = "std")]

mod common;

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    time::{Duration, Instant},
};

use common::operations;
use corewheel::{Cancel, Config, Core, Cores, Counts, TimerHandle, local_timer};

const SHARDS: usize = 8;

/// What the threads themselves know of one timer.
struct Record {
    /// Its callback's starts.
    runs: AtomicU8,
    /// Cancels that were answered with `Cancelled`.
    cancels: AtomicU8,
    /// Drops of what it captured.
    drops: AtomicU8,
    /// It ran before its deadline.
    early: AtomicBool,
    /// In nanoseconds since the beginning; its owner's.
    deadline: AtomicU64,
    begun: Instant,
}

impl Record {
    fn new(begun: Instant) -> Arc<Self> {
        Arc::new(Self {
            runs: AtomicU8::new(0),
            cancels: AtomicU8::new(0),
            drops: AtomicU8::new(0),
            early: AtomicBool::new(false),
            deadline: AtomicU64::new(0),
            begun,
        })
    }

    fn is_due_after(&self, now: Instant, delay: Duration) {
        let nanos = u64::try_from((now - self.begun + delay).as_nanos()).expect("small");
        self.deadline.store(nanos, Ordering::Relaxed);
    }

    fn run(&self) {
        let early =
            self.begun.elapsed() < Duration::from_nanos(self.deadline.load(Ordering::Relaxed));
        self.early.store(early, Ordering::Relaxed);
        self.runs.fetch_add(1, Ordering::Relaxed);
    }

    fn cancel(&self, handle: TimerHandle) -> Cancel {
        let answer = handle.cancel();
        if answer == Cancel::Cancelled {
            self.cancels.fetch_add(1, Ordering::Relaxed);
        }
        answer
    }

    fn ended(&self) -> (u8, u8) {
        (self.runs.load(Ordering::Relaxed), self.cancels.load(Ordering::Relaxed))
    }
}

/// What a callback captures: it notices when it is dropped.
struct Captured(Arc<Record>);

impl Drop for Captured {
    fn drop(&mut self) {
        self.0.drops.fetch_add(1, Ordering::Relaxed);
    }
}

/// A timer that was given to another thread: to cancel it, with the owner as the only one who fires or moves it.
type Given = (TimerHandle, Arc<Record>);

/// How long, and how many timers on each thread.
struct Plan {
    begun: Instant,
    lasts: Duration,
    timers: u64,
}

/// One of the threads.
struct Worker<'run> {
    plan: &'run Plan,
    random: fastrand::Rng,
    others: Vec<Sender<Given>>,
    given: Receiver<Given>,
    /// Kept, and cancelled or moved by this thread alone.
    own: Vec<Given>,
    records: Vec<Arc<Record>>,
}

/// What a thread reports: its records and its timer's counters when everybody had stopped cancelling.
struct Report {
    records: Vec<Arc<Record>>,
    counts: Counts,
}

impl Worker<'_> {
    fn work(&mut self) {
        while self.plan.begun.elapsed() < self.plan.lasts
            && (self.records.len() as u64) < self.plan.timers
        {
            for _ in 0..20 {
                match self.random.u32(..100) {
                    0..50 => self.add(),
                    50..65 => self.cancel_own(),
                    65..85 => self.reset_own(),
                    _ => self.cancel_given(1),
                }
            }
            local_timer().turn();
            // Before much is left unseen, and before memory fills up.
            if local_timer().len() > 5_000 {
                self.own.drain(..).for_each(|(handle, record)| _ = record.cancel(handle));
                self.cancel_given(usize::MAX);
            }
        }
    }

    /// Mostly due within a few milliseconds, so that cancels meet turns; some far ahead, so that some are left.
    fn add(&mut self) {
        let delay = match self.random.u32(..20) {
            0 => Duration::from_secs(600 + self.random.u64(..600)),
            1..4 => Duration::ZERO,
            _ => Duration::from_micros(self.random.u64(..4_000)),
        };
        let record = Record::new(self.plan.begun);
        record.is_due_after(Instant::now(), delay);
        let captured = Captured(Arc::clone(&record));
        let run = move || captured.0.run();
        let handle = if self.random.bool() {
            local_timer().add(delay, run)
        } else {
            local_timer().add_local(delay, run).share()
        };
        self.records.push(Arc::clone(&record));
        match self.random.usize(..2 * SHARDS) {
            // Some of the threads may have ended.
            other if other < SHARDS => _ = self.others[other].send((handle, record)),
            _ => self.own.push((handle, record)),
        }
    }

    fn take_own(&mut self) -> Option<Given> {
        let index = self.random.usize(..self.own.len().max(1));
        (index < self.own.len()).then(|| self.own.swap_remove(index))
    }

    fn cancel_own(&mut self) {
        if let Some((handle, record)) = self.take_own() {
            let pending = handle.is_pending();
            let answer = record.cancel(handle);
            assert_eq!(answer == Cancel::Cancelled, pending, "nobody else cancels it");
            assert_eq!(record.ended(), if pending { (0, 1) } else { (1, 0) });
        }
    }

    fn reset_own(&mut self) {
        if let Some((handle, record)) = self.take_own() {
            let (now, delay) = (Instant::now(), Duration::from_micros(self.random.u64(..4_000)));
            if handle.reset(delay) {
                record.is_due_after(now, delay);
                self.own.push((handle, record));
            } else {
                assert_eq!(record.ended(), (1, 0), "nobody else cancels it");
            }
        }
    }

    fn cancel_given(&mut self, at_most: usize) {
        for (handle, record) in self.given.try_iter().take(at_most) {
            match record.cancel(handle) {
                Cancel::Cancelled => assert_eq!(record.ended(), (0, 1)),
                Cancel::Running => {}
                // It fired or, in the end, was handed back; which of them, whoever is told can see.
                Cancel::Ended => assert_eq!(record.ended().1, 0, "one thread alone cancels it"),
            }
            assert!(!handle.is_pending());
        }
    }
}

fn live_in_records(records: &[Arc<Record>]) -> u64 {
    records.iter().filter(|record| record.ended() == (0, 0)).count() as u64
}

fn total(records: &[Arc<Record>], of: impl Fn(&Record) -> &AtomicU8) -> u64 {
    records.iter().map(|record| u64::from(of(record).load(Ordering::Relaxed))).sum()
}

/// The counters of a thread whose timers nobody cancels at the moment, against its records.
fn assert_exact(report: &Report) {
    let Report { records, counts } = report;
    let (runs, cancels) =
        (total(records, |record| &record.runs), total(records, |record| &record.cancels));
    assert_eq!(counts.added, records.len() as u64);
    assert_eq!((counts.fired, counts.runs, counts.cancelled), (runs, runs, cancels));
    assert_eq!((counts.live, counts.held, counts.handed_back), (live_in_records(records), 0, 0));
    assert_eq!(counts.added, counts.live + counts.fired + counts.cancelled + counts.handed_back);
    assert_eq!((counts.panicked, counts.clock_regressions), (0, 0));
}

#[test]
fn every_timer_ends_once_whoever_cancels_moves_or_fires_it() {
    let lasts = Duration::from_millis(operations(1_000).min(20_000));
    let plan = Plan { begun: Instant::now(), lasts, timers: operations(40_000).min(300_000) };
    let plan = Arc::new(plan);
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..SHARDS).map(|_| mpsc::channel::<Given>()).unzip();
    let receivers: Vec<_> =
        receivers.into_iter().map(|receiver| std::sync::Mutex::new(Some(receiver))).collect();
    let senders = std::sync::Mutex::new(senders);
    let barrier = Barrier::new(SHARDS);
    let run = move |core: Core| {
        let given = receivers[core.index()].lock().expect("sound").take().expect("one each");
        let others = senders.lock().expect("sound").clone();
        let mut worker = Worker {
            plan: &plan,
            random: fastrand::Rng::with_seed(core.index() as u64),
            others,
            given,
            own: Vec::new(),
            records: Vec::new(),
        };
        // A thread that fails still meets the others, or they would wait for it.
        let worked = catch_unwind(AssertUnwindSafe(|| worker.work()));
        // Nobody cancels from here to the next barrier: the sums must be exact.
        barrier.wait();
        // A turn takes in a thousand messages, and at first those that an earlier one has left.
        while local_timer().counts().queued > 0 {
            local_timer().turn();
        }
        let report = Report { counts: local_timer().counts(), records: worker.records.clone() };
        let exact = worked.and_then(|()| catch_unwind(AssertUnwindSafe(|| assert_exact(&report))));
        barrier.wait();
        exact.unwrap_or_else(|failure| resume_unwind(failure));
        // And now cancels race with the ends of their shards: odd threads leave at once.
        if core.index().is_multiple_of(2) {
            worker.cancel_given(usize::MAX);
        }
        report
    };
    let config =
        |index: usize| Config::new().tick(Duration::from_micros([50, 100, 500, 1_000][index % 4]));
    let cores = Cores::builder().shards(SHARDS).config(config).start(run).expect("started");
    let reports: Vec<Report> =
        cores.join().into_iter().map(|report| report.expect("no panic")).collect();
    assert_ends(&reports);
}

/// After the end of all shards.
fn assert_ends(reports: &[Report]) {
    let (mut fired, mut cancelled, mut handed_back) = (0, 0, 0);
    for record in reports.iter().flat_map(|report| &report.records) {
        match record.ended() {
            (1, 0) => fired += 1,
            (0, 1) => cancelled += 1,
            (0, 0) => handed_back += 1,
            ended => panic!("{ended:?} runs and cancels of one timer"),
        }
        assert_eq!(record.drops.load(Ordering::Relaxed), 1, "what was captured is dropped once");
        assert!(!record.early.load(Ordering::Relaxed), "never early");
    }
    let added: u64 = reports.iter().map(|report| report.counts.added).sum();
    assert_eq!(added, fired + cancelled + handed_back);
    assert!(
        fired > 0 && cancelled > 0 && handed_back > 0,
        "{fired} fired, {cancelled} cancelled, {handed_back} left"
    );
    println!("{added} timers: {fired} fired, {cancelled} cancelled, {handed_back} handed back");
}

/// Two threads that cancel the same timers while their owner fires them: one winner each.
#[test]
fn of_those_who_want_to_end_a_timer_one_wins() {
    let deadline = Instant::now() + Duration::from_millis(operations(300).min(5_000));
    std::thread::scope(|scope| {
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..2).map(|_| mpsc::channel::<Given>()).unzip();
        for given in receivers {
            scope.spawn(move || {
                given.into_iter().for_each(|(handle, record)| _ = record.cancel(handle))
            });
        }
        let owner = scope.spawn(move || {
            let begun = Instant::now();
            let mut records = Vec::new();
            Config::new().tick(Duration::from_micros(1)).install().expect("a fresh thread");
            while Instant::now() < deadline && records.len() < 1_000_000 {
                for _ in 0..16 {
                    let record = Record::new(begun);
                    let captured = Captured(Arc::clone(&record));
                    let handle =
                        local_timer().add(Duration::from_micros(20), move || captured.0.run());
                    for other in &senders {
                        other.send((handle, Arc::clone(&record))).expect("it listens");
                    }
                    records.push(record);
                    local_timer().turn();
                }
            }
            while !local_timer().is_empty() {
                local_timer().turn();
            }
            Report { counts: local_timer().counts(), records }
        });
        let report = owner.join().expect("no panic");
        // The cancellers may still be busy with what has ended, but nothing is left to win.
        for record in &report.records {
            let (runs, drops) =
                (record.runs.load(Ordering::Relaxed), record.drops.load(Ordering::Relaxed));
            assert!(runs <= 1 && drops == 1);
        }
        assert_eq!(report.counts.fired, total(&report.records, |record| &record.runs));
        while report.counts.cancelled != total(&report.records, |record| &record.cancels) {
            assert!(
                Instant::now() < deadline + Duration::from_secs(20),
                "a winner did not come back"
            );
        }
        assert!(report.records.iter().all(|record| matches!(record.ended(), (1, 0) | (0, 1))));
        assert_eq!(report.counts.added, report.counts.fired + report.counts.cancelled);
    });
}
