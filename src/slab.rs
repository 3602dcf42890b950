//! Where the words live that other threads may look at: pages of nodes by index.
//!
//! A node is the part of a timer that crosses threads: its state word and its mailbox link. Payload, deadline and
//! place in the wheel are elsewhere and the owner's alone, so a cancel from another core touches one line of the node's
//! page and one of the mailbox, and nothing here is ever written without an atomic operation.
//!
//! There are two views of the pages. Strangers have the [`Slab`]: a table two steps deep, where they look while they are
//! pinned. The owner has [`OwnNodes`]: a vector of the same pages, one step deep, of which nobody else knows. Each holds
//! a reference to every page; `OwnNodes` keeps the two in step.
//!
//! # Pages come and go
//!
//! The owner adds a page when a timer needs it, and may retire it when all of its nodes are free: `Idle`, with no message in
//! the mailbox or on the way, and no timer of the owner's. Later there may be a new page of the same number.
//!
//! *Nothing freed is touched.* A stranger reaches a node only through [`Slab::with`], which asks for the proof that its
//! thread is pinned, and has it only inside. A page is unpublished first, then its published reference goes when
//! everybody who was pinned at that moment has looked away, and last the owner's, which it has kept for so long
//! (`reclaim`). A canceller that has won a node does not look away before it has pushed it; and its page, with a node in
//! `Cancelled` or in the mailbox, is not retired.
//!
//! *No handle reaches another's timer.* A handle names its timer by the generation, from a counter of the shard that never
//! repeats (`state`), and a stale handle's timer has ended. Wherever it looks, its generation is not that of a timer
//! that lives, and every answer is `Ended`:
//!
//! * it finds no page, or sees the retired one still: all words there are `Idle`;
//! * it finds the new page: its words begin with generation 0, which no timer has, and are armed with later generations.
//!
//! *A handle of a timer that lives finds its node.* The page cannot go while the timer lives, and it was published before
//! the handle was made.
//!
//! *Who is told `Ended` sees what the callback did* (S2 in `state`), also if the word that would have told it is gone:
//! taking the page out of the table and publishing a new one release, and looking acquires.
//!
//! The table itself stays until the shard goes: some 4 KiB for each 262 144 nodes that were ever there together.
//!
//! # Models
//!
//! `loom-tests/tests/end.rs` (pages go while others look), `loom-tests/tests/cancel.rs` (and the answers are true).

use std::{array, sync::Arc};

use crate::{
    limits::{INDEX_MAX, PAGE_BITS, RETIRED_MAX},
    mailbox::Link,
    prefetch::prefetch,
    reclaim::{Pinned, Published, Retired},
    state::StateWord,
    sync::{Handover, Looks, SetOnce},
};

/// A node's 16 bytes: four to a cache line.
#[derive(Debug, Default)]
pub(crate) struct Node {
    pub(crate) state: StateWord,
    pub(crate) link: Link,
}

/// Index bits: root, middle table, page. The last two are tables of 4 and 8 KiB.
const INDEX_BITS: u32 = INDEX_MAX.ilog2() + 1;
const MIDDLE_BITS: u32 = (INDEX_BITS - PAGE_BITS).div_ceil(2);
const ROOT_BITS: u32 = INDEX_BITS - PAGE_BITS - MIDDLE_BITS;

const PAGE: usize = 1 << PAGE_BITS;
const MIDDLE: usize = 1 << MIDDLE_BITS;
const ROOT: usize = 1 << ROOT_BITS;

#[derive(Debug)]
struct Page {
    nodes: [Node; PAGE],
    looks: Looks,
}

/// Where a page is published, or not.
#[derive(Debug, Default)]
struct Place {
    page: Published<Page>,
    handover: Handover,
}

type Middle = Box<[Place; MIDDLE]>;

/// The nodes of one shard, as other threads see them.
///
/// A reader sees a page whole or not at all. A stale handle may find none, or one that was added later, perhaps by a newer
/// shard of its number.
#[derive(Debug)]
pub(crate) struct Slab {
    root: [SetOnce<Middle>; ROOT],
}

/// The nodes of one shard, as its owner sees them: one load, and no epoch.
#[derive(Debug, Default)]
pub(crate) struct OwnNodes {
    /// By number; `None` where there is none now.
    pages: Vec<Option<Arc<Page>>>,
    retired: Retired<Page>,
}

impl Default for Page {
    fn default() -> Self {
        Self { nodes: array::from_fn(|_| Node::default()), looks: Looks::default() }
    }
}

impl Page {
    /// Nobody can see the page any more, but its owner, who frees it.
    fn let_go(self: Arc<Self>) {
        self.looks.are_over();
    }
}

