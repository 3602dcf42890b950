//! The bytes that live timers take, and that ended timers free.

use corewheel::{TimerHandle, Wheel, local_timer};

use crate::{
    HOUR, allocate_spare_pages, allocated_bytes, allocator_calls, cancel_all, cancel_all_remotely,
    for_each_kind, for_each_shard, free_garbage,
    kinds::{Handle, MakeTimers, TimerSet},
    on_a_thread, run_alone, run_alone_in_virtual_time, small_callback, to_i64,
};

/// Asserts bounds on the bytes that live timers take, and on the bytes left after `cancel_all`.
fn assert_bytes_while_live_and_after_cancel(
    make: MakeTimers<'_>,
    cancel_all: fn(&mut dyn TimerSet, &[Handle]),
) {
    // A million timers take seconds in a debug build.
    let sizes: &[usize] = if cfg!(debug_assertions) { &[100_000] } else { &[100_000, 1_000_000] };
    for &count in sizes {
        let before = allocated_bytes();
        let mut timers = make();
        let mut random = fastrand::Rng::with_seed(1);
        let mut handles = Vec::with_capacity(count);
        let handle_vec_bytes = to_i64(count * size_of::<Handle>());
        timers.pass(1, usize::MAX);
        let empty_bytes = allocated_bytes() - before - handle_vec_bytes;
        handles.extend((0..count).map(|_| timers.add(random.u32(10_000..70_000))));
        let full_bytes = allocated_bytes() - before - handle_vec_bytes;
        let bytes_max = timers.max_bytes_per_timer() * to_i64(count);
        assert!(
            full_bytes - empty_bytes <= bytes_max,
            "{} bytes for {count}",
            full_bytes - empty_bytes
        );
        assert!(
            count < 1_000_000 || full_bytes <= bytes_max,
            "{full_bytes} bytes for {count}, with the slots"
        );
        cancel_all(&mut *timers, &handles);
        // Each turn frees few pages.
        (0..count / 4_096 * 2 + 100).for_each(|_| _ = timers.pass(1, usize::MAX));
        assert_eq!(timers.live(), 0);
        let left_bytes = allocated_bytes() - before - handle_vec_bytes;
        assert!(
            left_bytes - empty_bytes <= (full_bytes - empty_bytes) / 10,
            "{left_bytes} bytes left of {full_bytes}, empty {empty_bytes}"
        );
        assert!(
            count < 1_000_000 || left_bytes <= full_bytes / 10,
            "{left_bytes} bytes left of {full_bytes}"
        );
    }
}

#[test]
fn timers_take_few_bytes_and_free_them_when_cancelled() {
    let _alone = run_alone();
    for_each_kind(|make| {
        assert_bytes_while_live_and_after_cancel(make, |timers, handles| {
            assert!(handles.iter().all(|&handle| timers.cancel(handle)));
        });
    });
}

/// Returns the bytes of a new wheel without its first page.
fn slot_bytes<T>(make: impl FnOnce() -> T) -> i64 {
    let before = allocated_bytes();
    let wheel = make();
    let bytes = allocated_bytes() - before - 24 * 4_096;
    drop(wheel);
    bytes
}

/// The documentation of `Wheel` and the guide state the sizes that this test asserts.
#[test]
fn wheels_take_the_documented_bytes() {
    let _alone = run_alone();
    let before = allocated_bytes();
    let narrow = Wheel::<u64, 6, 11>::starting_at(0);
    let bytes = allocated_bytes() - before;
    assert!((160_000..180_000).contains(&bytes), "{bytes} bytes");
    drop(narrow);
    let default = slot_bytes(Wheel::<()>::new);
    let narrow = slot_bytes(|| Wheel::<(), 6, 11>::starting_at(0));
    assert!((1_150_000..1_250_000).contains(&default), "{default} bytes");
    assert!((38_500..39_500).contains(&narrow), "{narrow} bytes");
}

/// The guide states the size of a page, without the feature `origins`.
#[test]
fn a_page_of_periodic_timers_takes_the_documented_bytes() {
    run_alone_in_virtual_time(|_| {
        let add = |count| (0..count).for_each(|_| _ = local_timer().add_periodic(HOUR, || ()));
        add(4_095); // Index 0 is never used.
        let before = allocated_bytes();
        add(4_096);
        let origins = if cfg!(feature = "origins") { 16 * 4_096 } else { 0 };
        let bytes = allocated_bytes() - before - origins;
        assert!((425_000..427_000).contains(&bytes), "{bytes} bytes");
    });
}

