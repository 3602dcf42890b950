//! The nodes of a shard: pages of timers by index, which other threads may read and add to.
//!
//! A timer is one node. Other threads share its header (state word, mailbox link). Its deadline,
//! its position in the wheel and its payload belong to the owner. So a cancel from another core
//! touches one line of the node's page and one of the mailbox.
//!
//! There are two views of the pages. Other threads use the [`Slab`], a table of pointers, while
//! they are pinned. The owner uses [`OwnerNodes`], a private vector of the same pages.
//!
//! # Ownership of pages
//!
//! A page belongs to the owner or to the adders, never to both, so that an add on the owner's
//! thread needs no atomic read-modify-write. A thread that adds to another core takes a free node
//! from a page of the adders by a compare-and-swap ([`FreeHead`](page::FreeHead)), or publishes a
//! new page. From then on the node belongs to that thread. It writes payload and requested
//! deadline, of a periodic timer also the period in place of the deadline, and arms the word as
//! *queued* and *moved* (S3 in `state` publishes them). The owner consumes the message, adopts the
//! page if it is new, admits the timer, and links that node into its wheel. When the timer has
//! ended and no message of it is queued, the owner returns the node to its page, in batches of one
//! page.
//!
//! # Generations
//!
//! One generation bit keeps the timers of the owner and of adders apart. The owner counts its own.
//! An adder gives its timer the node's last generation plus one, so it needs no counter that all
//! adders write. A new page begins after all generations of the pages that have retired: the owner
//! counts how often it returns a node to a page, which bounds them. The adder that publishes a page
//! first acquires the retraction of the last page of that number. Then it reads the first
//! generation and gives the nodes to all adders.
//!
//! # Publication and retirement
//!
//! Any thread publishes a page by a compare-and-swap. Only the owner removes one, so the owner
//! reads without an epoch. When a page becomes empty and enough others are, it retires one. All
//! nodes of that page are free: `Idle`, with no message in the mailbox or on the way. For a page of
//! the adders, it first takes all nodes at once. An adder that stalls while it holds a node keeps
//! that page, and nothing else.
//!
//! *No freed page is used.* Another thread reaches a node only through [`Slab::look`] and
//! [`Slab::take_remote`], which require a proof that the thread is pinned. The owner unpublishes a
//! page, an epoch marks it when every thread that was pinned then has unpinned, and the owner frees
//! it (`retired`). A canceller that has won a node stays pinned until it has pushed it. A page with
//! a node in `Cancelled` or in the mailbox is not retired.
//!
//! *No handle reaches another's timer.* A handle names its timer by a generation that never repeats
//! (`state`), and a stale handle's timer has ended. No live timer has its generation, so every
//! answer is `Ended`:
//!
//! * it finds no page, or sees the retired one still: all words there are `Idle`;
//! * it finds the new page: its words begin with generation 0, which no timer has, and are armed
//!   with later generations.
//!
//! *A handle of a timer that lives finds its node.* The page cannot go while the timer lives, and
//! it was published before the handle was made.
//!
//! *A thread with the answer `Ended` sees the callback's work* (S2 in `state`), even if the word is
//! gone. The retraction and the publication of a page release, and each read of the page pointer
//! acquires.
//!
//! # Room
//!
//! One bit per page says that an adder may find a free node there. The adder that takes the last
//! node clears the bit and checks the list again. The owner sets the bit after it has returned
//! nodes to an empty list. R1: setting releases and clearing acquires, so the second check sees a
//! node that was returned before the bit was cleared.
//!
//! The table itself stays until the shard goes. Its 64 KiB of zeros are resident where a page was
//! published.
//!
//! # Models
//!
//! `loom-tests/tests/end.rs` (pages are retired while other threads read them),
//! `loom-tests/tests/cancel.rs` (the answers are true), `loom-tests/tests/remote_add.rs` (remote
//! adds).

#![allow(unsafe_code)]

mod owner;
mod page;
mod retired;

use std::{
    array,
    ptr::{NonNull, slice_from_raw_parts_mut},
    sync::Arc,
};

