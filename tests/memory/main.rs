//! Memory, counted by an allocator: it is bounded (P8), and the steady state neither allocates nor
//! frees (P4).
#![cfg(all(feature = "cores", feature = "futures", feature = "purgatory"))]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/counting.rs"]
mod counting;
#[path = "../common/kinds.rs"]
mod kinds;
#[path = "../common/lockstep.rs"]
mod lockstep;
#[path = "../common/operation.rs"]
mod operation;
#[path = "../common/polling.rs"]
mod polling;

mod purgatory;
mod remote;
mod steady;
mod timers;

use std::hint::black_box;

use common::{
    HOUR, TICK, cancel_all, cancel_all_remotely, in_virtual_time, must_not_run, on_a_thread,
    run_alone, scaled,
};
use corewheel::{ManualClock, ShardRef, TimerHandle, Turn, local_timer};
use counting::{allocated_bytes, allocator_calls};
use kinds::{for_each_kind, for_each_shard};

/// Runs a test in virtual time and alone, because the tests count the memory of all threads.
fn run_alone_in_virtual_time(test: impl FnOnce(&ManualClock) + Send) {
    let _alone = run_alone();
    free_garbage();
    in_virtual_time(test);
}

/// Returns an ended wheel, and the handles of timers that another thread had added to it.
fn ended_wheel(timers: usize) -> (ShardRef, Vec<TimerHandle>) {
    on_a_thread(|| {
        let shard = local_timer().shard_ref();
        let add = || (0..timers).map(|_| shard.add(TICK * 1_000_000, small_callback())).collect();
        let handles = on_a_thread(add);
        local_timer().turn();
        (shard, handles)
    })
}

/// Ends some wheels, which also frees the epoch garbage of earlier wheels.
fn free_garbage() {
    (0..10).for_each(|_| drop(ended_wheel(1)));
}

/// Allocates the spare pages in advance, so that a test does not count them as left by its burst.
fn allocate_spare_pages() {
    let core = local_timer().shard_ref();
    let add = || (0..8_192).map(|_| core.add(HOUR, small_callback())).collect::<Vec<_>>();
    let handles = [add(), on_a_thread(add)];
    while local_timer().turn().behind {}
    cancel_all(&handles.concat());
    local_timer().turn();
}

fn to_i64(count: usize) -> i64 {
    i64::try_from(count).expect("small")
}

/// Advances the clock, and turns until no message or due timer is left.
fn turn_after(clock: &ManualClock, ticks: u32) -> Turn {
    clock.advance(TICK * ticks);
    loop {
        let turn = local_timer().turn();
        if !turn.behind {
            return turn;
        }
    }
}

/// Returns a callback that is stored inline.
fn small_callback() -> impl FnOnce() + Send + 'static {
    let captured = [7_u64; 4];
    move || _ = black_box(captured)
}
