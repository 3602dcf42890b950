//! Handles: a timer is cancelled, moved and asked about, from anywhere. The owner's own path or the registry: decided here, once.

use std::{
    cell::Cell,
    fmt,
    marker::PhantomData,
    mem,
    num::NonZeroU64,
    panic::{self, AssertUnwindSafe},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

pub use crate::state::Cancel;
use crate::{
    callback::Sent,
    error::InsideCallback,
    hooks::{PanicPlace, contain},
    limits::REMOTE_GENERATION,
    reclaim::Seen,
    registry,
    shared::{Remote, Shared},
    sync::{self, per_thread},
};

/// Names one timer: a plain value that any thread may copy, send and keep.
///
/// A handle keeps nothing alive and can be kept for as long as one likes: when its timer, its shard or its thread has
/// gone, it is *stale* and answers [`Cancel::Ended`]; it never reaches another timer.
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
    generation: u64,
    /// The index, the shard's number above it, and [`PLACE`]: two words travel in registers, three parts do not.
    place: NonZeroU64,
}

/// Set in every place: so none is zero.
const PLACE: NonZeroU64 = NonZeroU64::new(1 << 63).unwrap();

impl TimerHandle {
    #[inline]
    pub(crate) fn new(shard: u32, index: u32, generation: u64) -> Self {
        Self { generation, place: PLACE | u64::from(shard) << 32 | u64::from(index) }
    }

