//! What the rest of the crate asks of a thread's timer.

use std::{
    panic::{self, AssertUnwindSafe},
    rc::Rc,
    sync::Arc,
};

use super::{LocalTimer, inner::Local};
use crate::{error::AddError, handle::TimerHandle, hooks::PanicPlace, shard::Due, shared::Shared, state::Kind};

/// What has something to send when a turn ends.
pub(crate) trait Flush {
    fn flush(&self);
}

impl LocalTimer {
    /// As `add`, due already.
    pub(crate) fn try_run<F: FnOnce() + 'static>(callback: F) -> Result<TimerHandle, AddError<F>> {
        Self::insert(Kind::Shared, |_| Due::at(0), callback)
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
            let _ = panic::catch_unwind(AssertUnwindSafe(|| run.take().map(|run| run())));
        }
    }

    /// At the end of each turn, and when a sleep is prepared, `flush` is called if somebody [wants](Self::wants_flush) it.
    pub(crate) fn flush_at_the_end_of_turns(flush: &Rc<dyn Flush>) {
        // A thread that is exiting turns no more.
        let _ = Local::with(|local| local.flush_later(Rc::downgrade(flush)));
    }

    /// There is something to flush.
    pub(crate) fn wants_flush() {
        let _ = Local::with(Local::wants_flush);
    }
}
