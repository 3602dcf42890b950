//! Counts the owner's operations, and publishes the lateness of its timers through `gauges`.

use std::cell::Cell;

use crate::{
    clock::ShardClock,
    gauges::{Counts, Gauges, LateCause},
};

/// The counts of a shard's owner, and the turns at which the owner must publish them.
#[derive(Debug, Default)]
pub(super) struct Stats {
    /// The counts, except `live`, `uncollected`, `queued`, `panicked`, `relinked` and
    /// `clock_regressions`, which stay zero here.
    pub(super) counts: Counts,
    /// The number of live timers, in 32 bits, so that the compiler cannot load it together with a
    /// 64-bit counter. A joint load would stall after a recent store to only one of the two.
    pub(super) live_count: u32,
    /// The live count last published to `AdmissionLimit`, plus the number of remote timers admitted
    /// since. Has no meaning in a shard without a limit.
    pub(super) published_live_count: Cell<u64>,
    pub(super) is_in_pass: bool,
    /// True if the previous pass left entries or messages unprocessed, or was abandoned. Also true
    /// after an add to a full shard has consumed messages, because other messages may remain.
    pub(super) last_pass_left_work: bool,
    /// Turns up to this number may skip the pass. A turn with a higher number must begin a pass,
    /// which publishes the counts. Zero if the next turn must begin a pass, because work may remain
    /// or a pass was requested.
    pub(super) skip_passes_until_turn: Cell<u64>,
    /// True from the beginning of a pass until the length of its turn is measured.
    pub(super) turn_length_is_unmeasured: Cell<bool>,
    /// A sum of counters, and the number of messages in the backlog, at the latest publication.
    /// `Engine::publish_counts` publishes the counts again only if either has changed.
    pub(super) last_published_digest: Cell<(u64, u32)>,
    /// From the turn of this number on, the end of a pass publishes the counts. Zero before a loop
    /// begins to drive the shard, and after a thread's wheel has lost its last driver.
    pub(super) next_publish_turn: Cell<u64>,
}

impl Stats {
    #[inline]
    pub(super) fn count_cancelled(&mut self) {
        self.counts.cancelled += 1;
        self.live_count -= 1;
    }

    /// Counts the admission of a remotely added timer. The timer keeps the room that its adder has
    /// reserved.
    #[inline]
    pub(super) fn count_admitted(&mut self) {
        self.counts.added += 1;
        self.live_count += 1;
        *self.published_live_count.get_mut() += 1;
    }

    #[inline]
    pub(super) fn count_fired(&mut self) {
        self.counts.fired += 1;
        self.live_count -= 1;
    }

    /// Counts a run, and if the timer is one-shot, also counts the timer as fired.
    #[inline]
    pub(super) fn count_run(&mut self, is_periodic: bool) {
        self.counts.runs += 1;
        if !is_periodic {
            self.count_fired();
        }
    }

    /// Publishes the lateness of a timer that fires now and was due at `deadline_nanos`.
    #[inline]
    pub(super) fn publish_lateness(
        &self,
        deadline_nanos: u64,
        clock: &ShardClock,
        gauges: &Gauges,
    ) {
        let cause =
            match (deadline_nanos > clock.turn_start_before_last_pass, self.last_pass_left_work) {
                (true, _) => LateCause::LateTurn,
                (false, true) => LateCause::UnfinishedTurn,
                // The timer was added or reset after its deadline, so the loop did not cause its
                // lateness.
                (false, false) => return,
            };
        gauges.lateness_by_cause[cause as usize]
            .add_duration(clock.turn_start.saturating_sub(deadline_nanos));
    }
}
