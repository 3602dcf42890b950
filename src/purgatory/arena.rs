//! Values by number, whose numbers are used again and told apart by a generation: 64 bits, because the number that is used
//! again at once, ten million times a second, would be through with 32 in minutes. (Numbers that are then left out would not do
//! either: slots that come after memory was given back begin with the newest generation there was, and would all be through.)

use std::num::NonZeroU64;

use crate::limits::SLOTS_KEPT;

/// Names a value of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(Rust, packed(4))] // 12 bytes instead of 16: messages and watches hold little else.
pub(super) struct Id {
    /// Not zero, so that an `Option` takes no more room.
    generation: NonZeroU64,
    index: u32,
}

impl Id {
    /// Where the value is, as long as it is there.
    pub(super) fn index(self) -> u32 {
        self.index
    }

    fn generation(self) -> NonZeroU64 {
        self.generation
    }
}

#[derive(Debug)]
pub(super) struct Arena<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    len: usize,
    /// Of slots that come next: no name that was given before has it.
    generation: NonZeroU64,
}

#[derive(Debug)]
struct Slot<T> {
    /// Of the value that is here, or will be.
    generation: NonZeroU64,
    value: Option<T>,
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), len: 0, generation: NonZeroU64::MIN }
    }
}

impl<T> Arena<T> {
    /// No value is there.
    pub(super) const NOWHERE: u32 = u32::MAX;

    pub(super) fn insert(&mut self, value: T) -> Id {
        self.len += 1;
        let Some(index) = self.free.pop() else { return self.push(value) };
        let slot = &mut self.slots[index as usize];
        slot.value = Some(value);
        Id { index, generation: slot.generation }
    }

    fn push(&mut self, value: T) -> Id {
        let index = u32::try_from(self.slots.len()).ok().filter(|&index| index != Self::NOWHERE);
        let index = index.unwrap_or_else(|| panic!("2^32 operations or watches"));
        self.slots.push(Slot { generation: self.generation, value: Some(value) });
        Id { index, generation: self.generation }
    }

    pub(super) fn get(&self, id: Id) -> Option<&T> {
        self.slots
            .get(id.index as usize)
            .filter(|slot| slot.generation == id.generation())?
            .value
            .as_ref()
    }

    pub(super) fn get_mut(&mut self, id: Id) -> Option<&mut T> {
        self.slots
            .get_mut(id.index as usize)
            .filter(|slot| slot.generation == id.generation())?
            .value
            .as_mut()
    }

    /// The value that is there now, and its name.
    pub(super) fn at(&self, index: u32) -> Option<(Id, &T)> {
        let slot = self.slots.get(index as usize)?;
        Some((Id { index, generation: slot.generation }, slot.value.as_ref()?))
    }

    /// The value that is there now.
    pub(super) fn at_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slots.get_mut(index as usize)?.value.as_mut()
    }

    /// Takes a value out.
    pub(super) fn remove(&mut self, id: Id) -> Option<T> {
        self.get(id)?;
        self.remove_at(id.index)
    }

    /// Takes out what is there now.
    pub(super) fn remove_at(&mut self, index: u32) -> Option<T> {
        let slot = self.slots.get_mut(index as usize)?;
        let value = slot.value.take()?;
        slot.generation = slot.generation.saturating_add(1);
        self.free.push(index);
        self.len -= 1;
        if self.len == 0 && self.slots.len() > SLOTS_KEPT {
            self.give_back();
        }
        Some(value)
    }

    /// (The newest generation is looked for, once in a while. To keep it at hand made `compare --workload purgatory` a tenth slower.)
    #[cold]
    fn give_back(&mut self) {
        let generation =
            self.slots.iter().map(|slot| slot.generation).max().unwrap_or(self.generation);
        *self = Self { generation, ..Self::default() };
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.value.as_ref())
    }

    /// The names of all values.
    pub(super) fn ids(&self) -> Vec<Id> {
        let there = self.slots.iter().zip(0..).filter(|(slot, _)| slot.value.is_some());
        there.map(|(slot, index)| Id { index, generation: slot.generation }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_optional_name_takes_no_more_room() {
        assert_eq!((size_of::<Option<Id>>(), size_of::<Id>()), (12, 12));
    }

    #[test]
    fn a_name_never_means_another_value() {
        let mut arena = Arena::default();
        let first = arena.insert('a');
        assert_eq!((arena.get(first), arena.len()), (Some(&'a'), 1));
        assert_eq!((arena.remove(first), arena.remove(first)), (Some('a'), None));
        let second = arena.insert('b');
        assert_eq!(second.index(), first.index());
        assert_eq!((arena.get(first), arena.get(second)), (None, Some(&'b')));
        assert_eq!(arena.at(first.index()), Some((second, &'b')));
        assert_eq!(arena.get_mut(first), None);
        assert_eq!(arena.at(7), None);
        assert_eq!(arena.remove_at(Arena::<char>::NOWHERE), None);
    }

    /// Four billion lives of one number later, and a burst that has gone: slots are used again, and names stay distinct.
    #[test]
    fn many_lives_of_one_number_cost_the_others_nothing() {
        let mut arena =
            Arena { generation: NonZeroU64::from(std::num::NonZeroU32::MAX), ..Arena::default() };
        let mut given = std::collections::HashSet::new();
        for round in 0..10 {
            let names: Vec<_> = (0..4).map(|value| arena.insert(value)).collect();
            assert_eq!(arena.slots.len(), 4, "in round {round}");
            assert!(names.iter().all(|&name| given.insert(name)));
            for name in names {
                assert!(arena.remove(name).is_some());
            }
            assert_eq!(arena.slots.len(), 0, "after round {round}");
        }
    }

    #[test]
    fn memory_goes_back_and_names_stay_distinct() {
        let mut arena = Arena::default();
        let names: Vec<_> = (0..5).map(|value| arena.insert(value)).collect();
        for &name in &names {
            assert!(arena.remove(name).is_some());
        }
        assert_eq!((arena.slots.capacity(), arena.free.capacity()), (0, 0));
        for value in 0..5 {
            assert!(!names.contains(&arena.insert(value)));
        }
        assert!(names.iter().all(|&name| arena.get(name).is_none()));
    }
}
