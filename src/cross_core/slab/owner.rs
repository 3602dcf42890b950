//! The owner's access to a shard's nodes.

use std::{
    cell::{Cell, RefCell},
    marker::PhantomData,
    mem,
    ptr::NonNull,
    sync::Arc,
};

use super::{
    PAGES_MAX, Slab,
    page::{Node, Page, PagePtr, SharedDeadline, relative_link},
    retired_pages::{RetiredPages, mark_reclaimable},
};
use crate::{
    clock::tick::TimerSchedule,
    cross_core::{
        call_site::TimerOrigin,
        callback::{self, BuildInPlace, Callback, IntoCallback},
        mailbox::MailboxLink,
        reclaim::pin,
        state::{ClaimedRun, FreeWhen, StateWord, TimerKind},
    },
    limits::{
        EPOCH_ADVANCE_TRIES, PAGES_FREED_PER_CALL_MAX, REMOTE_GENERATION_BIT, RESERVED_TIMERS_MAX,
        RETIRED_PAGES_MAX, SPARE_PAGES,
    },
    util::{
        pages::{PAGE_LEN, PageTable, PlaceAllocator, as_u32, index_of, page_number_of, place_of},
        prefetch::prefetch,
    },
    wheel::{Entry, Links, Location, Storage},
};

/// The [`Location`] of free nodes in remote pages, and of remote timers that the owner has not
/// admitted (`slab`).
const NOT_ADMITTED_LOCATION: Location = Location::NEVER_LINKED;

/// Freed nodes of one remote page, before the owner returns them to the page's free list. The nodes
/// form a chain from `first_index` to `last_index`.
#[derive(Debug, Default)]
struct FreedRemoteNodes {
    first_index: u32,
    last_index: u32,
    count: u32,
}

/// The nodes of the owner's pages, and of the remote pages that the owner has adopted.
pub(crate) struct OwnerSlab<T> {
    slab: Arc<Slab>,
    pages: PageTable<PagePtr>,
    /// The free nodes of the owner's pages, linked through `Links`.
    place_allocator: PlaceAllocator,
    adopted_page_numbers: Vec<usize>,
    /// The schedules of periodic timers, indexed by page number and then by place in the page.
    schedules_by_page: Vec<Vec<TimerSchedule>>,
    freed_remote_nodes: FreedRemoteNodes,
    /// The number of remote nodes returned since the owner last raised the slab's first generation.
    returned_node_count: u64,
    /// The retired pages that are not freed yet. A `RefCell`, because before a sleep, the owner
    /// frees pages with only `&self`.
    retired_pages: RefCell<RetiredPages>,
    /// True if surplus or retired pages may exist.
    pub(crate) may_need_trim: bool,
    /// How many more calls of [`trim_pages`](Self::trim_pages) empty pages may cause. The budget is
    /// at most [`SLAB_TRIMS_PER_PASS_MAX`](crate::limits::SLAB_TRIMS_PER_PASS_MAX) during a pass,
    /// and unlimited between passes.
    pub(crate) trim_budget: u32,
    /// This type owns the payloads. The `Cell` makes this type `!Sync`.
    owned_payloads: PhantomData<(T, Cell<()>)>,
}

impl<T> OwnerSlab<T> {
    /// # Safety
    ///
    /// The slab was made for payloads of type `T`, and has no other owner.
    pub(super) unsafe fn new(slab: Arc<Slab>) -> Self {
        let first_page = Page::<T>::allocate_page();
        let is_published = slab.try_publish_page(0, first_page);
        debug_assert!(is_published, "the slab is new");
        Self {
            slab,
            pages: PageTable::new(first_page),
            place_allocator: PlaceAllocator::new(),
            adopted_page_numbers: Vec::new(),
            schedules_by_page: Vec::new(),
            freed_remote_nodes: FreedRemoteNodes::default(),
            returned_node_count: 0,
            retired_pages: RefCell::default(),
            may_need_trim: false,
            trim_budget: u32::MAX,
            owned_payloads: PhantomData,
        }
    }

