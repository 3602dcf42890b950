//! The trait `Backend`: the operations of a future on the wheel that holds its timer.

use std::{
    fmt::Debug,
    time::{Duration, Instant},
};

use super::waker_callback::WakerCallback;
use crate::{
    cross_core::{call_site::CallSite, handle::TimerHandle, slab::OwnerSlab, state::TimerKind},
    error::AddErrorReason,
    local::{LocalTimer, ThreadWheel},
    when::When,
};

/// The wheel that holds a future's timer. Only two types implement this trait: [`LocalTimer`], this
/// thread's wheel, and [`SharedWheel`](super::SharedWheel), a wheel of [`Timers`](super::Timers).
///
/// # Examples
///
/// ```
/// use corewheel::future::{Backend, Sleep, VirtualTime, sleep};
/// use std::time::Duration;
///
/// /// Waits twice, on any backend.
/// async fn sleep_twice<B: Backend>(mut sleep: Sleep<B>, again: Duration) {
///     (&mut sleep).await;
///     sleep.reset_after(again);
///     sleep.await;
/// }
///
/// let time = VirtualTime::new();
/// time.block_on(|| sleep_twice(sleep(Duration::from_secs(1)), Duration::from_secs(2)));
/// assert_eq!(time.elapsed(), Duration::from_secs(3));
/// ```
pub trait Backend: BackendOps {}

impl<B: BackendOps> Backend for B {}

/// The operations that futures need from a wheel. Each `nanos` value is a time of the wheel's
/// clock, in nanoseconds. The operations use `TimerHandle` instead of `LocalHandle`, which is
/// `!Send`. So if a future is `!Send`, the compiler's error names only `LocalTimer`.
pub trait BackendOps: Debug + Unpin {
    fn nanos_after(&self, delay_nanos: u64) -> Result<u64, AddErrorReason>;

    /// Reads the clock; never estimates the time, even with `Clock::fast`.
    fn now_nanos(&self) -> Result<u64, AddErrorReason>;

    fn nanos_at(&self, instant: Instant) -> Result<u64, AddErrorReason>;

    fn instant_at(&self, nanos: u64) -> Instant;

    fn has_elapsed(&self, nanos: u64) -> Result<bool, AddErrorReason>;

    /// Returns `period` in nanoseconds, but at least one tick of the wheel.
    fn clamp_period_nanos(&self, period: Duration) -> Result<u64, AddErrorReason>;

    /// Adds a timer with the deadline `nanos` and the callback `waker`. If another wheel of the
    /// `Timers` accepts the timer, makes `self` refer to that wheel, and converts `nanos` to that
    /// wheel's clock.
    fn try_add(
        &mut self,
        nanos: &mut u64,
        call_site: CallSite,
        waker: WakerCallback,
    ) -> Result<TimerHandle, AddErrorReason>;

    /// Drops the callback of a timer that was not added. Catches a panic of the waker's destructor.
    fn drop_refused_callback(&self, callback: Option<WakerCallback>);

    fn is_pending(&self, handle: TimerHandle) -> bool;

    /// Cancels a timer. Returns false if the timer's callback is running, or the timer has ended.
    fn cancel(&self, handle: TimerHandle) -> bool;

    /// Resets a pending timer to `delay_nanos` from now. Returns the new deadline, or `None` if the
    /// timer is running or has ended.
    fn reset_after(&self, handle: TimerHandle, delay_nanos: u64) -> Option<u64>;

    /// Resets a pending timer to the deadline `instant`. Returns the new deadline, and true if this
    /// deadline has elapsed. Returns `None` if the timer is running or has ended.
    fn reset_at(&self, handle: TimerHandle, instant: Instant) -> Option<(u64, bool)>;
}

impl BackendOps for LocalTimer {
    #[inline]
    fn nanos_after(&self, delay_nanos: u64) -> Result<u64, AddErrorReason> {
        ThreadWheel::with_current_engine(|engine| engine.nanos_after(delay_nanos))
    }

    fn now_nanos(&self) -> Result<u64, AddErrorReason> {
        ThreadWheel::with_current_engine(|engine| engine.now_nanos())
    }

    fn nanos_at(&self, instant: Instant) -> Result<u64, AddErrorReason> {
        ThreadWheel::with(|thread_wheel| thread_wheel.shared.clock.nanos_at(instant))
    }

    fn instant_at(&self, nanos: u64) -> Instant {
        let instant = ThreadWheel::with(|thread_wheel| thread_wheel.shared.clock.instant_at(nanos));
        instant.unwrap_or_else(|_| self.now())
    }

    #[inline]
    fn has_elapsed(&self, nanos: u64) -> Result<bool, AddErrorReason> {
        ThreadWheel::with_current_engine(|engine| engine.has_elapsed(nanos))
    }

    fn clamp_period_nanos(&self, period: Duration) -> Result<u64, AddErrorReason> {
        ThreadWheel::with(|thread_wheel| thread_wheel.shared.tick_length.clamp_period_nanos(period))
    }

    #[inline(always)]
    fn try_add(
        &mut self,
        nanos: &mut u64,
        call_site: CallSite,
        waker: WakerCallback,
    ) -> Result<TimerHandle, AddErrorReason> {
        let mut callback = Some(waker);
        let add_result = ThreadWheel::with(|thread_wheel| {
            thread_wheel.assert_driven();
            thread_wheel.add(TimerKind::Private, call_site, When::at_nanos(*nanos), &mut callback)
        });
        let add_result = add_result.and_then(|added| added);
        if add_result.is_err() {
            self.drop_refused_callback(callback);
        }
        add_result
    }

    #[cold]
    fn drop_refused_callback(&self, callback: Option<WakerCallback>) {
        ThreadWheel::drop_each_catching_panic(callback);
    }

    fn is_pending(&self, handle: TimerHandle) -> bool {
        ThreadWheel::with_current_engine(|engine| engine.node_is_pending(handle)).unwrap_or(false)
    }

    fn cancel(&self, handle: TimerHandle) -> bool {
        let waker =
            ThreadWheel::cancel_private(handle, OwnerSlab::take_inline_closure::<WakerCallback>);
        let is_cancelled = waker.is_some();
        ThreadWheel::drop_each_catching_panic(waker);
        is_cancelled
    }

    fn reset_after(&self, handle: TimerHandle, delay_nanos: u64) -> Option<u64> {
        ThreadWheel::reset(handle, |engine| engine.nanos_after(delay_nanos))
    }

    fn reset_at(&self, handle: TimerHandle, instant: Instant) -> Option<(u64, bool)> {
        let mut has_elapsed = false;
        let nanos = ThreadWheel::reset(handle, |engine| {
            let nanos = engine.shared.clock.nanos_at(instant);
            has_elapsed = engine.has_elapsed(nanos);
            nanos
        });
        nanos.map(|nanos| (nanos, has_elapsed))
    }
}
