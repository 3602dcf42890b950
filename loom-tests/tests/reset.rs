//! Remote resets race with the owner, with cancels and with each other.
#![cfg(all(loom, not(crossbeam_loom)))]

use std::{sync::Arc, time::Duration};

use corewheel::{Cancel, Shard, TimerHandle, local_timer};
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom_tests::{
    SeesOnDrop, TICK, WithTimer, assert_all_ended, explore, fire_and_add_four, install_wheel,
    on_another_thread, race, shard, shard_with_due_timer, shard_with_retirable_page,
    shard_with_timer, shared_clones, turn_and_expire, turn_and_log_expiries, turn_and_log_runs,
    without_exploring, work_and_cancel,
};

/// The owner may read the new deadline of a reset and fire the timer before it consumes the reset's
/// message.
#[test]
fn a_timer_reset_to_now_fires_once() {
    explore(310, || {
        let (mut shard, clock, handle) = shard_with_timer(3, ());
        clock.advance(TICK);
        let resetter = race(move || [Duration::ZERO, TICK].map(|delay| handle.reset(delay)));
        let fired = turn_and_expire(&mut shard).len();
        let [first, second] = resetter.join().unwrap();
        assert!(first && second == (fired == 0));
        assert_eq!(turn_and_log_expiries(&mut shard, &clock, 5), vec![2; 1 - fired]);
        assert_all_ended(&shard.counts(), 1);
    });
}

#[test]
fn a_timer_racing_fire_cancel_and_reset_ends_once() {
    explore(7_000, || race_fire_reset_and_cancel(shard_with_due_timer, 3));
}

/// Fires a timer while one thread resets it to tick `later` and another thread cancels it.
fn race_fire_reset_and_cancel(make_due_timer: fn(Arc<()>) -> WithTimer<Arc<()>>, later: u32) {
    let payload = Arc::new(());
    let (mut shard, clock, handle) = make_due_timer(Arc::clone(&payload));
    let resetter = race(move || handle.reset(TICK * 2));
    let canceller = race(move || handle.cancel());
    let fired = turn_and_expire(&mut shard).len();
    let (was_reset, answer) = (resetter.join().unwrap(), canceller.join().unwrap());
    let cancelled = usize::from(answer == Cancel::Cancelled);
    let later_ticks = turn_and_log_expiries(&mut shard, &clock, later + 1);
    assert_eq!(fired + cancelled + later_ticks.len(), 1, "was_reset: {was_reset}, {answer:?}");
    assert!(later_ticks.is_empty() || was_reset && later_ticks == [later]);
    assert!(!was_reset || fired == 0, "fired after a successful reset");
    assert_eq!(Arc::strong_count(&payload), 1);
    assert_all_ended(&shard.counts(), 1);
}

/// The cancel sends no message while the message of the reset is queued.
#[test]
fn a_cancel_behind_a_queued_reset_is_consumed_once() {
    explore(46, || {
        let (mut shard, clock, handle) = shard_with_timer(3, ());
        let resetter = race(move || {
            assert!(handle.reset(TICK));
            handle.cancel()
        });
        assert!(turn_and_expire(&mut shard).is_empty());
        assert!(turn_and_expire(&mut shard).is_empty());
        assert_eq!(resetter.join().unwrap(), Cancel::Cancelled);
        assert!(turn_and_log_expiries(&mut shard, &clock, 4).is_empty());
        assert_all_ended(&shard.counts(), 1);
    });
}

/// Checks the ordering S1 of `src/cross_core/state/mod.rs`: the owner may drop the payload when it
/// consumes the message of an earlier reset.
#[test]
fn a_drop_by_a_resets_message_sees_the_cancellers_writes() {
    explore(34, || {
        let (payload, work, seen) = SeesOnDrop::with_counter();
        let (mut shard, _clock, handle) = shard_with_timer(3, payload);
        assert!(on_another_thread(move || handle.reset(TICK * 5)));
        let canceller = race(move || work_and_cancel(&work, handle));
        assert!(turn_and_expire(&mut shard).is_empty());
        let dropped = seen.load(Ordering::Relaxed);
        assert_eq!(canceller.join().unwrap(), Cancel::Cancelled);
        assert!(dropped == 0 || dropped == 11, "{dropped}");
    });
}

