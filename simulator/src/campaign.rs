//! Episode after episode, each from the next seed.

use std::{
    fmt,
    time::{Duration, Instant},
};

use crate::{
    bug::Bug,
    conductor::{self, Failure},
    coverage::Coverage,
    plan::{self, Plan},
    shrink::shrink,
    table::grouped,
};

/// How much to simulate: until either is reached.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Operations.
    pub operations: u64,
    /// Real time.
    pub time: Duration,
}

/// A failure and how to see it again.
#[derive(Clone, Debug)]
pub struct Found {
    /// Of its episode.
    pub seed: u64,
    /// As it was found.
    pub failure: Failure,
    /// Ticks, limits and clocks of the episode.
    pub setting: String,
    /// As few steps as were found to fail, and how they do.
    pub steps: Vec<String>,
    /// How they fail.
    pub shrunk: Failure,
}

/// Simulates from `seed` on; `progress` is told now and then.
///
/// # Errors
///
/// If something was wrong.
pub fn simulate(
    seed: u64,
    extent: Extent,
    bug: Option<Bug>,
    mut progress: impl FnMut(&Coverage),
) -> Result<Coverage, Box<Found>> {
    let (begun, mut coverage) = (Instant::now(), Coverage::default());
    for seed in seed.. {
        coverage.join(&episode(seed, bug)?);
        progress(&coverage);
        if coverage.operations() >= extent.operations || begun.elapsed() >= extent.time {
            break;
        }
    }
    Ok(coverage)
}

/// The episode of a seed.
///
/// # Errors
///
/// If something was wrong.
pub fn episode(seed: u64, bug: Option<Bug>) -> Result<Coverage, Box<Found>> {
    let plan = plan::draw(seed);
    conductor::run(&plan, bug).map_err(|failure| Box::new(Found::new(seed, &plan, failure, bug)))
}

impl Found {
    fn new(seed: u64, plan: &Plan, failure: Failure, bug: Option<Bug>) -> Self {
        let (smallest, shrunk) =
            shrink(plan, failure.clone(), |plan| conductor::run(plan, bug).err());
        let steps = smallest.steps.iter().map(ToString::to_string).collect();
        let setting = smallest.setting.to_string();
        Self { seed, failure, setting, steps, shrunk }
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, failure, setting, steps, shrunk } = self;
        writeln!(
            f,
            "seed {seed} failed at step {}: {}",
            grouped(failure.step as u64),
            failure.what
        )?;
        writeln!(f, "  so few steps fail: {}", shrunk.what)?;
        writeln!(f, "    {setting}")?;
        steps.iter().try_for_each(|step| writeln!(f, "    {step}"))?;
        write!(f, "  to see it again: cargo xtask simulate --seed {seed} --operations 1")
    }
}
