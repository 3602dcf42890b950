//! Two threads, each pinned to another core.

use std::hint::spin_loop;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use std::{fs, thread};

use core_affinity::CoreId;

use crate::measure::median;

/// A line goes there and back so often before the clock is read, and is timed so often.
const TRIPS: u64 = 64;
const TIMED: u64 = 128;
/// Minutes of waiting for a thread.
const SPINS_MAX: u64 = 1 << 34;

/// Lists the cores before any thread is pinned, because a pinned thread sees only its own.
pub(crate) static ALL: LazyLock<Vec<CoreId>> =
    LazyLock::new(|| core_affinity::get_core_ids().unwrap_or_default());

/// Pins the calling thread to a core, counted from 0. Where there are fewer, threads share them.
pub fn pin(core: usize) {
    if !ALL.is_empty() {
        let is_pinned = core_affinity::set_for_current(ALL[core % ALL.len()]);
        assert!(is_pinned, "core {core} can be pinned to");
    }
}

/// Counts how often the calling thread lost its core; `None` where the system does not tell.
pub fn losses() -> Option<u64> {
    let status = fs::read_to_string("/proc/thread-self/status").ok()?;
    let count = status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"))?;
    count.trim().parse().ok()
}

pub fn on_two<A: Send, B: Send>(
    first: impl FnOnce() -> A + Send,
    second: impl FnOnce() -> B + Send,
) -> (A, B) {
    thread::scope(|scope| {
        let first = scope.spawn(|| {
            pin(0);
            first()
        });
        let second = scope.spawn(|| {
            pin(1);
            second()
        });
        let done = "a run that does not panic";
        (first.join().expect(done), second.join().expect(done))
    })
}

/// Spins until another thread has done something.
pub(crate) fn spin_until(mut is_done: impl FnMut() -> bool) {
    let mut spins = 0_u64;
    while !is_done() {
        spins += 1;
        // Where there are fewer cores than threads.
        if spins.is_multiple_of(4096) {
            thread::yield_now();
        }
        assert!(spins < SPINS_MAX, "the other thread is stuck");
        spin_loop();
    }
}

/// Aligned so that it shares its cache lines with nothing else.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Alone(pub(crate) AtomicU64);

/// One of two threads that take turns.
pub(crate) struct Runner<'a> {
    /// The number of legs that both have run.
    baton: &'a AtomicU64,
    next_leg: u64,
}

/// Marks the baton of a pair of which one has panicked.
const DROPPED: u64 = u64::MAX;

impl<'a> Runner<'a> {
    /// Returns both runners of a new baton. Each must move to its own thread.
    pub(crate) fn pair(baton: &'a Alone) -> [Self; 2] {
        [0, 1].map(|next_leg| Self { baton: &baton.0, next_leg })
    }

    /// Waits until the other runner has run the leg before, and runs the next.
    pub(crate) fn run<R>(&mut self, leg: impl FnOnce() -> R) -> R {
        spin_until(|| {
            // Acquire: the other runner's leg.
            let legs = self.baton.load(Ordering::Acquire);
            assert!(legs != DROPPED, "the other runner panics");
            legs == self.next_leg
        });
        let run = leg();
        // Release: publishes the leg to the other runner.
        self.baton.store(self.next_leg + 1, Ordering::Release);
        self.next_leg += 2;
        run
    }
}

/// A panic releases the other runner, which then panics too.
impl Drop for Runner<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.baton.store(DROPPED, Ordering::Release);
        }
    }
}

/// Measures the nanoseconds that a cache line takes to the second core and back. The distance of
/// two cores of a virtual machine changes with time.
pub fn line_nanos() -> f64 {
    let line = Alone::default();
    let [mut first, mut second] = Runner::pair(&line);
    let mut time = |_| {
        let started = Instant::now();
        (0..TRIPS).for_each(|_| first.run(|| ()));
        started.elapsed().as_nanos() as f64 / TRIPS as f64
    };
    let times = move || (0..TIMED).map(&mut time).collect();
    let (trips, ()) = on_two(times, move || (0..TIMED * TRIPS).for_each(|_| second.run(|| ())));
    median(trips)
}