/// Adds a timer and resets it from another thread. If the timer reused a node whose message is
/// queued, this node would be in the mailbox twice.
fn race_a_reset_of_the_next_timer(shard: &mut Shard<u32>) -> Vec<u32> {
    let next = shard.add(TICK * 9, 2);
    let resetter = race(move || next.reset(TICK));
    let fired = turn_and_expire(shard);
    assert!(resetter.join().unwrap() && next.is_pending());
    fired
}

#[test]
fn a_node_cancelled_during_a_reset_is_reused_after_its_message() {
    explore(1_700, || {
        let (mut shard, clock, handle) = shard_with_timer(3, 1);
        let resetter = race(move || handle.reset(TICK * 2));
        assert_eq!(shard.cancel(handle), Some(1), "the owner must win");
        assert_eq!(shard.cancel(handle), None);
        assert!(race_a_reset_of_the_next_timer(&mut shard).is_empty());
        let _ = resetter.join().unwrap();
        assert_eq!(turn_and_log_expiries(&mut shard, &clock, 4), [1]);
        assert_eq!(shard.counts().fired, 1);
        assert_all_ended(&shard.counts(), 2);
    });
}

#[test]
fn a_node_fired_before_its_message_is_reused_after_it() {
    explore(3_800, || {
        let (mut shard, clock, handle) = shard_with_due_timer(1);
        let resetter = race(move || handle.reset(Duration::ZERO));
        let fired =
            turn_and_expire(&mut shard).len() + race_a_reset_of_the_next_timer(&mut shard).len();
        let _ = resetter.join().unwrap();
        assert_eq!(
            turn_and_log_expiries(&mut shard, &clock, 4),
            [vec![1; 1 - fired], vec![2]].concat()
        );
        assert_eq!(shard.counts().fired, 2);
        assert_all_ended(&shard.counts(), 2);
    });
}

#[test]
fn two_concurrent_resets_agree_and_one_takes_effect() {
    explore(23_000, || {
        let (mut shard, clock, handle) = shard_with_due_timer(());
        let resetters = [1, 2].map(|ticks| race(move || handle.reset(TICK * ticks)));
        let fired = turn_and_expire(&mut shard).len();
        assert_eq!(resetters.map(|resetter| resetter.join().unwrap()), [fired == 0; 2]);
        let later = turn_and_log_expiries(&mut shard, &clock, 4);
        assert_eq!(fired + later.len(), 1);
        assert!(later.is_empty() || later == [2] || later == [3], "{later:?}");
        assert_all_ended(&shard.counts(), 1);
    });
}

/// Resets a timer to tick 3 on another thread and to `owners_tick` on this one. Before its own
/// reset, each thread reads whether the other reset is done. If the resets overlap, either may win.
fn race_two_resets(
    (mut shard, clock, handle): WithTimer<()>,
    owners_tick: u32,
    act_before_remote_reset: fn(TimerHandle),
    act_after_owners_reset: fn(&mut Shard<()>),
) {
    let [[owners_reset_done, owners_reset_seen], [remote_reset_done, remote_reset_flag]] =
        [(); 2].map(|()| shared_clones(AtomicUsize::new(0)));
    let resetter = race(move || {
        act_before_remote_reset(handle);
        let is_later = owners_reset_seen.load(Ordering::Acquire) == 1;
        assert!(handle.reset(TICK * 3));
        remote_reset_flag.store(1, Ordering::Release);
        is_later
    });
    let owners_reset_is_later = remote_reset_done.load(Ordering::Acquire) == 1;
    assert!(shard.reset(handle, TICK * owners_tick));
    owners_reset_done.store(1, Ordering::Release);
    act_after_owners_reset(&mut shard);
    let remote_reset_is_later = resetter.join().unwrap();
    let fired = turn_and_log_expiries(&mut shard, &clock, 5);
    assert!(
        fired == [owners_tick] && !remote_reset_is_later || fired == [3] && !owners_reset_is_later,
        "{fired:?}"
    );
    assert_all_ended(&shard.counts(), 1);
}

#[test]
fn the_later_of_the_owners_and_a_remote_reset_wins() {
    explore(240, || {
        let turns = |shard: &mut _| assert!(turn_and_expire(shard).is_empty());
        race_two_resets(shard_with_timer(1, ()), 2, |_| (), turns);
    });
}

