//! Hands the model from one core's thread to the next. Only the thread that has the model runs.

use std::cell::{OnceCell, RefCell};
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender};

use crate::model::Model;

#[derive(Debug)]
pub(crate) enum Job {
    Steps(Range<usize>),
    /// Continues the paused callback.
    Resume,
    /// Ends the thread and its shards.
    EndThread,
}

/// A core's ends of the channels to the `Conductor` of the episode. The `bool` of a reply is true
/// if the core has paused in a callback.
#[derive(Debug)]
pub(crate) struct CoreChannels {
    pub(crate) jobs: Receiver<(Box<Model>, Job)>,
    pub(crate) replies: Sender<(Box<Model>, bool)>,
}

thread_local! {
    static MODEL: RefCell<Option<Box<Model>>> = const { RefCell::new(None) };
    pub(crate) static CORE_CHANNELS: OnceCell<CoreChannels> = const { OnceCell::new() };
}

/// Waits for the model and a job. Returns None if the episode was abandoned.
pub(crate) fn receive_job() -> Option<Job> {
    let (model, job) = CORE_CHANNELS.with(|channels| channels.get()?.jobs.recv().ok())?;
    MODEL.set(Some(model));
    Some(job)
}

pub(crate) fn hand_back_model(is_paused: bool) {
    let model = MODEL.take().expect("the model is here");
    let send =
        |channels: &OnceCell<CoreChannels>| channels.get()?.replies.send((model, is_paused)).ok();
    CORE_CHANNELS.with(send).expect("the conductor waits");
}

/// Runs other cores until this core is resumed.
pub(crate) fn pause() {
    hand_back_model(true);
    let job = receive_job();
    assert!(matches!(job, Some(Job::Resume)), "a paused core received {job:?}");
}

/// Accesses the model. `access` must not call the library.
pub(crate) fn with_model<R>(access: impl FnOnce(&mut Model) -> R) -> R {
    try_with_model(access).expect("the model is here")
}

pub(crate) fn check(holds: bool, describe: impl FnOnce() -> String) {
    with_model(|model| model.check(holds, describe));
}

pub(crate) fn count_operation(name: &'static str) {
    with_model(|model| model.coverage.count(name));
}

/// Accesses the model. Returns None if this thread is ending and does not have the model.
pub(crate) fn try_with_model<R>(access: impl FnOnce(&mut Model) -> R) -> Option<R> {
    MODEL.try_with(|model| model.borrow_mut().as_mut().map(|model| access(model))).ok().flatten()
}
