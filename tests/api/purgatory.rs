//! Delayed operations on one core, and on several cores in lockstep. Each operation completes once
//! and removes its watches. No event is missed. The code of operations and keys may panic.

use std::{
    cell::{Cell, RefCell},
    hash::{Hash, Hasher},
    iter,
    rc::Rc,
    sync::Arc,
    thread,
    time::Duration,
};

use corewheel::{
    AddErrorReason, Cancel, Config, ShardRef, local_timer,
    purgatory::{
        Completion, OperationId, Purgatory, PurgatoryCounts, PurgatoryGroup, WatchKey,
        WatchOutcome, local_purgatory,
    },
};

use crate::support::{
    Counter, Lockstep, Log, OnDrop, Op, OpRecord, TICK, add_waiting, cancel_remotely,
    in_checked_virtual_time, leak_hidden, on_a_thread, on_configured_thread, panic_message, panics,
    run_after_wheel_ends, turn_after, turn_at_each_tick,
};

/// On several cores, key `n` belongs to core `n`.
type OpPurgatory = Purgatory<usize, Op>;

fn add<K: WatchKey>(
    purgatory: &Purgatory<K, Op>,
    keys: impl IntoIterator<Item = K>,
    ticks: u32,
) -> Arc<OpRecord> {
    let record = OpRecord::new();
    add_waiting(purgatory, record.op(), keys, ticks);
    record
}

// ---- one core

#[test]
fn a_check_by_id_checks_only_its_operation() {
    in_checked_virtual_time(|clock| {
        let (purgatory, record) = (OpPurgatory::new(), OpRecord::new());
        let id = add_waiting(&purgatory, record.op(), [0, 1], 5);
        let other = add(&purgatory, [0], 5);
        other.meet_condition();
        assert!(!purgatory.try_complete(id));
        record.meet_condition();
        assert!(purgatory.try_complete(id) && !purgatory.try_complete(id));
        record.assert_ended(Completion::Condition);
        assert_eq!(
            (other.check_count(), other.completions(), purgatory.watch_count(&1)),
            (1, vec![], 0)
        );
        // The next operation reuses the memory of the ended one and has another id.
        let next = add(&purgatory, [0], 5);
        next.meet_condition();
        assert!(!purgatory.try_complete(id));
        turn_after(clock, 5);
        assert!(!purgatory.try_complete(id));
        next.assert_ended(Completion::Expired);
    });
}

#[test]
fn a_purgatory_does_not_know_the_ids_of_another() {
    in_checked_virtual_time(|_| {
        let [purgatory, other] = [(); 2].map(|()| Purgatory::new());
        let [record, other_record] = [(); 2].map(|()| OpRecord::new());
        let id = add_waiting(&purgatory, record.op(), [1], 50);
        let _ = add_waiting(&other, other_record.op(), [1], 50);
        other_record.meet_condition();
        assert!(!other.try_complete(id) && !other.force_complete(id) && other.len() == 1);
        assert!(purgatory.force_complete(id));
    });
}

#[test]
fn a_check_inside_try_complete_causes_one_more_check() {
    in_checked_virtual_time(|_| {
        let (purgatory, record, id) =
            (OpPurgatory::new(), OpRecord::new(), Rc::new(Cell::new(None)));
        let (purgatory_inside, given, record_inside) =
            (purgatory.clone(), Rc::clone(&id), Arc::clone(&record));
        let in_try_complete = move || {
            let Some(id) = given.take() else { return };
            assert!(!purgatory_inside.try_complete(id) && purgatory_inside.cancel(id).is_none());
            record_inside.meet_condition();
        };
        let waits = add_waiting(&purgatory, record.op_with(in_try_complete, || ()), [0], 5);
        id.set(Some(waits));
        let before = record.check_count();
        assert!(purgatory.try_complete(waits));
        assert_eq!(record.check_count() - before, 2);
        record.assert_ended(Completion::Condition);
    });
}

#[test]
fn a_check_does_not_count_an_operation_that_is_forced_during_it() {
    let checks: [fn(&OpPurgatory, OperationId) -> usize; 2] = [
        |purgatory, id| purgatory.try_complete(id).into(),
        |purgatory, _| purgatory.check_and_complete(&0),
    ];
    in_checked_virtual_time(|_| {
        for check in checks {
            let (purgatory, record, id) =
                (OpPurgatory::new(), OpRecord::new(), Rc::new(Cell::new(None)));
            let (purgatory_inside, given) = (purgatory.clone(), Rc::clone(&id));
            let force =
                move || assert!(given.take().is_none_or(|id| purgatory_inside.force_complete(id)));
            let waits = add_waiting(&purgatory, record.op_with(force, || ()), [0], 5);
            id.set(Some(waits));
            assert_eq!(check(&purgatory, waits), 0);
            record.assert_ended(Completion::Forced);
        }
    });
}

#[test]
fn keys_are_found_by_their_borrowed_form() {
    in_checked_virtual_time(|_| {
        let purgatory = Purgatory::new();
        let records =
            [(); 2].map(|()| add(&purgatory, ["topic".to_owned(), "other".to_owned()], 50));
        assert_eq!(
            [
                purgatory.watch_count("topic"),
                purgatory.watch_count("other"),
                purgatory.watch_count("none")
            ],
            [2, 2, 0]
        );
        records[0].meet_condition();
        assert_eq!(
            (purgatory.check_and_complete("none"), purgatory.check_and_complete("topic")),
            (0, 1)
        );
        records[0].assert_ended(Completion::Condition);
        // The operation's first watch is inline, and its second watch is not.
        assert_eq!(
            (purgatory.cancel_for_key("none").len(), purgatory.cancel_for_key("other").len()),
            (0, 1)
        );
        assert_eq!((purgatory.watch_count(&"topic".to_owned()), purgatory.len()), (0, 0));
    });
}

