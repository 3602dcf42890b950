//! Drives a thread's wheel in a current-thread runtime, through the wheel's file descriptor.

use std::{
    cell::RefCell,
    convert::Infallible,
    future::poll_fn,
    io,
    pin::{Pin, pin},
    task::Poll,
    time::Duration,
};

use corewheel::{Config, TimerFd, future::Timers, local_timer};
use tokio::{
    io::{Interest, unix::AsyncFd},
    runtime::{self, Runtime},
    task::{self, JoinHandle, LocalSet},
};

use crate::time::{self, THREAD_TIMERS};

/// Limits each turn, so that other tasks run between turns.
const TURN_BUDGET: usize = 1_024;

/// The tick is short, because rounding up to a tick adds to the lateness that busy tasks cause.
const DEFAULT_TICK: Duration = Duration::from_micros(100);

/// Runs `future` on this thread, in a new current-thread runtime and `LocalSet` that drive the
/// thread's wheel. Returns the future's output, and drops unfinished tasks. Pending timers stay in
/// the wheel until the thread ends.
///
/// For one runtime per core, call `run` on the threads of [`Cores`](corewheel::Cores), whose wheels
/// keep their configuration, by default with a tick of 1 ms. A thread without a wheel gets one with
/// a tick of 100 us. For another tick, first install a [`Config`]; with a longer tick, more timers
/// share a wake-up.
///
/// # Errors
///
/// Fails if the runtime cannot be created, or [`spawn_driver`] would fail.
///
/// # Panics
///
/// Panics if `run` is called inside another runtime, unless [`spawn_driver`] would fail. Panics if
/// `future` or one of its dependencies uses `tokio::time`, because timers are disabled. To use
/// tokio's timer too, build a runtime with `enable_all` and call [`run_in`].
///
/// # Examples
///
/// ```
/// use corewheel::{Cores, local_timer};
/// use std::{rc::Rc, time::Duration};
/// use tokio::sync::Notify;
///
/// let cores = Cores::builder().threads(2).start(|core| {
///     corewheel_tokio::run(async move {
///         let fired = Rc::new(Notify::new());
///         let notify = Rc::clone(&fired);
///         local_timer().add(Duration::from_millis(5), move || notify.notify_one());
///         fired.notified().await;
///         core.index()
///     })
/// })?;
/// for (index, core) in cores.join().into_iter().enumerate() {
///     assert_eq!(core.unwrap()?, index);
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// An idle timeout with the futures of [`corewheel::future`]:
///
/// ```
/// use corewheel::future::{sleep, timeout};
/// use std::time::Duration;
/// use tokio::sync::mpsc;
///
/// const IDLE: Duration = Duration::from_millis(20);
///
/// let heard = corewheel_tokio::run(async {
///     let (sender, mut packets) = mpsc::channel(8);
///     sender.send("the only packet").await.unwrap();
///     let (mut idle, mut heard) = (sleep(IDLE), 0);
///     loop {
///         tokio::select! {
///             Some(packet) = packets.recv() => {
///                 timeout(Duration::from_secs(5), async { println!("{packet}") }).await?;
///                 heard += 1;
///                 idle.reset_after(IDLE);
///             }
///             () = &mut idle => return Ok::<_, corewheel::future::TimeoutError>(heard),
///         }
///     }
/// })?;
/// assert_eq!(heard, Ok(1));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// A graceful stop: each core finishes its requests, for at most 20 ms.
///
/// ```
/// use corewheel::{Cores, future::{sleep, timeout}};
/// use std::time::Duration;
/// use tokio::task::JoinSet;
///
/// let cores = Cores::builder().threads(2).start(|core| {
///     corewheel_tokio::run(async {
///         let mut requests = JoinSet::new();
///         loop {
///             tokio::select! {
///                 // In place of an accepted connection.
///                 () = sleep(Duration::from_millis(1)) => {
///                     requests.spawn_local(sleep(Duration::from_millis(2)));
///                 }
///                 () = core.stopped() => break,
///             }
///         }
///         timeout(Duration::from_millis(20), requests.join_all()).await.is_ok()
///     })
/// })?;
/// cores.stop();
/// for core in cores.join() {
///     println!("all requests served: {}", core.unwrap()?);
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn run<F: Future>(future: F) -> io::Result<F::Output> {
    let mut runtime = runtime::Builder::new_current_thread();
    let runtime = runtime.enable_io().on_thread_park(time::auto_advance).build()?;
    let driver = match create_driver(&runtime) {
        Ok(driver) => driver,
        Err(error) => {
            // If `run` is called inside another runtime, dropping this runtime would panic and hide
            // the error.
            runtime.shutdown_background();
            return Err(error);
        }
    };
    let mut driver = pin!(driver);
    // The driver is dropped after the runtime, so that destructors of tasks use the thread's wheel.
    let runtime = runtime;
    block_on(&runtime, driver.as_mut(), future)
}

/// Runs `future` on this thread, in a `LocalSet` and this current-thread runtime, and drives the
/// thread's wheel. Returns the future's output, and drops unfinished tasks of the `LocalSet`.
/// Pending timers stay in the wheel until the thread ends.
///
/// A thread without a wheel gets one with a tick of 100 us. In a runtime with `enable_all`, tasks
/// may use `tokio::time` too. The wheel turns before each run of the `LocalSet`'s tasks.
///
/// # Errors
///
/// Fails if [`spawn_driver`] would fail.
///
/// # Panics
///
/// Panics if `run_in` is called inside another runtime, or if `runtime` was built without
/// `enable_io`.
///
/// # Examples
///
/// ```
/// use corewheel::future::sleep;
/// use std::time::Duration;
///
/// let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// corewheel_tokio::run_in(&runtime, async {
///     sleep(Duration::from_millis(5)).await; // on the thread's wheel
///     tokio::time::sleep(Duration::from_millis(5)).await; // on tokio's timer
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn run_in<F: Future>(runtime: &Runtime, future: F) -> io::Result<F::Output> {
    let mut driver = pin!(create_driver(runtime)?);
    block_on(runtime, driver.as_mut(), future)
}

