//! A pool of records, which are stored in pages. Some empty pages are kept as *spare pages*.
//!
//! Pages have a fixed capacity, so growth moves no records, except in the first page, which starts
//! small. Each page has its own free list. New records come from one page, the *current* page,
//! until it is full. The next current page is a partly used page if there is one, else a spare
//! page, else a new page.

use std::mem;

use crate::{
    limits::{PURGATORY_PAGE_BITS, PURGATORY_SPARE_PAGES_MAX},
    util::pages,
};

/// The index that means "none".
pub(super) const NO_RECORD: u32 = u32::MAX;

const PAGE_LEN: usize = 1 << PURGATORY_PAGE_BITS;
const PAGE_LEN_U32: u32 = 1 << PURGATORY_PAGE_BITS;

/// A record that can be stored in [`Records`].
pub(super) trait Record {
    /// A free record, which owns nothing that a drop would free.
    const FREE_RECORD: Self;

    /// Returns the field that holds the index of the next free record while this record is free.
    fn next_free_index_mut(&mut self) -> &mut u32;
}

/// A pool of records. An index identifies each record.
pub(super) struct Records<T> {
    pages: Vec<Page<T>>,
    /// The first free record of the current page, or [`NO_RECORD`].
    first_free_in_current_page: u32,
    pub(super) len: u32,
    /// The number of the current page.
    current_page: u32,
    /// The pages that have both free records and records in use, except the current page.
    partly_used_pages: Vec<u32>,
    /// The pages that have memory but no record in use, except the current page.
    spare_pages: Vec<u32>,
    /// The smallest number of spare pages since the last
    /// [`end_trim_interval`](Self::end_trim_interval).
    fewest_spare_pages_in_interval: usize,
}

/// A page of records. If the page has no memory, `records` is empty.
struct Page<T> {
    /// The records that were ever in use.
    records: Vec<T>,
    /// The first free record, or [`NO_RECORD`]. Always [`NO_RECORD`] in the current page.
    first_free: u32,
    /// The number of records in use; stale while the page is the current page.
    used_count: u32,
}

impl<T> Records<T> {
    pub(super) const fn new() -> Self {
        Self {
            pages: Vec::new(),
            first_free_in_current_page: NO_RECORD,
            len: 0,
            current_page: 0,
            partly_used_pages: Vec::new(),
            spare_pages: Vec::new(),
            fewest_spare_pages_in_interval: 0,
        }
    }

    /// Returns the record at `index`, used or free, if it exists.
    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&T> {
        self.pages.get(page_number_of(index))?.records.get(offset_in_page(index))
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.pages.get_mut(page_number_of(index))?.records.get_mut(offset_in_page(index))
    }

    #[inline]
    pub(super) fn record_mut(&mut self, index: u32) -> &mut T {
        self.get_mut(index).unwrap_or_else(|| panic_no_record())
    }

    /// Returns all records, used or free, with their indices.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let pages = (0..).zip(&self.pages);
        pages.flat_map(|(number, page)| (first_index_of_page(number)..).zip(&page.records))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.pages.iter_mut().flat_map(|page| &mut page.records)
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.pages.iter().map(|page| page.records.capacity()).sum()
    }

    pub(super) fn has_spare_page(&self) -> bool {
        !self.spare_pages.is_empty()
    }

    /// Frees spare pages until at most `max_kept_pages` are left.
    fn free_spare_pages(&mut self, max_kept_pages: usize) {
        for number in self.spare_pages.drain(max_kept_pages.min(self.spare_pages.len())..) {
            let page = mem::replace(&mut self.pages[number as usize], Page::UNALLOCATED);
            pages::free_vec_to_system(page.records);
        }
    }
}

impl<T> Page<T> {
    const UNALLOCATED: Self = Self { records: Vec::new(), first_free: NO_RECORD, used_count: 0 };
}