impl Place {
    fn publish(&self, page: Arc<Page>) {
        self.handover.change();
        self.page.publish(page);
    }

    fn retract(&self) {
        self.handover.change();
        self.page.retract(Page::let_go);
    }

    #[inline]
    fn look<'p>(&'p self, pinned: &'p Pinned) -> Option<&'p Page> {
        self.handover.look();
        self.page.look(pinned)
    }
}

impl Default for Slab {
    fn default() -> Self {
        Self { root: array::from_fn(|_| SetOnce::new()) }
    }
}

impl Slab {
    /// Looks at the node `index`, if its page is there. For any thread.
    #[inline]
    pub(crate) fn with<R>(&self, index: u32, pinned: &Pinned, look: impl FnOnce(&Node) -> R) -> Option<R> {
        let number = number_of(index);
        let middle = self.root.get(number / MIDDLE)?.get()?;
        let page = middle[number % MIDDLE].look(pinned)?;
        let seen = look(&page.nodes[place_of(index)]);
        page.looks.were_allowed();
        Some(seen)
    }

    /// Where the page `number` is published. For the owner.
    fn place(&self, number: usize) -> &Place {
        let middle = self.root[number / MIDDLE].get_or_set(|| Box::new(array::from_fn(|_| Place::default())));
        &middle[number % MIDDLE]
    }
}

/// All of them are for the owner, with the slab of its shard.
impl OwnNodes {
    /// The node `index`, if its page is there.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&Node> {
        let page = self.pages.get(number_of(index))?.as_deref()?;
        Some(&page.nodes[place_of(index)])
    }

    /// The node `index` of a timer that has not ended.
    #[inline]
    pub(crate) fn node(&self, index: u32) -> &Node {
        self.get(index).unwrap_or_else(|| unreachable!("the page of the timer {index} is gone"))
    }

    /// Brings the node `index` closer, if its page is there.
    #[inline]
    pub(crate) fn prefetch(&self, index: u32) {
        if let Some(node) = self.get(index) {
            prefetch(node);
        }
    }

    /// The node `index` for a new timer. Its page is added if it is not there.
    #[inline]
    pub(crate) fn node_for_new(&mut self, slab: &Slab, index: u32) -> &Node {
        if self.get(index).is_none() {
            self.add_page(slab, number_of(index));
        }
        self.node(index)
    }

    /// Adds the pages of all nodes up to `index` that are not there.
    pub(crate) fn grow_to(&mut self, slab: &Slab, index: u32) {
        for number in 0..=number_of(index) {
            if self.pages.get(number).is_none_or(Option::is_none) {
                self.add_page(slab, number);
            }
        }
    }

    #[cold]
    fn add_page(&mut self, slab: &Slab, number: usize) {
        let page = Arc::new(Page::default());
        if self.pages.len() <= number {
            self.pages.resize(number + 1, None);
        }
        slab.place(number).publish(Arc::clone(&page));
        self.pages[number] = Some(page);
    }

    /// Whether another page can be retired now, or so many wait for strangers to look away that it has to stay (P8).
    pub(crate) fn may_retire(&mut self) -> bool {
        if self.retired.len() >= RETIRED_MAX {
            self.retired.free_some();
        }
        self.retired.len() < RETIRED_MAX
    }

    /// Takes the page of the node `index` away: no timer of the page lives, and no message of one is in the mailbox, or
    /// taken out and not yet dealt with. It is freed by this call or one of [`free_some`](Self::free_some) later, when nobody
    /// looks at it any more.
    ///
    /// False if it is not there, or has to stay for now; see [`may_retire`](Self::may_retire).
    #[must_use = "a page that was not retired is still there"]
    pub(crate) fn retire_page(&mut self, slab: &Slab, index: u32) -> bool {
        if !self.may_retire() {
            return false;
        }
        let number = number_of(index);
        let Some(page) = self.pages.get_mut(number).and_then(Option::take) else { return false };
        debug_assert!(page.nodes.iter().all(|node| node.state.is_idle()), "a timer of page {number} lives");
        slab.place(number).retract();
        self.retired.push(page);
        // Also hands over to all threads what has been deferred on this one, which the shard may leave.
        self.retired.free_some();
        true
    }

    /// Frees some of the retired pages that nobody looks at any more. One comparison if none waits.
    #[inline]
    pub(crate) fn free_some(&mut self) {
        self.retired.free_some();
    }
}

#[inline]
fn number_of(index: u32) -> usize {
    index as usize >> PAGE_BITS
}

#[inline]
fn place_of(index: u32) -> usize {
    index as usize & (PAGE - 1)
}

#[cfg(all(test, not(loom)))]
mod tests;
