//! The entries of a [`Wheel`](super::Wheel), in pages that are allocated and freed on demand. An
//! index consists of a page number and a *place* in the page.

#![allow(unsafe_code)]

use alloc::{boxed::Box, vec, vec::Vec};
use core::{
    cell::{Cell, UnsafeCell},
    marker::PhantomData,
    mem::{self, MaybeUninit},
    ptr::NonNull,
};

use super::{
    Geometry, Key, RawWheel,
    storage::{Entry, Links, Location, Storage},
};
use crate::{
    limits::{INDEX_MAX, RESERVED_TIMERS_MAX, SPARE_PAGES, WHEEL_KEY_GENERATION_MAX},
    util::{
        pages::{
            self, PAGE_LEN, PageTable, PlaceAllocator, as_u32, index_of, page_number_of, place_of,
        },
        prefetch::prefetch,
    },
};

/// An entry of a wheel, or a free place. All bytes of a never-used place are zero.
// This order of the fields keeps all fields before `value` in one cache line, if possible.
#[repr(C)]
struct EntryNode<T> {
    /// If the place is free, `next` is the link of the page's free list.
    links: Links,
    deadline: Cell<u64>,
    /// Tells apart the entries that successively use this index.
    generation: Cell<u32>,
    location: Cell<Location>,
    /// Initialized while the entry is linked.
    value: UnsafeCell<MaybeUninit<T>>,
}

/// Entries that are allocated and freed together.
type Page<T> = [EntryNode<T>; PAGE_LEN];

/// All entries of a wheel. Index 0 is never used.
pub(super) struct Entries<T> {
    pages: PageTable<NonNull<Page<T>>>,
    place_allocator: PlaceAllocator,
    /// For each page number used so far, the first generation of the entries in a page with this
    /// number. Keys of entries in earlier pages with this number have lower generations.
    first_generations: Vec<u32>,
    owned_pages: PhantomData<Box<Page<T>>>,
}

// SAFETY: `Entries` owns its pages exclusively.
unsafe impl<T: Send> Send for Entries<T> {}

/// A reference to an entry of [`Entries`], with the entry's index.
pub(super) struct EntryRef<'e, T> {
    node: &'e EntryNode<T>,
    index: u32,
}

impl<T> Clone for EntryRef<'_, T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for EntryRef<'_, T> {}

impl<T> EntryRef<'_, T> {
    #[inline]
    fn generation(self) -> u32 {
        self.node.generation.get()
    }

    #[inline]
    pub(super) fn key(self) -> Key {
        Key { index: self.index, generation: self.generation() }
    }

    #[inline]
    fn value_ptr(self) -> *mut T {
        self.node.value.get().cast()
    }

    /// Returns the value of an entry that is being removed, and increments the generation.
    ///
    /// # Safety
    ///
    /// The value is initialized. The caller treats the value as uninitialized afterwards.
    #[inline]
    unsafe fn take_value(self) -> T {
        self.node.generation.set(self.generation() + 1);
        // SAFETY: the value is initialized (caller). The entry is being removed, so nothing borrows
        // its value.
        unsafe { self.value_ptr().read() }
    }
}

impl<T> Entry for EntryRef<'_, T> {
    #[inline]
    fn index(self) -> u32 {
        self.index
    }

    #[inline]
    fn links(&self) -> &Links {
        &self.node.links
    }

    #[inline]
    fn deadline(&self) -> &Cell<u64> {
        &self.node.deadline
    }

    #[inline]
    fn location(&self) -> &Cell<Location> {
        &self.node.location
    }
}

impl<T> Entries<T> {
    pub(super) fn new() -> Self {
        Self {
            pages: PageTable::new(pages::allocate_page()),
            place_allocator: PlaceAllocator::new(),
            first_generations: vec![0],
            owned_pages: PhantomData,
        }
    }

    /// Adds a value that is due at `deadline`. Returns the value if no index is free.
    ///
    /// The fast paths of this function and [`remove`](Self::remove) call only inlined functions, so
    /// they save no registers.
    #[inline(always)]
    pub(super) fn insert(
        &mut self,
        wheel: &mut RawWheel<impl Geometry>,
        deadline: u64,
        value: T,
    ) -> Result<Key, T> {
        // If the deadline is known to be in the first level, `link` has fewer branches.
        if deadline > wheel.pass_end
            && deadline <= wheel.last_first_level_tick
            && let Some(index) = self.allocate_index_fast()
        {
            let entry = self.write_value(index, value);
            wheel.link(self, entry, deadline);
            Ok(entry.key())
        } else {
            self.insert_slow(wheel, deadline, value)
        }
    }

