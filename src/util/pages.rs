//! Tables of pages, and the free places of each page.
//!
//! A page has a fixed number of *places*, each for one entry of a wheel or one node of a shard. A
//! table grows by whole pages, so no entry moves. Each page has its own free list, so that a page
//! can be freed without a search of other lists.
//!
//! The *last-freed* place is reused first, because it is probably still in the cache. The
//! last-freed place is in no free list, so that the next add touches no list. The place's page
//! counts it as used. The last-freed place joins its page's free list at the latest when another
//! place is freed.
//!
//! # When memory is committed and freed
//!
//! A page comes from the allocator with all bytes zero, and its places are added to the free list a
//! few at a time. So never-used places usually occupy no physical memory. Repeated batches of
//! timers reuse a few empty *spare pages* (promise P4 in `ARCHITECTURE.md`). Empty pages beyond the
//! spare pages are freed (P8). On Linux and Android, with the feature `std`, a freed page's memory
//! returns to the operating system at once.

#![allow(unsafe_code)]

use alloc::{
    alloc::{alloc_zeroed, dealloc, handle_alloc_error},
    vec,
    vec::Vec,
};
use core::{alloc::Layout, mem, ops::Range, ptr::NonNull};

use crate::limits::{FREE_LIST_REFILL_MAX, PAGE_BITS, SPARE_PAGES};

pub(crate) const PAGE_LEN: usize = 1 << PAGE_BITS;

#[inline]
pub(crate) fn page_number_of(index: u32) -> usize {
    index as usize >> PAGE_BITS
}

#[inline]
pub(crate) fn place_of(index: u32) -> usize {
    index as usize % PAGE_LEN
}

#[inline]
pub(crate) fn index_of(page_number: usize, place: usize) -> u32 {
    as_u32(page_number << PAGE_BITS | place)
}

#[inline]
#[allow(clippy::cast_possible_truncation)] // There are fewer pages and places than 2^32.
pub(crate) fn as_u32(number: usize) -> u32 {
    number as u32
}

/// Maps page numbers to pages, for one wheel or shard. To avoid a branch, the lookup of a page
/// number that has no page returns some other page.
#[derive(Debug)]
pub(crate) struct PageTable<P> {
    /// The page of each page number; page 0 for a number without a page. The vector's length is a
    /// power of two.
    pages: Vec<P>,
    /// For each element of `pages`, the number of this page; 0 if the element is page 0.
    numbers: Vec<u32>,
    index_mask: usize,
}

impl<P: Copy> PageTable<P> {
    /// Creates a table with `page_zero` as page 0, which is never removed.
    pub(crate) fn new(page_zero: P) -> Self {
        Self { pages: vec![page_zero], numbers: vec![0], index_mask: 0 }
    }

    #[inline]
    pub(crate) fn get(&self, number: usize) -> P {
        // SAFETY: the index is at most `index_mask`, which is one less than the length of `pages`.
        unsafe { *self.pages.get_unchecked(number & self.index_mask) }
    }

    #[inline]
    pub(crate) fn contains_page(&self, number: usize) -> bool {
        // SAFETY: the index is at most `index_mask`, one less than the length of `numbers`.
        unsafe { *self.numbers.get_unchecked(number & self.index_mask) as usize == number }
    }

    pub(crate) fn insert(&mut self, number: usize, page: P) {
        if number > self.index_mask {
            let first = self.get(0);
            let len = (number + 1).next_power_of_two();
            self.pages.resize(len, first);
            self.numbers.resize(len, 0);
            self.index_mask = len - 1;
        }
        (self.pages[number], self.numbers[number]) = (page, as_u32(number));
    }

    pub(crate) fn remove(&mut self, number: usize) {
        (self.pages[number], self.numbers[number]) = (self.pages[0], 0);
    }

    /// Returns a number greater than every page's number.
    pub(crate) fn page_numbers_end(&self) -> usize {
        self.pages.len()
    }

    /// Calls `find` for each index at or after `index` that may have been used, and returns the
    /// first `Some`. `allocator` allocates the places of the pages.
    #[inline]
    pub(crate) fn find_map_index_from<R>(
        &self,
        mut index: u32,
        allocator: &PlaceAllocator,
        find: impl Fn(u32) -> Option<R>,
    ) -> Option<R> {
        for number in page_number_of(index)..self.page_numbers_end() {
            if self.contains_page(number) {
                let used_end =
                    || index_of(number, 0) + as_u32(allocator.possibly_used_places(number).end);
                // Tries the first index before looking up the end of the used places.
                let found = find(index).or_else(|| (index + 1..used_end()).find_map(&find));
                if found.is_some() {
                    return found;
                }
            }
            index = index_of(number + 1, 0);
        }
        None
    }

