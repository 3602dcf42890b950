//! The hot paths of a server, one operation at a time, with the loads of `compare`. A wheel alone
//! adds and cancels, and resets. `local_timer()` adds and cancels by the machine's clock. An idle
//! shard shows the cost of each clock.
//!
//! Timers are added before the clock of the bench starts and dropped after it has stopped. Each
//! bench has its own thread, because a thread has one `local_timer()`.

use std::hint::black_box;
use std::time::Duration;

use corewheel::{Clock, Config, Shard};
use corewheel_bench::peers::{CorewheelLocal, CorewheelWheel, RealTime};
use corewheel_bench::timers::Timers;
use corewheel_bench::workloads::operations::{Churn, Delay, Reset};
use corewheel_bench::workloads::{OPERATIONS_PER_TICK, in_thread};
use criterion::{BenchmarkId, Criterion};

fn main() {
    // One core of a small server, and one of a large one.
    for live in [1000, 100_000] {
        let churn = || Churn::<CorewheelWheel>::new(live, Delay::TIMEOUT);
        operations("wheel/insert+remove", live, churn);
        operations("wheel/reset", live, || Reset::<CorewheelWheel>::new(live));
        let churn = || Churn::<CorewheelLocal<RealTime<false>>>::new(live, Delay::TIMEOUT);
        operations("local/add+cancel", live, churn);
    }
    clocks(&mut Criterion::default().configure_from_args());
}

/// Lets a tick pass now and then, so that the work that an operation puts off is measured too.
fn operations<T: Timers, const RESET: bool>(
    name: &str,
    live: usize,
    filled: impl FnOnce() -> Churn<T, RESET> + Send,
) {
    in_thread(|| {
        let mut criterion = Criterion::default().configure_from_args();
        let (mut churn, mut done) = (filled(), 0_usize);
        criterion.bench_with_input(BenchmarkId::new(name, live), &(), |bench, ()| {
            bench.iter(|| {
                churn.operation();
                done += 1;
                if done.is_multiple_of(OPERATIONS_PER_TICK) {
                    churn.tick();
                }
            });
        });
    });
}

/// A turn of an empty shard and the reset of an only timer: one reading each, and little else.
/// Where there is no fast clock, `fast` is the monotonic one.
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
