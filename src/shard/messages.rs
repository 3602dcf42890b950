//! What other threads have asked for, as the owner meets it: in the mailbox, or in the word of a timer that is due.

use super::{
    Shard,
    steps::{Claimed, Ended},
};
use crate::{
    limits::GUEST,
    mailbox::{Messages, Urgency},
    origin::Origin,
    parcel::Parcel,
    reclaim::{Seen, pin},
    registry,
    shared::{By, Shared},
    slab::{Node, Place},
    state::{Cancel, Claim, Collected, Freed},
};

/// What is to be done about a message when nothing is borrowed.
#[must_use]
pub(crate) enum Message<T> {
    /// The timer was cancelled: its payload is to be taken and dropped.
    Cancelled(u32),
    /// The same, of a timer that the wheel never had.
    Dropped(T),
    /// The timer was moved to a moment that has come: it runs now.
    Due(Claimed<T>),
    /// Nothing: it has been dealt with.
    Done,
}

impl<T> Shard<T> {
    /// Takes in what was urgent when the pass began, up to the first timer that runs now.
    #[cold]
    pub(super) fn take_in_before(&mut self) -> Option<Claimed<T>> {
        let claimed = self.take_in();
        if claimed.is_none() {
            self.look_again();
        }
        claimed
    }

    /// Takes in the rest, and what has arrived meanwhile, up to the first timer that runs now; if there is none, the pass ends.
    pub(super) fn take_in_or_end(&mut self) -> Option<Claimed<T>> {
        self.look_again();
        let claimed = self.take_in();
        if claimed.is_none() {
            self.opened.end_pass();
            self.end_pass();
        }
        claimed
    }

    fn take_in(&mut self) -> Option<Claimed<T>> {
        loop {
            match self.next_message()? {
                Message::Cancelled(index) => {
                    let payload = self.take_payload(index);
                    self.shared.hooks.isolate_drop(payload);
                }
                Message::Dropped(payload) => self.shared.hooks.isolate_drop(payload),
                Message::Due(claimed) => return Some(claimed),
                Message::Done => (),
            }
        }
    }

    /// Deals with the next message of those that were taken, within the budget.
    #[inline]
    pub(crate) fn next_message(&mut self) -> Option<Message<T>> {
        if self.opened.has_met_enough() {
            return None;
        }
        // After what an earlier pass has left, or if nothing was there when this one began.
        self.take_mailbox();
        let index = self.opened.next();
        if index == 0 {
            return None;
        }
        if index & GUEST != 0 {
            return Some(self.guest_message(index & !GUEST));
        }
        let node = self.nodes.node(index);
        let link = node.link.get();
        self.opened.meet(link, &self.shared.mailbox);
        // The message after the next comes from another core's cache, and its entry from anywhere. The next one is on its way.
        self.nodes.prefetch(link);
        self.wheel.fetch(link);
        Some(match node.state.collect() {
            Collected::Cancelled => {
                // It is in no slot if it was due and its claim failed.
                self.end_cancelled(index);
                self.counts.cancelled_elsewhere += 1;
                Message::Cancelled(index)
            }
            Collected::Freed => {
                self.wheel.release(index);
                Message::Done
            }
            Collected::Moved { periodic } => {
                self.counts.resets_elsewhere += 1;
                self.moved(index, periodic)
            }
            Collected::Nothing { .. } => Message::Done,
        })
    }

    /// Another thread has moved the timer of the owner's node `index`.
    #[cold]
    fn moved(&mut self, index: u32, periodic: bool) -> Message<T> {
        match self.settle(index, periodic) {
            Some(claimed) => Message::Due(claimed),
            None => Message::Done,
        }
    }

    /// Places the timer of the owner's node `index` where another thread has asked for it; claims it if that moment has come.
    /// If it will come in this pass, the pass comes to it, in order.
    #[cold]
    fn settle(&mut self, index: u32, mut periodic: bool) -> Option<Claimed<T>> {
        loop {
            let nanos = self.asked(index);
            let deadline = self.tick.deadline(nanos);
            if periodic {
                self.schedules.move_to(index, nanos);
            }
            let Err(due) = self.wheel.put_in_order(index, deadline) else { return None };
            match self.claim(index) {
                Claim::Fires => {
                    self.count_arrived_due(self.tick.start(deadline));
                    return self.claimed(index, due);
                }
                Claim::Moved { periodic: again } => {
                    self.counts.resets_elsewhere += 1;
                    periodic = again;
                }
                Claim::Held | Claim::Guest => return None,
            }
        }
    }

