//! The storage of a [`Wheel`](super::Wheel): links apart from values, in pages that are allocated
//! and freed on demand.
//!
//! Links are apart because unlinking writes to two neighbours: the links of a million entries fill
//! 8 MB, which a cache holds.

#![allow(unsafe_code)]

use alloc::{boxed::Box, vec::Vec};
use core::{cell::Cell, fmt, marker::PhantomData, ptr::NonNull};

use super::storage::{Links, Location, Placement, Storage};
use crate::{
    limits::{INDEX_MAX, KEY_GENERATION_MAX, RESERVE_MAX},
    util::{
        pages::{
            FreePlaces, PAGE, PageTable, as_u32, fill, first_link, index_of, page_of, place_of,
        },
        prefetch::prefetch,
    },
};

/// One entry besides its links.
struct Entry<T> {
    deadline: Cell<u64>,
    /// Counts the entries of this index that have ended.
    generation: Cell<u32>,
    location: Cell<Location>,
    value: Cell<Option<T>>,
}

struct Page<T> {
    /// The `next` of a free entry is its link in the list of free places.
    links: [Cell<Links>; PAGE],
    entries: [Entry<T>; PAGE],
}

/// All entries of a wheel. Index 0 is never used.
pub(super) struct Entries<T> {
    pages: PageTable<NonNull<Page<T>>>,
    free: FreePlaces,
    /// The freed pages, and the generation at which the entries of such a page continue.
    vacant: Vec<(usize, u32)>,
    /// The largest number of pages at the same time.
    len: usize,
    owns: PhantomData<Box<Page<T>>>,
}

// SAFETY: the pages belong to the entries alone.
unsafe impl<T: Send> Send for Entries<T> {}

impl<T> Page<T> {
    fn allocate(generation: u32) -> NonNull<Self> {
        let mut page = Box::<Self>::new_uninit();
        let to = page.as_mut_ptr();
        let free_links = |place| Cell::new(Links { previous: 0, next: first_link(place) });
        let entry = |_| Entry {
            deadline: Cell::new(0),
            generation: Cell::new(generation),
            location: Cell::default(),
            value: Cell::new(None),
        };
        // SAFETY: the memory was just allocated for the page.
        let links = unsafe { &raw mut (*to).links };
        // SAFETY: as above.
        let entries = unsafe { &raw mut (*to).entries };
        // SAFETY: as above.
        unsafe { fill(links, free_links) };
        // SAFETY: as above.
        unsafe { fill(entries, entry) };
        // SAFETY: both parts of the page have been written.
        NonNull::from(Box::leak(unsafe { page.assume_init() }))
    }
}

impl<T> Entries<T> {
    pub(super) fn new() -> Self {
        let mut free = FreePlaces::new();
        free.add_page(0);
        Self {
            pages: PageTable::new(Page::allocate(0)),
            free,
            vacant: Vec::new(),
            len: 1,
            owns: PhantomData,
        }
    }

    /// Stores a value under a free index, and returns the index and its generation. Returns the
    /// value if every index is in use.
    #[inline(always)]
    #[allow(clippy::inline_always)] // As a function it would return two things in memory.
    pub(super) fn try_insert(&mut self, value: T) -> Result<(u32, u32), T> {
        let Some((number, place)) = self.take().or_else(|| self.add_page()) else {
            return Err(value);
        };
        let entry = &self.page(number).entries[place];
        entry.value.set(Some(value));
        Ok((index_of(number, place), entry.generation.get()))
    }

    #[inline(always)]
    #[allow(clippy::inline_always)] // As in `try_insert`.
    fn take(&mut self) -> Option<(usize, usize)> {
        let pages = &self.pages;
        // SAFETY: as in `page`.
        let page = |number| unsafe { pages.get(number).as_ref() };
        self.free.take(|number, place| page(number).links[place].get().next)
    }

    #[cfg(test)]
    pub(super) fn insert(&mut self, value: T) -> (u32, u32) {
        self.try_insert(value).ok().expect("there is room")
    }