use self::page::{NodeHeader, PageHeader, PageLayout, PagePtr, Requested};
pub(crate) use self::{
    owner::{Ended, NodeRef, OwnerNodes},
    retired::free_orphans,
};
use crate::{
    clock::schedule::Schedule,
    cross_core::{
        callback::{Callback, Once, RunOnce, RunRepeatedly, SendCallback},
        mailbox::Link,
        origin::{Added, Origin},
        reclaim::{Pinned, PublishedPointer},
        state::{Cancel, FollowUp, Kind, Mover, StateWord},
    },
    limits::{GENERATION_MAX, INDEX_MAX, PAGE_BITS, SPARE_PAGES_MAX},
    util::{
        pages::{PAGE, as_u32, index_of, page_of, place_of},
        sync::{AtomicU64, Hint, IS_MODEL, Ordering, PointerOrder},
    },
};

/// A payload that is built in its final place.
///
/// # Safety
///
/// `build` initialises the place.
pub(crate) unsafe trait Build<T> {
    /// Writes the payload to a place that is valid for writes and has none.
    fn build(self, place: *mut T);
}

/// A payload that exists already.
#[derive(Debug)]
pub(crate) struct Ready<T>(pub(crate) T);

// SAFETY: `write` initialises the place.
unsafe impl<T> Build<T> for Ready<T> {
    #[inline]
    fn build(self, place: *mut T) {
        // SAFETY: the place is valid for writes (caller).
        unsafe { place.write(self.0) }
    }
}

// SAFETY: `RunOnce::build` initialises the place.
unsafe impl<F: FnOnce() + 'static> Build<Callback> for RunOnce<F> {
    #[inline]
    fn build(self, place: *mut Callback) {
        // SAFETY: the place is valid for writes (caller).
        unsafe { self.build(place) }
    }
}

// SAFETY: `write` initialises the place.
unsafe impl Build<Callback> for Once {
    fn build(self, place: *mut Callback) {
        Ready(self.into()).build(place);
    }
}

// SAFETY: `RunRepeatedly::build` initialises the place.
unsafe impl<F: FnMut() + 'static> Build<Callback> for RunRepeatedly<F> {
    fn build(self, place: *mut Callback) {
        // SAFETY: the place is valid for writes (caller).
        unsafe { self.build(place) }
    }
}

const PAGES: usize = (INDEX_MAX as usize >> PAGE_BITS) + 1;
const ROOM_WORDS: usize = PAGES.div_ceil(64);

/// The slot in which a page is published.
#[derive(Debug, Default)]
struct PageSlot {
    page: PublishedPointer<PageHeader>,
    handover: PointerOrder,
}

/// The nodes of one shard, as other threads see them.
///
/// A reader sees either the whole page or none. A stale handle may find no page, or one that was
/// added later, perhaps by a newer shard of its number.
#[derive(Debug)]
pub(crate) struct Slab {
    pages: Box<[PageSlot]>,
    /// Which pages may have free nodes for adders.
    room: [AtomicU64; ROOM_WORDS],
    shape: PageLayout,
    /// Payloads are callbacks, so other threads may add some.
    takes_callbacks: bool,
    hints: Hints,
}

/// The starting points of the adders' searches. They have separate cache lines, because only adders
/// read and write them.
#[derive(Debug)]
#[repr(align(128))]
struct Hints {
    /// The number of a page: earlier pages are likely to be published.
    vacant: Hint,
    /// The number of the page that is likely to have room.
    room: Hint,
    /// The number of whole pages of the adders, whose nodes are all free.
    whole: Hint,
    /// The generation with which the nodes of a new page of the adders begin.
    first_generation: AtomicU64,
}

/// A node, as any thread sees it.
#[derive(Debug)]
pub(crate) struct NodeView<'p> {
    pub(crate) state: &'p StateWord,
    pub(crate) link: &'p Link,
    shape: &'p PageLayout,
    page: PagePtr,
    place: usize,
}

/// A free node that this thread has taken, to add a timer to another core. It keeps the thread
/// pinned.
#[derive(Debug)]
pub(crate) struct RemoteNode {
    page: PagePtr,
    index: u32,
    _pinned: Pinned,
}

impl PageSlot {
    /// Returns the table of a new slab.
    fn table() -> Box<[Self]> {
        if IS_MODEL {
            return (0..PAGES).map(|_| Self::default()).collect();
        }
        const { assert!(size_of::<Self>() == size_of::<usize>() || IS_MODEL) };
        const { assert!(align_of::<Self>() == align_of::<usize>() || IS_MODEL) };
        // The memory is zero without being written.
        let table = Box::into_raw(vec![0_usize; PAGES].into_boxed_slice()).cast::<Self>();
        // SAFETY: an empty slot is a null pointer, which is zero, and has the layout of a `usize`.
        unsafe { Box::from_raw(slice_from_raw_parts_mut(table, PAGES)) }
    }
}

