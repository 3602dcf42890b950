//! The part of a shard that every thread may touch: the nodes, the mailbox, the clock, and how to wake the owner.

use std::{sync::Arc, thread, time::Duration};

use crate::{
    callback::Sent,
    clock::Clock,
    error::AddErrorReason,
    gate::Gate,
    gauges::Gauges,
    hooks::Hooks,
    limits::{DEBT_MAX, GENERATION_MAX, REMOTE_GENERATION},
    mailbox::{Mailbox, Push, Urgency},
    origin::Origin,
    parker::{Announcement, Asleep, Parker},
    reclaim::{Seen, pin},
    slab::{NodeView, Slab},
    state::{Cancel, Move, Next},
    sync::{AtomicU64, Ordering},
    tick::{TickLength, saturating_nanos},
};

/// See the module. What the owner reads in each turn is apart from what other threads write for one another.
#[derive(Debug)]
pub(crate) struct Shared {
    clock: Clock,
    /// The owner's last reading of a clock that may go back: then the owner holds it here, and so do others.
    clock_held: AtomicU64,
    pub(crate) tick: TickLength,
    pub(crate) hooks: Line<Hooks>,
    pub(crate) slab: Arc<Slab>,
    pub(crate) mailbox: Line<Mailbox>,
    pub(crate) parker: Line<Parker>,
    /// The generation of the next timer that another thread adds, without the bit that says so.
    remote_generation: Line<AtomicU64>,
    pub(crate) gate: Line<Gate>,
    pub(crate) gauges: Line<Gauges>,
    pub(crate) name: Box<str>,
    /// How long, in nanoseconds, the owner may sleep over a payload that another thread has cancelled.
    pub(crate) drop_within: u64,
}

/// What has cache lines of its own: two, because processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Line<T>(T);

impl<T> std::ops::Deref for Line<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// What a thread that is not the owner has done.
#[must_use]
pub(crate) struct Remote<R> {
    pub(crate) answer: R,
    /// The caller must call the owner's wake hook, when nothing of ours is borrowed any more.
    pub(crate) wake: Option<Asleep>,
}

/// A timer that this thread has added to another core.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Armed {
    pub(crate) index: u32,
    pub(crate) generation: u64,
}

impl<R> Remote<R> {
    fn quiet(answer: R) -> Self {
        Self { answer, wake: None }
    }
}

impl Shared {
    pub(crate) fn new(
        clock: Clock,
        tick: TickLength,
        hooks: Hooks,
        limit: u32,
        name: Option<String>,
        drop_within: u64,
        slab: Arc<Slab>,
    ) -> Self {
        let has_name = name.is_some();
        let name =
            name.or_else(|| thread::current().name().map(str::to_owned)).unwrap_or_default().into();
        Self {
            clock,
            clock_held: AtomicU64::new(0),
            tick,
            hooks: Line(hooks),
            slab,
            mailbox: Line::default(),
            parker: Line::default(),
            remote_generation: Line(AtomicU64::new(1)),
            gate: Line(Gate::new(limit)),
            gauges: Line(Gauges::new(has_name)),
            name,
            drop_within,
        }
    }

    /// Announces the owner's sleep, until then at most. It is long if no payload may wait for its end. `None` if it must not sleep: so much is in the mailbox, or something
    /// that may be due earlier, or it is being woken right now.
    pub(crate) fn announce_sleep(&self, until: u64, is_long: bool) -> Option<Announcement> {
        let reachable = self.hooks.sleeper_is_this_thread();
        let announcement = self.parker.announce(until, is_long);
        if reachable && !self.mailbox.keeps_awake(DEBT_MAX, is_long) {
            return Some(announcement);
        }
        self.parker.awake(&announcement);
        None
    }

    /// Wakes the owner from a sleep, for a thread that must. Whether it has.
    pub(crate) fn wake(&self, asleep: Asleep) -> bool {
        let has_woken = self.hooks.wake(asleep);
        if has_woken {
            self.parker.was_woken(asleep);
        }
        has_woken
    }

    /// A timer was refused. Room may be waiting for the owner to meet what has been cancelled, and the owner may sleep over that.
    #[cold]
    pub(crate) fn ask_for_room(&self) {
        if self.mailbox.depth() > 0
            && let Some(asleep) = self.parker.must_wake()
        {
            self.wake(asleep);
        }
    }

    /// The owner has read that from a clock which may go back. It holds the clock there until that has caught up.
    #[inline]
    pub(crate) fn hold_clock(&self, nanos: u64) {
        // Relaxed: the owner alone writes it, and what it shows a moment later to others, they might have asked for a moment before.
        self.clock_held.store(nanos, Ordering::Relaxed);
    }

    /// Adds a timer, due then, from a thread that is not the owner. The error carries the callback back.
    pub(crate) fn add(
        &self,
        nanos: u64,
        origin: Origin,
        callback: Sent,
    ) -> Result<Remote<Armed>, (AddErrorReason, Sent)> {
        if self.mailbox.is_closed() {
            return Err((AddErrorReason::ShutDown, callback));
        }
        if !self.gate.admits(|| self.mailbox.cancelled().min(DEBT_MAX)) {
            return Err((AddErrorReason::Full, callback));
        }
        self.arm_and_push(nanos, origin, callback).inspect_err(|_| self.gate.left())
    }

