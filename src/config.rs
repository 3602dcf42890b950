//! How a shard is made.

use std::{fmt, time::Duration};

use crate::{
    clock::Clock,
    error::ConfigError,
    hooks::{Hooks, PanicHook, PanicReport, WakeHook},
    limits::{INDEX_MAX, RESERVE_MAX},
    tick::{TickLength, saturating_nanos},
};

/// How a shard, or a thread's timer, is made: tick, clock, capacity and hooks.
///
/// Use it with [`Config::install`] before the first use of [`local_timer`](crate::local_timer) in a thread, with
/// [`Cores`](crate::Cores) for all of its threads, or with [`Shard::with_config`](crate::Shard::with_config).
///
/// # Examples
///
/// ```
/// use corewheel::{Config, local_timer};
/// use std::time::Duration;
///
/// Config::new()
///     .tick(Duration::from_micros(100))
///     .capacity(10_000)
///     .on_panic(|report| eprintln!("timer callback: {:?}", report.message()))
///     .install()?;
/// local_timer().add(Duration::from_secs(30), || println!("half a minute later"));
/// # Ok::<(), corewheel::ConfigError>(())
/// ```
pub struct Config {
    tick: Duration,
    clock: Clock,
    capacity: usize,
    limit: usize,
    name: Option<String>,
    timed: u32,
    drop_within: Duration,
    wake: Option<WakeHook>,
    panic: Option<PanicHook>,
}

impl Config {
    /// A tick of one millisecond, the monotonic clock, no memory reserved, no limit, no callback timed, no hooks.
    pub fn new() -> Self {
        Self {
            tick: Duration::from_millis(1),
            clock: Clock::monotonic(),
            capacity: 0,
            limit: usize::MAX,
            name: None,
            timed: 0,
            drop_within: Duration::from_millis(100),
            wake: None,
            panic: None,
        }
    }

    /// The length of a tick, at least a microsecond. A timer fires in the first turn at or after its deadline,
    /// rounded up to a tick; shorter ticks are more exact and wake a sleeping loop more often.
    #[must_use]
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// The clock: the monotonic one, another of the machine (see [`Clock`]), or virtual time for tests.
    #[must_use]
    pub fn clock(mut self, clock: impl Into<Clock>) -> Self {
        self.clock = clock.into();
        self
    }

    /// Timers for which memory is reserved from the start, about 90 bytes each
    /// (in a `Shard<T>`, 48 and an `Option` of the payload); at most 16 million are. More can be added
    /// at any time.
    #[must_use]
    pub fn capacity(mut self, timers: usize) -> Self {
        self.capacity = timers;
        self
    }

    /// The most timers that may be live at the same time: a further one is refused, and `try_add` hands its callback back.
    /// By default, and at most, 2^25 - 1.
    ///
    /// On its own core a shard keeps to it exactly: an add that finds no room first drops timers that other threads have cancelled.
    /// What other cores add ([`ShardRef`](crate::ShardRef)) is held against what the owner had when it last turned or asked how
    /// long it may sleep, so there can be as many more for a moment as the owner has added itself since. Of timers that other
    /// threads have cancelled and the owner has not met, up to 1,024 do not count for them.
    #[must_use]
    pub fn limit(mut self, timers: usize) -> Self {
        self.limit = timers;
        self
    }

    /// How the shard is called where several are told from one another, as in [`metrics`](crate::metrics). By default it has
    /// the name of the thread that makes it.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Times one callback in so many of a thread's timer, all of them if that is one, and none, as by default, if it is zero. What
    /// was measured is in [`metrics`](crate::metrics::ShardMetrics::callback_durations).
    ///
    /// A callback that is timed costs two more readings of the timer's clock (with [`Clock::fast`], of the monotonic one). A
    /// `Shard<T>` has no callbacks, and times nothing. Where callbacks of several kinds take turns, choose a number that is no
    /// multiple of theirs.
    #[must_use]
    pub fn time_callbacks(mut self, one_in: u32) -> Self {
        self.timed = one_in;
        self
    }

