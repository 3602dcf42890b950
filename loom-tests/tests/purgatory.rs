//! Delayed operations: in every race, each ends once, and no event is lost.
//!
//! An operation lives on one thread. The messages of other threads race with the clock and with
//! each other: events, confirmed watches, and requests to force the operation.
#![cfg(all(loom, not(crossbeam_loom)))]

use std::sync::Arc;

use corewheel::{
    ManualClock, ShardRef, local_timer,
    purgatory::{
        Completion, DelayedOperation, OperationId, Outcome, Purgatory, PurgatoryGroup,
        local_purgatory,
    },
};
use loom::{
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
};
use loom_tests::{
    TICK, asks, core, core_with, elsewhere, explore, explore_within, race, shared, stage,
};

/// An operation that completes when its flag is set; a model keeps a clone. All accesses are relaxed:
/// the models examine what orders them.
#[derive(Clone)]
struct Op {
    is_met: Arc<AtomicBool>,
    ended: Arc<AtomicUsize>,
}

const BY_CONDITION: usize = 1;
const FORCED: usize = 10;
const EXPIRED: usize = 100;

impl DelayedOperation for Op {
    fn try_complete(&mut self) -> bool {
        self.is_met.load(Ordering::Relaxed)
    }

    fn on_complete(self, how: Completion) {
        let how = match how {
            Completion::Condition => BY_CONDITION,
            Completion::Forced => FORCED,
            Completion::Expired => EXPIRED,
        };
        self.ended.fetch_add(how, Ordering::Relaxed);
    }
}

impl Op {
    fn new() -> Self {
        Self { is_met: Arc::new(AtomicBool::new(false)), ended: Arc::new(AtomicUsize::new(0)) }
    }

    fn add(&self, purgatory: &Purgatory<usize, Op>, keys: &[usize]) -> Option<OperationId> {
        let keys = keys.iter().copied();
        let added = purgatory.try_complete_else_watch(self.clone(), keys, TICK);
        match added.expect("there is room") {
            Outcome::Completed => None,
            Outcome::Waits(id) => Some(id),
        }
    }

    /// Meets the condition, and then notifies of the event.
    fn event(&self, group: &PurgatoryGroup<usize>, key: usize) -> impl FnOnce() + 'static {
        let (seen, group) = (self.clone(), group.clone());
        move || {
            seen.set();
            group.notify(&key);
        }
    }

    fn set(&self) {
        self.is_met.store(true, Ordering::Relaxed);
    }

    fn ended(&self) -> usize {
        self.ended.load(Ordering::Relaxed)
    }
}

fn group() -> PurgatoryGroup<usize> {
    PurgatoryGroup::by(|&key| key)
}

/// Asserts that one operation was added, and that nothing is left of it.
fn assert_over(purgatory: &Purgatory<usize, Op>) {
    let counts = purgatory.counts();
    assert_eq!((counts.added, counts.by_condition + counts.forced + counts.expired), (1, 1));
    assert_eq!((counts.live, counts.watches, counts.keys, counts.unsent), (0, 0, 0, 0));
    assert!(local_timer().is_empty());
}

/// The event of another thread, which has no wheel, races with the timeout.
#[test]
fn an_event_or_the_timeout_completes_an_operation_once() {
    explore(12, || {
        let (clock, shard) = core();
        let (group, seen) = (group(), Op::new());
        let purgatory = group.join(0, &[shard]);
        assert!(seen.add(&purgatory, &[0]).is_some());
        clock.advance(TICK);
        let teller = race(seen.event(&group, 0));
        local_timer().turn();
        teller.join().unwrap();
        local_timer().turn();
        assert!([BY_CONDITION, EXPIRED].contains(&seen.ended()), "{}", seen.ended());
        assert_over(&purgatory);
    });
}

/// Without a timeout the event must complete the operation, also an event during the add.
#[test]
fn no_event_is_lost_while_an_operation_is_added() {
    explore(80, || {
        let (_clock, shard) = core();
        let (group, seen) = (group(), Op::new());
        let teller = race(seen.event(&group, 0));
        let purgatory = group.join(0, &[shard]);
        seen.add(&purgatory, &[0]);
        local_timer().turn();
        teller.join().unwrap();
        local_timer().turn();
        assert_eq!(seen.ended(), BY_CONDITION);
        assert_over(&purgatory);
    });
}

#[test]
fn two_events_complete_an_operation_once() {
    explore_within(1, 2_900, || {
        let (group, seen, purgatory) = stage(|| {
            let (_clock, shard) = core();
            let group = group();
            let purgatory = group.join(0, &[shard]);
            let events = group.clone();
            elsewhere(move || [0, 0].iter().for_each(|key| events.notify(key)));
            local_timer().turn();
            (group, Op::new(), purgatory)
        });
        assert!(seen.add(&purgatory, &[0, 0]).is_some());
        let tellers = [(); 2].map(|()| race(seen.event(&group, 0)));
        local_timer().turn();
        for teller in tellers {
            teller.join().unwrap();
        }
        local_timer().turn();
        assert_eq!(seen.ended(), BY_CONDITION);
        assert_over(&purgatory);
    });
}

