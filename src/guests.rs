//! Timers that come from other cores: nodes that any thread may take and arm, and that the owner gives back.
//!
//! An index of the owner's wheel is the owner's to give, and a handle must work before the owner has heard of its timer. So
//! a timer that is added from elsewhere gets a node of another slab, a *guest*:
//!
//! 1. The adding thread takes a free node from the pool (or adds a page of them), puts the callback into its parcel, writes
//!    when it is due beside the word, arms the word as *queued* and *moved*, and pushes the node on the owner's mailbox. The
//!    handle works from then on: it can be cancelled and moved while its message is still on the way.
//! 2. The owner meets the message, as it would that of a timer which was moved, and sees that the guest has no twin. It takes
//!    the callback, puts it into its wheel under an index of its own, and links the two nodes to each other.
//! 3. The guest's word goes on to decide how the timer ends; the twin's word says that it does.
//! 4. When the timer has ended and no message of it is queued, the twin's index is free, and the guest goes back to the pool.
//!
//! # The pool
//!
//! Two stacks of free nodes, through their mailbox links. Any thread takes the first node of whichever has one by a compare-and-swap,
//! and any may put nodes back. A thread that stalls between reading the link of the first node and its swap must not put a
//! stale one in its place: so the head has a tag that counts the nodes taken:
//!
//! ```text
//!  63                        26 25                      0
//! +----------------------------+-------------------------+
//! |  nodes taken (38 bits)     |  1 + index of the first |     0: none
//! +----------------------------+-------------------------+
//! ```
//!
//! (The tag would have to come round, 2^38 nodes, while that thread stalls, and meet the same node on top.)
//!
//! # Pages come and go
//!
//! Who finds the pool empty adds a page. The owner sees at each turn whether more pages are without a timer than hold what was
//! lately wanted. Then it looks through one of the stacks, some nodes a turn: those of such pages, the first ones excepted, it
//! stows, the others it puts into the other stack, where adders find them as before. A page that is stowed as a whole is
//! retired (`slab`); one for which a timer arrives is used again.
//!
//! # Orderings
//!
//! G1: what gives nodes to the pool releases, what takes one acquires: the link, and what the node's last user did (S2 in
//! `state` goes on from there). Swaps continue what they replace.
//!
//! # Models
//!
//! `loom-tests/tests/guest.rs`. (Adders that need a table of pages at the same time, once per 131 072 nodes, wait for the one
//! that makes it; the owner never does.)

use std::{collections::BTreeMap, mem};

use crate::{
    limits::{GENERATION_MAX, GUESTS_KEPT, GUESTS_STOWED, PAGE_BITS},
    paged::page_of,
    parcel::{Parcel, Sent},
    reclaim::{Pinned, pin},
    slab::{Node, OwnNodes, Place, Slab},
    sync::{AtomicU32, AtomicU64, Ordering},
};

const PAGE: u32 = 1 << PAGE_BITS;
const FIRST_BITS: u32 = 26;
const FIRST: u64 = (1 << FIRST_BITS) - 1;
const _: () = assert!((crate::limits::INDEX_MAX as u64) < FIRST, "an index and one more fit");

/// The guests of one shard, as all threads see them.
#[derive(Debug)]
pub(crate) struct Guests {
    slab: Slab<Parcel>,
    pool: [AtomicU64; 2],
    /// Pages before that of this index are likely to be there.
    hint: AtomicU32,
    generation: AtomicU64,
}

/// A guest that has been armed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Armed {
    pub(crate) index: u32,
    pub(crate) generation: u64,
}

/// The guests of one shard, as its owner sees them.
#[derive(Debug, Default)]
pub(crate) struct OwnGuests {
    nodes: OwnNodes<Parcel>,
    /// Nodes of the pages that the owner knows, and those of them that have arrived and not gone.
    known: u32,
    live: u32,
    /// The same by page, and how many pages are without.
    live_in: Vec<u32>,
    idle_pages: u32,
    /// How many arrived since the last turn, and a maximum of what was wanted at the same time, which decays.
    arrived: u32,
    wanted: u32,
    /// The stack that is being looked through.
    front: usize,
    /// What has been taken out of use, by page.
    stowed: BTreeMap<u32, Stow>,
    /// A page that is stowed as a whole.
    whole: Option<u32>,
}

/// Nodes of a page, linked as in the pool.
#[derive(Debug)]
struct Stow {
    first: u32,
    last: u32,
    count: u32,
}

impl Default for Guests {
    fn default() -> Self {
        Self {
            slab: Slab::default(),
            pool: [AtomicU64::new(0), AtomicU64::new(0)],
            hint: AtomicU32::new(0),
            generation: AtomicU64::new(1),
        }
    }
}

