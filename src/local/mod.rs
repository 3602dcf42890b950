//! `local_timer()`: the thread's wheel, a shard of callbacks.
//!
//! The shard is borrowed for one step at a time and never while the user's code runs: a callback, a
//! hook or a destructor may add, cancel, reset and even turn (P5).

mod adding;
pub(crate) mod cores;
mod inner;
mod lookup;
mod services;
mod shard_ref;
#[cfg(all(feature = "fd", any(target_os = "linux", target_os = "android")))]
pub(crate) mod timer_fd;

use std::{
    fmt,
    marker::PhantomData,
    time::{Duration, Instant},
};

use self::inner::Local;
pub(crate) use self::services::{Client, ClientPlace, ClientTimer, DrivesHere};
pub use self::shard_ref::ShardRef;
use crate::{
    clock::Clock, config::Config, error::ConfigError, gauges::Counts, metrics::ShardMetrics,
    shard::PreparedSleep,
};

/// Returns this thread's wheel. It is created on first use, with a tick of a millisecond and the
/// monotonic clock. To change them, install a [`Config`] first.
///
/// The thread's loop drives it: it calls [`turn`](LocalTimer::turn) to fire timers, and
/// [`prepare_sleep`](LocalTimer::prepare_sleep) to learn how long it may sleep. When the thread
/// ends, its pending callbacks are dropped and its handles are stale. While a thread exits, its
/// wheel behaves as if it were empty: its length is zero, a turn fires nothing,
/// [`try_add`](LocalTimer::try_add) is an error and [`add`](LocalTimer::add) panics.
///
/// A thread that cannot have a wheel because 16,384 shards exist gets the same answers.
///
/// # Examples
///
/// A thread that only runs timers:
///
/// ```
/// use corewheel::local_timer;
/// use std::time::Duration;
///
/// local_timer().add(Duration::from_millis(5), || println!("five milliseconds later"));
/// local_timer().run_until_empty(); // sleeps, and turns
/// ```
pub fn local_timer() -> LocalTimer {
    LocalTimer(PhantomData)
}

/// The wheel of the current thread; from [`local_timer`]. It is an empty token: copy it, or call
/// `local_timer` again.
#[derive(Clone, Copy, Debug)]
pub struct LocalTimer(PhantomData<*const UseTimersForSendFutures>);

/// Names the way out where the compiler finds that a future of this thread is not `Send`.
enum UseTimersForSendFutures {}

/// The result of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Turn {
    /// Number of callbacks run: one for each timer that fired and for each run of a periodic one.
    pub fired: usize,
    /// Number of timers collected after a remote cancel.
    pub collected: usize,
    /// Number of live timers after the turn.
    pub live: usize,
    /// Number of wheel entries that the turn touched.
    pub touched: u64,
    /// The turn has left work: it used up its budget, or more than 1,024 remote requests waited.
    pub behind: bool,
    /// The turn was called from a callback of another one, and did nothing.
    pub nested: bool,
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fired, collected, live, touched, behind, nested } = self;
        write!(f, "fired {fired}, collected {collected}, live {live}, touched {touched}")?;
        f.write_str(if *behind { ", behind" } else { "" })?;
        f.write_str(if *nested { ", nested" } else { "" })
    }
}

impl LocalTimer {
    /// Fires the due timers. First it consumes remote adds and resets in FIFO order and runs the
    /// callbacks that were submitted to run at once. Then timers fire in tick order, regardless of
    /// which thread added them; the order within a tick is unspecified. Finally it consumes remote
    /// cancels and new requests.
    ///
    /// A turn consumes up to 1,024 remote requests. If more requests of both kinds wait, half of
    /// them are cancels. The next turn consumes the rest; until then, [`Turn::behind`] is true and
    /// [`time_until_next`](Self::time_until_next) is zero. A timer that a callback adds fires in a
    /// later turn.
    ///
    /// A panic of a callback is caught and reported; the other callbacks run. A nested call from a
    /// callback does nothing and sets [`Turn::nested`].
    ///
    /// Cost: one reading of the clock and some tens of nanoseconds when nothing is due; constant
    /// per timer besides the callback. Each elapsed tick adds a few entries from a higher level of
    /// the wheel, and at most 96 entries that were reset away from that tick. Each slot of a higher
    /// level that starts at the tick adds at most 96 more entries that were reset away. A purgatory
    /// of several cores sends one message for up to 64 events, and an event checks all operations
    /// that watch its key. Each consumed message costs about a cache miss. So does each deadline
    /// request that the turn puts in order, up to 4,096 for any budget.
    pub fn turn(self) -> Turn {
        self.turn_within(usize::MAX)
    }

    /// Fires the due timers within a budget. The turn consumes at most `budget` remote requests,
    /// each of which may run a timer. Then it touches at most `budget` entries of the wheel; an
    /// entry is touched when it fires or moves. The rest comes first in the next turn, in order.
    /// Until then, [`Turn::behind`] is true and [`time_until_next`](Self::time_until_next) is zero.
    pub fn turn_within(self, budget: usize) -> Turn {
        match Local::turn_is_idle() {
            Some(live) => Turn { live, ..Turn::default() },
            None => Local::turn(budget),
        }
    }