    #[inline(never)]
    fn insert_slow(
        &mut self,
        wheel: &mut RawWheel<impl Geometry>,
        deadline: u64,
        value: T,
    ) -> Result<Key, T> {
        let Some(index) = self.allocate_index() else { return Err(value) };
        let entry = self.write_value(index, value);
        wheel.link(self, entry, deadline);
        Ok(entry.key())
    }

    /// Stores a value in a free entry.
    #[inline(always)]
    fn write_value(&self, index: u32, value: T) -> EntryRef<'_, T> {
        let entry = self.entry(index);
        // SAFETY: the entry is free, so nothing borrows its value.
        unsafe { entry.value_ptr().write(value) };
        entry
    }

    /// Removes an entry, and returns its value; `None` if the entry is no longer in the wheel.
    #[inline]
    pub(super) fn remove(&mut self, wheel: &mut RawWheel<impl Geometry>, key: Key) -> Option<T> {
        if !self.entry(key.index).location().get().is_in_first_level()
            || self.place_allocator.last_freed_index != 0
        {
            return self.remove_slow(wheel, key);
        }
        let entry = Self::find_in_pages(&self.pages, key)?;
        // SAFETY: the value of an entry in the wheel is initialized, and the entry is unlinked
        // below.
        let value = unsafe { entry.take_value() };
        // Unlike `free_index`, this call keeps the index outside the free lists even if the wheel
        // becomes empty.
        Self::replace_last_freed(&mut self.place_allocator, key.index, key.generation + 1);
        // The unlink comes last, when the function needs few other values, so that the function
        // saves fewer registers.
        wheel.unlink_from_first_level(self, entry);
        Some(value)
    }

    #[inline(never)]
    fn remove_slow(&mut self, wheel: &mut RawWheel<impl Geometry>, key: Key) -> Option<T> {
        let entry = self.find_entry(key)?;
        wheel.unlink(self, entry);
        // SAFETY: the entry was in the wheel until now, so its value is initialized.
        let value = unsafe { entry.take_value() };
        self.free_index(wheel, key.index, key.generation + 1);
        Some(value)
    }

    /// Unlinks the next due entry of the wheel's pass, and returns the entry's deadline and value.
    pub(super) fn pop_due_entry(
        &mut self,
        wheel: &mut RawWheel<impl Geometry>,
    ) -> Option<(u64, T)> {
        let (entry, deadline) = wheel.pop_due_entry(self)?;
        // SAFETY: the entry was in the wheel until now, so its value is initialized.
        let value = unsafe { entry.take_value() };
        let (index, generation) = (entry.index, entry.generation());
        self.free_index(wheel, index, generation);
        Some((deadline, value))
    }

    /// Frees an index whose value the caller has taken. `generation` is the index's generation,
    /// which the removal has already incremented.
    #[inline]
    fn free_index(&mut self, wheel: &RawWheel<impl Geometry>, index: u32, generation: u32) {
        let previous_freed = Self::replace_last_freed(&mut self.place_allocator, index, generation);
        if previous_freed != 0 {
            self.put_in_free_list(previous_freed);
        }
        if wheel.len() == 0 {
            self.put_last_freed_in_free_list();
        }
    }

    /// Frees an index and keeps it outside the lists, in `last_freed_index`. Returns the previous
    /// `last_freed_index`, or 0 for none. If the index has used up its generations, retires the
    /// index, keeps `last_freed_index` and returns 0.
    #[inline]
    fn replace_last_freed(
        place_allocator: &mut PlaceAllocator,
        index: u32,
        generation: u32,
    ) -> u32 {
        if generation < WHEEL_KEY_GENERATION_MAX {
            mem::replace(&mut place_allocator.last_freed_index, index)
        } else {
            0
        }
    }

    /// Puts the index that was freed last into the free list of its page.
    #[cold]
    #[inline(never)]
    fn put_last_freed_in_free_list(&mut self) {
        if let Some(last) = self.place_allocator.take_last_freed() {
            self.put_in_free_list(last);
        }
    }

    pub(super) fn allocate_index(&mut self) -> Option<u32> {
        self.allocate_index_fast().or_else(|| self.take_from_other_page())
    }

    /// Takes the index that was freed last, or a free index of the current page.
    #[inline(always)]
    fn allocate_index_fast(&mut self) -> Option<u32> {
        let pages = &self.pages;
        // SAFETY: each page in the table is allocated, and is never borrowed mutably.
        let page = |number| unsafe { pages.get(number).as_ref() };
        self.place_allocator.take_place(|number, place| page(number)[place].links.next.get())
    }

    /// Returns the entry of a key, if the entry is in the wheel.
    #[inline]
    pub(super) fn find_entry(&self, key: Key) -> Option<EntryRef<'_, T>> {
        Self::find_in_pages(&self.pages, key)
    }

    /// Returns the entry of a key as [`find_entry`](Self::find_entry) does, but borrows only the
    /// table.
    #[inline]
    fn find_in_pages(pages: &PageTable<NonNull<Page<T>>>, key: Key) -> Option<EntryRef<'_, T>> {
        let page = Self::page(pages, page_number_of(key.index));
        let entry = EntryRef { node: &page[place_of(key.index)], index: key.index };
        let is_live = entry.generation() == key.generation
            && entry.location().get().is_linked()
            && pages.contains_page(page_number_of(key.index));
        is_live.then_some(entry)
    }

    #[inline]
    pub(super) fn value(&self, key: Key) -> Option<&T> {
        let value = self.find_entry(key)?.value_ptr();
        // SAFETY: the value of an entry in the wheel is initialized, and is replaced only while the
        // wheel is borrowed mutably.
        Some(unsafe { &*value })
    }

    #[inline]
    pub(super) fn value_mut(&mut self, key: Key) -> Option<&mut T> {
        let value = self.find_entry(key)?.value_ptr();
        // SAFETY: the value of an entry in the wheel is initialized, and `self` is borrowed
        // mutably, so no other reference to the value exists.
        Some(unsafe { &mut *value })
    }

    /// Returns the first index at or after `index` whose entry is in the wheel.
    #[inline]
    pub(super) fn next_live_index(&self, index: u32) -> Option<u32> {
        let is_linked = |index| self.entry(index).location().get().is_linked();
        let find = |index| is_linked(index).then_some(index);
        self.pages.find_map_index_from(index, &self.place_allocator, find)
    }

    /// Allocates memory for `capacity` entries in all. Only
    /// [`free_empty_pages`](Self::free_empty_pages) frees this memory.
    pub(super) fn reserve(&mut self, capacity: usize) {
        let capacity = capacity.min(RESERVED_TIMERS_MAX as usize);
        let spare_pages = &mut self.place_allocator.spare_pages_to_keep;
        *spare_pages = as_u32(capacity / PAGE_LEN + 1).max(*spare_pages);
        for _ in 0..capacity.saturating_sub(self.capacity()).div_ceil(PAGE_LEN) {
            let Some(index) = self.take_from_new_page() else { break };
            self.put_in_free_list(index);
        }
    }

    /// Returns the number of entries, used or free.
    pub(super) fn capacity(&self) -> usize {
        self.place_allocator.capacity()
    }

    /// Frees all empty pages, even reserved ones.
    pub(super) fn free_empty_pages(&mut self) {
        self.put_last_freed_in_free_list();
        self.place_allocator.spare_pages_to_keep = 0;
        while self.place_allocator.has_surplus_pages() {
            self.free_surplus_page();
        }
        self.place_allocator.spare_pages_to_keep = SPARE_PAGES;
    }

    #[inline]
    fn put_in_free_list(&mut self, index: u32) {
        let (number, place) = (page_number_of(index), place_of(index));
        let (next, has_surplus_pages) = self.place_allocator.put_in_free_list(number, place);
        self.entry(index).links().next.set(next);
        if has_surplus_pages {
            self.free_surplus_page();
        }
    }

    /// Makes a page with room current, a new page if necessary, and allocates an index.
    #[cold]
    #[inline(never)]
    fn take_from_other_page(&mut self) -> Option<u32> {
        let Some(new_places) = self.place_allocator.switch_to_page_with_room() else {
            return self.take_from_new_page();
        };
        for (index, next) in new_places {
            let entry = self.entry(index).node;
            entry.links.next.set(next);
            entry.generation.set(self.first_generations[page_number_of(index)]);
        }
        self.allocate_index_fast()
    }

    /// Allocates a page, and then an index.
    fn take_from_new_page(&mut self) -> Option<u32> {
        let mut numbers = 0..=page_number_of(INDEX_MAX);
        let number = numbers.find(|&number| !self.pages.contains_page(number))?;
        if number == self.first_generations.len() {
            self.first_generations.push(0);
        }
        self.pages.insert(number, pages::allocate_page());
        self.place_allocator.add_page(number);
        self.take_from_other_page()
    }

    /// Frees an empty page if the wheel has more empty pages than it keeps as spare pages.
    #[cold]
    #[inline(never)]
    fn free_surplus_page(&mut self) {
        let Some(number) = self.place_allocator.remove_surplus_page() else { return };
        let entries = Self::page(&self.pages, number);
        let generations = entries.iter().map(|entry| entry.generation.get());
        let first_generation = &mut self.first_generations[number];
        *first_generation = generations.fold(*first_generation, u32::max);
        let page = self.pages.get(number);
        self.pages.remove(number);
        // SAFETY: `allocate_page` made the page, and no entry of the page holds a value. Nothing
        // refers to the page any more.
        unsafe { pages::free_page(page) };
    }

    #[inline]
    fn page(pages: &PageTable<NonNull<Page<T>>>, number: usize) -> &Page<T> {
        // SAFETY: a page lives until it is removed from the table, which needs `&mut PageTable`,
        // and no mutable reference to a page exists. A page begins with zero bytes, which are valid
        // for its cells of integers and of `MaybeUninit`.
        unsafe { pages.get(number).as_ref() }
    }

    /// Returns all indices that may have been used so far.
    pub(super) fn possibly_used_indices(&self) -> impl Iterator<Item = u32> {
        let indices = self.pages.page_numbers().flat_map(|number| {
            self.place_allocator
                .possibly_used_places(number)
                .map(move |place| index_of(number, place))
        });
        indices.filter(|&index| index != 0)
    }

    /// Panics if an invariant is broken.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn check(&self) {
        self.place_allocator
            .check(|number, place| Self::page(&self.pages, number)[place].links.next.get());
        let page_count = self.pages.page_numbers().count();
        assert_eq!(page_count * PAGE_LEN, self.capacity() + 1, "pages");
    }
}

