//! A reference to another thread's wheel, for remote adds.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{LocalTimer, ThreadWheel, local_timer};
use crate::{
    clock::tick::TimerSchedule,
    cross_core::{
        call_site::CallSite,
        callback::{IntoCallback, OneShotClosure, PeriodicClosure},
        handle::{ThisThreadWheel, TimerHandle},
        shared::{RemoteOutcome, RemotelyAddedId, Shared},
        state::TimerKind,
    },
    error::{AddError, AddErrorReason},
    metrics::ShardMetrics,
    when::When,
};

/// A reference to a thread's wheel, through which other threads add timers. Returned by
/// [`LocalTimer::shard_ref`](crate::LocalTimer::shard_ref) and
/// [`Cores::shards`](crate::Cores::shards).
///
/// Callbacks run on the thread that owns the wheel, in its turns. A reference keeps neither the
/// thread nor its wheel alive: after the wheel has ended, no timer can be added. But the wheel's
/// hooks, its `TimerFd` descriptor and the memory of its timers are freed only after all references
/// have been dropped. All references together keep at most 1 MB plus about 88 bytes per timer, for
/// the largest number of timers so far. While the wheel lives, its turns return surplus memory.
///
/// # Examples
///
/// ```
/// use corewheel::{Cancel, Cores, local_timer};
/// use std::{sync::mpsc, time::Duration};
///
/// let (ready, core) = mpsc::channel();
/// let cores = Cores::builder().threads(1).start(move |_| {
///     ready.send(local_timer().shard_ref()).unwrap();
///     while local_timer().turn().fired == 0 {
///         local_timer().prepare_sleep().park(); // an add from elsewhere wakes it
///     }
/// })?;
/// let core = core.recv().unwrap();
/// let handle = core.add(Duration::from_secs(30), || println!("not today"));
/// assert_eq!(handle.cancel(), Cancel::Cancelled);
/// core.add(Duration::from_millis(1), || println!("on the other core"));
/// assert!(cores.join().iter().all(Result::is_ok)); // no core has panicked
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct ShardRef {
    pub(crate) shared: Arc<Shared>,
}

impl ShardRef {
    /// Runs `callback` once on the thread that owns the wheel. `when` is a delay, or an instant of
    /// the wheel's clock; see [`When`]. The callback runs in the owner's first turn that begins at
    /// or after the deadline, rounded up to a tick. The callback may run in a later turn if the add
    /// arrives during a turn, or before a turn that is [behind](crate::Turn::behind). The handle
    /// can cancel and reset the timer at once.
    ///
    /// On the owner's thread, this call is equivalent to [`LocalTimer::add`]. A wheel of
    /// [`Timers::per_worker`](crate::future::Timers::per_worker) belongs to no thread: see
    /// [`Timers::shards`](crate::future::Timers::shards).
    ///
    /// Cost: constant. An add takes two compare-and-swaps, pins an epoch, and takes no lock. Each
    /// 4,096 live remote timers need another page of memory. A callback that captures more than 32
    /// bytes, or a value aligned to more than 8 bytes, is boxed. An add wakes an owner whose
    /// announced sleep would end after the new deadline.
    ///
    /// # Panics
    ///
    /// Panics if the wheel has ended or is full; see [`try_add`](Self::try_add).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::{thread, time::Duration};
    ///
    /// let shard = local_timer().shard_ref();
    /// let add = move || shard.add(Duration::from_millis(1), || println!("on the first thread"));
    /// let timer = thread::spawn(add).join().unwrap();
    /// local_timer().run_until(|| !timer.is_pending());
    /// ```
    #[inline]
    #[track_caller]
    pub fn add(
        &self,
        when: impl Into<When>,
        callback: impl FnOnce() + Send + 'static,
    ) -> TimerHandle {
        AddError::or_panic(self.try_add(when, callback))
    }

