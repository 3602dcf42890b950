use super::*;
use crate::{
    reclaim::pin,
    state::{Cancel, Collected, Freed, Kind},
};

/// A timer's life in the node `index`.
fn live_and_end(slab: &Slab, own: &mut OwnNodes, index: u32, generation: u64) {
    own.node_for_new(slab, index).state.arm(generation, Kind::Shared);
    assert_eq!(own.node(index).state.cancel_own(generation), Ok(Freed::Now));
}

fn is_there(slab: &Slab, index: u32) -> bool {
    slab.with(index, &pin(), |_| ()).is_some()
}

fn cancel(slab: &Slab, index: u32, generation: u64) -> Option<Cancel> {
    slab.with(index, &pin(), |place| place.node.state.cancel(generation).0)
}

#[test]
fn a_node_has_sixteen_bytes_and_a_page_little_else() {
    assert_eq!(size_of::<Node>(), 16);
    // On lines of its own.
    assert_eq!(align_of::<Page<()>>(), 128);
    assert_eq!(size_of::<Page<()>>(), ((16 + 8_usize) << PAGE_BITS).next_multiple_of(128));
    assert_eq!(size_of::<Stand<()>>(), size_of::<usize>());
}

#[test]
fn every_index_has_its_own_node_in_both_views() {
    let (slab, mut own) = (Slab::default(), OwnNodes::default());
    for index in 1..=INDEX_MAX {
        assert_eq!(is_there(&slab, index), index % 2 == 1 && index > 1, "{index}");
        own.node_for_new(&slab, index).state.arm(u64::from(index), Kind::Shared);
    }
    for index in 1..=INDEX_MAX {
        assert!(own.node(index).state.is_pending(u64::from(index)));
        let seen = slab.with(index, &pin(), |place| std::ptr::eq(place.node, own.node(index)));
        assert_eq!(seen, Some(true));
    }
}

#[test]
fn an_index_beyond_all_pages_has_no_node() {
    let (slab, mut own) = (Slab::default(), OwnNodes::default());
    own.grow_to(&slab, INDEX_MAX);
    assert!(is_there(&slab, INDEX_MAX));
    for index in [INDEX_MAX + 1, u32::MAX] {
        assert!(!is_there(&slab, index));
        assert!(own.get(index).is_none());
    }
}

#[test]
fn growing_fills_the_gaps_and_leaves_the_rest() {
    let (slab, mut own) = (Slab::default(), OwnNodes::default());
    own.node_for_new(&slab, 5).state.arm(1, Kind::Shared);
    assert!(own.get(3).is_none());
    own.grow_to(&slab, 8);
    assert!((0..=9).all(|index| own.get(index).is_some() && is_there(&slab, index)));
    assert!(own.get(10).is_none());
    assert!(own.node(5).state.is_pending(1));
}

#[test]
fn a_retired_page_is_gone_from_both_views_and_its_neighbours_stay() {
    let (slab, mut own) = (Slab::default(), OwnNodes::default());
    own.grow_to(&slab, 5);
    live_and_end(&slab, &mut own, 2, 1);
    assert!(own.retire_page(&slab, 2));
    for index in 0..6 {
        assert_eq!(own.get(index).is_some(), index / 2 != 1);
        assert_eq!(is_there(&slab, index), index / 2 != 1);
    }
    assert!(!own.retire_page(&slab, 2), "it is gone already");
    assert!(!own.retire_page(&slab, INDEX_MAX), "it was never there");
}

#[test]
fn a_stale_handle_finds_nothing_in_the_new_page_of_its_number() {
    let (slab, mut own) = (Slab::default(), OwnNodes::default());
    live_and_end(&slab, &mut own, 2, 7);
    assert_eq!(cancel(&slab, 2, 7), Some(Cancel::Ended));
    assert!(own.retire_page(&slab, 2));
    assert_eq!(cancel(&slab, 2, 7), None);
    own.node_for_new(&slab, 3);
    assert_eq!(cancel(&slab, 2, 7), Some(Cancel::Ended));
    own.node_for_new(&slab, 2).state.arm(8, Kind::Shared);
    assert_eq!(cancel(&slab, 2, 7), Some(Cancel::Ended));
    assert_eq!(cancel(&slab, 2, 8), Some(Cancel::Cancelled));
}

#[test]
fn who_looks_keeps_the_page() {
    let (slab, mut own) = (Slab::default(), OwnNodes::default());
    live_and_end(&slab, &mut own, 2, 7);
    let pinned = pin();
    let answer = slab.with(2, &pinned, |Place { node, .. }| {
        assert!(own.retire_page(&slab, 2));
        own.node_for_new(&slab, 2).state.arm(8, Kind::Shared);
        for _ in 0..100 {
            own.free_some();
        }
        assert_eq!(own.retired.len(), 1);
        node.state.cancel(7).0
    });
    assert_eq!(answer, Some(Cancel::Ended));
    assert!(own.node(2).state.is_pending(8));
}

/// A canceller that stalls while it is pinned costs at most so many pages.
#[test]
fn what_waits_for_a_stranger_is_bounded_and_goes_afterwards() {
    let (slab, mut own) = (Slab::default(), OwnNodes::default());
    let pinned = pin();
    for generation in 1..=100 {
        live_and_end(&slab, &mut own, 2, generation);
        let _ = own.retire_page(&slab, 2);
    }
    assert_eq!(own.retired.len(), RETIRED_MAX);
    assert!(own.get(2).is_some(), "the last one had to stay");
    drop(pinned);
    // Other tests pin now and then.
    assert!((0..100_000).any(|_| {
        own.free_some();
        own.retired.len() == 0
    }));
    assert!(own.retire_page(&slab, 2));
}

/// Threads with stale handles, and with handles of timers that live, while pages come and go.
#[test]
fn strangers_may_ask_at_any_time() {
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    let rounds = if cfg!(miri) { 30 } else { 3_000 };
    let (slab, mut own) = (Slab::default(), OwnNodes::default());
    let live = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let strangers = [(); 2].map(|()| {
            scope.spawn(|| {
                let mut won = 0;
                loop {
                    let generation = live.load(SeqCst);
                    if generation == u64::MAX {
                        return won;
                    }
                    let (old, now) = (generation.saturating_sub(1), cancel(&slab, 2, generation));
                    assert!(matches!(cancel(&slab, 2, old), None | Some(Cancel::Ended)));
                    won += u64::from(now == Some(Cancel::Cancelled));
                }
            })
        });
        let mut lost = 0;
        for generation in 1..=rounds {
            own.node_for_new(&slab, 2).state.arm(generation, Kind::Shared);
            live.store(generation, SeqCst);
            if own.node(2).state.cancel_own(generation) != Ok(Freed::Now) {
                assert_eq!(own.node(2).state.collect(), Collected::Cancelled);
                lost += 1;
            }
            let _ = own.retire_page(&slab, 2);
        }
        live.store(u64::MAX, SeqCst);
        assert_eq!(strangers.map(|stranger| stranger.join().unwrap()).iter().sum::<u64>(), lost);
    });
}