    /// Fires the due timers, as [`turn`](Self::turn) does, at a time `now` that the loop has just
    /// read.
    ///
    /// `now` is an instant of the wheel's clock. One before the latest reading counts as that
    /// reading. With one in the future, timers fire early.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{When, local_timer};
    /// use std::time::{Duration, Instant};
    ///
    /// let now = Instant::now();
    /// local_timer().turn_at(now);
    /// local_timer().add(When::at(now + Duration::from_secs(30)), || println!("idle"));
    /// ```
    pub fn turn_at(self, now: Instant) -> Turn {
        match Local::turn_is_idle_at(now) {
            Some(live) => Turn { live, ..Turn::default() },
            None => Local::turn(usize::MAX),
        }
    }

    /// Returns the moment at which the wheel next needs a turn. See
    /// [`Shard::next_deadline`](crate::Shard::next_deadline).
    ///
    /// It sends the messages of the thread's purgatories to other cores, since a loop may sleep
    /// until that moment.
    pub fn next_deadline(self) -> Option<Instant> {
        Local::with(Local::next_deadline).ok().flatten()
    }

    /// Returns the time until the [`next_deadline`](Self::next_deadline); zero if it has elapsed.
    /// Reads the clock.
    ///
    /// A loop calls this before it sleeps. It sends the messages of the thread's purgatories to
    /// other cores, and records the wake-up time of the loop for [`metrics`](crate::metrics).
    pub fn time_until_next(self) -> Option<Duration> {
        Local::with(Local::time_until_next).ok().flatten()
    }

