//! Tests of a shard under the small limits of unit tests.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use super::*;
use crate::{
    clock::{
        ManualClock, Reading,
        tick::{TimerSchedule, saturating_nanos},
    },
    cross_core::{
        call_site::CallSite,
        callback::{Callback, OneShotClosure, PeriodicClosure},
        reclaim::tests::attempts,
        shared::{RemoteOutcome, RemotelyAddedId, Shared},
        state::{BeginResetOutcome, Cancel, StepAfterCancelOrReset},
    },
    error::AddErrorReason,
    limits::{INDEX_MAX, OWNER_GENERATION_MAX, POSTPONABLE_PER_SLOT_MAX},
    local_timer,
    wheel::Storage,
};

const TICK: Duration = Duration::from_millis(1);

fn shard() -> (Shard<Callback>, ManualClock) {
    let clock = ManualClock::new();
    let config = Config::new().tick(TICK).clock(&clock);
    let engine = Engine::new(config, Slab::for_callbacks(), Callback::note_wheel_end);
    (Shard { engine: engine.expect("valid") }, clock)
}

fn callback() -> Callback {
    Callback::one_shot(|| ())
}

/// Adds a timer through the mailbox, due at `nanos`.
fn add_through_mailbox(
    shared: &Shared,
    nanos: u64,
    callback: impl FnOnce() + Send + 'static,
) -> Result<RemoteOutcome<RemotelyAddedId>, AddErrorReason> {
    let schedule = TimerSchedule { due: nanos, period: 0 };
    let added = shared.add_remote(schedule, CallSite::caller(), OneShotClosure(callback), false);
    added.map_err(|refused| refused.reason())
}

/// Adds a timer as another thread does.
fn add_remotely(
    shard: &Shard<Callback>,
    ticks: u32,
    callback: impl FnOnce() + Send + 'static,
) -> TimerHandle {
    let shared = &shard.engine.shared;
    let added =
        add_through_mailbox(shared, shared.nanos_after(saturating_nanos(TICK * ticks)), callback);
    let armed = added.expect("there is room").answer;
    TimerHandle::new(shard.engine.shared.number, armed.index, armed.generation)
}

fn turn_and_count_fired(shard: &mut Shard<Callback>) -> usize {
    shard.turn();
    std::iter::from_fn(|| shard.next_expired()).count()
}

#[test]
fn pages_of_remote_timers_are_allocated_and_freed() {
    let (mut shard, _clock) = shard();
    for round in 0..if cfg!(miri) { 1 } else { 20 } {
        let timers: Vec<_> = (0..40).map(|_| add_remotely(&shard, 100, || ())).collect();
        assert_eq!(turn_and_count_fired(&mut shard), 0);
        assert_eq!(shard.len(), 40);
        let pages = shard.engine.nodes.page_count();
        assert!((20..=24).contains(&pages), "{pages} pages in round {round}");
        for (number, timer) in timers.into_iter().enumerate() {
            if number % 2 == 0 {
                assert!(shard.cancel(timer).is_some());
            } else {
                assert_eq!(timer.cancel(), Cancel::Cancelled);
            }
        }
        let memory_is_freed = attempts().any(|turn| {
            assert_eq!(turn_and_count_fired(&mut shard), 0);
            turn >= 100 && shard.engine.nodes.page_count() <= 4
        });
        assert!(
            memory_is_freed,
            "{} pages left after round {round}",
            shard.engine.nodes.page_count()
        );
        let counts = shard.counts();
        assert_eq!((shard.len(), counts.queued), (0, 0));
    }
}

/// Returns a shard with a timer due in two ticks. After two remote resets, the timer is
/// *postponable*: the second reset has sent no message.
fn shard_with_postponable() -> (Shard<Callback>, ManualClock, TimerHandle) {
    let (mut shard, clock) = shard();
    let timer = shard.add(TICK, callback());
    for messages in [1, 0] {
        assert!(reset_on_other_thread(timer, 2));
        assert_eq!(shard.counts().queued, messages);
        assert_eq!(turn_and_count_fired(&mut shard), 0);
    }
    (shard, clock, timer)
}

