//! A timer that keeps its callback, so that it can be armed again.

use std::{
    cell::{Cell, RefCell},
    fmt,
    marker::PhantomData,
    rc::{Rc, Weak},
    time::{Duration, Instant},
};

use super::{CatchDropPanic, local_timer};
use crate::{
    cross_core::handle::{Cancel, LocalHandle, TimerHandle, TimerStatus},
    error::AddErrorReason,
    when::When,
};

/// A timer of this thread that keeps its callback, and can be armed again after it has fired or
/// been cancelled.
///
/// Dropping the timer cancels it, and drops the callback. A callback must not own the value that
/// contains its `ReusableTimer`, for example through an `Rc`: both would leak. Capture a
/// [`Weak`](std::rc::Weak) instead.
///
/// The callback gets a reference to the timer, and can arm the timer again through this reference.
/// If the callback has dropped the program's `ReusableTimer`, an arming through the reference is
/// cancelled when the callback returns.
///
/// Use this type for a timer that starts and stops many times with one callback, such as a
/// retransmission, a keep-alive or a batch flush. For a timer that fires once, use
/// [`LocalTimer::add`].
///
/// Cost: one allocation, when the timer is created. Arming has the cost of
/// [`LocalTimer::add_local`], or of a reset if the timer is pending.
///
/// [`LocalTimer::add`]: crate::LocalTimer::add
/// [`LocalTimer::add_local`]: crate::LocalTimer::add_local
///
/// # Examples
///
/// ```
/// use corewheel::{Config, ManualClock, ReusableTimer, TimerEnd, local_timer};
/// use std::{cell::Cell, rc::Rc, time::Duration};
///
/// let clock = ManualClock::new(); // virtual time, so that the example need not wait
/// Config::new().clock(&clock).install()?;
///
/// let sent = Rc::new(Cell::new(1));
/// let again = Rc::clone(&sent);
/// let retransmit = ReusableTimer::new(move |timer| {
///     again.set(again.get() + 1);
///     timer.arm(Duration::from_millis(200) * again.get()); // back off
/// });
/// retransmit.arm(Duration::from_millis(200)); // the first packet is sent
/// clock.advance(Duration::from_millis(200));
/// local_timer().turn();
/// assert_eq!(sent.get(), 2);
/// retransmit.cancel(); // the answer is here
/// assert_eq!(retransmit.last_end(), Some(TimerEnd::Cancelled));
/// retransmit.arm(Duration::from_millis(200)); // the next packet is sent
/// # Ok::<(), corewheel::ConfigError>(())
/// ```
#[must_use = "dropping the timer cancels it"]
pub struct ReusableTimer {
    state: Rc<ReusableTimerState<ReusableCallback>>,
    /// True for the `ReusableTimer` that `new` returned; false for the temporary one that a
    /// callback gets.
    is_original: bool,
    not_send: PhantomData<*const UseReusableTimerHandle>,
}

/// The compiler's error shows this name if code requires a `ReusableTimer` to be `Send`.
enum UseReusableTimerHandle {}

type ReusableCallback = dyn FnMut(&ReusableTimer);

/// The state of a `ReusableTimer`. The armed callback has a `Weak` reference to the state.
struct ReusableTimerState<F: ?Sized> {
    /// The handle of the latest arming, kept even after the timer has ended.
    latest_handle: Cell<Option<LocalHandle>>,
    /// The number of armings so far, including refused armings.
    arming_count: Cell<u64>,
    /// The number of the arming to which `latest_handle` belongs.
    latest_handle_arming_number: Cell<u64>,
    /// The number of the arming that fired last.
    fired_arming_number: Cell<u64>,
    /// Borrowed while the callback runs. The borrow never fails, because the callback never runs
    /// inside itself.
    callback: RefCell<F>,
}

