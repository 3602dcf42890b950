//! What writing these tests has found in corewheel itself.

use std::{cell::Cell, rc::Rc, time::Duration};

use corewheel::{AddErrorReason, Cancel, Config, ManualClock, local_timer};

use crate::{
    HOUR, cancel_elsewhere,
    common::{TICK, on_a_thread},
    never, on_a_core, turn_after,
};

/// A reference whose thread has ended, used on a thread whose timer has the number now that the other one had: it
/// added to the stranger's timer, which is Agrona's bug (38) once more.
#[test]
fn a_stale_reference_adds_to_nobody() {
    let has_the_number = || {
        let stale = on_a_core(|_| local_timer().shard_ref());
        on_a_core(|clock| {
            let own = local_timer().shard_ref();
            let is_refused = |reason| reason == AddErrorReason::ShutDown;
            assert!(stale.try_add(TICK, never).is_err_and(|error| is_refused(error.reason())));
            assert!(stale.try_run(never).is_err_and(|error| is_refused(error.reason())));
            assert_eq!((local_timer().len(), turn_after(clock, 1).fired), (0, 0));
            format!("{own:?}") == format!("{stale:?}")
        })
    };
    // Other tests take numbers, too.
    assert!((0..1_000).any(|_| has_the_number()));
}

/// A turn that has no budget for them leaves messages that it has taken out. The next turn dealt with these alone:
/// what had been cancelled before that turn, too, was not taken in by it, as `TimerHandle::cancel` promises, and what
/// had been added was not run.
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

/// A timer that a callback adds and that is due already, in a turn that covers more ticks than the callback's: nobody looked for
/// it until the clock came to the next timer, or to the end of the revolution, two seconds later. The turns in between did
/// nothing, and the loop span: it was told to turn at once.
#[test]
fn what_a_callback_adds_that_is_due_already_fires_in_the_next_turn() {
    on_a_core(|clock| {
        let (past, ran) = (local_timer().now(), Rc::new(Cell::new(0)));
        let counts = Rc::clone(&ran);
        local_timer().add(TICK, move || {
            local_timer().add_at(past, move || counts.set(counts.get() + 1));
        });
        assert_eq!(turn_after(clock, 10).fired, 1);
        assert_eq!(local_timer().time_until_next(), Some(Duration::ZERO));
        assert_eq!((local_timer().turn().fired, ran.get()), (1, 1), "in the first turn");
    });
}

/// A turn whose budget was used up before its last tick, where another core had taken the next timer away and added one that
/// was due by the end: it said that it had left nothing.
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

/// A virtual clock that went back after a thread's timer was made, and before it was turned: other threads did not know how far it had
/// been, and what they added was early by what their handles' owner takes for the time.
#[test]
fn a_clock_that_goes_back_before_the_first_turn_is_held_for_others_too() {
    on_a_thread(|| {
        let clock = ManualClock::new();
        clock.set(TICK * 1_000);
        Config::new().tick(TICK).clock(&clock).install().expect("a fresh thread");
        let this = local_timer().shard_ref();
        clock.set(TICK * 100);
        on_a_thread(|| _ = this.add(TICK * 300, || ()));
        clock.set(TICK * 1_299);
        assert_eq!(local_timer().turn().fired, 0);
        assert_eq!(turn_after(&clock, 1).fired, 1);
    });
}