    #[inline]
    pub(crate) fn shard(self) -> u32 {
        (self.place.get() >> 32) as u32 & !(1 << 31)
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation)] // The upper half is the shard's.
    pub(crate) fn index(self) -> u32 {
        self.place.get() as u32
    }

    /// Returns true if another thread has added the timer.
    #[inline]
    pub(crate) fn is_remote(self) -> bool {
        self.generation & REMOTE_GENERATION != 0
    }

    pub(crate) fn generation(self) -> u64 {
        self.generation
    }

    /// Cancels the timer, and says at once who won. From any thread.
    ///
    /// * [`Cancel::Cancelled`]: the callback has not started and never will. If its timer is this thread's, or was added by a
    ///   [`ShardRef`](crate::ShardRef), the callback has been dropped when this returns. Otherwise the owner drops it, and what it
    ///   captured, in its next turn, or in a later one if more than 1,024 messages wait. An owner that announces its sleeps turns within
    ///   [`Config::drop_within`](crate::Config::drop_within). (A third thread that is just moving the timer goes first.)
    /// * [`Cancel::Running`]: it is running now, perhaps on this very thread: cancelling from inside one's own callback
    ///   gives this. A periodic timer makes no further run.
    /// * [`Cancel::Ended`]: it fired, was cancelled or handed back before, or the handle is stale. If it fired, this
    ///   thread now sees everything that the callback did.
    ///
    /// Cost: constant. On the owning core no lock and no system call; from elsewhere one compare-and-swap on the timer
    /// and, for the winner, one on the owner's mailbox, and nobody ever waits for anybody. A destructor that panics is
    /// reported as [`Config::on_panic`](crate::Config::on_panic) says.
    #[inline]
    pub fn cancel(self) -> Cancel {
        match Owner::of(self) {
            Some(owner) => (owner.path.cancel)(self),
            None => self.cancel_from_elsewhere(),
        }
    }

    fn cancel_from_elsewhere(self) -> Cancel {
        self.ask_elsewhere(|shared| shared.cancel(self.index(), self.generation))
            .unwrap_or(Cancel::Ended)
    }

    /// Asks something of the shard, if it is there, and wakes its owner if that is needed: with nothing borrowed.
    #[inline]
    fn ask_elsewhere<R>(self, ask: impl FnOnce(&Seen<'_, Shared>) -> Remote<R>) -> Option<R> {
        let (answer, sleeper, payload) = registry::with(self.shard(), |shared| {
            let shared = shared?;
            let Remote { answer, wake, payload } = ask(shared);
            Some((answer, wake.map(|asleep| (Arc::clone(shared), asleep)), payload))
        })?;
        if let Some((shared, asleep)) = sleeper {
            shared.wake(asleep);
        }
        if let Some(payload) = payload {
            self.drop_cancelled(payload);
        }
        Some(answer)
    }

    /// Drops the callback of a timer that this thread has cancelled, and keeps its panic in.
    fn drop_cancelled(self, payload: Sent) {
        let Err(panic) = panic::catch_unwind(AssertUnwindSafe(|| drop(payload))) else { return };
        let shared = registry::with(self.shard(), |shared| Some(Arc::clone(shared?)));
        match shared {
            Some(shared) => shared.hooks.report(PanicPlace::Drop, panic),
            // Nobody is left to report to.
            None => contain(|| panic::resume_unwind(panic)),
        }
    }

    /// As [`cancel`](Self::cancel), and if the callback is running on another thread, waits until it has returned: then it
    /// neither runs nor ever will, and what it has done is visible here. What it uses can be freed.
    ///
    /// The answer is that of `cancel`: [`Cancel::Running`] means that it was running.
    ///
    /// If it was running, what it captured is gone by then as well. Otherwise that may still be dropped later, by the owner in its
    /// next turns, as after `cancel`: also when the answer is `Ended`, because somebody else had cancelled it.
    ///
    /// Waiting costs the owner nothing; this thread looks again and again, at intervals that grow to a millisecond. It waits
    /// for as long as the callback takes, so the callback must not wait for this thread (for a lock that it holds, say). A
    /// thread that ends has no callback running, so this also returns when the shard ends.
    ///
    /// # Errors
    ///
    /// Inside a callback, of whichever timer, or a destructor that a turn runs: two callbacks that wait for each other would
    /// wait for ever. Then nothing has been cancelled.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Cancel, local_timer};
    /// use std::{thread, time::Duration};
    ///
    /// let handle = local_timer().add(Duration::from_secs(30), || println!("uses what is about to go"));
    /// let answer = thread::spawn(move || handle.cancel_wait()).join().unwrap();
    /// assert_eq!(answer, Ok(Cancel::Cancelled));
    /// // It is safe to free it now.
    /// ```
    pub fn cancel_wait(self) -> Result<Cancel, InsideCallback> {
        if Owner::is_turning_here() {
            return Err(InsideCallback(()));
        }
        let answer = self.cancel();
        let mut patience = Patience::default();
        while answer == Cancel::Running && self.is_running_elsewhere() {
            patience.wait();
        }
        Ok(answer)
    }

    fn is_running_elsewhere(self) -> bool {
        registry::with(self.shard(), |shared| {
            shared.is_some_and(|shared| shared.is_running(self.index(), self.generation))
        })
    }

    /// Whether the timer waits for its deadline: not while its callback runs, and not when it has ended. From any
    /// thread; the answer may be outdated at once, as any other may cancel it. Cost: constant, some nanoseconds.
    pub fn is_pending(self) -> bool {
        match Owner::of(self) {
            Some(owner) => (owner.path.is_pending)(self),
            None => registry::with(self.shard(), |shared| {
                shared.is_some_and(|shared| shared.is_pending(self.index(), self.generation))
            }),
        }
    }

    /// Moves the timer to `delay` from now, earlier or later (on its own thread, never into a turn that has begun). From any thread.
    /// The handle stays valid. A periodic timer makes its next run then and goes on with its period from there.
    ///
    /// True if it was moved: it will not fire by its old deadline. False if it has ended or is running, and nothing is
    /// changed. Of several threads that move a timer at the same time each is told true, and the last of their moves takes
    /// effect: the one which ends last, however long ago its thread has read the clock.
    ///
    /// Cost: constant, one reading of the clock, no lock, no allocation. From another core two compare-and-swaps on the
    /// timer and at most one on the owner's mailbox; and the owner is woken if it sleeps beyond the new deadline.
    #[inline]
    #[must_use = "a timer that was not moved has ended or is running"]
    pub fn reset(self, delay: Duration) -> bool {
        match Owner::of(self) {
            Some(owner) => (owner.path.reset)(self, delay),
            None => self.reset_from_elsewhere(delay),
        }
    }

    fn reset_from_elsewhere(self, delay: Duration) -> bool {
        let reset = |shared: &Seen<'_, Shared>| {
            shared.reset(self.index(), self.generation, shared.nanos_after(delay))
        };
        self.ask_elsewhere(reset).unwrap_or(false)
    }

    /// Moves the timer to `instant` (of its own clock, see [`LocalTimer::now`](crate::LocalTimer::now)); if that has passed, it fires by
    /// the next tick. Otherwise as [`reset`](Self::reset).
    #[must_use = "a timer that was not moved has ended or is running"]
    pub fn reset_at(self, instant: Instant) -> bool {
        let nanos = registry::with(self.shard(), |shared| {
            shared.map(|shared| shared.clock().nanos_at(instant))
        });
        // If another shard has the number by now, the timer has ended.
        nanos.is_some_and(|nanos| self.reset_to(nanos))
    }

    /// As [`reset`](Self::reset), to the moment at which the timer's clock shows `nanos`.
    pub(crate) fn reset_to(self, nanos: u64) -> bool {
        match Owner::of(self) {
            Some(owner) => (owner.path.reset_to)(self, nanos),
            None => self
                .ask_elsewhere(|shared| shared.reset(self.index(), self.generation, nanos))
                .unwrap_or(false),
        }
    }

    /// A guard that cancels the timer when it is dropped.
    pub fn guard(self) -> TimerGuard {
        TimerGuard(self)
    }
}