/// How a [`ReusableTimer`] ended; returned by [`ReusableTimer::last_end`].
///
/// # Examples
///
/// ```
/// use corewheel::{ReusableTimer, TimerEnd};
/// use std::time::Duration;
///
/// let flush = ReusableTimer::new(|_| println!("flush the batch"));
/// flush.arm(Duration::from_millis(5));
/// flush.cancel();
/// match flush.last_end() {
///     Some(TimerEnd::Fired) => println!("the batch was flushed"),
///     Some(TimerEnd::Cancelled) => println!("the batch waits for its next entry"),
///     None => println!("it is pending, or was never armed"),
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimerEnd {
    /// The callback has run, or has panicked.
    Fired,
    /// The timer was cancelled, or its thread's wheel has ended.
    Cancelled,
}

impl ReusableTimer {
    /// Creates a timer that is not armed.
    ///
    /// `callback` runs on this thread each time that the timer fires. A panic of the callback is
    /// reported, and the timer can be armed again.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{ReusableTimer, local_timer};
    ///
    /// let keep_alive = ReusableTimer::new(|_| println!("ping"));
    /// assert!(local_timer().is_empty());
    /// # drop(keep_alive);
    /// ```
    pub fn new(callback: impl FnMut(&ReusableTimer) + 'static) -> Self {
        let mut callback = CatchDropPanic(Some(callback));
        let callback = move |timer: &Self| {
            if let Some(callback) = &mut callback.0 {
                callback(timer);
            }
        };
        let state = ReusableTimerState {
            latest_handle: Cell::new(None),
            arming_count: Cell::new(0),
            latest_handle_arming_number: Cell::new(0),
            fired_arming_number: Cell::new(0),
            callback: RefCell::new(callback),
        };
        Self { state: Rc::new(state), is_original: true, not_send: PhantomData }
    }

    /// Arms the timer and returns false, or if the timer is pending, resets it and returns true.
    ///
    /// `when` is a delay or an instant; see [`When`]. If the callback arms its own timer, the timer
    /// fires in a later turn.
    ///
    /// # Panics
    ///
    /// Panics if [`try_arm`](Self::try_arm) would return an error.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::ReusableTimer;
    /// use std::time::Duration;
    ///
    /// let flush = ReusableTimer::new(|_| println!("flush the batch"));
    /// assert!(!flush.arm(Duration::from_millis(5)));
    /// assert!(flush.arm(Duration::from_millis(2))); // reset to an earlier time
    /// ```
    #[track_caller]
    pub fn arm(&self, when: impl Into<When>) -> bool {
        match self.try_arm(when) {
            Ok(was_pending) => was_pending,
            Err(reason) => panic!("timer not armed: {reason}"),
        }
    }

    /// Arms the timer and returns false, or if the timer is pending, resets it and returns true.
    /// Returns an error where [`arm`](Self::arm) panics.
    ///
    /// # Errors
    ///
    /// Returns an error in the same cases as [`LocalTimer::try_add`](crate::LocalTimer::try_add).
    /// After an error, the timer is not armed, but keeps its callback.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{AddErrorReason, Config, ReusableTimer};
    /// use std::time::Duration;
    ///
    /// Config::new().limit(0).install()?;
    /// let flush = ReusableTimer::new(|_| println!("flush the batch"));
    /// assert_eq!(flush.try_arm(Duration::from_millis(5)), Err(AddErrorReason::Full));
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    #[track_caller]
    pub fn try_arm(&self, when: impl Into<When>) -> Result<bool, AddErrorReason> {
        let when = when.into();
        let state = &self.state;
        let try_reset = || state.latest_handle.get().is_some_and(|timer| timer.reset(when));
        if try_reset() {
            return Ok(true);
        }
        let (previous_handle, arming_number) =
            (state.latest_handle.get(), state.arming_count.get() + 1);
        state.arming_count.set(arming_number);
        let weak_state = Rc::downgrade(state);
        let fire_timer = move || Self::fire(&weak_state, arming_number);
        let add_result = local_timer().try_add_local(when, fire_timer);
        // The add may have run user code, such as a destructor or the wake hook. User code in the
        // add may have armed this `ReusableTimer`, or run a turn that fired the added timer.
        let was_armed_by_user_code = state.latest_handle.get() != previous_handle;
        match add_result {
            Ok(timer) if !was_armed_by_user_code || timer.is_pending() => {
                state.latest_handle_arming_number.set(arming_number);
                let replaced_handle = state.latest_handle.replace(Some(timer));
                replaced_handle.filter(|_| was_armed_by_user_code).map(LocalHandle::cancel);
                Ok(false)
            }
            Ok(_) => Ok(false), // the added timer has already fired
            // The user code's arming may have taken the last room below the limit of live timers,
            // so this call resets the timer of that arming.
            Err(_) if was_armed_by_user_code && try_reset() => Ok(true),
            Err(add_error) => Err(add_error.reason()),
        }
    }

