//! Which timers the futures of a thread use.

use std::{cell::RefCell, sync::OnceLock};

use corewheel::future::Timers;

use super::virtual_time;

thread_local! {
    /// The timer of this thread, while the runtime of this thread drives it.
    static DRIVEN: RefCell<Option<Timers>> = const { RefCell::new(None) };
}

/// The timers for threads that drive none.
static CHOSEN: OnceLock<Timers> = OnceLock::new();

/// Makes `timers` serve every thread of the process that drives no timer with [`run`](crate::run)
/// or [`spawn_local`](crate::spawn_local).
///
/// Call it before the first future: with timers for more than one thread, another tick, or a limit.
///
/// # Errors
///
/// If the process has chosen before, or a future needed timers first. The error gives `timers`
/// back.
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

/// Lends the timers for a future that is created on this thread.
pub(super) fn with_timers<R>(create: impl FnOnce(&Timers) -> R) -> R {
    if let Some(timers) = virtual_time::timers() {
        return create(&timers);
    }
    let driven = DRIVEN.try_with(|driven| driven.borrow().clone()).ok().flatten();
    create(driven.as_ref().unwrap_or_else(|| CHOSEN.get_or_init(start)))
}

/// Makes the wheels of a process that has chosen none.
fn start() -> Timers {
    Timers::per_worker().expect("a thread for the timers")
}

/// Marks this thread as one whose timer is driven, until it is dropped.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[derive(Debug)]
pub(crate) struct Driven(());

#[cfg(any(target_os = "linux", target_os = "android"))]
impl Driven {
    pub(crate) fn new() -> Self {
        DRIVEN.set(Some(Timers::new(&[corewheel::local_timer().shard_ref()])));
        Self(())
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
impl Drop for Driven {
    fn drop(&mut self) {
        // A thread that is past its thread-locals creates no futures.
        let _ = DRIVEN.try_with(RefCell::take);
    }
}
