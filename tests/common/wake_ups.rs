//! What finds every wake-up that a sleeping owner loses; the integrations use it, too.

use std::{sync::mpsc, thread, time::Duration};

use corewheel::ShardRef;

const HOUR: Duration = Duration::from_secs(3_600);

/// What takes longer than this does not happen.
const TOO_LONG: Duration = Duration::from_secs(20);

/// Threads that add or move what is due at once, or nearly, and wait for it, at moments that shift
/// against those at which the owner falls asleep. One alone finds every wake-up that is lost;
/// several meet in one.
pub(crate) fn none_is_lost(shard: &ShardRef, askers: u64, rounds: u64) {
    thread::scope(|scope| {
        for asker in 0..askers {
            scope.spawn(move || ask(shard, &mut fastrand::Rng::with_seed(asker), rounds));
        }
    });
}

fn ask(shard: &ShardRef, random: &mut fastrand::Rng, rounds: u64) {
    let (ran, runs) = mpsc::channel();
    for round in 0..rounds {
        let ran = ran.clone();
        let run = move || ran.send(round).expect("it is waited for");
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
