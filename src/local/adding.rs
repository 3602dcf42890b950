//! The methods that add to a thread's wheel, and their common path.

use std::time::{Duration, Instant};

use super::{LocalTimer, inner::Local};
use crate::{
    cross_core::{
        callback::{Callback, RunAgain, RunOnce},
        handle::{LocalHandle, TimerHandle},
        origin::Origin,
        slab::Build,
        state::Kind,
    },
    error::{AddError, AddErrorReason},
    shard::{Due, Shard},
};

impl LocalTimer {
    /// Runs `callback` once, `delay` from a clock reading taken in this call. It runs in the first
    /// turn at or after that moment, rounded up to a tick; never early, and never in a turn that
    /// has begun. A zero delay runs in the next turn; a delay beyond 584 years never runs.
    ///
    /// Cost: constant, one reading of the clock. It allocates another page of memory for 512
    /// timers, and for a callback that captures more than 32 bytes or a value aligned to more than
    /// 8.
    ///
    /// # Panics
    ///
    /// If the thread is exiting and its wheel has ended, cannot have one, or is full; see
    /// [`try_add`](Self::try_add).
    #[track_caller]
    pub fn add(self, delay: Duration, callback: impl FnOnce() + 'static) -> TimerHandle {
        AddError::or_panic(self.try_add(delay, callback))
    }

