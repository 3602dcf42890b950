//! The owner's view of a shard's nodes: one load from one table, and no epoch.

use std::{cell::Cell, fmt, marker::PhantomData, mem, sync::Arc};

use super::{
    Build, Slab,
    page::{Node, Page, PagePtr, Requested},
    retired::Retired,
};
use crate::{
    clock::schedule::Schedule,
    cross_core::{
        callback::{Callback, Running},
        mailbox::Link,
        origin::{Added, Origin},
        reclaim::pin,
        state::{Cancel, Claim, Collected, Freed, Kind, StateWord, Swept},
    },
    limits::{PAGES_SEARCHED, REMOTE_GENERATION},
    util::{
        pages::{FreePlaces, PAGE, PageTable, as_u32, index_of, page_of, place_of},
        prefetch::prefetch,
        spare::Spare,
    },
    wheel::{Links, Location, Placement, Storage},
};

/// The location of a remote timer that the owner has not admitted, and of the free nodes of such
/// timers.
pub(super) const NOT_ADMITTED: Location = Location::reserved(1);

/// Free nodes of one adders' page that have not been returned yet, linked from the first to the
/// last.
#[derive(Debug, Default)]
struct Returning {
    page: usize,
    first: u32,
    last: u32,
    count: u32,
}

/// The owner's nodes, and the nodes armed by other threads that the owner knows.
pub(crate) struct OwnerNodes<T> {
    slab: Arc<Slab>,
    /// The pages that the owner knows.
    pages: PageTable<PagePtr>,
    /// The free nodes of the owner's pages, linked through `Links`.
    free: FreePlaces,
    /// The numbers of the adders' pages that the owner knows.
    remote: Vec<usize>,
    /// The schedules of periodic timers, by page number. Most pages have none.
    schedules: Vec<Option<Box<[Schedule; PAGE]>>>,
    spare_remote: Spare,
    returning: Returning,
    retired: Retired,
    /// There may be pages to free in the adders' pages or in `retired`.
    has_garbage: bool,
    /// The position in `remote` at which the search for an empty page continues.
    cursor: usize,
    /// Payloads belong to the owner, which is one thread at a time.
    payloads: PhantomData<(T, Cell<()>)>,
}

impl<T> OwnerNodes<T> {
    /// # Safety
    ///
    /// The slab was made for payloads of type `T`, and has no other owner.
    pub(super) unsafe fn new(slab: Arc<Slab>) -> Self {
        let first = Page::<T>::allocate(false, Location::UNLINKED);
        let is_published = slab.publish(first, true) == Some(0);
        debug_assert!(is_published, "the slab is new");
        let mut free = FreePlaces::new();
        free.add_page(0);
        Self {
            slab,
            pages: PageTable::new(first),
            free,
            remote: Vec::new(),
            schedules: Vec::new(),
            spare_remote: Spare::new(),
            returning: Returning::default(),
            retired: Retired::default(),
            has_garbage: false,
            cursor: 0,
            payloads: PhantomData,
        }
    }

    #[inline]
    fn page_at(&self, number: usize) -> &Page<T> {
        // SAFETY: the pages of the table are of the slab's type, which is `T` (`new`). They leave
        // it before they are retired, for which nothing may borrow `self`, and those that are not
        // retired live as long as the slab.
        unsafe { self.pages.get(number).typed() }
    }

    #[inline]
    fn page(&self, index: u32) -> &Page<T> {
        self.page_at(page_of(index))
    }

    #[inline]
    fn node(&self, index: u32) -> &Node<T> {
        &self.page(index).nodes[place_of(index)]
    }

    #[inline]
    pub(crate) fn state(&self, index: u32) -> &StateWord {
        &self.node(index).header.state
    }

    #[inline]
    pub(crate) fn link(&self, index: u32) -> &Link {
        &self.node(index).header.link
    }

    pub(crate) fn requested(&self, index: u32) -> &Requested {
        &self.page(index).requested[place_of(index)]
    }

    /// Prepares to read the timer of a handle. If another thread has armed the timer in a page that
    /// the owner does not know, adopts that page. Returns false if there is no such page. A stale
    /// handle of the owner may lead to another timer's node, which has another generation.
    #[inline]
    pub(crate) fn finds(&mut self, index: u32, generation: u64) -> bool {
        generation & REMOTE_GENERATION == 0 || self.adopt(page_of(index))
    }

