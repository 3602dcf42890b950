//! What writing these tests has found in corewheel itself.

use std::{cell::Cell, rc::Rc, time::Duration};

use corewheel::{Cancel, Config, ManualClock, local_timer};

use crate::support::{HOUR, TICK, cancel_elsewhere, on_a_core, on_a_thread, turn_after};

/// A turn without the budget for all messages keeps those that it has taken out. The next turn
/// consumed only these. It did not collect earlier cancels, as `TimerHandle::cancel` promises, and
/// did not run earlier adds.
#[test]
fn after_a_turn_cut_short_the_next_takes_in_all_that_was_asked_before_it() {
    on_a_core(|_| {
        let captured = Rc::new(());
        let handles = [0; 2].map(|_| {
            let held = Rc::clone(&captured);
            local_timer().add(HOUR, move || drop(held))
        });
        assert_eq!(cancel_elsewhere(handles[0]), Cancel::Cancelled);
        assert!(local_timer().turn_within(0).behind);
        assert_eq!(cancel_elsewhere(handles[1]), Cancel::Cancelled);
        let turn = local_timer().turn();
        assert_eq!((turn.collected, turn.live, Rc::strong_count(&captured)), (2, 0, 1));
    });
    on_a_core(|_| {
        let handle = local_timer().add(HOUR, || ());
        assert_eq!(cancel_elsewhere(handle), Cancel::Cancelled);
        assert!(local_timer().turn_within(0).behind);
        let this = local_timer().shard_ref();
        on_a_thread(|| _ = this.add(Duration::ZERO, || ()));
        assert_eq!(local_timer().turn().fired, 1);
    });
}

/// A callback adds a timer that is already due, in a turn that covers more ticks than the
/// callback's. The timer was not found until the clock reached the next timer, or the end of the
/// revolution. The turns in between did nothing, and the loop span.
#[test]
fn what_a_callback_adds_that_is_due_already_fires_in_the_next_turn() {
    on_a_core(|clock| {
        let (past, ran) = (local_timer().now(), Rc::new(Cell::new(0)));
        let counts = Rc::clone(&ran);
        local_timer().add(TICK, move || {
            local_timer().add(past, move || counts.set(counts.get() + 1));
        });
        assert_eq!(turn_after(clock, 10).fired, 1);
        assert_eq!(local_timer().time_until_next(), Some(Duration::ZERO));
        assert_eq!((local_timer().turn().fired, ran.get()), (1, 1), "in the first turn");
    });
}

/// A turn used up its budget before its last tick, and another core had cancelled the next timer
/// and added one that was due. The turn said that it had left nothing.
#[test]
fn a_turn_cut_short_says_that_a_timer_from_elsewhere_is_left() {
    on_a_core(|clock| {
        let [_, _, moved] = [1, 1, 3].map(|ticks| local_timer().add(TICK * ticks, || ()));
        let this = local_timer().shard_ref();
        on_a_thread(|| {
            assert!(moved.reset(HOUR));
            this.add(TICK * 10, || ());
        });
        clock.advance(TICK * 10);
        let turn = local_timer().turn_within(2);
        assert_eq!((turn.fired, turn.live, turn.behind), (2, 2, true));
        assert_eq!(local_timer().turn().fired, 1);
    });
}

/// A virtual clock went back after a thread's wheel was created and before its first turn. Other
/// threads did not know its latest reading, so their timers were early by the owner's time.
#[test]
fn a_clock_that_goes_back_before_the_first_turn_is_held_for_others_too() {
    on_a_thread(|| {
        let clock = ManualClock::new();
        clock.set(TICK * 1_000);
        Config::new().clock(&clock).install().expect("a fresh thread");
        let this = local_timer().shard_ref();
        clock.set(TICK * 100);
        on_a_thread(|| _ = this.add(TICK * 300, || ()));
        clock.set(TICK * 1_299);
        assert_eq!(local_timer().turn().fired, 0);
        assert_eq!(turn_after(&clock, 1).fired, 1);
    });
}
