//! Pages of nodes, and pointers to pages of unknown payload type.

use std::{
    array,
    cell::{Cell, UnsafeCell},
    mem::MaybeUninit,
    ptr::NonNull,
};

use crate::{
    cross_core::{call_site::TimerOrigin, mailbox::MailboxLink, state::StateWord},
    util::{
        pages::{self, PAGE_LEN, as_u32},
        prefetch::prefetch,
        sync::{AtomicU64, Exclusive, IS_LOOM, Ordering, UnmodelledBool, UseAfterFreeCheck},
    },
    wheel::{Links, Location},
};

/// The part of a node that does not depend on the payload type.
///
/// A node's [`Exclusive`] values are here, in `Node`, and in the arrays of the page. Only one
/// thread at a time uses an `Exclusive` value: the owner, or the adder that has taken the node. But
/// a third thread, such as a canceller, can get the payload through the state word.
#[repr(C)]
pub(crate) struct NodeHeader {
    pub(crate) state: StateWord,
    /// The tick at which the timer is due. In a periodic remote timer that is not admitted yet
    /// (`slab`): the period in nanoseconds.
    pub(super) deadline: Exclusive<Cell<u64>>,
    pub(crate) mailbox_link: MailboxLink,
    pub(super) location: Exclusive<Cell<Location>>,
}

/// A node: 64 bytes if its payload is a callback.
#[repr(C, align(64))]
pub(super) struct Node<T> {
    pub(super) header: NodeHeader,
    /// The state word determines whether the payload is initialized.
    pub(super) payload: Exclusive<UnsafeCell<MaybeUninit<T>>>,
}

/// A *requested deadline* or *linked deadline* (`state`), in nanoseconds of the clock.
#[derive(Debug, Default)]
pub(crate) struct SharedDeadline(AtomicU64);

impl SharedDeadline {
    /// Stores the deadline. Only one thread at a time may store the deadline, and must then change
    /// the state word.
    #[inline]
    pub(crate) fn store_nanos(&self, nanos: u64) {
        // Relaxed: a later change of the state word publishes the deadline (S3 in `state`).
        self.0.store(nanos, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn load_nanos(&self) -> u64 {
        // Relaxed: the caller has acquired the state word (S3 in `state`), or has executed the
        // fence F2 (`parker`). A load during a reset returns the old or the new deadline.
        self.0.load(Ordering::Relaxed)
    }
}

/// The part of a page that does not depend on the payload type.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct PageHeader {
    /// The free nodes, if this is a remote page.
    pub(super) free_list: FreeList,
    /// The generation of the first timer in each node, if this is a remote page.
    pub(super) first_generation: AtomicU64,
    pub(super) use_after_free_check: UseAfterFreeCheck,
    /// True once the page has been retracted and only the owner can read it.
    pub(super) is_reclaimable: UnmodelledBool,
    /// The function that frees this page, for callers that do not know the payload type.
    free_page: unsafe fn(NonNull<PageHeader>),
    /// The deadlines that remote adds and resets have requested.
    pub(super) requested_deadlines: [SharedDeadline; PAGE_LEN],
    /// For a *postponable* timer (`state`): the deadline at which the owner has linked the timer.
    /// For a periodic timer: the time from which its periods count, which a remote add or reset
    /// stores.
    pub(super) linked_deadlines: [SharedDeadline; PAGE_LEN],
}

/// A page of nodes. Fields that are used rarely, or without the rest of the node, are in separate
/// arrays.
#[repr(C)]
pub(super) struct Page<T> {
    pub(super) header: PageHeader,
    pub(super) nodes: [Node<T>; PAGE_LEN],
    /// The neighbors of a timer in its slot of the wheel, or the next node in the owner's free
    /// list.
    pub(super) wheel_links: [Exclusive<Links>; PAGE_LEN],
    pub(super) timer_origins: [Exclusive<Cell<TimerOrigin>>; PAGE_LEN],
}

/// A pointer to a page of unknown payload type. The slab manages the page's lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PagePtr(pub(super) NonNull<PageHeader>);

// SAFETY: through the functions below, other threads use only a page's atomics: in its header, its
// nodes' headers, and its arrays of shared deadlines. Only the owner uses a page's other parts,
// except nodes that the state word or the free list has given to another thread (`slab`).
unsafe impl Send for PagePtr {}

impl<T> Page<T> {
    /// Allocates a page of idle nodes without payloads.
    pub(super) fn allocate_page() -> PagePtr {
        let page = pages::allocate_page::<Self>();
        if IS_LOOM {
            // SAFETY: the memory was allocated for the page, and no other thread can see it yet.
            unsafe { Self::write_all_fields(page) };
        } else {
            // In the zeroed page, all nodes are free, and all header fields except `free_page` are
            // valid.
            // SAFETY: `free_page` is a field of the new page.
            let free_page = unsafe { &raw mut (*page.as_ptr()).header.free_page };
            // SAFETY: the memory is valid for writes, and no other thread can see it yet.
            unsafe { free_page.write(Self::free) };
        }
        PagePtr(page.cast())
    }

