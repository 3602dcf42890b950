//! Tables of pages: which page an index is in, and which places of the pages are free.
//!
//! The storage of a wheel and the nodes of a shard use the same rules. Pages have a fixed size, so
//! nothing ever moves and no vector of entries doubles. Each page has its own list of free places,
//! so that a page can go without a search. The place that was freed last is used first, because it
//! is still in the cache. Pages that stay empty are freed one at a time (P8).

#![allow(unsafe_code)]

use alloc::{vec, vec::Vec};
use core::mem;

use crate::{
    limits::{PAGE_BITS, PAGES_SEARCHED},
    util::spare::Spare,
};

/// Places of a page.
pub(crate) const PAGE: usize = 1 << PAGE_BITS;

/// Returns the number of the page that an index is in.
#[inline]
pub(crate) fn page_of(index: u32) -> usize {
    index as usize >> PAGE_BITS
}

/// Returns the place of an index in its page.
#[inline]
pub(crate) fn place_of(index: u32) -> usize {
    index as usize % PAGE
}

#[inline]
pub(crate) fn index_of(number: usize, place: usize) -> u32 {
    as_u32(number << PAGE_BITS | place)
}

#[inline]
#[allow(clippy::cast_possible_truncation)] // There are fewer pages and places than 2^32.
pub(crate) fn as_u32(number: usize) -> u32 {
    number as u32
}

/// The pages of one owner by number. Every number leads to a page, so that a lookup has no branch:
/// where there is none, the first page stands in.
#[derive(Debug)]
pub(crate) struct PageTable<P> {
    /// As many as a power of two.
    pages: Vec<P>,
    /// One less than their number.
    mask: usize,
}

impl<P: Copy + PartialEq> PageTable<P> {
    /// `first` is page 0, which stays.
    pub(crate) fn new(first: P) -> Self {
        Self { pages: vec![first], mask: 0 }
    }

    #[inline]
    pub(crate) fn get(&self, number: usize) -> P {
        // SAFETY: the mask is one less than the number of pages, a power of two (`new`, `set`).
        unsafe { *self.pages.get_unchecked(number & self.mask) }
    }

    /// Returns true if there is a page of this number.
    #[inline]
    pub(crate) fn has(&self, number: usize) -> bool {
        number == 0 || number <= self.mask && self.get(number) != self.get(0)
    }

    pub(crate) fn set(&mut self, number: usize, page: P) {
        if number > self.mask {
            let first = self.get(0);
            self.pages.resize((number + 1).next_power_of_two(), first);
            self.mask = self.pages.len() - 1;
        }
        self.pages[number] = page;
    }

    pub(crate) fn remove(&mut self, number: usize) {
        self.pages[number] = self.pages[0];
    }

    /// Returns a number above the number of every page.
    pub(crate) fn end(&self) -> usize {
        self.pages.len()
    }

    /// Returns the numbers of the pages that are there.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.pages.len()).filter(|&number| self.has(number))
    }
}

/// The free places of pages that have one user.
#[derive(Debug)]
pub(crate) struct FreePlaces {
    pages: Vec<FreePage>,
    /// The page that the next place is taken from, if it has room.
    current: usize,
    /// All pages that have room, and some that had, each once.
    available: Vec<u32>,
    pub(crate) spare: Spare,
    /// Where the search for an empty page continues.
    cursor: usize,
}

/// The free places of one page, as a list through links that the table keeps.
#[derive(Clone, Copy, Debug, Default)]
struct FreePage {
    /// One more than the first free place; 0 if there is none.
    free: u16,
    used: u16,
    /// There is a page of this number, and it has no other users.
    is_ours: bool,
    is_listed: bool,
}

const _: () = assert!(PAGE < 1 << 16, "a place fits a list");

impl FreePlaces {
    /// Creates the list of page 0, which is there from now on.
    pub(crate) fn new() -> Self {
        let mut free = Self {
            pages: Vec::new(),
            current: 0,
            available: Vec::new(),
            spare: Spare::new(),
            cursor: 0,
        };
        free.add_page(0);
        free
    }