#[test]
fn an_operation_that_completes_at_once_uses_neither_keys_nor_a_timer() {
    in_checked_virtual_time(|_| {
        let (purgatory, record) = (OpPurgatory::new(), OpRecord::new());
        record.meet_condition();
        let keys = iter::from_fn(|| unreachable!("no key is needed"));
        let added =
            purgatory.try_complete_else_watch(record.op(), keys, TICK).expect("no timer is needed");
        assert_eq!((added, local_timer().counts().added), (WatchOutcome::Completed, 0));
        record.assert_ended(Completion::Condition);
    });
}

#[test]
fn an_operation_that_ends_during_an_add_causes_a_second_check() {
    let ends: [fn(&OpPurgatory, OperationId) -> bool; 3] = [
        |purgatory, id| purgatory.try_complete(id),
        |purgatory, id| purgatory.force_complete(id),
        |purgatory, id| purgatory.cancel(id).is_some(),
    ];
    in_checked_virtual_time(|_| {
        for end in ends {
            let (purgatory, ended, added) = (OpPurgatory::new(), OpRecord::new(), OpRecord::new());
            let id = add_waiting(&purgatory, ended.op(), [0], 5);
            ended.meet_condition();
            let ends_other = iter::once_with(|| usize::from(end(&purgatory, id)));
            add_waiting(&purgatory, added.op(), ends_other, 5);
            assert_eq!(
                (added.check_count(), purgatory.watch_count(&1), purgatory.len()),
                (2, 1, 1)
            );
        }
    });
}

#[test]
fn operations_cancelled_for_a_key_are_in_the_order_of_their_watches() {
    in_checked_virtual_time(|_| {
        let purgatory = OpPurgatory::new();
        let all = [5, 1, 3].map(|ticks| add(&purgatory, [0], ticks));
        let cancelled = purgatory.cancel_for_key(&0);
        assert!(cancelled.iter().map(|op| Arc::as_ptr(&op.record)).eq(all.iter().map(Arc::as_ptr)));
    });
}

#[test]
fn operations_on_a_key_complete_in_fifo_order() {
    in_checked_virtual_time(|_| {
        let (purgatory, order) = (OpPurgatory::new(), Log::new());
        let all = [0, 1, 2, 3, 4].map(|number| {
            let (record, order) = (OpRecord::new(), order.clone());
            add_waiting(&purgatory, record.op_with(|| (), move || order.write(number)), [0], 5);
            record
        });
        for record in &all {
            record.meet_condition();
        }
        assert_eq!((purgatory.check_and_complete(&0), order.take()), (5, vec![0, 1, 2, 3, 4]));
    });
}

#[test]
fn the_last_completion_may_drop_the_purgatory() {
    in_checked_virtual_time(|clock| {
        let purgatory = OpPurgatory::new();
        for ticks in [1, 5] {
            let mut inside = Some(purgatory.clone());
            add_waiting(
                &purgatory,
                OpRecord::new().op_with(|| (), move || drop(inside.take())),
                [1],
                ticks,
            );
        }
        drop(purgatory);
        assert_eq!([5; 2].map(|ticks| turn_after(clock, ticks).fired), [2, 0]);
        assert_eq!(local_timer().len(), 0);
    });
}

#[test]
fn a_full_wheel_hands_the_operation_back() {
    on_configured_thread(Config::new().limit(1), |_| {
        let (purgatory, record) = (OpPurgatory::new(), OpRecord::new());
        add_waiting(&purgatory, record.op(), [0], 1000);
        let refused = purgatory.try_complete_else_watch(record.op(), [1], TICK).expect_err("full");
        assert_eq!(refused.reason(), AddErrorReason::Full);
        assert_eq!(refused.into_inner().record.check_count(), 2);
        assert_eq!(
            (purgatory.len(), purgatory.watch_count(&1), purgatory.counts().added),
            (1, 0, 1)
        );
    });
}

/// The wheel is full. The destructor of its cancelled timer completes an earlier operation, which
/// watches the new operation's key.
#[test]
fn an_added_operation_makes_room_in_a_full_wheel() {
    on_configured_thread(Config::new().limit(2), |_| {
        let purgatory = Rc::new(OpPurgatory::new());
        let (earlier, later) = (add(&purgatory, [0], 1000), OpRecord::new());
        let (ends, met) = (Rc::clone(&purgatory), Arc::clone(&earlier));
        let dropped = OnDrop(move || {
            met.meet_condition();
            assert_eq!(ends.check_and_complete(&0), 1);
        });
        let cancelled = local_timer().add(TICK, move || drop(dropped));
        assert_eq!(cancel_remotely(cancelled), Cancel::Cancelled);
        add_waiting(&purgatory, later.op(), [0], 1000);
        earlier.assert_ended(Completion::Condition);
        later.meet_condition();
        assert_eq!((purgatory.watch_count(&0), purgatory.check_and_complete(&0)), (1, 1));
        later.assert_ended(Completion::Condition);
    });
}

#[test]
fn an_operation_that_expires_during_its_add_leaves_no_watch() {
    in_checked_virtual_time(|clock| {
        let (purgatory, record) = (OpPurgatory::new(), OpRecord::new());
        let keys = [0, 1, 2]
            .into_iter()
            .inspect(|&key| turn_at_each_tick(clock, if key == 1 { 5 } else { 0 }));
        let added = purgatory.try_complete_else_watch(record.op(), keys, TICK * 2);
        assert_eq!(added.expect("there is room"), WatchOutcome::Completed);
        record.assert_ended(Completion::Expired);
        let PurgatoryCounts { added, expired, live, watches, .. } = purgatory.counts();
        assert_eq!((added, expired, live, watches), (1, 1, 0, 0));
    });
}

struct DrainOnDrop(OpPurgatory);

impl Drop for DrainOnDrop {
    fn drop(&mut self) {
        assert_eq!(self.0.drain().len(), 1);
    }
}