    /// Announces that the thread is going to sleep, for at most [`PreparedSleep::timeout`]. Until
    /// the [`PreparedSleep`] is dropped, urgent requests call the wake hook ([`Config::on_wake`]).
    /// These requests are urgent:
    ///
    /// - A remote add or reset whose deadline is before the end of the sleep.
    /// - The 1,024th queued message about deadlines, or about cancelled timers.
    /// - An add refused by a full shard where cancelled timers would make room.
    /// - An add of this thread, before it sleeps, whose deadline is before the end of the sleep.
    /// - A message to or from a purgatory of this thread.
    ///
    /// The timeout is zero in an exiting thread whose wheel has ended, and in a thread that cannot
    /// have one. Such a thread must not sleep, since nothing would wake it.
    ///
    /// The announcement ends with the value: keep it until the sleep is over, or use
    /// [`sleep_with`](Self::sleep_with).
    ///
    /// Cost: a reading of the clock, a sequentially consistent fence, a swap, and a search for the
    /// next occupied slot.
    pub fn prepare_sleep(self) -> PreparedSleep<'static> {
        Local::with(Local::prepare_sleep).unwrap_or_else(|_| PreparedSleep::ended())
    }

    /// Announces a sleep, calls `wait` with its [timeout](PreparedSleep::timeout), and ends the
    /// announcement when `wait` returns.
    ///
    /// See [`prepare_sleep`](Self::prepare_sleep). If `wait` panics, the announcement ends as well.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, local_timer};
    /// use mio::{Events, Poll, Token, Waker};
    /// use std::{io::ErrorKind, time::Duration};
    ///
    /// let mut poll = Poll::new()?;
    /// let waker = Waker::new(poll.registry(), Token(usize::MAX))?;
    /// Config::new().on_wake(move || waker.wake().expect("the poll is alive")).install().expect("the first use");
    ///
    /// let mut events = Events::with_capacity(1024);
    /// local_timer().add(Duration::from_millis(5), || println!("five milliseconds later"));
    /// while !local_timer().is_empty() {
    ///     match local_timer().sleep_with(|timeout| poll.poll(&mut events, timeout)) {
    ///         Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
    ///         _ => (), // a signal ends a poll as well
    ///     }
    ///     local_timer().turn();
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn sleep_with<R>(self, wait: impl FnOnce(Option<Duration>) -> R) -> R {
        self.prepare_sleep().wait_with(wait)
    }

    /// Drives a thread that only runs timers: [parks](PreparedSleep::park) and turns until
    /// `is_over` returns true.
    ///
    /// It calls `is_over` before each sleep, also before the first. A thread that changes the
    /// answer must wake the loop: with a request to this wheel such as [`ShardRef::run`], or by
    /// unparking the thread.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::{cell::Cell, rc::Rc, time::Duration};
    ///
    /// let answer = Rc::new(Cell::new(None));
    /// let told = Rc::clone(&answer);
    /// local_timer().add(Duration::from_millis(5), move || told.set(Some(42)));
    /// local_timer().run_until(|| answer.get().is_some());
    /// ```
    pub fn run_until(self, mut is_over: impl FnMut() -> bool) {
        while !is_over() {
            self.prepare_sleep().park();
            self.turn();
        }
    }

    /// Drives a thread that only runs timers until none is [left](Self::is_empty).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::time::Duration;
    ///
    /// local_timer().add(Duration::from_millis(5), || println!("five milliseconds later"));
    /// local_timer().run_until_empty();
    /// ```
    pub fn run_until_empty(self) {
        self.run_until(|| self.is_empty());
    }

    /// Registers a loop that will turn this thread's wheel. Call it in a loop that polls futures
    /// before its first turn.
    ///
    /// A future of [`corewheel::future`](crate::future) that has to wait
    /// [panics](crate::future#without-a-driver) on a thread whose wheel has no driver. Every driver
    /// registers when it is created: [`future::drive`](crate::future::drive), a `TimerFd`,
    /// [`Config::install`], [`Cores`](crate::Cores), the packages for runtimes. So does a loop that
    /// calls [`turn`](Self::turn), [`prepare_sleep`](Self::prepare_sleep) or
    /// [`time_until_next`](Self::time_until_next).
    ///
    /// A thread stays registered, unless only `TimerFd`s and tasks of `drive` have registered it:
    /// then it has no driver after the last of them is dropped outside of a turn. A loop registers
    /// again at its next turn.
    ///
    /// Until the loop begins, an add by any thread reports a timer that is overdue, once: by 100 ms
    /// without a driver, by 1 s after the registration. See [`metrics`](crate::metrics).
    ///
    /// # Examples
    ///
    /// An executor that polls its task before it turns:
    ///
    /// ```
    /// use corewheel::{future::sleep, local_timer};
    /// use std::{pin::pin, task::{Context, Waker}, time::Duration};
    ///
    /// local_timer().register_driver();
    /// let mut task = pin!(sleep(Duration::from_millis(5)));
    /// local_timer().run_until(|| task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    /// ```
    pub fn register_driver(self) {
        // An exiting thread has no wheel, and its futures return that error.
        let _ = Local::with(Local::register_driver);
    }

    /// Returns a reference by which other threads can add to this thread's wheel.
    ///
    /// # Panics
    ///
    /// If the thread is exiting and its wheel has ended, or cannot have one because 16,384 shards
    /// exist.
    #[track_caller]
    pub fn shard_ref(self) -> ShardRef {
        match Local::with(Local::shard_ref) {
            Ok(shard) => shard,
            Err(reason) => panic!("no timer to refer to: {reason}"),
        }
    }

    /// Returns the number of live timers, including held ones. A timer that another thread
    /// adds counts once a turn has taken it from the mailbox.
    pub fn len(self) -> usize {
        Local::with(|local| local.step(|shard| shard.len())).unwrap_or(0)
    }

    /// Returns true if no timer is live.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns the present time of this thread's clock: real, or virtual if its [`Config`] says so.
    pub fn now(self) -> Instant {
        Local::with(|local| local.step(|shard| shard.now()))
            .unwrap_or_else(|_| Clock::monotonic().now())
    }

    /// Returns the counts of this thread's timers so far. Cost: some nanoseconds for each queued
    /// message.
    pub fn counts(self) -> Counts {
        Local::with(|local| local.step(|shard| shard.counts())).unwrap_or_default()
    }

    /// Returns the activity of this thread's wheel and the lateness of its timers; see
    /// [`metrics`](crate::metrics). Returns `None` in an exiting thread and in a thread that cannot
    /// have a wheel.
    pub fn metrics(self) -> Option<ShardMetrics> {
        Local::with(|local| local.step(|shard| shard.metrics())).ok()
    }

    /// Returns where in the program the live timers were added, and their ages, to find a timer
    /// without a cancel. A periodic timer is left out during its own run. Empty in an exiting
    /// thread. Needs the feature `origins`.
    ///
    /// Cost: some nanoseconds for each timer of the largest number of live timers.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::time::Duration;
    ///
    /// for _ in 0..100 {
    ///     local_timer().add(Duration::from_secs(3_600), || ());
    /// }
    /// local_timer().add(Duration::from_secs(1), || ());
    /// let report = local_timer().live_report();
    /// println!("{report}"); // 100 of them in the first line, and where
    /// assert_eq!(report.most_frequent()[0].live, 100);
    /// ```
    #[cfg(feature = "origins")]
    pub fn live_report(self) -> crate::metrics::LiveReport {
        Local::with(|local| local.step(|shard| shard.live_report())).unwrap_or_default()
    }
}

impl Config {
    /// Creates this thread's wheel with this configuration. Call it before anything else uses
    /// [`local_timer`] in the thread.
    ///
    /// It registers a [driver](LocalTimer::register_driver), because a thread installs before it
    /// drives, but drives nothing itself: without a loop that turns the wheel, futures of this
    /// thread wait for ever.
    ///
    /// # Errors
    ///
    /// If the thread's wheel is in use already, the tick is shorter than a microsecond, or 16,384
    /// shards exist.
    pub fn install(self) -> Result<(), ConfigError> {
        Local::install(self)
    }
}
