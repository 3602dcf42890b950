//! Seastar's `timer_set`.

use std::{cell::RefCell, rc::Rc};

use corewheel::{Cancel, TimerHandle, Wheel, local_timer};

use crate::{HOUR, common::TICK, counter, never, on_a_core, turn_after};

/// #2318, #3013: after the earliest timer had been cancelled in a periodic callback, the next timeout was still that
/// of the timer that was gone, and the clock was not set for those that came later. Here each of so many runs cancels
/// the earliest of the others, and the last run cancels its own timer, too.
fn the_earliest_are_cancelled_in_callbacks(runs: u32) {
    on_a_core(|clock| {
        let handles: Rc<RefCell<Vec<TimerHandle>>> = Rc::default();
        let (all, (ran, run)) = (Rc::clone(&handles), counter());
        let periodic = local_timer().add_periodic(TICK, move || {
            run();
            assert_eq!(all.borrow_mut().remove(1).cancel(), Cancel::Cancelled);
            if ran.get() == runs {
                assert_eq!(all.borrow()[0].cancel(), Cancel::Running);
            }
        });
        handles.borrow_mut().push(periodic);
        let delays = (1..=runs + 2).map(|place| TICK * 50 * place);
        handles.borrow_mut().extend(delays.map(|delay| local_timer().add(delay, never)));
        for ran in 1..=runs {
            assert_eq!(turn_after(clock, 1).fired, 1);
            let next = if ran < runs { TICK } else { TICK * 50 * (runs + 1) - TICK * runs };
            assert_eq!(local_timer().time_until_next(), Some(next), "after {ran} of {runs} runs");
        }
        // The clock is set for who comes later, before the earliest and after it.
        let (fired, run) = counter();
        for delay in [TICK * 2, TICK] {
            local_timer().add(delay, run.clone());
            assert_eq!(local_timer().time_until_next(), Some(delay));
        }
        assert_eq!((turn_after(clock, 2).fired, fired.get()), (2, 2));
        assert!(
            handles.take().into_iter().skip(1).all(|handle| handle.cancel() == Cancel::Cancelled)
        );
        assert_eq!(local_timer().time_until_next(), None);
        local_timer().add(HOUR, never);
        assert!(local_timer().time_until_next().is_some_and(|next| next > HOUR / 2));
    });
}

#[test]
fn bug_40_the_next_timeout_was_that_of_a_timer_cancelled_in_a_callback() {
    (1..10).for_each(the_earliest_are_cancelled_in_callbacks);
    // In every level: when the earliest has gone, nothing of it is left.
    let mut wheel = Wheel::<()>::starting_at(12_345);
    let delays = (1..50).map(|bits| 1_u64 << bits);
    let keys: Vec<_> = delays.map(|delay| (wheel.insert(12_345 + delay, ()), delay)).collect();
    for (key, delay) in keys {
        let deadline = 12_345 + delay;
        let next = wheel.next_deadline().expect("some are live");
        // Of upper levels it is the start of the slot.
        assert!(next <= deadline && next > deadline - delay / 2, "{next} for {deadline}");
        assert!(delay > 1 << 16 || next == deadline);
        assert_eq!(wheel.remove(key), Some(()));
    }
    assert_eq!(wheel.next_deadline(), None);
}