    /// Runs `callback` once after `delay`, and returns an error where [`add`](Self::add) panics.
    ///
    /// # Errors
    ///
    /// If the thread is exiting and its wheel has ended, 16,384 shards exist, or the wheel has
    /// reached its limit of live timers ([`Config::limit`](crate::Config::limit), at most 2^25 -
    /// 1). The error carries the callback back.
    #[track_caller]
    pub fn try_add<F: FnOnce() + 'static>(
        self,
        delay: Duration,
        callback: F,
    ) -> Result<TimerHandle, AddError<F>> {
        Self::insert(
            Kind::Shared,
            Origin::caller(),
            |shard| Due::at(shard.due_after(delay)),
            callback,
        )
    }

    /// Runs `callback` once at `instant` of the wheel's clock (see [`now`](Self::now)). An
    /// `instant` in the past is due by the next tick. See [`add`](Self::add) for the rest.
    ///
    /// # Panics
    ///
    /// If the thread has no wheel, or its wheel is full; see [`try_add`](Self::try_add).
    #[track_caller]
    pub fn add_at(self, instant: Instant, callback: impl FnOnce() + 'static) -> TimerHandle {
        AddError::or_panic(self.try_add_at(instant, callback))
    }

    /// Runs `callback` once at `instant`, and returns an error where [`add_at`](Self::add_at)
    /// panics.
    ///
    /// # Errors
    ///
    /// If the thread has no wheel, or its wheel is full; see [`try_add`](Self::try_add).
    #[track_caller]
    pub fn try_add_at<F: FnOnce() + 'static>(
        self,
        instant: Instant,
        callback: F,
    ) -> Result<TimerHandle, AddError<F>> {
        let due = |shard: &mut Shard<Callback>| Due::at(shard.clock().nanos_at(instant));
        Self::insert(Kind::Shared, Origin::caller(), due, callback)
    }

    /// Runs `callback` once, at any tick from `delay` to `delay + slack` from now. Timers with
    /// slack share ticks, so that one wake-up of the loop serves many of them; see
    /// [`Wheel::insert_within`](crate::Wheel::insert_within). A reset makes the deadline exact. See
    /// [`add`](Self::add) for the rest.
    ///
    /// # Panics
    ///
    /// If the thread has no wheel, or its wheel is full; see [`try_add`](Self::try_add).
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
    pub fn add_within(
        self,
        delay: Duration,
        slack: Duration,
        callback: impl FnOnce() + 'static,
    ) -> TimerHandle {
        AddError::or_panic(self.try_add_within(delay, slack, callback))
    }

    /// Runs `callback` once with slack, and returns an error where [`add_within`](Self::add_within)
    /// panics.
    ///
    /// # Errors
    ///
    /// If the thread has no wheel, or its wheel is full; see [`try_add`](Self::try_add).
    #[track_caller]
    pub fn try_add_within<F: FnOnce() + 'static>(
        self,
        delay: Duration,
        slack: Duration,
        callback: F,
    ) -> Result<TimerHandle, AddError<F>> {
        let due = |shard: &mut Shard<Callback>| Due::within(shard.nanos_after(delay), slack);
        Self::insert(Kind::Shared, Origin::caller(), due, callback)
    }

    /// Runs `callback` once, between `delay` and `delay + range` from now, each timer at another
    /// moment: timers that are added together do not fire together. The moments follow a sequence
    /// that fills the range evenly for any number of timers. A reset makes the deadline exact. See
    /// [`add`](Self::add) for the rest.
    ///
    /// # Panics
    ///
    /// If the thread has no wheel, or its wheel is full; see [`try_add`](Self::try_add).
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
    pub fn add_spread(
        self,
        delay: Duration,
        range: Duration,
        callback: impl FnOnce() + 'static,
    ) -> TimerHandle {
        AddError::or_panic(self.try_add_spread(delay, range, callback))
    }

    /// Adds a spread timer, and returns an error where [`add_spread`](Self::add_spread) panics.
    ///
    /// # Errors
    ///
    /// If the thread has no wheel, or its wheel is full; see [`try_add`](Self::try_add).
    #[track_caller]
    pub fn try_add_spread<F: FnOnce() + 'static>(
        self,
        delay: Duration,
        range: Duration,
        callback: F,
    ) -> Result<TimerHandle, AddError<F>> {
        let due = |shard: &mut Shard<Callback>| Due::at(shard.nanos_spread(delay, range));
        Self::insert(Kind::Shared, Origin::caller(), due, callback)
    }

    /// Runs `callback` every `period` until it is cancelled, for the first time one period from
    /// now. Runs keep to their schedule: for any tick, the period does not drift. Runs that were
    /// missed because the loop came late are skipped. A period shorter than a tick, zero included,
    /// counts as a tick.
    ///
    /// The callback may cancel its own timer; it is dropped after that run. A run that panics is
    /// reported, and the timer continues.
    ///
    /// # Panics
    ///
    /// If the thread has no wheel, or its wheel is full; see [`try_add`](Self::try_add).
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
        AddError::or_panic(self.try_add_periodic(period, callback))
    }

    /// Adds a periodic timer, and returns an error where [`add_periodic`](Self::add_periodic)
    /// panics.
    ///
    /// # Errors
    ///
    /// If the thread has no wheel, or its wheel is full; see [`try_add`](Self::try_add).
    #[track_caller]
    pub fn try_add_periodic<F: FnMut() + 'static>(
        self,
        period: Duration,
        callback: F,
    ) -> Result<TimerHandle, AddError<F>> {
        Self::insert_periodic(period, Origin::caller(), callback)
    }

    /// Runs `callback` once after `delay`. Only this thread can cancel the timer, so that its
    /// ending needs no atomic swap. See [`add`](Self::add) for the rest.
    ///
    /// # Panics
    ///
    /// If the thread has no wheel, or its wheel is full; see [`try_add`](Self::try_add).
    #[track_caller]
    pub fn add_local(self, delay: Duration, callback: impl FnOnce() + 'static) -> LocalHandle {
        AddError::or_panic(self.try_add_local(delay, callback))
    }

    /// Adds a timer that only this thread can cancel, and returns an error where
    /// [`add_local`](Self::add_local) panics.
    ///
    /// # Errors
    ///
    /// If the thread has no wheel, or its wheel is full; see [`try_add`](Self::try_add).
    #[track_caller]
    pub fn try_add_local<F: FnOnce() + 'static>(
        self,
        delay: Duration,
        callback: F,
    ) -> Result<LocalHandle, AddError<F>> {
        let due = |shard: &mut Shard<Callback>| Due::at(shard.due_after(delay));
        Self::insert(Kind::Private, Origin::caller(), due, callback).map(LocalHandle::new)
    }

    /// Adds a one-shot timer; the error carries the callback back.
    #[inline]
    pub(super) fn insert<F: FnOnce() + 'static>(
        kind: Kind,
        origin: Origin,
        due: impl FnOnce(&mut Shard<Callback>) -> Due,
        callback: F,
    ) -> Result<TimerHandle, AddError<F>> {
        let callback = RunOnce(callback);
        Self::insert_built(kind, origin, due, callback)
            .map_err(|(reason, RunOnce(callback))| AddError::new(reason, callback))
    }

    /// Adds the timer of a future of this thread, due when the clock shows `nanos`.
    ///
    /// # Panics
    ///
    /// If no loop is registered to turn the wheel.
    #[inline]
    pub(crate) fn try_add_alarm<F: FnOnce() + 'static>(
        nanos: u64,
        origin: Origin,
        callback: F,
    ) -> Result<LocalHandle, AddErrorReason> {
        let added = Local::with(|local| {
            local.assert_driven();
            local.add(Kind::Private, origin, |_| Due::at(nanos), &mut Some(RunOnce(callback)))
        });
        added?.map(LocalHandle::new)
    }

    /// Adds a periodic timer.
    fn insert_periodic<F: FnMut() + 'static>(
        period: Duration,
        origin: Origin,
        callback: F,
    ) -> Result<TimerHandle, AddError<F>> {
        let due = |shard: &mut Shard<Callback>| {
            let period = shard.tick().period(period);
            Due::every(period, shard.nanos_after(Duration::from_nanos(period)))
        };
        Self::insert_built(Kind::Periodic, origin, due, RunAgain(callback))
            .map_err(|(reason, RunAgain(callback))| AddError::new(reason, callback))
    }

    #[inline]
    fn insert_built<B: Build<Callback>>(
        kind: Kind,
        origin: Origin,
        due: impl FnOnce(&mut Shard<Callback>) -> Due,
        callback: B,
    ) -> Result<TimerHandle, (AddErrorReason, B)> {
        let mut callback = Some(callback);
        let added = Local::with(|local| local.add(kind, origin, due, &mut callback));
        added
            .and_then(|added| added)
            .map_err(|reason| (reason, callback.expect("a refused callback stays")))
    }
}
