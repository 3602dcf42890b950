//! The end of a shard: every timer ends, and what was pending comes back.

use std::mem;

use super::Shard;
use crate::{mailbox::Opened, registry, state::Swept};

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
        let _ = self.shared.mailbox.close();
        self.opened = Opened::default();
        self.nodes.adopt_all();
        for index in self.nodes.indices() {
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
            self.next_generation.max(self.shared.next_remote_generation()),
        );
        for payload in cancelled {
            self.shared.hooks.isolate_drop(payload);
        }
        pending
    }

    fn sweep(&mut self, index: u32, found: &mut Found<T>) {
        let Some((swept, payload)) = self.nodes.sweep(index) else { return };
        if self.nodes.is_not_admitted(index) {
            self.counts.added += 1;
            self.live += 1;
        }
        let nanos = match swept {
            Swept::HandedBack { moved: true } => {
                self.tick.round_up(self.nodes.requested(index).read())
            }
            _ => self.due_nanos(index),
        };
        self.wheel.unlink_if_linked(&self.nodes, index);
        if swept == Swept::Cancelled {
            found.cancelled.push(payload);
        } else {
            found.pending.push((nanos, payload));
        }
    }
}
