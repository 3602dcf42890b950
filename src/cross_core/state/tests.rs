use super::*;

const GENERATION: u64 = 7;

fn armed(kind: TimerKind) -> StateWord {
    let state = StateWord::default();
    state.arm(GENERATION, kind);
    state
}

/// Returns the word of a remotely reset timer with a queued message.
fn with_new_deadline(kind: TimerKind) -> StateWord {
    let state = armed(kind);
    assert_eq!(reset_remotely(&state), Some(StepAfterCancelOrReset::Push));
    state
}

/// Resets a timer as a remote thread. Returns the thread's next step, or `None` if the reset is
/// refused.
fn reset_remotely(state: &StateWord) -> Option<StepAfterCancelOrReset> {
    (state.begin_reset(GENERATION) == BeginResetOutcome::Begun { is_postponable: false })
        .then(|| state.end_reset_or_cancel().expect("the shard lives"))
}

fn fire(state: &StateWord) -> ClaimedRun {
    match state.claim() {
        ClaimOutcome::Claimed(run) => run,
        other => panic!("{other:?}"),
    }
}

fn cancel(state: &StateWord) -> Cancel {
    state.cancel_remote(GENERATION).0
}

fn cancel_by_owner(state: &StateWord) -> Cancel {
    match state.cancel_by_owner(GENERATION) {
        Ok(_) => Cancel::Cancelled,
        Err(answer) => answer,
    }
}

#[test]
fn a_fired_timer_cannot_be_cancelled() {
    for kind in [TimerKind::Private, TimerKind::Shared] {
        let state = armed(kind);
        let run = fire(&state);
        assert!(state.status(GENERATION) == TimerStatus::Running && !state.is_pending(GENERATION));
        assert_eq!((cancel(&state), cancel_by_owner(&state)), (Cancel::Running, Cancel::Running));
        assert_eq!(reset_remotely(&state), None);
        assert_eq!(state.finish_run(run), FreeWhen::Now);
        assert_eq!((cancel(&state), cancel_by_owner(&state)), (Cancel::Ended, Cancel::Ended));
        assert_eq!(reset_remotely(&state), None);
        assert!(state.is_free() && state.status(GENERATION) == TimerStatus::Ended);
    }
}

#[test]
fn a_cancelled_timer_cannot_fire() {
    let state = armed(TimerKind::Shared);
    assert_eq!(state.cancel_remote(GENERATION), (Cancel::Cancelled, StepAfterCancelOrReset::Push));
    assert_eq!((cancel(&state), cancel_by_owner(&state)), (Cancel::Ended, Cancel::Ended));
    assert_eq!(state.claim(), ClaimOutcome::AwaitsMessage);
    assert_eq!(reset_remotely(&state), None);
    assert!(state.has_unconsumed_remote_cancel() && !state.is_free());
    assert_eq!(state.consume_message(), ConsumedMessage::Cancelled { has_payload: true });
    assert_eq!(state.end_at_close(), CloseOutcome::NoPayload);
    assert!(state.is_free());
}

#[test]
fn a_stale_generation_has_no_effect() {
    let state = armed(TimerKind::Shared);
    for stale in [0, 6, 8, OWNER_GENERATION_MAX] {
        assert_eq!(state.cancel_remote(stale), (Cancel::Ended, StepAfterCancelOrReset::Nothing));
        assert_eq!(state.cancel_by_owner(stale), Err(Cancel::Ended));
        assert_eq!(state.begin_reset(stale), BeginResetOutcome::Refused);
        assert!(!state.is_pending(stale) && state.prepare_owner_reset(stale).is_none());
    }
    assert!(state.is_pending(7) && state.is_linked_one_shot(7));
}

#[test]
fn a_private_timer_is_cancelled_remotely_only_after_share() {
    let state = armed(TimerKind::Private);
    assert_eq!(cancel(&state), Cancel::Ended);
    state.share(GENERATION);
    assert_eq!(cancel(&state), Cancel::Cancelled);
}

