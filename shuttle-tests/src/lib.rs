//! The programs that are too large for loom: several threads with hundreds of timers and all
//! operations, in interleavings that shuttle draws from a seed. Where loom proves small models,
//! these explore large ones, and sequences of operations that no model has. They do not see weak
//! orderings: all atomics are sequentially consistent here.
//!
//! The run itself is in `tests/`. Without `--cfg shuttle` this package is empty.
//!
//! # What the library is like here
//!
//! Its limits are tiny, as in the loom models: pages of two nodes, a debt of two, 63 timers at most
//! in a shard. A thread can be interrupted wherever the library touches an atomic; epochs and locks
//! are the real ones, in one step each.
#![cfg(shuttle)]

use std::{
    env,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use shuttle::{
    Config, FailurePersistence, MaxSteps, Runner,
    scheduler::{PctScheduler, RandomScheduler, Scheduler},
};

/// Interleavings for each seed and each of the two schedulers.
const INTERLEAVINGS: usize = 20;

/// The preemptions that one scheduler spends per interleaving, where they have most effect.
const PREEMPTIONS: usize = 4;

/// Runs `program` in interleavings that are drawn from seeds: `COREWHEEL_SHUTTLE_SEED` is the only
/// one, or `COREWHEEL_SHUTTLE_SEEDS` says how many there are. A failure says which it was.
#[allow(clippy::missing_panics_doc, reason = "called by tests only")]
pub fn explore(name: &str, program: impl Fn() + Send + Sync + Copy + 'static) {
    let seeds = seeds();
    println!(
        "{name}: {} interleavings",
        2 * INTERLEAVINGS * usize::try_from(seeds.end - seeds.start).unwrap_or(0)
    );
    for seed in seeds {
        run(seed, RandomScheduler::new_from_seed(seed, INTERLEAVINGS), program);
        run(seed, PctScheduler::new_from_seed(seed, PREEMPTIONS, INTERLEAVINGS), program);
    }
}

fn seeds() -> Range<u64> {
    let number = |key| env::var(key).ok().map(|value| value.parse().expect("a number"));
    match number("COREWHEEL_SHUTTLE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("COREWHEEL_SHUTTLE_SEEDS").unwrap_or(10),
    }
}

fn run(seed: u64, scheduler: impl Scheduler + 'static, program: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = 1 << 19;
    // The seed says it all, in one line.
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(10_000_000);
    config.silence_warnings = true;
    let run = AssertUnwindSafe(|| Runner::new(scheduler, config).run(program));
    if let Err(failure) = catch_unwind(run) {
        eprintln!("failed with COREWHEEL_SHUTTLE_SEED={seed}");
        resume_unwind(failure);
    }
}
