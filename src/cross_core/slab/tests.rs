use std::{cell::Cell, rc::Rc};

use super::*;
use crate::{
    clock::tick::TimerSchedule,
    cross_core::{
        callback::{MoveIntoPlace, OneShotClosure},
        reclaim::{pin, tests::attempts},
        state::{Cancel, ConsumedMessage, FreeWhen, TimerKind},
    },
    limits::{REMOTE_GENERATION_BIT, RETIRED_PAGES_MAX},
    wheel::Storage,
};

fn add<T>(owner_slab: &mut OwnerSlab<T>, generation: u64, payload: T) -> u32 {
    let index = owner_slab.take_node().expect("there is a node");
    let timer_origin = TimerOrigin::new(CallSite::caller(), || 0);
    owner_slab.entry(index).arm(
        generation,
        TimerKind::Shared,
        MoveIntoPlace(payload),
        timer_origin,
    );
    index
}

/// Cancels a timer as its owner, and frees its node.
fn cancel_and_free(owner_slab: &mut OwnerSlab<u32>, index: u32, generation: u64) {
    assert_eq!(owner_slab.entry(index).state().cancel_by_owner(generation), Ok(FreeWhen::Now));
    assert_eq!(owner_slab.entry(index).take_payload(), 7);
    owner_slab.free_node(index, generation);
}

fn has_node(slab: &Slab, index: u32) -> bool {
    slab.node(index, &pin()).is_some()
}

fn cancel(slab: &Slab, index: u32, generation: u64) -> Option<Cancel> {
    slab.node(index, &pin()).map(|node| node.state.cancel_remote(generation).0)
}

fn trim_until<T>(owner_slab: &mut OwnerSlab<T>, mut done: impl FnMut(&mut OwnerSlab<T>) -> bool) {
    let is_done = attempts().any(|_| {
        owner_slab.trim_pages();
        done(owner_slab)
    });
    assert!(is_done);
}

#[test]
fn owner_and_slab_find_the_same_node_for_each_index() {
    let (slab, mut owner_slab) = Slab::new();
    let mut indices: Vec<u32> =
        (1..=INDEX_MAX).map(|number| add(&mut owner_slab, number.into(), 7)).collect();
    assert!(owner_slab.take_node().is_none(), "no index is left");
    for (&index, generation) in indices.iter().zip(1..) {
        assert!(owner_slab.entry(index).state().is_pending(generation));
        let seen = slab
            .node(index, &pin())
            .map(|node| std::ptr::eq(node.state, owner_slab.entry(index).state()));
        assert_eq!(seen, Some(true));
    }
    indices.sort_unstable();
    assert!(indices.into_iter().eq(1..=INDEX_MAX));
    for index in [INDEX_MAX + 1, u32::MAX] {
        assert!(!has_node(&slab, index));
    }
}

#[test]
fn payloads_of_any_type_are_returned_unchanged() {
    fn check_payloads<T: PartialEq + std::fmt::Debug + Clone>(payload: &T) {
        let (_slab, mut owner_slab) = Slab::new();
        let indices: Vec<u32> =
            (1..6).map(|generation| add(&mut owner_slab, generation, payload.clone())).collect();
        for (index, generation) in indices.into_iter().zip(1..) {
            assert_eq!(
                owner_slab.entry(index).state().cancel_by_owner(generation),
                Ok(FreeWhen::Now)
            );
            assert_eq!(&owner_slab.entry(index).take_payload(), payload);
            owner_slab.free_node(index, generation);
        }
    }

    #[repr(align(128))]
    #[derive(Clone, PartialEq, Debug)]
    struct Aligned(u8);

    let text = String::from("borrowed");
    check_payloads(&());
    check_payloads(&Aligned(3));
    check_payloads(&[5_u64; 128]);
    check_payloads(&text.as_str());
    let (counted, cell) = (Rc::new(Cell::new(1)), Cell::new(2));
    check_payloads(&counted);
    check_payloads(&&cell);
    assert_eq!(Rc::strong_count(&counted), 1);
}