#[test]
fn an_owner_reset_overrides_earlier_remote_resets() {
    for ticks in [1, 9] {
        let (mut shard, clock, timer) = shard_with_postponable();
        assert!(reset_on_other_thread(timer, ticks));
        let state = shard.engine.nodes.entry(timer.index()).state();
        let begin_outcome = state.begin_reset(timer.generation);
        assert!(matches!(begin_outcome, BeginResetOutcome::Begun { .. }));
        assert!(shard.reset(timer, TICK * 5));
        assert_eq!(shard.deadline(timer), Some(clock.now() + TICK * 5));
        assert_eq!(shard.drain()[0].0, clock.now() + TICK * 5);
    }
}

/// A periodic timer counts its period from the upper bound of an inexact reading.
#[test]
fn a_reset_before_admission_counts_the_period_from_the_reset() {
    let (mut shard, clock) = shard();
    let schedule = TimerSchedule { due: 10_000_000, period: 10_000_000 };
    let added =
        shard.engine.shared.add_remote(schedule, CallSite::caller(), PeriodicClosure(|| ()), false);
    let armed = added.map_err(drop).expect("there is room").answer;
    let timer = TimerHandle::new(shard.engine.shared.number, armed.index, armed.generation);
    clock.set(Duration::from_micros(5_400));
    shard.engine.clock.latest_reading = Reading { min: 5_400_000, max: 5_400_300 };
    assert!(shard.engine.reset(timer, |_| 5_400_000 - 999_999).is_some());
    shard.turn();
    assert!(shard.next_expiry().is_some() && shard.next_expiry().is_none());
    let next = clock.elapsed() + shard.time_left(timer).expect("it is pending");
    assert_eq!(next, Duration::from_millis(16), "15,400,300 ns, rounded up");
}

fn reset_on_other_thread(timer: TimerHandle, ticks: u32) -> bool {
    thread::spawn(move || timer.reset(TICK * ticks)).join().expect("no panic")
}

#[test]
fn a_postponed_reset_sends_no_message_and_takes_effect() {
    let (mut shard, clock, timer) = shard_with_postponable();
    assert!(reset_on_other_thread(timer, 4) && reset_on_other_thread(timer, 3));
    assert_eq!(shard.counts().queued, 0);
    assert_eq!(shard.time_left(timer), Some(TICK * 3));
    assert_eq!(shard.time_until_next(), Some(TICK * 2), "still linked at two ticks");
    clock.advance(TICK * 2);
    assert_eq!(turn_and_count_fired(&mut shard), 0);
    assert_eq!(shard.counts().remote_resets, 2);
    assert_eq!(shard.time_left(timer), Some(TICK));
    // The timer is postponable again.
    assert!(reset_on_other_thread(timer, 5));
    assert_eq!(shard.counts().queued, 0);
    let now = shard.now();
    let pending: Vec<_> = shard.drain().into_iter().map(|(deadline, _)| deadline - now).collect();
    assert_eq!(pending, [TICK * 5]);
}

#[test]
fn a_reset_before_the_linked_deadline_sends_a_message() {
    for is_owner_reset in [false, true] {
        let (mut shard, clock, timer) = shard_with_postponable();
        let ticks = if is_owner_reset {
            // The owner's reset clears the timer's flag *postponable*.
            assert!(shard.reset(timer, TICK * 9));
            3
        } else {
            assert!(reset_on_other_thread(timer, 9));
            1
        };
        assert!(reset_on_other_thread(timer, ticks));
        assert_eq!(shard.counts().queued, 1);
        let firing_tick = (0..=9).find(|_| {
            let has_fired = turn_and_count_fired(&mut shard) > 0;
            clock.advance(TICK);
            has_fired
        });
        assert_eq!(firing_tick, Some(ticks));
    }
}

