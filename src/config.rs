//! The configuration of a shard.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    clock::{Clock, tick::TickLength},
    cross_core::hooks::{PanicHook, PanicReport, WakeHook},
    error::ConfigError,
    limits::TICK_DURATION_MAX,
};

/// The configuration of a thread's wheel or of a [`Shard`](crate::Shard).
///
/// Call [`Config::install`] before the first use of [`local_timer`](crate::local_timer) in a
/// thread. [`Cores`](crate::Cores) and [`Shard::with_config`](crate::Shard::with_config) also take
/// a configuration. A clone shares the hooks and the clock, so one configuration can serve several
/// shards.
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
///     .panic_hook(|report| eprintln!("timer callback: {:?}", report.message()))
///     .install()?;
/// local_timer().add(Duration::from_secs(30), || println!("half a minute later"));
/// # Ok::<(), corewheel::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct Config {
    tick: Duration,
    pub(crate) clock: Clock,
    pub(crate) capacity: usize,
    pub(crate) live_limit: usize,
    pub(crate) name: Option<String>,
    pub(crate) sample_one_in: u32,
    pub(crate) drop_cancelled_within: Duration,
    pub(crate) wake_hook: Option<WakeHook>,
    pub(crate) panic_hook: Option<PanicHook>,
}

impl Config {
    /// Creates the default configuration: a tick of a millisecond, the monotonic clock, no reserved
    /// memory, the largest limit of live timers, and no hooks.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, local_timer};
    ///
    /// Config::new().install()?;
    /// assert!(local_timer().is_empty());
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    pub fn new() -> Self {
        Self {
            tick: Duration::from_millis(1),
            clock: Clock::monotonic(),
            capacity: 0,
            live_limit: usize::MAX,
            name: None,
            sample_one_in: 0,
            drop_cancelled_within: Duration::from_millis(100),
            wake_hook: None,
            panic_hook: None,
        }
    }

    /// Sets the length of a tick, from a microsecond to an hour.
    ///
    /// A deadline is rounded up to a tick. Shorter ticks make timers more exact, but may wake a
    /// sleeping loop more often.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, local_timer};
    /// use std::time::Duration;
    ///
    /// Config::new().tick(Duration::from_micros(100)).install()?;
    /// local_timer().add(Duration::from_micros(250), || println!("rounded up by less than 100 us"));
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    #[must_use]
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// Sets the clock: a clock of the machine (see [`Clock`]), or virtual time for tests.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, ManualClock, local_timer};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// Config::new().clock(&clock).install()?;
    /// local_timer().add(Duration::from_secs(3600), || ());
    /// clock.advance(Duration::from_secs(3600));
    /// assert_eq!(local_timer().turn().fired, 1);
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    #[must_use]
    pub fn clock(mut self, clock: impl Into<Clock>) -> Self {
        self.clock = clock.into();
        self
    }

    /// Reserves memory for `timers` timers (at most 16 million) that the owner adds. More timers
    /// can be added at any time.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, local_timer};
    ///
    /// Config::new().capacity(10_000).install()?;
    /// assert!(local_timer().is_empty());
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    #[must_use]
    pub fn capacity(mut self, timers: usize) -> Self {
        self.capacity = timers;
        self
    }

    /// Sets the largest number of live timers. At the limit, an add is refused, and `try_add`
    /// returns the callback. The default and largest limit is 2^25 - 1. A queued closure of
    /// [`ShardRef::run`](crate::ShardRef::run) counts as a timer.
    ///
    /// At the limit, the owner's add first removes remotely cancelled timers, to make room. The
    /// exception is a timer that was cancelled while a remote reset was queued: the next turn
    /// removes it.
    ///
    /// For remote adds, the limit is approximate. A remote add does not count the timers that the
    /// owner has added since its latest turn or announced sleep. It may count cancelled timers, and
    /// timers that ended in the turn in progress.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{AddErrorReason, Config, local_timer};
    /// use std::time::Duration;
    ///
    /// Config::new().limit(1).install()?;
    /// local_timer().add(Duration::from_secs(30), || ());
    /// let error = local_timer().try_add(Duration::from_secs(30), || ()).unwrap_err();
    /// assert_eq!(error.reason(), AddErrorReason::Full);
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    #[must_use]
    pub fn limit(mut self, timers: usize) -> Self {
        self.live_limit = timers;
        self
    }