/// Registers the driver of this thread's wheel in `runtime`. Creates a wheel if there is none.
#[track_caller]
fn create_driver(
    runtime: &Runtime,
) -> io::Result<impl Future<Output = io::Result<Infallible>> + use<>> {
    // `install` fails if the thread already has a wheel, which the thread then keeps.
    let _ = Config::new().tick(DEFAULT_TICK).install();
    let _enter_guard = runtime.enter();
    let (timer, driver_guard) = register_descriptor()?;
    Ok(drive(timer, driver_guard))
}

/// Runs `future` in a `LocalSet`, and drives the thread's wheel. The caller must drop `driver`
/// after the tasks, so that their destructors use the thread's wheel.
#[track_caller]
fn block_on<F: Future>(
    runtime: &Runtime,
    mut driver: Pin<&mut impl Future<Output = io::Result<Infallible>>>,
    future: F,
) -> io::Result<F::Output> {
    let tasks = LocalSet::new();
    let mut tasks_and_future = pin!(tasks.run_until(future));
    runtime.block_on(poll_fn(|cx| {
        time::request_event_polls();
        // Lets callbacks spawn tasks on the `LocalSet`.
        let enter_guard = tasks.enter();
        local_timer().turn_within(TURN_BUDGET);
        if let Poll::Ready(Err(error)) = driver.as_mut().poll(cx) {
            return Poll::Ready(Err(error));
        }
        drop(enter_guard);
        tasks_and_future.as_mut().poll(cx).map(Ok)
    }))
}

/// Spawns a task that drives this thread's wheel whenever the current `LocalSet` or `LocalRuntime`
/// runs. A thread has at most one driver of this package. Dropping the handle does not end the task.
/// After an abort, futures that wait for the wheel stay pending.
///
/// Under load, timers can be late: the task runs after the tasks that became ready before it, and
/// the runtime polls for events only once per `event_interval`. In [`run`] and [`run_in`], the
/// wheel turns before the tasks run.
///
/// Cost: two system calls for each turn that the wheel needs, to poll and to arm the descriptor. An
/// add with a new earliest deadline costs one more turn.
///
/// # Errors
///
/// Fails if no file descriptor can be opened ([`TimerFdError`](corewheel::TimerFdError)), for
/// example because the wheel's time is virtual, or the runtime does not accept the descriptor. If
/// this package already drives the thread's wheel, the error has the kind
/// [`AlreadyExists`](io::ErrorKind::AlreadyExists).
///
/// # Panics
///
/// Panics if `spawn_driver` is called outside of a `LocalSet` and a `LocalRuntime`, or the runtime
/// was built without `enable_io`.
///
/// # Examples
///
/// ```
/// use corewheel::future::sleep;
/// use std::time::Duration;
///
/// tokio::runtime::LocalRuntime::new()?.block_on(async {
///     corewheel_tokio::spawn_driver()?;
///     tokio::task::spawn_local(sleep(Duration::from_millis(5))).await?;
///     std::io::Result::Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn spawn_driver() -> io::Result<JoinHandle<io::Result<Infallible>>> {
    let (timer, driver_guard) = register_descriptor()?;
    Ok(task::spawn_local(drive(timer, driver_guard)))
}

/// Marks this thread's wheel as driven, until this value is dropped.
struct DriverGuard(());

impl DriverGuard {
    /// Returns an error if the wheel has a driver already.
    fn new() -> io::Result<Self> {
        THREAD_TIMERS.with_borrow_mut(|timers| {
            if timers.is_some() {
                let error_text =
                    "this thread's wheel has a driver already: call `run` or `spawn_driver` once";
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, error_text));
            }
            *timers = Some(Timers::new(&[local_timer().shard_ref()]));
            Ok(Self(()))
        })
    }
}

impl Drop for DriverGuard {
    fn drop(&mut self) {
        // `try_with` fails only if the exiting thread has destroyed `THREAD_TIMERS`.
        let _ = THREAD_TIMERS.try_with(RefCell::take);
    }
}

/// Registers the descriptor of this thread's wheel in the current runtime, and arms the descriptor.
#[allow(unsafe_code)]
#[track_caller]
fn register_descriptor() -> io::Result<(AsyncFd<TimerFd>, DriverGuard)> {
    let timer = local_timer().timer_fd()?;
    let driver_guard = DriverGuard::new()?;
    // SAFETY: a `TimerFd` owns its descriptor, which stays open and the same while the `TimerFd`
    // lives.
    let timer = unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE) }?;
    timer.get_ref().arm();
    Ok((timer, driver_guard))
}

/// Drives the wheel. Returns only when the runtime's I/O driver has ended.
async fn drive(timer: AsyncFd<TimerFd>, _driver_guard: DriverGuard) -> io::Result<Infallible> {
    loop {
        // Clears the readiness before the turn arms the descriptor, so that each later event is a
        // new edge.
        timer.readable().await?.clear_ready();
        timer.get_ref().turn_within(TURN_BUDGET);
    }
}