    /// Takes a free place, whose link `link_of` returns. Returns `None` if a page has to be added.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "apart, it would return three things in memory")]
    pub(crate) fn take(
        &mut self,
        link_of: impl FnOnce(usize, usize) -> u32,
    ) -> Option<(usize, usize)> {
        if self.current_page().free == 0 {
            self.find_room()?;
        }
        let number = self.current;
        let page = self.current_page();
        let place = usize::from(page.free - 1) % PAGE;
        page.free = as_u16(link_of(number, place));
        page.used += 1;
        if page.used == 1 {
            self.spare.remove();
        }
        Some((number, place))
    }

    #[inline]
    fn current_page(&mut self) -> &mut FreePage {
        // SAFETY: `current` is the number of a page that is or was there (`new`, `put`,
        // `find_room`), and `pages` never shrinks.
        unsafe { self.pages.get_unchecked_mut(self.current) }
    }

    /// Frees a place. Returns what its link becomes; `None` if its page has other users.
    #[inline]
    pub(crate) fn put(&mut self, number: usize, place: usize) -> Option<u32> {
        let page = self.pages.get_mut(number).filter(|page| page.is_ours)?;
        let link = u32::from(page.free);
        page.free = as_u16(as_u32(place)) + 1;
        page.used -= 1;
        self.current = number;
        if page.used == 0 || !page.is_listed {
            self.note_room(number);
        }
        Some(link)
    }

    /// A page became empty, or has room and is not in `available`.
    #[cold]
    #[inline(never)]
    fn note_room(&mut self, number: usize) {
        let page = &mut self.pages[number];
        if page.used == 0 {
            self.spare.add();
        }
        if !mem::replace(&mut page.is_listed, true) {
            self.available.push(as_u32(number));
        }
    }

    /// Makes a page with room the current one. Returns `None` if there is none.
    #[cold]
    #[inline(never)]
    fn find_room(&mut self) -> Option<()> {
        while let Some(&number) = self.available.last() {
            let page = &mut self.pages[number as usize];
            if page.free != 0 {
                // It stays in the list: the next place that is freed makes another page current.
                self.current = number as usize;
                return Some(());
            }
            page.is_listed = false;
            self.available.pop();
        }
        None
    }

    /// Counts a page that is there from now on, and whose places are all free. They are linked by
    /// [`first_link`]. Index 0 is never used.
    pub(crate) fn add_page(&mut self, number: usize) {
        if self.pages.len() <= number {
            self.pages.resize(number + 1, FreePage::default());
            // So that freeing never allocates.
            self.available.reserve(self.pages.len() - self.available.len());
        }
        let is_first = number == 0;
        let page = &mut self.pages[number];
        (page.free, page.used) = if is_first { (as_u16(first_link(0)), 1) } else { (1, 0) };
        page.is_ours = true;
        if !is_first {
            self.spare.add();
        }
        if !mem::replace(&mut page.is_listed, true) {
            self.available.push(as_u32(number));
        }
    }

    /// Forgets an empty page.
    pub(crate) fn remove_page(&mut self, number: usize) {
        let page = &mut self.pages[number];
        debug_assert!(page.is_ours && page.used == 0, "places of page {number} are in use");
        page.is_ours = false;
        page.free = 0;
        self.spare.remove();
    }

    /// Returns true if all places of a page are free.
    pub(crate) fn is_empty_page(&self, number: usize) -> bool {
        self.pages.get(number).is_some_and(|page| page.is_ours && page.used == 0)
    }

    /// Looks for an empty page, a few pages further than the last time.
    pub(crate) fn find_empty_page(&mut self) -> Option<usize> {
        for _ in 0..PAGES_SEARCHED {
            self.cursor = (self.cursor + 1) % self.pages.len();
            if self.is_empty_page(self.cursor) {
                return Some(self.cursor);
            }
        }
        None
    }