    /// As `add`, due already and whatever the limit is.
    pub(crate) fn post(
        &self,
        origin: Origin,
        callback: Sent,
    ) -> Result<Remote<Armed>, (AddErrorReason, Sent)> {
        self.gate.lets_in();
        self.arm_and_push(0, origin, callback).inspect_err(|_| self.gate.left())
    }

    fn arm_and_push(
        &self,
        nanos: u64,
        origin: Origin,
        callback: Sent,
    ) -> Result<Remote<Armed>, (AddErrorReason, Sent)> {
        // Relaxed: only distinct, and later than what the node had before.
        let counted = self.remote_generation.fetch_add(1, Ordering::Relaxed);
        let pinned = pin();
        let free = (counted <= GENERATION_MAX).then(|| self.slab.take_remote(&pinned)).flatten();
        let Some(node) = free else { return Err((AddErrorReason::Full, callback)) };
        let armed = Armed { index: node.index(), generation: counted | REMOTE_GENERATION };
        node.arm(armed.generation, nanos, origin, callback);
        match self.mailbox.push(armed.index, node.link(), Urgency::Urgent) {
            Push::Queued { depth, .. } => {
                Ok(Remote { answer: armed, wake: self.must_wake(depth, || nanos) })
            }
            // The node stays taken: none is used again.
            Push::Closed => match node.disarm() {
                Some(callback) => Err((AddErrorReason::ShutDown, callback)),
                // It was added, and has ended with the shard.
                None => Ok(Remote::quiet(armed)),
            },
        }
    }

    /// Generations of timers that other threads add go on from this one. Before any is added.
    pub(crate) fn start_remote_generations_at(&self, generation: u64) {
        // Relaxed: published with the shard.
        self.remote_generation.store(generation, Ordering::Relaxed);
    }

    /// The generation after the last one of a timer that another thread has added.
    pub(crate) fn next_remote_generation(&self) -> u64 {
        // Relaxed: who arms later finds the mailbox closed, and gives its generation to nobody.
        self.remote_generation.load(Ordering::Relaxed)
    }

    /// The reading of the clock at `delay` from now.
    pub(crate) fn nanos_after(&self, delay: Duration) -> u64 {
        // Relaxed: as in `hold_clock`.
        let now = self.clock.nanos().max(self.clock_held.load(Ordering::Relaxed));
        now.saturating_add(saturating_nanos(delay))
    }

    /// When a timer is due that is added now with that delay. Without a delay that is the last tick that has begun.
    pub(crate) fn due_after(&self, delay: Duration) -> u64 {
        let due = self.nanos_after(delay);
        if delay.is_zero() { due.saturating_sub(self.tick.all_but_a_nano()) } else { due }
    }

    /// Whether the clock shows `nanos` or more.
    pub(crate) fn has_come(&self, nanos: u64) -> bool {
        self.nanos_after(Duration::ZERO) >= nanos
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// A period in nanoseconds, at least a tick.
    pub(crate) fn period_nanos(&self, period: Duration) -> u64 {
        self.tick.period(period)
    }

    /// The sleep from which this thread must wake the owner, after it has put the mailbox's `depth`-th message there, which is about
    /// a deadline.
    fn must_wake(&self, depth: u32, nanos: impl FnOnce() -> u64) -> Option<Asleep> {
        let due = || self.tick.round_up(nanos());
        self.parker.must_wake_before(due).or_else(|| self.must_wake_for_debt(depth))
    }

    /// The debt passes this number once per batch; an owner that announces its sleep later looks at it itself. (And twice that: the
    /// wake-up may have failed.)
    #[inline]
    fn must_wake_for_debt(&self, depth: u32) -> Option<Asleep> {
        if depth > 0 && depth.is_multiple_of(DEBT_MAX) { self.parker.must_wake() } else { None }
    }
}

/// What a thread that is not the owner may do: pinned, so that no page goes while it looks.
impl Seen<'_, Shared> {
    /// Cancels a timer: one claim, and one push if it was won. (Two claims, if this thread takes the
    /// payload.)
    #[inline]
    pub(crate) fn cancel(
        &self,
        index: u32,
        generation: u64,
        taken: &mut Option<Sent>,
    ) -> Remote<Cancel> {
        let cancelled = self.look(index, |node| {
            let (answer, next) = node.cancel(generation, taken);
            let urgency = if taken.is_some() { Urgency::Empty } else { Urgency::CanWait };
            let wake = self.push_cancelled(index, &node, next, urgency);
            Remote { answer, wake }
        });
        // No page: the timer has ended, and the page with it; or a shard that had this number before had more pages.
        cancelled.unwrap_or(Remote::quiet(Cancel::Ended))
    }

