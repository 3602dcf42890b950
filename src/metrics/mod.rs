//! The counts of every shard, and how late its timers fire.
//!
//! Every shard counts what its timers do, at the cost of a few instructions per timer. It publishes
//! its counts when its loop prepares to sleep, and at least every 64 turns. Any thread can read
//! them without delaying the owner: [`shards`] for the whole process,
//! [`ShardRef::metrics`](crate::ShardRef::metrics) and
//! [`LocalTimer::metrics`](crate::LocalTimer::metrics) for one shard.
//!
//! A [`Watch`] reports loops that do not turn while timers are due. The feature `metrics` adds an
//! `Exporter` for the `metrics` facade. The feature `tracing` adds events: an error for each caught
//! panic, and a warning for each stall that a watch finds. It also reports, as an error, a loop
//! that has not begun: an add or a remote request finds that another timer of the wheel has been
//! overdue for 100 ms. Each wheel is reported once, and once more after each loss of its last
//! driver. In three cases the limit is 1 s: a thread with a registered driver, a
//! [`Shard`](crate::Shard), and a wheel of `Timers::per_worker_with` without a watcher. There,
//! only one add in 256, or more at first, looks for such a timer. Without the feature `tracing`,
//! this error is printed on the standard error. With the feature `origins`,
//! `LocalTimer::live_report` lists the code that added the live timers.
//!
//! # Which numbers to watch
//!
//! * [`loop_lateness`](ShardMetrics::loop_lateness): the time from a timer's deadline to the first
//!   turn after it, if that turn fired the timer. This lateness shows the cost of the loop's other
//!   work. If it grows, look at [`longest_turn`](ShardMetrics::longest_turn) first. If that turn is
//!   long, look for slow callbacks, or for work between the turn and the next call of
//!   `prepare_sleep` or `time_until_next`. If it is short, look for slow work between such a call
//!   and the turn.
//! * [`leftover_lateness`](ShardMetrics::leftover_lateness): the lateness of timers that an earlier turn
//!   left to a later one, because its budget was used up or its pass was abandoned.
//! * [`callback_durations`](ShardMetrics::callback_durations): how long callbacks run, if
//!   [`Config::time_callbacks`](crate::Config::time_callbacks) enables it.
//! * [`Counts::queued`]: messages from other cores that the owner has not consumed. It should
//!   return to zero at each turn.
//! * [`Counts::live`] over time: if it only grows, some timers are never cancelled.
//! * [`overdue`](ShardMetrics::overdue) and [`turns`](Counts::turns): if a thread has timers and
//!   never turns, no loop drives its wheel. These figures are current even before its first turn.
//!   But a [`Shard`](crate::Shard), a wheel of a watcher, and a thread with a registered driver
//!   publish only some of the adds before that turn, always including the first add.
//! * [`Counts::panicked`], [`Counts::clock_regressions`], [`stalls`](ShardMetrics::stalls): zero in
//!   a healthy program on a healthy machine.
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
mod watch;

use std::time::Duration;

#[cfg(feature = "metrics")]
pub use self::export::Exporter;
#[cfg(feature = "origins")]
pub use self::live_report::{LivePlace, LiveReport};
pub use self::watch::{Stall, Watch};
pub use crate::gauges::{Counts, Histogram};
use crate::{
    clock::tick::TickLength,
    cross_core::{registry, shared::Shared},
    gauges::LateCause,
    wheel::shard_levels,
};

