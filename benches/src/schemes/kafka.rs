//! Kafka's timer (`SystemTimer`, `TimingWheel`, `TimerTaskList` of org.apache.kafka.server.util.timer): scheme 7 with
//! 20 slots a level, levels ("overflow wheels") that are made when an interval first needs them, and a queue of the
//! slots that are in use, ordered by when time enters them. So time jumps from slot to slot, and an empty tick costs
//! nothing.
//!
//! With a tick of 1 ms the levels reach 20 ms, 400 ms, 8 s, 160 s and so on. The wheel's own clock stands at the last
//! slot that was taken from the queue. A timer that is due by that clock is expired; other timers of the slot are
//! inserted again, which puts them into a lower level.
//!
//! - start: O(levels), and O(log slots in use) when it is the first of its slot: the slot goes into the queue.
//! - stop: O(1), unlinks; a slot left empty stays in the queue until its time.
//! - tick: O(1), compares the head of the queue with the time; a slot whose time has come is emptied.
//! - expiry: O(levels), a timer is inserted again once per level at most.
//! - accuracy: exact. Range: any interval. (Kafka's deadlines are made from a clock rounded down to the tick; ours is
//!   virtual and needs no rounding.)

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::store::Timers;
use super::{Accuracy, Cost, Handle, Scheme};

/// Levels of `SLOTS` slots each. The `due` of a slot itself says when time enters it, or last did: the next time is
/// another, so that tells whether the slot is in the queue.
#[derive(Debug)]
pub struct Kafka<const SLOTS: u32 = 20> {
    slots: Timers,
    /// For each level the ticks in one of its slots and its first slot.
    levels: Vec<(u64, u32)>,
    queue: BinaryHeap<Reverse<(u64, u32)>>,
    /// When time entered the last slot that was taken from the queue.
    clock: u64,
    now: u64,
}

impl<const SLOTS: u32> Kafka<SLOTS> {
    /// The lowest level that reaches a deadline, made if need be.
    fn level_for(&mut self, due: u64) -> (u64, u32) {
        let mut width = 1;
        for level in 0.. {
            let (_, first) =
                self.levels.get(level).copied().unwrap_or_else(|| self.add_level(width));
            if due < self.clock - self.clock % width + width * u64::from(SLOTS) {
                return (width, first);
            }
            width *= u64::from(SLOTS);
        }
        unreachable!("some level reaches any deadline")
    }

    fn add_level(&mut self, width: u64) -> (u64, u32) {
        let first = self.slots.add_lists(SLOTS);
        self.levels.push((width, first));
        (width, first)
    }

    /// Links a timer that is not yet due into its slot, and puts the slot into the queue if it was not there.
    #[expect(clippy::cast_possible_truncation, reason = "less than SLOTS")]
    fn insert(&mut self, index: u32) {
        let due = self.slots.due(index);
        let (width, first) = self.level_for(due);
        let slot = first + (due / width % u64::from(SLOTS)) as u32;
        self.slots.push_back(slot, index);
        let entered = due / width * width;
        if self.slots.due(slot) != entered {
            self.slots.set_due(slot, entered);
            self.queue.push(Reverse((entered, slot)));
        }
    }

    /// Empties a slot: its timers expire or move down.
    fn flush(&mut self, slot: u32, expire: &mut impl FnMut(u64)) {
        while let Some(index) = self.slots.first(slot) {
            self.slots.unlink(index);
            if self.slots.due(index) <= self.clock {
                expire(self.slots.release(index));
            } else {
                self.insert(index);
            }
        }
    }
}

impl<const SLOTS: u32> Scheme for Kafka<SLOTS> {
    const NAME: &'static str = "kafka";
    const ACCURACY: Accuracy = Accuracy::Exact;
    const COST: Cost = Cost::CONSTANT;

    fn new() -> Self {
        let (slots, levels) = (Timers::new(0), Vec::new());
        Self { slots, levels, queue: BinaryHeap::new(), clock: 0, now: 0 }
    }

    fn start_timer(&mut self, interval: u64, id: u64) -> Option<Handle> {
        if interval > Self::RANGE {
            return None;
        }
        let index = self.slots.allocate(self.now + interval.max(1), id);
        self.insert(index);
        Some(self.slots.handle(index))
    }

    fn stop_timer(&mut self, handle: Handle) -> bool {
        self.slots.stop(handle)
    }

    fn per_tick(&mut self, expire: &mut impl FnMut(u64)) {
        self.advance(1, expire);
    }

    /// Jumps from slot to slot, however many ticks lie between.
    fn advance(&mut self, ticks: u64, expire: &mut impl FnMut(u64)) {
        self.now += ticks;
        while let Some(&Reverse((entered, slot))) =
            self.queue.peek().filter(|head| head.0.0 <= self.now)
        {
            self.queue.pop();
            self.clock = entered;
            self.flush(slot, expire);
        }
    }

    fn len(&self) -> usize {
        self.slots.len()
    }
}