    /// Moves a timer, to when the clock shows `nanos`: two swaps, and one push if no message of it is queued.
    #[inline]
    pub(crate) fn reset(
        &self,
        index: u32,
        generation: u64,
        nanos: u64,
        taken: &mut Option<Sent>,
    ) -> Remote<bool> {
        let moved = self.look(index, |node| match node.state.begin_move(generation) {
            Move::Refused => Remote::quiet(false),
            Move::Overtaken => Remote::quiet(true),
            Move::Begun => {
                node.requested.write(nanos);
                let (answer, next) = node.end_move(taken);
                if taken.is_some() {
                    // It was cancelled meanwhile.
                    let wake = self.push_cancelled(index, &node, next, Urgency::Empty);
                    return Remote { answer, wake };
                }
                let depth = match next {
                    Next::Push => match self.mailbox.push(index, node.link, Urgency::Urgent) {
                        Push::Queued { depth, .. } => depth,
                        Push::Closed => return Remote::quiet(answer),
                    },
                    _ => 0,
                };
                // What stands there by now: another thread may have asked since, and relied on this one's message.
                Remote { answer, wake: self.must_wake(depth, || node.requested.read()) }
            }
        });
        moved.unwrap_or(Remote::quiet(false))
    }

    /// Tells the owner of a cancelled timer, if it is to be told.
    #[inline]
    fn push_cancelled(
        &self,
        index: u32,
        node: &NodeView<'_>,
        next: Next,
        urgency: Urgency,
    ) -> Option<Asleep> {
        if next != Next::Push {
            return None;
        }
        match self.mailbox.push(index, node.link, urgency) {
            // The first payload since the owner has looked: it must not sleep over it for long.
            Push::Queued { depth, is_first_payload: true } => {
                self.parker.must_wake_from_long().or_else(|| self.must_wake_for_debt(depth))
            }
            Push::Queued { depth, .. } => self.must_wake_for_debt(depth),
            Push::Closed => None,
        }
    }

    pub(crate) fn is_pending(&self, index: u32, generation: u64) -> bool {
        self.look(index, |node| node.state.is_pending(generation)).unwrap_or(false)
    }

    pub(crate) fn is_running(&self, index: u32, generation: u64) -> bool {
        self.look(index, |node| node.state.is_running(generation)).unwrap_or(false)
    }

    #[inline]
    fn look<R>(&self, index: u32, look: impl FnOnce(NodeView<'_>) -> R) -> Option<R> {
        self.slab.with(index, self.pinned(), look)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::mem::offset_of;

    use super::*;
    use crate::limits::INDEX_MAX;

    /// What processors fetch at a time.
    const LINES: usize = 128;

    /// The lines of a part of [`Shared`], from the first to the one after the last.
    fn lines<T>(offset: usize, _: fn(&Shared) -> &T) -> std::ops::Range<usize> {
        offset / LINES..(offset + size_of::<T>()).div_ceil(LINES)
    }

    /// What other threads write is read by nobody who does not ask for it, and what the owner reads in each turn is written
    /// by nobody: the parts share no line with each other, nor with what stands before and after the whole in memory. (What wakes
    /// the owner by default is locked by it before each sleep.)
    #[test]
    fn what_is_written_by_different_threads_shares_no_line() {
        let parts = [
            lines(offset_of!(Shared, mailbox), |shared| &shared.mailbox),
            lines(offset_of!(Shared, parker), |shared| &shared.parker),
            lines(offset_of!(Shared, remote_generation), |shared| &shared.remote_generation),
            lines(offset_of!(Shared, gate), |shared| &shared.gate),
            lines(offset_of!(Shared, gauges), |shared| &shared.gauges),
            lines(offset_of!(Shared, hooks), |shared| &shared.hooks),
        ];
        let read = [
            lines(offset_of!(Shared, clock), |shared| &shared.clock),
            lines(offset_of!(Shared, tick), |shared| &shared.tick),
            lines(offset_of!(Shared, slab), |shared| &shared.slab),
            lines(offset_of!(Shared, name), |shared| &shared.name),
        ];
        for (number, part) in parts.iter().enumerate() {
            let others = parts
                .iter()
                .enumerate()
                .filter(|&(other, _)| other != number)
                .map(|(_, other)| other);
            for other in others.chain(&read) {
                assert!(
                    part.end <= other.start || other.end <= part.start,
                    "{part:?} and {other:?}"
                );
            }
        }
        assert!(align_of::<Shared>() >= LINES && size_of::<Shared>().is_multiple_of(LINES));
    }

    /// The owner may end between the last look at whether it has, and the push.
    #[test]
    fn an_add_that_comes_too_late_returns_the_callback() {
        let tick = TickLength::new(Duration::from_millis(1)).expect("valid");
        let (slab, _nodes) = Slab::of_callbacks();
        let shared =
            Shared::new(Clock::monotonic(), tick, Hooks::new(None, None), INDEX_MAX, None, 0, slab);
        let _ = shared.mailbox.close();
        let callback = Arc::new(());
        for _ in 0..5 {
            let captured = Arc::clone(&callback);
            let sent = shared.arm_and_push(0, Origin::caller(), Sent::new(move || drop(captured)));
            assert!(matches!(sent, Err((AddErrorReason::ShutDown, _))));
            drop(sent);
            assert_eq!(Arc::strong_count(&callback), 1);
        }
    }
}
