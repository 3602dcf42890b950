//! Virtual time for tests: a clock that stops, and advances when the runtime is idle.
//!
//! A helper thread owns a wheel on the virtual clock, for the futures of the thread that called
//! `pause`. The helper's wheel turns on request or, after `resume`, with real time.

use std::{
    cell::{Cell, RefCell},
    pin::pin,
    rc::Rc,
    sync::{
        Arc, Mutex, MutexGuard,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    task::{Context, Waker},
    thread,
    time::{Duration, Instant as StdInstant},
};

use corewheel::{Clock, Config, ShardRef, future::Timers, local_timer};
use tokio::{
    runtime::{Handle, RuntimeFlavor, RuntimeMetrics},
    task::yield_now,
};

thread_local! {
    /// `Some` from the first `pause` on, because this thread's instants then stay virtual.
    static THREAD_TIME: RefCell<Option<Rc<PausableTime>>> = const { RefCell::new(None) };
    /// The number of polls for events that [`auto_advance`] has requested since the latest advance
    /// or call of [`request_event_polls`].
    static REQUESTED_EVENT_POLLS: Cell<u32> = const { Cell::new(0) };
}

/// The number of polls for events before [`auto_advance`] advances the clock. The hook cannot see
/// whether a poll has woken a task, which may have made another socket ready.
const EVENT_POLLS_BEFORE_ADVANCE: u32 = 32;

/// How often the helper checks whether a runtime without [`auto_advance`] is idle.
const IDLE_CHECK_PERIOD: Duration = Duration::from_secs(1);

struct PausableTime {
    clock: Arc<VirtualClock>,
    timers: Timers,
    helper_sender: Sender<Request>,
    /// Receives a message when the helper advances the clock of an idle runtime that has no hook.
    stuck_receiver: Receiver<()>,
}

/// A clock that stands still while it is paused, and otherwise runs with real time.
struct VirtualClock {
    origin: StdInstant,
    state: Mutex<ClockState>,
}

struct ClockState {
    /// The time since the origin, at the latest pause, advance or resume.
    elapsed: Duration,
    /// The real time at which the clock began to run; `None` while it is paused.
    running_since: Option<StdInstant>,
}

impl VirtualClock {
    /// Starts a clock that runs.
    fn start() -> Self {
        let origin = StdInstant::now();
        let state = ClockState { elapsed: Duration::ZERO, running_since: Some(origin) };
        Self { origin, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, ClockState> {
        self.state.lock().expect("no critical section panics")
    }

    fn elapsed(&self) -> Duration {
        self.state().now()
    }

    fn now(&self) -> StdInstant {
        self.origin + self.elapsed()
    }

    fn is_paused(&self) -> bool {
        self.state().running_since.is_none()
    }

    /// Pauses the clock, and advances it to the next whole millisecond.
    fn pause(&self) {
        let mut state = self.state();
        let millis = state.now().as_nanos().div_ceil(1_000_000);
        let elapsed = u64::try_from(millis).map_or(MAX_ELAPSED, Duration::from_millis);
        *state = ClockState { elapsed, running_since: None };
    }

    fn resume(&self) {
        self.state().running_since = Some(StdInstant::now());
    }

    /// Advances a paused clock.
    fn advance(&self, by: Duration) {
        let mut state = self.state();
        state.elapsed = state.elapsed.saturating_add(by).min(MAX_ELAPSED);
    }

    fn to_clock(self: &Arc<Self>) -> Clock {
        let clock = Arc::clone(self);
        Clock::from_fn(self.origin, move || clock.elapsed())
    }
}

impl ClockState {
    fn now(&self) -> Duration {
        let running = self.running_since.map_or(Duration::ZERO, |since| since.elapsed());
        self.elapsed.saturating_add(running).min(MAX_ELAPSED)
    }
}

/// The largest time that the clock can show.
const MAX_ELAPSED: Duration = Duration::from_nanos(u64::MAX);

/// A request to the helper.
enum Request {
    /// Checks the wheel again, because another thread has sent an urgent request.
    Recheck,
    SetMode(ClockMode, Sender<bool>),
    /// Fires the due timers.
    Turn(Sender<bool>),
    /// Advances the clock to the next deadline, and fires its timers. Answers true if a timer
    /// fired. Only [`auto_advance`] sends this request, so the runtime has the hook, and the helper
    /// stops checking whether the runtime is idle.
    AdvanceToNext(Sender<bool>),
    End,
}

/// The state of a helper's clock.
enum ClockMode {
    /// The clock runs with real time.
    FollowsRealTime,
    /// The clock is paused, in a runtime that may lack the hook [`auto_advance`].
    PausedWithoutHook(IdleDetector),
    /// The clock is paused, in a runtime whose hook advances the clock.
    PausedWithHook,
}

/// Detects whether a runtime is idle.
struct IdleDetector {
    runtime: RuntimeMetrics,
    /// The count of parks and unparks at the previous check; `None` if the runtime was not parked.
    last_park_count: Option<u64>,
}

impl IdleDetector {
    /// Returns true if the runtime has stayed parked since the previous call.
    fn is_still_parked(&mut self) -> bool {
        #[cfg(target_has_atomic = "64")]
        let park_count =
            Some(self.runtime.worker_park_unpark_count(0)).filter(|count| count % 2 == 1);
        #[cfg(not(target_has_atomic = "64"))]
        let park_count = None; // tokio counts no parks on this target
        let previous_park_count = std::mem::replace(&mut self.last_park_count, park_count);
        park_count.is_some() && park_count == previous_park_count
    }
}

/// Stops the clock of this thread until [`resume`]. Futures that the thread creates after this
/// call, even in a later runtime, use virtual time. [`advance`] moves this time. In an idle
/// runtime, the hook [`auto_advance`] moves the time to the next deadline. A deadline that another
/// thread sets while the runtime is idle counts only after something else has woken the runtime.
///
/// In a test, call `pause` first, inside [`run`](crate::run) or a runtime built with
/// [`auto_advance`].
///
/// In a runtime without [`auto_advance`], such as the runtime of `#[tokio::test]`, call
/// [`advance`]. If a runtime without the hook stays idle for 1 to 2 s, its waits usually fail
/// instead of hanging: a waiting future of this module panics, and a future of
/// [`timers`](super::timers) ends.
///
/// # Panics
///
/// Panics if the clock is paused already, or if called outside of a current-thread runtime.
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
    let pausable_time = THREAD_TIME.with_borrow_mut(|pausable_time| {
        Rc::clone(pausable_time.get_or_insert_with(|| Rc::new(PausableTime::start())))
    });
    assert!(
        !pausable_time.clock.is_paused(),
        "the clock is paused already, perhaps by an earlier runtime of this thread"
    );
    let mode = ClockMode::PausedWithoutHook(IdleDetector { runtime, last_park_count: None });
    pausable_time.request_and_wait(|reply_sender| Request::SetMode(mode, reply_sender));
    // Stops the clock on a tick of the helper's wheel, so that a sleep of whole milliseconds takes
    // exactly its duration.
    pausable_time.clock.pause();
    pausable_time.request_and_wait(Request::Turn);
}

/// Resumes the clock of this thread from its paused time.
///
/// # Panics
///
/// Panics if the clock is not paused.
#[track_caller]
pub fn resume() {
    let paused_time = paused_thread_time()
        .expect("the clock is not paused: first call `time::pause()` on this thread");
    paused_time.clock.resume();
    paused_time.stuck_receiver.try_iter().for_each(drop);
    paused_time.request_and_wait(|reply_sender| {
        Request::SetMode(ClockMode::FollowsRealTime, reply_sender)
    });
}

/// Advances the clock of this thread by `duration` in one step, then yields to the woken tasks. All
/// timers that became due fire after the step, the earliest first.
///
/// # Panics
///
/// Panics if the clock is not paused.
pub async fn advance(duration: Duration) {
    // Drops `paused_time` before the await, because `paused_time` is not `Send`.
    {
        let paused_time = paused_thread_time()
            .expect("the clock is not paused: first call `time::pause()` on this thread");
        // A turn adds a limited number of new timers. Adds all of them before the step, so that
        // the due timers fire in order.
        paused_time.request_and_wait(Request::Turn);
        paused_time.clock.advance(duration);
        paused_time.stuck_receiver.try_iter().for_each(drop);
        paused_time.request_and_wait(Request::Turn);
    }
    yield_now().await;
    // If the first yield ends the scheduler's round, the scheduler polls this task again before the
    // tasks that the helper has woken.
    yield_now().await;
}

/// Advances this thread's clock to the next deadline if the clock is [paused](pause). Pass this
/// function to `Builder::on_thread_park` of a current-thread runtime; [`run`](crate::run) does so.
///
/// The hook first makes the runtime poll for events 32 times, so that ready sockets are served
/// before the clock advances. The count restarts after each advance, and when a
/// [`Sleep`](super::Sleep) is polled, alone or inside another future of this module. In
/// [`run`](crate::run), the count also restarts when its future or a task of its `LocalSet` is
/// polled. A ready socket is missed only if other tasks exchange more than 32 messages in a row.
/// The hook does not wait for blocking tasks or for peers in other threads.
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
    let Some(paused_time) = paused_thread_time() else { return };
    paused_time.stuck_receiver.try_iter().for_each(drop);
    // The hook must run again if timers fired but woke no task: otherwise the runtime would sleep
    // for ever.
    let mut must_run_again = true;
    let event_polls = REQUESTED_EVENT_POLLS.get();
    if event_polls < EVENT_POLLS_BEFORE_ADVANCE {
        REQUESTED_EVENT_POLLS.set(event_polls + 1);
    } else {
        REQUESTED_EVENT_POLLS.set(0);
        must_run_again = paused_time.request_and_wait(Request::AdvanceToNext);
        paused_time.stuck_receiver.try_iter().for_each(drop);
    }
    if must_run_again {
        // Defers a wake-up, so that the runtime polls for events without blocking and calls this
        // hook again.
        let mut cx = Context::from_waker(Waker::noop());
        let _ = pin!(yield_now()).poll(&mut cx);
    }
}

/// Must be called before each known poll of a task, so that the runtime polls for events before
/// [`auto_advance`] moves the clock.
pub(crate) fn request_event_polls() {
    REQUESTED_EVENT_POLLS.set(0);
}

/// Returns the virtual time of this thread, if it has one.
pub(super) fn now() -> Option<StdInstant> {
    Some(thread_time()?.clock.now())
}

/// Returns the clock of this thread for a [`corewheel::Shard`] or a wheel: the virtual clock after
/// [`pause`], otherwise the clock of the thread's wheel.
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
    thread_time().map_or_else(|| local_timer().clock(), |time| time.clock.to_clock())
}

