//! How corewheel's models are explored, and how a model that explores nothing is noticed.
//!
//! The models themselves are in `tests/`, one file per family of races; they drive the library's public interface, so
//! what loom takes apart is the code that users run. Without `--cfg loom` this package is empty.
//!
//! What loom sees: every state word, mailbox link and head, the parker, the virtual clock. What it does not: the ledger of
//! shard numbers (`Mutex`), the middle tables of pages (`OnceLock`), and, but for the models of the feature `epoch`, the
//! pointers to pages and the epochs that keep pages and shards alive. What the tables and the pointers guarantee, `sync`
//! tells it.
#![cfg(loom)]

use std::{
    env,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use corewheel::{Config, ManualClock, Shard, TimerHandle, local_timer};
use loom::{sync::atomic::AtomicUsize as Modelled, thread};

static ALONE: Mutex<()> = Mutex::new(());

/// Explores every interleaving of `model` with up to three preemptions (`LOOM_MAX_PREEMPTIONS` says otherwise, and with
/// `COREWHEEL_LOOM_EXHAUSTIVE` there is no bound; its value is for how many minutes), prints how many there were, and fails below
/// `floor`: a model that loom cannot see into would pass after one. (A library that is broken on purpose must fail for what the model says:
/// with `COREWHEEL_LOOM_NO_FLOOR` there is no floor.)
///
/// # Panics
///
/// If the model fails, or explores too little.
pub fn explore(name: &str, floor: usize, model: impl Fn() + Send + Sync + 'static) {
    explore_within(3, name, floor, model);
}

/// For how long a model is explored without a bound, if it is.
fn exhaustive() -> Option<Duration> {
    let minutes = env::var("COREWHEEL_LOOM_EXHAUSTIVE").ok()?;
    Some(Duration::from_secs(
        60 * minutes.parse::<u64>().expect("COREWHEEL_LOOM_EXHAUSTIVE is a number of minutes"),
    ))
}

/// As [`explore`], with up to so many preemptions: for models that would take minutes with three.
///
/// # Panics
///
/// As [`explore`].
pub fn explore_within(
    preemptions: usize,
    name: &str,
    floor: usize,
    model: impl Fn() + Send + Sync + 'static,
) {
    // What is global and not loom's (the ledger of shard numbers, what epochs have given up) is to be the same in every
    // execution, so models run one at a time.
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // Now, because a model that fails in the owner of a thread-local timer may abort before the harness can say which.
    println!("{name} ...");
    let count = Arc::new(AtomicUsize::new(0));
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 100_000;
    let time = exhaustive();
    builder.max_duration = time;
    builder.checkpoint_interval = 1_000;
    builder.preemption_bound = match time {
        Some(_) => None,
        None => builder.preemption_bound.or(Some(preemptions)),
    };
    let (counted, start) = (Arc::clone(&count), Instant::now());
    builder.check(move || {
        // Relaxed: loom runs one execution at a time.
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let explored = count.load(Ordering::Relaxed);
    println!(
        "{name}: {explored} interleavings{}",
        match time {
            Some(time) if start.elapsed() >= time => ", and there are more",
            Some(_) => ", all there are",
            None => "",
        }
    );
    let floor = match time {
        _ if env::var_os("COREWHEEL_LOOM_NO_FLOOR").is_some() => 0,
        // Without a bound loom knows better which interleavings are the same, and needs fewer.
        Some(_) => 2,
        None => floor,
    };
    assert!(
        explored >= floor,
        "{name} explored {explored} interleavings, fewer than {floor}: is it blind?"
    );
}

/// The tick of the models.
pub const TICK: Duration = Duration::from_millis(1);

/// A shard in virtual time, and its clock.
///
/// # Panics
///
/// If there are too many shards.
#[must_use]
pub fn shard<T>() -> (Shard<T>, ManualClock) {
    let clock = ManualClock::new();
    (Shard::with_config(config(&clock)).expect("valid"), clock)
}

/// A shard in virtual time, its clock, and a timer `1` in a page of its own: when that has ended, the next turn retires its
/// page, because another one is empty already and one is kept. The third and the fourth timer added after that are in a new
/// page of its number, the fourth in its place; but the third is in that place if the page is still the old one.
///
/// One more timer is live, and far away.
///
/// # Panics
///
/// As [`shard`].
#[must_use]
pub fn shard_with_a_page_to_spare() -> (Shard<u32>, ManualClock, TimerHandle) {
    let (mut shard, clock) = shard();
    // Index 0 is never given out, and under loom a page has two.
    let [_stays, below, first, spare] = [1000, 1, 1, 1].map(|ticks| shard.add(TICK * ticks, 1));
    for other in [below, spare] {
        shard.cancel(other);
    }
    (shard, clock, first)
}

/// Adds four timers `2` that are due in a tick. Of the last, says whether it has the place of `first` in a new page; see
/// [`shard_with_a_page_to_spare`].
#[must_use]
pub fn add_four(shard: &mut Shard<u32>, first: TimerHandle) -> ([TimerHandle; 4], bool) {
    let added = [(); 4].map(|()| shard.add(TICK, 2));
    (added, place(added[3]) == place(first))
}

/// Shard and index of a timer, which only its `Debug` form tells.
#[must_use]
pub fn place(handle: TimerHandle) -> String {
    let name = format!("{handle:?}");
    name.split('#').next().unwrap_or_default().to_owned()
}

/// A configuration in virtual time.
pub fn config(clock: &ManualClock) -> Config {
    Config::new().tick(TICK).clock(clock)
}

/// Takes all that is due now out of a shard.
pub fn expired<T>(shard: &mut Shard<T>) -> Vec<T> {
    shard.turn();
    std::iter::from_fn(|| shard.next_expired()).map(|expired| expired.payload).collect()
}

/// Lets time pass tick by tick until the clock shows so many, and says at which ticks something expired.
pub fn expiries<T>(shard: &mut Shard<T>, clock: &ManualClock, until: u32) -> Vec<u32> {
    each_tick(clock, until, || expired(shard).len())
}

/// The same, of this thread's timer.
#[must_use]
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
///
/// # Panics
///
/// If the thread has one.
#[must_use]
pub fn local() -> ManualClock {
    let clock = ManualClock::new();
    config(&clock).install().expect("the thread has none");
    clock
}

/// Sets the stage for a race: what happens in here is not explored.
pub fn stage<R>(set: impl FnOnce() -> R) -> R {
    loom::stop_exploring();
    let stage = set();
    loom::explore();
    stage
}

/// Starts a thread that races with this one: loom tries for both what comes of it if they go first.
///
/// By itself it may not. Of the loads of an atomic loom remembers the last one, so it overlooks that a load here races with a
/// swap there if that thread loads, too, before it swaps, as a push to the mailbox does.
pub fn race<R: 'static>(act: impl FnOnce() -> R + 'static) -> thread::JoinHandle<R> {
    let started = Arc::new(Modelled::new(0));
    let other = Arc::clone(&started);
    // Relaxed, both: nothing is to be ordered.
    let thread = thread::spawn(move || {
        other.fetch_add(1, loom::sync::atomic::Ordering::Relaxed);
        act()
    });
    started.fetch_add(1, loom::sync::atomic::Ordering::Relaxed);
    thread
}

/// A thread that may unpark this one.
#[derive(Debug)]
pub struct Asker<R> {
    thread: thread::JoinHandle<R>,
    is_done: Arc<Modelled>,
}

/// Asks something that races with this thread; see [`race`].
pub fn asks<R: 'static>(ask: impl FnOnce() -> R + 'static) -> Asker<R> {
    let is_done = Arc::new(Modelled::new(0));
    let done = Arc::clone(&is_done);
    let thread = race(move || {
        let answer = ask();
        done.store(1, loom::sync::atomic::Ordering::Release);
        answer
    });
    Asker { thread, is_done }
}

impl<R> Asker<R> {
    /// What comes of it; see [`answers`].
    ///
    /// # Panics
    ///
    /// If the thread does.
    pub fn answer(self) -> R {
        let [answer] = answers([self]);
        answer
    }
}

/// What comes of them, when all have ended. What loom unparks must not be in a join, and any of them may unpark this thread when that is
/// awake already.
///
/// # Panics
///
/// If one of them does.
pub fn answers<R, const N: usize>(askers: [Asker<R>; N]) -> [R; N] {
    for asker in &askers {
        while asker.is_done.load(loom::sync::atomic::Ordering::Acquire) == 0 {
            thread::yield_now();
        }
    }
    askers.map(|asker| asker.thread.join().expect("it does not panic"))
}

/// Does something on another thread, and waits until it is done.
///
/// # Panics
///
/// If that thread does.
pub fn elsewhere<R: Send + 'static>(act: impl FnOnce() -> R + Send + 'static) -> R {
    thread::spawn(act).join().expect("it does not panic")
}