/// The metrics of one shard, as its owner last published them.
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
    /// [`Config::name`](crate::Config::name), or the name of the thread that created the shard;
    /// empty without either.
    pub name: String,
    /// The counts of its timers. [`panicked`](Counts::panicked), [`turns`](Counts::turns) and the
    /// messages in the mailbox, a part of [`held`](Counts::held) and [`queued`](Counts::queued),
    /// are current. The other counts are one snapshot.
    pub counts: Counts,
    /// The lateness of timers that the first turn after their deadline fired: from the deadline,
    /// rounded up to a tick, to the beginning of that turn.
    pub loop_lateness: Histogram,
    /// The lateness of timers that an earlier turn left to a later one.
    ///
    /// After such a turn, timers that are added when they are already due count here too. So does a
    /// [`run`](crate::ShardRef::run) by the shard's own thread, but not by another thread.
    pub leftover_lateness: Histogram,
    /// The longest turn, callbacks included.
    ///
    /// It is measured from the beginning of the turn to the loop's next call of `prepare_sleep` or
    /// `time_until_next`, which reads the clock anyway. So work between the turn and that call
    /// counts too. Of several turns between two such calls only the last is measured. For a loop
    /// that never makes such a call, the value is zero.
    pub longest_turn: Duration,
    /// The time for which the next turn has been overdue. Zero if it is not overdue, and during a
    /// turn.
    ///
    /// On a thread that no loop drives, the time counts from the earliest deadline, including those
    /// that other threads have requested. A remote cancel does not reset the time. In a
    /// [`Shard`](crate::Shard) that was never turned, the time counts from the first published
    /// deadline, until the next add, turn, or call of `prepare_sleep` or `time_until_next`.
    pub overdue: Duration,
    /// How long the measured callbacks ran. Empty unless
    /// [`Config::time_callbacks`](crate::Config::time_callbacks) enables it.
    pub callback_durations: Histogram,
    /// The levels of the shard's wheel, the finest first.
    ///
    /// The owner publishes them only on request, because this takes a few microseconds. A reading
    /// by another thread returns the levels that were published last, and requests new ones. The
    /// list is empty if no levels have been published.
    pub levels: Vec<Level>,
    /// How often a [`Watch`] found that the loop did not turn.
    pub stalls: u64,
    /// Identifies the shard: no other shard of the process ever has it.
    #[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "for the exporter"))]
    pub(crate) serial: u64,
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
pub struct Level {
    /// The time that one slot covers, at most 584 years.
    pub slot_span: Duration,
    /// The number of slots.
    pub slot_count: u64,
    /// The number of slots that hold timers.
    pub occupied: u64,
}

impl Level {
    /// Returns all levels of a shard with this tick.
    fn all(tick: TickLength, occupied: &[u64]) -> Vec<Self> {
        let levels = shard_levels().zip(occupied);
        let level = |((ticks, slot_count), &occupied)| Self {
            slot_span: Duration::from_nanos(tick.start_nanos(ticks)),
            slot_count,
            occupied,
        };
        levels.map(level).collect()
    }
}

impl ShardMetrics {
    /// Reads the metrics of a shard, and asks its owner to publish its levels.
    pub(crate) fn read_requesting_levels(number: u32, shared: &Shared) -> Self {
        shared.gauges.request_levels();
        Self::of(number, shared)
    }

    pub(crate) fn of(number: u32, shared: &Shared) -> Self {
        let (gauges, told) = (&shared.gauges, Counts::from_words(shared.gauges.counts()));
        // The clock is read before the turn state: if this thread is delayed between the two
        // readings, `overdue` becomes too short, not too long.
        let now = shared.clock().nanos();
        let turns = shared.turn_state();
        let overdue_since = turns.overdue_since().filter(|_| !shared.mailbox.is_closed());
        let counts = Counts {
            held: told.held + u64::from(shared.mailbox.cancelled_count()),
            queued: told.queued + u64::from(shared.mailbox.depth()),
            panicked: shared.hooks.panic_count(),
            turns: turns.begun,
            ..told
        };
        Self {
            number,
            name: shared.name.to_string(),
            counts,
            loop_lateness: gauges.lateness(LateCause::Loop),
            leftover_lateness: gauges.lateness(LateCause::LeftOver),
            longest_turn: Duration::from_nanos(gauges.longest_turn()),
            overdue: Duration::from_nanos(overdue_since.map_or(0, |due| now.saturating_sub(due))),
            callback_durations: gauges.callback_durations(),
            levels: gauges
                .occupied_slots()
                .map_or_else(Vec::new, |occupied| Level::all(shared.tick, &occupied)),
            stalls: gauges.stalls(),
            serial: gauges.serial(),
        }
    }
}

/// Returns the metrics of all shards of the process, by number.
///
/// Cost: a few microseconds per shard. It takes a lock that otherwise only creating and ending a
/// shard take.
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
        registry::with(number, |seen| Some(ShardMetrics::read_requesting_levels(number, &*seen?)))
    };
    registry::ever_used_numbers().filter_map(read).collect()
}
