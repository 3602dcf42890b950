//! Virtual time carries earlier writes from the thread that moves the clock to the threads that
//! read it.
#![cfg(all(loom, not(crossbeam_loom)))]

use std::sync::Arc;

use corewheel::ManualClock;
use loom::{
    sync::atomic::{AtomicU32, Ordering},
    thread,
};
use loom_tests::{TICK, explore};

#[test]
fn who_sees_the_new_time_sees_what_came_before_it() {
    explore(39, || {
        let (clock, work) = (ManualClock::new(), Arc::new(AtomicU32::new(0)));
        let mover = {
            let (clock, work) = (clock.clone(), Arc::clone(&work));
            thread::spawn(move || {
                // Relaxed, here and below: the clock orders them.
                work.store(1, Ordering::Relaxed);
                clock.advance(TICK);
                work.store(2, Ordering::Relaxed);
                clock.set(TICK * 2);
            })
        };
        let (time, seen) = (clock.elapsed(), work.load(Ordering::Relaxed));
        assert!(TICK * seen >= time, "{time:?}, but the work before it was not seen: {seen}");
        mover.join().unwrap();
    });
}
