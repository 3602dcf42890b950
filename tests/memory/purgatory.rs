//! The memory of a purgatory: new operations reuse it, and the memory of a burst is freed.

use std::{cell::Cell, iter, rc::Rc, time::Duration};

use corewheel::{
    AddErrorReason, local_timer,
    purgatory::{Completion, DelayedOperation, OperationId, Purgatory, PurgatoryGroup},
};

use crate::{
    TICK, allocate_spare_pages, allocated_bytes, allocator_calls, free_garbage,
    lockstep::Lockstep,
    operation::{NeverCompletes, add_waiting},
    run_alone_in_virtual_time,
};

/// An operation that completes at an event if `is_met` is true and `ignores_events` is false.
struct Op {
    is_met: Rc<Cell<bool>>,
    ignores_events: bool,
    _payload: Option<Box<[u64; 8]>>,
}

impl DelayedOperation for Op {
    fn try_complete(&mut self) -> bool {
        self.is_met.get() && !self.ignores_events
    }

    fn on_complete(self, _: Completion) {}
}

/// In each round, a third of the operations are forced, a third complete by an event, and a third
/// expire. A round needs more pages of watches than a purgatory keeps as spares.
#[test]
fn equal_rounds_of_operations_allocate_nothing() {
    const MANY: u64 = 5_000;
    run_alone_in_virtual_time(|clock| {
        let (purgatory, is_met) = (Purgatory::new(), Rc::new(Cell::new(false)));
        let mut ids = Vec::with_capacity(5_000);
        let mut round = || {
            for number in 0..MANY {
                let (is_met, ignores_events) = (Rc::clone(&is_met), number % 3 == 2);
                let op = Op { is_met, ignores_events, _payload: None };
                ids.push(add_waiting(&purgatory, op, [number, MANY], 1));
            }
            assert!(ids.drain(..).step_by(3).all(|id| purgatory.force_complete(id)));
            is_met.set(true);
            assert_eq!(purgatory.check_and_complete(&MANY), 1_667);
            is_met.set(false);
            clock.advance(TICK * 2);
            assert_eq!((local_timer().turn().fired, Rc::strong_count(&is_met)), (1_666, 1));
            // The timer makes the announced sleep short, and a short sleep frees nothing.
            local_timer().add_local(TICK * 5, || ());
            drop(local_timer().prepare_sleep());
            clock.advance(TICK * 6);
            assert_eq!(local_timer().turn().fired, 1);
        };
        // These rounds exceed 64 turns, the interval at which a purgatory frees memory.
        (0..100).for_each(|_| round());
        let call_counts = allocator_calls(|| (0..100).for_each(|_| round()));
        assert_eq!(call_counts, (0, 0), "allocations and frees");
    });
}

/// Ends a burst of operations by an event or by timeouts. Asserts that after `free`, only the spare
/// pages are left.
fn assert_burst_memory_is_freed(operation_count: u64, by_event: bool, free: impl Fn() + Sync) {
    run_alone_in_virtual_time(|clock| {
        let (purgatory, is_met) = (Purgatory::new(), Rc::new(Cell::new(false)));
        allocate_spare_pages();
        let before = allocated_bytes();
        for number in 0..operation_count {
            let is_met = Rc::clone(&is_met);
            let op = Op { is_met, ignores_events: false, _payload: Some(Box::default()) };
            add_waiting(&purgatory, op, [number, operation_count], 5);
        }
        let burst_bytes = allocated_bytes() - before;
        is_met.set(by_event);
        purgatory.check_and_complete(&operation_count);
        clock.advance(TICK * 5);
        local_timer().turn();
        assert!(purgatory.is_empty());
        free();
        let left_bytes = allocated_bytes() - before;
        println!(
            "{} bytes held for each; {left_bytes} left",
            burst_bytes / i64::try_from(operation_count).expect("few")
        );
        assert!(left_bytes < 192 * 1024, "{left_bytes} bytes are left of {burst_bytes}");
    });
}

#[test]
fn memory_of_completed_operations_is_freed_by_turns() {
    let operation_count = if cfg!(debug_assertions) { 30_000 } else { 100_000 };
    // A turn frees only a limited part of the memory.
    let turns = || (0..operation_count / 30).for_each(|_| _ = local_timer().turn());
    assert_burst_memory_is_freed(operation_count, true, turns);
}

#[test]
fn memory_of_expired_operations_is_freed_before_a_sleep() {
    assert_burst_memory_is_freed(30_000, false, || drop(local_timer().prepare_sleep()));
}

