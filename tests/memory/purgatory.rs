//! A purgatory's memory: a new operation reuses the memory of a completed one, and ended operations
//! take none.

use std::{cell::Cell, collections::VecDeque, rc::Rc, time::Instant};

use corewheel::{
    ManualClock, local_timer,
    purgatory::{Completion, DelayedOperation, OperationId, Outcome, Purgatory},
};

use crate::{
    HOUR, Never, alone_in_virtual_time,
    common::TICK,
    counting::{calls, held},
    fill_kept_pages,
};

/// The clock advances by a tick after this number of operations.
const IN_A_TICK: u64 = 1000;

/// An operation that completes at its first event, or never. It has a payload on the heap.
struct Op {
    is_met: Rc<Cell<bool>>,
    is_patient: bool,
    ended: Rc<Cell<[u64; 3]>>,
    _payload: Box<[u64; 8]>,
}

impl DelayedOperation for Op {
    fn try_complete(&mut self) -> bool {
        self.is_met.get() && !self.is_patient
    }

    fn on_complete(self, how: Completion) {
        let mut ended = self.ended.get();
        ended[how as usize] += 1;
        self.ended.set(ended);
    }
}

/// A sequence of operations, of which about `live` wait at any time.
struct Stream<'clock> {
    purgatory: Purgatory<u64, Op>,
    patient: VecDeque<(u64, OperationId)>,
    live: u64,
    keys: u64,
    is_met: Rc<Cell<bool>>,
    ended: Rc<Cell<[u64; 3]>>,
    clock: &'clock ManualClock,
}

impl Stream<'_> {
    /// Adds an operation with two keys. One of 16 expires, one is completed by force, and the others
    /// by an event on one of their keys.
    fn next(&mut self, number: u64) {
        let how = number % 16;
        let op = Op {
            is_met: Rc::clone(&self.is_met),
            is_patient: how < 2,
            ended: Rc::clone(&self.ended),
            _payload: Box::new([number; 8]),
        };
        let ticks = u32::try_from(self.live / IN_A_TICK).expect("few");
        let timeout = if how == 0 { TICK * ticks } else { HOUR };
        let keys = [number % self.keys, number.wrapping_mul(7919) % self.keys];
        let outcome =
            self.purgatory.try_complete_else_watch(op, keys, timeout).expect("there is room");
        let Outcome::Waits(id) = outcome else { panic!("none is met when it comes") };
        if how == 1 {
            self.patient.push_back((number, id));
        }
        if self.patient.front().is_some_and(|&(oldest, _)| oldest + self.live < number) {
            let forced =
                self.patient.pop_front().is_some_and(|(_, id)| self.purgatory.force_complete(id));
            assert!(forced);
        }
        // Each key has an event in three lives.
        if number.is_multiple_of(3 * self.live / self.keys) {
            self.is_met.set(true);
            self.purgatory.check_and_complete(&(number / (3 * self.live / self.keys) % self.keys));
            self.is_met.set(false);
        }
        if number.is_multiple_of(IN_A_TICK) {
            self.clock.advance(TICK);
            local_timer().turn();
        }
    }
}

