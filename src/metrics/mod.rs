//! Reports the counts of each shard, and the lateness of its timers.
//!
//! A shard is a thread's wheel, a [`Shard`](crate::Shard) or a wheel of `Timers::per_worker`. Each
//! shard counts the adds, runs and ends of its timers, at a cost of a few instructions per timer.
//! The owner publishes these counts when its loop computes how long to sleep, and about every 64
//! turns. For a wheel of `Timers::per_worker`, each reading first publishes the counts, unless
//! another thread is using the wheel. Any thread can read the published counts without blocking the
//! owner. [`shards`] reads all shards of the process.
//! [`ShardRef::metrics`](crate::ShardRef::metrics) and
//! [`LocalTimer::metrics`](crate::LocalTimer::metrics) read one shard.
//!
//! A [`Watchdog`] reports a loop that hangs in a turn, or whose next turn is late. A turn is due at
//! the time that the latest call of [`prepare_sleep`](crate::LocalTimer::prepare_sleep) or
//! [`time_until_next`](crate::LocalTimer::time_until_next) has computed. The feature `metrics` adds
//! an `Exporter` for the `metrics` facade. The feature `tracing` adds events. A caught panic, or an
//! overdue timer of a wheel without a loop, is an error event. Each stall that a [`Watchdog`] finds
//! is a warning event. With the feature `origins`, `LocalTimer::live_report` lists the call sites
//! that added the live timers.
//!
//! # Wheels without a loop
//!
//! If no loop drives a wheel, each add or reset by its owner looks for a timer that is overdue by
//! at least 100 ms, and reports it. On a thread's wheel, remote adds, remote resets and the end of
//! the thread also look for an overdue timer. The reported timer may already have been cancelled or
//! reset, or may be the timer that is being reset. The report is an error event of `tracing`.
//! Without the feature `tracing`, without a subscriber, or at the end of a thread, the report is a
//! line on standard error. If a thread ends without ever having had a turn or a driver, the report
//! states the number of pending timers, even if none is overdue. If a thread runs
//! [`Watcher::run`](crate::future::Watcher::run), a timer on the thread's own wheel is reported at
//! once. A [`run_until`](crate::LocalTimer::run_until) reports a virtual clock that has stood still
//! for a second. After a report, a wheel is not reported again until it next loses its last driver.
//!
//! Four kinds of wheels are reported only if a timer is overdue by at least 1 s. On these four
//! kinds, at least one in 256 adds by the owner looks for an overdue timer. Resets by the owner of
//! these wheels never look for an overdue timer. The four kinds are:
//!
//! * a [`Shard`](crate::Shard),
//! * the wheel of a thread that has a registered driver or an installed [`Config`](crate::Config),
//! * a wheel that only a finished [`run_until`](crate::LocalTimer::run_until) has driven,
//! * a wheel of `Timers::per_worker_with` before its watcher's first turn or sleep.
//!
//! # Which numbers to watch
//!
//! The guide [lists](crate::guide::tuning#metrics) healthy values. If the
//! [`loop_lateness`](ShardMetrics::loop_lateness) is high, look at
//! [`longest_turn`](ShardMetrics::longest_turn). A long turn means slow callbacks, or slow code
//! between the turn and the next call of `prepare_sleep` or `time_until_next`. If no turn is long,
//! look for slow code between the call of `prepare_sleep` or `time_until_next` and the next turn.
//!
//! # Examples
//!
//! ```
//! use corewheel::{local_timer, metrics};
//! use std::{thread, time::Duration};
//!
//! local_timer().add(Duration::from_millis(1), || ());
//! thread::sleep(Duration::from_millis(3)); // the loop is busy
//! local_timer().turn();
//!
//! // On any thread:
//! for shard in metrics::shards() {
//!     let p99 = shard.loop_lateness.percentile(99.0);
//!     println!("{}: {} live, p99 {p99:?} late", shard.name, shard.counts.live);
//! }
//! # let metrics = local_timer().metrics().expect("there is one");
//! # assert_eq!((metrics.counts.fired, metrics.loop_lateness.count()), (1, 1));
//! ```

#[cfg(feature = "metrics")]
mod export;
#[cfg(feature = "origins")]
mod live_report;
mod watchdog;

use std::time::Duration;

#[cfg(feature = "metrics")]
pub use self::export::Exporter;
#[cfg(feature = "origins")]
pub use self::live_report::{LiveCallSite, LiveReport};
pub use self::watchdog::{Stall, Watchdog};
pub use crate::gauges::{Counts, Histogram};
use crate::{
    cross_core::{reclaim::pin, registry, shared::Shared},
    gauges::LateCause,
    wheel::shard_level_geometry,
};

