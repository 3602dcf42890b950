//! The bugs that other timer systems have shipped, each as a test of corewheel. `doc/history.md`
//! lists all of them under the same numbers, and says of those without a test here why they cannot
//! happen.
//!
//! A test's name says what went wrong, its comment in which system. All but a few run in virtual
//! time. A failed assertion in a callback is caught like any panic (P6), so `on_a_core` checks the
//! count of panics at the end.
#![cfg(feature = "std")]
#![allow(clippy::unchecked_time_subtraction, reason = "a test that underflows fails")]

#[path = "../common/mod.rs"]
mod common;

mod batch;
mod cancel;
mod end;
mod ours;
mod purgatory;
mod sleep;
mod wheel;

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use common::{
    HOUR, TICK, TOO_LONG, cancel_elsewhere, expired, in_virtual_time, never, on_a_thread,
    turn_after,
};
use corewheel::{
    Cancel, Config, Counts, ManualClock, Shard, ShardRef, TimerHandle, Wheel, local_timer,
};

/// The smallest wheel there is: two slots a revolution, 64 revolutions in the first level.
type Tiny<T> = Wheel<T, 1, 64>;

/// Slots of its first level.
const RING: u64 = 128;

/// Cancelled timers that wake a sleeping owner (P8).
const DEBT: usize = 1024;

// ---- time and turns

/// Runs `test` on a thread whose timer counts virtual time. In the end its counts add up, and
/// nothing has panicked.
fn on_a_core<R: Send>(test: impl FnOnce(&ManualClock) -> R + Send) -> R {
    in_virtual_time(|clock| {
        let result = test(clock);
        assert_sound(local_timer().counts());
        result
    })
}

/// The counts add up (P2), and no callback has failed an assertion.
fn assert_sound(counts: Counts) {
    assert_eq!(
        counts.added,
        counts.live + counts.fired + counts.cancelled + counts.handed_back,
        "{counts:?}"
    );
    assert_eq!(counts.panicked, 0, "a callback has panicked");
}

/// A shard in virtual time.
fn shard<T>(clock: &ManualClock) -> Shard<T> {
    Shard::with_config(Config::new().tick(TICK).clock(clock)).expect("valid")
}

/// Goes on tick by tick up to `end`. Each value, which is its own deadline, fires at exactly that;
/// how many did.
fn fire_tick_by_tick<const BITS: u32, const LEVELS: usize>(
    wheel: &mut Wheel<u64, BITS, LEVELS>,
    end: u64,
) -> usize {
    let mut fired = 0;
    for now in wheel.now()..=end {
        for (deadline, value) in wheel.advance(now) {
            assert_eq!((deadline, value), (now, now), "deadline and value of what fires at {now}");
            fired += 1;
        }
    }
    fired
}

/// Returns the first timers, and their tick, that a sleeper sees which wakes whenever the wheel
/// wants to be advanced.
fn first_to_fire<T, const BITS: u32, const LEVELS: usize>(
    wheel: &mut Wheel<T, BITS, LEVELS>,
) -> (u64, T) {
    for _ in 0..1_000 {
        let next = wheel.next_deadline().expect("an entry is live");
        if let Some((deadline, value)) = wheel.advance(next).next() {
            assert_eq!(deadline, next, "it fires when it is due");
            return (deadline, value);
        }
    }
    panic!("woken a thousand times for nothing");
}

/// Runs `test` on a new thread; fails if it hangs.
fn ends_soon(test: impl FnOnce() + Send + 'static) {
    let (end, ended) = mpsc::channel();
    let thread = thread::spawn(move || {
        test();
        end.send(()).expect("somebody waits");
    });
    assert_ne!(ended.recv_timeout(TOO_LONG), Err(mpsc::RecvTimeoutError::Timeout), "it hangs");
    thread.join().expect("no assertion failed");
}

// ---- callbacks and handles

/// A counter, and a callback that counts its runs.
fn counter() -> (Rc<Cell<u32>>, impl Fn() + Clone + 'static) {
    let runs = Rc::new(Cell::new(0));
    let counting = Rc::clone(&runs);
    (runs, move || counting.set(counting.get() + 1))
}

