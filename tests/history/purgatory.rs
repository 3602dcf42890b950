//! Kafka's bugs 31 to 34 in our own purgatory, on one core, where whatever comes in between comes
//! from the operation's own code: a turn in which it times out, a force, an event.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use corewheel::{
    Completion, DelayedOperation, ManualClock, OperationId, Outcome, Purgatory, local_timer,
};

use crate::{Counter, CountsDrop, common::TICK, on_a_core, turn_after};

type Waits = Purgatory<u32, Operation>;

/// The observations of a test about an operation.
#[derive(Clone, Default)]
struct Seen {
    is_met: Rc<Cell<bool>>,
    looks: Rc<Cell<u32>>,
    is_inside: Rc<Cell<bool>>,
    overlaps: Rc<Cell<u32>>,
    completed: Rc<RefCell<Vec<Completion>>>,
    id: Rc<Cell<Option<OperationId>>>,
    drops: Counter,
}

struct Operation {
    seen: Seen,
    /// Called after each look at the condition, before the answer.
    during: Box<dyn FnMut()>,
    after: Box<dyn FnMut()>,
    _held: CountsDrop,
}

impl Seen {
    fn operation(
        &self,
        during: impl FnMut() + 'static,
        after: impl FnMut() + 'static,
    ) -> Operation {
        let held = self.drops.on_drop();
        Operation {
            seen: self.clone(),
            during: Box::new(during),
            after: Box::new(after),
            _held: held,
        }
    }

    fn completed(&self) -> usize {
        self.completed.borrow().len()
    }
}

impl DelayedOperation for Operation {
    fn try_complete(&mut self) -> bool {
        let Seen { is_met, looks, is_inside, overlaps, .. } = &self.seen;
        looks.set(looks.get() + 1);
        overlaps.set(overlaps.get() + u32::from(is_inside.replace(true)));
        let was_met = is_met.get();
        (self.during)();
        self.seen.is_inside.set(false);
        was_met
    }

    fn on_complete(mut self, how: Completion) {
        self.seen.overlaps.set(self.seen.overlaps.get() + u32::from(self.seen.is_inside.get()));
        self.seen.completed.borrow_mut().push(how);
        (self.after)();
    }
}

fn wait_for(
    purgatory: &Waits,
    operation: Operation,
    keys: impl IntoIterator<Item = u32>,
) -> Option<OperationId> {
    match purgatory.try_complete_else_watch(operation, keys, TICK * 10).expect("there is room") {
        Outcome::Completed => None,
        Outcome::Waits(id) => Some(id),
    }
}

fn assert_nothing_is_left(purgatory: &Waits, keys: u32) {
    assert!(purgatory.is_empty() && local_timer().is_empty());
    assert!((0..keys).all(|key| purgatory.watched(&key) == 0), "{:?}", purgatory.counts());
}

/// What happens while an operation looks at its condition: any of a turn in which it times out, a
/// force, and an event.
fn interferes(
    purgatory: Waits,
    seen: &Seen,
    clock: &ManualClock,
    what: u32,
) -> impl FnMut() + 'static {
    let (looks, id, clock) = (Rc::clone(&seen.looks), Rc::clone(&seen.id), clock.clone());
    move || {
        if looks.get() == 2 {
            if what & 1 != 0 {
                clock.advance(TICK * 20);
                local_timer().turn();
            }
            if what & 2 != 0 {
                id.get().map(|id| purgatory.force_complete(id));
            }
            if what & 4 != 0 {
                purgatory.check_and_complete(&0);
            }
        }
    }
}

#[test]
fn kafka_bug_31_an_operation_was_completed_twice() {
    for what in 0..8 {
        for is_met in [false, true] {
            on_a_core(|clock| {
                let (purgatory, seen) = (Waits::new(), Seen::default());
                let operation =
                    seen.operation(interferes(purgatory.clone(), &seen, clock, what), || ());
                seen.id.set(wait_for(&purgatory, operation, [0, 1]));
                seen.is_met.set(is_met);
                purgatory.check_and_complete(&0);
                turn_after(clock, 50);
                assert_eq!(
                    (seen.completed(), seen.overlaps.get(), seen.drops.get()),
                    (1, 0, 1),
                    "{what}, {is_met}"
                );
                assert_nothing_is_left(&purgatory, 2);
                let counts = purgatory.counts();
                assert_eq!(
                    (counts.added, counts.by_condition + counts.forced + counts.expired),
                    (1, 1)
                );
            });
        }
    }
}

/// The event comes after the look at the condition and before the answer, which is no: at the look
/// when it is added, or at a later one.
#[test]
fn kafka_bug_32_an_event_during_the_look_was_missed() {
    for at_look in 1..4 {
        on_a_core(|clock| {
            let (purgatory, seen) = (Waits::new(), Seen::default());
            let (events, looks, is_met) =
                (purgatory.clone(), Rc::clone(&seen.looks), Rc::clone(&seen.is_met));
            let operation = seen.operation(
                move || {
                    if looks.get() == at_look {
                        is_met.set(true);
                        events.check_and_complete(&0);
                    }
                },
                || (),
            );
            wait_for(&purgatory, operation, [0]);
            while seen.looks.get() < at_look {
                purgatory.check_and_complete(&0);
            }
            assert_eq!(
                seen.completed.borrow()[..],
                [Completion::Condition],
                "without another event"
            );
            assert_nothing_is_left(&purgatory, 1);
            turn_after(clock, 50);
            assert_eq!((seen.completed(), seen.drops.get()), (1, 1));
        });
    }
}

/// Each operation that completes causes the event that the next one waits for, round in a circle,
/// and adds another one.
#[test]
fn kafka_bug_33_completing_from_within_a_completion_stood_still() {
    on_a_core(|clock| {
        let (purgatory, seen) = (Waits::new(), Seen::default());
        for key in 0..10 {
            let (events, own) = (purgatory.clone(), seen.clone());
            let after = move || {
                events.check_and_complete(&((key + 1) % 10));
                own.is_met.set(false);
                wait_for(&events, own.operation(|| (), || ()), [key, key + 10]);
                own.is_met.set(true);
            };
            wait_for(&purgatory, seen.operation(|| (), after), [key]);
        }
        seen.is_met.set(true);
        purgatory.check_and_complete(&0);
        turn_after(clock, 50);
        assert_eq!((seen.completed(), seen.drops.get(), seen.overlaps.get()), (20, 20, 0));
        assert_nothing_is_left(&purgatory, 20);
    });
}

/// The condition becomes true, and the first key has an event, while the iterator of the keys runs.
#[test]
fn kafka_bug_34_an_operation_completed_between_two_keys_stayed_watched() {
    for met_at in 0..6 {
        on_a_core(|clock| {
            let (purgatory, seen) = (Waits::new(), Seen::default());
            let (events, is_met) = (purgatory.clone(), Rc::clone(&seen.is_met));
            let keys = (0..6).inspect(move |&key| {
                if key == met_at {
                    is_met.set(true);
                    events.check_and_complete(&0);
                }
            });
            wait_for(&purgatory, seen.operation(|| (), || ()), keys);
            purgatory.check_and_complete(&0);
            assert_eq!((seen.completed(), seen.drops.get()), (1, 1));
            assert_nothing_is_left(&purgatory, 6);
            turn_after(clock, 50);
            assert_eq!(seen.completed.borrow()[..], [Completion::Condition]);
        });
    }
}