    #[inline]
    fn page_at(&self, page_number: usize) -> &Page<T> {
        // SAFETY: the slab's payloads are of type `T` (promised to `new`). All pages in the table
        // are alive: retiring a page takes `&mut self`, and removes the page from the table.
        unsafe { self.pages.get(page_number).as_typed() }
    }

    /// Adds the page of a remote timer's node to the owner's table. Returns false if the page is
    /// not published. For a timer that the owner has added, does nothing and returns true. The node
    /// may hold a timer of another generation.
    #[inline]
    pub(crate) fn try_adopt_page_of(&mut self, index: u32, generation: u64) -> bool {
        generation & REMOTE_GENERATION_BIT == 0 || self.try_adopt_page(page_number_of(index))
    }

    #[inline(always)]
    pub(crate) fn take_node(&mut self) -> Option<u32> {
        if let Some(index) = self.take_node_fast() {
            return Some(index);
        }
        self.take_from_other_page()
    }

    /// Takes the node that was freed last, or a free node of the current page.
    #[inline(always)]
    fn take_node_fast(&mut self) -> Option<u32> {
        let pages = &self.pages;
        self.place_allocator.take_place(|page_number, place| {
            // SAFETY: as in `page_at`.
            let page: &Page<T> = unsafe { pages.get(page_number).as_typed() };
            // SAFETY: this is the owner.
            unsafe { page.wheel_links[place].get() }.next.get()
        })
    }

    /// Frees the node at `index`. The node's timer, which had this `generation`, must have ended,
    /// and the node must have no queued message.
    #[inline]
    pub(crate) fn free_node(&mut self, index: u32, generation: u64) {
        debug_assert!(self.entry(index).state().is_free());
        if generation & REMOTE_GENERATION_BIT != 0 {
            return self.free_remote_node(index);
        }
        let previous_freed = mem::replace(&mut self.place_allocator.last_freed_index, index);
        if previous_freed != 0 {
            self.put_in_free_list(previous_freed);
        }
    }

    #[inline]
    fn put_in_free_list(&mut self, index: u32) {
        let (next, has_surplus_pages) =
            self.place_allocator.put_in_free_list(page_number_of(index), place_of(index));
        self.entry(index).links().next.set(next);
        if has_surplus_pages {
            self.trim_pages_or_defer();
        }
    }

    /// Calls [`trim_pages`](Self::trim_pages), or lets a later turn call it if `trim_budget` is
    /// zero.
    #[cold]
    fn trim_pages_or_defer(&mut self) {
        if self.trim_budget == 0 {
            self.may_need_trim = true;
        } else {
            self.trim_budget -= 1;
            self.trim_pages();
        }
    }

    /// Adds the node of an ended remote timer to `freed_remote_nodes`.
    #[inline(never)]
    fn free_remote_node(&mut self, index: u32) {
        let FreedRemoteNodes { first_index, last_index, count } = &mut self.freed_remote_nodes;
        if *count == 0 {
            *last_index = index;
        } else if page_number_of(*first_index) != page_number_of(index) {
            return self.free_remote_node_of_other_page(index);
        }
        *count += 1;
        let place = place_of(index);
        let link = relative_link(place, place_of(mem::replace(first_index, index)));
        let node = self.entry(index);
        node.mailbox_link().set(link);
        node.location().set(NOT_ADMITTED_LOCATION);
    }

    #[inline(never)]
    fn free_remote_node_of_other_page(&mut self, index: u32) {
        self.return_freed_remote_nodes();
        self.free_remote_node(index);
    }

    /// Returns true if there may be freed remote nodes to return, or surplus or retired pages.
    #[inline]
    pub(crate) fn may_have_memory_to_reclaim(&self) -> bool {
        self.freed_remote_nodes.count | u32::from(self.may_need_trim) != 0
    }