    /// Returns true if the owner has not admitted the timer yet.
    #[inline]
    pub(crate) fn is_not_admitted(&self, index: u32) -> bool {
        self.location(index) == NOT_ADMITTED
    }

    /// Arms a free node with a new timer that is in no slot yet. Returns its index, or the payload
    /// if no node is left.
    #[inline]
    pub(crate) fn arm<B: Build<T>>(
        &mut self,
        generation: u64,
        kind: Kind,
        payload: B,
    ) -> Result<u32, B> {
        let Some((number, place)) = self.take().or_else(|| self.add_page()) else {
            return Err(payload);
        };
        let node = &self.page_at(number).nodes[place];
        // SAFETY: this is the owner; the node is free, so it has no payload; `build` initialises
        // it.
        unsafe { node.put_payload(|place| payload.build(place)) };
        node.header.state.arm(generation, kind);
        Ok(index_of(number, place))
    }

    #[inline(always)]
    #[allow(clippy::inline_always)] // As in `FreePlaces::take`.
    fn take(&mut self) -> Option<(usize, usize)> {
        let pages = &self.pages;
        self.free.take(|number, place| {
            // SAFETY: as in `page_at`.
            let page: &Page<T> = unsafe { pages.get(number).typed() };
            // SAFETY: this is the owner.
            unsafe { page.links[place].get() }.next
        })
    }

    /// Frees the node of an ended timer that has no message queued.
    #[inline(always)]
    #[allow(clippy::inline_always)] // As in `link_by`.
    pub(crate) fn free(&mut self, index: u32) {
        debug_assert!(self.state(index).is_free());
        match self.free.put(page_of(index), place_of(index)) {
            Some(next) => self.set_links(index, Links { previous: 0, next }),
            None => self.free_remote(index),
        }
    }

    /// Frees the node of an ended remote timer. It is returned to its page together with other
    /// nodes of that page.
    #[inline(never)]
    fn free_remote(&mut self, index: u32) {
        self.set_location(index, NOT_ADMITTED);
        if self.returning.page != page_of(index) {
            self.return_nodes();
        }
        let Returning { page, first, last, count } = &mut self.returning;
        if *count == 0 {
            (*page, *last) = (page_of(index), index);
        }
        let below = mem::replace(first, index);
        *count += 1;
        let link = if below == 0 { 0 } else { as_u32(place_of(below)) + 1 };
        self.link(index).set(link);
    }

    /// Returns free nodes of remote timers to their page.
    #[inline]
    pub(crate) fn return_nodes(&mut self) {
        if self.returning.count > 0 {
            let Returning { first, last, count, .. } = mem::take(&mut self.returning);
            let header = &self.page(first).header;
            let (before, now) = header.free.push(place_of(first), self.link(last), count);
            if before == 0 {
                self.slab.note_room(page_of(first));
            }
            if now == PAGE {
                // The owner retires whole pages in batches.
                self.slab.count_whole();
                self.has_garbage = true;
            }
        }
    }

    /// Admits a remote timer: from now on the owner counts it.
    pub(crate) fn admit(&mut self, index: u32) {
        self.set_location(index, Location::UNLINKED);
    }

    /// Adds a page of the owner and takes its first node. Returns `None` if all numbers are taken.
    #[cold]
    #[inline(never)]
    fn add_page(&mut self) -> Option<(usize, usize)> {
        let page = Page::<T>::allocate(false, Location::UNLINKED);
        let Some(number) = self.slab.publish(page, false) else {
            // SAFETY: no other thread has seen the page.
            unsafe { page.free() };
            return None;
        };
        self.pages.set(number, page);
        self.free.add_page(number);
        self.take()
    }

    /// Returns true if a page of this number is published; the owner knows it from now on.
    #[inline]
    pub(crate) fn adopt(&mut self, number: usize) -> bool {
        self.pages.has(number) || self.adopt_unknown(number)
    }

    #[cold]
    #[inline(never)]
    fn adopt_unknown(&mut self, number: usize) -> bool {
        let Some(page) = self.slab.page(number, &pin()) else { return false };
        self.pages.set(number, page);
        self.remote.push(number);
        true
    }

    /// Returns true if the owner knows the page of an index.
    pub(crate) fn knows(&self, index: u32) -> bool {
        self.pages.has(page_of(index))
    }

    /// Loads the header of a node into the cache.
    #[inline]
    pub(crate) fn prefetch_link(&self, index: u32) {
        prefetch(self.link(index));
    }