    /// Writes all fields of a page, for loom models, where a zeroed atomic is not valid.
    ///
    /// # Safety
    ///
    /// The page is valid for writes.
    #[inline(never)]
    unsafe fn write_all_fields(page: NonNull<Self>) {
        let new_page = Self {
            header: PageHeader {
                free_list: FreeList::default(),
                first_generation: AtomicU64::new(0),
                use_after_free_check: UseAfterFreeCheck::default(),
                is_reclaimable: UnmodelledBool::default(),
                free_page: Self::free,
                requested_deadlines: array::from_fn(|_| SharedDeadline::default()),
                linked_deadlines: array::from_fn(|_| SharedDeadline::default()),
            },
            nodes: array::from_fn(|_| Node {
                header: NodeHeader {
                    state: StateWord::default(),
                    deadline: Exclusive::new(Cell::new(0)),
                    mailbox_link: MailboxLink::default(),
                    location: Exclusive::new(Cell::new(Location::NEVER_LINKED)),
                },
                payload: Exclusive::new(UnsafeCell::new(MaybeUninit::uninit())),
            }),
            wheel_links: array::from_fn(|_| Exclusive::new(Links::default())),
            timer_origins: array::from_fn(|_| Exclusive::new(Cell::default())),
        };
        // SAFETY: guaranteed by the caller.
        unsafe { page.write(new_page) };
    }

    /// # Safety
    ///
    /// The page is a `Page<T>` that no thread uses any more, and no other call frees the page.
    unsafe fn free(page: NonNull<PageHeader>) {
        let page = page.cast::<Self>();
        if IS_LOOM {
            // SAFETY: the page is a `Page<T>` that no thread uses any more (caller).
            unsafe { page.drop_in_place() };
        }
        // SAFETY: the page was allocated by `allocate_page`, and is used no more (caller). Outside
        // loom models, no part of the page needs a drop.
        unsafe { pages::free_page(page) };
    }
}

impl PagePtr {
    /// # Safety
    ///
    /// The page is alive for `'p`.
    #[inline]
    pub(super) unsafe fn header<'p>(self) -> &'p PageHeader {
        // SAFETY: the page is alive (caller) and begins with its header, which is never borrowed
        // mutably.
        unsafe { self.0.as_ref() }
    }

    /// # Safety
    ///
    /// The page is a `Page<T>`, alive for `'p`.
    #[inline]
    pub(super) unsafe fn as_typed<'p, T>(self) -> &'p Page<T> {
        // SAFETY: guaranteed by the caller; a page is never borrowed mutably, and only its atomics
        // and cells change.
        unsafe { self.0.cast::<Page<T>>().as_ref() }
    }

    /// # Safety
    ///
    /// No thread uses the page any more, and no other call frees the page.
    pub(super) unsafe fn free(self) {
        // SAFETY: guaranteed by the caller.
        let free_page = unsafe { self.0.as_ref() }.free_page;
        // SAFETY: no thread uses the page any more (caller). `allocate_page` stored the function
        // that frees a page of this payload type.
        unsafe { free_page(self.0) };
    }
}

impl<T> Node<T> {
    /// Returns the address of the payload. The state word determines which thread may use the
    /// payload.
    #[inline]
    pub(super) fn payload(&self) -> NonNull<T> {
        // SAFETY: only the address is used here; a reference to an `UnsafeCell` reads nothing.
        let payload = unsafe { self.payload.get() };
        // SAFETY: a field of a node is not at address zero.
        unsafe { NonNull::new_unchecked(payload.get().cast()) }
    }
}

/// The free nodes of a remote page: a stack that is linked through the nodes' mailbox links.
///
/// The head has a tag, which each pop and `take_all_if_all_free` increment. So a pop that stalls
/// before its CAS of the head does not install a stale link (ABA).
///
/// A link is relative: zero means the next place in the page. So the nodes of a new page, which is
/// zeroed, are already linked. The link of the last free node has no meaning, because the head
/// counts the free nodes.
///
/// ```text
///  63                      32 31             16 15              0
/// +--------------------------+-----------------+-----------------+
/// |      tag (32 bits)       |   free count    | 1 + first place |     0: none
/// +--------------------------+-----------------+-----------------+
/// ```
///
/// G1: a push releases the nodes' links and all writes of the nodes' previous users. A pop acquires
/// the pushed links and writes, on which S2 in `state` relies. Each CAS of the head continues the
/// release sequences of earlier pushes, so a pop acquires those pushes too.
#[derive(Debug, Default)]
pub(super) struct FreeList(AtomicU64);

const _: () = assert!(PAGE_LEN < 1 << 16, "a place fits a head");

impl FreeList {
    /// Adds all nodes of a new page except the first.
    pub(super) fn fill_except_first(&self) {
        // Release (G1): publishes the first generation.
        self.0.store((PAGE_LEN as u64 - 1) << 16 | 2, Ordering::Release);
    }