#[test]
fn a_slot_postpones_a_bounded_number_of_remote_resets() {
    let (mut shard, clock) = shard();
    let timers: Vec<_> = (0..20).map(|_| shard.add(TICK, callback())).collect();
    for messages in [20, 20 - u64::from(POSTPONABLE_PER_SLOT_MAX)] {
        assert!(timers.iter().all(|&timer| reset_on_other_thread(timer, 2)));
        assert_eq!(shard.counts().queued, messages);
        assert_eq!(turn_and_count_fired(&mut shard), 0);
    }
    clock.advance(TICK * 2);
    assert_eq!(turn_and_count_fired(&mut shard), 20);
}

#[test]
fn reserved_pages_are_allocated_and_kept() {
    let (mut shard, _clock) = shard();
    // The owner's timers cannot use the pages of remote timers, so `reserve` must not count these
    // pages.
    let remote: Vec<_> = (0..2).map(|_| add_remotely(&shard, 100, || ())).collect();
    assert_eq!(turn_and_count_fired(&mut shard), 0);
    assert!(remote.into_iter().all(|timer| shard.cancel(timer).is_some()));
    shard.reserve(9);
    assert!(shard.capacity() >= 9, "{}", shard.capacity());
    let reserved_page_count = shard.engine.nodes.page_count();
    assert_eq!(reserved_page_count, 6, "five pages, and one of remote timers");
    (0..9).for_each(|_| _ = shard.add(Duration::ZERO, callback()));
    assert_eq!(shard.engine.nodes.page_count(), reserved_page_count);
    (0..30).for_each(|_| _ = shard.add(Duration::ZERO, callback()));
    assert_eq!(turn_and_count_fired(&mut shard), 39);
    let mut is_page_count_after_turn = |pages| {
        assert_eq!(turn_and_count_fired(&mut shard), 0);
        shard.engine.nodes.page_count() == pages
    };
    // The owner's first page is never freed.
    assert!(attempts().any(|_| is_page_count_after_turn(reserved_page_count + 1)));
    assert!((0..1_000).all(|_| is_page_count_after_turn(reserved_page_count + 1)));
    shard.reserve(usize::MAX);
    assert_eq!(shard.engine.nodes.page_count(), (INDEX_MAX as usize).div_ceil(2), "the maximum");
}

#[test]
fn a_turn_that_empties_many_pages_leaves_most_of_them_to_later_turns() {
    let (mut shard, clock) = shard();
    (0..60).for_each(|_| _ = shard.add(TICK, callback()));
    assert_eq!(shard.engine.nodes.page_count(), 31);
    clock.advance(TICK);
    assert_eq!(turn_and_count_fired(&mut shard), 60);
    assert!(shard.engine.nodes.page_count() > 20);
    let memory_is_freed = attempts().any(|_| {
        assert_eq!(turn_and_count_fired(&mut shard), 0);
        shard.engine.nodes.page_count() <= 2
    });
    assert!(memory_is_freed);
}

/// The owner does not free pages that another thread may be reading.
#[test]
fn a_sleep_is_short_while_pages_wait_to_be_freed() {
    let mut shard = Shard::new();
    let timers: Vec<_> = (0..40).map(|_| shard.add(TICK * 3_600_000, ())).collect();
    let pinned = crate::cross_core::reclaim::pin();
    assert!(timers.into_iter().all(|timer| shard.cancel(timer).is_some()));
    shard.turn();
    let timeout = |shard: &Shard<()>| shard.prepare_sleep().timeout();
    assert!(timeout(&shard).is_some_and(|timeout| timeout <= Duration::from_secs(1)));
    drop(pinned);
    let memory_is_freed = attempts().any(|_| {
        shard.turn();
        timeout(&shard).is_none()
    });
    assert!(memory_is_freed && shard.engine.nodes.page_count() <= 3);
}

