//! A queue that yields its entries when their delays have passed.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use corewheel::Wheel;
use futures_core::Stream;
use slab::Slab;
use tokio::task::coop;

use super::{Instant, Sleep, sleep_until, virtual_time::panic_if_stuck};

/// A queue that yields its entries when their delays have passed, with the methods of tokio-util's
/// `DelayQueue`.
///
/// The queue is a `Stream` of [`Expired`], which ends when the queue is empty, and yields again
/// after the next insert. Deadlines are rounded up to a millisecond. Like a [`Sleep`], the queue
/// measures time by the clock of this thread's [timers](super#which-wheel-a-future-uses).
///
/// Cost: an insert, removal or reset takes constant time, as in a [`Wheel`]. Even a queue with one
/// entry takes about 150 kB, the memory of a whole `Wheel`, so prefer one queue with many entries to
/// many queues.
///
/// # What differs from tokio-util
///
/// * Any deadline is valid; tokio-util panics beyond about 2 years.
/// * A stale [`Key`] never names another entry.
/// * [`Expired::deadline`] and [`deadline`](Self::deadline) return the requested instant, not
///   rounded.
/// * Entries of the same millisecond expire in an unspecified order, and so do entries set to a
///   time before the first insert or an earlier poll.
/// * [`peek`](Self::peek) looks at every entry, and may return the key of any entry that may expire
///   next.
/// * [`compact`](Self::compact) moves no entry, like [`shrink_to_fit`](Self::shrink_to_fit).
///
/// # Examples
///
/// ```
/// use corewheel_tokio::time::{DelayQueue, Duration};
/// use std::future::poll_fn;
///
/// # #[cfg(any(target_os = "linux", target_os = "android"))]
/// corewheel_tokio::run(async {
///     let mut sessions = DelayQueue::new();
///     let first = sessions.insert("first", Duration::from_millis(5));
///     let second = sessions.insert("second", Duration::from_millis(10));
///     sessions.reset(&first, Duration::from_millis(20));
///     assert_eq!(sessions.remove(&second).into_inner(), "second");
///
///     let expired = poll_fn(|cx| sessions.poll_expired(cx)).await.unwrap();
///     assert_eq!(expired.into_inner(), "first");
///     assert!(poll_fn(|cx| sessions.poll_expired(cx)).await.is_none());
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct DelayQueue<T> {
    /// Contains indices of `entries`. A tick is a millisecond, counted from `start`.
    wheel: Wheel<usize>,
    entries: Slab<Entry<T>>,
    /// The time of the first insert or poll. `new` does not read the time: if the thread's clock is
    /// replaced by a clock that is behind, entries with deadlines before `start` expire early.
    start: Option<Instant>,
    /// The sleep that the latest pending poll waits for. It ends at the deadline that was the
    /// earliest at that poll.
    sleep: Option<Sleep>,
    /// The waker of the latest poll, called when an entry gets a deadline before the end of
    /// `sleep`, or when the queue becomes empty.
    waker: Option<Waker>,
}

#[derive(Debug)]
struct Entry<T> {
    value: T,
    deadline: Instant,
    wheel_key: corewheel::Key,
}

/// Identifies one entry of a [`DelayQueue`]. Use a key only with the queue that returned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    index: usize,
    wheel_key: corewheel::Key,
}

/// An entry that has expired or was removed from its queue.
#[derive(Debug)]
pub struct Expired<T> {
    value: T,
    deadline: Instant,
    key: Key,
}

impl<T> DelayQueue<T> {
    /// Creates an empty queue.
    pub fn new() -> Self {
        Self::with_capacity(0)
    }

