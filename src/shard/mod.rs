//! One core's timers: combines wheel, payloads, nodes, mailbox and clock. Everything here runs on
//! the owner's thread; `shared` has the operations of other threads.
//!
//! A timer is one node of the slab. Its state decides which thread ends it (see `state`). Its
//! payload, its deadline and its position in the wheel belong to the owner.

mod adding;
mod end;
mod expired;
mod lookup;
mod messages;
mod pass;
mod sleep;
mod stats;
mod time;
mod timers;

use std::{
    cell::Cell,
    fmt,
    marker::PhantomData,
    sync::Arc,
    time::{Duration, Instant},
};

use self::{expired::Times, stats::Stats, time::Time};
pub use self::{
    expired::{Expired, Expiry},
    sleep::PreparedSleep,
};
pub(crate) use self::{
    messages::{Message, Payload},
    timers::{Claimed, Due},
};
use crate::{
    config::{Config, Parts},
    cross_core::{
        callback::{Callback, Running},
        handle::TimerHandle,
        mailbox::Backlog,
        registry,
        shared::Shared,
        slab::{Ended, OwnerNodes, Slab},
    },
    error::ConfigError,
    gauges::Counts,
    limits::{GENERATION_MAX, SHARD_BITS, SHARD_LEVELS},
    wheel::{RawWheel, Storage},
    when::When,
};

/// One core's timers for a loop that owns its payloads. The shard returns expired timers one at a
/// time, by value, so the loop holds no borrow of the shard while it handles one.
///
/// Use it where a timer is a piece of data ("connection 17 is idle") rather than a callback; for
/// callbacks there is [`local_timer`](crate::local_timer), which is a shard per thread.
///
/// A shard may move between threads. Its handles cancel from any thread, including the shard's own;
/// there [`cancel`](Self::cancel) is cheaper and returns the payload.
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
    shared: Arc<Shared>,
    number: u32,
    next_generation: u64,
    /// Later generations are refused.
    last_generation: u64,
    /// The owner's view of the nodes in `shared`.
    nodes: OwnerNodes<T>,
    wheel: RawWheel<SHARD_BITS, SHARD_LEVELS>,
    time: Time,
    /// Until then, sleeps are short, because other threads have cancelled timers recently.
    short_sleeps_until: u64,
    /// The maximum number of live timers.
    limit: u32,
    /// Messages taken out of the mailbox and not yet consumed, and the message budget of the pass.
    backlog: Backlog,
    /// The counts that the owner keeps itself; the other fields stay zero.
    counts: Counts,
    /// Narrower than the counters. At the same width, the compiler merges it with a counter into
    /// one wide addition, which stalls on the narrow store before.
    live: u32,
    stats: Stats,
    /// The last sweep is done.
    closed: bool,
    /// One thread at a time is the owner, also for methods with `&self`.
    not_sync: PhantomData<Cell<()>>,
}

impl<T> Shard<T> {
    /// Creates a shard with a tick of a millisecond and the monotonic clock.
    ///
    /// # Panics
    ///
    /// If 16,384 shards exist already.
    pub fn new() -> Self {
        Self::with_config(Config::new()).expect("the default configuration is valid")
    }

    /// Creates a shard from `config`.
    ///
    /// # Errors
    ///
    /// If the tick is shorter than a microsecond, or 16,384 shards exist already.
    pub fn with_config(config: Config) -> Result<Self, ConfigError> {
        Self::with_slab(config, Slab::new())
    }

    fn with_slab(
        config: Config,
        (slab, nodes): (Arc<Slab>, OwnerNodes<T>),
    ) -> Result<Self, ConfigError> {
        let Parts { tick, clock, capacity, limit, hooks, name, drop_within } =
            config.into_parts()?;
        let shared =
            Arc::new(Shared::new(clock.clone(), tick, hooks, limit, name, drop_within, slab));
        let registration = registry::register(&shared)?;
        let time = Time::new(clock, tick);
        shared.spread.start_as(registration.number);
        let mut shard = Self {
            shared,
            number: registration.number,
            next_generation: registration.first_generation,
            last_generation: GENERATION_MAX,
            nodes,
            wheel: RawWheel::starting_at(tick.now(time.turn)),
            time,
            short_sleeps_until: 0,
            limit,
            backlog: Backlog::default(),
            counts: Counts::default(),
            live: 0,
            stats: Stats::default(),
            closed: false,
            not_sync: PhantomData,
        };
        shard.publish_clock();
        if capacity > 0 {
            shard.nodes.reserve(capacity);
        }
        Ok(shard)
    }

