//! The calls of a core's `OwnedTimer`s, in steps and callbacks.

use std::cell::RefCell;
use std::time::Duration;

use corewheel::{AddErrorReason, Cancel, OwnedTimer, TimerStatus, local_timer};

use super::{run_script, when};
use crate::handover::{check, count, with};
use crate::ledger::Payload;
use crate::model::{Arm, Arming};
use crate::plan::{AddMethod, Id, Script};

/// Maximum number of `OwnedTimer`s of a core.
const PLACES: usize = 4;

thread_local! {
    /// The `OwnedTimer`s that were not dropped, each with its id.
    static OWNED: RefCell<[Option<(Id, OwnedTimer)>; PLACES]> = RefCell::default();
}

fn place(id: Id) -> usize {
    id as usize % PLACES
}

/// Calls `act` with the `OwnedTimer` at the place of `id`.
pub(super) fn with_owned(id: Id, act: impl FnOnce(&OwnedTimer, Id)) {
    OWNED.with_borrow(|owned| {
        if let Some((id, timer)) = &owned[place(id)] {
            act(timer, *id);
            check_status(timer, *id);
        }
    });
}

/// Creates an `OwnedTimer` at the place of `id`, and drops the one that was there.
pub(super) fn create(id: Id) {
    let Some(payload) = with(|model| model.record_owned(id)) else { return };
    drop_owned(id);
    count("OwnedTimer::new");
    let timer = OwnedTimer::new(move |timer| run(timer, &payload));
    check_status(&timer, id);
    OWNED.with_borrow_mut(|owned| owned[place(id)] = Some((id, timer)));
}

pub(super) fn arm(timer: &OwnedTimer, id: Id, arming: Arming) {
    let Arming { id: new, way, delays, .. } = arming;
    let (length, operation) = (local_timer().len(), operation_of_arm(timer, way));
    let begun = with(|model| model.begin_arm(id, arming, length, operation));
    let Some(effect) = begun else { return };
    let when = when(with(|model| model.own_shard()), way, delays);
    let fits = matches!(effect, Arm::Resets | Arm::Adds(Some(false)));
    let answer =
        if fits && way != AddMethod::Try { Ok(timer.arm(when)) } else { timer.try_arm(when) };
    with(|model| match effect {
        Arm::Adds(is_full) if answer != Ok(true) => {
            model.end_add(new, way, delays, is_full, answer.map(|_| None));
            if answer.is_ok() {
                model.timers[id as usize].arming = Some(new);
            }
        }
        _ => model.check(answer == Ok(true), || format!("arm of {id}, {effect:?}: {answer:?}")),
    });
}

fn operation_of_arm(timer: &OwnedTimer, way: AddMethod) -> &'static str {
    if timer.status() == TimerStatus::Running {
        return "OwnedTimer::arm, in its callback";
    }
    match way {
        AddMethod::At | AddMethod::AtPast => "OwnedTimer::arm, an instant",
        AddMethod::Slack => "OwnedTimer::arm, slack",
        AddMethod::Spread => "OwnedTimer::arm, spread",
        AddMethod::Try => "OwnedTimer::try_arm",
        AddMethod::Plain | AddMethod::Periodic | AddMethod::Local => "OwnedTimer::arm",
    }
}

pub(super) fn cancel(timer: &OwnedTimer, id: Id) {
    count("OwnedTimer::cancel");
    let expected = with(|model| model.record_owned_cancel(id));
    let answer = timer.cancel();
    check(answer == expected, || format!("cancel of {id}: {answer:?}, not {expected:?}"));
}

/// Makes the handle of the latest arming usable on other cores.
pub(super) fn share(timer: &OwnedTimer, id: Id) {
    count("OwnedTimer::handle");
    let handle = timer.handle();
    with(|model| {
        let arming = model.timer(id).arming;
        model.check(handle.is_some() == arming.is_some(), || format!("{id} has {handle:?}"));
        if let Some(arming) = arming {
            let before = std::mem::replace(&mut model.timers[arming as usize].handle, handle);
            let is_same = before.is_none() || before == handle;
            model.check(is_same, || format!("the handle of {id} was {before:?}, now {handle:?}"));
        }
    });
}

fn check_status(timer: &OwnedTimer, id: Id) {
    let (answers, expected) =
        ((timer.status(), timer.last_end()), with(|model| model.owned_status(id)));
    check(answers == expected, || format!("OwnedTimer {id}: {answers:?}, not {expected:?}"));
}

/// Drops the `OwnedTimer` at the place of `id`, outside of its callback.
pub(super) fn drop_owned(id: Id) {
    let Some((id, timer)) = take(id) else { return };
    count("OwnedTimer dropped");
    let must_drop = with(|model| {
        model.record_owned_cancel(id);
        model.record_owned_drop(id)
    });
    drop(timer);
    let is_dropped = with(|model| model.ledger.drops(id as usize)) > 0;
    check(is_dropped || !must_drop, || format!("the callback of OwnedTimer {id} was not dropped"));
}

fn take(id: Id) -> Option<(Id, OwnedTimer)> {
    OWNED.with_borrow_mut(|owned| owned[place(id)].take())
}

/// Runs in the callback of an `OwnedTimer`.
fn run(timer: &OwnedTimer, payload: &Payload) {
    let id = payload.id;
    let arming = with(|model| model.timer(id).arming).unwrap_or(id);
    let script = with(|model| model.record_fire(arming));
    check_status(timer, id);
    let arm = |new, delay| arm(timer, id, Arming::plain(new, delay));
    let mut is_dropped = false;
    match script {
        Script::Arm(new, delay) => arm(new, delay),
        Script::CancelSelf => cancel(timer, id),
        Script::DropOwned(new, delay) => {
            // Arms the timer before the drop, after the drop, or not at all.
            if new % 3 == 0 {
                arm(new, delay);
            }
            count("OwnedTimer dropped, in its callback");
            with(|model| model.record_owned_cancel(id));
            drop(take(id));
            is_dropped = true;
            if new % 3 == 1 {
                arm(new, delay);
            }
        }
        // The payload stays until the `OwnedTimer` is dropped.
        Script::DropPanic | Script::DropCancel(_) => (),
        _ => run_script(arming, script, None),
    }
    check_status(timer, id);
    let thrown = with(|model| {
        model.record_owned_run_end(id, arming, is_dropped);
        let panics = match script {
            Script::DropOwned(new, _) => new.is_multiple_of(4),
            _ => script == Script::Panic,
        };
        panics.then(|| (model.ledger.clone(), model.own_shard()))
    });
    if let Some((ledger, shard)) = thrown {
        ledger.panic_as_planned(shard);
    }
}

/// Checks that the `OwnedTimer`s of this core cannot be armed, because their wheel has ended.
pub(super) fn check_ended() {
    for place in 0..PLACES {
        let id = Id::try_from(place).expect("few places");
        with_owned(id, |timer, id| {
            count("OwnedTimer::try_arm, ended wheel");
            let answers = (timer.try_arm(Duration::ZERO), timer.cancel());
            let is_right = answers == (Err(AddErrorReason::ShutDown), Cancel::Ended);
            check(is_right, || format!("OwnedTimer {id} of an ended wheel: {answers:?}"));
        });
    }
}