    /// Creates an empty queue with room for `capacity` entries.
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            wheel: Wheel::new(),
            entries: Slab::with_capacity(capacity),
            start: None,
            sleep: None,
            waker: None,
        }
    }

    /// Inserts an entry that expires `timeout` from now.
    ///
    /// # Panics
    ///
    /// Panics if the queue has 2^25 - 1 entries.
    #[track_caller]
    pub fn insert(&mut self, value: T, timeout: Duration) -> Key {
        self.insert_at(value, Instant::now().saturating_add(timeout))
    }

    /// Inserts an entry that expires at `when`, or within a millisecond if `when` has passed.
    ///
    /// # Panics
    ///
    /// Panics if the queue has 2^25 - 1 entries.
    #[track_caller]
    pub fn insert_at(&mut self, value: T, when: Instant) -> Key {
        let tick = self.tick_of(when);
        let vacant_entry = self.entries.vacant_entry();
        let index = vacant_entry.key();
        let wheel_key = self.wheel.insert(tick, index);
        vacant_entry.insert(Entry { value, deadline: when, wheel_key });
        self.wake_if_earlier(when);
        Key { index, wheel_key }
    }

    /// Polls for the next entry whose deadline has passed. Returns `None` if the queue is empty.
    ///
    /// If the poll is pending, the task is woken at the next deadline, by an earlier new deadline,
    /// or when the queue becomes empty. If the poll leaves the queue empty, the next insert wakes
    /// the task.
    ///
    /// # Panics
    ///
    /// Panics if no timer is available, the default timers cannot be started, or nothing advances
    /// the [paused](super::pause) clock.
    pub fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<Option<Expired<T>>> {
        panic_if_stuck();
        // As in tokio-util, a task that takes many due entries yields to other tasks.
        let budget = ready!(coop::poll_proceed(cx));
        self.waker.get_or_insert_with(|| cx.waker().clone()).clone_from(cx.waker());
        loop {
            let start = *self.start.get_or_insert_with(Instant::now);
            let now = Instant::now().duration_since(start).as_millis();
            if let Some(index) = self.unlink_next_due(u64::try_from(now).unwrap_or(u64::MAX)) {
                budget.made_progress();
                let expired = self.take_entry(index);
                if self.is_empty() {
                    self.sleep = None; // The next insert wakes the task.
                }
                return Poll::Ready(Some(expired));
            }
            let Some(next_tick) = self.wheel.next_deadline() else {
                self.sleep = None;
                return Poll::Ready(None);
            };
            let next_deadline = start.saturating_add(Duration::from_millis(next_tick));
            let sleep = self.sleep.get_or_insert_with(|| sleep_until(next_deadline));
            if sleep.deadline() != next_deadline {
                Pin::new(&mut *sleep).reset(next_deadline);
            }
            ready!(sleep.poll_unconstrained(cx));
            // The sleep can have elapsed by another clock: the sleep was created before `pause`, or
            // a full wheel refused the sleep's timer and another wheel accepted it.
            let new_sleep = sleep_until(next_deadline);
            if new_sleep.clamped_deadline() < next_deadline {
                return Poll::Pending; // `next_deadline` is beyond the clock's range.
            }
            self.sleep = Some(new_sleep);
        }
    }

    /// Returns the deadline of an entry.
    ///
    /// # Panics
    ///
    /// Panics if the entry has left the queue.
    #[track_caller]
    pub fn deadline(&self, key: &Key) -> Instant {
        self.entry(key).expect(STALE_KEY_TEXT).deadline
    }

    /// Removes an entry.
    ///
    /// # Panics
    ///
    /// Panics if the entry has left the queue.
    #[track_caller]
    pub fn remove(&mut self, key: &Key) -> Expired<T> {
        self.try_remove(key).expect(STALE_KEY_TEXT)
    }

    /// Removes an entry. Returns `None` if the entry has left the queue.
    pub fn try_remove(&mut self, key: &Key) -> Option<Expired<T>> {
        self.entry(key)?;
        self.wheel.remove(key.wheel_key);
        let removed = self.take_entry(key.index);
        if self.is_empty() {
            // The woken task's next poll returns `None`.
            self.waker.take().into_iter().for_each(Waker::wake);
        }
        Some(removed)
    }

    /// Moves an entry to `timeout` from now.
    ///
    /// # Panics
    ///
    /// Panics if the entry has left the queue.
    #[track_caller]
    pub fn reset(&mut self, key: &Key, timeout: Duration) {
        self.reset_at(key, Instant::now().saturating_add(timeout));
    }

    /// Moves an entry to `when`. If `when` has passed, the entry expires within a millisecond.
    ///
    /// # Panics
    ///
    /// Panics if the entry has left the queue.
    #[track_caller]
    pub fn reset_at(&mut self, key: &Key, when: Instant) {
        let tick = self.tick_of(when);
        assert!(self.wheel.reset(key.wheel_key, tick), "{STALE_KEY_TEXT}");
        self.entries[key.index].deadline = when;
        self.wake_if_earlier(when);
    }

    /// Returns the key of an entry with the earliest deadline. Cost: compares all entries.
    pub fn peek(&self) -> Option<Key> {
        let (index, entry) = self.entries.iter().min_by_key(|(_, entry)| entry.deadline)?;
        Some(Key { index, wheel_key: entry.wheel_key })
    }

    /// Drops every entry. Keeps the capacity.
    pub fn clear(&mut self) {
        if self.is_empty() {
            return; // The next insert wakes the task.
        }
        self.sleep = None;
        self.wheel.clear();
        // Drops the values last, because a destructor may panic.
        let _entries = self.entries.drain();
        self.waker.take().into_iter().for_each(Waker::wake);
    }

    /// Returns the number of entries whose values fit without another allocation.
    pub fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    /// Allocates room for `additional` entries.
    pub fn reserve(&mut self, additional: usize) {
        self.entries.reserve(additional);
    }

    /// Frees the capacity behind the last entry. Entries do not move.
    pub fn shrink_to_fit(&mut self) {
        self.entries.shrink_to_fit();
    }

    /// Frees the capacity behind the last entry. Entries do not move.
    pub fn compact(&mut self) {
        self.entries.shrink_to_fit();
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if the queue has no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn entry(&self, key: &Key) -> Option<&Entry<T>> {
        self.entries.get(key.index).filter(|entry| entry.wheel_key == key.wheel_key)
    }

    /// Unlinks the next entry due at tick `now`. Advances the wheel only to this entry's deadline,
    /// so that an entry set to a passed deadline expires in order.
    fn unlink_next_due(&mut self, now: u64) -> Option<usize> {
        loop {
            let tick = self.wheel.next_deadline().map_or(now, |next| next.min(now));
            if let Some((_, index)) = self.wheel.advance(tick).next() {
                return Some(index);
            }
            if tick == now {
                return None;
            }
        }
    }

    /// Removes the value of an entry that has left the wheel.
    fn take_entry(&mut self, index: usize) -> Expired<T> {
        let Entry { value, deadline, wheel_key } = self.entries.remove(index);
        Expired { value, deadline, key: Key { index, wheel_key } }
    }

    /// Returns the tick of `when` in milliseconds, rounded up; 0 if `when` is before `start`.
    fn tick_of(&mut self, when: Instant) -> u64 {
        let start = *self.start.get_or_insert_with(Instant::now);
        let tick = when.duration_since(start).as_nanos().div_ceil(1_000_000);
        u64::try_from(tick).unwrap_or(u64::MAX)
    }

    /// Wakes the task if `when` is before the end of `sleep`, or there is no `sleep`.
    fn wake_if_earlier(&mut self, when: Instant) {
        if self.sleep.as_ref().is_none_or(|sleep| when < sleep.deadline()) {
            self.waker.take().into_iter().for_each(Waker::wake);
        }
    }
}

const STALE_KEY_TEXT: &str = "invalid key: its entry has left the queue";

impl<T> Expired<T> {
    /// Returns a reference to the value.
    pub fn get_ref(&self) -> &T {
        &self.value
    }

    /// Returns a mutable reference to the value.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.value
    }

    /// Returns the value without its key and deadline.
    pub fn into_inner(self) -> T {
        self.value
    }

    /// Returns the deadline of the entry.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns the key of the entry.
    pub fn key(&self) -> Key {
        self.key
    }
}

impl<T> Default for DelayQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Unpin for DelayQueue<T> {}

impl<T> Stream for DelayQueue<T> {
    type Item = Expired<T>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Expired<T>>> {
        self.get_mut().poll_expired(cx)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len(), None)
    }
}

impl<T> fmt::Debug for DelayQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayQueue").field("len", &self.len()).finish_non_exhaustive()
    }
}
