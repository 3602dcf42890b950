//! A thread's timer behind `local_timer()`: the shard, borrowed one step at a time, and the running of callbacks.

use std::{
    any::Any,
    cell::{Cell, OnceCell, RefCell},
    rc::{Rc, Weak},
    sync::Arc,
    task::Waker,
    time::{Duration, Instant},
};

use super::{Client, ClientPlace, ShardRef, Turn, sampler::Sampler};
use crate::{
    callback::{Callback, Running},
    config::Config,
    error::{AddErrorReason, ConfigError},
    handle::{Cancel, Owner, OwnerPath, TimerHandle},
    hooks::{PanicPlace, contain},
    limits::UNDRIVEN_GRACE,
    origin::Origin,
    shard::{Claimed, Due, Message, PreparedSleep, Shard},
    shared::Shared,
    slab::{Build, OwnerNodes},
    state::Kind,
    sync::per_thread,
    trace,
};

per_thread! {
    static LOCAL: OnceCell<Local> = OnceCell::new();
}

/// Who turns the timer, and whether it is doing so now.
#[derive(Clone, Copy, Debug)]
enum Driver {
    /// A loop has turned or asked, and is not in a turn.
    Between,
    /// A turn is under way.
    InTurn,
    /// A loop has registered, and has neither turned nor asked yet.
    Registered,
    /// No loop has registered.
    Missing {
        /// A timer that is overdue has been reported.
        reported: bool,
    },
}

/// Ends a turn when it is dropped.
struct Turning<'turn>(&'turn Cell<Driver>);

impl Drop for Turning<'_> {
    fn drop(&mut self) {
        self.0.set(Driver::Between);
    }
}

/// A thread's timer and what it is in the middle of.
pub(super) struct Local {
    /// Borrowed for single steps; never while the user's code runs.
    shard: RefCell<Shard<Callback>>,
    pub(super) shared: Arc<Shared>,
    driver: Cell<Driver>,
    clients: RefCell<Vec<Weak<dyn Client>>>,
    wanted: Cell<Wanted>,
    /// Until when a sleep has been announced, in nanoseconds of the clock. `AWAKE` if none has been since the last look.
    /// Before the loop first turns or asks it is the end of time, so that the adds take the slow path.
    sleeps_until: Cell<u64>,
    sampler: Sampler,
}

/// Which work of the clients is wanted at the end of this turn.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Wanted {
    flush: bool,
    trim: bool,
}

/// Not earlier than anything: no timer ends a sleep that nobody has announced.
const AWAKE: u64 = 0;

impl Local {
    fn new(config: Config) -> Result<Self, ConfigError> {
        let sampler = Sampler::new(config.timed());
        let mut shard = Shard::of_callbacks(config)?;
        shard.passes_end();
        Owner::set(Some(Owner { shard: shard.number(), path: &PATH }));
        let shared = Arc::clone(shard.shared());
        Ok(Self {
            shard: RefCell::new(shard),
            shared,
            driver: Cell::new(Driver::Missing { reported: false }),
            clients: RefCell::default(),
            wanted: Cell::default(),
            sleeps_until: Cell::new(u64::MAX),
            sampler,
        })
    }

    /// Makes this thread's timer, if it is not there yet, and registers a driver.
    pub(super) fn install(config: Config) -> Result<(), ConfigError> {
        let installed = LOCAL.try_with(|place| {
            if place.get().is_some() {
                return Err(ConfigError::AlreadyRunning);
            }
            let local = Self::new(config)?;
            local.register_driver();
            place.set(local).map_err(|_| ConfigError::AlreadyRunning)
        });
        installed.unwrap_or(Err(ConfigError::AlreadyRunning))
    }

    /// Looks at this thread's timer, which is made if it is not there yet. An error if the thread is exiting, or cannot have
    /// a timer.
    #[inline]
    pub(super) fn with<R>(look: impl FnOnce(&Self) -> R) -> Result<R, AddErrorReason> {
        let looked = LOCAL.try_with(|place| {
            let local = place.get().map_or_else(|| Self::make(place), Ok)?;
            Ok(look(local))
        });
        looked.unwrap_or(Err(AddErrorReason::ShutDown))
    }

    /// Whether the thread is exiting and its timer, if it had one, has ended or is about to.
    pub(super) fn has_ended() -> bool {
        LOCAL.try_with(|_| ()).is_err()
    }

