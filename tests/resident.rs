//! The resident memory of the process follows the number of live timers (P8).
#![cfg(all(feature = "std", target_os = "linux"))]

#[path = "common/mod.rs"]
mod common;
#[path = "common/kinds.rs"]
mod kinds;

use std::{fs::File, io::Read, mem};

use kinds::{Handle, MakeTimers, TimerSet, for_each_kind};

/// Returns the resident bytes of this process. Allocates nothing.
fn resident_bytes() -> i64 {
    let mut status = [0; 4096];
    let read = File::open("/proc/self/status").and_then(|mut file| file.read(&mut status));
    let status = str::from_utf8(&status[..read.expect("readable")]).expect("a text");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a VmRSS line");
    let kilobytes = line.split_whitespace().next().and_then(|word| word.parse::<i64>().ok());
    kilobytes.expect("a number") * 1024
}

/// One test, because a concurrent test would change the resident memory.
#[test]
fn resident_memory_follows_the_timers() {
    for_each_kind(assert_ten_timers_take_few_bytes);
    for_each_kind(assert_memory_of_a_burst_is_freed);
}

/// Most of the unused memory of a page is not resident.
fn assert_ten_timers_take_few_bytes(make: MakeTimers<'_>) {
    let before = resident_bytes();
    let mut wheels: Vec<_> = (0..20).map(|_| make()).collect();
    for timers in &mut wheels {
        (1..=10).for_each(|tick| _ = timers.add(tick));
    }
    let bytes_each = (resident_bytes() - before) / 20;
    println!("{bytes_each} bytes for ten timers");
    assert!(bytes_each < 192 << 10, "{bytes_each} bytes for ten timers");
    // Leaked: if the allocator reused the pages, it would zero them and so make them resident.
    mem::forget(wheels);
}

/// Turns and announces sleeps a hundred times. A real loop does the same at least once a second
/// while surplus pages are left.
fn turn_until_memory_is_freed(timers: &mut dyn TimerSet) {
    for _ in 0..100 {
        timers.pass(1, usize::MAX);
        timers.prepare_sleep();
    }
}

/// Allocations between the pages keep the heap from shrinking.
fn assert_memory_of_a_burst_is_freed(make: MakeTimers<'_>) {
    const BURST: i64 = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };
    let mut random = fastrand::Rng::with_seed(1);
    let mut timers = make();
    // Not measured: after this first burst, the allocator adapts its thresholds.
    let mut handles: Vec<Handle> = (0..BURST).map(|_| timers.add(1)).collect();
    handles.clear();
    turn_until_memory_is_freed(&mut *timers);
    let mut other_allocations = Vec::with_capacity(1_000_000);
    for burst in 1..3 {
        let before = resident_bytes();
        for number in 0..BURST {
            handles.push(timers.add(random.u32(10_000..70_000)));
            if number % 1_000 == 0 {
                other_allocations.push(Box::new([1_u8; 100]));
            }
        }
        let full_bytes = resident_bytes() - before;
        random.shuffle(&mut handles);
        assert!(handles.drain(..).all(|handle| timers.cancel(handle)));
        turn_until_memory_is_freed(&mut *timers);
        let left_bytes = resident_bytes() - before;
        println!("burst {burst}: {full_bytes} bytes, {left_bytes} left");
        assert!(full_bytes > BURST * 40, "{full_bytes} bytes for {BURST}");
        assert!(
            left_bytes <= full_bytes / 10,
            "{left_bytes} bytes left of {full_bytes} after burst {burst}"
        );
    }
}
