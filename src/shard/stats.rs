//! Counts the owner's operations. Publishes the lateness of timers, and the length of turns, to
//! other threads through `gauges`.

use std::cell::Cell;

use crate::{
    clock::ShardClock,
    cross_core::admission::AdmissionLimit,
    gauges::{Counts, Gauges, LateCause},
};

/// The counts of a shard's owner, and the turns at which the owner must publish them.
#[derive(Debug, Default)]
pub(super) struct Stats {
    /// The counts, except `live`, `uncollected`, `queued`, `panicked`, `touched` and
    /// `clock_regressions`, which stay zero here.
    pub(super) counts: Counts,
    /// The number of live timers. This field has 32 bits, but the counters in `counts` have 64
    /// bits. If this field had 64 bits, the compiler could load the field and a counter with one
    /// wide load. A wide load stalls after a narrower store to the same memory.
    pub(super) live: u32,
    pub(super) in_pass: bool,
    /// True if the previous pass left entries or messages, or was abandoned. Also true after an add
    /// to a full shard has consumed messages to make room, because other messages may remain in the
    /// backlog.
    pub(super) was_behind: bool,
    /// The number of the next turn that must begin a pass, to publish the counts. Earlier turns may
    /// skip the pass. Zero means that the next turn must begin a pass. The value is zero before the
    /// first pass ends, during a pass, after a pass with remaining work, and after a request for a
    /// pass.
    pub(super) skip_passes_until_turn: Cell<u64>,
    /// True from the beginning of a pass until the length of its turn is measured.
    pub(super) turn_length_is_unmeasured: Cell<bool>,
    /// Two numbers from the latest publication of the counts: a sum of counters, and the number of
    /// messages in the backlog. `Engine::publish` publishes the counts again only if the sum or the
    /// number of messages has changed.
    pub(super) last_published_digest: Cell<(u64, u32)>,
    /// The number of the next turn that must publish the counts, or zero if the loop has not begun.
    pub(super) publish_at_turn: Cell<u64>,
}

impl Stats {
    #[inline]
    pub(super) fn count_cancelled(&mut self) {
        self.counts.cancelled += 1;
        self.live -= 1;
    }

    /// Counts a remotely added timer that was cancelled before its admission, and releases the room
    /// reserved for it.
    pub(super) fn count_cancelled_before_admission(&mut self, admission: &AdmissionLimit) {
        self.counts.added += 1;
        self.counts.cancelled += 1;
        admission.release();
    }

    #[inline]
    pub(super) fn count_fired(&mut self) {
        self.counts.fired += 1;
        self.live -= 1;
    }

    /// Counts a run. A one-shot timer also counts as fired. A periodic timer stays live.
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
        let cause = match (deadline_nanos > clock.previous_turn_start, self.was_behind) {
            (true, _) => LateCause::Loop,
            (false, true) => LateCause::LeftOver,
            // The timer was added or reset after the previous turn, with a deadline before that
            // turn. So the loop did not cause the timer's lateness.
            (false, false) => return,
        };
        gauges.record_lateness(cause, clock.turn_start.saturating_sub(deadline_nanos));
    }
}
