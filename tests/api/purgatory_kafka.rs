//! Kafka's bugs 31 to 34 in our own purgatory, on one core, where whatever comes in between comes
//! from the operation's own code: a turn in which it times out, a force, an event.

use std::{cell::Cell, rc::Rc, sync::Arc};

use corewheel::{
    local_timer,
    purgatory::{Completion, Purgatory},
};

use crate::support::{Op, Seen, TICK, on_a_core, turn_after, wait};

type Waits = Purgatory<u32, Op>;

/// Asserts that this number of operations has ended, and that nothing is left of them.
fn assert_over(own: &Waits, seen: &Arc<Seen>, ends: usize, keys: u32) {
    assert_eq!((seen.ended().len(), Arc::strong_count(seen)), (ends, 1));
    assert!(own.is_empty() && local_timer().is_empty());
    assert!((0..keys).all(|key| own.watched(&key) == 0), "{:?}", own.counts());
}

/// While an operation looks at its condition, any of these happens: a turn in which it times out, a
/// force, and an event.
#[test]
fn kafka_bug_31_an_operation_was_completed_twice() {
    for (what, is_met) in (0..8).flat_map(|what| [(what, false), (what, true)]) {
        on_a_core(|clock| {
            let (own, seen, id) = (Waits::new(), Seen::new(), Rc::new(Cell::new(None)));
            let (purgatory, looks, named) = (own.clone(), Arc::downgrade(&seen), Rc::clone(&id));
            let time = clock.clone();
            let during = move || {
                if looks.upgrade().is_some_and(|seen| seen.looks() == 2) {
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
            id.set(Some(wait(&own, seen.op_with(during, || ()), [0, 1], 10)));
            seen.set_to(is_met);
            own.check_and_complete(&0);
            turn_after(clock, 50);
            let counts = own.counts();
            let ended = counts.by_condition + counts.forced + counts.expired;
            assert_eq!((counts.added, ended), (1, 1), "{what}, {is_met}");
            assert_over(&own, &seen, 1, 2);
        });
    }
}

/// The event comes after the look at the condition and before the answer, which is no: at the look
/// when it is added, or at a later one.
#[test]
fn kafka_bug_32_an_event_during_the_look_was_missed() {
    for at_look in 1..4 {
        on_a_core(|clock| {
            let (own, seen) = (Waits::new(), Seen::new());
            let (events, own_seen) = (own.clone(), Arc::downgrade(&seen));
            let during = move || {
                let seen = own_seen.upgrade().expect("it looks");
                if seen.looks() == at_look {
                    seen.set();
                    events.check_and_complete(&0);
                }
            };
            let added = own.try_complete_else_watch(seen.op_with(during, || ()), [0], TICK * 10);
            assert!(added.is_ok());
            while seen.looks() < at_look {
                own.check_and_complete(&0);
            }
            assert_eq!(seen.ended(), [Completion::Condition], "without another event");
            assert_over(&own, &seen, 1, 1);
            turn_after(clock, 50);
            assert_over(&own, &seen, 1, 1);
        });
    }
}

/// Each operation that completes causes the event that the next one waits for, round in a circle,
/// and adds another one.
#[test]
fn kafka_bug_33_completing_from_within_a_completion_stood_still() {
    on_a_core(|clock| {
        let (own, seen) = (Waits::new(), Seen::new());
        for key in 0..10 {
            let (events, next) = (own.clone(), Arc::clone(&seen));
            let after = move || {
                events.check_and_complete(&((key + 1) % 10));
                next.set_to(false);
                wait(&events, next.op(), [key, key + 10], 10);
                next.set();
            };
            wait(&own, seen.op_with(|| (), after), [key], 10);
        }
        seen.set();
        own.check_and_complete(&0);
        turn_after(clock, 50);
        assert_over(&own, &seen, 20, 20);
    });
}

/// The condition becomes true, and the first key has an event, while the iterator of the keys runs.
#[test]
fn kafka_bug_34_an_operation_completed_between_two_keys_stayed_watched() {
    for met_at in 0..6 {
        on_a_core(|clock| {
            let (own, seen) = (Waits::new(), Seen::new());
            let (events, condition) = (own.clone(), Arc::clone(&seen));
            let keys = (0..6).inspect(move |&key| {
                if key == met_at {
                    condition.set();
                    events.check_and_complete(&0);
                }
            });
            assert!(own.try_complete_else_watch(seen.op(), keys, TICK * 10).is_ok());
            own.check_and_complete(&0);
            assert_over(&own, &seen, 1, 6);
            turn_after(clock, 50);
            assert_eq!(seen.ended(), [Completion::Condition]);
        });
    }
}
