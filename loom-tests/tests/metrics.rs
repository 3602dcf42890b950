//! An owner publishes its counts: a reader sees one moment.
#![cfg(all(loom, not(crossbeam_loom)))]

use corewheel::{Config, ManualClock, local_timer};
use loom::thread;
use loom_tests::{TICK, explore, stage};

/// The owner publishes once per copy, and so overwrites the copy that another thread is reading.
#[test]
fn what_is_counted_is_read_together() {
    explore(2_500, || {
        let shard = stage(|| {
            let config = Config::new().tick(TICK).clock(ManualClock::new());
            // In models, only a named shard publishes.
            config.name("told").install().expect("a fresh thread");
            local_timer().shard_ref()
        });
        let reader = thread::spawn(move || {
            let counts = shard.metrics().counts;
            assert_eq!(counts.added, counts.live);
        });
        for _ in 0..2 {
            local_timer().add(TICK, || ());
            // Publishes.
            let _ = local_timer().time_until_next();
        }
        reader.join().unwrap();
    });
}