    /// Panics if an invariant is broken. `link_of` returns the link of a free place.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn check(&self, link_of: impl Fn(usize, usize) -> u32) {
        let mut available = self.available.clone();
        available.sort_unstable();
        assert!(available.windows(2).all(|two| two[0] < two[1]), "a page is listed twice");
        let mut empty = 0;
        for (number, page) in self.pages.iter().enumerate() {
            let (mut free, mut link) = (0, u32::from(page.free));
            while link != 0 {
                free += 1;
                link = link_of(number, link as usize - 1);
            }
            let there = if page.is_ours { PAGE } else { 0 };
            assert_eq!(usize::from(page.used) * usize::from(page.is_ours) + free, there);
            assert_eq!(page.is_listed, available.binary_search(&as_u32(number)).is_ok());
            assert!(page.is_listed || page.free == 0, "unlisted room in page {number}");
            empty += u32::from(self.is_empty_page(number));
        }
        assert_eq!(empty, self.spare.empty(), "empty pages");
    }
}

/// Initialises the places of a page in memory: a page may be larger than the stack.
///
/// # Safety
///
/// The array is valid for writes.
pub(crate) unsafe fn fill<E>(array: *mut [E; PAGE], element: impl Fn(usize) -> E) {
    let first = array.cast::<E>();
    for place in 0..PAGE {
        // SAFETY: the place is in the array (caller).
        let at = unsafe { first.add(place) };
        // SAFETY: as above.
        unsafe { at.write(element(place)) };
    }
}

/// Returns the link of a place in a page of which all places are free: one more than the next
/// place, or 0.
pub(crate) fn first_link(place: usize) -> u32 {
    if place + 1 < PAGE { as_u32(place + 2) } else { 0 }
}

#[inline]
#[allow(clippy::cast_possible_truncation)] // A place, or one more.
fn as_u16(link: u32) -> u16 {
    link as u16
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_number_without_a_page_leads_to_the_first() {
        let mut table = PageTable::new('a');
        table.set(5, 'b');
        assert_eq!([0, 1, 5, 7, 800].map(|number| table.get(number)), ['a', 'a', 'b', 'a', 'a']);
        assert_eq!(table.numbers().collect::<Vec<_>>(), [0, 5]);
        table.remove(5);
        assert!(table.has(0) && !table.has(5) && !table.has(800) && !table.has(usize::MAX));
    }

    /// Places of tiny pages at random, some of which have other users.
    #[test]
    fn a_place_is_used_once_until_it_is_freed() {
        let mut free = FreePlaces::new();
        let mut links: Vec<[u32; PAGE]> = vec![core::array::from_fn(first_link); 16];
        let (mut used, mut pages): (Vec<(usize, usize)>, _) = (Vec::new(), BTreeSet::from([0]));
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..if cfg!(miri) { 300 } else { 20_000 } {
            if random.bool() && !used.is_empty() {
                let (number, place) = used.swap_remove(random.usize(..used.len()));
                links[number][place] = free.put(number, place).expect("its page is there");
            } else if let Some(taken) = free.take(|number, place| links[number][place]) {
                assert!(taken != (0, 0) && !used.contains(&taken));
                used.push(taken);
            } else if pages.len() < 12 {
                // The numbers between have pages with other users.
                let number = (0..16).find(|number| !pages.contains(number) && number % 5 != 4);
                let number = number.expect("few pages");
                links[number] = core::array::from_fn(first_link);
                free.add_page(number);
                pages.insert(number);
            }
            if random.u8(..8) == 0
                && !pages.is_empty()
                && let Some(number) = free.find_empty_page()
            {
                assert!(used.iter().all(|&(other, _)| other != number));
                free.remove_page(number);
                pages.remove(&number);
            }
            assert_eq!(free.put(4, 0), None, "a page with other users");
            free.check(|number, place| links[number][place]);
        }
        assert!(pages.contains(&0), "index 0 is in use for ever");
    }
}
