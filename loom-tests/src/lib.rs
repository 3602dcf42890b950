//! Helpers for the loom models in `tests/`, which use corewheel's public interface.
//!
//! Loom sees every state word, mailbox link and head, the parker, and the virtual clock. Loom does
//! not see the list of free shard numbers, which is behind a `Mutex`. Without the feature `epoch`,
//! loom sees neither the pointers to pages nor the epochs; instead, `util::sync` models the
//! guarantees of these pointers.
#![cfg(loom)]
#![allow(clippy::missing_panics_doc, clippy::missing_errors_doc, reason = "called by models only")]

use std::{
    env,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::{Duration, Instant},
};

use corewheel::{
    AddErrorReason, Cancel, Config, Counts, ManualClock, PreparedSleep, Shard, ShardRef,
    TimerHandle,
    future::{SharedWheel, Sleep},
    local_timer,
};
use loom::{
    sync::{Notify, atomic::AtomicUsize as ModelledUsize},
    thread,
};

static EXPLORE_LOCK: Mutex<()> = Mutex::new(());

/// Explores the interleavings of `model` with at most three preemptions, and prints their number.
/// Panics if loom explores fewer than `floor`, a sign that it misses accesses of the model.
///
/// `LOOM_MAX_PREEMPTIONS` overrides the bound of three. `LOOM_MAX_DURATION=n` removes the bound
/// and stops each model after `n` seconds. `COREWHEEL_LOOM_NO_FLOOR` disables the floor.
pub fn explore<M: Fn() + Send + Sync + 'static>(floor: usize, model: M) {
    explore_with_preemptions(3, floor, model);
}

