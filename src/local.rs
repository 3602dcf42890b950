//! `local_timer()`: the thread's own timer, a shard of callbacks.
//!
//! The shard is borrowed for one step at a time and never while the user's code runs: a callback, a hook or a destructor
//! may add, cancel, reset and even turn (P5).

#[cfg(all(feature = "fd", any(target_os = "linux", target_os = "android")))]
mod descriptor;
mod inner;
mod services;
mod shard_ref;
mod telling;

use std::{
    cell::Cell,
    marker::PhantomData,
    time::{Duration, Instant},
};

use self::inner::Local;
pub(crate) use self::services::Flush;
pub use self::shard_ref::ShardRef;
use crate::{
    callback::{Callback, Once, Repeated},
    clock::Clock,
    config::Config,
    error::{AddError, AddErrorReason, ConfigError},
    handle::{LocalHandle, TimerHandle},
    origin::Origin,
    shard::{Due, PreparedSleep, Schedule, Shard},
    state::Kind,
    tick::saturating_nanos,
};

/// This thread's timer. It is made on first use, with a tick of a millisecond and the monotonic clock; to change that,
/// install a [`Config`] first.
///
/// It fires nothing by itself: the thread's loop calls [`turn`](LocalTimer::turn), and asks how long it may sleep with
/// [`prepare_sleep`](LocalTimer::prepare_sleep). When the thread ends, its pending callbacks are dropped and its handles
/// are stale. What a thread that is exiting asks after that is answered as if it were empty: its length is zero, a turn
/// fires nothing, [`try_add`](LocalTimer::try_add) is an error and [`add`](LocalTimer::add) panics. The same holds for
/// a thread that cannot have a timer because 16 384 shards exist.
///
/// # Examples
///
/// A loop that does nothing but timers:
///
/// ```
/// use corewheel::local_timer;
/// use std::{thread, time::Duration};
///
/// local_timer().add(Duration::from_millis(5), || println!("five milliseconds later"));
/// while !local_timer().is_empty() {
///     let sleep = local_timer().prepare_sleep();
///     match sleep.timeout() {
///         Some(timeout) => thread::park_timeout(timeout),
///         None => thread::park(),
///     }
///     drop(sleep);
///     local_timer().turn();
/// }
/// ```
pub fn local_timer() -> LocalTimer {
    LocalTimer(PhantomData)
}

/// The timer of the thread that holds it; from [`local_timer`]. It holds nothing: copy it, or call `local_timer` again.
#[derive(Clone, Copy, Debug)]
pub struct LocalTimer(PhantomData<*const ()>);

/// What a turn did, and what it left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Turn {
    /// Callbacks run: each timer that fired and each run of a periodic one.
    pub fired: usize,
    /// Timers taken in that other cores had cancelled.
    pub collected: usize,
    /// Timers left live.
    pub live: usize,
    /// Entries of the wheel that the turn touched.
    pub touched: u64,
    /// The budget was used up: something is left that was due.
    pub behind: bool,
    /// The turn was called from a callback of another one, and did nothing.
    pub nested: bool,
}

