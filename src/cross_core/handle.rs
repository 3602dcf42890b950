//! Handles, which cancel, reset and query timers. For a timer of this thread's wheel, most calls go
//! through `ThisThreadWheelVTable`. All other calls find the timer's shard in the registry.

use std::{
    cell::Cell,
    fmt,
    marker::PhantomData,
    mem::ManuallyDrop,
    num::NonZeroU64,
    panic::{self, AssertUnwindSafe},
    thread,
    time::Duration,
};

pub use crate::cross_core::state::{Cancel, TimerStatus};
use crate::{
    clock::tick::saturating_nanos,
    cross_core::{
        callback::SendCallback,
        hooks::PanicPlace,
        parker::SleepId,
        reclaim::{Protected, pin},
        registry,
        shared::{RemoteOutcome, Shared},
    },
    error::InsideCallbackError,
    limits::{REMOTE_GENERATION_BIT, SHARDS_MAX},
    util::{
        panics::catch_panic_silently,
        sync::{self, per_thread},
    },
    when::When,
};

impl Cancel {
    /// Returns true for [`Cancelled`](Self::Cancelled).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::time::Duration;
    ///
    /// let timeout = local_timer().add(Duration::from_secs(5), || println!("no response"));
    /// assert!(timeout.cancel().is_cancelled());
    /// assert!(!timeout.cancel().is_cancelled());
    /// ```
    pub fn is_cancelled(self) -> bool {
        self == Self::Cancelled
    }
}

impl fmt::Display for TimerStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Ended => "ended",
        })
    }
}

impl fmt::Display for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Cancelled => "cancelled",
            Self::Running => "running",
            Self::Ended => "ended",
        })
    }
}

/// Identifies one timer. Any thread may copy, send and keep a handle.
///
/// A handle keeps no memory alive. When its timer has ended, the handle is *stale*: `cancel`
/// returns [`Cancel::Ended`], and no call reaches another timer.
///
/// # Examples
///
/// ```
/// use corewheel::{Cancel, local_timer};
/// use std::{thread, time::Duration};
///
/// let handle = local_timer().add(Duration::from_secs(30), || println!("too late"));
/// let answer = thread::spawn(move || handle.cancel()).join().unwrap();
/// assert_eq!(answer, Cancel::Cancelled);
/// assert_eq!(handle.cancel(), Cancel::Ended);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TimerHandle {
    pub(crate) generation: u64,
    /// Holds the node's index in the lower half, and the shard's number and [`HANDLE_NONZERO_BIT`]
    /// in the upper half. With this packing, a handle has two words and is passed in registers.
    shard_and_index: NonZeroU64,
}

/// A bit that is set in every `shard_and_index`, so that this field is never zero.
const HANDLE_NONZERO_BIT: NonZeroU64 = NonZeroU64::new(1 << 63).unwrap();

impl TimerHandle {
    #[inline]
    pub(crate) fn new(shard: u32, index: u32, generation: u64) -> Self {
        Self {
            generation,
            shard_and_index: HANDLE_NONZERO_BIT | u64::from(shard) << 32 | u64::from(index),
        }
    }

    /// Returns a handle with the shard of `self`. The index of `self` must be 0, because the call
    /// adds `index` by a bitwise OR.
    #[inline]
    pub(crate) fn with_index_and_generation(self, index: u32, generation: u64) -> Self {
        debug_assert_eq!(self.index(), 0);
        Self { generation, shard_and_index: self.shard_and_index | u64::from(index) }
    }

