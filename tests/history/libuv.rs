//! libuv's timers.

use std::{cell::RefCell, rc::Rc, time::Duration};

use corewheel::{Cancel, TimerHandle, local_timer};

use crate::{CANCELS, Drops, common::TICK, counter, on_a_core, turn_after};

/// #4304: a timer was stopped and its memory freed, while the queue of those about to run still led through it. Here
/// the first of a batch cancels all others, which frees what they have captured, and adds as many new ones, which
/// have their nodes; then the pass goes on.
#[test]
fn bug_39_the_queue_led_through_a_timer_that_was_stopped() {
    for (cancel, are_reused_at_once) in CANCELS.into_iter().zip([true, false]) {
        for timers in [2_usize, 3, 100, 600] {
            on_a_core(|clock| {
                let (drops, (runs, run)) = (Drops::default(), counter());
                let handles = Rc::new(RefCell::new(Vec::<TimerHandle>::new()));
                for id in 0..timers {
                    let (all, dropped, run) = (Rc::clone(&handles), drops.clone(), run.clone());
                    // Too large to be stored in place.
                    let captured = (drops.one(), [id; 20]);
                    let handle = local_timer().add(TICK, move || {
                        let captured = &captured;
                        assert_eq!(captured.1, [id; 20]);
                        let others: Vec<_> =
                            all.take().into_iter().filter(|other| other.is_pending()).collect();
                        assert!(others.iter().all(|other| cancel(*other) == Cancel::Cancelled));
                        assert!(
                            !are_reused_at_once || dropped.count() == timers - 1,
                            "freed at once"
                        );
                        (1..timers)
                            .for_each(|_| _ = local_timer().add(Duration::ZERO, run.clone()));
                    });
                    handles.borrow_mut().push(handle);
                }
                let turn = turn_after(clock, 1);
                assert_eq!((turn.fired, turn.live, runs.get()), (1, timers - 1, 0));
                assert_eq!(drops.count(), timers);
                assert_eq!(
                    (local_timer().turn().fired, runs.get() as usize),
                    (timers - 1, timers - 1)
                );
            });
        }
    }
}
