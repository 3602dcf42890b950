//! Timers for futures that any thread may poll and drop.

use std::{
    cell::Cell,
    fmt, io,
    num::NonZero,
    panic::RefUnwindSafe,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use super::{
    Interval, Sleep, Timeout,
    backend::BackendOps,
    claimable_wheels::{ClaimableWheel, ClaimableWheels, TimersDriver},
    waker_callback::WakerCallback,
};
#[cfg(feature = "cores")]
use crate::local::cores::{Cores, CoresBuilder};
use crate::{
    clock::tick::saturating_nanos,
    config::Config,
    cross_core::{
        call_site::CallSite,
        handle::{Cancel, ThisThreadWheel, TimerHandle},
    },
    error::{AddErrorReason, ConfigError},
    local::{ShardRef, ThreadWheel},
    util::sync::{lock, per_thread},
    when::When,
};

/// A set of shared wheels, whose futures may be polled and dropped on any thread.
///
/// [`per_worker`](Self::per_worker) suits most work-stealing runtimes: the workers add to its
/// wheels directly. With [`start`](Self::start) and [`new`](Self::new), each wheel belongs to one
/// thread, to which other threads send messages. Prefer `start` or `new` only if most timers fire,
/// because `per_worker` fires all timers on one thread.
///
/// A thread creates all its futures on one of the wheels: on its own, if possible. If a wheel ends
/// or refuses a timer, the future continues on another wheel.
///
/// Clones are cheap and refer to the same wheels.
///
/// # Examples
///
/// With a runtime that moves tasks between its threads:
///
/// ```
/// use corewheel::future::{TimeoutError, Timers};
/// use std::time::Duration;
///
/// let timers = Timers::per_worker()?;
///
/// // On any thread of the runtime:
/// let guarded = timers.timeout(Duration::from_millis(5), std::future::pending::<()>());
/// # fn assert_send(_: &impl Send) {}
/// assert_send(&guarded);
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
pub struct Timers(Arc<[Arc<WheelSet>]>);

/// All wheels of a [`Timers`]. A `Timers` holds one copy of its `WheelSet` per wheel, each in its
/// own `Arc`. So threads that use different wheels do not contend for one reference count.
#[derive(Clone)]
#[repr(align(128))]
struct WheelSet {
    shards: Arc<[ShardRef]>,
    /// `None` if the wheels belong to threads: only [`Timers::per_worker`] makes claimable wheels.
    claimable_wheels: Option<Arc<ClaimableWheels>>,
    /// Stops the threads or the driver, if any, when the last clone of this `Arc` is dropped.
    _stop_on_drop: Arc<dyn Send + Sync>,
}

// A wheel calls user code only between complete updates of its data, so a panic in user code leaves
// no update unfinished.
impl RefUnwindSafe for WheelSet {}

/// Calls a closure when dropped.
struct CallOnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for CallOnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// The [`Backend`](super::Backend) of a [`Timers`] future: refers to the wheel that holds the
/// future's timer.
///
/// # Examples
///
/// ```
/// use corewheel::future::{SharedWheel, Sleep, Timers};
/// use std::time::Duration;
///
/// /// A connection whose task may move between threads.
/// struct Connection {
///     idle: Sleep<SharedWheel>,
/// }
///
/// let timers = Timers::per_worker()?;
/// let connection = Connection { idle: timers.sleep(Duration::from_secs(30)) };
/// assert!(!connection.idle.is_elapsed());
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct SharedWheel {
    wheel_set: Arc<WheelSet>,
    wheel_index: usize,
}

impl Timers {
    /// Starts `threads` threads, at least one, which only run timers and are not pinned to cores.
    /// One or two threads are enough for most programs.
    ///
    /// The threads end when all clones and futures of the `Timers` have been dropped; the last drop
    /// does not wait for the threads.
    ///
    /// # Errors
    ///
    /// Fails if a thread cannot be started, or 16,384 shards, the maximum, exist.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::Timers;
    ///
    /// let timers = Timers::start(2)?;
    /// assert_eq!(timers.shards().len(), 2);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[cfg(feature = "cores")]
    pub fn start(threads: usize) -> io::Result<Self> {
        Self::start_with(Cores::builder().threads(threads).pin(false))
    }

    /// Starts threads that run timers. The `builder` sets the number of threads, whether they are
    /// pinned, and the configuration of each wheel. See [`start`](Self::start).
    ///
    /// # Errors
    ///
    /// Fails if a thread cannot be started, a configuration is invalid, or 16,384 shards, the
    /// maximum, exist.
    ///
    /// # Panics
    ///
    /// Panics if the function given to [`CoresBuilder::config`] panics.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Clock, Config, Cores, future::Timers};
    /// use std::time::Duration;
    ///
    /// let config = |_| Config::new().clock(Clock::fast()).tick(Duration::from_micros(100)).limit(1_000_000);
    /// let timers = Timers::start_with(Cores::builder().threads(2).config(config))?;
    /// assert_eq!(timers.shards().len(), 2);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[cfg(feature = "cores")]
    pub fn start_with(builder: CoresBuilder) -> io::Result<Self> {
        let cores = builder.start(|core| core.run_timers())?;
        Ok(Self::from_shards(cores.shards().into(), None, move || cores.stop()))
    }

    /// Makes a wheel for each CPU on which the calling thread may run. A separate thread, the
    /// *driver*, fires the timers of all wheels, even while workers are busy or blocked. To add
    /// callbacks, see [`shards`](Self::shards).
    ///
    /// The driver ends when all clones and futures of the `Timers` have been dropped; the last drop
    /// does not wait for the driver. Use [`per_worker_with`](Self::per_worker_with) to configure
    /// the wheels. In [`metrics`](crate::ShardRef::metrics), the wheels are called `worker 0`,
    /// `worker 1` and so on.
    ///
    /// Cost: an add, reset or cancel claims the timer's wheel by one compare-and-swap. If several
    /// attempts fail because other threads use the wheel, the thread usually sends a message to the
    /// driver. An add or reset may wake the driver if the new deadline is the earliest of the
    /// wheel.
    ///
    /// # Errors
    ///
    /// Fails if the driver cannot be started, or 16,384 shards, the maximum, exist.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::Timers;
    /// use std::{future::pending, pin::pin, task::{Context, Waker}, time::Duration};
    ///
    /// let timers = Timers::per_worker()?;
    /// let mut guarded = pin!(timers.timeout(Duration::from_secs(5), pending::<()>()));
    /// let mut context = Context::from_waker(Waker::noop());
    /// assert!(guarded.as_mut().poll(&mut context).is_pending());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn per_worker() -> io::Result<Self> {
        let wheels = thread::available_parallelism().map_or(1, NonZero::get);
        let config = |index| Config::new().name(format!("worker {index}"));
        let (timers, driver) = Self::per_worker_with(wheels, config)?;
        let thread = thread::Builder::new().name("corewheel-driver".to_owned());
        thread.spawn(move || driver.run())?;
        Ok(timers)
    }

    /// Makes `wheels` wheels, at least one, and a [`TimersDriver`], which the caller must run.
    /// `config_of_wheel` returns the configuration of the wheel with the given index. If the driver
    /// never runs, a later add may [report](crate::metrics#wheels-without-a-loop) an overdue timer.
    /// See [`per_worker`](Self::per_worker).
    ///
    /// # Errors
    ///
    /// Fails if a configuration is invalid, or 16,384 shards, the maximum, exist.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, future::Timers};
    /// use std::{thread, time::Duration};
    ///
    /// let config = |_| Config::new().tick(Duration::from_micros(100));
    /// let (timers, driver) = Timers::per_worker_with(4, config)?;
    /// let driver = thread::spawn(move || driver.run());
    /// drop(timers); // no future is left either, so the driver ends
    /// driver.join().unwrap();
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    pub fn per_worker_with(
        wheels: usize,
        config_of_wheel: impl FnMut(usize) -> Config,
    ) -> Result<(Self, TimersDriver), ConfigError> {
        let wheels = ClaimableWheels::new(wheels, config_of_wheel)?;
        let driver = TimersDriver(Arc::clone(&wheels));
        let (shards, claimable_wheels) = (wheels.shards().collect(), Some(Arc::clone(&wheels)));
        Ok((Self::from_shards(shards, claimable_wheels, move || wheels.stop_driver()), driver))
    }

    /// Makes a `Timers` of existing wheels, from [`Cores::shards`](crate::Cores::shards) or
    /// [`LocalTimer::shard_ref`](crate::LocalTimer::shard_ref). The threads that own the wheels
    /// must [turn](crate::LocalTimer::turn) them. The `Timers` does not keep these threads alive.
    ///
    /// # Panics
    ///
    /// Panics if `shards` is empty.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::{Timers, VirtualTime};
    /// use std::time::Duration;
    ///
    /// let time = VirtualTime::with_cores(2, 0);
    /// let timers = Timers::new(time.shards());
    /// time.block_on(move || async move {
    ///     timers.sleep(Duration::from_secs(5)).await;
    /// });
    /// assert_eq!(time.elapsed(), Duration::from_secs(5));
    /// ```
    #[track_caller]
    pub fn new(shards: &[ShardRef]) -> Self {
        assert!(!shards.is_empty(), "`Timers::new` needs at least one wheel");
        Self::from_shards(shards.into(), None, || ())
    }

    /// Makes a `Timers` of the wheels `shards`. Calls `stop_wheels` when all clones and futures of
    /// the `Timers` have been dropped.
    fn from_shards(
        shards: Arc<[ShardRef]>,
        claimable_wheels: Option<Arc<ClaimableWheels>>,
        stop_wheels: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let wheel_set =
            WheelSet { shards, claimable_wheels, _stop_on_drop: Arc::new(CallOnDrop(stop_wheels)) };
        Self(wheel_set.shards.iter().map(|_| Arc::new(wheel_set.clone())).collect())
    }

    /// Returns the wheels, at least one, for example to add callbacks or to read
    /// [metrics](ShardRef::metrics). A callback that blocks delays the timers of its wheel.
    ///
    /// With [`per_worker`](Self::per_worker), the driver runs all callbacks, so a callback that
    /// blocks delays the timers of all wheels. In a callback, [`local_timer`](crate::local_timer)
    /// is the driver thread's own wheel, which usually no loop turns. To add another timer,
    /// capture a clone of the [`ShardRef`]. The period of a periodic timer cannot be changed with
    /// `per_worker`.
    ///
    /// Keep a clone of the `Timers` while you use its wheels: without a clone, its threads may end
    /// and drop pending callbacks.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::Timers;
    /// use std::time::Duration;
    ///
    /// let timers = Timers::start(1)?;
    /// timers.shards()[0].add(Duration::from_millis(1), || println!("on the thread of the timers"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn shards(&self) -> &[ShardRef] {
        &self.0[0].shards
    }

    /// Waits for `duration`, counted from this call. See [`Sleep`].
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::{Timers, VirtualTime};
    /// use std::time::Duration;
    ///
    /// let time = VirtualTime::with_cores(2, 0);
    /// let timers = Timers::new(time.shards());
    /// time.block_on(move || async move {
    ///     timers.sleep(Duration::from_secs(5)).await;
    /// });
    /// assert_eq!(time.elapsed(), Duration::from_secs(5));
    /// ```
    #[track_caller]
    pub fn sleep(&self, duration: Duration) -> Sleep<SharedWheel> {
        Sleep::with_delay(self.choose_wheel(), saturating_nanos(duration))
    }

    /// Waits until `deadline`, an instant of the clock that [`now`](Self::now) reads. See
    /// [`Sleep`].
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::{Timers, VirtualTime};
    /// use std::time::Duration;
    ///
    /// let time = VirtualTime::with_cores(2, 0);
    /// let timers = Timers::new(time.shards());
    /// time.block_on(move || async move {
    ///     timers.sleep_until(timers.now() + Duration::from_secs(5)).await;
    /// });
    /// assert_eq!(time.elapsed(), Duration::from_secs(5));
    /// ```
    #[track_caller]
    pub fn sleep_until(&self, deadline: Instant) -> Sleep<SharedWheel> {
        Sleep::with_deadline(self.choose_wheel(), deadline)
    }

    /// Gives up `future` if it is not ready within `duration` from now. See [`Timeout`].
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::{Timers, VirtualTime};
    /// use std::{future, time::Duration};
    ///
    /// let time = VirtualTime::with_cores(2, 0);
    /// let timers = Timers::new(time.shards());
    /// time.block_on(move || async move {
    ///     let answer = timers.timeout(Duration::from_secs(5), future::pending::<()>()).await;
    ///     assert!(answer.is_err());
    /// });
    /// assert_eq!(time.elapsed(), Duration::from_secs(5));
    /// ```
    #[track_caller]
    pub fn timeout<F: IntoFuture>(
        &self,
        duration: Duration,
        future: F,
    ) -> Timeout<F::IntoFuture, SharedWheel> {
        Timeout::new(future.into_future(), self.sleep(duration))
    }

    /// Gives up `future` if it is not ready by `deadline`, an instant of the clock that
    /// [`now`](Self::now) reads. See [`Timeout`].
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::{Timers, VirtualTime};
    /// use std::{future, time::Duration};
    ///
    /// let time = VirtualTime::with_cores(2, 0);
    /// let timers = Timers::new(time.shards());
    /// time.block_on(move || async move {
    ///     let deadline = timers.now() + Duration::from_secs(5);
    ///     assert!(timers.timeout_at(deadline, future::pending::<()>()).await.is_err());
    /// });
    /// assert_eq!(time.elapsed(), Duration::from_secs(5));
    /// ```
    #[track_caller]
    pub fn timeout_at<F: IntoFuture>(
        &self,
        deadline: Instant,
        future: F,
    ) -> Timeout<F::IntoFuture, SharedWheel> {
        Timeout::new(future.into_future(), self.sleep_until(deadline))
    }

    /// Returns an interval that ticks every `period`, the first time at once. See [`Interval`].
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::{Timers, VirtualTime};
    /// use std::time::Duration;
    ///
    /// let time = VirtualTime::with_cores(2, 0);
    /// let timers = Timers::new(time.shards());
    /// time.block_on(move || async move {
    ///     let mut ticks = timers.interval(Duration::from_secs(10));
    ///     let first = ticks.tick().await; // at once
    ///     assert_eq!(ticks.tick().await - first, Duration::from_secs(10));
    /// });
    /// assert_eq!(time.elapsed(), Duration::from_secs(10));
    /// ```
    #[track_caller]
    pub fn interval(&self, period: Duration) -> Interval<SharedWheel> {
        Interval::new(self.sleep(Duration::ZERO), period)
    }

    /// Returns an interval that ticks every `period`, the first time at `start`, an instant of the
    /// clock that [`now`](Self::now) reads. See [`Interval`].
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::{Timers, VirtualTime};
    /// use std::time::Duration;
    ///
    /// let time = VirtualTime::with_cores(2, 0);
    /// let timers = Timers::new(time.shards());
    /// time.block_on(move || async move {
    ///     let start = timers.now() + Duration::from_secs(3);
    ///     let mut ticks = timers.interval_at(start, Duration::from_secs(10));
    ///     assert_eq!(ticks.tick().await, start);
    ///     ticks.tick().await;
    /// });
    /// assert_eq!(time.elapsed(), Duration::from_secs(13));
    /// ```
    #[track_caller]
    pub fn interval_at(&self, start: Instant, period: Duration) -> Interval<SharedWheel> {
        Interval::new_at(start, self.sleep_until(start), period)
    }

    /// Reads the clock of the wheel that new futures of this thread use.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::{Timers, VirtualTime};
    /// use std::time::Duration;
    ///
    /// let time = VirtualTime::with_cores(2, 0);
    /// let timers = Timers::new(time.shards());
    /// time.block_on(move || async move {
    ///     let start = timers.now();
    ///     timers.sleep(Duration::from_secs(5)).await;
    ///     assert_eq!(timers.now() - start, Duration::from_secs(5));
    /// });
    /// assert_eq!(time.elapsed(), Duration::from_secs(5));
    /// ```
    pub fn now(&self) -> Instant {
        self.shards()[self.choose_wheel_index()].now()
    }

    #[inline]
    fn choose_wheel(&self) -> SharedWheel {
        let wheel_index = self.choose_wheel_index();
        SharedWheel { wheel_set: Arc::clone(&self.0[wheel_index]), wheel_index }
    }

    #[inline]
    fn choose_wheel_index(&self) -> usize {
        let WheelSet { shards, claimable_wheels, .. } = &*self.0[0];
        let own_wheel_index = if claimable_wheels.is_some() || ThisThreadWheel::get().is_none() {
            None // skips the search
        } else {
            shards.iter().position(ShardRef::is_of_this_thread)
        };
        own_wheel_index.unwrap_or_else(|| wheel_selector() % self.0.len())
    }
}

