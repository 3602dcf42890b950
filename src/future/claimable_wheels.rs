//! The wheels of [`Timers::per_worker`](super::Timers::per_worker), which belong to no thread.
//!
//! A claimable wheel is a shard whose owner changes. A thread claims the wheel by one
//! compare-and-swap, acts as the owner, and releases the wheel. A *worker* is a thread that adds,
//! cancels or resets a timer. The *driver* is the thread that turns the wheels.
//!
//! ```text
//! a worker                                    the driver
//! claim: free -> claimed (Acquire)            claim and turn each wheel, release it to run a waker
//! add, cancel or reset a timer                claim each wheel, announce a sleep, release it
//! release: claimed -> free (Release)          sleep until the earliest announced end
//! wake the driver if it sleeps beyond the new deadline
//! ```
//!
//! # The claim
//!
//! A claim is an Acquire operation, and a release is a Release operation, so each owner sees the
//! writes of all previous owners. While a wheel is claimed, no user code runs except the function
//! of a `Clock::from_fn`. Wakers are cloned before the claim, and called or dropped after the
//! release. So a claim is short and never nested. If a worker cannot claim the wheel in a few
//! attempts, the worker acts as a remote thread. Only the driver waits for a claim: after each
//! callback, and when it ends the wheels.
//!
//! # No missed wake-up
//!
//! Only the driver turns wheels, so it must wake up for each deadline. The driver holds the claim
//! while it announces its sleep, and a worker holds the claim while it adds a timer. So either the
//! add or the announcement comes first:
//!
//! - If the add comes first, the announcement includes the new deadline.
//! - If the announcement comes first, the worker reads `announced_sleep_end`, and wakes the driver
//!   if the announced sleep ends after the new deadline. A driver that is already awake sees the
//!   new timer at its next announcement.
//!
//! A remote request needs no claim, and wakes the driver as it wakes any sleeping owner (see
//! `cross_core/parker.rs`).
//!
//! If a worker has claimed a wheel, the driver cannot announce its sleep on this wheel, and sleeps
//! at most `UNANNOUNCED_SLEEP_MAX`.
//!
//! A worker that wakes the driver for a deadline lowers `latest_sleep_end` to this deadline. Until
//! `latest_sleep_end` has elapsed, the driver announces no sleep that ends later, even if the timer
//! with this deadline was cancelled. So from the next announcement on, an add with a deadline after
//! `latest_sleep_end` does not wake the driver. For example, if a program keeps adding and
//! cancelling timeouts of 5 s, one add per wheel wakes the driver about every 5 s.
//!
//! # The end
//!
//! Dropping the last clone or future of the `Timers` sets `is_stopping` and wakes the driver, so
//! that `TimersDriver::run` returns. Dropping the `TimersDriver` ends each wheel. An ended wheel
//! refuses adds, and drops its pending callbacks, which wakes their tasks.
//!
//! # Models
//!
//! `loom-tests/tests/future.rs`.

#![allow(unsafe_code)]

use std::{
    cell::UnsafeCell,
    fmt, hint,
    ops::{Deref, DerefMut},
    sync::Arc,
    time::Duration,
};

use super::waker_callback::WakerCallback;
use crate::{
    clock::tick::TimerSchedule,
    config::Config,
    cross_core::{
        call_site::CallSite,
        callback::Callback,
        handle::{self, Cancel, TimerHandle},
        hooks::PanicPlace,
        shared::Shared,
        slab::{ClaimedTimer, OwnerNodeRef, Slab},
        state::TimerKind,
    },
    error::{AddErrorReason, ConfigError},
    limits::{LONG_OVERDUE_GRACE_NANOS, UNANNOUNCED_SLEEP_MAX, WHEEL_CLAIM_TRIES},
    local::{ShardRef, ThreadWheel},
    shard::{Engine, PreparedSleep, UserCodeStep},
    util::sync::{AtomicBool, Exclusive, Ordering, yield_now},
};

/// A wheel that threads claim for one operation at a time. Two wheels share no cache line.
#[repr(align(128))]
pub(super) struct ClaimableWheel {
    is_claimed: AtomicBool,
    claimed_state: Exclusive<UnsafeCell<ClaimedState>>,
    shared: Arc<Shared>,
}