    #[inline]
    pub(crate) fn shard(self) -> u32 {
        (self.shard_and_index.get() >> 32) as u32 & !(1 << 31)
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation)] // The upper half is the shard's.
    pub(crate) fn index(self) -> u32 {
        self.shard_and_index.get() as u32
    }

    /// Encodes the handle as a number, which [`from_bits`](Self::from_bits) decodes.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{TimerHandle, local_timer};
    /// use std::time::Duration;
    ///
    /// let timeout = local_timer().add(Duration::from_secs(5), || println!("no response"));
    /// let bits: u128 = timeout.to_bits();
    ///
    /// // Later, on any thread:
    /// assert_eq!(TimerHandle::from_bits(bits), Some(timeout));
    /// # timeout.cancel();
    /// ```
    #[must_use]
    pub fn to_bits(self) -> u128 {
        u128::from(self.generation) << 64 | u128::from(self.shard_and_index.get())
    }

    /// Decodes a handle from the result of [`to_bits`](Self::to_bits), if the handle's timer is
    /// pending or running.
    ///
    /// Returns `None` if `bits` is no handle. Bits that are not from `to_bits` may match a timer by
    /// chance.
    ///
    /// Cost: constant. The call takes no lock.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::TimerHandle;
    ///
    /// assert_eq!(TimerHandle::from_bits(0), None);
    /// ```
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "the lower half is shard and index")]
    pub fn from_bits(bits: u128) -> Option<Self> {
        let shard_and_index = NonZeroU64::new(bits as u64)?;
        let handle = Self { generation: (bits >> 64) as u64, shard_and_index };
        // Rejects invalid handles, because the functions in `ThisThreadWheelVTable` rely on valid
        // handles.
        let is_valid = shard_and_index == HANDLE_NONZERO_BIT | shard_and_index
            && handle.shard() < SHARDS_MAX
            && handle.status() != TimerStatus::Ended;
        is_valid.then_some(handle)
    }

    /// Cancels the timer, from any thread. Returns the result at once.
    ///
    /// * [`Cancel::Cancelled`]: the callback is not running and will not run again. The callback
    ///   has been dropped if the timer is in this thread's [`local_timer`](crate::local_timer), and
    ///   usually if a thread other than the owner added the timer. If this call has not dropped the
    ///   callback, the owner drops it in a later turn. If the owner announces its sleeps, it sleeps
    ///   at most [`Config::drop_cancelled_within`](crate::Config::drop_cancelled_within) before the
    ///   drop.
    /// * [`Cancel::Running`]: the callback is running. A callback that cancels its own timer also
    ///   gets `Running`. For a periodic timer, the run in progress is the last.
    /// * [`Cancel::Ended`]: the timer had fired or been cancelled, or its wheel had ended. If the
    ///   timer fired, this thread sees everything that the callback did.
    ///
    /// After a cancel of a [`Shard`](crate::Shard)'s timer, the owner drops the payload in a later
    /// turn. [`Shard::cancel`](crate::Shard::cancel) returns the payload instead.
    ///
    /// Cost: constant. A cancel waits for no other thread. A remote cancel usually makes one or two
    /// compare-and-swaps on the timer and at most one on the owner's mailbox, and may wake the
    /// owner.
    ///
    /// A panic of the callback's destructor is reported to
    /// [`Config::panic_hook`](crate::Config::panic_hook), unless the wheel has ended.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Cancel, local_timer};
    /// use std::time::Duration;
    ///
    /// let timeout = local_timer().add(Duration::from_secs(5), || println!("no response"));
    /// // The response arrives:
    /// assert_eq!(timeout.cancel(), Cancel::Cancelled);
    /// assert_eq!(timeout.cancel(), Cancel::Ended);
    /// ```
    #[inline]
    pub fn cancel(self) -> Cancel {
        match ThisThreadWheel::if_owner_of(self) {
            Some(wheel) => (wheel.vtable.cancel)(self),
            None => self.cancel_remote(),
        }
    }

    fn cancel_remote(self) -> Cancel {
        if self.generation & REMOTE_GENERATION_BIT == 0 {
            let pinned = pin();
            if let Some(shared) = registry::find_shard(self.shard(), &pinned)
                && let Some(outcome) = shared.try_cancel_remote_fast(self.index(), self.generation)
            {
                drop(pinned);
                if let Some(sleep) = outcome.sleep_to_interrupt {
                    self.wake_owner(sleep);
                }
                return outcome.answer;
            }
        }
        self.cancel_remote_slow()
    }

    #[inline(never)]
    fn cancel_remote_slow(self) -> Cancel {
        self.run_remote_request(|shared, payload_out| {
            shared.cancel(self.index(), self.generation, payload_out)
        })
        .unwrap_or(Cancel::Ended)
    }

    /// Calls `request` with the shard, wakes the owner if necessary, and drops the payload that
    /// `request` has taken. Returns `None` if the shard has ended. Unpins before it wakes the owner
    /// or drops the payload, because both may run user code.
    #[inline]
    fn run_remote_request<R>(
        self,
        request: impl FnOnce(Protected<'_, Shared>, &mut Option<SendCallback>) -> RemoteOutcome<R>,
    ) -> Option<R> {
        let mut payload_out = None;
        let pinned = pin();
        let shared = registry::find_shard(self.shard(), &pinned)?;
        let serial = shared.serial;
        let RemoteOutcome { answer, sleep_to_interrupt } = request(shared, &mut payload_out);
        drop(pinned);
        if let Some(sleep) = sleep_to_interrupt {
            self.wake_owner(sleep);
        }
        if let Some(payload) = payload_out {
            self.drop_cancelled_payload(payload, serial);
        }
        Some(answer)
    }

    #[cold]
    #[inline(never)]
    fn wake_owner(self, sleep: SleepId) {
        if let Some(shared) = registry::find_shard_arc(self.shard()) {
            shared.wake(sleep);
        }
    }

    /// Drops the callback of a cancelled timer, and reports a panic to the shard with this serial.
    /// A later shard may reuse the shard's number, but not its serial.
    #[cold]
    fn drop_cancelled_payload(self, payload: SendCallback, serial: u64) {
        let Err(panic) = panic::catch_unwind(AssertUnwindSafe(|| drop(payload))) else { return };
        let shared = registry::find_shard_arc(self.shard());
        match shared.filter(|shared| shared.serial == serial) {
            Some(shared) => shared.hooks.report_panic(PanicPlace::Drop, panic),
            // The shard has ended.
            None => catch_panic_silently(|| drop(panic)),
        }
    }

    /// Cancels the timer, and waits if its callback is running on another thread.
    ///
    /// After `Ok`, the callback is not running and will not run again, and this thread sees the
    /// effects of its runs. So the caller can free data that the callback's body uses. The captures
    /// may be dropped later, so data that their destructors use must stay. Exception:
    /// [`DrainedTimer::run`](crate::DrainedTimer::run) may still run the callback of a drained
    /// timer. Returns the answer of [`cancel`](Self::cancel): [`Cancel::Running`] means that the
    /// callback was running when this call began.
    ///
    /// This thread polls the timer at intervals that grow to a millisecond. The callback must not
    /// wait for this thread. `cancel_wait` also returns when the wheel ends.
    ///
    /// # Errors
    ///
    /// Returns an error and cancels nothing if this thread is running a turn of a wheel that runs
    /// callbacks. Without this error, two callbacks could wait for each other for ever.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Cancel, local_timer};
    /// use std::{thread, time::Duration};
    ///
    /// let handle = local_timer().add(Duration::from_secs(30), || println!("uses a buffer"));
    /// let answer = thread::spawn(move || handle.cancel_wait()).join().unwrap();
    /// assert_eq!(answer, Ok(Cancel::Cancelled));
    /// // The buffer can be freed now.
    /// ```
    pub fn cancel_wait(self) -> Result<Cancel, InsideCallbackError> {
        let is_in_turn = ThisThreadWheel::get().is_some_and(|wheel| (wheel.vtable.is_in_turn)());
        if is_in_turn || IN_PER_WORKER_TURN.try_with(Cell::get).unwrap_or(false) {
            return Err(InsideCallbackError(()));
        }
        let answer = self.cancel();
        let mut poll_count = 0_u32;
        while answer == Cancel::Running && self.status() == TimerStatus::Running {
            back_off_before_poll(poll_count);
            poll_count = poll_count.saturating_add(1);
        }
        Ok(answer)
    }

    /// Returns true if the timer is [pending](TimerStatus::Pending), neither running nor ended.
    ///
    /// The answer may be outdated at once. Cost: constant.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::time::Duration;
    ///
    /// let retry = local_timer().add(Duration::from_secs(1), || println!("again"));
    /// assert!(retry.is_pending());
    /// retry.cancel();
    /// assert!(!retry.is_pending());
    /// ```
    pub fn is_pending(self) -> bool {
        match ThisThreadWheel::if_owner_of(self) {
            Some(wheel) => (wheel.vtable.is_pending)(self),
            None => self.status() == TimerStatus::Pending,
        }
    }

    /// Returns whether the timer is pending, running or ended.
    ///
    /// The answer may be outdated at once, except [`Ended`](TimerStatus::Ended), which is final.
    /// After `Ended`, this thread sees everything that the callback did. Cost: constant.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{TimerStatus, local_timer};
    /// use std::time::Duration;
    ///
    /// let retry = local_timer().add(Duration::from_secs(1), || println!("again"));
    /// assert_eq!(retry.status(), TimerStatus::Pending);
    /// ```
    pub fn status(self) -> TimerStatus {
        registry::find_shard(self.shard(), &pin())
            .map_or(TimerStatus::Ended, |shared| shared.status(self.index(), self.generation))
    }

    /// Resets the timer to an earlier or later deadline, from any thread. The handle stays valid.
    ///
    /// Returns true if the timer was reset, and false if it has ended or is running. If several
    /// threads reset a timer concurrently and it stays pending, all calls return true, and one of
    /// the requested deadlines applies. If the wheel ends during the calls, a call can return true
    /// although the timer is handed back with an older deadline.
    ///
    /// A timer that is overdue but has not fired can still be reset.
    ///
    /// False does not mean that the callback has run: another thread may have cancelled the timer
    /// or drained its wheel. After `false`, a caller that still needs a timer must add a new one.
    ///
    /// If a callback resets a timer of the wheel that runs it, the turn in progress usually does
    /// not fire that timer. A reset of a periodic timer changes the time of the next run, and later
    /// runs follow at the timer's period. After a reset, the slack and spread of earlier requests
    /// no longer apply.
    ///
    /// Cost: constant. A reset takes no lock, and usually reads the clock once and allocates
    /// nothing. A remote reset usually makes two or three compare-and-swaps on the timer, and at
    /// most one on the owner's mailbox. Repeated remote resets that only postpone a one-shot timer
    /// usually send no message. A remote reset wakes the owner if the owner's announced sleep would
    /// outlast the new deadline.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{When, local_timer};
    /// use std::time::Duration;
    ///
    /// let idle = local_timer().add(Duration::from_secs(30), || println!("close the connection"));
    /// // A packet arrives:
    /// assert!(idle.reset(Duration::from_secs(30)));
    /// // The connection may stay until a moment that was agreed on, or a second longer:
    /// let agreed = local_timer().now() + Duration::from_secs(60);
    /// assert!(idle.reset(When::at(agreed).slack(Duration::from_secs(1))));
    /// idle.cancel();
    /// assert!(!idle.reset(Duration::from_secs(30)));
    /// ```
    #[inline]
    #[must_use = "a timer that was not reset has ended or is running"]
    pub fn reset(self, when: impl Into<When>) -> bool {
        let when = when.into();
        match (ThisThreadWheel::if_owner_of(self), when.as_delay()) {
            (Some(wheel), Some(delay)) => (wheel.vtable.reset_after)(self, delay),
            (Some(wheel), None) => (wheel.vtable.reset)(self, when),
            (None, Some(delay)) => self.reset_remote_after(delay),
            (None, None) => self.reset_remote(when),
        }
    }

    fn reset_remote_after(self, delay: Duration) -> bool {
        let delay_nanos = saturating_nanos(delay);
        if delay_nanos == 0 {
            return self.reset_remote(When::after(delay));
        }
        self.run_remote_request(|shared, payload_out| {
            let due_and_period_start = || {
                let due = shared.nanos_after(delay_nanos);
                (due, due)
            };
            shared.reset(self.index(), self.generation, due_and_period_start, payload_out)
        })
        .unwrap_or(false)
    }

    #[inline(never)]
    fn reset_remote(self, when: When) -> bool {
        self.run_remote_request(|shared, payload_out| {
            let due_and_period_start = || shared.reset_due_and_period_start(when);
            shared.reset(self.index(), self.generation, due_and_period_start, payload_out)
        })
        .unwrap_or(false)
    }

    /// Returns a guard that cancels the timer when the guard is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::time::Duration;
    ///
    /// {
    ///     let deadline = local_timer().add(Duration::from_secs(5), || println!("too slow"));
    ///     let _guard = deadline.guard();
    /// }
    /// assert!(local_timer().is_empty());
    /// ```
    pub fn guard(self) -> TimerGuard {
        TimerGuard(self)
    }
}