    pub(crate) fn page_numbers(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.pages.len()).filter(|&number| self.contains_page(number))
    }
}

/// The free places of one owner's pages. The owner is a wheel, or the owner thread of a shard.
#[derive(Debug)]
pub(crate) struct PlaceAllocator {
    free_places_by_page: Vec<FreePlacesOfPage>,
    /// The index of the last-freed place, or 0 for none. The place is in no list, and its page
    /// counts it as used. A caller that frees another place stores its index here, and
    /// [puts](Self::put_in_free_list) the replaced index into the list of its page.
    pub(crate) last_freed_index: u32,
    /// The number of the page whose free list `take_place` uses.
    current_page: usize,
    /// The numbers of all pages with free or never-used places, and perhaps of some full pages. No
    /// number is listed twice.
    pages_with_room: Vec<u32>,
    /// The number of pages whose places are all free.
    empty_page_count: u32,
    /// The number of empty pages to keep as spare pages.
    pub(crate) spare_pages_to_keep: u32,
}

/// The free places of one page, as a list whose links the caller stores.
#[derive(Clone, Copy, Debug, Default)]
struct FreePlacesOfPage {
    /// One plus the first place of the list, or 0 if the list is empty.
    first_free_plus_one: u16,
    used_count: u16,
    /// This place and all later places of the page were never in the free list.
    first_never_used_place: u16,
    /// True if the page exists and belongs to this owner.
    belongs_to_owner: bool,
    /// True if the page is in `pages_with_room`.
    is_in_pages_with_room: bool,
}

const _: () = assert!(PAGE_LEN < 1 << 16, "a place plus one fits in 16 bits");

impl PlaceAllocator {
    /// Creates the allocator of an owner whose only page is page 0.
    pub(crate) fn new() -> Self {
        let mut allocator = Self {
            free_places_by_page: Vec::new(),
            last_freed_index: 0,
            current_page: 0,
            pages_with_room: Vec::new(),
            empty_page_count: 0,
            spare_pages_to_keep: SPARE_PAGES,
        };
        allocator.add_page(0);
        allocator
    }

    /// Returns the number of places, used or free.
    pub(crate) fn capacity(&self) -> usize {
        // Index 0 is never allocated.
        self.free_places_by_page.iter().filter(|page| page.belongs_to_owner).count() * PAGE_LEN - 1
    }

    #[inline]
    pub(crate) fn take_last_freed(&mut self) -> Option<u32> {
        let last = mem::take(&mut self.last_freed_index);
        if last == 0 { None } else { Some(last) }
    }

    /// Takes the last-freed place, or the first place of the current page's free list. Returns the
    /// place's index. `link_of` gets a page number and a place, and returns the place's link.
    #[inline(always)]
    pub(crate) fn take_place(&mut self, link_of: impl FnOnce(usize, usize) -> u32) -> Option<u32> {
        if let Some(last_freed) = self.take_last_freed() {
            return Some(last_freed);
        }
        let number = self.current_page;
        // SAFETY: `new`, `put_in_free_list` and `switch_to_page_with_room` set `current_page` only
        // to the number of an existing page, and `free_places_by_page` never shrinks.
        let page = unsafe { self.free_places_by_page.get_unchecked_mut(number) };
        let place = usize::from(page.first_free_plus_one.checked_sub(1)?) % PAGE_LEN;
        page.first_free_plus_one = as_u16(link_of(number, place));
        page.used_count += 1;
        if page.used_count == 1 {
            self.empty_page_count -= 1;
        }
        Some(index_of(number, place))
    }

    /// Puts a place into the free list of its page, and makes this page current. Returns the link
    /// that the caller must store in the place, and true if the page is now empty and the owner has
    /// surplus pages.
    #[inline]
    pub(crate) fn put_in_free_list(&mut self, number: usize, place: usize) -> (u32, bool) {
        let page = &mut self.free_places_by_page[number];
        let link = u32::from(page.first_free_plus_one);
        page.first_free_plus_one = as_u16(as_u32(place)) + 1;
        page.used_count -= 1;
        self.current_page = number;
        let has_surplus_pages = (page.used_count == 0 || !page.is_in_pages_with_room)
            && self.add_to_pages_with_room(number);
        (link, has_surplus_pages)
    }