    /// Cancels a timer of this shard and returns its payload. Returns `None` if the timer has
    /// ended, another thread has cancelled it, or the handle belongs to another shard.
    ///
    /// Cost: constant, no clock, no lock, no allocation.
    pub fn cancel(&mut self, handle: TimerHandle) -> Option<T> {
        if handle.shard() != self.number {
            return None;
        }
        let mut payload = None;
        let cancelled = self.cancel_own(handle, |node| payload = Some(node.take_payload()));
        cancelled.ok().and(payload)
    }

    /// Moves a pending timer of this shard, earlier or later. The handle stays valid.
    ///
    /// Returns true if the timer was moved: it will not fire by its old deadline. Returns false if
    /// it has ended, another thread has cancelled it, or the handle is of another shard. A timer is
    /// never moved into a pass that has begun.
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
    #[must_use = "a timer that was not moved has ended or is running"]
    pub fn reset(&mut self, handle: TimerHandle, when: impl Into<When>) -> bool {
        if handle.shard() != self.number {
            return false;
        }
        let when = when.into();
        let moved = match when.delay() {
            Some(delay) => self.reset_own(handle, delay),
            None => self.reset_own_roughly(handle, when),
        };
        moved.is_some()
    }

    /// Begins a pass: reads the clock and lets [`next_expired`](Self::next_expired) consume up to
    /// 1,024 remote requests and return the due timers. A loop that turns without calling
    /// `next_expired` spins once a timer is due.
    pub fn turn(&mut self) {
        self.turn_within(usize::MAX);
    }

