//! Delayed operations of a core: they complete early by an event on their key, or by force, or time out.

use std::{collections::HashMap, sync::Arc, time::Duration};

use corewheel::{Completion, DelayedOperation, OperationId, Outcome, Purgatory, local_timer};

use super::Core;
use crate::{
    asking,
    coverage::Operation,
    here::with,
    ledger::Payload,
    model::{Kind, State, World},
    plan::{Id, Nanos, Script},
};

#[derive(Default)]
pub(super) struct Delayed {
    purgatory: Purgatory<u8, Delays>,
    names: HashMap<Id, OperationId>,
}

/// An operation.
struct Delays(Payload);

impl DelayedOperation for Delays {
    fn try_complete(&mut self) -> bool {
        with(|world| world.is_met)
    }

    fn on_complete(self, how: Completion) {
        let id = self.0.id;
        if how == Completion::Expired {
            asking::once(&self.0);
        } else {
            let answer = with(|world| world.foresee_cancel(id, true).answer);
            with(|world| {
                let is_right = answer == corewheel::Cancel::Cancelled;
                world.expect(is_right, || {
                    format!("operation {id} completed, {how:?}, and had ended")
                });
            });
            asking::panic_if_told(id);
        }
    }
}

impl Core {
    pub(super) fn watch(&mut self, id: Id, key: u8, delay: Nanos, script: Script) {
        // It is dropped wherever the purgatory drops it.
        let is_plain = matches!(script, Script::DropPanic | Script::DropCancel(_));
        let script = if is_plain { Script::Panic } else { script };
        let (life, length) = (self.life(0), local_timer().len());
        let prepared = with(|world| {
            let is_full = length >= world.lives[life].limit;
            let payload = world.payload(id, life, script)?;
            world.operation(Operation::Watch, life);
            Some((payload, is_full))
        });
        let Some((payload, is_full)) = prepared else { return };
        let watched = self.delayed.purgatory.try_complete_else_watch(
            Delays(payload),
            [key],
            Duration::from_nanos(delay),
        );
        match watched {
            Ok(Outcome::Waits(name)) => {
                self.delayed.names.insert(id, name);
                with(|world| {
                    world.expect(!is_full, || format!("operation {id} was let into a full shard"));
                    let due = world.read(life).saturating_add(delay);
                    world.timers[id as usize].key = key;
                    world.added(id, Kind::Delayed, [due; 2], 0);
                });
            }
            Ok(Outcome::Completed) => {
                with(|world| world.expect(false, || format!("operation {id} completed at once")));
            }
            Err(error) => asking::refuse(id, error, is_full),
        }
        self.compare(0);
    }

    /// An event, after which the operations that watch the key are complete, or not.
    pub(super) fn event(&mut self, key: u8, is_met: bool) {
        let life = self.life(0);
        let expected = with(|world| {
            world.operation(Operation::Event, life);
            world.is_met = is_met;
            if is_met { world.watching(life, key).len() } else { 0 }
        });
        let completed = self.delayed.purgatory.check_and_complete(&key);
        with(|world| {
            world.is_met = false;
            world.expect(completed == expected, || {
                format!("{completed} operations completed of {expected}")
            });
        });
        self.compare(0);
    }

    pub(super) fn force(&mut self, id: Id) {
        let Some(&name) = self.delayed.names.get(&id) else { return };
        let expected = with(|world| {
            world.operation(Operation::Force, world.timer(id).life);
            world.timer(id).state == State::Live
        });
        let forced = self.delayed.purgatory.force_complete(name);
        with(|world| {
            world.expect(forced == expected, || format!("operation {id} was forced: {forced}"))
        });
        self.compare(0);
    }

    /// All that wait for a key come back.
    pub(super) fn hand_back(&mut self, key: u8) {
        let life = self.life(0);
        let (watching, ledger) = with(|world| {
            world.operation(Operation::HandBack, life);
            let watching = world.watching(life, key);
            for &id in &watching {
                let _ = world.foresee_cancel(id, true);
            }
            (watching, Arc::clone(&world.ledger))
        });
        let back = self.delayed.purgatory.cancel_for_key(&key);
        let mut ids: Vec<_> = back.iter().map(|operation| operation.0.id).collect();
        ids.sort_unstable();
        ledger.drop_quietly(back);
        with(|world| {
            world.expect(ids == watching, || format!("{ids:?} came back of {watching:?}"))
        });
        self.compare(0);
    }

    /// Before the thread ends: those that wait are dropped, and do not complete.
    pub(super) fn leave_purgatory(&self) {
        let waiting = self.delayed.purgatory.drain();
        let ledger = with(|world| {
            for operation in &waiting {
                let _ = world.foresee_cancel(operation.0.id, true);
            }
            Arc::clone(&world.ledger)
        });
        ledger.drop_quietly(waiting);
    }
}

impl World {
    /// The operations of a core that wait for a key, in the order of their numbers.
    fn watching(&self, life: usize, key: u8) -> Vec<Id> {
        let mut watching: Vec<_> =
            self.delayed(life).filter(|&id| self.timer(id).key == key).collect();
        watching.sort_unstable();
        watching
    }
}
