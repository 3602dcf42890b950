//! The memory of timers that other threads add.

use std::{
    sync::{Arc, mpsc},
    thread,
};

use corewheel::{AddErrorReason, Cancel, ManualClock, local_timer};

use crate::{
    HOUR, TICK, allocate_spare_pages, allocated_bytes, allocator_calls, cancel_all, ended_wheel,
    free_garbage, on_a_thread, run_alone, run_alone_in_virtual_time, scaled, small_callback,
    to_i64, turn_after,
};

// ---- bursts

const BURST: usize = if cfg!(debug_assertions) { 30_000 } else { 100_000 };

#[derive(Clone, Copy, Debug)]
enum BurstEnd {
    CancelledRemotely,
    CancelledRemotelyShuffled,
    CancelledBeforeAdmission,
    CancelledByOwnerShuffled,
    Fired,
}

#[test]
fn memory_of_a_remote_burst_is_freed_however_it_ends() {
    for end in [
        BurstEnd::CancelledRemotely,
        BurstEnd::CancelledRemotelyShuffled,
        BurstEnd::CancelledBeforeAdmission,
        BurstEnd::CancelledByOwnerShuffled,
        BurstEnd::Fired,
    ] {
        run_alone_in_virtual_time(|clock| {
            // Also allocates the tables of the wheel, and this thread's record in the epoch
            // collector.
            allocate_spare_pages();
            let (bytes_max, left_bytes) = run_burst(clock, end);
            println!("{end:?}: {bytes_max} bytes, {left_bytes} left");
            assert!(bytes_max <= to_i64(BURST) * 250, "{bytes_max} bytes for {BURST}");
            assert!(left_bytes <= bytes_max / 10, "{left_bytes} bytes left of {bytes_max}");
        });
    }
}

/// Adds a burst from another thread and ends it. Returns two numbers of bytes: the larger of those
/// held before and after the admission, and those left at the end.
fn run_burst(clock: &ManualClock, end: BurstEnd) -> (i64, i64) {
    let shard = local_timer().shard_ref();
    let cancelled = local_timer().counts().cancelled;
    let mut random = fastrand::Rng::with_seed(1);
    let mut handles = Vec::with_capacity(BURST);
    let before = allocated_bytes();
    on_a_thread(|| {
        handles.extend(
            (0..BURST).map(|_| shard.add(TICK * random.u32(10_000..70_000), small_callback())),
        );
        match end {
            BurstEnd::CancelledRemotelyShuffled | BurstEnd::CancelledByOwnerShuffled => {
                random.shuffle(&mut handles);
            }
            BurstEnd::CancelledBeforeAdmission => {
                assert_eq!(allocator_calls(|| cancel_all(&handles)), (0, 0));
            }
            _ => (),
        }
    });
    let bytes_before_admission = allocated_bytes() - before;
    turn_after(clock, 1);
    let bytes_after_admission = allocated_bytes() - before;
    match end {
        BurstEnd::CancelledRemotely | BurstEnd::CancelledRemotelyShuffled => on_a_thread(|| {
            // The first use of a handle registers the thread in the epoch collector.
            assert!(handles[0].is_pending());
            let call_counts = allocator_calls(|| cancel_all(&handles));
            // These calls pin the epoch, so crossbeam-epoch may free the record of the exited
            // adder.
            assert!(call_counts.0 == 0 && call_counts.1 <= 8, "{call_counts:?}");
        }),
        BurstEnd::CancelledBeforeAdmission => {
            let cancelled = local_timer().counts().cancelled - cancelled;
            assert_eq!(cancelled, to_i64(BURST).cast_unsigned());
        }
        BurstEnd::CancelledByOwnerShuffled => cancel_all(&handles),
        BurstEnd::Fired => _ = turn_after(clock, 70_000),
    }
    turn_after(clock, 1);
    assert!(local_timer().is_empty());
    (0..2_000).for_each(|_| _ = turn_after(clock, 1));
    assert!(handles.iter().all(|handle| handle.cancel() == Cancel::Ended));
    (bytes_before_admission.max(bytes_after_admission), allocated_bytes() - before)
}

/// One in 100 timers of each burst survives.
#[test]
fn bursts_reuse_the_free_nodes_among_surviving_timers() {
    const BURST: usize = 10_000;
    const SURVIVORS: usize = BURST / 100;
    run_alone_in_virtual_time(|clock| {
        let (shard, mut before) = (local_timer().shard_ref(), 0);
        for round in 1..=12 {
            on_a_thread(|| {
                for number in 0..BURST {
                    shard.add(
                        if number % 100 == 0 { HOUR * 10 } else { TICK * 2 },
                        small_callback(),
                    );
                }
            });
            (0..400).for_each(|_| _ = turn_after(clock, 1));
            assert_eq!(local_timer().len(), round * SURVIVORS);
            if round == 2 {
                before = allocated_bytes();
            }
        }
        let grown_bytes = allocated_bytes() - before;
        println!("{grown_bytes} bytes for {} more timers", 10 * SURVIVORS);
        assert!(
            grown_bytes < to_i64(10 * SURVIVORS * 250) + 100_000,
            "{grown_bytes} bytes since the second burst"
        );
    });
}

// ---- ended wheels

#[test]
fn adding_to_an_ended_wheel_takes_no_memory() {
    let _alone = run_alone();
    let (shard, handles) = ended_wheel(10);
    let before = allocated_bytes();
    for _ in 0..scaled(20_000) {
        let error = shard.try_add(TICK, small_callback()).expect_err("the wheel has ended");
        assert_eq!(error.reason(), AddErrorReason::ShutDown);
        error.into_inner()();
    }
    assert!(allocated_bytes() - before < 10_000, "{} bytes", allocated_bytes() - before);
    assert!(handles.iter().all(|handle| handle.cancel() == Cancel::Ended));
}

#[test]
fn adds_that_race_with_the_end_of_a_wheel_leak_no_memory() {
    let _alone = run_alone();
    let before = allocated_bytes();
    for _ in 0..scaled(200) {
        let (sender, receiver) = mpsc::channel();
        let owner = thread::spawn(move || {
            sender.send(local_timer().shard_ref()).expect("the test waits");
        });
        let shard = receiver.recv().expect("the thread has a wheel");
        while shard.try_add(TICK, small_callback()).is_ok() {}
        owner.join().expect("no panic");
    }
    free_garbage();
    assert!(allocated_bytes() - before < 500_000, "{} bytes left", allocated_bytes() - before);
}

#[test]
fn a_shard_ref_of_an_ended_wheel_keeps_nodes_but_no_callbacks() {
    // Nearly three pages of nodes.
    const TIMERS: usize = 12_000;
    let _alone = run_alone();
    let captured = Arc::new(());
    free_garbage();
    let before = allocated_bytes();
    let shard = on_a_thread(|| {
        let shard = local_timer().shard_ref();
        on_a_thread(|| {
            for _ in 0..TIMERS {
                let (captured, large) = (Arc::clone(&captured), [0_u8; 1_000]);
                shard.add(TICK * 1_000_000, move || drop((captured, large)));
            }
        });
        local_timer().turn();
        shard
    });
    assert_eq!(Arc::strong_count(&captured), 1, "all callbacks have been dropped");
    let kept_bytes = allocated_bytes() - before;
    println!("{kept_bytes} bytes kept for {TIMERS}");
    assert!(kept_bytes < to_i64(TIMERS) * 150, "{kept_bytes} bytes");
    drop(shard);
    free_garbage();
    assert!(allocated_bytes() - before < 300_000, "{} bytes left", allocated_bytes() - before);
}
