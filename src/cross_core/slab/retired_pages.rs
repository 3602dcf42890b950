//! Retracted pages that are not yet freed, because other threads may be reading them.

use std::{collections::VecDeque, ptr::NonNull};

use crossbeam_queue::SegQueue;

use super::page::{PageHeader, PagePtr};
use crate::{cross_core::reclaim, util::sync::Ordering};

/// Retracted pages of ended shards. Only a thread that ends a shard pushes pages to this queue or
/// pops them.
static ORPHANED_PAGES: SegQueue<PagePtr> = SegQueue::new();

/// Retracted pages of one owner, the oldest first. [`mark_reclaimable`] is scheduled for each page
/// as deferred work (`reclaim`).
#[derive(Debug, Default)]
pub(super) struct RetiredPages(pub(super) VecDeque<PagePtr>);

/// Marks a page as reclaimable. Deferred work (`reclaim`) calls this function after all threads
/// that could read the page have unpinned. Because a canceller may run this function, it frees no
/// memory.
pub(super) fn mark_reclaimable(page: NonNull<PageHeader>) {
    // SAFETY: a retracted page is freed only after it is marked as reclaimable.
    let header = unsafe { PagePtr(page).header() };
    header.use_after_free_check.forbid_reads();
    // Release: the unpinned threads' reads happen before the owner frees the page; pairs with
    // `is_reclaimable`.
    header.is_reclaimable.store(true, Ordering::Release);
}

impl RetiredPages {
    /// If there are pages, tries `epoch_advances` times to advance the epoch. Frees up to
    /// `max_pages` of the oldest pages, up to the first that is not reclaimable.
    pub(super) fn free_reclaimable(&mut self, epoch_advances: usize, max_pages: usize) {
        if !self.0.is_empty() {
            (0..epoch_advances).for_each(|_| reclaim::advance_epoch());
        }
        let reclaimable_count =
            self.0.iter().take(max_pages).take_while(|page| is_reclaimable(**page)).count();
        self.0.drain(..reclaimable_count).for_each(free_page);
    }
}

impl Drop for RetiredPages {
    fn drop(&mut self) {
        self.free_reclaimable(0, usize::MAX);
        self.0.drain(..).for_each(|page| ORPHANED_PAGES.push(page));
    }
}

/// Frees the reclaimable pages in `ORPHANED_PAGES`.
pub(crate) fn free_orphaned_pages() {
    for _ in 0..ORPHANED_PAGES.len() {
        // Another thread may pop pages at the same time, so the queue may be empty.
        let Some(page) = ORPHANED_PAGES.pop() else { break };
        if is_reclaimable(page) {
            free_page(page);
        } else {
            ORPHANED_PAGES.push(page);
        }
    }
}

fn is_reclaimable(page: PagePtr) -> bool {
    // SAFETY: a retired page is alive until this module frees it.
    let header = unsafe { page.header() };
    // Acquire: pairs with `mark_reclaimable`.
    header.is_reclaimable.load(Ordering::Acquire)
}

fn free_page(page: PagePtr) {
    // SAFETY: the page is retired and reclaimable, so no thread uses it. The page was just removed
    // from the only list that contained it, so no other call frees the page.
    unsafe { page.free() }
}
