//! [`Shard`]: one core's timers. A loop receives the payload of each timer that expires. The module
//! `engine` implements both a `Shard` and a thread's wheel.

mod engine;
mod expired;
mod sleep;

use std::{
    fmt, iter,
    time::{Duration, Instant},
};

pub(crate) use self::engine::{Engine, TimerAtClose, UserCodeStep};
use self::expired::ExpiryTimes;
pub use self::{
    expired::{Expired, Expiry},
    sleep::PreparedSleep,
};
use crate::{
    clock::tick::TimerSchedule,
    config::Config,
    cross_core::{
        call_site::CallSite,
        callback::MoveIntoPlace,
        handle::TimerHandle,
        slab::{ClaimedTimer, OwnerNodeRef, Slab},
        state::TimerKind,
    },
    error::{AddError, AddErrorReason, ConfigError},
    gauges::Counts,
    limits::LONG_OVERDUE_GRACE_NANOS,
    metrics::ShardMetrics,
    when::When,
};

/// One core's timers, each with a payload. [`next_expired`](Self::next_expired) returns expired
/// timers one at a time, by value.
///
/// Use a shard if your timers carry data ("connection 17 is idle"). For callbacks, use this
/// thread's [`local_timer`](crate::local_timer).
///
/// A shard may move between threads. Any thread can cancel and reset a timer by its handle. Only
/// the thread that owns the shard can add timers. To add timers from other threads, use a
/// [`ShardRef`](crate::ShardRef) to a thread's `local_timer()`.
///
/// A shard with one timer takes about 200 kB of memory: see [memory](crate::guide::costs#memory).
///
/// # Examples
///
/// ```
/// use corewheel::{Config, ManualClock, Shard};
/// use std::time::Duration;
///
/// let clock = ManualClock::new();
/// let mut shard = Shard::with_config(Config::new().clock(&clock))?;
/// shard.add(Duration::from_millis(20), "idle");
/// let lease = shard.add(Duration::from_millis(10), "lease");
/// assert_eq!(shard.cancel(lease), Some("lease"));
///
/// clock.advance(Duration::from_millis(20));
/// shard.turn();
/// while let Some(expired) = shard.next_expired() {
///     assert_eq!(expired.payload, "idle");
///     shard.add(Duration::from_millis(20), expired.payload);
/// }
/// assert_eq!(shard.len(), 1);
/// # Ok::<(), corewheel::ConfigError>(())
/// ```
pub struct Shard<T> {
    engine: Engine<T>,
}

impl<T> Shard<T> {
    /// Creates a shard with a tick of a millisecond and the monotonic clock.
    ///
    /// # Panics
    ///
    /// Panics if 16,384 shards exist already. Thread wheels count as shards.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Shard;
    /// use std::time::Duration;
    ///
    /// let mut shard = Shard::new();
    /// shard.add(Duration::from_secs(30), "idle");
    /// assert_eq!(shard.len(), 1);
    /// ```
    #[track_caller]
    pub fn new() -> Self {
        Self::with_config(Config::new()).expect("no shard can be created")
    }

    /// Creates a shard from `config`.
    ///
    /// # Errors
    ///
    /// Returns an error if the tick is shorter than a microsecond or longer than an hour, or if
    /// 16,384 shards exist already.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, ConfigError, Shard};
    /// use std::time::Duration;
    ///
    /// let shard = Shard::<u64>::with_config(Config::new().tick(Duration::from_micros(100)));
    /// assert!(shard.is_ok());
    /// let tick = Duration::from_nanos(100);
    /// let refused = Shard::<u64>::with_config(Config::new().tick(tick));
    /// assert_eq!(refused.unwrap_err(), ConfigError::TickOutOfRange { tick });
    /// ```
    pub fn with_config(config: Config) -> Result<Self, ConfigError> {
        let mut engine = Engine::new(config, Slab::new(), |_| ())?;
        engine.shared.gauges.overdue_grace_nanos.set(LONG_OVERDUE_GRACE_NANOS);
        // Allows no adds yet, so that the first add checks whether the loop has begun.
        let _ = engine.grant_add_allowance(0);
        Ok(Self { engine })
    }

    /// Adds a timer that is due after a delay or at an instant; see [`When`]. The deadline is
    /// rounded up to a tick. The timer fires in the first turn that begins after this call and
    /// reaches the deadline, unless a turn's budget defers it. A timer with a delay of zero is due
    /// in the next turn.
    ///
    /// Cost: constant, one reading of the clock, or two with the feature `origins`. May allocate a
    /// page for 4,096 timers.
    ///
    /// # Panics
    ///
    /// Panics if the shard is full or has been drained; see [`try_add`](Self::try_add).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Shard, When};
    /// use std::time::Duration;
    ///
    /// let mut shard = Shard::new();
    /// shard.add(Duration::from_secs(30), "idle");
    /// shard.add(When::after(Duration::from_secs(1)).spread(Duration::from_secs(4)), "reconnect");
    /// ```
    #[inline]
    #[track_caller]
    pub fn add(&mut self, when: impl Into<When>, payload: T) -> TimerHandle {
        AddError::or_panic(self.try_add(when, payload))
    }

