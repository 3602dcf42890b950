//! The keys of one core, each with its value and, if it expires, with a timer. This is how the
//! library is used.
//!
//! ```text
//! SET k v PX 100   arms a timer            SET k v   over a key with a deadline: cancels it
//! PEXPIRE k 200    arms it or resets it    PERSIST k cancels it
//! DEL k            cancels it              the timer fires: frees the key and its value
//! ```
//!
//! A key counts as gone from its deadline on, even if its timer has not fired yet: a lookup that
//! finds it later removes it. The timer frees keys without a lookup. It fires within a tick of the
//! deadline, or later if a turn's budget is used up.
//!
//! An entry's number is reused without a generation: a timer ends exactly once, so a cancelled
//! timer never fires for the next key with that number.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use corewheel::{LocalHandle, local_timer};
use hashbrown::HashTable;
use slab::Slab;

/// The keys of one core.
pub(crate) struct Keys {
    entries: Slab<Entry>,
    /// The numbers of the entries, by the hashes of their keys.
    index: HashTable<usize>,
    /// The most keys.
    capacity: usize,
    /// When this was made, by both clocks. The wall clock is read only then: setting it expires no
    /// keys.
    made: Instant,
    made_since_epoch: Duration,
    /// The callbacks of the timers upgrade it.
    own: Weak<RefCell<Self>>,
}

struct Entry {
    key: Box<[u8]>,
    value: Bytes,
    hash: u64,
    expiry: Option<Expiry>,
}

/// The deadline of a key, since the Unix epoch, and its timer, which is armed.
#[derive(Clone, Copy, Debug)]
struct Expiry {
    deadline: Duration,
    timer: LocalHandle,
}

impl Keys {
    pub(crate) fn new(capacity: usize) -> Rc<RefCell<Self>> {
        let made_since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Rc::new_cyclic(|own| {
            RefCell::new(Self {
                // Their final size from the start: growing with a million keys stops the core.
                entries: Slab::with_capacity(capacity),
                index: HashTable::with_capacity(capacity),
                capacity,
                made: Instant::now(),
                made_since_epoch,
                own: Weak::clone(own),
            })
        })
    }

    /// Returns the time since the Unix epoch.
    pub(crate) fn now(&self) -> Duration {
        self.made_since_epoch + self.made.elapsed()
    }

    /// Returns the number of keys, including those whose deadline has passed and whose timer has
    /// not fired yet.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Finds the number of a key. It stays valid until the key is removed.
    pub(crate) fn find(&mut self, hash: u64, key: &[u8]) -> Option<usize> {
        let number = *self.index.find(hash, |&number| &*self.entries[number].key == key)?;
        if self.deadline(number).is_some_and(|deadline| deadline <= self.now()) {
            self.remove(number);
            return None;
        }
        Some(number)
    }

    pub(crate) fn value(&self, number: usize) -> &Bytes {
        &self.entries[number].value
    }

    /// Returns when the key expires, since the Unix epoch.
    pub(crate) fn deadline(&self, number: usize) -> Option<Duration> {
        self.entries[number].expiry.map(|expiry| expiry.deadline)
    }

    /// Gives a key a value. Its deadline stays; a new key has none. Returns the number of the key,
    /// or the error of the limit.
    pub(crate) fn set(
        &mut self,
        hash: u64,
        key: &[u8],
        value: &[u8],
    ) -> Result<usize, &'static str> {
        // A copy: the slice is a part of what its client sent, and would keep all of it in memory.
        let value = Bytes::copy_from_slice(value);
        if let Some(number) = self.find(hash, key) {
            self.entries[number].value = value;
            return Ok(number);
        }
        if self.entries.len() >= self.capacity {
            return Err("OOM there are as many keys as --max-keys allows");
        }
        let number = self.entries.insert(Entry { key: key.into(), value, hash, expiry: None });
        self.index.insert_unique(hash, number, |&number| self.entries[number].hash);
        Ok(number)
    }

    /// Gives a key a deadline. Removes the key if the deadline has passed.
    pub(crate) fn expire_at(&mut self, number: usize, deadline: Duration) {
        let delay = deadline.saturating_sub(self.now());
        if delay.is_zero() {
            self.remove(number);
            return;
        }
        let timer = match self.entries[number].expiry {
            Some(Expiry { timer, .. }) if timer.reset(delay) => timer,
            _ => {
                let own = self.own.upgrade().expect("the keys are borrowed from their `Rc`");
                // Two words: the timer stores them in place, without a box.
                local_timer().add_local(delay, move || own.borrow_mut().expire(number))
            }
        };
        self.entries[number].expiry = Some(Expiry { deadline, timer });
    }

    /// Takes a key's deadline away. Returns true if it had one.
    pub(crate) fn persist(&mut self, number: usize) -> bool {
        let Some(expiry) = self.entries[number].expiry.take() else { return false };
        expiry.timer.cancel();
        true
    }

    pub(crate) fn remove(&mut self, number: usize) {
        self.persist(number);
        let entry = self.entries.remove(number);
        let indexed = self.index.find_entry(entry.hash, |&indexed| indexed == number);
        indexed.expect("every entry is in the index").remove();
    }

    /// Removes all keys.
    pub(crate) fn clear(&mut self) {
        let numbers: Vec<_> = self.entries.iter().map(|(number, _)| number).collect();
        for number in numbers {
            self.remove(number);
        }
    }

    /// Removes a key whose timer fires.
    fn expire(&mut self, number: usize) {
        self.entries[number].expiry = None;
        self.remove(number);
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
        for (hash, key) in [(1, b"a"), (2, b"b"), (3, b"c")] {
            let number = keys.set(hash, key, b"value").expect("there is room");
            keys.expire_at(number, after(30));
        }
        assert!(keys.set(4, b"d", b"").is_err());
        let b = keys.find(2, b"b").expect("its deadline has not passed");
        assert!(keys.persist(b) && !keys.persist(b));
        let c = keys.set(3, b"c", b"other").expect("the key is there");
        keys.expire_at(c, after(60_000));
        assert_eq!((keys.len(), local_timer().len(), &keys.value(c)[..]), (3, 2, &b"other"[..]));
        drop(keys);

        thread::sleep(Duration::from_millis(32));
        assert_eq!(local_timer().turn().fired, 1);
        let mut keys = shared.borrow_mut();
        assert_eq!(keys.len(), 2);
        let found = [(1, b"a"), (2, b"b"), (3, b"c")].map(|(hash, key)| keys.find(hash, key));
        assert_eq!(found.map(|found| found.is_some()), [false, true, true]);
        assert!(keys.set(4, b"d", b"").is_ok());
        keys.clear();
        assert!(keys.len() == 0 && local_timer().is_empty());
    }
}
