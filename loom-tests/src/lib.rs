//! Explores corewheel's models, and notices a model that explores nothing.
//!
//! The models are in `tests/`, one file per family of races. They drive the library's public
//! interface, so loom explores the code that users run. Without `--cfg loom` this package is empty.
//!
//! Loom sees every state word, mailbox link and head, the parker, and the virtual clock. It does
//! not see the ledger of shard numbers (`Mutex`). Without the feature `epoch` it does not see the
//! pointers to pages, nor the epochs that keep pages and shards alive. `sync` models the guarantees
//! of these pointers.
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
    AddErrorReason, Cancel, Config, Counts, ManualClock, Shard, ShardRef, TimerHandle,
    future::{Remote, Sleep},
    local_timer,
};
use loom::{
    sync::{Notify, atomic::AtomicUsize as Modelled},
    thread,
};

static ALONE: Mutex<()> = Mutex::new(());

/// Explores every interleaving of `model` with up to three preemptions, prints their number and
/// fails below `floor`: loom explores a single interleaving of a model that it cannot see into.
///
/// `LOOM_MAX_PREEMPTIONS` overrides the bound. `COREWHEEL_LOOM_EXHAUSTIVE` removes it and limits
/// each model to its value in minutes. `COREWHEEL_LOOM_NO_FLOOR` disables the floor: a planted
/// fault must fail an assertion of the model.
pub fn explore<M: Fn() + Send + Sync + 'static>(floor: usize, model: M) {
    explore_within(3, floor, model);
}

