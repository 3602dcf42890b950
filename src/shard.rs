//! One core's timers: wheel, payloads, nodes, mailbox and clock put together. Everything here runs on the owner's thread;
//! what other threads do happens in `shared`.
//!
//! A timer is one node of the slab. Its state decides who ends it (see `state`); its payload, its deadline and its place in the wheel
//! are the owner's.

mod adding;
mod end;
mod expired;
mod messages;
mod pass;
mod sleep;
mod steps;
mod telling;

use std::{
    cell::Cell,
    fmt,
    marker::PhantomData,
    sync::Arc,
    time::{Duration, Instant},
};

use self::telling::Telling;
pub use self::{expired::Expired, sleep::PreparedSleep};
pub(crate) use self::{
    messages::Message,
    steps::{Claimed, Due},
};
use crate::{
    callback::{Callback, Running},
    clock::{Clock, Reader, Reading},
    config::{Config, Parts},
    error::ConfigError,
    gauges::Counts,
    handle::TimerHandle,
    limits::{SHARD_BITS, SHARD_LEVELS},
    mailbox::{Arrived, Opened},
    registry,
    shared::Shared,
    slab::{OwnerNodes, Slab},
    tick::TickLength,
    wheel::RawWheel,
};

/// One core's timers for a loop that owns its payloads: expired ones are handed out one at a time, by value, so the loop
/// holds no borrow of the shard while it acts on one.
///
/// Use it where a timer is a piece of data ("connection 17 is idle") rather than a callback; for callbacks there is
/// [`local_timer`](crate::local_timer), which is a shard per thread.
///
/// A shard may move between threads. Its handles cancel from any thread, the one it lives on included; the shard's own
/// [`cancel`](Self::cancel) is cheaper there and gives the payload back.
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
    /// Where in its range the last spread timer was put: a fraction of 2^64.
    spread: u64,
    /// The owner's view of the nodes in `shared`.
    nodes: OwnerNodes<T>,
    wheel: RawWheel<SHARD_BITS, SHARD_LEVELS>,
    clock: Clock,
    reader: Reader,
    tick: TickLength,
    /// The latest reading of the clock: it is held there if the clock goes back.
    latest: Reading,
    /// The reading that the last turn began with.
    turn_nanos: u64,
    /// Until then, sleeps are short: other threads have cancelled timers a short time ago.
    short_sleeps_until: u64,
    /// The most timers that may live.
    limit: u32,
    /// Messages taken out of the mailbox and not yet dealt with, and how many of them the pass may deal with.
    opened: Opened,
    /// The messages that were in the mailbox when the turn began.
    arrived: Arrived,
    /// What the owner counts itself; the other fields stay zero.
    counts: Counts,
    /// Narrower than the counters: otherwise the compiler merges it with one of them into one wide addition, which stalls on the
    /// narrow store before.
    live: u32,
    telling: Telling,
    /// The last sweep is done.
    closed: bool,
    /// One thread at a time is the owner, also for what takes `&self`.
    not_sync: PhantomData<Cell<()>>,
}

impl<T> Shard<T> {
    /// A shard with a tick of a millisecond and the monotonic clock.
    ///
    /// # Panics
    ///
    /// If 16 384 shards exist already.
    pub fn new() -> Self {
        Self::with_config(Config::new()).expect("the default configuration is valid")
    }