#[test]
fn nodes_of_remote_timers_are_reused() {
    let (mut shard, _clock) = shard();
    for turns in 0..if cfg!(miri) { 2 } else { 30 } {
        let timers: Vec<_> = (0..40).map(|_| add_remotely(&shard, 100, || ())).collect();
        (0..=turns).for_each(|_| assert_eq!(turn_and_count_fired(&mut shard), 0));
        let pages = shard.engine.nodes.page_count();
        assert!((20..=30).contains(&pages), "{pages} pages after {turns} turns");
        // In tests, a page has a node with an even index and a node with an odd index. First
        // cancels the timers with even indices, so that each page keeps one used node.
        let (with_even_index, with_odd_index): (Vec<_>, Vec<_>) =
            timers.into_iter().partition(|timer| timer.index() % 2 == 0);
        assert!(
            with_even_index
                .into_iter()
                .chain(with_odd_index)
                .all(|timer| shard.cancel(timer).is_some())
        );
        (0..turns).for_each(|_| assert_eq!(turn_and_count_fired(&mut shard), 0));
    }
}

#[test]
fn a_remote_add_to_a_full_shard_is_refused() {
    let (mut shard, _clock) = shard();
    let owner_timers: Vec<_> = (0..INDEX_MAX).map(|_| shard.add(TICK * 100, callback())).collect();
    assert!(shard.try_add(TICK, callback()).is_err());
    let shared = Arc::clone(&shard.engine.shared);
    let add = || add_through_mailbox(&shared, 0, || ());
    assert!(matches!(add(), Err(AddErrorReason::Full)));
    assert!(owner_timers.into_iter().all(|handle| shard.cancel(handle).is_some()));
    assert!(attempts().any(|_| {
        assert_eq!(turn_and_count_fired(&mut shard), 0);
        add().is_ok()
    }));
}

#[test]
fn the_owner_cancels_and_resets_timers_before_admission() {
    let (mut shard, clock) = shard();
    let [cancelled, reset] = [1, 1].map(|ticks| add_remotely(&shard, ticks, || ()));
    assert!(shard.cancel(cancelled).is_some());
    assert!(shard.reset(reset, TICK * 5));
    assert!(shard.cancel(cancelled).is_none() && reset.is_pending());
    let counts = shard.counts();
    assert_eq!((counts.added, counts.cancelled, counts.live, counts.queued), (2, 1, 1, 2));
    clock.advance(TICK * 4);
    assert_eq!((turn_and_count_fired(&mut shard), shard.counts().queued), (0, 0));
    clock.advance(TICK);
    assert_eq!((turn_and_count_fired(&mut shard), shard.len()), (1, 0));
}

/// Resets a timer as a remote thread does, and calls `between` between the two CASes of the state
/// word.
fn with_remote_reset(
    shard: &mut Shard<Callback>,
    timer: TimerHandle,
    between: impl FnOnce(&mut Shard<Callback>),
) -> bool {
    let shared = Arc::clone(&shard.engine.shared);
    let pinned = crate::cross_core::reclaim::pin();
    let is_reset = shared.slab.node(timer.index(), &pinned).map(|node| {
        assert_eq!(
            node.state.begin_reset(timer.generation),
            BeginResetOutcome::Begun { is_postponable: false }
        );
        between(shard);
        node.requested_deadline().store_nanos(3_000_000);
        let next = node.state.end_reset_or_cancel();
        if next == Some(StepAfterCancelOrReset::Push) {
            let _ = shared.mailbox.urgent.push(timer.index(), node.mailbox_link, false);
        }
        next.is_some()
    });
    is_reset.expect("the node exists")
}

