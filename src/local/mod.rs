//! The wheel of the current thread: a shard whose payloads are callbacks.
//!
//! The shard is never borrowed while user code runs. So a callback, a hook or a destructor may add,
//! cancel and reset timers.

mod client;
#[cfg(feature = "cores")]
pub(crate) mod cores;
pub(crate) mod drained_timer;
pub(crate) mod reusable_timer;
mod shard_ref;
mod thread_wheel;
#[cfg(all(feature = "fd", any(target_os = "linux", target_os = "android")))]
pub(crate) mod timer_fd;

use std::{
    fmt,
    marker::PhantomData,
    sync::Arc,
    time::{Duration, Instant},
};

use self::drained_timer::DrainedTimer;
pub use self::shard_ref::ShardRef;
pub(crate) use self::{
    client::{ClientId, WheelClient},
    thread_wheel::{CatchDropPanic, DriverKind, DriverRegistration, ThreadWheel},
};
use crate::{
    clock::Clock,
    config::Config,
    cross_core::{
        call_site::CallSite,
        callback::{IntoCallback, OneShotClosure, PeriodicClosure},
        handle::{LocalHandle, ThisThreadWheel, TimerHandle},
        state::TimerKind,
    },
    error::{AddError, AddErrorReason, ConfigError},
    gauges::Counts,
    limits::{LONG_OVERDUE_GRACE_NANOS, RUN_UNTIL_EMPTY_PARK_MAX},
    metrics::ShardMetrics,
    shard::PreparedSleep,
    trace::UndrivenReason,
    when::When,
};

/// Returns this thread's wheel. The first operation on the wheel creates it, with a tick of 1 ms
/// and the monotonic clock. For another tick or clock, [install](Config::install) a [`Config`]
/// first.
///
/// The thread's loop calls [`turn`](LocalTimer::turn) to fire timers, and
/// [`sleep_with`](LocalTimer::sleep_with) to sleep until the next deadline.
///
/// When the thread exits, its wheel ends: the pending callbacks are dropped, and all handles become
/// stale. After the end of the wheel, a turn fires nothing, [`try_add`](LocalTimer::try_add)
/// returns an error, and [`add`](LocalTimer::add) panics. A thread beyond the maximum of 16,384
/// shards gets no wheel, and all calls behave as if its wheel had ended.
///
/// # Examples
///
/// ```
/// use corewheel::local_timer;
/// use std::time::Duration;
///
/// local_timer().add(Duration::from_millis(5), || println!("five milliseconds later"));
/// local_timer().run_until_empty(); // sleeps and fires due timers
/// ```
pub fn local_timer() -> LocalTimer {
    LocalTimer(PhantomData)
}

/// A reference to the wheel of the current thread, returned by [`local_timer`].
///
/// A wheel with one timer takes about 100 kB of memory: see
/// [memory](crate::guide::costs#memory).
///
/// # Examples
///
/// ```
/// use corewheel::local_timer;
/// use std::time::Duration;
///
/// let timer = local_timer();
/// timer.add(Duration::from_millis(5), || println!("five milliseconds later"));
/// assert_eq!(timer.len(), 1);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LocalTimer(PhantomData<*const UseShardRefOrTimers>);

/// The compiler's error shows this name if code requires a `LocalTimer`, or a future on this
/// thread's wheel, to be `Send`. The guide names the remedies for tasks: `spawn_local`,
/// `corewheel_tokio::time` or `Timers`.
enum UseShardRefOrTimers {}

/// The result of a turn.
///
/// # Examples
///
/// ```
/// use corewheel::local_timer;
/// use std::time::Duration;
///
/// local_timer().add(Duration::from_millis(1), || println!("due"));
/// # std::thread::sleep(Duration::from_millis(3));
/// // three milliseconds later
/// let turn = local_timer().turn();
/// assert_eq!((turn.fired, turn.live), (1, 0));
/// assert!(!turn.behind); // no due timer is left
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Turn {
    /// Number of callbacks that ran. Unlike [`Counts::fired`], includes the runs of periodic
    /// timers.
    pub fired: usize,
    /// Number of remotely cancelled timers that this turn freed.
    pub collected: usize,
    /// Number of live timers after the turn.
    pub live: usize,
    /// Number of timers that this turn moved to another slot of the wheel, except to apply remote
    /// resets; see [`Counts::relinked`].
    pub relinked: u64,
    /// True if due timers or remote requests remain for the next turn, because of the budget or the
    /// maximum of 1,024 requests.
    pub behind: bool,
    /// True if the turn was called inside another turn, and did nothing.
    pub nested: bool,
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fired, collected, live, relinked, behind, nested } = self;
        write!(f, "fired {fired}, collected {collected}, live {live}, relinked {relinked}")?;
        f.write_str(if *behind { ", behind" } else { "" })?;
        f.write_str(if *nested { ", nested" } else { "" })
    }
}

