//! Threads add, cancel and reset each other's timers at random, on real clocks. No timer may fire
//! early, each timer must end exactly once, each cancel must return the true result, and no wake-up
//! may be missed.
#![cfg(all(feature = "std", not(miri)))]

mod common;

use std::{
    cell::Cell,
    io::{self, Write},
    panic, process,
    sync::{
        Arc, Condvar, LazyLock, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use common::{nanos, scaled, wait_until};
use corewheel::{Cancel, Clock, Config, ShardRef, TimerHandle, When, local_timer};

const OWNERS: usize = 3;

/// Many timers have this delay, so an owner that misses a wake-up sleeps long. The test cancels
/// these timers at its end.
const LONG_DELAY: Duration = Duration::from_secs(100);

/// How long the threads of a round operate before they only wait for their timers, so that no later
/// request hides a missed wake-up.
const OPERATING_TIME: Duration = Duration::from_millis(60);

/// A timer that is this late has missed its wake-up.
const LATENESS_MAX_NANOS: u64 = 2_000_000_000;

/// The upper bound of slack, spread and tick.
const SLACK_MAX_NANOS: u64 = 10_000_000;

static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

thread_local! {
    static HAS_WHEEL: Cell<bool> = const { Cell::new(false) };
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

fn now_nanos() -> u64 {
    nanos(ORIGIN.elapsed())
}

fn random_delay() -> Duration {
    match fastrand::u8(..8) {
        0 => Duration::ZERO,
        1 => Duration::from_nanos(fastrand::u64(..2_000)),
        2 | 3 => Duration::from_micros(fastrand::u64(..3_000)),
        4 | 5 => Duration::from_millis(fastrand::u64(..40)),
        _ => LONG_DELAY,
    }
}

struct Timer {
    added: u64,
    /// `None` for a one-shot timer.
    period: Option<u64>,
    /// The earliest deadline that was requested so far.
    earliest_deadline: AtomicU64,
    /// The latest requested deadline, plus `SLACK_MAX_NANOS`.
    latest_firing: AtomicU64,
    was_reset: AtomicBool,
    handle: OnceLock<TimerHandle>,
    is_running: AtomicBool,
    runs: AtomicU32,
    /// The number of calls that returned [`Cancel::Cancelled`].
    cancels: AtomicU32,
    /// True if a cancel made the current run of this periodic timer its last.
    was_stopped: AtomicBool,
    drops: AtomicU32,
}

struct Captures(Arc<Timer>);

impl Captures {
    fn run(&self, round: &Arc<Round>) {
        self.0.run(round);
    }
}

impl Drop for Captures {
    fn drop(&mut self) {
        self.0.drops.fetch_add(1, SeqCst);
    }
}

impl Timer {
    fn new(delay: Duration, is_periodic: bool) -> Arc<Self> {
        let (added, delay) = (now_nanos(), nanos(delay));
        Arc::new(Self {
            added,
            period: is_periodic.then_some(delay),
            earliest_deadline: (added + delay).into(),
            latest_firing: (added + delay + SLACK_MAX_NANOS).into(),
            was_reset: false.into(),
            handle: OnceLock::new(),
            is_running: false.into(),
            runs: 0.into(),
            cancels: 0.into(),
            was_stopped: false.into(),
            drops: 0.into(),
        })
    }

    fn has_ended(&self) -> bool {
        self.end_count() > 0
    }

    fn end_count(&self) -> u32 {
        let last_run = match self.period {
            Some(_) => self.was_stopped.load(SeqCst).into(),
            None => self.runs.load(SeqCst),
        };
        last_run + self.cancels.load(SeqCst)
    }

    fn run(&self, round: &Arc<Round>) {
        let now = now_nanos();
        assert!(!self.is_running.swap(true, SeqCst), "two runs at once");
        let runs = self.runs.fetch_add(1, SeqCst) + 1;
        assert_eq!(self.cancels.load(SeqCst), 0, "a run after a cancel");
        assert!(runs == 1 || self.period.is_some(), "fired twice");
        if runs == 1 {
            let (earliest_deadline, latest_firing) =
                (self.earliest_deadline.load(SeqCst), self.latest_firing.load(SeqCst));
            assert!(now >= earliest_deadline, "early by {} ns", earliest_deadline - now);
            assert!(now < latest_firing + LATENESS_MAX_NANOS, "late by {} ns", now - latest_firing);
        }
        if let Some(period) = self.period.filter(|_| !self.was_reset.load(SeqCst)) {
            assert!(now >= self.added + period * u64::from(runs), "run {runs} is early");
        }
        if fastrand::u8(..3) == 0 && !IN_CALLBACK.replace(true) {
            round.random_operation();
            match fastrand::u8(..8) {
                0 => self.reset(),
                1 => self.cancel(),
                _ => (),
            }
            IN_CALLBACK.set(false);
        }
        self.is_running.store(false, SeqCst);
    }

    fn reset(&self) {
        let Some(handle) = self.handle.get() else { return };
        let (delay, deadline) = (random_delay(), now_nanos());
        let deadline = deadline + nanos(delay);
        self.was_reset.store(true, SeqCst);
        self.earliest_deadline.fetch_min(deadline, SeqCst);
        self.latest_firing.fetch_max(deadline + SLACK_MAX_NANOS, SeqCst);
        let _ = match fastrand::u8(..4) {
            0 => handle.reset(When::at(*ORIGIN + Duration::from_nanos(deadline))),
            1 => handle
                .reset(When::after(delay).slack(Duration::from_micros(fastrand::u64(..9_000)))),
            2 => handle
                .reset(When::after(delay).spread(Duration::from_micros(fastrand::u64(..9_000)))),
            _ => handle.reset(delay),
        };
    }

    fn cancel(&self) {
        let Some(handle) = self.handle.get() else { return };
        let had_ended = self.has_ended();
        let uses_cancel_wait = fastrand::u8(..2) == 0;
        let (answer, has_waited) = match uses_cancel_wait.then(|| handle.cancel_wait()) {
            Some(Ok(answer)) => (answer, true),
            _ => (handle.cancel(), false),
        };
        assert!(!had_ended || answer != Cancel::Cancelled, "cancelled after its end");
        if answer == Cancel::Cancelled {
            assert_eq!(self.cancels.fetch_add(1, SeqCst), 0, "cancelled twice");
        }
        if answer == Cancel::Running && self.period.is_some() {
            self.was_stopped.store(true, SeqCst);
        }
        if has_waited || answer == Cancel::Cancelled {
            assert!(!self.is_running.load(SeqCst), "running after the wait");
        }
    }
}

/// A set of threads whose timers all end before the next round.
#[derive(Default)]
struct Round {
    timers: Mutex<Vec<Arc<Timer>>>,
    shards: Mutex<Vec<ShardRef>>,
    operations_in_progress: AtomicU32,
    is_closing: AtomicBool,
    have_all_ended: AtomicBool,
}

impl Round {
    /// Adds, resets or cancels a random timer, unless the round is closing.
    fn random_operation(self: &Arc<Self>) {
        self.operations_in_progress.fetch_add(1, SeqCst);
        if !self.is_closing.load(SeqCst) {
            match fastrand::u8(..4) {
                0 if HAS_WHEEL.get() => self.add_to_own_wheel(),
                0 | 1 => self.add_to_random_wheel(),
                2 => _ = self.recent_timer().map(|timer| timer.cancel()),
                _ => _ = self.recent_timer().map(|timer| timer.reset()),
            }
        }
        self.operations_in_progress.fetch_sub(1, SeqCst);
    }

    fn recent_timer(&self) -> Option<Arc<Timer>> {
        let timers = self.timers.lock().unwrap();
        let distance = fastrand::usize(..200);
        timers.get(timers.len().checked_sub(distance + 1)?).cloned()
    }

    /// Adds a timer by `add`, which returns `None` if the wheel is full.
    fn add(
        self: &Arc<Self>,
        add: impl FnOnce(Duration, Option<Duration>, Captures) -> Option<TimerHandle>,
    ) {
        let delay = random_delay();
        let period = (fastrand::u8(..8) == 0).then(|| delay.max(Duration::from_millis(1)));
        let timer = Timer::new(period.unwrap_or(delay), period.is_some());
        if let Some(handle) = add(delay, period, Captures(Arc::clone(&timer))) {
            timer.handle.set(handle).expect("added once");
            self.timers.lock().unwrap().push(timer);
        }
    }

    fn add_to_own_wheel(self: &Arc<Self>) {
        let round = Arc::clone(self);
        self.add(|delay, period, timer| match period {
            Some(period) => local_timer().try_add_periodic(period, move || timer.run(&round)).ok(),
            None => local_timer().try_add(delay, move || timer.run(&round)).ok(),
        });
    }

    fn add_to_random_wheel(self: &Arc<Self>) {
        let (round, shard) = (Arc::clone(self), {
            let shards = self.shards.lock().unwrap();
            shards[fastrand::usize(..shards.len())].clone()
        });
        self.add(|delay, period, timer| match period {
            Some(period) => shard.try_add_periodic(period, move || timer.run(&round)).ok(),
            None => shard.try_add(delay, move || timer.run(&round)).ok(),
        });
    }

    /// Drives a wheel with a random configuration, in a random way, until all timers have ended.
    fn drive_wheel(self: &Arc<Self>, seed: u64) {
        fastrand::seed(seed);
        HAS_WHEEL.set(true);
        let clock = fastrand::choice([Clock::monotonic, Clock::boot_time, Clock::fast]).unwrap();
        let tick = Duration::from_micros(fastrand::choice([1, 37, 1_000]).unwrap());
        let mut config = Config::new().clock(clock()).tick(tick);
        if fastrand::u8(..3) == 0 {
            config = config.limit(fastrand::usize(20..80));
        }
        let signal = Arc::new((Mutex::new(false), Condvar::new()));
        let has_hook = fastrand::u8(..2) == 0;
        if has_hook {
            let signal = Arc::clone(&signal);
            config = config.wake_hook(move || {
                *signal.0.lock().unwrap() = true;
                signal.1.notify_one();
            });
        }
        config.install().expect("a new thread");
        self.shards.lock().unwrap().push(local_timer().shard_ref());
        let sleep_method = fastrand::u8(..3);
        while !self.have_all_ended.load(SeqCst) {
            for _ in 0..fastrand::u64(..4) {
                self.random_operation();
            }
            match sleep_method {
                _ if has_hook => local_timer().sleep_with(|timeout| {
                    let (lock, condvar) = &*signal;
                    let timeout = timeout.unwrap_or(Duration::MAX);
                    let is_unset = |is_set: &mut bool| !*is_set;
                    let guard = lock.lock().unwrap();
                    *condvar.wait_timeout_while(guard, timeout, is_unset).unwrap().0 = false;
                }),
                0 => local_timer().prepare_sleep().park(),
                1 => thread::yield_now(),
                _ => local_timer()
                    .run_until(|| fastrand::u8(..3) == 0 || self.have_all_ended.load(SeqCst)),
            }
            local_timer().turn_within(if sleep_method == 0 { 5 } else { usize::MAX });
        }
        // Collects the timers that were cancelled during the last turn.
        while local_timer().turn().behind {}
        let counts = local_timer().counts();
        let ended = counts.fired + counts.cancelled;
        assert_eq!((counts.live, counts.added), (0, ended), "{counts:?}");
    }
}

/// Ends the process at the first panic, because the library catches panics of callbacks, and other
/// threads may wait for a thread that has panicked.
fn exit_at_first_panic() {
    panic::set_hook(Box::new(|panic| {
        let _ = writeln!(io::stderr(), "{panic}");
        process::exit(101);
    }));
}

#[test]
fn random_timers_of_real_threads_end_once_and_in_time() {
    exit_at_first_panic();
    for seed in 0..scaled(16) {
        let round = Arc::<Round>::default();
        thread::scope(|scope| {
            for owner in 0..OWNERS {
                let round = Arc::clone(&round);
                scope.spawn(move || round.drive_wheel(seed * 10 + owner as u64));
            }
            wait_until("the wheels exist", || round.shards.lock().unwrap().len() == OWNERS);
            fastrand::seed(seed);
            let start = Instant::now();
            while start.elapsed() < OPERATING_TIME {
                round.random_operation();
                thread::sleep(Duration::from_micros(fastrand::u64(..2_000)));
            }
            round.is_closing.store(true, SeqCst);
            wait_until("the end of all operations", || {
                round.operations_in_progress.load(SeqCst) == 0
            });
            let timers = round.timers.lock().unwrap().clone();
            let fires_soon = |timer: &Timer| {
                timer.latest_firing.load(SeqCst) < now_nanos() + nanos(LONG_DELAY) / 2
            };
            let must_cancel = |timer: &&Arc<Timer>| timer.period.is_some() || !fires_soon(timer);
            timers.iter().filter(must_cancel).for_each(|timer| timer.cancel());
            wait_until("all timers have ended", || timers.iter().all(|it| it.has_ended()));
            round.have_all_ended.store(true, SeqCst);
            for shard in round.shards.lock().unwrap().iter() {
                let _ = shard.try_run(|| ());
            }
        });
        for timer in round.timers.lock().unwrap().iter() {
            assert_eq!((timer.end_count(), timer.drops.load(SeqCst)), (1, 1), "ends and drops");
        }
    }
}
