//! The calls of a core's `ReusableTimer`s, in steps and callbacks.

use std::cell::RefCell;
use std::time::Duration;

use corewheel::{AddErrorReason, Cancel, ReusableTimer, TimerStatus, local_timer};

use super::{run_script, when};
use crate::handover::{check, count_operation, with_model};
use crate::ledger::Payload;
use crate::model::{ArmEffect, ArmRequest};
use crate::plan::{AddMethod, Id, Script};

/// Maximum number of `ReusableTimer`s of a core.
const REUSABLE_TIMERS_MAX: usize = 4;

thread_local! {
    /// The `ReusableTimer`s that were not dropped, each with its id.
    static REUSABLE_TIMERS: RefCell<[Option<(Id, ReusableTimer)>; REUSABLE_TIMERS_MAX]> =
        RefCell::default();
}

fn index_of(id: Id) -> usize {
    id as usize % REUSABLE_TIMERS_MAX
}

/// Calls `act` with the `ReusableTimer` at the index of `id`.
pub(super) fn with_reusable_timer(id: Id, act: impl FnOnce(&ReusableTimer, Id)) {
    REUSABLE_TIMERS.with_borrow(|timers| {
        if let Some((id, timer)) = &timers[index_of(id)] {
            act(timer, *id);
            check_status(timer, *id);
        }
    });
}

/// Creates a `ReusableTimer` at the index of `id`, and drops the one that was there.
pub(super) fn create(id: Id) {
    let Some(payload) = with_model(|model| model.record_reusable_timer(id)) else { return };
    drop_reusable_timer(id);
    count_operation("ReusableTimer::new");
    let timer = ReusableTimer::new(move |timer| run_callback(timer, &payload));
    check_status(&timer, id);
    REUSABLE_TIMERS.with_borrow_mut(|timers| timers[index_of(id)] = Some((id, timer)));
}

pub(super) fn arm(timer: &ReusableTimer, id: Id, request: ArmRequest) {
    let ArmRequest { id: new_id, add_method, delays, .. } = request;
    let (length, operation) = (local_timer().len(), arm_operation_name(timer, add_method));
    let begun_arm = with_model(|model| model.begin_arm(id, request, length, operation));
    let Some(effect) = begun_arm else { return };
    let when = when(with_model(|model| model.own_shard()), add_method, delays);
    let has_room = matches!(effect, ArmEffect::Resets | ArmEffect::Adds(Some(false)));
    let answer = if has_room && add_method != AddMethod::Try {
        Ok(timer.arm(when))
    } else {
        timer.try_arm(when)
    };
    with_model(|model| match effect {
        ArmEffect::Adds(is_full) if answer != Ok(true) => {
            model.end_add(new_id, add_method, delays, is_full, answer.map(|_| None));
            if answer.is_ok() {
                model.timers[id as usize].arming = Some(new_id);
            }
        }
        _ => model.check(answer == Ok(true), || format!("arm of {id}, {effect:?}: {answer:?}")),
    });
}

fn arm_operation_name(timer: &ReusableTimer, add_method: AddMethod) -> &'static str {
    if timer.status() == TimerStatus::Running {
        return "ReusableTimer::arm, in its callback";
    }
    match add_method {
        AddMethod::At | AddMethod::AtPast => "ReusableTimer::arm, an instant",
        AddMethod::Slack => "ReusableTimer::arm, slack",
        AddMethod::Spread => "ReusableTimer::arm, spread",
        AddMethod::Try => "ReusableTimer::try_arm",
        AddMethod::Plain | AddMethod::Periodic | AddMethod::Local => "ReusableTimer::arm",
    }
}

pub(super) fn cancel(timer: &ReusableTimer, id: Id) {
    count_operation("ReusableTimer::cancel");
    let expected = with_model(|model| model.record_reusable_cancel(id));
    let answer = timer.cancel();
    check(answer == expected, || format!("cancel of {id}: {answer:?}, not {expected:?}"));
}