impl fmt::Debug for TimerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TimerHandle({self})")
    }
}

/// Shows shard, index and generation, as in `0:17#4`.
impl fmt::Display for TimerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}#{}", self.shard(), self.index(), self.generation)
    }
}

/// Identifies a timer of this thread, and cannot leave the thread.
/// [`LocalTimer::add_local`](crate::LocalTimer::add_local) returns it.
///
/// Before [`share`](Self::share), no other thread can end the timer, so cancelling and firing need
/// no compare-and-swap.
///
/// # Examples
///
/// ```
/// use corewheel::{Cancel, local_timer};
/// use std::time::Duration;
///
/// let retry = local_timer().add_local(Duration::from_millis(250), || println!("again"));
/// assert!(retry.is_pending());
/// assert!(retry.reset(Duration::from_millis(500)));
/// assert_eq!(retry.cancel(), Cancel::Cancelled);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LocalHandle {
    pub(crate) handle: TimerHandle,
    not_send: PhantomData<*const UseLocalHandleShare>,
}

/// The compiler's error shows this name if code requires a `LocalHandle` to be `Send`.
enum UseLocalHandleShare {}

impl LocalHandle {
    /// Matches no timer, because no timer has generation 0.
    pub(crate) const NO_TIMER: Self = Self {
        handle: TimerHandle { generation: 0, shard_and_index: HANDLE_NONZERO_BIT },
        not_send: PhantomData,
    };

