//! Values by number, whose numbers are used again and told apart by a generation: 64 bits, because the number that is used
//! again at once, ten million times a second, would be through with 32 in minutes.

use std::num::NonZeroU64;

/// Names a value of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Id {
    /// Not zero, so that an `Option` takes no more room.
    generation: NonZeroU64,
    index: u32,
}

impl Id {
    /// No value has it.
    pub(super) const NONE: Self = Self { index: u32::MAX, generation: NonZeroU64::MAX };
}

#[derive(Debug)]
pub(super) struct Arena<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    /// Of the value that is here, or will be.
    generation: NonZeroU64,
    value: Option<T>,
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Arena<T> {
    pub(super) fn insert(&mut self, value: T) -> Id {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: NonZeroU64::MIN, value: None });
            u32::try_from(self.slots.len() - 1).unwrap_or_else(|_| panic!("more than 2^32 operations or watches"))
        });
        let slot = &mut self.slots[index as usize];
        slot.value = Some(value);
        Id { index, generation: slot.generation }
    }

    pub(super) fn get(&self, id: Id) -> Option<&T> {
        self.slots.get(id.index as usize).filter(|slot| slot.generation == id.generation)?.value.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: Id) -> Option<&mut T> {
        self.slots.get_mut(id.index as usize).filter(|slot| slot.generation == id.generation)?.value.as_mut()
    }

    /// Takes a value out.
    pub(super) fn remove(&mut self, id: Id) -> Option<T> {
        let slot = self.slots.get_mut(id.index as usize).filter(|slot| slot.generation == id.generation)?;
        let value = slot.value.take()?;
        slot.generation = slot.generation.saturating_add(1);
        self.free.push(id.index);
        Some(value)
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
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
        assert_eq!(size_of::<Option<Id>>(), size_of::<Id>());
    }

    #[test]
    fn a_name_never_means_another_value() {
        let mut arena = Arena::default();
        let first = arena.insert('a');
        assert_eq!((arena.get(first), arena.len()), (Some(&'a'), 1));
        assert_eq!((arena.remove(first), arena.remove(first)), (Some('a'), None));
        let second = arena.insert('b');
        assert_eq!((arena.get(first), arena.get(Id::NONE), arena.get(second)), (None, None, Some(&'b')));
        assert_eq!(arena.get_mut(first), None);
        assert_eq!(arena.remove(first), None);
        assert_eq!(arena.ids(), [second]);
    }
}
