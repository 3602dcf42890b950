//! Loops that sleep, timers with slack, spread timers and budgets: right before they are measured.

use std::thread;

use corewheel_bench::{
    peers::{BTree, CorewheelLocal, CorewheelShard, CorewheelWheel, Linked64},
    timers::{Timers, Waking, Window, connection, payload},
};
use fastrand::Rng;

const TIMERS: usize = 5000;
const LONGEST: u64 = 200_000;

/// Wakes up only when the peer says so; when each timer fired.
fn sleep_through(mut timers: impl Waking) -> Vec<u64> {
    let mut fired = vec![0; TIMERS];
    let mut now = 0;
    while let Some(next) = timers.next_deadline() {
        assert!(next > now, "nothing is left to do at {now}");
        now = next;
        timers.advance(now, |payload| {
            assert_eq!(std::mem::replace(&mut fired[connection(payload)], now), 0);
        });
    }
    fired
}

/// Each timer fires in its window, though the loop sleeps; an exact one in its tick.
fn keeps_windows<T: Waking>(window: fn(u64) -> Window) {
    let (mut timers, mut rng) = (T::new(), Rng::with_seed(3));
    let windows: Vec<(u64, u64)> = (0..TIMERS)
        .map(|id| (rng.u64(1..LONGEST), if id % 3 == 0 { 0 } else { rng.u64(..LONGEST / 10) }))
        .collect();
    for (id, &(deadline, width)) in windows.iter().enumerate() {
        timers.add_in(deadline, window(width), payload(id));
    }
    for ((deadline, width), fired) in windows.into_iter().zip(sleep_through(timers)) {
        assert!((deadline..=deadline + width).contains(&fired), "{deadline} + {width}: {fired}");
    }
}

/// Each has a thread, because some peers are thread-local.
fn check<T: Waking + 'static>() {
    for window in [Window::Slack, Window::Spread] {
        thread::spawn(move || keeps_windows::<T>(window)).join().expect("in its window");
    }
}

#[test]
fn timers_fire_in_their_windows() {
    check::<CorewheelWheel>();
    check::<CorewheelShard>();
    check::<CorewheelLocal>();
    check::<Linked64>();
    check::<BTree>();
}

/// A turn uses its budget, and the rest comes next, in order.
fn keeps_budget<T: Timers>() {
    const BUDGET: usize = 7;
    let mut timers = T::new();
    for id in 0..TIMERS {
        timers.add(10 + id as u64 / 100, payload(id));
    }
    let mut fired = Vec::new();
    for turn in 0.. {
        let before = fired.len();
        timers.advance_within(1000 + turn, BUDGET, |payload| fired.push(connection(payload) / 100));
        assert!(fired.len() - before <= BUDGET, "turn {turn}");
        if fired.len() == TIMERS {
            break;
        }
        assert!(turn < TIMERS as u64, "what has been left does not come");
    }
    assert!(fired.is_sorted());
}

#[test]
fn corewheel_keeps_budgets() {
    keeps_budget::<CorewheelWheel>();
    keeps_budget::<CorewheelShard>();
    thread::spawn(keeps_budget::<CorewheelLocal>).join().expect("within its budget");
}
