//! Timers of other threads, for futures that any thread may poll and drop.

use std::{
    cell::Cell,
    fmt, io,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::{Interval, Sleep, Timeout, alarm::Alarm, home::Place};
use crate::{
    cross_core::{
        handle::{Cancel, Owner, TimerHandle},
        origin::Origin,
    },
    error::AddErrorReason,
    local::{
        LocalTimer, ShardRef,
        cores::{Cores, CoresBuilder},
    },
    util::sync::per_thread,
};

/// The wheels of some threads, for futures that may be polled and dropped on any thread.
///
/// A future uses the wheel of the thread on which it is created, if that is one of these wheels.
/// Otherwise each thread keeps to one of them, which reduces contention between threads. If that
/// wheel is full or has ended when a timer is added, or ends later, the future continues on the
/// next wheel.
///
/// [`start`](Self::start) starts threads, which run as long as a clone or one of its futures
/// exists. The threads of the wheels given to [`new`](Self::new) must
/// [turn](crate::LocalTimer::turn) them, and nothing here keeps these threads alive. Clones are
/// cheap and refer to the same wheels.
///
/// # Examples
///
/// Beside a runtime that moves tasks between its threads, one thread runs the timers, and tasks
/// wait for it from anywhere.
///
/// ```
/// use corewheel::future::{TimeoutError, Timers};
/// use std::time::Duration;
///
/// let timers = Timers::start(1)?;
///
/// // On any thread of the runtime:
/// let guarded = timers.timeout(Duration::from_millis(5), std::future::pending::<()>());
/// # fn is_send(_: &impl Send) {}
/// is_send(&guarded);
/// assert_eq!(block_on(guarded), Err(TimeoutError::Elapsed));
/// # fn block_on<F: Future>(future: F) -> F::Output {
/// #     use std::{sync::Arc, task::{Context, Poll, Wake}, thread};
/// #     struct Unpark(thread::Thread);
/// #     impl Wake for Unpark {
/// #         fn wake(self: Arc<Self>) {
/// #             self.0.unpark();
/// #         }
/// #     }
/// #     let waker = Arc::new(Unpark(thread::current())).into();
/// #     let mut future = std::pin::pin!(future);
/// #     loop {
/// #         if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
/// #             return output;
/// #         }
/// #         thread::park();
/// #     }
/// # }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Timers(Arc<[Arc<Seat>]>);

/// The reference that the futures of one wheel hold. Threads that keep to different wheels do not
/// contend for one reference count.
#[repr(align(128))]
struct Seat {
    shards: Arc<[ShardRef]>,
    /// The threads of the wheels, if they were started for them.
    _threads: Option<Arc<Threads>>,
}

/// Threads that only run timers. Dropping this asks them to end.
struct Threads(Cores<()>);

impl Drop for Threads {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// One of several wheels of other threads, for the futures of [`Timers`].
pub struct Remote {
    seat: Arc<Seat>,
    /// Its index among the shards.
    at: usize,
}

impl Timers {
    /// Starts threads that only run timers, and returns their wheels; zero counts as one. One or
    /// two threads are enough for most programs, since they only wake tasks. The operating system
    /// places them: they are not pinned to cores.
    ///
    /// The threads end when the last clone of the timers and the last of their futures is dropped.
    /// That drop does not wait for the threads.
    ///
    /// # Errors
    ///
    /// If a thread cannot be started, or 16,384 shards exist.
    pub fn start(threads: usize) -> io::Result<Self> {
        Self::start_with(Cores::builder().shards(threads).pin(false))
    }

    /// Starts threads with this builder, which sets their number, whether they are pinned, and the
    /// configuration of each wheel. See [`start`](Self::start).
    ///
    /// The threads park between their turns. A wake hook in the configuration
    /// ([`Config::on_wake`](crate::Config::on_wake)) must unpark the thread, which is the current
    /// one in the function given to [`CoresBuilder::config`].
    ///
    /// # Errors
    ///
    /// If a thread cannot be started, or a configuration is invalid.
    ///
    /// # Panics
    ///
    /// If the function given to [`CoresBuilder::config`] panics.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Clock, Config, Cores, future::Timers};
    /// use std::time::Duration;
    ///
    /// let config = |_| Config::new().clock(Clock::fast()).tick(Duration::from_micros(100)).limit(1_000_000);
    /// let timers = Timers::start_with(Cores::builder().shards(2).config(config))?;
    /// assert_eq!(timers.shards().len(), 2);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn start_with(threads: CoresBuilder) -> io::Result<Self> {
        let cores = threads.start(|core| core.run_timers())?;
        let shards = cores.shards().into();
        Ok(Self::on(&shards, Some(&Arc::new(Threads(cores)))))
    }

    /// Uses the wheels of these threads: [`Cores::shards`](crate::Cores::shards), or
    /// [`LocalTimer::shard_ref`](crate::LocalTimer::shard_ref). The caller keeps the threads alive:
    /// futures of ended wheels get [no timer](super#without-a-timer).
    ///
    /// # Panics
    ///
    /// If `shards` is empty.
    #[track_caller]
    pub fn new(shards: &[ShardRef]) -> Self {
        assert!(!shards.is_empty(), "no timer to wait for");
        Self::on(&shards.into(), None)
    }

    fn on(shards: &Arc<[ShardRef]>, threads: Option<&Arc<Threads>>) -> Self {
        let seat = || Seat { shards: Arc::clone(shards), _threads: threads.cloned() };
        Self(shards.iter().map(|_| Arc::new(seat())).collect())
    }

    /// Returns the wheels, for adds of callbacks and for [metrics](ShardRef::metrics). At least
    /// one.
    pub fn shards(&self) -> &[ShardRef] {
        &self.0[0].shards
    }

    /// Waits until `duration` from now. See [`Sleep`].
    #[track_caller]
    pub fn sleep(&self, duration: Duration) -> Sleep<Remote> {
        Sleep::after(self.remote(), duration)
    }

    /// Waits until `deadline`, an instant of the timers' clock. See [`Sleep`].
    #[track_caller]
    pub fn sleep_until(&self, deadline: Instant) -> Sleep<Remote> {
        Sleep::until(self.remote(), deadline)
    }

    /// Gives up `future` if it is not ready within `duration` from now. See [`Timeout`].
    #[track_caller]
    pub fn timeout<F: IntoFuture>(
        &self,
        duration: Duration,
        future: F,
    ) -> Timeout<F::IntoFuture, Remote> {
        Timeout::new(future.into_future(), self.sleep(duration))
    }

    /// Gives up `future` if it is not ready by `deadline`, an instant of the timers' clock. See
    /// [`Timeout`].
    #[track_caller]
    pub fn timeout_at<F: IntoFuture>(
        &self,
        deadline: Instant,
        future: F,
    ) -> Timeout<F::IntoFuture, Remote> {
        Timeout::new(future.into_future(), self.sleep_until(deadline))
    }

    /// Ticks every `period`, the first time at once. See [`Interval`].
    #[track_caller]
    pub fn interval(&self, period: Duration) -> Interval<Remote> {
        Interval::new(self.sleep(Duration::ZERO), period)
    }

    /// Ticks every `period`, the first time at `start`, an instant of the timers' clock. See
    /// [`Interval`].
    #[track_caller]
    pub fn interval_at(&self, start: Instant, period: Duration) -> Interval<Remote> {
        Interval::new(self.sleep_until(start), period)
    }

    /// Returns the present time of the clock of the wheel that this thread's futures use.
    pub fn now(&self) -> Instant {
        self.remote().shard().now()
    }

    fn remote(&self) -> Remote {
        let at = self.own().unwrap_or_else(|| number_of_this_thread() % self.0.len());
        Remote { seat: Arc::clone(&self.0[at]), at }
    }

    /// Returns the index of this thread's own wheel.
    fn own(&self) -> Option<usize> {
        let own = Owner::number()?;
        self.0[0].shards.iter().position(|shard| shard.number() == own && shard.is_own())
    }
}

impl Remote {
    fn shard(&self) -> &ShardRef {
        &self.seat.shards[self.at]
    }

    /// Converts `nanos` of this shard's clock to the clock of shard `at`.
    fn nanos_on(&self, at: usize, nanos: u64) -> u64 {
        if at == self.at || nanos == u64::MAX {
            return nanos;
        }
        self.seat.shards[at].shared().clock().nanos_of(self.shard().shared().clock(), nanos)
    }
}

impl Place for Remote {
    type Handle = TimerHandle;

    fn nanos_after(&self, delay: Duration) -> Result<u64, AddErrorReason> {
        Ok(self.shard().shared().nanos_after(delay))
    }

    fn nanos_at(&self, instant: Instant) -> Result<u64, AddErrorReason> {
        Ok(self.shard().shared().clock().nanos_at(instant))
    }

    fn instant_at(&self, nanos: u64) -> Instant {
        self.shard().shared().clock().instant_at(nanos)
    }

    fn has_come(&self, nanos: u64) -> Result<bool, AddErrorReason> {
        Ok(self.shard().shared().has_come(nanos))
    }

    fn period_nanos(&self, period: Duration) -> Result<u64, AddErrorReason> {
        Ok(self.shard().shared().period_nanos(period))
    }

    fn try_add(
        &mut self,
        nanos: &mut u64,
        origin: Origin,
        alarm: Alarm,
    ) -> Result<TimerHandle, AddErrorReason> {
        let mut ring = move || alarm.ring();
        let mut refusal = AddErrorReason::ShutDown;
        let (first, shards) = (self.at, self.seat.shards.len());
        for at in (0..shards).map(|by| (first + by) % shards) {
            let there = self.nanos_on(at, *nanos);
            if self.seat.shards[at].is_own() {
                LocalTimer::assert_driven();
            }
            match self.seat.shards[at].try_add_to(there, origin, ring) {
                Ok(handle) => {
                    (self.at, *nanos) = (at, there);
                    return Ok(handle);
                }
                Err(error) => {
                    refusal = error.reason();
                    ring = error.into_inner();
                }
            }
        }
        Err(refusal)
    }

    fn is_pending(handle: TimerHandle) -> bool {
        handle.is_pending()
    }

    fn cancel(handle: TimerHandle) -> Cancel {
        handle.cancel()
    }

    fn reset_to(handle: TimerHandle, nanos: u64) -> bool {
        handle.reset_to(nanos)
    }
}

per_thread! {
    /// Counts from 1; 0 if the thread has none yet.
    static NUMBER: Cell<usize> = Cell::new(0);
}

/// Gives this thread a number. Several threads may get the same number.
pub(super) fn number_this_thread(number: usize) {
    // A thread that is past its thread-locals needs none.
    let _ = NUMBER.try_with(|place| place.set(number));
}

/// Returns a small number, unique among threads that were not given one.
fn number_of_this_thread() -> usize {
    static LAST: Mutex<usize> = Mutex::new(0);
    let number = NUMBER.try_with(|number| {
        if number.get() == 0 {
            let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
            *last += 1;
            number.set(*last);
        }
        number.get()
    });
    // A thread that is past its thread-locals uses the first wheel.
    number.unwrap_or(0)
}

impl fmt::Debug for Timers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Timers").field(&self.0[0].shards).finish()
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Remote").field(self.shard()).finish()
    }
}