#[test]
fn a_retired_page_has_no_nodes_until_it_is_replaced() {
    let (slab, mut owner_slab) = Slab::new();
    let indices: Vec<u32> = (1..20).map(|generation| add(&mut owner_slab, generation, 7)).collect();
    let peak_pages = owner_slab.page_count();
    for (&index, generation) in indices.iter().zip(1..) {
        cancel_and_free(&mut owner_slab, index, generation);
    }
    trim_until(&mut owner_slab, |owner_slab| owner_slab.page_count() == 2);
    assert!(peak_pages >= 10);
    let freed: Vec<u32> =
        indices.iter().copied().filter(|&index| !has_node(&slab, index)).collect();
    assert_eq!(freed.len(), indices.len() - 3, "two pages are left, and index 0 is unused");
    // A stale handle finds no node, or no live timer of its generation.
    assert!((1..20).zip(&indices).all(|(generation, &index)| {
        matches!(cancel(&slab, index, generation), None | Some(Cancel::Ended))
    }));
    let reused: Vec<u32> = (20..39).map(|generation| add(&mut owner_slab, generation, 7)).collect();
    for (generation, &index) in (1..20).zip(&indices) {
        assert_eq!(cancel(&slab, index, generation), Some(Cancel::Ended));
    }
    for (generation, index) in (20..).zip(reused) {
        assert_eq!(cancel(&slab, index, generation), Some(Cancel::Cancelled));
        assert_eq!(
            (
                owner_slab.entry(index).state().consume_message(),
                owner_slab.entry(index).take_payload()
            ),
            (ConsumedMessage::Cancelled { has_payload: true }, 7)
        );
        owner_slab.free_node(index, generation);
    }
}

#[test]
fn a_page_is_not_freed_while_a_thread_is_pinned() {
    let (slab, mut owner_slab) = Slab::new();
    let indices: Vec<u32> = (1..20).map(|generation| add(&mut owner_slab, generation, 7)).collect();
    let last = indices[18];
    let pinned = pin();
    let answer = slab.node(last, &pinned).map(|node| {
        for (&index, generation) in indices.iter().zip(1..) {
            cancel_and_free(&mut owner_slab, index, generation);
        }
        for _ in 0..1_000 {
            owner_slab.trim_pages();
        }
        assert!(
            owner_slab.retired_page_count() > 0
                && owner_slab.retired_page_count() <= RETIRED_PAGES_MAX
        );
        node.state.cancel_remote(19).0
    });
    assert_eq!(answer, Some(Cancel::Ended));
    drop(pinned);
    trim_until(&mut owner_slab, |owner_slab| {
        owner_slab.retired_page_count() == 0 && owner_slab.page_count() == 2
    });
}

/// Adds a timer as a remote thread, and adopts the node's page as the owner.
fn add_as_remote(slab: &Slab, owner_slab: &mut OwnerSlab<Callback>) -> (u32, u64) {
    let node = slab.take_remote_node(pin()).expect("there is a node");
    let index = node.index;
    let generation = node.arm(DUE, CallSite::caller(), OneShotClosure(|| ())).generation;
    owner_slab.adopt_page_of_message(index);
    assert!(owner_slab.entry(index).is_not_admitted());
    assert_eq!(owner_slab.entry(index).requested_deadline().load_nanos(), 5);
    (index, generation)
}

const DUE: TimerSchedule = TimerSchedule { due: 5, period: 0 };

#[test]
fn a_freed_remote_node_is_reused() {
    let (slab, mut owner_slab) = Slab::for_callbacks();
    let mut seen = std::collections::HashSet::new();
    for _ in 1..200 {
        let (index, generation) = add_as_remote(&slab, &mut owner_slab);
        seen.insert(index);
        owner_slab.entry(index).admit(0);
        assert!(!owner_slab.entry(index).is_not_admitted());
        assert_eq!(
            owner_slab.entry(index).state().consume_message(),
            ConsumedMessage::NewDeadline { is_periodic: false }
        );
        assert!(owner_slab.entry(index).state().cancel_by_owner(generation).is_ok());
        owner_slab.free_node(index, generation);
        owner_slab.return_freed_remote_nodes();
    }
    assert!(seen.len() <= 2, "{seen:?}");
    let other = Slab::new::<u64>().0;
    assert!(other.take_remote_node(pin()).is_none(), "its payloads are not callbacks");
}

/// Cancels a remote timer as its owner, and frees its node.
fn cancel_and_free_remote(owner_slab: &mut OwnerSlab<Callback>, (index, generation): (u32, u64)) {
    let state = owner_slab.entry(index).state();
    assert!(state.cancel_by_owner(generation).is_ok());
    assert_eq!(state.consume_message(), ConsumedMessage::AlreadyEnded);
    owner_slab.free_node(index, generation);
}

/// Cancels remote timers as their owner, and returns their nodes.
fn cancel_and_return(owner_slab: &mut OwnerSlab<Callback>, timers: Vec<(u32, u64)>) {
    for timer in timers {
        cancel_and_free_remote(owner_slab, timer);
    }
    owner_slab.return_freed_remote_nodes();
}

