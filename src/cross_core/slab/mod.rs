//! The nodes of a shard's timers, in pages.
//!
//! Each timer has a node. All threads may use four fields of a node: the state word, the mailbox
//! link, the requested deadline and the linked deadline; `state` has the rules. Once the timer is
//! in the wheel, only the owner uses the node's deadline and wheel links. State word and mailbox
//! link share a cache line, so a remote cancel usually writes only this line and one of the mailbox.
//!
//! Other threads use the [`Slab`], a table of pointers to pages, while they are pinned to an epoch
//! (`reclaim`). The owner uses the [`OwnerSlab`], its private table of pages.
//!
//! # Ownership of pages
//!
//! A page belongs either to the owner or to the *adders*, which are the other threads that add
//! timers. A page of the adders is a *remote page*, and its timers are *remote timers*. The owner
//! takes free nodes of its own pages without atomic operations. An adder takes a free node from a
//! remote page by a compare-and-swap ([`FreeList`](page::FreeList)), or publishes a new page and
//! keeps its first node. The adder writes the payload, the requested deadline and, for a periodic
//! timer, the period. The adder publishes these values by setting the state word to `Armed` with
//! the flags *queued* and *new deadline* (S3 in `state`). Finally, the adder pushes the node onto
//! the owner's mailbox. Before the owner consumes the node's message, it *adopts* the node's page
//! if necessary: it adds the page to its private table. When it consumes the message, the owner
//! *admits* the timer: it counts the timer as live, and links the node into its wheel or fires the
//! timer. If another thread is resetting the timer at that time, the owner links the node only when
//! it consumes that thread's message. If the owner resets the timer before it consumes the message,
//! the owner admits the timer then, and links the node at the new deadline. After the timer has
//! ended and its last message was consumed, the owner returns the node to the free list of its
//! page.
//!
//! # Generations
//!
//! A generation distinguishes the timers that use a node one after another. One bit of a generation
//! marks remote timers. The timers that the owner adds get their generations from a counter. In a
//! remote page, the first timer of each node gets the page's first generation, and each later timer
//! gets the node's previous generation plus one. The slab stores the first generation of new remote
//! pages. Between two adds to one node, the owner returns the node to its page. So no generation of
//! a remote timer exceeds the slab's first generation plus the number of nodes returned since that
//! was last raised. When the owner retires a remote page, it raises the slab's first generation
//! above all these generations.
//!
//! # Publication and retirement
//!
//! The owner or an adder publishes a page in a vacant cell of the table by a compare-and-swap. Only
//! the owner retracts pages, so the owner need not be pinned to use nodes. All nodes of an *empty*
//! page are free: `Idle` and not *queued*. The owner keeps some empty pages as spares, and
//! *retires* the others: it retracts them, and frees them later. Before the owner retires a remote
//! page, it takes all nodes of that page by one compare-and-swap, so that no adder can take a node.
//!
//! *No freed page is used.* Another thread reaches a node only through [`Slab::node`] and
//! [`Slab::take_remote_node`], which require a proof that the thread is pinned. When every thread
//! that was pinned at a page's retraction has unpinned, deferred work (`reclaim`) marks the page as
//! reclaimable. Only reclaimable pages are freed (`retired_pages`). A thread that cancels, resets
//! or adds a timer stays pinned until it has pushed the node.
//!
//! *No stale handle reaches another timer.* A handle contains its shard's number, its node's index
//! and its timer's generation. No later timer has the same shard number, index and generation (see
//! Generations, and `registry`). If the node's page was retired, an operation on the stale handle
//! finds one of these:
//!
//! * no page;
//! * the retired page, whose state words are all `Idle`;
//! * a new page, whose state words have the generation of a later timer, or generation 0, which no
//!   timer has.
//!
//! *A handle of a live timer finds its node.* The page was published before the handle existed, and
//! is not retired while the timer lives.
//!
//! *A thread that gets `Ended` sees the effects of a fired timer's callback* (S2 in `state`), even
//! if the page was retired. The operations that publish or retract a page are Release; each load of
//! the page pointer is Acquire.
//!
//! # Room
//!
//! The *room bit* of a remote page tells adders to look for a free node there. The adder that takes
//! a page's last free node clears the room bit, but sets it again if the owner has returned a node
//! since. The owner sets the room bit after it has returned nodes to an empty free list. R1:
//! setting a room bit is Release, and clearing it is Acquire. So an adder that clears a room bit
//! sees the nodes that the owner returned before it set the bit.
//!
//! # Models
//!
//! `loom-tests/tests/end.rs`, `loom-tests/tests/cancel.rs`, `loom-tests/tests/remote_add.rs`.