impl<T: Record> Records<T> {
    /// Ends a trim interval
    /// ([`PURGATORY_TRIM_INTERVAL_TURNS`](crate::limits::PURGATORY_TRIM_INTERVAL_TURNS)), and
    /// begins the next. If `frees_all_spare_pages` is true, frees all spare pages; otherwise frees
    /// one, if there always was a spare page during the interval.
    pub(super) fn end_trim_interval(&mut self, frees_all_spare_pages: bool) {
        let unneeded_count = if frees_all_spare_pages {
            self.spare_pages.len()
        } else {
            self.fewest_spare_pages_in_interval.min(1)
        };
        self.free_spare_pages(self.spare_pages.len() - unneeded_count);
        self.fewest_spare_pages_in_interval = self.spare_pages.len();
    }

    /// Returns the index of the record that [`occupy_record`](Self::occupy_record) must take next.
    #[inline]
    pub(super) fn vacant_index(&self) -> u32 {
        if self.first_free_in_current_page == NO_RECORD {
            self.vacant_index_slow()
        } else {
            self.first_free_in_current_page
        }
    }

    #[inline(never)]
    fn vacant_index_slow(&self) -> u32 {
        let unused_index = |number: usize, offset: usize| {
            let index = u32::try_from(number << PURGATORY_PAGE_BITS | offset).ok();
            let index = index.filter(|&index| index < INDEX_LIMIT);
            index.unwrap_or_else(|| panic!("more than 2^31 operations or watches"))
        };
        let current_page_number = self.current_page as usize;
        let used_len = self.pages.get(current_page_number).map_or(0, |page| page.records.len());
        if used_len < PAGE_LEN {
            return unused_index(current_page_number, used_len);
        }
        if let Some(&number) = self.partly_used_pages.last().or(self.spare_pages.last()) {
            return self.pages[number as usize].first_free;
        }
        let unallocated_number = self.pages.iter().position(|page| page.records.is_empty());
        unused_index(unallocated_number.unwrap_or(self.pages.len()), 0)
    }

    /// Occupies the record at `index`, which must be the [`vacant_index`](Self::vacant_index). The
    /// caller writes the record.
    #[inline]
    pub(super) fn occupy_record(&mut self, index: u32) -> &mut T {
        self.len += 1;
        if index != self.first_free_in_current_page {
            self.make_page_current(index);
        }
        let record = self.pages.get_mut(page_number_of(index));
        let record = record.and_then(|page| page.records.get_mut(offset_in_page(index)));
        let record = record.unwrap_or_else(|| panic_no_record());
        self.first_free_in_current_page = *record.next_free_index_mut();
        record
    }

    /// Makes the page of `index` the current page, with `index` as its first free record. `index`
    /// must be the [`vacant_index`](Self::vacant_index), and the current page must have no free
    /// record.
    #[inline(never)]
    fn make_page_current(&mut self, index: u32) {
        let number = page_number_of(index);
        if number >= self.pages.len() {
            self.pages.push(Page::UNALLOCATED);
        }
        if self.current_page as usize != number {
            self.pages[self.current_page as usize].used_count = PAGE_LEN_U32;
            // Removes the new current page from its list: `vacant_index` chose the last page of
            // `partly_used_pages`, else of `spare_pages`, else a page without memory.
            if self.partly_used_pages.pop().is_none() && self.spare_pages.pop().is_some() {
                self.fewest_spare_pages_in_interval =
                    self.fewest_spare_pages_in_interval.min(self.spare_pages.len());
            }
            self.current_page = index >> PURGATORY_PAGE_BITS;
        }
        let page = &mut self.pages[number];
        page.first_free = NO_RECORD;
        if page.records.len() == offset_in_page(index) {
            // The first page grows by doubling, so that a small purgatory needs little memory.
            if number > 0 {
                page.records.reserve_exact(PAGE_LEN - page.records.len());
            }
            page.records.push(T::FREE_RECORD);
        }
        self.first_free_in_current_page = index;
    }