    /// Returns true if an entry of this generation is in the wheel.
    #[inline]
    pub(super) fn contains(&self, index: u32, generation: u32) -> bool {
        self.placement(index, generation).is_some()
    }

    /// Returns the deadline and the location of an entry of this generation that is in the wheel.
    #[inline]
    pub(super) fn placement(&self, index: u32, generation: u32) -> Option<(&Cell<u64>, Location)> {
        let entry = self.entry(index);
        let location = entry.location.get();
        let is_live = entry.generation.get() == generation
            && location != Location::UNLINKED
            && self.pages.has(page_of(index));
        is_live.then_some((&entry.deadline, location))
    }

    /// Returns the value of an entry of this generation that is in the wheel.
    #[inline]
    pub(super) fn value(&self, index: u32, generation: u32) -> Option<&T> {
        let value = self.contains(index, generation).then(|| self.entry(index).value.as_ptr())?;
        // SAFETY: values are replaced only by methods that borrow `self` mutably.
        unsafe { &*value }.as_ref()
    }

    /// Returns the value of an entry of this generation that is in the wheel, to change it.
    #[inline]
    pub(super) fn value_mut(&mut self, index: u32, generation: u32) -> Option<&mut T> {
        let value = self.contains(index, generation).then(|| self.entry(index).value.as_ptr())?;
        // SAFETY: the borrow of `self` is exclusive, and the entry is a cell.
        unsafe { &mut *value }.as_mut()
    }

    /// Returns the generation of an entry.
    pub(super) fn generation(&self, index: u32) -> u32 {
        self.entry(index).generation.get()
    }

    /// Returns the first index from `index` on whose entry is in the wheel.
    pub(super) fn live_from(&self, mut index: u32) -> Option<u32> {
        while page_of(index) < self.pages.end() {
            if !self.pages.has(page_of(index)) {
                index = index_of(page_of(index) + 1, 0);
            } else if self.location(index) == Location::UNLINKED {
                index += 1;
            } else {
                return Some(index);
            }
        }
        None
    }

    /// Allocates the memory of `entries` entries, which is never given back.
    pub(super) fn reserve(&mut self, entries: usize) {
        let pages = entries.min(RESERVE_MAX as usize) / PAGE + 1;
        self.free.spare.keep(as_u32(pages));
        while self.len - self.vacant.len() < pages {
            let Some((number, place)) = self.add_page() else { break };
            self.put(number, place);
        }
    }

    /// Frees an entry that is in no slot, and returns its value.
    #[inline]
    pub(super) fn remove(&mut self, index: u32) -> Option<T> {
        let (number, place) = (page_of(index), place_of(index));
        let entry = &self.page(number).entries[place];
        let value = entry.value.take();
        let generation = entry.generation.get() + 1;
        entry.generation.set(generation);
        // An index whose generations are used up is retired.
        if generation < KEY_GENERATION_MAX {
            self.put(number, place);
        }
        value
    }

    #[inline]
    fn put(&mut self, number: usize, place: usize) {
        if let Some(next) = self.free.put(number, place) {
            self.page(number).links[place].set(Links { previous: 0, next });
        }
    }

    /// Adds a page and takes its first place.
    #[cold]
    #[inline(never)]
    fn add_page(&mut self) -> Option<(usize, usize)> {
        let (number, generation) = match self.vacant.pop() {
            Some(vacant) => vacant,
            None if self.len > page_of(INDEX_MAX) => return None,
            None => (self.len, 0),
        };
        if number == self.len {
            self.len += 1;
            // So that freeing never allocates.
            self.vacant.reserve(self.len);
        }
        self.pages.set(number, Page::allocate(generation));
        self.free.add_page(number);
        self.take()
    }

    /// Frees a page that has not been needed for long, if there is one.
    #[inline]
    pub(super) fn turn(&mut self) {
        if self.free.spare.is_worth_a_look() {
            self.trim();
        }
    }

