//! The storage of a [`Wheel`](super::Wheel): links apart from values, in pages that come and go.
//!
//! Pages have a fixed size, so nothing ever moves and no vector of entries doubles; those that stay
//! empty are freed one at a time (P8). The entry that was freed last is used first, because it is
//! still in the cache. Each page has its own free list, so that a page can go without a search.
//!
//! Links are apart because unlinking writes to two neighbours: the links of a million entries fill
//! 8 MB, which a cache holds.

use alloc::{boxed::Box, vec::Vec};
use core::{cell::Cell, iter, mem};

use super::storage::{Links, Location, Placement, Storage};
use crate::{
    limits::{INDEX_MAX, KEY_GENERATION_MAX, PAGE_BITS, PAGES_SEARCHED},
    prefetch::prefetch,
    spare::Spare,
};

const PAGE: usize = 1 << PAGE_BITS;

/// One entry besides its links.
#[derive(Debug)]
struct Entry<T> {
    deadline: Cell<u64>,
    /// Counts the entries of this index that have ended.
    generation: u32,
    location: Cell<Location>,
    value: Option<T>,
}

/// A page, whether its contents are there or not.
#[derive(Debug)]
struct Page<T> {
    /// `None` while the page is not there.
    contents: Option<Contents<T>>,
    /// One more than the place of the first free entry; 0 if there is none.
    free: u32,
    used: u32,
    /// The generation at which entries continue if the page comes again.
    generation: u32,
    in_available: bool,
}

#[derive(Debug)]
struct Contents<T> {
    /// The `next` of a free entry is one more than the place of the next free one in its page.
    links: Box<[Cell<Links>; PAGE]>,
    entries: Box<[Entry<T>; PAGE]>,
}

/// All entries of a wheel. Index 0 is never used.
#[derive(Debug)]
pub(super) struct Entries<T> {
    pages: Vec<Page<T>>,
    /// The page that the next entry is taken from, if it has room.
    current: usize,
    /// All pages that have room, and some that had, each once.
    available: Vec<u32>,
    /// Numbers of pages that are not there.
    vacant: Vec<u32>,
    spare: Spare,
    /// The place where the search for an empty page continues.
    cursor: usize,
}

impl<T> Contents<T> {
    fn new(generation: u32) -> Self {
        let entry =
            || Entry { deadline: Cell::new(0), generation, location: Cell::default(), value: None };
        Self { links: boxed_page(Cell::default), entries: boxed_page(entry) }
    }
}

/// Builds a page in place: it may be larger than the stack.
#[allow(clippy::unnecessary_box_returns)]
fn boxed_page<E>(element: impl FnMut() -> E) -> Box<[E; PAGE]> {
    let page: Box<[E]> = iter::repeat_with(element).take(PAGE).collect();
    page.try_into().unwrap_or_else(|_| unreachable!("a page has PAGE elements"))
}

impl<T> Entries<T> {
    pub(super) const fn new() -> Self {
        Self {
            pages: Vec::new(),
            current: 0,
            available: Vec::new(),
            vacant: Vec::new(),
            spare: Spare::new(),
            cursor: 0,
        }
    }

    /// Stores a value under a free index, and returns the index and its generation. Returns `None`
    /// if every index is in use.
    #[inline(always)]
    #[allow(clippy::inline_always)] // As a function it would return two things in memory.
    pub(super) fn try_insert(&mut self, value: T) -> Option<(u32, u32)> {
        let mut number = self.current;
        if self.pages.get(number).is_none_or(|page| page.free == 0) {
            number = self.find_room()?;
        }
        let page = &mut self.pages[number];
        let place = page.free.wrapping_sub(1) as usize % PAGE;
        let contents = page.contents.as_mut()?;
        page.free = contents.links[place].get().next;
        if page.used == 0 {
            self.spare.remove();
        }
        page.used += 1;
        let entry = &mut contents.entries[place];
        entry.value = Some(value);
        Some((index_of(number, place), entry.generation))
    }