/// The part of a wheel that a thread may use only while it has claimed the wheel.
struct ClaimedState {
    engine: Engine<Callback>,
    /// The end of the driver's latest announced sleep, in nanoseconds of the clock; `u64::MAX` if
    /// the sleep has no end.
    announced_sleep_end: u64,
    /// The earliest deadline for which an add or reset has woken the driver; `u64::MAX` if
    /// there is none. No newly announced sleep ends after this deadline. Once the deadline has
    /// elapsed, the next announcement resets the value to `u64::MAX`.
    latest_sleep_end: u64,
}

// SAFETY: every callback of the shard is `Send`, as `try_add_as_owner` and `ShardRef` require. An
// `Engine` may be sent to another thread if all its payloads are `Send`.
unsafe impl Send for ClaimableWheel {}

// SAFETY: only `ClaimGuard` accesses `claimed_state`, on the one thread that has claimed the wheel.
// All other fields are `Sync`.
unsafe impl Sync for ClaimableWheel {}

/// A wheel that this thread has claimed. Dropping the guard releases the wheel.
struct ClaimGuard<'w>(&'w ClaimableWheel);

impl Deref for ClaimGuard<'_> {
    type Target = ClaimedState;

    #[inline]
    fn deref(&self) -> &ClaimedState {
        // SAFETY: this thread alone has claimed the wheel.
        let state = unsafe { self.0.claimed_state.get() };
        // SAFETY: no other guard of this wheel exists. While `self` is borrowed, `deref_mut` cannot
        // be called.
        unsafe { &*state.get() }
    }
}

impl DerefMut for ClaimGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut ClaimedState {
        // SAFETY: this thread alone has claimed the wheel.
        let state = unsafe { self.0.claimed_state.get() };
        // SAFETY: no other guard of this wheel exists, and `self` is borrowed mutably.
        unsafe { &mut *state.get() }
    }
}

impl Drop for ClaimGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: publishes this owner's writes (pairs with the Acquire of the next claim).
        self.0.is_claimed.store(false, Ordering::Release);
    }
}

impl ClaimableWheel {
    fn new(config: Config) -> Result<Self, ConfigError> {
        let mut engine = Engine::new(config, Slab::for_callbacks(), Callback::note_wheel_end)?;
        let shared = Arc::clone(&engine.shared);
        shared.gauges.overdue_grace_nanos.set(LONG_OVERDUE_GRACE_NANOS);
        let _ = engine.grant_add_allowance(0);
        Ok(Self {
            is_claimed: AtomicBool::new(false),
            claimed_state: Exclusive::new(UnsafeCell::new(ClaimedState {
                engine,
                announced_sleep_end: 0,
                latest_sleep_end: u64::MAX,
            })),
            shared,
        })
    }