impl Guests {
    /// Looks at the guest `index`, if its page is there. For any thread.
    #[inline]
    pub(crate) fn with<R>(
        &self,
        index: u32,
        pinned: &Pinned,
        look: impl FnOnce(Place<'_, Parcel>) -> R,
    ) -> Option<R> {
        self.slab.with(index, pinned, look)
    }

    /// Arms a guest that is due then. The caller must push it. If there is none left, the callback comes back.
    pub(crate) fn arm(&self, nanos: u64, callback: Sent, pinned: &Pinned) -> Result<Armed, Sent> {
        // Relaxed: only distinct, and later than what the node had before.
        let generation = self.generation.fetch_add(1, Ordering::Relaxed);
        if generation > GENERATION_MAX {
            return Err(callback);
        }
        let Some(index) = self.take(pinned).or_else(|| self.add_page(pinned)) else {
            return Err(callback);
        };
        let armed = self.with(index, pinned, |Place { node, asked, parcel }| {
            parcel.put(callback)?;
            asked.write(nanos);
            node.state.arm_guest(generation);
            Ok(Armed { index, generation })
        });
        armed.unwrap_or_else(|| unreachable!("the page of a node that is in use is gone"))
    }

    /// Generations go on from this one at least. Before anybody arms.
    pub(crate) fn start_at(&self, generation: u64) {
        // Relaxed: published with the shard.
        self.generation.store(generation, Ordering::Relaxed);
    }

    /// The generation after the last one.
    pub(crate) fn next_generation(&self) -> u64 {
        // Relaxed: who arms later finds the mailbox closed, and gives its generation to nobody.
        self.generation.load(Ordering::Relaxed)
    }

    /// The node of a guest that was armed and came too late: whose timer nobody else knows.
    pub(crate) fn give_back(&self, index: u32, node: &Node) {
        self.give(0, index, |below| node.link.set(below));
    }

    /// Takes a node from the pool.
    fn take(&self, pinned: &Pinned) -> Option<u32> {
        self.take_from(0, pinned).or_else(|| self.take_from(1, pinned))
    }

    fn take_from(&self, stack: usize, pinned: &Pinned) -> Option<u32> {
        let pool = &self.pool[stack];
        // Acquire: the links (G1).
        let mut head = pool.load(Ordering::Acquire);
        while let Some(index) = first_of(head) {
            // If its page is gone, so is the node, and the swap fails.
            let below = self.with(index, pinned, |place| place.node.link.get()).unwrap_or(0);
            // Acquire: what the node's last user did, or the links from another head (G1).
            match pool.compare_exchange_weak(
                head,
                taken(head, below),
                Ordering::Acquire,
                Ordering::Acquire,
            ) {
                Ok(_) => return Some(index),
                Err(found) => head = found,
            }
        }
        None
    }

    /// Gives linked nodes to the pool, from the first to the last, whose link is `link_last` to set.
    fn give(&self, stack: usize, first: u32, link_last: impl Fn(u32)) {
        let pool = &self.pool[stack];
        // Relaxed: checked by the swap.
        let mut head = pool.load(Ordering::Relaxed);
        loop {
            link_last(low(head));
            let new = head & !FIRST | u64::from(first + 1);
            // Release (G1): the links, and what was done to the nodes.
            match pool.compare_exchange_weak(head, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(found) => head = found,
            }
        }
    }

    /// Adds a page, takes its first node, and gives the others to the pool.
    #[cold]
    fn add_page(&self, pinned: &Pinned) -> Option<u32> {
        // Relaxed: a hint. It may have left earlier numbers out.
        let hint = self.hint.load(Ordering::Relaxed);
        let first = self.slab.add_page_from(hint).or_else(|| self.slab.add_page_from(0))?;
        // Relaxed: a hint.
        self.hint.store(first + PAGE, Ordering::Relaxed);
        let link = |index: u32, below: u32| {
            let linked = self.with(index, pinned, |place| place.node.link.set(below));
            debug_assert!(linked.is_some(), "the page was added and has not been used");
        };
        let last = first + PAGE - 1;
        (first + 1..last).for_each(|index| link(index, index + 2));
        self.give(0, first + 1, |below| link(last, below));
        Some(first)
    }
}

/// All of them are for the owner, with the guests of its shard.
impl OwnGuests {
    /// Whether a guest may be anywhere.
    #[inline]
    pub(crate) fn are_none(&self) -> bool {
        self.known == 0
    }

    /// How many nodes there are, as far as the owner knows.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn known(&self) -> u32 {
        self.known
    }