/// The iterator of the new operation's keys drains the purgatory, in its last `next` or in its
/// destructor.
#[test]
fn an_operation_drained_by_its_key_iterator_does_not_wait() {
    in_checked_virtual_time(|_| {
        let purgatory = OpPurgatory::new();
        for given in [&[0][..], &[0, 1]] {
            let last = || {
                assert_eq!(purgatory.drain().len(), 1);
                None
            };
            let keys = given.iter().copied().chain(iter::from_fn(last));
            let added = purgatory.try_complete_else_watch(OpRecord::new().op(), keys, TICK);
            assert_eq!(added.expect("there is room"), WatchOutcome::Completed);
            let drains = DrainOnDrop(purgatory.clone());
            let keys = given.iter().map(move |&key| (&drains, key).1);
            let added = purgatory.try_complete_else_watch(OpRecord::new().op(), keys, TICK);
            assert_eq!(added.expect("there is room"), WatchOutcome::Completed);
            assert!(purgatory.is_empty());
        }
    });
}

/// The event on key 1 precedes the watch on this key, so only the second check can find it.
#[test]
fn an_event_during_an_add_is_not_lost_if_the_keys_panic() {
    on_configured_thread(Config::new(), |_| {
        for panics_in_next in [true, false] {
            let (purgatory, record) = (OpPurgatory::new(), OpRecord::new());
            let (purgatory_inside, record_inside) = (purgatory.clone(), Arc::clone(&record));
            let dropped = OnDrop(move || assert!(panics_in_next, "as planned in `drop`"));
            let keys = [0, 1].into_iter().inspect(move |&key| {
                let _captured = &dropped;
                if key == 1 {
                    record_inside.meet_condition();
                    assert_eq!(
                        purgatory_inside.check_and_complete(&1),
                        0,
                        "the key is not watched"
                    );
                    assert!(!panics_in_next, "as planned in `next`");
                }
            });
            let add = || purgatory.try_complete_else_watch(record.op(), keys, TICK);
            if panics_in_next {
                assert!(panics(add));
            } else {
                assert_eq!(add().expect("there is room"), WatchOutcome::Completed);
            }
            record.assert_ended(Completion::Condition);
            assert_eq!((purgatory.len(), purgatory.counts().watches), (0, 0));
        }
        assert_eq!(local_timer().counts().panicked, 1, "the panic in `drop` is counted");
    });
}

#[test]
fn long_chains_of_completions_use_bounded_stack() {
    const MANY: usize = 100_000;
    in_checked_virtual_time(|_| {
        // First each operation has its own key; then all operations share one key.
        for (many, keys) in [(MANY, MANY), (MANY / 100, 1)] {
            let (purgatory, record) = (OpPurgatory::new(), OpRecord::new());
            for at in 0..many {
                let next = purgatory.clone();
                let after_completion = move || _ = next.check_and_complete(&((at + 1) % keys));
                add_waiting(&purgatory, record.op_with(|| (), after_completion), [at % keys], 50);
            }
            record.meet_condition();
            purgatory.check_and_complete(&0);
            assert_eq!((record.completions().len(), purgatory.len()), (many, 0));
        }
    });
}

#[test]
fn operations_can_be_removed_after_the_wheel_has_ended() {
    let records = [(); 4].map(|()| OpRecord::new());
    let left = run_after_wheel_ends(|| {
        let purgatory = OpPurgatory::new();
        let ids = [0, 1, 2, 3].map(|key| add_waiting(&purgatory, records[key].op(), [key], 60_000));
        move || {
            assert_eq!(purgatory.cancel_for_key(&0).len(), 1);
            assert!(purgatory.force_complete(ids[1]));
            assert!(!purgatory.force_complete(ids[1]) && !purgatory.force_complete(ids[0]));
            assert!(purgatory.cancel(ids[2]).is_some() && purgatory.cancel(ids[2]).is_none());
            (purgatory.drain().len(), purgatory.drain().len(), purgatory.is_empty())
        }
    });
    assert_eq!(left, (1, 0, true));
    let ended = records.each_ref().map(|record| record.completions());
    assert_eq!(ended, [vec![], vec![Completion::Forced], vec![], vec![]]);
}

// ---- several cores

/// Cores in lockstep, some of which have joined a group.
pub(crate) struct JoinedCores<K: WatchKey> {
    pub(crate) cores: Lockstep<Option<Purgatory<K, Op>>>,
    pub(crate) group: PurgatoryGroup<K>,
}

impl JoinedCores<usize> {
    pub(crate) fn start(count: usize, joined: &[usize]) -> Self {
        Self::join_to_group(
            Lockstep::start(count),
            PurgatoryGroup::partitioned_by(|&key: &usize| key),
            joined,
        )
    }

    pub(crate) fn start_with(count: usize, configure: impl Fn(usize, Config) -> Config) -> Self {
        let (cores, all) = (Lockstep::start_with(count, configure), (0..count).collect::<Vec<_>>());
        Self::join_to_group(cores, PurgatoryGroup::partitioned_by(|&key: &usize| key), &all)
    }

    fn add(&self, core: usize, keys: &[usize], ticks: u32) -> Arc<OpRecord> {
        let keys = keys.to_vec();
        self.run_on(core, move |purgatory| add(purgatory, keys, ticks))
    }
}

impl<K: WatchKey> JoinedCores<K> {
    fn join_to_group(
        cores: Lockstep<Option<Purgatory<K, Op>>>,
        group: PurgatoryGroup<K>,
        joined: &[usize],
    ) -> Self {
        let joined_cores = Self { cores, group };
        for &core in joined {
            joined_cores.join(core);
        }
        joined_cores
    }

    pub(crate) fn join(&self, core: usize) {
        let (group, shards) = (self.group.clone(), self.cores.shards.clone());
        self.cores.run_on(core, move |purgatory| *purgatory = Some(group.join(core, &shards)));
    }

    pub(crate) fn run_on<R: Send + 'static>(
        &self,
        core: usize,
        ask: impl FnOnce(&Purgatory<K, Op>) -> R + Send + 'static,
    ) -> R {
        self.cores.run_on(core, |purgatory| ask(purgatory.as_ref().expect("the core has joined")))
    }

    fn turn(&self, cores: impl IntoIterator<Item = usize>) {
        cores.into_iter().for_each(|core| _ = self.cores.turn(core));
    }

    fn run_until_stalled(&self) {
        self.cores.run_until_stalled();
    }

    fn counts(&self, core: usize) -> PurgatoryCounts {
        self.run_on(core, Purgatory::counts)
    }

    fn panic_count(&self, core: usize) -> u64 {
        self.cores.run_on(core, |_| local_timer().counts().panicked)
    }

    /// Asserts that `cores` have no live operations, watches or unsent messages.
    fn assert_empty(&self, cores: impl IntoIterator<Item = usize>) {
        for core in cores {
            let PurgatoryCounts { live, watches, keys, unsent_messages, .. } = self.counts(core);
            assert_eq!((live, watches, keys, unsent_messages), (0, 0, 0, 0), "on core {core}");
        }
    }
}