#[test]
fn force_complete_or_the_timeout_ends_an_operation_once() {
    explore(12, || {
        let (clock, shard) = core();
        let seen = Op::new();
        let purgatory = local_purgatory::<usize, Op>();
        let id = seen.add(&purgatory, &[0]).expect("it waits");
        clock.advance(TICK);
        let [was_forced, noted] = shared(AtomicBool::new(false));
        let forcer = race(move || {
            shard.run(move || {
                let forced = local_purgatory::<usize, Op>().force_complete(id);
                noted.store(forced, Ordering::Relaxed);
            });
        });
        local_timer().turn();
        forcer.join().unwrap();
        local_timer().turn();
        let how = if was_forced.load(Ordering::Relaxed) { FORCED } else { EXPIRED };
        assert_eq!(seen.ended(), how);
        assert_over(&purgatory);
    });
}

/// An event wakes a sleeping core, or prevents its sleep.
#[test]
fn an_event_wakes_a_sleeping_core() {
    explore(91, || {
        let owner = thread::current();
        let (_clock, shard) = core_with(|config| config.on_wake(move || owner.unpark()));
        let (group, seen) = (group(), Op::new());
        let purgatory = group.join(0, &[shard]);
        assert!(seen.add(&purgatory, &[0]).is_some());
        let teller = asks(seen.event(&group, 0));
        let sleep = local_timer().prepare_sleep();
        if sleep.timeout().is_none_or(|timeout| !timeout.is_zero()) {
            thread::park();
        }
        drop(sleep);
        local_timer().turn();
        assert_eq!(seen.ended(), BY_CONDITION, "what woke the core is there when it looks");
        teller.answer();
    });
}

/// The other core of a model: core 1 of a group, which turns on request.
struct Other {
    orders: Sender<Option<ShardRef>>,
    turned: Receiver<()>,
    thread: JoinHandle<()>,
}

impl Other {
    fn start(group: &PurgatoryGroup<usize>) -> (Self, ShardRef) {
        let (orders, ordered): (_, Receiver<Option<ShardRef>>) = channel();
        let (refer, referred) = channel();
        let (turns, turned) = channel();
        let group = group.clone();
        let thread = thread::spawn(move || {
            let (_clock, own) = core();
            refer.send(own.clone()).unwrap();
            let first = ordered.recv().unwrap().expect("the first order names the other core");
            let purgatory = group.join::<Op>(1, &[first, own]);
            turns.send(()).unwrap();
            while ordered.recv().unwrap().is_some() {
                local_timer().turn();
                turns.send(()).unwrap();
            }
            let counts = purgatory.counts();
            assert_eq!((counts.watches, counts.unsent), (0, 0), "of a core that has settled");
        });
        let shard = referred.recv().unwrap();
        (Self { orders, turned, thread }, shard)
    }

    /// Starts a turn of the other core, which runs beside this one.
    fn begin_turn(&self, own: &ShardRef) {
        self.orders.send(Some(own.clone())).unwrap();
    }

    fn end_turn(&self) {
        self.turned.recv().unwrap();
    }

    fn turn(&self, own: &ShardRef) {
        self.begin_turn(own);
        self.end_turn();
    }

    /// Turns both cores alternately until no message is left.
    fn settle(self, own: &ShardRef) {
        for _ in 0..4 {
            local_timer().turn();
            self.turn(own);
        }
        self.orders.send(None).unwrap();
        self.thread.join().unwrap();
    }
}

/// Creates two cores, of which this is the first, and an operation here that watches `keys`. Its
/// request is on the way to the other core.
fn two_cores(
    keys: &[usize],
    is_in_place: bool,
) -> (Other, ManualClock, ShardRef, PurgatoryGroup<usize>, Purgatory<usize, Op>, Op) {
    let (clock, own) = core();
    let (group, seen) = (group(), Op::new());
    let (other, others) = Other::start(&group);
    let purgatory = group.join(0, &[own.clone(), others]);
    other.turn(&own);
    // Both have nodes for messages: this model leaves out two threads that need a table for them at
    // once.
    let events = group.clone();
    elsewhere(move || [0, 1, 0, 1].iter().for_each(|key| events.notify(key)));
    other.turn(&own);
    local_timer().turn();
    assert!(seen.add(&purgatory, keys).is_some());
    local_timer().turn();
    if is_in_place {
        other.turn(&own);
        local_timer().turn();
    }
    (other, clock, own, group, purgatory, seen)
}

/// The event occurs while the watch is on its way to the other core, is being confirmed, or is in
/// place.
#[test]
fn no_event_is_lost_between_watches_on_two_cores() {
    explore(870, || events_on_two_cores(0, false));
    explore(680, || events_on_two_cores(1, false));
    explore(39, || events_on_two_cores(1, true));
}

fn events_on_two_cores(key: usize, is_in_place: bool) {
    let (other, _clock, own, group, purgatory, seen) = stage(|| two_cores(&[0, 1], is_in_place));
    let teller = race(seen.event(&group, key));
    other.begin_turn(&own);
    local_timer().turn();
    teller.join().unwrap();
    other.end_turn();
    stage(|| other.settle(&own));
    assert_eq!(seen.ended(), BY_CONDITION);
    assert_over(&purgatory);
}

/// An event of the other core, on one of that core's keys, races with the timeout.
#[test]
fn a_remote_event_or_the_timeout_ends_an_operation_once() {
    explore(65, || {
        let (other, clock, own, group, purgatory, seen) = stage(|| two_cores(&[1], true));
        seen.set();
        group.notify(&1);
        clock.advance(TICK);
        // The other core's turn sends the event.
        other.begin_turn(&own);
        local_timer().turn();
        other.end_turn();
        stage(|| other.settle(&own));
        assert!([BY_CONDITION, EXPIRED].contains(&seen.ended()), "{}", seen.ended());
        assert_over(&purgatory);
    });
}
