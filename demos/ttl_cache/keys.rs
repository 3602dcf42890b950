//! The keys of one core, each with its value and, if it expires, with a timer.
//!
//! ```text
//! SET k v          cancels an old timer    SET k v PX 100   then arms a timer
//! PEXPIRE k 200    arms it or resets it    PERSIST k        cancels it
//! DEL k            cancels it              the timer fires: frees the key and its value
//! ```
//!
//! From a key's deadline on, no lookup finds the key, even if its timer has not fired yet: such a
//! lookup removes the key. Without a lookup, the timer removes it. The timer fires within a tick of
//! the deadline, or later if the thread is busy or the budget of a turn is exhausted.
//!
//! A timer ends exactly once, so a cancelled timer never removes a later key with the same name.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use corewheel::{LocalHandle, local_timer};

pub(crate) struct Keys {
    entries: HashMap<Rc<[u8]>, Entry>,
    capacity: usize,
    /// The time of creation by the monotonic clock.
    created_at: Instant,
    /// The time of creation by the wall clock, which is read only once, so that setting the wall
    /// clock expires no keys.
    created_since_epoch: Duration,
    /// Refers to these keys: each timer's callback captures an upgraded clone.
    weak_self: Weak<RefCell<Self>>,
}

#[derive(Default)]
pub(crate) struct Entry {
    pub(crate) value: Bytes,
    /// The deadline since the Unix epoch, and its armed timer; `None` if the key does not expire.
    expiry: Option<(Duration, LocalHandle)>,
}

impl Entry {
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.expiry.map(|(deadline, _)| deadline)
    }

    /// Removes the deadline and cancels its timer. Returns true if there was one.
    pub(crate) fn persist(&mut self) -> bool {
        self.expiry.take().map(|(_, timer)| timer.cancel()).is_some()
    }
}

impl Keys {
    pub(crate) fn new(capacity: usize) -> Rc<RefCell<Self>> {
        let created_since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Rc::new_cyclic(|weak_self| {
            RefCell::new(Self {
                // Allocates the final size, because growing a table of a million keys would stall
                // the core.
                entries: HashMap::with_capacity(capacity),
                capacity,
                created_at: Instant::now(),
                created_since_epoch,
                weak_self: Weak::clone(weak_self),
            })
        })
    }

    /// Returns the time since the Unix epoch.
    pub(crate) fn now(&self) -> Duration {
        self.created_since_epoch + self.created_at.elapsed()
    }

    /// Returns the number of keys, including expired keys whose timer has not fired yet.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn find(&mut self, key: &[u8]) -> Option<&mut Entry> {
        let deadline = self.entries.get(key)?.deadline();
        if deadline.is_some_and(|deadline| deadline <= self.now()) {
            self.remove(key);
        }
        self.entries.get_mut(key)
    }

    /// Sets the value of a key, and keeps its deadline. Returns the entry, or an error if there are
    /// too many keys.
    pub(crate) fn set(&mut self, key: &[u8], value: &[u8]) -> Result<&mut Entry, &'static str> {
        if self.find(key).is_none() && self.entries.len() >= self.capacity {
            return Err("OOM there are as many keys as --max-keys allows");
        }
        let entry = self.entries.entry(key.into()).or_default();
        // Copies the value: a slice would keep the whole buffer of the client in memory.
        entry.value = Bytes::copy_from_slice(value);
        Ok(entry)
    }

    /// Sets the deadline of a key. Removes the key if the deadline has passed. Returns false if
    /// there is no such key.
    pub(crate) fn expire_at(&mut self, key: &[u8], deadline: Duration) -> bool {
        let delay = deadline.saturating_sub(self.now());
        let weak_self = Weak::clone(&self.weak_self);
        let Some(entry) = self.find(key) else { return false };
        if delay.is_zero() {
            return self.remove(key);
        }
        let timer = match entry.expiry {
            Some((_, timer)) if timer.reset(delay) => timer,
            _ => {
                let keys = weak_self.upgrade().expect("the keys are borrowed from their `Rc`");
                let key: Rc<[u8]> = key.into();
                // The closure has three words, so the timer stores it inline.
                local_timer().add_local(delay, move || drop(keys.borrow_mut().entries.remove(&key)))
            }
        };
        entry.expiry = Some((deadline, timer));
        true
    }

    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        self.entries.remove(key).map(|mut entry| entry.persist()).is_some()
    }

    pub(crate) fn clear(&mut self) {
        self.entries.drain().for_each(|(_, mut entry)| _ = entry.persist());
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_timer_frees_its_key_at_the_deadline() {
        let shared = Keys::new(3);
        let mut keys = shared.borrow_mut();
        let now = keys.now();
        let after = |millis| now + Duration::from_millis(millis);
        for key in [b"a", b"b", b"c"] {
            keys.set(key, b"value").expect("there is room");
            assert!(keys.expire_at(key, after(30)));
        }
        assert!(keys.set(b"d", b"").is_err());
        let b = keys.find(b"b").expect("its deadline has not passed");
        assert!(b.persist() && !b.persist());
        keys.set(b"c", b"other").expect("the key is there");
        assert!(keys.expire_at(b"c", after(60_000)));
        assert_eq!((keys.len(), local_timer().len()), (3, 2));
        drop(keys);

        thread::sleep(Duration::from_millis(32));
        assert_eq!(local_timer().turn().fired, 1);
        let mut keys = shared.borrow_mut();
        assert_eq!(keys.len(), 2);
        let is_there = [b"a", b"b", b"c"].map(|key| keys.find(key).is_some());
        assert_eq!(is_there, [false, true, true]);
        assert!(keys.set(b"d", b"").is_ok());
        keys.clear();
        assert!(keys.len() == 0 && local_timer().is_empty());
    }
}
