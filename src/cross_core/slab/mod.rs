//! The nodes of a shard: pages of timers by index, which other threads may read and add to.
//!
//! A timer is one node. Other threads share its header (state word, mailbox link). Its deadline,
//! its position in the wheel and its payload belong to the owner. So a cancel from another core
//! touches one line of the node's page and one of the mailbox.
//!
//! There are two views of the pages. Other threads use the [`Slab`], a table two steps deep, while
//! they are pinned. The owner uses [`OwnerNodes`], a private vector of the same pages, one step
//! deep.
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
//! One generation bit says which side has armed the node, so that the two counters never meet.
//!
//! # Publication and retirement
//!
//! Any thread publishes a page by a compare-and-swap. Only the owner removes one, so the owner
//! reads without an epoch. When a page becomes empty and enough others are, it retires one. All
//! nodes of that page are free: `Idle`, with no message in the mailbox or on the way. For a page of
//! the adders, it first takes all nodes at once. An adder that stalls while it holds a node keeps
//! that page, and nothing else.
//!
//! *No freed page is used.* Another thread reaches a node only through [`Slab::with`] and
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
//! The table itself stays until the shard goes: some 1 KiB for each 524,288 nodes that were ever
//! there together.
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

use std::{array, marker::PhantomData, ptr::NonNull, sync::Arc};

use self::page::{NodeHeader, PageHeader, PagePtr, Requested, Shape};
pub(crate) use self::{
    owner::{Ended, NodeRef, OwnerNodes},
    retired::free_orphans,
};
use crate::{
    clock::schedule::Schedule,
    cross_core::{
        callback::{Callback, Once, RunAgain, RunOnce, Sent},
        mailbox::Link,
        origin::{Added, Origin},
        reclaim::{Pinned, PublishedPointer},
        state::{Cancel, FollowUp, Kind, Mover, StateWord},
    },
    limits::{INDEX_MAX, PAGE_BITS, PAGES_KEPT},
    util::{
        pages::{PAGE, as_u32, index_of, page_of, place_of},
        sync::{AtomicU64, Handover, Hint, Ordering, SetOnce},
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

// SAFETY: `RunAgain::build` initialises the place.
unsafe impl<F: FnMut() + 'static> Build<Callback> for RunAgain<F> {
    fn build(self, place: *mut Callback) {
        // SAFETY: the place is valid for writes (caller).
        unsafe { self.build(place) }
    }
}

/// Index bits: root, directory, page.
const INDEX_BITS: u32 = INDEX_MAX.ilog2() + 1;
const DIRECTORY_BITS: u32 = (INDEX_BITS - PAGE_BITS).div_ceil(2);
const ROOT_BITS: u32 = INDEX_BITS - PAGE_BITS - DIRECTORY_BITS;

const DIRECTORY_PAGES: usize = 1 << DIRECTORY_BITS;
const ROOT: usize = 1 << ROOT_BITS;
const PAGES: usize = page_count();
const ROOM_WORDS: usize = DIRECTORY_PAGES.div_ceil(64);

const fn page_count() -> usize {
    (INDEX_MAX as usize >> PAGE_BITS) + 1
}

/// Pages next to each other in the table.
#[derive(Debug)]
struct Directory {
    pages: [PageSlot; DIRECTORY_PAGES],
    /// Which pages may have free nodes for adders.
    room: [AtomicU64; ROOM_WORDS],
}

/// The slot in which a page is published.
#[derive(Debug, Default)]
struct PageSlot {
    page: PublishedPointer<PageHeader>,
    handover: Handover,
}

/// The nodes of one shard, as other threads see them.
///
/// A reader sees either the whole page or none. A stale handle may find no page, or one that was
/// added later, perhaps by a newer shard of its number.
#[derive(Debug)]
pub(crate) struct Slab {
    root: [SetOnce<Box<Directory>>; ROOT],
    shape: Shape,
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
    /// The number of a page: earlier directories are likely to have no room.
    room: Hint,
    /// The number of whole pages of the adders, whose nodes are all free.
    whole: Hint,
}

/// A node, as any thread sees it.
#[derive(Debug)]
pub(crate) struct NodeView<'p> {
    pub(crate) state: &'p StateWord,
    pub(crate) link: &'p Link,
    pub(crate) requested: &'p Requested,
    page: PagePtr,
    place: usize,
}