/// During a remote reset, the owner consumes the timer's message, and the shard ends. After the
/// shard's end, the resetting thread pushes no message.
#[test]
fn a_shard_end_during_a_remote_reset_loses_no_timer() {
    for cancels in [false, true] {
        let ((mut shard, _clock), callback) = (shard(), Arc::new(()));
        let captured = Arc::clone(&callback);
        let timer = add_remotely(&shard, 1, move || drop(captured));
        let is_reset = with_remote_reset(&mut shard, timer, |shard| {
            assert!(!cancels || timer.cancel() == Cancel::Cancelled);
            assert_eq!(turn_and_count_fired(shard), 0);
            let live = usize::from(!cancels);
            assert_eq!((shard.counts().added, shard.len()), (live as u64, live));
            let pending = shard.drain();
            assert_eq!(pending.len(), usize::from(!cancels));
        });
        assert!(!is_reset, "the shard has ended");
        assert_eq!(Arc::strong_count(&callback), 1, "the callback was dropped");
        let counts = shard.counts();
        assert_eq!(
            (counts.added, counts.cancelled, counts.handed_back, counts.live),
            (1, cancels.into(), (!cancels).into(), 0)
        );
    }
}

#[test]
fn an_add_consumed_during_a_remote_reset_is_live() {
    let (mut shard, clock) = shard();
    let timer = add_remotely(&shard, 1, || ());
    assert!(with_remote_reset(&mut shard, timer, |shard| {
        assert_eq!(turn_and_count_fired(shard), 0);
        assert_eq!((shard.counts().queued, shard.len()), (0, 1), "the turn has consumed the add");
    }));
    clock.advance(TICK * 3);
    assert_eq!((turn_and_count_fired(&mut shard), shard.len()), (1, 0));
}

#[test]
fn a_remote_timer_reset_during_its_admission_fires_once() {
    let (mut shard, clock) = shard();
    let callback = Arc::new(());
    let captured = Arc::clone(&callback);
    let timer = add_remotely(&shard, 1, move || drop(captured));
    assert!(with_remote_reset(&mut shard, timer, |shard| {
        clock.advance(TICK * 2);
        assert_eq!(turn_and_count_fired(shard), 0, "the new deadline is not known yet");
    }));
    assert_eq!(turn_and_count_fired(&mut shard), 0);
    clock.advance(TICK);
    assert_eq!((turn_and_count_fired(&mut shard), Arc::strong_count(&callback)), (1, 1));
    let counts = shard.counts();
    assert_eq!((counts.added, counts.fired, counts.live, counts.queued), (1, 1, 0, 0));
}

#[test]
fn an_ended_pass_consumes_no_messages() {
    let (mut shard, clock) = shard();
    let [_, own] = [1, 100].map(|ticks| shard.add(TICK * ticks, callback()));
    clock.advance(TICK);
    assert_eq!(turn_and_count_fired(&mut shard), 1);
    add_remotely(&shard, 100, || ());
    assert_eq!(thread::spawn(move || own.cancel()).join().expect("no panic"), Cancel::Cancelled);
    for _ in 0..3 {
        assert!(shard.next_expired().is_none());
        assert_eq!((shard.counts().queued, shard.len()), (2, 1));
    }
    assert_eq!(turn_and_count_fired(&mut shard), 0);
    assert_eq!((shard.counts().queued, shard.len()), (0, 1), "the remote timer");
}

/// A timer is cancelled while a message about it is queued. The timer's index stays in use until
/// the owner consumes the queued message.
#[test]
fn an_add_without_a_free_index_is_refused() {
    let (mut shard, _clock) = shard();
    let own: Vec<_> = (0..INDEX_MAX).map(|_| shard.add(TICK * 100, callback())).collect();
    let timer = own[3];
    assert!(reset_on_other_thread(timer, 50));
    assert!(shard.cancel(timer).is_some());
    assert_eq!(shard.len(), INDEX_MAX as usize - 1);
    let refused = shard.try_add(TICK, callback()).expect_err("no index is free");
    assert_eq!(refused.reason(), AddErrorReason::Full);
    assert_eq!(turn_and_count_fired(&mut shard), 0);
    assert!(shard.try_add(TICK, callback()).is_ok());
}