    /// A timer that is due was not claimed at once.
    #[cold]
    #[inline(never)]
    pub(super) fn claim_otherwise(
        &mut self,
        index: u32,
        deadline: u64,
        claim: Claim,
    ) -> Option<Claimed<T>> {
        let claim = if claim == Claim::Guest { self.claim(index) } else { claim };
        match claim {
            Claim::Fires => {
                self.count_due(deadline);
                self.claimed(index, deadline)
            }
            Claim::Moved { periodic } => {
                self.counts.resets_elsewhere += 1;
                self.settle(index, periodic)
            }
            // It is left to its message.
            Claim::Held | Claim::Guest => None,
        }
    }

    /// Claims the timer of the owner's node `index`, by whichever word counts.
    fn claim(&self, index: u32) -> Claim {
        match self.node(index).state.claim() {
            Claim::Guest => self.guest_of(index).node.state.claim(),
            claim => claim,
        }
    }

    /// When another thread wants the timer of the owner's node `index` to be due.
    pub(super) fn asked(&self, index: u32) -> u64 {
        let place = self.nodes.place(index);
        if place.node.twin.get() == 0 {
            place.asked.read()
        } else {
            self.guest_of(index).asked.read()
        }
    }

    /// The guest for which the owner's node `index` stands.
    pub(super) fn guest_of(&self, index: u32) -> Place<'_, Parcel> {
        self.guests.place(self.node(index).twin.get() & !GUEST)
    }

    #[cold]
    fn guest_message(&mut self, guest: u32) -> Message<T> {
        self.guests.meet(&self.shared.guests, guest);
        let Place { node, .. } = self.guests.place(guest);
        self.opened.meet(node.link.get(), &self.shared.mailbox);
        if self.wheel.is_full() && self.guests.twin(guest).is_none() && node.state.is_unsettled() {
            // There is no index for it now: its message stays queued, and comes again in the next pass.
            let _ = self.shared.mailbox.push(guest | GUEST, &node.link, Urgency::Urgent);
            return Message::Done;
        }
        match (node.state.collect(), self.guests.twin(guest)) {
            (Collected::Cancelled, Some(index)) => {
                self.count_cancelled();
                self.counts.cancelled_elsewhere += 1;
                self.part(guest, index, Freed::Now);
                Message::Cancelled(index)
            }
            (Collected::Cancelled, None) => self.unpack_cancelled(guest),
            (Collected::Freed, _) => {
                self.guests.free(&self.shared.guests, guest);
                Message::Done
            }
            (Collected::Moved { periodic }, Some(index)) => {
                self.counts.resets_elsewhere += 1;
                self.moved(index, periodic)
            }
            // Or another thread is moving it, or has cancelled it meanwhile, and will say so.
            (Collected::Moved { .. } | Collected::Nothing { is_unsettled: true }, None) => {
                self.welcome(guest)
            }
            (Collected::Nothing { .. }, _) => Message::Done,
        }
    }

    /// A timer that another thread has added arrives: gets an entry, and a node that stands for it.
    fn welcome(&mut self, guest: u32) -> Message<T> {
        let Some((payload, origin)) = self.unpack(guest) else { return Message::Done };
        self.live += 1;
        // In this order: it is never missing from both, see `gate`.
        self.shared.gate.set_live(self.live);
        self.shared.gate.left();
        let index = self.wheel.take_index().index;
        let node = self.nodes.node_for_new(&self.shared.slab, index);
        node.state.stand_for_guest();
        node.twin.set(guest | GUEST);
        self.guests.arrive(&self.shared.guests, guest, index);
        self.wheel.set_value(index, payload);
        self.origins.set(index, origin, || self.clock.nanos().max(self.latest.lo));
        self.moved(index, false)
    }

    /// A timer that another thread has added, and one has cancelled before it has arrived.
    fn unpack_cancelled(&mut self, guest: u32) -> Message<T> {
        let payload = self.unpack_ended(guest);
        self.guests.free(&self.shared.guests, guest);
        self.counts.cancelled_elsewhere += u64::from(payload.is_some());
        payload.map_or(Message::Done, Message::Dropped)
    }

    /// The payload of a guest that has been cancelled, if nobody has taken it before.
    fn unpack_ended(&mut self, guest: u32) -> Option<T> {
        let (payload, _) = self.unpack(guest)?;
        self.counts.cancelled += 1;
        self.shared.gate.left();
        Some(payload)
    }

    /// The payload that a guest has brought, which is added now, once, and where it comes from.
    pub(super) fn unpack(&mut self, guest: u32) -> Option<(T, Origin)> {
        let sent = self.guests.place(guest).parcel.take()?;
        self.counts.added += 1;
        let origin = sent.origin();
        Some(((self.accept)(sent.into_callback())?, origin))
    }

    /// The timer of the guest has ended and parts with the owner's node `index`, which is free from now on.
    fn part(&mut self, guest: u32, index: u32, freed: Freed) {
        let node = self.node(index);
        node.state.stand_for_nobody();
        node.twin.set(0);
        self.guests.leave(guest);
        if freed == Freed::Now {
            self.guests.free(&self.shared.guests, guest);
        }
        self.wheel.remove(index);
    }

    /// The run of a guest's timer is over.
    #[cold]
    pub(super) fn finish_guest(&mut self, index: u32) {
        let guest = self.node(index).twin.get() & !GUEST;
        let freed = self.guests.place(guest).node.state.finish();
        self.part(guest, index, freed);
    }

    /// Looks at this shard as any thread would. `None` if it has ended: another one may have its number.
    fn as_anyone<R>(&self, look: impl FnOnce(&Seen<'_, Shared>) -> R) -> Option<R> {
        if self.closed {
            return None;
        }
        registry::with(self.number, |seen| seen.map(look))
    }

    /// How many of these messages mean a live timer that another thread has cancelled, and how many they are. Of each kind so many are
    /// looked at, at most.
    pub(super) fn look_through(
        &self,
        waiting: impl IntoIterator<Item = Messages>,
        most: u32,
    ) -> (u64, u64) {
        let (mut held, mut messages) = (0, 0);
        for mut waiting in waiting {
            for _ in 0..most {
                let index = waiting.first;
                if index == 0 {
                    break;
                }
                let (link, is_held) = self.look_at(index);
                waiting = waiting.rest(link);
                messages += 1;
                held += u64::from(is_held);
            }
        }
        (held, messages)
    }

    /// Where the link of a message leads, and whether it means a live timer that another thread has cancelled.
    fn look_at(&self, index: u32) -> (u32, bool) {
        if index & GUEST == 0 {
            let Node { link, state, .. } = self.node(index);
            return (link.get(), state.is_held());
        }
        let guest = index & !GUEST;
        let is_live = self.guests.twin(guest).is_some();
        let seen = self.shared.guests.with(guest, &pin(), |Place { node, .. }| {
            (node.link.get(), is_live && node.state.is_held())
        });
        seen.unwrap_or((0, false))
    }

    /// As `cancel_own`, of an index that is none of the owner's: a guest's, or nobody's any more.
    #[cold]
    #[inline(never)]
    pub(super) fn cancel_guest(&mut self, index: u32, generation: u64) -> Result<Ended<T>, Cancel> {
        let guest = guest_of_index(index).ok_or(Cancel::Ended)?;
        let Some(index) = self.guests.twin(guest) else {
            // It may not have arrived: its message, which is queued, will find the parcel empty.
            let answer = self.as_anyone(|seen| seen.cancel(guest | GUEST, generation).answer);
            if answer != Some(Cancel::Cancelled) {
                return Err(answer.unwrap_or(Cancel::Ended));
            }
            self.guests.meet(&self.shared.guests, guest);
            return Ok(Ended::Unseen(self.unpack_ended(guest)));
        };
        let freed = self.guests.place(guest).node.state.cancel_own(generation)?;
        self.count_cancelled();
        self.part(guest, index, freed);
        Ok(Ended::Entry(index))
    }

    /// As `reset_own`, of such an index.
    #[cold]
    #[inline(never)]
    pub(super) fn reset_guest(
        &mut self,
        index: u32,
        generation: u64,
        due: impl FnOnce(&mut Self) -> u64,
    ) -> Option<u64> {
        let guest = guest_of_index(index)?;
        let Some(index) = self.guests.twin(guest) else {
            // It may not have arrived. When it does, what it is asked for by then counts.
            let due = due(self);
            let is_moved = self
                .as_anyone(|seen| seen.reset(guest | GUEST, generation, due, By::Owner).answer)?;
            self.counts.resets += u64::from(is_moved);
            return is_moved.then_some(due);
        };
        let movable = self.guests.place(guest).node.state.movable(generation);
        self.reset_otherwise(movable, index, due)
    }
}

fn guest_of_index(index: u32) -> Option<u32> {
    (index & GUEST != 0).then_some(index & !GUEST)
}
