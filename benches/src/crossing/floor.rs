//! The least that a timer costs which is cancelled by another core: its line goes there and comes back.
//!
//! The owner writes a line. The other end claims it by one swap, links it, and pushes it on the
//! owner's stack by one compare-and-swap. The owner takes the stack by one swap, reads each line
//! again, and frees it. As in corewheel's mailbox, a link names the line after the next, so that
//! two lines are on their way at once. Any timer whose cancel has an answer and allocates nothing
//! has this traffic. There is no wheel, no deadline, no epoch and no wake-up.

use std::{
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use super::{Alone, Crossing, IN_FLIGHT};
use crate::{mailboxes::push, timers::Payload};

const CANCELLED: u64 = u64::MAX;

/// `floor`.
#[derive(Debug)]
pub struct FloorEnd {
    own: Arc<Lines>,
    other: Arc<Lines>,
    free: Vec<u32>,
    generation: u64,
}

/// Names a line, as it was when it was handed over.
#[derive(Clone, Copy, Debug)]
pub struct LineHandle {
    index: u32,
    generation: u32,
}

/// The lines of one end. Index 0 is none.
#[derive(Debug)]
pub struct Lines {
    /// The newest line on the stack, and in the upper half the one below it.
    head: Alone<AtomicU64>,
    lines: Box<[Line]>,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Line {
    /// A generation, or `CANCELLED`.
    state: AtomicU64,
    second_below: AtomicU32,
    deadline: AtomicU64,
    /// Relaxed stores and loads, which are plain ones on the processor.
    payload: [AtomicU64; 3],
}

impl Lines {
    fn new(timers: usize) -> Arc<Self> {
        Arc::new(Self {
            head: Alone::default(),
            lines: (0..=timers).map(|_| Line::default()).collect(),
        })
    }

    /// Puts a line that the caller has claimed on the stack.
    fn push(&self, index: u32, line: &Line) {
        let second = |head| (head >> 32) as u32;
        push(&self.head.0, &line.second_below, second, |head| head << 32 | u64::from(index));
    }

    /// The newest line of those that were on the stack, and the one below it; 0 if there was none.
    fn take(&self) -> [u32; 2] {
        if self.head.0.load(Ordering::Relaxed) == 0 {
            return [0; 2];
        }
        // Acquire: sees the links, and the writes to the lines.
        let head = self.head.0.swap(0, Ordering::Acquire);
        [head as u32, (head >> 32) as u32]
    }
}

impl Crossing for FloorEnd {
    type Handle = LineHandle;
    type Seed = [Arc<Lines>; 2];

    fn seeds(timers: usize) -> [Self::Seed; 2] {
        let [first, second] = [(); 2].map(|()| Lines::new(timers + IN_FLIGHT));
        [[Arc::clone(&first), Arc::clone(&second)], [second, first]]
    }

    fn new([own, other]: Self::Seed) -> Self {
        let free = (1..own.lines.len() as u32).rev().collect();
        Self { own, other, free, generation: 0 }
    }

    fn add(&mut self, delay: u64, payload: Payload) -> LineHandle {
        let index = self.free.pop().expect("as many lines as timers");
        let line = &self.own.lines[index as usize];
        line.deadline.store(delay, Ordering::Relaxed);
        for (place, part) in line.payload.iter().zip(payload) {
            place.store(part, Ordering::Relaxed);
        }
        // A u32: a run has fewer.
        self.generation += 1;
        // Release: publishes the line to the holder of the handle; on x86 a plain store.
        line.state.store(self.generation, Ordering::Release);
        LineHandle { index, generation: self.generation as u32 }
    }

    fn cancel(&mut self, LineHandle { index, generation }: LineHandle) -> bool {
        let line = &self.other.lines[index as usize];
        // AcqRel, as the winner of a timer. A line has one canceller, so a swap is enough.
        let was_live = line.state.swap(CANCELLED, Ordering::AcqRel) == u64::from(generation);
        self.other.push(index, line);
        was_live
    }

    fn turn(&mut self) -> u64 {
        let [mut index, mut next] = self.own.take();
        let mut taken_in = 0;
        while index != 0 {
            let line = &self.own.lines[index as usize];
            assert_eq!(
                line.state.load(Ordering::Relaxed),
                CANCELLED,
                "its message came after its claim"
            );
            black_box(line.payload[0].load(Ordering::Relaxed));
            self.free.push(index);
            (index, next) = (next, line.second_below.load(Ordering::Relaxed));
            taken_in += 1;
        }
        taken_in
    }
}