/// Runs ten million operations on ten thousand keys, fewer without optimization. 1 % of them wait
/// at any time. The peak memory of each tenth is the same from the second tenth on.
#[test]
fn ten_million_operations_take_no_more_than_the_first() {
    let all = if cfg!(debug_assertions) { 100_000 } else { 10_000_000 };
    let begun = Instant::now();
    alone_in_virtual_time(|clock| {
        let mut stream = Stream {
            purgatory: Purgatory::new(),
            patient: VecDeque::new(),
            live: all / 100,
            keys: all / 1000,
            is_met: Rc::default(),
            ended: Rc::default(),
            clock,
        };
        let mut most = [0; 10];
        for number in 0..all {
            stream.next(number);
            let tenth = &mut most[usize::try_from(number * 10 / all).expect("a tenth")];
            *tenth = held().max(*tenth);
        }
        let counts = stream.purgatory.counts();
        println!(
            "{all} operations, {:?} each, {counts:?}",
            begun.elapsed() / u32::try_from(all).expect("few")
        );
        println!(
            "bytes held: {most:?}, {} for one that waits",
            most[9] / i64::try_from(counts.live).expect("few")
        );
        assert!(
            most[2..].iter().all(|&held| held <= most[1] + most[1] / 100 + 16 * 1024),
            "{most:?}"
        );
        let [by_condition, forced, expired] = stream.ended.get();
        assert_eq!(
            (counts.by_condition, counts.forced, counts.expired),
            (by_condition, forced, expired)
        );
        assert_eq!((counts.added, counts.live), (all, all - by_condition - forced - expired));
        assert_eq!(counts.watches, 2 * counts.live);
        assert!(counts.live.abs_diff(stream.live) < stream.live / 5, "{} wait", counts.live);
        assert!(expired > all / 20 && forced > all / 20);
    });
}

/// Each round needs more pages than the spare ones. Each operation has a private key and one
/// that all share.
#[test]
fn equal_rounds_of_operations_allocate_nothing() {
    alone_in_virtual_time(|clock| {
        let purgatory = Purgatory::new();
        let round = || {
            for number in 0..5_000_u64 {
                let outcome = purgatory.try_complete_else_watch(Never, [number, 5_000], TICK);
                assert!(matches!(outcome.expect("there is room"), Outcome::Waits(_)));
            }
            clock.advance(TICK * 2);
            assert_eq!(local_timer().turn().fired, 5_000);
            // A short sleep frees nothing.
            local_timer().add_local(TICK * 5, || ());
            drop(local_timer().prepare_sleep());
            clock.advance(TICK * 6);
            assert_eq!(local_timer().turn().fired, 1);
        };
        // Several intervals of 64 turns.
        (0..100).for_each(|_| round());
        let counted = calls(|| (0..100).for_each(|_| round()));
        assert_eq!(counted, (0, 0), "allocations and frees");
    });
}

/// All operations watch one key. They complete by an event or expire, and an awake loop needs 64
/// turns to free the memory, or frees it before a long sleep. Then only the spare pages are left.
fn assert_that_a_burst_goes_back(many: u64, by_event: bool, free: impl Fn() + Sync) {
    alone_in_virtual_time(|clock| {
        let purgatory = Purgatory::new();
        let (is_met, ended) = <(Rc<Cell<bool>>, Rc<Cell<[u64; 3]>>)>::default();
        fill_kept_pages();
        let before = held();
        for number in 0..many {
            let (is_met, ended) = (Rc::clone(&is_met), Rc::clone(&ended));
            let op = Op { is_met, is_patient: false, ended, _payload: Box::default() };
            let outcome = purgatory.try_complete_else_watch(op, [number, many], TICK * 5);
            assert!(matches!(outcome.expect("there is room"), Outcome::Waits(_)));
        }
        let most = held() - before;
        is_met.set(by_event);
        purgatory.check_and_complete(&many);
        clock.advance(TICK * 5);
        local_timer().turn();
        assert!(purgatory.is_empty());
        free();
        let left = held() - before;
        println!("{} bytes held for each; {left} left", most / i64::try_from(many).expect("few"));
        assert!(left < 192 * 1024, "{left} bytes are left of {most}");
    });
}

#[test]
fn the_memory_of_a_burst_goes_back() {
    let many = if cfg!(debug_assertions) { 30_000 } else { 100_000 };
    let turn = || (0..1_000).for_each(|_| _ = local_timer().turn());
    assert_that_a_burst_goes_back(many, true, turn);
}

#[test]
fn the_memory_of_a_burst_goes_back_before_a_long_sleep() {
    assert_that_a_burst_goes_back(30_000, false, || drop(local_timer().prepare_sleep()));
}
