//! corewheel in a loop over `io_uring`: [`Driver::submit_and_wait`] replaces the ring's own waits,
//! and waits for a completion, the deadline of the thread's next timer, or an urgent request of
//! another thread. The package needs Linux 5.11 or later.
//!
//! ```
//! use corewheel::{Config, local_timer};
//! use corewheel_io_uring::Driver;
//! use io_uring::IoUring;
//! use std::time::Duration;
//!
//! let mut ring = match IoUring::new(64) {
//!     Err(error) if corewheel_io_uring::is_io_uring_unavailable(&error) => return Ok(println!("skipped: {error}")),
//!     ring => ring?,
//! };
//! let mut driver = Driver::install(Config::new())?;
//! local_timer().add(Duration::from_millis(5), || println!("five milliseconds later"));
//! while !local_timer().is_empty() {
//!     driver.submit_and_wait(&mut ring)?;
//!     for completion in ring.completion() {
//!         if !driver.process_completion(&completion) {
//!             println!("your completion: {}", completion.user_data());
//!         }
//!     }
//!     local_timer().turn();
//! }
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! An urgent remote request writes to an eventfd, which the ring polls.
//!
//! Without this package, a ring can poll a `TimerFd` (corewheel with the feature `fd`), but each
//! wait costs an additional submission and system call.

#![cfg(target_os = "linux")]

use std::{
    any::Any,
    future, io,
    os::fd::{AsRawFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use corewheel::{Config, local_timer};
use io_uring::{
    IoUring, cqueue, opcode,
    types::{Fd, SubmitArgs, Timespec},
};
use rustix::{
    event::{EventfdFlags, PollFlags, eventfd},
    io::Errno,
};

/// The `user_data` of the driver's own completions. No other submission may use this `user_data`.
pub const WAKE_USER_DATA: u64 = u64::MAX;

/// The maximum length of one wait. Longer waits could overflow, because the kernel adds nanoseconds
/// without a check.
const WAIT_MAX: Duration = Duration::from_secs(365 * 86_400);

/// Drives a thread's wheel from a loop over `io_uring`, as in the [example](crate). Use a driver
/// with only one ring. A driver cannot be sent to another thread.
#[derive(Debug)]
#[must_use = "a dropped `Driver` no longer drives the wheel"]
pub struct Driver {
    /// The eventfd to which the wake hook writes.
    wake_fd: Arc<OwnedFd>,
    /// True while the ring polls the eventfd.
    is_eventfd_polled: bool,
    /// A driving task that is never polled: registers a driver of the wheel until it is dropped.
    /// Also makes `Driver` `!Send`, because `submit_and_wait` uses the current thread's wheel.
    _registration: Box<dyn Any>,
}

impl Driver {
    /// Creates this thread's wheel with `config` and the driver's wake hook, which replaces a hook
    /// of `config`. Call `install` before anything else uses [`local_timer`] in the thread.
    ///
    /// # Errors
    ///
    /// Fails if the system cannot create an eventfd. Fails if the configuration cannot be
    /// installed: then [`io::Error::get_ref`] returns the [`ConfigError`](corewheel::ConfigError).
    pub fn install(config: Config) -> io::Result<Self> {
        let wake_fd = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let hook_fd = Arc::clone(&wake_fd);
        // The write fails only if the eventfd is readable already.
        let signal_wake = move || _ = rustix::io::write(&*hook_fd, &1_u64.to_ne_bytes());
        config.wake_hook(signal_wake).install()?;
        let registration = Box::new(corewheel::future::drive(|_| future::pending::<()>()));
        Ok(Self { wake_fd, is_eventfd_polled: false, _registration: registration })
    }

    /// Submits the queue and waits for a completion, the wheel's next deadline, or an urgent
    /// request of another thread. The call may also return early, for example after a signal. After
    /// each return, take the completions and call `turn`. The kernel measures the wait by its
    /// monotonic clock, even if the wheel has another clock.
    ///
    /// The last entry in the queue must not be linked to the next (`IO_LINK`), because the driver
    /// queues its poll next. No entry may wait for all earlier entries (`IO_DRAIN`), because the
    /// driver's poll may never complete. After a drain of the wheel, `submit_and_wait` no longer
    /// waits.
    ///
    /// Cost: one [`IoUring::submit_and_wait`] and a clock reading. The first call, and the first
    /// after each wake, also queue a poll. If the queue is full, these calls first submit it.
    ///
    /// # Errors
    ///
    /// The errors of [`IoUring::submit_and_wait`], except for an interruption and `EBUSY`, which
    /// count as success. [`io::ErrorKind::Unsupported`] before Linux 5.11, or if the ring polls for
    /// completions (`setup_iopoll`).
    pub fn submit_and_wait(&mut self, ring: &mut IoUring) -> io::Result<()> {
        let unsupported_error = |reason| Err(io::Error::new(io::ErrorKind::Unsupported, reason));
        if !ring.params().is_feature_ext_arg() {
            return unsupported_error("waiting with a timeout needs Linux 5.11 or later");
        }
        if ring.params().is_setup_iopoll() {
            return unsupported_error("a ring with IOPOLL cannot poll the driver's eventfd");
        }
        if !self.is_eventfd_polled && !self.queue_poll(ring)? {
            return Ok(()); // the queue is full until completions are taken
        }
        // From here on, urgent requests write to the eventfd.
        let sleep = local_timer().prepare_sleep();
        let wait_result = match sleep.timeout() {
            None => ring.submit_and_wait(1),
            Some(timeout) => {
                let timeout = Timespec::from(timeout.min(WAIT_MAX));
                ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timeout))
            }
        };
        drop(sleep);
        ignore_transient_errors(wait_result)
    }

    /// Returns true if `completion` belongs to the driver; the loop then only needs to call `turn`.
    /// Call this method for every completion; otherwise remote requests can no longer end a wait.
    pub fn process_completion(&mut self, completion: &cqueue::Entry) -> bool {
        if completion.user_data() != WAKE_USER_DATA {
            return false;
        }
        self.is_eventfd_polled = false;
        // Resets the eventfd until the next wake. The read fails if the eventfd was reset already.
        let _ = rustix::io::read(&*self.wake_fd, &mut [0; 8]);
        true
    }

    /// Queues a poll, which completes once the eventfd is readable. Returns false if the queue is
    /// full.
    #[allow(unsafe_code)]
    fn queue_poll(&mut self, ring: &mut IoUring) -> io::Result<bool> {
        let readable_flag = u32::from(PollFlags::IN.bits());
        let poll = opcode::PollAdd::new(Fd(self.wake_fd.as_raw_fd()), readable_flag)
            .build()
            .user_data(WAKE_USER_DATA);
        if ring.submission().is_full() {
            ignore_transient_errors(ring.submit())?;
        }
        // SAFETY: the entry refers to no memory. The submission gives the kernel its own reference
        // to the file. If the file is closed before the submission, the poll fails, or polls
        // another file.
        self.is_eventfd_polled = unsafe { ring.submission().push(&poll) }.is_ok();
        Ok(self.is_eventfd_polled)
    }
}

/// Returns true if this error from creating a ring means that the kernel refuses `io_uring`, as in
/// many containers.
pub fn is_io_uring_unavailable(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported)
}

/// Ignores timeouts, interruptions and `EBUSY`. After `EBUSY`, the caller must take completions.
fn ignore_transient_errors(result: io::Result<usize>) -> io::Result<()> {
    match result.as_ref().err().and_then(Errno::from_io_error) {
        Some(Errno::TIME | Errno::INTR | Errno::BUSY) => Ok(()),
        _ => result.map(drop),
    }
}