    fn fire(state: &Weak<ReusableTimerState<ReusableCallback>>, arming_number: u64) {
        // After a drain, a program may drop the `ReusableTimer`, and then run its `DrainedTimer`,
        // which does nothing.
        let Some(state) = state.upgrade() else { return };
        state.fired_arming_number.set(arming_number);
        let timer = Self { state, is_original: false, not_send: PhantomData };
        (*timer.state.callback.borrow_mut())(&timer);
    }

    /// Cancels the timer, which can be armed again. Returns the answer of [`TimerHandle::cancel`],
    /// or [`Cancel::Ended`] if the timer was never armed.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Cancel, ReusableTimer};
    /// use std::time::Duration;
    ///
    /// let flush = ReusableTimer::new(|_| println!("flush the batch"));
    /// flush.arm(Duration::from_millis(5));
    /// assert_eq!(flush.cancel(), Cancel::Cancelled);
    /// assert_eq!(flush.cancel(), Cancel::Ended);
    /// ```
    pub fn cancel(&self) -> Cancel {
        self.state.latest_handle.get().map_or(Cancel::Ended, LocalHandle::cancel)
    }

    /// Returns whether the timer is pending, running or ended. A timer that was never armed counts
    /// as ended.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{ReusableTimer, TimerStatus, local_timer};
    /// use std::{cell::Cell, rc::Rc, time::Duration};
    ///
    /// let seen = Rc::new(Cell::new(TimerStatus::Ended));
    /// let sees = Rc::clone(&seen);
    /// let flush = ReusableTimer::new(move |timer| sees.set(timer.status()));
    /// assert_eq!(flush.status(), TimerStatus::Ended);
    /// flush.arm(Duration::from_millis(5));
    /// assert_eq!(flush.status(), TimerStatus::Pending);
    /// local_timer().run_until_empty();
    /// assert_eq!(seen.get(), TimerStatus::Running);
    /// ```
    pub fn status(&self) -> TimerStatus {
        self.state.latest_handle.get().map_or(TimerStatus::Ended, |timer| timer.handle.status())
    }

    /// Returns true if the timer is [pending](TimerStatus::Pending). Cost: constant.
    ///
    /// # Examples
    ///
    /// To extend an idle timeout, call [`arm`](Self::arm) at each write. But a write timeout counts
    /// from the oldest write that the peer has not accepted, so arm a write timeout only if it is
    /// not pending:
    ///
    /// ```
    /// use corewheel::ReusableTimer;
    /// use std::time::Duration;
    ///
    /// let write_timeout = ReusableTimer::new(|_| println!("close the connection"));
    /// for _write in 0..2 {
    ///     if !write_timeout.is_pending() {
    ///         write_timeout.arm(Duration::from_secs(10));
    ///     }
    /// }
    /// write_timeout.cancel(); // the peer has accepted all bytes
    /// assert!(!write_timeout.is_pending());
    /// ```
    pub fn is_pending(&self) -> bool {
        self.state.latest_handle.get().is_some_and(LocalHandle::is_pending)
    }