impl SharedWheel {
    fn shard(&self) -> &ShardRef {
        &self.wheel_set.shards[self.wheel_index]
    }

    /// Returns the wheel at `index` if [`Timers::per_worker`] has made the wheels, otherwise
    /// `None`.
    #[inline]
    fn claimable_wheel(&self, index: usize) -> Option<&ClaimableWheel> {
        Some(&self.wheel_set.claimable_wheels.as_ref()?.wheels[index])
    }

    /// Tries to add a timer to each wheel, beginning with this wheel, until a wheel accepts the
    /// timer. Makes `self` refer to the accepting wheel, and converts `nanos` to that wheel's
    /// clock. If no wheel accepts the timer, drops `callback`.
    fn try_add_to_any_wheel(
        &mut self,
        nanos: &mut u64,
        call_site: CallSite,
        mut callback: Option<WakerCallback>,
    ) -> Result<TimerHandle, AddErrorReason> {
        let mut refusal_reason = AddErrorReason::ShutDown;
        let (first_index, wheel_count) = (self.wheel_index, self.wheel_set.shards.len());
        for index in (first_index..wheel_count).chain(0..first_index) {
            let converted_nanos = self.convert_to_clock_of(index, *nanos);
            let wheel = self.claimable_wheel(index);
            let add_result =
                wheel.and_then(|wheel| wheel.try_add(converted_nanos, call_site, &mut callback));
            let add_result = add_result.unwrap_or_else(|| {
                let shard = &self.wheel_set.shards[index];
                if shard.is_of_this_thread() {
                    let _ = ThreadWheel::with(ThreadWheel::assert_driven);
                }
                let waker = callback.take().expect("a refused callback stays");
                shard
                    .try_add_with_call_site(call_site, When::at_nanos(converted_nanos), waker)
                    .map_err(|error| {
                        let reason = error.reason();
                        callback = Some(error.into_inner());
                        reason
                    })
            });
            match add_result {
                Ok(handle) => {
                    (self.wheel_index, *nanos) = (index, converted_nanos);
                    return Ok(handle);
                }
                // The result is `ShutDown` only if every wheel has ended.
                Err(reason) if refusal_reason == AddErrorReason::ShutDown => {
                    refusal_reason = reason;
                }
                Err(_) => (),
            }
        }
        self.drop_refused_callback(callback);
        Err(refusal_reason)
    }

