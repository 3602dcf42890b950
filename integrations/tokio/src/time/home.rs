//! Selects the timers that the futures of a thread use.

use std::{cell::RefCell, sync::OnceLock};

use corewheel::future::Timers;

use super::{Instant, virtual_time};

thread_local! {
    /// This thread's wheel, while the thread's runtime drives it.
    static DRIVEN: RefCell<Option<Timers>> = const { RefCell::new(None) };
}

/// The timers for threads whose runtime drives no wheel.
static CHOSEN: OnceLock<Timers> = OnceLock::new();

/// Sets the timers for all threads of the process that drive no wheel with [`run`](crate::run) or
/// [`spawn_local`](crate::spawn_local).
///
/// Call it before the first future is created or the first [`DelayQueue`](super::DelayQueue) is
/// used, to choose the number of threads, the tick or a limit.
///
/// # Errors
///
/// If the timers were set before, or a future or [`DelayQueue`](super::DelayQueue) has needed
/// timers before. The error returns `timers`.
///
/// # Examples
///
/// ```
/// use corewheel::future::Timers;
/// use corewheel_tokio::time;
///
/// time::use_timers(Timers::start(2)?).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn use_timers(timers: Timers) -> Result<(), Timers> {
    CHOSEN.set(timers)
}

/// Returns the timers that a future created on this thread uses: for adapters that take [`Timers`],
/// such as those for hyper, tower and quinn. In a current-thread runtime, call it inside of
/// [`run`](crate::run), after [`pause`](super::pause) in a test.
pub fn timers() -> Timers {
    with_timers(Clone::clone)
}

/// Calls `create` with the timers for a future that is created on this thread.
pub(super) fn with_timers<R>(create: impl FnOnce(&Timers) -> R) -> R {
    if let Some(timers) = virtual_time::timers() {
        return create(&timers);
    }
    let driven = DRIVEN.try_with(|driven| driven.borrow().clone()).ok().flatten();
    create(driven.as_ref().unwrap_or_else(|| CHOSEN.get_or_init(start)))
}

/// Returns the present time of the clock that a future created on this thread uses.
pub(super) fn now() -> Instant {
    virtual_time::now().unwrap_or_else(|| with_timers(Timers::now)).into()
}

/// Creates the default wheels of a process that has not called `use_timers`.
fn start() -> Timers {
    Timers::per_worker().expect("a thread for the timers")
}

/// Marks this thread's wheel as driven, until this value is dropped.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[derive(Debug)]
pub(crate) struct Driven(());

#[cfg(any(target_os = "linux", target_os = "android"))]
impl Driven {
    /// Returns an error if the wheel is driven already.
    pub(crate) fn new() -> std::io::Result<Self> {
        DRIVEN.with_borrow_mut(|driven| {
            if driven.is_some() {
                let text =
                    "this thread's wheel has a driver already: call `run` or `spawn_local` once";
                return Err(std::io::Error::new(std::io::ErrorKind::AlreadyExists, text));
            }
            *driven = Some(Timers::new(&[corewheel::local_timer().shard_ref()]));
            Ok(Self(()))
        })
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
impl Drop for Driven {
    fn drop(&mut self) {
        // Fails if the thread-local is destroyed; such a thread creates no futures.
        let _ = DRIVEN.try_with(RefCell::take);
    }
}