    /// Adds a remote timer, and returns an error where [`add`](Self::add) panics.
    ///
    /// # Errors
    ///
    /// Returns an error if the wheel has ended, or has reached its limit of live timers
    /// ([`Config::limit`](crate::Config::limit), at most 2^25 - 1). While another thread's add is
    /// being refused, it may briefly count towards the limit. The error contains the callback.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{AddErrorReason, local_timer};
    /// use std::{thread, time::Duration};
    ///
    /// let ended = thread::spawn(|| local_timer().shard_ref()).join().unwrap();
    /// let refused = ended.try_add(Duration::from_secs(1), || println!("too late"));
    /// assert_eq!(refused.unwrap_err().reason(), AddErrorReason::ShutDown);
    /// ```
    #[inline]
    #[track_caller]
    pub fn try_add<F: FnOnce() + Send + 'static>(
        &self,
        when: impl Into<When>,
        callback: F,
    ) -> Result<TimerHandle, AddError<F>> {
        self.try_add_with_call_site(CallSite::caller(), when, OneShotClosure(callback))
    }

    /// Runs `callback` every `period` on the thread that owns the wheel, until the timer is
    /// cancelled. The first run is one period from now. [`LocalTimer::add_periodic`] describes late
    /// runs, missed runs, short periods and panics.
    ///
    /// The handle can cancel and reset the timer at once. A cancel during a run prevents further
    /// runs, and the owner drops the callback. After a cancel between runs, usually the cancelling
    /// thread drops the callback. The owner can change the period with
    /// [`LocalTimer::set_period`](crate::LocalTimer::set_period). On a wheel of
    /// [`Timers::per_worker`](crate::future::Timers::per_worker), no thread can change the period.
    ///
    /// On the owner's thread, this call is equivalent to [`LocalTimer::add_periodic`]. For the
    /// cost, see [`add`](Self::add).
    ///
    /// # Panics
    ///
    /// Panics if the wheel has ended or is full; see [`try_add`](Self::try_add).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Cancel, Cores, local_timer};
    /// use std::{sync::mpsc, time::Duration};
    ///
    /// let (ready, core) = mpsc::channel();
    /// let cores = Cores::builder().threads(1).start(move |_| {
    ///     ready.send(local_timer().shard_ref()).unwrap();
    ///     local_timer().run_until(|| local_timer().counts().cancelled == 1);
    /// })?;
    /// let (tell, told) = mpsc::channel();
    /// let heartbeat = core.recv().unwrap().add_periodic(Duration::from_millis(2), move || {
    ///     tell.send("alive").unwrap();
    /// });
    /// assert_eq!([told.recv(), told.recv()], [Ok("alive"); 2]);
    /// assert_ne!(heartbeat.cancel(), Cancel::Ended); // there is no further run
    /// assert!(cores.join().iter().all(Result::is_ok)); // no core has panicked
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn add_periodic(
        &self,
        period: Duration,
        callback: impl FnMut() + Send + 'static,
    ) -> TimerHandle {
        AddError::or_panic(self.try_add_periodic(period, callback))
    }

    /// Adds a periodic timer, and returns an error where [`add_periodic`](Self::add_periodic)
    /// panics.
    ///
    /// # Errors
    ///
    /// Returns an error if the wheel has ended or is full; see [`try_add`](Self::try_add). The
    /// error contains the callback.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{AddErrorReason, local_timer};
    /// use std::{thread, time::Duration};
    ///
    /// let ended = thread::spawn(|| local_timer().shard_ref()).join().unwrap();
    /// let refused = ended.try_add_periodic(Duration::from_secs(1), || println!("alive"));
    /// assert_eq!(refused.unwrap_err().reason(), AddErrorReason::ShutDown);
    /// ```
    #[track_caller]
    pub fn try_add_periodic<F: FnMut() + Send + 'static>(
        &self,
        period: Duration,
        callback: F,
    ) -> Result<TimerHandle, AddError<F>> {
        if self.is_of_this_thread() {
            return local_timer().try_add_periodic(period, callback);
        }
        let period = self.shared.tick_length.clamp_period_nanos(period);
        let due = self.shared.nanos_after(period);
        self.add_remote(
            TimerSchedule { due, period },
            CallSite::caller(),
            PeriodicClosure(callback),
        )
    }

    /// Runs `callback` once on the thread that owns the wheel, usually in its next turn. The
    /// callback counts as a timer that is already due. If the wheel ends before that turn, the
    /// callback is dropped, or returned by a [drain](crate::LocalTimer::drain). The call ends an
    /// announced sleep of the owner. For the cost, see [`add`](Self::add).
    ///
    /// Closures of one remote thread run in FIFO order. Closures that the owner itself submits run
    /// in no particular order. A [turn](LocalTimer::turn) consumes a limited number of requests,
    /// and leaves the others to later turns. A batch of more than 4,096 closures, adds and resets
    /// waits several turns, until the whole batch is in FIFO order.
    ///
    /// A full wheel refuses closures too, but never a cancel by a handle. If your program sets a
    /// [`Config::limit`](crate::Config::limit), send other commands through your own queue, and
    /// wake the owner by [`unpark`](std::thread::Thread::unpark) or your own waker.
    ///
    /// # Panics
    ///
    /// Panics if the wheel has ended or is full; see [`try_add`](Self::try_add).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::thread;
    ///
    /// let shard = local_timer().shard_ref();
    /// let run = move || shard.run(|| println!("on the first thread, in its next turn"));
    /// let closure = thread::spawn(run).join().unwrap();
    /// local_timer().run_until(|| !closure.is_pending());
    /// ```
    #[inline]
    #[track_caller]
    pub fn run(&self, callback: impl FnOnce() + Send + 'static) -> TimerHandle {
        AddError::or_panic(self.try_run(callback))
    }

    /// Submits `callback` as [`run`](Self::run) does, and returns an error where `run` panics.
    ///
    /// # Errors
    ///
    /// Returns an error if the wheel has ended or is full; see [`try_add`](Self::try_add).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::thread;
    ///
    /// let ended = thread::spawn(|| local_timer().shard_ref()).join().unwrap();
    /// let refused = ended.try_run(|| println!("run here instead"));
    /// refused.unwrap_err().into_inner()();
    /// ```
    #[inline]
    #[track_caller]
    pub fn try_run<F: FnOnce() + Send + 'static>(
        &self,
        callback: F,
    ) -> Result<TimerHandle, AddError<F>> {
        let callback = OneShotClosure(callback);
        self.try_add_with_call_site(CallSite::caller(), When::at_nanos(0), callback)
    }

    /// Runs `callback` once on the thread that owns the wheel, usually in its next turn. Ignores
    /// the limit of live timers. Drops `callback` and returns false if the wheel has ended or all
    /// nodes are in use. Wakes a sleeping owner even after dropping `callback`, because the drop
    /// may request a stop.
    #[track_caller]
    pub(crate) fn run_ignoring_timer_limit(
        &self,
        callback: impl FnOnce() + Send + 'static,
    ) -> bool {
        let schedule_due_at_once = TimerSchedule { due: 0, period: 0 };
        let add_result = self.shared.add_remote(
            schedule_due_at_once,
            CallSite::caller(),
            OneShotClosure(callback),
            true,
        );
        let is_added = add_result.is_ok();
        let sleep_to_interrupt = match add_result {
            Ok(RemoteOutcome { sleep_to_interrupt, .. }) => sleep_to_interrupt,
            Err(add_error) => {
                // `callback` may own a `ThreadStopRequest`, whose drop sets a flag. The owner must
                // see the stop flag before its next sleep, or be woken from its present sleep.
                drop(add_error);
                self.shared.mailbox.request_turn();
                self.shared
                    .parker
                    .sleep_in_progress_with_fence()
                    .filter(|sleep| !sleep.is_undriven())
            }
        };
        if let Some(sleep) = sleep_to_interrupt {
            self.shared.wake(sleep);
        }
        is_added
    }

    #[inline(always)]
    pub(crate) fn try_add_with_call_site<C: IntoCallback<Closure: Send> + Send>(
        &self,
        call_site: CallSite,
        when: impl Into<When>,
        callback: C,
    ) -> Result<TimerHandle, AddError<C::Closure>> {
        if self.is_of_this_thread() {
            let mut callback = Some(callback);
            return Self::add_to_own_wheel(call_site, when, &mut callback)
                .map_err(|reason| LocalTimer::refused_add_error(reason, callback));
        }
        let schedule = TimerSchedule { due: self.shared.deadline_nanos(when.into()), period: 0 };
        self.add_remote(schedule, call_site, callback)
    }

    /// Adds a timer to this thread's wheel. Not inlined, so that only the code of remote adds is
    /// compiled into callers. Converts `when` here, so that the remote path need not build the
    /// `When` in memory.
    #[inline(never)]
    fn add_to_own_wheel<C: IntoCallback>(
        call_site: CallSite,
        when: impl Into<When>,
        callback: &mut Option<C>,
    ) -> Result<TimerHandle, AddErrorReason> {
        ThreadWheel::add_to_current(TimerKind::Shared, call_site, when.into(), callback)
    }

    /// Returns the present time of the wheel's clock, which [`Config::clock`](crate::Config::clock)
    /// can make virtual.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::time::Duration;
    ///
    /// let shard = local_timer().shard_ref();
    /// let deadline = shard.now() + Duration::from_secs(30);
    /// let timer = shard.add(deadline, || println!("at that instant"));
    /// assert!(local_timer().deadline(timer) >= Some(deadline));
    /// ```
    pub fn now(&self) -> Instant {
        self.shared.clock.now()
    }

    /// Returns the latest published counts of the wheel and the lateness of its timers; see
    /// [`metrics`](crate::metrics).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Cores;
    ///
    /// let cores = Cores::builder().threads(2).start(|core| core.run_timers())?;
    /// for shard in cores.shards() {
    ///     println!("{}: {} timers", shard.metrics().name, shard.metrics().counts.live);
    /// }
    /// cores.stop();
    /// # cores.join();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn metrics(&self) -> ShardMetrics {
        ShardMetrics::read_and_request_levels(&self.shared)
    }

    /// Returns the number of pending timers of the wheel.
    ///
    /// The answer is computed from the counts that the owner last published: before each announced
    /// sleep, and about every 64 turns. During an announced sleep, the answer is usually exact,
    /// unless a remote add or reset is queued. A remotely added timer counts only after the owner
    /// has admitted it. Remotely cancelled timers usually do not count.
    ///
    /// For a wheel of `Timers::per_worker`, the counts are usually current. After the end of the
    /// wheel, the answer is zero.
    ///
    /// Cost: a few atomic loads.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::{thread, time::Duration};
    ///
    /// let shard = local_timer().shard_ref();
    /// local_timer().add(Duration::from_secs(30), || println!("idle"));
    /// local_timer().sleep_with(|_timeout| {
    ///     // While this thread sleeps:
    ///     assert_eq!(thread::spawn(move || shard.pending()).join().unwrap(), 1);
    /// });
    /// ```
    pub fn pending(&self) -> usize {
        let counts = self.shared.gauges.counts();
        let uncollected = counts.uncollected + u64::from(self.shared.mailbox.low_priority.depth());
        usize::try_from(counts.live.saturating_sub(uncollected)).unwrap_or(usize::MAX)
    }

    /// Returns true if the wheel has ended: its thread is exiting or has exited, perhaps by a
    /// panic, or the wheel was drained. Other threads may see the end a little later.
    ///
    /// # Examples
    ///
    /// A supervisor that looks for a dead core:
    ///
    /// ```
    /// use corewheel::{Cores, ShardRef};
    ///
    /// let cores = Cores::builder().threads(2).start(|core| {
    ///     assert_eq!(core.index(), 0, "the second thread panics");
    ///     core.run_timers();
    /// })?;
    /// while !cores.shards().iter().any(ShardRef::has_ended) {
    ///     std::thread::yield_now();
    /// }
    /// cores.stop();
    /// assert!(cores.join()[1].is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn has_ended(&self) -> bool {
        self.shared.mailbox.is_closed()
    }

    /// Returns true if this reference is to the current thread's wheel. Compares more than the
    /// shard numbers, because a later wheel may reuse the shard number of an ended wheel.
    #[inline]
    pub(crate) fn is_of_this_thread(&self) -> bool {
        let is_same_wheel = |wheel: &ThreadWheel| Arc::ptr_eq(&wheel.shared, &self.shared);
        ThisThreadWheel::get().is_some_and(|wheel| wheel.shard == self.shared.number)
            && ThreadWheel::with(is_same_wheel).unwrap_or(false)
    }

    /// Adds a remote timer, and wakes the owner if necessary. If the shard is full, wakes the owner
    /// if queued messages may make room.
    #[inline(always)]
    fn add_remote<C: IntoCallback<Closure: Send> + Send>(
        &self,
        schedule: TimerSchedule,
        call_site: CallSite,
        callback: C,
    ) -> Result<TimerHandle, AddError<C::Closure>> {
        match self.shared.add_remote(schedule, call_site, callback, false) {
            Ok(RemoteOutcome {
                answer: RemotelyAddedId { index, generation },
                sleep_to_interrupt,
            }) => {
                if let Some(sleep) = sleep_to_interrupt {
                    self.shared.wake(sleep);
                }
                Ok(TimerHandle::new(self.shared.number, index, generation))
            }
            Err(add_error) => {
                if add_error.reason() == AddErrorReason::Full {
                    self.shared.wake_to_make_room();
                }
                Err(add_error)
            }
        }
    }
}

/// Two references are equal if they refer to the same wheel.
impl PartialEq for ShardRef {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl Eq for ShardRef {}

impl fmt::Debug for ShardRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ShardRef").field(&self.shared.number).finish()
    }
}