    fn try_reset_to_nanos(&self, handle: TimerHandle, nanos: u64) -> bool {
        self.claimable_wheel(self.wheel_index)
            .and_then(|wheel| wheel.try_reset_to_nanos(handle, nanos))
            .unwrap_or_else(|| handle.reset(When::at_nanos(nanos)))
    }

    /// Converts `nanos` from this wheel's clock to the clock of the wheel at `index`. Keeps
    /// `u64::MAX`, which means never.
    fn convert_to_clock_of(&self, index: usize, nanos: u64) -> u64 {
        if index == self.wheel_index || nanos == u64::MAX {
            return nanos;
        }
        self.wheel_set.shards[index]
            .shared
            .clock
            .convert_nanos_from(&self.shard().shared.clock, nanos)
    }
}

impl BackendOps for SharedWheel {
    #[inline]
    fn nanos_after(&self, delay_nanos: u64) -> Result<u64, AddErrorReason> {
        Ok(self.shard().shared.nanos_after(delay_nanos))
    }

    fn now_nanos(&self) -> Result<u64, AddErrorReason> {
        self.nanos_after(0)
    }

    fn nanos_at(&self, instant: Instant) -> Result<u64, AddErrorReason> {
        Ok(self.shard().shared.clock.nanos_at(instant))
    }

