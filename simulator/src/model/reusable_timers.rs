//! Predicts the answers of `ReusableTimer`s. In the model, a `ReusableTimer` is a timer, with id
//! and payload, that is never added. Arming a `ReusableTimer` that is not pending adds another
//! timer, the *arming*.

use corewheel::{Cancel, TimerEnd, TimerStatus};

use super::{Model, State};
use crate::ledger::Payload;
use crate::plan::{AddMethod, Id, Nanos, Script};

/// The request to arm a `ReusableTimer`. If the `ReusableTimer` is not pending, the new timer gets
/// `id`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArmRequest {
    pub(crate) id: Id,
    pub(crate) script: Script,
    pub(crate) add_method: AddMethod,
    pub(crate) delays: [Nanos; 2],
}

/// The expected effect of a call of `arm` or `try_arm`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ArmEffect {
    Resets,
    /// Adds a timer. `Some(true)` if the wheel is full; `None` if unknown.
    Adds(Option<bool>),
}

impl ArmRequest {
    /// Returns a request to arm after `delay`, with a callback that does nothing.
    pub(crate) fn plain(id: Id, delay: Nanos) -> Self {
        Self { id, script: Script::Nothing, add_method: AddMethod::Plain, delays: [delay, 0] }
    }
}

impl Model {
    /// Records a new `ReusableTimer`. Returns its payload, or None if a timer with this id exists.
    pub(crate) fn record_reusable_timer(&mut self, id: Id) -> Option<Payload> {
        let shard = self.own_shard();
        let timer = &mut self.timers[id as usize];
        if timer.state != State::NotAdded {
            return None;
        }
        (timer.state, timer.shard) = (State::Ended, shard);
        self.shards[shard].idle_reusable_timers += 1;
        Some(self.payload(id, shard, false))
    }

    /// Records, before the call, that `ReusableTimer` `id` is armed. Returns None if the arming
    /// already exists.
    pub(crate) fn begin_arm(
        &mut self,
        id: Id,
        request: ArmRequest,
        length: usize,
        operation: &'static str,
    ) -> Option<ArmEffect> {
        let ArmRequest { id: new_id, script, add_method, delays } = request;
        if self.timer(new_id).state != State::NotAdded {
            return None;
        }
        // The library first tries to reset the latest arming, even if it has ended.
        let latest_arming = self.timer(id).arming;
        if latest_arming
            .is_some_and(|latest_arming| self.record_reset(latest_arming, add_method, delays, true))
        {
            self.coverage.count("ReusableTimer::arm, pending");
            return Some(ArmEffect::Resets);
        }
        let shard = self.own_shard();
        let timer = &mut self.timers[new_id as usize];
        (timer.reusable_timer_id, timer.shard, timer.script) = (Some(id), shard, script);
        self.coverage.count(operation);
        Some(ArmEffect::Adds(self.is_full(shard, length)))
    }

    /// Records a cancel by the `ReusableTimer` before its call. Returns the expected answer.
    pub(crate) fn record_reusable_cancel(&mut self, id: Id) -> Cancel {
        let arming = self.timer(id).arming;
        arming.map_or(Cancel::Ended, |arming| self.record_cancel(arming, true))
    }

    /// Records the drop of a `ReusableTimer`; the caller first records the cancel that the drop
    /// causes. Returns whether the callback must be dropped at once.
    pub(crate) fn record_reusable_drop(&mut self, id: Id) -> bool {
        let shard = &mut self.shards[self.timers[id as usize].shard];
        shard.idle_reusable_timers -= 1;
        // If another core has cancelled the arming, the callback stays until the owner consumes the
        // cancel.
        !shard
            .queued
            .iter()
            .any(|&queued| self.timers[queued as usize].reusable_timer_id == Some(id))
    }

    /// Records the end of a run. If the callback has dropped its `ReusableTimer`, no arming
    /// remains.
    pub(crate) fn record_reusable_run_end(&mut self, id: Id, arming: Id, is_dropped: bool) {
        self.timers[arming as usize].state = State::Ended;
        if is_dropped {
            self.record_reusable_cancel(id);
            self.record_reusable_drop(id);
        }
    }

    /// Returns the expected `status` and `last_end` of a `ReusableTimer`.
    pub(crate) fn reusable_timer_status(&self, id: Id) -> (TimerStatus, Option<TimerEnd>) {
        let Some(arming) = self.timer(id).arming.map(|arming| self.timer(arming)) else {
            return (TimerStatus::Ended, None);
        };
        match arming.state {
            State::Live => (TimerStatus::Pending, None),
            State::Running => (TimerStatus::Running, None),
            _ if arming.has_run => (TimerStatus::Ended, Some(TimerEnd::Fired)),
            _ => (TimerStatus::Ended, Some(TimerEnd::Cancelled)),
        }
    }
}