impl LocalTimer {
    /// Runs `callback` once, after a delay or at an instant; see [`When`]. The deadline is rounded
    /// up to a tick. The callback runs in the first turn that begins at or after the deadline,
    /// unless that turn's budget defers it. A callback with a zero delay runs in the next turn. A
    /// callback with a delay of more than 584 years never runs.
    ///
    /// Cost: constant, one reading of the clock. Each 4,096 live timers need another page of
    /// memory. A callback that captures more than 32 bytes, or a value aligned to more than 8
    /// bytes, is boxed.
    ///
    /// # Panics
    ///
    /// Panics if [`try_add`](Self::try_add) would return an error.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{When, local_timer};
    /// use std::time::Duration;
    ///
    /// local_timer().add(Duration::from_secs(30), || println!("close the idle connection"));
    /// let refresh = When::after(Duration::from_secs(60)).slack(Duration::from_secs(1));
    /// local_timer().add(refresh, || println!("refresh the statistics"));
    /// ```
    #[inline]
    #[track_caller]
    pub fn add(self, when: impl Into<When>, callback: impl FnOnce() + 'static) -> TimerHandle {
        AddError::or_panic(self.try_add(when, callback))
    }

    /// Adds a timer, and returns an error where [`add`](Self::add) panics.
    ///
    /// # Errors
    ///
    /// Returns an error, which contains the callback, if:
    ///
    /// - The wheel has ended, because the thread is exiting or has drained the wheel.
    /// - The thread has no wheel yet, and 16,384 shards, the maximum, exist.
    /// - The wheel has reached its limit of live timers ([`Config::limit`](crate::Config::limit),
    ///   at most 2^25 - 1).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, local_timer};
    /// use std::time::Duration;
    ///
    /// Config::new().limit(1).install()?;
    /// local_timer().add(Duration::from_secs(5), || println!("the only one"));
    /// if let Err(refused) = local_timer().try_add(Duration::from_secs(5), || println!("at once")) {
    ///     refused.into_inner()();
    /// }
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    #[inline]
    #[track_caller]
    pub fn try_add<F: FnOnce() + 'static>(
        self,
        when: impl Into<When>,
        callback: F,
    ) -> Result<TimerHandle, AddError<F>> {
        Self::insert(TimerKind::Shared, CallSite::caller(), when.into(), OneShotClosure(callback))
    }

    /// Runs `callback` every `period` until the timer is cancelled. The first run is one period
    /// from now. The runs do not drift. After a late run, the timer skips the runs that were
    /// already due when the turn began. A period shorter than a tick, zero included, counts as a
    /// tick.
    ///
    /// If the callback cancels its own timer, the callback is dropped after the current run. A
    /// panic of the callback is reported, and the timer continues.
    ///
    /// # Panics
    ///
    /// Panics if [`try_add_periodic`](Self::try_add_periodic) would return an error.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{TimerHandle, local_timer};
    /// use std::{cell::Cell, rc::Rc, time::Duration};
    ///
    /// let heartbeat = local_timer().add_periodic(Duration::from_secs(1), || println!("alive"));
    /// heartbeat.cancel();
    ///
    /// // A timer that ends itself gets its handle from a cell:
    /// let handle = Rc::new(Cell::new(None::<TimerHandle>));
    /// let (own_handle, mut runs_left) = (Rc::clone(&handle), 3);
    /// handle.set(Some(local_timer().add_periodic(Duration::from_secs(1), move || {
    ///     runs_left -= 1;
    ///     if runs_left == 0 {
    ///         own_handle.get().map(TimerHandle::cancel); // answers `Running`; there is no further run
    ///     }
    /// })));
    /// ```
    #[track_caller]
    pub fn add_periodic(self, period: Duration, callback: impl FnMut() + 'static) -> TimerHandle {
        AddError::or_panic(self.try_add_periodic(period, callback))
    }

    /// Adds a periodic timer, and returns an error where [`add_periodic`](Self::add_periodic)
    /// panics.
    ///
    /// # Errors
    ///
    /// Returns an error in the same cases as [`try_add`](Self::try_add).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, local_timer};
    /// use std::time::Duration;
    ///
    /// Config::new().limit(0).install()?;
    /// let refused = local_timer().try_add_periodic(Duration::from_secs(1), || println!("alive"));
    /// println!("{}", refused.unwrap_err()); // timer not added: the shard is full (see `Config::limit`)
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    #[track_caller]
    pub fn try_add_periodic<F: FnMut() + 'static>(
        self,
        period: Duration,
        callback: F,
    ) -> Result<TimerHandle, AddError<F>> {
        let when = When::after(period);
        let callback = PeriodicClosure(callback);
        Self::insert(TimerKind::Periodic, CallSite::caller(), when, callback)
    }

    /// Runs `callback` once, after a delay or at an instant; see [`add`](Self::add). Only this
    /// thread can cancel or reset the timer, so firing or cancelling it needs no compare-and-swap.
    /// [`LocalHandle::share`] returns a handle for other threads.
    ///
    /// # Panics
    ///
    /// Panics if [`try_add_local`](Self::try_add_local) would return an error.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{LocalHandle, local_timer};
    /// use std::time::Duration;
    ///
    /// let retry: LocalHandle = local_timer().add_local(Duration::from_millis(250), || println!("again"));
    /// retry.cancel();
    /// ```
    #[inline]
    #[track_caller]
    pub fn add_local(
        self,
        when: impl Into<When>,
        callback: impl FnOnce() + 'static,
    ) -> LocalHandle {
        AddError::or_panic(self.try_add_local(when, callback))
    }

    /// Adds a timer that only this thread can cancel, and returns an error where
    /// [`add_local`](Self::add_local) panics.
    ///
    /// # Errors
    ///
    /// Returns an error in the same cases as [`try_add`](Self::try_add).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{AddErrorReason, Config, local_timer};
    /// use std::time::Duration;
    ///
    /// Config::new().limit(0).install()?;
    /// let refused = local_timer().try_add_local(Duration::from_secs(1), || println!("again"));
    /// assert_eq!(refused.unwrap_err().reason(), AddErrorReason::Full);
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    #[inline]
    #[track_caller]
    pub fn try_add_local<F: FnOnce() + 'static>(
        self,
        when: impl Into<When>,
        callback: F,
    ) -> Result<LocalHandle, AddError<F>> {
        let callback = OneShotClosure(callback);
        let add_result =
            Self::insert(TimerKind::Private, CallSite::caller(), when.into(), callback);
        add_result.map(LocalHandle::new)
    }

    /// Fires the due timers, in three steps:
    ///
    /// 1. The turn consumes remote adds and resets in FIFO order, and runs the closures of
    ///    [`ShardRef::run`] at once.
    /// 2. Timers fire in tick order, regardless of which thread added them. A timer fires out of
    ///    order if an earlier turn has already processed its tick. The order within a tick is
    ///    unspecified.
    /// 3. The turn frees the timers that other threads have cancelled, and drops their callbacks.
    ///
    /// A turn consumes up to 1,024 remote requests. If requests remain, [`Turn::behind`] is true,
    /// and [`time_until_next`](Self::time_until_next) returns zero. A timer fires in a later turn
    /// if a callback adds it, or if its remote add arrives after step 1.
    ///
    /// A panic of a callback is caught and reported, and the other callbacks still run. A turn
    /// called inside a turn does nothing.
    ///
    /// Cost: if no timer is due and no request waits, one reading of the clock and some tens of
    /// nanoseconds. Otherwise also:
    ///
    /// - A constant for each fired timer, plus its callback.
    /// - A cascade of entries from higher levels, in proportion to the elapsed time.
    /// - For each elapsed tick, at most 96 moves of timers that are not due. A timer that was reset
    ///   to a later deadline usually moves only in a turn at the old deadline.
    /// - About one cache miss to consume each request, and another to put a remote add or reset
    ///   into FIFO order. A turn puts at most 4,096 requests into FIFO order, regardless of the
    ///   budget.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::time::Duration;
    ///
    /// local_timer().add(Duration::from_millis(1), || println!("due"));
    /// while !local_timer().is_empty() {
    ///     // ... poll and serve ...
    ///     local_timer().turn();
    /// }
    /// ```
    #[inline]
    pub fn turn(self) -> Turn {
        self.turn_within(usize::MAX)
    }

    /// Fires the due timers within a budget. The turn fires or relinks at most `budget` entries of
    /// the wheel. The turn consumes at most `budget` remote requests, and never more than 1,024. A
    /// consumed request may also fire its timer, so the turn may fire more than `budget` timers in
    /// all. If requests, due timers or entries to relink remain, [`Turn::behind`] is true, and the
    /// next turn continues where this one stopped. A budget of zero fires and consumes nothing.
    ///
    /// Each message of a [purgatory](crate::purgatory) counts as a request, and so does each watch
    /// that a remote event reaches. Purgatories send batches of up to 64 messages, and a turn that
    /// begins a batch handles the whole batch, even beyond the budget.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::time::Duration;
    ///
    /// for _ in 0..100 {
    ///     local_timer().add(Duration::ZERO, || ());
    /// }
    /// # std::thread::sleep(Duration::from_millis(2));
    /// let turn = local_timer().turn_within(10);
    /// assert!(turn.fired <= 10 && turn.behind); // the rest comes in the next turns
    /// ```
    #[inline]
    pub fn turn_within(self, budget: usize) -> Turn {
        match ThreadWheel::try_turn_without_pass() {
            Some(live) => Turn { live, ..Turn::default() },
            None => ThreadWheel::run_turn_with_pass(budget),
        }
    }

    /// Fires the due timers as [`turn`](Self::turn) does, but uses `now` instead of reading the
    /// clock.
    ///
    /// `now` must be an instant of the wheel's clock. If `now` is before the latest reading of this
    /// clock, the turn uses that reading. If `now` is in the future, timers may fire early, and
    /// delays count from `now` until the clock reaches it. A future of
    /// [`Timers`](crate::future::Timers) whose timer fires early stays pending, and each poll adds
    /// a timer that the next turn fires.
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
        match ThreadWheel::try_turn_without_pass_slow(Some(now)) {
            Some(live) => Turn { live, ..Turn::default() },
            None => ThreadWheel::run_turn_with_pass(usize::MAX),
        }
    }

    /// Returns the moment at which the wheel next needs a turn, even one that only moves timers, or
    /// `None` if it needs none. See [`Shard::next_deadline`](crate::Shard::next_deadline).
    ///
    /// This call also sends the queued messages of the thread's purgatories.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::time::Duration;
    ///
    /// assert_eq!(local_timer().next_deadline(), None);
    /// let idle = local_timer().add(Duration::from_secs(86_400), || println!("idle"));
    /// let next = local_timer().next_deadline();
    /// assert!(next <= local_timer().deadline(idle)); // a long timer needs a turn before its deadline
    /// ```
    pub fn next_deadline(self) -> Option<Instant> {
        ThreadWheel::with(ThreadWheel::next_deadline).ok().flatten()
    }

    /// Returns the time until the [`next_deadline`](Self::next_deadline), the next turn that fires
    /// or moves timers: zero if that moment has passed, `None` if the wheel needs no turn.
    ///
    /// This call announces no sleep: other threads can wake the loop only after
    /// [`prepare_sleep`](Self::prepare_sleep). This call reads the clock, sends the queued messages
    /// of the thread's purgatories, and records the loop's wake-up time for
    /// [`metrics`](crate::metrics).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::time::Duration;
    ///
    /// assert_eq!(local_timer().time_until_next(), None);
    /// local_timer().add(Duration::from_millis(5), || println!("idle"));
    /// assert!(local_timer().time_until_next() <= Some(Duration::from_millis(6)));
    /// ```
    pub fn time_until_next(self) -> Option<Duration> {
        ThreadWheel::with(ThreadWheel::time_until_next).ok().flatten()
    }

    /// Announces that the thread is going to sleep, for at most [`PreparedSleep::timeout`]. Until
    /// the thread is woken or the [`PreparedSleep`] is dropped, urgent requests wake the thread by
    /// the hook of [`Config::wake_hook`]. Without a hook, urgent requests unpark the thread. With a
    /// hook, urgent requests also unpark the thread if it has ever called [`PreparedSleep::park`].
    /// The urgent requests are:
    ///
    /// - A remote add or reset whose deadline is before the end of the sleep, such as a call of
    ///   [`ShardRef::run`](crate::ShardRef::run) or [`Cores::stop`](crate::Cores::stop).
    /// - The first remote cancel whose callback this thread must drop, if the sleep is longer than
    ///   [`Config::drop_cancelled_within`].
    /// - Every 1,024th queued add or reset, and every 1,024th queued cancel.
    /// - A remote add that a full wheel refuses, unless the wheel's mailbox is empty.
    /// - An add or reset by this thread, with a deadline before the end of the announced sleep.
    /// - A message to or from a purgatory of this thread.
    ///
    /// The timeout is zero if the wheel has ended or the thread cannot have a wheel.
    ///
    /// Cost: a reading of the clock, a sequentially consistent fence, a swap, and a search for the
    /// next occupied slot. Before a sleep of a second or more, the call also frees spare memory.
    /// The timeout is at most a second while other threads may be reading spare memory, or the
    /// wheel or a purgatory has much more memory to free.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::time::Duration;
    ///
    /// local_timer().add(Duration::from_millis(5), || println!("idle"));
    /// while !local_timer().is_empty() {
    ///     let sleep = local_timer().prepare_sleep();
    ///     sleep.park(); // ends the announcement after the wait
    ///     local_timer().turn();
    /// }
    /// ```
    pub fn prepare_sleep(self) -> PreparedSleep<'static> {
        ThreadWheel::with(ThreadWheel::prepare_sleep)
            .unwrap_or_else(|_| PreparedSleep::zero_length())
    }

    /// [Announces a sleep](Self::prepare_sleep), calls `wait` with the sleep's
    /// [timeout](PreparedSleep::timeout), and ends the announcement when `wait` returns or panics.
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
    /// Config::new().wake_hook(move || waker.wake().expect("the poll is alive")).install().expect("the first use");
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
        let sleep = self.prepare_sleep();
        wait(sleep.timeout())
    }

    /// Drives the wheel of a thread that only runs timers: alternately [parks](PreparedSleep::park)
    /// and calls [`turn`](Self::turn), until `is_over` returns true.
    ///
    /// The loop calls `is_over` before each sleep. Another thread that changes the result of
    /// `is_over` must wake the loop, by a request such as [`ShardRef::run`] or by unparking this
    /// thread. A cancel may not wake the loop. The loop also ends if the wheel has ended or this
    /// thread cannot have a wheel. After `run_until`, nothing drives the wheel, unless the thread
    /// has another driver.
    ///
    /// With a [`ManualClock`](crate::ManualClock), `is_over` must move the clock, or another thread
    /// must move it and then wake this thread. A clock that has not moved for a second, although a
    /// timer is pending, is reported once.
    ///
    /// Call `run_until` outside of async tasks. In a task, it blocks the executor: woken tasks
    /// cannot run, and a [`VirtualTime`](crate::future::VirtualTime) does not move its clock. So the
    /// call may never return. In async code, await a [`sleep`](crate::future::sleep).
    ///
    /// # Panics
    ///
    /// Panics if called during a turn, for example by a callback, unless `is_over` returns true at
    /// once.
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
    ///
    /// With a `ManualClock`, `is_over` moves the clock:
    ///
    /// ```
    /// use corewheel::{Config, ManualClock, local_timer};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// Config::new().clock(&clock).install()?;
    /// local_timer().add(Duration::from_secs(3_600), || println!("an hour later"));
    /// local_timer().run_until(|| {
    ///     clock.advance(local_timer().time_until_next().unwrap_or_default());
    ///     local_timer().is_empty()
    /// });
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    #[track_caller]
    pub fn run_until(self, is_over: impl FnMut() -> bool) {
        self.run_until_with(is_over, || None);
    }

    /// Implements [`run_until`](Self::run_until). Each park lasts at most the time that
    /// `longest_park` returns; `None` means no limit.
    #[track_caller]
    fn run_until_with(
        self,
        mut is_over: impl FnMut() -> bool,
        longest_park: impl Fn() -> Option<Duration>,
    ) {
        let has_wheel = || !ThreadWheel::has_ended() && ThreadWheel::with(|_| ()).is_ok();
        let (mut registration, mut clock_still_since) = (None, None);
        while !is_over() && has_wheel() {
            assert!(!ThreadWheel::is_in_turn(), "a callback cannot drive its wheel: let it return");
            registration.get_or_insert_with(|| DriverRegistration::new(DriverKind::RunUntil));
            clock_still_since = self.park_in_run_until(clock_still_since, longest_park());
            self.turn();
        }
    }

    /// Parks until the next deadline or a wake-up, at most for `longest_park`. While a virtual
    /// clock is before the next deadline, parks for at most a second, and reports a clock that has
    /// stood still for a second. `clock_still_since` is the result of the previous call: a reading
    /// of the virtual clock, and the real time at which this reading was first seen.
    fn park_in_run_until(
        self,
        clock_still_since: Option<[Instant; 2]>,
        longest_park: Option<Duration>,
    ) -> Option<[Instant; 2]> {
        if !self.clock().is_virtual() || self.next_deadline() <= Some(self.now()) {
            let sleep = self.prepare_sleep();
            match longest_park {
                Some(longest_wait) => sleep.park_at_most(longest_wait),
                None => sleep.park(),
            }
            return None;
        }
        let (now, real_now) = (self.now(), Clock::monotonic().now());
        let [_, still_since] =
            clock_still_since.filter(|still| still[0] == now).unwrap_or([now, real_now]);
        let longest_wait = Duration::from_nanos(LONG_OVERDUE_GRACE_NANOS);
        if real_now - still_since >= longest_wait {
            let _ = ThreadWheel::with(|wheel| {
                wheel.shared.report_undriven_wheel(u64::MAX, UndrivenReason::ClockStandsStill);
            });
        }
        self.prepare_sleep().park_at_most(longest_wait);
        Some([now, still_since])
    }

    /// Drives the wheel of a thread that only runs timers, until [no timer is live](Self::is_empty)
    /// and no remote request is queued. Afterwards, nothing drives the wheel: to fire timers that
    /// are added later, call `run_until_empty` again.
    ///
    /// If other threads have added timers, the call wakes once a second, because a cancel of such a
    /// timer does not wake this thread. So after a remote cancel of the last timer, the call
    /// returns within a second, or within [`Config::drop_cancelled_within`] if that is longer.
    ///
    /// With a [`ManualClock`](crate::ManualClock), or in an async task, the call may hang: see
    /// [`run_until`](Self::run_until).
    ///
    /// # Panics
    ///
    /// Panics if called during a turn, for example by a callback, while a timer is live or a
    /// request is queued.
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
    #[track_caller]
    pub fn run_until_empty(self) {
        let has_remote_pages = || ThreadWheel::with_current_engine(|it| it.has_remote_pages());
        self.run_until_with(
            || self.is_empty() && self.next_deadline().is_none(),
            || (has_remote_pages() == Ok(true)).then_some(RUN_UNTIL_EMPTY_PARK_MAX),
        );
    }

    /// Registers a loop that will drive this thread's wheel. A loop that polls futures before its
    /// first turn must first call `register_driver`.
    ///
    /// Polling a future that must wait for this thread's wheel
    /// [panics](crate::future#without-a-driver) if the wheel has no driver.
    /// [`future::drive`](crate::future::drive), a `TimerFd`, and the packages for runtimes, such as
    /// `corewheel-tokio`, register a driver, which counts until it is dropped. A loop also
    /// registers itself by calling [`turn`](Self::turn), [`prepare_sleep`](Self::prepare_sleep) or
    /// [`time_until_next`](Self::time_until_next).
    ///
    /// If nothing drives the wheel, overdue timers are
    /// [reported](crate::metrics#wheels-without-a-loop).
    ///
    /// # Examples
    ///
    /// An executor that polls its task before its first turn:
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
        // Ignores an error, because each poll of this thread's futures reports it.
        let _ = ThreadWheel::with(ThreadWheel::register_loop);
    }

    /// Returns a reference through which other threads can add timers to this thread's wheel.
    ///
    /// # Panics
    ///
    /// Panics if the thread is exiting, or cannot have a wheel because 16,384 shards exist.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::{thread, time::Duration};
    ///
    /// let shard = local_timer().shard_ref();
    /// let other = thread::spawn(move || shard.add(Duration::from_millis(1), || println!("added elsewhere")));
    /// let timer = other.join().unwrap();
    /// local_timer().run_until(|| !timer.is_pending());
    /// ```
    #[track_caller]
    pub fn shard_ref(self) -> ShardRef {
        match ThreadWheel::with(|wheel| ShardRef { shared: Arc::clone(&wheel.shared) }) {
            Ok(shard) => shard,
            Err(reason) => panic!("no wheel to refer to: {reason}"),
        }
    }

    /// Returns the number of live timers. A remote add or cancel counts once this thread has
    /// consumed it.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::time::Duration;
    ///
    /// let idle = local_timer().add(Duration::from_secs(30), || println!("idle"));
    /// assert_eq!(local_timer().len(), 1);
    /// idle.cancel();
    /// assert_eq!(local_timer().len(), 0);
    /// ```
    pub fn len(self) -> usize {
        ThreadWheel::with_current_engine(|engine| engine.len()).unwrap_or(0)
    }

    /// Returns true if no timer is live. A remotely added timer is live once a turn has consumed
    /// the add. A remotely cancelled timer is live until a turn has consumed the cancel, which may
    /// not wake a sleeping loop.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::time::Duration;
    ///
    /// assert!(local_timer().is_empty());
    /// local_timer().add(Duration::from_secs(30), || println!("idle"));
    /// assert!(!local_timer().is_empty());
    /// ```
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns the present time of this wheel's clock, which [`Config::clock`] can make virtual.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, ManualClock, local_timer};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// Config::new().clock(&clock).install()?;
    /// let start = local_timer().now();
    /// clock.advance(Duration::from_secs(3_600));
    /// assert_eq!(local_timer().now() - start, Duration::from_secs(3_600));
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    pub fn now(self) -> Instant {
        ThreadWheel::with(|thread_wheel| thread_wheel.shared.clock.now())
            .unwrap_or_else(|_| Clock::monotonic().now())
    }

    /// Returns this wheel's clock, so that a [`Shard`](crate::Shard) or another thread's wheel can
    /// use it too. Returns the monotonic clock if the thread is exiting or cannot have a wheel.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, ManualClock, Shard, local_timer};
    /// use std::time::Duration;
    ///
    /// /// The code under test, which does not know whether time is virtual.
    /// fn sessions() -> Shard<&'static str> {
    ///     let clock = local_timer().clock();
    ///     Shard::with_config(Config::new().clock(clock)).expect("there are few shards")
    /// }
    ///
    /// let clock = ManualClock::new();
    /// Config::new().clock(&clock).install()?;
    /// let mut sessions = sessions();
    /// sessions.add(Duration::from_secs(3_600), "session 1");
    /// clock.advance(Duration::from_secs(3_600));
    /// sessions.turn();
    /// assert!(sessions.next_expired().is_some());
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    pub fn clock(self) -> Clock {
        ThreadWheel::with(|wheel| wheel.shared.clock.clone()).unwrap_or_else(|_| Clock::monotonic())
    }

    /// Returns the counts of this wheel's timers since its creation. Cost: one or two cache misses
    /// for each queued message.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::time::Duration;
    ///
    /// local_timer().add(Duration::from_secs(30), || println!("idle")).cancel();
    /// let counts = local_timer().counts();
    /// assert_eq!((counts.added, counts.cancelled, counts.live), (1, 1, 0));
    /// ```
    pub fn counts(self) -> Counts {
        ThreadWheel::with_current_engine(|engine| engine.counts()).unwrap_or_default()
    }

    /// Returns the counts of this thread's wheel and the lateness of its timers; see
    /// [`metrics`](crate::metrics). Returns `None` if the thread is exiting or cannot have a wheel.
    ///
    /// Cost: a call of [`counts`](Self::counts), plus a copy of the histograms.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::time::Duration;
    ///
    /// local_timer().add(Duration::from_millis(1), || println!("due"));
    /// local_timer().run_until_empty();
    /// let metrics = local_timer().metrics().expect("the thread has a wheel");
    /// println!("late by at most {:?}", metrics.loop_lateness.percentile(100.0));
    /// assert_eq!(metrics.loop_lateness.count(), 1);
    /// ```
    pub fn metrics(self) -> Option<ShardMetrics> {
        ThreadWheel::with_current_engine(|engine| engine.metrics()).ok()
    }

    /// Returns the number of live timers, and the age of the oldest, for each call site that added
    /// timers. A running periodic timer is not counted. The report is empty if the thread is
    /// exiting or cannot have a wheel. Needs the feature `origins`.
    ///
    /// Cost: at most proportional to the largest number of live timers so far.
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
    /// let report = local_timer().live_timers_by_call_site();
    /// println!("{report}"); // first line: 100 timers, and where they were added
    /// assert_eq!(report.by_live_count()[0].live, 100);
    /// ```
    #[cfg(feature = "origins")]
    pub fn live_timers_by_call_site(self) -> crate::metrics::LiveTimersByCallSite {
        ThreadWheel::with_current_engine(|engine| engine.live_timers_by_call_site())
            .unwrap_or_default()
    }

    /// Returns the deadline of a pending timer of this thread, rounded up to a tick. The deadline
    /// of a periodic timer is the time of its next run. If the deadline had already elapsed at the
    /// add or reset, returns some tick up to the tick of the add or reset.
    ///
    /// Returns `None` if the timer is running or has ended, or if it belongs to another thread's
    /// wheel.
    ///
    /// Cost: constant, no clock, no lock, no allocation.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::time::Duration;
    ///
    /// let idle = local_timer().add(Duration::from_secs(30), || println!("close the connection"));
    /// let deadline = local_timer().deadline(idle).expect("it is pending");
    /// assert!(deadline >= local_timer().now() + Duration::from_secs(29));
    /// idle.cancel();
    /// assert_eq!(local_timer().deadline(idle), None);
    /// ```
    pub fn deadline(self, handle: TimerHandle) -> Option<Instant> {
        ThreadWheel::with_current_engine(|engine| {
            if engine.is_pending(handle) { engine.deadline(handle) } else { None }
        })
        .unwrap_or_default()
    }

    /// Returns the time until the [`deadline`](Self::deadline) of a pending timer of this thread;
    /// zero if the deadline has elapsed.
    ///
    /// Returns `None` if the timer is running or has ended, or if it belongs to another thread's
    /// wheel. Cost: constant, one reading of the clock.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, ManualClock, local_timer};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// Config::new().clock(&clock).install()?;
    /// let request = local_timer().add(Duration::from_secs(5), || println!("too slow"));
    /// clock.advance(Duration::from_secs(2));
    /// // Pass the remaining time on to the next server:
    /// assert_eq!(local_timer().time_left(request), Some(Duration::from_secs(3)));
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    pub fn time_left(self, handle: TimerHandle) -> Option<Duration> {
        ThreadWheel::with_current_engine(|engine| {
            if engine.is_pending(handle) { engine.time_left(handle) } else { None }
        })
        .unwrap_or_default()
    }

    /// Changes the period of a periodic timer of this thread, even from inside its callback.
    ///
    /// If the timer is pending, its next run keeps its deadline, which [`TimerHandle::reset`]
    /// changes. If the timer is running, the new period counts from the deadline of the current
    /// run. A period shorter than a tick, zero included, counts as a tick.
    ///
    /// Returns false if the timer was cancelled, has ended, is not periodic, or belongs to another
    /// thread's wheel. In the timer's own callback, false means that the timer was cancelled during
    /// this run. Cost: constant, no clock, no lock, no allocation.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::time::Duration;
    ///
    /// let heartbeat = local_timer().add_periodic(Duration::from_secs(1), || println!("alive"));
    /// // The connection is idle: ping it less often from now on.
    /// assert!(local_timer().set_period(heartbeat, Duration::from_secs(30)));
    /// assert!(heartbeat.reset(Duration::from_secs(30)));
    /// ```
    ///
    /// Retransmissions of a packet with exponential backoff:
    ///
    /// ```
    /// use corewheel::{Config, ManualClock, TimerHandle, local_timer};
    /// use std::{cell::Cell, rc::Rc, time::Duration};
    ///
    /// let clock = ManualClock::new(); // virtual time
    /// Config::new().clock(&clock).install()?;
    /// let handle = Rc::new(Cell::new(None::<TimerHandle>));
    /// let (own_handle, mut period) = (Rc::clone(&handle), Duration::from_millis(200));
    /// handle.set(Some(local_timer().add_periodic(period, move || {
    ///     println!("send the packet again");
    ///     period *= 2;
    ///     let handle = own_handle.get().expect("the timer was added");
    ///     if !local_timer().set_period(handle, period) {
    ///         println!("acknowledged during this run");
    ///     }
    /// })));
    /// for wait in [200, 400, 800] {
    ///     clock.advance(Duration::from_millis(wait));
    ///     assert_eq!(local_timer().turn().fired, 1);
    /// }
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    #[must_use = "the period is not set if the timer is not periodic or has ended"]
    pub fn set_period(self, handle: TimerHandle, period: Duration) -> bool {
        ThreadWheel::with_current_engine(|engine| engine.set_period(handle, period))
            .unwrap_or(false)
    }

    /// Ends this thread's wheel, and returns the timers that were pending, in no particular order.
    /// Without a drain, the end of the thread drops the callbacks of pending timers.
    ///
    /// After the drain, the wheel fires nothing and refuses timers. If another thread cancels a
    /// timer during the drain, either the cancel succeeds or the drain returns the timer. The
    /// result includes queued closures of [`ShardRef::run`], an unprocessed request of
    /// [`Cores::stop`](crate::Cores::stop), and the timers of waiting futures. Running or dropping
    /// a future's timer wakes the future's task. A future that is polled after the drain and before
    /// its deadline needs [another timer](crate::future#without-a-timer).
    ///
    /// The result also includes the timers of operations in a
    /// [`Purgatory`](crate::purgatory::Purgatory). Running the timer of an operation completes the
    /// operation as [`Expired`](crate::purgatory::Completion::Expired), even before the timeout. If
    /// an operation's timer is dropped, the operation waits without a timeout, and can be
    /// [drained](crate::purgatory::Purgatory::drain) too.
    ///
    /// Cost: at most proportional to the largest number of live timers so far.
    ///
    /// # Panics
    ///
    /// Panics if called during a turn, for example by a callback.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Cores, local_timer};
    /// use std::time::Duration;
    ///
    /// let cores = Cores::builder().threads(2).start(|core| {
    ///     local_timer().add(Duration::from_secs(30), || println!("the lease is over"));
    ///     core.run_timers();
    ///     local_timer().drain().len()
    /// })?;
    /// cores.stop();
    /// for pending in cores.join() {
    ///     assert_eq!(pending.unwrap(), 1);
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    #[must_use = "dropping the timers drops their callbacks"]
    pub fn drain(self) -> Vec<DrainedTimer> {
        // A drain inside a turn would be unsound: it would replace the state `InTurn`, which
        // `Drop for ThreadWheel` checks. So the assertion reads the wheel's `driver_state`, not
        // `ThisThreadWheel`.
        assert!(
            !ThreadWheel::is_in_turn(),
            "a callback cannot drain its wheel: drain after the turn"
        );
        ThreadWheel::with(ThreadWheel::drain).unwrap_or_default()
    }

    #[inline(always)]
    pub(super) fn insert<C: IntoCallback>(
        kind: TimerKind,
        call_site: CallSite,
        when: When,
        callback: C,
    ) -> Result<TimerHandle, AddError<C::Closure>> {
        let mut callback = Some(callback);
        ThreadWheel::add_to_current(kind, call_site, when, &mut callback)
            .map_err(|reason| Self::refused_add_error(reason, callback))
    }

    /// Makes the error of a refused add. `callback` must still hold the callback.
    #[inline]
    fn refused_add_error<C: IntoCallback>(
        reason: AddErrorReason,
        callback: Option<C>,
    ) -> AddError<C::Closure> {
        AddError::new(reason, callback.expect("a refused callback stays").into_closure())
    }
}

