//! Netty's `HashedWheelTimer` (io.netty.util, 4.x): scheme 6 with one level of 512 slots, and a worker with a tick of
//! its own, 100 ms by default, that is here `TICK` ticks of the clock.
//!
//! Callers do not touch the wheel: a new timeout goes to a queue, a cancelled one to another, and the worker does
//! the rest when it next wakes: it unlinks what was cancelled, links at most 100 000 new timeouts into their slots,
//! and walks the slot of its tick. Here one thread plays both parts, so the queues need no atomics. As in Netty, a
//! timeout that is cancelled stays in its slot until the worker wakes; what start and stop leave to the worker is
//! paid in the tick.
//!
//! - start: O(1), puts the timeout into the queue of new ones.
//! - stop: O(1), marks it and puts it into the queue of cancelled ones.
//! - tick: O(n / slots) on average at every `TICK`th tick, otherwise nothing.
//! - expiry: O(1), for a timeout that has no round left.
//! - accuracy: the worker serves a tick when it has ended, so a timeout fires between 1 and `TICK` ticks after its
//!   deadline; later if more than 100 000 are new in one tick. Range: any interval.

use super::store::Timers;
use super::{Accuracy, Cost, Growth, Handle, Scheme};

const SLOTS: u32 = 512;
/// The list behind the slots: new timeouts that the worker has not seen.
const NEW: u32 = SLOTS;
/// How many of them the worker links into the wheel in one of its ticks.
const LINKED_PER_TICK: usize = 100_000;

/// One ring of slots; `due` holds a deadline in the queue and the rounds that remain in a slot.
#[derive(Debug)]
pub struct Netty<const TICK: u64 = 100> {
    slots: Timers,
    /// Nodes whose timeout is cancelled, still linked.
    cancelled: Vec<u32>,
    now: u64,
}

/// What a node's `place` says here.
const WAITING: u32 = 0;
const CANCELLED: u32 = 1;

impl<const TICK: u64> Netty<TICK> {
    fn unlink_cancelled(&mut self) {
        for index in self.cancelled.drain(..) {
            self.slots.remove(index);
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "less than SLOTS")]
    fn slot(tick: u64) -> u32 {
        (tick % u64::from(SLOTS)) as u32
    }

    /// Links new timeouts into their slots; one that is overdue goes into the slot that is walked next.
    fn link_new(&mut self, tick: u64) {
        for _ in 0..LINKED_PER_TICK {
            let Some(index) = self.slots.first(NEW) else { break };
            self.slots.unlink(index);
            let served = (self.slots.due(index) / TICK).max(tick);
            self.slots.set_due(index, (served - tick) / u64::from(SLOTS));
            self.slots.push_back(Self::slot(served), index);
        }
    }

    fn walk_slot(&mut self, tick: u64, expire: &mut impl FnMut(u64)) {
        let slot = Self::slot(tick);
        let mut next = self.slots.first(slot);
        while let Some(index) = next {
            next = self.slots.after(slot, index);
            match self.slots.due(index) {
                0 => expire(self.slots.remove(index)),
                rounds => self.slots.set_due(index, rounds - 1),
            }
        }
    }
}

impl<const TICK: u64> Scheme for Netty<TICK> {
    const NAME: &'static str = if TICK == 1 { "netty-1ms" } else { "netty" };
    const ACCURACY: Accuracy = Accuracy::UpToTicks(TICK);
    const COST: Cost = Cost { tick: Growth::PerSlot, ..Cost::CONSTANT };

    fn new() -> Self {
        Self { slots: Timers::new(SLOTS + 1), cancelled: Vec::new(), now: 0 }
    }

    fn start_timer(&mut self, interval: u64, id: u64) -> Option<Handle> {
        if interval > Self::RANGE {
            return None;
        }
        let index = self.slots.allocate(self.now + interval.max(1), id);
        self.slots.set_place(index, WAITING);
        self.slots.push_back(NEW, index);
        Some(self.slots.handle(index))
    }

    fn stop_timer(&mut self, handle: Handle) -> bool {
        let Some(index) =
            self.slots.find(handle).filter(|&index| self.slots.place(index) == WAITING)
        else {
            return false;
        };
        self.slots.set_place(index, CANCELLED);
        self.cancelled.push(index);
        true
    }

    /// The worker's tick t begins at t * `TICK` and is served when it has ended.
    fn per_tick(&mut self, expire: &mut impl FnMut(u64)) {
        self.now += 1;
        if self.now.is_multiple_of(TICK) {
            let tick = self.now / TICK - 1;
            self.unlink_cancelled();
            self.link_new(tick);
            self.walk_slot(tick, expire);
        }
    }

    fn len(&self) -> usize {
        self.slots.len() - self.cancelled.len()
    }
}