    /// Begins a pass, as [`turn`](Self::turn) does, at a time `now` that the loop has just read.
    ///
    /// `now` is an instant of the shard's clock. One before the latest reading counts as that
    /// reading. With one in the future, timers fire early.
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
        if !self.turn_is_idle_at(now) {
            self.begin_or_end(usize::MAX);
        }
    }

    /// Begins a pass with a budget. The pass consumes at most `budget` remote requests, each of
    /// which may return a timer. It touches at most `budget` entries of the wheel; an entry is
    /// touched when it is returned or moved. The rest comes first in the next pass, in order. Until
    /// then, [`is_behind`](Self::is_behind) returns true and
    /// [`time_until_next`](Self::time_until_next) returns zero.
    pub fn turn_within(&mut self, budget: usize) {
        if !self.turn_is_idle() {
            self.begin_or_end(budget);
        }
    }

    /// Returns true if the last pass left work: it used up its budget or was abandoned.
    pub fn is_behind(&self) -> bool {
        !self.backlog.is_empty() || self.wheel.is_behind()
    }

    /// Returns the next due timer of this pass, in tick order, regardless of which thread moved it.
    /// A pass orders the remote moves that it consumes; the next pass orders the rest. The order
    /// within a tick is unspecified. Returns `None` when no timer is due.
    ///
    /// A pass begins with the timers that other threads have moved, and links them. A timer that
    /// was moved to a moment before the last pass is returned at once. The pass ends with the
    /// timers that other threads have cancelled, and drops their payloads. An abandoned pass loses
    /// nothing: the rest comes first in the next one.
    ///
    /// The payload is the caller's, so a periodic timer ends with the expiry that this returns. A
    /// shard with periodic timers calls [`next_expiry`](Self::next_expiry).
    ///
    /// Cost: constant per timer, see [`Wheel::advance`](crate::Wheel::advance), and per message
    /// consumed.
    #[inline]
    pub fn next_expired(&mut self) -> Option<Expired<T>> {
        if self.is_in_pass() { self.next_in_pass() } else { None }
    }

    fn next_in_pass(&mut self) -> Option<Expired<T>> {
        // As in `claim_in_pass`, which would cost an expiry 5 instructions here.
        let before = if self.begins_with_urgent() { self.take_in_before() } else { None };
        let (claimed, ended) = match before {
            Some(claimed) => self.end(claimed),
            None => {
                if let Some(fired) = self.claim_due(Ended::of) {
                    fired
                } else {
                    let claimed = self.take_in_or_end()?;
                    self.end(claimed)
                }
            }
        };
        Some(self.give(claimed, ended))
    }

    /// Returns the next due timer of this pass, and lends the payload of a periodic one.
    /// [`next_expired`](Self::next_expired) has the same order and cost.
    ///
    /// A periodic timer is pending again when this returns, with its next deadline after this turn.
    /// So it can be cancelled and moved while the loop handles the expiry.
    /// [`cancel`](Self::cancel) ends it and returns the payload.
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
        if self.is_in_pass() { self.next_expiry_in_pass() } else { None }
    }

    fn next_expiry_in_pass(&mut self) -> Option<Expiry<'_, T>> {
        let claimed = self.claim_in_pass()?;
        let index = claimed.index;
        let state = self.nodes.entry(index).state();
        if !state.is_periodic() {
            let (claimed, ended) = self.end(claimed);
            return Some(Expiry::Ended(self.give(claimed, ended)));
        }
        let expired = self.expired(claimed, state.generation(), ());
        let next = self.next_run(index);
        if let Some(payload) = self.rearm(index, next) {
            self.finish(index);
            return Some(Expiry::Ended(expired.with(payload)));
        }
        Some(Expiry::Periodic(expired.with(self.nodes.lend(index))))
    }

    /// Claims the next due timer of this pass. If there is none, ends the pass.
    fn claim_in_pass(&mut self) -> Option<Claimed> {
        let before = if self.begins_with_urgent() { self.take_in_before() } else { None };
        before.or_else(|| Some(self.claim_due(|_| ())?.0)).or_else(|| self.take_in_or_end())
    }

    /// Gives away the payload of a timer that has fired and ended.
    #[inline]
    fn give(&mut self, claimed: Claimed, ended: Ended<T>) -> Expired<T> {
        self.count_ended(claimed.index, ended.freed);
        self.expired(claimed, ended.generation, ended.payload)
    }

    /// Describes an expired timer.
    #[inline]
    fn expired<P>(
        &self,
        Claimed { index, due }: Claimed,
        generation: u64,
        payload: P,
    ) -> Expired<P> {
        let handle = TimerHandle::new(self.number, index, generation);
        let times = Times { origin: self.time.clock.origin(), due, turn: self.time.turn };
        Expired::new(handle, payload, times)
    }

    /// Returns the moment at which the shard next needs a turn; `None` if it is empty. Changes
    /// nothing. While a remotely moved timer waits in the mailbox, this is the time of the last
    /// turn.
    ///
    /// It is never later than the earliest deadline. It may be earlier, because the wheel moves
    /// timers inside itself:
    ///
    /// - At most five times for each timer due more than 2^17 - 2^11 ticks ahead of the wheel.
    /// - Once for each tick that timers were reset away from, or once for each of these timers if
    ///   more than 96 shared the tick.
    /// - A tick earlier for each 8,192 timers that are to be moved together.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.next_nanos().map(|nanos| self.time.clock.instant_at(nanos))
    }

    /// Returns the time until the [`next_deadline`](Self::next_deadline); zero if it has elapsed.
    /// Reads the clock. A loop calls this before it sleeps. It changes nothing except the loop's
    /// figures in [`metrics`](crate::metrics).
    pub fn time_until_next(&self) -> Option<Duration> {
        self.time_until(self.next_nanos())
    }

    /// Returns the time until `turn` for a loop that is about to sleep.
    pub(crate) fn time_until(&self, turn: Option<u64>) -> Option<Duration> {
        let now = self.time.now();
        self.asked_at(now, turn);
        turn.map(|nanos| Duration::from_nanos(nanos.saturating_sub(now)))
    }

    /// Returns the moment until which the owner may sleep. Also returns true if the sleep is too
    /// long for remotely cancelled payloads to wait.
    pub(crate) fn sleep(&self) -> (Option<u64>, bool) {
        let (now, next) = (self.time.latest.lo, self.next_nanos());
        let short = now.saturating_add(self.shared.drop_within);
        if now < self.short_sleeps_until && short < u64::MAX {
            return (Some(next.map_or(short, |next| next.min(short))), false);
        }
        (next, short < u64::MAX && next.is_none_or(|next| next > short))
    }

    /// Announces that the owner is going to sleep, for at most [`PreparedSleep::timeout`]. Until
    /// the [`PreparedSleep`] is dropped, urgent requests call the wake hook ([`Config::on_wake`]).
    /// A request is urgent if another thread moves a timer to a moment before the end of the sleep.
    /// The 1,024th queued message about deadlines or about cancelled timers is urgent too.
    ///
    /// For a drained shard the timeout is zero: nothing would wake its owner.
    pub fn prepare_sleep(&self) -> PreparedSleep<'_> {
        if self.closed {
            return PreparedSleep::ended();
        }
        let (until, is_long) = self.sleep();
        self.free_before_sleep(until);
        PreparedSleep::new(&self.shared, until, is_long, || self.time_until(until))
    }

    /// Announces a sleep, calls `wait` with its [timeout](PreparedSleep::timeout), and ends the
    /// announcement when `wait` returns.
    ///
    /// See [`prepare_sleep`](Self::prepare_sleep). If `wait` panics, the announcement ends as well.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Shard;
    /// use std::{thread, time::Duration};
    ///
    /// let mut shard = Shard::new();
    /// shard.add(Duration::from_millis(5), "idle");
    /// while !shard.is_empty() {
    ///     shard.sleep_with(|timeout| timeout.map_or_else(thread::park, thread::park_timeout));
    ///     shard.turn();
    ///     while let Some(expired) = shard.next_expired() {
    ///         println!("{}", expired.payload);
    ///     }
    /// }
    /// ```
    pub fn sleep_with<R>(&self, wait: impl FnOnce(Option<Duration>) -> R) -> R {
        self.prepare_sleep().wait_with(wait)
    }

    /// Returns the number of live timers, including held ones.
    pub fn len(&self) -> usize {
        self.live as usize
    }

    /// Returns true if no timer is live.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Returns the present time of the shard's clock.
    pub fn now(&self) -> Instant {
        self.time.clock.now()
    }

    /// Ends the shard and returns the pending timers with their deadlines, in no particular order.
    /// A deadline is as in [`Expired`], or as another thread requested it if the owner has not
    /// consumed that request. From now on, handles answer [`Cancel::Ended`](crate::Cancel::Ended),
    /// [`try_add`](Self::try_add) is an error, and nothing is left to fire. A cancel that races
    /// with the end returns the true outcome. If other threads are moving a timer at that moment,
    /// its deadline is one of the requested ones or the one before.
    ///
    /// A shard that is dropped ends the same way and drops the payloads.
    ///
    /// Cost: some nanoseconds for each timer of the shard's largest number of live timers.
    #[must_use = "what was pending"]
    pub fn drain(&mut self) -> Vec<(Instant, T)> {
        let pending = self.close();
        pending
            .into_iter()
            .map(|(nanos, payload)| (self.time.clock.instant_at(nanos), payload))
            .collect()
    }
}