    /// Claims the wheel, or returns `None` if another thread has claimed it. Before the caller
    /// drops the guard, it must not call user code, except a clock's function.
    #[inline]
    fn try_claim(&self) -> Option<ClaimGuard<'_>> {
        // Acquire: sees the writes of the previous owner (pairs with the Release of `ClaimGuard`).
        // Relaxed: a thread whose claim fails does not access `claimed_state`.
        self.is_claimed
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
            .then(|| ClaimGuard(self))
    }

    /// Tries a few times to claim the wheel, and returns `None` if all attempts fail.
    #[inline]
    fn claim_with_retries(&self) -> Option<ClaimGuard<'_>> {
        self.try_claim().or_else(|| {
            (1..WHEEL_CLAIM_TRIES).find_map(|_| {
                hint::spin_loop();
                self.try_claim()
            })
        })
    }

    /// Calls [`try_add_as_owner`](Self::try_add_as_owner). If the wheel is full, removes remotely
    /// cancelled timers until there is room for a timer, and tries the add once more.
    pub(super) fn try_add(
        &self,
        nanos: u64,
        call_site: CallSite,
        callback: &mut Option<WakerCallback>,
    ) -> Option<Result<TimerHandle, AddErrorReason>> {
        let add_result = self.try_add_as_owner(nanos, call_site, callback);
        if add_result != Some(Err(AddErrorReason::Full)) {
            return add_result;
        }
        while let Some(mut claimed_wheel) = self.claim_with_retries()
            && let Ok(Some(callback)) = claimed_wheel.engine.make_room(u64::MAX)
        {
            drop(claimed_wheel);
            self.shared.hooks.drop_catching_panic(callback);
        }
        self.try_add_as_owner(nanos, call_site, callback)
    }

    /// Claims the wheel and adds a timer. Returns `None` if all attempts to claim the wheel fail.
    /// Takes the callback only if the timer is added.
    #[inline]
    pub(super) fn try_add_as_owner(
        &self,
        nanos: u64,
        call_site: CallSite,
        callback: &mut Option<WakerCallback>,
    ) -> Option<Result<TimerHandle, AddErrorReason>> {
        let mut claimed_wheel = self.claim_with_retries()?;
        let ClaimedState { engine, .. } = &mut *claimed_wheel;
        let mut overdue_nanos = None;
        if !engine.has_add_allowance() {
            let max_adds = if engine.loop_has_begun() {
                u64::MAX
            } else {
                let (next_due, _) = engine.publish_undriven_and_get_next_due();
                overdue_nanos = Some(engine.now_nanos().saturating_sub(next_due));
                engine.adds_until_loop_check()
            };
            if let Err(reason) = engine.grant_add_allowance(max_adds) {
                return Some(Err(reason));
            }
        }
        let schedule = TimerSchedule { due: nanos, period: 0 };
        let add_result = engine.insert(schedule, TimerKind::Shared, call_site, callback);
        if let Ok(handle) = add_result {
            // Publishes the number of live timers now, because remote adds compare this number with
            // the limit.
            engine.publish_live_count();
            let due = engine.applied_deadline_nanos(handle.index());
            if overdue_nanos.is_some() {
                let _ = engine.publish_undriven_and_get_next_due();
            }
            self.release_and_wake_driver_for(claimed_wheel, due);
        } else {
            drop(claimed_wheel);
        }
        if let Some(overdue) = overdue_nanos {
            self.shared.report_overdue_timer(overdue);
        }
        Some(add_result)
    }

    /// Releases the wheel. If the driver's announced sleep ends after the deadline `due`, lowers
    /// `latest_sleep_end` to at most `due`, and wakes the driver.
    #[inline]
    fn release_and_wake_driver_for(&self, mut claimed_wheel: ClaimGuard<'_>, due: u64) {
        let sleep_ends_late = due < claimed_wheel.announced_sleep_end;
        if sleep_ends_late {
            claimed_wheel.latest_sleep_end = claimed_wheel.latest_sleep_end.min(due);
        }
        drop(claimed_wheel);
        // This thread claimed the wheel after the announcement, so it sees the announcement without
        // a fence.
        if sleep_ends_late && let Some(sleep) = self.shared.parker.sleep_in_progress() {
            self.shared.wake(sleep);
        }
    }

    /// Claims the wheel and cancels a timer. Returns `None` if all attempts to claim the wheel
    /// fail.
    #[inline]
    pub(super) fn cancel(&self, handle: TimerHandle) -> Option<Cancel> {
        let mut claimed_wheel = self.claim_with_retries()?;
        let take_callback = |node: OwnerNodeRef<'_, _>| node.take_payload();
        let cancel_result = claimed_wheel.engine.cancel(handle, take_callback);
        // Publishes the number of live timers now, because remote adds may need the freed capacity.
        claimed_wheel.engine.publish_live_count();
        drop(claimed_wheel);
        Some(match cancel_result {
            Ok(callback) => {
                self.shared.hooks.drop_catching_panic(callback);
                Cancel::Cancelled
            }
            Err(answer) => answer,
        })
    }

    /// Claims the wheel and resets a pending timer to the deadline `nanos`. Returns `None` if all
    /// attempts to claim the wheel fail.
    pub(super) fn try_reset_to_nanos(&self, handle: TimerHandle, nanos: u64) -> Option<bool> {
        let mut claimed_wheel = self.claim_with_retries()?;
        let is_reset = claimed_wheel.engine.reset(handle, |_| nanos).is_some();
        if is_reset {
            self.release_and_wake_driver_for(
                claimed_wheel,
                self.shared.tick_length.round_up(nanos),
            );
        }
        Some(is_reset)
    }

    /// Claims the wheel, and returns true if the timer is pending. Returns `None` if all attempts
    /// to claim the wheel fail.
    pub(super) fn is_pending(&self, handle: TimerHandle) -> Option<bool> {
        Some(self.claim_with_retries()?.engine.is_pending(handle))
    }

    /// Fires the due timers and consumes messages. Releases the wheel while a callback runs or is
    /// dropped. Does nothing if another thread has claimed the wheel.
    fn try_turn(&self) {
        let Some(mut claimed_wheel) = self.try_claim() else { return };
        if !claimed_wheel.engine.try_turn_without_pass() {
            claimed_wheel.engine.begin_pass(usize::MAX);
        }
        while let Some(step) = claimed_wheel.engine.next_callback_step() {
            claimed_wheel = match step {
                UserCodeStep::Due(claimed) => {
                    drop(claimed_wheel);
                    self.shared.hooks.catch_panic(PanicPlace::Callback, || claimed.run_callback());
                    self.claim_and_finish_run(claimed)
                }
                UserCodeStep::Cancelled(callback) => {
                    drop(claimed_wheel);
                    self.shared.hooks.drop_catching_panic(callback);
                    self.wait_for_claim()
                }
            };
        }
    }

    /// Claims the wheel after a callback has returned, and finishes the timer's run. Arms a
    /// periodic timer again, unless it was cancelled during the run.
    fn claim_and_finish_run(&self, claimed: ClaimedTimer<Callback>) -> ClaimGuard<'_> {
        let mut claimed_wheel = self.wait_for_claim();
        if claimed.run.is_periodic() {
            let Err(callback) = claimed_wheel.engine.rearm(claimed.index) else {
                return claimed_wheel;
            };
            drop(claimed_wheel);
            // Drops the callback before `finish_run`, so that `cancel_wait` also waits for this
            // drop.
            self.shared.hooks.drop_catching_panic(callback);
            claimed_wheel = self.wait_for_claim();
        }
        claimed_wheel.engine.finish_run(claimed);
        claimed_wheel
    }

    /// Waits until no other thread has claimed the wheel, and claims it.
    fn wait_for_claim(&self) -> ClaimGuard<'_> {
        loop {
            if let Some(claimed_wheel) = self.try_claim() {
                return claimed_wheel;
            }
            yield_now();
        }
    }

    /// Announces the driver's sleep, and frees spare memory if the sleep is long. Returns `None` if
    /// another thread has claimed the wheel.
    fn announce_sleep(&self) -> Option<PreparedSleep<'static>> {
        let mut claimed_wheel = self.try_claim()?;
        let (sleep_end, ends_on_cancel, _) = claimed_wheel.engine.sleep_end_after_trim();
        let ClaimedState { engine, announced_sleep_end, latest_sleep_end } = &mut *claimed_wheel;
        if engine.has_elapsed(*latest_sleep_end) {
            *latest_sleep_end = u64::MAX;
        }
        *announced_sleep_end = sleep_end.unwrap_or(u64::MAX).min(*latest_sleep_end);
        let sleep_end = Some(*announced_sleep_end).filter(|&sleep_end| sleep_end < u64::MAX);
        let timeout = engine.publish_next_due(sleep_end);
        Some(PreparedSleep::new(&self.shared, sleep_end, ends_on_cancel, timeout))
    }

    /// Publishes the counts, unless another thread has claimed the wheel.
    fn publish_counts(&self) {
        let Some(claimed_wheel) = self.try_claim() else { return };
        if claimed_wheel.engine.loop_has_begun() {
            claimed_wheel.engine.publish_counts();
        } else {
            let _ = claimed_wheel.engine.publish_undriven_and_get_next_due();
        }
    }
}