#[test]
fn a_cancel_during_a_run_ends_a_periodic_timer() {
    for cancel in [cancel, cancel_by_owner] {
        let state = armed(TimerKind::Periodic);
        let _ = fire(&state);
        assert_eq!(state.rearm(), Ok(()));
        let run = fire(&state);
        assert_eq!(cancel(&state), Cancel::Running);
        assert!(state.rearm().is_err());
        assert_eq!(state.finish_run(run), FreeWhen::Now);
        assert_eq!(cancel(&state), Cancel::Ended);
    }
}

#[test]
fn a_claim_reports_a_reset_before_the_timer_fires() {
    for (kind, is_periodic) in [(TimerKind::Shared, false), (TimerKind::Periodic, true)] {
        let state = with_new_deadline(kind);
        assert!(state.is_pending(GENERATION));
        assert_eq!(state.claim(), ClaimOutcome::NewDeadline { is_periodic });
        let run = fire(&state);
        if is_periodic {
            assert_eq!(state.rearm(), Ok(()));
            assert_eq!(state.cancel_by_owner(GENERATION), Ok(FreeWhen::OnMessage));
        } else {
            assert_eq!(state.finish_run(run), FreeWhen::OnMessage);
        }
        // The timer's message is still queued.
        assert!(!state.is_free());
        assert_eq!(state.consume_message(), ConsumedMessage::AlreadyEnded);
        assert!(state.is_free());
    }
}

#[test]
fn a_message_or_a_claim_reports_a_reset_once() {
    let state = with_new_deadline(TimerKind::Shared);
    assert_eq!(
        reset_remotely(&state),
        Some(StepAfterCancelOrReset::Nothing),
        "the message is already queued"
    );
    assert_eq!(state.consume_message(), ConsumedMessage::NewDeadline { is_periodic: false });
    assert_eq!(reset_remotely(&state), Some(StepAfterCancelOrReset::Push));
    assert_eq!(state.claim(), ClaimOutcome::NewDeadline { is_periodic: false });
    assert_eq!(state.consume_message(), ConsumedMessage::Nothing);
    let _ = fire(&state);
}

#[test]
fn an_owner_reset_overrides_an_earlier_remote_reset() {
    let state = with_new_deadline(TimerKind::Shared);
    assert_eq!(state.prepare_owner_reset(GENERATION), Some(false));
    assert_eq!(state.consume_message(), ConsumedMessage::Nothing);
    let _ = fire(&state);
}

#[test]
fn a_timer_does_not_fire_during_a_remote_reset() {
    let state = armed(TimerKind::Shared);
    assert_eq!(state.begin_reset(GENERATION), BeginResetOutcome::Begun { is_postponable: false });
    assert_eq!(state.begin_reset(GENERATION), BeginResetOutcome::Superseded);
    assert!(state.is_pending(GENERATION));
    assert_eq!(state.claim(), ClaimOutcome::AwaitsMessage);
    assert_eq!(state.prepare_owner_reset(GENERATION), Some(false));
    assert_eq!(state.end_reset_or_cancel(), Some(StepAfterCancelOrReset::Push));
    assert_eq!(state.claim(), ClaimOutcome::NewDeadline { is_periodic: false });
}

#[test]
fn a_timer_cancelled_during_a_reset_is_freed_by_its_message() {
    let shared_timer_state = || (armed(TimerKind::Shared), GENERATION);
    for ((state, generation), by_owner, consumed) in [
        (shared_timer_state(), false, ConsumedMessage::Cancelled { has_payload: true }),
        (shared_timer_state(), true, ConsumedMessage::AlreadyEnded),
        (remote_timer_state(true), true, ConsumedMessage::AlreadyEnded),
    ] {
        assert_eq!(
            state.begin_reset(generation),
            BeginResetOutcome::Begun { is_postponable: false }
        );
        if by_owner {
            assert_eq!(state.cancel_by_owner(generation), Ok(FreeWhen::OnMessage));
        } else {
            assert_eq!(
                state.cancel_remote(generation),
                (Cancel::Cancelled, StepAfterCancelOrReset::Nothing)
            );
        }
        assert_eq!(state.cancel_remote(generation).0, Cancel::Ended);
        assert_eq!(state.cancel_by_owner(generation), Err(Cancel::Ended));
        assert!(
            !state.is_free()
                && !state.is_pending(generation)
                && state.has_unconsumed_remote_cancel() != by_owner
        );
        assert_eq!(state.end_reset_or_cancel(), Some(StepAfterCancelOrReset::Push));
        assert_eq!(state.consume_message(), consumed);
        assert!(state.is_free());
    }
}

