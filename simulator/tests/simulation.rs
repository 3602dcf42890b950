//! Shards keep their promises in random episodes, which are runs of simulated cores. A planted bug
//! is found, shrunk and reproduced.

#[path = "../../tests/common/mod.rs"]
mod common;

use corewheel_simulator::{Coverage, episode, run_drawn_episode, simulate};

// Spread timers depend on shard numbers, so an episode is reproducible only if no other one is
// running.
use common::{run_alone, scaled, seeded};

#[test]
fn shards_keep_their_promises_in_long_episodes() {
    let _alone = run_alone();
    let is_enough = |done: &Coverage| done.operations() >= scaled(300_000);
    let done = simulate(0, false, is_enough).unwrap_or_else(|found| panic!("{found}"));
    assert!(done.missing().is_empty(), "these never occurred: {:?}", done.missing());
}

#[test]
fn shards_keep_their_promises_in_short_episodes() {
    let _alone = run_alone();
    seeded(0..scaled(150), |random| {
        let length = random.usize(..300);
        let done = run_drawn_episode(length, &mut |bound| random.u64(..bound));
        assert!(done.is_ok(), "{done:?}");
    });
}

#[test]
fn a_planted_bug_is_found_shrunk_and_reproduced() {
    let _alone = run_alone();
    let is_enough = |done: &Coverage| done.operations() >= 1_000_000;
    let found = simulate(0, true, is_enough).expect_err("a planted bug");
    // Four steps suffice: an add, a share of the handle if the add is local, a remote cancel, and a
    // step that finds the timer still live.
    assert!(found.steps.len() <= 4, "{found}");
    assert!(found.steps.iter().any(|step| step.contains("Cancel")), "{found}");
    let command = format!("cargo simulate --seed {} --operations 1", found.seed);
    assert!(found.to_string().contains(&command), "{found}");
    let again = episode(found.seed, true).expect_err("the same bug");
    assert_eq!((&again.failure, &again.steps), (&found.failure, &found.steps));
}

#[test]
fn an_episode_is_determined_by_its_seed() {
    let _alone = run_alone();
    let done = |seed| episode(seed, false).unwrap_or_else(|found| panic!("{found}"));
    let first = done(7);
    assert_ne!(done(8), first);
    assert_eq!(done(7), first);
}
