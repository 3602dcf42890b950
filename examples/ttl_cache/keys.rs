//! The keys of one core, each with its value and, if it has a deadline, with a timer. This is how the library is used.
//!
//! ```text
//! SET k v PX 100   arms a timer            SET k v   (over a key with a deadline) cancels it
//! PEXPIRE k 200    arms it or moves it     PERSIST k cancels it
//! DEL k            cancels it              the timer fires: the key goes, and its memory with it
//! ```
//!
//! A key counts as gone from the microsecond of its deadline on, whether its timer has fired or not: whoever finds it
//! then, removes it. The timer is there so that nobody has to come by: it fires within a tick of the deadline, or later
//! by what a turn's budget has carried over.
//!
//! The number of an entry is free again as soon as its key is gone. No generation guards it: a timer ends exactly once,
//! so after it was cancelled it cannot come for the number's next key.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::time::Duration;

use corewheel::{LocalHandle, local_timer};
use slab::Slab;

use crate::index::{Chained, Entries, Index, Link};
use crate::moment::{Clock, Moment};
use crate::record::Record;
use crate::reply::Refused;

const FULL: Refused =
    Refused::Because("OOM no room for another key: there are as many as --max-keys allows");
const NO_MEMORY: Refused =
    Refused::Because("OOM no memory for another value: keys take as much as --max-memory allows");

/// What a key takes beside its own bytes and those of its value: its entry and its timer, about.
const PER_KEY: usize = size_of::<Entry>() + 96;

/// What the keys of a core may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) keys: usize,
    pub(crate) bytes: usize,
}

/// The keys of one core.
pub(crate) struct Keys {
    entries: Slab<Entry>,
    index: Index,
    clock: Clock,
    room: Room,
    bytes: usize,
    expiring: usize,
    expired: u64,
    /// What the timers hold.
    own: Weak<RefCell<Self>>,
}

struct Entry {
    record: Record,
    hash: u64,
    next: Link,
    expiry: Option<Expiry>,
}

/// When a key goes, and the timer that sees to it: it is armed, always.
#[derive(Clone, Copy)]
struct Expiry {
    at: Moment,
    timer: LocalHandle,
}

