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
    after_completion: Box<dyn FnMut()>,
}

/// The state that a test shares with its operation.
#[derive(Debug, Default)]
pub(crate) struct OpRecord {
    is_met: AtomicBool,
    check_count: AtomicUsize,
    is_in_try_complete: AtomicBool,
    completions: Mutex<Vec<Completion>>,
}

impl DelayedOperation for Op {
    fn try_complete(&mut self) -> bool {
        self.record.check_count.fetch_add(1, Ordering::Relaxed);
        assert!(
            !self.record.is_in_try_complete.swap(true, Ordering::Relaxed),
            "nested calls of try_complete"
        );
        let is_met = self.record.is_met();
        let result = catch_unwind(AssertUnwindSafe(&mut self.in_try_complete));
        self.record.is_in_try_complete.store(false, Ordering::Relaxed);
        result.map_or_else(|panic| resume_unwind(panic), |()| is_met)
    }

    fn on_complete(mut self, how: Completion) {
        assert!(
            !self.record.is_in_try_complete.load(Ordering::Relaxed),
            "completed inside try_complete"
        );
        self.record.completions.lock().expect("sound").push(how);
        (self.after_completion)();
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
        after_completion: impl FnMut() + 'static,
    ) -> Op {
        Op {
            record: Arc::clone(self),
            in_try_complete: Box::new(in_try_complete),
            after_completion: Box::new(after_completion),
        }
    }

    pub(crate) fn meet_condition(&self) {
        self.set_is_met(true);
    }

    pub(crate) fn set_is_met(&self, is_met: bool) {
        self.is_met.store(is_met, Ordering::Release);
    }

    pub(crate) fn is_met(&self) -> bool {
        self.is_met.load(Ordering::Acquire)
    }

    pub(crate) fn check_count(&self) -> usize {
        self.check_count.load(Ordering::Relaxed)
    }

    pub(crate) fn completions(&self) -> Vec<Completion> {
        self.completions.lock().expect("sound").clone()
    }

    pub(crate) fn assert_ended(&self, how: Completion) {
        assert_eq!(self.completions(), [how]);
    }
}

pub(crate) fn add_waiting<K: WatchKey, O: DelayedOperation>(
    purgatory: &Purgatory<K, O>,
    op: O,
    keys: impl IntoIterator<Item = K>,
    ticks: u32,
) -> OperationId {
    let added = purgatory.try_complete_else_watch(op, keys, TICK * ticks).expect("there is room");
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