/// The wheels of [`Timers::per_worker`](super::Timers::per_worker).
pub(super) struct ClaimableWheels {
    pub(super) wheels: Vec<ClaimableWheel>,
    /// True once all clones and futures of the `Timers` have been dropped.
    is_stopping: AtomicBool,
}

impl ClaimableWheels {
    pub(super) fn new(
        wheel_count: usize,
        config_of_wheel: impl FnMut(usize) -> Config,
    ) -> Result<Arc<Self>, ConfigError> {
        let wheels = (0..wheel_count.max(1)).map(config_of_wheel).map(ClaimableWheel::new);
        let wheels = wheels.collect::<Result<_, _>>()?;
        let claimable_wheels = Arc::new(Self { wheels, is_stopping: AtomicBool::new(false) });
        for (index, wheel) in claimable_wheels.wheels.iter().enumerate() {
            let claimable_wheels = Arc::downgrade(&claimable_wheels);
            let refresh = move || {
                if let Some(claimable_wheels) = claimable_wheels.upgrade() {
                    claimable_wheels.wheels[index].publish_counts();
                }
            };
            let _ = wheel.shared.gauges.refresh_counts.set(Box::new(refresh));
        }
        Ok(claimable_wheels)
    }

    pub(super) fn shards(&self) -> impl Iterator<Item = ShardRef> {
        self.wheels.iter().map(|wheel| ShardRef { shared: Arc::clone(&wheel.shared) })
    }