#[test]
fn a_node_of_a_new_remote_page_gets_a_new_generation() {
    let (slab, mut owner_slab) = Slab::for_callbacks();
    let mut last_generations = std::collections::HashMap::new();
    for _ in 0..10 {
        // Reuses one node, so that its generation exceeds the first generation.
        for timer_count in [1, 1, 1, 1, 19] {
            let timers: Vec<_> =
                (0..timer_count).map(|_| add_as_remote(&slab, &mut owner_slab)).collect();
            for &(index, generation) in &timers {
                let last = last_generations.insert(index, generation);
                assert!(last.is_none_or(|last| last < generation), "{last:?}, {generation}");
                assert!(
                    (generation & !REMOTE_GENERATION_BIT) < owner_slab.remote_generation_bound()
                );
            }
            cancel_and_return(&mut owner_slab, timers);
        }
        trim_until(&mut owner_slab, |owner_slab| owner_slab.page_count() <= 3);
        assert!(last_generations.keys().any(|&index| !has_node(&slab, index)));
    }
}

#[test]
fn a_stalled_adder_keeps_the_page_of_its_node() {
    let (slab, mut owner_slab) = Slab::for_callbacks();
    let stalled = slab.take_remote_node(pin()).expect("there is a node");
    let timers = (1..20).map(|_| add_as_remote(&slab, &mut owner_slab)).collect();
    cancel_and_return(&mut owner_slab, timers);
    for _ in 0..1_000 {
        owner_slab.trim_pages();
    }
    assert!(has_node(&slab, stalled.index));
    // The stalled adder is pinned, so no page is freed, and pages are retired only up to the limit.
    assert_eq!(owner_slab.retired_page_count(), RETIRED_PAGES_MAX);
    assert!(stalled.arm(DUE, CallSite::caller(), OneShotClosure(|| ())).undo_arm().is_some());
}

#[test]
fn concurrent_adders_never_take_the_same_node() {
    use std::sync::{Mutex, mpsc};

    let (slab, mut owner_slab) = Slab::for_callbacks();
    let used = Mutex::new(std::collections::HashSet::new());
    let rounds = if cfg!(miri) { 20 } else { 3_000 };
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        for _ in 0..2 {
            let (slab, used, sender) = (&slab, &used, sender.clone());
            scope.spawn(move || {
                for _ in 0..rounds {
                    let Some(node) = slab.take_remote_node(pin()) else {
                        std::thread::yield_now();
                        continue;
                    };
                    assert!(used.lock().unwrap().insert(node.index), "the node is in use");
                    let armed = node.arm(DUE, CallSite::caller(), OneShotClosure(|| ()));
                    sender.send((armed.node.index, armed.generation)).unwrap();
                }
            });
        }
        drop(sender);
        for (index, generation) in receiver {
            owner_slab.adopt_page_of_message(index);
            assert!(used.lock().unwrap().remove(&index));
            cancel_and_free_remote(&mut owner_slab, (index, generation));
            if generation % 3 == 0 {
                owner_slab.return_freed_remote_nodes();
            }
            owner_slab.trim_pages();
        }
    });
}

#[test]
fn remote_cancels_end_only_their_timer_while_pages_are_retired() {
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    let rounds = if cfg!(miri) { 30 } else { 3_000 };
    let (slab, mut owner_slab) = Slab::new();
    let live = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let cancellers = [(); 2].map(|()| {
            scope.spawn(|| {
                let mut cancels = 0;
                loop {
                    let now = live.load(SeqCst);
                    if now == u64::MAX {
                        return cancels;
                    }
                    let (index, generation) = ((now >> 32) as u32, now & 0xFFFF_FFFF);
                    let answer = cancel(&slab, index, generation);
                    let stale_answer = cancel(&slab, index, generation.saturating_sub(1));
                    assert!(matches!(stale_answer, None | Some(Cancel::Ended)));
                    cancels += u64::from(answer == Some(Cancel::Cancelled));
                }
            })
        });
        let mut remote_cancels = 0;
        // Adds several timers, so that freeing these timers retires pages.
        let add_several = |owner_slab: &mut OwnerSlab<u32>| -> Vec<u32> {
            (0..9).map(|extra| add(owner_slab, (1 << 40) + extra, 7)).collect()
        };
        for generation in 1..=rounds {
            let extra_indices = add_several(&mut owner_slab);
            let index = add(&mut owner_slab, generation, 7);
            live.store(u64::from(index) << 32 | generation, SeqCst);
            if owner_slab.entry(index).state().cancel_by_owner(generation).is_err() {
                assert_eq!(
                    owner_slab.entry(index).state().consume_message(),
                    ConsumedMessage::Cancelled { has_payload: true }
                );
                remote_cancels += 1;
            }
            owner_slab.free_node(index, generation);
            for (index, extra) in extra_indices.into_iter().zip(0..) {
                cancel_and_free(&mut owner_slab, index, (1 << 40) + extra);
            }
            for _ in 0..9 {
                owner_slab.trim_pages();
            }
        }
        live.store(u64::MAX, SeqCst);
        assert_eq!(
            cancellers.map(|canceller| canceller.join().unwrap()).iter().sum::<u64>(),
            remote_cancels
        );
    });
}
