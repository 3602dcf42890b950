//! A reference to another core's timer, by which it can be added to.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{LocalTimer, local_timer};
use crate::{
    callback::Sent,
    error::{AddError, AddErrorReason},
    handle::{Owner, TimerHandle},
    metrics::ShardMetrics,
    origin::Origin,
    shared::{Armed, Remote, Shared},
};

/// The timer of a thread, to be added to from any other; from [`LocalTimer::shard_ref`](crate::LocalTimer::shard_ref) or
/// [`Cores::shards`](crate::Cores::shards).
///
/// The callback runs on the thread that owns the timer, in its turn. A reference keeps no thread and no timer alive: when the
/// thread has ended, adding is an error. (It keeps what the thread's timer shared with others: its hooks, a descriptor that it
/// opened, and the empty nodes, 80 bytes for each timer that was live at once.)
///
/// # Examples
///
/// ```
/// use corewheel::{Cancel, Cores, local_timer};
/// use std::{sync::mpsc, time::Duration};
///
/// let (ready, core) = mpsc::channel();
/// let cores = Cores::builder().shards(1).start(move |_| {
///     ready.send(local_timer().shard_ref()).unwrap();
///     while local_timer().turn().fired == 0 {
///         local_timer().prepare_sleep().park(); // an add from elsewhere wakes it
///     }
/// })?;
/// let core = core.recv().unwrap();
/// let handle = core.add(Duration::from_secs(30), || println!("not today"));
/// assert_eq!(handle.cancel(), Cancel::Cancelled);
/// core.add(Duration::from_millis(1), || println!("on the other core"));
/// cores.join();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct ShardRef {
    number: u32,
    shared: Arc<Shared>,
}

impl ShardRef {
    pub(crate) fn new(number: u32, shared: Arc<Shared>) -> Self {
        Self { number, shared }
    }

    /// Runs `callback` once on the thread that owns the timer, `delay` from now by a reading of that timer's clock taken in
    /// the call: in the first of its turns at or after that moment, rounded up to a tick. The handle works at once, also before
    /// the owner has heard of the timer. See [`LocalTimer::add`](crate::LocalTimer::add).
    ///
    /// On the owning thread itself this is `LocalTimer::add`.
    ///
    /// Cost: constant; some compare-and-swaps, no lock (but for a table, once for 131 072 timers), and no allocation in the
    /// steady state. It allocates when it needs another page, for 512 timers from elsewhere, and for a callback that captures
    /// more than 32 bytes. If the owner sleeps beyond the new deadline, it is woken.
    ///
    /// # Panics
    ///
    /// If the thread's timer has ended or is full; see [`try_add`](Self::try_add).
    #[track_caller]
    pub fn add(&self, delay: Duration, callback: impl FnOnce() + Send + 'static) -> TimerHandle {
        AddError::or_panic(self.try_add(delay, callback))
    }

