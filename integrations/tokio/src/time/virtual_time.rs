//! Virtual time for tests: a clock that stops, and advances when the runtime is idle.
//!
//! A helper thread owns a wheel on that clock. The futures of the thread that called `pause` use
//! the helper's wheel. The helper turns its wheel on request, or in step with real time after
//! `resume`.

use std::{
    cell::{Cell, RefCell},
    pin::pin,
    rc::Rc,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    task::{Context, Waker},
    thread,
    time::{Duration, Instant as StdInstant},
};

use corewheel::{Clock, Config, ManualClock, ShardRef, future::Timers, local_timer};
use tokio::{
    runtime::{Handle, RuntimeFlavor, RuntimeMetrics},
    task::yield_now,
};

thread_local! {
    /// Set by the first `pause` and never cleared: from then on, this thread's instants are
    /// virtual.
    static CURRENT: RefCell<Option<Rc<VirtualTime>>> = const { RefCell::new(None) };
    /// The runtime has looked for events since it was last idle.
    static HAS_POLLED: Cell<bool> = const { Cell::new(false) };
}

/// The tick of the helper's timer, the default.
const TICK: Duration = Duration::from_millis(1);

/// How often the helper checks whether a runtime without [`auto_advance`] is idle.
const LOOK: Duration = Duration::from_secs(1);

struct VirtualTime {
    clock: ManualClock,
    /// The instant at which the clock shows zero.
    start: StdInstant,
    timers: Timers,
    helper: Sender<Order>,
    /// The runtime has called [`auto_advance`] since the last `pause`.
    has_hook: Cell<bool>,
    /// Receives a message when the helper ends a sleep because nothing advances the clock.
    stuck: Receiver<()>,
    /// The real time of `resume`, and the virtual time then. `None` while time stands still.
    resumed: Cell<Option<Resumed>>,
}

type Resumed = (StdInstant, Duration);

/// A request to the helper.
enum Order {
    /// Checks the wheel again, because another thread has added an earlier deadline.
    Look,
    /// Lets the clock follow real time.
    Follow(Resumed, Sender<bool>),
    /// Stops its clock, and watches the runtime.
    Stand(Idle, Sender<bool>),
    /// Stops watching the runtime, because its hook advances the clock.
    HasHook,
    /// Fires the due timers.
    Turn(Sender<bool>),
    /// Advances the clock to the next deadline, and fires it. The answer is true if there was one.
    Step(Sender<bool>),
    End,
}

/// The state of a helper's clock.
enum Mode {
    /// In step with real time.
    Follows(Resumed),
    /// Stopped, in a runtime that may have no hook.
    Watches(Idle),
    /// Stopped, in a runtime whose hook advances it.
    Stands,
}

/// Detects whether a runtime is idle.
struct Idle {
    runtime: RuntimeMetrics,
    parked: Option<u64>,
}

impl Idle {
    /// Returns true if the runtime has been parked since the last call.
    fn has_lasted(&mut self) -> bool {
        #[cfg(target_has_atomic = "64")]
        let parked = Some(self.runtime.worker_park_unpark_count(0)).filter(|count| count % 2 == 1);
        #[cfg(not(target_has_atomic = "64"))]
        let parked = None; // tokio does not count
        let before = std::mem::replace(&mut self.parked, parked);
        parked.is_some() && parked == before
    }
}

/// Stops the clock of this thread. Futures created from now on see virtual time, which advances by
/// [`advance`], and to the next deadline whenever the runtime is idle.
///
/// Call it first in a test, in a runtime that [`run`](crate::run) made or one with
/// [`auto_advance`]. It affects this thread only. `#[tokio::test]` makes a runtime without that
/// hook, in which only [`advance`] moves the clock.
///
/// # Panics
///
/// If the clock is paused already, or outside of a current-thread runtime. In a runtime without
/// [`auto_advance`], a future that waits panics when the runtime has been idle for a second.
///
/// # Examples
///
/// ```
/// use corewheel_tokio::time::{self, Duration, Instant};
///
/// # #[cfg(any(target_os = "linux", target_os = "android"))]
/// corewheel_tokio::run(async {
///     time::pause();
///     let begun = Instant::now();
///     time::sleep(Duration::from_secs(3600)).await; // takes no time
///     assert_eq!(begun.elapsed(), Duration::from_secs(3600));
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn pause() {
    let runtime = Handle::try_current().ok();
    let runtime = runtime.filter(|it| it.runtime_flavor() == RuntimeFlavor::CurrentThread);
    let runtime = runtime.expect("`time::pause()` requires a current-thread runtime").metrics();
    let here = CURRENT.with_borrow_mut(|here| {
        Rc::clone(here.get_or_insert_with(|| Rc::new(VirtualTime::start())))
    });
    let Some(resumed) = here.resumed.take() else { panic!("time is already frozen") };
    here.has_hook.set(false);
    here.order(|done| Order::Stand(Idle { runtime, parked: None }, done));
    // Stops at the end of a tick, so that a sleep of whole milliseconds takes exactly that time.
    let stands = since(resumed).as_nanos().div_ceil(TICK.as_nanos());
    here.clock.set(u64::try_from(stands).map_or(Duration::MAX, Duration::from_millis));
    here.order(Order::Turn);
}

