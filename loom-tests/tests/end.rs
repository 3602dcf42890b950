//! The end of a shard, and cancels that race with it. What decides here is whether the canceller still finds the shard, so
//! loom must see the registry and the epochs as well: these models need `RUSTFLAGS="--cfg loom --cfg crossbeam_loom"` and
//! the feature `epoch`.
#![cfg(all(loom, crossbeam_loom, feature = "epoch"))]

use std::sync::Arc;

use corewheel::Cancel;
use loom::{sync::atomic::Ordering, thread};
use loom_tests::{SeesOnDrop, TICK, expired, explore, shard};

/// A canceller may have claimed and not yet pushed when the owner drains: each timer is cancelled or handed back.
#[test]
fn a_cancel_that_races_with_the_last_drain_gets_a_true_answer() {
    explore("a_cancel_that_races_with_the_last_drain_gets_a_true_answer", 200_000, || {
        let (mut shard, _clock) = shard();
        let payload = Arc::new(());
        let handles = [(); 2].map(|()| shard.add(TICK, Arc::clone(&payload)));
        let canceller = thread::spawn(move || handles.map(corewheel::TimerHandle::cancel));
        let handed_back = shard.drain();
        let answers = canceller.join().unwrap();
        let cancelled = answers.iter().filter(|&&answer| answer == Cancel::Cancelled).count();
        assert_eq!(cancelled + handed_back.len(), 2, "{answers:?}");
        assert!(!answers.contains(&Cancel::Running));
        drop(handed_back);
        assert_eq!(Arc::strong_count(&payload), 1, "every payload was dropped");
        assert_eq!(handles.map(corewheel::TimerHandle::cancel), [Cancel::Ended; 2]);
    });
}

/// S1: what a canceller did before it won happens before the ending shard drops the payload, pushed or not.
#[test]
fn a_payload_dropped_at_the_end_sees_what_came_before_its_cancel() {
    explore("a_payload_dropped_at_the_end_sees_what_came_before_its_cancel", 150_000, || {
        let (mut shard, _clock) = shard();
        let (payload, work, seen) = SeesOnDrop::watched();
        let handle = shard.add(TICK, payload);
        let canceller = thread::spawn(move || {
            work.store(1, Ordering::Relaxed);
            handle.cancel()
        });
        drop(shard);
        let seen = seen.load(Ordering::Relaxed);
        if canceller.join().unwrap() == Cancel::Cancelled {
            assert_eq!(seen, 11);
        }
    });
}

/// The next shard takes over the number of the one that has gone: a handle of the old one never reaches it.
#[test]
fn a_handle_of_a_shard_that_is_gone_never_reaches_its_successor() {
    explore("a_handle_of_a_shard_that_is_gone_never_reaches_its_successor", 500_000, || {
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
