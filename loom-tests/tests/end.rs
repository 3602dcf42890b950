//! The end of a shard or of a page races with cancels, resets and adds. The outcome depends on
//! whether the canceller still finds the page, so loom must also see the registry, the table of
//! pages and the epochs. These models need `RUSTFLAGS="--cfg loom --cfg crossbeam_loom"` and the
//! feature `epoch`.
#![cfg(all(loom, crossbeam_loom, feature = "epoch"))]

use std::sync::Arc;

use corewheel::{Cancel, Shard, TimerHandle};
use loom::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};
use loom_tests::{
    SeesOnDrop, TICK, add_four, expired, explore, explore_within, fire_and_add_four, shard,
    shard_with, shard_with_a_page_to_spare, shared, stage, work_and_cancel,
};

/// When the owner drains, a canceller may have claimed without a push yet. Each timer is cancelled
/// or handed back.
#[test]
fn a_cancel_that_races_with_the_last_drain_gets_a_true_answer() {
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

/// S1: the work of a canceller before its claim happens before the ending shard drops the payload,
/// with or without a push.
#[test]
fn a_payload_dropped_at_the_end_sees_what_came_before_its_cancel() {
    explore(71_000, || {
        let (payload, work, seen) = SeesOnDrop::watched();
        let (shard, _clock, handle) = shard_with(1, payload);
        let canceller = thread::spawn(move || work_and_cancel(&work, handle));
        drop(shard);
        let seen = seen.load(Ordering::Relaxed);
        if canceller.join().unwrap() == Cancel::Cancelled {
            assert_eq!(seen, 11);
        }
    });
}

/// The next shard takes over the number of an ended shard. A handle of the old one never reaches
/// it.
#[test]
fn a_handle_of_a_shard_that_is_gone_never_reaches_its_successor() {
    explore(270_000, || {
        let (mut old, _clock) = shard();
        let handle = old.add(TICK, 1);
        let canceller = thread::spawn(move || handle.cancel());
        let handed_back = old.drain().len();
        let (mut new, clock) = shard();
        let heir = new.add(TICK, 2);
        let answer = canceller.join().unwrap();
        assert_eq!(handed_back == 0, answer == Cancel::Cancelled);
        assert!(heir.is_pending());
        clock.advance(TICK);
        assert_eq!(expired(&mut new), [2]);
    });
}

/// Returns a shard, a stale handle, and the last timer of its page, whose end retires the page.
fn shard_with_a_stale_handle() -> (Shard<u32>, TimerHandle, TimerHandle) {
    let (mut shard, _clock) = shard();
    let [others @ .., stale, last] = [(); 5].map(|()| shard.add(TICK, 1));
    for other in others.into_iter().chain([stale]) {
        shard.cancel(other);
    }
    (shard, stale, last)
}

#[test]
fn cancel_and_page_reclaimed() {
    explore_within(2, 33_000, || {
        let (mut shard, stale, last) = shard_with_a_stale_handle();
        let canceller = thread::spawn(move || stale.cancel());
        // The cancel retires the page, which advances the epochs. The turn advances them again and
        // frees the page, if no thread is pinned.
        shard.cancel(last);
        assert!(expired(&mut shard).is_empty());
        assert_eq!(canceller.join().unwrap(), Cancel::Ended);
        let (_, in_a_new_page) = add_four(&mut shard, stale);
        assert!(in_a_new_page, "the page was not retired");
    });
}

/// S2: a thread with the answer `Ended` sees the work before the end, also if the page is gone or
/// new.
#[test]
fn who_is_told_ended_sees_what_came_before_also_in_a_new_page() {
    explore_within(2, 84_000, || {
        let (mut shard, clock, first) = shard_with_a_page_to_spare();
        let [work, seen] = shared(AtomicUsize::new(0));
        let canceller = thread::spawn(move || (first.cancel(), seen.load(Ordering::Relaxed)));
        work.store(1, Ordering::Relaxed);
        clock.advance(TICK);
        let (has_fired, added) = fire_and_add_four(&mut shard, first);
        let (answer, seen) = canceller.join().unwrap();
        assert_eq!(has_fired, answer != Cancel::Cancelled);
        assert!(answer != Cancel::Ended || seen == 1, "{answer:?} {seen}");
        assert!(added.into_iter().all(TimerHandle::is_pending));
        clock.advance(TICK);
        assert_eq!(expired(&mut shard), [2; 4]);
    });
}

/// The timer is handed back with the deadline that the other thread was promised. While a move is
/// in progress, the timer has the old deadline.
#[test]
fn a_reset_that_races_with_the_last_drain_gets_a_true_answer() {
    explore(35_000, || {
        let (mut shard, clock, handle) = stage(|| shard_with(1, ()));
        let mover = thread::spawn(move || handle.reset(TICK * 3));
        let handed_back = shard.drain();
        let ticks = if mover.join().unwrap() { 3 } else { 1 };
        loom::stop_exploring();
        assert_eq!(handed_back, [(clock.now() + TICK * ticks, ())]);
        assert_eq!((handle.reset(TICK), handle.cancel()), (false, Cancel::Ended));
    });
}

#[test]
fn a_timer_cancelled_while_it_is_moved_ends_once_at_the_end() {
    explore_within(2, 2_200, || {
        let (mut shard, _clock, handle) = stage(|| shard_with(1, 1));
        let mover = thread::spawn(move || handle.reset(TICK * 3));
        assert_eq!(shard.cancel(handle), Some(1));
        assert!(shard.drain().is_empty());
        mover.join().unwrap();
        loom::stop_exploring();
        let counts = shard.counts();
        assert_eq!((counts.cancelled, counts.handed_back, counts.live), (1, 0, 0));
    });
}

#[test]
fn reset_and_page_reclaimed() {
    explore_within(2, 3_900, || {
        let (mut shard, stale, last) = stage(shard_with_a_stale_handle);
        let mover = thread::spawn(move || stale.reset(TICK));
        shard.cancel(last);
        assert!(expired(&mut shard).is_empty());
        assert!(!mover.join().unwrap());
        loom::stop_exploring();
        let (added, in_a_new_page) = add_four(&mut shard, stale);
        assert!(in_a_new_page, "the page was not retired");
        assert!(added.into_iter().all(TimerHandle::is_pending));
    });
}
