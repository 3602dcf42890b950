//! A purgatory's memory: what a completed operation took is there for the next one, at once; nothing grows with what has been.
#![cfg(feature = "std")]
#![allow(unsafe_code, reason = "an allocator is unsafe to implement")]

mod common;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    collections::VecDeque,
    rc::Rc,
    sync::atomic::{AtomicI64, Ordering},
    time::{Duration, Instant},
};

use common::{TICK, in_virtual_time};
use corewheel::{Completion, DelayedOperation, ManualClock, OperationId, Outcome, Purgatory, local_timer};

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes that are allocated now.
static HELD: AtomicI64 = AtomicI64::new(0);

fn count(more: usize, less: usize) {
    let signed = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
    HELD.fetch_add(signed(more) - signed(less), Ordering::Relaxed);
}

// SAFETY: every method passes its arguments on to the system's allocator and returns what that returned; the counting
// allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, layout.size());
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.dealloc(pointer, layout) }
    }
}

const KEYS: u64 = 10_000;
/// Timeouts pass a tick after so many operations.
const IN_A_TICK: u64 = 1000;

/// Is met when so many have passed; has a payload on the heap.
struct Op {
    number: u64,
    passed: Rc<Cell<u64>>,
    ended: Rc<Cell<[u64; 3]>>,
    _payload: Box<[u64; 8]>,
}

impl DelayedOperation for Op {
    fn try_complete(&mut self) -> bool {
        !self.number.is_multiple_of(8) && self.number < self.passed.get()
    }

    fn on_complete(self, how: Completion) {
        let mut ended = self.ended.get();
        ended[how as usize] += 1;
        self.ended.set(ended);
    }
}

/// Operations that come one after the other, of which so many wait.
struct Stream<'clock> {
    purgatory: Purgatory<u64, Op>,
    waiting: VecDeque<(u64, OperationId)>,
    live: u64,
    passed: Rc<Cell<u64>>,
    ended: Rc<Cell<[u64; 3]>>,
    clock: &'clock ManualClock,
}

impl Stream<'_> {
    /// One comes, and the one that has waited for longest goes: most by an event on one of its two keys, one of 16 by force,
    /// and one by its timeout.
    fn next(&mut self, number: u64) {
        let op = Op {
            number,
            passed: Rc::clone(&self.passed),
            ended: Rc::clone(&self.ended),
            _payload: Box::new([number; 8]),
        };
        let by_time = number.is_multiple_of(16);
        let ticks = u32::try_from(self.live / IN_A_TICK).expect("few");
        let timeout = if by_time { TICK * ticks } else { Duration::from_secs(3600) };
        let outcome = self.purgatory.try_complete_else_watch(op, keys(number), timeout).expect("there is room");
        let Outcome::Waits(id) = outcome else { panic!("none is met when it comes") };
        self.waiting.push_back((number, id));
        if self.waiting.len() as u64 > self.live {
            let (oldest, id) = self.waiting.pop_front().expect("there are many");
            self.passed.set(oldest + 1);
            match oldest % 16 {
                0 => (), // it has expired, or will in this tick
                8 => assert!(self.purgatory.force_complete(id)),
                _ => assert_eq!(self.purgatory.check_and_complete(&keys(oldest)[(oldest % 2) as usize]), 1),
            }
        }
        if number.is_multiple_of(IN_A_TICK) {
            self.clock.advance(TICK);
            let _ = local_timer().turn();
        }
    }
}

fn keys(number: u64) -> [u64; 2] {
    [number % KEYS, number.wrapping_mul(7919) % KEYS]
}

/// Ten million operations on ten thousand keys, of which 1 % wait at any time (fewer without optimisation). How much is held
/// is looked at all the time after the first tenth.
#[test]
fn ten_million_operations_take_no_more_than_the_first() {
    let all = if cfg!(debug_assertions) { 200_000 } else { 10_000_000 };
    let begun = Instant::now();
    in_virtual_time(|clock| {
        let mut stream = Stream {
            purgatory: Purgatory::new(),
            waiting: VecDeque::new(),
            live: all / 100,
            passed: Rc::default(),
            ended: Rc::default(),
            clock,
        };
        let (mut least, mut most) = (i64::MAX, 0);
        for number in 0..all {
            stream.next(number);
            if number > all / 10 && number.is_multiple_of(97) {
                let held = HELD.load(Ordering::Relaxed);
                (least, most) = (least.min(held), most.max(held));
            }
        }
        let live = i64::try_from(stream.live).expect("few");
        println!("{all} operations, {:?} each", begun.elapsed() / u32::try_from(all).expect("few"));
        println!("{least} to {most} bytes held, {} for one that waits", most / live);
        assert!(most - least < most / 100 + 64 * 1024, "{least} to {most} bytes");
        assert!(most / live < 1000, "{} bytes for one that waits", most / live);
        let counts = stream.purgatory.counts();
        let [by_condition, forced, expired] = stream.ended.get();
        assert_eq!((counts.by_condition, counts.forced, counts.expired), (by_condition, forced, expired));
        assert_eq!((counts.added, counts.live), (all, all - by_condition - forced - expired));
        assert_eq!(counts.watches, 2 * counts.live);
        assert!(counts.live <= stream.live + IN_A_TICK / 8 && expired > all / 20 && forced > all / 20);
    });
}