impl LocalTimer {
    /// Runs `callback` once, `delay` from now by a clock reading taken in the call: in the first turn at or after that
    /// moment, rounded up to a tick; never early, and never in a turn that has begun. Zero means at the next tick, and
    /// anything beyond 584 years never.
    ///
    /// Cost: constant, one reading of the clock. It allocates when more timers are live than ever before, and for a
    /// callback that captures more than 32 bytes or something aligned to more than 8.
    ///
    /// # Panics
    ///
    /// If the thread is exiting and its timer has ended, cannot have one, or is full; see [`try_add`](Self::try_add).
    #[track_caller]
    pub fn add(self, delay: Duration, callback: impl FnOnce() + 'static) -> TimerHandle {
        self.try_add(delay, callback).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Runs `callback` once at `instant` (of the timer's clock, see [`now`](Self::now)), or in the next turn if that has
    /// passed. Otherwise as [`add`](Self::add).
    ///
    /// # Panics
    ///
    /// As [`add`](Self::add).
    #[track_caller]
    pub fn add_at(self, instant: Instant, callback: impl FnOnce() + 'static) -> TimerHandle {
        let due = |shard: &mut Shard<Callback>| Due::at(shard.clock().nanos_at(instant));
        Self::insert(Kind::Shared, Origin::caller(), due, callback).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Runs `callback` once, at any tick from `delay` to `delay + slack` from now. The timer meets others that have some
    /// slack there, so that one wake-up of the loop serves many of them; see
    /// [`Wheel::insert_within`](crate::Wheel::insert_within). Otherwise as [`add`](Self::add); a reset makes it exact.
    ///
    /// # Panics
    ///
    /// As [`add`](Self::add).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::time::Duration;
    ///
    /// // A cache entry may live half a second longer than it must.
    /// local_timer().add_within(Duration::from_secs(60), Duration::from_millis(500), || println!("expired"));
    /// ```
    #[track_caller]
    pub fn add_within(self, delay: Duration, slack: Duration, callback: impl FnOnce() + 'static) -> TimerHandle {
        let due = |shard: &mut Shard<Callback>| Due::within(shard.nanos_after(delay), slack);
        Self::insert(Kind::Shared, Origin::caller(), due, callback).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Runs `callback` once, between `delay` and `delay + range` from now, each timer at another moment: those that are added
    /// together do not fire together. (The moments follow a sequence that fills the range evenly, however many they
    /// are.) Otherwise as [`add`](Self::add); a reset makes it exact.
    ///
    /// # Panics
    ///
    /// As [`add`](Self::add).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::time::Duration;
    ///
    /// // All clients lost their connection at the same moment; they shall not come back at the same one.
    /// local_timer().add_spread(Duration::from_secs(1), Duration::from_secs(4), || println!("reconnect"));
    /// ```
    #[track_caller]
    pub fn add_spread(self, delay: Duration, range: Duration, callback: impl FnOnce() + 'static) -> TimerHandle {
        let due = |shard: &mut Shard<Callback>| Due::at(shard.nanos_spread(delay, range));
        Self::insert(Kind::Shared, Origin::caller(), due, callback).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Runs `callback` every `period`, the first time one period from now, until it is cancelled. Runs keep to their
    /// schedule (the period does not drift, whatever the tick); those that were missed because the loop came late are
    /// skipped. A period shorter than a tick, zero included, counts as a tick.
    ///
    /// The callback may cancel its own timer; it is dropped after that run. A run that panics is reported, and the timer
    /// goes on.
    ///
    /// # Panics
    ///
    /// As [`add`](Self::add).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{TimerHandle, local_timer};
    /// use std::{cell::Cell, rc::Rc, time::Duration};
    ///
    /// let heartbeat = local_timer().add_periodic(Duration::from_secs(1), || println!("alive"));
    /// heartbeat.cancel();
    ///
    /// // One that ends itself gets its handle by way of a cell:
    /// let own = Rc::new(Cell::new(None::<TimerHandle>));
    /// let (handle, mut left) = (Rc::clone(&own), 3);
    /// own.set(Some(local_timer().add_periodic(Duration::from_secs(1), move || {
    ///     left -= 1;
    ///     if left == 0 {
    ///         handle.get().map(TimerHandle::cancel); // answers `Running`; there is no further run
    ///     }
    /// })));
    /// ```
    #[track_caller]
    pub fn add_periodic(self, period: Duration, callback: impl FnMut() + 'static) -> TimerHandle {
        Self::insert_periodic(period, Origin::caller(), callback).unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`add`](Self::add), with an error instead of a panic.
    ///
    /// # Errors
    ///
    /// If the thread is exiting and its timer has ended, 16 384 shards exist, or it is full: as many timers are live as may
    /// be ([`Config::limit`], at most 2^25). The error carries the callback back.
    #[track_caller]
    pub fn try_add<F: FnOnce() + 'static>(self, delay: Duration, callback: F) -> Result<TimerHandle, AddError<F>> {
        Self::insert(Kind::Shared, Origin::caller(), |shard| Due::at(shard.nanos_after(delay)), callback)
    }

    /// As [`add`](Self::add), for a timer that only this thread will cancel: its ending needs no atomic swap.
    ///
    /// # Panics
    ///
    /// As [`add`](Self::add).
    #[track_caller]
    pub fn add_local(self, delay: Duration, callback: impl FnOnce() + 'static) -> LocalHandle {
        self.try_add_local(delay, callback).unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`add_local`](Self::add_local), with an error instead of a panic.
    ///
    /// # Errors
    ///
    /// As [`try_add`](Self::try_add).
    #[track_caller]
    pub fn try_add_local<F: FnOnce() + 'static>(
        self,
        delay: Duration,
        callback: F,
    ) -> Result<LocalHandle, AddError<F>> {
        let due = |shard: &mut Shard<Callback>| Due::at(shard.nanos_after(delay));
        Self::insert(Kind::Private, Origin::caller(), due, callback).map(LocalHandle::new)
    }

    /// Runs every callback that is due, in the order of the deadlines (within a tick the order is unspecified), and then
    /// takes in what other cores have cancelled, moved and added, up to 1 024 messages; of that it runs what is due by then. If
    /// there were more, the rest comes in the next turn, which [`Turn::behind`] and a zero
    /// [`time_until_next`](Self::time_until_next) ask for. What a callback adds fires in a later turn.
    ///
    /// A callback that panics is caught and reported; the others run. Called from inside a callback it does nothing and
    /// says so ([`Turn::nested`]).
    ///
    /// Cost: one reading of the clock and some tens of nanoseconds when nothing is due; constant per timer besides the
    /// callback. Timers that wait further ahead than the wheel's first level reaches are moved down a few per tick, and at most
    /// 96 per tick that were reset away from it are looked at.
    pub fn turn(self) -> Turn {
        self.turn_within(usize::MAX)
    }

    /// As [`turn`](Self::turn), but touches at most `budget` entries (fired, or moved within the wheel), and takes in at most
    /// as many messages of other cores. What is left comes first in the next turn, in order;
    /// [`Turn::behind`] tells, and until then [`time_until_next`](Self::time_until_next) is zero.
    pub fn turn_within(self, budget: usize) -> Turn {
        Local::with(|local| local.turn(budget)).unwrap_or_default()
    }

    /// When the thread's timer next wants a turn. See [`Shard::next_deadline`].
    pub fn next_deadline(self) -> Option<Instant> {
        Local::with(|local| local.step(|shard| shard.next_deadline())).ok().flatten()
    }

    /// How long until the [`next_deadline`](Self::next_deadline); zero if it has come. Changes nothing; reads the
    /// clock.
    pub fn time_until_next(self) -> Option<Duration> {
        Local::with(|local| local.step(|shard| shard.time_until_next())).ok().flatten()
    }

    /// Announces that the thread is going to sleep, for at most [`PreparedSleep::timeout`]. From here on whatever cannot wait
    /// calls the wake hook ([`Config::on_wake`]), until the [`PreparedSleep`] is dropped: a timer that another core adds or
    /// moves to an earlier moment than the sleep ends, the 1 024th message that waits to be taken in, and also an earlier
    /// timer that this thread itself adds before it sleeps.
    ///
    /// In a thread that is exiting, whose timer has ended, the timeout is zero.
    pub fn prepare_sleep(self) -> PreparedSleep<'static> {
        Local::with(Local::prepare_sleep).unwrap_or_else(|_| PreparedSleep::ended())
    }

    /// A reference by which other threads can add to this thread's timer.
    ///
    /// # Panics
    ///
    /// If the thread is exiting and its timer has ended, or cannot have one because 16 384 shards exist.
    #[track_caller]
    pub fn shard_ref(self) -> ShardRef {
        Local::with(Local::shard_ref).unwrap_or_else(|reason| panic!("no timer to refer to: {reason}"))
    }

    /// How many timers are live, held ones included. What other cores have added counts from when the owner has taken it in.
    pub fn len(self) -> usize {
        Local::with(|local| local.step(|shard| shard.len())).unwrap_or(0)
    }

    /// Whether no timer is live.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// What time it is by this thread's timer: real, or virtual as its [`Config`] says.
    pub fn now(self) -> Instant {
        Local::with(|local| local.step(|shard| shard.now())).unwrap_or_else(|_| Clock::monotonic().now())
    }

    /// Adds a one-shot timer; the error carries the callback back.
    #[inline]
    fn insert<F: FnOnce() + 'static>(
        kind: Kind,
        origin: Origin,
        due: impl FnOnce(&mut Shard<Callback>) -> Due,
        callback: F,
    ) -> Result<TimerHandle, AddError<F>> {
        let mut callback = Some(callback);
        let added = Local::with(|local| {
            let handle = local.add(kind, origin, due)?;
            local.set_callback(handle, Once::new(accepted(&mut callback)).into());
            Some(handle)
        });
        refused(added, callback)
    }

    /// Adds a periodic timer.
    fn insert_periodic<F: FnMut() + 'static>(
        period: Duration,
        origin: Origin,
        callback: F,
    ) -> Result<TimerHandle, AddError<F>> {
        let mut callback = Some(callback);
        let schedule = Cell::new(Schedule::default());
        let due = |shard: &mut Shard<Callback>| {
            let period = shard.at_least_a_tick(period);
            let due = shard.nanos_after(period);
            schedule.set(Schedule { due, period: saturating_nanos(period) });
            Due::at(due)
        };
        let added = Local::with(|local| {
            let handle = local.add(Kind::Periodic, origin, due)?;
            local.step(|shard| shard.set_schedule(handle, schedule.get()));
            local.set_callback(handle, Repeated::new(accepted(&mut callback)).into());
            Some(handle)
        });
        refused(added, callback)
    }
}

/// The callback, which stays with the caller until it can only be accepted.
#[inline]
fn accepted<F>(callback: &mut Option<F>) -> F {
    callback.take().unwrap_or_else(|| unreachable!("a callback is accepted once"))
}

/// The handle, or the callback that was not accepted.
#[inline]
fn refused<F>(
    added: Result<Option<TimerHandle>, AddErrorReason>,
    callback: Option<F>,
) -> Result<TimerHandle, AddError<F>> {
    match (added, callback) {
        (Ok(Some(handle)), _) => Ok(handle),
        (Ok(None), Some(callback)) => Err(AddError::new(Local::refusal(), callback)),
        (Err(reason), Some(callback)) => Err(AddError::new(reason, callback)),
        (_, None) => unreachable!("a callback that was accepted has a handle"),
    }
}

impl Config {
    /// Makes this thread's timer as configured. Call it before anything else uses [`local_timer`] in the thread.
    ///
    /// # Errors
    ///
    /// If the thread's timer is in use already, the tick is shorter than a microsecond, or 16 384 shards exist.
    pub fn install(self) -> Result<(), ConfigError> {
        Local::install(self)
    }
}