/// The metrics of one shard. Most values are the latest that the owner has published.
///
/// # Examples
///
/// ```
/// use corewheel::{Config, local_timer};
/// use std::time::Duration;
///
/// Config::new().name("core 0").install()?;
/// local_timer().add(Duration::from_secs(30), || ());
/// let metrics = local_timer().metrics().expect("the thread has a wheel");
/// assert_eq!(metrics.name, "core 0");
/// assert_eq!(metrics.counts.live, 1);
/// # Ok::<(), corewheel::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ShardMetrics {
    /// The shard's number. After the shard has ended, a new shard may get the same number.
    pub number: u32,
    /// The name from [`Config::name`](crate::Config::name), or else the name of the thread that
    /// created the shard, or else empty.
    pub name: String,
    /// The counts of the shard's timers, as one snapshot. Four counts may be newer:
    /// [`panicked`](Counts::panicked), [`turns`](Counts::turns), [`queued`](Counts::queued) and
    /// [`uncollected`](Counts::uncollected). `queued` and `uncollected` include the messages that
    /// are in the mailbox at the time of the reading. `turns` may be too low by up to 64 idle
    /// turns.
    pub counts: Counts,
    /// The lateness of timers that fired in the first turn after their deadline. The lateness
    /// counts from the deadline, which is rounded up to a tick, to the beginning of the turn. For a
    /// zero delay, the lateness counts from the beginning of the tick in which the timer was added
    /// or reset. Under [`Clock::fast`](crate::Clock::fast), the measured time of the add or reset
    /// may be up to 10 us too early.
    ///
    /// A timer is not counted if it was added or reset to a deadline that the latest turn had
    /// already reached. An example is a zero-delay timer that was added in the tick of the latest
    /// turn.
    pub loop_lateness: Histogram,
    /// The lateness of timers that were due in an unfinished turn, and fired in a later turn.
    ///
    /// Includes timers that were added or reset after the unfinished turn, to a deadline that the
    /// unfinished turn had already reached.
    pub leftover_lateness: Histogram,
    /// The length of the longest turn, callbacks included. The length is zero if the loop never
    /// calls `prepare_sleep` or `time_until_next`, directly or through a `TimerFd`.
    ///
    /// A turn is measured until the next call of `prepare_sleep` or `time_until_next`, so code
    /// between the turn and this call counts too. If the loop runs several turns before this call,
    /// only the last turn is measured.
    pub longest_turn: Duration,
    /// The time for which the next turn has been overdue. `overdue` is zero during a turn, and if
    /// no turn is overdue.
    ///
    /// If no loop drives a thread's wheel, the time counts from the earliest deadline, including
    /// deadlines that other threads have requested. Before the first turn of a
    /// [`Shard`](crate::Shard), the time counts from the earliest deadline that an add has
    /// published. At least one in 256 adds publishes the earliest deadline. A remote cancel of the
    /// overdue timer does not change `overdue`.
    pub overdue: Duration,
    /// The running times of the measured callbacks. Empty unless
    /// [`Config::sample_callbacks`](crate::Config::sample_callbacks) enables measuring.
    pub callback_durations: Histogram,
    /// The levels of the shard's wheel, the finest first.
    ///
    /// The owner publishes the levels only on request, because publishing them takes a few
    /// microseconds. A reading by another thread requests new levels, but returns the latest
    /// published levels. The list is empty if none have been published.
    pub levels: Vec<WheelLevel>,
    /// How often a [`Watchdog`] found the loop stalled.
    pub stalls: u64,
}

/// A level of a shard's wheel, and how many of its slots hold timers.
///
/// # Examples
///
/// ```
/// use corewheel::{local_timer, metrics};
///
/// local_timer().turn();
/// for shard in metrics::shards() {
///     for level in &shard.levels {
///         println!("{} of {} slots of {:?}", level.occupied, level.slot_count, level.slot_span);
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WheelLevel {
    /// The time that one slot covers, at most 584 years.
    pub slot_span: Duration,
    /// The number of slots.
    pub slot_count: u64,
    /// The number of slots that hold timers.
    pub occupied: u64,
}

impl ShardMetrics {
    pub(crate) fn read_and_request_levels(shared: &Shared) -> Self {
        shared.gauges.request_occupancy();
        Self::of(shared)
    }

    pub(crate) fn of(shared: &Shared) -> Self {
        let (gauges, published) = (&shared.gauges, shared.gauges.counts());
        // Reads the clock before the turn state. A delay between the two readings makes `overdue`
        // too short, never too long.
        let now = shared.clock.nanos();
        let turns = shared.turn_state_with_remote_due();
        let next_turn_due = turns.next_turn_due().filter(|_| !shared.mailbox.is_closed());
        let counts = Counts {
            uncollected: published.uncollected + u64::from(shared.mailbox.cancelled_count()),
            queued: published.queued + u64::from(shared.mailbox.depth()),
            panicked: shared.hooks.panic_count(),
            turns: turns.turns_begun,
            ..published
        };
        let levels =
            shard_level_geometry().zip(gauges.occupied_slots_by_level().into_iter().flatten());
        let level = |((ticks, slot_count), occupied)| WheelLevel {
            slot_span: Duration::from_nanos(shared.tick.tick_start_nanos(ticks)),
            slot_count,
            occupied,
        };
        Self {
            number: shared.number,
            name: shared.name.to_string(),
            counts,
            loop_lateness: gauges.lateness_by_cause[LateCause::Loop as usize].read(),
            leftover_lateness: gauges.lateness_by_cause[LateCause::LeftOver as usize].read(),
            longest_turn: Duration::from_nanos(gauges.longest_turn_nanos()),
            overdue: Duration::from_nanos(next_turn_due.map_or(0, |due| now.saturating_sub(due))),
            callback_durations: gauges.callback_durations.read(),
            levels: levels.map(level).collect(),
            stalls: gauges.stalls(),
        }
    }
}

/// Returns the metrics of all shards of the process, ordered by number.
///
/// Cost: a few microseconds per shard. Locks the table of shards once; creating or ending a shard
/// also locks this table.
///
/// # Examples
///
/// ```
/// use corewheel::{local_timer, metrics};
/// use std::time::Duration;
///
/// local_timer().add(Duration::from_secs(30), || ());
/// drop(local_timer().prepare_sleep()); // publishes the counts
/// let live: u64 = metrics::shards().iter().map(|shard| shard.counts.live).sum();
/// assert_eq!(live, 1);
/// ```
pub fn shards() -> Vec<ShardMetrics> {
    let read = |number| {
        Some(ShardMetrics::read_and_request_levels(&*registry::find_shard(number, &pin())?))
    };
    registry::ever_used_numbers().filter_map(read).collect()
}