    pub(crate) fn new(handle: TimerHandle) -> Self {
        Self { handle, not_send: PhantomData }
    }

    /// Cancels the timer; see [`TimerHandle::cancel`]. If this returns [`Cancel::Cancelled`], the
    /// callback has been dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Cancel, local_timer};
    /// use std::time::Duration;
    ///
    /// let retry = local_timer().add_local(Duration::from_secs(1), || println!("again"));
    /// assert_eq!(retry.cancel(), Cancel::Cancelled);
    /// assert_eq!(retry.cancel(), Cancel::Ended);
    /// ```
    #[inline]
    pub fn cancel(self) -> Cancel {
        ThisThreadWheel::if_owner_of(self.handle)
            .map_or(Cancel::Ended, |wheel| (wheel.vtable.cancel)(self.handle))
    }

    /// Returns true if the timer is pending. See [`TimerHandle::is_pending`].
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::time::Duration;
    ///
    /// let retry = local_timer().add_local(Duration::from_secs(1), || println!("again"));
    /// assert!(retry.is_pending());
    /// retry.cancel();
    /// assert!(!retry.is_pending());
    /// ```
    pub fn is_pending(self) -> bool {
        ThisThreadWheel::if_owner_of(self.handle)
            .is_some_and(|wheel| (wheel.vtable.is_pending)(self.handle))
    }

