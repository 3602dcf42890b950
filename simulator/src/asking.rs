//! What is asked of timers by their handles, on whichever thread: at the top of a step, in a callback, in a destructor.

use std::time::Duration;

use corewheel::{Cancel, local_timer};

use crate::{
    coverage::{Fault, Operation},
    here::{self, with},
    model::{Kind, State, World},
    plan::{How, Id, Nanos, Script},
};

/// Cancels a timer by its handle.
pub(crate) fn cancel(id: Id, how: How) {
    let core = here::core();
    let asked = with(|world| {
        let own = reach(world, id, core)?;
        let is_running = matches!(world.timer(id).state, State::Running | State::Stopping);
        world.asks(id, own, cancels(how));
        // It would wait for this very thread.
        let how = if is_running && how == How::Wait { How::Handle } else { how };
        let is_turning = world.lives[world.cores[core].lives[0]].is_turning();
        Some((world.foresee_cancel(id, own), how, is_turning, world.loses(id)))
    });
    let Some((asked, how, is_turning, is_lost)) = asked else { return };
    let answer = match (asked.handle, how) {
        _ if is_lost && !asked.own => asked.answer,
        (None, _) => here::local(id).map_or(Cancel::Ended, corewheel::LocalHandle::cancel),
        (Some(handle), How::Wait) => {
            let answer = handle.cancel_wait();
            let is_refused = answer.is_err();
            with(|world| {
                world.expect(is_refused == is_turning, || {
                    format!("cancel_wait of timer {id}: {answer:?}")
                })
            });
            answer.unwrap_or_else(|_| handle.cancel())
        }
        (Some(handle), How::Guard) => {
            drop(handle.guard());
            asked.answer
        }
        (Some(handle), _) => handle.cancel(),
    };
    let is_pending = asked.handle.is_some_and(corewheel::TimerHandle::is_pending) && !is_lost;
    with(|world| {
        world.answered(id, asked, answer);
        world.expect(!is_pending, || format!("timer {id} is pending after its cancel"));
    });
}

fn cancels(how: How) -> [Operation; 2] {
    match how {
        How::Own | How::Handle => [Operation::Cancel, Operation::CancelElsewhere],
        How::Wait => [Operation::CancelWait, Operation::CancelWaitElsewhere],
        How::Guard => [Operation::Guard, Operation::GuardElsewhere],
    }
}

/// Moves a timer by its handle.
pub(crate) fn reset(id: Id, delay: Nanos) {
    let core = here::core();
    let asked = with(|world| {
        let own = reach(world, id, core)?;
        if world.is_open(id, core) {
            return None;
        }
        world.asks(id, own, [Operation::Reset, Operation::ResetElsewhere]);
        Some(world.foresee_reset(id, delay, own))
    });
    let Some(asked) = asked else { return };
    let delay = Duration::from_nanos(delay);
    let answer = match asked.handle {
        None => here::local(id).is_some_and(|handle| handle.reset(delay)),
        Some(handle) => handle.reset(delay),
    };
    with(|world| world.expect(answer == asked.answer, || format!("reset of timer {id}: {answer}")));
}

/// Asks whether a timer waits.
pub(crate) fn ask(id: Id) {
    let core = here::core();
    let asked = with(|world| {
        let own = reach(world, id, core)?;
        world.asks(id, own, [Operation::IsPending, Operation::IsPendingElsewhere]);
        let timer = world.timer(id);
        Some((timer.handle, timer.state == State::Live))
    });
    let Some((handle, expected)) = asked else { return };
    let is_pending = match handle {
        None => here::local(id).is_some_and(corewheel::LocalHandle::is_pending),
        Some(handle) => handle.is_pending(),
    };
    with(|world| {
        world.expect(is_pending == expected, || format!("timer {id} is pending: {is_pending}"))
    });
}

/// Whether a timer that has a handle is this thread's own; `None` if there is no way to it from here.
fn reach(world: &World, id: Id, core: usize) -> Option<bool> {
    let timer = world.timers.get(id as usize)?;
    let own = world.is_local(id, core);
    let is_known = timer.handle.is_some() || own && here::local(id).is_some();
    (is_known && timer.kind != Kind::Delayed && timer.state != State::Unborn).then_some(own)
}

/// What a callback of this thread's timer does.
pub(crate) fn perform(id: Id, script: Script) {
    match script {
        Script::Nothing | Script::DropCancel(_) => (),
        Script::Panic => {
            let core = here::core();
            with(|world| world.fault(Fault::CallbackPanic, core));
        }
        Script::DropPanic => {
            let core = here::core();
            with(|world| world.fault(Fault::DropPanic, core));
        }
        Script::Add(new, delay) => add(new, delay),
        Script::Cancel(other) => cancel(other, How::Wait),
        Script::CancelSelf => cancel(id, How::Handle),
        Script::Reset(other, delay) => reset(other, delay),
        Script::Turn => nested_turn(),
        Script::Pause => {
            let core = here::core();
            with(|world| world.fault(Fault::Pause, core));
            here::pause();
        }
    }
}

/// Runs a callback.
pub(crate) fn run(id: Id) {
    let script = with(|world| world.fires(id));
    perform(id, script);
}

/// Panics, if that is what this callback does.
pub(crate) fn panic_if_told(id: Id) {
    let thrown = with(|world| {
        let timer = world.timer(id);
        (timer.script == Script::Panic).then(|| (std::sync::Arc::clone(&world.ledger), timer.life))
    });
    if let Some((ledger, life)) = thrown {
        ledger.throw(life);
    }
}

/// A callback adds a timer to its own.
fn add(id: Id, delay: Nanos) {
    let core = here::core();
    let is_full = local_timer().len();
    let payload = with(|world| {
        let life = world.cores[core].lives[0];
        let is_full = is_full >= world.lives[life].limit;
        let payload = world.payload(id, life, Script::Nothing)?;
        world.operation(Operation::AddInCallback, life);
        Some((payload, is_full))
    });
    let Some((payload, is_full)) = payload else { return };
    match local_timer().try_add(Duration::from_nanos(delay), move || once(&payload)) {
        Ok(handle) => with(|world| {
            world.expect(!is_full, || format!("timer {id} was let into a full shard"));
            let due = world.read(world.timer(id).life).saturating_add(delay);
            world.timers[id as usize].handle = Some(handle);
            world.added(id, Kind::Once, [due; 2], 0);
        }),
        Err(error) => refuse(id, error, is_full),
    }
}

/// An add that was refused: the callback comes back.
pub(crate) fn refuse<F>(id: Id, error: corewheel::AddError<F>, is_expected: bool) {
    let ledger = with(|world| {
        world.refused(id, error.reason(), is_expected);
        std::sync::Arc::clone(&world.ledger)
    });
    ledger.drop_quietly(error.into_inner());
}

/// A one-shot callback.
pub(crate) fn once(payload: &crate::ledger::Payload) {
    run(payload.id);
    panic_if_told(payload.id);
}

fn nested_turn() {
    let core = here::core();
    let turn = local_timer().turn();
    with(|world| {
        world.fault(Fault::NestedTurn, core);
        world.expect(turn.nested && turn.fired == 0, || format!("{turn:?} inside of a callback"));
    });
}