    #[cold]
    fn make(place: &OnceCell<Self>) -> Result<&Self, AddErrorReason> {
        // The default configuration is valid, so there can be only one reason.
        let local = Self::new(Config::new()).map_err(|_| AddErrorReason::TooManyShards)?;
        Ok(place.get_or_init(|| local))
    }

    /// One step with the shard borrowed. No code of the user's may run in it.
    #[inline]
    pub(super) fn step<R>(&self, step: impl FnOnce(&mut Shard<Callback>) -> R) -> R {
        step(&mut self.shard.borrow_mut())
    }

    /// Adds a timer. If a sleep has been announced that would miss it, ends that. The error is the callback, if it is refused.
    #[inline]
    pub(super) fn add<B: Build<Callback>>(
        &self,
        kind: Kind,
        origin: Origin,
        due: impl FnOnce(&mut Shard<Callback>) -> Due,
        callback: B,
    ) -> Result<TimerHandle, B> {
        let added = self.step(|shard| {
            if shard.refusal().is_some() {
                return Err((due, callback));
            }
            let due = due(shard);
            Ok(shard.insert(due, kind, origin, callback))
        });
        let handle = match added {
            Ok(added) => added?,
            Err((due, callback)) => self.add_to_full(kind, origin, due, callback)?,
        };
        if self.sleeps_until.get() != AWAKE {
            self.end_announced_sleep(self.step(|shard| shard.due_nanos(handle.index())));
        }
        Ok(handle)
    }

    /// Adds a timer if timers that other threads have cancelled leave room for it.
    #[cold]
    #[inline(never)]
    fn add_to_full<B: Build<Callback>>(
        &self,
        kind: Kind,
        origin: Origin,
        due: impl FnOnce(&mut Shard<Callback>) -> Due,
        callback: B,
    ) -> Result<TimerHandle, B> {
        if !self.makes_room() {
            return Err(callback);
        }
        self.step(|shard| {
            let due = due(shard);
            shard.insert(due, kind, origin, callback)
        })
    }

    /// Drops timers that other threads have cancelled, until there is room for another timer.
    fn makes_room(&self) -> bool {
        while self.step(|shard| shard.refusal().is_some()) {
            match self.step(|shard| shard.next_cancelled(OwnerNodes::take_to_drop)) {
                Some(Message::Cancelled(callback)) => self.drop_callback(callback),
                _ => return false,
            }
        }
        true
    }

    /// Why this thread's timer has refused one.
    #[cold]
    pub(super) fn refusal() -> AddErrorReason {
        // One that does not refuse has no node left.
        let refusal = Self::with(|local| local.step(|shard| shard.refusal()));
        refusal.map_or_else(|reason| reason, |refusal| refusal.unwrap_or(AddErrorReason::Full))
    }

    /// Notes that a loop is going to turn the timer.
    pub(super) fn register_driver(&self) {
        if let Driver::Missing { .. } = self.driver.get() {
            self.driver.set(Driver::Registered);
        }
    }

    /// Panics if no loop is going to turn the timer.
    #[inline]
    pub(super) fn assert_driven(&self) {
        if let Driver::Missing { .. } = self.driver.get() {
            no_driver();
        }
    }

    /// Notes that the loop turns or asks. Returns false inside a turn.
    #[inline]
    pub(super) fn drives(&self) -> bool {
        matches!(self.driver.get(), Driver::Between) || self.starts_to_drive()
    }

    #[cold]
    #[inline(never)]
    fn starts_to_drive(&self) -> bool {
        if let Driver::InTurn = self.driver.get() {
            return false;
        }
        self.driver.set(Driver::Between);
        self.sleeps_until.set(AWAKE);
        true
    }

    /// A timer of this thread is due at `nanos` now, and no sleep is announced. If the loop has not turned or asked yet,
    /// publishes what other threads would learn from it, and reports a timer that is overdue without a driver.
    fn tell_before_the_loop(&self, nanos: u64) {
        match self.driver.get() {
            Driver::Between | Driver::InTurn => self.sleeps_until.set(AWAKE),
            // Once: it has said that it will turn, and then speaks for itself.
            Driver::Registered => {
                self.sleeps_until.set(AWAKE);
                self.step(|shard| _ = shard.tell_unasked());
            }
            Driver::Missing { reported } => {
                let (next, now) = self.step(|shard| shard.tell_unasked());
                let overdue = now.saturating_sub(next);
                // A timer that is added late does not report itself.
                if !reported && next < nanos && overdue >= UNDRIVEN_GRACE {
                    self.driver.set(Driver::Missing { reported: true });
                    self.report_undriven(Duration::from_nanos(overdue));
                }
            }
        }
    }