    #[cold]
    #[inline(never)]
    fn trim(&mut self) {
        if !self.free.spare.turn() {
            return;
        }
        let Some(number) = self.free.find_empty_page() else { return };
        let generations = self.page(number).entries.iter().map(|entry| entry.generation.get());
        self.vacant.push((number, generations.max().unwrap_or(0)));
        self.free.remove_page(number);
        let page = self.pages.get(number);
        self.pages.remove(number);
        // SAFETY: the page was made by `allocate`, and nothing refers to it any more.
        drop(unsafe { Box::from_raw(page.as_ptr()) });
    }

    #[inline]
    fn page(&self, number: usize) -> &Page<T> {
        // SAFETY: a page of the table lives until it has left the table, for which nothing may
        // borrow `self`. It is never borrowed mutably.
        unsafe { self.pages.get(number).as_ref() }
    }

    #[inline]
    fn entry(&self, index: u32) -> &Entry<T> {
        &self.page(page_of(index)).entries[place_of(index)]
    }

    #[inline]
    fn links_of(&self, index: u32) -> &Cell<Links> {
        &self.page(page_of(index)).links[place_of(index)]
    }

    /// Returns the indices of the entries that are there, used or free.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn indices(&self) -> impl Iterator<Item = u32> {
        let places = (0..PAGE).collect::<Vec<_>>();
        let indices = self.pages.numbers().flat_map(move |number| {
            places.clone().into_iter().map(move |place| index_of(number, place))
        });
        indices.filter(|&index| index != 0)
    }

    /// Panics if an invariant is broken.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn check(&self) {
        self.free.check(|number, place| self.page(number).links[place].get().next);
        assert_eq!(self.pages.numbers().count(), self.len - self.vacant.len(), "vacant pages");
    }

    /// Returns the number of pages that are there.
    #[cfg(test)]
    pub(super) fn pages(&self) -> usize {
        self.pages.numbers().count()
    }
}

impl<T> Drop for Entries<T> {
    fn drop(&mut self) {
        for number in self.pages.numbers() {
            // SAFETY: each page is in the table once, was made by `allocate`, and is used no more.
            drop(unsafe { Box::from_raw(self.pages.get(number).as_ptr()) });
        }
    }
}

impl<T> Storage for Entries<T> {
    #[cfg(any(test, debug_assertions))]
    fn links(&self, index: u32) -> Links {
        self.links_of(index).get()
    }

    #[inline]
    fn set_previous(&self, index: u32, previous: u32) {
        let links = self.links_of(index);
        links.set(Links { previous, ..links.get() });
    }

    #[inline]
    fn set_next(&self, index: u32, next: u32) {
        let links = self.links_of(index);
        links.set(Links { next, ..links.get() });
    }

    #[inline]
    fn next_if_there(&self, index: u32) -> u32 {
        self.links_of(index).get().next
    }

    #[inline]
    fn deadline(&self, index: u32) -> u64 {
        self.entry(index).deadline.get()
    }

    #[cfg(feature = "std")]
    fn set_deadline(&self, index: u32, deadline: u64) {
        self.entry(index).deadline.set(deadline);
    }

    #[inline]
    fn location(&self, index: u32) -> Location {
        self.entry(index).location.get()
    }

    #[inline]
    fn place(&self, index: u32, Placement { deadline, links, location }: Placement) {
        let (page, place) = (self.page(page_of(index)), place_of(index));
        page.links[place].set(links);
        page.entries[place].deadline.set(deadline);
        page.entries[place].location.set(location);
    }

    #[inline]
    fn displace(&self, index: u32) -> Placement {
        let (page, place) = (self.page(page_of(index)), place_of(index));
        let entry = &page.entries[place];
        let location = entry.location.replace(Location::UNLINKED);
        Placement { deadline: entry.deadline.get(), links: page.links[place].get(), location }
    }

    #[inline]
    fn prefetch(&self, index: u32) {
        let (page, place) = (self.page(page_of(index)), place_of(index));
        prefetch(&page.links[place]);
        prefetch(&page.entries[place]);
    }
}

impl<T> fmt::Debug for Entries<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entries").field("free", &self.free).finish_non_exhaustive()
    }
}