    /// Returns the freed remote nodes to the free list of their page. May call
    /// [`trim_pages`](Self::trim_pages).
    pub(crate) fn return_freed_remote_nodes(&mut self) {
        if self.freed_remote_nodes.count > 0 {
            let FreedRemoteNodes { first_index, last_index, count } =
                mem::take(&mut self.freed_remote_nodes);
            self.returned_node_count += u64::from(count);
            let header = &self.page_at(page_number_of(first_index)).header;
            let last = (place_of(last_index), self.entry(last_index).mailbox_link());
            let (count_before, count_after) =
                header.free_list.push(place_of(first_index), last, count);
            if count_before == 0 {
                self.slab.set_room_bit(page_number_of(first_index));
            }
            if count_after == PAGE_LEN {
                self.slab.hints.empty_remote_page_count.increment();
                if self.slab.has_surplus_remote_pages() {
                    self.trim_pages_or_defer();
                }
            }
        }
    }

    /// Takes a free node from another page, and adds a page if necessary.
    #[cold]
    #[inline(never)]
    fn take_from_other_page(&mut self) -> Option<u32> {
        let Some(new_places) = self.place_allocator.switch_to_page_with_room() else {
            return self.take_from_new_page();
        };
        for (index, next) in new_places {
            self.entry(index).links().next.set(next);
        }
        self.take_node_fast()
    }

    /// Adds a page for the owner, and takes a free node. Returns `None` if all page numbers are in
    /// use.
    fn take_from_new_page(&mut self) -> Option<u32> {
        let (page, page_number) = self.slab.publish_new_page::<T>()?;
        self.pages.insert(page_number, page);
        self.place_allocator.add_page(page_number);
        self.take_from_other_page()
    }

    /// Adds page `page_number` to the owner's table. Returns false if the page is not published.
    #[inline]
    fn try_adopt_page(&mut self, page_number: usize) -> bool {
        self.pages.contains_page(page_number) || self.try_adopt_page_slow(page_number)
    }

    #[cold]
    #[inline(never)]
    fn try_adopt_page_slow(&mut self, page_number: usize) -> bool {
        let Some(page) = self.slab.page(page_number, &pin()) else { return false };
        self.pages.insert(page_number, page);
        self.adopted_page_numbers.push(page_number);
        true
    }

    pub(crate) fn has_remote_pages(&self) -> bool {
        !self.adopted_page_numbers.is_empty()
    }

    pub(crate) fn has_page_of(&self, index: u32) -> bool {
        self.pages.contains_page(page_number_of(index))
    }

    /// Adds the page of a message's node to the owner's table, unless the table already has the
    /// page.
    #[inline]
    pub(crate) fn adopt_page_of_message(&mut self, index: u32) {
        let is_adopted = self.try_adopt_page(page_number_of(index));
        debug_assert!(is_adopted, "a message of a node that is gone");
    }

    pub(crate) fn adopt_all_pages(&mut self) {
        let pinned = pin();
        for page_number in 0..PAGES_MAX {
            if self.slab.page(page_number, &pinned).is_some() {
                self.try_adopt_page(page_number);
            }
        }
    }

