//! The fields of an entry that the wheel reads and writes.
//!
//! The wheel changes only the cells that [`Entry`] returns, so other threads can use an entry's
//! other fields.

use core::cell::Cell;

/// The entries of a wheel.
///
/// Index 0 means "none". `entry(0)` must return a dummy entry. The wheel writes to the links of the
/// dummy entry but never reads them.
pub(crate) trait Storage {
    type Entry<'s>: Entry
    where
        Self: 's;

    fn entry(&self, index: u32) -> Self::Entry<'_>;

    /// Prefetches the fields of an entry, used or free.
    fn prefetch(&self, index: u32);
}

/// A reference to an entry of a [`Storage`].
pub(crate) trait Entry: Copy {
    fn index(self) -> u32;
    fn links(&self) -> &Links;
    fn deadline(&self) -> &Cell<u64>;
    fn location(&self) -> &Cell<Location>;
}

/// An entry's neighbors in its slot.
#[derive(Debug, Default)]
pub(crate) struct Links {
    /// The previous entry, or the slot if the entry is the first; see the module `slot`.
    pub(crate) previous: Cell<u32>,
    /// The next entry; 0 if there is none.
    pub(crate) next: Cell<u32>,
}

/// The kind of slot that an entry is in, if any. For an entry that was linked into an upper level,
/// the value includes the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(crate) struct Location(u32);

impl Location {
    /// In no slot, and never linked since the storage set this location. The value is zero, as in
    /// new memory.
    pub(crate) const NEVER_LINKED: Self = Self(0);
    /// In no slot.
    pub(crate) const UNLINKED: Self = Self(1);
    /// In the late slot, or in the slot into which the late slot was spliced.
    pub(super) const LATE: Self = Self(2);
    /// In the slot of its deadline in the first level.
    pub(super) const FIRST_LEVEL: Self = Self(3);
    /// In a slot of the first level, and counted by the slot as postponable. The entry's deadline
    /// may be later than the slot's tick.
    pub(super) const POSTPONABLE: Self = Self(4);
    // The values are ordered so that each predicate below is one comparison. From `POSTPONABLE` on,
    // the entry's slot can start before the entry's deadline.
    const UPPER_SLOT_FLAG: u32 = 1 << 31;

    /// Returns the location of an entry that was linked into `slot` of an upper level.
    #[inline]
    pub(super) fn in_upper_slot(slot: u32) -> Self {
        Self(Self::UPPER_SLOT_FLAG | slot)
    }

    /// Returns the upper level's slot into which the entry was linked, if any.
    #[inline]
    pub(super) fn upper_slot(self) -> Option<u32> {
        (self.0 & Self::UPPER_SLOT_FLAG != 0).then_some(self.0 & !Self::UPPER_SLOT_FLAG)
    }

    /// Returns true if the entry was linked into a slot of the first level. Returns false for a
    /// late entry that was spliced into a slot of the first level.
    #[inline]
    pub(super) fn is_in_first_level(self) -> bool {
        // As a signed number, a value with the bit `UPPER_SLOT_FLAG` is negative, so it is below
        // `FIRST_LEVEL`.
        self.0.cast_signed() >= Self::FIRST_LEVEL.0.cast_signed()
    }

    /// Returns true if the entry's slot may start before the entry's deadline.
    #[inline]
    pub(super) fn may_precede_deadline(self) -> bool {
        self.0 >= Self::POSTPONABLE.0
    }

    #[inline]
    pub(crate) fn is_linked(self) -> bool {
        self.0 > Self::UNLINKED.0
    }
}