#[test]
fn events_are_sent_in_batches() {
    let cores = JoinedCores::start(2, &[0, 1]);
    let record = cores.add(1, &[1], 50);
    cores.run_on(0, |purgatory| (0..200).for_each(|_| purgatory.notify(&1)));
    assert_eq!(cores.counts(0).unsent_messages, 200 % 64);
    assert_eq!(cores.cores.turn(1).fired, 3);
    cores.turn([0]);
    assert_eq!(cores.counts(0).unsent_messages, 0);
    assert_eq!((cores.cores.turn(1).fired, record.check_count()), (1, 201));
}

#[test]
fn notify_returns_whether_the_event_reaches_the_wheel_of_the_keys_core() {
    let cores = JoinedCores::start(4, &[]);
    assert!(!cores.group.notify(&0), "no core has joined");
    cores.join(0);
    assert!(cores.group.notify(&0) && cores.group.notify(&1), "core 1 may join later");
    cores.join(1);
    cores.join(2);
    let (group, shards) = (cores.group.clone(), cores.cores.shards.clone());
    cores.run_on(1, move |_| assert!(panics(|| group.join::<Op>(1, &shards)), "the second join"));
    assert!(cores.group.notify(&1), "the first purgatory of the core lives");
    cores.cores.run_on(1, |purgatory| *purgatory = None);
    assert!(!cores.group.notify(&1), "the core has dropped its purgatory");
    cores.run_on(2, |_| drop(local_timer().drain()));
    assert!(!cores.group.notify(&2), "the core's wheel has ended");
    assert!(cores.group.notify(&0));
}

#[test]
fn a_turn_of_a_drained_wheel_sends_events() {
    let cores = JoinedCores::start(2, &[0, 1]);
    let record = cores.add(1, &[1], 50);
    cores.run_until_stalled();
    record.meet_condition();
    cores.run_on(0, |purgatory| {
        drop(local_timer().drain());
        purgatory.notify(&1);
    });
    cores.turn([0, 1]);
    assert_eq!(cores.counts(0).unsent_messages, 0);
    record.assert_ended(Completion::Condition);
}

/// A key that belongs to the core with the index `.0`. All clones share one reference count.
#[derive(Clone, PartialEq, Eq, Hash)]
struct SharedKey(usize, Arc<()>);

#[test]
fn events_are_not_kept_for_a_core_that_has_not_joined() {
    let cores = JoinedCores::join_to_group(
        Lockstep::start(2),
        PurgatoryGroup::partitioned_by(|key: &SharedKey| key.0),
        &[0],
    );
    let keys = Arc::new(());
    let key = SharedKey(1, Arc::clone(&keys));
    cores.run_on(0, move |purgatory| (0..10).for_each(|_| purgatory.notify(&key)));
    assert_eq!(Arc::strong_count(&keys), 11, "ten events are in transit");
    cores.run_until_stalled();
    assert_eq!(Arc::strong_count(&keys), 1);
}

// ---- the end of a core

#[test]
fn an_event_removes_the_watches_of_a_leaked_purgatory() {
    let mut cores = JoinedCores::start(2, &[0, 1]);
    cores.add(0, &[1], 50);
    cores.run_until_stalled();
    cores.cores.run_on(0, |purgatory| leak_hidden(purgatory.take()));
    cores.cores.end(0);
    cores.run_until_stalled();
    assert_eq!(cores.counts(1).watches, 1);
    cores.group.notify(&1);
    cores.run_until_stalled();
    cores.assert_empty([1]);
}

/// The event is in transit when the core of the leaked purgatory ends.
#[test]
fn watchers_check_again_if_the_keys_purgatory_is_leaked() {
    let mut cores = JoinedCores::start(2, &[0, 1]);
    let record = cores.add(0, &[1], 50);
    cores.run_until_stalled();
    cores.cores.run_on(1, |purgatory| leak_hidden(purgatory.take()));
    record.meet_condition();
    cores.group.notify(&1);
    cores.cores.end(1);
    cores.run_until_stalled();
    record.assert_ended(Completion::Condition);
    cores.assert_empty([0]);
}

#[test]
fn watchers_check_once_when_a_core_ends_without_joining() {
    let mut cores = JoinedCores::start(4, &[0, 1, 2]);
    let waits = [0, 1, 1, 0, 2].map(|core| cores.add(core, &[3], 50));
    cores.run_until_stalled();
    let checks = || waits.each_ref().map(|record| record.check_count());
    let before = checks();
    cores.cores.end(3);
    cores.run_until_stalled();
    assert_eq!(checks(), before.map(|checks| checks + 1));
}

/// A turn completes each batch that it begins, so the replies fill several batches.
#[test]
fn a_turn_makes_few_checks_after_a_core_has_ended_without_joining() {
    let mut cores = JoinedCores::start(2, &[0]);
    let waits: Vec<_> = (0..1_000).map(|_| cores.add(0, &[1], 50)).collect();
    cores.run_until_stalled();
    cores.cores.end(1);
    let checks = || waits.iter().map(|record| record.check_count()).sum::<usize>();
    let before = checks();
    for turn in 1..=3 {
        assert!(cores.run_on(0, |_| local_timer().turn_within(1)).behind);
        assert!(checks() <= before + 64 * turn, "{} checks", checks() - before);
    }
    cores.run_until_stalled();
    assert_eq!(checks(), before + 1_000);
}

