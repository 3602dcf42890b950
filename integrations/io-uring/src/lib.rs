//! corewheel in a loop over `io_uring`: [`Driver::submit_and_wait`] replaces the ring's own waits.
//! It waits until a completion, the deadline of the thread's next timer, or an urgent request of
//! another thread. It needs Linux 5.11 or later.
//!
//! The deadline is an argument of the wait. So timers cost a loop only the reading of the clock: no
//! submission, no completion, no system call. Remote requests arrive as completions of a poll on an
//! eventfd.
//!
//! Like any poller, a ring may also poll on a `TimerFd` (corewheel with the feature `fd`). Each
//! wait then costs a submission and a system call.

#![cfg(target_os = "linux")]

use std::{
    io,
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

/// The `user_data` of the driver's own completions. No other submission may use it.
pub const WAKE: u64 = u64::MAX;

/// The kernel adds nanoseconds without an overflow check, so a longer wait is split into waits of a
/// year.
const LONGEST: Duration = Duration::from_secs(365 * 86_400);

/// Drives a thread's wheel from a loop over `io_uring`. It belongs to one ring, and to the thread
/// that created it.
///
/// # Examples
///
/// ```
/// use corewheel::{Config, local_timer};
/// use corewheel_io_uring::Driver;
/// use io_uring::IoUring;
/// use std::time::Duration;
///
/// let mut ring = match IoUring::new(64) {
///     Err(error) if corewheel_io_uring::is_refusal(&error) => return Ok(println!("skipped: {error}")),
///     ring => ring?,
/// };
/// let mut driver = Driver::install(Config::new())?;
/// local_timer().add(Duration::from_millis(5), || println!("five milliseconds later"));
/// while !local_timer().is_empty() {
///     driver.submit_and_wait(&mut ring)?;
///     for completion in ring.completion() {
///         if !driver.takes(&completion) {
///             println!("one of yours: {}", completion.user_data());
///         }
///     }
///     local_timer().turn();
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Driver {
    /// The eventfd that the wake hook writes to.
    wakes: Arc<OwnedFd>,
    /// The ring has a pending poll on the eventfd.
    is_polled: bool,
}

impl Driver {
    /// Creates this thread's wheel with `config` and the driver's wake hook. Call it before
    /// anything else uses [`local_timer`] in the thread.
    ///
    /// # Errors
    ///
    /// If the system cannot create an eventfd, or the configuration cannot be installed. In the
    /// second case [`io::Error::get_ref`] returns the [`ConfigError`](corewheel::ConfigError).
    pub fn install(config: Config) -> io::Result<Self> {
        let wakes = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let woken = Arc::clone(&wakes);
        let installed = config.on_wake(move || ring_the_bell(&woken)).install();
        installed.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        Ok(Self { wakes, is_polled: false })
    }

    /// Submits the queue and waits for a completion, the wheel's next deadline, or an urgent
    /// request of another thread. It may also return early, for example after a signal. After each
    /// return, take the completions and call `turn`.
    ///
    /// The kernel measures the wait by its monotonic clock, for any clock of the wheel.
    ///
    /// Cost: a call of [`IoUring::submit_and_wait`] and a reading of the clock; after a wake, a
    /// submission.
    ///
    /// # Errors
    ///
    /// The errors of [`IoUring::submit_and_wait`], except interruptions and `EBUSY`, which asks to
    /// take completions first. [`io::ErrorKind::Unsupported`] if the kernel accepts no timeout for
    /// a wait: it is older than 5.11.
    pub fn submit_and_wait(&mut self, ring: &mut IoUring) -> io::Result<()> {
        if !ring.params().is_feature_ext_arg() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "io_uring waits with a timeout from Linux 5.11 on",
            ));
        }
        if !self.is_polled && !self.poll(ring)? {
            return Ok(()); // the queue is full, because there are completions to be taken
        }
        // From here on, urgent requests write to the eventfd.
        let sleep = local_timer().prepare_sleep();
        let waited = match sleep.timeout() {
            None => ring.submit_and_wait(1),
            Some(timeout) => {
                let timeout = Timespec::from(timeout.min(LONGEST));
                ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timeout))
            }
        };
        drop(sleep);
        unless_passing(waited)
    }

    /// Returns true if the completion belongs to the driver; the loop then only needs to turn. Call
    /// it for every completion: otherwise later remote requests cannot end a wait.
    pub fn takes(&mut self, completion: &cqueue::Entry) -> bool {
        if completion.user_data() != WAKE {
            return false;
        }
        self.is_polled = false;
        // Resets the eventfd, so that it is unreadable until the next wake. A failure means that it
        // was unreadable already.
        let _ = rustix::io::read(&*self.wakes, &mut [0; 8]);
        true
    }

    /// Queues a poll on the eventfd, which completes once it is readable. Returns false if the
    /// queue is full.
    #[allow(unsafe_code)]
    fn poll(&mut self, ring: &mut IoUring) -> io::Result<bool> {
        let readable = u32::from(PollFlags::IN.bits());
        let poll =
            opcode::PollAdd::new(Fd(self.wakes.as_raw_fd()), readable).build().user_data(WAKE);
        if ring.submission().is_full() {
            unless_passing(ring.submit())?;
        }
        // SAFETY: the entry refers to no memory, and the ring keeps its own reference to the file.
        self.is_polled = unsafe { ring.submission().push(&poll) }.is_ok();
        Ok(self.is_polled)
    }
}

/// Returns true if a ring could not be created because the kernel does not have `io_uring`, or
/// forbids it, as in many containers.
pub fn is_refusal(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOSYS | Errno::PERM | Errno::ACCESS))
}

/// Returns the error of a wait, except a timeout, an interruption, or the request to take
/// completions first.
fn unless_passing(result: io::Result<usize>) -> io::Result<()> {
    match result {
        Err(error)
            if !matches!(
                Errno::from_io_error(&error),
                Some(Errno::TIME | Errno::INTR | Errno::BUSY)
            ) =>
        {
            Err(error)
        }
        _ => Ok(()),
    }
}

/// Wakes the loop, from any thread. The write fails only if the eventfd is readable already.
fn ring_the_bell(bell: &OwnedFd) {
    let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
}
