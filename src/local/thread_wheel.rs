//! The implementation of `local_timer()`. A thread's wheel is an [`Engine`] in a `RefCell`. Each
//! step of an operation borrows the engine, and callbacks run between the steps.

#![allow(unsafe_code)]

use std::{
    any::Any,
    cell::{Cell, OnceCell, RefCell, RefMut},
    marker::PhantomData,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr::NonNull,
    rc::Weak,
    sync::Arc,
    task::Waker,
    time::{Duration, Instant},
};

use super::{ClientId, DrainedTimer, Turn, WheelClient, client::Clients};
use crate::{
    config::Config,
    cross_core::{
        call_site::CallSite,
        callback::{BuildInPlace, Callback, OneShotClosure},
        handle::{Cancel, LocalHandle, ThisThreadWheel, ThisThreadWheelVTable, TimerHandle},
        hooks::PanicPlace,
        shared::Shared,
        slab::{ClaimedTimer, OwnerNodeRef, OwnerSlab, Slab},
        state::TimerKind,
    },
    error::{AddErrorReason, ConfigError},
    limits::SHORT_OVERDUE_GRACE_NANOS,
    shard::{Engine, PreparedSleep, TimerAtClose, UserCodeStep},
    trace::UndrivenReason,
    util::{panics::catch_panic_silently, sync::per_thread},
    when::When,
};

per_thread! {
    static THREAD_WHEEL: OnceCell<ThreadWheel> = OnceCell::new();
}

per_thread! {
    /// A pointer to the value in `THREAD_WHEEL`. `THREAD_WHEEL_PTR` has no destructor, so on most
    /// platforms an access needs no check.
    static THREAD_WHEEL_PTR: Cell<Option<NonNull<ThreadWheel>>> = Cell::new(None);
}

/// Tells whether a loop drives the wheel, a turn is in progress, or the wheel has ended.
#[derive(Clone, Copy, Debug)]
enum DriverState {
    /// A loop has run a turn or computed the length of a sleep, and no turn is in progress.
    BetweenTurns,
    InTurn,
    /// A driver has registered, but has not begun to drive the wheel.
    DriverRegistered,
    /// The wheel has no driver, but a loop is expected: the thread has installed a configuration,
    /// or the only driver was a finished `run_until`.
    DriverExpected,
    /// The wheel has no driver, and none is expected. A driving task also sets this state while it
    /// polls its own sleep.
    NoDriverExpected,
    /// The wheel was drained.
    Ended,
}

/// Replaces the state `InTurn` by `BetweenTurns`, even if the turn panics.
struct TurnGuard<'turn>(&'turn Cell<DriverState>);

impl Drop for TurnGuard<'_> {
    fn drop(&mut self) {
        self.0.set(DriverState::BetweenTurns);
    }
}

/// A driver of a thread's wheel.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DriverKind {
    RunUntil,
    Task(DriverTaskId),
    #[cfg(all(feature = "fd", any(target_os = "linux", target_os = "android")))]
    TimerFd,
}

/// Registers a driver of this thread's wheel. Dropping this value ends the registration.
#[derive(Debug)]
pub(crate) struct DriverRegistration {
    kind: DriverKind,
    not_send: PhantomData<*const ()>,
}

impl DriverRegistration {
    pub(crate) fn new(kind: DriverKind) -> Self {
        // Ignores an error: a thread without a wheel has nothing to drive.
        let _ = ThreadWheel::with(ThreadWheel::add_driver);
        Self { kind, not_send: PhantomData }
    }
}

impl Drop for DriverRegistration {
    fn drop(&mut self) {
        let _ = ThreadWheel::with(|thread_wheel| thread_wheel.remove_driver(self.kind));
    }
}

/// Restores the state `BetweenTurns`, even if the poll in [`ThreadWheel::poll_driver_sleep`]
/// panics.
struct DriverPollGuard;

impl Drop for DriverPollGuard {
    fn drop(&mut self) {
        let _ = ThreadWheel::with(|thread_wheel| {
            if let DriverState::NoDriverExpected = thread_wheel.driver_state.get() {
                thread_wheel.driver_state.set(DriverState::BetweenTurns);
            }
        });
    }
}

/// Identifies a task of `future::drive` among the drivers of one wheel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DriverTaskId(u32);

/// A thread's wheel and the state of its loop.
pub(crate) struct ThreadWheel {
    /// Never borrowed while the user's code runs, except the function of a `Clock::from_fn`.
    engine: RefCell<Engine<Callback>>,
    pub(crate) shared: Arc<Shared>,
    driver_state: Cell<DriverState>,
    /// The number of `TimerFd`s, tasks and calls of `run_until` that drive the wheel.
    driver_count: Cell<u32>,
    /// The wakers of driving tasks. A task adds its waker before it announces a sleep.
    driver_task_wakers: RefCell<Vec<(DriverTaskId, Arc<Waker>)>>,
    next_driver_task_id: Cell<u32>,
    /// True if the user's loop has called `register_driver`, or drove the wheel before the first
    /// task or `TimerFd` registered.
    has_user_loop: Cell<bool>,
    clients: RefCell<Clients>,
    /// True if the purgatories must send their queued messages before a sleep or at the end of a
    /// turn.
    pub(crate) flush_is_requested: Cell<bool>,
    /// True if the purgatories must free surplus memory at the end of a turn or before a long
    /// sleep.
    trim_is_requested: Cell<bool>,
    /// The end of the latest announced sleep, in nanoseconds of the clock, or [`KNOWN_AWAKE`].
    /// Unless the value is `KNOWN_AWAKE`, this thread's adds and resets call
    /// `end_sleep_for_deadline_slow`. At first and after `mark_undriven`, the value is `u64::MAX`,
    /// so that adds and resets check for overdue timers.
    announced_sleep_end: Cell<u64>,
    /// Callbacks are measured once in every `sample_one_in`; zero means never.
    sample_one_in: u32,
    /// The number of callbacks up to the next measured one.
    callbacks_until_sample: Cell<u32>,
}