/// A free node that this thread has taken, to add a timer to another core.
#[derive(Debug)]
pub(crate) struct RemoteNode<'p> {
    page: PagePtr,
    index: u32,
    pinned: PhantomData<&'p Pinned>,
}

impl Directory {
    /// Records that an adder may find a free node in this page.
    fn note_room(&self, number: usize) {
        // Release (R1): the nodes that were returned, and the page.
        self.room[number / 64].fetch_or(1 << (number % 64), Ordering::Release);
    }

    /// Records that this page has no free node, or does not exist.
    fn clear_room(&self, number: usize) {
        // Acquire (R1): nodes that were returned, or a page that was published, before the bit was
        // set.
        self.room[number / 64].fetch_and(!(1 << (number % 64)), Ordering::Acquire);
    }
}

impl PageSlot {
    #[inline]
    fn look(&self, pinned: &Pinned) -> Option<PagePtr> {
        self.handover.look();
        self.page.look(pinned).map(PagePtr::of)
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
            root: array::from_fn(|_| SetOnce::new()),
            shape: Shape::of::<T>(),
            takes_callbacks,
            hints: Hints { vacant: Hint::new(1), room: Hint::new(1), whole: Hint::new(0) },
        });
        // Every shard needs the first directory, so no adder has to wait for it.
        slab.directory(0);
        // SAFETY: the slab has the shape for `T`; it is new.
        let nodes = unsafe { OwnerNodes::new(Arc::clone(&slab)) };
        (slab, nodes)
    }

    /// Calls `look` with the node `index`, if its page is published.
    #[inline]
    pub(crate) fn with<R>(
        &self,
        index: u32,
        pinned: &Pinned,
        look: impl FnOnce(NodeView<'_>) -> R,
    ) -> Option<R> {
        let page = self.page(page_of(index), pinned)?;
        // SAFETY: a page that was found stays while the thread is pinned (`retired`), and pages of
        // this slab have its shape.
        let NodeHeader { state, link, .. } = unsafe { page.node(&self.shape, place_of(index)) };
        // SAFETY: as above.
        let requested = unsafe { page.requested(&self.shape, place_of(index)) };
        let seen = look(NodeView { state, link, requested, page, place: place_of(index) });
        // SAFETY: as above.
        unsafe { page.header() }.looks.were_allowed();
        Some(seen)
    }

    #[inline]
    fn page(&self, number: usize, pinned: &Pinned) -> Option<PagePtr> {
        self.root.get(number / DIRECTORY_PAGES)?.get()?.pages[number % DIRECTORY_PAGES].look(pinned)
    }

    /// Takes a free node for a remote timer. Returns `None` if no index is left, or if the slab
    /// takes no remote adds.
    pub(crate) fn take_remote<'p>(&self, pinned: &'p Pinned) -> Option<RemoteNode<'p>> {
        if !self.takes_callbacks {
            return None;
        }
        let (page, index) = self.take_from_pages(pinned).or_else(|| self.add_remote_page())?;
        Some(RemoteNode { page, index, pinned: PhantomData })
    }

    fn take_from_pages(&self, pinned: &Pinned) -> Option<(PagePtr, u32)> {
        let hint = self.hints.room.get() as usize / DIRECTORY_PAGES;
        let at = |step: usize| (hint + step) % ROOT;
        (0..ROOT).map(at).find_map(|at| self.take_from_directory(at, pinned))
    }

    fn take_from_directory(&self, at: usize, pinned: &Pinned) -> Option<(PagePtr, u32)> {
        let directory = self.root[at].get()?;
        for (word, room) in directory.room.iter().enumerate() {
            // Relaxed: a hint; the page and its free nodes are acquired.
            let mut bits = room.load(Ordering::Relaxed);
            while bits != 0 {
                let number = word * 64 + bits.trailing_zeros() as usize;
                if let Some((page, place)) = self.take_from_page(directory, number, pinned) {
                    self.hints.room.set(as_u32(at * DIRECTORY_PAGES));
                    return Some((page, index_of(at * DIRECTORY_PAGES + number, place)));
                }
                bits &= bits - 1;
            }
        }
        None
    }

    /// Takes a free node of the page with this number in its directory.
    fn take_from_page(
        &self,
        directory: &Directory,
        number: usize,
        pinned: &Pinned,
    ) -> Option<(PagePtr, usize)> {
        let slot = &directory.pages[number];
        let taken = slot.look(pinned).and_then(|page| {
            // SAFETY: a page that was found stays while the thread is pinned, and pages of this
            // slab have its shape.
            let link = |place| unsafe { &page.node(&self.shape, place).link };
            // SAFETY: as above.
            let (place, left) = unsafe { page.header() }.free.pop(link)?;
            Some((page, place, left))
        });
        if taken.is_none_or(|(.., left)| left == 0) {
            directory.clear_room(number);
            // The page may have been replaced, or have got nodes back.
            let page = taken.map(|(page, ..)| page).or_else(|| slot.look(pinned));
            // SAFETY: as above.
            if page.is_some_and(|page| unsafe { page.header() }.free.has_any()) {
                directory.note_room(number);
            }
        }
        let (page, place, left) = taken?;
        if left + 1 == PAGE {
            self.hints.whole.decrement();
        }
        Some((page, place))
    }

    /// Returns true if more pages of the adders are whole than stay.
    fn has_surplus(&self) -> bool {
        self.hints.whole.get() > PAGES_KEPT
    }

    /// Records that a page has a free node again.
    fn note_room(&self, number: usize) {
        self.directory(number).note_room(number % DIRECTORY_PAGES);
        self.hints.room.lower(as_u32(number));
    }

    /// Publishes a page whose first node belongs to the caller.
    #[cold]
    fn add_remote_page(&self) -> Option<(PagePtr, u32)> {
        let page = page::Page::<Callback>::allocate(true);
        let Some(number) = self.publish(page, false) else {
            // SAFETY: no other thread has seen the page.
            unsafe { page.free() };
            return None;
        };
        if PAGE > 1 {
            self.note_room(number);
        }
        Some((page, index_of(number, 0)))
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
        let slot = &self.directory(number).pages[number % DIRECTORY_PAGES];
        slot.handover.change();
        slot.page.publish_if_empty(page.pointer())
    }

    fn directory(&self, number: usize) -> &Directory {
        self.root[number / DIRECTORY_PAGES].get_or_set(|| {
            Box::new(Directory {
                pages: array::from_fn(|_| PageSlot::default()),
                room: array::from_fn(|_| AtomicU64::new(0)),
            })
        })
    }

    /// Takes a page out of the table. The owner keeps it until it is marked.
    fn retract(&self, number: usize) {
        let slot = &self.directory(number).pages[number % DIRECTORY_PAGES];
        slot.handover.change();
        slot.page.retract(retired::mark_unseen);
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
        let directories = self.root.iter_mut().filter_map(SetOnce::get_mut);
        let pages = directories.flat_map(|directory| &mut directory.pages);
        let pages: Vec<NonNull<PageHeader>> = pages.filter_map(|slot| slot.page.take()).collect();
        for page in pages {
            // SAFETY: no thread uses a slab that is being dropped, its owner is gone, and no other
            // slab has the page.
            unsafe { PagePtr::of(page).free() };
        }
    }
}