impl Keys {
    pub(crate) fn new(clock: Clock, room: Room) -> Rc<RefCell<Self>> {
        Rc::new_cyclic(|own| {
            RefCell::new(Self {
                // Memory that nobody touches costs nothing; so neither this nor the index ever moves.
                entries: Slab::with_capacity(room.keys),
                index: Index::new(room.keys),
                clock,
                room,
                bytes: 0,
                expiring: 0,
                expired: 0,
                own: Weak::clone(own),
            })
        })
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    /// Keys that are there, those included whose deadline has come and whose timer has not fired yet.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Those of them with a deadline.
    pub(crate) fn expiring(&self) -> usize {
        self.expiring
    }

    /// Those that have gone at their deadline so far.
    pub(crate) fn expired(&self) -> u64 {
        self.expired
    }

    /// What they take, about, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of a key, by which the other methods know it until it is removed.
    pub(crate) fn find(&mut self, hash: u64, key: &[u8]) -> Option<usize> {
        let found = self.index.find(&mut self.entries, hash, |entry| entry.record.key() == key)?;
        let expiry = self.entries[found].expiry;
        if expiry.is_some_and(|expiry| expiry.at <= self.clock.now()) {
            self.expired += 1;
            self.remove(found);
            return None;
        }
        Some(found)
    }

    pub(crate) fn value(&self, number: usize) -> &[u8] {
        self.entries[number].record.value()
    }

    /// When the key goes; `None` if it stays.
    pub(crate) fn deadline(&self, number: usize) -> Option<Moment> {
        self.entries[number].expiry.map(|expiry| expiry.at)
    }

    /// Adds a key that is not there, without a deadline.
    pub(crate) fn insert(&mut self, hash: u64, key: &[u8], value: &[u8]) -> Result<usize, Refused> {
        if self.entries.len() >= self.room.keys {
            return Err(FULL);
        }
        self.take_room(0, PER_KEY + key.len() + value.len())?;
        let record = Record::new(key, value);
        let number =
            self.entries.insert(Entry { record, hash, next: Link::default(), expiry: None });
        self.index.insert(&mut self.entries, number);
        Ok(number)
    }

    /// Gives a key another value; its deadline stays.
    pub(crate) fn set_value(&mut self, number: usize, value: &[u8]) -> Result<(), Refused> {
        self.take_room(self.value(number).len(), value.len())?;
        self.entries[number].record.set_value(value);
        Ok(())
    }

    /// Lengthens a value; how long it is then.
    pub(crate) fn append(&mut self, number: usize, more: &[u8]) -> Result<usize, Refused> {
        self.take_room(0, more.len())?;
        self.entries[number].record.append(more);
        Ok(self.value(number).len())
    }

    /// Lets a key go at this moment, which may have passed: then it goes now.
    pub(crate) fn expire_at(&mut self, number: usize, at: Moment) {
        let delay = at.since(self.clock.now());
        if delay.is_zero() {
            self.remove(number);
            return;
        }
        let armed = self.entries[number].expiry.map(|expiry| expiry.timer);
        let timer =
            armed.filter(|timer| timer.reset(delay)).unwrap_or_else(|| self.arm(number, delay));
        self.entries[number].expiry = Some(Expiry { at, timer });
    }

    fn arm(&mut self, number: usize, delay: Duration) -> LocalHandle {
        self.expiring += 1;
        let own = self.own.upgrade().expect("it is being borrowed");
        // Two words, well under the 32 bytes that are stored in place: nothing is boxed.
        local_timer().add_local(delay, move || own.borrow_mut().expire(number))
    }

    /// Lets a key stay. Whether it would have gone.
    pub(crate) fn persist(&mut self, number: usize) -> bool {
        let expiry = self.entries[number].expiry.take();
        if let Some(Expiry { timer, .. }) = expiry {
            timer.cancel();
            self.expiring -= 1;
        }
        expiry.is_some()
    }

    pub(crate) fn remove(&mut self, number: usize) {
        self.persist(number);
        self.index.remove(&mut self.entries, number);
        let Entry { record, .. } = self.entries.remove(number);
        self.bytes -= PER_KEY + record.len();
    }

    /// Removes all keys at once.
    pub(crate) fn clear(&mut self) {
        let numbers: Vec<_> = self.entries.iter().map(|(number, _)| number).collect();
        for number in numbers {
            self.remove(number);
        }
    }

    /// Runs when a key's timer fires.
    fn expire(&mut self, number: usize) {
        // It has ended, and there is nothing to cancel.
        self.entries[number].expiry = None;
        self.expiring -= 1;
        self.expired += 1;
        self.remove(number);
    }

    /// Bytes that go and bytes that come in their place.
    fn take_room(&mut self, old: usize, new: usize) -> Result<(), Refused> {
        let bytes = self.bytes - old + new;
        if new > old && bytes > self.room.bytes {
            return Err(NO_MEMORY);
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Chained for Entry {
    fn hash(&self) -> u64 {
        self.hash
    }

    fn next(&mut self) -> &mut Link {
        &mut self.next
    }
}

impl Entries for Slab<Entry> {
    type Entry = Entry;

    fn entry(&mut self, number: usize) -> &mut Entry {
        &mut self[number]
    }
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use corewheel::local_timer;

    use super::{FULL, Keys, Room};
    use crate::moment::Clock;

    const ROOM: Room = Room { keys: 3, bytes: 1 << 20 };

    #[test]
    fn a_key_goes_at_its_deadline_with_all_that_it_took() {
        let shared = Keys::new(Clock::start(), ROOM);
        let mut keys = shared.borrow_mut();
        let after = |millis| Clock::start().after(millis).expect("near");
        for (hash, key) in [(1, b"a"), (2, b"b"), (3, b"c")] {
            let number = keys.insert(hash, key, b"value").expect("there is room");
            keys.expire_at(number, after(30));
        }
        assert_eq!(keys.insert(4, b"d", b""), Err(FULL));
        let b = keys.find(2, b"b").expect("its time has not come");
        assert!(keys.persist(b) && !keys.persist(b));
        let c = keys.find(3, b"c").expect("its time has not come");
        keys.expire_at(c, after(60_000));
        assert_eq!((keys.len(), keys.expiring()), (3, 2));
        drop(keys);

        thread::sleep(Duration::from_millis(32));
        assert_eq!(local_timer().turn().fired, 1);
        let mut keys = shared.borrow_mut();
        assert_eq!((keys.len(), keys.expiring(), keys.expired()), (2, 1, 1));
        assert!(
            keys.find(1, b"a").is_none()
                && keys.find(2, b"b").is_some()
                && keys.find(3, b"c").is_some()
        );
        keys.clear();
        assert_eq!((keys.len(), keys.expiring(), keys.bytes()), (0, 0, 0));
        assert!(local_timer().is_empty());
    }

    #[test]
    fn a_key_is_gone_at_its_deadline_though_nobody_turns() {
        let shared = Keys::new(Clock::start(), ROOM);
        let mut keys = shared.borrow_mut();
        let number = keys.insert(1, b"a", b"value").expect("there is room");
        keys.expire_at(number, Clock::start().after(5).expect("near"));
        thread::sleep(Duration::from_millis(6));
        assert!(keys.find(1, b"a").is_none());
        assert_eq!((keys.len(), keys.bytes()), (0, 0));
        assert!(local_timer().is_empty());
    }

    #[test]
    fn values_are_changed_and_counted() {
        let shared = Keys::new(Clock::start(), Room { bytes: 1_000, ..ROOM });
        let mut keys = shared.borrow_mut();
        let number = keys.insert(1, b"key", b"value").expect("there is room");
        let bytes = keys.bytes();
        keys.set_value(number, b"other").expect("there is room");
        assert_eq!((keys.value(number), keys.bytes()), (b"other".as_slice(), bytes));
        keys.set_value(number, b"a longer one").expect("there is room");
        assert_eq!(keys.append(number, b"!"), Ok(13));
        assert_eq!((keys.value(number), keys.bytes()), (b"a longer one!".as_slice(), bytes + 8));
        assert!(
            keys.append(number, &[0; 1_000]).is_err()
                && keys.set_value(number, &[0; 1_000]).is_err()
        );
        assert_eq!(
            (keys.find(1, b"key"), keys.find(1, b"kez"), keys.bytes()),
            (Some(number), None, bytes + 8)
        );
    }
}