#![allow(unsafe_code)]

mod owner;
mod page;
mod retired_pages;

use std::{array, marker::PhantomData, mem::offset_of, ptr::slice_from_raw_parts_mut, sync::Arc};

use self::page::{NodeHeader, PageHeader, PagePtr, SharedDeadline};
pub(crate) use self::{
    owner::{ClaimedTimer, OwnerNodeRef, OwnerSlab},
    retired_pages::free_orphaned_pages,
};
use crate::{
    clock::tick::TimerSchedule,
    cross_core::{
        call_site::{CallSite, TimerOrigin},
        callback::{BuildInPlace, Callback, IntoCallback, SendCallback, take_closure},
        mailbox::MailboxLink,
        reclaim::{EpochPointer, Pinned},
        state::{StateWord, StepAfterCancelOrReset},
    },
    limits::{INDEX_MAX, OWNER_GENERATION_MAX, PAGE_BITS, REMOTE_GENERATION_BIT, SPARE_PAGES},
    util::{
        pages::{PAGE_LEN, as_u32, index_of, page_number_of, place_of},
        sync::{AtomicHint, AtomicU64, IS_LOOM, LoomPointerOrdering, Ordering},
    },
};

const PAGES_MAX: usize = (INDEX_MAX as usize >> PAGE_BITS) + 1;
const ROOM_BITMAP_WORDS: usize = PAGES_MAX.div_ceil(64);

/// A cell of the table of pages: a pointer to a page, or vacant.
#[derive(Debug, Default)]
struct PageCell {
    page: EpochPointer<PageHeader>,
    loom_ordering: LoomPointerOrdering,
}

/// The table through which other threads reach one shard's nodes.
#[derive(Debug)]
pub(crate) struct Slab {
    page_cells: Box<[PageCell]>,
    room_bits: [AtomicU64; ROOM_BITMAP_WORDS],
    /// The number of bytes before the first node in a page.
    nodes_offset: usize,
    /// The distance between consecutive nodes, in bytes.
    node_stride: usize,
    /// True if payloads are callbacks. Other threads may add timers only if this field is true.
    pub(crate) holds_callbacks: bool,
    hints: Hints,
}

/// Hints about where to find a vacant cell or a free node, and the `first_generation` of new pages.
/// The hints may be outdated. The alignment separates these often written numbers from the cache
/// lines that every remote operation reads.
#[derive(Debug)]
#[repr(align(128))]
struct Hints {
    /// The page number at which the search for a vacant cell begins.
    vacant_cell_hint: AtomicHint,
    /// The number of a remote page that probably has free nodes.
    page_with_room_hint: AtomicHint,
    /// The approximate count of remote pages whose nodes are all free.
    empty_remote_page_count: AtomicHint,
    /// The generation of the first timer in each node of a new remote page, without the bit that
    /// marks remote timers.
    first_generation: AtomicU64,
}

/// The parts of a node that any thread may use while it is pinned.
#[derive(Debug)]
pub(crate) struct NodeView<'p> {
    pub(crate) state: &'p StateWord,
    pub(crate) mailbox_link: &'p MailboxLink,
    page: PagePtr,
    place_in_page: usize,
}

/// A node that this thread has taken for a remote timer. Keeps the thread pinned. The caller must
/// arm and push the node, because dropping a `TakenNode` does not free the node.
#[derive(Debug)]
pub(crate) struct TakenNode {
    page: PagePtr,
    pub(crate) index: u32,
    _pinned: Pinned,
}

/// A taken node that this thread has armed with a callback of type `C`. The caller must push the
/// node.
pub(crate) struct ArmedNode<C> {
    pub(crate) node: TakenNode,
    pub(crate) generation: u64,
    callback_marker: PhantomData<C>,
}

impl PageCell {
    fn new_table() -> Box<[Self]> {
        if IS_LOOM {
            return (0..PAGES_MAX).map(|_| Self::default()).collect();
        }
        const { assert!(size_of::<Self>() == size_of::<usize>() || IS_LOOM) };
        const { assert!(align_of::<Self>() == align_of::<usize>() || IS_LOOM) };
        // Allocates zeros, because allocators can often provide zeroed memory without writing it.
        let table = Box::into_raw(vec![0_usize; PAGES_MAX].into_boxed_slice()).cast::<Self>();
        // SAFETY: a cell has the layout of a `usize` (asserted above). A cell of zeros is vacant.
        unsafe { Box::from_raw(slice_from_raw_parts_mut(table, PAGES_MAX)) }
    }
}