    /// Updates `pages_with_room` and `empty_page_count` for a page that has room. Returns true if
    /// the page is empty, and the owner has surplus pages.
    #[cold]
    #[inline(never)]
    fn add_to_pages_with_room(&mut self, number: usize) -> bool {
        let page = &mut self.free_places_by_page[number];
        if !mem::replace(&mut page.is_in_pages_with_room, true) {
            self.pages_with_room.push(as_u32(number));
        }
        let is_empty = page.used_count == 0;
        self.empty_page_count += u32::from(is_empty);
        is_empty && self.has_surplus_pages()
    }

    /// Makes a page with room the current page. If the free list of this page is empty, puts
    /// never-used places into the list. Returns the index of each added place, with the link that
    /// the caller must store in the place. Returns `None` if no page has room.
    pub(crate) fn switch_to_page_with_room(
        &mut self,
    ) -> Option<impl Iterator<Item = (u32, u32)> + use<>> {
        while let Some(&number) = self.pages_with_room.last() {
            let number = number as usize;
            let page = &mut self.free_places_by_page[number];
            let first_place = usize::from(page.first_never_used_place);
            if page.first_free_plus_one == 0 && page.belongs_to_owner && first_place < PAGE_LEN {
                page.first_never_used_place =
                    as_u16(as_u32(PAGE_LEN.min(first_place + FREE_LIST_REFILL_MAX)));
                page.first_free_plus_one = as_u16(as_u32(first_place)) + 1;
            }
            if page.first_free_plus_one != 0 {
                // The page stays in `pages_with_room`, because the page may still have room when
                // another page becomes current.
                self.current_page = number;
                let end = usize::from(page.first_never_used_place);
                return Some((first_place..end).map(move |place| {
                    let link = if place + 1 < end { as_u32(place + 2) } else { 0 };
                    (index_of(number, place), link)
                }));
            }
            page.is_in_pages_with_room = false;
            self.pages_with_room.pop();
        }
        None
    }

    /// Registers a new page whose places are all free. Index 0 counts as used.
    pub(crate) fn add_page(&mut self, number: usize) {
        if self.free_places_by_page.len() <= number {
            self.free_places_by_page.resize(number + 1, FreePlacesOfPage::default());
            // Reserves the memory now, so that freeing a page never allocates.
            self.pages_with_room
                .reserve(self.free_places_by_page.len() - self.pages_with_room.len());
        }
        let used_count_at_start = u16::from(number == 0);
        let page = &mut self.free_places_by_page[number];
        (page.first_never_used_place, page.used_count, page.belongs_to_owner) =
            (used_count_at_start, used_count_at_start, true);
        self.add_to_pages_with_room(number);
    }

    #[inline]
    pub(crate) fn has_surplus_pages(&self) -> bool {
        self.empty_page_count > self.spare_pages_to_keep
    }

    /// If the owner has surplus pages, removes the empty page with the highest number, and returns
    /// the number.
    pub(crate) fn remove_surplus_page(&mut self) -> Option<usize> {
        if !self.has_surplus_pages() {
            return None;
        }
        let number = self
            .free_places_by_page
            .iter()
            .rposition(|page| page.belongs_to_owner && page.used_count == 0)?;
        self.empty_page_count -= 1;
        let page = &mut self.free_places_by_page[number];
        (page.belongs_to_owner, page.first_free_plus_one) = (false, 0);
        Some(number)
    }

    /// Returns a range that includes every place of page `number` used so far. If the page does not
    /// belong to this owner, returns all places of the page.
    pub(crate) fn possibly_used_places(&self, number: usize) -> Range<usize> {
        let page = self.free_places_by_page.get(number).filter(|page| page.belongs_to_owner);
        0..page.map_or(PAGE_LEN, |page| usize::from(page.first_never_used_place))
    }

