//! Calls through handles, in steps, callbacks and destructors.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

use corewheel::{Cancel, LocalHandle, Shard, TimerHandle, local_timer};

use crate::handover::{check, count_operation, try_with_model, with_model};
use crate::ledger::Payload;
use crate::model::State;
use crate::plan::{AddMethod, CancelMethod, Id, Nanos, Script};

thread_local! {
    static LOCAL_HANDLES: RefCell<HashMap<Id, LocalHandle>> = RefCell::default();
}

pub(super) fn keep_local(id: Id, handle: LocalHandle) {
    LOCAL_HANDLES.with_borrow_mut(|handles| handles.insert(id, handle));
}

fn local_handle(id: Id) -> Option<LocalHandle> {
    LOCAL_HANDLES.with_borrow(|handles| handles.get(&id).copied())
}

/// Makes a local timer's handle usable on other cores.
pub(super) fn share(id: Id) {
    if let Some(handle) = local_handle(id)
        && with_model(|model| model.timer(id).shard == model.own_shard())
    {
        let shared = handle.share();
        with_model(|model| model.timers[id as usize].handle = Some(shared));
        count_operation("LocalHandle::share");
    }
}

pub(super) fn cancel(id: Id, how: CancelMethod) {
    let local_handle = local_handle(id);
    let call_data = with_model(|model| {
        let is_owner = model.owns(id, local_handle.is_some())?;
        let operations = match how {
            CancelMethod::Shard | CancelMethod::Handle => ["cancel", "cancel, remote"],
            CancelMethod::Wait => ["cancel_wait", "cancel_wait, remote"],
            CancelMethod::Guard => ["guard dropped", "guard dropped, remote"],
        };
        model.count_call(id, is_owner, operations);
        // A paused callback cannot end during this call, so `cancel_wait` would hang.
        let is_running = matches!(model.timer(id).state, State::Running | State::Stopping);
        let how = if is_running && how == CancelMethod::Wait { CancelMethod::Handle } else { how };
        let is_turning = model.shards[model.own_shard()].turn.is_some();
        let is_cancel_dropped = model.plants_lost_cancels && id.is_multiple_of(7) && !is_owner;
        Some((
            is_owner,
            model.timer(id).handle,
            model.record_cancel(id, is_owner),
            how,
            is_turning,
            is_cancel_dropped,
        ))
    });
    let Some((is_owner, handle, expected, how, is_turning, is_cancel_dropped)) = call_data else {
        return;
    };
    let answer = match (handle, how) {
        _ if is_cancel_dropped => expected,
        (None, _) => local_handle.map_or(Cancel::Ended, LocalHandle::cancel),
        (Some(handle), CancelMethod::Wait) => {
            let answer = handle.cancel_wait();
            check(answer.is_err() == is_turning, || format!("cancel_wait of {id}: {answer:?}"));
            answer.unwrap_or_else(|_| handle.cancel())
        }
        (Some(handle), CancelMethod::Guard) => {
            drop(handle.guard());
            expected
        }
        (Some(handle), _) => handle.cancel(),
    };
    let is_pending = handle.is_some_and(TimerHandle::is_pending) && !is_cancel_dropped;
    with_model(|model| model.check_cancelled(id, is_owner, expected, answer));
    check(!is_pending, || format!("timer {id} is pending after its cancel"));
}

pub(super) fn reset(id: Id, delay: Nanos, shard: Option<&mut Shard<Payload>>) {
    let (local_handle, by_shard) = (local_handle(id), shard.is_some());
    let call_data = with_model(|model| {
        let is_owner = by_shard || model.owns(id, local_handle.is_some())?;
        if !by_shard && model.must_skip_reset(id) {
            return None;
        }
        let by_owner = if by_shard { "Shard::reset" } else { "reset" };
        model.count_call(id, is_owner, [by_owner, "reset, remote"]);
        Some((
            model.timer(id).handle,
            model.record_reset(id, AddMethod::Plain, [delay, 0], is_owner),
        ))
    });
    let Some((handle, expected)) = call_data else { return };
    let delay = Duration::from_nanos(delay);
    let answer = match (handle, shard) {
        (None, _) => local_handle.is_some_and(|handle| handle.reset(delay)),
        (Some(handle), None) => handle.reset(delay),
        (Some(handle), Some(shard)) => shard.reset(handle, delay),
    };
    check(answer == expected, || format!("reset of timer {id}: {answer}"));
}

pub(super) fn is_pending(id: Id) {
    let local_handle = local_handle(id);
    let call_data = with_model(|model| {
        let is_owner = model.owns(id, local_handle.is_some())?;
        model.count_call(id, is_owner, ["is_pending", "is_pending, remote"]);
        let timer = model.timer(id);
        Some((timer.handle, timer.state == State::Live, is_owner))
    });
    let Some((handle, expected, is_owner)) = call_data else { return };
    let is_pending = handle.map(TimerHandle::is_pending);
    let is_pending = is_pending.or_else(|| local_handle.map(LocalHandle::is_pending)) == Some(true);
    check(is_pending == expected, || format!("timer {id} is pending: {is_pending}"));
    if is_owner {
        let deadline = match handle {
            None => local_handle.and_then(LocalHandle::deadline),
            Some(handle) => local_timer().deadline(handle),
        };
        with_model(|model| model.check_reported_deadline(id, deadline));
    }
}

/// Runs in the destructor of a timer's payload. Cancels another timer if the timer's script says
/// so. Marks the timer as ended if it is running.
pub(crate) fn on_payload_drop(id: Id) {
    if let Some(Script::DropCancel(other)) = try_with_model(|model| model.timer(id).script) {
        cancel(other, CancelMethod::Handle);
    }
    try_with_model(|model| {
        let timer = &mut model.timers[id as usize];
        if matches!(timer.state, State::Running | State::Stopping) {
            timer.state = State::Ended;
        }
    });
}
