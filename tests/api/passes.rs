//! The results of a `Shard`'s pass: payloads with their deadline and lateness, and the rest after
//! an abandoned pass.

use std::time::Duration;

use corewheel::{Config, ManualClock, Shard};

use crate::common::{TICK, on_a_thread};

/// The next pass continues an abandoned one.
#[test]
fn a_pass_that_is_given_up_loses_nothing() {
    let clock = ManualClock::new();
    let mut shard = Shard::with_config(Config::new().tick(TICK).clock(&clock)).expect("valid");
    for id in 0..10_u32 {
        shard.add(TICK * (10 - id), id);
    }
    clock.advance(TICK * 5);
    shard.turn();
    assert_eq!(shard.next_expired().map(|expired| expired.payload), Some(9));
    clock.advance(TICK * 5);
    shard.add(Duration::ZERO, 100);
    shard.turn();
    let rest: Vec<_> =
        std::iter::from_fn(|| shard.next_expired()).map(|expired| expired.payload).collect();
    assert_eq!(rest[..8], [8, 7, 6, 5, 4, 3, 2, 1]);
    let mut last = rest[8..].to_vec();
    last.sort_unstable();
    assert_eq!(last, [0, 100]);
}

/// A payload comes with its deadline and its lateness.
#[test]
fn expired_payloads_know_their_deadline() {
    let clock = ManualClock::new();
    let mut shard = Shard::with_config(Config::new().tick(TICK).clock(&clock)).expect("valid");
    let begun = clock.now();
    shard.add(Duration::from_micros(2_500), "a");
    clock.advance(Duration::from_micros(7_250));
    shard.turn();
    let expired = shard.next_expired().expect("due");
    assert_eq!(expired.deadline - begun, Duration::from_millis(3));
    assert_eq!(expired.lateness, Duration::from_micros(4_250));
    assert!(shard.next_expired().is_none());
    // A timer that anyone moves to a moment before the last turn is due at that turn.
    let turned = begun + Duration::from_millis(7);
    let own = shard.add(Duration::from_secs(60), "own");
    let moved = shard.add(Duration::from_secs(60), "elsewhere");
    assert!(shard.reset(own, begun));
    on_a_thread(|| assert!(moved.reset(begun)));
    clock.advance(TICK);
    shard.turn();
    for _ in 0..2 {
        let expired = shard.next_expired().expect("due");
        assert_eq!(
            (expired.deadline, expired.lateness),
            (turned, Duration::from_micros(1_250)),
            "{}",
            expired.payload
        );
    }
}
