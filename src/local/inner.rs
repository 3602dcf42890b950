//! A thread's timer behind `local_timer()`: the shard, borrowed one step at a time, and the running of callbacks.

use std::{
    cell::{Cell, OnceCell, RefCell},
    sync::Arc,
    time::Duration,
};

use super::{
    Turn,
    task::{Periodic, Task},
};
use crate::{
    callback::Once,
    config::Config,
    error::{AddErrorReason, ConfigError},
    handle::{Cancel, Owner, TimerHandle},
    hooks::PanicPlace,
    shard::{Claimed, PreparedSleep, Shard},
    shared::Shared,
    sync::per_thread,
};

per_thread! {
    static LOCAL: OnceCell<Local> = OnceCell::new();
}

/// Ends a turn, however it ends.
struct Turning<'turn>(&'turn Cell<bool>);

impl Drop for Turning<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// A thread's timer and what it is in the middle of.
pub(super) struct Local {
    /// Borrowed for single steps; never while the user's code runs.
    shard: RefCell<Shard<Task>>,
    shared: Arc<Shared>,
    turning: Cell<bool>,
    /// Until when a sleep has been announced, in nanoseconds of the clock. `AWAKE` if none has been since the last look.
    sleeps_until: Cell<u64>,
}

const AWAKE: u64 = 0;

impl Local {
    fn new(config: Config) -> Result<Self, ConfigError> {
        let shard = Shard::with_config(config)?;
        Owner::set(Some(Owner { shard: shard.number(), cancel, reset, is_pending, share }));
        let shared = Arc::clone(shard.shared());
        Ok(Self { shard: RefCell::new(shard), shared, turning: Cell::new(false), sleeps_until: Cell::new(AWAKE) })
    }

    /// Makes this thread's timer, if it is not there yet.
    pub(super) fn install(config: Config) -> Result<(), ConfigError> {
        let installed = LOCAL.try_with(|place| match place.get() {
            Some(_) => Err(ConfigError::AlreadyRunning),
            None => place.set(Self::new(config)?).map_err(|_| ConfigError::AlreadyRunning),
        });
        installed.unwrap_or(Err(ConfigError::AlreadyRunning))
    }

    /// Looks at this thread's timer, which is made if it is not there yet. An error if the thread is exiting, or cannot have
    /// a timer.
    #[inline]
    pub(super) fn with<R>(look: impl FnOnce(&Self) -> R) -> Result<R, AddErrorReason> {
        let looked = LOCAL.try_with(|place| match place.get() {
            Some(local) => Ok(look(local)),
            None => Self::make(place).map(look),
        });
        looked.unwrap_or(Err(AddErrorReason::ShutDown))
    }

    #[cold]
    fn make(place: &OnceCell<Self>) -> Result<&Self, AddErrorReason> {
        // The default configuration is valid, so there can be only one reason.
        let local = Self::new(Config::new()).map_err(|_| AddErrorReason::TooManyShards)?;
        Ok(place.get_or_init(|| local))
    }

    /// One step with the shard borrowed. No code of the user's may run in it.
    #[inline]
    pub(super) fn step<R>(&self, step: impl FnOnce(&mut Shard<Task>) -> R) -> R {
        step(&mut self.shard.borrow_mut())
    }

    pub(super) fn turn(&self) -> Turn {
        if self.turning.replace(true) {
            return Turn { live: self.step(|shard| shard.len()), nested: true, ..Turn::default() };
        }
        let _turning = Turning(&self.turning);
        let touched_before = self.step(|shard| {
            shard.turn();
            shard.touched()
        });
        let (fired, collected) = (self.fire(), self.collect());
        let (live, touched) = self.step(|shard| (shard.len(), shard.touched() - touched_before));
        Turn { fired, collected, live, touched, nested: false }
    }

    /// Runs what is due.
    fn fire(&self) -> usize {
        let mut fired = 0;
        while let Some(Claimed { index, payload, .. }) = self.step(Shard::claim_due) {
            fired += 1;
            match payload {
                Task::Once(callback) => self.run_once(index, callback),
                Task::Periodic(periodic) => self.run_periodic(index, periodic),
            }
        }
        fired
    }

    fn run_once(&self, index: u32, callback: Once) {
        self.step(Shard::count_fired);
        self.shared.hooks.isolate(PanicPlace::Callback, || callback.run());
        self.step(|shard| shard.finish(index));
    }

    fn run_periodic(&self, index: u32, mut periodic: Periodic) {
        self.shared.hooks.isolate(PanicPlace::Callback, || periodic.callback.run());
        let (next, ended) = self.step(|shard| {
            periodic.go_on(shard.turn_nanos());
            let next = periodic.due();
            (next, shard.rearm(index, Task::Periodic(periodic), next))
        });
        match ended {
            Some(task) => self.shared.hooks.isolate_drop(task),
            None => self.wake_if_earlier(next),
        }
    }

    /// Drops the callbacks of the timers that other threads have cancelled.
    fn collect(&self) -> usize {
        let mut collected = 0;
        self.step(Shard::take_messages);
        while let Some(task) = self.step(Shard::collect_cancelled) {
            collected += 1;
            self.shared.hooks.isolate_drop(task);
        }
        collected
    }

    pub(super) fn prepare_sleep(&self) -> PreparedSleep<'static> {
        PreparedSleep::new(&self.shared, || {
            let next = self.step(|shard| shard.next_nanos());
            self.sleeps_until.set(next.unwrap_or(u64::MAX));
            self.step(|shard| shard.time_until_next())
        })
    }

    /// A timer of this thread is due at `nanos` now: if a sleep has been announced that would miss it, ends it.
    #[inline]
    pub(super) fn wake_if_earlier(&self, nanos: u64) {
        if self.sleeps_until.get() != AWAKE {
            self.end_announced_sleep(nanos);
        }
    }

    #[cold]
    fn end_announced_sleep(&self, nanos: u64) {
        if !self.shared.parker.is_asleep() {
            self.sleeps_until.set(AWAKE);
        } else if self.step(|shard| shard.round_up(nanos)) < self.sleeps_until.get() && self.shared.parker.must_wake()
        {
            self.sleeps_until.set(AWAKE);
            self.shared.hooks.wake();
        }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        // What is dropped with the shard sees its handles as any other thread would.
        Owner::set(None);
    }
}

/// The owner's path of `TimerHandle::cancel`.
fn cancel(handle: TimerHandle) -> Cancel {
    let cancelled = Local::with(|local| {
        let (answer, task) = local.step(|shard| shard.cancel_own(handle));
        if let Some(task) = task {
            local.shared.hooks.isolate_drop(task);
        }
        answer
    });
    cancelled.unwrap_or(Cancel::Ended)
}

/// The owner's path of `TimerHandle::reset`.
fn reset(handle: TimerHandle, delay: Duration) -> bool {
    let moved = Local::with(|local| {
        let moved = local.step(|shard| {
            let moved = shard.reset_own(handle, delay)?;
            if moved.periodic
                && let Some(Task::Periodic(periodic)) = shard.payload_mut(handle)
            {
                periodic.move_to(moved.due);
            }
            Some(moved)
        });
        if let Some(moved) = moved {
            local.wake_if_earlier(moved.due);
        }
        moved.is_some()
    });
    moved.unwrap_or(false)
}

fn is_pending(handle: TimerHandle) -> bool {
    Local::with(|local| local.step(|shard| shard.is_pending_own(handle))).unwrap_or(false)
}

fn share(handle: TimerHandle) {
    // A timer that has ended needs no sharing.
    let _ = Local::with(|local| local.step(|shard| shard.share_own(handle)));
}