    /// Makes sure that the owner knows the node of a message.
    #[inline]
    pub(crate) fn meet(&mut self, index: u32) {
        let is_there = self.adopt(page_of(index));
        debug_assert!(is_there, "a message of a node that is gone");
    }

    /// Makes all pages known, for the last sweep.
    pub(crate) fn adopt_all(&mut self) {
        for number in self.slab.published() {
            self.adopt(number);
        }
    }

    /// Allocates the memory of `timers` timers, which is never freed.
    pub(crate) fn reserve(&mut self, timers: u32) {
        let pages = timers / as_u32(PAGE) + 1;
        self.free.spare.keep(pages);
        while as_u32(self.pages.numbers().count()) < pages {
            let Some((number, place)) = self.add_page() else { break };
            self.free(index_of(number, place));
        }
    }

    /// Returns the indices of all nodes that the owner knows, used or free.
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> + use<T> {
        let numbers: Vec<usize> = self.pages.numbers().collect();
        let indices = numbers
            .into_iter()
            .flat_map(|number| (0..PAGE).map(move |place| index_of(number, place)));
        indices.filter(|&index| index != 0)
    }

    /// Returns true if there may be memory to free.
    #[inline]
    pub(crate) fn has_garbage(&self) -> bool {
        self.has_garbage || self.free.spare.is_worth_a_look()
    }

    /// Frees the pages that no thread can see any more, and retires at most one page that was not
    /// needed lately.
    #[cold]
    #[inline(never)]
    pub(crate) fn trim(&mut self) {
        self.retired.free_some();
        let (whole, low) = self.slab.take_whole();
        self.spare_remote.observe(whole, low);
        let owned = self.free.spare.is_worth_a_look() && self.free.spare.turn();
        let remote = self.spare_remote.is_worth_a_look() && self.spare_remote.turn();
        if (owned || remote) && self.retired.has_room() {
            let number = if owned { self.free.find_empty_page() } else { None };
            match number {
                Some(number) => self.retire(number),
                None if remote => self.retire_remote(PAGES_SEARCHED),
                None => (),
            }
            // This also publishes garbage that was deferred on this thread, which the shard may
            // leave.
            self.retired.free_some();
        }
        self.has_garbage = !self.retired.is_empty() || self.spare_remote.is_worth_a_look();
    }

    /// Frees all pages that are not needed now, except those that are always kept: the owner is
    /// about to sleep for long. Stops early if another thread is reading a page.
    #[cold]
    #[inline(never)]
    pub(crate) fn trim_fully(&mut self) {
        self.return_nodes();
        let (whole, low) = self.slab.take_whole();
        self.spare_remote.observe(whole, low);
        let numbers: Vec<usize> = self.pages.numbers().collect();
        for number in numbers {
            if !self.free.spare.is_worth_a_look() {
                break;
            }
            if self.free.is_empty_page(number) && number != 0 {
                if !self.retired.has_room() && !self.retired.free_all() {
                    break;
                }
                self.retire(number);
            }
        }
        while self.spare_remote.is_worth_a_look() {
            let before = self.remote.len();
            if !self.retired.has_room() && !self.retired.free_all() {
                break;
            }
            self.retire_remote(self.remote.len());
            if self.remote.len() == before {
                break;
            }
        }
        self.retired.free_all();
        self.has_garbage = !self.retired.is_empty();
    }

    /// Retires a page of the owner whose nodes are all free.
    fn retire(&mut self, number: usize) {
        self.free.remove_page(number);
        self.take_away(number);
    }

    /// Retires a page of the adders whose nodes are all free, among the next few.
    fn retire_remote(&mut self, searched: usize) {
        for _ in 0..searched.min(self.remote.len()) {
            self.cursor = (self.cursor + 1) % self.remote.len();
            let number = self.remote[self.cursor];
            if self.page_at(number).header.free.take_all() {
                self.remote.swap_remove(self.cursor);
                self.spare_remote.remove();
                self.slab.count_not_whole();
                return self.take_away(number);
            }
        }
    }

    fn take_away(&mut self, number: usize) {
        debug_assert!((0..PAGE).all(|place| self.state(index_of(number, place)).is_free()));
        if let Some(schedules) = self.schedules.get_mut(number) {
            *schedules = None;
        }
        let page = self.pages.get(number);
        self.pages.remove(number);
        self.slab.retract(number);
        self.retired.push(page);
    }

    #[inline]
    fn links_of(&self, index: u32) -> Links {
        // SAFETY: this is the owner.
        unsafe { self.page(index).links[place_of(index)].get() }
    }