    /// Allocates pages for `timer_count` timers, unless the page numbers run out. Until a call of
    /// [`free_empty_pages`](Self::free_empty_pages), the owner keeps enough empty pages for
    /// `timer_count` timers.
    pub(crate) fn reserve(&mut self, timer_count: usize) {
        let timer_count = timer_count.min(RESERVED_TIMERS_MAX as usize);
        let spare_pages = &mut self.place_allocator.spare_pages_to_keep;
        *spare_pages = as_u32(timer_count / PAGE_LEN + 1).max(*spare_pages);
        for _ in 0..timer_count.saturating_sub(self.capacity()).div_ceil(PAGE_LEN) {
            let Some(index) = self.take_from_new_page() else { break };
            self.put_in_free_list(index);
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.place_allocator.capacity()
    }

    /// Frees the owner's empty pages, even reserved ones. Pages that other threads may be reading
    /// are freed in later turns, or stay as spares.
    pub(crate) fn free_empty_pages(&mut self) {
        self.place_allocator.spare_pages_to_keep = 0;
        self.may_need_trim = true;
        self.trim_pages_repeatedly(usize::MAX);
        self.place_allocator.spare_pages_to_keep = SPARE_PAGES;
    }

    /// Returns the indices of all nodes that may have a timer or a payload.
    pub(crate) fn possibly_used_indices(&self) -> impl Iterator<Item = u32> + use<T> {
        let with_used_places =
            |page_number| (page_number, self.place_allocator.possibly_used_places(page_number));
        let pages: Vec<_> = self.pages.page_numbers().map(with_used_places).collect();
        let indices = pages.into_iter().flat_map(|(page_number, places)| {
            places.map(move |place| index_of(page_number, place))
        });
        indices.filter(|&index| index != 0)
    }

    /// Retires surplus empty pages, while fewer than [`RETIRED_PAGES_MAX`] retired pages wait to be
    /// freed. Also frees some reclaimable pages.
    #[cold]
    #[inline(never)]
    pub(crate) fn trim_pages(&mut self) {
        self.put_last_freed_in_free_list();
        self.retired_pages.get_mut().free_reclaimable(1, PAGES_FREED_PER_CALL_MAX);
        while self.retired_pages.get_mut().0.len() < RETIRED_PAGES_MAX {
            let Some(page_number) = self
                .place_allocator
                .remove_surplus_page()
                .or_else(|| self.take_empty_remote_page())
            else {
                break;
            };
            self.retire_page(page_number);
        }
        // This second call of `free_reclaimable` hands the deferred work of the retirements
        // above to all threads (`reclaim`). A thread can hand over only its own deferred work, and
        // the shard may move to another thread.
        self.retired_pages.get_mut().free_reclaimable(1, PAGES_FREED_PER_CALL_MAX);
        let has_surplus_pages =
            self.place_allocator.has_surplus_pages() || self.slab.has_surplus_remote_pages();
        self.may_need_trim = has_surplus_pages || !self.retired_pages.get_mut().0.is_empty();
    }

    /// Puts the most recently freed node, which its page still counts as used, into the page's free
    /// list.
    #[cold]
    #[inline(never)]
    pub(crate) fn put_last_freed_in_free_list(&mut self) {
        if let Some(last_freed) = self.place_allocator.take_last_freed() {
            self.put_in_free_list(last_freed);
        }
    }

    /// Frees surplus pages by at most `max_trims` calls of [`trim_pages`](Self::trim_pages). If
    /// `max_trims` suffices, frees all surplus pages, except those that other threads may be
    /// reading.
    pub(crate) fn trim_pages_repeatedly(&mut self, max_trims: usize) {
        self.put_last_freed_in_free_list();
        for _ in 0..max_trims.min(self.pages.page_numbers_end() / RETIRED_PAGES_MAX + 1) {
            if !self.may_need_trim {
                break;
            }
            self.trim_pages();
            self.free_retired();
        }
    }

    /// Returns true if later turns must free pages.
    pub(crate) fn has_pages_to_free(&self) -> bool {
        self.may_need_trim
            && (self.place_allocator.has_surplus_pages()
                || self.slab.has_surplus_remote_pages()
                || !self.retired_pages.borrow().0.is_empty())
    }

    /// Frees the oldest retired pages, up to the first that is not reclaimable.
    pub(crate) fn free_retired(&self) {
        if self.may_need_trim {
            self.retired_pages.borrow_mut().free_reclaimable(EPOCH_ADVANCE_TRIES, usize::MAX);
        }
    }

    /// If more than [`SPARE_PAGES`] remote pages are empty, takes all nodes of one of them, for the
    /// caller to retire the page. Returns the page's number.
    fn take_empty_remote_page(&mut self) -> Option<usize> {
        if !self.slab.has_surplus_remote_pages() {
            return None;
        }
        let take_all_if_all_free = |&page_number: &usize| {
            self.page_at(page_number).header.free_list.take_all_if_all_free()
        };
        let position_in_adopted =
            self.adopted_page_numbers.iter().position(take_all_if_all_free)?;
        self.slab.hints.empty_remote_page_count.decrement();
        let page_number = self.adopted_page_numbers.swap_remove(position_in_adopted);
        self.slab.raise_first_generation(self.remote_generation_bound());
        self.returned_node_count = 0;
        Some(page_number)
    }

    /// Returns a number above the generations of all remote timers so far, ignoring
    /// [`REMOTE_GENERATION_BIT`] (see Generations in `slab`).
    pub(crate) fn remote_generation_bound(&self) -> u64 {
        self.slab.first_generation() + self.returned_node_count + 1
    }

    fn retire_page(&mut self, page_number: usize) {
        debug_assert!(
            (0..PAGE_LEN).all(|place| self.entry(index_of(page_number, place)).state().is_free())
        );
        if let Some(schedules) = self.schedules_by_page.get_mut(page_number) {
            *schedules = Vec::new();
        }
        let page = self.pages.get(page_number);
        self.pages.remove(page_number);
        let cell = &self.slab.page_cells[page_number];
        cell.loom_ordering.order_before_store();
        cell.page.retract(mark_reclaimable);
        self.slab.hints.vacant_cell_hint.set_min(as_u32(page_number));
        self.retired_pages.get_mut().0.push_back(page);
    }

    /// Returns the records of admitted timers that have a payload and are not running.
    #[cfg(feature = "origins")]
    pub(crate) fn timer_origins(&self) -> impl Iterator<Item = TimerOrigin> {
        let nodes = self.possibly_used_indices().map(|index| self.entry(index));
        let live_nodes = nodes.filter(|node| node.state().has_payload() && !node.is_not_admitted());
        live_nodes.map(|node| node.timer_origin_cell().get())
    }

    pub(crate) fn schedule_mut(&mut self, index: u32) -> &mut TimerSchedule {
        let (page_number, place) = (page_number_of(index), place_of(index));
        if self.schedules_by_page.len() <= page_number {
            self.schedules_by_page.resize_with(page_number + 1, Vec::new);
        }
        let schedules = &mut self.schedules_by_page[page_number];
        if schedules.len() <= place {
            schedules.resize(place + 1, TimerSchedule::default());
        }
        &mut schedules[place]
    }

    /// Returns the payload of a pending timer that the owner has added.
    #[inline]
    pub(crate) fn payload(&self, index: u32, generation: u64) -> Option<&T> {
        // SAFETY: `is_pending_owner_added` has returned true, so the payload is present. Only the
        // owner takes the payload, and only while it borrows its shard mutably.
        self.is_pending_owner_added(index, generation)
            .then(|| unsafe { self.entry(index).typed_node().payload().as_ref() })
    }

    #[inline]
    pub(crate) fn payload_mut(&mut self, index: u32, generation: u64) -> Option<&mut T> {
        // SAFETY: `is_pending_owner_added` has returned true, so the payload is present and no
        // other thread uses it. `self` is borrowed mutably, so this is the only reference to the
        // payload.
        self.is_pending_owner_added(index, generation)
            .then(|| unsafe { self.entry(index).typed_node().payload().as_mut() })
    }

    /// Returns the payload of a periodic timer that the owner has added, and has rearmed after a
    /// claim. Another thread may have cancelled the timer after the rearming.
    pub(crate) fn rearmed_payload_mut(&mut self, index: u32) -> &mut T {
        debug_assert!(!self.entry(index).state().is_free());
        // SAFETY: this is the owner, and other threads never take the payload of a timer that the
        // owner has added. The owner cannot take the payload during this borrow of `self`.
        unsafe { self.entry(index).typed_node().payload().as_mut() }
    }

    /// Returns true if the timer is pending and the owner has added it. The payload of an
    /// owner-added timer stays with the owner, even if another thread cancels the timer.
    #[inline]
    fn is_pending_owner_added(&self, index: u32, generation: u64) -> bool {
        self.has_page_of(index)
            && self.entry(index).state().pending_owner_added_generation() == Some(generation)
    }

    /// Returns the index and generation of the first pending, owner-added timer from `index` on.
    pub(crate) fn first_pending_owner_added_timer(&self, index: u32) -> Option<(u32, u64)> {
        self.pages.find_map_index_from(index, &self.place_allocator, |index| {
            Some((index, self.entry(index).state().pending_owner_added_generation()?))
        })
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn page_count(&self) -> usize {
        self.pages.page_numbers().count()
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn retired_page_count(&self) -> usize {
        self.retired_pages.borrow().0.len()
    }
}

impl OwnerSlab<Callback> {
    /// Returns true if the callback in a cancelled timer's node needs a drop.
    #[inline]
    pub(crate) fn needs_drop(node: OwnerNodeRef<'_, Callback>) -> bool {
        // SAFETY: the payload is in the node, because the owner has cancelled the timer, or has
        // found that the canceller did not take the payload.
        unsafe { node.typed_node().payload().as_ref() }.needs_drop()
    }

    /// Takes the closure of a timer that the owner has just cancelled. The timer's callback must
    /// have been built from a `C` whose inline vtable is a static.
    #[inline]
    pub(crate) fn take_inline_closure<C: IntoCallback>(
        node: OwnerNodeRef<'_, Callback>,
    ) -> C::Closure {
        // SAFETY: the owner has just cancelled the timer, so the payload is present, and no other
        // thread uses it.
        unsafe { callback::take_inline_closure::<C>(node.typed_node().payload()) }
    }
}

/// The owner's access to one node.
pub(crate) struct OwnerNodeRef<'n, T> {
    page: &'n Page<T>,
    index: u32,
}

impl<T> Clone for OwnerNodeRef<'_, T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for OwnerNodeRef<'_, T> {}

impl<'n, T> OwnerNodeRef<'n, T> {
    #[inline]
    fn typed_node(self) -> &'n Node<T> {
        &self.page.nodes[place_of(self.index)]
    }

    #[inline]
    fn timer_origin_cell(self) -> &'n Cell<TimerOrigin> {
        // SAFETY: this is the owner, and no adder has the node.
        unsafe { self.page.timer_origins[place_of(self.index)].get() }
    }

