//! Where the words live that other threads may look at: pages of nodes by index.
//!
//! A node is the part of a timer that crosses threads: its state word and its mailbox link; and, apart from them, the
//! deadline that another thread has asked for. Payload, deadline and place in the wheel are elsewhere and the owner's alone,
//! so a cancel from another core touches one line of the node's page and one of the mailbox, and nothing here is ever
//! written without an atomic operation.
//!
//! There are two views of the pages. Strangers have the [`Slab`]: a table two steps deep, where they look while they are
//! pinned. The owner has [`OwnNodes`]: a vector of the same pages, one step deep, of which nobody else knows. Each holds
//! a reference to every page; `OwnNodes` keeps the two in step.
//!
//! A shard has two slabs: that of its own timers, where the owner adds the pages, and that of its `guests`, where other
//! threads do and each node has a parcel `X`.
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
//! The table itself stays until the shard goes: some 2 KiB for each 131 072 nodes that were ever there together.
//!
//! # Models
//!
//! `loom-tests/tests/end.rs` (pages go while others look), `loom-tests/tests/cancel.rs` (and the answers are true).

use std::{array, sync::Arc};

use crate::{
    limits::{INDEX_MAX, PAGE_BITS, RETIRED_MAX},
    mailbox::Link,
    paged::{PAGE, page_of, place_of},
    prefetch::prefetch,
    reclaim::{Pinned, Published, Retired},
    state::StateWord,
    sync::{AtomicU32, AtomicU64, Handover, Looks, Ordering, SetOnce},
};

/// A node's 16 bytes: four to a cache line.
#[derive(Debug, Default)]
pub(crate) struct Node {
    pub(crate) state: StateWord,
    pub(crate) link: Link,
    pub(crate) twin: Twin,
}

/// Of a guest: the index of the owner's node that stands for it, and the other way round; 0 if there is none. The owner's
/// alone.
#[derive(Debug)]
pub(crate) struct Twin(AtomicU32);

/// When another thread wants a timer to be due, in nanoseconds of the clock: see the third trap in `state`.
#[derive(Debug)]
pub(crate) struct Asked(AtomicU64);

/// A node and what belongs to it, as any thread sees it.
#[derive(Debug)]
pub(crate) struct Place<'p, X> {
    pub(crate) node: &'p Node,
    pub(crate) asked: &'p Asked,
    pub(crate) parcel: &'p X,
}

/// Index bits: root, middle table, page. The last two are tables of 2 KiB and of 12 KiB of nodes.
const INDEX_BITS: u32 = INDEX_MAX.ilog2() + 1;
const MIDDLE_BITS: u32 = (INDEX_BITS - PAGE_BITS).div_ceil(2);
const ROOT_BITS: u32 = INDEX_BITS - PAGE_BITS - MIDDLE_BITS;

const MIDDLE: usize = 1 << MIDDLE_BITS;
const ROOT: usize = 1 << ROOT_BITS;

/// On cache lines of its own, since other threads write in it: what stands before and after it may be another core's.
#[derive(Debug)]
#[repr(align(128))]
struct Page<X> {
    nodes: [Node; PAGE],
    asked: [Asked; PAGE],
    parcels: [X; PAGE],
    looks: Looks,
}

/// Where a page is published, or not.
#[derive(Debug)]
struct Stand<X> {
    page: Published<Page<X>>,
    handover: Handover,
}

type Middle<X> = Box<[Stand<X>; MIDDLE]>;

/// The nodes of one shard, as other threads see them.
///
/// A reader sees a page whole or not at all. A stale handle may find none, or one that was added later, perhaps by a newer
/// shard of its number.
#[derive(Debug)]
pub(crate) struct Slab<X = ()> {
    root: [SetOnce<Middle<X>>; ROOT],
}

/// The nodes of one shard, as its owner sees them: one load, and no epoch.
#[derive(Debug)]
pub(crate) struct OwnNodes<X: Send + Sync + 'static = ()> {
    /// By number; `None` where there is none now.
    pages: Vec<Option<Arc<Page<X>>>>,
    retired: Retired<Page<X>>,
}

impl Default for Twin {
    fn default() -> Self {
        Self(AtomicU32::new(0))
    }
}

