//! The state table, transition by transition.

use super::*;

fn armed(kind: Kind) -> StateWord {
    let state = StateWord::default();
    state.arm(7, kind);
    state
}

#[test]
fn a_fired_timer_cannot_be_cancelled() {
    for kind in [Kind::Private, Kind::Shared] {
        let state = armed(kind);
        assert_eq!(state.claim(), Claim::Fires);
        assert_eq!(state.cancel(7), Cancel::Running);
        assert_eq!(state.cancel_own(7), Cancel::Running);
        state.finish();
        assert_eq!(state.cancel(7), Cancel::Ended);
        assert_eq!(state.cancel_own(7), Cancel::Ended);
    }
}

#[test]
fn a_cancelled_timer_cannot_fire() {
    let state = armed(Kind::Shared);
    assert_eq!(state.cancel(7), Cancel::Cancelled);
    assert_eq!(state.cancel(7), Cancel::Ended);
    assert_eq!(state.cancel_own(7), Cancel::Ended);
    assert_eq!(state.claim(), Claim::Held);
    state.collect();
    assert_eq!(state.sweep(), Swept::Idle);
}

#[test]
fn a_stale_generation_does_nothing() {
    let state = armed(Kind::Shared);
    for stale in [0, 6, 8, crate::limits::GENERATION_MAX] {
        assert_eq!(state.cancel(stale), Cancel::Ended);
        assert_eq!(state.cancel_own(stale), Cancel::Ended);
        assert!(!state.is_pending(stale) && state.movable(stale) == Movable::No);
    }
    assert!(state.is_pending(7) && state.movable(7) == (Movable::Yes { periodic: false }));
}

#[test]
fn a_private_timer_needs_sharing_to_be_cancelled_from_elsewhere() {
    let state = armed(Kind::Private);
    assert_eq!(state.cancel(7), Cancel::Ended);
    state.share();
    assert_eq!(state.cancel(7), Cancel::Cancelled);
}

#[test]
fn a_cancel_during_a_run_forbids_the_next() {
    for cancel in [StateWord::cancel, StateWord::cancel_own] {
        let state = armed(Kind::Periodic);
        assert_eq!(state.claim(), Claim::Fires);
        assert!(state.rearm());
        assert_eq!(state.claim(), Claim::Fires);
        assert_eq!(cancel(&state, 7), Cancel::Running);
        assert!(!state.rearm());
        state.finish();
        assert_eq!(cancel(&state, 7), Cancel::Ended);
    }
}

#[test]
fn the_sweep_tells_what_was_pending() {
    assert_eq!(armed(Kind::Private).sweep(), Swept::HandedBack);
    assert_eq!(armed(Kind::Shared).sweep(), Swept::HandedBack);
    let cancelled = armed(Kind::Shared);
    assert_eq!(cancelled.cancel(7), Cancel::Cancelled);
    assert_eq!(cancelled.sweep(), Swept::Cancelled);
    assert_eq!(cancelled.sweep(), Swept::Idle);
}

#[test]
fn the_word_holds_the_largest_generation() {
    let state = StateWord::default();
    state.arm(crate::limits::GENERATION_MAX, Kind::Shared);
    assert!(state.is_pending(crate::limits::GENERATION_MAX));
    assert_eq!(state.cancel(crate::limits::GENERATION_MAX), Cancel::Cancelled);
}