/// Returns the timers on the virtual time of this thread, if it has one.
pub(super) fn timers() -> Option<Timers> {
    Some(thread_time()?.timers.clone())
}

/// Panics if the runtime has no hook and was idle, so that the helper has advanced the clock.
pub(super) fn panic_if_stuck() {
    assert!(
        thread_time().is_none_or(|time| time.stuck_receiver.try_iter().count() == 0),
        "the clock of this thread is paused, its runtime is idle, and no hook advances the clock: \
         instead of `#[tokio::test]`, run the test in `corewheel_tokio::run`, or build its runtime \
         with `Builder::on_thread_park(corewheel_tokio::time::auto_advance)`; or call `advance`"
    );
}

fn thread_time() -> Option<Rc<PausableTime>> {
    THREAD_TIME.try_with(|time| time.borrow().clone()).ok().flatten()
}

fn paused_thread_time() -> Option<Rc<PausableTime>> {
    thread_time().filter(|time| time.clock.is_paused())
}

impl PausableTime {
    /// Starts a helper, whose clock runs from zero.
    fn start() -> Self {
        let (clock, (helper_sender, requests)) = (Arc::new(VirtualClock::start()), channel());
        let (stuck_sender, stuck_receiver) = channel();
        let (shard_sender, shard_receiver) = channel();
        let (helper_clock, request_sender) = (Arc::clone(&clock), helper_sender.clone());
        let run_helper = move || {
            run_helper(&helper_clock, request_sender, &requests, &shard_sender, &stuck_sender);
        };
        let name = "corewheel-tokio paused".to_owned();
        thread::Builder::new().name(name).spawn(run_helper).expect("a thread for virtual time");
        let shard = shard_receiver.recv().expect("the helper has a wheel");
        Self { clock, timers: Timers::new(&[shard]), helper_sender, stuck_receiver }
    }