impl Slab {
    /// Creates a slab and its `OwnerSlab`. Only the owner may add timers to the slab.
    pub(crate) fn new<T>() -> (Arc<Self>, OwnerSlab<T>) {
        Self::for_payload::<T>(false)
    }

    /// Creates a slab and its `OwnerSlab`. Other threads may add timers to the slab too.
    pub(crate) fn for_callbacks() -> (Arc<Self>, OwnerSlab<Callback>) {
        Self::for_payload::<Callback>(true)
    }

    fn for_payload<T>(holds_callbacks: bool) -> (Arc<Self>, OwnerSlab<T>) {
        let slab = Arc::new(Self {
            page_cells: PageCell::new_table(),
            room_bits: array::from_fn(|_| AtomicU64::new(0)),
            nodes_offset: offset_of!(page::Page<T>, nodes),
            node_stride: size_of::<page::Node<T>>(),
            holds_callbacks,
            hints: Hints {
                vacant_cell_hint: AtomicHint::new(1),
                page_with_room_hint: AtomicHint::new(1),
                empty_remote_page_count: AtomicHint::new(0),
                first_generation: AtomicU64::new(1),
            },
        });
        // SAFETY: the slab is new, has no owner yet, and was made for payloads of type `T`.
        let nodes = unsafe { OwnerSlab::new(Arc::clone(&slab)) };
        (slab, nodes)
    }

    /// Returns the node `index`, if its page is published.
    #[inline]
    pub(crate) fn node<'p>(&'p self, index: u32, pinned: &'p Pinned) -> Option<NodeView<'p>> {
        let page = self.page(page_number_of(index), pinned)?;
        let offset = self.nodes_offset + self.node_stride * place_of(index);
        // SAFETY: the nodes of this slab's pages are `node_stride` bytes apart, and a place is below
        // `PAGE_LEN`.
        let node = unsafe { page.0.byte_add(offset) }.cast::<NodeHeader>();
        // SAFETY: a published page lives while the thread is pinned (`retired_pages`). A node begins
        // with its header, which is never borrowed mutably.
        let NodeHeader { state, mailbox_link, .. } = unsafe { node.as_ref() };
        Some(NodeView { state, mailbox_link, page, place_in_page: place_of(index) })
    }

    #[inline]
    fn page(&self, page_number: usize, pinned: &Pinned) -> Option<PagePtr> {
        let cell = self.page_cells.get(page_number)?;
        cell.loom_ordering.acquire_before_load();
        Some(PagePtr(cell.page.load(pinned)?))
    }

    /// Takes a free node for a remote timer. Returns `None` if no node is free and no page can be
    /// added.
    #[inline(always)]
    pub(crate) fn take_remote_node(&self, pinned: Pinned) -> Option<TakenNode> {
        let hinted_page = self.hints.page_with_room_hint.get() as usize;
        let page_and_index = self.take_from_page(hinted_page, &pinned);
        let (page, index) = page_and_index.or_else(|| self.take_from_other_page(&pinned))?;
        Some(TakenNode { page, index, _pinned: pinned })
    }

    /// Takes a free node from any remote page with room, or from a new page.
    #[cold]
    #[inline(never)]
    fn take_from_other_page(&self, pinned: &Pinned) -> Option<(PagePtr, u32)> {
        let first_word = self.hints.page_with_room_hint.get() as usize / 64;
        for word_number in (first_word..ROOM_BITMAP_WORDS).chain(0..first_word) {
            // Relaxed: the bits are hints; `take_from_page` acquires the page and its free nodes.
            let mut bits = self.room_bits[word_number].load(Ordering::Relaxed);
            while bits != 0 {
                let page_number = word_number * 64 + bits.trailing_zeros() as usize;
                if let Some(page_and_index) = self.take_from_page(page_number, pinned) {
                    self.hints.page_with_room_hint.set(as_u32(page_number));
                    return Some(page_and_index);
                }
                self.clear_room_bit(page_number, pinned);
                bits &= bits - 1;
            }
        }
        self.take_from_new_page()
    }

    #[inline(always)]
    fn take_from_page(&self, page_number: usize, pinned: &Pinned) -> Option<(PagePtr, u32)> {
        let page = self.page(page_number, pinned)?;
        // SAFETY: a published page lives while the thread is pinned. Only a remote page has nodes
        // in its `free_list`, and a remote page's payloads are callbacks.
        let nodes = unsafe { &page.as_typed::<Callback>().nodes };
        let link = |place: usize| &nodes[place % PAGE_LEN].header.mailbox_link;
        // SAFETY: the page lives while the thread is pinned.
        let (place, free_count) = unsafe { page.header() }.free_list.pop(link)?;
        if free_count == 0 {
            self.clear_room_bit(page_number, pinned);
        }
        if free_count + 1 == PAGE_LEN {
            self.hints.empty_remote_page_count.decrement();
        }
        Some((page, index_of(page_number, place)))
    }