#[test]
fn a_cancel_after_a_reset_sends_no_second_message() {
    let state = with_new_deadline(TimerKind::Shared);
    assert_eq!(
        state.cancel_remote(GENERATION),
        (Cancel::Cancelled, StepAfterCancelOrReset::Nothing)
    );
    assert_eq!(state.consume_message(), ConsumedMessage::Cancelled { has_payload: true });
    let state = with_new_deadline(TimerKind::Shared);
    assert_eq!(state.cancel_by_owner(GENERATION), Ok(FreeWhen::OnMessage));
    assert_eq!(state.consume_message(), ConsumedMessage::AlreadyEnded);
}

#[test]
fn a_message_consumed_during_a_reset_is_followed_by_another() {
    let state = with_new_deadline(TimerKind::Shared);
    assert_eq!(state.begin_reset(GENERATION), BeginResetOutcome::Begun { is_postponable: false });
    assert_eq!(state.consume_message(), ConsumedMessage::ResetInProgress { is_periodic: false });
    assert_eq!(state.end_reset_or_cancel(), Some(StepAfterCancelOrReset::Push));
    assert_eq!(state.consume_message(), ConsumedMessage::NewDeadline { is_periodic: false });
}

#[test]
fn a_remote_timer_is_armed_with_its_message_queued() {
    let state = StateWord::default();
    state.arm_remote(GENERATION, false);
    assert!(state.is_pending(GENERATION));
    assert_eq!(reset_remotely(&state), Some(StepAfterCancelOrReset::Nothing));
    assert_eq!(state.consume_message(), ConsumedMessage::NewDeadline { is_periodic: false });
    let run = fire(&state);
    assert_eq!(state.finish_run(run), FreeWhen::Now);
}

#[test]
fn a_remote_timer_is_disarmed_unless_its_shard_has_closed() {
    let state = StateWord::default();
    state.arm_remote(GENERATION, false);
    assert!(state.undo_arm_remote() && state.is_free());
    state.arm_remote(GENERATION + 1, false);
    assert_eq!(state.end_at_close(), CloseOutcome::HandedBack { has_new_deadline: true });
    assert!(!state.undo_arm_remote());
}

#[test]
fn end_at_close_tells_pending_from_cancelled_timers() {
    for (state, has_new_deadline) in [
        (armed(TimerKind::Private), false),
        (armed(TimerKind::Shared), false),
        (with_new_deadline(TimerKind::Shared), true),
    ] {
        assert_eq!(state.end_at_close(), CloseOutcome::HandedBack { has_new_deadline });
    }
    let cancelled = armed(TimerKind::Shared);
    assert_eq!(cancel(&cancelled), Cancel::Cancelled);
    assert_eq!(cancelled.end_at_close(), CloseOutcome::Cancelled { has_payload: true });
    assert_eq!(cancelled.end_at_close(), CloseOutcome::NoPayload);
}

#[test]
fn a_reset_that_ends_after_the_close_fails() {
    // An earlier remote reset has set *new deadline* for the second timer, so `end_at_close`
    // reports a new deadline.
    for (state, has_new_deadline) in
        [(armed(TimerKind::Shared), false), (with_new_deadline(TimerKind::Shared), true)]
    {
        assert_eq!(
            state.begin_reset(GENERATION),
            BeginResetOutcome::Begun { is_postponable: false }
        );
        assert_eq!(state.end_at_close(), CloseOutcome::HandedBack { has_new_deadline });
        assert_eq!(state.end_reset_or_cancel(), None);
    }
    for (by_owner, outcome) in
        [(false, CloseOutcome::Cancelled { has_payload: true }), (true, CloseOutcome::NoPayload)]
    {
        let state = armed(TimerKind::Shared);
        assert_eq!(
            state.begin_reset(GENERATION),
            BeginResetOutcome::Begun { is_postponable: false }
        );
        assert_eq!(
            if by_owner { cancel_by_owner(&state) } else { cancel(&state) },
            Cancel::Cancelled
        );
        assert_eq!(state.end_at_close(), outcome);
        assert_eq!(state.end_reset_or_cancel(), None);
    }
}