impl Shard<Callback> {
    /// Creates a shard that other threads may add to.
    pub(crate) fn of_callbacks(config: Config) -> Result<Self, ConfigError> {
        Self::with_slab(config, Slab::of_callbacks())
    }

    /// Claims the next timer that is due in this pass, and returns its callback, to run it.
    #[inline]
    pub(crate) fn begin_next_run(&mut self) -> Option<(u32, Running)> {
        let (Claimed { index, .. }, callback) = self.claim_due(OwnerNodes::running)?;
        self.count_run(&callback);
        Some((index, callback))
    }

    /// Returns the callback of a claimed timer, to run it.
    pub(crate) fn begin_run(&mut self, index: u32) -> Running {
        let callback = OwnerNodes::running(self.nodes.entry(index));
        self.count_run(&callback);
        callback
    }

    /// Counts a one-shot timer as fired. A periodic one stays live.
    #[inline]
    fn count_run(&mut self, callback: &Running) {
        if !callback.is_periodic {
            self.count_fired();
        }
    }
}

impl<T> Default for Shard<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for Shard<T> {
    fn drop(&mut self) {
        for (_, payload) in self.close() {
            self.shared.hooks.isolate_drop(payload);
        }
    }
}

impl<T> fmt::Debug for Shard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let metrics = self.metrics();
        f.debug_struct("Shard")
            .field("number", &metrics.number)
            .field("name", &metrics.name)
            .field("next_deadline", &self.next_deadline())
            .field("loop_lateness", &metrics.loop_lateness)
            .field("turn_lateness", &metrics.turn_lateness)
            .field("longest_turn", &metrics.longest_turn)
            .field("counts", &metrics.counts)
            .finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
