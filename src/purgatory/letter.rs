//! Messages on their way to another core, and who takes them there.
//!
//! They arrive in no particular order: what follows from a message is sent when that has been answered.

use std::{any::Any, cell::RefCell, collections::HashMap, mem, rc, sync};

use super::{group::Group, message::Message};
use crate::sync::per_thread;

/// Messages of a group to one of its cores. If they can reach nobody, their sender is told. It travels as a whole and is used
/// again by who has read it.
pub(super) struct Letter<K: Send + 'static>(Box<Content<K>>);

struct Content<K: Send + 'static> {
    group: sync::Arc<Group<K>>,
    /// The core whose messages they are; of no account for events.
    from: u32,
    messages: Vec<Message<K>>,
}

/// Who takes the messages of a group on one thread.
pub(super) trait Receiver<K: Send + 'static> {
    fn receive(&self, letter: Letter<K>);
}

/// A thread's part in a group.
struct Part {
    /// To know whether the group has gone.
    group: sync::Weak<dyn Any + Send + Sync>,
    /// A `Weak<dyn Receiver<K>>`, or before there is one an `Early<K>`.
    receiver: Box<dyn Any>,
}

/// The watches that other cores have asked for before this one has joined. (Events are not kept: who watches looks when it
/// hears that its watch is in place.)
struct Early<K: Send + 'static> {
    /// Of the thread's part, which must not keep the group.
    group: sync::Weak<Group<K>>,
    watches: Vec<(u32, Message<K>)>,
}

per_thread! {
    /// By the group's number.
    static PARTS: RefCell<Option<HashMap<u64, Part>>> = RefCell::new(None);
}

impl<K: Send + 'static> Letter<K> {
    pub(super) fn new(group: &sync::Arc<Group<K>>, from: u32, messages: Vec<Message<K>>) -> Self {
        Self(Box::new(Content { group: sync::Arc::clone(group), from, messages }))
    }

    pub(super) fn from(&self) -> u32 {
        self.0.from
    }

    /// Makes it another one's, to write in.
    pub(super) fn hand_over(&mut self, to: u32) {
        self.0.from = to;
    }

    pub(super) fn messages(&self) -> &[Message<K>] {
        &self.0.messages
    }

    pub(super) fn messages_mut(&mut self) -> &mut Vec<Message<K>> {
        &mut self.0.messages
    }

    /// Hands the messages to this thread's part of the group, or keeps them until it joins.
    pub(super) fn open(mut self) {
        let Content { group, from, messages } = &mut *self.0;
        let receiver = with_part(group, |part| match part.receiver.downcast_mut::<Early<K>>() {
            Some(early) => {
                let watches = messages.extract_if(.., |message| message.is_watch());
                early.watches.extend(watches.map(|watch| (*from, watch)));
                None
            }
            None => part.receiver.downcast_ref::<rc::Weak<dyn Receiver<K>>>().and_then(rc::Weak::upgrade),
        });
        if let Some(receiver) = receiver.flatten() {
            receiver.receive(self);
        }
    }
}

impl<K: Send + 'static> Drop for Letter<K> {
    fn drop(&mut self) {
        let answers: Vec<_> = self.messages().iter().filter_map(Message::answer).collect();
        self.0.group.send(self.0.from, answers);
    }
}

impl<K: Send + 'static> Drop for Early<K> {
    fn drop(&mut self) {
        let Some(group) = self.group.upgrade() else { return };
        for watches in self.watches.chunk_by(|(one, _), (next, _)| one == next) {
            let answers = watches.iter().filter_map(|(_, watch)| watch.answer()).collect();
            group.send(watches[0].0, answers);
        }
    }
}

/// From now on this thread's messages of the group go there; returns those that came before.
///
/// # Panics
///
/// If the thread has joined before: what is on its way to the first purgatory, or about its watches, would reach the second.
pub(super) fn register<K: Send + 'static>(
    group: &sync::Arc<Group<K>>,
    receiver: rc::Weak<dyn Receiver<K>>,
) -> Vec<(u32, Message<K>)> {
    let before = with_part(group, |part| {
        let is_first = part.receiver.is::<Early<K>>();
        is_first.then(|| mem::replace(&mut part.receiver, Box::new(receiver)))
    });
    // A thread that is exiting hears nothing any more.
    let Some(before) = before else { return Vec::new() };
    let Some(early) = before else { panic!("this thread has joined the group before") };
    early.downcast().map_or_else(|_| Vec::new(), |mut early: Box<Early<K>>| mem::take(&mut early.watches))
}

/// Looks at this thread's part in the group; `None` if the thread is exiting.
fn with_part<K: Send + 'static, R>(group: &sync::Arc<Group<K>>, look: impl FnOnce(&mut Part) -> R) -> Option<R> {
    let looked = PARTS.try_with(|parts| {
        let mut parts = parts.borrow_mut();
        let parts = parts.get_or_insert_default();
        if let Some(part) = parts.get_mut(&group.number()) {
            return (look(part), Vec::new());
        }
        let over: Vec<_> = parts.extract_if(|_, part| part.group.strong_count() == 0).collect();
        let as_any: sync::Arc<dyn Any + Send + Sync> = sync::Arc::clone(group) as _;
        let receiver = Box::new(Early::<K> { group: sync::Arc::downgrade(group), watches: Vec::new() });
        let part = Part { group: sync::Arc::downgrade(&as_any), receiver };
        (look(parts.entry(group.number()).or_insert(part)), over)
    });
    // The keys that groups have left behind are dropped when nothing is borrowed.
    looked.ok().map(|(found, _over)| found)
}