    fn instant_at(&self, nanos: u64) -> Instant {
        self.shard().shared.clock.instant_at(nanos)
    }

    fn has_elapsed(&self, nanos: u64) -> Result<bool, AddErrorReason> {
        Ok(self.shard().shared.has_elapsed(nanos))
    }

    fn clamp_period_nanos(&self, period: Duration) -> Result<u64, AddErrorReason> {
        Ok(self.shard().shared.tick_length.clamp_period_nanos(period))
    }

    #[inline]
    fn try_add(
        &mut self,
        nanos: &mut u64,
        call_site: CallSite,
        waker: WakerCallback,
    ) -> Result<TimerHandle, AddErrorReason> {
        let mut callback = Some(waker);
        if let Some(wheel) = self.claimable_wheel(self.wheel_index)
            && let Some(Ok(handle)) = wheel.try_add_as_owner(*nanos, call_site, &mut callback)
        {
            return Ok(handle);
        }
        self.try_add_to_any_wheel(nanos, call_site, callback)
    }

    /// Reports a panic of the callback's destructor through the wheel of this `SharedWheel`,
    /// because the calling thread may have no wheel.
    #[cold]
    fn drop_refused_callback(&self, callback: Option<WakerCallback>) {
        self.shard().shared.hooks.drop_catching_panic(callback);
    }