impl PageSlot {
    #[inline]
    fn load(&self, pinned: &Pinned) -> Option<PagePtr> {
        self.handover.before_load();
        self.page.load(pinned).map(PagePtr::of)
    }
}

impl Slab {
    /// Returns the two views of a new slab.
    pub(crate) fn new<T>() -> (Arc<Self>, OwnerNodes<T>) {
        Self::with_shape(false)
    }

    /// Returns the two views of a new slab that other threads may add to.
    pub(crate) fn of_callbacks() -> (Arc<Self>, OwnerNodes<Callback>) {
        Self::with_shape::<Callback>(true)
    }

    fn with_shape<T>(takes_callbacks: bool) -> (Arc<Self>, OwnerNodes<T>) {
        let slab = Arc::new(Self {
            pages: PageSlot::table(),
            room: array::from_fn(|_| AtomicU64::new(0)),
            shape: PageLayout::of::<T>(),
            takes_callbacks,
            hints: Hints {
                vacant: Hint::new(1),
                room: Hint::new(1),
                whole: Hint::new(0),
                first_generation: AtomicU64::new(1),
            },
        });
        // SAFETY: the slab has the shape for `T`; it is new.
        let nodes = unsafe { OwnerNodes::new(Arc::clone(&slab)) };
        (slab, nodes)
    }

    /// Returns true if payloads are callbacks, as of a thread's wheel.
    pub(crate) fn takes_callbacks(&self) -> bool {
        self.takes_callbacks
    }

    /// Returns the node `index`, if its page is published.
    #[inline]
    pub(crate) fn node<'p>(&'p self, index: u32, pinned: &'p Pinned) -> Option<NodeView<'p>> {
        let page = self.page(page_of(index), pinned)?;
        // SAFETY: a page that was found stays while the thread is pinned (`retired`), and pages of
        // this slab have its shape.
        let NodeHeader { state, link, .. } = unsafe { page.node(&self.shape, place_of(index)) };
        Some(NodeView { state, link, shape: &self.shape, page, place: place_of(index) })
    }

    #[inline]
    fn page(&self, number: usize, pinned: &Pinned) -> Option<PagePtr> {
        self.pages.get(number)?.load(pinned)
    }

    /// Takes a free node for a remote timer. Returns `None` if no index or generation is left, or
    /// if the slab takes no remote adds.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "apart, it returns the node in memory")]
    pub(crate) fn take_remote(&self, pinned: Pinned) -> Option<RemoteNode> {
        let hinted = self.hints.room.get() as usize;
        let taken = self.take_from_page(hinted, &pinned);
        let (page, index) = taken.or_else(|| self.take_elsewhere(&pinned))?;
        Some(RemoteNode { page, index, _pinned: pinned })
    }

    /// Takes a free node after the hinted page had none.
    #[cold]
    #[inline(never)]
    fn take_elsewhere(&self, pinned: &Pinned) -> Option<(PagePtr, u32)> {
        let first = self.hints.room.get() as usize / 64;
        for word in (first..ROOM_WORDS).chain(0..first) {
            // Relaxed: a hint; the page and its free nodes are acquired.
            let mut bits = self.room[word].load(Ordering::Relaxed);
            while bits != 0 {
                let number = word * 64 + bits.trailing_zeros() as usize;
                if let Some(taken) = self.take_from_page(number, pinned) {
                    self.hints.room.set(as_u32(number));
                    return Some(taken);
                }
                self.clear_room_bit(number, pinned);
                bits &= bits - 1;
            }
        }
        self.add_remote_page()
    }

    /// Takes a free node of the page with this number.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "as in `take_remote`")]
    fn take_from_page(&self, number: usize, pinned: &Pinned) -> Option<(PagePtr, u32)> {
        let page = self.page(number, pinned)?;
        // SAFETY: a page that was found stays while the thread is pinned, and pages of this slab
        // have its shape.
        let link = |place| unsafe { &page.node(&self.shape, place).link };
        // SAFETY: as above.
        let (place, left) = unsafe { page.header() }.free.pop(link)?;
        if left == 0 {
            self.clear_room_bit(number, pinned);
        }
        if left + 1 == PAGE {
            self.hints.whole.decrement();
        }
        Some((page, index_of(number, place)))
    }