/// The value of `announced_sleep_end` while the thread is known to be awake.
const KNOWN_AWAKE: u64 = 0;

impl ThreadWheel {
    fn new(config: Config) -> Result<Self, ConfigError> {
        let sample_one_in = config.sample_one_in;
        let engine = Engine::new(config, Slab::for_callbacks(), Callback::note_wheel_end)?;
        let shared = Arc::clone(&engine.shared);
        let thread_wheel = Self {
            engine: RefCell::new(engine),
            shared,
            driver_state: Cell::new(DriverState::NoDriverExpected),
            driver_count: Cell::new(0),
            driver_task_wakers: RefCell::default(),
            next_driver_task_id: Cell::new(0),
            has_user_loop: Cell::new(false),
            clients: RefCell::default(),
            flush_is_requested: Cell::new(false),
            trim_is_requested: Cell::new(false),
            announced_sleep_end: Cell::new(u64::MAX),
            sample_one_in,
            callbacks_until_sample: Cell::new(sample_one_in),
        };
        thread_wheel.mark_undriven();
        thread_wheel.shared.gauges.overdue_grace_nanos.set(SHORT_OVERDUE_GRACE_NANOS);
        Ok(thread_wheel)
    }

    pub(super) fn install(config: Config) -> Result<(), ConfigError> {
        let install_result = THREAD_WHEEL.try_with(|cell| {
            if cell.get().is_some() {
                return Err(ConfigError::ThreadHasWheel);
            }
            let thread_wheel = Self::set_current(cell, Self::new(config)?);
            thread_wheel.replace_undriven_state(DriverState::DriverExpected);
            Ok(())
        });
        install_result.unwrap_or(Err(ConfigError::ThreadHasWheel))
    }

    /// Calls `action` with this thread's wheel, which the first call creates. Returns an error if
    /// the exiting thread has begun to drop the wheel, or too many shards exist.
    #[inline]
    pub(crate) fn with<R>(action: impl FnOnce(&Self) -> R) -> Result<R, AddErrorReason> {
        let thread_wheel = Self::get_or_create()?;
        // SAFETY: the thread's wheel does not move, and `action` cannot keep the reference beyond
        // this call. The wheel is dropped only when the thread exits or calls `process::exit`. If
        // `action` calls `process::exit`, that call never returns, so `action` cannot use the
        // dropped wheel. Another thread can have references only to a callback's captures in a
        // node. While such references may exist, `Drop for ThreadWheel` leaks the nodes. The
        // destructor first clears `THREAD_WHEEL_PTR`, so that no later call finds the dropped
        // wheel.
        Ok(action(unsafe { thread_wheel.as_ref() }))
    }

    #[inline]
    pub(crate) fn with_current_engine<R>(
        step: impl FnOnce(&mut Engine<Callback>) -> R,
    ) -> Result<R, AddErrorReason> {
        Self::with(|thread_wheel| thread_wheel.with_engine(step))
    }

    #[inline]
    fn get_or_create() -> Result<NonNull<Self>, AddErrorReason> {
        THREAD_WHEEL_PTR.try_with(Cell::get).ok().flatten().map_or_else(Self::create, Ok)
    }

    #[cold]
    #[inline(never)]
    fn create() -> Result<NonNull<Self>, AddErrorReason> {
        let creation_result = THREAD_WHEEL.try_with(|cell| {
            // The default configuration is valid, so the only possible error is too many shards.
            let wheel = Self::new(Config::new()).map_err(|_| AddErrorReason::TooManyShards)?;
            Ok(NonNull::from(Self::set_current(cell, wheel)))
        });
        creation_result.unwrap_or(Err(AddErrorReason::ShutDown))
    }

    /// Makes `thread_wheel` the wheel of this thread, and returns it. If the thread already has a
    /// wheel, drops `thread_wheel` and returns that wheel. A wheel exists already only if the
    /// function of a `Clock::from_fn` has used corewheel, which such a function must not do.
    fn set_current(cell: &OnceCell<Self>, thread_wheel: Self) -> &Self {
        let thread_wheel = cell.get_or_init(|| thread_wheel);
        ThisThreadWheel::register(Some(ThisThreadWheel {
            shard: thread_wheel.shared.number,
            vtable: &THIS_THREAD_WHEEL_VTABLE,
        }));
        // Fails only if the exiting thread has destroyed `THREAD_WHEEL_PTR`.
        let _ = THREAD_WHEEL_PTR.try_with(|pointer| pointer.set(Some(NonNull::from(thread_wheel))));
        thread_wheel
    }

    pub(super) fn is_in_turn() -> bool {
        Self::with(|wheel| matches!(wheel.driver_state.get(), DriverState::InTurn)) == Ok(true)
    }

    /// Returns true if the thread's wheel was drained, or the exiting thread has begun to drop it.
    #[inline]
    pub(crate) fn has_ended() -> bool {
        // `get` costs one load, and returns `Some` if the thread owns a live wheel.
        ThisThreadWheel::get().is_none() && Self::has_ended_slow()
    }

    #[cold]
    fn has_ended_slow() -> bool {
        let has_ended = |cell: &OnceCell<Self>| {
            cell.get().is_some_and(|wheel| matches!(wheel.driver_state.get(), DriverState::Ended))
        };
        THREAD_WHEEL.try_with(has_ended).unwrap_or(true)
    }