    #[cfg(test)]
    pub(super) fn insert(&mut self, value: T) -> (u32, u32) {
        self.try_insert(value).expect("there is room")
    }

    /// Returns true if an entry of this generation is in the wheel.
    #[inline]
    pub(super) fn contains(&self, index: u32, generation: u32) -> bool {
        self.get(index).is_some_and(|(_, entry)| {
            entry.generation == generation && entry.location.get() != Location::UNLINKED
        })
    }

    /// Returns the deadline and the location of an entry of this generation that is in the wheel.
    #[inline]
    pub(super) fn placement(&self, index: u32, generation: u32) -> Option<(&Cell<u64>, Location)> {
        let (_, entry) = self.get(index)?;
        let location = entry.location.get();
        let is_live = entry.generation == generation && location != Location::UNLINKED;
        is_live.then_some((&entry.deadline, location))
    }

    /// Frees an entry that is in no slot, and returns its value.
    #[inline]
    pub(super) fn remove(&mut self, index: u32) -> Option<T> {
        let (number, place) = (page_of(index), place_of(index));
        let page = self.pages.get_mut(number)?;
        let contents = page.contents.as_mut()?;
        let entry = &mut contents.entries[place];
        let value = mem::take(&mut entry.value);
        entry.generation += 1;
        // An index whose generations are used up is retired.
        if entry.generation < KEY_GENERATION_MAX {
            contents.links[place].set(Links { previous: 0, next: page.free });
            page.free = free_link(place);
            page.used -= 1;
            self.current = number;
        }
        if page.used == 0 || !page.in_available {
            self.note_room(number);
        }
        value
    }

    /// A page became empty, or has room and is not in `available`.
    #[cold]
    #[inline(never)]
    fn note_room(&mut self, number: usize) {
        let page = &mut self.pages[number];
        if page.used == 0 {
            self.spare.add();
        }
        if !mem::replace(&mut page.in_available, true) {
            self.available.push(as_u32(number));
        }
    }

    /// Returns a page with room, which is added if there is none.
    #[cold]
    #[inline(never)]
    fn find_room(&mut self) -> Option<usize> {
        while let Some(&number) = self.available.last() {
            let page = &mut self.pages[number as usize];
            if page.free != 0 {
                // It stays in the list: the next entry that is freed makes another page current.
                self.current = number as usize;
                return Some(self.current);
            }
            page.in_available = false;
            self.available.pop();
        }
        self.current = self.add_page()?;
        Some(self.current)
    }

    fn add_page(&mut self) -> Option<usize> {
        let number = match self.vacant.pop() {
            Some(number) => number as usize,
            None if self.pages.len() > page_of(INDEX_MAX) => return None,
            None => self.pages.len(),
        };
        if number == self.pages.len() {
            self.pages.push(Page {
                contents: None,
                free: 0,
                used: 0,
                generation: 0,
                in_available: false,
            });
            // So that freeing never allocates.
            self.available.reserve(self.pages.len() - self.available.len());
            self.vacant.reserve(self.pages.len());
        }
        let page = &mut self.pages[number];
        let contents = Contents::new(page.generation);
        for (place, links) in contents.links.iter().enumerate().take(PAGE - 1) {
            links.set(Links { previous: 0, next: free_link(place + 1) });
        }
        page.contents = Some(contents);
        // Index 0 is never used and never freed, so its page stays.
        let is_first = number == 0;
        page.free = free_link(usize::from(is_first));
        page.used = u32::from(is_first);
        if !is_first {
            self.spare.add();
        }
        if !mem::replace(&mut page.in_available, true) {
            self.available.push(as_u32(number));
        }
        Some(number)
    }

    /// Frees a page that has not been needed for long, if there is one.
    #[inline]
    pub(super) fn turn(&mut self) {
        if self.spare.is_worth_a_look() {
            self.trim();
        }
    }

