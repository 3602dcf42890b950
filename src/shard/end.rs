//! The end of a shard: every timer ends, and what was pending comes back.

use std::mem;

use super::Shard;
use crate::{
    limits::GUEST,
    mailbox::Messages,
    registry,
    slab::Place,
    state::{StateWord, Swept},
};

/// What the sweep has found so far.
struct Found<T> {
    /// With the deadlines, in nanoseconds of the clock.
    pending: Vec<(u64, T)>,
    cancelled: Vec<T>,
}

impl<T> Shard<T> {
    /// The last sweep: closes the mailbox, ends every timer, and gives back what was pending with its deadlines. Nothing,
    /// if that has been done before.
    pub(super) fn close(&mut self) -> Vec<(u64, T)> {
        let mut found = Found { pending: Vec::new(), cancelled: Vec::new() };
        if mem::replace(&mut self.closed, true) {
            return found.pending;
        }
        let last = self.shared.mailbox.close();
        for messages in mem::take(&mut self.opened).left().into_iter().chain(last) {
            self.sweep_arrivals(messages, &mut found);
        }
        for index in 1..self.wheel.end_of_indices() {
            self.sweep(index, &mut found);
        }
        let Found { pending, cancelled } = found;
        let ended = u32::try_from(pending.len() + cancelled.len()).unwrap_or(u32::MAX);
        self.live = self.live.saturating_sub(ended);
        self.counts.handed_back += pending.len() as u64;
        self.counts.cancelled += cancelled.len() as u64;
        self.counts.cancelled_elsewhere += cancelled.len() as u64;
        self.end_pass();
        self.tell();
        registry::unregister(
            self.number,
            self.next_generation.max(self.shared.guests.next_generation()),
        );
        for payload in cancelled {
            self.shared.hooks.isolate_drop(payload);
        }
        pending
    }

    /// Ends the timers that other threads have added and that never arrived.
    fn sweep_arrivals(&mut self, mut messages: Messages, found: &mut Found<T>) {
        while messages.first != 0 {
            let index = messages.first;
            if index & GUEST == 0 {
                messages = messages.rest(self.node(index).link.get());
                continue;
            }
            let guest = index & !GUEST;
            self.guests.meet(&self.shared.guests, guest);
            messages = messages.rest(self.guests.place(guest).node.link.get());
            if self.guests.twin(guest).is_none() {
                self.sweep_arrival(guest, found);
            }
        }
    }

    fn sweep_arrival(&mut self, guest: u32, found: &mut Found<T>) {
        let Place { node, asked, .. } = self.guests.place(guest);
        let (swept, nanos) = (node.state.sweep(), asked.read());
        if matches!(swept, Swept::Idle | Swept::Guest) {
            return;
        }
        let Some((payload, _)) = self.unpack(guest) else { return };
        self.live += 1;
        if swept == Swept::Cancelled {
            found.cancelled.push(payload);
        } else {
            found.pending.push((self.tick.round_up(nanos), payload));
        }
    }

    fn sweep(&mut self, index: u32, found: &mut Found<T>) {
        let Some(node) = self.nodes.get(index) else { return };
        let swept = match node.state.sweep() {
            Swept::Guest => {
                let state: &StateWord = &self.guest_of(index).node.state;
                state.sweep()
            }
            swept => swept,
        };
        if matches!(swept, Swept::Idle | Swept::Guest) {
            return;
        }
        let nanos = match swept {
            Swept::HandedBack { moved: true } => self.tick.round_up(self.asked(index)),
            _ => self.due_nanos(index),
        };
        self.wheel.remove(index);
        match self.wheel.take_value(index) {
            Some(payload) if swept == Swept::Cancelled => found.cancelled.push(payload),
            Some(payload) => found.pending.push((nanos, payload)),
            None => (),
        }
    }
}
