//! Reports the counts of each shard, and the lateness of its timers.
//!
//! A shard is a thread's wheel, a [`Shard`](crate::Shard) or a wheel of `Timers::per_worker`.
//! Counting costs a few instructions per timer. The owner publishes the counts when its loop
//! computes how long to sleep, and about every 64 turns. The counts of a `Timers::per_worker` wheel
//! are usually current. Any thread can read the published counts without blocking the owner.
//! [`shards`] reads all shards of the process. [`ShardRef::metrics`](crate::ShardRef::metrics) and
//! [`LocalTimer::metrics`](crate::LocalTimer::metrics) read one shard.
//!
//! A [`Watchdog`] reports a loop that hangs in a turn, or whose next turn is late. The feature
//! `metrics` adds an `Exporter` for the `metrics` facade. The feature `tracing` adds error events
//! for caught panics and [wheels without a loop](#wheels-without-a-loop), and warning events for
//! stalls. The feature `origins` adds `LocalTimer::live_timers_by_call_site`, which lists the call
//! sites that added the live timers.
//!
//! # Wheels without a loop
//!
//! If no loop drives a wheel, its timers do not fire. Adds, resets and the end of the thread
//! usually report a timer that is overdue by at least 100 ms. The reported timer may already have
//! been cancelled or reset.
//!
//! The following wheels are usually reported only if a timer is overdue by at least 1 s:
//!
//! * A [`Shard`](crate::Shard).
//! * The wheel of a thread with a registered driver or an installed [`Config`](crate::Config).
//! * A wheel that only a finished `run_until` has driven.
//! * A wheel of `Timers::per_worker_with` before the first turn or sleep of its `TimersDriver`.
//!
//! A wheel is also reported in these cases:
//!
//! * A thread ends with pending timers, and its wheel never had a turn or a driver.
//! * A thread runs [`TimersDriver::run`](crate::future::TimersDriver::run), and its own wheel has a
//!   timer.
//! * A [`run_until`](crate::LocalTimer::run_until) waits for a timer, but the virtual clock has
//!   stood still for a second.
//! * A wheel without a [wake hook](crate::Config::wake_hook), `TimerFd` or driving task was woken,
//!   and its announced sleep ended a second later or more.
//!
//! A wheel is reported again only after its last `TimerFd` or driving task is dropped. The report
//! of a wheel is an error event of `tracing`. Without the feature `tracing` or a subscriber, or at
//! the end of a thread, this report is a line on standard error.
//!
//! # Which numbers to watch
//!
//! The guide [lists](crate::guide::tuning#metrics) healthy values. If the
//! [`loop_lateness`](ShardMetrics::loop_lateness) is high, look at
//! [`longest_turn`](ShardMetrics::longest_turn). A long turn means slow callbacks, or slow code
//! before the next call of [`prepare_sleep`](crate::LocalTimer::prepare_sleep) or
//! [`time_until_next`](crate::LocalTimer::time_until_next). If no turn is long, look for slow code
//! between the call of `prepare_sleep` or `time_until_next` and the next turn.
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
mod live_timers;
mod watchdog;

use std::time::Duration;

#[cfg(feature = "metrics")]
pub use self::export::Exporter;
#[cfg(feature = "origins")]
pub use self::live_timers::{CallSiteTimers, LiveTimersByCallSite};
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
    /// The shard's number. A later shard may reuse the number of an ended shard.
    pub number: u32,
    /// The name from [`Config::name`](crate::Config::name), or else the name of the creating
    /// thread, or else empty.
    pub name: String,
    /// The counts of the shard's timers, as one snapshot. Four of the counts may be newer than the
    /// snapshot: [`panicked`](Counts::panicked), [`turns`](Counts::turns),
    /// [`queued`](Counts::queued) and [`uncollected`](Counts::uncollected). `turns` may miss up to
    /// 64 idle turns.
    pub counts: Counts,
    /// The lateness of timers that fired in the first turn after their deadline. The lateness
    /// counts from the deadline, rounded up to a tick, to the beginning of the turn. For a zero
    /// delay, the lateness counts from the beginning of the tick of the add or reset.
    ///
    /// A timer is not counted if it was added or reset to a deadline that the latest turn had
    /// already reached.
    pub loop_lateness: Histogram,
    /// The lateness of timers whose deadline an unfinished turn had reached, and that fired in a
    /// later turn.
    pub leftover_lateness: Histogram,
    /// The length of the longest turn, callbacks included. Zero if the loop never calls
    /// `prepare_sleep` or `time_until_next`, directly or through a `TimerFd`.
    ///
    /// A turn is measured until the next call of `prepare_sleep` or `time_until_next`. Of several
    /// turns without such a call between them, only the last is measured.
    pub longest_turn: Duration,
    /// The time for which the next turn has been overdue; zero during a turn.
    ///
    /// If no loop drives the wheel, `overdue` usually counts from the earliest deadline, even if a
    /// remote cancel has ended the timer with this deadline.
    pub overdue: Duration,
    /// The running times of the measured callbacks. Empty unless
    /// [`Config::sample_callbacks`](crate::Config::sample_callbacks) enables measuring.
    pub callback_durations: Histogram,
    /// The levels of the shard's wheel, the finest first.
    ///
    /// The owner publishes the levels only on request. A reading by another thread requests new
    /// levels, but returns the latest published levels, or an empty list if there are none.
    pub levels: Vec<WheelLevel>,
    /// How often a [`Watchdog`] found the loop stalled.
    pub stalls: u64,
}

/// The occupancy of one level of a shard's wheel.
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
        shared.gauges.occupancy_requested.set(1);
        Self::of(shared)
    }

    pub(crate) fn of(shared: &Shared) -> Self {
        let (gauges, published_counts) = (&shared.gauges, shared.gauges.counts());
        // Reads the clock before the turn state, so that a delay between the two readings makes
        // `overdue` too short, never too long.
        let now = shared.clock.nanos();
        let turn_state = shared.turn_state_with_undriven_due();
        let pending_turn_due =
            turn_state.pending_turn_due().filter(|_| !shared.mailbox.is_closed());
        let counts = Counts {
            uncollected: published_counts.uncollected
                + u64::from(shared.mailbox.low_priority.depth()),
            queued: published_counts.queued + u64::from(shared.mailbox.depth()),
            panicked: shared.hooks.panic_count(),
            turns: turn_state.turns_begun,
            ..published_counts
        };
        let levels =
            shard_level_geometry().zip(gauges.occupied_slots_by_level().into_iter().flatten());
        let make_level = |((ticks, slot_count), occupied)| WheelLevel {
            slot_span: Duration::from_nanos(shared.tick_length.tick_start_nanos(ticks)),
            slot_count,
            occupied,
        };
        Self {
            number: shared.number,
            name: shared.name.to_string(),
            counts,
            loop_lateness: gauges.lateness_by_cause[LateCause::LateTurn as usize].read(),
            leftover_lateness: gauges.lateness_by_cause[LateCause::UnfinishedTurn as usize].read(),
            longest_turn: Duration::from_nanos(gauges.longest_turn_nanos.get()),
            overdue: Duration::from_nanos(
                pending_turn_due.map_or(0, |due| now.saturating_sub(due)),
            ),
            callback_durations: gauges.callback_durations.read(),
            levels: levels.map(make_level).collect(),
            stalls: gauges.stall_count.get(),
        }
    }
}

/// Returns the metrics of all shards of the process, ordered by number.
///
/// Cost: a few microseconds per shard, and one lock, which creating or ending a shard also takes.
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
    registry::ever_used_shard_numbers().filter_map(read).collect()
}
