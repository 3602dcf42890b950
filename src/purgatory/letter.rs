//! Messages on their way to another core, and who takes them there.
//!
//! They arrive in no particular order: what follows from a message is sent when that has been answered.

use std::{any::Any, cell::RefCell, collections::HashMap, mem, rc, sync};

use super::{group::Group, message::Message};
use crate::{hooks::PanicPlace, local::LocalTimer, sync::per_thread};

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

    /// Its thread exits, and something keeps it: what is sent there reaches nobody.
    fn hears_no_more(&self);
}

/// A thread's part in a group.
struct Part {
    /// To know whether the group has gone.
    group: sync::Weak<dyn Any + Send + Sync>,
    /// An `Ear<K>`.
    ear: Box<dyn Any>,
}

/// Who hears the messages of a group on one thread.
enum Ear<K: Send + 'static> {
    /// Nobody yet.
    Early(Early<K>),
    Joined(Joined<K>),
}

struct Joined<K: Send + 'static>(rc::Weak<dyn Receiver<K>>);

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
        let receiver = with_ear(group, |ear| match ear {
            Ear::Early(early) => {
                let watches = messages.extract_if(.., |message| message.is_watch());
                early.watches.extend(watches.map(|watch| (*from, watch)));
                None
            }
            Ear::Joined(Joined(receiver)) => receiver.upgrade(),
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
        let watches = mem::take(&mut self.watches);
        LocalTimer::isolate(PanicPlace::Drop, || drop(watches));
    }
}

impl<K: Send + 'static> Drop for Joined<K> {
    fn drop(&mut self) {
        if let Some(receiver) = self.0.upgrade() {
            receiver.hears_no_more();
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
    let early = with_ear(group, |ear| {
        let Ear::Early(early) = ear else { return None };
        let watches = mem::take(&mut early.watches);
        *ear = Ear::Joined(Joined(receiver));
        Some(watches)
    });
    match early {
        Some(early) => early.unwrap_or_else(|| panic!("this thread has joined the group before")),
        // A thread that is exiting hears nothing any more.
        None => Vec::new(),
    }
}

/// Looks at who hears the group's messages on this thread; `None` if the thread is exiting.
fn with_ear<K: Send + 'static, R>(
    group: &sync::Arc<Group<K>>,
    look: impl FnOnce(&mut Ear<K>) -> R,
) -> Option<R> {
    let look = |part: &mut Part| {
        let ear = part.ear.downcast_mut();
        look(ear.unwrap_or_else(|| unreachable!("a group has keys of one type")))
    };
    let looked = PARTS.try_with(|parts| {
        let mut parts = parts.borrow_mut();
        let parts = parts.get_or_insert_default();
        if let Some(part) = parts.get_mut(&group.number()) {
            return (look(part), Vec::new());
        }
        let over: Vec<_> = parts.extract_if(|_, part| part.group.strong_count() == 0).collect();
        let as_any: sync::Arc<dyn Any + Send + Sync> = sync::Arc::clone(group) as _;
        let early = Early { group: sync::Arc::downgrade(group), watches: Vec::new() };
        let part = Part { group: sync::Arc::downgrade(&as_any), ear: Box::new(Ear::Early(early)) };
        (look(parts.entry(group.number()).or_insert(part)), over)
    });
    // The keys that groups have left behind are dropped when nothing is borrowed.
    looked.ok().map(|(found, _over)| found)
}