/// Explores every interleaving of `model` with up to `preemptions` preemptions; see [`explore`].
/// For models that take minutes with three.
pub fn explore_within<M: Fn() + Send + Sync + 'static>(preemptions: usize, floor: usize, model: M) {
    // The type of a closure ends with the path of its function, which is the test. The thread's
    // name would be wrong: with one thread the harness runs tests on its main thread.
    let name = std::any::type_name::<M>().trim_end_matches("::{{closure}}");
    let name = name.rsplit("::").next().unwrap_or(name);
    // Shard numbers and epoch garbage are global and outside of loom. They must be equal in every
    // execution, so models run one at a time.
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // A model that fails in the owner of a thread-local timer may abort before the harness prints
    // its name.
    println!("{name} ...");
    let minutes = env::var("COREWHEEL_LOOM_EXHAUSTIVE").ok();
    let minutes = minutes.map(|minutes| minutes.parse::<u64>().expect("a number of minutes"));
    let time = minutes.map(|minutes| Duration::from_secs(60 * minutes));
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 100_000;
    builder.max_duration = time;
    builder.checkpoint_interval = 1_000;
    builder.preemption_bound = match time {
        Some(_) => None,
        None => builder.preemption_bound.or(Some(preemptions)),
    };
    let ([count, counted], start) = (shared(AtomicUsize::new(0)), Instant::now());
    builder.check(move || {
        // Relaxed: loom runs one execution at a time.
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let explored = count.load(Ordering::Relaxed);
    let (rest, floor) = match time {
        Some(time) if start.elapsed() >= time => (", and there are more", 2),
        // Without a bound loom recognizes more interleavings as equal, and needs fewer.
        Some(_) => (", all there are", 2),
        None => ("", floor),
    };
    println!("{name}: {explored} interleavings{rest} in {:.1?}", start.elapsed());
    assert!(
        explored >= floor || env::var_os("COREWHEEL_LOOM_NO_FLOOR").is_some(),
        "{name} explored {explored} interleavings, fewer than {floor}: is it blind?"
    );
}

/// Returns references to a value that the threads of a model share.
pub fn shared<T, const N: usize>(value: T) -> [Arc<T>; N] {
    let value = Arc::new(value);
    [(); N].map(|()| Arc::clone(&value))
}

/// The tick of the models.
pub const TICK: Duration = Duration::from_millis(1);

/// Returns a shard in virtual time and its clock.
pub fn shard<T>() -> (Shard<T>, ManualClock) {
    let clock = ManualClock::new();
    (Shard::with_config(config(&clock)).expect("valid"), clock)
}

/// A shard in virtual time, its clock and a timer.
pub type WithTimer<T> = (Shard<T>, ManualClock, TimerHandle);

/// Returns a shard whose only timer is due in a number of ticks.
pub fn shard_with<T>(ticks: u32, payload: T) -> WithTimer<T> {
    let (mut shard, clock) = shard();
    let handle = shard.add(TICK * ticks, payload);
    (shard, clock, handle)
}

/// Returns a shard whose only timer is due.
pub fn shard_with_due<T>(payload: T) -> WithTimer<T> {
    let (shard, clock, handle) = shard_with(1, payload);
    clock.advance(TICK);
    (shard, clock, handle)
}

/// Asserts that `added` timers were added and that all of them have ended, without a queued
/// message.
pub fn assert_all_ended(counts: &Counts, added: u64) {
    let Counts { live, fired, cancelled, held, queued, panicked, .. } = *counts;
    assert_eq!((counts.added, fired + cancelled), (added, added), "{counts:?}");
    assert_eq!((live, held, queued, panicked), (0, 0, 0, 0), "{counts:?}");
}

/// Returns a shard in virtual time, its clock, and a timer `1` that is alone in its page. When that
/// timer has ended, its page is retired, because another page is empty already and one is kept. The
/// fourth timer added after that is in a new page with the same number, and has the timer's
/// position there. While the old page is still in use, the first one has it.
pub fn shard_with_a_page_to_spare() -> WithTimer<u32> {
    let (mut shard, clock) = shard();
    // Index 0 is never given out. Under loom a page has two, and one empty page stays.
    let [others @ .., first] = [(); 4].map(|()| shard.add(TICK, 1));
    for other in others {
        shard.cancel(other);
    }
    (shard, clock, first)
}

/// Fires `first` unless another thread ends or moves it, retires its page, and adds four timers.
/// Returns whether it has fired, and those timers. See [`shard_with_a_page_to_spare`].
pub fn fire_and_add_four(shard: &mut Shard<u32>, first: TimerHandle) -> (bool, [TimerHandle; 4]) {
    let fired = expired(shard);
    (0..2).for_each(|_| shard.turn());
    let (added, in_a_new_page) = add_four(shard, first);
    assert!(in_a_new_page || fired.is_empty(), "the page is empty if its timer has fired");
    (!fired.is_empty(), added)
}

/// Adds four timers `2` that are due in a tick. Also returns whether the fourth has the position of
/// `first` in a new page; see [`shard_with_a_page_to_spare`].
pub fn add_four(shard: &mut Shard<u32>, first: TimerHandle) -> ([TimerHandle; 4], bool) {
    let added = [(); 4].map(|()| shard.add(TICK, 2));
    (added, place(added[3]) == place(first))
}

/// Shard and index of a timer, which only its `Debug` form tells.
pub fn place(handle: TimerHandle) -> String {
    let name = format!("{handle:?}");
    name.split('#').next().unwrap_or_default().to_owned()
}

/// A configuration in virtual time.
pub fn config(clock: &ManualClock) -> Config {
    Config::new().tick(TICK).clock(clock)
}

/// Turns the shard and returns the payloads of the expired timers.
pub fn expired<T>(shard: &mut Shard<T>) -> Vec<T> {
    shard.turn();
    std::iter::from_fn(|| shard.next_expired()).map(|expired| expired.payload).collect()
}

/// Advances the clock tick by tick up to `until` ticks. Returns the ticks of the expired timers.
pub fn expiries<T>(shard: &mut Shard<T>, clock: &ManualClock, until: u32) -> Vec<u32> {
    each_tick(clock, until, || expired(shard).len())
}

/// Advances the clock tick by tick and turns this thread's wheel. Returns the ticks of the runs.
pub fn runs(clock: &ManualClock, until: u32) -> Vec<u32> {
    each_tick(clock, until, || local_timer().turn().fired)
}

fn each_tick(clock: &ManualClock, until: u32, mut fired: impl FnMut() -> usize) -> Vec<u32> {
    let now = || u32::try_from(clock.elapsed().as_millis()).unwrap_or(u32::MAX);
    let mut ticks = Vec::new();
    loop {
        ticks.extend(std::iter::repeat_n(now(), fired()));
        if now() >= until {
            return ticks;
        }
        clock.advance(TICK);
    }
}

/// This thread's timer in virtual time, and its clock.
pub fn local() -> ManualClock {
    core().0
}

/// Installs this thread's timer in virtual time; returns its clock and a reference to it.
pub fn core() -> (ManualClock, ShardRef) {
    core_with(|config| config)
}

/// Installs this thread's timer in virtual time with more settings; see [`core`].
pub fn core_with(settings: impl FnOnce(Config) -> Config) -> (ManualClock, ShardRef) {
    let clock = ManualClock::new();
    settings(config(&clock)).install().expect("the thread has none");
    (clock, local_timer().shard_ref())
}

/// Lets a tick pass and turns this thread's wheel. Returns the number of callbacks that ran.
pub fn turn_after_a_tick(clock: &ManualClock) -> usize {
    clock.advance(TICK);
    local_timer().turn().fired
}

/// Adds a timer to `core` on another thread, and waits for that thread.
pub fn add_elsewhere(
    core: &ShardRef,
    delay: Duration,
    callback: impl FnOnce() + Send + 'static,
) -> TimerHandle {
    let core = core.clone();
    elsewhere(move || core.add(delay, callback))
}

/// Prepares a race. Loom does not explore the interleavings in here.
pub fn stage<R>(set: impl FnOnce() -> R) -> R {
    loom::stop_exploring();
    let stage = set();
    loom::explore();
    stage
}

/// Starts a thread that races with this one. Loom tries both orders of their first steps.
///
/// Without these first steps, loom may miss an order. Of the loads of an atomic, loom remembers
/// only the last one. It overlooks a race between a load here and a swap there if that thread loads
/// before it swaps, as a push to the mailbox does.
pub fn race<R: 'static>(act: impl FnOnce() -> R + 'static) -> thread::JoinHandle<R> {
    let [started, other] = shared(Modelled::new(0));
    // Relaxed, both: nothing is to be ordered.
    let thread = thread::spawn(move || {
        other.fetch_add(1, Ordering::Relaxed);
        act()
    });
    started.fetch_add(1, Ordering::Relaxed);
    thread
}