#[test]
fn the_largest_generation_fits_the_word() {
    let state = StateWord::default();
    state.arm(OWNER_GENERATION_MAX, TimerKind::Shared);
    assert!(state.is_pending(OWNER_GENERATION_MAX));
    assert_eq!(
        state.cancel_remote(OWNER_GENERATION_MAX),
        (Cancel::Cancelled, StepAfterCancelOrReset::Push)
    );
}

/// Returns the word and the generation of a remote timer. If `is_consumed`, the owner has consumed
/// the message about the add.
fn remote_timer_state(is_consumed: bool) -> (StateWord, u64) {
    let (state, generation) = (StateWord::default(), REMOTE_GENERATION_BIT | GENERATION);
    state.arm_remote(generation, false);
    if is_consumed {
        assert_eq!(state.consume_message(), ConsumedMessage::NewDeadline { is_periodic: false });
    }
    (state, generation)
}

#[test]
fn the_canceller_of_a_remote_timer_takes_the_payload() {
    // The owner consumes the message about the add before the cancel, during it, or after it.
    for (is_consumed_before, is_consumed_during, next) in [
        (true, false, StepAfterCancelOrReset::Push),
        (false, true, StepAfterCancelOrReset::Push),
        (false, false, StepAfterCancelOrReset::Nothing),
    ] {
        let (state, generation) = remote_timer_state(is_consumed_before);
        assert_eq!(
            state.cancel_remote(generation),
            (Cancel::Cancelled, StepAfterCancelOrReset::TakePayload)
        );
        // Until the canceller calls `end_reset_or_cancel`, all other calls find the timer
        // cancelled.
        assert_eq!(
            state.cancel_remote(generation),
            (Cancel::Ended, StepAfterCancelOrReset::Nothing)
        );
        assert_eq!(state.cancel_by_owner(generation), Err(Cancel::Ended));
        assert_eq!(
            (state.claim(), state.prepare_owner_reset(generation)),
            (ClaimOutcome::AwaitsMessage, None)
        );
        if is_consumed_during {
            assert_eq!(state.consume_message(), ConsumedMessage::Nothing);
        }
        assert!(state.has_unconsumed_remote_cancel() && !state.is_pending(generation));
        assert_eq!(state.end_reset_or_cancel(), Some(next));
        assert_eq!(state.consume_message(), ConsumedMessage::Cancelled { has_payload: false });
        assert!(state.is_free());
    }
}

#[test]
fn a_remote_resetter_of_a_cancelled_timer_takes_the_payload() {
    let (state, generation) = remote_timer_state(true);
    assert_eq!(state.begin_reset(generation), BeginResetOutcome::Begun { is_postponable: false });
    assert_eq!(
        state.cancel_remote(generation),
        (Cancel::Cancelled, StepAfterCancelOrReset::Nothing)
    );
    assert_eq!(state.end_reset_or_cancel(), Some(StepAfterCancelOrReset::TakePayload));
    assert_eq!(state.end_reset_or_cancel(), Some(StepAfterCancelOrReset::Push));
    assert_eq!(state.consume_message(), ConsumedMessage::Cancelled { has_payload: false });
}

#[test]
fn end_at_close_leaves_a_payload_to_its_canceller() {
    let (state, generation) = remote_timer_state(true);
    assert_eq!(
        state.cancel_remote(generation),
        (Cancel::Cancelled, StepAfterCancelOrReset::TakePayload)
    );
    assert_eq!(state.end_at_close(), CloseOutcome::Cancelled { has_payload: false });
    assert_eq!(state.end_reset_or_cancel(), None);
    assert_eq!(state.end_at_close(), CloseOutcome::NoPayload);
}
