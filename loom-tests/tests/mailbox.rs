//! Threads push to the mailbox while the owner takes messages.
#![cfg(all(loom, not(crossbeam_loom)))]

use std::sync::{Arc, Mutex};

use corewheel::{Cancel, TimerHandle, local_timer};
use loom::thread;
use loom_tests::{
    TICK, explore, install_core, race, shard, shard_with_timer, shared_clones, turn_and_expire,
};

/// With three queued messages, the newest message has a link to the oldest one.
#[test]
fn every_message_is_consumed_once() {
    explore(2_000, || {
        let (mut shard, _clock) = shard();
        let [first, second, third] = [1, 2, 3].map(|payload| shard.add(TICK, payload));
        let cancellers = [vec![first, second], vec![third]]
            .map(|handles| race(move || handles.into_iter().map(TimerHandle::cancel).collect()));
        assert!(turn_and_expire(&mut shard).is_empty());
        assert!(shard.counts().cancelled <= 3);
        for canceller in cancellers {
            let answers: Vec<Cancel> = canceller.join().unwrap();
            assert!(answers.iter().all(|&answer| answer == Cancel::Cancelled));
        }
        assert_eq!(shard.counts().live, 3 - shard.counts().cancelled);
        assert!(turn_and_expire(&mut shard).is_empty());
        assert_eq!((shard.counts().cancelled, shard.counts().uncollected, shard.len()), (3, 0, 0));
    });
}

#[test]
fn a_node_is_reused_after_its_message() {
    explore(29, || {
        let (mut shard, _clock, first) = shard_with_timer(1, 1);
        let canceller = thread::spawn(move || first.cancel());
        assert!(turn_and_expire(&mut shard).is_empty());
        let second = shard.add(TICK, 2);
        let other = thread::spawn(move || second.cancel());
        assert!(turn_and_expire(&mut shard).is_empty());
        assert_eq!([canceller, other].map(|thread| thread.join().unwrap()), [Cancel::Cancelled; 2]);
        assert!(turn_and_expire(&mut shard).is_empty());
        assert_eq!((shard.counts().cancelled, shard.len()), (2, 0));
    });
}

#[test]
fn queued_cancels_are_counted_as_uncollected() {
    explore(76, || {
        let (mut shard, _clock) = shard();
        let handles = [1, 2, 3].map(|payload| shard.add(TICK, payload));
        let canceller = race(move || handles.map(TimerHandle::cancel));
        let queued = shard.counts().queued;
        let uncollected = shard.counts().uncollected;
        assert!(uncollected >= queued, "{queued} queued, {uncollected} uncollected");
        assert_eq!(canceller.join().unwrap(), [Cancel::Cancelled; 3]);
        assert!(turn_and_expire(&mut shard).is_empty());
        assert_eq!((shard.counts().cancelled, shard.counts().uncollected), (3, 0));
    });
}

/// The owner takes the newest message first, and must reverse each batch.
#[test]
fn closures_pushed_during_a_turn_run_in_fifo_order() {
    explore(93, || {
        let ((_clock, core), [ran, notes]) =
            (install_core(), shared_clones(Mutex::new(Vec::new())));
        let submitter = race(move || {
            for name in 0..3 {
                let notes = Arc::clone(&notes);
                core.run(move || notes.lock().unwrap().push(name));
            }
        });
        local_timer().turn();
        submitter.join().unwrap();
        while local_timer().turn().behind {}
        assert_eq!(*ran.lock().unwrap(), [0, 1, 2]);
    });
}