/// A thread that may unpark this one.
#[derive(Debug)]
pub struct Asker<R> {
    thread: thread::JoinHandle<R>,
    is_done: Arc<Modelled>,
}

/// Starts a thread whose request races with this thread; see [`race`].
pub fn asks<R: 'static>(ask: impl FnOnce() -> R + 'static) -> Asker<R> {
    let [is_done, done] = shared(Modelled::new(0));
    let thread = race(move || {
        let answer = ask();
        done.store(1, Ordering::Release);
        answer
    });
    Asker { thread, is_done }
}

impl<R> Asker<R> {
    /// Returns the result of the thread; see [`answers`].
    pub fn answer(self) -> R {
        let [answer] = answers([self]);
        answer
    }
}

/// Returns the results of the threads when all have ended. In loom, an unparked thread must not be
/// in a join, and each of them may unpark this thread when it is awake already.
pub fn answers<R, const N: usize>(askers: [Asker<R>; N]) -> [R; N] {
    for asker in &askers {
        while asker.is_done.load(Ordering::Acquire) == 0 {
            thread::yield_now();
        }
    }
    askers.map(|asker| asker.thread.join().expect("it does not panic"))
}

/// Calls `act` on another thread and waits for its result.
pub fn elsewhere<R: Send + 'static>(act: impl FnOnce() -> R + Send + 'static) -> R {
    thread::spawn(act).join().expect("it does not panic")
}