    /// Adds a timer, or returns an error if [`add`](Self::add) would panic.
    ///
    /// # Errors
    ///
    /// Returns an error with the payload if the shard has been drained or is full. A shard is full
    /// when it has as many live timers as [`Config::limit`](crate::Config::limit) allows, at most
    /// 2^25 - 1.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, Shard};
    /// use std::time::Duration;
    ///
    /// let mut shard = Shard::with_config(Config::new().limit(1))?;
    /// shard.add(Duration::from_secs(30), "first");
    /// let refused = shard.try_add(Duration::from_secs(30), "second").expect_err("it is full");
    /// assert_eq!(refused.into_inner(), "second");
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    #[inline]
    #[track_caller]
    pub fn try_add(
        &mut self,
        when: impl Into<When>,
        payload: T,
    ) -> Result<TimerHandle, AddError<T>> {
        self.insert(when.into(), TimerKind::Shared, CallSite::caller(), payload)
    }

    /// Adds a periodic timer, which expires once in every `period`.
    /// [`next_expiry`](Self::next_expiry) lends the timer's payload at each expiry. If
    /// [`next_expired`](Self::next_expired) returns the timer, the timer ends.
    ///
    /// Expiry *n* is due *n* periods after the add, so expiries do not drift. If several expiries
    /// of the timer are due in one turn, the turn skips all but the first. A period shorter than a
    /// tick counts as a tick.
    ///
    /// Cost: the same as [`add`](Self::add). A page of 4,096 timers that holds periodic timers
    /// takes up to 64 KiB more.
    ///
    /// # Panics
    ///
    /// Panics if the shard is full or has been drained; see [`try_add`](Self::try_add).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, Expiry, ManualClock, Shard};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let mut shard = Shard::with_config(Config::new().clock(&clock))?;
    /// let heartbeat = shard.add_periodic(Duration::from_secs(1), ["connection 1", "connection 2"]);
    /// clock.advance(Duration::from_secs(1));
    /// shard.turn();
    /// while let Some(Expiry::Periodic(expired)) = shard.next_expiry() {
    ///     for connection in expired.payload {
    ///         println!("ping {connection}");
    ///     }
    /// }
    /// assert_eq!(shard.cancel(heartbeat), Some(["connection 1", "connection 2"]));
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    #[track_caller]
    pub fn add_periodic(&mut self, period: Duration, payload: T) -> TimerHandle {
        AddError::or_panic(self.try_add_periodic(period, payload))
    }

    /// Adds a periodic timer, or returns an error if [`add_periodic`](Self::add_periodic) would
    /// panic.
    ///
    /// # Errors
    ///
    /// Returns an error with the payload if the shard is full or has been drained; see
    /// [`try_add`](Self::try_add).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, Shard};
    /// use std::time::Duration;
    ///
    /// let mut shard = Shard::with_config(Config::new().limit(0))?;
    /// let refused = shard.try_add_periodic(Duration::from_secs(1), "heartbeat");
    /// assert_eq!(refused.expect_err("it is full").into_inner(), "heartbeat");
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    #[track_caller]
    pub fn try_add_periodic(
        &mut self,
        period: Duration,
        payload: T,
    ) -> Result<TimerHandle, AddError<T>> {
        self.insert(When::after(period), TimerKind::Periodic, CallSite::caller(), payload)
    }

    /// Cancels a timer of this shard and returns its payload. Returns `None` if the timer has ended
    /// or was cancelled, or if the handle is of another shard.
    ///
    /// Cost: constant, no clock, no lock, no allocation.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Shard;
    /// use std::time::Duration;
    ///
    /// let mut shard = Shard::new();
    /// let lease = shard.add(Duration::from_secs(30), "lease");
    /// let deadline = shard.deadline(lease); // `cancel` does not return the deadline
    /// assert_eq!(shard.cancel(lease), Some("lease"));
    /// assert_eq!(shard.cancel(lease), None);
    /// assert!(deadline > Some(shard.now()));
    /// ```
    #[inline]
    pub fn cancel(&mut self, handle: TimerHandle) -> Option<T> {
        if handle.shard() != self.engine.handle_template.shard() {
            return None;
        }
        let take_payload = |node: OwnerNodeRef<'_, T>| node.take_payload();
        self.engine.cancel(handle, take_payload).ok()
    }

    /// Resets a pending timer of this shard to an earlier or later deadline. The handle stays
    /// valid.
    ///
    /// Returns false if the timer has ended or was cancelled, or if the handle is of another shard.
    /// If the new deadline has already passed, a later turn fires the timer, not the turn in
    /// progress.
    ///
    /// Cost: constant, one reading of the clock.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Shard;
    /// use std::time::Duration;
    ///
    /// let mut shard = Shard::new();
    /// let lease = shard.add(Duration::from_secs(30), "lease");
    /// assert!(shard.reset(lease, Duration::from_secs(60)));
    /// shard.cancel(lease);
    /// assert!(!shard.reset(lease, Duration::from_secs(60)));
    /// ```
    #[inline]
    #[must_use = "a timer that was not reset has ended or is running"]
    pub fn reset(&mut self, handle: TimerHandle, when: impl Into<When>) -> bool {
        if handle.shard() != self.engine.handle_template.shard() {
            return false;
        }
        self.engine.reset(handle, |engine| engine.deadline_nanos(when.into())).is_some()
    }