    #[inline]
    fn set_location(&self, index: u32, location: Location) {
        // SAFETY: this is the owner.
        unsafe { self.node(index).header.location.set(location) };
    }

    #[inline]
    fn set_links(&self, index: u32, links: Links) {
        // SAFETY: this is the owner.
        unsafe { self.page(index).links[place_of(index)].set(links) };
    }

    /// Records where and when a timer was added.
    #[inline]
    pub(crate) fn set_added(&self, index: u32, origin: Origin, now: impl FnOnce() -> u64) {
        // SAFETY: this is the owner.
        unsafe { self.page(index).added[place_of(index)].set(Added::new(origin, now)) };
    }

    /// Records when a remote timer was admitted.
    pub(crate) fn set_admitted(&self, index: u32, now: impl FnOnce() -> u64) {
        let cell = &self.page(index).added[place_of(index)];
        // SAFETY: this is the owner, and the adder has released the node.
        let added = unsafe { cell.get() };
        // SAFETY: as above.
        unsafe { cell.set(added.at(now)) };
    }

    /// Returns where and when the admitted timers with a payload were added.
    #[cfg(feature = "origins")]
    pub(crate) fn added(&self) -> impl Iterator<Item = Added> {
        let lives = |index: &u32| self.state(*index).has_payload() && !self.is_not_admitted(*index);
        // SAFETY: this is the owner.
        self.indices()
            .filter(lives)
            .map(|index| unsafe { self.page(index).added[place_of(index)].get() })
    }

    pub(crate) fn set_schedule(&mut self, index: u32, schedule: Schedule) {
        *self.periodic(index) = schedule;
    }

    /// Returns the schedule of a periodic timer.
    pub(crate) fn periodic(&mut self, index: u32) -> &mut Schedule {
        let number = page_of(index);
        if self.schedules.len() <= number {
            self.schedules.resize_with(number + 1, || None);
        }
        let schedules = &mut self.schedules[number];
        let schedules = schedules.get_or_insert_with(|| Box::new([Schedule::default(); PAGE]));
        &mut schedules[place_of(index)]
    }

    /// Takes the payload of a timer that the owner has just claimed, cancelled, collected or swept.
    #[inline]
    pub(crate) fn take_payload(&self, index: u32) -> T {
        // SAFETY: this is the owner. A transition of the word, which the caller has just made, says
        // that the payload was there and is taken.
        unsafe { self.node(index).take_payload() }
    }

    /// Returns the payload of a pending timer that the owner has added.
    #[inline]
    pub(crate) fn payload(&self, index: u32, generation: u64) -> Option<&T> {
        // SAFETY: the payload is there (`lends`). Only the owner takes it, which borrows its shard
        // mutably for that.
        self.lends(index, generation).then(|| unsafe { self.node(index).payload().as_ref() })
    }

    /// Returns the payload of a pending timer that the owner has added, to change it.
    #[inline]
    pub(crate) fn payload_mut(&mut self, index: u32, generation: u64) -> Option<&mut T> {
        // SAFETY: the payload is there (`lends`), no other thread uses it, and the borrow of `self`
        // is exclusive.
        self.lends(index, generation).then(|| unsafe { self.node(index).payload().as_mut() })
    }

    /// Returns true if the timer is pending and the owner has added it. Another thread that cancels
    /// such a timer leaves the payload to the owner.
    #[inline]
    fn lends(&self, index: u32, generation: u64) -> bool {
        self.knows(index) && self.state(index).pending_own() == Some(generation)
    }

    /// Returns the first node from `index` on with a pending timer that the owner has added, and
    /// the generation of the timer.
    pub(crate) fn pending_from(&self, mut index: u32) -> Option<(u32, u64)> {
        while page_of(index) < self.pages.end() {
            if !self.knows(index) {
                index = index_of(page_of(index) + 1, 0);
            } else if let Some(generation) = self.state(index).pending_own() {
                return Some((index, generation));
            } else {
                index += 1;
            }
        }
        None
    }

    /// Tries to fire the timer. If it fires, it is running from now on.
    #[inline]
    pub(crate) fn claim(&self, index: u32) -> Claim {
        self.state(index).claim()
    }

    /// Cancels the timer on the owner's thread. If the cancel wins, the caller takes the payload.
    #[inline]
    pub(crate) fn cancel(&self, index: u32, generation: u64) -> Result<Freed, Cancel> {
        self.state(index).cancel_own(generation)
    }