/// If the owner fails to claim the due timer, the timer is in no slot until a reset links it.
#[test]
fn the_owners_reset_relinks_a_timer_after_a_failed_claim() {
    explore(460, || {
        let (mut shard, clock, handle) = shard_with_due_timer(());
        let resetter = race(move || handle.reset(TICK * 2));
        let fired = turn_and_expire(&mut shard).len();
        assert_eq!(shard.reset(handle, TICK), fired == 0);
        let was_reset = resetter.join().unwrap();
        let later = turn_and_log_expiries(&mut shard, &clock, 5);
        assert_eq!(fired + later.len(), 1);
        assert!(later.is_empty() || later == [2] || was_reset && later == [3], "{later:?}");
        assert_all_ended(&shard.counts(), 1);
    });
}

#[test]
fn a_stale_reset_never_reaches_the_next_timer_of_its_node() {
    explore(3_400, || {
        let (mut shard, clock, first) = shard_with_due_timer(1);
        let resetter = race(move || first.reset(TICK * 7));
        let fired = turn_and_expire(&mut shard);
        // If the first timer has ended, the second one reuses its node.
        let second = shard.add(TICK * 3, 2);
        let other = race(move || second.reset(TICK));
        assert!(turn_and_expire(&mut shard).is_empty());
        assert!(other.join().unwrap());
        assert_eq!(fired.is_empty(), resetter.join().unwrap());
        assert_eq!(turn_and_log_expiries(&mut shard, &clock, 7), [2]);
        assert_eq!(turn_and_log_expiries(&mut shard, &clock, 9), vec![8; 1 - fired.len()]);
        assert_all_ended(&shard.counts(), 2);
    });
}

/// A page with a timer that is being reset is not retired.
#[test]
fn a_stale_reset_never_reaches_the_next_timer_in_a_new_page() {
    explore(910, || {
        let (mut shard, clock, first) = shard_with_retirable_page();
        clock.advance(TICK);
        let resetter = race(move || first.reset(TICK * 3));
        let (has_fired, added) = fire_and_add_four(&mut shard, first);
        let was_reset = resetter.join().unwrap();
        assert_eq!(was_reset, !has_fired);
        assert!(added.into_iter().all(TimerHandle::is_pending));
        assert_eq!(turn_and_log_expiries(&mut shard, &clock, 3), [2; 4]);
        assert_eq!(turn_and_log_expiries(&mut shard, &clock, 5), vec![4; usize::from(was_reset)]);
        assert_eq!((shard.len(), shard.counts().uncollected), (0, 0));
    });
}

/// During a run, a reset returns false and changes nothing.
#[test]
fn a_successful_reset_shifts_the_periodic_schedule() {
    explore(400, || {
        let clock = install_wheel();
        let handle = local_timer().add_periodic(TICK * 2, || ());
        clock.advance(TICK * 2);
        let resetter = race(move || handle.reset(TICK * 3));
        let fired = local_timer().turn().fired;
        let was_reset = resetter.join().unwrap();
        assert!(was_reset || fired == 1);
        assert_eq!(turn_and_log_runs(&clock, 7), if was_reset { [5, 7] } else { [4, 6] });
        assert_eq!((handle.cancel(), local_timer().counts().live), (Cancel::Cancelled, 0));
    });
}

#[test]
fn a_periodic_timer_reset_and_cancelled_stops_running() {
    explore(1_400, || {
        let clock = install_wheel();
        let [kept, captured] = shared_clones(());
        let handle = local_timer().add_periodic(TICK, move || _ = &captured);
        clock.advance(TICK);
        let resetter = race(move || (handle.reset(TICK), handle.cancel()));
        let fired = local_timer().turn().fired;
        let (was_reset, answer) = resetter.join().unwrap();
        assert!(was_reset || fired == 1);
        assert!(
            answer == Cancel::Cancelled || (answer, fired) == (Cancel::Running, 1),
            "{answer:?}"
        );
        assert_eq!(turn_and_log_runs(&clock, 4), []);
        assert_eq!(Arc::strong_count(&kept), 1);
        assert_eq!(local_timer().counts().cancelled, 1);
        assert_all_ended(&local_timer().counts(), 1);
    });
}

