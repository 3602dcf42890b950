//! Events, watches, timeouts and forced completions of delayed operations race with each other.
#![cfg(all(loom, not(crossbeam_loom)))]

use std::sync::Arc;

use corewheel::{
    ManualClock, ShardRef, local_timer,
    purgatory::{
        Completion, DelayedOperation, OperationId, Purgatory, PurgatoryGroup, WatchOutcome,
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
    TICK, explore, explore_with_preemptions, fall_asleep, install_core, install_waking_core,
    on_another_thread, race, shared_clones, spawn_unparker, without_exploring,
};

/// An operation that completes at a check once `condition` is set. All accesses are relaxed:
/// corewheel must order them.
#[derive(Clone)]
struct Op {
    condition: Arc<AtomicBool>,
    end_counts: Arc<AtomicUsize>,
}

const COMPLETED_BY_CONDITION: usize = 1;
const FORCED: usize = 10;
const EXPIRED: usize = 100;

impl DelayedOperation for Op {
    fn try_complete(&mut self) -> bool {
        self.condition.load(Ordering::Relaxed)
    }

    fn on_complete(self, how: Completion) {
        let how = match how {
            Completion::Condition => COMPLETED_BY_CONDITION,
            Completion::Forced => FORCED,
            Completion::Expired => EXPIRED,
        };
        self.end_counts.fetch_add(how, Ordering::Relaxed);
    }
}

impl Op {
    fn new() -> Self {
        Self {
            condition: Arc::new(AtomicBool::new(false)),
            end_counts: Arc::new(AtomicUsize::new(0)),
        }
    }

    fn add(&self, purgatory: &Purgatory<usize, Op>, keys: &[usize]) -> Option<OperationId> {
        let keys = keys.iter().copied();
        let added = purgatory.try_complete_else_watch(self.clone(), keys, TICK);
        match added.expect("the add was refused") {
            WatchOutcome::Completed => None,
            WatchOutcome::Waits(id) => Some(id),
        }
    }

    /// Returns a closure that sets the condition and then notifies the group.
    fn make_set_and_notify(
        &self,
        group: &PurgatoryGroup<usize>,
        key: usize,
    ) -> impl FnOnce() + 'static {
        let (op, group) = (self.clone(), group.clone());
        move || {
            op.set_condition();
            group.notify(&key);
        }
    }

    fn set_condition(&self) {
        self.condition.store(true, Ordering::Relaxed);
    }

    fn end_counts(&self) -> usize {
        self.end_counts.load(Ordering::Relaxed)
    }
}

fn group() -> PurgatoryGroup<usize> {
    PurgatoryGroup::partitioned_by(|&key| key)
}

/// Turns while the threads run, and again after their end.
fn turn_during_and_after<const N: usize>(threads: [JoinHandle<()>; N]) {
    local_timer().turn();
    for thread in threads {
        thread.join().unwrap();
    }
    local_timer().turn();
}

/// Asserts that one operation was added and that it has ended.
fn assert_operation_ended(purgatory: &Purgatory<usize, Op>) {
    let counts = purgatory.counts();
    assert_eq!((counts.added, counts.by_condition + counts.forced + counts.expired), (1, 1));
    assert_eq!((counts.live, counts.watches, counts.keys, counts.unsent_messages), (0, 0, 0, 0));
    assert!(local_timer().is_empty());
}

#[test]
fn an_event_or_the_timeout_completes_an_operation_once() {
    explore(12, || {
        let (clock, shard) = install_core();
        let (group, op) = (group(), Op::new());
        let purgatory = group.join(0, &[shard]);
        assert!(op.add(&purgatory, &[0]).is_some());
        clock.advance(TICK);
        turn_during_and_after([race(op.make_set_and_notify(&group, 0))]);
        assert!(
            [COMPLETED_BY_CONDITION, EXPIRED].contains(&op.end_counts()),
            "{}",
            op.end_counts()
        );
        assert_operation_ended(&purgatory);
    });
}