    /// Panics if an invariant is broken. `link_of` gets a page number and a free place, and returns
    /// the place's link.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn check(&self, link_of: impl Fn(usize, usize) -> u32) {
        let mut sorted_pages = self.pages_with_room.clone();
        sorted_pages.sort_unstable();
        assert!(sorted_pages.windows(2).all(|pair| pair[0] < pair[1]), "a page is listed twice");
        let mut empty_count = 0;
        for (number, page) in self.free_places_by_page.iter().enumerate() {
            let (mut free_count, mut link) = (0, u32::from(page.first_free_plus_one));
            while link != 0 {
                free_count += 1;
                link = link_of(number, link as usize - 1);
            }
            let is_full = !page.belongs_to_owner
                || page.first_free_plus_one == 0
                    && usize::from(page.first_never_used_place) == PAGE_LEN;
            if page.belongs_to_owner {
                assert_eq!(
                    page.used_count + free_count,
                    page.first_never_used_place,
                    "places of page {number}"
                );
                empty_count += u32::from(page.used_count == 0);
            } else {
                assert_eq!(
                    free_count, 0,
                    "free places of page {number}, which is not this owner's"
                );
            }
            assert_eq!(
                page.is_in_pages_with_room,
                sorted_pages.binary_search(&as_u32(number)).is_ok()
            );
            assert!(page.is_in_pages_with_room || is_full, "unlisted room in page {number}");
        }
        assert_eq!(empty_count, self.empty_page_count, "empty pages");
    }
}

/// Returns the layout of a page's allocation. The allocation contains padding, a pointer to the
/// allocation's start, and the aligned page. The layout requests only a small alignment, for which
/// an allocator can often provide zeroed memory without writing to it.
fn page_allocation_layout<P>() -> Layout {
    let align = align_of::<P>().max(ALLOCATION_ALIGN);
    Layout::from_size_align(size_of::<P>() + align, ALLOCATION_ALIGN)
        .expect("a page fits in memory")
}

const ALLOCATION_ALIGN: usize = 16;

/// Allocates a page whose bytes are all zero.
pub(crate) fn allocate_page<P>() -> NonNull<P> {
    let layout = page_allocation_layout::<P>();
    // SAFETY: the layout is not of size zero.
    let Some(memory) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
        handle_alloc_error(layout)
    };
    let align = align_of::<P>().max(ALLOCATION_ALIGN);
    // SAFETY: the offset is at most `align`, and the layout is `align` bytes larger than the page.
    let page = unsafe { memory.add(align - memory.addr().get() % align) }.cast::<P>();
    // SAFETY: at least `ALLOCATION_ALIGN` bytes are before the page.
    let word_before = unsafe { page.cast::<NonNull<u8>>().sub(1) };
    // SAFETY: `word_before` lies within the allocation. The page is aligned for a pointer, so
    // `word_before` is aligned too.
    unsafe { word_before.write(memory) };
    page
}

/// # Safety
///
/// The page is from [`allocate_page`], its values have been dropped, and nothing refers to the page
/// any more.
pub(crate) unsafe fn free_page<P>(page: NonNull<P>) {
    // SAFETY: the page is from `allocate_page` (caller), which stored the address of the allocation
    // in the word before the page.
    let word_before = unsafe { page.cast::<NonNull<u8>>().sub(1) };
    // SAFETY: `allocate_page` wrote the address in this word.
    let memory = unsafe { word_before.read() };
    #[cfg(all(any(target_os = "linux", target_os = "android"), feature = "std", not(miri)))]
    // SAFETY: the page is still allocated, and nothing uses it any more (caller).
    unsafe {
        release_physical_pages(page.cast::<u8>(), size_of::<P>());
    }
    // SAFETY: `allocate_page` allocated the memory with this layout (caller).
    unsafe { dealloc(memory.as_ptr(), page_allocation_layout::<P>()) };
}

/// Drops a vector. On Linux and Android, the vector's memory returns to the operating system at
/// once.
#[cfg(feature = "std")]
pub(crate) fn free_vec_to_system<T>(mut vec: Vec<T>) {
    vec.clear();
    #[cfg(all(any(target_os = "linux", target_os = "android"), not(miri)))]
    // SAFETY: the vector owns this memory, which contains no value.
    unsafe {
        let memory = vec.spare_capacity_mut();
        let size = size_of_val(memory);
        release_physical_pages(NonNull::from(memory).cast::<u8>(), size);
    }
}