impl NodeView<'_> {
    /// Cancels the timer. Its payload goes to `taken`, if it may leave the owner's thread.
    #[inline]
    pub(crate) fn cancel(&self, generation: u64, taken: &mut Option<Sent>) -> (Cancel, FollowUp) {
        let (answer, next) = self.state.cancel(generation);
        (answer, if next == FollowUp::Take { self.take_sent(taken) } else { next })
    }

    /// Ends a move that this thread has begun. If another thread has cancelled the timer since and
    /// the payload may leave the owner's thread, the payload goes to `taken`. Returns false if the
    /// shard has ended since.
    #[inline]
    pub(crate) fn end_move(&self, taken: &mut Option<Sent>) -> (bool, FollowUp) {
        let (lives, next) = self.state.end_move(Mover::Other);
        (lives, if next == FollowUp::Take { self.take_sent(taken) } else { next })
    }

    /// Takes the payload after the word has answered [`FollowUp::Take`] to this thread.
    #[cold]
    #[inline(never)]
    fn take_sent(&self, taken: &mut Option<Sent>) -> FollowUp {
        // SAFETY: other threads add callbacks only, so the page is one of callbacks; it stays while
        // the thread is pinned.
        let page: &page::Page<Callback> = unsafe { self.page.typed() };
        // SAFETY: the word has given the payload to this thread alone.
        let callback = unsafe { page.nodes[self.place].take_payload() };
        // SAFETY: the timer was armed with a `Sent` (`RemoteNode::arm`).
        *taken = Some(unsafe { Sent::of(callback) });
        self.state.end_move(Mover::Other).1
    }
}