    /// Records that this page has no free node, or does not exist.
    #[cold]
    #[inline(never)]
    fn clear_room_bit(&self, number: usize, pinned: &Pinned) {
        // Acquire (R1): nodes that were returned, or a page that was published, before the bit was
        // set.
        self.room[number / 64].fetch_and(!(1 << (number % 64)), Ordering::Acquire);
        // The page may have been replaced, or have got nodes back.
        let page = self.page(number, pinned);
        // SAFETY: a page that was found stays while the thread is pinned.
        if page.is_some_and(|page| unsafe { page.header() }.free.has_any()) {
            self.set_room_bit(number);
        }
    }

    /// Returns true if more pages of the adders are whole than stay.
    fn has_surplus(&self) -> bool {
        self.hints.whole.get() > SPARE_PAGES_MAX
    }

    /// Records that an adder may find a free node in this page.
    fn set_room_bit(&self, number: usize) {
        // Release (R1): the nodes that were returned, and the page.
        self.room[number / 64].fetch_or(1 << (number % 64), Ordering::Release);
        self.hints.room.lower(as_u32(number));
    }

    /// Publishes a page whose first node belongs to the caller.
    fn add_remote_page(&self) -> Option<(PagePtr, u32)> {
        // A page of these generations would be the last one. No page runs out of generations.
        if !self.takes_callbacks || self.first_generation() > GENERATION_MAX / 2 {
            return None;
        }
        let page = page::Page::<Callback>::allocate();
        let Some(number) = self.publish(page, false) else {
            // SAFETY: no other thread has seen the page.
            unsafe { page.free() };
            return None;
        };
        // SAFETY: the page stays, because this thread has taken its first node.
        let header = unsafe { page.header() };
        // The number belongs to the page now, so no later page of it has retired yet.
        header.open(self.first_generation());
        if PAGE > 1 {
            self.set_room_bit(number);
            self.hints.room.set(as_u32(number));
        }
        Some((page, index_of(number, 0)))
    }

    /// Returns the generation with which the nodes of a new page of the adders begin.
    pub(crate) fn first_generation(&self) -> u64 {
        // Relaxed: an adder that has published a page of some number has acquired the retraction of
        // the last one.
        self.hints.first_generation.load(Ordering::Relaxed)
    }

    /// Lets the nodes of new pages of the adders begin with at least this generation. Called by the
    /// owner, or before any other thread has the slab.
    pub(crate) fn begin_generations_at(&self, generation: u64) {
        let generation = generation.max(self.first_generation());
        // Relaxed: the retraction of a page publishes it, or the publication of the shard.
        self.hints.first_generation.store(generation, Ordering::Relaxed);
    }

    /// Publishes a page in an empty slot: slot 0 for the owner's first page, any slot otherwise.
    /// Returns its number, or `None` if no number is left.
    fn publish(&self, page: PagePtr, is_first: bool) -> Option<usize> {
        if is_first {
            return self.publish_at(0, page).then_some(0);
        }
        // The hint may have skipped earlier numbers.
        let hint = self.hints.vacant.get() as usize;
        let number = (hint..PAGES).chain(1..hint).find(|&number| self.publish_at(number, page))?;
        self.hints.vacant.set(as_u32(number + 1));
        Some(number)
    }

    fn publish_at(&self, number: usize, page: PagePtr) -> bool {
        let slot = &self.pages[number];
        slot.handover.before_store();
        slot.page.publish_if_empty(page.pointer())
    }

    /// Takes a page out of the table. The owner keeps it until it is marked.
    fn retract(&self, number: usize) {
        let slot = &self.pages[number];
        slot.handover.before_store();
        slot.page.retract(retired::mark_reclaimable);
        self.hints.vacant.lower(as_u32(number));
    }

    /// Returns the numbers of the published pages.
    fn published(&self) -> Vec<usize> {
        let pinned = crate::cross_core::reclaim::pin();
        (0..PAGES).filter(|&number| self.page(number, &pinned).is_some()).collect()
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        let pages = self.pages.iter_mut().filter_map(|slot| slot.page.take());
        let pages: Vec<NonNull<PageHeader>> = pages.collect();
        for page in pages {
            // SAFETY: no thread uses a slab that is being dropped, its owner is gone, and no other
            // slab has the page.
            unsafe { PagePtr::of(page).free() };
        }
    }
}

