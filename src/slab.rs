//! Where the words live that other threads may look at: pages of nodes by index.
//!
//! A node is the part of a timer that crosses threads: its state word and its mailbox link. Payload, deadline and
//! place in the wheel are elsewhere and the owner's alone, so a cancel from another core touches one line of the node's
//! page and one of the mailbox, and nothing here is ever written without an atomic operation.
//!
//! Pages are added by the owner and stay until the shard's shared part goes, so whoever may look at the slab may look
//! at every node in it. The tables are three steps deep: root, middle, page.

use std::iter;

use crate::{
    limits::{INDEX_MAX, PAGE_BITS},
    mailbox::Link,
    state::StateWord,
    sync::SetOnce,
};

/// A node's 16 bytes: four to a cache line.
#[derive(Debug, Default)]
pub(crate) struct Node {
    pub(crate) state: StateWord,
    pub(crate) link: Link,
}

type Page = Box<[Node]>;
type Middle = Box<[SetOnce<Page>]>;

/// Pages of a middle table, and middle tables of the root: the bits of an index beside those of its place in the page.
const MIDDLE_BITS: u32 = (INDEX_BITS - PAGE_BITS) / 2;
const ROOT_BITS: u32 = INDEX_BITS - PAGE_BITS - MIDDLE_BITS;
const INDEX_BITS: u32 = INDEX_MAX.ilog2() + 1;

/// The nodes of one shard.
///
/// A reader sees a page whole or not at all. A stale handle may find none, or a page of a newer shard of its number.
#[derive(Debug)]
pub(crate) struct Slab {
    root: Box<[SetOnce<Middle>]>,
}

impl Default for Slab {
    fn default() -> Self {
        Self { root: table(ROOT_BITS, SetOnce::new) }
    }
}

impl Slab {
    /// Adds the page of the node `index`, and says up to which index nodes are there now. For the owner.
    pub(crate) fn add_page(&self, index: u32) -> u32 {
        let middle = self.root[root_of(index)].get_or_set(|| table(MIDDLE_BITS, SetOnce::new));
        middle[middle_of(index)].get_or_set(|| table(PAGE_BITS, Node::default));
        index | ((1 << PAGE_BITS) - 1)
    }

    /// The node `index`, if its page is there.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&Node> {
        let page = self.root.get(root_of(index))?.get()?[middle_of(index)].get()?;
        page.get(place_of(index))
    }

    /// The node `index` that the owner knows to be there.
    #[inline]
    pub(crate) fn node(&self, index: u32) -> &Node {
        self.get(index).unwrap_or_else(|| unreachable!("the owner has made node {index}"))
    }
}

fn table<T>(bits: u32, element: impl FnMut() -> T) -> Box<[T]> {
    iter::repeat_with(element).take(1 << bits).collect()
}

fn root_of(index: u32) -> usize {
    index as usize >> (PAGE_BITS + MIDDLE_BITS)
}

fn middle_of(index: u32) -> usize {
    (index as usize >> PAGE_BITS) & ((1 << MIDDLE_BITS) - 1)
}

fn place_of(index: u32) -> usize {
    index as usize & ((1 << PAGE_BITS) - 1)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::state::Kind;

    #[test]
    fn a_node_has_sixteen_bytes() {
        assert_eq!(size_of::<Node>(), 16);
    }

    #[test]
    fn every_index_has_its_own_node() {
        let slab = Slab::default();
        for index in 1..=INDEX_MAX {
            assert!(slab.get(INDEX_MAX).is_none() || index == INDEX_MAX);
            assert_eq!(slab.add_page(index), index | 1);
            slab.node(index).state.arm(u64::from(index), Kind::Shared);
        }
        for index in 1..=INDEX_MAX {
            assert!(slab.node(index).state.is_pending(u64::from(index)));
        }
    }

    #[test]
    fn an_index_beyond_all_pages_has_no_node() {
        let slab = Slab::default();
        assert!(slab.get(0).is_none());
        assert!(slab.get(u32::MAX).is_none());
    }
}
