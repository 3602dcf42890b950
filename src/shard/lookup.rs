//! Looks up, lists and retains the timers of a shard.

use std::{
    iter,
    time::{Duration, Instant},
};

use super::Shard;
use crate::{
    cross_core::handle::TimerHandle, limits::RESERVE_MAX, util::pages::as_u32, wheel::Storage,
};

impl<T> Shard<T> {
    /// Returns the deadline of a pending timer of this shard, rounded up to a tick. Of a periodic
    /// timer it is the next expiry.
    ///
    /// Returns `None` if the timer has ended, or the handle is of another shard. While another
    /// thread moves the timer, this is the old deadline or the new one.
    ///
    /// Cost: constant, no clock, no lock, no allocation.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Shard;
    /// use std::time::Duration;
    ///
    /// let mut shard = Shard::new();
    /// let lease = shard.add(Duration::from_secs(30), "lease");
    /// let deadline = shard.deadline(lease).expect("it is pending");
    /// assert!(deadline >= shard.now() + Duration::from_secs(29));
    /// shard.cancel(lease);
    /// assert_eq!(shard.deadline(lease), None);
    /// ```
    pub fn deadline(&self, handle: TimerHandle) -> Option<Instant> {
        self.due_own(handle).map(|nanos| self.time.clock.instant_at(nanos))
    }

    /// Returns the time until the deadline of a pending timer of this shard; zero if it has elapsed.
    ///
    /// Returns `None` if the timer has ended, or the handle is of another shard. Cost: constant,
    /// one reading of the clock.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, ManualClock, Shard};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let mut shard = Shard::with_config(Config::new().clock(&clock))?;
    /// let lease = shard.add(Duration::from_secs(30), "lease");
    /// clock.advance(Duration::from_secs(10));
    /// assert_eq!(shard.time_left(lease), Some(Duration::from_secs(20)));
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    pub fn time_left(&self, handle: TimerHandle) -> Option<Duration> {
        let nanos = self.due_own(handle)?;
        let now = self.time.now();
        Some(Duration::from_nanos(nanos.saturating_sub(now)))
    }

    /// Returns the payload of a pending timer of this shard.
    ///
    /// Returns `None` if the timer fired or was cancelled, also by another thread, or the handle is
    /// of another shard. Cost: constant, no clock, no lock.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Cancel, Shard};
    /// use std::{thread, time::Duration};
    ///
    /// let mut shard = Shard::new();
    /// let lease = shard.add(Duration::from_secs(30), "lease");
    /// assert_eq!(shard.get(lease), Some(&"lease"));
    /// thread::spawn(move || lease.cancel()).join().unwrap();
    /// assert_eq!(shard.get(lease), None);
    /// ```
    #[inline]
    pub fn get(&self, handle: TimerHandle) -> Option<&T> {
        let is_own = handle.shard() == self.number;
        if is_own { self.nodes.payload(handle.index(), handle.generation()) } else { None }
    }

    /// Returns the payload of a pending timer of this shard, to change it.
    ///
    /// Returns `None` if the timer fired or was cancelled, also by another thread, or the handle is
    /// of another shard. Cost: constant, no clock, no lock.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Shard;
    /// use std::time::Duration;
    ///
    /// let mut shard = Shard::new();
    /// let retry = shard.add(Duration::from_millis(250), 1);
    /// *shard.get_mut(retry).expect("it is pending") += 1;
    /// assert_eq!(shard.cancel(retry), Some(2));
    /// ```
    #[inline]
    pub fn get_mut(&mut self, handle: TimerHandle) -> Option<&mut T> {
        let is_own = handle.shard() == self.number;
        if is_own { self.nodes.payload_mut(handle.index(), handle.generation()) } else { None }
    }

    /// Returns true if the timer is pending in this shard. Cost: constant, no clock, no lock.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Shard;
    /// use std::time::Duration;
    ///
    /// let mut shard = Shard::new();
    /// let lease = shard.add(Duration::from_secs(30), "lease");
    /// assert!(shard.contains(lease));
    /// assert!(!Shard::<&str>::new().contains(lease));
    /// ```
    #[inline]
    pub fn contains(&self, handle: TimerHandle) -> bool {
        self.get(handle).is_some()
    }

    /// Returns the handle, the deadline and the payload of every pending timer, in no particular
    /// order. Leaves out timers that another thread has cancelled.
    ///
    /// Cost: a few nanoseconds for each timer that the shard has memory for.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Shard;
    /// use std::time::Duration;
    ///
    /// let mut shard = Shard::new();
    /// let lease = shard.add(Duration::from_secs(30), "lease");
    /// let deadline = shard.deadline(lease).expect("it is pending");
    /// assert_eq!(shard.iter().collect::<Vec<_>>(), [(lease, deadline, &"lease")]);
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = (TimerHandle, Instant, &T)> {
        let first = self.nodes.pending_from(0);
        let pending = iter::successors(first, |(index, _)| self.nodes.pending_from(index + 1));
        pending.filter_map(|(index, generation)| {
            let handle = TimerHandle::new(self.number, index, generation);
            Some((handle, self.deadline(handle)?, self.get(handle)?))
        })
    }