    /// As [`add`](Self::add), with an error instead of a panic.
    ///
    /// # Errors
    ///
    /// If the thread has ended, or its timer is full: as many timers are live as may be
    /// ([`Config::limit`](crate::Config::limit), at most 2^25 - 1); others that are being refused at this moment may count. The error
    /// carries the callback back.
    #[track_caller]
    pub fn try_add<F: FnOnce() + Send + 'static>(
        &self,
        delay: Duration,
        callback: F,
    ) -> Result<TimerHandle, AddError<F>> {
        if self.is_own() {
            return local_timer().try_add(delay, callback);
        }
        self.send(self.shared.due_after(delay), Origin::caller(), callback)
    }

    /// Runs `callback` once on the thread that owns the timer, at `instant` of that timer's clock (see [`now`](Self::now)), or by the
    /// next tick if that has passed. Otherwise as [`add`](Self::add).
    ///
    /// # Panics
    ///
    /// As [`add`](Self::add).
    #[track_caller]
    pub fn add_at(
        &self,
        instant: Instant,
        callback: impl FnOnce() + Send + 'static,
    ) -> TimerHandle {
        AddError::or_panic(self.try_add_at(instant, callback))
    }

    /// As [`add_at`](Self::add_at), with an error instead of a panic.
    ///
    /// # Errors
    ///
    /// As [`try_add`](Self::try_add).
    #[track_caller]
    pub fn try_add_at<F: FnOnce() + Send + 'static>(
        &self,
        instant: Instant,
        callback: F,
    ) -> Result<TimerHandle, AddError<F>> {
        self.try_add_to(self.shared.clock().nanos_at(instant), Origin::caller(), callback)
    }

    /// Runs `callback` once on the thread that owns the timer, in its next turn: a timer that is due already. A
    /// sleeping owner is woken. Otherwise as [`add`](Self::add).
    ///
    /// What one other thread asks to be run runs in the order in which it asks. A turn takes in up to 1 024 messages, or its budget, and
    /// half as many of these where cancels wait too; what came last is left to the next ones. Of more than 4 096 that wait, a turn
    /// first puts 4 096 into their order, and runs none before that is done for all. (The owner's own requests have no order.)
    ///
    /// # Panics
    ///
    /// As [`add`](Self::add).
    #[track_caller]
    pub fn run(&self, callback: impl FnOnce() + Send + 'static) -> TimerHandle {
        AddError::or_panic(self.try_run(callback))
    }

    /// As [`run`](Self::run), with an error instead of a panic.
    ///
    /// # Errors
    ///
    /// As [`try_add`](Self::try_add).
    #[track_caller]
    pub fn try_run<F: FnOnce() + Send + 'static>(
        &self,
        callback: F,
    ) -> Result<TimerHandle, AddError<F>> {
        if self.is_own() {
            return LocalTimer::try_run(Origin::caller(), callback);
        }
        self.send(0, Origin::caller(), callback)
    }

    /// Runs `callback` once on the thread that owns the timer, in its next turn or what is left of this one, even if the timer
    /// is full. Drops it if the thread has ended. A sleeping owner is woken.
    #[track_caller]
    pub(crate) fn post(&self, callback: impl FnOnce() + Send + 'static) {
        // An error drops the callback.
        if let Ok(Remote { wake: Some(asleep), .. }) =
            self.shared.post(Origin::caller(), Sent::new(callback))
        {
            self.shared.wake(asleep);
        }
    }

    /// As [`try_add`](Self::try_add), due when the clock shows `nanos`.
    pub(crate) fn try_add_to<F: FnOnce() + Send + 'static>(
        &self,
        nanos: u64,
        origin: Origin,
        callback: F,
    ) -> Result<TimerHandle, AddError<F>> {
        if self.is_own() {
            return LocalTimer::try_add_to(nanos, origin, callback);
        }
        self.send(nanos, origin, callback)
    }

    /// What time it is by that timer: real, or virtual as its [`Config`](crate::Config) says.
    pub fn now(&self) -> Instant {
        self.shared.clock().now()
    }

    /// What that timer did, as it last said, and how late its timers fire; see [`metrics`](crate::metrics).
    pub fn metrics(&self) -> ShardMetrics {
        ShardMetrics::wanted(self.number, &self.shared)
    }

    /// Which shard it is: several can have had the same number, one after the other.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// What the thread's timer shares with others: its clock, for one.
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Whether it refers to this thread's own timer: not to one that had the same number before.
    pub(crate) fn is_own(&self) -> bool {
        Owner::is_of(self.number) && LocalTimer::is_made_of(&self.shared)
    }

    fn send<F: FnOnce() + Send + 'static>(
        &self,
        nanos: u64,
        origin: Origin,
        callback: F,
    ) -> Result<TimerHandle, AddError<F>> {
        match self.shared.add(nanos, origin, Sent::new(callback)) {
            Ok(Remote { answer: Armed { index, generation }, wake }) => {
                if let Some(asleep) = wake {
                    self.shared.wake(asleep);
                }
                Ok(TimerHandle::new(self.number, index, generation))
            }
            Err((reason, callback)) => {
                if reason == AddErrorReason::Full {
                    self.shared.ask_for_room();
                }
                let callback =
                    callback.into_inner().unwrap_or_else(|| unreachable!("it was made of an `F`"));
                Err(AddError::new(reason, callback))
            }
        }
    }
}

impl fmt::Debug for ShardRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ShardRef").field(&self.number).finish()
    }
}