    /// Resets the timer to an earlier or later deadline; see [`TimerHandle::reset`].
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::time::Duration;
    ///
    /// let retry = local_timer().add_local(Duration::from_secs(1), || println!("again"));
    /// assert!(retry.reset(Duration::from_secs(2)));
    /// ```
    #[inline]
    #[must_use = "a timer that was not reset has ended or is running"]
    pub fn reset(self, when: impl Into<When>) -> bool {
        let when = when.into();
        ThisThreadWheel::if_owner_of(self.handle).is_some_and(|wheel| match when.as_delay() {
            Some(delay) => (wheel.vtable.reset_after)(self.handle, delay),
            None => (wheel.vtable.reset)(self.handle, when),
        })
    }
}

impl fmt::Debug for LocalHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LocalHandle({self})")
    }
}

/// Shows shard, index and generation, as in `0:17#4`.
impl fmt::Display for LocalHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.fmt(f)
    }
}

/// Cancels a timer when the guard is dropped. [`TimerHandle::guard`] creates a guard.
///
/// # Examples
///
/// ```
/// use corewheel::local_timer;
/// use std::time::Duration;
///
/// let deadline = local_timer().add(Duration::from_secs(5), || println!("too slow")).guard();
/// assert!(deadline.handle().is_pending());
/// // Serve the request. Every way out cancels the deadline, even `?` and a panic.
/// drop(deadline);
/// assert!(local_timer().is_empty());
/// ```
#[must_use = "bind it to a variable such as `_guard`; `let _ =` cancels the timer at once"]
#[derive(Debug)]
pub struct TimerGuard(TimerHandle);

impl TimerGuard {
    /// Returns the handle of the timer.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::time::Duration;
    ///
    /// let deadline = local_timer().add(Duration::from_secs(5), || println!("too slow")).guard();
    /// assert!(deadline.handle().is_pending());
    /// ```
    pub fn handle(&self) -> TimerHandle {
        self.0
    }

    /// Resets the timer to an earlier or later deadline; see [`TimerHandle::reset`].
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::time::Duration;
    ///
    /// let deadline = local_timer().add(Duration::from_secs(5), || println!("too slow")).guard();
    /// // The client has asked for more time:
    /// assert!(deadline.reset(Duration::from_secs(60)));
    /// ```
    #[inline]
    #[must_use = "a timer that was not reset has ended or is running"]
    pub fn reset(&self, when: impl Into<When>) -> bool {
        self.0.reset(when)
    }