    #[cold]
    #[inline(never)]
    fn trim(&mut self) {
        if !self.spare.turn() {
            return;
        }
        for _ in 0..PAGES_SEARCHED {
            self.cursor = (self.cursor + 1) % self.pages.len();
            let page = &mut self.pages[self.cursor];
            if page.used == 0
                && let Some(contents) = page.contents.take()
            {
                let generations = contents.entries.iter().map(|entry| entry.generation);
                page.generation = generations.max().unwrap_or(0);
                page.free = 0;
                self.vacant.push(as_u32(self.cursor));
                self.spare.remove();
                return;
            }
        }
    }

    #[inline]
    fn get(&self, index: u32) -> Option<(&Cell<Links>, &Entry<T>)> {
        let contents = self.pages.get(page_of(index))?.contents.as_ref()?;
        let place = place_of(index);
        Some((&contents.links[place], &contents.entries[place]))
    }

    #[inline]
    fn entry(&self, index: u32) -> &Entry<T> {
        self.get(index).map_or_else(|| missing(index), |(_, entry)| entry)
    }

    #[inline]
    fn links_of(&self, index: u32) -> &Cell<Links> {
        self.get(index).map_or_else(|| missing(index), |(links, _)| links)
    }

    /// Returns the indices of the entries that are there, used or free.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn indices(&self) -> impl Iterator<Item = u32> {
        let indices = 1..=as_u32(self.pages.len() * PAGE).saturating_sub(1);
        indices.filter(|&index| self.get(index).is_some())
    }

    /// Panics if an invariant is broken.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn check(&self) {
        let mut available = self.available.clone();
        available.sort_unstable();
        assert!(available.windows(2).all(|two| two[0] < two[1]), "a page is listed twice");
        for (number, page) in self.pages.iter().enumerate() {
            let mut free = 0;
            let mut at = page.free;
            while at != 0 {
                free += 1;
                at = self.links_of(index_of(number, at as usize - 1)).get().next;
            }
            let there = if page.contents.is_some() { as_u32(PAGE) } else { 0 };
            assert_eq!(page.used + free, there, "entries of page {number}");
            assert_eq!(page.in_available, available.binary_search(&as_u32(number)).is_ok());
            assert!(page.in_available || page.free == 0, "unlisted room in page {number}");
        }
        let empty = self.pages.iter().filter(|page| page.contents.is_some() && page.used == 0);
        assert_eq!(empty.count(), self.spare.empty() as usize, "empty pages");
        let vacant = self.pages.iter().filter(|page| page.contents.is_none());
        assert_eq!(vacant.count(), self.vacant.len(), "vacant pages");
    }

    /// Returns the number of pages that are there.
    #[cfg(test)]
    pub(super) fn pages(&self) -> usize {
        self.pages.len() - self.vacant.len()
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
        self.get(index).map_or(0, |(links, _)| links.get().next)
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
        let Some((own_links, entry)) = self.get(index) else { missing(index) };
        own_links.set(links);
        entry.deadline.set(deadline);
        entry.location.set(location);
    }

    #[inline]
    fn displace(&self, index: u32) -> Placement {
        let Some((links, entry)) = self.get(index) else { missing(index) };
        let location = entry.location.replace(Location::UNLINKED);
        Placement { deadline: entry.deadline.get(), links: links.get(), location }
    }

    #[inline]
    fn prefetch(&self, index: u32) {
        if let Some((links, entry)) = self.get(index) {
            prefetch(links);
            prefetch(entry);
        }
    }
}

#[inline]
fn page_of(index: u32) -> usize {
    index as usize >> PAGE_BITS
}

#[inline]
fn place_of(index: u32) -> usize {
    index as usize % PAGE
}

#[inline]
fn index_of(number: usize, place: usize) -> u32 {
    as_u32(number << PAGE_BITS | place)
}

fn free_link(place: usize) -> u32 {
    as_u32(place) + 1
}

#[inline]
#[allow(clippy::cast_possible_truncation)] // There are fewer pages and entries than 2^32.
fn as_u32(number: usize) -> u32 {
    number as u32
}

#[cold]
#[inline(never)]
fn missing(index: u32) -> ! {
    panic!("entry {index} is not there")
}