    fn report_undriven(&self, overdue: Duration) {
        let number = self.step(|shard| shard.number());
        contain(|| trace::undriven(number, &self.shared.name, overdue));
    }

    /// Most turns of a busy loop find nothing to do, and cost little more than a reading of the clock.
    #[inline]
    pub(super) fn turn(&self, budget: usize, turn: &mut Turn) {
        if !self.drives() {
            (turn.live, turn.nested) = (self.step(|shard| shard.len()), true);
            return;
        }
        let is_idle = self.step(|shard| {
            turn.live = shard.len();
            shard.turn_is_idle()
        });
        if !is_idle || self.wanted.get() != Wanted::default() {
            self.pass(is_idle, budget, turn);
        }
    }

    /// Goes through a pass, and sends what is to be sent at the end of a turn.
    #[inline(never)]
    fn pass(&self, is_idle: bool, budget: usize, turn: &mut Turn) {
        self.driver.set(Driver::InTurn);
        let _turning = Turning(&self.driver);
        let begun = self.step(|shard| {
            let touched_before = shard.touched();
            let has_work = !is_idle && shard.begin_or_end(budget);
            has_work.then(|| (touched_before, shard.begins_with_urgent()))
        });
        let Some((touched_before, is_urgent)) = begun else {
            self.end_turn();
            turn.live = self.step(|shard| shard.len());
            return;
        };
        if is_urgent {
            self.take_in(turn);
        }
        while let Some((index, callback)) = self.step(Shard::begin_next_run) {
            self.run(index, callback);
            turn.fired += 1;
        }
        if self.step(Shard::look_again) {
            self.take_in(turn);
        }
        self.end_turn();
        self.step(|shard| {
            turn.behind = shard.end_pass();
            turn.live = shard.len();
            turn.touched = shard.touched() - touched_before;
        });
    }

    /// Takes in what other threads have asked for, and runs what is due of it: what is urgent, or at the end of a pass the rest.
    fn take_in(&self, turn: &mut Turn) {
        while let Some(message) = self.step(|shard| shard.next_message(OwnerNodes::take_to_drop)) {
            match message {
                Message::Cancelled(callback) => {
                    self.drop_callback(callback);
                    turn.collected += 1;
                }
                Message::Due(Claimed { index, .. }) => {
                    let callback = self.step(|shard| shard.begin_run(index));
                    self.run(index, callback);
                    turn.fired += 1;
                }
                Message::Done => (),
            }
        }
    }

    /// Runs a callback that is due.
    #[inline]
    fn run(&self, index: u32, callback: Running) {
        let is_periodic = callback.is_periodic;
        self.call(|| callback.run());
        if is_periodic {
            self.go_on(index);
        } else {
            self.step(|shard| shard.finish(index));
        }
    }

    /// Adds a periodic timer again after its run, unless it was cancelled meanwhile.
    fn go_on(&self, index: u32) {
        let next = self.step(|shard| shard.next_run(index));
        match self.step(|shard| shard.rearm(index, next)) {
            Some(callback) => {
                // Who waits for the timer to end waits for this as well.
                self.shared.hooks.isolate_drop(callback);
                self.step(|shard| shard.finish(index));
            }
            None => self.wake_if_earlier(next),
        }
    }

    /// Calls the user's code, and times it if it is its turn to be timed.
    #[inline]
    fn call(&self, callback: impl FnOnce()) {
        let began = self.sampler.takes_this().then(|| self.shared.clock().nanos());
        self.shared.hooks.isolate(PanicPlace::Callback, callback);
        if let Some(began) = began {
            self.shared.gauges.callback_took(self.shared.clock().nanos().saturating_sub(began));
        }
    }

