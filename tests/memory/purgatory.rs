//! A purgatory's memory: a new operation reuses the memory of a completed one, and ended operations
//! take none.

use std::{cell::Cell, rc::Rc};

use corewheel::{
    local_timer,
    purgatory::{Completion, DelayedOperation, OperationId, Outcome, Purgatory},
};

use crate::{TICK, alone_in_virtual_time, calls, fill_kept_pages, held};

/// An operation that completes at its first event when the flag is set, or never.
struct Op {
    is_met: Rc<Cell<bool>>,
    is_patient: bool,
    _payload: Option<Box<[u64; 8]>>,
}

impl DelayedOperation for Op {
    fn try_complete(&mut self) -> bool {
        self.is_met.get() && !self.is_patient
    }

    fn on_complete(self, _: Completion) {}
}

fn add(own: &Purgatory<u64, Op>, op: Op, keys: [u64; 2], ticks: u32) -> OperationId {
    let outcome = own.try_complete_else_watch(op, keys, TICK * ticks);
    let Outcome::Waits(id) = outcome.expect("there is room") else { panic!("none is met") };
    id
}

/// Each round needs more pages than the spare ones. Each operation has a private key and one that
/// all share. A third are completed by force, a third by an event, and a third expire.
#[test]
fn equal_rounds_of_operations_allocate_nothing() {
    const MANY: u64 = 5_000;
    alone_in_virtual_time(|clock| {
        let (purgatory, is_met) = (Purgatory::new(), Rc::new(Cell::new(false)));
        let mut ids = Vec::with_capacity(5_000);
        let mut round = || {
            for number in 0..MANY {
                let (is_met, is_patient) = (Rc::clone(&is_met), number % 3 == 2);
                let op = Op { is_met, is_patient, _payload: None };
                ids.push(add(&purgatory, op, [number, MANY], 1));
            }
            assert!(ids.drain(..).step_by(3).all(|id| purgatory.force_complete(id)));
            is_met.set(true);
            assert_eq!(purgatory.check_and_complete(&MANY), 1_667);
            is_met.set(false);
            clock.advance(TICK * 2);
            assert_eq!((local_timer().turn().fired, Rc::strong_count(&is_met)), (1_666, 1));
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
        let (purgatory, is_met) = (Purgatory::new(), Rc::new(Cell::new(false)));
        fill_kept_pages();
        let before = held();
        for number in 0..many {
            let is_met = Rc::clone(&is_met);
            let op = Op { is_met, is_patient: false, _payload: Some(Box::default()) };
            add(&purgatory, op, [number, many], 5);
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
