//! The entries by index: links, and apart from them what is known of each and its value.
//!
//! Pages of a fixed size, so that nothing ever moves and no vector of entries doubles; those that have become empty go back
//! one at a time (P8). What is given back last is taken first, because it is still in the cache. Each page has its own list
//! of free entries, so that a page can go without a search for its entries in the others' lists.
//!
//! The links of a million entries fill 8 MB, which a cache holds and a processor's table of pages covers. That is why they
//! are apart: an entry's neighbours are somewhere, and only their links are touched.

use alloc::{boxed::Box, vec::Vec};
use core::mem;

use crate::{
    limits::{EMPTY_PAGES_KEPT, INDEX_MAX, KEY_GENERATION_MAX, PAGE_BITS, PAGES_SEARCHED},
    paged::{PAGE, Paged, default_page, page_of, place_of},
    prefetch::prefetch,
};

/// What the wheel knows of one entry, and its value.
#[derive(Debug)]
pub(super) struct Node<T> {
    pub(super) deadline: u64,
    /// How many entries of this index have ended, for those who ask.
    pub(super) generation: u32,
    pub(super) standing: Standing,
    pub(super) value: Option<T>,
}

/// What kind of slot an entry is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing(u32);

impl Standing {
    /// In no slot.
    pub(super) const OUT: Self = Self(0);
    /// In a slot of one tick, or one from which it will fire.
    pub(super) const NEAR: Self = Self(1);
    /// The same, and the slot had many entries when this one came. It is there at its deadline, not before.
    pub(super) const CROWDED: Self = Self(2);
    const FAR: u32 = 1 << 31;

    /// In a slot from which it is handed down.
    #[inline]
    pub(super) fn far(slot: u32) -> Self {
        Self(Self::FAR | slot)
    }

    /// The slot from which it is handed down, if it is in one.
    #[inline]
    pub(super) fn far_slot(self) -> Option<u32> {
        (self.0 & Self::FAR != 0).then_some(self.0 & !Self::FAR)
    }
}

/// An entry's neighbours.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Link {
    /// The entry before, or the slot if there is none; see `slot`.
    pub(super) previous: u32,
    /// The entry after; 0 if there is none. Of a free entry: one more than the place of the next free one in its page.
    pub(super) next: u32,
}

impl<T> Default for Node<T> {
    fn default() -> Self {
        Self { deadline: 0, generation: 0, standing: Standing::OUT, value: None }
    }
}

impl<T> Node<T> {
    /// Whether an entry of this generation is in a slot.
    #[inline]
    pub(super) fn is_in_wheel(&self, generation: u32) -> bool {
        self.generation == generation && self.standing != Standing::OUT
    }

    /// Ends the generation: false if it was the last, after which the index must not be used again.
    #[inline]
    pub(super) fn end_generation(&mut self) -> bool {
        self.generation += 1;
        self.generation < KEY_GENERATION_MAX
    }
}

/// See the module. Index 0 is never given out, so that links can say "none". Its link is there from the first `take` on and
/// nobody's: what is written to "none" ends there.
#[derive(Debug)]
pub(super) struct Nodes<T> {
    pub(super) links: Paged<Link>,
    leaves: Vec<Leaf<T>>,
    /// The page that an index is taken from next, if it has one.
    current: usize,
    /// All pages that have free entries, and some that had, each once.
    available: Vec<u32>,
    /// Numbers of pages that have gone.
    vacant: Vec<u32>,
    /// Pages that are there without an entry in use.
    empty: usize,
    /// So many of them are kept at least.
    kept: usize,
    /// More of them are too many.
    enough: usize,
    /// Where the search for an empty page goes on.
    cursor: usize,
}

/// A page and what is known of it.
#[derive(Debug)]
struct Leaf<T> {
    nodes: Option<Box<[Node<T>; PAGE]>>,
    /// One more than the place of the first free entry; 0 if there is none.
    free: u32,
    used: u32,
    /// Where the generations go on if the page comes again.
    generation: u32,
    /// It is in `available`.
    noted: bool,
}

impl<T> Default for Leaf<T> {
    fn default() -> Self {
        Self { nodes: None, free: 0, used: 0, generation: 0, noted: false }
    }
}