    /// Resets a timer of this thread to the deadline that `compute_due` returns. Ends this thread's
    /// announced sleep if it would end after the new deadline. Returns the deadline in nanoseconds,
    /// or `None` if the timer is running or has ended.
    #[inline]
    pub(crate) fn reset(
        handle: TimerHandle,
        compute_due: impl FnOnce(&mut Engine<Callback>) -> u64,
    ) -> Option<u64> {
        let new_due = Self::with(|thread_wheel| {
            let due = thread_wheel.with_engine(|engine| engine.reset(handle, compute_due))?;
            thread_wheel.end_sleep_for_deadline(due);
            Some(due)
        });
        new_due.ok().flatten()
    }

    /// Calls `step` with the engine. `step` must not call user code, except the function of a
    /// `Clock::from_fn`.
    #[inline(always)]
    pub(super) fn with_engine<R>(&self, step: impl FnOnce(&mut Engine<Callback>) -> R) -> R {
        step(&mut self.engine.borrow_mut())
    }

    #[inline(always)]
    pub(super) fn add_to_current<B: BuildInPlace<Callback>>(
        kind: TimerKind,
        call_site: CallSite,
        when: When,
        callback: &mut Option<B>,
    ) -> Result<TimerHandle, AddErrorReason> {
        // Does not call `with`, because the compiler would not inline the closure.
        let thread_wheel = Self::get_or_create()?;
        // SAFETY: the wheel is not dropped while this call uses it; see `with`.
        unsafe { thread_wheel.as_ref() }.add(kind, call_site, when, callback)
    }

    /// Adds a timer, and ends this thread's announced sleep if it would end after the timer's
    /// deadline. Takes `callback` out of the `Option`, unless the add is refused.
    #[inline(always)]
    pub(crate) fn add<B: BuildInPlace<Callback>>(
        &self,
        kind: TimerKind,
        call_site: CallSite,
        when: When,
        callback: &mut Option<B>,
    ) -> Result<TimerHandle, AddErrorReason> {
        let mut engine = self.engine_with_room()?;
        let schedule = engine.schedule_for(when, kind);
        let handle = engine.insert(schedule, kind, call_site, callback)?;
        drop(engine);
        if self.may_be_asleep() {
            self.end_sleep_for_timer(handle);
        }
        Ok(handle)
    }

    /// Returns true unless the thread is known to be awake.
    #[inline]
    fn may_be_asleep(&self) -> bool {
        self.announced_sleep_end.get() != KNOWN_AWAKE
    }