    fn is_pending(&self, handle: TimerHandle) -> bool {
        self.claimable_wheel(self.wheel_index)
            .and_then(|wheel| wheel.is_pending(handle))
            .unwrap_or_else(|| handle.is_pending())
    }

    #[inline]
    fn cancel(&self, handle: TimerHandle) -> bool {
        let answer = self
            .claimable_wheel(self.wheel_index)
            .and_then(|wheel| wheel.cancel(handle))
            .unwrap_or_else(|| handle.cancel());
        answer == Cancel::Cancelled
    }

    fn reset_after(&self, handle: TimerHandle, delay_nanos: u64) -> Option<u64> {
        let nanos = self.shard().shared.nanos_after(delay_nanos);
        self.try_reset_to_nanos(handle, nanos).then_some(nanos)
    }

    fn reset_at(&self, handle: TimerHandle, instant: Instant) -> Option<(u64, bool)> {
        let shared = &self.shard().shared;
        let nanos = shared.clock.nanos_at(instant);
        self.try_reset_to_nanos(handle, nanos).then(|| (nanos, shared.has_elapsed(nanos)))
    }
}

per_thread! {
    /// The number that selects the wheel for this thread's futures; 0 if no number is assigned yet.
    static WHEEL_SELECTOR: Cell<usize> = Cell::new(0);
}

/// Sets this thread's wheel selector, which must be at least 1. Threads with equal selectors use
/// the same wheel.
pub(super) fn set_wheel_selector(selector: usize) {
    // Ignores the error that occurs while the thread-locals are being destroyed.
    let _ = WHEEL_SELECTOR.try_with(|cell| cell.set(selector));
}

/// Returns this thread's wheel selector. A thread without a selector gets the next number of a
/// counter.
fn wheel_selector() -> usize {
    static LAST_WHEEL_SELECTOR: Mutex<usize> = Mutex::new(0);
    let selector = WHEEL_SELECTOR.try_with(|selector| {
        if selector.get() == 0 {
            let mut last_selector = lock(&LAST_WHEEL_SELECTOR);
            *last_selector += 1;
            selector.set(*last_selector);
        }
        selector.get()
    });
    // A thread whose thread-locals are destroyed uses the first wheel.
    selector.unwrap_or(0)
}

impl fmt::Debug for Timers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Timers").field(&self.0[0].shards).finish()
    }
}

impl fmt::Debug for SharedWheel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedWheel").field(self.shard()).finish()
    }
}
