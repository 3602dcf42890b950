//! A file descriptor that is readable when a thread's timer wants a turn.
//!
//! It is one timerfd, armed at the next deadline by its owner and at once by whoever must wake the owner. The owner's arming
//! must not undo a wake, so it comes before the sleep is announced:
//!
//! ```text
//! owner                             asking thread
//! arm at the next deadline          the request is in the mailbox
//! announce the sleep, fence         fence
//! is there a request?               asleep, and for too long?
//!   then arm at once                  then arm at once
//! ```
//!
//! A thread that arms at once and is overtaken by the owner's arming had found an earlier sleep; its request was there before,
//! so the owner has either seen it in a turn or sees it now. After the announcement nobody arms it later than at once. What the
//! owner adds itself while a sleep is announced goes the asking thread's way.

use std::{
    cell::Cell,
    fmt,
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    sync::Arc,
};

use crate::{
    descriptor::{Descriptor, TimerFdError},
    local::{LocalTimer, Turn, local_timer},
    shard::PreparedSleep,
};

/// A file descriptor that is readable when its thread's timer wants a turn: at the next deadline, and at once when another
/// thread has something that cannot wait. From [`LocalTimer::timer_fd`]; with the feature `fd`, on Linux.
///
/// Whatever waits for descriptors can drive the timer: `select`, `poll`, `epoll`, `io_uring`, or the loop of somebody
/// else's. It asks for one thing only: call [`turn`](Self::turn) when it is readable. Nothing has to be read from it, and
/// nothing is lost to a poller that is told of edges only: being armed again makes it unreadable, and expiring is an edge.
///
/// It counts what the timer's clock counts: with [`Clock::boot_time`](crate::Clock::boot_time) also time in suspension, so a
/// machine that resumes after a deadline finds it readable.
///
/// Cost: a system call each time it is armed for another moment, and one for each wake by another thread. A timer that the
/// thread itself adds outside of a turn, before all others, makes it readable at once: a system call, and a turn for nothing. A
/// loop that can give its poll a timeout is cheaper without it, with [`prepare_sleep`](LocalTimer::prepare_sleep) and
/// [`Config::on_wake`](crate::Config::on_wake).
///
/// It belongs to its thread. Dropping it ends the sleep that it has announced: other threads do not make it readable any more. (If the
/// thread has another one, which is the same descriptor, that is readable then, to turn and go on.) The
/// descriptor itself is open until the thread's timer has ended and nobody has a [`ShardRef`](crate::ShardRef) of it any more.
/// It is closed by `exec`, and does not block.
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
pub struct TimerFd {
    descriptor: Arc<Descriptor>,
    /// The sleep that it ends; a cell, so that whoever waits for the descriptor may go on holding it.
    sleep: Cell<Option<PreparedSleep<'static>>>,
}

impl LocalTimer {
    /// A file descriptor that is readable when this thread's timer wants a turn, so that any poller can drive it. Asked for
    /// again, it is the same descriptor.
    ///
    /// It is silent until it is [armed](TimerFd::arm). The hook of [`Config::on_wake`](crate::Config::on_wake) is still
    /// called.
    ///
    /// # Errors
    ///
    /// If the timer's time is virtual, the thread has no timer, or the system has no descriptor to give.
    pub fn timer_fd(self) -> Result<TimerFd, TimerFdError> {
        Ok(TimerFd { descriptor: Self::descriptor()?, sleep: Cell::new(None) })
    }
}

impl TimerFd {
    /// Runs what is due, as [`LocalTimer::turn`], and arms the descriptor for what is left. For when it is readable; at any
    /// other time it does no harm.
    pub fn turn(&self) -> Turn {
        self.turn_within(usize::MAX)
    }

    /// As [`turn`](Self::turn), with the budget of [`LocalTimer::turn_within`]. If something due is left, the descriptor
    /// is readable again at once.
    pub fn turn_within(&self, budget: usize) -> Turn {
        // What callbacks add needs no wake: it is armed for afterwards.
        self.sleep.set(None);
        let turn = local_timer().turn_within(budget);
        self.arm();
        turn
    }

    /// Arms the descriptor at the timer's next deadline, without a turn, and announces the sleep until then. Once before the
    /// first poll; and whenever another sleep ([`LocalTimer::prepare_sleep`]) has been announced since it was last armed, as there
    /// is only one at a time.
    ///
    /// In a thread that is exiting, whose timer has ended, it is silent.
    pub fn arm(&self) {
        self.sleep.set(None);
        self.sleep.set(LocalTimer::prepare_sleep_on(&self.descriptor));
    }
}

impl Drop for TimerFd {
    fn drop(&mut self) {
        let had_announced = self.sleep.take().is_some();
        // The timer has one, and so has each of these: another one turns now, and announces the next sleep.
        if had_announced && Arc::strong_count(&self.descriptor) > 2 {
            self.descriptor.fire();
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
