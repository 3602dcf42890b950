//! Helpers for all tests: scaled workloads, virtual time, and seeded random sources.
#![allow(dead_code, reason = "no test uses all of it")]

use std::{
    panic,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use corewheel::{Cancel, Config, ManualClock, Shard, TimerHandle, Turn, local_timer};

pub(crate) const TICK: Duration = Duration::from_millis(1);

pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

/// A wait longer than this counts as a hang.
pub(crate) const TOO_LONG: Duration = Duration::from_secs(20);

/// Returns `base`, or a hundredth of it under Miri, times `COREWHEEL_TEST_SCALE` if that is set.
pub(crate) fn scaled(base: u64) -> u64 {
    let scale = std::env::var("COREWHEEL_TEST_SCALE").ok();
    let base = if cfg!(miri) { base.div_ceil(100) } else { base };
    base * scale.map_or(1, |scale| scale.parse().expect("COREWHEEL_TEST_SCALE is a number"))
}

/// Runs `test` once per seed. A failure names its seed.
pub(crate) fn seeded(
    seeds: impl IntoIterator<Item = u64>,
    test: impl Fn(&mut fastrand::Rng) + panic::RefUnwindSafe,
) {
    for seed in seeds {
        let failed = panic::catch_unwind(|| test(&mut fastrand::Rng::with_seed(seed))).is_err();
        assert!(!failed, "failed with seed {seed}");
    }
}

/// Serializes the tests of a process that hold the returned guard.
pub(crate) fn run_alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Runs `test` on a new thread with a wheel in virtual time, and propagates its panic.
pub(crate) fn in_virtual_time<R: Send>(test: impl FnOnce(&ManualClock) -> R + Send) -> R {
    on_configured_thread(Config::new(), test)
}

pub(crate) fn on_configured_thread<R: Send>(
    config: Config,
    run: impl FnOnce(&ManualClock) -> R + Send,
) -> R {
    let clock = ManualClock::new();
    let config = config.clock(&clock);
    on_a_thread(|| {
        config.install().expect("a new thread");
        local_timer().register_driver();
        run(&clock)
    })
}

pub(crate) fn manual_shard<T>() -> (Shard<T>, ManualClock) {
    configured_shard(Config::new())
}

pub(crate) fn configured_shard<T>(config: Config) -> (Shard<T>, ManualClock) {
    let clock = ManualClock::new();
    (Shard::with_config(config.clock(&clock)).expect("valid"), clock)
}

/// Returns a shard in virtual time, in which a pause of the machine is no stall.
pub(crate) fn named_shard(name: &str) -> (Shard<u32>, ManualClock) {
    configured_shard(Config::new().name(name))
}

pub(crate) fn shard_with_clock<T>(clock: &ManualClock) -> Shard<T> {
    Shard::with_config(Config::new().clock(clock)).expect("valid")
}

/// Runs `test` on a new thread, and propagates its panic.
pub(crate) fn on_a_thread<R: Send>(test: impl FnOnce() -> R + Send) -> R {
    let ended = thread::scope(|scope| scope.spawn(test).join());
    ended.unwrap_or_else(|panic| panic::resume_unwind(panic))
}

pub(crate) fn must_not_run() {
    unreachable!("this callback must not run");
}

pub(crate) fn turn_after(clock: &ManualClock, ticks: u32) -> Turn {
    clock.advance(TICK * ticks);
    local_timer().turn()
}

pub(crate) fn turn_and_expire<T>(shard: &mut Shard<T>) -> Vec<T> {
    shard.turn();
    std::iter::from_fn(|| shard.next_expired()).map(|expired| expired.payload).collect()
}

pub(crate) fn cancel_remotely(handle: TimerHandle) -> Cancel {
    on_a_thread(move || handle.cancel())
}

pub(crate) fn cancel_all(handles: &[TimerHandle]) {
    assert!(handles.iter().all(|handle| handle.cancel() == Cancel::Cancelled));
}

pub(crate) fn cancel_all_remotely(handles: &[TimerHandle]) {
    on_a_thread(|| cancel_all(handles));
}

pub(crate) fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < TOO_LONG, "timed out before {what}");
        thread::yield_now();
    }
}
