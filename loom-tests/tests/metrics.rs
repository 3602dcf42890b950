//! A thread reads the counts that an owner publishes, or the virtual time that another thread
//! moves.
#![cfg(all(loom, not(crossbeam_loom)))]

use corewheel::{ManualClock, local_timer};
use loom::{
    sync::atomic::{AtomicU32, Ordering},
    thread,
};
use loom_tests::{TICK, explore, install_core_with, shared_clones, without_exploring};

/// The owner publishes twice. The second publication overwrites the copy that the reader may be
/// reading.
#[test]
fn counts_are_read_as_a_consistent_snapshot() {
    explore(2_500, || {
        // In models, only a shard with a name publishes counts.
        let (_clock, shard) =
            without_exploring(|| install_core_with(|config| config.name("named")));
        let reader = thread::spawn(move || {
            let counts = shard.metrics().counts;
            assert_eq!(counts.added, counts.live);
        });
        for _ in 0..2 {
            local_timer().add(TICK, || ());
            // Publishes the counts.
            let _ = local_timer().time_until_next();
        }
        reader.join().unwrap();
    });
}

#[test]
fn a_reader_of_virtual_time_sees_earlier_writes() {
    explore(39, || {
        let (clock, [work, done]) = (ManualClock::new(), shared_clones(AtomicU32::new(0)));
        let moved = clock.clone();
        let mover = thread::spawn(move || {
            // Relaxed, here and below: the clock must order these accesses.
            done.store(1, Ordering::Relaxed);
            moved.advance(TICK);
            done.store(2, Ordering::Relaxed);
            moved.set(TICK * 2);
        });
        let (time, seen) = (clock.elapsed(), work.load(Ordering::Relaxed));
        assert!(TICK * seen >= time, "the time is {time:?}, but the work is {seen}");
        mover.join().unwrap();
    });
}