    /// Sets the name of the shard in [`metrics`](crate::metrics). The default is the name of the
    /// thread that creates the shard.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, local_timer};
    ///
    /// Config::new().name("core 0").install()?;
    /// assert_eq!(local_timer().metrics().expect("the thread has a wheel").name, "core 0");
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Measures the duration of one callback in every `one_in`; 1 measures all, and 0 (the default)
    /// measures none. The durations are in
    /// [`metrics`](crate::metrics::ShardMetrics::callback_durations).
    ///
    /// A measured callback costs two more readings of a clock. A wheel of `Timers::per_worker_with`
    /// measures no callbacks. If k kinds of callbacks take turns, and k has a common factor with
    /// `one_in`, some kinds are never measured.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, local_timer};
    /// use std::time::Duration;
    ///
    /// Config::new().sample_callbacks(1).install()?;
    /// local_timer().add(Duration::ZERO, || ());
    /// # std::thread::sleep(Duration::from_millis(2));
    /// local_timer().turn();
    /// let metrics = local_timer().metrics().expect("the thread has a wheel");
    /// assert_eq!(metrics.callback_durations.count(), 1);
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    #[must_use]
    pub fn sample_callbacks(mut self, one_in: u32) -> Self {
        self.sample_one_in = one_in;
        self
    }

    /// Sets the time within which the owner drops the callback of a remotely cancelled timer. The
    /// default is 100 ms.
    ///
    /// If a thread other than the owner added the timer, the canceller usually drops the callback
    /// itself. Remote cancels of timers that the owner added cause at most two extra wake-ups per
    /// `time`.
    ///
    /// The loop must announce its sleeps (`prepare_sleep`) and call `turn` after each sleep. A
    /// cancel cannot end an unannounced sleep: the callback stays until the next turn.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, local_timer};
    /// use std::time::Duration;
    ///
    /// Config::new().drop_cancelled_within(Duration::from_millis(10)).install()?;
    /// assert!(local_timer().is_empty());
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    #[must_use]
    pub fn drop_cancelled_within(mut self, time: Duration) -> Self {
        self.drop_cancelled_within = time;
        self
    }

    /// Sets the hook that wakes the owner from an announced sleep (`prepare_sleep`), such as a
    /// write to an eventfd or a `mio::Waker`.
    ///
    /// A call of the hook between the announcement and the start of the sleep must also end the
    /// sleep. Without a hook, a wake-up [unparks](std::thread::Thread::unpark) the thread, which
    /// does not end a wait for I/O or for a channel. If such a wait ends only a second after the
    /// unpark or later, corewheel [reports](crate::metrics) this once. With a hook, a wake-up unparks
    /// the thread only if the thread has ever called
    /// [`PreparedSleep::park`](crate::PreparedSleep::park).
    ///
    /// Any thread may call or drop the hook, and several threads may call it for the same sleep. A
    /// hook that owns a [`ShardRef`](crate::ShardRef) of the hook's shard leaks itself and the
    /// shard's memory. If the hook panics, the owner sleeps until its timeout, or until the next
    /// call of the hook.
    ///
    /// The hook may send requests to any shard. If a hook's request wakes a shard, the shard's hook
    /// is called at once, inside the first hook. A call deeper than 32 hooks, or inside the same
    /// hook for the same sleep, is omitted.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, local_timer};
    /// use mio::{Poll, Token, Waker};
    ///
    /// let poll = Poll::new()?;
    /// let waker = Waker::new(poll.registry(), Token(usize::MAX))?;
    /// let config = Config::new().wake_hook(move || waker.wake().expect("the poll is open"));
    /// config.install().expect("first use");
    /// assert!(local_timer().is_empty());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn wake_hook(mut self, wake: impl Fn() + Send + Sync + 'static) -> Self {
        self.wake_hook = Some(Arc::new(wake));
        self
    }

    /// Sets the hook that reports a panic of a callback, a destructor, a purgatory operation, a
    /// waker or the wake hook. The thread that panicked calls `report`.
    ///
    /// The panic is caught after the standard panic hook has run.
    /// [`Counts::panicked`](crate::Counts::panicked) counts the panic even without this hook. A
    /// panic of `report` itself is ignored.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, local_timer};
    ///
    /// Config::new().panic_hook(|report| eprintln!("{report:?}")).install()?;
    /// assert!(local_timer().is_empty());
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    #[must_use]
    pub fn panic_hook(mut self, report: impl Fn(&PanicReport<'_>) + Send + Sync + 'static) -> Self {
        self.panic_hook = Some(Arc::new(report));
        self
    }

    pub(crate) fn tick_length(&self) -> Result<TickLength, ConfigError> {
        let valid_tick = Some(self.tick).filter(|tick| *tick <= TICK_DURATION_MAX);
        valid_tick.and_then(TickLength::new).ok_or(ConfigError::TickOutOfRange { tick: self.tick })
    }
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
            .field("limit", &self.live_limit)
            .field("name", &self.name)
            .field("sample_callbacks", &self.sample_one_in)
            .field("drop_cancelled_within", &self.drop_cancelled_within)
            .finish_non_exhaustive()
    }
}