/// The removal of many keys from the hash table takes several sleeps, so that no sleep begins late.
#[test]
fn memory_of_many_keys_is_freed_over_several_sleeps() {
    let sleeps = || {
        let is_short = || local_timer().prepare_sleep().timeout() == Some(Duration::from_secs(1));
        assert!(is_short());
        while is_short() {}
    };
    assert_burst_memory_is_freed(140_000, true, sleeps);
}

const BURST: u64 = 30_000;

/// Maximum number of bytes that one turn, or the end of one operation, frees: some pages of the
/// wheel, a page of each kind of record, and a part of the table of keys.
const FREED_AT_ONCE_MAX: i64 = 2 * 1024 * 1024;

fn add_burst(purgatory: &Purgatory<u64, Op>) -> Vec<OperationId> {
    let op = || Op { is_met: Rc::default(), ignores_events: true, _payload: None };
    (0..BURST)
        .map(|number| add_waiting(purgatory, op(), [number, BURST + number], 1_000_000))
        .collect()
}

#[test]
fn memory_of_completed_operations_is_freed_in_small_steps() {
    run_alone_in_virtual_time(|_| {
        let purgatory = Purgatory::new();
        allocate_spare_pages();
        let before = allocated_bytes();
        let ids = add_burst(&purgatory);
        let burst_bytes = allocated_bytes() - before;
        assert!(burst_bytes > 2 * FREED_AT_ONCE_MAX, "the burst is too small for this test");
        let (mut latest, mut freed_at_once) = (allocated_bytes(), 0);
        let ends = ids.into_iter().map(Some).chain(iter::repeat_n(None, 1_000));
        for end in ends {
            match end {
                Some(id) => assert!(purgatory.force_complete(id)),
                None => _ = local_timer().turn(),
            }
            let now = allocated_bytes();
            (latest, freed_at_once) = (now, freed_at_once.max(latest - now));
        }
        println!("{freed_at_once} bytes at once of {burst_bytes}");
        assert!(
            freed_at_once <= FREED_AT_ONCE_MAX,
            "{freed_at_once} bytes are freed at once of {burst_bytes}"
        );
        assert!(
            latest - before < 192 * 1024,
            "{} bytes are left of {burst_bytes}",
            latest - before
        );
    });
}

/// The waiting operation keeps a page of operations and a page of watches.
#[test]
fn one_waiting_operation_does_not_keep_a_burst_allocated() {
    for sleeps in [false, true] {
        run_alone_in_virtual_time(|_| {
            let purgatory = Purgatory::new();
            allocate_spare_pages();
            let before = allocated_bytes();
            let mut ids = add_burst(&purgatory);
            let one = ids.swap_remove(ids.len() / 2);
            assert!(ids.drain(..).all(|id| purgatory.force_complete(id)));
            drop(ids);
            if sleeps {
                drop(local_timer().prepare_sleep());
            } else {
                (0..1_000).for_each(|_| _ = local_timer().turn());
            }
            let left_bytes = allocated_bytes() - before;
            println!("{left_bytes} bytes left");
            assert!(left_bytes < 2 * 192 * 1024 + 512 * 1024, "{left_bytes} bytes are left");
            assert!(purgatory.force_complete(one));
        });
    }
}

#[test]
fn a_core_frees_the_ended_watches_of_other_cores() {
    run_alone_in_virtual_time(|_| {
        let cores = Lockstep::<Option<Purgatory<u64, Op>>>::start(2);
        let group = PurgatoryGroup::partitioned_by(|_: &u64| 1);
        for core in 0..2 {
            let (group, shards) = (group.clone(), cores.shards.clone());
            cores.run_on(core, move |purgatory| *purgatory = Some(group.join(core, &shards)));
        }
        let turn_until_caught_up =
            || while [0, 1].map(|core| cores.turn(core).behind).contains(&true) {};
        cores
            .run_on(0, |purgatory| _ = add_burst(purgatory.as_ref().expect("the core has joined")));
        turn_until_caught_up();
        cores.run_on(0, |purgatory| drop(purgatory.as_ref().expect("the core has joined").drain()));
        turn_until_caught_up();
        (0..1_000).for_each(|_| _ = cores.turn(1));
        let left_bytes = cores.run_on(1, |purgatory| {
            assert_eq!(purgatory.as_ref().expect("the core has joined").counts().watches, 0);
            let before = allocated_bytes();
            *purgatory = None;
            before - allocated_bytes()
        });
        println!("{left_bytes} bytes left");
        assert!(left_bytes < 192 * 1024, "{left_bytes} bytes were left");
    });
    free_garbage();
}

