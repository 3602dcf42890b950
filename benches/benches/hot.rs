//! Benches of single operations with the loads of `compare`: a `Wheel`, `local_timer()` in real
//! time, and an idle `Shard` on each clock.
//!
//! Setup and teardown are not timed. Each load has its own thread, because a thread has one
//! `local_timer()`.

use std::hint::black_box;
use std::time::Duration;

use corewheel::{Clock, Config, Shard};
use corewheel_bench::peers::{CorewheelLocal, CorewheelWheel, RealTime};
use corewheel_bench::timers::TimerSet;
use corewheel_bench::workloads::operations::{Churn, Delay, Reset};
use corewheel_bench::workloads::{OPERATIONS_PER_TICK, in_thread};
use criterion::{BenchmarkId, Criterion};

fn main() {
    // Live timers per core of a small and of a large server.
    for live in [1000, 100_000] {
        let churn = || Churn::<CorewheelWheel>::new(live, Delay::TIMEOUT);
        operations("wheel/insert+remove", live, churn);
        operations("wheel/reset", live, || Reset::<CorewheelWheel>::new(live));
        let churn = || Churn::<CorewheelLocal<RealTime<false>>>::new(live, Delay::TIMEOUT);
        operations("local/add+cancel", live, churn);
    }
    clocks(&mut Criterion::default().configure_from_args());
}

/// Measures operations and the ticks between them, because operations may defer work to a turn.
fn operations<T: TimerSet, const RESET: bool>(
    name: &str,
    live: usize,
    make_churn: impl FnOnce() -> Churn<T, RESET> + Send,
) {
    in_thread(|| {
        let mut criterion = Criterion::default().configure_from_args();
        let (mut churn, mut done) = (make_churn(), 0_usize);
        criterion.bench_with_input(BenchmarkId::new(name, live), &(), |bench, ()| {
            bench.iter(|| {
                churn.do_operation();
                done += 1;
                if done.is_multiple_of(OPERATIONS_PER_TICK) {
                    churn.tick();
                }
            });
        });
    });
}

/// Measures a turn of an empty shard, and a reset of a shard's only timer. Both mostly cost one
/// clock reading. Where no fast clock exists, `fast` equals `monotonic`.
fn clocks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("clock");
    let clocks = [Clock::monotonic(), Clock::fast(), Clock::boot_time()];
    for (name, clock) in ["monotonic", "fast", "boot_time"].into_iter().zip(clocks) {
        let config = Config::new().clock(clock);
        let mut shard = Shard::with_config(config).expect("a valid configuration");
        group.bench_function(BenchmarkId::new(name, "turn"), |bench| bench.iter(|| shard.turn()));
        let timer = shard.add(Duration::from_secs(30), ());
        group.bench_function(BenchmarkId::new(name, "reset"), |bench| {
            bench.iter(|| shard.reset(black_box(timer), Duration::from_secs(30)));
        });
    }
}
