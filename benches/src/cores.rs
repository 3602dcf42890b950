use std::hint::spin_loop;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use std::{fs, thread};

use core_affinity::CoreId;

use crate::measure::median;

const TRIPS_PER_MEASUREMENT: u64 = 64;
const MEASUREMENTS: u64 = 128;
const SPINS_MAX: u64 = 1 << 34;

/// All cores, listed before any thread is pinned, because a pinned thread sees only its own core.
pub(crate) static ALL_CORES: LazyLock<Vec<CoreId>> =
    LazyLock::new(|| core_affinity::get_core_ids().unwrap_or_default());

/// Pins the calling thread to the core with this index, modulo the number of cores.
pub fn pin(core: usize) {
    if !ALL_CORES.is_empty() {
        let is_pinned = core_affinity::set_for_current(ALL_CORES[core % ALL_CORES.len()]);
        assert!(is_pinned, "cannot pin a thread to core {core}");
    }
}

pub fn involuntary_switches() -> Option<u64> {
    let status = fs::read_to_string("/proc/thread-self/status").ok()?;
    let count = status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"))?;
    count.trim().parse().ok()
}

pub fn run_on_two<A: Send, B: Send>(
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
        let done = "the run does not panic";
        (first.join().expect(done), second.join().expect(done))
    })
}

pub(crate) fn spin_until(mut is_done: impl FnMut() -> bool) {
    let mut spins = 0_u64;
    while !is_done() {
        spins += 1;
        // Yields, because the other thread may need this core.
        if spins.is_multiple_of(4096) {
            thread::yield_now();
        }
        assert!(spins < SPINS_MAX, "the other thread is stuck");
        spin_loop();
    }
}

#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct PaddedAtomic(pub(crate) AtomicU64);

/// One of two threads that work alternately. A *leg* is the work of one thread between two
/// hand-overs.
pub(crate) struct AlternatingThread<'a> {
    /// The number of finished legs.
    baton: &'a AtomicU64,
    next_leg: u64,
}

/// The value of the baton after one of the threads has panicked.
const BATON_AFTER_PANIC: u64 = u64::MAX;

impl<'a> AlternatingThread<'a> {
    pub(crate) fn pair(baton: &'a PaddedAtomic) -> [Self; 2] {
        [0, 1].map(|next_leg| Self { baton: &baton.0, next_leg })
    }

    /// Waits for the previous leg, if any, and runs `leg`.
    pub(crate) fn run<R>(&mut self, leg: impl FnOnce() -> R) -> R {
        spin_until(|| {
            // Acquire: sees the other thread's leg; pairs with the Release below.
            let legs = self.baton.load(Ordering::Acquire);
            assert!(legs != BATON_AFTER_PANIC, "the other thread panics");
            legs == self.next_leg
        });
        let result = leg();
        // Release: publishes the leg to the other thread.
        self.baton.store(self.next_leg + 1, Ordering::Release);
        self.next_leg += 2;
        result
    }
}

/// After a panic of one thread, the other thread's next `run` panics too.
impl Drop for AlternatingThread<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.baton.store(BATON_AFTER_PANIC, Ordering::Release);
        }
    }
}

/// Measures the round trip of a cache line to the second core, in nanoseconds.
pub fn cache_line_nanos() -> f64 {
    let line = PaddedAtomic::default();
    let [mut first, mut second] = AlternatingThread::pair(&line);
    let mut time = |_| {
        let started = Instant::now();
        (0..TRIPS_PER_MEASUREMENT).for_each(|_| first.run(|| ()));
        started.elapsed().as_nanos() as f64 / TRIPS_PER_MEASUREMENT as f64
    };
    let times = move || (0..MEASUREMENTS).map(&mut time).collect();
    let (trips, ()) = run_on_two(times, move || {
        (0..MEASUREMENTS * TRIPS_PER_MEASUREMENT).for_each(|_| second.run(|| ()));
    });
    median(trips)
}