    /// Changes the period of a periodic timer of this shard, but not the time of its next expiry,
    /// which [`reset`](Self::reset) changes.
    ///
    /// A period shorter than a tick counts as a tick. Returns false if the timer has ended, was
    /// cancelled or is not periodic, or if the handle is of another shard.
    ///
    /// Cost: constant, no clock, no lock, no allocation.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Shard;
    /// use std::time::Duration;
    ///
    /// let mut shard = Shard::new();
    /// let heartbeat = shard.add_periodic(Duration::from_secs(1), "connection 1");
    /// // The connection is idle: ping it less often from now on.
    /// assert!(shard.set_period(heartbeat, Duration::from_secs(30)));
    /// assert!(shard.reset(heartbeat, Duration::from_secs(30)));
    /// ```
    #[must_use = "the period is not set if the timer is not periodic or has ended"]
    pub fn set_period(&mut self, handle: TimerHandle, period: Duration) -> bool {
        self.engine.set_period(handle, period)
    }

    /// Returns the deadline of a pending timer of this shard, rounded up to a tick. For a periodic
    /// timer, returns the time of the next expiry. For a timer with [slack](When::slack), returns
    /// the tick that the shard chose within the slack. A deadline that had elapsed at the add or
    /// reset is approximate.
    ///
    /// Returns `None` if the timer has ended or was cancelled, or the handle is of another shard.
    ///
    /// Cost: constant, no clock, no lock, no allocation.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Shard;
    /// use std::time::Duration;
    ///
    /// let mut shard = Shard::new();
    /// let lease = shard.add(Duration::from_secs(30), "lease");
    /// let deadline = shard.deadline(lease).expect("it is pending");
    /// assert!(deadline >= shard.now() + Duration::from_secs(29));
    /// shard.cancel(lease);
    /// assert_eq!(shard.deadline(lease), None);
    /// ```
    pub fn deadline(&self, handle: TimerHandle) -> Option<Instant> {
        self.engine.deadline(handle)
    }

    /// Returns the time until the deadline of a pending timer of this shard, or zero if the
    /// deadline has elapsed.
    ///
    /// Returns `None` if the timer has ended or was cancelled, or the handle is of another shard.
    /// Cost: constant, one reading of the clock.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, ManualClock, Shard};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let mut shard = Shard::with_config(Config::new().clock(&clock))?;
    /// let lease = shard.add(Duration::from_secs(30), "lease");
    /// clock.advance(Duration::from_secs(10));
    /// assert_eq!(shard.time_left(lease), Some(Duration::from_secs(20)));
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    pub fn time_left(&self, handle: TimerHandle) -> Option<Duration> {
        self.engine.time_left(handle)
    }

    /// Returns the payload of a pending timer of this shard.
    ///
    /// Returns `None` if the timer has ended or was cancelled, or if the handle is of another
    /// shard. Cost: constant, no clock, no lock.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Cancel, Shard};
    /// use std::{thread, time::Duration};
    ///
    /// let mut shard = Shard::new();
    /// let lease = shard.add(Duration::from_secs(30), "lease");
    /// assert_eq!(shard.get(lease), Some(&"lease"));
    /// thread::spawn(move || lease.cancel()).join().unwrap();
    /// assert_eq!(shard.get(lease), None);
    /// ```
    #[inline]
    pub fn get(&self, handle: TimerHandle) -> Option<&T> {
        let is_of_this_shard = handle.shard() == self.engine.handle_template.shard();
        if is_of_this_shard {
            self.engine.nodes.payload(handle.index(), handle.generation)
        } else {
            None
        }
    }

    /// Returns a mutable reference to the payload of a pending timer of this shard.
    ///
    /// Returns `None` if the timer has ended or was cancelled, or if the handle is of another
    /// shard. Cost: constant, no clock, no lock.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Shard;
    /// use std::time::Duration;
    ///
    /// let mut shard = Shard::new();
    /// let retry = shard.add(Duration::from_millis(250), 1);
    /// *shard.get_mut(retry).expect("it is pending") += 1;
    /// assert_eq!(shard.cancel(retry), Some(2));
    /// ```
    #[inline]
    pub fn get_mut(&mut self, handle: TimerHandle) -> Option<&mut T> {
        let is_of_this_shard = handle.shard() == self.engine.handle_template.shard();
        if is_of_this_shard {
            self.engine.nodes.payload_mut(handle.index(), handle.generation)
        } else {
            None
        }
    }

    /// Returns true if the timer is pending in this shard. Cost: constant, no clock, no lock.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Shard;
    /// use std::time::Duration;
    ///
    /// let mut shard = Shard::new();
    /// let lease = shard.add(Duration::from_secs(30), "lease");
    /// assert!(shard.contains(lease));
    /// assert!(!Shard::<&str>::new().contains(lease));
    /// ```
    #[inline]
    pub fn contains(&self, handle: TimerHandle) -> bool {
        self.get(handle).is_some()
    }

    /// Begins a turn: reads the clock, so that [`next_expired`](Self::next_expired) returns the
    /// timers that are due now. The turn consumes up to 1,024 resets and cancels from other
    /// threads. After `turn`, the loop must call `next_expired` or
    /// [`next_expiry`](Self::next_expiry) until the call returns `None`. If the loop stops these
    /// calls earlier and work remains, [`time_until_next`](Self::time_until_next) returns zero, so
    /// the loop spins.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, ManualClock, Shard};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let mut shard = Shard::with_config(Config::new().clock(&clock))?;
    /// shard.add(Duration::from_secs(30), "idle");
    /// clock.advance(Duration::from_secs(30));
    /// shard.turn();
    /// while let Some(expired) = shard.next_expired() {
    ///     println!("{} has expired", expired.payload);
    /// }
    /// assert!(shard.is_empty());
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    #[inline]
    pub fn turn(&mut self) {
        self.turn_within(usize::MAX);
    }

