//! The fields of an entry that the wheel reads and writes.
//!
//! The wheel owns slots, not entries. It copies the fields that [`Entry`] names in and out, and
//! holds no reference to the entry. So other threads can use the entry's other fields.

/// The entries of a wheel.
///
/// Index 0 means "none". Its links may be written but are never used, so that unlinking needs no
/// branch.
pub(crate) trait Storage {
    type Entry<'s>: Entry
    where
        Self: 's;

    fn entry(&self, index: u32) -> Self::Entry<'_>;

    /// Prefetches the fields of an entry, which may be free.
    fn prefetch(&self, index: u32);

    #[inline]
    fn set_previous(&self, index: u32, previous: u32) {
        let entry = self.entry(index);
        entry.set_links(Links { previous, ..entry.links() });
    }

    #[inline]
    fn set_next(&self, index: u32, next: u32) {
        let entry = self.entry(index);
        entry.set_links(Links { next, ..entry.links() });
    }
}

/// A reference to an entry of a [`Storage`].
pub(crate) trait Entry: Copy {
    fn index(self) -> u32;

    fn links(self) -> Links;
    fn set_links(self, links: Links);
    fn deadline(self) -> u64;
    fn set_deadline(self, deadline: u64);
    fn location(self) -> Location;
    fn set_location(self, location: Location);

    /// Writes all fields.
    #[inline]
    fn set_placement(self, Placement { deadline, links, location }: Placement) {
        self.set_links(links);
        self.set_deadline(deadline);
        self.set_location(location);
    }

    /// Returns all fields, and marks the entry as unlinked.
    #[inline]
    fn take_placement(self) -> Placement {
        let placement =
            Placement { deadline: self.deadline(), links: self.links(), location: self.location() };
        self.set_location(Location::UNLINKED);
        placement
    }
}

/// All wheel fields of one entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placement {
    pub(crate) deadline: u64,
    pub(crate) links: Links,
    pub(crate) location: Location,
}

/// An entry's neighbors in its slot.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Links {
    /// The previous entry, or the slot if the entry is the first; see the module `slot`.
    pub(crate) previous: u32,
    /// The next entry; 0 if there is none.
    pub(crate) next: u32,
}

/// The kind of slot that an entry is in, if any. For an entry that will cascade, the value includes
/// the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location(u32);

impl Location {
    /// In no slot, and not linked since the storage set this value. The value is zero, as in new
    /// memory.
    #[cfg_attr(not(feature = "std"), allow(dead_code, reason = "for shards"))]
    pub(crate) const NEVER_LINKED: Self = Self(0);
    /// In no slot.
    pub(crate) const UNLINKED: Self = Self(1);
    /// In the late slot, or in the slot into which the late slot was spliced.
    pub(super) const LATE: Self = Self(2);
    /// In the slot of its deadline in the first level.
    pub(super) const NEAR: Self = Self(3);
    /// In a slot of the first level that counts the entry as deferred: the entry's deadline may be
    /// later than the slot's tick.
    pub(super) const DEFERRED: Self = Self(4);
    // The values are ordered so that each predicate below is one comparison.
    const FAR: u32 = 1 << 31;

    /// Returns the location of an entry that will cascade from `slot` of an upper level.
    #[inline]
    pub(super) fn far(slot: u32) -> Self {
        Self(Self::FAR | slot)
    }

    /// Returns the slot from which the entry will cascade, if any.
    #[inline]
    pub(super) fn far_slot(self) -> Option<u32> {
        (self.0 & Self::FAR != 0).then_some(self.0 & !Self::FAR)
    }

    /// Returns true if the entry's slot can start before its deadline.
    #[inline]
    pub(super) fn may_precede_deadline(self) -> bool {
        self.0 >= Self::DEFERRED.0
    }

    /// Returns true if the entry was linked into a slot of the first level. Late entries that were
    /// spliced into such a slot do not count.
    #[inline]
    pub(super) fn is_near(self) -> bool {
        // As a signed number, a value with the bit `FAR` is negative, so it does not count.
        self.0.cast_signed() >= Self::NEAR.0.cast_signed()
    }

    /// Returns true if the entry is in a slot.
    #[inline]
    pub(crate) fn is_linked(self) -> bool {
        self.0 > Self::UNLINKED.0
    }
}