/// The documentation of `Wheel::drain` states this number.
#[test]
fn a_drain_of_a_wheel_allocates_once() {
    let _alone = run_alone();
    let mut wheel = Wheel::with_capacity(1_000);
    (0..1_000).for_each(|deadline| _ = wheel.insert(deadline, deadline));
    let mut drained = Vec::new();
    assert_eq!(allocator_calls(|| drained = wheel.drain()), (1, 0));
    assert_eq!(drained.len(), 1_000);
}

#[test]
fn timers_free_their_bytes_when_cancelled_remotely() {
    let _alone = run_alone();
    for_each_shard(|make| {
        assert_bytes_while_live_and_after_cancel(make, |timers, handles| {
            let cancelled: Vec<_> = handles.iter().map(|handle| handle.timer()).collect();
            cancel_all_remotely(&cancelled);
            // A turn consumes at most 1,024 messages.
            (0..handles.len() / 1_024).for_each(|_| _ = timers.pass(1, usize::MAX));
        });
    });
}

#[test]
fn growth_during_churn_fills_existing_pages() {
    const GROWN: usize = 2_000;
    let _alone = run_alone();
    for_each_kind(|make| {
        let mut timers = make();
        let empty_bytes = allocated_bytes();
        let mut replaced = timers.add(10_000);
        for _ in 0..GROWN {
            assert!(timers.cancel(replaced));
            replaced = timers.add(10_000);
            timers.add(10_000);
        }
        assert_eq!(timers.live(), GROWN + 1);
        let grown = allocated_bytes() - empty_bytes;
        assert!(grown <= timers.max_bytes_per_timer() * to_i64(GROWN), "{grown} bytes for {GROWN}");
    });
}

/// Adds `count` timers, on this thread or on another one, and asserts that `cancel_and_sleep` frees
/// their memory. `cancel_and_sleep` gets the timers and the bytes allocated before their adds.
fn assert_sleep_frees_memory(count: usize, cancel_and_sleep: impl Fn(Vec<TimerHandle>, i64)) {
    let core = local_timer().shard_ref();
    allocate_spare_pages();
    for from_another_thread in [false, true] {
        let before = allocated_bytes();
        let add = || (0..count).map(|_| core.add(HOUR, small_callback())).collect();
        let timers = if from_another_thread { on_a_thread(add) } else { add() };
        while local_timer().turn().behind {}
        let full_bytes = allocated_bytes() - before;
        cancel_and_sleep(timers, before);
        let left_bytes = allocated_bytes() - before;
        assert!(left_bytes <= full_bytes / 10, "{left_bytes} bytes left of {full_bytes}");
    }
}

/// Freeing many pages takes several sleeps, so that no sleep begins late.
#[test]
fn memory_of_many_timers_is_freed_over_several_sleeps() {
    let _alone = run_alone();
    free_garbage();
    let cancel_and_sleep = |timers: Vec<TimerHandle>, before| {
        let full_bytes = allocated_bytes() - before;
        // Cancels the timers during a turn, which frees only a few pages.
        local_timer().shard_ref().run(move || cancel_all(&timers));
        assert_eq!(local_timer().turn().fired, 1);
        let sleep_is_limited = || local_timer().prepare_sleep().timeout().is_some();
        assert!(sleep_is_limited());
        let left_bytes = allocated_bytes() - before;
        assert!(
            left_bytes > full_bytes / 4,
            "{left_bytes} bytes left of {full_bytes} before the first sleep"
        );
        while sleep_is_limited() {}
    };
    on_a_thread(|| assert_sleep_frees_memory(64 * 4_096, cancel_and_sleep));
}

/// A sleeping loop makes no turns that could free memory.
#[test]
fn memory_of_cancelled_timers_is_freed_before_a_long_sleep() {
    run_alone_in_virtual_time(|_| {
        assert_sleep_frees_memory(30_000, |timers, _| {
            cancel_all(&timers);
            local_timer().add(HOUR, || ());
            drop(local_timer().prepare_sleep());
        });
    });
}