impl fmt::Debug for TimerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TimerHandle({}:{}#{})", self.shard(), self.index(), self.generation)
    }
}

/// A timer of this thread whose handle cannot leave it; from [`LocalTimer::add_local`](crate::LocalTimer::add_local).
/// Since no other thread can race for its ending, neither cancelling nor firing it needs an atomic swap.
///
/// # Examples
///
/// ```
/// use corewheel::{Cancel, local_timer};
/// use std::time::Duration;
///
/// let retry = local_timer().add_local(Duration::from_millis(250), || println!("again"));
/// assert!(retry.reset(Duration::from_millis(500)));
/// assert_eq!(retry.cancel(), Cancel::Cancelled);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LocalHandle {
    handle: TimerHandle,
    not_send: PhantomData<*const ()>,
}

impl LocalHandle {
    pub(crate) fn new(handle: TimerHandle) -> Self {
        Self { handle, not_send: PhantomData }
    }

    /// Cancels the timer; its callback has been dropped when this returns. See [`TimerHandle::cancel`].
    #[inline]
    pub fn cancel(self) -> Cancel {
        Owner::of(self.handle).map_or(Cancel::Ended, |owner| (owner.path.cancel)(self.handle))
    }

    /// Whether the timer waits for its deadline.
    pub fn is_pending(self) -> bool {
        Owner::of(self.handle).is_some_and(|owner| (owner.path.is_pending)(self.handle))
    }

    /// Moves the timer to `delay` from now. See [`TimerHandle::reset`].
    #[inline]
    #[must_use = "a timer that was not moved has ended or is running"]
    pub fn reset(self, delay: Duration) -> bool {
        Owner::of(self.handle).is_some_and(|owner| (owner.path.reset)(self.handle, delay))
    }

    /// Moves the timer to `instant`. See [`TimerHandle::reset_at`].
    #[must_use = "a timer that was not moved has ended or is running"]
    pub fn reset_at(self, instant: Instant) -> bool {
        Owner::of(self.handle).is_some() && self.handle.reset_at(instant)
    }

    /// As [`reset`](Self::reset), to the moment at which the timer's clock shows `nanos`.
    pub(crate) fn reset_to(self, nanos: u64) -> bool {
        Owner::of(self.handle).is_some_and(|owner| (owner.path.reset_to)(self.handle, nanos))
    }

