//! A file descriptor that is readable when a thread's wheel needs a turn.
//!
//! The descriptor is one timerfd. The owner arms the timerfd for the next deadline. A thread that
//! must wake the owner makes the timerfd expire at once. The owner arms the timerfd before it
//! announces a sleep, so that the arming does not undo the wake of another thread:
//!
//! ```text
//! owner                               requesting thread
//! arm for the next deadline           queue the request
//! announce the sleep, fence           fence
//! if a request is queued:             if the owner sleeps for too long:
//!   make the timerfd expire at once     make the timerfd expire at once
//! ```
//!
//! A remote thread may still act on the announcement of an earlier sleep, so the owner's arming may
//! undo that thread's wake. But a thread queues its request before it wakes the owner. So an owner
//! that undoes a wake has already consumed the request, or finds the request when it checks the
//! mailbox after the announcement.

use std::{
    cell::Cell,
    fmt,
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    sync::Arc,
    time::Duration,
};

use super::{
    DriverKind, DriverRegistration, LocalTimer, Turn, local_timer, thread_wheel::ThreadWheel,
};
use crate::{
    cross_core::descriptor::{TimerDescriptor, TimerFdError},
    shard::PreparedSleep,
};

/// A file descriptor that is readable when its thread's wheel needs a turn: at the next deadline,
/// or when another thread wakes the owner. Returned by [`LocalTimer::timer_fd`]. Needs the feature
/// `fd`, on Linux or Android.
///
/// Any poller can drive the wheel through the descriptor: `select`, `poll`, `epoll`, `io_uring`, or
/// the loop of another library. Call [`turn`](Self::turn) when the descriptor is readable. The loop
/// need not read from the descriptor. Edge-triggered pollers work too.
///
/// The descriptor follows the wheel's clock. Under [`Clock::boot_time`](crate::Clock::boot_time), a
/// deadline that elapses while the machine is suspended makes the descriptor readable after the
/// resume.
///
/// Cost: a system call each time the descriptor is armed for another deadline, and two for a wake
/// by another thread. An add by this thread outside of a turn, with a deadline before the armed
/// deadline, costs a system call and a turn. A loop that can give its poll a timeout is cheaper
/// with [`prepare_sleep`](LocalTimer::prepare_sleep) and
/// [`Config::wake_hook`](crate::Config::wake_hook).
///
/// A `TimerFd` cannot be sent to another thread. All `TimerFd`s of a thread share one descriptor. A
/// `TimerFd` is [a driver](LocalTimer::register_driver) until it is dropped.
///
/// Dropping the `TimerFd` that announced the current sleep ends the announcement. If the thread has
/// another `TimerFd`, dropping the announcing `TimerFd` makes the descriptor readable, and so does
/// dropping a task of [`drive`](crate::future::drive). The loop of the other `TimerFd` then calls
/// [`turn`](Self::turn), which arms the descriptor again.
///
/// The descriptor stays open until the thread has exited and no [`ShardRef`](crate::ShardRef) of
/// its wheel exists. The descriptor is non-blocking, and `exec` closes it.
///
/// # Examples
///
/// ```
/// use corewheel::local_timer;
/// use rustix::event::{PollFd, PollFlags, poll};
/// use std::time::Duration;
///
/// let timer = local_timer().timer_fd()?;
/// local_timer().add(Duration::from_millis(5), || println!("five milliseconds later"));
/// timer.arm();
/// while !local_timer().is_empty() {
///     poll(&mut [PollFd::new(&timer, PollFlags::IN)], None)?; // together with sockets
///     timer.turn();
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "a dropped `TimerFd` no longer drives the wheel"]
pub struct TimerFd {
    descriptor: Arc<TimerDescriptor>,
    /// A `Cell`, because a poller may hold a shared borrow of the `TimerFd`.
    announced_sleep: Cell<Option<PreparedSleep<'static>>>,
    _driver: DriverRegistration,
}

impl ThreadWheel {
    fn get_or_open_descriptor(&self) -> Result<Arc<TimerDescriptor>, TimerFdError> {
        let cell = &self.shared.hooks.descriptor.0;
        if let Some(descriptor) = cell.get() {
            return Ok(Arc::clone(descriptor));
        }
        let clock = self.shared.clock.timerfd_clock_id();
        let descriptor = TimerDescriptor::open(clock.ok_or(TimerFdError::VirtualTime)?);
        let descriptor = Arc::new(descriptor.map_err(TimerFdError::Io)?);
        Ok(Arc::clone(cell.get_or_init(|| descriptor)))
    }
}

