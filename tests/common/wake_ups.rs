//! A stress test for lost wake-ups, which the integrations also run.

use std::{sync::mpsc, thread, time::Duration};

use corewheel::ShardRef;

const HOUR: Duration = Duration::from_secs(3_600);

const TOO_LONG: Duration = Duration::from_secs(20);

/// Starts threads that add a near timer, or reset a far timer to a near deadline, and wait until it
/// fires. With a single requester, no other request hides a lost wake-up.
pub(crate) fn assert_no_wake_up_is_lost(shard: &ShardRef, requesters: u64, rounds: u64) {
    thread::scope(|scope| {
        for requester in 0..requesters {
            scope.spawn(move || {
                add_and_wait(shard, &mut fastrand::Rng::with_seed(requester), rounds);
            });
        }
    });
}

fn add_and_wait(shard: &ShardRef, random: &mut fastrand::Rng, rounds: u64) {
    let (ran, runs) = mpsc::channel();
    for round in 0..rounds {
        let ran = ran.clone();
        let run = move || ran.send(round).expect("the requester waits");
        let soon = Duration::from_micros(random.u64(..100) * random.u64(..2));
        if random.bool() {
            shard.add(soon, run);
        } else {
            let handle = shard.add(HOUR, run);
            spin(random.u32(..200) * random.u32(..2));
            assert!(handle.reset(soon));
        }
        assert_eq!(runs.recv_timeout(TOO_LONG), Ok(round), "a wake-up was lost");
        spin(random.u32(..5_000));
    }
}

fn spin(times: u32) {
    (0..times).for_each(|_| std::hint::spin_loop());
}
