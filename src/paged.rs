//! A table whose elements never move: pages of a fixed size, which come and go as a whole.

use alloc::{boxed::Box, vec::Vec};
use core::{
    iter,
    ops::{Index, IndexMut},
};

use crate::{limits::PAGE_BITS, prefetch::prefetch};

/// Elements of a page.
pub(crate) const PAGE: usize = 1 << PAGE_BITS;

/// So many elements side by side.
pub(crate) type Page<T> = Box<[T; PAGE]>;

/// Elements by index. Only the list of pages is a vector that may double: 8 bytes for 512 elements.
#[derive(Debug)]
pub(crate) struct Paged<T> {
    pages: Vec<Option<Page<T>>>,
}

/// A page of default elements.
#[allow(clippy::unnecessary_box_returns)] // A page may be larger than a stack would like.
pub(crate) fn default_page<T: Default>() -> Page<T> {
    let page: Box<[T]> = iter::repeat_with(T::default).take(PAGE).collect();
    page.try_into().unwrap_or_else(|_| unreachable!("a page has PAGE elements"))
}

impl<T> Paged<T> {
    pub(crate) const fn new() -> Self {
        Self { pages: Vec::new() }
    }

    /// Puts a page in its place.
    pub(crate) fn put_page(&mut self, number: usize, page: Page<T>) {
        if self.pages.len() <= number {
            self.pages.resize_with(number + 1, || None);
        }
        self.pages[number] = Some(page);
    }

    /// Takes a page out.
    pub(crate) fn take_page(&mut self, number: usize) -> Option<Page<T>> {
        self.pages.get_mut(number)?.take()
    }

    /// The element `index`, if its page is there.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        match self.pages.get(page_of(index)) {
            Some(Some(page)) => Some(&page[place_of(index)]),
            _ => None,
        }
    }

    /// The element `index`, if its page is there.
    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        match self.pages.get_mut(page_of(index)) {
            Some(Some(page)) => Some(&mut page[place_of(index)]),
            _ => None,
        }
    }

    /// Makes sure that the page of `index` is there.
    #[inline]
    #[cfg_attr(
        not(feature = "std"),
        allow(dead_code, reason = "for the schedules of a thread's timer")
    )]
    pub(crate) fn grow_to(&mut self, index: u32)
    where
        T: Default,
    {
        if self.get(index).is_none() {
            self.add_page_of(index);
        }
    }

    #[cold]
    fn add_page_of(&mut self, index: u32)
    where
        T: Default,
    {
        self.put_page(page_of(index), default_page());
    }

    /// Brings the element `index` closer, if it is there.
    #[inline]
    pub(crate) fn prefetch(&self, index: u32) {
        if let Some(element) = self.get(index) {
            prefetch(element);
        }
    }
}

#[inline]
pub(crate) fn page_of(index: u32) -> usize {
    index as usize >> PAGE_BITS
}

#[inline]
pub(crate) fn place_of(index: u32) -> usize {
    index as usize & (PAGE - 1)
}

#[cold]
fn missing(index: u32) -> ! {
    panic!("the page of element {index} is not there")
}

impl<T> Index<u32> for Paged<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: u32) -> &T {
        self.get(index).unwrap_or_else(|| missing(index))
    }
}

impl<T> IndexMut<u32> for Paged<T> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut T {
        self.get_mut(index).unwrap_or_else(|| missing(index))
    }
}