impl<T> Drop for Entries<T> {
    fn drop(&mut self) {
        let mut drop_entries = DropEntries { entries: self, indices: self.possibly_used_indices() };
        // If a destructor panics, the unwinding drops `drop_entries`, which drops the other values.
        drop_entries.drop_values();
    }
}

/// When dropped, drops the values of the remaining `indices`, and then frees the pages.
struct DropEntries<'a, T, I: Iterator<Item = u32>> {
    entries: &'a Entries<T>,
    indices: I,
}

impl<T, I: Iterator<Item = u32>> DropEntries<'_, T, I> {
    fn drop_values(&mut self) {
        if mem::needs_drop::<T>() {
            for index in &mut self.indices {
                let entry = self.entries.entry(index);
                if entry.location().get().is_linked() {
                    // SAFETY: the entry is in the wheel, so its value is initialized; the value is
                    // not used afterwards.
                    unsafe { entry.value_ptr().drop_in_place() };
                }
            }
        }
    }
}

impl<T, I: Iterator<Item = u32>> Drop for DropEntries<'_, T, I> {
    fn drop(&mut self) {
        self.drop_values();
        let pages = &self.entries.pages;
        for number in pages.page_numbers() {
            // SAFETY: `page_numbers` yields the number of each page once. `allocate_page` made the
            // page, which is not used afterwards.
            unsafe { pages::free_page(pages.get(number)) };
        }
    }
}

impl<T> Storage for Entries<T> {
    type Entry<'s>
        = EntryRef<'s, T>
    where
        T: 's;

    #[inline]
    fn entry(&self, index: u32) -> EntryRef<'_, T> {
        EntryRef { node: &Self::page(&self.pages, page_number_of(index))[place_of(index)], index }
    }

    #[inline]
    fn prefetch(&self, index: u32) {
        prefetch(self.entry(index).node);
    }
}
