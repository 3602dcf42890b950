//! A table whose elements never move: it grows by pages of a fixed size, so no vector doubles under a server's feet.

use std::{
    iter,
    ops::{Index, IndexMut},
};

use crate::limits::PAGE_BITS;

const PAGE: usize = 1 << PAGE_BITS;

/// Elements by index, each there from its page's first use.
#[derive(Debug)]
pub(crate) struct Paged<T> {
    pages: Vec<Box<[T; PAGE]>>,
}

impl<T: Default> Paged<T> {
    pub(crate) const fn new() -> Self {
        Self { pages: Vec::new() }
    }

    /// Makes sure that `index` is there; new elements are the default ones.
    #[inline]
    pub(crate) fn grow_to(&mut self, index: u32) {
        if self.pages.len() <= page_of(index) {
            self.add_pages_to(index);
        }
    }

    #[cold]
    fn add_pages_to(&mut self, index: u32) {
        while self.pages.len() <= page_of(index) {
            // Built on the heap: a page may be larger than a stack would like.
            let page: Box<[T]> = iter::repeat_with(T::default).take(PAGE).collect();
            self.pages.push(page.try_into().unwrap_or_else(|_| unreachable!("a page has PAGE elements")));
        }
    }
}

fn page_of(index: u32) -> usize {
    index as usize >> PAGE_BITS
}

fn place_of(index: u32) -> usize {
    index as usize & (PAGE - 1)
}

impl<T> Index<u32> for Paged<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: u32) -> &T {
        &self.pages[page_of(index)][place_of(index)]
    }
}

impl<T> IndexMut<u32> for Paged<T> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut T {
        &mut self.pages[page_of(index)][place_of(index)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_by_pages_and_moves_nothing() {
        let mut table = Paged::<u64>::new();
        table.grow_to(0);
        table[0] = 7;
        let first: *const u64 = &raw const table[0];
        table.grow_to(1000);
        table[1000] = 8;
        assert_eq!((table[0], table[1000], table[999]), (7, 8, 0));
        assert_eq!(first, &raw const table[0]);
    }
}
