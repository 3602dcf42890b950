//! What a thread publishes for readers: an owner's counts, of one moment, and virtual time.
#![cfg(all(loom, not(crossbeam_loom)))]

use corewheel::{ManualClock, local_timer};
use loom::{
    sync::atomic::{AtomicU32, Ordering},
    thread,
};
use loom_tests::{TICK, core_with, explore, shared, stage};

/// The owner publishes once per copy, and so overwrites the copy that another thread is reading.
#[test]
fn counts_are_read_as_a_consistent_snapshot() {
    explore(2_500, || {
        // In models, only a named shard publishes.
        let (_clock, shard) = stage(|| core_with(|config| config.name("told")));
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

/// Virtual time carries earlier writes from the thread that moves the clock to those that read it.
#[test]
fn a_reader_of_virtual_time_sees_earlier_writes() {
    explore(39, || {
        let (clock, [work, done]) = (ManualClock::new(), shared(AtomicU32::new(0)));
        let moved = clock.clone();
        let mover = thread::spawn(move || {
            // Relaxed, here and below: the clock orders them.
            done.store(1, Ordering::Relaxed);
            moved.advance(TICK);
            done.store(2, Ordering::Relaxed);
            moved.set(TICK * 2);
        });
        let (time, seen) = (clock.elapsed(), work.load(Ordering::Relaxed));
        assert!(TICK * seen >= time, "{time:?}, but the work before it was not seen: {seen}");
        mover.join().unwrap();
    });
}