    #[inline]
    pub(crate) fn state(self) -> &'n StateWord {
        &self.typed_node().header.state
    }

    #[inline]
    pub(crate) fn mailbox_link(self) -> &'n MailboxLink {
        &self.typed_node().header.mailbox_link
    }

    pub(crate) fn requested_deadline(self) -> &'n SharedDeadline {
        &self.page.header.requested_deadlines[place_of(self.index)]
    }

    pub(crate) fn linked_deadline(self) -> &'n SharedDeadline {
        &self.page.header.linked_deadlines[place_of(self.index)]
    }

    #[inline]
    pub(crate) fn is_not_admitted(self) -> bool {
        self.location().get() == NOT_ADMITTED_LOCATION
    }

    /// Marks a remote timer as admitted, and records `now` as the time of the add.
    pub(crate) fn admit(self, now: u64) {
        self.location().set(Location::UNLINKED);
        self.timer_origin_cell().set(self.timer_origin_cell().get().with_add_time(now));
    }

    /// Arms a free node with a new timer, without linking it into a slot.
    #[inline]
    pub(crate) fn arm(
        self,
        generation: u64,
        kind: TimerKind,
        payload: impl BuildInPlace<T>,
        timer_origin: TimerOrigin,
    ) {
        // SAFETY: this is the owner; the node is free, so it has no payload.
        unsafe { payload.build(self.typed_node().payload().as_ptr()) };
        self.state().arm(generation, kind);
        self.timer_origin_cell().set(timer_origin);
    }

    /// Returns this node's timer, which the owner must just have claimed.
    #[inline]
    pub(crate) fn to_claimed_timer(self, run: ClaimedRun, due: u64) -> ClaimedTimer<T> {
        ClaimedTimer { node: self.typed_node().into(), index: self.index, run, due }
    }

    /// Takes the payload of a timer. The owner must just have claimed or cancelled the timer, ended
    /// it by `StateWord::end_at_close`, or consumed its cancel message.
    #[inline]
    pub(crate) fn take_payload(self) -> T {
        // SAFETY: this is the owner. The caller's latest change of the state word proves that the
        // payload was present, and gives the payload to the caller.
        unsafe { self.typed_node().payload().read() }
    }
}