/// A payload whose destructor notes what it saw of another thread's work: `work` plus 10, so that nothing is not 0.
///
/// All accesses are relaxed: what orders them is what the models are about.
#[derive(Debug)]
pub struct SeesOnDrop {
    work: Arc<Modelled>,
    seen: Arc<Modelled>,
}

impl SeesOnDrop {
    /// The payload, the work it will look at, and where it notes what it saw.
    #[must_use]
    pub fn watched() -> (Self, Arc<Modelled>, Arc<Modelled>) {
        let [work, seen] = [(); 2].map(|()| Arc::new(Modelled::new(0)));
        (Self { work: Arc::clone(&work), seen: Arc::clone(&seen) }, work, seen)
    }
}

impl Drop for SeesOnDrop {
    fn drop(&mut self) {
        let seen = self.work.load(loom::sync::atomic::Ordering::Relaxed) + 10;
        self.seen.store(seen, loom::sync::atomic::Ordering::Relaxed);
    }
}

/// Tells when it is dropped.
#[derive(Debug)]
pub struct Dropped(Arc<Drops>);

/// How often something was dropped.
#[derive(Debug, Default)]
pub struct Drops {
    times: loom::sync::Mutex<usize>,
    told: loom::sync::Condvar,
}

impl Drop for Dropped {
    fn drop(&mut self) {
        *self.0.times.lock().expect("nobody panics with it") += 1;
        self.0.told.notify_one();
    }
}

impl Drops {
    /// What tells it, and who is told.
    #[must_use]
    pub fn watched() -> (Dropped, Arc<Self>) {
        let drops = Arc::new(Self::default());
        (Dropped(Arc::clone(&drops)), drops)
    }

    /// Waits until it is dropped, and says how often: loom calls it a deadlock if that never happens.
    ///
    /// # Panics
    ///
    /// If another thread has panicked.
    pub fn wait(&self) -> usize {
        let mut times = self.times.lock().expect("nobody panics with it");
        while *times == 0 {
            times = self.told.wait(times).expect("as above");
        }
        *times
    }
}