    /// Clears the room bit of a page, but sets it again if the page now has a free node.
    #[cold]
    #[inline(never)]
    fn clear_room_bit(&self, page_number: usize, pinned: &Pinned) {
        // Acquire (R1): sees the returned nodes, or the new page, for which the bit was set.
        self.room_bits[page_number / 64].fetch_and(!(1 << (page_number % 64)), Ordering::Acquire);
        let page = self.page(page_number, pinned);
        // SAFETY: a published page lives while the thread is pinned.
        if page.is_some_and(|page| unsafe { page.header() }.free_list.has_free_nodes()) {
            self.set_room_bit(page_number);
        }
    }

    /// Returns true if more than about [`SPARE_PAGES`] remote pages are empty.
    fn has_surplus_remote_pages(&self) -> bool {
        self.hints.empty_remote_page_count.get() > SPARE_PAGES
    }

    fn set_room_bit(&self, page_number: usize) {
        // Release (R1): publishes the nodes that the caller put back, or the new page.
        self.room_bits[page_number / 64].fetch_or(1 << (page_number % 64), Ordering::Release);
        self.hints.page_with_room_hint.set_min(as_u32(page_number));
    }

    /// Publishes a remote page. Returns the page, and the index of its first node, which the caller
    /// takes.
    fn take_from_new_page(&self) -> Option<(PagePtr, u32)> {
        // A node never uses half of all generations, so a page whose first generation is in the
        // lower half never runs out of generations.
        if !self.holds_callbacks || self.first_generation() > OWNER_GENERATION_MAX / 2 {
            return None;
        }
        let (page, page_number) = self.publish_new_page::<Callback>()?;
        // SAFETY: the page is not retired, because this thread has taken its first node.
        let header = unsafe { page.header() };
        // The slab's first generation is read after the publication, so it exceeds all generations
        // of earlier remote pages with this page number.
        let first_generation = self.first_generation() | REMOTE_GENERATION_BIT;
        // Relaxed: `fill_except_first` publishes the value to other adders.
        header.first_generation.store(first_generation, Ordering::Relaxed);
        header.free_list.fill_except_first();
        self.set_room_bit(page_number);
        self.hints.page_with_room_hint.set(as_u32(page_number));
        Some((page, index_of(page_number, 0)))
    }

    pub(crate) fn first_generation(&self) -> u64 {
        // Relaxed: publishing a page in a cell acquires the retraction of the cell's previous page,
        // before which the owner stored the first generation.
        self.hints.first_generation.load(Ordering::Relaxed)
    }

    /// Raises the first generation of new remote pages. The caller must be the owner, unless no
    /// other thread can see the slab yet.
    pub(crate) fn raise_first_generation(&self, generation: u64) {
        // Relaxed: the next Release makes the first generation visible. This is the `retract` of a
        // page's cell, or the `publish` of the shard in the registry.
        self.hints.first_generation.store(generation, Ordering::Relaxed);
    }

    /// Allocates a page, and publishes it in a vacant cell. Returns the page and the page number,
    /// or `None` if no cell is vacant.
    fn publish_new_page<T>(&self) -> Option<(PagePtr, usize)> {
        let page = page::Page::<T>::allocate_page();
        // The hint may be too high, so the search wraps around to cell 1. Cell 0 is for the owner's
        // first page.
        let first_number = self.hints.vacant_cell_hint.get() as usize;
        let mut page_numbers = (first_number..PAGES_MAX).chain(1..first_number);
        let Some(page_number) =
            page_numbers.find(|&page_number| self.try_publish_page(page_number, page))
        else {
            // SAFETY: no other thread has seen the page.
            unsafe { page.free() };
            return None;
        };
        self.hints.vacant_cell_hint.set(as_u32(page_number + 1));
        Some((page, page_number))
    }

    fn try_publish_page(&self, page_number: usize, page: PagePtr) -> bool {
        let cell = &self.page_cells[page_number];
        cell.loom_ordering.order_before_store();
        cell.page.publish_if_empty(page.0)
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        for page in self.page_cells.iter_mut().filter_map(|cell| cell.page.take_pointer()) {
            // SAFETY: no thread uses a slab that is being dropped, its owner is gone, and no other
            // slab has the page.
            unsafe { PagePtr(page).free() };
        }
    }
}

