//! The hot paths of a server, one operation at a time, with the loads of `compare`. A wheel alone
//! adds and cancels, and resets. `local_timer()` adds and cancels by the machine's clock. An idle shard shows the cost of each clock.
//!
//! Wheels are filled before the clock of the bench starts and dropped after it has stopped.

use std::{hint::black_box, time::Duration};

use corewheel::{Cancel, Clock, Config, Shard, TimerHandle, local_timer};
use corewheel_bench::{
    peers::CorewheelWheel,
    workloads::{
        OPERATIONS_PER_TICK,
        operations::{Churn, Delay, Reset},
    },
};
use criterion::{BenchmarkId, Criterion};
use fastrand::Rng;

/// How many timers are live: one core of a small server, and one of a large one.
const LIVE: [usize; 2] = [1000, 100_000];

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    operations(&mut criterion, "wheel/insert+remove", |live| Churn::<_>::new(live, Delay::TIMEOUT));
    operations(&mut criterion, "wheel/reset", Reset::new);
    local_add_cancel(&mut criterion);
    clocks(&mut criterion);
    criterion.final_summary();
}

/// Counts operations and says when a tick has passed, so that what an operation puts off is paid in
/// the same measurement.
#[derive(Default)]
struct Pace(usize);

impl Pace {
    fn tick(&mut self) -> bool {
        self.0 = (self.0 + 1) % OPERATIONS_PER_TICK;
        self.0 == 0
    }
}

fn operations<const RESET: bool>(
    criterion: &mut Criterion,
    name: &str,
    filled: fn(usize) -> Churn<CorewheelWheel, RESET>,
) {
    let mut group = criterion.benchmark_group(name);
    for live in LIVE {
        let (mut churn, mut pace) = (filled(live), Pace::default());
        group.bench_function(BenchmarkId::from_parameter(live), |bench| {
            bench.iter(|| {
                churn.operation();
                if pace.tick() {
                    churn.tick();
                }
            });
        });
    }
}

/// Callbacks of 24 bytes, 30 s ahead, on the thread's own timer in real time: adding reads the
/// machine's clock.
fn local_add_cancel(criterion: &mut Criterion) {
    let add = |id: usize| {
        let captured = black_box([id; 3]);
        local_timer().add(Duration::from_secs(30), move || _ = black_box(captured))
    };
    let mut group = criterion.benchmark_group("local/add+cancel");
    for live in LIVE {
        let (mut rng, mut pace) = (Rng::with_seed(2), Pace::default());
        let mut handles: Vec<TimerHandle> = (0..live).map(add).collect();
        group.bench_function(BenchmarkId::from_parameter(live), |bench| {
            bench.iter(|| {
                let chosen = rng.usize(..live);
                let cancel = handles[chosen].cancel();
                handles[chosen] = add(chosen);
                if pace.tick() {
                    local_timer().turn();
                }
                cancel
            });
        });
        let ended =
            handles.into_iter().filter(|handle| handle.cancel() == Cancel::Cancelled).count();
        assert_eq!(ended, live, "a timer fired during the bench: it did not measure what it says");
    }
}

/// A turn of an empty shard and the reset of an only timer: one reading each, and little else.
/// Where there is no fast clock, `fast` is the monotonic one.
fn clocks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("clock");
    for (name, clock) in [
        ("monotonic", Clock::monotonic()),
        ("fast", Clock::fast()),
        ("boot_time", Clock::boot_time()),
    ] {
        let config = Config::new().clock(clock);
        let mut shard = Shard::with_config(config).expect("a valid configuration");
        group.bench_function(BenchmarkId::new(name, "turn"), |bench| bench.iter(|| shard.turn()));
        let timer = shard.add(Duration::from_secs(30), ());
        group.bench_function(BenchmarkId::new(name, "reset"), |bench| {
            bench.iter(|| shard.reset(black_box(timer), Duration::from_secs(30)));
        });
    }
}
