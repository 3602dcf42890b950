//! What the rest of the crate asks of a thread's timer.

use std::{
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{LocalTimer, inner::Local};
use crate::{
    error::{AddError, AddErrorReason},
    handle::{LocalHandle, TimerHandle},
    hooks::{PanicPlace, contain},
    origin::Origin,
    shard::Due,
    shared::Shared,
    state::Kind,
};

/// What has something to send when a turn ends.
pub(crate) trait Flush {
    fn flush(&self);
}

impl LocalTimer {
    /// As `add`, due already.
    pub(crate) fn try_run<F: FnOnce() + 'static>(
        origin: Origin,
        callback: F,
    ) -> Result<TimerHandle, AddError<F>> {
        Self::insert(Kind::Shared, origin, |_| Due::at(0), callback)
    }

    /// As `try_add_local`, due when the clock shows `nanos`.
    #[inline]
    pub(crate) fn try_add_local_to<F: FnOnce() + 'static>(
        nanos: u64,
        origin: Origin,
        callback: F,
    ) -> Result<LocalHandle, AddError<F>> {
        Self::insert(Kind::Private, origin, |_| Due::at(nanos), callback).map(LocalHandle::new)
    }

    /// As `try_add`, due when the clock shows `nanos`.
    pub(crate) fn try_add_to<F: FnOnce() + 'static>(
        nanos: u64,
        origin: Origin,
        callback: F,
    ) -> Result<TimerHandle, AddError<F>> {
        Self::insert(Kind::Shared, origin, |_| Due::at(nanos), callback)
    }

    /// What the clock shows `delay` from now. An error if there is no timer.
    #[inline]
    pub(crate) fn nanos_after(delay: Duration) -> Result<u64, AddErrorReason> {
        Local::with(|local| local.step(|shard| shard.nanos_after(delay)))
    }

    /// What the clock shows at `instant`. An error if there is no timer.
    pub(crate) fn nanos_at(instant: Instant) -> Result<u64, AddErrorReason> {
        Local::with(|local| local.step(|shard| shard.clock().nanos_at(instant)))
    }

    /// When the clock shows `nanos`; now, if there is no timer.
    pub(crate) fn instant_at(self, nanos: u64) -> Instant {
        let instant = Local::with(|local| local.step(|shard| shard.clock().instant_at(nanos)));
        instant.unwrap_or_else(|_| self.now())
    }

    /// Whether the clock shows `nanos` or more. An error if there is no timer.
    #[inline]
    pub(crate) fn has_come(nanos: u64) -> Result<bool, AddErrorReason> {
        Local::with(|local| local.step(|shard| shard.has_come(nanos)))
    }

    /// A period in nanoseconds, at least a tick. An error if there is no timer.
    pub(crate) fn period_nanos(period: Duration) -> Result<u64, AddErrorReason> {
        Local::with(|local| local.step(|shard| shard.tick().period(period)))
    }

    /// Has this thread's timer place spread timers as the shard of that number would.
    pub(crate) fn spread_as(number: u32) {
        let _ = Local::with(|local| local.step(|shard| shard.spread_as(number)));
    }

    /// Whether this thread has had a timer that has ended: the thread is exiting.
    pub(crate) fn has_ended() -> bool {
        Local::has_ended()
    }

    /// Whether this thread's timer has that as its shared part.
    pub(crate) fn is_made_of(shared: &Arc<Shared>) -> bool {
        Local::with(|local| local.is_made_of(shared)).unwrap_or(false)
    }

    /// Runs the user's code and keeps its panic in.
    pub(crate) fn isolate(place: PanicPlace, run: impl FnOnce()) {
        let mut run = Some(run);
        let isolated = Local::with(|local| local.isolate(place, || run.take().map(|run| run())));
        if isolated.is_err() {
            // The thread is exiting: there is nobody to report to.
            contain(|| _ = run.take().map(|run| run()));
        }
    }

    /// At the end of each turn, and when a sleep is prepared, `flush` is called if somebody [wants](Self::wants_flush) it.
    pub(crate) fn flush_at_the_end_of_turns(flush: &Rc<dyn Flush>) {
        // A thread that is exiting turns no more.
        let _ = Local::with(|local| local.flush_later(Rc::downgrade(flush)));
    }

    /// Whether there is something to flush.
    pub(crate) fn has_to_flush() -> bool {
        Local::with(Local::has_to_flush).unwrap_or(false)
    }

    /// There is something to flush.
    pub(crate) fn wants_flush() {
        let _ = Local::with(Local::wants_flush);
    }
}