impl<'p> RemoteNode<'p> {
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    fn page(&self) -> &'p page::Page<Callback> {
        // SAFETY: a node that was taken keeps its page, the thread is pinned for `'p`, and payloads
        // of a slab that others may add to are callbacks.
        unsafe { self.page.typed() }
    }

    pub(crate) fn link(&self) -> &'p Link {
        &self.header().link
    }

    /// Arms the node: the timer is due when the clock shows `nanos`. The caller must push it.
    #[inline]
    pub(crate) fn arm(&self, generation: u64, nanos: u64, origin: Origin, callback: Sent) {
        self.fill(nanos, origin, callback);
        self.header().state.arm_remote(generation, Kind::Shared);
    }

    /// Arms the node with a periodic timer. The caller must push it.
    pub(crate) fn arm_periodic(
        &self,
        generation: u64,
        schedule: Schedule,
        origin: Origin,
        callback: Sent,
    ) {
        self.fill(schedule.due, origin, callback);
        // SAFETY: this thread has taken the node.
        unsafe { self.header().deadline.set(schedule.period) };
        self.header().state.arm_remote(generation, Kind::Periodic);
    }

    fn header(&self) -> &'p NodeHeader {
        &self.page().nodes[place_of(self.index)].header
    }

    /// Writes what the timer consists of, apart from the word.
    #[inline]
    fn fill(&self, nanos: u64, origin: Origin, callback: Sent) {
        let (page, place) = (self.page(), place_of(self.index));
        let node = &page.nodes[place];
        // SAFETY: this thread has taken the node, which is free, so it has no payload; `build`
        // initialises it.
        unsafe { node.put_payload(|place| Ready(callback.into_callback()).build(place)) };
        // SAFETY: this thread has taken the node.
        unsafe { page.added[place].set(Added::new(origin, || 0)) };
        page.requested[place].write(nanos);
    }

    /// Ends the timer that this thread has armed and could not push, because the owner has ended.
    /// Returns its callback, or `None` if the owner's last sweep has ended the timer.
    pub(crate) fn disarm(self) -> Option<Sent> {
        let node = &self.page().nodes[place_of(self.index)];
        node.header.state.disarm_remote().then(|| {
            // SAFETY: the transition has given the payload to this thread.
            let callback = unsafe { node.take_payload() };
            // SAFETY: this thread had armed the node with a `Sent`.
            unsafe { Sent::of(callback) }
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
