//! Delayed operations, and a record of their calls.
#![allow(dead_code, reason = "no test uses all of it")]

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use corewheel::purgatory::{
    Completion, DelayedOperation, OperationId, Purgatory, WatchKey, WatchOutcome,
};

use crate::common::TICK;

/// An operation that completes at a check if its flag is set.
pub(crate) struct Op {
    pub(crate) record: Arc<OpRecord>,
    /// Called by `try_complete`, after it has read the flag.
    in_try_complete: Box<dyn FnMut()>,
    after: Box<dyn FnMut()>,
}

/// The state that a test shares with its operation.
#[derive(Debug, Default)]
pub(crate) struct OpRecord {
    is_met: AtomicBool,
    checks: AtomicUsize,
    is_inside: AtomicBool,
    ended: Mutex<Vec<Completion>>,
}

impl DelayedOperation for Op {
    fn try_complete(&mut self) -> bool {
        self.record.checks.fetch_add(1, Ordering::Relaxed);
        assert!(
            !self.record.is_inside.swap(true, Ordering::Relaxed),
            "nested calls of try_complete"
        );
        let is_met = self.record.is_set();
        let during = catch_unwind(AssertUnwindSafe(&mut self.in_try_complete));
        self.record.is_inside.store(false, Ordering::Relaxed);
        during.map_or_else(|panic| resume_unwind(panic), |()| is_met)
    }

    fn on_complete(mut self, how: Completion) {
        assert!(!self.record.is_inside.load(Ordering::Relaxed), "completed inside try_complete");
        self.record.ended.lock().expect("sound").push(how);
        (self.after)();
    }
}

impl OpRecord {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(crate) fn op(self: &Arc<Self>) -> Op {
        self.op_with(|| (), || ())
    }

    pub(crate) fn op_with(
        self: &Arc<Self>,
        in_try_complete: impl FnMut() + 'static,
        after: impl FnMut() + 'static,
    ) -> Op {
        Op {
            record: Arc::clone(self),
            in_try_complete: Box::new(in_try_complete),
            after: Box::new(after),
        }
    }

    pub(crate) fn set(&self) {
        self.set_to(true);
    }

    pub(crate) fn set_to(&self, is_met: bool) {
        self.is_met.store(is_met, Ordering::Release);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.is_met.load(Ordering::Acquire)
    }

    pub(crate) fn checks(&self) -> usize {
        self.checks.load(Ordering::Relaxed)
    }

    pub(crate) fn ended(&self) -> Vec<Completion> {
        self.ended.lock().expect("sound").clone()
    }

    pub(crate) fn assert_ended(&self, how: Completion) {
        assert_eq!(self.ended(), [how]);
    }
}

pub(crate) fn add_waiting<K: WatchKey, O: DelayedOperation>(
    own: &Purgatory<K, O>,
    op: O,
    keys: impl IntoIterator<Item = K>,
    ticks: u32,
) -> OperationId {
    let added = own.try_complete_else_watch(op, keys, TICK * ticks).expect("there is room");
    let WatchOutcome::Waits(id) = added else { panic!("the operation completed at once") };
    id
}

pub(crate) struct NeverCompletes;

impl DelayedOperation for NeverCompletes {
    fn try_complete(&mut self) -> bool {
        false
    }

    fn on_complete(self, _: Completion) {}
}
