//! Bugs 31 to 34 of `doc/history.md`, found in Kafka, on one core. The interfering timeout, forced
//! completion or event comes from the code of an operation or its keys.

use std::{cell::Cell, rc::Rc, sync::Arc};

use corewheel::{
    local_timer,
    purgatory::{Completion, Purgatory},
};

use crate::support::{Op, OpRecord, TICK, add_waiting, in_checked_virtual_time, turn_after};

type OpPurgatory = Purgatory<u32, Op>;

/// Asserts that `operation_count` operations have ended, without remaining watches or timers.
fn assert_all_ended(
    purgatory: &OpPurgatory,
    record: &Arc<OpRecord>,
    operation_count: usize,
    keys: u32,
) {
    assert_eq!((record.completions().len(), Arc::strong_count(record)), (operation_count, 1));
    assert!(purgatory.is_empty() && local_timer().is_empty());
    assert!((0..keys).all(|key| purgatory.watch_count(&key) == 0), "{:?}", purgatory.counts());
}

/// The second call of `try_complete` causes any combination of a timeout, a forced completion and
/// an event.
#[test]
fn kafka_bug_31_an_operation_completes_once() {
    for (what, is_met) in (0..8).flat_map(|what| [(what, false), (what, true)]) {
        in_checked_virtual_time(|clock| {
            let (purgatory, record, id) =
                (OpPurgatory::new(), OpRecord::new(), Rc::new(Cell::new(None)));
            let (purgatory_clone, weak_record, id_clone) =
                (purgatory.clone(), Arc::downgrade(&record), Rc::clone(&id));
            let time = clock.clone();
            let in_try_complete = move || {
                if weak_record.upgrade().is_some_and(|record| record.check_count() == 2) {
                    if what & 1 != 0 {
                        turn_after(&time, 20);
                    }
                    if what & 2 != 0 {
                        id_clone.get().map(|id| purgatory_clone.force_complete(id));
                    }
                    if what & 4 != 0 {
                        purgatory_clone.check_and_complete(&0);
                    }
                }
            };
            id.set(Some(add_waiting(
                &purgatory,
                record.op_with(in_try_complete, || ()),
                [0, 1],
                10,
            )));
            record.set_is_met(is_met);
            purgatory.check_and_complete(&0);
            turn_after(clock, 50);
            let counts = purgatory.counts();
            let ended = counts.by_condition + counts.forced + counts.expired;
            assert_eq!((counts.added, ended), (1, 1), "{what}, {is_met}");
            assert_all_ended(&purgatory, &record, 1, 2);
        });
    }
}

/// The event occurs inside the first, second or third call of `try_complete`, which returns false.
#[test]
fn kafka_bug_32_an_event_during_a_check_is_not_missed() {
    for at_check in 1..4 {
        in_checked_virtual_time(|clock| {
            let (purgatory, record) = (OpPurgatory::new(), OpRecord::new());
            let (events, weak_record) = (purgatory.clone(), Arc::downgrade(&record));
            let in_try_complete = move || {
                let record = weak_record.upgrade().expect("a live operation");
                if record.check_count() == at_check {
                    record.meet_condition();
                    events.check_and_complete(&0);
                }
            };
            let added = purgatory.try_complete_else_watch(
                record.op_with(in_try_complete, || ()),
                [0],
                TICK * 10,
            );
            assert!(added.is_ok());
            while record.check_count() < at_check {
                purgatory.check_and_complete(&0);
            }
            assert_eq!(record.completions(), [Completion::Condition], "without another event");
            assert_all_ended(&purgatory, &record, 1, 1);
            turn_after(clock, 50);
            assert_all_ended(&purgatory, &record, 1, 1);
        });
    }
}

/// The operations form a cycle: each completion causes the next operation's event, and adds another
/// operation.
#[test]
fn kafka_bug_33_completions_may_complete_other_operations() {
    in_checked_virtual_time(|clock| {
        let (purgatory, record) = (OpPurgatory::new(), OpRecord::new());
        for key in 0..10 {
            let (events, next) = (purgatory.clone(), Arc::clone(&record));
            let after_completion = move || {
                events.check_and_complete(&((key + 1) % 10));
                next.set_is_met(false);
                add_waiting(&events, next.op(), [key, key + 10], 10);
                next.meet_condition();
            };
            add_waiting(&purgatory, record.op_with(|| (), after_completion), [key], 10);
        }
        record.meet_condition();
        purgatory.check_and_complete(&0);
        turn_after(clock, 50);
        assert_all_ended(&purgatory, &record, 20, 20);
    });
}

/// The iterator of the keys makes the condition true and causes an event on the first key.
#[test]
fn kafka_bug_34_completion_during_an_add_leaves_no_watch() {
    for met_at in 0..6 {
        in_checked_virtual_time(|clock| {
            let (purgatory, record) = (OpPurgatory::new(), OpRecord::new());
            let (events, condition) = (purgatory.clone(), Arc::clone(&record));
            let keys = (0..6).inspect(move |&key| {
                if key == met_at {
                    condition.meet_condition();
                    events.check_and_complete(&0);
                }
            });
            assert!(purgatory.try_complete_else_watch(record.op(), keys, TICK * 10).is_ok());
            purgatory.check_and_complete(&0);
            assert_all_ended(&purgatory, &record, 1, 6);
            turn_after(clock, 50);
            assert_eq!(record.completions(), [Completion::Condition]);
        });
    }
}