#[test]
fn no_event_is_lost_while_an_operation_is_added() {
    explore(80, || {
        let (_clock, shard) = install_core();
        let (group, op) = (group(), Op::new());
        let notifier = race(op.make_set_and_notify(&group, 0));
        let purgatory = group.join(0, &[shard]);
        op.add(&purgatory, &[0]);
        turn_during_and_after([notifier]);
        assert_eq!(op.end_counts(), COMPLETED_BY_CONDITION);
        assert_operation_ended(&purgatory);
    });
}

#[test]
fn two_events_complete_an_operation_once() {
    explore_with_preemptions(1, 2_700, || {
        let (group, op, purgatory) = without_exploring(|| {
            let (_clock, shard) = install_core();
            let group = group();
            let purgatory = group.join(0, &[shard]);
            let events = group.clone();
            on_another_thread(move || [0, 0].iter().for_each(|key| _ = events.notify(key)));
            local_timer().turn();
            (group, Op::new(), purgatory)
        });
        assert!(op.add(&purgatory, &[0, 0]).is_some());
        turn_during_and_after([(); 2].map(|()| race(op.make_set_and_notify(&group, 0))));
        assert_eq!(op.end_counts(), COMPLETED_BY_CONDITION);
        assert_operation_ended(&purgatory);
    });
}

#[test]
fn force_complete_or_the_timeout_ends_an_operation_once() {
    explore(12, || {
        let (clock, shard) = install_core();
        let op = Op::new();
        let purgatory = local_purgatory::<usize, Op>();
        let id = op.add(&purgatory, &[0]).expect("the operation must wait");
        clock.advance(TICK);
        let [was_forced, was_forced_clone] = shared_clones(AtomicBool::new(false));
        let forcer = race(move || {
            shard.run(move || {
                let forced = local_purgatory::<usize, Op>().force_complete(id);
                was_forced_clone.store(forced, Ordering::Relaxed);
            });
        });
        turn_during_and_after([forcer]);
        let how = if was_forced.load(Ordering::Relaxed) { FORCED } else { EXPIRED };
        assert_eq!(op.end_counts(), how);
        assert_operation_ended(&purgatory);
    });
}

#[test]
fn an_event_wakes_a_sleeping_core() {
    explore(91, || {
        let (_clock, shard) = install_waking_core();
        let (group, op) = (group(), Op::new());
        let purgatory = group.join(0, &[shard]);
        assert!(op.add(&purgatory, &[0]).is_some());
        let notifier = spawn_unparker(op.make_set_and_notify(&group, 0));
        fall_asleep(local_timer().prepare_sleep());
        local_timer().turn();
        assert_eq!(op.end_counts(), COMPLETED_BY_CONDITION, "the core missed the event");
        notifier.join();
    });
}

/// An event sends no message if the wheel has no free node. But the event requests a turn, in which
/// the core sees the notifier's writes. The message of the reset replaces this request.
#[test]
fn an_event_without_a_free_node_ends_the_sleep() {
    explore_with_preemptions(2, 9_000, || {
        let (timer, group, _purgatory) = without_exploring(|| {
            let (_clock, shard) = install_waking_core();
            let group = group();
            let purgatory = group.join::<Op>(0, &[shard]);
            let add = || local_timer().try_add(TICK * 1_000, || ()).ok();
            let timer = std::iter::from_fn(add).last().expect("the wheel was full");
            local_timer().turn();
            (timer, group, purgatory)
        });
        let [has_been_written, work] = shared_clones(AtomicBool::new(false));
        let notifier = spawn_unparker(move || {
            // Relaxed, like the load: corewheel must order these accesses.
            work.store(true, Ordering::Relaxed);
            assert!(!group.notify(&0), "a node was free");
        });
        let resetter = race(move || timer.reset(TICK * 2_000));
        while !has_been_written.load(Ordering::Relaxed) {
            fall_asleep(local_timer().prepare_sleep());
            local_timer().turn();
        }
        notifier.join();
        assert!(resetter.join().unwrap());
    });
}

/// Core 1 of the group: a thread that turns its wheel on request.
struct OtherCore {
    order_sender: Sender<Option<ShardRef>>,
    turn_receiver: Receiver<()>,
    thread: JoinHandle<()>,
}