/// Resumes the clock of this thread, from its present time.
///
/// # Panics
///
/// If the clock is not paused.
#[track_caller]
pub fn resume() {
    let here = paused().expect("time is not frozen");
    let resumed = (StdInstant::now(), here.clock.elapsed());
    here.resumed.set(Some(resumed));
    here.order(|done| Order::Follow(resumed, done));
}

/// Moves the clock of this thread by `duration` at once, and yields to tasks that were woken.
/// Deadlines on the way fire at the end of the jump, in their order.
///
/// # Panics
///
/// If the clock is not paused.
pub async fn advance(duration: Duration) {
    let here = paused().expect("time is not frozen");
    here.clock.advance(duration);
    here.order(Order::Turn);
    drop(here);
    yield_now().await;
}

/// Advances paused time to the next deadline; does nothing unless this thread has called [`pause`].
/// Pass it to `Builder::on_thread_park` of a current-thread runtime; [`run`](crate::run) does this
/// itself.
///
/// It first has the runtime look for events, so that a task which waits for a socket is served
/// before the clock moves. In [`run`](crate::run), the runtime looks for events after every task of
/// the `LocalSet`; elsewhere, once before the clock moves.
///
/// # Examples
///
/// ```
/// use corewheel_tokio::time::{self, Duration};
///
/// let runtime = tokio::runtime::Builder::new_current_thread()
///     .on_thread_park(time::auto_advance)
///     .build()?;
/// runtime.block_on(async {
///     time::pause();
///     time::sleep(Duration::from_secs(3600)).await;
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn auto_advance() {
    let Some(here) = paused() else { return };
    if !here.has_hook.replace(true) {
        let _ = here.helper.send(Order::HasHook);
    }
    if HAS_POLLED.replace(true) {
        HAS_POLLED.set(false);
        here.order(Order::Step);
    } else {
        // Defers a wake-up, so that the runtime polls for events without blocking and then calls
        // this hook again.
        let mut cx = Context::from_waker(Waker::noop());
        let _ = pin!(yield_now()).poll(&mut cx);
    }
}

/// Polls the tasks of a runtime. Whenever they have run, [`auto_advance`] looks for events again.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) async fn watch<F: Future>(tasks: F) -> F::Output {
    let mut tasks = pin!(tasks);
    let poll = |cx: &mut Context<'_>| {
        HAS_POLLED.set(false);
        tasks.as_mut().poll(cx)
    };
    std::future::poll_fn(poll).await
}

/// Returns the virtual time of this thread, if it has one.
pub(super) fn now() -> Option<StdInstant> {
    let here = here()?;
    Some(here.resumed.get().map_or_else(|| here.clock.now(), |resumed| here.start + since(resumed)))
}

/// Returns the clock of this thread, virtual after [`pause`], for a [`corewheel::Shard`] or a wheel
/// that must see the same time.
///
/// Without a [`pause`] on this thread, time is real.
///
/// # Examples
///
/// ```
/// use corewheel::{Config, Shard};
/// use corewheel_tokio::time::{self, Duration};
///
/// # #[cfg(any(target_os = "linux", target_os = "android"))]
/// corewheel_tokio::run(async {
///     time::pause();
///     let mut sessions = Shard::with_config(Config::new().clock(time::clock()))?;
///     sessions.add(Duration::from_secs(3600), "session 1");
///     time::advance(Duration::from_secs(3600)).await;
///     sessions.turn();
///     assert_eq!(sessions.next_expired().unwrap().payload, "session 1");
///     std::io::Result::Ok(())
/// })??;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn clock() -> Clock {
    here().map_or_else(|| local_timer().clock(), |here| Clock::from(&here.clock))
}

/// Returns the timers that follow the virtual time of this thread, if it has one.
pub(super) fn timers() -> Option<Timers> {
    let here = here()?;
    if let Some(resumed) = here.resumed.get() {
        // The helper sets the clock only when it wakes up, and a new deadline counts from now.
        here.clock.set(since(resumed));
    }
    Some(here.timers.clone())
}

/// Panics if a sleep of this thread has ended because nothing advances the clock.
pub(super) fn assert_advancing() {
    assert!(
        here().is_none_or(|here| here.stuck.try_recv().is_err()),
        "the time of this thread is paused, its runtime is idle, and nothing advances the clock: run the test in \
         `corewheel_tokio::run`, or build its runtime with `Builder::on_thread_park(corewheel_tokio::time::auto_advance)`, \
         in place of `#[tokio::test]`, or call `advance`"
    );
}

