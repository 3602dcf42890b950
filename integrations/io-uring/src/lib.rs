//! corewheel in a loop over `io_uring`: [`Driver::submit_and_wait`] in place of the ring's own waits until there is a completion,
//! until the thread's next timer is due, or until another thread needs the timer's owner. For Linux 5.11 and later.
//!
//! The deadline is an argument of the wait, so that a loop pays nothing for its timers but the clock: no submission, no
//! completion, no system call. What other threads ask for comes as a completion, from an eventfd on which the ring polls.
//!
//! A ring may also poll on a `TimerFd` (corewheel with the feature `fd`), as any poller may; then it is a submission and a system call
//! each time.

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

/// The `user_data` of the driver's own completions; no submission of yours may have it.
pub const WAKE: u64 = u64::MAX;

/// The kernel adds up nanoseconds without looking: who waits for longer is woken once a year.
const LONGEST: Duration = Duration::from_secs(365 * 86_400);

/// What ends the waits of a thread's loop for its timer's sake. It belongs to one ring, and to the thread that made it.
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
    /// What the wake hook writes to.
    wakes: Arc<OwnedFd>,
    /// The ring polls on it.
    is_polled: bool,
}

impl Driver {
    /// Makes this thread's timer as configured, with a wake hook of the driver's. Call it before anything else uses
    /// [`local_timer`] in the thread.
    ///
    /// # Errors
    ///
    /// If the system has no eventfd to give, or the configuration cannot be installed; then [`io::Error::get_ref`] is the
    /// [`ConfigError`](corewheel::ConfigError).
    pub fn install(config: Config) -> io::Result<Self> {
        let wakes = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let woken = Arc::clone(&wakes);
        let installed = config.on_wake(move || ring_the_bell(&woken)).install();
        installed.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        Ok(Self { wakes, is_polled: false })
    }

    /// Submits what has been queued and waits until there is a completion, the timer's next deadline has come, or another
    /// thread needs the owner. Without any of them, as after a signal, it may return as well. Then take the completions, and
    /// turn.
    ///
    /// The kernel counts the wait as time awake, whatever the timer's clock is.
    ///
    /// Cost: that of [`IoUring::submit_and_wait`], and a reading of the clock; after a wake, a submission.
    ///
    /// # Errors
    ///
    /// What [`IoUring::submit_and_wait`] returns, but for interruptions, and for `EBUSY`, which asks to take completions first.
    /// [`io::ErrorKind::Unsupported`] if the kernel takes no timeout with a wait: it is older than 5.11.
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
        // From here on, what cannot wait writes to the eventfd.
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

    /// Whether that completion is the driver's own, as one in some is: then there is nothing to do but turn. To be asked of every
    /// completion, or no further wake ends a wait.
    pub fn takes(&mut self, completion: &cqueue::Entry) -> bool {
        if completion.user_data() != WAKE {
            return false;
        }
        self.is_polled = false;
        // Emptied, it is silent until the next wake. If it is empty already, that is how it shall be.
        let _ = rustix::io::read(&*self.wakes, &mut [0; 8]);
        true
    }

    /// Queues a poll on the eventfd, which completes once: when it is readable, or at once if it is. False if the queue has
    /// no room.
    #[allow(unsafe_code)]
    fn poll(&mut self, ring: &mut IoUring) -> io::Result<bool> {
        let readable = u32::from(PollFlags::IN.bits());
        let poll =
            opcode::PollAdd::new(Fd(self.wakes.as_raw_fd()), readable).build().user_data(WAKE);
        if ring.submission().is_full() {
            unless_passing(ring.submit())?;
        }
        // SAFETY: the entry refers to no memory, and the ring holds on to the file when it has taken it.
        self.is_polled = unsafe { ring.submission().push(&poll) }.is_ok();
        Ok(self.is_polled)
    }
}

/// Whether a ring could not be made because the kernel does not have `io_uring`, or forbids it, as in many containers.
pub fn is_refusal(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOSYS | Errno::PERM | Errno::ACCESS))
}

/// An error, unless it only says that the time is over, a signal has come, or completions are to be taken first.
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

/// On any thread. Fails only if it has been rung 2^64 times in vain, and so is readable.
fn ring_the_bell(bell: &OwnedFd) {
    let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
}
