//! Bugs 31 to 34 of `doc/history.md`, found in Kafka, on one core. The interfering timeout, forced
//! completion or event comes from the code of an operation or its keys.

use std::{cell::Cell, rc::Rc, sync::Arc};

use corewheel::{
    local_timer,
    purgatory::{Completion, Purgatory},
};

use crate::support::{Op, OpRecord, TICK, add_waiting, in_checked_virtual_time, turn_after};

type OpPurgatory = Purgatory<u32, Op>;

/// Asserts that `ends` operations have ended, without remaining watches or timers.
fn assert_all_ended(own: &OpPurgatory, seen: &Arc<OpRecord>, ends: usize, keys: u32) {
    assert_eq!((seen.ended().len(), Arc::strong_count(seen)), (ends, 1));
    assert!(own.is_empty() && local_timer().is_empty());
    assert!((0..keys).all(|key| own.watch_count(&key) == 0), "{:?}", own.counts());
}

/// The second call of `try_complete` causes any combination of a timeout, a forced completion and
/// an event.
#[test]
fn kafka_bug_31_an_operation_completes_once() {
    for (what, is_met) in (0..8).flat_map(|what| [(what, false), (what, true)]) {
        in_checked_virtual_time(|clock| {
            let (own, seen, id) = (OpPurgatory::new(), OpRecord::new(), Rc::new(Cell::new(None)));
            let (purgatory, checks, named) = (own.clone(), Arc::downgrade(&seen), Rc::clone(&id));
            let time = clock.clone();
            let during = move || {
                if checks.upgrade().is_some_and(|seen| seen.checks() == 2) {
                    if what & 1 != 0 {
                        turn_after(&time, 20);
                    }
                    if what & 2 != 0 {
                        named.get().map(|id| purgatory.force_complete(id));
                    }
                    if what & 4 != 0 {
                        purgatory.check_and_complete(&0);
                    }
                }
            };
            id.set(Some(add_waiting(&own, seen.op_with(during, || ()), [0, 1], 10)));
            seen.set_to(is_met);
            own.check_and_complete(&0);
            turn_after(clock, 50);
            let counts = own.counts();
            let ended = counts.by_condition + counts.forced + counts.expired;
            assert_eq!((counts.added, ended), (1, 1), "{what}, {is_met}");
            assert_all_ended(&own, &seen, 1, 2);
        });
    }
}

/// The event occurs inside the first, second or third call of `try_complete`, which returns false.
#[test]
fn kafka_bug_32_an_event_during_a_check_is_not_missed() {
    for at_check in 1..4 {
        in_checked_virtual_time(|clock| {
            let (own, seen) = (OpPurgatory::new(), OpRecord::new());
            let (events, own_seen) = (own.clone(), Arc::downgrade(&seen));
            let during = move || {
                let seen = own_seen.upgrade().expect("a live operation");
                if seen.checks() == at_check {
                    seen.set();
                    events.check_and_complete(&0);
                }
            };
            let added = own.try_complete_else_watch(seen.op_with(during, || ()), [0], TICK * 10);
            assert!(added.is_ok());
            while seen.checks() < at_check {
                own.check_and_complete(&0);
            }
            assert_eq!(seen.ended(), [Completion::Condition], "without another event");
            assert_all_ended(&own, &seen, 1, 1);
            turn_after(clock, 50);
            assert_all_ended(&own, &seen, 1, 1);
        });
    }
}

/// The operations form a cycle: each completion causes the next operation's event, and adds another
/// operation.
#[test]
fn kafka_bug_33_completions_may_complete_other_operations() {
    in_checked_virtual_time(|clock| {
        let (own, seen) = (OpPurgatory::new(), OpRecord::new());
        for key in 0..10 {
            let (events, next) = (own.clone(), Arc::clone(&seen));
            let after = move || {
                events.check_and_complete(&((key + 1) % 10));
                next.set_to(false);
                add_waiting(&events, next.op(), [key, key + 10], 10);
                next.set();
            };
            add_waiting(&own, seen.op_with(|| (), after), [key], 10);
        }
        seen.set();
        own.check_and_complete(&0);
        turn_after(clock, 50);
        assert_all_ended(&own, &seen, 20, 20);
    });
}

/// The iterator of the keys makes the condition true and causes an event on the first key.
#[test]
fn kafka_bug_34_completion_during_an_add_leaves_no_watch() {
    for met_at in 0..6 {
        in_checked_virtual_time(|clock| {
            let (own, seen) = (OpPurgatory::new(), OpRecord::new());
            let (events, condition) = (own.clone(), Arc::clone(&seen));
            let keys = (0..6).inspect(move |&key| {
                if key == met_at {
                    condition.set();
                    events.check_and_complete(&0);
                }
            });
            assert!(own.try_complete_else_watch(seen.op(), keys, TICK * 10).is_ok());
            own.check_and_complete(&0);
            assert_all_ended(&own, &seen, 1, 6);
            turn_after(clock, 50);
            assert_eq!(seen.ended(), [Completion::Condition]);
        });
    }
}
