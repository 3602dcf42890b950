//! The delayed operations of a core: they complete by an event on their key, by force, or by their
//! timeout.

use std::{collections::HashMap, time::Duration};

use corewheel::{
    Cancel, Completion, DelayedOperation, OperationId, Outcome, Purgatory, local_timer,
};

use super::{Core, drop_quietly, panic_if_told, refused, run_once};
use crate::{
    coverage::Operation,
    handover::with,
    ledger::Payload,
    model::{Kind, State},
    plan::{Id, Script, Step, Way},
};

#[derive(Default)]
pub(super) struct Delayed {
    purgatory: Purgatory<usize, Delays>,
    names: HashMap<Id, OperationId>,
}

/// An operation.
struct Delays(Payload);

impl DelayedOperation for Delays {
    fn try_complete(&mut self) -> bool {
        with(|model| model.is_met)
    }

    fn on_complete(self, how: Completion) {
        let id = self.0.id;
        if how == Completion::Expired {
            return run_once(&self.0);
        }
        with(|model| {
            let answer = model.cancels(id, true).answer;
            model.check(answer == Cancel::Cancelled, || {
                format!("operation {id} completed, {how:?}, and had ended")
            });
        });
        panic_if_told(id);
    }
}

impl Core {
    pub(super) fn watch(&mut self, step: Step) {
        let Step { id, count: key, delay, .. } = step;
        // The purgatory decides where it is dropped.
        let script = match step.script {
            Script::DropPanic | Script::DropCancel(_) => Script::Panic,
            script => script,
        };
        let length = local_timer().len();
        let added = with(|model| {
            let added = model.begin_add(id, model.own(), script, length, Operation::Watch)?;
            model.timers[id as usize].key = key;
            Some(added)
        });
        let Some((payload, is_full)) = added else { return };
        let watched = self.delayed.purgatory.try_complete_else_watch(
            Delays(payload),
            [key],
            Duration::from_nanos(delay),
        );
        let answer = match watched {
            Ok(Outcome::Waits(name)) => {
                self.delayed.names.insert(id, name);
                with(|model| model.timers[id as usize].kind = Kind::Delayed);
                Ok(None)
            }
            Ok(Outcome::Completed) => unreachable!("no event is under way"),
            Err(error) => Err(refused(error)),
        };
        with(|model| model.end_add(id, Way::Plain, [delay, 0], is_full, answer));
        self.compare(0);
    }

    /// An event, after which the operations of the key are complete, or not.
    pub(super) fn event(&mut self, key: usize, is_met: bool) {
        let expected = with(|model| {
            model.coverage.operation(Operation::Event);
            model.is_met = is_met;
            if is_met { model.watching(model.own(), key).len() } else { 0 }
        });
        let completed = self.delayed.purgatory.check_and_complete(&key);
        with(|model| {
            model.is_met = false;
            model.check(completed == expected, || {
                format!("{completed} operations completed of {expected}")
            });
        });
        self.compare(0);
    }

    pub(super) fn force(&mut self, id: Id) {
        let Some(&name) = self.delayed.names.get(&id) else { return };
        let expected = with(|model| {
            model.coverage.operation(Operation::Force);
            model.timer(id).state == State::Live
        });
        let forced = self.delayed.purgatory.force_complete(name);
        with(|model| {
            model.check(forced == expected, || format!("operation {id} was forced: {forced}"));
        });
        self.compare(0);
    }

    /// Takes back all operations that wait for a key.
    pub(super) fn hand_back(&mut self, key: usize) {
        let expected = with(|model| {
            model.coverage.operation(Operation::HandBack);
            let watching = model.watching(model.own(), key);
            for &id in &watching {
                let _ = model.cancels(id, true);
            }
            watching
        });
        let back = self.delayed.purgatory.cancel_for_key(&key);
        let mut ids: Vec<_> = back.iter().map(|operation| operation.0.id).collect();
        ids.sort_unstable();
        drop_quietly(back);
        with(|model| {
            model.check(ids == expected, || format!("{ids:?} came back of {expected:?}"));
        });
        self.compare(0);
    }

    /// Takes all operations back before the thread ends.
    pub(super) fn leave_purgatory(&self) {
        let back = self.delayed.purgatory.drain();
        with(|model| back.iter().for_each(|operation| _ = model.cancels(operation.0.id, true)));
        drop_quietly(back);
    }
}