    /// Puts a freed record into the free list of its page, which must not be the current page.
    /// Returns true if the page now has no record in use, and so becomes a spare page. At most
    /// [`PURGATORY_SPARE_PAGES_MAX`] spare pages are kept.
    #[inline(never)]
    #[must_use]
    pub(super) fn put_in_free_list(&mut self, index: u32) -> bool {
        let number = index >> PURGATORY_PAGE_BITS;
        let page = &mut self.pages[page_number_of(index)];
        *page.records[offset_in_page(index)].next_free_index_mut() =
            mem::replace(&mut page.first_free, index);
        page.used_count -= 1;
        if page.used_count == 0 {
            self.partly_used_pages.retain(|&other| other != number);
            self.spare_pages.push(number);
            self.free_spare_pages(PURGATORY_SPARE_PAGES_MAX);
            return true;
        }
        if page.used_count == PAGE_LEN_U32 - 1 {
            self.partly_used_pages.push(number);
        }
        false
    }

    /// Returns a record in use, which the caller may free.
    #[inline]
    pub(super) fn occupied_record(&mut self, index: u32) -> OccupiedRecord<'_, T> {
        let page = self.pages.get_mut(page_number_of(index));
        let record = page.and_then(|page| page.records.get_mut(offset_in_page(index)));
        let record = record.unwrap_or_else(|| panic_no_record());
        let Self { current_page, first_free_in_current_page, len, .. } = self;
        OccupiedRecord { record, index, current_page, first_free_in_current_page, len }
    }
}

/// A record in use, and the fields of the pool that [`free`](Self::free) needs.
pub(super) struct OccupiedRecord<'a, T> {
    pub(super) record: &'a mut T,
    index: u32,
    current_page: &'a u32,
    first_free_in_current_page: &'a mut u32,
    len: &'a mut u32,
}

impl<'a, T: Record> OccupiedRecord<'a, T> {
    /// Frees the record and returns it. The caller must take the record's contents, and then pass
    /// the returned index to [`put_in_free_list`](Records::put_in_free_list), unless it is
    /// [`NO_RECORD`].
    #[inline]
    pub(super) fn free(self) -> (&'a mut T, u32) {
        *self.len -= 1;
        if self.index >> PURGATORY_PAGE_BITS != *self.current_page {
            return (self.record, self.index);
        }
        *self.record.next_free_index_mut() =
            mem::replace(self.first_free_in_current_page, self.index);
        (self.record, NO_RECORD)
    }
}

/// All indices are below this value, so the table can use bit 31 of an index as a flag. Even with
/// bit 31 set, no index equals [`NO_RECORD`].
const INDEX_LIMIT: u32 = (1 << 31) - 1;

/// Panics. Not inlined, to keep the callers' code small.
#[cold]
#[inline(never)]
fn panic_no_record() -> ! {
    unreachable!("no record has this index")
}

#[inline]
fn page_number_of(index: u32) -> usize {
    index as usize >> PURGATORY_PAGE_BITS
}

#[inline]
fn offset_in_page(index: u32) -> usize {
    index as usize % PAGE_LEN
}