/// Returns physical memory to the operating system: all system pages that lie completely within
/// `memory`. The addresses of these pages stay allocated.
///
/// # Safety
///
/// The memory is allocated, and the program no longer needs the contents.
#[cfg(all(any(target_os = "linux", target_os = "android"), feature = "std", not(miri)))]
unsafe fn release_physical_pages(memory: NonNull<u8>, size: usize) {
    // SAFETY: `sysconf` only reads a constant of the system.
    let page_size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let Ok(page_size @ 1..) = usize::try_from(page_size) else { return };
    let skipped_bytes = memory.addr().get().next_multiple_of(page_size) - memory.addr().get();
    let returned_bytes = size.saturating_sub(skipped_bytes) / page_size * page_size;
    if returned_bytes > 0 {
        // SAFETY: the memory has more than `skipped_bytes` bytes, since `returned_bytes` is not
        // zero.
        let start = unsafe { memory.add(skipped_bytes) };
        // SAFETY: the range is within the memory, whose contents the program no longer needs
        // (caller). A failed call has no effect.
        unsafe { libc::madvise(start.as_ptr().cast(), returned_bytes, libc::MADV_DONTNEED) };
    }
}

#[inline]
#[allow(clippy::cast_possible_truncation)] // A link is at most a place plus one.
fn as_u16(link: u32) -> u16 {
    link as u16
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_lookup_without_a_page_returns_another_page() {
        let mut table = PageTable::new('a');
        table.insert(5, 'b');
        assert_eq!([0, 1, 5, 7, 800].map(|number| table.get(number)), ['a', 'a', 'b', 'a', 'a']);
        assert_eq!(table.page_numbers().collect::<Vec<_>>(), [0, 5]);
        table.remove(5);
        assert!(
            table.contains_page(0)
                && !table.contains_page(5)
                && !table.contains_page(800)
                && !table.contains_page(usize::MAX)
        );
    }

    #[test]
    fn a_place_in_use_is_not_taken_again() {
        let mut allocator = PlaceAllocator::new();
        let mut links: Vec<[u32; PAGE_LEN]> = vec![[0; PAGE_LEN]; 16];
        let (mut used, mut pages): (Vec<u32>, _) = (Vec::new(), BTreeSet::from([0]));
        let mut random = fastrand::Rng::with_seed(3);
        for round in 0..if cfg!(miri) { 300 } else { 20_000 } {
            // In each phase of 50 rounds, frees are tried with the probability 1/4, 1/2 or 3/4.
            if random.usize(..4) < 1 + round / 50 % 3 && !used.is_empty() {
                let index = used.swap_remove(random.usize(..used.len()));
                let (link, has_surplus_pages) =
                    allocator.put_in_free_list(page_number_of(index), place_of(index));
                links[page_number_of(index)][place_of(index)] = link;
                if has_surplus_pages {
                    let number = allocator.remove_surplus_page().expect("a surplus");
                    assert!(used.iter().all(|&index| page_number_of(index) != number));
                    assert!(pages.remove(&number));
                }
                assert!(!allocator.has_surplus_pages());
            } else if let Some(taken) = allocator.take_place(|number, place| links[number][place]) {
                assert!(taken != 0 && !used.contains(&taken));
                used.push(taken);
            } else if let Some(fresh) = allocator.switch_to_page_with_room() {
                fresh.for_each(|(index, link)| {
                    links[page_number_of(index)][place_of(index)] = link;
                });
            } else if pages.len() < 12 {
                // Skips every fifth page number, as if another owner had those pages.
                let number = (0..16).find(|number| !pages.contains(number) && number % 5 != 4);
                let number = number.expect("few pages");
                allocator.add_page(number);
                pages.insert(number);
            }
            allocator.check(|number, place| links[number][place]);
        }
        assert!(pages.contains(&0), "page 0 is never removed");
    }

    #[test]
    fn a_new_page_is_aligned_and_zeroed() {
        #[repr(align(128))]
        struct Aligned([u8; 300]);

        for _ in 0..10 {
            let (page, small) = (allocate_page::<Aligned>(), allocate_page::<[u8; 3]>());
            assert!(page.is_aligned());
            // SAFETY: an array of zero bytes is valid.
            assert!(unsafe { page.as_ref() }.0.iter().all(|&byte| byte == 0));
            // SAFETY: an array of zero bytes is valid.
            assert_eq!(unsafe { small.read() }, [0; 3]);
            // SAFETY: nothing refers to the page.
            unsafe { free_page(page) };
            // SAFETY: nothing refers to the page.
            unsafe { free_page(small) };
        }
    }
}
