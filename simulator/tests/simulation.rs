//! Random episodes keep the promises of a shard. A bug that is planted between the simulator and
//! the library is found, shrunk, and found again by its seed.

#[path = "../../tests/common/mod.rs"]
mod common;

use corewheel_simulator::{Bug, Coverage, Found, drawn, episode, simulate};

// Shards are numbered in the order of their creation, and spread timers depend on the number. So an
// episode repeats only while no other episode runs in the process.
use common::{alone, operations, seeded};

#[test]
fn shards_keep_their_promises_in_long_episodes() {
    let _alone = alone();
    let is_enough = |done: &Coverage| done.operations() >= operations(300_000);
    let done = simulate(0, None, is_enough);
    assert!(done.is_ok(), "{}", done.unwrap_err());
}

/// In a short episode, each clock and each shard is new, and each shard ends soon.
#[test]
fn shards_keep_their_promises_in_short_episodes() {
    let _alone = alone();
    seeded(0..operations(150), |random| {
        let length = random.usize(..300);
        let done = drawn(length, &mut |bound| random.u64(..bound));
        assert!(done.is_ok(), "{done:?}");
    });
}

/// Finds a bug, and finds it again with its seed.
fn found(bug: Bug) -> Box<Found> {
    let _alone = alone();
    let is_enough = |done: &Coverage| done.operations() >= 1_000_000;
    let found = simulate(0, Some(bug), is_enough).expect_err("there is a bug");
    let again = episode(found.seed, Some(bug)).expect_err("it is there again");
    assert_eq!((&again.failure, &again.steps), (&found.failure, &found.steps));
    found
}

#[test]
fn a_lost_cancel_is_found_and_shrunk() {
    let found = found(Bug::LosesCancels);
    // A timer, its cancel, and what shows that it lives: a drain will do.
    assert!(found.steps.len() <= 4, "{found}");
    assert!(found.steps.iter().any(|step| step.contains("Cancel")), "{found}");
    let command = format!("cargo simulate --seed {} --operations 1", found.seed);
    assert!(found.to_string().contains(&command), "{found}");
}

#[test]
fn payloads_that_are_kept_are_found_and_shrunk() {
    let found = found(Bug::KeepsPayloads);
    assert!(found.steps.len() <= 4, "{found}");
    assert!(found.failure.what.contains("were dropped"), "{found}");
}

#[test]
fn a_model_that_is_wrong_about_the_time_is_found_and_shrunk() {
    let found = found(Bug::LateTurns);
    assert!(found.steps.len() <= 3, "{found}");
    assert!(found.failure.what.contains("did not fire"), "{found}");
}

/// A seed does the same again, whatever the process has done before.
#[test]
fn an_episode_is_the_same_again() {
    let _alone = alone();
    let done = |seed| -> Coverage { episode(seed, None).unwrap_or_else(|found| panic!("{found}")) };
    let first = done(7);
    assert_ne!(done(8), first);
    assert_eq!(done(7), first);
}