fn first_index_of_page(number: u32) -> u32 {
    number << PURGATORY_PAGE_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record that holds a number while in use, and the index of the next free record while free.
    struct TestRecord(Option<u64>, u32);

    impl Record for TestRecord {
        const FREE_RECORD: Self = Self(None, NO_RECORD);

        fn next_free_index_mut(&mut self) -> &mut u32 {
            &mut self.1
        }
    }

    fn free(records: &mut Records<TestRecord>, index: u32) -> Option<u64> {
        let (record, index_for_free_list) = records.occupied_record(index).free();
        let number = record.0.take();
        if index_for_free_list != NO_RECORD {
            let _ = records.put_in_free_list(index_for_free_list);
        }
        number
    }

    fn check(records: &Records<TestRecord>, used: &[(u32, u64)]) {
        let in_use = records.iter().filter_map(|(index, record)| Some((index, record.0?)));
        let mut expected_records = used.to_vec();
        expected_records.sort_unstable();
        assert_eq!(in_use.collect::<Vec<_>>(), expected_records);
        assert_eq!(records.len as usize, used.len());
        for (number, page) in (0..).zip(&records.pages) {
            let used_count_of_page =
                used.iter().filter(|&&(index, _)| index >> PURGATORY_PAGE_BITS == number).count();
            let is_current = number == records.current_page;
            assert!(is_current || page.used_count as usize == used_count_of_page);
            let is_spare = !is_current && page.used_count == 0 && !page.records.is_empty();
            let has_room =
                !is_current && page.used_count > 0 && (page.used_count as usize) < PAGE_LEN;
            let count_in_list =
                |list: &[u32]| list.iter().filter(|&&other| other == number).count();
            assert_eq!(count_in_list(&records.spare_pages), usize::from(is_spare), "page {number}");
            assert_eq!(
                count_in_list(&records.partly_used_pages),
                usize::from(has_room),
                "page {number}"
            );
        }
        assert!(records.spare_pages.len() <= PURGATORY_SPARE_PAGES_MAX);
    }

    #[test]
    fn a_record_in_use_is_not_occupied_again() {
        let (mut records, mut used) = (Records::new(), Vec::new());
        let mut random = fastrand::Rng::with_seed(5);
        for round in 0..if cfg!(miri) { 300 } else { 20_000_u64 } {
            // The proportion of frees changes every 50 rounds.
            if random.u64(..4) < 1 + round / 50 % 3 && !used.is_empty() {
                let (index, number) = used.swap_remove(random.usize(..used.len()));
                assert_eq!(free(&mut records, index), Some(number));
            } else {
                let index = records.vacant_index();
                let needs_page = records.partly_used_pages.is_empty() && !records.has_spare_page();
                let before = records.capacity();
                let record = records.occupy_record(index);
                assert!(record.0.replace(round).is_none());
                used.push((index, round));
                assert!(needs_page || records.capacity() == before, "an unneeded page");
            }
            if round % 64 == 0 {
                records.end_trim_interval(round % 1_024 == 0);
            }
            check(&records, &used);
        }
        used.drain(..).for_each(|(index, _)| _ = free(&mut records, index));
        records.end_trim_interval(true);
        check(&records, &[]);
        assert!(records.capacity() <= PAGE_LEN.max(4), "only the current page is left");
    }

    #[test]
    fn pages_in_use_are_preferred_to_spare_pages() {
        let mut records = Records::<TestRecord>::new();
        for index in 0..first_index_of_page(4) {
            assert_eq!(records.vacant_index(), index);
            records.occupy_record(index).0 = Some(0);
        }
        // Page 3 is current. Frees all of page 1, and then one record of page 0.
        let freed = (first_index_of_page(1)..first_index_of_page(2)).chain([0]);
        freed.for_each(|index| _ = free(&mut records, index));
        assert_eq!(records.vacant_index(), 0);
        records.occupy_record(0).0 = Some(0);
        assert_eq!(page_number_of(records.vacant_index()), 1);
    }

    #[test]
    fn an_interval_frees_a_page_that_was_not_needed() {
        let mut records = Records::<TestRecord>::new();
        let fill_and_empty_pages = |records: &mut Records<TestRecord>| {
            (0..first_index_of_page(2))
                .for_each(|_| records.occupy_record(records.vacant_index()).0 = Some(0));
            (0..first_index_of_page(2)).for_each(|index| _ = free(records, index));
        };
        fill_and_empty_pages(&mut records);
        records.end_trim_interval(false);
        let all = records.capacity();
        for _ in 0..3 {
            fill_and_empty_pages(&mut records);
            records.end_trim_interval(false);
            assert_eq!(records.capacity(), all, "each interval needs all pages");
        }
        records.end_trim_interval(false);
        assert!(records.capacity() < all && !records.has_spare_page());
    }
}
