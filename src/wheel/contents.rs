//! Looks up, lists and retains the entries of a wheel.

use core::iter;

use super::{
    Key, Wheel,
    storage::{Entry, Storage},
};

impl<T> Wheel<T> {
    /// Creates an empty wheel of the default geometry at tick 0, with memory for `capacity`
    /// entries. See [`reserve`](Self::reserve).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Wheel;
    ///
    /// let mut wheel = Wheel::with_capacity(10_000);
    /// wheel.insert(30_000, "idle"); // allocates nothing
    /// ```
    pub fn with_capacity(capacity: usize) -> Self {
        let mut wheel = Self::new();
        wheel.reserve(capacity);
        wheel
    }
}

impl<T, const BITS: u32, const LEVELS: usize> Wheel<T, BITS, LEVELS> {
    /// Allocates memory for `additional` more entries, up to 16 million in all. The wheel keeps it
    /// while it is empty.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Wheel;
    ///
    /// let mut wheel: Wheel<&str> = Wheel::starting_at(1_000);
    /// wheel.reserve(10_000);
    /// wheel.insert(30_000, "idle"); // allocates nothing
    /// ```
    pub fn reserve(&mut self, additional: usize) {
        self.entries.reserve(self.len().saturating_add(additional));
    }

    /// Returns the value of an entry; `None` if it was handed out or removed. Cost: constant.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// let key = wheel.insert(30_000, "lease");
    /// assert_eq!(wheel.get(key), Some(&"lease"));
    /// wheel.remove(key);
    /// assert_eq!(wheel.get(key), None);
    /// ```
    #[inline]
    pub fn get(&self, key: Key) -> Option<&T> {
        self.entries.value(key.index, key.generation)
    }

    /// Returns the value of an entry, to change it; `None` if it was handed out or removed. Cost:
    /// constant.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// let retry = wheel.insert(250, 1);
    /// *wheel.get_mut(retry).expect("it is pending") += 1;
    /// assert_eq!(wheel.remove(retry), Some(2));
    /// ```
    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.entries.value_mut(key.index, key.generation)
    }

    /// Returns the deadline of an entry, in ticks; `None` if it was handed out or removed. An entry
    /// that was inserted too late has the deadline [`now`](Self::now) of that moment. Cost:
    /// constant.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// let lease = wheel.insert(30_000, "lease");
    /// assert!(wheel.reset(lease, 60_000));
    /// assert_eq!(wheel.deadline(lease), Some(60_000));
    /// ```
    #[inline]
    pub fn deadline(&self, key: Key) -> Option<u64> {
        self.entries.find(key.index, key.generation).map(Entry::deadline)
    }

    /// Returns true if the entry is in the wheel. Cost: constant.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// let key = wheel.insert(5, "due");
    /// assert!(wheel.contains(key));
    /// assert_eq!(wheel.advance(5).count(), 1);
    /// assert!(!wheel.contains(key));
    /// ```
    #[inline]
    pub fn contains(&self, key: Key) -> bool {
        self.entries.find(key.index, key.generation).is_some()
    }

    /// Returns the key, the deadline and the value of every entry, in no particular order.
    ///
    /// Cost: a few nanoseconds for each entry that the wheel has memory for.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// let key = wheel.insert(30_000, "lease");
    /// assert_eq!(wheel.iter().collect::<Vec<_>>(), [(key, 30_000, &"lease")]);
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = (Key, u64, &T)> {
        let live =
            iter::successors(self.entries.live_from(0), |index| self.entries.live_from(index + 1));
        live.filter_map(|index| {
            let key = self.key_of(index);
            Some((key, self.entries.entry(index).deadline(), self.get(key)?))
        })
    }

    /// Removes and drops every entry for which `keep` returns false. It gets the key, the deadline
    /// and the value, in no particular order.
    ///
    /// Cost: as of [`iter`](Self::iter), and of [`remove`](Self::remove) for each entry removed. If
    /// `keep` or a destructor panics, the remaining entries stay.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// wheel.insert(10_000, "connection 1");
    /// wheel.insert(20_000, "connection 2");
    /// wheel.retain(|_key, deadline, _value| deadline > 15_000);
    /// assert_eq!(wheel.len(), 1);
    /// ```
    pub fn retain(&mut self, mut keep: impl FnMut(Key, u64, &mut T) -> bool) {
        let mut next = 0;
        while let Some(index) = self.entries.live_from(next) {
            let (key, deadline) = (self.key_of(index), self.entries.entry(index).deadline());
            if self.get_mut(key).is_some_and(|value| !keep(key, deadline, value)) {
                self.remove(key);
            }
            next = index + 1;
        }
    }

    /// Removes and drops every entry. Time stays, and the keys find nothing. Cost: as of
    /// [`retain`](Self::retain).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// let key = wheel.insert(30_000, "lease");
    /// wheel.clear();
    /// wheel.insert(60_000, "another");
    /// assert_eq!(wheel.get(key), None);
    /// ```
    pub fn clear(&mut self) {
        self.retain(|_, _, _| false);
    }

    fn key_of(&self, index: u32) -> Key {
        Key { index, generation: self.entries.entry(index).generation() }
    }
}