    /// A shard made as `config` says.
    ///
    /// # Errors
    ///
    /// If the tick is shorter than a microsecond, or 16 384 shards exist already.
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
        let mut reader = clock.reader();
        let latest = reader.read(&clock);
        if clock.may_go_back() {
            shared.hold_clock(latest.hi);
        }
        let mut shard = Self {
            shared,
            number: registration.number,
            next_generation: registration.first_generation,
            spread: spread_of(registration.number),
            nodes,
            wheel: RawWheel::starting_at(tick.now(latest.lo)),
            clock,
            reader,
            tick,
            latest,
            turn_nanos: latest.lo,
            short_sleeps_until: 0,
            limit,
            opened: Opened::default(),
            arrived: Arrived::default(),
            counts: Counts::default(),
            live: 0,
            telling: Telling::default(),
            closed: false,
            not_sync: PhantomData,
        };
        if capacity > 0 {
            shard.nodes.reserve(capacity);
        }
        Ok(shard)
    }

    /// Cancels a timer of this shard and gives its payload back. `None`: it has ended before, another thread has
    /// cancelled it, or the handle is not this shard's.
    ///
    /// Cost: constant, no clock, no lock, no allocation.
    pub fn cancel(&mut self, handle: TimerHandle) -> Option<T> {
        if handle.shard() != self.number {
            return None;
        }
        self.cancel_own(handle, OwnerNodes::take_payload).ok()
    }

    /// Moves a timer of this shard to `delay` from now; see [`TimerHandle::reset`]. Cost: constant, one reading of the clock.
    #[must_use = "a timer that was not moved has ended or is running"]
    pub fn reset(&mut self, handle: TimerHandle, delay: Duration) -> bool {
        handle.shard() == self.number && self.reset_own(handle, delay).is_some()
    }

    /// Moves a timer of this shard to `instant`; see [`TimerHandle::reset_at`]. Cost: constant.
    #[must_use = "a timer that was not moved has ended or is running"]
    pub fn reset_at(&mut self, handle: TimerHandle, instant: Instant) -> bool {
        let nanos = self.clock.nanos_at(instant);
        handle.shard() == self.number && self.reset_own_to(handle, |_| nanos).is_some()
    }

    /// Begins a pass: reads the clock and lets [`next_expired`](Self::next_expired) take in up to 1 024 messages of other threads and
    /// hand out what is due.
    pub fn turn(&mut self) {
        self.turn_within(usize::MAX);
    }

    /// As [`turn`](Self::turn), but the pass takes in at most `budget` messages of other threads, each of which may hand out a timer, and
    /// touches at most as many entries of the wheel (handed out, or moved). What is left comes first in the next pass, in order, and
    /// [`is_behind`](Self::is_behind) tells; until then [`time_until_next`](Self::time_until_next) is zero.
    pub fn turn_within(&mut self, budget: usize) {
        if !self.turn_is_idle() {
            self.begin_or_end(budget);
        }
    }

    /// Whether the last pass has left something to do: its budget was used up, or it was given up.
    pub fn is_behind(&self) -> bool {
        !self.opened.is_empty() || self.wheel.is_behind()
    }

    /// The next timer that is due in this pass, in the order of the deadlines, whoever has moved it, as far as the pass has met that;
    /// the order within a tick is unspecified. `None` when nothing is due any more.
    ///
    /// It begins with the timers that other threads have moved, and places them. (One that was moved to a moment before the last pass
    /// is handed out at once.) It ends with those that they have cancelled, and drops their payloads. A pass that is given up loses
    /// nothing: the rest comes first in the next one.
    ///
    /// Cost: constant per timer, see [`Wheel::advance`](crate::Wheel::advance), and per message that is met on the way.
    #[inline]
    pub fn next_expired(&mut self) -> Option<Expired<T>> {
        if self.is_in_pass() { self.next_in_pass() } else { None }
    }

    fn next_in_pass(&mut self) -> Option<Expired<T>> {
        let before = if self.begins_with_urgent() { self.take_in_before() } else { None };
        let Claimed { index, due } = match before {
            Some(claimed) => claimed,
            None => match self.claim_due() {
                Some(claimed) => claimed,
                None => self.take_in_or_end()?,
            },
        };
        let payload = self.nodes.take_payload(index);
        self.count_fired();
        self.finish(index);
        let lateness = Duration::from_nanos(self.turn_nanos.saturating_sub(due));
        Some(Expired { payload, deadline: self.clock.instant_at(due), lateness })
    }

    /// When the shard next wants a turn; `None` if it is empty. Changes nothing. While a timer that another thread has moved
    /// waits in the mailbox, this is the time of the last turn.
    ///
    /// It is never later than the earliest deadline. For a timer due more than 2^17 - 2^11 ticks after the last turn (or after the one
    /// before, if another thread asked for it, or a callback that another thread asked for) it may be
    /// earlier, at most five times on its way, so that the wheel can move it; and once for each tick that timers were
    /// reset away from (once for each timer, if it shared that tick with more than 96). If more than 8,192 timers are to be moved
    /// together, it is also earlier by a tick for each 8,192 of them, so that no turn moves more.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.next_nanos().map(|nanos| self.clock.instant_at(nanos))
    }

    /// How long until the [`next_deadline`](Self::next_deadline); zero if it has come. Reads the clock. Changes nothing but what
    /// [`metrics`](crate::metrics) say of the loop: it is a loop's question before it sleeps.
    pub fn time_until_next(&self) -> Option<Duration> {
        self.time_until(self.next_nanos())
    }

    /// The loop asks how long it may sleep, if it turns then.
    pub(crate) fn time_until(&self, turn: Option<u64>) -> Option<Duration> {
        let now = self.clock.nanos().max(self.latest.lo);
        self.asked_at(now, turn);
        turn.map(|nanos| Duration::from_nanos(nanos.saturating_sub(now)))
    }

    /// Until when the owner may sleep, and whether that is long for payloads that other threads cancel.
    pub(crate) fn sleep(&self) -> (Option<u64>, bool) {
        let (now, next) = (self.latest.lo, self.next_nanos());
        let short = now.saturating_add(self.shared.drop_within);
        if now < self.short_sleeps_until && short < u64::MAX {
            return (Some(next.map_or(short, |next| next.min(short))), false);
        }
        (next, short < u64::MAX && next.is_none_or(|next| next > short))
    }

    /// Announces that the owner is going to sleep, for at most [`PreparedSleep::timeout`]. From here on whatever cannot wait
    /// calls the wake hook ([`Config::on_wake`]), until the [`PreparedSleep`] is dropped: a timer that another thread moves
    /// to an earlier moment than the sleep ends, and the 1 024th message of a kind that waits (about deadlines, or about
    /// cancelled timers).
    ///
    /// Of a shard that was drained the timeout is zero: nothing would wake its owner.
    pub fn prepare_sleep(&self) -> PreparedSleep<'_> {
        if self.closed {
            return PreparedSleep::ended();
        }
        let (until, is_long) = self.sleep();
        PreparedSleep::new(&self.shared, until, is_long, || self.time_until(until))
    }

    /// Announces a sleep, calls `wait` with its [timeout](PreparedSleep::timeout), and ends the announcement when that returns.
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

    /// How many timers are live, held ones included.
    pub fn len(&self) -> usize {
        self.live as usize
    }

    /// Whether no timer is live.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// What time it is by the shard's clock.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Ends the shard and hands back what was pending, with the deadlines (as in [`Expired`], or as another thread has asked for them if
    /// that had not been met), in no particular order.
    /// Handles answer [`Cancel::Ended`](crate::Cancel::Ended) from now on, [`try_add`](Self::try_add) is an error, and
    /// there is nothing left to fire. The answer of a cancel that races with the end is true, whichever it is. The deadline of a timer
    /// that others are moving at that moment is one of those that they have asked for, or the one before.
    ///
    /// A shard that is dropped ends the same way and drops the payloads.
    ///
    /// Cost: some nanoseconds for each timer that was live at once.
    #[must_use = "what was pending"]
    pub fn drain(&mut self) -> Vec<(Instant, T)> {
        let pending = self.close();
        pending
            .into_iter()
            .map(|(nanos, payload)| (self.clock.instant_at(nanos), payload))
            .collect()
    }

    /// Places spread timers as the shard of that number would.
    pub(crate) fn spread_as(&mut self, number: u32) {
        self.spread = spread_of(number);
    }
}

/// Where the spread timers of a shard begin. Each begins elsewhere: multiples of the square root of two, modulo one.
fn spread_of(number: u32) -> u64 {
    u64::from(number).wrapping_mul(0x6A09_E667_F3BC_C908)
}

impl Shard<Callback> {
    /// A shard that other threads may add to.
    pub(crate) fn of_callbacks(config: Config) -> Result<Self, ConfigError> {
        Self::with_slab(config, Slab::of_callbacks())
    }

    /// Claims the next timer that is due in this pass, and returns its callback, to run it.
    #[inline]
    pub(crate) fn begin_next_run(&mut self) -> Option<(u32, Running)> {
        let Claimed { index, .. } = self.claim_due()?;
        Some((index, self.begin_run(index)))
    }

    /// Returns the callback of a claimed timer, to run it. A one-shot timer counts as fired.
    #[inline]
    pub(crate) fn begin_run(&mut self, index: u32) -> Running {
        let callback = self.nodes.running(index);
        if !callback.is_periodic {
            self.count_fired();
        }
        callback
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
