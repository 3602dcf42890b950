//! The end of a shard: ends every timer and returns the pending ones.

use std::mem;

use super::Shard;
use crate::{
    cross_core::{mailbox::Backlog, registry, state::Swept},
    wheel::Storage,
};

/// Timers found by the sweep so far.
struct Found<T> {
    /// Payloads of pending timers with their deadlines, in nanoseconds of the clock.
    pending: Vec<(u64, T)>,
    cancelled: Vec<T>,
    /// Number of cancelled timers, including those without a payload.
    cancelled_count: u32,
}

impl<T> Shard<T> {
    /// Closes the mailbox, ends every timer, and returns the pending payloads with their deadlines.
    /// Returns nothing if the shard is closed already.
    pub(super) fn close(&mut self) -> Vec<(u64, T)> {
        let mut found = Found { pending: Vec::new(), cancelled: Vec::new(), cancelled_count: 0 };
        if mem::replace(&mut self.closed, true) {
            return found.pending;
        }
        let _ = self.shared.mailbox.close();
        self.backlog = Backlog::default();
        self.nodes.adopt_all();
        for index in self.nodes.indices() {
            self.sweep(index, &mut found);
        }
        let Found { pending, cancelled, cancelled_count } = found;
        let handed_back = u32::try_from(pending.len()).unwrap_or(u32::MAX);
        self.live = self.live.saturating_sub(handed_back).saturating_sub(cancelled_count);
        self.counts.handed_back += u64::from(handed_back);
        self.counts.cancelled += u64::from(cancelled_count);
        self.counts.cancelled_elsewhere += u64::from(cancelled_count);
        self.end_pass();
        self.publish();
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
        let node = self.nodes.entry(index);
        let (swept, payload) = node.sweep();
        if swept == Swept::Idle {
            return;
        }
        if node.is_not_admitted() {
            self.counts.added += 1;
            self.live += 1;
        }
        let nanos = match swept {
            Swept::HandedBack { moved: true } => self.time.tick.round_up(node.requested().read()),
            _ => self.due_nanos(index),
        };
        self.wheel.unlink_if_linked(&self.nodes, node);
        if let Swept::Cancelled { .. } = swept {
            found.cancelled_count += 1;
            found.cancelled.extend(payload);
        } else {
            found.pending.extend(payload.map(|payload| (nanos, payload)));
        }
    }
}