impl Twin {
    pub(crate) fn set(&self, index: u32) {
        // Relaxed: the owner's own.
        self.0.store(index, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u32 {
        // Relaxed: the owner's own.
        self.0.load(Ordering::Relaxed)
    }
}

impl Default for Asked {
    fn default() -> Self {
        Self(AtomicU64::new(0))
    }
}

impl Asked {
    /// For the thread that has it to itself, before it says so in the word.
    pub(crate) fn write(&self, nanos: u64) {
        // Relaxed: the word publishes it (S3 in `state`).
        self.0.store(nanos, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> u64 {
        // Relaxed: the word was acquired (S3 in `state`). It may be that of a later move whose thread is not done yet.
        self.0.load(Ordering::Relaxed)
    }
}

impl<X> Place<'_, X> {
    /// The place `index` of a page.
    fn of(page: &Page<X>, index: u32) -> Place<'_, X> {
        let at = place_of(index);
        Place { node: &page.nodes[at], asked: &page.asked[at], parcel: &page.parcels[at] }
    }
}

impl<X: Default> Default for Page<X> {
    fn default() -> Self {
        Self {
            nodes: array::from_fn(|_| Node::default()),
            asked: array::from_fn(|_| Asked::default()),
            parcels: array::from_fn(|_| X::default()),
            looks: Looks::default(),
        }
    }
}

impl<X> Page<X> {
    /// Nobody can see the page any more, but its owner, who frees it.
    fn let_go(self: Arc<Self>) {
        self.looks.are_over();
    }
}

impl<X> Default for Stand<X> {
    fn default() -> Self {
        Self { page: Published::default(), handover: Handover::default() }
    }
}

impl<X: Send + Sync + 'static> Stand<X> {
    fn publish(&self, page: Arc<Page<X>>) {
        self.handover.change();
        self.page.publish(page);
    }

    fn publish_if_empty(&self, page: Arc<Page<X>>) -> Result<(), Arc<Page<X>>> {
        self.handover.change();
        self.page.publish_if_empty(page)
    }

    fn retract(&self) {
        self.handover.change();
        self.page.retract(Page::let_go);
    }

    #[inline]
    fn look<'p>(&'p self, pinned: &'p Pinned) -> Option<&'p Page<X>> {
        self.handover.look();
        self.page.look(pinned)
    }
}

impl<X> Default for Slab<X> {
    fn default() -> Self {
        Self { root: array::from_fn(|_| SetOnce::new()) }
    }
}

impl<X: Send + Sync + 'static> Slab<X> {
    /// Looks at the node `index`, if its page is there. For any thread.
    #[inline]
    pub(crate) fn with<R>(
        &self,
        index: u32,
        pinned: &Pinned,
        look: impl FnOnce(Place<'_, X>) -> R,
    ) -> Option<R> {
        let number = page_of(index);
        let middle = self.root.get(number / MIDDLE)?.get()?;
        let page = middle[number % MIDDLE].look(pinned)?;
        let seen = look(Place::of(page, index));
        page.looks.were_allowed();
        Some(seen)
    }

    /// Adds a page of a number that has none, at or after `hint`; its first index. For threads that are not the owner, who
    /// [adopts](OwnNodes::adopt) it when it first meets a node of it. `None` if there is no number left.
    pub(crate) fn add_page_from(&self, hint: u32) -> Option<u32>
    where
        X: Default,
    {
        let mut page = Arc::new(Page::default());
        for number in page_of(hint)..=page_of(INDEX_MAX) {
            match self.stand(number).publish_if_empty(page) {
                #[allow(clippy::cast_possible_truncation)] // There are fewer pages than indices.
                Ok(()) => return Some((number as u32) << PAGE_BITS),
                Err(refused) => page = refused,
            }
        }
        None
    }

    /// Where the page `number` is published.
    fn stand(&self, number: usize) -> &Stand<X> {
        let middle = self.root[number / MIDDLE]
            .get_or_set(|| Box::new(array::from_fn(|_| Stand::default())));
        &middle[number % MIDDLE]
    }
}

impl<X: Send + Sync + 'static> Default for OwnNodes<X> {
    fn default() -> Self {
        Self { pages: Vec::new(), retired: Retired::default() }
    }
}

/// All of them are for the owner, with the slab of its shard.
impl<X: Default + Send + Sync + 'static> OwnNodes<X> {
    /// The node `index`, if its page is there.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&Node> {
        let page = self.pages.get(page_of(index))?.as_deref()?;
        Some(&page.nodes[place_of(index)])
    }

    /// The node `index` of a page that is there, and what belongs to it.
    pub(crate) fn place(&self, index: u32) -> Place<'_, X> {
        let page = self.pages.get(page_of(index)).and_then(Option::as_deref);
        Place::of(page.unwrap_or_else(|| missing(index)), index)
    }

    /// The node `index` of a timer that has not ended.
    #[inline]
    pub(crate) fn node(&self, index: u32) -> &Node {
        self.get(index).unwrap_or_else(|| missing(index))
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
    pub(crate) fn node_for_new(&mut self, slab: &Slab<X>, index: u32) -> &Node {
        if self.get(index).is_none() {
            self.add_page(slab, page_of(index));
        }
        self.node(index)
    }

    /// Adds the pages of all nodes up to `index` that are not there.
    pub(crate) fn grow_to(&mut self, slab: &Slab<X>, index: u32) {
        for number in 0..=page_of(index) {
            if self.pages.get(number).is_none_or(Option::is_none) {
                self.add_page(slab, number);
            }
        }
    }

    #[cold]
    fn add_page(&mut self, slab: &Slab<X>, number: usize) {
        let page = Arc::new(Page::default());
        slab.stand(number).publish(Arc::clone(&page));
        self.put_page(number, page);
    }

    fn put_page(&mut self, number: usize, page: Arc<Page<X>>) {
        if self.pages.len() <= number {
            self.pages.resize(number + 1, None);
        }
        self.pages[number] = Some(page);
    }

    /// Takes over the page of the node `index`, which another thread has added, if it has not been done. Whether it was not.
    #[inline]
    pub(crate) fn adopt(&mut self, slab: &Slab<X>, index: u32) -> bool {
        if self.get(index).is_some() {
            return false;
        }
        let number = page_of(index);
        let stand = slab.stand(number);
        stand.handover.look();
        if let Some(page) = stand.page.with(|seen| seen.map(|page| Arc::clone(page))) {
            self.put_page(number, page);
        }
        true
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
    pub(crate) fn retire_page(&mut self, slab: &Slab<X>, index: u32) -> bool {
        if !self.may_retire() {
            return false;
        }
        let number = page_of(index);
        let Some(page) = self.pages.get_mut(number).and_then(Option::take) else { return false };
        debug_assert!(
            page.nodes.iter().all(|node| node.state.is_free()),
            "a timer of page {number} lives"
        );
        slab.stand(number).retract();
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

#[cold]
fn missing(index: u32) -> ! {
    unreachable!("the page of the timer {index} is gone")
}

#[cfg(all(test, not(loom)))]
mod tests;