impl<T> Nodes<T> {
    pub(super) const fn new() -> Self {
        Self {
            links: Paged::new(),
            leaves: Vec::new(),
            current: 0,
            available: Vec::new(),
            vacant: Vec::new(),
            empty: 0,
            kept: EMPTY_PAGES_KEPT,
            enough: EMPTY_PAGES_KEPT,
            cursor: 0,
        }
    }

    /// One past the largest index that can be in use.
    #[inline]
    pub(super) fn end(&self) -> u32 {
        first_of(self.leaves.len())
    }

    /// Whether every index is in use.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.end() > INDEX_MAX && self.has_no_room()
    }

    #[cold]
    #[inline(never)]
    fn has_no_room(&self) -> bool {
        self.vacant.is_empty() && self.leaves.iter().all(|leaf| leaf.free == 0)
    }

    /// The node `index`, in use or free, if its page is there.
    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&Node<T>> {
        let nodes = self.leaves.get(page_of(index))?.nodes.as_deref()?;
        Some(&nodes[place_of(index)])
    }

    /// The same, to be changed.
    #[inline]
    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Node<T>> {
        let nodes = self.leaves.get_mut(page_of(index))?.nodes.as_deref_mut()?;
        Some(&mut nodes[place_of(index)])
    }

    /// The node of an index in use.
    #[inline]
    pub(super) fn node(&mut self, index: u32) -> &mut Node<T> {
        self.get_mut(index).unwrap_or_else(|| missing(index))
    }

    /// Brings a node closer, if it is there.
    #[inline]
    pub(super) fn prefetch(&self, index: u32) {
        if let Some(node) = self.get(index) {
            prefetch(node);
        }
    }

    /// Takes an index that is free, with its node and its link.
    #[inline(always)]
    #[allow(clippy::inline_always)] // Called, it would hand three things over in memory.
    pub(super) fn take(&mut self) -> (u32, &mut Node<T>, &mut Link) {
        let has_room = self.leaves.get(self.current).is_some_and(|leaf| leaf.free != 0);
        let page = if has_room { self.current } else { self.find_room() };
        let leaf = &mut self.leaves[page];
        let Some(nodes) = leaf.nodes.as_deref_mut() else { missing(first_of(page)) };
        if leaf.used == 0 {
            self.empty -= 1;
        }
        leaf.used += 1;
        let index = first_of(page) | leaf.free.wrapping_sub(1);
        let link = &mut self.links[index];
        leaf.free = link.next;
        (index, &mut nodes[place_of(index)], link)
    }

    /// Gives an index back if it is there and `judge`, who may change the node, says so.
    #[inline]
    pub(super) fn give_if(
        &mut self,
        index: u32,
        judge: impl FnOnce(&mut Node<T>, &mut Link) -> bool,
    ) {
        let page = page_of(index);
        let Some(leaf) = self.leaves.get_mut(page) else { return };
        let Some(nodes) = leaf.nodes.as_deref_mut() else { return };
        let link = &mut self.links[index];
        if !judge(&mut nodes[place_of(index)], link) {
            return;
        }
        link.next = leaf.free;
        leaf.free = free_link(place_of(index));
        leaf.used -= 1;
        self.current = page;
        if leaf.used == 0 || !leaf.noted {
            self.note(page);
        }
    }

    /// A page has become empty, or has got room.
    #[cold]
    #[inline(never)]
    fn note(&mut self, page: usize) {
        let leaf = &mut self.leaves[page];
        self.empty += usize::from(leaf.used == 0);
        if !leaf.noted {
            leaf.noted = true;
            self.available.push(number(page));
        }
    }

    /// Prepares pages for `capacity` entries.
    pub(super) fn reserve(&mut self, capacity: u32) {
        self.kept = self.kept.max(page_of(capacity) + 1);
        while self.leaves.len() <= page_of(capacity) {
            self.add_page();
        }
    }

    #[cold]
    #[inline(never)]
    fn find_room(&mut self) -> usize {
        while let Some(&page) = self.available.last() {
            let leaf = &mut self.leaves[page as usize];
            if leaf.free != 0 {
                // It stays noted: the next entry given back makes another page the current one.
                self.current = page as usize;
                return self.current;
            }
            leaf.noted = false;
            self.available.pop();
        }
        self.current = self.add_page();
        self.current
    }

    fn add_page(&mut self) -> usize {
        let page = self.vacant.pop().map_or(self.leaves.len(), |page| page as usize);
        if page == self.leaves.len() {
            self.leaves.push(Leaf::default());
            // So that giving back never allocates.
            self.available.reserve(self.leaves.len() - self.available.len());
            self.vacant.reserve(self.leaves.len());
        }
        let leaf = &mut self.leaves[page];
        let mut nodes = default_page::<Node<T>>();
        nodes.iter_mut().for_each(|node| node.generation = leaf.generation);
        leaf.nodes = Some(nodes);
        // Index 0 is never given out and never given back, so its page stays.
        leaf.free = free_link(usize::from(page == 0));
        leaf.used = u32::from(page == 0);
        self.empty += usize::from(page != 0);
        if !mem::replace(&mut leaf.noted, true) {
            self.available.push(number(page));
        }
        self.links.put_page(page, default_page());
        self.link_free(page);
        self.set_enough();
        page
    }

    /// Links each entry of a new page to the next.
    fn link_free(&mut self, page: usize) {
        for place in 0..PAGE - 1 {
            self.links[first_of(page) | number(place)].next = free_link(place + 1);
        }
    }

    /// A page has come or gone.
    fn set_enough(&mut self) {
        self.enough = self.kept.max((self.leaves.len() - self.vacant.len()) / 16);
    }

    /// Whether so many pages are empty that one should go.
    #[inline]
    pub(super) fn has_too_much(&self) -> bool {
        self.empty > self.enough
    }

    /// Panics if the pages are not as they should be.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn check(&self) {
        let mut noted = self.available.clone();
        noted.sort_unstable();
        assert!(noted.windows(2).all(|two| two[0] < two[1]), "a page is noted twice");
        for (page, leaf) in self.leaves.iter().enumerate() {
            let mut free = 0;
            let mut at = leaf.free;
            while at != 0 {
                free += 1;
                at = self.links[first_of(page) | (at - 1)].next;
            }
            let there = if leaf.nodes.is_some() { number(PAGE) } else { 0 };
            assert_eq!(leaf.used + free, there, "entries of page {page}");
            assert_eq!(
                leaf.noted,
                noted.binary_search(&number(page)).is_ok(),
                "the note of page {page}"
            );
            assert!(leaf.noted || leaf.free == 0, "room in page {page} that is not noted");
        }
        let empty = self.leaves.iter().filter(|leaf| leaf.nodes.is_some() && leaf.used == 0);
        assert_eq!(empty.count(), self.empty, "empty pages");
        let gone = self.leaves.iter().filter(|leaf| leaf.nodes.is_none());
        assert_eq!(gone.count(), self.vacant.len(), "pages that have gone");
    }

    /// Gives an empty page back, if one is found in a bounded number of looks; its number.
    #[cold]
    #[inline(never)]
    pub(super) fn shrink(&mut self) -> Option<u32> {
        for _ in 0..PAGES_SEARCHED {
            self.cursor = (self.cursor + 1) % self.leaves.len();
            let leaf = &mut self.leaves[self.cursor];
            if leaf.used == 0
                && let Some(nodes) = mem::take(&mut leaf.nodes)
            {
                leaf.free = 0;
                leaf.generation = nodes.iter().map(|node| node.generation).max().unwrap_or(0);
                self.links.take_page(self.cursor);
                self.empty -= 1;
                self.vacant.push(number(self.cursor));
                self.set_enough();
                return Some(number(self.cursor));
            }
        }
        None
    }
}

fn free_link(place: usize) -> u32 {
    number(place) + 1
}

#[allow(clippy::cast_possible_truncation)] // There are fewer places and pages than indices.
fn number(place: usize) -> u32 {
    place as u32
}

fn first_of(page: usize) -> u32 {
    number(page) << PAGE_BITS
}

#[cold]
#[inline(never)]
fn missing(index: u32) -> ! {
    panic!("entry {index} is not there")
}