    /// Begins a [`turn`](Self::turn) at `now`, an instant that the loop has read from the shard's
    /// clock.
    ///
    /// If the shard has already read a later instant, the turn uses that instant. If `now` is in
    /// the future, timers may fire early.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Shard, When};
    /// use std::time::Duration;
    ///
    /// let mut shard = Shard::new();
    /// let now = shard.now();
    /// shard.turn_at(now);
    /// while let Some(expired) = shard.next_expired() {
    ///     println!("{}", expired.payload);
    /// }
    /// shard.add(When::at(now + Duration::from_secs(30)), "idle");
    /// ```
    pub fn turn_at(&mut self, now: Instant) {
        self.engine.use_loop_reading(now);
        if !self.engine.finish_turn_if_idle() {
            self.engine.begin_pass_and_end_if_empty(usize::MAX);
        }
    }

    /// Begins a turn with a budget. The turn handles at most `budget` entries of the wheel and at
    /// most `budget` remote requests, never more than 1,024 requests. Each entry or request may
    /// yield a due timer, so the turn may return more than `budget` timers. If entries or requests
    /// remain, [`is_behind`](Self::is_behind) returns true,
    /// [`time_until_next`](Self::time_until_next) returns zero, and the next turn continues in
    /// order. A budget of zero makes no progress.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, ManualClock, Shard};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let mut shard = Shard::with_config(Config::new().clock(&clock))?;
    /// for connection in 0..100 {
    ///     shard.add(Duration::from_secs(30), connection);
    /// }
    /// clock.advance(Duration::from_secs(30));
    /// shard.turn_within(10);
    /// let mut expired = 0;
    /// while shard.next_expired().is_some() {
    ///     expired += 1;
    /// }
    /// assert!(expired <= 10 && shard.is_behind());
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    #[inline]
    pub fn turn_within(&mut self, budget: usize) {
        if !self.engine.try_read_clock() {
            self.engine.turn_with_slow_reading(budget);
        } else if !self.engine.finish_turn_if_idle() {
            self.engine.begin_pass_and_end_if_empty(budget);
        }
    }

    /// Returns true if entries of the wheel or remote requests remain unprocessed, usually because
    /// the latest turn used up its budget or was abandoned.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, ManualClock, Shard};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let mut shard = Shard::with_config(Config::new().clock(&clock))?;
    /// (0..100).for_each(|connection| _ = shard.add(Duration::from_secs(30), connection));
    /// clock.advance(Duration::from_secs(30));
    /// shard.turn_within(10);
    /// while shard.next_expired().is_some() {}
    /// assert!(shard.is_behind());
    /// shard.turn();
    /// while shard.next_expired().is_some() {}
    /// assert!(!shard.is_behind());
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    pub fn is_behind(&self) -> bool {
        self.engine.is_behind()
    }

    /// Returns the next due timer of this turn, in tick order. The order within a tick is
    /// unspecified. Returns `None` when the turn has ended, and before the first
    /// [`turn`](Self::turn).
    ///
    /// A timer that another thread has reset may come out of order. At its end, the turn drops the
    /// payloads of timers that other threads have cancelled.
    ///
    /// This call gives the payload to the caller, so it ends even a periodic timer. A loop with
    /// periodic timers calls [`next_expiry`](Self::next_expiry).
    ///
    /// Cost: constant for each consumed remote request, plus the cost of
    /// [`Wheel::advance`](crate::Wheel::advance).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, ManualClock, Shard};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let mut shard = Shard::with_config(Config::new().clock(&clock))?;
    /// shard.add(Duration::from_secs(20), "second");
    /// shard.add(Duration::from_secs(10), "first");
    /// clock.advance(Duration::from_secs(20));
    /// shard.turn();
    /// let order: Vec<_> = std::iter::from_fn(|| shard.next_expired()).map(|it| it.payload).collect();
    /// assert_eq!(order, ["first", "second"]);
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    #[inline]
    #[must_use = "the payload of a timer that has ended"]
    pub fn next_expired(&mut self) -> Option<Expired<T>> {
        if self.engine.stats.is_in_pass { self.next_expired_in_pass() } else { None }
    }

