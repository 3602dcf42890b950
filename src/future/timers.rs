//! Timers of other threads, for futures that any thread may poll and drop.

use std::{
    cell::Cell,
    fmt, io,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::{Interval, Sleep, Timeout, alarm::Alarm, home::Place};
use crate::{
    cores::{Cores, CoresBuilder},
    error::AddErrorReason,
    handle::{Cancel, Owner, TimerHandle},
    local::{LocalTimer, ShardRef},
    origin::Origin,
    sync::per_thread,
};

/// The timers of some threads, for futures that may be polled and dropped on any thread.
///
/// A future takes the timer of the thread on which it is created, if that is among them; otherwise each thread keeps to one of
/// them, so that threads get into each other's way as little as possible. If that timer is full or has ended when a timer must be
/// added, or ends later, the future goes on at the next one.
///
/// [`start`](Self::start) makes threads of its own, which run as long as a clone or one of its futures exists. Other threads, given to
/// [`new`](Self::new), must [turn](crate::LocalTimer::turn) their timers, and nothing here keeps them alive. Clones are cheap and mean the
/// same timers.
///
/// # Examples
///
/// Beside a runtime that moves tasks between its threads: a thread that does nothing but timers, and tasks that wait for it from
/// anywhere.
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

/// What the futures of one timer hold on to: so threads that keep to different ones do not count the same references.
#[repr(align(128))]
struct Seat {
    shards: Arc<[ShardRef]>,
    /// The threads of the timers, if these were started for them.
    _threads: Option<Arc<Threads>>,
}

/// Threads of nothing but timers. They are asked to end when this is dropped.
struct Threads(Cores<()>);

impl Drop for Threads {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// One of several timers of other threads; the futures of [`Timers`] live there.
pub struct Remote {
    seat: Arc<Seat>,
    /// Which of the shards it is.
    at: usize,
}

impl Timers {
    /// Starts threads that do nothing but timers, and returns their timers; zero counts as one. One or two are enough for most programs,
    /// since they do nothing but wake tasks. The operating system places them: they are not pinned to cores.
    ///
    /// The threads end when the last clone of the timers and the last of their futures is dropped. No thread waits for that.
    ///
    /// # Errors
    ///
    /// If a thread cannot be started, or 16,384 shards exist.
    pub fn start(threads: usize) -> io::Result<Self> {
        Self::start_with(Cores::builder().shards(threads).pin(false))
    }

    /// Starts the threads as the builder says: how many, whether they are pinned, and how the timer of each is made. Otherwise as
    /// [`start`](Self::start).
    ///
    /// The threads park between their turns. A configuration with a wake hook of its own ([`Config::on_wake`](crate::Config::on_wake))
    /// must unpark the thread, which is the current one in the function given to [`CoresBuilder::config`].
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

    /// The timers of these threads: [`Cores::shards`](crate::Cores::shards), or the one of
    /// [`LocalTimer::shard_ref`](crate::LocalTimer::shard_ref). The caller keeps the threads alive: futures of timers that have ended get
    /// [no timer](super#without-a-timer).
    ///
    /// # Panics
    ///
    /// If there is none.
    #[track_caller]
    pub fn new(shards: &[ShardRef]) -> Self {
        assert!(!shards.is_empty(), "no timer to wait for");
        Self::on(&shards.into(), None)
    }

    fn on(shards: &Arc<[ShardRef]>, threads: Option<&Arc<Threads>>) -> Self {
        let seat = || Seat { shards: Arc::clone(shards), _threads: threads.cloned() };
        Self(shards.iter().map(|_| Arc::new(seat())).collect())
    }

    /// The timers, to add callbacks to them or to read their [metrics](ShardRef::metrics). At least one.
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

    /// Gives `future` up if it is not ready within `duration` from now. See [`Timeout`].
    #[track_caller]
    pub fn timeout<F: IntoFuture>(
        &self,
        duration: Duration,
        future: F,
    ) -> Timeout<F::IntoFuture, Remote> {
        Timeout::new(future.into_future(), self.sleep(duration))
    }

    /// Gives `future` up if it is not ready by `deadline`, an instant of the timers' clock. See [`Timeout`].
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

    /// Ticks every `period`, the first time at `start`, an instant of the timers' clock. See [`Interval`].
    #[track_caller]
    pub fn interval_at(&self, start: Instant, period: Duration) -> Interval<Remote> {
        Interval::new(self.sleep_until(start), period)
    }

    /// What time it is by the timers' clock: by that of the one where this thread's futures wait.
    pub fn now(&self) -> Instant {
        self.remote().shard().now()
    }

    fn remote(&self) -> Remote {
        let at = self.own().unwrap_or_else(|| number_of_this_thread() % self.0.len());
        Remote { seat: Arc::clone(&self.0[at]), at }
    }

    /// Which of the timers is this thread's own.
    fn own(&self) -> Option<usize> {
        let own = Owner::number()?;
        self.0[0].shards.iter().position(|shard| shard.number() == own && shard.is_own())
    }
}

impl Remote {
    fn shard(&self) -> &ShardRef {
        &self.seat.shards[self.at]
    }

    /// What the clock of another one of the shards shows when this one's shows `nanos`.
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
    /// From 1; 0 if the thread has none yet.
    static NUMBER: Cell<usize> = Cell::new(0);
}

/// Gives this thread a number, which others may have as well.
pub(super) fn number_this_thread(number: usize) {
    // A thread that is past its thread-locals needs none.
    let _ = NUMBER.try_with(|place| place.set(number));
}

/// A small number that no other thread has, if it was not given one.
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
    // A thread that is past its thread-locals is like any other.
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