    /// Cancels the timer and returns the answer; see [`TimerHandle::cancel`].
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Cancel, local_timer};
    /// use std::time::Duration;
    ///
    /// let deadline = local_timer().add(Duration::from_secs(5), || println!("too slow")).guard();
    /// assert_eq!(deadline.cancel(), Cancel::Cancelled); // the answer came in time
    /// ```
    pub fn cancel(self) -> Cancel {
        self.disarm().cancel()
    }

    /// Returns the handle of the timer, and drops the guard without cancelling the timer.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::time::Duration;
    ///
    /// let guard = local_timer().add(Duration::from_secs(5), || println!("too slow")).guard();
    /// let handle = guard.disarm();
    /// assert!(handle.is_pending());
    /// ```
    pub fn disarm(self) -> TimerHandle {
        ManuallyDrop::new(self).0
    }
}

impl Drop for TimerGuard {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

per_thread! {
    /// The wheel of this thread; `None` while the thread has no wheel.
    static THIS_THREAD_WHEEL: Cell<Option<ThisThreadWheel>> = Cell::new(None);
}

/// A thread's wheel: its shard number, and the functions that handles call. The module `local`
/// registers each thread's wheel by [`register`](Self::register).
#[derive(Clone, Copy)]
pub(crate) struct ThisThreadWheel {
    pub(crate) shard: u32,
    pub(crate) vtable: &'static ThisThreadWheelVTable,
}

/// The functions that handles call for timers of this thread's wheel.
pub(crate) struct ThisThreadWheelVTable {
    pub(crate) cancel: fn(TimerHandle) -> Cancel,
    pub(crate) reset: fn(TimerHandle, When) -> bool,
    /// Resets a timer to a deadline after the given delay. `reset_after` is separate from `reset`,
    /// because a `Duration` is passed in registers, unlike a `When`.
    pub(crate) reset_after: fn(TimerHandle, Duration) -> bool,
    pub(crate) is_pending: fn(TimerHandle) -> bool,
    pub(crate) is_in_turn: fn() -> bool,
}

impl ThisThreadWheel {
    /// Registers this thread's wheel. `None` ends the registration.
    pub(crate) fn register(wheel: Option<Self>) {
        // If the thread-locals are destroyed, `get` returns `None` anyway, so a failure is
        // harmless.
        let _ = THIS_THREAD_WHEEL.try_with(|current| current.set(wheel));
    }

    /// Returns this thread's wheel if it owns the timer of `handle`.
    #[inline]
    pub(crate) fn if_owner_of(handle: TimerHandle) -> Option<Self> {
        Self::get().filter(|wheel| wheel.shard == handle.shard())
    }

    #[inline]
    pub(crate) fn get() -> Option<Self> {
        THIS_THREAD_WHEEL.try_with(Cell::get).ok().flatten()
    }
}

per_thread! {
    /// True while this thread runs a turn of a `Timers::per_worker` wheel. A `Timers::per_worker`
    /// wheel is never a thread's `THIS_THREAD_WHEEL`.
    static IN_PER_WORKER_TURN: Cell<bool> = Cell::new(false);
}

/// Calls `turn`. During the call, [`TimerHandle::cancel_wait`] returns an error on this thread.
/// `turn` must not panic, because `IN_PER_WORKER_TURN` would stay true.
#[cfg(feature = "futures")]
pub(crate) fn run_worker_turn(turn: impl FnOnce()) {
    let was_in_turn = IN_PER_WORKER_TURN.with(|flag| flag.replace(true));
    turn();
    IN_PER_WORKER_TURN.with(|flag| flag.set(was_in_turn));
}

/// Yields the processor at first, and then sleeps for up to a millisecond.
fn back_off_before_poll(poll_count: u32) {
    const YIELDS_BEFORE_SLEEP: u32 = 8;
    const POLL_SLEEP_MAX: Duration = Duration::from_millis(1);
    if poll_count < YIELDS_BEFORE_SLEEP || sync::IS_LOOM {
        sync::yield_now();
    } else {
        let interval =
            Duration::from_micros(10) * 2_u32.saturating_pow(poll_count - YIELDS_BEFORE_SLEEP);
        thread::sleep(interval.min(POLL_SLEEP_MAX));
    }
}