    /// Returns the deadline of the timer if it is pending; see
    /// [`LocalTimer::deadline`](crate::LocalTimer::deadline).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{ReusableTimer, local_timer};
    /// use std::time::Duration;
    ///
    /// let flush = ReusableTimer::new(|_| println!("flush the batch"));
    /// assert_eq!(flush.deadline(), None);
    /// flush.arm(Duration::from_secs(5));
    /// assert!(flush.deadline().expect("it is pending") > local_timer().now());
    /// ```
    pub fn deadline(&self) -> Option<Instant> {
        self.state.latest_handle.get()?.deadline()
    }

    /// Returns the time until the deadline if the timer is pending; zero if the deadline has
    /// elapsed. See [`LocalTimer::time_left`](crate::LocalTimer::time_left).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::ReusableTimer;
    /// use std::time::Duration;
    ///
    /// let flush = ReusableTimer::new(|_| println!("flush the batch"));
    /// flush.arm(Duration::from_secs(5));
    /// assert!(flush.time_left().expect("it is pending") > Duration::from_secs(4));
    /// ```
    pub fn time_left(&self) -> Option<Duration> {
        self.state.latest_handle.get()?.time_left()
    }

    /// Returns how the timer ended after its latest arming. Returns `None` if the timer is pending
    /// or running, or was never armed.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, ManualClock, ReusableTimer, TimerEnd, local_timer};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// Config::new().clock(&clock).install()?;
    /// let flush = ReusableTimer::new(|_| println!("flush the batch"));
    /// flush.arm(Duration::from_millis(5));
    /// assert_eq!(flush.last_end(), None);
    /// clock.advance(Duration::from_millis(5));
    /// local_timer().turn();
    /// assert_eq!(flush.last_end(), Some(TimerEnd::Fired));
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    pub fn last_end(&self) -> Option<TimerEnd> {
        let has_ended = self.state.latest_handle.get()?.handle.status() == TimerStatus::Ended;
        let has_fired =
            self.state.fired_arming_number.get() == self.state.latest_handle_arming_number.get();
        has_ended.then_some(if has_fired { TimerEnd::Fired } else { TimerEnd::Cancelled })
    }

    /// Returns the handle of the latest arming, or `None` if the timer was never armed. Any thread
    /// can cancel and reset the timer through this handle, without dropping the callback. Arming
    /// the timer after its end creates a new handle.
    ///
    /// A cancel through this handle ends only this arming: the owner's next [`arm`](Self::arm) arms
    /// the timer again. If another thread must end the timer for good, use
    /// [`LocalTimer::add`](crate::LocalTimer::add), whose timers stay ended after a cancel.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Cancel, ReusableTimer, TimerEnd};
    /// use std::{thread, time::Duration};
    ///
    /// let flush = ReusableTimer::new(|_| println!("flush the batch"));
    /// flush.arm(Duration::from_secs(5));
    /// let handle = flush.handle().expect("it is armed");
    /// assert_eq!(thread::spawn(move || handle.cancel()).join().unwrap(), Cancel::Cancelled);
    /// assert_eq!(flush.last_end(), Some(TimerEnd::Cancelled));
    /// ```
    pub fn handle(&self) -> Option<TimerHandle> {
        self.state.latest_handle.get().map(LocalHandle::share)
    }
}

impl Drop for ReusableTimer {
    fn drop(&mut self) {
        // `self` may be the temporary `ReusableTimer` that `fire` lends to the callback. The
        // callback may have armed the timer through `self` after dropping the program's
        // `ReusableTimer`. Then `self` has the last strong reference to the state.
        if self.is_original || Rc::strong_count(&self.state) == 1 {
            self.cancel();
        }
    }
}

impl fmt::Debug for ReusableTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReusableTimer").field("status", &self.status()).finish_non_exhaustive()
    }
}