    /// Drops the callback of a timer that has just been cancelled.
    #[inline]
    fn drop_callback(&self, callback: Option<Callback>) {
        if let Some(callback) = callback {
            self.shared.hooks.isolate_drop(callback);
        }
    }

    /// Tells other threads of a cancel that they may have to know of.
    #[inline]
    pub(super) fn note_cancel(&self) {
        if self.sleeps_until.get() != AWAKE {
            self.tell_cancel();
        }
    }

    /// A timer was cancelled during an announced sleep, or before the loop turned or asked.
    #[cold]
    fn tell_cancel(&self) {
        self.step(|shard| {
            // Others may want its room before the sleep is over.
            shard.tell_gate();
            if let Driver::Missing { .. } = self.driver.get() {
                let _ = shard.tell_unasked();
            }
        });
    }

    pub(super) fn prepare_sleep(&self) -> PreparedSleep<'static> {
        self.flush();
        self.announce_sleep()
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.flush();
        self.step(
            |shard| if self.has_to_flush() { Some(shard.now()) } else { shard.next_deadline() },
        )
    }

    pub(super) fn time_until_next(&self) -> Option<Duration> {
        self.drives();
        self.flush();
        self.time_until_turn()
    }

    pub(super) fn prepare_sleep_of(&self, task: &Waker) -> PreparedSleep<'static> {
        // Another thread is waking the task at this moment: it does not sleep.
        if !self.shared.hooks.set_task(Some(task)) {
            return PreparedSleep::ended();
        }
        self.prepare_sleep()
    }

    /// How long until the next deadline. Zero if there is something to send, which a turn sends: a wake hook that a flush called may
    /// have left it.
    fn time_until_turn(&self) -> Option<Duration> {
        let time = self.step(|shard| shard.time_until_next());
        if self.has_to_flush() { Some(Duration::ZERO) } else { time }
    }

    /// Announces a sleep until the next deadline, or refuses it.
    pub(super) fn announce_sleep(&self) -> PreparedSleep<'static> {
        self.drives();
        let (until, is_long, trims) = self.step(|shard| {
            let (until, is_long) = shard.sleep();
            (until, is_long, shard.trim_before_sleep(until))
        });
        if trims {
            self.trim(true);
        }
        self.sleeps_until.set(until.unwrap_or(u64::MAX));
        PreparedSleep::new(&self.shared, until, is_long, || {
            let time = self.step(|shard| shard.time_until(until));
            // What has come to be sent while others were told, by a hook that this has called, say, is sent by a turn.
            if self.has_to_flush() { Some(Duration::ZERO) } else { time }
        })
    }

    /// Counts and reports a panic that was caught.
    pub(super) fn report(&self, place: PanicPlace, payload: Box<dyn Any + Send>) {
        self.shared.hooks.report(place, payload);
    }

    pub(super) fn register(&self, client: Weak<dyn Client>) -> ClientPlace {
        let mut clients = self.clients.borrow_mut();
        // The others keep their places, by which their timers find them.
        let free = clients.iter().position(|client| client.strong_count() == 0);
        let place = free.unwrap_or(clients.len());
        match clients.get_mut(place) {
            Some(free) => *free = client,
            None => clients.push(client),
        }
        ClientPlace(u32::try_from(place).unwrap_or_else(|_| panic!("2^32 clients of a timer")))
    }

    pub(super) fn client(&self, ClientPlace(place): ClientPlace) -> Option<Rc<dyn Client>> {
        self.clients.borrow().get(place as usize)?.upgrade()
    }

    pub(super) fn wants_flush(&self) {
        if !self.has_to_flush() {
            self.wanted.update(|wanted| Wanted { flush: true, ..wanted });
            // A sleep that has been announced would put it off.
            self.wake_if_earlier(0);
        }
    }

    pub(super) fn wants_trim(&self) {
        self.wanted.update(|wanted| Wanted { trim: true, ..wanted });
    }

    #[inline]
    pub(super) fn has_to_flush(&self) -> bool {
        self.wanted.get().flush
    }

    #[inline]
    fn end_turn(&self) {
        self.flush();
        self.trim(false);
    }

    #[inline]
    pub(super) fn flush(&self) {
        if self.has_to_flush() {
            self.wanted.update(|wanted| Wanted { flush: false, ..wanted });
            self.for_each_client(|client| client.flush());
        }
    }

    #[inline]
    fn trim(&self, is_long_sleep: bool) {
        if self.wanted.get().trim {
            self.wanted.update(|wanted| Wanted { trim: false, ..wanted });
            self.for_each_client(|client| {
                if client.trim(is_long_sleep) {
                    self.wants_trim();
                }
            });
        }
    }

    #[cold]
    fn for_each_client(&self, mut act: impl FnMut(&dyn Client)) {
        let at = |place: usize| self.clients.borrow().get(place).cloned();
        (0..).map_while(at).filter_map(|client| client.upgrade()).for_each(|client| act(&*client));
    }

    pub(super) fn is_made_of(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }

    pub(super) fn shard_ref(&self) -> ShardRef {
        ShardRef::new(self.step(|shard| shard.number()), Arc::clone(&self.shared))
    }

    /// A timer of this thread is due at `nanos` now: if a sleep has been announced that would miss it, ends it.
    #[inline]
    pub(super) fn wake_if_earlier(&self, nanos: u64) {
        if self.sleeps_until.get() != AWAKE {
            self.end_announced_sleep(nanos);
        }
    }

    /// Wakes the owner if it has announced a sleep that would miss a deadline of its own at `nanos`.
    #[cold]
    fn end_announced_sleep(&self, nanos: u64) {
        let Some(asleep) = self.shared.parker.asleep() else {
            return self.tell_before_the_loop(nanos);
        };
        if self.step(|shard| shard.tick().round_up(nanos)) < self.sleeps_until.get() {
            // The hook may add timers itself, and announce another sleep.
            let until = self.sleeps_until.replace(AWAKE);
            if !self.shared.wake(asleep) && self.sleeps_until.get() == AWAKE {
                self.sleeps_until.set(until);
            }
        }
    }
}

