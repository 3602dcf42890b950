//! The functions of a thread's wheel that the rest of the crate uses.

use std::{
    any::Any,
    marker::PhantomData,
    num::NonZeroU64,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Weak,
    sync::Arc,
    task::Waker,
    time::{Duration, Instant},
};

use super::{LocalTimer, inner::Local};
use crate::{
    cross_core::{
        callback::{Callback, RunOnce},
        handle::{LocalHandle, TimerHandle},
        hooks::{PanicPlace, contain},
        origin::Origin,
        shared::Shared,
        state::Kind,
    },
    error::{AddError, AddErrorReason},
    shard::{Due, PreparedSleep, Shard},
};

/// A module that keeps many timers of a thread and has work at the end of turns.
pub(crate) trait Client {
    /// Expires the timer of that name.
    fn expire(&self, timer: ClientTimer);

    /// Sends the queued messages.
    fn flush(&self);

    /// Frees spare memory: all of it before a long sleep. Returns true to be called in the next
    /// turn too.
    fn trim(&self, is_long_sleep: bool) -> bool;
}

/// The position of a [`Client`] in a thread's wheel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientPlace(pub(super) u32);

/// A descriptor or task that drives this thread's wheel, until it is dropped.
#[derive(Debug)]
pub(crate) struct DrivesHere(PhantomData<*const ()>);

impl DrivesHere {
    pub(crate) fn new() -> Self {
        // An exiting thread has no wheel.
        let _ = Local::with(Local::add_driver);
        Self(PhantomData)
    }
}

impl Drop for DrivesHere {
    fn drop(&mut self) {
        let _ = Local::with(Local::remove_driver);
    }
}

/// The name that a client gives to a timer: its position, and a number that distinguishes it from
/// earlier timers there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientTimer {
    pub(crate) number: NonZeroU64,
    pub(crate) index: u32,
}