/// Returns a shard and a timer that a remote reset has linked at tick 2, so that remote resets to
/// later deadlines need no message. A second remote reset has postponed the timer to tick `until`.
fn shard_postponed_until<T: 'static>(until: u32, payload: T) -> WithTimer<T> {
    without_exploring(|| {
        let (mut shard, clock) = shard();
        let handle = shard.add(TICK, payload);
        assert!(on_another_thread(move || handle.reset(TICK * 2)));
        assert!(turn_and_expire(&mut shard).is_empty());
        assert!(on_another_thread(move || handle.reset(TICK * until)));
        assert_eq!(shard.counts().queued, 0, "the second reset sent a message");
        (shard, clock, handle)
    })
}

/// If the owner fails to claim the timer, the timer is in no slot. So the resetting thread must
/// send a message, which makes the owner relink the timer.
#[test]
fn a_timer_due_during_a_reset_to_later_is_not_lost() {
    explore(5_400, || {
        let (mut shard, clock, handle) = shard_postponed_until(2, ());
        clock.advance(TICK * 2);
        let resetter = race(move || [TICK * 2, TICK * 3].map(|delay| handle.reset(delay)));
        let fired = turn_and_expire(&mut shard).len();
        let [first, second] = resetter.join().unwrap();
        assert!((first && second) == (fired == 0) && first >= second, "{first} {second}");
        assert_eq!(turn_and_log_expiries(&mut shard, &clock, 6), vec![5; 1 - fired]);
        assert_all_ended(&shard.counts(), 1);
    });
}

/// If the owner resets the timer during the first remote reset, the second remote reset needs a
/// message, because its deadline is earlier than the owner's.
#[test]
fn the_owners_reset_overrides_a_reset_without_a_message() {
    explore(2_500, || {
        let moves_to_later = |handle: TimerHandle| assert!(handle.reset(TICK * 5));
        race_two_resets(shard_postponed_until(2, ()), 4, moves_to_later, |_| ());
    });
}

/// A thread that finds the timer postponable also sees the tick at which the owner has linked the
/// timer. With an older tick, the thread could omit the message of a reset to an earlier tick.
#[test]
fn a_reset_before_the_linked_deadline_sends_a_message() {
    explore(1_700, || {
        let (mut shard, clock, handle) = shard_postponed_until(5, ());
        clock.advance(TICK * 2);
        let earlier = race(move || assert!(handle.reset(TICK)));
        assert!(turn_and_expire(&mut shard).is_empty(), "the owner links the timer at tick 3 or 5");
        assert!(on_another_thread(move || handle.reset(TICK * 4)));
        earlier.join().unwrap();
        let fired = turn_and_log_expiries(&mut shard, &clock, 7);
        assert!(fired == [3] || fired == [6], "{fired:?}");
        assert_all_ended(&shard.counts(), 1);
    });
}

/// The owner may relink the timer between the two resets, so the second reset may need no message.
#[test]
fn the_last_of_two_remote_resets_wins() {
    explore(6_500, || {
        let (mut shard, clock, handle) = shard_with_timer(5, ());
        let [later_done, done] = shared_clones(AtomicUsize::new(0));
        let resetter_to_later = race(move || {
            assert!(handle.reset(TICK * 4));
            done.store(1, Ordering::Release);
        });
        let resetter_to_earlier = race(move || {
            let other_is_done = later_done.load(Ordering::Acquire) == 1;
            assert!(handle.reset(TICK * 2));
            other_is_done
        });
        assert!(turn_and_expire(&mut shard).is_empty());
        resetter_to_later.join().unwrap();
        let earlier_deadline_was_set_last = resetter_to_earlier.join().unwrap();
        let fired = turn_and_log_expiries(&mut shard, &clock, 5);
        assert!(fired == [2] || fired == [4] && !earlier_deadline_was_set_last, "{fired:?}");
        assert_all_ended(&shard.counts(), 1);
    });
}

#[test]
fn a_timer_racing_fire_cancel_and_postponed_reset_ends_once() {
    explore(22_000, || {
        let make_due_timer = |payload| {
            let due = shard_postponed_until(2, payload);
            due.1.advance(TICK * 2);
            due
        };
        race_fire_reset_and_cancel(make_due_timer, 4);
    });
}
