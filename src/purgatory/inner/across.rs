//! What the operations of one core have to do with other cores.

use super::{
    super::{
        arena::{Arena, Id},
        letter::{Letter, Receiver},
        message::Message,
        watches::Watcher,
    },
    DelayedOperation, Inner, NOWHERE, WatchKey,
};
use crate::{
    hooks::PanicPlace,
    local::{Flush, LocalTimer},
};

/// The watches of this core's operations on other cores, as far as those have confirmed them.
pub(super) type ElsewhereArena = Arena<Elsewhere>;

/// A watch on another core.
pub(super) struct Elsewhere {
    core: u32,
    watch: Id,
    /// Where the next one of the same operation is.
    sibling: u32,
}

impl<K: WatchKey, Op: DelayedOperation> Inner<K, Op> {
    /// A message from another core. (From whom is of no account for an event.)
    fn take_in(&self, from: u32, message: Message<K>) {
        match message {
            Message::Event { key } => _ = self.check_key(&key),
            Message::Check { operation, .. } | Message::Gone { operation } => {
                _ = self.check(operation);
            }
            Message::Watch { key, operation } => {
                let (watch, _spare) =
                    self.watches.borrow_mut().add(key, Watcher::other(from, operation), NOWHERE);
                self.send(from, Message::Watching { operation, watch });
            }
            Message::Watching { operation, watch } => self.confirmed(operation, from, watch),
            Message::Leave { watch } => {
                let removed = self.watches.borrow_mut().remove(watch);
                drop(removed);
            }
        }
    }

    /// The same. The code of a key may panic; the other messages are others' business, and who waits for an answer gets one.
    pub(in crate::purgatory) fn take_in_alone(&self, from: u32, message: Message<K>) {
        let answer = message.answer().filter(|_| message.is_watch());
        let mut is_in = false;
        LocalTimer::isolate(PanicPlace::Operation, || {
            self.take_in(from, message);
            is_in = true;
        });
        if let Some(answer) = answer.filter(|_| !is_in) {
            self.send(from, answer);
        }
    }

    /// Another core has the watch on one of the operation's keys, which looks once more: there may have been an event on that
    /// key before the watch. (It does not wait for the other watches: a core may be slow, or have ended.)
    fn confirmed(&self, operation: Id, core: u32, watch: Id) {
        let noted = self.with(operation, |parked| {
            let sibling = parked.elsewhere;
            parked.elsewhere =
                self.elsewhere.borrow_mut().insert(Elsewhere { core, watch, sibling }).index();
        });
        match noted {
            Some(()) => _ = self.check(operation),
            // It has completed meanwhile.
            None => self.send(core, Message::Leave { watch }),
        }
    }

    /// All watches of an operation on other cores end, from where its last one is.
    pub(super) fn leave_all(&self, last: u32) {
        let mut at = last;
        while at != NOWHERE {
            let ended = self.elsewhere.borrow_mut().remove_at(at);
            let Some(Elsewhere { core, watch, sibling }) = ended else { break };
            self.send(core, Message::Leave { watch });
            at = sibling;
        }
    }

    /// Tells the operations of other cores that watch a key here that they will hear of no event any more.
    pub(super) fn tell_that_it_ends(&self) {
        if let Some(member) = &self.member {
            // Sending may call a wake hook.
            let others: Vec<_> = self.watches.borrow().of_others().collect();
            for (core, operation) in others {
                member.send(core, Message::Gone { operation });
            }
            member.flush();
        }
    }

    pub(super) fn send(&self, core: u32, message: Message<K>) {
        if let Some(member) = &self.member {
            member.send(core, message);
        }
    }
}

impl<K: WatchKey, Op: DelayedOperation> Receiver<K> for Inner<K, Op> {
    fn receive(&self, mut letter: Letter<K>) {
        let from = letter.from();
        for message in letter.messages_mut().drain(..) {
            self.take_in_alone(from, message);
        }
        if let Some(member) = &self.member {
            member.keep(letter);
        }
    }

    fn hears_no_more(&self) {
        self.tell_that_it_ends();
    }
}

impl<K: WatchKey, Op: DelayedOperation> Flush for Inner<K, Op> {
    fn flush(&self) {
        if let Some(member) = &self.member {
            member.flush();
        }
    }
}