    /// A handle of the same timer that may leave the thread. From now on ending the timer takes a swap, as for any
    /// other; this handle stays valid.
    pub fn share(self) -> TimerHandle {
        if let Some(owner) = Owner::of(self.handle) {
            (owner.path.share)(self.handle);
        }
        self.handle
    }
}

impl fmt::Debug for LocalHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Local{:?}", self.handle)
    }
}

/// Cancels its timer when it is dropped; from [`TimerHandle::guard`].
///
/// # Examples
///
/// ```
/// use corewheel::local_timer;
/// use std::time::Duration;
///
/// let deadline = local_timer().add(Duration::from_secs(5), || println!("the request took too long")).guard();
/// // ... serve the request; on every way out, also by `?` or a panic, the deadline goes with it:
/// drop(deadline);
/// assert!(local_timer().is_empty());
/// ```
#[must_use = "a guard that is dropped at once cancels its timer at once"]
#[derive(Debug)]
pub struct TimerGuard(TimerHandle);

impl TimerGuard {
    /// The handle of the guarded timer.
    pub fn handle(&self) -> TimerHandle {
        self.0
    }

    /// Lets the timer go on without a guard.
    pub fn disarm(self) -> TimerHandle {
        let handle = self.0;
        mem::forget(self);
        handle
    }
}

impl Drop for TimerGuard {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

per_thread! {
    /// The timer of this thread, while it has one.
    static OWNER: Cell<Option<Owner>> = Cell::new(None);
}

/// This thread's own timer: what `local` puts here, so that a handle need not know about it.
#[derive(Clone, Copy)]
pub(crate) struct Owner {
    pub(crate) shard: u32,
    pub(crate) path: &'static OwnerPath,
}

/// How a thread reaches its own timer.
pub(crate) struct OwnerPath {
    pub(crate) cancel: fn(TimerHandle) -> Cancel,
    pub(crate) reset: fn(TimerHandle, Duration) -> bool,
    pub(crate) reset_to: fn(TimerHandle, u64) -> bool,
    pub(crate) is_pending: fn(TimerHandle) -> bool,
    pub(crate) share: fn(TimerHandle),
    pub(crate) is_turning: fn() -> bool,
}

impl Owner {
    /// From now on handles of this shard take the owner's path on this thread; `None`: no handle does.
    pub(crate) fn set(owner: Option<Self>) {
        // A thread that is past its thread-locals has no use for one.
        let _ = OWNER.try_with(|place| place.set(owner));
    }

    /// The owner's path, if `handle` is one of this thread's own timers.
    #[inline]
    fn of(handle: TimerHandle) -> Option<Self> {
        Self::here().filter(|owner| owner.shard == handle.shard())
    }

    /// Whether the shard of this number is this thread's own timer.
    pub(crate) fn is_of(shard: u32) -> bool {
        Self::here().is_some_and(|owner| owner.shard == shard)
    }

    /// The number of the shard that is this thread's own timer, if it has one.
    pub(crate) fn number() -> Option<u32> {
        Self::here().map(|owner| owner.shard)
    }

    #[inline]
    fn here() -> Option<Self> {
        OWNER.try_with(Cell::get).ok().flatten()
    }

    /// Whether this thread is in the middle of a turn.
    fn is_turning_here() -> bool {
        Self::here().is_some_and(|owner| (owner.path.is_turning)())
    }
}

/// How long to wait between two looks: at first not at all, then ever longer.
#[derive(Debug, Default)]
struct Patience(u32);

impl Patience {
    fn wait(&mut self) {
        const YIELDS: u32 = 8;
        const LONGEST: Duration = Duration::from_millis(1);
        if self.0 < YIELDS || sync::IS_LOOM {
            sync::yield_now();
        } else {
            let interval = Duration::from_micros(10) * 2_u32.saturating_pow(self.0 - YIELDS);
            thread::sleep(interval.min(LONGEST));
        }
        self.0 = (self.0 + 1).min(2 * YIELDS);
    }
}
