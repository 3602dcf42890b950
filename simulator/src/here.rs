//! What the thread that runs has: the world, and whom to give it to. Callbacks and destructors find it here.

use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::HashMap,
    sync::mpsc::{Receiver, Sender},
};

use corewheel::LocalHandle;

use crate::{model::World, plan::Id};

/// What a core is told.
#[derive(Debug)]
pub(crate) enum Job {
    /// Do these steps.
    Steps(Box<World>, std::ops::Range<usize>),
    /// Go on with the callback that has paused.
    GoOn(Box<World>),
    /// End, with all that is left.
    Leave(Box<World>),
}

/// What a core says.
#[derive(Debug)]
pub(crate) enum Reply {
    Done(Box<World>),
    /// In the middle of a callback.
    Paused(Box<World>),
}

/// A core's ends of both.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) jobs: Receiver<Job>,
    pub(crate) replies: Sender<Reply>,
}

thread_local! {
    static WORLD: RefCell<Option<Box<World>>> = const { RefCell::new(None) };
    static LINK: OnceCell<Link> = const { OnceCell::new() };
    static CORE: Cell<usize> = const { Cell::new(usize::MAX) };
    /// Handles that never leave their thread.
    static LOCALS: RefCell<HashMap<Id, LocalHandle>> = RefCell::default();
}

/// This thread is a core from now on.
pub(crate) fn become_core(core: usize, link: Link) {
    CORE.set(core);
    LINK.with(|place| place.set(link).expect("a new thread"));
}

pub(crate) fn core() -> usize {
    CORE.get()
}

pub(crate) fn with_link<R>(look: impl FnOnce(&Link) -> R) -> R {
    LINK.with(|link| look(link.get().expect("this thread is a core")))
}

pub(crate) fn put(world: Box<World>) {
    WORLD.with_borrow_mut(|place| *place = Some(world));
}

pub(crate) fn take() -> Box<World> {
    WORLD.with_borrow_mut(Option::take).expect("the world is here")
}

/// Asks the model, or tells it something. Nothing of the library's may be called in it.
pub(crate) fn with<R>(ask: impl FnOnce(&mut World) -> R) -> R {
    WORLD.with_borrow_mut(|world| ask(world.as_mut().expect("the world is here")))
}

/// The same, if the world is here: not in a thread that is ending.
fn with_any<R>(ask: impl FnOnce(&mut World) -> R) -> Option<R> {
    WORLD.try_with(|world| world.borrow_mut().as_mut().map(|world| ask(world))).ok().flatten()
}

pub(crate) fn keep_local(id: Id, handle: LocalHandle) {
    LOCALS.with_borrow_mut(|locals| locals.insert(id, handle));
}

pub(crate) fn local(id: Id) -> Option<LocalHandle> {
    LOCALS.with_borrow(|locals| locals.get(&id).copied())
}

/// A payload is being dropped, which may cancel another timer.
pub(crate) fn payload_dropped(id: Id) {
    if let Some(Some(other)) = with_any(|world| world.drops(id)) {
        crate::asking::cancel(other, crate::plan::How::Handle);
    }
    with_any(|world| world.has_dropped(id));
}

/// In a callback: the other cores go on, until it is this one's turn again.
pub(crate) fn pause() {
    with_link(|link| {
        link.replies.send(Reply::Paused(take())).expect("the conductor waits");
        match link.jobs.recv() {
            Ok(Job::GoOn(world)) => put(world),
            other => unreachable!("a core that has paused was told {other:?}"),
        }
    });
}
