//! The nodes of a shard as its owner sees them: one load from one table, and no epoch.

use std::{cell::Cell, fmt, marker::PhantomData, mem, sync::Arc};

use super::{
    Build, Ready, Slab,
    page::{Node, PAGE, Page, PagePtr, Requested, as_u32, index_of, page_of, place_of},
    retired::Retired,
};
use crate::{
    limits::{PAGES_SEARCHED, REMOTE_GENERATION},
    mailbox::Link,
    origin::{Added, Origin},
    prefetch::prefetch,
    reclaim::pin,
    schedule::Schedule,
    spare::Spare,
    state::{Cancel, Claim, Collected, Freed, Kind, StateWord, Swept},
    wheel::{Links, Location, Placement, Storage},
};

/// The location of a timer that another thread has added and the owner has not admitted, and of the free nodes of such timers.
pub(super) const NOT_ADMITTED: Location = Location::reserved(1);

/// A page in the owner's view.
#[derive(Debug, Default)]
struct PageState {
    /// `None` while the owner does not know the page.
    page: Option<PagePtr>,
    is_remote: bool,
    /// Nodes in use, of a page of the owner's.
    used: u32,
    /// When periodic timers are due. Most pages have none.
    schedules: Option<Box<[Schedule; PAGE]>>,
}

/// Nodes of one page for adders that are free and have not been returned yet, linked from the first to the last.
#[derive(Debug, Default)]
struct Returning {
    page: usize,
    first: u32,
    last: u32,
    count: u32,
}

/// The owner's nodes, and those that other threads have armed, as far as the owner knows them.
pub(crate) struct OwnerNodes<T> {
    slab: Arc<Slab>,
    /// By number. Where the owner knows no page, the first one stands in: a handle does not fit any timer there.
    pages: Vec<PagePtr>,
    states: Vec<PageState>,
    /// The first free node of the owner's; 0 if there is none. They are linked in both directions through `Links`, so that a page
    /// can be taken out; the first one's `previous` means nothing.
    free: u32,
    spare: Spare,
    spare_remote: Spare,
    returning: Returning,
    retired: Retired,
    /// There may be pages to free.
    has_garbage: bool,
    /// The page where the search for an empty one continues.
    cursor: usize,
    /// Payloads belong to the owner, which is one thread at a time.
    payloads: PhantomData<(T, Cell<()>)>,
}

impl<T> OwnerNodes<T> {
    /// # Safety
    ///
    /// The slab was made for payloads of type `T`, and has no other owner.
    pub(super) unsafe fn new(slab: Arc<Slab>) -> Self {
        Self {
            slab,
            pages: Vec::new(),
            states: Vec::new(),
            free: 0,
            spare: Spare::new(),
            spare_remote: Spare::new(),
            returning: Returning::default(),
            retired: Retired::default(),
            has_garbage: false,
            cursor: 0,
            payloads: PhantomData,
        }
    }