/// Makes the handle of the latest arming usable on other cores.
pub(super) fn share(timer: &ReusableTimer, id: Id) {
    count_operation("ReusableTimer::handle");
    let handle = timer.handle();
    with_model(|model| {
        let arming = model.timer(id).arming;
        model.check(handle.is_some() == arming.is_some(), || format!("{id} has {handle:?}"));
        if let Some(arming) = arming {
            let old_handle = std::mem::replace(&mut model.timers[arming as usize].handle, handle);
            let is_first_or_same_handle = old_handle.is_none() || old_handle == handle;
            model.check(is_first_or_same_handle, || {
                format!("the handle of {id} was {old_handle:?}, now {handle:?}")
            });
        }
    });
}

fn check_status(timer: &ReusableTimer, id: Id) {
    let (answers, expected) =
        ((timer.status(), timer.last_end()), with_model(|model| model.reusable_timer_status(id)));
    check(answers == expected, || format!("ReusableTimer {id}: {answers:?}, not {expected:?}"));
}

/// Drops the `ReusableTimer` at the index of `id`, outside of its callback.
pub(super) fn drop_reusable_timer(id: Id) {
    let Some((id, timer)) = take_reusable_timer(id) else { return };
    count_operation("ReusableTimer dropped");
    let must_drop = with_model(|model| {
        model.record_reusable_cancel(id);
        model.record_reusable_drop(id)
    });
    drop(timer);
    let is_dropped = with_model(|model| model.ledger.drops(id as usize)) > 0;
    check(is_dropped || !must_drop, || {
        format!("the callback of ReusableTimer {id} was not dropped")
    });
}

fn take_reusable_timer(id: Id) -> Option<(Id, ReusableTimer)> {
    REUSABLE_TIMERS.with_borrow_mut(|timers| timers[index_of(id)].take())
}

/// Runs in the callback of a `ReusableTimer`.
fn run_callback(timer: &ReusableTimer, payload: &Payload) {
    let id = payload.id;
    let arming = with_model(|model| model.timer(id).arming).unwrap_or(id);
    let script = with_model(|model| model.record_fire(arming));
    check_status(timer, id);
    let arm = |new_id, delay| arm(timer, id, ArmRequest::plain(new_id, delay));
    let mut is_dropped = false;
    match script {
        Script::Arm(new_id, delay) => arm(new_id, delay),
        Script::CancelSelf => cancel(timer, id),
        Script::DropReusable(new_id, delay) => {
            // Arms the timer before the drop, after the drop, or not at all.
            if new_id % 3 == 0 {
                arm(new_id, delay);
            }
            count_operation("ReusableTimer dropped, in its callback");
            with_model(|model| model.record_reusable_cancel(id));
            drop(take_reusable_timer(id));
            is_dropped = true;
            if new_id % 3 == 1 {
                arm(new_id, delay);
            }
        }
        // These scripts run when the payload is dropped, but a `ReusableTimer` keeps its payload.
        Script::DropPanic | Script::DropCancel(_) => (),
        _ => run_script(arming, script, None),
    }
    check_status(timer, id);
    let planned_panic = with_model(|model| {
        model.record_reusable_run_end(id, arming, is_dropped);
        let panics = match script {
            Script::DropReusable(new_id, _) => new_id.is_multiple_of(4),
            _ => script == Script::Panic,
        };
        panics.then(|| (model.ledger.clone(), model.own_shard()))
    });
    if let Some((ledger, shard)) = planned_panic {
        ledger.panic_as_planned(shard);
    }
}

/// Checks that the `ReusableTimer`s of this core cannot be armed, because their wheel has ended.
pub(super) fn check_arming_fails() {
    for index in 0..REUSABLE_TIMERS_MAX {
        let id = Id::try_from(index).expect("few timers");
        with_reusable_timer(id, |timer, id| {
            count_operation("ReusableTimer::try_arm, ended wheel");
            let answers = (timer.try_arm(Duration::ZERO), timer.cancel());
            let is_as_expected = answers == (Err(AddErrorReason::ShutDown), Cancel::Ended);
            check(is_as_expected, || format!("ReusableTimer {id} of an ended wheel: {answers:?}"));
        });
    }
}