    /// Sends the helper a request, and waits for the answer.
    fn request_and_wait(&self, make_request: impl FnOnce(Sender<bool>) -> Request) -> bool {
        let (reply_sender, result) = channel();
        self.helper_sender
            .send(make_request(reply_sender))
            .expect("the helper runs until `self` is dropped");
        result.recv().expect("the helper answers")
    }
}

impl Drop for PausableTime {
    fn drop(&mut self) {
        let _ = self.helper_sender.send(Request::End);
    }
}

fn run_helper(
    clock: &Arc<VirtualClock>,
    request_sender: Sender<Request>,
    requests: &Receiver<Request>,
    shard_sender: &Sender<ShardRef>,
    stuck_sender: &Sender<()>,
) {
    let config = Config::new()
        .clock(clock.to_clock())
        .wake_hook(move || _ = request_sender.send(Request::Recheck));
    config.install().expect("a new thread has no wheel");
    let _ = shard_sender.send(local_timer().shard_ref());
    let mut mode = ClockMode::PausedWithHook;
    loop {
        let request = match mode {
            ClockMode::PausedWithHook => requests.recv().map_err(RecvTimeoutError::from),
            ClockMode::PausedWithoutHook(_) => requests.recv_timeout(IDLE_CHECK_PERIOD),
            ClockMode::FollowsRealTime => {
                local_timer().turn();
                let sleep = local_timer().prepare_sleep();
                match sleep.timeout() {
                    Some(timeout) => requests.recv_timeout(timeout),
                    None => requests.recv().map_err(RecvTimeoutError::from),
                }
            }
        };
        let (reply_sender, result) = match request {
            Err(RecvTimeoutError::Timeout) => {
                if let ClockMode::PausedWithoutHook(idle_detector) = &mut mode
                    && idle_detector.is_still_parked()
                    && !fire_due_timers()
                    && time_until_next_deadline(clock).is_some()
                {
                    let _ = stuck_sender.send(());
                    advance_to_next_deadline(clock);
                }
                continue;
            }
            Ok(Request::Recheck) => continue,
            Ok(Request::End) | Err(RecvTimeoutError::Disconnected) => return,
            Ok(Request::SetMode(new_mode, reply_sender)) => {
                mode = new_mode;
                (reply_sender, true)
            }
            Ok(Request::Turn(reply_sender)) => (reply_sender, fire_due_timers()),
            Ok(Request::AdvanceToNext(reply_sender)) => {
                mode = ClockMode::PausedWithHook;
                (reply_sender, advance_to_next_deadline(clock))
            }
        };
        let _ = reply_sender.send(result);
    }
}

/// Fires every due timer. Returns true if a timer fired.
fn fire_due_timers() -> bool {
    let mut has_fired = false;
    loop {
        let turn = local_timer().turn();
        has_fired |= turn.fired > 0;
        if !turn.behind {
            return has_fired;
        }
    }
}

/// Fires the due timers. If no timer is due, advances the clock until one fires. Returns false if
/// no timer is left.
fn advance_to_next_deadline(clock: &VirtualClock) -> bool {
    while !fire_due_timers() {
        match time_until_next_deadline(clock) {
            Some(wait) => clock.advance(wait),
            // Another thread has sent a request since the turn, so this loop turns the wheel again.
            None if local_timer().time_until_next() == Some(Duration::ZERO) => {}
            None => return false,
        }
    }
    true
}

/// Returns the time until the next deadline, or `None` if it has passed or is at the end of the
/// clock.
fn time_until_next_deadline(clock: &VirtualClock) -> Option<Duration> {
    let is_before_the_end = |wait| clock.elapsed().saturating_add(wait) < MAX_ELAPSED;
    local_timer().time_until_next().filter(|wait| !wait.is_zero() && is_before_the_end(*wait))
}