#[cfg(all(loom, feature = "models"))]
impl Drop for NodeView<'_> {
    fn drop(&mut self) {
        self.header().use_after_free_check.assert_read_allowed();
    }
}

impl NodeView<'_> {
    #[inline]
    fn header(&self) -> &PageHeader {
        // SAFETY: the page lives while the thread is pinned.
        unsafe { self.page.header() }
    }

    #[inline]
    pub(crate) fn requested_deadline(&self) -> &SharedDeadline {
        &self.header().requested_deadlines[self.place_in_page % PAGE_LEN]
    }

    #[inline]
    pub(crate) fn linked_deadline(&self) -> &SharedDeadline {
        &self.header().linked_deadlines[self.place_in_page % PAGE_LEN]
    }

    /// Moves the payload to `payload_out`, and then makes the timer `Cancelled`. Returns the next
    /// step. The state word must have told this thread to
    /// [`TakePayload`](StepAfterCancelOrReset::TakePayload).
    #[inline(always)]
    pub(crate) fn take_remote_payload(
        &self,
        payload_out: &mut Option<SendCallback>,
    ) -> StepAfterCancelOrReset {
        // SAFETY: the state word returns `TakePayload` only for a timer that another thread added.
        // Other threads add only callbacks, so this is a page of callbacks. The page lives while
        // this thread is pinned.
        let page: &page::Page<Callback> = unsafe { self.page.as_typed() };
        // SAFETY: the state word has given the payload to this thread alone.
        let callback = unsafe { page.nodes[self.place_in_page].payload().read() };
        // SAFETY: `TakenNode::arm` has armed the timer, and accepts only a callback that is `Send`.
        *payload_out = Some(unsafe { SendCallback::assume_send(callback) });
        self.state.end_reset_or_cancel().unwrap_or(StepAfterCancelOrReset::Nothing)
    }
}

impl TakenNode {
    #[inline]
    fn page(&self) -> &page::Page<Callback> {
        // SAFETY: this thread is pinned, so the owner does not free the page, even after the node
        // is in the mailbox. The caller borrows `Shared`, which keeps the slab alive. If other
        // threads may add to a slab, its payloads are callbacks.
        unsafe { self.page.as_typed() }
    }

    #[inline]
    fn node(&self) -> &page::Node<Callback> {
        &self.page().nodes[place_of(self.index)]
    }

    /// Arms the node. The timer is due at `due`, in nanoseconds of the clock. A zero `period` means
    /// one-shot.
    #[inline]
    pub(crate) fn arm<C: IntoCallback + Send>(
        self,
        TimerSchedule { due, period }: TimerSchedule,
        call_site: CallSite,
        callback: C,
    ) -> ArmedNode<C> {
        let (page, node, place) = (self.page(), self.node(), place_of(self.index));
        // SAFETY: this thread has taken the node, which is free, so it has no payload.
        unsafe { callback.build(node.payload().as_ptr()) };
        // SAFETY: this thread has taken the node.
        let timer_origin = unsafe { page.timer_origins[place].get() };
        timer_origin.set(TimerOrigin::new(call_site, || 0));
        page.header.requested_deadlines[place].store_nanos(due);
        if period != 0 {
            // SAFETY: this thread has taken the node.
            unsafe { node.header.deadline.get() }.set(period);
            page.header.linked_deadlines[place].store_nanos(due);
        }
        let state = &node.header.state;
        // Relaxed: the adder has acquired the free list (G1), or has stored the first generation
        // itself.
        let first_generation = page.header.first_generation.load(Ordering::Relaxed);
        let generation = first_generation.max(state.generation() + 1);
        state.arm_remote(generation, period != 0);
        ArmedNode { node: self, generation, callback_marker: PhantomData }
    }
}

impl<C: IntoCallback> ArmedNode<C> {
    #[inline]
    pub(crate) fn mailbox_link(&self) -> &MailboxLink {
        &self.node.node().header.mailbox_link
    }

    /// Ends the timer that this thread could not push, because the shard has ended. Returns the
    /// timer's closure, or `None` if another thread has changed the state word
    /// (`StateWord::undo_arm_remote`).
    pub(crate) fn undo_arm(self) -> Option<C::Closure> {
        let node = self.node.node();
        node.header.state.undo_arm_remote().then(|| {
            // SAFETY: `undo_arm_remote` has given the payload to this thread, which has built it
            // from a `C` in `TakenNode::arm`.
            unsafe { take_closure::<C>(node.payload()) }
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
