//! What shards do, and how late their timers fire, for whoever looks after a server.
//!
//! Every shard counts, always; it costs some instructions for a timer and some more for a turn. When its loop asks how long it
//! may sleep, and at least every 64 turns, it tells other threads, which read it at any time without holding it up. [`shards`]
//! reads all of the process; [`ShardRef::metrics`](crate::ShardRef::metrics) and
//! [`LocalTimer::metrics`](crate::LocalTimer::metrics) read one.
//!
//! With the feature `origins`, `LocalTimer::live_report` says where in the program the live timers were added.
//!
//! A [`Watch`] notices a loop that does not turn while timers are due. With the feature `metrics` there is an `Exporter` for the
//! facade of that name; with the feature `tracing` a panic that was caught is an event (error), and so is what a watch finds
//! (warning).
//!
//! # Which numbers to watch
//!
//! * [`loop_lateness`](ShardMetrics::loop_lateness): from a timer's deadline to the turn that fired it, where no turn came
//!   earlier. It is what the loop's other work costs its timers. If it grows, look at [`longest_turn`](ShardMetrics::longest_turn)
//!   first: it is the callbacks then (or what the loop does between its turn and its next question); if that is short, the loop does
//!   something else for too long.
//! * [`callback_durations`](ShardMetrics::callback_durations): how long callbacks run, if
//!   [`Config::time_callbacks`](crate::Config::time_callbacks) asks for it.
//! * [`turn_lateness`](ShardMetrics::turn_lateness): the same of timers that an earlier turn could have fired, and left because its
//!   budget was used up, or a pass given up. Otherwise it counts nothing.
//! * [`Counts::queued`]: what other cores have asked for and the owner has not met. It should go back to zero at each turn.
//! * [`Counts::live`] over time: a number that only grows is a timer that nobody cancels.
//! * [`Counts::panicked`], [`Counts::clock_regressions`], [`stalls`](ShardMetrics::stalls): zero in a sound program on a sound
//!   machine.
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
//!     println!("{}: {} live, p99 {:?} late", shard.name, shard.counts.live, shard.loop_lateness.percentile(99.0));
//! }
//! # let metrics = local_timer().metrics().expect("there is one");
//! # assert_eq!((metrics.counts.fired, metrics.loop_lateness.count()), (1, 1));
//! ```

#[cfg(feature = "metrics")]
mod export;
mod watch;

use std::time::Duration;

#[cfg(feature = "metrics")]
pub use self::export::Exporter;
pub use self::watch::{Stall, Watch};
pub use crate::gauges::{Counts, Histogram};
#[cfg(feature = "origins")]
pub use crate::origin::{LivePlace, LiveReport};
use crate::{gauges::LateBy, registry, shared::Shared, tick::TickLength, wheel::shard_levels};

/// What a shard has done since it was made, as it said when its loop last asked how long it may sleep, or at most 64 turns ago.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ShardMetrics {
    /// The shard's number, which is another one's as soon as this one has ended.
    pub number: u32,
    /// Its name: [`Config::name`](crate::Config::name), or that of the thread that has made it; empty if it had none.
    pub name: String,
    /// What has become of its timers. [`panicked`](Counts::panicked), [`turns`](Counts::turns) and, of
    /// [`held`](Counts::held) and [`queued`](Counts::queued), what waits in the mailbox are of this moment, the rest belongs
    /// together.
    pub counts: Counts,
    /// How late the timers fired for which no turn came before: from the deadline, rounded up to a tick, to the beginning of the
    /// turn that fired them.
    pub loop_lateness: Histogram,
    /// How late the timers fired that an earlier turn had left to a later one. (After such a turn what is added when it is due already, a
    /// [`run`](crate::ShardRef::run) of its own thread among it, cannot be told from those, and counts with them; a `run` of another
    /// thread never counts.)
    pub turn_lateness: Histogram,
    /// The longest turn, callbacks included: from its beginning to the next time that the loop asks how long it may sleep
    /// (`prepare_sleep`, `time_until_next`), so that it costs no reading of the clock. What a loop does between the turn and
    /// that question counts as well. Of several turns between two questions only the last is measured; for a loop that never asks,
    /// this is zero.
    pub longest_turn: Duration,
    /// How long callbacks ran, of those that were timed: none unless [`Config::time_callbacks`](crate::Config::time_callbacks)
    /// says so.
    pub callback_durations: Histogram,
    /// How full the levels of its wheel are, the finest first.
    ///
    /// To look costs the owner a microsecond or two, so it says so only after another thread has read its metrics: what that
    /// reads next is from the time in between, and what it reads first is empty.
    pub levels: Vec<Level>,
    /// How often the loop was found not to turn, by each [`Watch`] of the process.
    pub stalls: u64,
    /// No other shard of the process ever has the same.
    #[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "for the exporter"))]
    pub(crate) serial: u64,
}

/// A level of a shard's wheel, and how full it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Level {
    /// The time that one of its slots covers; 584 years if that is more.
    pub slot: Duration,
    /// How many slots it has.
    pub slots: u64,
    /// In how many of them there are timers.
    pub occupied: u64,
}

impl Level {
    /// All levels of a shard with such a tick.
    fn all(tick: TickLength, occupied: &[u64]) -> Vec<Self> {
        let levels = shard_levels().zip(occupied);
        let level = |((ticks, slots), &occupied)| Self {
            slot: Duration::from_nanos(tick.start(ticks)),
            slots,
            occupied,
        };
        levels.map(level).collect()
    }
}

impl ShardMetrics {
    /// Of another thread's shard, whose owner will say of its levels what it has not said yet.
    pub(crate) fn wanted(number: u32, shared: &Shared) -> Self {
        shared.gauges.want_levels();
        Self::of(number, shared)
    }

    /// What has been said.
    pub(crate) fn of(number: u32, shared: &Shared) -> Self {
        let (gauges, told) = (&shared.gauges, Counts::from_words(shared.gauges.counts()));
        let counts = Counts {
            held: told.held + u64::from(shared.mailbox.cancelled()),
            queued: told.queued + u64::from(shared.mailbox.depth()),
            panicked: shared.hooks.panicked(),
            turns: gauges.turns().begun,
            ..told
        };
        Self {
            number,
            name: shared.name.to_string(),
            counts,
            loop_lateness: gauges.lateness(LateBy::Loop),
            turn_lateness: gauges.lateness(LateBy::Turn),
            longest_turn: Duration::from_nanos(gauges.longest_turn()),
            callback_durations: gauges.callback_durations(),
            levels: gauges
                .occupied()
                .map_or_else(Vec::new, |occupied| Level::all(shared.tick, &occupied)),
            stalls: gauges.stalls(),
            serial: gauges.serial(),
        }
    }
}

/// The metrics of all shards of the process, in the order of their numbers.
///
/// Cost: some microseconds for each. Call it on any thread, as often as you like; it takes a lock that only the making and
/// ending of a shard takes.
pub fn shards() -> Vec<ShardMetrics> {
    let read = |number| registry::with(number, |seen| Some(ShardMetrics::wanted(number, seen?)));
    registry::numbers().filter_map(read).collect()
}