impl Drop for NodeView<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the page stays while the thread is pinned.
        unsafe { self.page.header() }.read_check.assert_allowed();
    }
}

impl NodeView<'_> {
    #[inline]
    pub(crate) fn requested(&self) -> &Requested {
        // SAFETY: the page stays while the thread is pinned, and has the slab's shape.
        unsafe { self.page.requested(self.shape, self.place) }
    }

    /// Cancels the timer. Its payload goes to `taken`, if it may leave the owner's thread.
    #[inline]
    pub(crate) fn cancel(
        &self,
        generation: u64,
        taken: &mut Option<SendCallback>,
    ) -> (Cancel, FollowUp) {
        let (answer, next) = self.state.cancel(generation);
        (answer, if next == FollowUp::Take { self.take_send_payload(taken) } else { next })
    }

    /// Ends a move that this thread has begun. If another thread has cancelled the timer since and
    /// the payload may leave the owner's thread, the payload goes to `taken`. Returns false if the
    /// shard has ended since.
    #[inline]
    pub(crate) fn end_move(&self, taken: &mut Option<SendCallback>) -> (bool, FollowUp) {
        let (lives, next) = self.state.end_move(Mover::Other);
        (lives, if next == FollowUp::Take { self.take_send_payload(taken) } else { next })
    }

    /// Takes the payload after the word has answered [`FollowUp::Take`] to this thread.
    #[cold]
    #[inline(never)]
    fn take_send_payload(&self, taken: &mut Option<SendCallback>) -> FollowUp {
        // SAFETY: other threads add callbacks only, so the page is one of callbacks; it stays while
        // the thread is pinned.
        let page: &page::Page<Callback> = unsafe { self.page.typed() };
        // SAFETY: the word has given the payload to this thread alone.
        let callback = unsafe { page.nodes[self.place].take_payload() };
        // SAFETY: the timer was armed with a callback that is `Send` (`RemoteNode::arm`).
        *taken = Some(unsafe { SendCallback::of(callback) });
        self.state.end_move(Mover::Other).1
    }
}

impl RemoteNode {
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    #[inline]
    fn page(&self) -> &page::Page<Callback> {
        // SAFETY: a node that was taken keeps its page, and payloads of a slab that others may add
        // to are callbacks.
        unsafe { self.page.typed() }
    }

    #[inline]
    fn node(&self) -> &page::Node<Callback> {
        &self.page().nodes[place_of(self.index)]
    }

    #[inline]
    pub(crate) fn link(&self) -> &Link {
        &self.node().header.link
    }

    /// Arms the node: the timer is due when the clock shows `due`, and periodic if `period` is not
    /// zero. The caller must push it. Returns its generation.
    #[inline]
    pub(crate) fn arm<B: Build<Callback> + Send>(
        &self,
        Schedule { due, period }: Schedule,
        origin: Origin,
        callback: B,
    ) -> u64 {
        let (page, node, place) = (self.page(), self.node(), place_of(self.index));
        // SAFETY: this thread has taken the node, which is free, so it has no payload; `build`
        // initialises it.
        unsafe { node.put_payload(|place| callback.build(place)) };
        // SAFETY: this thread has taken the node.
        unsafe { page.added[place].set(Added::new(origin, || 0)) };
        page.requested[place].write(due);
        let kind = if period == 0 { Kind::Shared } else { Kind::Periodic };
        if kind == Kind::Periodic {
            // SAFETY: this thread has taken the node.
            unsafe { node.header.deadline.set(period) };
        }
        let state = &node.header.state;
        let generation = page.header.first_generation().max(state.generation() + 1);
        state.arm_remote(generation, kind);
        generation
    }

    /// Ends the timer that this thread has armed and could not push, because the owner has ended.
    /// Returns its callback, or `None` if the owner's last sweep has ended the timer.
    pub(crate) fn disarm(self) -> Option<SendCallback> {
        let node = self.node();
        node.header.state.disarm_remote().then(|| {
            // SAFETY: the transition has given the payload to this thread.
            let callback = unsafe { node.take_payload() };
            // SAFETY: this thread had armed the node with a callback that is `Send`.
            unsafe { SendCallback::of(callback) }
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