    /// Returns the next due timer of this turn, and lends the payload of a periodic timer. Order
    /// and cost are as in [`next_expired`](Self::next_expired).
    ///
    /// A periodic timer is pending again when this call returns it, so the loop can reset or
    /// [`cancel`](Self::cancel) it.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, Expiry, ManualClock, Shard};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let mut shard = Shard::with_config(Config::new().clock(&clock))?;
    /// shard.add_periodic(Duration::from_millis(10), 0); // counts its expiries
    /// shard.add(Duration::from_millis(25), 1_000);
    ///
    /// let mut ended = Vec::new();
    /// while !shard.is_empty() {
    ///     clock.advance(Duration::from_millis(5));
    ///     shard.turn();
    ///     while let Some(expiry) = shard.next_expiry() {
    ///         match expiry {
    ///             Expiry::Ended(expired) => ended.push(expired.payload),
    ///             Expiry::Periodic(expired) => {
    ///                 *expired.payload += 1;
    ///                 if *expired.payload == 3 {
    ///                     let handle = expired.handle;
    ///                     ended.extend(shard.cancel(handle));
    ///                 }
    ///             }
    ///         }
    ///     }
    /// }
    /// assert_eq!(ended, [1_000, 3]);
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    #[inline]
    pub fn next_expiry(&mut self) -> Option<Expiry<'_, T>> {
        if self.engine.stats.is_in_pass { self.next_expiry_in_pass() } else { None }
    }

    /// Returns the moment at which the shard next needs a turn, even one that only moves timers, or
    /// `None` if it needs none. If a remote reset is queued, returns the beginning of the latest
    /// turn, so that the loop calls `turn` at once.
    ///
    /// The returned moment is never after the earliest deadline, but it may be before, because some
    /// turns only move timers between slots:
    ///
    /// - up to five turns for a timer due more than 2^17 - 2^11 ticks ahead,
    /// - a turn at the old deadline of timers that were reset to a later deadline: usually one turn
    ///   for up to 96 timers, and at most one for each further timer,
    /// - several turns at successive ticks, if more than 8,192 timers must move by the last of
    ///   these ticks.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Shard;
    /// use std::time::Duration;
    ///
    /// let mut shard = Shard::new();
    /// assert_eq!(shard.next_deadline(), None);
    /// let lease = shard.add(Duration::from_secs(30), "lease");
    /// assert!(shard.next_deadline() <= shard.deadline(lease));
    /// ```
    pub fn next_deadline(&self) -> Option<Instant> {
        self.engine.next_turn_instant()
    }

    /// Returns the time until the [`next_deadline`](Self::next_deadline), the next turn that fires
    /// or moves timers, or zero if that moment has passed. Reads the clock, and publishes the
    /// shard's [`metrics`](crate::metrics).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Shard;
    /// use std::time::Duration;
    ///
    /// let mut shard = Shard::new();
    /// assert_eq!(shard.time_until_next(), None);
    /// shard.add(Duration::from_secs(30), "lease");
    /// assert!(shard.time_until_next() <= Some(Duration::from_millis(30_001)));
    /// ```
    pub fn time_until_next(&self) -> Option<Duration> {
        self.engine.publish_next_due(self.engine.next_turn_nanos())
    }

    /// Announces that the owner is going to sleep, for at most [`PreparedSleep::timeout`]. Also
    /// publishes the shard's [`metrics`](crate::metrics). Until the [`PreparedSleep`] is dropped,
    /// these requests of other threads wake the owner ([`Config::wake_hook`]):
    ///
    /// - a reset to a deadline before the end of the sleep,
    /// - the first cancel in a sleep longer than [`Config::drop_cancelled_within`],
    /// - 1,024 queued resets, or 1,024 queued cancels.
    ///
    /// After [`drain`](Self::drain), the timeout is zero. If other threads delay the freeing of
    /// surplus memory, the timeout is at most a second.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Shard;
    /// use std::time::Duration;
    ///
    /// let mut shard = Shard::new();
    /// shard.add(Duration::from_millis(5), "idle");
    /// while !shard.is_empty() {
    ///     shard.prepare_sleep().park();
    ///     shard.turn();
    ///     while let Some(expired) = shard.next_expired() {
    ///         println!("{}", expired.payload);
    ///     }
    /// }
    /// ```
    pub fn prepare_sleep(&self) -> PreparedSleep<'_> {
        if self.engine.is_closed {
            return PreparedSleep::zero_length();
        }
        let (mut sleep_end, ends_on_cancel) = self.engine.sleep_end();
        if self.engine.is_long_sleep(sleep_end) {
            self.engine.nodes.free_retired();
            sleep_end = self.engine.shorten_long_sleep(sleep_end);
        }
        let timeout = self.engine.publish_next_due(sleep_end);
        PreparedSleep::new(&self.engine.shared, sleep_end, ends_on_cancel, timeout)
    }

    /// Announces a sleep, as [`prepare_sleep`](Self::prepare_sleep) does, and calls `wait` with its
    /// [timeout](PreparedSleep::timeout). The announcement ends when `wait` returns or panics.
    ///
    /// A thread that waits only for timers can call [`PreparedSleep::park`].
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, Shard};
    /// use mio::{Events, Poll, Token, Waker};
    /// use std::{io::ErrorKind, time::Duration};
    ///
    /// let mut poll = Poll::new()?;
    /// let waker = Waker::new(poll.registry(), Token(usize::MAX))?;
    /// let config = Config::new().wake_hook(move || waker.wake().expect("the poll is alive"));
    /// let mut shard = Shard::with_config(config).expect("there are few shards");
    /// let mut events = Events::with_capacity(1024);
    /// shard.add(Duration::from_millis(5), "idle");
    /// while !shard.is_empty() {
    ///     match shard.sleep_with(|timeout| poll.poll(&mut events, timeout)) {
    ///         Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
    ///         _ => (), // a signal ends a poll as well
    ///     }
    ///     shard.turn();
    ///     while let Some(expired) = shard.next_expired() {
    ///         println!("{}", expired.payload);
    ///     }
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// A loop that drives both a `Shard` and this thread's `local_timer()` announces a sleep for
    /// each, polls for the shorter timeout, and sets one wake hook for both:
    ///
    /// ```
    /// use corewheel::{Config, Shard, local_timer};
    /// use mio::{Events, Poll, Token, Waker};
    /// use std::{sync::Arc, time::Duration};
    ///
    /// let (mut poll, mut events) = (Poll::new()?, Events::with_capacity(1024));
    /// let waker = Arc::new(Waker::new(poll.registry(), Token(usize::MAX))?);
    /// let config = || {
    ///     let waker = Arc::clone(&waker);
    ///     Config::new().wake_hook(move || waker.wake().expect("the poll is alive"))
    /// };
    /// config().install()?;
    /// let mut shard = Shard::with_config(config())?;
    ///
    /// local_timer().add(Duration::from_millis(5), || println!("close the connection"));
    /// shard.add(Duration::from_millis(8), "idle");
    /// while !(local_timer().is_empty() && shard.is_empty()) {
    ///     local_timer().sleep_with(|own| {
    ///         shard.sleep_with(|other| poll.poll(&mut events, own.into_iter().chain(other).min()))
    ///     })?;
    ///     local_timer().turn();
    ///     shard.turn();
    ///     while let Some(expired) = shard.next_expired() {
    ///         println!("{}", expired.payload);
    ///     }
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sleep_with<R>(&self, wait: impl FnOnce(Option<Duration>) -> R) -> R {
        let sleep = self.prepare_sleep();
        wait(sleep.timeout())
    }

    /// Returns the number of live timers. A remotely cancelled timer counts until the owner has
    /// consumed the cancel.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Shard;
    /// use std::time::Duration;
    ///
    /// let mut shard = Shard::new();
    /// let lease = shard.add(Duration::from_secs(30), "lease");
    /// assert_eq!(shard.len(), 1);
    /// shard.cancel(lease);
    /// assert_eq!(shard.len(), 0);
    /// ```
    pub fn len(&self) -> usize {
        self.engine.len()
    }

    /// Returns true if no timer is live.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Shard;
    /// use std::time::Duration;
    ///
    /// let mut shard = Shard::new();
    /// assert!(shard.is_empty());
    /// shard.add(Duration::from_secs(30), "lease");
    /// assert!(!shard.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the present time of the shard's clock.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Shard;
    /// use std::time::Duration;
    ///
    /// let mut shard = Shard::new();
    /// let deadline = shard.now() + Duration::from_secs(30);
    /// let lease = shard.add(deadline, "lease");
    /// assert!(shard.deadline(lease) >= Some(deadline));
    /// ```
    pub fn now(&self) -> Instant {
        self.engine.clock.source_clock.now()
    }

    /// Iterates over the handles, deadlines and payloads of the pending timers, in no particular
    /// order.
    ///
    /// Cost: a few nanoseconds for each timer that the shard has memory for.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Shard;
    /// use std::time::Duration;
    ///
    /// let mut shard = Shard::new();
    /// let lease = shard.add(Duration::from_secs(30), "lease");
    /// let deadline = shard.deadline(lease).expect("it is pending");
    /// assert_eq!(shard.iter().collect::<Vec<_>>(), [(lease, deadline, &"lease")]);
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = (TimerHandle, Instant, &T)> {
        let first = self.engine.nodes.first_pending_owner_added_timer(0);
        let pending = iter::successors(first, |(index, _)| {
            self.engine.nodes.first_pending_owner_added_timer(index + 1)
        });
        pending.filter_map(|(index, generation)| {
            let handle = self.engine.handle_template.with_index_and_generation(index, generation);
            Some((handle, self.deadline(handle)?, self.get(handle)?))
        })
    }

    /// Calls `keep` with the handle, the deadline and the payload of every pending timer, in no
    /// particular order. If `keep` returns false, cancels the timer and drops its payload.
    ///
    /// If a payload's destructor panics, the panic is reported to
    /// [`Config::panic_hook`](crate::Config::panic_hook). If `keep` panics, the timers not visited
    /// yet stay pending.
    ///
    /// Cost: the same as [`iter`](Self::iter), plus a [`cancel`](Self::cancel) for each cancelled
    /// timer.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Shard;
    /// use std::time::Duration;
    ///
    /// let mut shard = Shard::new();
    /// shard.add(Duration::from_secs(10), "session 1");
    /// shard.add(Duration::from_secs(20), "session 2");
    /// shard.retain(|_handle, _deadline, session| *session != "session 1");
    /// assert_eq!(shard.len(), 1);
    /// ```
    pub fn retain(&mut self, mut keep: impl FnMut(TimerHandle, Instant, &mut T) -> bool) {
        let mut next_index = 0;
        while let Some((index, generation)) =
            self.engine.nodes.first_pending_owner_added_timer(next_index)
        {
            next_index = index + 1;
            let handle = self.engine.handle_template.with_index_and_generation(index, generation);
            let Some(deadline) = self.deadline(handle) else { continue };
            let is_kept =
                self.get_mut(handle).is_none_or(|payload| keep(handle, deadline, payload));
            if !is_kept {
                let payload = self.cancel(handle);
                self.engine.shared.hooks.drop_catching_panic(payload);
            }
        }
    }

    /// Cancels every pending timer and drops the payloads. The shard stays usable, unlike after
    /// [`drain`](Self::drain). Cost: the same as [`retain`](Self::retain).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Shard;
    /// use std::time::Duration;
    ///
    /// let mut shard = Shard::new();
    /// shard.add(Duration::from_secs(10), "session");
    /// shard.clear();
    /// assert!(shard.is_empty());
    /// shard.add(Duration::from_secs(10), "another session");
    /// ```
    pub fn clear(&mut self) {
        self.retain(|_, _, _| false);
    }

    /// Allocates memory for `additional` more timers, up to about 2^24 in all. The shard keeps this
    /// memory until [`shrink_to_fit`](Self::shrink_to_fit).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Shard;
    /// use std::time::Duration;
    ///
    /// let mut shard = Shard::new();
    /// shard.reserve(10_000);
    /// shard.add(Duration::from_secs(10), "session"); // allocates nothing
    /// ```
    pub fn reserve(&mut self, additional: usize) {
        self.engine.nodes.reserve(self.len().saturating_add(additional));
    }

    /// Returns the number of timers for which the shard has memory.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, Shard};
    ///
    /// let shard: Shard<&str> = Shard::with_config(Config::new().capacity(10_000))?;
    /// assert!(shard.capacity() >= 10_000);
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    pub fn capacity(&self) -> usize {
        self.engine.nodes.capacity()
    }

    /// Frees every page of 4,096 timers that has no live timer, except the first page. Also frees
    /// reserved pages. Handles stay valid. Pages that another thread may be reading are freed
    /// later, or kept for reuse.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Shard;
    ///
    /// let mut shard: Shard<&str> = Shard::new();
    /// shard.reserve(100_000);
    /// shard.shrink_to_fit();
    /// assert!(shard.capacity() < 100_000);
    /// ```
    pub fn shrink_to_fit(&mut self) {
        if !self.engine.is_closed {
            self.engine.nodes.free_empty_pages();
        }
    }

    /// Returns a pending timer with the earliest deadline: its handle, its deadline and its
    /// payload.
    ///
    /// Cost: the same as [`iter`](Self::iter). [`next_deadline`](Self::next_deadline) costs less.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Shard;
    /// use std::time::Duration;
    ///
    /// let mut shard = Shard::new();
    /// shard.add(Duration::from_secs(30), "lease");
    /// let retry = shard.add(Duration::from_millis(250), "retry");
    /// let (first, deadline, payload) = shard.peek().expect("two are pending");
    /// assert_eq!((first, *payload), (retry, "retry"));
    /// assert_eq!(shard.deadline(retry), Some(deadline));
    /// ```
    pub fn peek(&self) -> Option<(TimerHandle, Instant, &T)> {
        self.iter().min_by_key(|(_, deadline, _)| *deadline)
    }

    /// Ends the shard and returns the pending timers with their deadlines, rounded up to a tick, in
    /// no particular order.
    ///
    /// After this call, no timer fires, [`try_add`](Self::try_add) returns an error, and a cancel
    /// by handle returns [`Cancel::Ended`](crate::Cancel::Ended). A timer that another thread
    /// cancels during this call is either cancelled or returned, as the result of the cancel shows.
    ///
    /// Dropping a shard also ends it, and drops the payloads.
    ///
    /// Cost: at most proportional to the largest number of live timers so far.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Shard;
    /// use std::time::Duration;
    ///
    /// let mut shard = Shard::new();
    /// let lease = shard.add(Duration::from_secs(30), "lease");
    /// for (deadline, payload) in shard.drain() {
    ///     assert!(payload == "lease" && deadline > shard.now());
    /// }
    /// assert!(shard.try_add(Duration::from_secs(1), "too late").is_err());
    /// ```
    #[must_use = "these timers were pending"]
    pub fn drain(&mut self) -> Vec<(Instant, T)> {
        let pending = self.engine.close().drop_cancelled_payloads(&self.engine.shared).into_iter();
        let clock = &self.engine.clock.source_clock;
        pending.map(|timer| (clock.instant_at(timer.due), timer.payload)).collect()
    }

    /// Returns the counts of the shard's timers, messages and turns. Cost: one or two cache misses
    /// for each queued message.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Shard;
    /// use std::time::Duration;
    ///
    /// let mut shard = Shard::new();
    /// let lease = shard.add(Duration::from_secs(30), "lease");
    /// shard.cancel(lease);
    /// let counts = shard.counts();
    /// assert_eq!((counts.added, counts.cancelled, counts.live), (1, 1, 0));
    /// ```
    pub fn counts(&self) -> Counts {
        self.engine.counts()
    }

    /// Returns the current counts of the shard and the lateness of its timers. Other threads can
    /// read the published metrics with [`metrics::shards`](crate::metrics::shards).
    ///
    /// Cost: the same as [`counts`](Self::counts), plus a copy of the histograms.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, Shard};
    /// use std::time::Duration;
    ///
    /// let mut shard = Shard::with_config(Config::new().name("leases"))?;
    /// shard.add(Duration::from_secs(30), "lease");
    /// let metrics = shard.metrics();
    /// assert_eq!((metrics.name.as_str(), metrics.counts.live), ("leases", 1));
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    pub fn metrics(&self) -> ShardMetrics {
        self.engine.metrics()
    }

    /// Returns, for each call site that added live timers, the number of these timers and the age
    /// of the oldest. Needs the feature `origins`.
    ///
    /// Cost: at most proportional to the largest number of live timers so far.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Shard;
    /// use std::time::Duration;
    ///
    /// let mut shard = Shard::new();
    /// shard.add(Duration::from_secs(30), "lease");
    /// println!("{}", shard.live_timers_by_call_site());
    /// assert_eq!(shard.live_timers_by_call_site().by_live_count()[0].live, 1);
    /// ```
    #[cfg(feature = "origins")]
    pub fn live_timers_by_call_site(&self) -> crate::metrics::LiveTimersByCallSite {
        self.engine.live_timers_by_call_site()
    }

    #[inline(always)]
    fn insert(
        &mut self,
        when: When,
        kind: TimerKind,
        call_site: CallSite,
        payload: T,
    ) -> Result<TimerHandle, AddError<T>> {
        let schedule = self.engine.schedule_for(when, kind);
        let mut payload = Some(MoveIntoPlace(payload));
        let add_result = if self.engine.has_add_allowance() {
            self.engine.insert(schedule, kind, call_site, &mut payload)
        } else {
            self.insert_slow(schedule, kind, call_site, &mut payload)
        };
        add_result.map_err(|reason| {
            let MoveIntoPlace(payload) = payload.expect("a refused payload stays");
            AddError::new(reason, payload)
        })
    }

    /// Adds a timer to a shard that may be full, or whose loop may not have begun.
    #[cold]
    #[inline(never)]
    fn insert_slow(
        &mut self,
        schedule: TimerSchedule,
        kind: TimerKind,
        call_site: CallSite,
        payload: &mut Option<MoveIntoPlace<T>>,
    ) -> Result<TimerHandle, AddErrorReason> {
        if self.engine.loop_has_begun() {
            self.make_room(u64::MAX)?;
            return self.engine.insert(schedule, kind, call_site, payload);
        }
        let (next_due, now) = self.engine.publish_undriven_and_get_next_due();
        self.engine.shared.report_overdue_timer(now.saturating_sub(next_due));
        self.make_room(self.engine.adds_until_loop_check())?;
        let handle = self.engine.insert(schedule, kind, call_site, payload)?;
        let _ = self.engine.publish_undriven_and_get_next_due();
        Ok(handle)
    }

    /// Removes remotely cancelled timers until there is room for another timer, and then allows up
    /// to `max_adds` adds without another check.
    fn make_room(&mut self, max_adds: u64) -> Result<(), AddErrorReason> {
        while let Some(payload) = self.engine.make_room(max_adds)? {
            self.engine.shared.hooks.drop_catching_panic(payload);
        }
        Ok(())
    }

    fn next_expired_in_pass(&mut self) -> Option<Expired<T>> {
        let claimed = self.claim_due_or_end_pass()?;
        if claimed.run.is_periodic() {
            // The claim has counted a run of the periodic timer, but no fired timer. `next_expired`
            // ends the timer, which also counts as fired.
            self.engine.stats.counts.fired += 1;
            self.engine.stats.live_count -= 1;
        }
        Some(self.finish_into_expired(claimed))
    }

    fn next_expiry_in_pass(&mut self) -> Option<Expiry<'_, T>> {
        let claimed = self.claim_due_or_end_pass()?;
        if !claimed.run.is_periodic() {
            return Some(Expiry::Ended(self.finish_into_expired(claimed)));
        }
        if let Err(payload) = self.engine.rearm(claimed.index) {
            let expired = self.make_expired(&claimed, payload);
            self.engine.finish_run(claimed);
            return Some(Expiry::Ended(expired));
        }
        let Expired { handle, expiry_times, .. } = self.make_expired(&claimed, ());
        let payload = self.engine.nodes.rearmed_payload_mut(claimed.index);
        Some(Expiry::Periodic(Expired { handle, payload, expiry_times }))
    }

    /// Claims the next due timer of this pass. If no timer is due, ends the pass.
    #[inline]
    fn claim_due_or_end_pass(&mut self) -> Option<ClaimedTimer<T>> {
        if self.engine.backlog.phase.is_urgent
            && let Some(claimed) = self.claim_from_messages()
        {
            return Some(claimed);
        }
        if let Some(claimed) = self.engine.claim_next_due() {
            return Some(claimed);
        }
        if self.engine.backlog.may_have_low_priority_messages()
            && let Some(claimed) = self.claim_from_messages()
        {
            return Some(claimed);
        }
        self.engine.end_pass();
        None
    }

    /// Consumes messages of the pass's current phase, urgent or low-priority, until a message
    /// yields a due timer. Drops the payloads of remotely cancelled timers.
    #[cold]
    fn claim_from_messages(&mut self) -> Option<ClaimedTimer<T>> {
        loop {
            match self.engine.next_message_step()? {
                UserCodeStep::Due(claimed) => return Some(claimed),
                UserCodeStep::Cancelled(payload) => {
                    self.engine.shared.hooks.drop_catching_panic(payload);
                }
            }
        }
    }

    /// Converts a claimed timer, which ends by firing, into an [`Expired`]. Frees the timer's node,
    /// unless a message about the timer is queued, whose consumption will free it.
    #[inline]
    fn finish_into_expired(&mut self, claimed: ClaimedTimer<T>) -> Expired<T> {
        let expired = self.make_expired(&claimed, claimed.take_payload());
        self.engine.finish_run(claimed);
        expired
    }

    #[inline]
    fn make_expired<P>(&self, claimed: &ClaimedTimer<T>, payload: P) -> Expired<P> {
        let &ClaimedTimer { index, run, due, .. } = claimed;
        let handle = self.engine.handle_template.with_index_and_generation(index, run.generation());
        let expiry_times = ExpiryTimes {
            clock_origin: self.engine.clock.source_clock.origin(),
            due,
            turn_start: self.engine.clock.turn_start,
        };
        Expired { handle, payload, expiry_times }
    }
}

impl<T> Default for Shard<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Shard<T> {
    /// Formats the shard's [`metrics`](Self::metrics). Cost: the same as `metrics`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let metrics = self.metrics();
        f.debug_struct("Shard")
            .field("number", &metrics.number)
            .field("name", &metrics.name)
            .field("next_deadline", &self.next_deadline())
            .field("loop_lateness", &metrics.loop_lateness)
            .field("leftover_lateness", &metrics.leftover_lateness)
            .field("longest_turn", &metrics.longest_turn)
            .field("counts", &metrics.counts)
            .finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