#[test]
fn a_cancel_frees_the_index_of_each_kind_of_timer() {
    for _ in 0..3 * INDEX_MAX {
        let (periodic, one_shot) =
            (local_timer().add_periodic(TICK, || ()), local_timer().add(TICK, || ()));
        let answers =
            [periodic.cancel(), one_shot.cancel(), local_timer().add_local(TICK, || ()).cancel()];
        assert_eq!(answers, [Cancel::Cancelled; 3]);
    }
    assert_eq!(local_timer().len(), 0);
}

/// A new thread's wheel may reuse an ended wheel's number. The `ShardRef` to the ended wheel must
/// not match the new wheel.
#[test]
fn a_shard_ref_to_an_ended_wheel_is_not_own() {
    for _ in 0..1000 {
        let ended_wheel = thread::spawn(|| local_timer().shard_ref()).join().expect("no panic");
        // A concurrent test may reuse the ended wheel's number first, so this test tries again.
        let reused_number = thread::spawn(move || {
            let number = local_timer().shard_ref().metrics().number;
            assert!(!ended_wheel.is_of_this_thread() && ended_wheel.try_add(TICK, || ()).is_err());
            assert!(ended_wheel != local_timer().shard_ref() && ended_wheel == ended_wheel.clone());
            number == ended_wheel.metrics().number
        });
        if reused_number.join().expect("no panic") {
            return;
        }
    }
    panic!("no number was reused");
}

#[test]
fn refused_adds_keep_no_node() {
    let (shard, _clock) = shard();
    let (shared, callback) = (&shard.engine.shared, Arc::new(()));
    let add = || {
        let captured = Arc::clone(&callback);
        add_through_mailbox(shared, 0, move || drop(captured)).map(drop)
    };
    shared.slab.raise_first_generation(OWNER_GENERATION_MAX + 1);
    for _ in 0..2 * INDEX_MAX {
        assert_eq!((add(), Arc::strong_count(&callback)), (Err(AddErrorReason::Full), 1));
    }
    assert_eq!(shared.slab.first_generation(), OWNER_GENERATION_MAX + 1);
}

/// After too many consecutive resets to elapsed deadlines, the timer waits for the next turn. The
/// later runs of this periodic timer count from the last reset.
#[test]
#[cfg_attr(miri, ignore = "depends on how fast the threads are")]
fn a_periodic_timer_counts_from_the_last_of_many_resets() {
    const PERIOD: Duration = Duration::from_secs(1_000);
    const ROUNDS: u32 = 30_000;
    let (mut shard, clock) = shard();
    let origin = clock.now();
    clock.set(Duration::from_secs(100));
    let timer = shard.add_periodic(PERIOD, callback());
    let (begun, ended) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(3);
            for round in 1..=ROUNDS {
                while begun.load(Ordering::Acquire) != round {
                    std::hint::spin_loop();
                }
                for resets_left in (0..random.u64(3..7)).rev() {
                    // A reset fails while the timer runs.
                    while !timer.reset(origin + Duration::from_millis(50_000 + resets_left)) {}
                    (0..random.u32(..6)).for_each(|_| std::hint::spin_loop());
                }
                ended.store(round, Ordering::Release);
            }
        });
        let mut wrong_deadlines = 0;
        for round in 1..=ROUNDS {
            begun.store(round, Ordering::Release);
            let mut round_has_ended = false;
            while !round_has_ended {
                round_has_ended = ended.load(Ordering::Acquire) == round;
                for _ in 0..2 {
                    shard.turn();
                    while shard.next_expiry().is_some() {}
                }
            }
            let deadline = shard.deadline(timer).expect("it is pending");
            wrong_deadlines += u32::from(deadline != origin + Duration::from_secs(50) + PERIOD);
        }
        assert_eq!(wrong_deadlines, 0, "of {ROUNDS} rounds");
    });
}