/// The two ways to cancel.
const CANCELS: [fn(TimerHandle) -> Cancel; 2] = [TimerHandle::cancel, cancel_elsewhere];

/// The two ways to reset.
const RESETS: [fn(TimerHandle, Duration) -> bool; 2] = [TimerHandle::reset, reset_elsewhere];

fn reset_elsewhere(handle: TimerHandle, delay: Duration) -> bool {
    on_a_thread(|| handle.reset(delay))
}

fn add_elsewhere(
    to: &ShardRef,
    delay: Duration,
    callback: impl FnOnce() + Send + 'static,
) -> TimerHandle {
    on_a_thread(|| to.add(delay, callback))
}

/// A callback for any core that counts its runs.
fn counts(runs: &Arc<AtomicUsize>) -> impl FnOnce() + Send + 'static {
    let runs = Arc::clone(runs);
    move || _ = runs.fetch_add(1, Ordering::SeqCst)
}

/// A remote request may need a turn to be consumed.
fn turn_twice() -> usize {
    local_timer().turn().fired + local_timer().turn().fired
}

/// Adds `timers` timers that are due in a tick and whose callbacks count their drops in `drops`.
/// The first that runs calls `act` with the handles of all that are pending, the others with none.
fn add_batch(timers: usize, drops: &Drops, act: impl Fn(Vec<TimerHandle>) + Clone + 'static) {
    let handles = Rc::new(RefCell::new(Vec::<TimerHandle>::new()));
    for _ in 0..timers {
        let (all, act, held) = (Rc::clone(&handles), act.clone(), drops.one());
        let handle = local_timer().add(TICK, move || {
            let _held = held;
            act(all.take().into_iter().filter(|other| other.is_pending()).collect());
        });
        handles.borrow_mut().push(handle);
    }
}

/// Adds `timers` timers that are due in a tick, of which the first that runs cancels all others.
fn add_batch_that_is_cancelled(timers: usize, cancel: fn(TimerHandle) -> Cancel) -> Drops {
    let drops = Drops::default();
    add_batch(timers, &drops, move |others| {
        assert_eq!(others.len(), timers - 1);
        assert!(others.into_iter().all(|other| cancel(other) == Cancel::Cancelled));
        assert_sound(local_timer().counts());
    });
    drops
}

/// Counts its drops.
#[derive(Clone, Default)]
struct Drops(Arc<AtomicUsize>);

impl Drops {
    /// One that counts when it is dropped.
    fn one(&self) -> CountsDrop {
        CountsDrop(Arc::clone(&self.0))
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// From [`Drops::one`].
struct CountsDrop(Arc<AtomicUsize>);

impl Drop for CountsDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

// ---- sleepers

/// How often a wake hook was called.
#[derive(Clone, Default)]
struct Wakes(Arc<AtomicUsize>);

impl Wakes {
    /// Since the last time it was asked.
    fn take(&self) -> usize {
        self.0.swap(0, Ordering::SeqCst)
    }

    /// A configuration in virtual time whose hook counts here.
    fn config(&self, clock: &ManualClock) -> Config {
        let wakes = Arc::clone(&self.0);
        Config::new()
            .tick(TICK)
            .clock(clock)
            .on_wake(move || _ = wakes.fetch_add(1, Ordering::SeqCst))
    }
}

/// Runs `on_a_core` with a wake hook that counts.
fn on_a_core_that_sleeps(test: impl FnOnce(&ManualClock, &Wakes) + Send) {
    let (clock, wakes) = (ManualClock::new(), Wakes::default());
    let config = wakes.config(&clock);
    on_a_thread(|| {
        config.install().expect("a fresh thread");
        test(&clock, &wakes);
        assert_sound(local_timer().counts());
    });
}

/// Timers that are far away, and that a sleeping owner is woken for when all of them are cancelled.
fn add_debt() -> Vec<TimerHandle> {
    (0..DEBT).map(|_| local_timer().add(HOUR, never)).collect()
}

/// Not on a scoped thread, because waiting for one would use up the token of `unpark`.
fn cancel_on_a_thread(handles: Vec<TimerHandle>) -> JoinHandle<()> {
    thread::spawn(move || {
        assert!(handles.into_iter().all(|handle| handle.cancel() == Cancel::Cancelled));
    })
}