/// Explores a model with fewer preemptions, because three would take minutes; see [`explore`].
pub fn explore_with_preemptions<M: Fn() + Send + Sync + 'static>(
    preemptions: usize,
    floor: usize,
    model: M,
) {
    // The type name of a closure contains the name of its function, here the test. The thread's
    // name is useless, since with `--test-threads=1` the harness runs tests on its main thread.
    let name = std::any::type_name::<M>().trim_end_matches("::{{closure}}");
    let name = name.rsplit("::").next().unwrap_or(name);
    // Shard numbers and epoch garbage are global, and loom does not reset them. Models run one at a
    // time, so that every execution starts with the same numbers and garbage.
    let _alone = EXPLORE_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    // A failure on a thread with a thread-local wheel may abort the process before the harness
    // prints the test's name.
    println!("{name} ...");
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 100_000;
    builder.checkpoint_interval = 1_000;
    let (time, bound) = (builder.max_duration, builder.preemption_bound.or(Some(preemptions)));
    builder.preemption_bound = bound.filter(|_| time.is_none());
    let ([count, counter], start) = (shared_clones(AtomicUsize::new(0)), Instant::now());
    builder.check(move || {
        // Relaxed: loom runs one execution at a time.
        counter.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let explored = count.load(Ordering::Relaxed);
    let (remark, floor) = match time {
        Some(time) if start.elapsed() >= time => (", but not all,", 2),
        // Without a bound, loom skips more equivalent interleavings and may explore fewer than
        // `floor`.
        Some(_) => (", which are all,", 2),
        None => ("", floor),
    };
    println!("{name}: {explored} interleavings{remark} in {:.1?}", start.elapsed());
    assert!(
        explored >= floor || env::var_os("COREWHEEL_LOOM_NO_FLOOR").is_some(),
        "{name} explored {explored} interleavings, fewer than {floor}"
    );
}

/// Returns `N` references to `value`.
pub fn shared_clones<T, const N: usize>(value: T) -> [Arc<T>; N] {
    let value = Arc::new(value);
    [(); N].map(|()| Arc::clone(&value))
}

/// The tick of all shards.
pub const TICK: Duration = Duration::from_millis(1);

/// Returns a shard in virtual time and its clock.
pub fn shard<T>() -> (Shard<T>, ManualClock) {
    let clock = ManualClock::new();
    (Shard::with_config(config(&clock)).expect("valid"), clock)
}

/// A shard in virtual time, its clock and a timer.
pub type WithTimer<T> = (Shard<T>, ManualClock, TimerHandle);

/// Returns a shard whose only timer is due in `ticks` ticks.
pub fn shard_with_timer<T>(ticks: u32, payload: T) -> WithTimer<T> {
    let (mut shard, clock) = shard();
    let handle = shard.add(TICK * ticks, payload);
    (shard, clock, handle)
}

/// Returns a shard whose only timer is due.
pub fn shard_with_due_timer<T>(payload: T) -> WithTimer<T> {
    let (shard, clock, handle) = shard_with_timer(1, payload);
    clock.advance(TICK);
    (shard, clock, handle)
}

/// Asserts that `added` timers were added, that all fired or were cancelled, and that no message is
/// left and nothing panicked.
pub fn assert_all_ended(counts: &Counts, added: u64) {
    let Counts { live, fired, cancelled, uncollected, queued, panicked, .. } = *counts;
    assert_eq!((counts.added, fired + cancelled), (added, added), "{counts:?}");
    assert_eq!((live, uncollected, queued, panicked), (0, 0, 0, 0), "{counts:?}");
}

/// Returns a shard and a timer with payload 1 that is alone in its page. After the timer's end,
/// turns retire the page, because the shard already has a spare empty page. The fourth timer added
/// after that gets the index of the ended timer, in a new page.
pub fn shard_with_retirable_page() -> WithTimer<u32> {
    let (mut shard, clock) = shard();
    // Under loom a page has two nodes, and index 0 is never allocated, so the fourth timer is
    // alone.
    let [others @ .., first] = [(); 4].map(|()| shard.add(TICK, 1));
    for other in others {
        shard.cancel(other);
    }
    (shard, clock, first)
}

/// Fires `first`, unless another thread ends or resets it. Retires the page of `first` if possible,
/// and adds four timers. Returns whether `first` has fired, and the four timers.
pub fn fire_and_add_four(shard: &mut Shard<u32>, first: TimerHandle) -> (bool, [TimerHandle; 4]) {
    let fired = turn_and_expire(shard);
    (0..2).for_each(|_| shard.turn());
    let (added, in_a_new_page) = add_four(shard, first);
    assert!(in_a_new_page || fired.is_empty(), "the empty page was not retired");
    (!fired.is_empty(), added)
}

/// Adds four timers with payload 2, due in one tick. Also returns whether the fourth has the index
/// of `first`, and so is in a new page; see [`shard_with_retirable_page`].
pub fn add_four(shard: &mut Shard<u32>, first: TimerHandle) -> ([TimerHandle; 4], bool) {
    let added = [(); 4].map(|()| shard.add(TICK, 2));
    (added, shard_and_index(added[3]) == shard_and_index(first))
}

/// Returns the shard and index of a timer, cut from the `Debug` output of the handle, which has no
/// public method for them.
pub fn shard_and_index(handle: TimerHandle) -> String {
    let name = format!("{handle:?}");
    name.split('#').next().unwrap_or_default().to_owned()
}

/// Returns a configuration in virtual time.
pub fn config(clock: &ManualClock) -> Config {
    Config::new().tick(TICK).clock(clock)
}

/// Turns the shard and returns the payloads of the expired timers.
pub fn turn_and_expire<T>(shard: &mut Shard<T>) -> Vec<T> {
    shard.turn();
    std::iter::from_fn(|| shard.next_expired()).map(|expired| expired.payload).collect()
}

/// Turns the shard at each tick up to `until`. Returns the ticks at which timers expired.
pub fn turn_and_log_expiries<T>(shard: &mut Shard<T>, clock: &ManualClock, until: u32) -> Vec<u32> {
    turn_at_each_tick(clock, until, || turn_and_expire(shard).len())
}

/// Turns this thread's wheel at each tick up to `until`. Returns the ticks at which callbacks ran.
pub fn turn_and_log_runs(clock: &ManualClock, until: u32) -> Vec<u32> {
    turn_at_each_tick(clock, until, || local_timer().turn().fired)
}

fn turn_at_each_tick(clock: &ManualClock, until: u32, mut turn: impl FnMut() -> usize) -> Vec<u32> {
    let now = || u32::try_from(clock.elapsed().as_millis()).unwrap_or(u32::MAX);
    let mut ticks = Vec::new();
    loop {
        ticks.extend(std::iter::repeat_n(now(), turn()));
        if now() >= until {
            return ticks;
        }
        clock.advance(TICK);
    }
}

/// Installs this thread's wheel in virtual time. Returns the wheel's clock.
pub fn install_wheel() -> ManualClock {
    install_core().0
}

/// Installs this thread's wheel in virtual time. Returns the wheel's clock and `ShardRef`.
pub fn install_core() -> (ManualClock, ShardRef) {
    install_core_with(|config| config)
}

/// Installs this thread's wheel in virtual time with more settings; see [`install_core`].
pub fn install_core_with(settings: impl FnOnce(Config) -> Config) -> (ManualClock, ShardRef) {
    let clock = ManualClock::new();
    settings(config(&clock)).install().expect("the thread already has a wheel");
    local_timer().register_driver();
    (clock, local_timer().shard_ref())
}

/// Installs this thread's wheel, whose wake hook unparks this thread; see [`install_core`].
pub fn install_waking_core() -> (ManualClock, ShardRef) {
    let owner = thread::current();
    install_core_with(|config| config.wake_hook(move || owner.unpark()))
}

/// Parks unless the timeout is zero. In virtual time, only a wake-up ends the park.
pub fn fall_asleep(sleep: PreparedSleep<'_>) {
    if sleep.timeout().is_none_or(|timeout| !timeout.is_zero()) {
        thread::park();
    }
    drop(sleep);
}

/// Advances the clock by a tick and turns this thread's wheel. Returns the number of fired timers.
pub fn turn_after_a_tick(clock: &ManualClock) -> usize {
    clock.advance(TICK);
    local_timer().turn().fired
}

/// Adds a timer to `core` on another thread, and waits for that thread.
pub fn add_remotely(
    core: &ShardRef,
    delay: Duration,
    callback: impl FnOnce() + Send + 'static,
) -> TimerHandle {
    let core = core.clone();
    on_another_thread(move || core.add(delay, callback))
}

/// Calls `set`, whose interleavings loom does not explore.
pub fn without_exploring<R>(set: impl FnOnce() -> R) -> R {
    loom::stop_exploring();
    let value = set();
    loom::explore();
    value
}

/// Spawns a thread that races with this one. Both threads first access one atomic, so that loom
/// explores both orders.
///
/// Without these accesses, loom may miss an order, because loom remembers only the last load of
/// each atomic. For example, if the other thread loads and then swaps, loom overlooks the race of
/// this swap with a load in this thread.
pub fn race<R: 'static>(act: impl FnOnce() -> R + 'static) -> thread::JoinHandle<R> {
    let [own_start, other_start] = shared_clones(ModelledUsize::new(0));
    // Both `Relaxed`: they order no other access.
    let thread = thread::spawn(move || {
        other_start.fetch_add(1, Ordering::Relaxed);
        act()
    });
    own_start.fetch_add(1, Ordering::Relaxed);
    thread
}

/// A spawned thread that may unpark the thread that spawned it.
#[derive(Debug)]
pub struct Unparker<R> {
    thread: thread::JoinHandle<R>,
    is_done: Arc<ModelledUsize>,
}

/// Spawns a thread that races with this one and may unpark it; see [`race`].
pub fn spawn_unparker<R: 'static>(act: impl FnOnce() -> R + 'static) -> Unparker<R> {
    let [is_done, done] = shared_clones(ModelledUsize::new(0));
    let thread = race(move || {
        let result = act();
        done.store(1, Ordering::Release);
        result
    });
    Unparker { thread, is_done }
}