    #[inline]
    fn page(&self, index: u32) -> &Page<T> {
        let page = self.pages[page_of(index)];
        // SAFETY: the pages of the table are of the slab's type, which is `T` (`new`). They leave it before they are retired, for
        // which nothing may borrow `self`, and those that are not retired live as long as the slab.
        unsafe { page.typed() }
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

    /// Returns true if there is a node at an index, though perhaps of another timer.
    #[inline]
    pub(crate) fn reaches(&self, index: u32) -> bool {
        page_of(index) < self.pages.len()
    }

    /// Prepares to look at the timer of a handle: adopts its page, if another thread has armed it in one that the owner does not
    /// know. Returns false if there is no such page.
    #[inline]
    pub(crate) fn finds(&mut self, index: u32, generation: u64) -> bool {
        if generation & REMOTE_GENERATION == 0 {
            return self.reaches(index);
        }
        self.adopt(page_of(index))
    }

    /// Returns true if the owner has yet to admit the timer.
    #[inline]
    pub(crate) fn is_not_admitted(&self, index: u32) -> bool {
        self.location(index) == NOT_ADMITTED
    }

    /// Arms a free node with a new timer, in no slot yet. Returns its index, or the payload if no node is left.
    #[inline]
    pub(crate) fn arm<B: Build<T>>(
        &mut self,
        generation: u64,
        kind: Kind,
        payload: B,
    ) -> Result<u32, B> {
        if self.free == 0 && self.add_room().is_none() {
            return Err(payload);
        }
        let index = self.free;
        let page = self.page(index);
        let place = place_of(index);
        // SAFETY: this is the owner, and the node is free.
        let next = unsafe { page.links[place].get() }.next;
        let node = &page.nodes[place];
        // SAFETY: this is the owner; the node is free, so it has no payload; `build` initialises it.
        unsafe { node.put_payload(|place| payload.build(place)) };
        node.header.state.arm(generation, kind);
        self.free = next;
        let state = &mut self.states[page_of(index)];
        state.used += 1;
        if state.used == 1 {
            self.spare.remove();
        }
        Ok(index)
    }

    /// Frees the node of an ended timer that has no message queued.
    #[inline]
    pub(crate) fn free(&mut self, index: u32) {
        debug_assert!(self.state(index).is_free());
        let number = page_of(index);
        let state = &mut self.states[number];
        if state.is_remote {
            return self.free_remote(index);
        }
        state.used -= 1;
        let is_empty = state.used == 0;
        let next = self.free;
        if next != 0 {
            self.set_previous(next, index);
        }
        self.set_links(index, Links { previous: 0, next });
        self.free = index;
        if is_empty {
            self.note_empty();
        }
    }

    /// The node of an ended timer of another thread is free. It goes back to its page with the others of the same page.
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

    /// Returns free nodes of other threads to their page.
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
                // The owner looks at all of them together.
                self.slab.count_whole();
                self.has_garbage = true;
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn note_empty(&mut self) {
        self.spare.add();
        self.has_garbage |= self.spare.is_worth_a_look();
    }

    /// Another thread's timer counts as a timer of the owner's from now on.
    pub(crate) fn admit(&mut self, index: u32) {
        self.set_location(index, Location::UNLINKED);
    }

    /// Makes sure that a page is there for the next node of the owner's. `None` if all numbers are taken.
    #[cold]
    #[inline(never)]
    fn add_room(&mut self) -> Option<()> {
        let page = Page::<T>::allocate(false, Location::UNLINKED);
        let Some(number) = self.slab.publish(page, self.pages.is_empty()) else {
            // SAFETY: no other thread has seen the page.
            unsafe { page.free() };
            return None;
        };
        self.put_page(number, page);
        // Index 0 is never used.
        self.states[number].used = u32::from(number == 0);
        if number != 0 {
            self.spare.add();
        }
        for place in (usize::from(number == 0)..PAGE).rev() {
            let index = index_of(number, place);
            let next = self.free;
            if next != 0 {
                self.set_previous(next, index);
            }
            self.set_links(index, Links { previous: 0, next });
            self.free = index;
        }
        Some(())
    }

    fn put_page(&mut self, number: usize, page: PagePtr) {
        if self.pages.len() <= number {
            let first = self.pages.first().copied().unwrap_or(page);
            self.pages.resize(number + 1, first);
            self.states.resize_with(number + 1, PageState::default);
        }
        // SAFETY: the page is alive as in `page`.
        let is_remote = unsafe { page.header() }.is_remote;
        self.pages[number] = page;
        self.states[number] = PageState { page: Some(page), is_remote, ..PageState::default() };
    }

    /// Returns true if there is a page of this number, which the owner knows from now on.
    #[inline]
    pub(crate) fn adopt(&mut self, number: usize) -> bool {
        self.states.get(number).is_some_and(|state| state.page.is_some())
            || self.adopt_unknown(number)
    }

    #[cold]
    fn adopt_unknown(&mut self, number: usize) -> bool {
        let Some(page) = self.slab.page(number, &pin()) else { return false };
        if self.pages.is_empty() {
            // The first page stands in for those that are not there.
            self.add_room();
        }
        self.put_page(number, page);
        true
    }

    /// Returns true if the owner knows the page of an index.
    pub(crate) fn knows(&self, index: u32) -> bool {
        self.states.get(page_of(index)).is_some_and(|state| state.page.is_some())
    }

    /// Loads the header of a node into the cache.
    #[inline]
    pub(crate) fn prefetch_link(&self, index: u32) {
        if self.reaches(index) {
            prefetch(self.link(index));
        }
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

    /// Allocates the memory of `timers` timers, which is never given back.
    pub(crate) fn reserve(&mut self, timers: u32) {
        let pages = timers / as_u32(PAGE) + 1;
        self.spare.keep(pages);
        while as_u32(self.states.len()) < pages && self.add_room().is_some() {}
    }

    /// Returns the indices of all nodes that the owner knows, used or free.
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> + use<T> {
        let known = |(number, state): (usize, &PageState)| state.page.map(|_| number);
        let numbers: Vec<usize> = self.states.iter().enumerate().filter_map(known).collect();
        let indices = numbers
            .into_iter()
            .flat_map(|number| (0..PAGE).map(move |place| index_of(number, place)));
        indices.filter(|&index| index != 0)
    }

    /// Returns true if there may be memory to give back.
    #[inline]
    pub(crate) fn has_garbage(&self) -> bool {
        self.has_garbage
    }

    /// Frees what no thread can see any more, and retires at most one page that was not needed lately.
    #[cold]
    #[inline(never)]
    pub(crate) fn trim(&mut self) {
        self.retired.free_some();
        let (whole, low) = self.slab.take_whole();
        self.spare_remote.observe(whole, low);
        let owned = self.spare.is_worth_a_look() && self.spare.turn();
        let remote = self.spare_remote.is_worth_a_look() && self.spare_remote.turn();
        if owned || remote {
            self.retire_one(owned, remote);
            // Also hands over to all threads what has been deferred on this one, which the shard may leave.
            self.retired.free_some();
        }
        self.has_garbage = !self.retired.is_empty()
            || self.spare.is_worth_a_look()
            || self.spare_remote.is_worth_a_look();
    }

    /// Frees all pages that are not needed now, but for those that are always kept: the owner is about to sleep for long. Stops early if
    /// another thread is looking at a page.
    #[cold]
    #[inline(never)]
    pub(crate) fn trim_fully(&mut self) {
        self.return_nodes();
        let (whole, low) = self.slab.take_whole();
        self.spare_remote.observe(whole, low);
        for number in 1..self.states.len() {
            let (owned, remote) =
                (self.spare.is_worth_a_look(), self.spare_remote.is_worth_a_look());
            if !owned && !remote {
                break;
            }
            if !self.retired.has_room() && !self.retired.free_all() {
                break;
            }
            self.retire_if_free(number, owned, remote);
        }
        self.retired.free_all();
        self.has_garbage = !self.retired.is_empty();
    }

    fn retire_one(&mut self, owned: bool, remote: bool) {
        if !self.retired.has_room() {
            return;
        }
        for _ in 0..PAGES_SEARCHED {
            self.cursor = (self.cursor + 1) % self.states.len();
            if self.retire_if_free(self.cursor, owned, remote) {
                return;
            }
        }
    }

    /// Retires a page of a wanted kind if all of its nodes are free.
    fn retire_if_free(&mut self, number: usize, owned: bool, remote: bool) -> bool {
        let &PageState { page, is_remote, used, .. } = &self.states[number];
        let Some(page) = page else { return false };
        let is_free = if is_remote {
            // SAFETY: the page is alive as in `page`.
            remote && unsafe { page.header() }.free.take_all()
        } else {
            owned && used == 0
        };
        if is_free {
            self.retire(number, page);
        }
        is_free
    }

    /// Takes away a page of which all nodes are free, and of the adders' none is in reach.
    fn retire(&mut self, number: usize, page: PagePtr) {
        let state = mem::take(&mut self.states[number]);
        let indices = (0..PAGE).map(|place| index_of(number, place));
        debug_assert!(indices.clone().all(|index| self.state(index).is_free()));
        if state.is_remote {
            self.spare_remote.remove();
            self.slab.count_not_whole();
        } else {
            self.spare.remove();
            indices.for_each(|index| self.unlink_free(index));
        }
        self.pages[number] = self.pages[0];
        self.slab.retract(number);
        self.retired.push(page);
    }

    /// Takes a free node of the owner's out of the list.
    fn unlink_free(&mut self, index: u32) {
        let Links { previous, next } = self.links_of(index);
        if index == self.free {
            self.free = next;
            return;
        }
        self.set_next(previous, next);
        if next != 0 {
            self.set_previous(next, previous);
        }
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

    /// Says where and when a timer was added.
    #[inline]
    pub(crate) fn set_added(&self, index: u32, origin: Origin, now: impl FnOnce() -> u64) {
        // SAFETY: this is the owner.
        unsafe { self.page(index).added[place_of(index)].set(Added::new(origin, now)) };
    }

    /// Says when a timer of another thread was admitted.
    pub(crate) fn set_admitted(&self, index: u32, now: impl FnOnce() -> u64) {
        let cell = &self.page(index).added[place_of(index)];
        // SAFETY: this is the owner, and the adder has released the node.
        let added = unsafe { cell.get() };
        // SAFETY: as above.
        unsafe { cell.set(added.at(now)) };
    }

    /// Returns where and when the timers were added that have a payload and are admitted.
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
        let schedules = &mut self.states[page_of(index)].schedules;
        let schedules = schedules.get_or_insert_with(|| Box::new([Schedule::default(); PAGE]));
        &mut schedules[place_of(index)]
    }

    #[inline]
    fn take_payload(&self, index: u32) -> T {
        // SAFETY: this is the owner. A transition of the word, which the caller has just made, says that the payload was there and is
        // taken.
        unsafe { self.node(index).take_payload() }
    }

    /// Tries to fire the timer. It is running from now on if its payload is returned.
    #[inline]
    pub(crate) fn claim(&self, index: u32) -> (Claim, Option<T>) {
        let claim = self.state(index).claim();
        let payload = (claim == Claim::Fires).then(|| self.take_payload(index));
        (claim, payload)
    }

    /// Cancels the timer on the owner's thread.
    #[inline]
    pub(crate) fn cancel(&self, index: u32, generation: u64) -> Result<(Freed, T), Cancel> {
        let freed = self.state(index).cancel_own(generation)?;
        Ok((freed, self.take_payload(index)))
    }

    /// Deals with the word of a message that has been taken out of the mailbox, and whose link has been read.
    #[inline]
    pub(crate) fn collect(&self, index: u32) -> (Collected, Option<T>) {
        let collected = self.state(index).collect();
        let payload = (collected == Collected::Cancelled).then(|| self.take_payload(index));
        (collected, payload)
    }

    /// Ends the timer with its shard. Returns its payload if it had one.
    pub(crate) fn sweep(&self, index: u32) -> Option<(Swept, T)> {
        match self.state(index).sweep() {
            Swept::Idle => None,
            swept => Some((swept, self.take_payload(index))),
        }
    }

    /// Lets a periodic timer go on after a run. If a cancel has forbidden it, the payload comes back.
    pub(crate) fn rearm(&self, index: u32, payload: T) -> Option<T> {
        // SAFETY: this is the owner, and the payload was taken when the timer was claimed; `build` initialises the place.
        unsafe { self.node(index).put_payload(|place| Ready(payload).build(place)) };
        // No other thread touches the payload, so it is still there.
        (!self.state(index).rearm()).then(|| self.take_payload(index))
    }

    /// Returns how many pages the owner knows.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn known_pages(&self) -> usize {
        self.states.iter().filter(|state| state.page.is_some()).count()
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn retired(&self) -> usize {
        self.retired.len()
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
        if self.reaches(index) { self.links_of(index).next } else { 0 }
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
        if let Some(page) = self.pages.get(page_of(index)) {
            // SAFETY: the page is alive as in `page`.
            let page: &Page<T> = unsafe { page.typed() };
            prefetch(&page.nodes[place_of(index)].header);
            prefetch(&page.links[place_of(index)]);
        }
    }
}

impl<T> fmt::Debug for OwnerNodes<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnerNodes").field("pages", &self.pages.len()).finish_non_exhaustive()
    }
}