    /// Takes the first free node. Returns the node's place, and the number of remaining free nodes.
    /// `link_of` returns the mailbox link of the node at a place, or of an arbitrary node if the
    /// place is outside the page. Prefetches the next free node, which the owner has usually
    /// written.
    pub(super) fn pop<'n>(
        &self,
        link_of: impl Fn(usize) -> &'n MailboxLink,
    ) -> Option<(usize, usize)> {
        // Acquire (G1): sees the links.
        let mut head = self.0.load(Ordering::Acquire);
        loop {
            let place = first_free_place_of(head)?;
            let free_count = free_count_of(head) - 1;
            let mut next_plus_one = 0;
            if free_count > 0 {
                // If the link is stale, the result is arbitrary, and the CAS fails.
                next_plus_one = link_of(place).get().wrapping_add(as_u32(place + 2)) & 0xFFFF;
                prefetch(link_of((next_plus_one as usize).wrapping_sub(1)));
            }
            // Adds one to the tag, and subtracts one from the count.
            let new_head =
                head.wrapping_add((1 << 32) - (1 << 16)) & !0xFFFF | u64::from(next_plus_one);
            // Both `Acquire` (G1): a successful CAS sees the writes of the node's previous user. A
            // failed CAS sees the links from the newer head.
            match self.0.compare_exchange_weak(head, new_head, Ordering::Acquire, Ordering::Acquire)
            {
                Ok(_) => return Some((place, free_count)),
                Err(newer_head) => head = newer_head,
            }
        }
    }

    /// Pushes a chain of `count` nodes. The first node is at `first_place` in the page, and the
    /// last node at `last_place`. `last_link` is the mailbox link of the last node. Returns the
    /// numbers of free nodes before and after the push.
    pub(super) fn push(
        &self,
        first_place: usize,
        (last_place, last_link): (usize, &MailboxLink),
        count: u32,
    ) -> (usize, usize) {
        // Relaxed: the CAS confirms the value.
        let mut head = self.0.load(Ordering::Relaxed);
        loop {
            last_link.set(relative_link(last_place, first_free_place_of(head).unwrap_or(0)));
            let count_after = free_count_of(head) + count as usize;
            let new_head = head >> 32 << 32 | (count_after as u64) << 16 | (first_place as u64 + 1);
            // Release (G1): publishes the links, and the writes of the nodes' previous users.
            // Relaxed: a failed CAS is retried.
            match self.0.compare_exchange_weak(head, new_head, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return (free_count_of(head), count_after),
                Err(newer_head) => head = newer_head,
            }
        }
    }

    /// If all nodes of the page are free, takes them all, so that the page can be retired, and
    /// returns true.
    pub(super) fn take_all_if_all_free(&self) -> bool {
        // Relaxed: the CAS confirms the value.
        let head = self.0.load(Ordering::Relaxed);
        let empty_head = (head >> 32).wrapping_add(1) << 32;
        // Acquire (G1): sees the writes of the nodes' previous users. Relaxed: a failed CAS's value
        // is unused.
        free_count_of(head) == PAGE_LEN
            && self
                .0
                .compare_exchange(head, empty_head, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    pub(super) fn has_free_nodes(&self) -> bool {
        // Relaxed: the caller's change of the room bit orders this load (R1 in `slab`).
        free_count_of(self.0.load(Ordering::Relaxed)) > 0
    }
}

/// Returns the link from the node at `from_place` to the node at `to_place`.
pub(super) fn relative_link(from_place: usize, to_place: usize) -> u32 {
    as_u32(to_place).wrapping_sub(as_u32(from_place + 1))
}

#[allow(clippy::cast_possible_truncation)] // Masked.
fn free_count_of(head: u64) -> usize {
    (head as u32 >> 16) as usize
}

#[allow(clippy::cast_possible_truncation)] // Masked.
fn first_free_place_of(head: u64) -> Option<usize> {
    (head as u32 as usize & 0xFFFF).checked_sub(1)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_recurring_free_list_head_has_a_new_tag() {
        let (head, links) = (FreeList::default(), [(); 2].map(|()| MailboxLink::default()));
        let link = |place: usize| &links[place % links.len()];
        head.fill_except_first();
        let mut seen = std::collections::HashSet::new();
        for _ in 0..10 {
            // Relaxed: the test has one thread.
            assert!(seen.insert(head.0.load(Ordering::Relaxed)));
            assert_eq!(head.pop(link), Some((1, 0)));
            assert_eq!(head.pop(link), None);
            assert_eq!(head.push(1, (1, &links[1]), 1), (0, 1));
        }
        assert!(!head.take_all_if_all_free());
        assert_eq!(head.push(0, (0, &links[0]), 1), (1, 2));
        assert!(head.take_all_if_all_free() && !head.has_free_nodes());
    }

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn a_node_fills_a_cache_line() {
        use crate::cross_core::callback::Callback;
        assert_eq!(size_of::<Node<Callback>>(), 64);
        let header = (48 + PAGE_LEN * (8 + 8)).next_multiple_of(128);
        let nodes = PAGE_LEN * (64 + 8 + size_of::<TimerOrigin>());
        assert_eq!(size_of::<Page<Callback>>(), (header + nodes).next_multiple_of(128));
        assert_eq!(align_of::<Page<Callback>>(), 128);
    }
}