    /// Borrows the engine, after making room for another timer if necessary.
    #[inline]
    pub(crate) fn engine_with_room(&self) -> Result<RefMut<'_, Engine<Callback>>, AddErrorReason> {
        let engine = self.engine.borrow_mut();
        if engine.has_add_allowance() {
            return Ok(engine);
        }
        drop(engine);
        self.make_room()?;
        Ok(self.engine.borrow_mut())
    }

    /// [Checks for a missing loop](Self::check_for_missing_loop), and allows a number of adds
    /// before the next check. If the wheel is full, removes remotely cancelled timers until there
    /// is room.
    #[cold]
    #[inline(never)]
    fn make_room(&self) -> Result<(), AddErrorReason> {
        let adds_until_check = self.check_for_missing_loop();
        let make_room = || self.with_engine(|engine| engine.make_room(adds_until_check));
        while let Some(callback) = make_room()? {
            self.shared.hooks.drop_catching_panic(callback);
        }
        Ok(())
    }

    pub(super) fn register_loop(&self) {
        self.has_user_loop.set(true);
        self.replace_undriven_state(DriverState::DriverRegistered);
    }

    fn add_driver(&self) {
        if self.driver_count.replace(self.driver_count.get() + 1) == 0 {
            self.has_user_loop.set(self.has_user_loop.get() || self.is_driven_or_ended());
        }
        self.replace_undriven_state(DriverState::DriverRegistered);
    }

    /// Ends the registration of a driver, and marks the wheel as undriven if no driver is left. If
    /// the driver is a `run_until` or a task, also wakes the other drivers, because a sleep of this
    /// driver may have replaced the sleep that another driver announced.
    fn remove_driver(&self, kind: DriverKind) {
        match kind {
            // If there is no other driver, no task has set its waker.
            DriverKind::RunUntil if self.driver_count.get() == 1 => {}
            DriverKind::RunUntil => self.wake_other_drivers(),
            DriverKind::Task(id) => {
                self.forget_driver_task(id);
                self.wake_other_drivers();
            }
            // `Drop for TimerFd` wakes the other drivers if necessary.
            #[cfg(all(feature = "fd", any(target_os = "linux", target_os = "android")))]
            DriverKind::TimerFd => {}
        }
        self.driver_count.update(|drivers| drivers - 1);
        let no_driver_left = self.driver_count.get() == 0 && !self.has_user_loop.get();
        if !no_driver_left
            || matches!(self.driver_state.get(), DriverState::InTurn | DriverState::Ended)
        {
            return;
        }
        if let DriverKind::RunUntil = kind {
            self.enter_undriven_state(DriverState::DriverExpected);
            self.shared.gauges.extend_overdue_grace();
        } else {
            self.enter_undriven_state(DriverState::NoDriverExpected);
            self.shared.gauges.overdue_grace_nanos.set(SHORT_OVERDUE_GRACE_NANOS);
        }
    }

    /// Returns true if a loop drives the wheel, or the wheel was drained.
    fn is_driven_or_ended(&self) -> bool {
        use DriverState::{BetweenTurns, Ended, InTurn};
        matches!(self.driver_state.get(), BetweenTurns | InTurn | Ended)
    }

    /// Enters `new_state` after the wheel has lost its last driver. Publishes this state, and the
    /// earliest deadline of the remote adds and resets that wait for a turn.
    fn enter_undriven_state(&self, new_state: DriverState) {
        self.driver_state.set(new_state);
        let (_, now) = self.with_engine(|engine| engine.publish_undriven_and_get_next_due());
        self.mark_undriven();
        // A remote thread that has not seen the effect of `mark_undriven` publishes no deadline.
        // But `mark_undriven` has executed the fence F1 (see `parker`), so this thread finds the
        // remote thread's request in the mailbox.
        let due = self.with_engine(|engine| engine.earliest_queued_deadline());
        self.shared.gauges.lower_remote_due_while_undriven(due.max(now));
    }

    fn forget_driver_task(&self, id: DriverTaskId) {
        let has_id = |task: &mut (DriverTaskId, _)| task.0 == id;
        let forgotten_wakers: Vec<_> =
            self.driver_task_wakers.borrow_mut().extract_if(.., has_id).collect();
        self.shared.hooks.drop_catching_panic(forgotten_wakers);
    }

    /// Wakes the remaining drivers when a driver is dropped, so that each runs a turn and announces
    /// its own sleep.
    pub(super) fn wake_other_drivers(&self) {
        self.shared.hooks.set_driver_waker(None);
        for (_, waker) in self.driver_task_wakers.take() {
            self.shared.hooks.catch_panic(PanicPlace::Wake, move || waker.wake_by_ref());
        }
        if self.driver_count.get() > 1 {
            self.shared.hooks.descriptor.trigger();
        }
    }

    /// Replaces the state `NoDriverExpected` or `DriverExpected` by `new_state`, which must be
    /// `DriverExpected` or `DriverRegistered`.
    fn replace_undriven_state(&self, new_state: DriverState) {
        if let DriverState::NoDriverExpected | DriverState::DriverExpected = self.driver_state.get()
        {
            self.driver_state.set(new_state);
            self.shared.gauges.extend_overdue_grace();
        }
    }

    /// Publishes that no loop drives the wheel. From this call on, other threads publish the
    /// deadlines that they request.
    fn mark_undriven(&self) {
        self.announced_sleep_end.set(u64::MAX);
        self.shared.gauges.reset_remote_due_while_undriven();
        self.shared.parker.set_undriven();
    }

    #[inline]
    pub(crate) fn assert_driven(&self) {
        if let DriverState::NoDriverExpected | DriverState::DriverExpected = self.driver_state.get()
        {
            panic_without_driver();
        }
    }

    /// Polls the sleep of a task that drives the wheel. The poll panics if the sleep is a timer of
    /// the same wheel, because the task would wait for its own turn.
    pub(crate) fn poll_driver_sleep<R>(poll: impl FnOnce() -> R) -> R {
        let _ = Self::with(|thread_wheel| {
            if let DriverState::BetweenTurns = thread_wheel.driver_state.get() {
                thread_wheel.driver_state.set(DriverState::NoDriverExpected);
            }
        });
        let _poll_guard = DriverPollGuard;
        poll()
    }

    /// Records that a loop drives the wheel. Returns false inside a turn, and after a drain.
    #[inline]
    pub(super) fn try_mark_driven(&self) -> bool {
        matches!(self.driver_state.get(), DriverState::BetweenTurns) || self.try_mark_driven_slow()
    }

    #[cold]
    #[inline(never)]
    fn try_mark_driven_slow(&self) -> bool {
        if let DriverState::InTurn | DriverState::Ended = self.driver_state.get() {
            return false;
        }
        self.driver_state.set(DriverState::BetweenTurns);
        self.shared.parker.set_driven();
        self.announced_sleep_end.set(KNOWN_AWAKE);
        true
    }

    /// In the state `DriverRegistered` or `DriverExpected`, reports the earliest timer if it has
    /// been overdue for too long. Returns the number of adds until the next check.
    fn check_for_missing_loop(&self) -> u64 {
        let (DriverState::DriverRegistered | DriverState::DriverExpected) = self.driver_state.get()
        else {
            return u64::MAX;
        };
        let (next_due, _) = self.with_engine(|engine| engine.publish_undriven_and_get_next_due());
        self.shared.report_overdue_timer(self.shared.clock.nanos().saturating_sub(next_due));
        self.with_engine(|engine| engine.adds_until_loop_check())
    }

    /// Reports that this thread runs a `TimersDriver` and that its own wheel has a timer, unless a
    /// loop drives this wheel. Creates no wheel.
    #[cfg(feature = "futures")]
    pub(crate) fn report_own_timer_of_timers_driver() {
        if ThisThreadWheel::get().is_none() {
            return;
        }
        let _ = Self::with(|wheel| {
            let publish = |engine: &mut Engine<_>| engine.publish_undriven_and_get_next_due();
            if !wheel.is_driven_or_ended() && wheel.with_engine(publish).0 < u64::MAX {
                // `u64::MAX` skips the grace period, because the timer will never fire.
                wheel.shared.report_undriven_wheel(u64::MAX, UndrivenReason::UsedOnTimersDriver);
            }
        });
    }

    /// Called when this thread sets a deadline while no announced sleep is in progress. If no loop
    /// drives the wheel, publishes the wheel's next deadline. In the state `NoDriverExpected`, also
    /// reports the earliest timer if it has been overdue for too long.
    fn publish_deadline_if_undriven(&self, new_deadline: u64) {
        match self.driver_state.get() {
            DriverState::BetweenTurns | DriverState::InTurn | DriverState::Ended => {
                self.announced_sleep_end.set(KNOWN_AWAKE);
            }
            DriverState::DriverRegistered | DriverState::DriverExpected => {
                self.announced_sleep_end.set(KNOWN_AWAKE);
                self.with_engine(|engine| {
                    let _ = engine.publish_undriven_and_get_next_due();
                    // The next add does not check for an overdue timer, but the add after it does.
                    let _ = engine.grant_add_allowance(1);
                });
            }
            DriverState::NoDriverExpected => {
                let (next_due, now) =
                    self.with_engine(|engine| engine.publish_undriven_and_get_next_due());
                // Does not report the new timer itself, even if its deadline has already elapsed.
                if next_due < new_deadline {
                    self.shared.report_overdue_timer(now.saturating_sub(next_due));
                }
            }
        }
    }

    /// Reads the clock, and finishes a turn that certainly needs no *pass*: the part of a turn that
    /// consumes messages and fires timers. If the turn is finished, returns the number of live
    /// timers. If the result is `None`, the caller must call
    /// [`run_turn_with_pass`](Self::run_turn_with_pass).
    pub(super) fn try_turn_without_pass() -> Option<usize> {
        if let Ok(Some(thread_wheel)) = THREAD_WHEEL_PTR.try_with(Cell::get)
            // SAFETY: the wheel is not dropped while this call uses it; see `with`.
            && let Ok(mut engine) = unsafe { thread_wheel.as_ref() }.engine.try_borrow_mut()
            && engine.try_read_clock()
        {
            return engine.finish_turn_if_idle().then(|| engine.len());
        }
        Self::try_turn_without_pass_slow(None)
    }

    /// Tries a turn without a pass, at `now` or, if that is `None`, at a new reading of the clock.
    #[inline(never)]
    pub(super) fn try_turn_without_pass_slow(now: Option<Instant>) -> Option<usize> {
        let finish_if_idle = |thread_wheel: &Self| {
            let mut engine = thread_wheel.engine.borrow_mut();
            match (now, thread_wheel.driver_state.get()) {
                (None, _) => _ = engine.read_clock(),
                // Nested turns and turns after a drain ignore `now`.
                (_, DriverState::InTurn | DriverState::Ended) => {}
                (Some(now), _) => engine.use_loop_reading(now),
            }
            engine.finish_turn_if_idle().then(|| engine.len())
        };
        Self::with(finish_if_idle).unwrap_or(Some(0))
    }

    /// Runs a turn that needs a pass: consumes messages, and fires the timers that are due at the
    /// latest reading of the clock.
    #[inline(never)]
    pub(super) fn run_turn_with_pass(budget: usize) -> Turn {
        // Does not call `with`, because `with` would copy the result.
        let Ok(thread_wheel) = Self::get_or_create() else { return Turn::default() };
        // SAFETY: the wheel is not dropped while this call uses it; see `with`.
        let thread_wheel = unsafe { thread_wheel.as_ref() };
        if !thread_wheel.try_mark_driven() {
            return thread_wheel.refused_turn();
        }
        thread_wheel.driver_state.set(DriverState::InTurn);
        let _turn_guard = TurnGuard(&thread_wheel.driver_state);
        let (relinked_before, has_urgent_messages) =
            thread_wheel.with_engine(|engine| (engine.wheel.relinked, engine.begin_pass(budget)));
        let (mut fired, mut collected) = (0, 0);
        if has_urgent_messages {
            thread_wheel.consume_messages(&mut fired, &mut collected);
        }
        let mut timer_to_finish = None;
        // Finishes the previous run and claims the next due timer under one borrow of the engine.
        while let Some(claimed) = thread_wheel.with_engine(|engine| {
            if let Some(ended) = timer_to_finish.take() {
                engine.finish_run(ended);
            }
            engine.claim_next_due()
        }) {
            fired += 1;
            timer_to_finish = thread_wheel.run_callback(claimed);
        }
        if thread_wheel.with_engine(|engine| engine.backlog.may_have_low_priority_messages()) {
            thread_wheel.consume_messages(&mut fired, &mut collected);
        }
        let next_turn_needs_pass = (thread_wheel.flush_is_requested.get()
            || thread_wheel.trim_is_requested.get())
            && thread_wheel.flush_and_trim_clients();
        thread_wheel.with_engine(|engine| {
            let behind = engine.end_pass();
            if next_turn_needs_pass {
                engine.request_pass();
            }
            let relinked = engine.wheel.relinked - relinked_before;
            Turn { fired, collected, live: engine.len(), relinked, behind, nested: false }
        })
    }

    /// Returns the result of a turn called inside another turn or after a drain.
    #[cold]
    #[inline(never)]
    fn refused_turn(&self) -> Turn {
        if let DriverState::InTurn = self.driver_state.get() {
            let live = self.with_engine(|engine| engine.len());
            return Turn { live, nested: true, ..Turn::default() };
        }
        // The drained wheel's purgatories may still have messages for other cores.
        self.flush_clients();
        Turn::default()
    }

    /// Consumes remote requests: runs the callbacks of added and reset timers that are due, and
    /// drops the callbacks of cancelled timers. In the urgent phase, before the due timers fire,
    /// consumes only adds and resets.
    #[inline(never)]
    fn consume_messages(&self, fired: &mut usize, collected: &mut usize) {
        while let Some(step) =
            self.with_engine(|engine| engine.consume_messages(collected, OwnerSlab::needs_drop))
        {
            match step {
                UserCodeStep::Cancelled(callback) => {
                    self.shared.hooks.drop_catching_panic(callback);
                }
                UserCodeStep::Due(claimed) => {
                    *fired += 1;
                    if let Some(ended) = self.run_callback(claimed) {
                        self.with_engine(|engine| engine.finish_run(ended));
                    }
                }
            }
        }
    }

    /// Runs the callback of a claimed timer. Returns the timer if it is one-shot: the caller must
    /// finish its run.
    #[inline(always)]
    fn run_callback(&self, claimed: ClaimedTimer<Callback>) -> Option<ClaimedTimer<Callback>> {
        let mut start_nanos = None;
        if self.sample_one_in > 0 {
            self.callbacks_until_sample.update(|remaining| remaining - 1);
            if self.callbacks_until_sample.get() == 0 {
                self.callbacks_until_sample.set(self.sample_one_in);
                start_nanos = Some(self.shared.clock.nanos());
            }
        }
        self.shared.hooks.catch_panic(PanicPlace::Callback, || claimed.run_callback());
        if let Some(start_nanos) = start_nanos {
            let nanos = self.shared.clock.nanos().saturating_sub(start_nanos);
            self.shared.gauges.callback_durations.add_duration(nanos);
        }
        if claimed.run.is_periodic() {
            self.rearm_or_end(claimed);
            return None;
        }
        Some(claimed)
    }

    /// Arms a periodic timer again, or ends it if it was cancelled during the run.
    #[inline(never)]
    fn rearm_or_end(&self, claimed: ClaimedTimer<Callback>) {
        match self.with_engine(|engine| engine.rearm(claimed.index)) {
            Ok(next_due) => self.end_sleep_for_deadline(next_due),
            Err(callback) => {
                // Drops the callback before `finish_run`, so that `cancel_wait` also waits for the
                // drop.
                self.shared.hooks.drop_catching_panic(callback);
                self.with_engine(|engine| engine.finish_run(claimed));
            }
        }
    }

    /// Publishes the number of live timers after a cancel, and the state of an undriven wheel. If
    /// the thread is awake, its next turn publishes the number.
    #[cold]
    fn publish_after_cancel(&self) {
        self.with_engine(|engine| {
            // Remote adds may need the room that the cancel has freed.
            engine.publish_live_count();
            if let DriverState::NoDriverExpected = self.driver_state.get() {
                let _ = engine.publish_undriven_and_get_next_due();
            }
        });
    }

    pub(super) fn prepare_sleep(&self) -> PreparedSleep<'static> {
        self.prepare_sleep_after(|_| ()).unwrap_or_else(PreparedSleep::zero_length)
    }

    /// Announces a sleep until the wheel needs a turn. Returns `None` if the wheel has ended. Calls
    /// `before_announcement` with the end of the sleep, in nanoseconds of the clock.
    pub(super) fn prepare_sleep_after(
        &self,
        before_announcement: impl FnOnce(Option<u64>),
    ) -> Option<PreparedSleep<'static>> {
        self.flush_clients();
        if !self.try_mark_driven() && matches!(self.driver_state.get(), DriverState::Ended) {
            return None;
        }
        let (mut sleep_end, ends_on_cancel, is_long) =
            self.with_engine(Engine::sleep_end_after_trim);
        if is_long {
            self.trim_clients(true);
            // If a client has more memory to free, the sleep lasts only a second.
            if self.trim_is_requested.get() {
                sleep_end = Some(self.with_engine(|engine| engine.shortest_long_sleep_end()));
            }
        }
        before_announcement(sleep_end);
        self.announced_sleep_end.set(sleep_end.unwrap_or(u64::MAX));
        let timeout = self.publish_next_due(sleep_end);
        Some(PreparedSleep::new(&self.shared, sleep_end, ends_on_cancel, timeout))
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.flush_clients();
        if self.flush_is_requested.get() {
            return Some(self.shared.clock.now());
        }
        self.with_engine(|engine| engine.next_turn_instant())
    }

    pub(super) fn time_until_next(&self) -> Option<Duration> {
        self.try_mark_driven();
        self.flush_clients();
        self.publish_next_due(self.with_engine(|engine| engine.next_turn_nanos()))
    }

    pub(crate) fn new_driver_task_id(&self) -> DriverTaskId {
        DriverTaskId(
            self.next_driver_task_id.replace(self.next_driver_task_id.get().wrapping_add(1)),
        )
    }

    pub(crate) fn prepare_sleep_of_task(
        &self,
        id: DriverTaskId,
        task_waker: &Waker,
    ) -> PreparedSleep<'static> {
        let stored_task =
            self.driver_task_wakers.borrow().iter().find(|task| task.0 == id).cloned();
        let waker = stored_task.map(|(_, waker)| waker).filter(|waker| waker.will_wake(task_waker));
        let waker = waker.unwrap_or_else(|| {
            let waker = Arc::new(task_waker.clone());
            self.forget_driver_task(id);
            self.driver_task_wakers.borrow_mut().push((id, Arc::clone(&waker)));
            waker
        });
        // `set_driver_waker` fails while another thread copies the waker. Nothing would wake a task
        // whose waker is not set, so its sleep has zero length.
        if !self.shared.hooks.set_driver_waker(Some(waker)) {
            return PreparedSleep::zero_length();
        }
        self.prepare_sleep()
    }

    /// Publishes, for metrics and watchdogs, that the loop's next turn is due at `next_turn`.
    /// Returns the time until `next_turn`, or zero if a flush is pending, because a wake hook may
    /// have queued messages during the previous flush.
    fn publish_next_due(&self, next_turn: Option<u64>) -> Option<Duration> {
        let timeout = self.with_engine(|engine| engine.publish_next_due(next_turn));
        if self.flush_is_requested.get() { Some(Duration::ZERO) } else { timeout }
    }

    /// Ends the wheel, and returns the pending timers. The caller must not be in a turn.
    pub(super) fn drain(&self) -> Vec<DrainedTimer> {
        self.flush_clients();
        // `close` frees this shard's number. If a later shard reuses the number, this thread must
        // not seem to own that shard.
        ThisThreadWheel::register(None);
        self.driver_state.set(DriverState::Ended);
        let pending_timers =
            self.with_engine(Engine::close).drop_cancelled_payloads(&self.shared).into_iter();
        let to_drained_timer = |TimerAtClose { handle, due, payload: callback }| DrainedTimer {
            handle,
            deadline: self.shared.clock.instant_at(due),
            callback,
        };
        pending_timers.map(to_drained_timer).collect()
    }

    /// Registers a client. Returns an error after a drain: a new client could reuse a removed
    /// client's identifier, which drained timers still contain and may call.
    pub(crate) fn register_client(
        &self,
        client: Weak<dyn WheelClient>,
    ) -> Result<ClientId, AddErrorReason> {
        match self.driver_state.get() {
            DriverState::Ended => Err(AddErrorReason::ShutDown),
            _ => Ok(self.clients.borrow_mut().add(client)),
        }
    }

    /// Forgets a client. The client must have cancelled its timers, because a later client may get
    /// the same identifier.
    pub(crate) fn unregister_client(&self, client: ClientId) {
        self.clients.borrow_mut().remove(client);
    }

    pub(crate) fn request_client_flush(&self) {
        if !self.flush_is_requested.replace(true) {
            self.with_engine(|engine| engine.request_pass());
            // Ends an announced sleep, which would delay the flush.
            self.end_sleep_for_deadline(0);
        }
    }

    pub(crate) fn request_trim(&self) {
        self.trim_is_requested.set(true);
        self.with_engine(|engine| engine.request_pass());
    }

    #[inline]
    pub(super) fn flush_clients(&self) {
        if self.flush_is_requested.replace(false) {
            self.for_each_client(|client| client.flush_messages());
        }
    }

    #[inline]
    fn trim_clients(&self, is_before_long_sleep: bool) {
        if self.trim_is_requested.replace(false) {
            self.for_each_client(|client| {
                if client.trim_memory(is_before_long_sleep) {
                    self.request_trim();
                }
            });
        }
    }

    /// Flushes and trims the clients. Returns true if a client has requested another flush or trim.
    #[cold]
    #[inline(never)]
    fn flush_and_trim_clients(&self) -> bool {
        self.flush_clients();
        self.trim_clients(false);
        self.flush_is_requested.get() || self.trim_is_requested.get()
    }

    #[cold]
    fn for_each_client(&self, mut action: impl FnMut(&dyn WheelClient)) {
        let ids = self.clients.borrow().ids_up_to_last();
        ids.filter_map(|id| self.clients.borrow().get(id)).for_each(|client| action(&*client));
    }

    #[cold]
    pub(super) fn end_sleep_for_timer(&self, timer: TimerHandle) {
        self.end_sleep_for_deadline_slow(
            self.with_engine(|engine| engine.applied_deadline_nanos(timer.index())),
        );
    }

    /// If this thread's announced sleep would end after the thread's new deadline `nanos`, ends the
    /// sleep and wakes the loop. If no loop drives the wheel, may publish the wheel's next
    /// deadline.
    #[inline]
    pub(super) fn end_sleep_for_deadline(&self, nanos: u64) {
        if self.may_be_asleep() {
            self.end_sleep_for_deadline_slow(nanos);
        }
    }

    #[cold]
    fn end_sleep_for_deadline_slow(&self, nanos: u64) {
        let sleep = self.shared.parker.sleep_in_progress().filter(|sleep| !sleep.is_undriven());
        let Some(sleep) = sleep else {
            return self.publish_deadline_if_undriven(nanos);
        };
        if self.shared.tick_length.round_up(nanos) < self.announced_sleep_end.get() {
            // Sets `announced_sleep_end` before the call of the wake hook, which may add timers and
            // announce a sleep.
            let sleep_end = self.announced_sleep_end.replace(KNOWN_AWAKE);
            if !self.shared.wake(sleep) && self.announced_sleep_end.get() == KNOWN_AWAKE {
                self.announced_sleep_end.set(sleep_end);
            }
        }
    }

    pub(crate) fn cancel(handle: TimerHandle) -> Cancel {
        let cancel_result = Self::with(|wheel| {
            let mut callback = None;
            let take_callback = |node: OwnerNodeRef<'_, Callback>| {
                if OwnerSlab::needs_drop(node) {
                    callback = Some(node.take_payload());
                }
            };
            if let Err(answer) = wheel.with_engine(|engine| engine.cancel(handle, take_callback)) {
                return answer;
            }
            if wheel.may_be_asleep() {
                wheel.publish_after_cancel();
            }
            if callback.is_some() {
                // The assignment drops the callback without moving it again.
                wheel.shared.hooks.catch_panic(PanicPlace::Drop, || callback = None);
            }
            Cancel::Cancelled
        });
        cancel_result.unwrap_or(Cancel::Ended)
    }

    /// Adds a timer of a client. If the timer was not added, returns `None`, and the client must
    /// call [`engine_with_room`](Self::engine_with_room) before another attempt. While the timer is
    /// pending, the client must not reuse `client_index`. After the add, the client must end the
    /// borrow of its state. Then the client must call
    /// [`end_sleep_for_client_timer`](Self::end_sleep_for_client_timer), which may run the wake
    /// hook.
    #[track_caller]
    #[inline(always)]
    pub(crate) fn add_client_timer(
        client: ClientId,
        client_index: u32,
        when: When,
    ) -> Option<LocalHandle> {
        let expire_operation = move || {
            if let Ok(Some(client)) = Self::with(|wheel| wheel.clients.borrow().get(client)) {
                client.expire_operation(client_index);
            }
        };
        let wheel = Self::get_or_create().ok()?;
        // SAFETY: the wheel is not dropped while this call uses it; see `with`.
        let mut engine = unsafe { wheel.as_ref() }.engine.borrow_mut();
        if !engine.has_add_allowance() {
            return None;
        }
        let callback = &mut Some(OneShotClosure(expire_operation));
        let schedule = engine.schedule_for(when, TimerKind::Private);
        let add_result = engine.insert(schedule, TimerKind::Private, CallSite::caller(), callback);
        add_result.ok().map(LocalHandle::new)
    }

    #[inline]
    pub(crate) fn end_sleep_for_client_timer(timer: LocalHandle) {
        let _ = Self::with(|thread_wheel| {
            if thread_wheel.may_be_asleep() {
                thread_wheel.end_sleep_for_timer(timer.handle);
            }
        });
    }

    /// Cancels a [`Private`](TimerKind::Private) timer, and returns the result of `take_callback`,
    /// or `None` if the timer is running or has ended. If the callback has a destructor,
    /// `take_callback` must move the callback out, because this call does not drop it.
    #[inline(always)]
    pub(crate) fn cancel_private<R>(
        handle: TimerHandle,
        take_callback: impl FnOnce(OwnerNodeRef<'_, Callback>) -> R,
    ) -> Option<R> {
        // SAFETY: the wheel is not dropped while this call uses it; see `with`.
        let thread_wheel = unsafe { Self::get_or_create().ok()?.as_ref() };
        let mut engine = thread_wheel.engine.borrow_mut();
        let result = engine.cancel_private(handle, take_callback);
        drop(engine);
        if result.is_some() && thread_wheel.may_be_asleep() {
            thread_wheel.publish_after_cancel();
        }
        result
    }

    /// Runs user code, and catches and reports its panic. Returns `None` after a panic.
    #[inline]
    pub(crate) fn catch_panic<R>(place: PanicPlace, run: impl FnOnce() -> R) -> Option<R> {
        let result = catch_unwind(AssertUnwindSafe(run));
        result.map_err(|payload| Self::report_panic(place, payload)).ok()
    }

    /// Drops values one by one. Reports the panic of a destructor and continues.
    pub(crate) fn drop_each_catching_panic<T>(values: impl IntoIterator<Item = T>) {
        let drop_one = |value| _ = Self::catch_panic(PanicPlace::Drop, || drop(value));
        values.into_iter().for_each(drop_one);
    }

    /// Reports a panic to this thread's wheel, which is created if necessary. A panic of a
    /// destructor creates no wheel, because a thread that uses no timers may drop a purgatory key.
    #[cold]
    fn report_panic(place: PanicPlace, payload: Box<dyn Any + Send>) {
        let has_wheel = || THREAD_WHEEL_PTR.try_with(Cell::get).ok().flatten().is_some();
        let may_report = place != PanicPlace::Drop || has_wheel();
        let shared = may_report.then(|| Self::with(|wheel| Arc::clone(&wheel.shared)).ok());
        match shared.flatten() {
            Some(shared) => shared.hooks.report_panic(place, payload),
            // Without a wheel, there is no panic hook to call.
            None => catch_panic_silently(|| drop(payload)),
        }
    }
}

