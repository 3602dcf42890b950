//! What a server does all day: add and cancel, reset, expire tick by tick on a wheel alone, and add and cancel once more
//! through `local_timer()` with the machine's clock. And what the clocks cost in a shard that has nothing else to do.
//!
//! Wheels are filled before the clock of the bench starts and dropped after it has stopped. What the loads are stands
//! with [`corewheel_bench`].

use std::{hint::black_box, time::Duration};

use corewheel::{Cancel, Clock, Config, Shard, TimerHandle, local_timer};
use corewheel_bench::{Connections, LIVE, Pace, TIMEOUT};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use fastrand::Rng;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    wheel_add_cancel(&mut criterion);
    wheel_reset(&mut criterion);
    wheel_drain(&mut criterion);
    local_add_cancel(&mut criterion);
    clocks(&mut criterion);
    criterion.final_summary();
}

fn wheel_add_cancel(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("wheel/insert+remove");
    for live in LIVE {
        let mut connections = Connections::new(live);
        group.bench_function(BenchmarkId::from_parameter(live), |bench| bench.iter(|| connections.replace()));
    }
}

fn wheel_reset(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("wheel/reset");
    for live in LIVE {
        let mut connections = Connections::new(live);
        group.bench_function(BenchmarkId::from_parameter(live), |bench| bench.iter(|| connections.touch()));
    }
}

/// A whole timeout of silence. With few timers this is the cost of empty ticks, with many that of expiring.
fn wheel_drain(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("wheel/drain");
    for live in LIVE {
        group.throughput(Throughput::Elements(live as u64));
        group.bench_function(BenchmarkId::from_parameter(live), |bench| {
            bench.iter_batched_ref(|| Connections::new(live), drain, BatchSize::PerIteration);
        });
    }
}

fn drain(connections: &mut Connections) -> u64 {
    (0..TIMEOUT).map(|_| connections.pass()).sum()
}

/// Callbacks of 24 bytes, 30 s ahead, on the thread's own timer in real time: adding reads the machine's clock.
fn local_add_cancel(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("local/add+cancel");
    for live in LIVE {
        let (mut rng, mut pace) = (Rng::with_seed(2), Pace::default());
        let mut handles: Vec<TimerHandle> = (0..live as u64).map(add).collect();
        group.bench_function(BenchmarkId::from_parameter(live), |bench| {
            bench.iter(|| {
                let chosen = rng.usize(..live);
                let cancel = handles[chosen].cancel();
                handles[chosen] = add(chosen as u64);
                if pace.tick() {
                    local_timer().turn();
                }
                cancel
            });
        });
        let ended = handles.into_iter().filter(|handle| handle.cancel() == Cancel::Cancelled).count();
        assert_eq!(ended, live, "a timer fired during the bench: it did not measure what it says");
    }
}

/// A turn of an empty shard and the reset of an only timer: one reading each, and little else. Where there is no fast clock,
/// `fast` is the monotonic one.
fn clocks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("clock");
    for (name, clock) in
        [("monotonic", Clock::monotonic()), ("fast", Clock::fast()), ("boot_time", Clock::boot_time())]
    {
        let mut shard = Shard::with_config(Config::new().clock(clock)).expect("a valid configuration");
        group.bench_function(BenchmarkId::new(name, "turn"), |bench| bench.iter(|| shard.turn()));
        let timer = shard.add(Duration::from_secs(30), ());
        group.bench_function(BenchmarkId::new(name, "reset"), |bench| {
            bench.iter(|| shard.reset(black_box(timer), Duration::from_secs(30)));
        });
    }
}

fn add(id: u64) -> TimerHandle {
    let captured = black_box([id; 3]);
    local_timer().add(Duration::from_secs(30), move || _ = black_box(captured))
}