impl<R> Unparker<R> {
    /// Waits for the thread and returns its result; see [`join_unparkers`].
    pub fn join(self) -> R {
        let [result] = join_unparkers([self]);
        result
    }
}

/// Waits for the threads and returns their results. Loom does not support an unpark of a thread
/// that joins, so this function waits until every closure has returned, and then joins.
pub fn join_unparkers<R, const N: usize>(unparkers: [Unparker<R>; N]) -> [R; N] {
    for unparker in &unparkers {
        while unparker.is_done.load(Ordering::Acquire) == 0 {
            thread::yield_now();
        }
    }
    unparkers.map(|unparker| unparker.thread.join().expect("the thread panicked"))
}

/// Calls `act` on another thread and waits for its result.
pub fn on_another_thread<R: Send + 'static>(act: impl FnOnce() -> R + Send + 'static) -> R {
    thread::spawn(act).join().expect("the thread panicked")
}

/// A payload whose destructor stores `work` plus 10 in `seen`, where 0 means no drop.
///
/// All accesses are relaxed: the models check that corewheel orders them.
#[derive(Debug)]
pub struct SeesOnDrop {
    work: Arc<ModelledUsize>,
    seen: Arc<ModelledUsize>,
}

impl SeesOnDrop {
    /// Returns the payload, `work` and `seen`.
    pub fn with_counter() -> (Self, Arc<ModelledUsize>, Arc<ModelledUsize>) {
        let [work, seen] = [(); 2].map(|()| Arc::new(ModelledUsize::new(0)));
        (Self { work: Arc::clone(&work), seen: Arc::clone(&seen) }, work, seen)
    }
}