    pub(super) fn stop_driver(&self) {
        // Relaxed: the fence in `sleep_in_progress_with_fence` comes between this store and the
        // load of the announcement. So either `sleep_in_progress_with_fence` sees the announced
        // sleep, or the driver reads this `true` before it sleeps. If the driver could not announce
        // its sleep on this wheel, it reads the flag after a sleep of at most
        // `UNANNOUNCED_SLEEP_MAX`.
        self.is_stopping.store(true, Ordering::Relaxed);
        let first_wheel = &self.wheels[0].shared;
        if let Some(sleep) = first_wheel.parker.sleep_in_progress_with_fence() {
            first_wheel.wake(sleep);
        }
    }
}

/// Fires the timers of all wheels of [`Timers::per_worker_with`](super::Timers::per_worker_with),
/// on one thread.
///
/// Dropping the driver ends the wheels. The futures that wait on the wheels are woken, and find
/// that [no timer is available](super#without-a-timer).
///
/// # Examples
///
/// ```
/// use corewheel::{Config, ManualClock, future::Timers};
/// use std::{pin::pin, task::{Context, Waker}, time::Duration};
///
/// let clock = ManualClock::new();
/// let (timers, mut driver) = Timers::per_worker_with(2, |_| Config::new().clock(&clock))?;
/// let mut sleep = pin!(timers.sleep(Duration::from_millis(5)));
/// let mut context = Context::from_waker(Waker::noop());
/// assert!(sleep.as_mut().poll(&mut context).is_pending());
///
/// clock.advance(Duration::from_millis(5));
/// driver.turn(); // wakes the task
/// assert!(sleep.as_mut().poll(&mut context).is_ready());
/// # Ok::<(), corewheel::ConfigError>(())
/// ```
#[must_use = "timers wait until the driver runs; dropping it ends the wheels"]
pub struct TimersDriver(pub(super) Arc<ClaimableWheels>);

impl TimersDriver {
    /// Fires the due timers of all wheels. Skips a wheel that another thread is using; its timers
    /// fire in a later turn.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, future::Timers};
    ///
    /// let (timers, mut driver) = Timers::per_worker_with(2, |_| Config::new())?;
    /// driver.turn(); // fires the due timers
    /// # drop(timers);
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    pub fn turn(&mut self) {
        handle::run_worker_turn(|| self.0.wheels.iter().for_each(ClaimableWheel::try_turn));
    }

    /// Announces a sleep, calls `wait` with the timeout of the sleep, and ends the announcement
    /// when `wait` returns. A timeout of `None` means that only a wake-up ends the sleep.
    ///
    /// If a request to a wheel must [end the sleep](crate::LocalTimer::prepare_sleep) during
    /// `wait`, the requesting thread calls the wheel's wake hook
    /// ([`Config::wake_hook`](crate::Config::wake_hook)). The thread that drops the last clone or
    /// future of the `Timers` calls the hook of the first wheel. By default, the hook unparks the
    /// thread that announced the sleep.
    ///
    /// Cost: a claim and an announcement for each wheel, and one allocation.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, future::Timers};
    /// use std::{thread, time::Duration};
    ///
    /// let (timers, mut driver) = Timers::per_worker_with(2, |_| Config::new())?;
    /// drop(timers); // otherwise the timeout would be `None`, since no timer is pending
    /// driver.sleep_with(|timeout| {
    ///     assert_eq!(timeout, Some(Duration::ZERO)); // no clone is left
    ///     timeout.map_or_else(thread::park, thread::park_timeout);
    /// });
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    pub fn sleep_with<R>(&mut self, wait: impl FnOnce(Option<Duration>) -> R) -> R {
        let sleeps: Vec<_> = self.0.wheels.iter().map(ClaimableWheel::announce_sleep).collect();
        let timeout_of = |sleep: &Option<_>| {
            sleep.as_ref().map_or(Some(UNANNOUNCED_SLEEP_MAX), PreparedSleep::timeout)
        };
        let timeout = sleeps.iter().filter_map(timeout_of).min();
        wait(if self.is_stopping() { Some(Duration::ZERO) } else { timeout })
    }