fn here() -> Option<Rc<VirtualTime>> {
    CURRENT.try_with(|here| here.borrow().clone()).ok().flatten()
}

fn paused() -> Option<Rc<VirtualTime>> {
    here().filter(|here| here.resumed.get().is_none())
}

/// Returns the virtual time that follows real time since `resume`.
fn since((resumed, elapsed): Resumed) -> Duration {
    elapsed.saturating_add(resumed.elapsed())
}

impl VirtualTime {
    /// Starts a helper whose clock follows real time.
    fn start() -> Self {
        let (clock, (helper, orders)) = (ManualClock::new(), channel());
        let (tell_stuck, stuck) = channel();
        let start = clock.now();
        let (refer, referred) = channel();
        let (its_clock, its_orders) = (clock.clone(), helper.clone());
        let serve = move || serve(&its_clock, its_orders, &orders, &refer, &tell_stuck);
        let name = "corewheel-tokio paused".to_owned();
        thread::Builder::new().name(name).spawn(serve).expect("a thread for virtual time");
        let shard = referred.recv().expect("the helper has a timer");
        let resumed = Cell::new(Some((StdInstant::now(), Duration::ZERO)));
        let (timers, has_hook) = (Timers::new(&[shard]), Cell::new(false));
        Self { clock, start, timers, helper, has_hook, stuck, resumed }
    }

    /// Sends the helper a request, and waits for the answer.
    fn order(&self, order: impl FnOnce(Sender<bool>) -> Order) -> bool {
        let (done, result) = channel();
        self.helper.send(order(done)).expect("the helper takes orders until it is dropped");
        result.recv().expect("the helper answers")
    }
}

impl Drop for VirtualTime {
    fn drop(&mut self) {
        let _ = self.helper.send(Order::End);
    }
}

/// Runs the helper.
fn serve(
    clock: &ManualClock,
    wake: Sender<Order>,
    orders: &Receiver<Order>,
    refer: &Sender<ShardRef>,
    stuck: &Sender<()>,
) {
    let config = Config::new().clock(clock).on_wake(move || _ = wake.send(Order::Look));
    config.install().expect("a new thread has no timer");
    let _ = refer.send(local_timer().shard_ref());
    let mut mode = Mode::Stands;
    loop {
        let order = match mode {
            Mode::Stands => orders.recv().map_err(RecvTimeoutError::from),
            Mode::Watches(_) => orders.recv_timeout(LOOK),
            Mode::Follows(resumed) => {
                clock.set(since(resumed));
                local_timer().turn();
                let sleep = local_timer().prepare_sleep();
                match sleep.timeout() {
                    Some(timeout) => orders.recv_timeout(timeout),
                    None => orders.recv().map_err(RecvTimeoutError::from),
                }
            }
        };
        let (done, result) = match order {
            Err(RecvTimeoutError::Timeout) => {
                if let Mode::Watches(idle) = &mut mode
                    && idle.has_lasted()
                    && !turn()
                    && until_next(clock).is_some()
                {
                    let _ = stuck.send(());
                    step(clock);
                    mode = Mode::Stands;
                }
                continue;
            }
            Ok(Order::Look) => continue,
            Ok(Order::HasHook) => {
                mode = Mode::Stands;
                continue;
            }
            Ok(Order::End) | Err(RecvTimeoutError::Disconnected) => return,
            Ok(Order::Follow(resumed, done)) => {
                mode = Mode::Follows(resumed);
                (done, true)
            }
            Ok(Order::Stand(idle, done)) => {
                mode = Mode::Watches(idle);
                (done, true)
            }
            Ok(Order::Turn(done)) => (done, turn()),
            Ok(Order::Step(done)) => (done, step(clock)),
        };
        let _ = done.send(result);
    }
}

/// Fires every due timer; returns whether there was one.
fn turn() -> bool {
    let mut has_fired = false;
    loop {
        let turn = local_timer().turn();
        has_fired |= turn.fired > 0;
        if !turn.behind {
            return has_fired;
        }
    }
}

fn step(clock: &ManualClock) -> bool {
    while !turn() {
        let Some(wait) = until_next(clock) else { return false };
        clock.advance(wait);
    }
    true
}

/// Returns the time until the next deadline. The last representable moment counts as none: the
/// clock stops there.
fn until_next(clock: &ManualClock) -> Option<Duration> {
    let is_before_the_end = |wait| clock.elapsed().checked_add(wait).is_some_and(is_time);
    local_timer().time_until_next().filter(|wait| !wait.is_zero() && is_before_the_end(*wait))
}

/// Returns true if a clock can show this time.
fn is_time(elapsed: Duration) -> bool {
    elapsed < Duration::from_nanos(u64::MAX)
}