/// A payload whose destructor stores the work it saw of another thread: `work` plus 10, so that a
/// zero means no drop.
///
/// All accesses are relaxed: the models examine the ordering of these accesses.
#[derive(Debug)]
pub struct SeesOnDrop {
    work: Arc<Modelled>,
    seen: Arc<Modelled>,
}

impl SeesOnDrop {
    /// Returns the payload, the work it reads, and the variable that it stores the work in.
    pub fn watched() -> (Self, Arc<Modelled>, Arc<Modelled>) {
        let [work, seen] = [(); 2].map(|()| Arc::new(Modelled::new(0)));
        (Self { work: Arc::clone(&work), seen: Arc::clone(&seen) }, work, seen)
    }
}

/// Sets `work` and cancels the timer, in the role of another thread.
pub fn work_and_cancel(work: &Modelled, handle: TimerHandle) -> Cancel {
    work.store(1, Ordering::Relaxed);
    handle.cancel()
}

impl Drop for SeesOnDrop {
    fn drop(&mut self) {
        let seen = self.work.load(Ordering::Relaxed) + 10;
        self.seen.store(seen, Ordering::Relaxed);
    }
}

/// Counts its drop.
#[derive(Debug)]
pub struct Dropped(Arc<Drops>);

/// The number of drops.
#[derive(Debug)]
pub struct Drops {
    times: Modelled,
    told: Notify,
}

impl Drop for Dropped {
    fn drop(&mut self) {
        // Release: `wait` sees what came before the drop.
        self.0.times.fetch_add(1, Ordering::Release);
        self.0.told.notify();
    }
}

impl Drops {
    /// Returns a value and the counter of its drop.
    pub fn watched() -> (Dropped, Arc<Self>) {
        let [drops, held] = shared(Self { times: Modelled::new(0), told: Notify::new() });
        (Dropped(held), drops)
    }

    /// Waits for the drop and returns the number of drops. Loom reports a deadlock if it never
    /// happens.
    pub fn wait(&self) -> usize {
        loop {
            let times = self.times.load(Ordering::Acquire);
            if times > 0 {
                return times;
            }
            self.told.wait();
        }
    }
}

/// A task: the work before its poll, and the work that its wakes have seen.
#[derive(Debug, Default)]
pub struct Task {
    work: Modelled,
    seen: Modelled,
}

const WORK: usize = 10;

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        // Relaxed: the models examine what orders it after the task's work. Release: in an
        // executor, the thread that polls because of a wake sees the work before that wake.
        let work = self.work.load(Ordering::Relaxed);
        self.seen.fetch_add(WORK + work, Ordering::Release);
    }
}

impl Task {
    /// Returns a task that has not been woken.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Works, and polls the future with the waker of this task.
    pub fn poll<F: Future + Unpin>(self: &Arc<Self>, future: &mut F) -> Poll<F::Output> {
        // Relaxed: the models examine what orders the work.
        self.work.store(1, Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(self));
        Pin::new(future).poll(&mut Context::from_waker(&waker))
    }

    /// Returns the number of wakes.
    pub fn woken(&self) -> usize {
        // Acquire: an executor acquires the wake in this way.
        let seen = self.seen.load(Ordering::Acquire);
        let woken = seen / WORK;
        assert_eq!(seen % WORK, woken, "a wake has not seen what came before the poll");
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

/// Polls until the sleep is ready, and waits between polls. Loom reports a deadlock if a wake is
/// lost.
pub fn wait_for(sleep: &mut Sleep<Remote>) -> Result<(), AddErrorReason> {
    let [sleeper, woken] = shared(Sleeper(Notify::new()));
    let waker = Waker::from(woken);
    loop {
        if let Poll::Ready(elapsed) = sleep.poll_elapsed(&mut Context::from_waker(&waker)) {
            return elapsed;
        }
        sleeper.0.wait();
    }
}