#[test]
fn a_full_wheel_accepts_purgatory_messages() {
    let cores = JoinedCores::start_with(2, |_, config| config.limit(1));
    let waits = [0, 1].map(|core| cores.add(core, &[1], 50));
    cores.run_until_stalled();
    for record in &waits {
        record.meet_condition();
    }
    cores.group.notify(&1);
    cores.run_until_stalled();
    let ended = waits.map(|record| record.completions());
    assert_eq!(ended, [(); 2].map(|()| [Completion::Condition]));
    cores.assert_empty(0..2);
    // Messages do not count toward the limit.
    cores.add(0, &[0], 50);
}

#[test]
fn a_notify_after_prepare_sleep_ends_the_sleep() {
    let woken = Counter::default();
    let cores = JoinedCores::start_with(2, |_, config| config.wake_hook(woken.callback()));
    let record = cores.add(1, &[1], 50);
    record.meet_condition();
    cores.run_on(0, |purgatory| {
        let _sleep = local_timer().prepare_sleep();
        purgatory.notify(&1);
        purgatory.notify(&1);
    });
    assert_eq!(woken.get(), 1);
    // Announcing a sleep sends the events to the other core.
    cores.run_on(0, |_| drop(local_timer().prepare_sleep()));
    cores.turn([1]);
    record.assert_ended(Completion::Condition);
}

#[test]
fn every_way_to_prepare_a_sleep_sends_queued_events() {
    let queries: [(&str, fn()); 4] = [
        ("time_until_next", || _ = local_timer().time_until_next()),
        ("next_deadline", || _ = local_timer().next_deadline()),
        ("prepare_sleep", || drop(local_timer().prepare_sleep())),
        ("sleep_with", || local_timer().sleep_with(|_| ())),
    ];
    for (name, ask) in queries {
        let cores = JoinedCores::start(2, &[0, 1]);
        let record = cores.add(1, &[1], 50);
        record.meet_condition();
        let unsent = cores.run_on(0, move |purgatory| {
            purgatory.notify(&1);
            ask();
            purgatory.counts().unsent_messages
        });
        assert_eq!(unsent, 0, "{name}");
        cores.turn([1]);
        record.assert_ended(Completion::Condition);
    }
}

#[test]
fn an_invalid_join_panics_and_changes_nothing() {
    let cores = JoinedCores::start(3, &[0, 1]);
    let refusal = |core: usize, index: usize, shards: &[ShardRef]| {
        let (group, shards) = (cores.group.clone(), shards.to_vec());
        let join = move |_: &mut _| drop(group.join::<Op>(index, &shards));
        panic_message(|| cores.cores.run_on(core, join))
    };
    let all = &cores.cores.shards;
    assert!(refusal(0, 0, all).starts_with("this thread has joined the group before"));
    assert!(refusal(2, 1, all).starts_with("shard 1 is not this thread's wheel, or has ended"));
    let message = refusal(2, 3, all);
    assert_eq!(message, "`PurgatoryGroup::join` got index 3, but only 3 shard(s)");
    assert_eq!(refusal(2, 0, &all[2..]), "joined with 1 shards, but other threads with 3");
    let reversed: Vec<_> = all.iter().rev().cloned().collect();
    let message = refusal(2, 0, &reversed);
    assert_eq!(message, "joined with other shards, or in another order, than other threads");
    let record = cores.add(0, &[1], 50);
    record.meet_condition();
    cores.run_until_stalled();
    record.assert_ended(Completion::Condition);
}

#[test]
fn a_thread_may_join_several_groups() {
    let cores = JoinedCores::start(2, &[0, 1]);
    let others = [(); 2].map(|()| PurgatoryGroup::partitioned_by(|&key: &usize| key));
    for core in [0, 1] {
        let (others, shards) = (others.clone(), cores.cores.shards.clone());
        cores.run_on(core, move |_| {
            let joined = others.map(|group| group.join::<Op>(core, &shards));
            local_timer().add_local(TICK * 1_000, move || drop(joined));
        });
    }
    let record = cores.add(0, &[1], 50);
    cores.run_until_stalled();
    record.meet_condition();
    others[0].notify(&1);
    cores.run_until_stalled();
    assert_eq!(record.completions(), [], "an event of another group");
    cores.group.notify(&1);
    cores.run_until_stalled();
    record.assert_ended(Completion::Condition);
}