    /// Cancels every pending timer for which `keep` returns false, and drops its payload. `keep`
    /// gets the handle, the deadline and the payload, in no particular order.
    ///
    /// Leaves out timers that another thread has cancelled. A payload's destructor that panics is
    /// reported to [`Config::on_panic`](crate::Config::on_panic). If `keep` panics, the remaining
    /// timers stay.
    ///
    /// Cost: as of [`iter`](Self::iter), and of [`cancel`](Self::cancel) for each timer cancelled.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Shard;
    /// use std::time::Duration;
    ///
    /// let mut shard = Shard::new();
    /// shard.add(Duration::from_secs(10), "session 1");
    /// shard.add(Duration::from_secs(20), "session 2");
    /// shard.retain(|_handle, _deadline, session| *session != "session 1");
    /// assert_eq!(shard.len(), 1);
    /// ```
    pub fn retain(&mut self, mut keep: impl FnMut(TimerHandle, Instant, &mut T) -> bool) {
        let mut next = 0;
        while let Some((index, generation)) = self.nodes.pending_from(next) {
            next = index + 1;
            let handle = TimerHandle::new(self.number, index, generation);
            let Some(deadline) = self.deadline(handle) else { continue };
            let is_kept =
                self.get_mut(handle).is_none_or(|payload| keep(handle, deadline, payload));
            if !is_kept {
                let payload = self.cancel(handle);
                self.shared.hooks.isolate_drop(payload);
            }
        }
    }

    /// Cancels every pending timer and drops the payloads. Unlike a shard that was
    /// [drained](Self::drain), this one goes on. Cost: as of [`retain`](Self::retain).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Shard;
    /// use std::time::Duration;
    ///
    /// let mut shard = Shard::new();
    /// shard.add(Duration::from_secs(10), "session");
    /// shard.clear();
    /// assert!(shard.is_empty());
    /// shard.add(Duration::from_secs(10), "another session");
    /// ```
    pub fn clear(&mut self) {
        self.retain(|_, _, _| false);
    }

    /// Allocates memory for `additional` more timers, up to 16 million in all. The shard keeps it
    /// while it is empty. See [`Config::capacity`](crate::Config::capacity).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Shard;
    /// use std::time::Duration;
    ///
    /// let mut shard = Shard::new();
    /// shard.reserve(10_000);
    /// shard.add(Duration::from_secs(10), "session"); // allocates nothing
    /// ```
    pub fn reserve(&mut self, additional: usize) {
        let timers = self.len().saturating_add(additional).min(RESERVE_MAX as usize);
        self.nodes.reserve(as_u32(timers));
    }

    /// Changes the period of a periodic timer of this shard.
    ///
    /// The next expiry stays where it is; [`reset`](Self::reset) moves it. A period shorter than a
    /// tick, zero included, counts as a tick.
    ///
    /// Returns false if the timer has ended or is not periodic, or the handle is of another shard.
    /// Cost: constant, no clock, no lock, no allocation.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Shard;
    /// use std::time::Duration;
    ///
    /// let mut shard = Shard::new();
    /// let heartbeat = shard.add_periodic(Duration::from_secs(1), "connection 1");
    /// // The connection is idle: less often, from now on.
    /// assert!(shard.set_period(heartbeat, Duration::from_secs(30)));
    /// assert!(shard.reset(heartbeat, Duration::from_secs(30)));
    /// ```
    #[must_use = "a timer that is not periodic, or has ended, keeps no period"]
    pub fn set_period(&mut self, handle: TimerHandle, period: Duration) -> bool {
        let (index, generation) = (handle.index(), handle.generation());
        let will_run_again = handle.shard() == self.number
            && self.nodes.finds(index, generation)
            && self.nodes.entry(index).state().will_run_again(generation);
        if will_run_again {
            let period = self.time.tick.period(period);
            let node = self.nodes.entry(index);
            if node.is_not_admitted() {
                // The adder wrote the period before it had the handle.
                node.set_requested_period(period);
            } else {
                self.nodes.periodic(index).period = period;
            }
        }
        will_run_again
    }

    /// Returns the deadline of a pending timer in nanoseconds of the clock, rounded up to a tick.
    fn due_own(&self, handle: TimerHandle) -> Option<u64> {
        let index = handle.index();
        if handle.shard() != self.number || !self.nodes.knows(index) {
            return None;
        }
        let node = self.nodes.entry(index);
        if node.state().is_pending_and_moved(handle.generation())? {
            Some(self.time.tick.round_up(node.requested().read()))
        } else {
            Some(self.due_nanos(index))
        }
    }
}