/// Panics on behalf of a future whose timer would never fire.
#[cold]
fn no_driver() -> ! {
    panic!(
        "no loop drives this thread's timer, so a future that waits for it would never end: before the first poll, make a \
         driver (`corewheel::future::drive`, `LocalTimer::timer_fd`, `corewheel_tokio::run`, `corewheel_compio::run`), call \
         `Config::install`, or, if your own loop turns the timer later, `local_timer().register_driver()`"
    );
}

impl Drop for Local {
    fn drop(&mut self) {
        // What is dropped with the shard sees its handles as any other thread would.
        Owner::set(None);
    }
}

/// The functions by which a handle reaches the shard of its thread.
static PATH: OwnerPath = OwnerPath { cancel, reset, reset_to, is_pending, share, is_turning };

/// The owner's path of `TimerHandle::cancel`.
fn cancel(handle: TimerHandle) -> Cancel {
    let cancelled = Local::with(|local| {
        match local.step(|shard| shard.cancel_own(handle, OwnerNodes::take_to_drop)) {
            Ok(callback) => {
                local.note_cancel();
                local.drop_callback(callback);
                Cancel::Cancelled
            }
            Err(answer) => answer,
        }
    });
    cancelled.unwrap_or(Cancel::Ended)
}

/// The owner's path of `TimerHandle::reset`.
fn reset(handle: TimerHandle, delay: Duration) -> bool {
    moved(|shard| shard.reset_own(handle, delay))
}

/// The same, to the moment at which the clock shows `nanos`.
fn reset_to(handle: TimerHandle, nanos: u64) -> bool {
    moved(|shard| shard.reset_own_to(handle, |_| nanos))
}

/// Whether a step has moved a timer. If a sleep has been announced that would miss it, that ends.
#[inline]
fn moved(step: impl FnOnce(&mut Shard<Callback>) -> Option<u64>) -> bool {
    let moved = Local::with(|local| {
        let Some(due) = local.step(step) else {
            return false;
        };
        local.wake_if_earlier(due);
        true
    });
    moved.unwrap_or(false)
}

fn is_pending(handle: TimerHandle) -> bool {
    Local::with(|local| local.step(|shard| shard.is_pending_own(handle))).unwrap_or(false)
}

fn is_turning() -> bool {
    Local::with(|local| matches!(local.driver.get(), Driver::InTurn)).unwrap_or(false)
}

fn share(handle: TimerHandle) {
    // A timer that has ended needs no sharing.
    let _ = Local::with(|local| local.step(|shard| shard.share_own(handle)));
}