thread_local! {
    /// Called by the destructor of the next `CallingKey` that this thread drops.
    static ON_KEY_DROP: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct CallingKey;

impl Drop for CallingKey {
    fn drop(&mut self) {
        if let Some(call) = ON_KEY_DROP.take() {
            call();
        }
    }
}

/// Returns cores of a new group. The next join on core 1 drops a key of an ended group.
fn cores_with_key_of_ended_group() -> JoinedCores<CallingKey> {
    let new_group = || PurgatoryGroup::partitioned_by(|_: &CallingKey| 1);
    let mut cores = JoinedCores::join_to_group(Lockstep::start(2), new_group(), &[0]);
    cores.run_on(0, |purgatory| add(purgatory, [CallingKey], 50));
    cores.run_until_stalled();
    cores.cores.run_on(0, |purgatory| *purgatory = None);
    cores.group = new_group();
    cores
}

#[test]
fn a_join_panics_if_a_key_destructor_drains_the_wheel() {
    let cores = cores_with_key_of_ended_group();
    let (group, shards) = (cores.group.clone(), cores.cores.shards.clone());
    let message = cores.cores.run_on(1, move |_| {
        ON_KEY_DROP.set(Some(Box::new(|| drop(local_timer().drain()))));
        panic_message(|| group.join::<Op>(1, &shards))
    });
    assert!(message.starts_with("shard 1 is not this thread's wheel, or has ended"), "{message}");
}

/// The key's destructor joins first.
#[test]
fn a_join_replaces_no_join_by_a_key_destructor() {
    let cores = cores_with_key_of_ended_group();
    let (group, shards) = (cores.group.clone(), cores.cores.shards.clone());
    let message = cores.cores.run_on(1, move |purgatory| {
        let join = move || group.join(1, &shards);
        let first = Rc::new(Cell::new(None));
        let (join_first, first_joined) = (join.clone(), Rc::clone(&first));
        ON_KEY_DROP.set(Some(Box::new(move || first_joined.set(Some(join_first())))));
        let message = panic_message(join);
        *purgatory = first.take();
        message
    });
    assert!(message.starts_with("this thread has joined the group before"));
    let record = cores.run_on(1, |purgatory| add(purgatory, [CallingKey], 50));
    record.meet_condition();
    assert!(cores.group.notify(&CallingKey));
    cores.run_until_stalled();
    record.assert_ended(Completion::Condition);
}

thread_local! {
    /// The purgatory of this thread, for the wake hooks that run on this thread.
    static OWN: RefCell<Option<OpPurgatory>> = const { RefCell::new(None) };
}

/// A batch wakes core 2. The wake hook of core 2 runs on the sending thread and notifies core 1.
#[test]
fn an_event_from_a_wake_hook_prevents_the_sleep() {
    let cores = JoinedCores::start_with(3, |core, config| {
        let notify = || OWN.with_borrow(|own| own.iter().for_each(|it| it.notify(&1)));
        if core == 2 { config.wake_hook(notify) } else { config }
    });
    let asks: [fn() -> Option<Duration>; 3] = [
        || local_timer().prepare_sleep().timeout(),
        || local_timer().time_until_next(),
        || local_timer().next_deadline().map(|next| next - local_timer().now()),
    ];
    for ask in asks {
        cores.run_on(2, |_| leak_hidden(local_timer().prepare_sleep()));
        cores.run_on(0, move |purgatory| {
            OWN.set(Some(purgatory.clone()));
            purgatory.notify(&2);
            assert_eq!((ask(), purgatory.counts().unsent_messages), (Some(Duration::ZERO), 1));
            let _ = local_timer().turn();
            assert_eq!(purgatory.counts().unsent_messages, 0, "the next turn sends the event");
            OWN.set(None);
        });
        cores.turn([1, 2]);
    }
}

/// While core 0 removes its operations, the wake hook of core 1 reads the counts of core 0.
#[test]
fn the_counts_add_up_inside_a_wake_hook() {
    thread_local! {
        static SEEN: RefCell<Vec<PurgatoryCounts>> = const { RefCell::new(Vec::new()) };
    }
    let cores = JoinedCores::start_with(2, |core, config| {
        let read_counts = || {
            let counts = OWN.with_borrow(|purgatory| purgatory.as_ref().map(Purgatory::counts));
            SEEN.with_borrow_mut(|seen| seen.extend(counts));
        };
        if core == 1 { config.wake_hook(read_counts) } else { config }
    });
    let take: [fn(&OpPurgatory) -> usize; 2] =
        [|purgatory| purgatory.drain().len(), |purgatory| purgatory.cancel_for_key(&0).len()];
    for take in take {
        let records = cores.run_on(0, |purgatory| {
            (0..200).map(|_| add(purgatory, [0, 1, 3], 50)).collect::<Vec<_>>()
        });
        cores.run_until_stalled();
        cores.run_on(1, |_| leak_hidden(local_timer().prepare_sleep()));
        let counts = cores.run_on(0, move |purgatory| {
            OWN.set(Some(purgatory.clone()));
            assert_eq!(take(purgatory), 200);
            OWN.set(None);
            SEEN.take()
        });
        assert!(!counts.is_empty() && counts[0].live > 0, "the hook ran during the call");
        for PurgatoryCounts { added, live, handed_back, .. } in counts {
            assert_eq!(added, live + handed_back);
        }
        cores.run_until_stalled();
        drop(records);
    }
}

#[test]
fn each_message_of_a_batch_counts_against_the_budget() {
    let cores = JoinedCores::start(2, &[0, 1]);
    let record = cores.add(1, &[1], 50);
    cores.run_on(0, |purgatory| (0..64 * 40).for_each(|_| purgatory.notify(&1)));
    let mut checks = record.check_count();
    // A turn completes each batch that it begins. Without a budget, a turn begins no further batch
    // after 1,024 messages.
    for (budget, batches) in [(1, 1), (64, 1), (65, 2), (128, 2), (usize::MAX, 16)] {
        let turn = cores.run_on(1, move |_| local_timer().turn_within(budget));
        assert_eq!((turn.fired, turn.behind), (batches, true));
        checks += 64 * batches;
        assert_eq!(record.check_count(), checks);
    }
    cores.run_until_stalled();
    assert_eq!(record.check_count(), 64 * 40 + 1);
}

#[test]
fn each_watch_that_an_event_reaches_counts_against_the_budget() {
    let cores = JoinedCores::start(2, &[0, 1]);
    let records: Vec<_> = (0..500).map(|_| cores.add(1, &[1], 50)).collect();
    cores.run_on(0, |purgatory| (0..64 * 3).for_each(|_| purgatory.notify(&1)));
    // The first batch makes 64 * 500 checks, which is more than a turn may consume.
    for batches in 1..=3 {
        let turn = cores.run_on(1, |_| local_timer().turn());
        assert_eq!((turn.fired, turn.behind), (1, batches < 3));
        assert!(records.iter().all(|record| record.check_count() == 1 + 64 * batches));
    }
}

// ---- keys that panic

thread_local! {
    /// True if the code of a `PanicKey` key panics on this thread.
    static KEYS_PANIC: Cell<bool> = const { Cell::new(false) };
}

/// Runs `run`, in which the drop of a `PanicKey` key panics.
fn with_panicking_keys<R>(run: impl FnOnce() -> R) -> R {
    KEYS_PANIC.set(true);
    let result = run();
    assert!(!KEYS_PANIC.replace(false), "a key panics when it is dropped");
    result
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PanicsIn {
    Nothing,
    Hash,
    /// Panics in the first drop after `KEYS_PANIC` is set.
    Drop,
    EachDrop,
}

/// A key whose hash or drop may panic while `KEYS_PANIC` is set.
#[derive(Clone, PartialEq, Eq)]
struct PanicKey {
    core: usize,
    panics: PanicsIn,
}

fn key_that_panics_on_drop(core: usize) -> PanicKey {
    PanicKey { core, panics: PanicsIn::Drop }
}

fn key_that_panics_on_each_drop(core: usize) -> PanicKey {
    PanicKey { core, panics: PanicsIn::EachDrop }
}

fn key_that_never_panics(core: usize) -> PanicKey {
    PanicKey { core, panics: PanicsIn::Nothing }
}

impl Hash for PanicKey {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        assert!(self.panics != PanicsIn::Hash || !KEYS_PANIC.get(), "as planned in `hash`");
        self.core.hash(hasher);
    }
}

impl Drop for PanicKey {
    fn drop(&mut self) {
        if self.panics == PanicsIn::Drop && KEYS_PANIC.get() && !thread::panicking() {
            KEYS_PANIC.set(false);
            panic!("as planned in `drop`");
        }
        assert!(self.panics != PanicsIn::EachDrop || !KEYS_PANIC.get(), "as planned in each drop");
    }
}

impl JoinedCores<PanicKey> {
    fn start_with_panic_keys(count: usize, joined: &[usize]) -> Self {
        Self::join_to_group(
            Lockstep::start(count),
            PurgatoryGroup::partitioned_by(|key: &PanicKey| key.core),
            joined,
        )
    }

    fn notify_and_settle(&self, from: usize, key: PanicKey) {
        self.run_on(from, move |purgatory| purgatory.notify(&key));
        self.run_until_stalled();
    }
}

#[test]
fn a_panicking_key_of_an_ended_core_loses_no_other_batch() {
    let mut cores = JoinedCores::start_with_panic_keys(3, &[0, 1, 2]);
    let healthy_record =
        cores.run_on(2, |purgatory| add(purgatory, [key_that_never_panics(2)], 50));
    healthy_record.meet_condition();
    cores.cores.end(1);
    cores.run_on(0, |purgatory| {
        purgatory.notify(&key_that_panics_on_drop(1));
        purgatory.notify(&key_that_never_panics(2));
        KEYS_PANIC.set(true);
    });
    cores.turn([0]);
    assert_eq!(cores.panic_count(0), 1);
    cores.turn([2]);
    healthy_record.assert_ended(Completion::Condition);
}

/// Keys 0 and 3 belong to core 0; 1 and 4 to core 1. A second panic during unwinding would abort
/// the process.
#[test]
fn several_panicking_keys_of_an_ended_core_do_not_abort() {
    let mut cores = JoinedCores::start_with_panic_keys(3, &[0, 1, 2]);
    cores.run_on(2, |purgatory| add(purgatory, [0, 3].map(key_that_panics_on_each_drop), 50));
    cores.run_until_stalled();
    assert_eq!(cores.counts(0).watches, 2);
    cores.cores.run_on(0, |purgatory| {
        KEYS_PANIC.set(true);
        *purgatory = None;
        KEYS_PANIC.set(false);
    });
    assert_eq!(cores.panic_count(0), 2);
    cores.cores.end(1);
    cores.run_on(2, |purgatory| {
        for key in [1, 4] {
            purgatory.notify(&key_that_panics_on_each_drop(key));
        }
        KEYS_PANIC.set(true);
    });
    cores.turn([2]);
    assert_eq!(cores.panic_count(2), 2);
    cores.run_on(2, |_| KEYS_PANIC.set(false));
}

/// The first key is already watched, so the add drops the new copy.
#[test]
fn a_key_that_panics_during_an_add_loses_no_other_key() {
    let cores = JoinedCores::start_with_panic_keys(2, &[0, 1]);
    let record = cores.run_on(0, |purgatory| {
        add(purgatory, [key_that_panics_on_drop(0)], 50);
        with_panicking_keys(|| {
            add(purgatory, [key_that_panics_on_drop(0), key_that_never_panics(1)], 50)
        })
    });
    assert_eq!(cores.panic_count(0), 1);
    cores.run_until_stalled();
    record.meet_condition();
    cores.notify_and_settle(1, key_that_never_panics(1));
    record.assert_ended(Completion::Condition);
}

#[test]
fn a_refused_add_returns_its_operation_despite_a_key_panic() {
    on_configured_thread(Config::new().limit(0), |_| {
        let (purgatory, record) = (Purgatory::new(), OpRecord::new());
        for keys in [
            [key_that_panics_on_drop(0), key_that_never_panics(0)],
            [key_that_never_panics(0), key_that_panics_on_drop(0)],
        ] {
            let add = || purgatory.try_complete_else_watch(record.op(), keys, TICK);
            let refused = with_panicking_keys(add).expect_err("the wheel is full");
            assert_eq!(refused.reason(), AddErrorReason::Full);
            leak_hidden(refused.into_inner());
        }
        assert_eq!(local_timer().counts().panicked, 2);
    });
}

/// P6: despite the panic, the caller gets the outcome. The operation completes in its first check,
/// or while its keys are iterated.
#[test]
fn an_add_whose_operation_completes_returns_despite_a_key_panic() {
    for (completes_at_once, core) in [(true, 0), (false, 0), (false, 1)] {
        let cores = JoinedCores::start_with_panic_keys(2, &[0, 1]);
        let panicked = cores.cores.run_on(0, move |purgatory| {
            let (purgatory, record) =
                (purgatory.as_ref().expect("it has joined").clone(), OpRecord::new());
            record.set_is_met(completes_at_once);
            let (purgatory_inside, record_inside) = (purgatory.clone(), Arc::clone(&record));
            let keys = [key_that_never_panics(0), key_that_panics_on_drop(core)]
                .into_iter()
                .inspect(move |_| {
                    record_inside.meet_condition();
                    purgatory_inside.notify(&key_that_never_panics(0));
                });
            let add = || purgatory.try_complete_else_watch(record.op(), keys, TICK);
            let added = with_panicking_keys(add).expect("there is room");
            assert_eq!(added, WatchOutcome::Completed);
            record.assert_ended(Completion::Condition);
            assert_eq!((purgatory.len(), purgatory.counts().watches), (0, 0));
            local_timer().counts().panicked
        });
        assert_eq!(panicked, 1);
    }
}

#[test]
fn a_key_panic_in_a_full_batch_prevents_no_completion() {
    let mut cores = JoinedCores::start_with_panic_keys(2, &[0, 1]);
    let record = cores.run_on(0, |purgatory| add(purgatory, [0, 1].map(key_that_never_panics), 50));
    cores.run_until_stalled();
    cores.cores.end(1);
    record.meet_condition();
    let completed = cores.run_on(0, |purgatory| {
        (1..64).for_each(|_| purgatory.notify(&key_that_panics_on_drop(1)));
        with_panicking_keys(|| purgatory.check_and_complete(&key_that_never_panics(0)))
    });
    assert_eq!((completed, cores.panic_count(0)), (1, 1));
    record.assert_ended(Completion::Condition);
}

#[test]
fn a_key_panic_after_an_event_loses_no_other_event() {
    let cores = JoinedCores::start_with_panic_keys(2, &[0, 1]);
    let record = cores.run_on(0, |purgatory| add(purgatory, [key_that_never_panics(0)], 50));
    record.meet_condition();
    cores.run_on(1, |purgatory| {
        purgatory.notify(&key_that_panics_on_drop(0));
        purgatory.notify(&key_that_never_panics(0));
    });
    cores.run_on(0, |_| KEYS_PANIC.set(true));
    cores.run_until_stalled();
    assert_eq!(cores.panic_count(0), 1);
    record.assert_ended(Completion::Condition);
}

#[test]
fn a_key_panic_at_thread_exit_is_contained() {
    on_a_thread(|| {
        for core in [0, 1] {
            add(&local_purgatory(), [key_that_panics_on_drop(core)], 50);
        }
        KEYS_PANIC.set(true);
    });
}

/// P6: the last reference to a group is often dropped by an exiting thread.
#[test]
fn a_panic_of_a_dropped_core_function_is_contained() {
    thread_local!(static OWN: RefCell<Option<OpPurgatory>> = const { RefCell::new(None) });
    for exits in [false, true] {
        on_a_thread(|| {
            let captured = OnDrop(|| panic!("as planned"));
            let core_of = move |&key: &usize| {
                let _ = &captured;
                key
            };
            let purgatory =
                PurgatoryGroup::partitioned_by(core_of).join(0, &[local_timer().shard_ref()]);
            if exits {
                OWN.set(Some(purgatory));
            } else {
                drop(purgatory);
                assert_eq!(local_timer().counts().panicked, 1);
            }
        });
    }
}

#[test]
fn a_key_panic_makes_no_wheel_for_a_thread_that_reports_an_event() {
    let mut cores = JoinedCores::start_with_panic_keys(1, &[0]);
    cores.cores.end(0);
    on_a_thread(|| {
        with_panicking_keys(|| cores.group.notify(&key_that_panics_on_drop(0)));
        Config::new().install().expect("the thread has no wheel");
    });
}

/// Core 1 holds a watch that it cannot answer, because the watch's group has ended.
#[test]
fn a_key_panic_after_the_end_of_its_group_is_contained() {
    for exits in [false, true] {
        let mut cores = JoinedCores::start_with_panic_keys(2, &[0]);
        cores.run_on(0, |purgatory| add(purgatory, [key_that_panics_on_drop(1)], 50));
        cores.run_until_stalled();
        cores.cores.run_on(0, |purgatory| *purgatory = None);
        cores.group = PurgatoryGroup::partitioned_by(|key: &PanicKey| key.core);
        cores.cores.run_on(1, |_| KEYS_PANIC.set(true));
        if exits {
            cores.cores.end(1);
        } else {
            cores.join(1);
            assert_eq!(cores.panic_count(1), 1);
        }
    }
}

#[test]
fn a_key_that_panics_on_removal_leaves_no_entry() {
    let cores = JoinedCores::start_with_panic_keys(1, &[0]);
    let keys = cores.run_on(0, |purgatory| {
        add(purgatory, [key_that_panics_on_drop(0)], 50).meet_condition();
        with_panicking_keys(|| {
            let _ = panics(|| purgatory.check_and_complete(&key_that_panics_on_drop(0)));
        });
        purgatory.counts().keys
    });
    assert_eq!(keys, 0);
}

#[test]
fn an_operation_with_a_panicking_key_removes_all_watches() {
    let cores = JoinedCores::start_with_panic_keys(2, &[0, 1]);
    let record = cores.run_on(0, |purgatory| {
        add(
            purgatory,
            [key_that_never_panics(0), key_that_panics_on_drop(2), key_that_never_panics(1)],
            50,
        )
    });
    cores.run_until_stalled();
    assert_eq!(cores.counts(1).watches, 1);
    record.meet_condition();
    cores.run_on(0, |purgatory| {
        assert_eq!(
            with_panicking_keys(|| purgatory.check_and_complete(&key_that_never_panics(0))),
            1
        );
        let PurgatoryCounts { by_condition, live, watches, keys, .. } = purgatory.counts();
        assert_eq!((by_condition, live, watches, keys), (1, 0, 0, 0));
    });
    assert_eq!(cores.panic_count(0), 1);
    cores.run_until_stalled();
    record.assert_ended(Completion::Condition);
    assert_eq!(cores.counts(1).watches, 0);
}

/// No event on the panicking key will arrive, so the answer makes the operation check once more.
/// The other watch of the batch is still added.
#[test]
fn a_watch_whose_key_panics_is_answered() {
    for is_late in [false, true] {
        let cores = JoinedCores::start_with_panic_keys(2, if is_late { &[0] } else { &[0, 1] });
        let waits = cores.run_on(0, |purgatory| {
            [PanicsIn::Hash, PanicsIn::Nothing]
                .map(|panics| add(purgatory, [PanicKey { core: 1, panics }], 50))
        });
        cores.cores.run_on(1, |_| KEYS_PANIC.set(true));
        cores.run_until_stalled();
        if is_late {
            cores.join(1);
            cores.run_until_stalled();
        }
        assert_eq!(waits.each_ref().map(|record| record.check_count()), [2, 2], "late: {is_late}");
        assert_eq!((cores.counts(1).watches, cores.panic_count(1)), (1, 1));
        waits[1].meet_condition();
        cores.notify_and_settle(0, key_that_never_panics(1));
        waits[1].assert_ended(Completion::Condition);
    }
}