    /// The guest `index`, whose message the owner has met.
    pub(crate) fn place(&self, index: u32) -> Place<'_, Parcel> {
        self.nodes.place(index)
    }

    /// Brings the guest `index` closer, if the owner knows its page.
    pub(crate) fn prefetch(&self, index: u32) {
        self.nodes.prefetch(index);
    }

    /// The index of the owner's node that stands for the guest `index`; `None` if it has not arrived.
    pub(crate) fn twin(&self, index: u32) -> Option<u32> {
        self.nodes.get(index).map(|node| node.twin.get()).filter(|&twin| twin != 0)
    }

    /// A message of the guest `index` has come.
    pub(crate) fn meet(&mut self, guests: &Guests, index: u32) {
        if self.nodes.adopt(&guests.slab, index) {
            self.known += PAGE;
            self.idle_pages += 1;
            let page = page_of(index);
            if self.live_in.len() <= page {
                self.live_in.resize(page + 1, 0);
            }
        }
    }

    /// The guest `index` has arrived.
    pub(crate) fn arrive(&mut self, guests: &Guests, index: u32, twin: u32) {
        self.live += 1;
        self.arrived += 1;
        let live = &mut self.live_in[page_of(index)];
        *live += 1;
        if *live == 1 {
            self.idle_pages -= 1;
            self.unstow(guests, index >> PAGE_BITS);
        }
        self.nodes.node(index).twin.set(twin);
    }

    /// The timer of the guest `index` has ended.
    pub(crate) fn leave(&mut self, index: u32) {
        self.live -= 1;
        let live = &mut self.live_in[page_of(index)];
        *live -= 1;
        self.idle_pages += u32::from(*live == 0);
        self.nodes.node(index).twin.set(0);
    }

    /// The node of the guest `index` is free.
    pub(crate) fn free(&self, guests: &Guests, index: u32) {
        let node = self.nodes.node(index);
        debug_assert!(node.state.is_free());
        guests.give(0, index, |below| node.link.set(below));
    }

    /// Takes nodes out of use that are too many; gives at most a page back.
    #[cold]
    pub(crate) fn tidy(&mut self, guests: &Guests) {
        self.check();
        self.wanted =
            (self.live + mem::take(&mut self.arrived)).max(self.wanted - self.wanted.div_ceil(16));
        let kept = (GUESTS_KEPT + self.wanted).div_ceil(PAGE);
        if self.idle_pages > kept && self.whole.is_none() {
            self.look_through(guests, kept);
        }
        self.retire(guests);
        self.nodes.free_some();
    }

    /// Panics, where debug assertions are on, if the pages are not as they should be.
    fn check(&self) {
        debug_assert_eq!(
            self.idle_pages as usize + self.pages_in_use().count(),
            (self.known / PAGE) as usize
        );
        debug_assert!(
            self.pages_in_use().all(|page| !self.stowed.contains_key(&page)),
            "a node is out of reach"
        );
    }

    fn pages_in_use(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.live_in).filter(|&(_, &live)| live > 0).map(|(page, _)| page)
    }

    /// Looks at some nodes of the pool: those of idle pages are stowed, but for so many of the first pages.
    fn look_through(&mut self, guests: &Guests, kept: u32) {
        let pinned = pin();
        for _ in 0..GUESTS_STOWED {
            let Some(index) = guests.take_from(self.front, &pinned) else {
                self.front = 1 - self.front;
                break;
            };
            self.meet(guests, index);
            if index >> PAGE_BITS >= kept && self.live_in[page_of(index)] == 0 {
                self.stow(index);
            } else {
                let node = self.nodes.node(index);
                guests.give(1 - self.front, index, |below| node.link.set(below));
            }
            if self.whole.is_some() {
                break;
            }
        }
    }

    fn stow(&mut self, index: u32) {
        let page = index >> PAGE_BITS;
        let stow = self.stowed.entry(page).or_insert(Stow { first: 0, last: index, count: 0 });
        self.nodes.node(index).link.set(stow.first);
        stow.first = index + 1;
        stow.count += 1;
        if stow.count == PAGE {
            self.whole = Some(page);
        }
    }

    /// What is stowed of a page goes back to the pool.
    fn unstow(&mut self, guests: &Guests, page: u32) {
        let Some(Stow { first, last, .. }) = self.stowed.remove(&page) else { return };
        guests.give(0, first - 1, |below| self.nodes.node(last).link.set(below));
    }

    /// Gives the page back that is stowed as a whole, if there is one.
    fn retire(&mut self, guests: &Guests) {
        let Some(page) = self.whole else { return };
        if self.nodes.retire_page(&guests.slab, page << PAGE_BITS) {
            self.whole = None;
            self.stowed.remove(&page);
            self.known -= PAGE;
            self.idle_pages -= 1;
            // Relaxed: a hint, also to where holes are.
            guests.hint.fetch_min(page << PAGE_BITS, Ordering::Relaxed);
        }
    }
}

#[allow(clippy::cast_possible_truncation)] // The low bits are 1 + an index.
fn low(head: u64) -> u32 {
    (head & FIRST) as u32
}

fn first_of(head: u64) -> Option<u32> {
    low(head).checked_sub(1)
}

/// The head without its first node.
fn taken(head: u64, below: u32) -> u64 {
    ((head >> FIRST_BITS).wrapping_add(1) << FIRST_BITS) | u64::from(below)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{first_of, taken};

    /// Or who has seen one before takes it for the same.
    #[test]
    fn a_head_that_comes_back_has_another_count() {
        let heads = [1, 2, 1, 0, 1].iter().scan(0, |head, &below| {
            *head = taken(*head, below);
            Some(*head)
        });
        let heads: Vec<u64> = heads.collect();
        assert!(heads.iter().map(|&head| first_of(head)).eq([
            Some(0),
            Some(1),
            Some(0),
            None,
            Some(0)
        ]));
        assert!((1..heads.len()).all(|at| !heads[..at].contains(&heads[at])));
    }
}