/// A due timer that the owner has claimed. The timer is running until
/// [`finish_run`](Self::finish_run). A `ClaimedTimer` must not outlive the slab.
#[derive(Debug)]
#[must_use]
pub(crate) struct ClaimedTimer<T> {
    node: NonNull<Node<T>>,
    pub(crate) index: u32,
    pub(crate) run: ClaimedRun,
    /// The start of the tick at which the timer became due, in nanoseconds of the clock.
    pub(crate) due: u64,
}

impl<T> ClaimedTimer<T> {
    #[inline]
    fn typed_node(&self) -> &Node<T> {
        // SAFETY: the node of a running timer is not free. A page with a node that is not free is
        // neither moved nor freed, unless the slab ends.
        unsafe { self.node.as_ref() }
    }

    /// Takes the payload. May be called only once, and only before the timer is run or rearmed.
    #[inline]
    pub(crate) fn take_payload(&self) -> T {
        // SAFETY: the owner has claimed the timer, so the payload is present, and no other thread
        // uses it (`state`).
        unsafe { self.typed_node().payload().read() }
    }

    /// Finishes the run, and tells the caller when to free the node.
    #[inline]
    pub(crate) fn finish_run(self) -> FreeWhen {
        self.typed_node().header.state.finish_run(self.run)
    }
}