impl OtherCore {
    fn start(group: &PurgatoryGroup<usize>) -> (Self, ShardRef) {
        let (order_sender, order_receiver): (_, Receiver<Option<ShardRef>>) = channel();
        let (shard_sender, shard_receiver) = channel();
        let (turn_sender, turn_receiver) = channel();
        let group = group.clone();
        let thread = thread::spawn(move || {
            let (_clock, own) = install_core();
            shard_sender.send(own.clone()).unwrap();
            let first =
                order_receiver.recv().unwrap().expect("the first order must not be the last");
            let purgatory = group.join::<Op>(1, &[first, own]);
            turn_sender.send(()).unwrap();
            while order_receiver.recv().unwrap().is_some() {
                local_timer().turn();
                turn_sender.send(()).unwrap();
            }
            let counts = purgatory.counts();
            assert_eq!(
                (counts.watches, counts.unsent_messages),
                (0, 0),
                "watches or messages remain"
            );
        });
        let shard = shard_receiver.recv().unwrap();
        (Self { order_sender, turn_receiver, thread }, shard)
    }

    /// Starts a turn of the other core, without waiting for its end.
    fn begin_turn(&self, own: &ShardRef) {
        self.order_sender.send(Some(own.clone())).unwrap();
    }

    fn end_turn(&self) {
        self.turn_receiver.recv().unwrap();
    }

    fn turn(&self, own: &ShardRef) {
        self.begin_turn(own);
        self.end_turn();
    }

    /// Turns both cores four times, which delivers all messages, and ends the other core.
    fn settle_and_end(self, own: &ShardRef) {
        for _ in 0..4 {
            local_timer().turn();
            self.turn(own);
        }
        self.order_sender.send(None).unwrap();
        self.thread.join().unwrap();
    }
}

/// Creates two cores, and adds an operation that watches `keys` on this one, core 0. If
/// `is_confirmed`, core 1 has confirmed its watch; otherwise the request for this watch is still
/// queued on core 1.
fn two_cores(
    keys: &[usize],
    is_confirmed: bool,
) -> (OtherCore, ManualClock, ShardRef, PurgatoryGroup<usize>, Purgatory<usize, Op>, Op) {
    let (clock, own) = install_core();
    let (group, op) = (group(), Op::new());
    let (other, other_shard) = OtherCore::start(&group);
    let purgatory = group.join(0, &[own.clone(), other_shard]);
    other.turn(&own);
    // Sends events, which allocates their message nodes. So two threads never allocate a table at
    // the same time.
    let events = group.clone();
    on_another_thread(move || [0, 1, 0, 1].iter().for_each(|key| _ = events.notify(key)));
    other.turn(&own);
    local_timer().turn();
    assert!(op.add(&purgatory, keys).is_some());
    local_timer().turn();
    if is_confirmed {
        other.turn(&own);
        local_timer().turn();
    }
    (other, clock, own, group, purgatory, op)
}

#[test]
fn no_event_is_lost_between_watches_on_two_cores() {
    explore(870, || race_an_event_on_two_cores(0, false));
    explore(630, || race_an_event_on_two_cores(1, false));
    explore(39, || race_an_event_on_two_cores(1, true));
}

fn race_an_event_on_two_cores(key: usize, is_confirmed: bool) {
    let (other, _clock, own, group, purgatory, op) =
        without_exploring(|| two_cores(&[0, 1], is_confirmed));
    let notifier = race(op.make_set_and_notify(&group, key));
    other.begin_turn(&own);
    local_timer().turn();
    notifier.join().unwrap();
    other.end_turn();
    without_exploring(|| other.settle_and_end(&own));
    assert_eq!(op.end_counts(), COMPLETED_BY_CONDITION);
    assert_operation_ended(&purgatory);
}

#[test]
fn a_remote_event_or_the_timeout_ends_an_operation_once() {
    explore(65, || {
        let (other, clock, own, group, purgatory, op) = without_exploring(|| two_cores(&[1], true));
        op.set_condition();
        group.notify(&1);
        clock.advance(TICK);
        // In this turn, the other core passes the event to this core.
        other.begin_turn(&own);
        local_timer().turn();
        other.end_turn();
        without_exploring(|| other.settle_and_end(&own));
        assert!(
            [COMPLETED_BY_CONDITION, EXPIRED].contains(&op.end_counts()),
            "{}",
            op.end_counts()
        );
        assert_operation_ended(&purgatory);
    });
}