/// Sets `work` to 1 and cancels the timer.
pub fn work_and_cancel(work: &ModelledUsize, handle: TimerHandle) -> Cancel {
    work.store(1, Ordering::Relaxed);
    handle.cancel()
}

impl Drop for SeesOnDrop {
    fn drop(&mut self) {
        let seen = self.work.load(Ordering::Relaxed) + 10;
        self.seen.store(seen, Ordering::Relaxed);
    }
}

/// A value whose drop increments [`Drops`].
#[derive(Debug)]
pub struct CountsDrop(Arc<Drops>);

/// The number of drops.
#[derive(Debug)]
pub struct Drops {
    drop_count: ModelledUsize,
    signal: Notify,
}

impl Drop for CountsDrop {
    fn drop(&mut self) {
        // Release: `wait` sees the writes before the drop.
        self.0.drop_count.fetch_add(1, Ordering::Release);
        self.0.signal.notify();
    }
}

impl Drops {
    /// Returns a value and the counter of its drop.
    pub fn with_counter() -> (CountsDrop, Arc<Self>) {
        let [drops, drops_of_value] =
            shared_clones(Self { drop_count: ModelledUsize::new(0), signal: Notify::new() });
        (CountsDrop(drops_of_value), drops)
    }

    /// Waits for a drop and returns the number of drops. Without a drop, loom reports a deadlock.
    pub fn wait(&self) -> usize {
        loop {
            let drop_count = self.drop_count.load(Ordering::Acquire);
            if drop_count > 0 {
                return drop_count;
            }
            self.signal.wait();
        }
    }
}

/// A task that checks, in each wake, that the waking thread sees the work stored before the poll.
#[derive(Debug, Default)]
pub struct Task {
    work: ModelledUsize,
    seen: ModelledUsize,
}

const SEEN_PER_WAKE: usize = 10;

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        // Relaxed: corewheel must order this load after the task's work. Release: as in an
        // executor, the next poll sees what the waking thread did before the wake.
        let work = self.work.load(Ordering::Relaxed);
        self.seen.fetch_add(SEEN_PER_WAKE + work, Ordering::Release);
    }
}

impl Task {
    /// Returns a task that has not been woken.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Stores the work, and polls the future with the waker of this task.
    pub fn poll<F: Future + Unpin>(self: &Arc<Self>, future: &mut F) -> Poll<F::Output> {
        // Relaxed: corewheel must order this store before the wake.
        self.work.store(1, Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(self));
        Pin::new(future).poll(&mut Context::from_waker(&waker))
    }

    /// Returns the number of wakes.
    pub fn wake_count(&self) -> usize {
        // Acquire: as in an executor, the caller sees the writes before the wake.
        let seen = self.seen.load(Ordering::Acquire);
        let woken = seen / SEEN_PER_WAKE;
        assert_eq!(seen % SEEN_PER_WAKE, woken, "a wake did not see the work before the poll");
        woken
    }
}

/// A task that sleeps until it is woken.
struct Sleeper(Notify);

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.0.notify();
    }
}

/// Polls until the sleep is ready, and waits between polls. After a lost wake, loom reports a
/// deadlock.
pub fn poll_until_ready(sleep: &mut Sleep<SharedWheel>) -> Result<(), AddErrorReason> {
    let [sleeper, woken] = shared_clones(Sleeper(Notify::new()));
    let waker = Waker::from(woken);
    loop {
        if let Poll::Ready(elapsed) = sleep.poll_elapsed(&mut Context::from_waker(&waker)) {
            return elapsed;
        }
        sleeper.0.wait();
    }
}
