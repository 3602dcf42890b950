//! The methods that add to a thread's wheel, and their common path.

use std::time::Duration;

use super::{LocalTimer, inner::Local};
use crate::{
    cross_core::{
        callback::{Callback, Once, RunAgain, RunOnce},
        handle::{LocalHandle, TimerHandle},
        origin::Origin,
        slab::Build,
        state::Kind,
    },
    error::{AddError, AddErrorReason},
    shard::{Due, Shard},
    when::When,
};

impl LocalTimer {
    /// Runs `callback` once, after a delay, at an instant, or roughly then; see [`When`]. It runs in
    /// the first turn at or after that moment, rounded up to a tick; never early, and never in a
    /// turn that has begun. A zero delay runs in the next turn; a delay beyond 584 years never
    /// runs.
    ///
    /// Cost: constant, one reading of the clock. It allocates another page of memory for 4,096
    /// timers, and for a callback that captures more than 32 bytes or a value aligned to more than
    /// 8.
    ///
    /// # Panics
    ///
    /// If the thread is exiting and its wheel has ended, cannot have one, or is full; see
    /// [`try_add`](Self::try_add).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{When, local_timer};
    /// use std::time::Duration;
    ///
    /// local_timer().add(Duration::from_secs(30), || println!("close the idle connection"));
    /// let refresh = When::after(Duration::from_secs(60)).slack(Duration::from_secs(1));
    /// local_timer().add(refresh, || println!("refresh the statistics"));
    /// ```
    #[inline]
    #[track_caller]
    pub fn add(self, when: impl Into<When>, callback: impl FnOnce() + 'static) -> TimerHandle {
        let (when, origin) = (when.into(), Origin::caller());
        match when.delay() {
            Some(delay) => Self::add_after(delay, callback),
            None => AddError::or_panic(Self::try_add_roughly(Kind::Shared, origin, when, callback)),
        }
    }

    /// Runs `callback` once, and returns an error where [`add`](Self::add) panics.
    ///
    /// # Errors
    ///
    /// If the thread is exiting and its wheel has ended, 16,384 shards exist, or the wheel has
    /// reached its limit of live timers ([`Config::limit`](crate::Config::limit), at most 2^25 -
    /// 1). The error carries the callback back.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, local_timer};
    /// use std::time::Duration;
    ///
    /// Config::new().limit(1).install()?;
    /// local_timer().add(Duration::from_secs(5), || println!("the only one"));
    /// if let Err(refused) = local_timer().try_add(Duration::from_secs(5), || println!("at once")) {
    ///     refused.into_inner()();
    /// }
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    #[inline]
    #[track_caller]
    pub fn try_add<F: FnOnce() + 'static>(
        self,
        when: impl Into<When>,
        callback: F,
    ) -> Result<TimerHandle, AddError<F>> {
        let (when, origin) = (when.into(), Origin::caller());
        match when.delay() {
            Some(delay) => Self::insert_after(Kind::Shared, origin, delay, callback),
            None => Self::try_add_roughly(Kind::Shared, origin, when, callback),
        }
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

    /// Runs `callback` once, and lets only this thread cancel the timer, so that its ending needs no
    /// atomic swap. See [`add`](Self::add) for the rest.
    ///
    /// # Panics
    ///
    /// If the thread has no wheel, or its wheel is full; see [`try_add`](Self::try_add).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{LocalHandle, local_timer};
    /// use std::time::Duration;
    ///
    /// let retry: LocalHandle = local_timer().add_local(Duration::from_millis(250), || println!("again"));
    /// retry.cancel();
    /// ```
    #[inline]
    #[track_caller]
    pub fn add_local(
        self,
        when: impl Into<When>,
        callback: impl FnOnce() + 'static,
    ) -> LocalHandle {
        let (when, origin) = (when.into(), Origin::caller());
        LocalHandle::new(match when.delay() {
            Some(delay) => Self::add_local_after(delay, callback),
            None => {
                AddError::or_panic(Self::try_add_roughly(Kind::Private, origin, when, callback))
            }
        })
    }

    /// Adds a timer that only this thread can cancel, and returns an error where
    /// [`add_local`](Self::add_local) panics.
    ///
    /// # Errors
    ///
    /// If the thread has no wheel, or its wheel is full; see [`try_add`](Self::try_add).
    #[inline]
    #[track_caller]
    pub fn try_add_local<F: FnOnce() + 'static>(
        self,
        when: impl Into<When>,
        callback: F,
    ) -> Result<LocalHandle, AddError<F>> {
        let (when, origin) = (when.into(), Origin::caller());
        let added = match when.delay() {
            Some(delay) => Self::insert_after(Kind::Private, origin, delay, callback),
            None => Self::try_add_roughly(Kind::Private, origin, when, callback),
        };
        added.map(LocalHandle::new)
    }

    /// Adds a one-shot timer after a delay, or panics. The public methods, which choose by `when`,
    /// are inlined: there the choice is a constant.
    #[track_caller]
    fn add_after(delay: Duration, callback: impl FnOnce() + 'static) -> TimerHandle {
        AddError::or_panic(Self::insert_after(Kind::Shared, Origin::caller(), delay, callback))
    }

    #[track_caller]
    fn add_local_after(delay: Duration, callback: impl FnOnce() + 'static) -> TimerHandle {
        AddError::or_panic(Self::insert_after(Kind::Private, Origin::caller(), delay, callback))
    }

    #[inline]
    fn insert_after<F: FnOnce() + 'static>(
        kind: Kind,
        origin: Origin,
        delay: Duration,
        callback: F,
    ) -> Result<TimerHandle, AddError<F>> {
        let due = |shard: &mut Shard<Callback>| Due::at(shard.due_after(delay));
        Self::insert(kind, origin, due, callback)
    }

    /// Adds a one-shot timer at an instant, or with slack or spread.
    fn try_add_roughly<F: FnOnce() + 'static>(
        kind: Kind,
        origin: Origin,
        when: When,
        callback: F,
    ) -> Result<TimerHandle, AddError<F>> {
        Self::insert_roughly(kind, origin, when, Once::new(callback))
            .map_err(|(reason, callback)| AddError::new(reason, callback.into_own()))
    }

    /// Adds a one-shot timer at an instant, or with slack or spread. It is not generic, so that it
    /// makes no second copy of an insertion.
    fn insert_roughly(
        kind: Kind,
        origin: Origin,
        when: When,
        callback: Once,
    ) -> Result<TimerHandle, (AddErrorReason, Once)> {
        Self::insert_built(kind, origin, |shard| shard.due_roughly(when), callback)
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
        let due = |shard: &mut Shard<Callback>| shard.due_every(period);
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
