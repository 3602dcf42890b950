//! Messages on their way to another core, and who takes them there.
//!
//! They arrive in no particular order: what follows from a message is sent when that has been answered.

use std::{any::Any, cell::RefCell, collections::HashMap, mem, rc, sync};

use super::{group::Group, message::Message};
use crate::sync::per_thread;

/// Messages of a group to one of its cores. If they can reach nobody, their sender is told.
pub(super) struct Letter<K: Send + 'static> {
    group: sync::Arc<Group<K>>,
    messages: Vec<Message<K>>,
}

/// Who takes the messages of a group on one thread.
pub(super) trait Receiver<K> {
    fn receive(&self, messages: Vec<Message<K>>);
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
    watches: Vec<Message<K>>,
}

per_thread! {
    /// By the group's number.
    static PARTS: RefCell<Option<HashMap<u64, Part>>> = RefCell::new(None);
}

impl<K: Send + 'static> Letter<K> {
    pub(super) fn new(group: &sync::Arc<Group<K>>, messages: Vec<Message<K>>) -> Self {
        Self { group: sync::Arc::clone(group), messages }
    }

    /// Hands the messages to this thread's part of the group, or keeps them until it joins.
    pub(super) fn open(mut self) {
        let receiver = with_part(&self.group, |part| match part.receiver.downcast_mut::<Early<K>>() {
            Some(early) => {
                early.watches.extend(self.messages.extract_if(.., |message| message.is_watch()));
                None
            }
            None => part.receiver.downcast_ref::<rc::Weak<dyn Receiver<K>>>().and_then(rc::Weak::upgrade),
        });
        if let Some(receiver) = receiver.flatten() {
            receiver.receive(mem::take(&mut self.messages));
        }
    }
}

impl<K: Send + 'static> Drop for Letter<K> {
    fn drop(&mut self) {
        answer(&self.group, &self.messages);
    }
}

impl<K: Send + 'static> Drop for Early<K> {
    fn drop(&mut self) {
        if let Some(group) = self.group.upgrade() {
            answer(&group, &self.watches);
        }
    }
}

/// Tells the senders of what has reached nobody.
fn answer<K: Send + 'static>(group: &sync::Arc<Group<K>>, messages: &[Message<K>]) {
    let mut answers = messages.iter().filter_map(Message::answer).peekable();
    while let Some((core, first)) = answers.next() {
        let mut together = vec![first];
        while let Some((_, next)) = answers.next_if(|&(next, _)| next == core) {
            together.push(next);
        }
        group.send(core, together);
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
) -> Vec<Message<K>> {
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