/// Holds the user's function, and reports a panic of its destructor. Uncaught, the panic would
/// abort the process in an exiting or unwinding thread. The `Option` is `None` only during the
/// drop.
pub(crate) struct CatchDropPanic<F>(pub(crate) Option<F>);

impl<F> Drop for CatchDropPanic<F> {
    fn drop(&mut self) {
        ThreadWheel::catch_panic(PanicPlace::Drop, || drop(self.0.take()));
    }
}

#[cold]
fn panic_without_driver() -> ! {
    panic!(
        "no loop drives this thread's wheel, so this future would wait for ever. With one runtime \
         per thread, call `run` of its package (corewheel-tokio, -compio, -monoio, -glommio, \
         -smol). In a work-stealing runtime, use `corewheel_tokio::time` or \
         `corewheel::future::Timers`. With another executor, use `corewheel::future::drive` with \
         the executor's own sleep function, or `LocalTimer::timer_fd`. If your own loop turns the \
         wheel later, call `local_timer().register_driver()` before the first poll"
    );
}

impl Drop for ThreadWheel {
    fn drop(&mut self) {
        let _ = THREAD_WHEEL_PTR.try_with(|pointer| pointer.set(None));
        if let DriverState::InTurn = self.driver_state.get() {
            // A callback has called `process::exit`, which drops this wheel. Scoped threads that
            // the callback started may still use its captures in the timer's node, so the nodes are
            // leaked. The state is `InTurn` whenever a callback runs, because `drain` panics during
            // a turn.
            mem::forget(Arc::clone(&self.shared));
        }
        if let DriverState::DriverExpected = self.driver_state.get()
            && self.engine.get_mut().counts().turns == 0
        {
            self.shared.gauges.shorten_overdue_grace();
        }
        // From here on, destructors on this thread use handles as a remote thread does.
        ThisThreadWheel::register(None);
        self.shared.hooks.set_driver_waker(None);
        for (_, waker) in self.driver_task_wakers.take() {
            self.shared.hooks.drop_catching_panic(waker);
        }
    }
}

/// The functions that a handle calls on the thread that owns its timer.
static THIS_THREAD_WHEEL_VTABLE: ThisThreadWheelVTable = ThisThreadWheelVTable {
    cancel: ThreadWheel::cancel,
    reset: |handle, when| {
        ThreadWheel::reset(handle, |engine| engine.deadline_nanos(when)).is_some()
    },
    reset_after: |handle, delay| {
        ThreadWheel::reset(handle, |engine| engine.deadline_nanos(When::after(delay))).is_some()
    },
    is_pending: |handle| {
        ThreadWheel::with_current_engine(|engine| engine.is_pending(handle)) == Ok(true)
    },
    is_in_turn: ThreadWheel::is_in_turn,
};
