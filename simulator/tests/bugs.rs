//! The simulation finds what is wrong, makes it small, and does the same twice. The bugs are planted between it and the
//! library.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use corewheel_simulator::{Bug, Extent, Found, episode, simulate};

/// Shards are numbered in the order in which the process makes them, and the numbers say where spread timers go: an episode is
/// the same again only where no other one runs beside it.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is found where there is a bug. In few steps; and it is there again with the seed that is named.
fn found(bug: Bug) -> Box<Found> {
    let _alone = alone();
    let extent = Extent { operations: 1_000_000, time: Duration::MAX };
    let found = simulate(0, extent, Some(bug), |_| ()).expect_err("there is a bug");
    let again = episode(found.seed, Some(bug)).expect_err("it is there again");
    assert_eq!(
        (again.failure.step, &again.failure.what),
        (found.failure.step, &found.failure.what)
    );
    assert_eq!(again.steps, found.steps);
    found
}

#[test]
fn a_cancel_that_is_lost_is_found_and_shrunk() {
    let found = found(Bug::LosesCancels);
    // A timer, its cancel, and what shows that it lives: a drain will do.
    assert!(found.steps.len() <= 4, "{found}");
    assert!(found.steps.iter().any(|step| step.contains("Cancel")), "{found}");
    let text = found.to_string();
    assert!(
        text.contains(&format!("cargo xtask simulate --seed {} --operations 1", found.seed)),
        "{text}"
    );
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

/// The same seed does the same, whatever was done before it in the same process.
#[test]
fn an_episode_is_the_same_again() {
    let _alone = alone();
    let done = |seed| episode(seed, None).unwrap_or_else(|found| panic!("{found}")).json();
    let first = done(7);
    assert_ne!(done(8), first);
    assert_eq!(done(7), first);
}