impl LocalTimer {
    /// Adds a timer that is due at once.
    pub(crate) fn try_run<F: FnOnce() + 'static>(
        origin: Origin,
        callback: F,
    ) -> Result<TimerHandle, AddError<F>> {
        Self::insert(Kind::Shared, origin, |_| Due::at(0), callback)
    }

    /// Registers a client of this thread's wheel. It must cancel its timers before it is dropped,
    /// since its place may then go to another client. Returns an error if there is no wheel.
    pub(crate) fn register(client: Weak<dyn Client>) -> Result<ClientPlace, AddErrorReason> {
        Local::with(|local| local.register(client))
    }

    /// Adds a timer of a client, due `delay` from now.
    ///
    /// Its callback has nothing to drop, so adding and cancelling it cost less than a closure that
    /// refers to the client.
    #[inline]
    pub(crate) fn add_expiry(
        client: ClientPlace,
        timer: ClientTimer,
        delay: Duration,
        origin: Origin,
    ) -> Result<LocalHandle, AddErrorReason> {
        // The fields are captured one by one: without padding.
        let (ClientPlace(client), ClientTimer { number, index }) = (client, timer);
        let expire = move || Self::expire(ClientPlace(client), ClientTimer { number, index });
        let due = |shard: &mut Shard<Callback>| Due::at(shard.due_after(delay));
        let callback = &mut Some(RunOnce(expire));
        let added = Local::with(|local| local.add(Kind::Private, origin, due, callback))?;
        added.map(LocalHandle::new)
    }

    fn expire(client: ClientPlace, timer: ClientTimer) {
        if let Ok(Some(client)) = Local::with(|local| local.client(client)) {
            client.expire(timer);
        }
    }

    /// Cancels a timer that [`add_expiry`](Self::add_expiry) has added. Returns true if the cancel
    /// won.
    pub(crate) fn cancel_expiry(timer: LocalHandle) -> bool {
        let cancelled = Local::with(|local| {
            // Its callback has nothing to drop.
            let cancelled = local.step(|shard| shard.cancel_own(timer.handle(), |_| ()));
            cancelled.inspect(|()| local.note_cancel())
        });
        cancelled.is_ok_and(|cancelled| cancelled.is_ok())
    }

    /// Adds a timer that is due when the clock shows `nanos`.
    pub(crate) fn try_add_to<F: FnOnce() + 'static>(
        nanos: u64,
        origin: Origin,
        callback: F,
    ) -> Result<TimerHandle, AddError<F>> {
        Self::insert(Kind::Shared, origin, |_| Due::at(nanos), callback)
    }

    /// Moves the timer of a future of this thread to the moment that `nanos` returns. Returns that
    /// moment, or `None` if the timer cannot be moved.
    pub(crate) fn reset_alarm(
        timer: TimerHandle,
        nanos: impl FnOnce(&mut Shard<Callback>) -> u64,
    ) -> Option<u64> {
        let moved = Local::with(|local| {
            let nanos = local.step(|shard| shard.reset_own_to(timer, nanos))?;
            local.wake_if_earlier(nanos);
            Some(nanos)
        });
        moved.ok().flatten()
    }

    /// Panics on behalf of a future that would wait for ever, because no loop is going to turn this
    /// thread's wheel.
    pub(crate) fn assert_driven() {
        let _ = Local::with(Local::assert_driven);
    }

    /// Announces a sleep of a task, whose waker ends the sleep early. In a thread without a wheel
    /// the timeout is zero.
    pub(crate) fn prepare_sleep_of(task: &Waker) -> PreparedSleep<'static> {
        Local::with(|local| local.prepare_sleep_of(task)).unwrap_or_else(|_| PreparedSleep::ended())
    }

    /// Records that no task drives this thread's wheel any more.
    pub(crate) fn forget_task() {
        let _ = Local::with(|local| local.shared.hooks.set_task(None));
    }

    /// Returns the clock's reading at `delay` from now, or an error if there is no wheel.
    #[inline]
    pub(crate) fn nanos_after(delay: Duration) -> Result<u64, AddErrorReason> {
        Local::with(|local| local.step(|shard| shard.nanos_after(delay)))
    }

    /// Returns the clock's reading at `instant`, or an error if there is no wheel.
    pub(crate) fn nanos_at(instant: Instant) -> Result<u64, AddErrorReason> {
        Local::with(|local| local.step(|shard| shard.clock().nanos_at(instant)))
    }

    /// Returns the moment at which the clock shows `nanos`, or the present if there is no wheel.
    pub(crate) fn instant_at(self, nanos: u64) -> Instant {
        let instant = Local::with(|local| local.step(|shard| shard.clock().instant_at(nanos)));
        instant.unwrap_or_else(|_| self.now())
    }

    /// Returns true if the clock shows `nanos` or more, or an error if there is no wheel.
    #[inline]
    pub(crate) fn has_elapsed(nanos: u64) -> Result<bool, AddErrorReason> {
        Local::with(|local| local.step(|shard| shard.has_elapsed(nanos)))
    }

    /// Returns a period in nanoseconds, at least a tick, or an error if there is no wheel.
    pub(crate) fn period_nanos(period: Duration) -> Result<u64, AddErrorReason> {
        Local::with(|local| local.step(|shard| shard.tick().period(period)))
    }

    /// Spreads timers of this thread's wheel as the shard of that number would.
    pub(crate) fn spread_as(number: u32) {
        let _ = Local::with(|local| local.step(|shard| shard.shared().spread.start_as(number)));
    }

    /// Returns true if this thread has had a wheel that has ended: the thread is exiting.
    pub(crate) fn has_ended() -> bool {
        Local::has_ended()
    }

    /// Returns true if `shared` is the shared part of this thread's wheel.
    pub(crate) fn is_made_of(shared: &Arc<Shared>) -> bool {
        Local::with(|local| local.is_made_of(shared)).unwrap_or(false)
    }

    /// Runs the user's code and catches its panic.
    #[inline]
    pub(crate) fn isolate(place: PanicPlace, run: impl FnOnce()) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
            Self::report(place, payload);
        }
    }

    #[cold]
    fn report(place: PanicPlace, payload: Box<dyn Any + Send>) {
        let mut payload = Some(payload);
        let reported = Local::with(|local| {
            payload.take().into_iter().for_each(|payload| local.report(place, payload));
        });
        if reported.is_err() {
            // The thread is exiting, so nothing can be reported.
            contain(|| drop(payload));
        }
    }

    /// Returns true if messages wait to be sent.
    pub(crate) fn has_to_flush() -> bool {
        Local::with(Local::has_to_flush).unwrap_or(false)
    }

    /// Requests a flush.
    pub(crate) fn wants_flush() {
        let _ = Local::with(Local::wants_flush);
    }

    /// Requests a trim of spare memory.
    pub(crate) fn wants_trim() {
        let _ = Local::with(Local::wants_trim);
    }
}