    /// Returns true if all clones and futures of the `Timers` have been dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, future::Timers};
    ///
    /// let (timers, driver) = Timers::per_worker_with(2, |_| Config::new())?;
    /// assert!(!driver.is_stopping());
    /// drop(timers);
    /// assert!(driver.is_stopping());
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    pub fn is_stopping(&self) -> bool {
        // Relaxed: before a sleep, the driver reads the flag after the fence of its announcement;
        // see `stop_driver`. At other times, a stale `false` only delays the stop to the next
        // check.
        self.0.is_stopping.load(Ordering::Relaxed)
    }

    /// Turns the wheels, and parks this thread between turns, until all clones and futures of the
    /// `Timers` have been dropped.
    ///
    /// The thread's own wheel ([`local_timer`](crate::local_timer)) is not turned; a timer on it is
    /// [reported](crate::metrics#wheels-without-a-loop).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, future::Timers};
    /// use std::thread;
    ///
    /// let (timers, driver) = Timers::per_worker_with(2, |_| Config::new())?;
    /// let thread = thread::spawn(move || driver.run());
    /// drop(timers);
    /// thread.join().unwrap();
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    pub fn run(mut self) {
        self.0.wheels.iter().for_each(|wheel| wheel.shared.parker.set_owner_has_parked());
        while !self.is_stopping() {
            self.turn();
            ThreadWheel::report_own_timer_of_timers_driver();
            self.sleep_with(PreparedSleep::park_unless_zero);
        }
    }
}

impl Drop for TimersDriver {
    fn drop(&mut self) {
        for wheel in &self.0.wheels {
            let ended_timers = wheel.wait_for_claim().engine.close();
            for timer in ended_timers.drop_cancelled_payloads(&wheel.shared) {
                wheel.shared.hooks.drop_catching_panic(timer.payload); // wakes the task
            }
        }
    }
}

impl fmt::Debug for TimersDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TimersDriver").field(&self.0.shards().collect::<Vec<_>>()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::{
        sync::atomic::AtomicUsize,
        task::{Context, Wake, Waker},
        thread,
    };

    use crate::{future::Timers, local::local_timer};

    use super::*;

    #[derive(Default)]
    struct WakeCounter(AtomicUsize);

    impl Wake for WakeCounter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Drops each sleep while the wheel is claimed, so that a later turn, or a later add to the
    /// full wheel, drops the waker.
    #[test]
    fn a_cancelled_sleep_is_not_woken_by_a_driver_on_a_drained_thread() {
        let test = || {
            drop(local_timer().drain());
            let config = |_| Config::new().limit(1);
            let (timers, mut driver) = Timers::per_worker_with(1, config).expect("valid");
            let wake_counter = Arc::new(WakeCounter::default());
            let waker = Waker::from(Arc::clone(&wake_counter));
            let waker_and_wake_counts =
                || (Arc::strong_count(&wake_counter) - 2, wake_counter.0.load(Ordering::Relaxed));
            let pending_sleep = || {
                let mut sleep = timers.sleep(Duration::from_secs(3_600));
                assert!(sleep.poll_elapsed(&mut Context::from_waker(&waker)).is_pending());
                sleep
            };
            let drop_sleep_while_claimed = |wheels: &ClaimableWheels| {
                let sleep = pending_sleep();
                let _claimed = wheels.wheels[0].try_claim().expect("no other thread");
                drop(sleep);
            };
            drop_sleep_while_claimed(&driver.0);
            assert_eq!(waker_and_wake_counts(), (1, 0));
            driver.turn();
            assert_eq!(waker_and_wake_counts(), (0, 0));
            drop_sleep_while_claimed(&driver.0);
            assert_eq!(waker_and_wake_counts(), (1, 0));
            let _added_to_full_wheel = pending_sleep();
            assert_eq!(waker_and_wake_counts(), (1, 0));
        };
        thread::spawn(test).join().expect("no panic");
    }
}
