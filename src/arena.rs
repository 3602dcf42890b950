//! Values by index, indices handed out again: where payloads live. One owner, no generations; those are the business
//! of whoever gives indices away.

use crate::{limits::INDEX_MAX, paged::Paged};

/// Values in stable places. Index 0 is never used, so that links can say "none".
#[derive(Debug)]
pub(crate) struct Arena<T> {
    places: Paged<Place<T>>,
    /// The last index that was free and is again; 0 if none is.
    free: u32,
    /// The largest index ever handed out.
    highest: u32,
}

#[derive(Debug)]
enum Place<T> {
    /// Free, or never used; the next free one.
    Vacant(u32),
    /// Handed out, but its value is elsewhere for now.
    Reserved,
    Occupied(T),
}

impl<T> Default for Place<T> {
    fn default() -> Self {
        Self::Vacant(0)
    }
}

impl<T> Arena<T> {
    pub(crate) const fn new() -> Self {
        Self { places: Paged::new(), free: 0, highest: 0 }
    }

    /// Prepares room for `capacity` values.
    pub(crate) fn reserve(&mut self, capacity: u32) {
        self.places.grow_to(capacity.min(INDEX_MAX));
    }

    /// The largest index ever handed out.
    pub(crate) fn highest(&self) -> u32 {
        self.highest
    }

    /// Whether every index is in use.
    pub(crate) fn is_full(&self) -> bool {
        self.free == 0 && self.highest == INDEX_MAX
    }

    /// Stores `value` and says where.
    ///
    /// # Panics
    ///
    /// If the arena is full.
    #[inline]
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        let index = match self.free {
            0 => self.fresh(),
            free => free,
        };
        let place = &mut self.places[index];
        if let Place::Vacant(next) = *place {
            self.free = next;
        }
        *place = Place::Occupied(value);
        index
    }

    fn fresh(&mut self) -> u32 {
        assert!(!self.is_full(), "an arena was asked for more than it can hold");
        self.highest += 1;
        self.places.grow_to(self.highest);
        self.highest
    }

    /// Takes the value out and gives its index back. `None` if no value is there.
    #[inline]
    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let place = &mut self.places[index];
        if !matches!(place, Place::Occupied(_)) {
            return None;
        }
        let value = std::mem::replace(place, Place::Vacant(self.free));
        self.free = index;
        if let Place::Occupied(value) = value { Some(value) } else { None }
    }

    /// Takes the value out; its index stays in use until `release`. `None` if no value is there.
    #[inline]
    pub(crate) fn take(&mut self, index: u32) -> Option<T> {
        let place = &mut self.places[index];
        match place {
            Place::Occupied(_) => match std::mem::replace(place, Place::Reserved) {
                Place::Occupied(value) => Some(value),
                _ => unreachable!("it was occupied a line above"),
            },
            _ => None,
        }
    }

    /// The value at an index that has been handed out, if it is there.
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        match &mut self.places[index] {
            Place::Occupied(value) => Some(value),
            _ => None,
        }
    }

    /// Puts a value back that was taken.
    pub(crate) fn put_back(&mut self, index: u32, value: T) {
        debug_assert!(matches!(self.places[index], Place::Reserved));
        self.places[index] = Place::Occupied(value);
    }

    /// Gives back an index whose value was taken.
    #[inline]
    pub(crate) fn release(&mut self, index: u32) {
        debug_assert!(matches!(self.places[index], Place::Reserved));
        self.places[index] = Place::Vacant(self.free);
        self.free = index;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_start_at_one_and_are_used_again() {
        let mut arena = Arena::new();
        let indices = [arena.insert('a'), arena.insert('b'), arena.insert('c')];
        assert_eq!(indices, [1, 2, 3]);
        assert_eq!(arena.take(2), Some('b'));
        assert_eq!(arena.take(2), None);
        assert_eq!(arena.insert('d'), 4, "an index is in use until it is released");
        arena.release(2);
        assert_eq!(arena.insert('e'), 2);
        assert_eq!(arena.highest(), 4);
    }

    #[test]
    fn a_value_is_removed_once_and_not_while_it_is_elsewhere() {
        let mut arena = Arena::new();
        let (first, second) = (arena.insert(1), arena.insert(2));
        assert_eq!((arena.remove(first), arena.remove(first)), (Some(1), None));
        assert_eq!(arena.take(second), Some(2));
        assert_eq!(arena.remove(second), None);
        assert_eq!((arena.insert(3), arena.insert(4)), (first, 3));
    }

    #[test]
    fn a_value_that_is_put_back_is_there() {
        let mut arena = Arena::new();
        let index = arena.insert(1);
        assert_eq!(arena.take(index), Some(1));
        arena.put_back(index, 2);
        assert_eq!(arena.take(index), Some(2));
    }

    #[test]
    fn it_is_full_at_its_limit() {
        let mut arena = Arena::new();
        while !arena.is_full() {
            arena.insert(());
        }
        assert_eq!(arena.highest(), INDEX_MAX);
        arena.take(7);
        arena.release(7);
        assert!(!arena.is_full());
        assert_eq!(arena.insert(()), 7);
    }
}
