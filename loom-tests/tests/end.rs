//! Cancels and resets race with the end of a shard or page. Under `crossbeam_loom`, loom also sees
//! the registry, the page table and the epochs. `src/cross_core/state/mod.rs` defines the orderings
//! S1 and S2.
#![cfg(all(loom, crossbeam_loom, feature = "epoch"))]

use std::sync::Arc;

use corewheel::{Cancel, Shard, TimerHandle};
use loom::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};
use loom_tests::{
    SeesOnDrop, TICK, add_four, explore, explore_with_preemptions, fire_and_add_four, shard,
    shard_with_retirable_page, shard_with_timer, shared_clones, turn_and_expire, without_exploring,
    work_and_cancel,
};

#[test]
fn drain_hands_back_exactly_the_uncancelled_timers() {
    explore(110_000, || {
        let (mut shard, _clock) = shard();
        let payload = Arc::new(());
        let handles = [(); 2].map(|()| shard.add(TICK, Arc::clone(&payload)));
        let canceller = thread::spawn(move || handles.map(TimerHandle::cancel));
        let handed_back = shard.drain();
        let answers = canceller.join().unwrap();
        let cancelled = answers.iter().filter(|&&answer| answer == Cancel::Cancelled).count();
        assert_eq!(cancelled + handed_back.len(), 2, "{answers:?}");
        assert!(!answers.contains(&Cancel::Running));
        drop(handed_back);
        assert_eq!(Arc::strong_count(&payload), 1, "every payload was dropped");
        assert_eq!(handles.map(TimerHandle::cancel), [Cancel::Ended; 2]);
    });
}

/// Checks the ordering S1, whether or not the canceller has pushed its message.
#[test]
fn a_drop_at_shard_end_sees_the_cancellers_writes() {
    explore(71_000, || {
        let (payload, work, seen) = SeesOnDrop::with_counter();
        let (shard, _clock, handle) = shard_with_timer(1, payload);
        let canceller = thread::spawn(move || work_and_cancel(&work, handle));
        drop(shard);
        let seen = seen.load(Ordering::Relaxed);
        if canceller.join().unwrap() == Cancel::Cancelled {
            assert_eq!(seen, 11);
        }
    });
}

#[test]
fn a_handle_never_reaches_a_shard_that_reuses_its_number() {
    explore(270_000, || {
        let (mut old, _clock) = shard();
        let handle = old.add(TICK, 1);
        let canceller = thread::spawn(move || handle.cancel());
        let handed_back = old.drain().len();
        let (mut new, clock) = shard();
        let new_timer = new.add(TICK, 2);
        let answer = canceller.join().unwrap();
        assert_eq!(handed_back == 0, answer == Cancel::Cancelled);
        assert!(new_timer.is_pending());
        clock.advance(TICK);
        assert_eq!(turn_and_expire(&mut new), [2]);
    });
}

/// Returns a shard, a stale handle, and the only live timer in the handle's page. The end of the
/// live timer retires the page.
fn shard_with_a_stale_handle() -> (Shard<u32>, TimerHandle, TimerHandle) {
    let (mut shard, _clock) = shard();
    let [others @ .., stale, last] = [(); 5].map(|()| shard.add(TICK, 1));
    for other in others.into_iter().chain([stale]) {
        shard.cancel(other);
    }
    (shard, stale, last)
}

#[test]
fn a_stale_cancel_during_page_reclamation_returns_ended() {
    explore_with_preemptions(2, 33_000, || {
        let (mut shard, stale, last) = shard_with_a_stale_handle();
        let canceller = thread::spawn(move || stale.cancel());
        // The cancel retires the page, which advances the epoch. The next turn advances the epoch
        // again and frees the page, unless a thread is pinned.
        shard.cancel(last);
        assert!(turn_and_expire(&mut shard).is_empty());
        assert_eq!(canceller.join().unwrap(), Cancel::Ended);
        let (_, in_a_new_page) = add_four(&mut shard, stale);
        assert!(in_a_new_page, "the page was not retired");
    });
}

/// Checks the ordering S2. The canceller finds the old page, no page or a new one.
#[test]
fn owner_writes_are_visible_after_page_replacement() {
    explore_with_preemptions(2, 84_000, || {
        let (mut shard, clock, first) = shard_with_retirable_page();
        let [work, seen] = shared_clones(AtomicUsize::new(0));
        let canceller = thread::spawn(move || (first.cancel(), seen.load(Ordering::Relaxed)));
        work.store(1, Ordering::Relaxed);
        clock.advance(TICK);
        let (has_fired, added) = fire_and_add_four(&mut shard, first);
        let (answer, seen) = canceller.join().unwrap();
        assert_eq!(has_fired, answer != Cancel::Cancelled);
        assert!(answer != Cancel::Ended || seen == 1, "{answer:?} {seen}");
        assert!(added.into_iter().all(TimerHandle::is_pending));
        clock.advance(TICK);
        assert_eq!(turn_and_expire(&mut shard), [2; 4]);
    });
}

#[test]
fn drain_agrees_with_the_answer_of_a_concurrent_reset() {
    explore(35_000, || {
        let (mut shard, clock, handle) = without_exploring(|| shard_with_timer(1, ()));
        let resetter = thread::spawn(move || handle.reset(TICK * 3));
        let handed_back = shard.drain();
        let ticks = if resetter.join().unwrap() { 3 } else { 1 };
        loom::stop_exploring();
        assert_eq!(handed_back, [(clock.now() + TICK * ticks, ())]);
        assert_eq!((handle.reset(TICK), handle.cancel()), (false, Cancel::Ended));
    });
}

#[test]
fn a_timer_cancelled_during_a_reset_is_not_handed_back() {
    explore_with_preemptions(2, 2_200, || {
        let (mut shard, _clock, handle) = without_exploring(|| shard_with_timer(1, 1));
        let resetter = thread::spawn(move || handle.reset(TICK * 3));
        assert_eq!(shard.cancel(handle), Some(1));
        assert!(shard.drain().is_empty());
        resetter.join().unwrap();
        loom::stop_exploring();
        let counts = shard.counts();
        assert_eq!((counts.cancelled, counts.handed_back, counts.live), (1, 0, 0));
    });
}

#[test]
fn a_stale_reset_during_page_reclamation_returns_false() {
    explore_with_preemptions(2, 3_900, || {
        let (mut shard, stale, last) = without_exploring(shard_with_a_stale_handle);
        let resetter = thread::spawn(move || stale.reset(TICK));
        shard.cancel(last);
        assert!(turn_and_expire(&mut shard).is_empty());
        assert!(!resetter.join().unwrap());
        loom::stop_exploring();
        let (added, in_a_new_page) = add_four(&mut shard, stale);
        assert!(in_a_new_page, "the page was not retired");
        assert!(added.into_iter().all(TimerHandle::is_pending));
    });
}