impl LocalTimer {
    /// Returns a file descriptor that is readable when this thread's wheel needs a turn.
    ///
    /// [Arm](TimerFd::arm) the descriptor before the first poll. A wake of this thread makes the
    /// descriptor readable, and also calls the hook of
    /// [`Config::wake_hook`](crate::Config::wake_hook).
    ///
    /// # Errors
    ///
    /// Returns an error if the wheel's time is virtual, the thread is exiting or cannot have a
    /// wheel, or the system refuses a descriptor.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::os::fd::AsRawFd;
    ///
    /// let timer = local_timer().timer_fd()?;
    /// println!("poll the descriptor {}", timer.as_raw_fd());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn timer_fd(self) -> Result<TimerFd, TimerFdError> {
        let descriptor = ThreadWheel::with(ThreadWheel::get_or_open_descriptor)
            .map_err(TimerFdError::NoWheel)??;
        Ok(TimerFd {
            descriptor,
            announced_sleep: Cell::new(None),
            _driver: DriverRegistration::new(DriverKind::TimerFd),
        })
    }
}

impl TimerFd {
    /// Runs the due callbacks, like [`LocalTimer::turn`], and arms the descriptor for the next
    /// deadline. Call `turn` when the descriptor is readable; other calls do no harm.
    ///
    /// Do not call [`LocalTimer::turn`] instead: the descriptor would stay readable, and the loop
    /// would spin.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::time::Duration;
    ///
    /// let timer = local_timer().timer_fd()?;
    /// local_timer().add(Duration::ZERO, || println!("at once"));
    /// # std::thread::sleep(Duration::from_millis(2));
    /// assert_eq!(timer.turn().fired, 1); // the descriptor is readable
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn turn(&self) -> Turn {
        self.turn_within(usize::MAX)
    }

    /// Runs the due callbacks within `budget`, like [`LocalTimer::turn_within`], and arms the
    /// descriptor. If due timers or requests remain, the descriptor is readable again at once.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::time::Duration;
    ///
    /// let timer = local_timer().timer_fd()?;
    /// for _ in 0..100 {
    ///     local_timer().add(Duration::ZERO, || ());
    /// }
    /// # std::thread::sleep(Duration::from_millis(2));
    /// let turn = timer.turn_within(64);
    /// assert!(turn.behind && turn.live == 36);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn turn_within(&self, budget: usize) -> Turn {
        // Timers that callbacks add need no wake, because `arm` follows the turn.
        self.announced_sleep.set(None);
        let turn = local_timer().turn_within(budget);
        self.arm();
        turn
    }

    /// Arms the descriptor for the next deadline, and announces the sleep until then. Runs no turn.
    ///
    /// Call `arm` before the first poll, and after each [`LocalTimer::prepare_sleep`], which
    /// replaces the announcement. If the thread's wheel has ended, `arm` disarms the descriptor.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use rustix::event::{PollFd, PollFlags, Timespec, poll};
    /// use std::time::Duration;
    ///
    /// let timer = local_timer().timer_fd()?;
    /// local_timer().add(Duration::from_secs(3600), || println!("an hour later"));
    /// timer.arm();
    /// let no_wait = Timespec { tv_sec: 0, tv_nsec: 0 };
    /// let readable = poll(&mut [PollFd::new(&timer, PollFlags::IN)], Some(&no_wait))?;
    /// assert_eq!(readable, 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn arm(&self) {
        self.announced_sleep.set(None);
        let prepare_result = ThreadWheel::with(|wheel| {
            wheel.prepare_sleep_after(|sleep_end| {
                let publish = || wheel.with_engine(|engine| engine.publish_next_due(sleep_end));
                self.descriptor.arm(sleep_end, publish);
            })
        });
        let sleep = prepare_result.ok().flatten();
        match sleep.as_ref().map(PreparedSleep::timeout) {
            None => self.descriptor.arm(None, || None),
            Some(Some(Duration::ZERO)) => self.descriptor.trigger(),
            Some(_) => {}
        }
        self.announced_sleep.set(sleep);
    }
}

impl Drop for TimerFd {
    fn drop(&mut self) {
        if self.announced_sleep.take().is_some() {
            let _ = ThreadWheel::with(ThreadWheel::wake_other_drivers);
        }
    }
}

impl AsFd for TimerFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl AsRawFd for TimerFd {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl fmt::Debug for TimerFd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TimerFd").field(&self.as_raw_fd()).finish()
    }
}