    /// How long what a cancelled callback captured may outlive a cancel on another thread, 100 ms by default. What
    /// [`ShardRef`](crate::ShardRef) has added is dropped by the thread that cancels it. The rest is dropped by the owner, which
    /// turns within this time: the first such cancel wakes it from a longer sleep, and until the time has passed it sleeps no
    /// longer. Without such cancels nothing wakes it, and with many there are at most two wake-ups in the time.
    ///
    /// That holds for a loop that announces its sleeps (`prepare_sleep`) and turns after each. One that sleeps by
    /// `time_until_next` drops such payloads when it turns.
    #[must_use]
    pub fn drop_within(mut self, time: Duration) -> Self {
        self.drop_within = time;
        self
    }

    /// What wakes the owner from a sleep that it has announced with `prepare_sleep`: a write to an eventfd, a
    /// `mio::Waker`. The wake must not be lost when it comes just before the sleep begins. By default the thread that
    /// announced the sleep is unparked ([`std::thread::Thread::unpark`]), which does not end a poll.
    ///
    /// It is called on whichever thread asks, while corewheel holds no borrow, and dropped on whichever thread frees
    /// the shard last. (One that owns a [`ShardRef`](crate::ShardRef) of that shard is a cycle, and both leak.) Threads that ask
    /// before a first call has returned call it as well: none relies on another that may be held up. If it panics, the owner sleeps on
    /// until it would wake by itself, or until somebody else asks.
    ///
    /// It may ask something of any shard, whose hook may then be called inside it, up to 32 deep. No hook is called inside itself for
    /// the same sleep.
    #[must_use]
    pub fn on_wake(mut self, wake: impl Fn() + Send + Sync + 'static) -> Self {
        self.wake = Some(Box::new(wake));
        self
    }

    /// Called when a callback, a payload's destructor, a delayed operation or the wake hook has panicked, on the thread where
    /// that was. The panic is caught; the standard panic hook has printed its message before. By default nobody is told, and
    /// [`Counts::panicked`](crate::Counts::panicked) counts. What the report itself throws is dropped.
    #[must_use]
    pub fn on_panic(mut self, report: impl Fn(&PanicReport<'_>) + Send + Sync + 'static) -> Self {
        self.panic = Some(Box::new(report));
        self
    }

    /// One callback in so many is timed; none if zero.
    pub(crate) fn timed(&self) -> u32 {
        self.timed
    }

    pub(crate) fn into_parts(self) -> Result<Parts, ConfigError> {
        let tick =
            TickLength::new(self.tick).ok_or(ConfigError::TickTooShort { tick: self.tick })?;
        let capacity = u32::try_from(self.capacity).unwrap_or(u32::MAX).min(RESERVE_MAX);
        let limit = u32::try_from(self.limit).unwrap_or(u32::MAX).min(INDEX_MAX);
        let hooks = Hooks::new(self.wake, self.panic);
        let drop_within = saturating_nanos(self.drop_within);
        Ok(Parts { tick, clock: self.clock, capacity, limit, name: self.name, drop_within, hooks })
    }
}

/// A configuration that can be used.
pub(crate) struct Parts {
    pub(crate) tick: TickLength,
    pub(crate) clock: Clock,
    pub(crate) capacity: u32,
    pub(crate) limit: u32,
    pub(crate) name: Option<String>,
    pub(crate) drop_within: u64,
    pub(crate) hooks: Hooks,
}

impl Default for Config {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("tick", &self.tick)
            .field("clock", &self.clock)
            .field("capacity", &self.capacity)
            .field("limit", &self.limit)
            .field("name", &self.name)
            .field("time_callbacks", &self.timed)
            .field("drop_within", &self.drop_within)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_absurd_capacity_is_reserved_up_to_a_limit() {
        let parts = Config::new().capacity(usize::MAX).into_parts().expect("valid");
        assert_eq!(parts.capacity, RESERVE_MAX);
    }
}