/// Two cores send alternately, and each message carries one watch. The limit includes the operation
/// on the sending core. When the key's core ends, each reply message refuses up to 64 watches.
#[test]
fn watches_sent_to_a_core_before_it_joins_take_little_memory() {
    run_alone_in_virtual_time(|_| {
        let mut cores = Lockstep::<Option<Purgatory<u64, NeverCompletes>>>::start(3);
        let group = PurgatoryGroup::partitioned_by(|_: &u64| 2);
        for core in 0..2 {
            let (group, shards) = (group.clone(), cores.shards.clone());
            cores.run_on(core, move |purgatory| *purgatory = Some(group.join(core, &shards)));
        }
        let before = allocated_bytes();
        for (key, sender) in (0..10_000).zip([0, 1].into_iter().cycle()) {
            cores.run_on(sender, move |purgatory| {
                let purgatory = purgatory.as_ref().expect("the core has joined");
                add_waiting(purgatory, NeverCompletes, [key], 1_000_000);
            });
            cores.turn(sender);
            cores.turn(2);
        }
        let bytes_per_watch = (allocated_bytes() - before) / 10_000;
        println!("{bytes_per_watch} bytes per watch");
        assert!(bytes_per_watch < 250, "{bytes_per_watch} bytes per watch");
        cores.end(2);
        let turns = (0..100).flat_map(|_| [0, 1].map(|core| cores.turn(core)));
        let replies: usize = turns.map(|turn| turn.fired).sum();
        assert!((157..=160).contains(&replies), "{replies} replies");
    });
    free_garbage();
}

/// Completes a burst of operations by an event so deeply nested that the calls of `on_complete` are
/// deferred.
#[test]
fn memory_of_deferred_completions_is_freed() {
    struct Chained(Rc<Cell<bool>>, Box<dyn FnOnce()>);
    impl DelayedOperation for Chained {
        fn try_complete(&mut self) -> bool {
            self.0.get()
        }
        fn on_complete(self, _: Completion) {
            (self.1)();
        }
    }
    run_alone_in_virtual_time(|_| {
        let (purgatory, is_met) = (Purgatory::<u64, Chained>::new(), Rc::new(Cell::new(false)));
        let add = |key, after: Box<dyn FnOnce()>| {
            add_waiting(&purgatory, Chained(Rc::clone(&is_met), after), [key], 5);
        };
        assert_memory_is_freed(|| {
            is_met.set(false);
            (0..BURST).for_each(|_| add(0, Box::new(|| ())));
            for key in 1..=16 {
                let next = purgatory.clone();
                add(key, Box::new(move || _ = next.check_and_complete(&(key - 1))));
            }
            is_met.set(true);
            purgatory.check_and_complete(&16);
            assert!(purgatory.is_empty());
        });
    });
}

#[test]
fn memory_of_dropped_purgatories_is_freed() {
    run_alone_in_virtual_time(|_| {
        let is_met = Rc::new(Cell::new(false));
        let with_an_operation = || {
            let (purgatory, is_met) = (Purgatory::new(), Rc::clone(&is_met));
            let op = Op { is_met, ignores_events: false, _payload: None };
            add_waiting(&purgatory, op, [1, 2], 5);
            purgatory
        };
        assert_memory_is_freed(|| {
            let purgatories: Vec<_> = iter::repeat_with(with_an_operation).take(10_000).collect();
            drop(purgatories);
        });
    });
}

#[test]
fn a_refused_add_after_a_drain_keeps_no_memory() {
    run_alone_in_virtual_time(|_| {
        drop(local_timer().drain());
        let purgatories = [(); 1_000].map(|()| Purgatory::new());
        let (allocations, frees) = allocator_calls(|| {
            for purgatory in &purgatories {
                let refused = purgatory.try_complete_else_watch(NeverCompletes, [1], TICK);
                assert_eq!(refused.expect_err("drained").reason(), AddErrorReason::ShutDown);
            }
        });
        // The loop may free the epoch garbage of an earlier test.
        assert!(allocations <= frees, "{allocations} allocations, {frees} frees");
    });
}

#[test]
fn memory_of_the_keys_of_one_operation_is_freed() {
    run_alone_in_virtual_time(|_| {
        let purgatory = Purgatory::<String, NeverCompletes>::new();
        assert_memory_is_freed(|| {
            add_waiting(&purgatory, NeverCompletes, (0..BURST).map(|key| key.to_string()), 5);
            assert_eq!(purgatory.drain().len(), 1);
        });
    });
}

/// Asserts that almost no memory of `burst` is left after a thousand turns and a sleep.
fn assert_memory_is_freed(burst: impl FnOnce()) {
    allocate_spare_pages();
    let before = allocated_bytes();
    burst();
    (0..1_000).for_each(|_| _ = local_timer().turn());
    drop(local_timer().prepare_sleep());
    let left_bytes = allocated_bytes() - before;
    assert!(left_bytes < 192 * 1024, "{left_bytes} bytes are left");
}