impl ClaimedTimer<Callback> {
    /// Runs the callback. May be called only once, and only before `finish_run`.
    #[inline]
    pub(crate) fn run_callback(&self) {
        // SAFETY: the owner has claimed the timer, so the payload is present. No other thread uses
        // the payload of a running timer (`state`).
        unsafe { callback::run_in_place(self.typed_node().payload()) };
    }
}

impl<T> Entry for OwnerNodeRef<'_, T> {
    #[inline]
    fn index(self) -> u32 {
        self.index
    }

    #[inline]
    fn links(&self) -> &Links {
        // SAFETY: this is the owner.
        unsafe { self.page.wheel_links[place_of(self.index)].get() }
    }

    #[inline]
    fn deadline(&self) -> &Cell<u64> {
        // SAFETY: this is the owner, and no adder has the node.
        unsafe { self.typed_node().header.deadline.get() }
    }

    #[inline]
    fn location(&self) -> &Cell<Location> {
        // SAFETY: this is the owner.
        unsafe { self.typed_node().header.location.get() }
    }
}

impl<T> Storage for OwnerSlab<T> {
    type Entry<'s>
        = OwnerNodeRef<'s, T>
    where
        T: 's;

    #[inline]
    fn entry(&self, index: u32) -> OwnerNodeRef<'_, T> {
        OwnerNodeRef { page: self.page_at(page_number_of(index)), index }
    }

    #[inline]
    fn prefetch(&self, index: u32) {
        let node = self.entry(index);
        prefetch(node.state());
        prefetch(node.links());
    }
}