    /// Consumes the word of a message that has been taken out of the mailbox, and whose link has
    /// been read. If the timer was cancelled, the caller takes its payload.
    #[inline]
    pub(crate) fn collect(&self, index: u32) -> Collected {
        self.state(index).collect()
    }

    /// Ends the timer with its shard. Returns its payload if that is there.
    pub(crate) fn sweep(&self, index: u32) -> (Swept, Option<T>) {
        let swept = self.state(index).sweep();
        let has_payload = match swept {
            Swept::Idle => false,
            Swept::HandedBack { .. } => true,
            Swept::Cancelled { has_payload } => has_payload,
        };
        (swept, has_payload.then(|| self.take_payload(index)))
    }

    /// Arms a periodic timer again after a run. If a cancel has forbidden it, returns the payload.
    pub(crate) fn rearm(&self, index: u32) -> Option<T> {
        // No other thread has touched the payload, so it is still there.
        (!self.state(index).rearm()).then(|| self.take_payload(index))
    }

    /// Returns the number of pages that the owner knows.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn known_pages(&self) -> usize {
        self.pages.numbers().count()
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn retired(&self) -> usize {
        self.retired.len()
    }
}

impl OwnerNodes<Callback> {
    /// Takes the callback of a timer that has just been cancelled, if its drop has any effect.
    #[inline]
    pub(crate) fn take_to_drop(&self, index: u32) -> Option<Callback> {
        // SAFETY: as in `take_payload`.
        let needs_drop = unsafe { self.node(index).payload().as_ref() }.needs_drop();
        needs_drop.then(|| self.take_payload(index))
    }

    /// Returns the callback of a timer that was just claimed, to run it in place. The node is
    /// neither freed nor armed before the run has ended.
    #[inline]
    pub(crate) fn running(&self, index: u32) -> Running {
        // SAFETY: as in `take_payload`; the state forbids every other thread to use the payload of
        // a running timer.
        unsafe { Running::new(self.node(index).payload()) }
    }
}

impl<T> Storage for OwnerNodes<T> {
    #[cfg(any(test, debug_assertions))]
    fn links(&self, index: u32) -> Links {
        self.links_of(index)
    }

    #[inline]
    fn set_previous(&self, index: u32, previous: u32) {
        let links = self.links_of(index);
        self.set_links(index, Links { previous, ..links });
    }

    #[inline]
    fn set_next(&self, index: u32, next: u32) {
        let links = self.links_of(index);
        self.set_links(index, Links { next, ..links });
    }

    #[inline]
    fn next_if_there(&self, index: u32) -> u32 {
        self.links_of(index).next
    }

    #[inline]
    fn deadline(&self, index: u32) -> u64 {
        // SAFETY: this is the owner.
        unsafe { self.node(index).header.deadline.get() }
    }

    #[inline]
    fn set_deadline(&self, index: u32, deadline: u64) {
        // SAFETY: this is the owner.
        unsafe { self.node(index).header.deadline.set(deadline) };
    }

    #[inline]
    fn location(&self, index: u32) -> Location {
        // SAFETY: this is the owner.
        unsafe { self.node(index).header.location.get() }
    }

    #[inline]
    fn place(&self, index: u32, Placement { deadline, links, location }: Placement) {
        let page = self.page(index);
        let header = &page.nodes[place_of(index)].header;
        // SAFETY: this is the owner.
        unsafe { page.links[place_of(index)].set(links) };
        // SAFETY: as above.
        unsafe { header.deadline.set(deadline) };
        // SAFETY: as above.
        unsafe { header.location.set(location) };
    }

    #[inline]
    fn displace(&self, index: u32) -> Placement {
        let page = self.page(index);
        let header = &page.nodes[place_of(index)].header;
        // SAFETY: this is the owner.
        let links = unsafe { page.links[place_of(index)].get() };
        // SAFETY: as above.
        let deadline = unsafe { header.deadline.get() };
        // SAFETY: as above.
        let location = unsafe { header.location.get() };
        // SAFETY: as above.
        unsafe { header.location.set(Location::UNLINKED) };
        Placement { deadline, links, location }
    }

    #[inline]
    fn prefetch(&self, index: u32) {
        let page = self.page(index);
        prefetch(&page.nodes[place_of(index)].header);
        prefetch(&page.links[place_of(index)]);
    }
}

impl<T> fmt::Debug for OwnerNodes<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnerNodes").field("free", &self.free).finish_non_exhaustive()
    }
}