impl Config {
    /// Creates this thread's wheel with this configuration. Call `install` before anything else in
    /// the thread uses [`local_timer`].
    ///
    /// This call registers no driver; futures that must wait for the wheel [need
    /// one](crate::future#without-a-driver).
    ///
    /// # Errors
    ///
    /// Returns an error if the thread's wheel exists already or has ended, or if 16,384 shards
    /// exist. Also returns an error if the tick is shorter than a microsecond or longer than an
    /// hour.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, ConfigError, local_timer};
    /// use std::time::Duration;
    ///
    /// Config::new().tick(Duration::from_micros(100)).name("acceptor").install()?;
    /// local_timer().add(Duration::from_micros(300), || println!("on the configured wheel"));
    /// assert_eq!(Config::new().install(), Err(ConfigError::ThreadHasWheel)); // once per thread
    /// # Ok::<(), ConfigError>(())
    /// ```
    pub fn install(self) -> Result<(), ConfigError> {
        ThreadWheel::install(self)
    }
}

impl LocalHandle {
    /// Returns the deadline of the timer if it is pending; see [`LocalTimer::deadline`].
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::time::Duration;
    ///
    /// let retry = local_timer().add_local(Duration::from_secs(1), || println!("again"));
    /// assert!(retry.deadline().expect("it is pending") > local_timer().now());
    /// retry.cancel();
    /// assert_eq!(retry.deadline(), None);
    /// ```
    pub fn deadline(self) -> Option<Instant> {
        local_timer().deadline(self.handle)
    }

    /// Returns the time until the deadline if the timer is pending; zero if the deadline has
    /// elapsed. See [`LocalTimer::time_left`].
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::time::Duration;
    ///
    /// let retry = local_timer().add_local(Duration::from_secs(1), || println!("again"));
    /// let left = retry.time_left().expect("it is pending");
    /// assert!(left > Duration::from_millis(500));
    /// ```
    pub fn time_left(self) -> Option<Duration> {
        local_timer().time_left(self.handle)
    }

    /// Returns a handle of this timer that may leave the thread. After this call, ending the timer
    /// takes a compare-and-swap. The `LocalHandle` stays valid.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Cancel, local_timer};
    /// use std::{thread, time::Duration};
    ///
    /// let retry = local_timer().add_local(Duration::from_secs(1), || println!("again"));
    /// let shared = retry.share();
    /// assert_eq!(thread::spawn(move || shared.cancel()).join().unwrap(), Cancel::Cancelled);
    /// assert_eq!(retry.cancel(), Cancel::Ended);
    /// ```
    pub fn share(self) -> TimerHandle {
        if ThisThreadWheel::if_owner_of(self.handle).is_some() {
            let _ = ThreadWheel::with_current_engine(|engine| engine.share(self.handle));
        }
        self.handle
    }
}
