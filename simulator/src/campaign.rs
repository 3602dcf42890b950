//! Runs the episodes of consecutive seeds. If an episode fails, removes the steps that the failure
//! does not need.

use std::fmt;
use std::time::{Duration, Instant};

use crate::coverage::Coverage;
use crate::episode::{self, Failure};
use crate::plan::{Choose, Plan, Step};

/// The number of steps of an episode that is drawn from a seed.
const STEPS: usize = 40_000;

const SHRINK_TIMEOUT: Duration = Duration::from_secs(120);

/// A failure, and the steps that reproduce it.
#[derive(Clone, Debug)]
pub struct ShrunkFailure {
    /// The seed of the failed episode.
    pub seed: u64,
    /// The failure of the whole episode.
    pub failure: Failure,
    /// Ticks, limits and clocks of the episode.
    pub setting: String,
    /// The shrunk steps, which still fail.
    pub steps: Vec<String>,
    /// The failure of the shrunk steps.
    pub shrunk: Failure,
}

/// Runs the episodes of `seed` and the following seeds until `is_enough` returns true. If
/// `plants_lost_cancels` is true, a planted bug drops some remote cancels before they reach the
/// library.
pub fn simulate(
    seed: u64,
    plants_lost_cancels: bool,
    mut is_enough: impl FnMut(&Coverage) -> bool,
) -> Result<Coverage, Box<ShrunkFailure>> {
    let mut coverage = Coverage::default();
    for seed in seed.. {
        coverage.add_episode(&episode(seed, plants_lost_cancels)?);
        if is_enough(&coverage) {
            break;
        }
    }
    Ok(coverage)
}

/// Runs the episode that is drawn from `seed`, and shrinks it if it fails. If `plants_lost_cancels`
/// is true, plants the bug that [`simulate`] describes.
pub fn episode(seed: u64, plants_lost_cancels: bool) -> Result<Coverage, Box<ShrunkFailure>> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut plan = Plan::draw(STEPS, &mut |bound| random.u64(..bound));
    episode::run(&plan, plants_lost_cancels).map_err(|failure| {
        let shrunk = shrink(&mut plan, failure.clone(), plants_lost_cancels);
        let steps = plan.steps.iter().map(|step| format!("{step:?}")).collect();
        Box::new(ShrunkFailure {
            seed,
            failure,
            setting: format!("{:?}", plan.setting),
            steps,
            shrunk,
        })
    })
}

/// Runs an episode of `length` steps that `choose` draws.
pub fn run_drawn_episode(length: usize, choose: &mut Choose<'_>) -> Result<Coverage, Failure> {
    episode::run(&Plan::draw(length, choose), false)
}

/// Removes steps and simplifies arguments as long as the plan still fails. Returns the final plan's
/// failure.
fn shrink(plan: &mut Plan, mut failure: Failure, plants_lost_cancels: bool) -> Failure {
    let deadline = Instant::now() + SHRINK_TIMEOUT;
    if failure.hangs {
        return failure;
    }
    let steps_begun = failure.step + 1;
    let mut still_fails = |plan: &mut Plan, steps: Vec<Step>| {
        let shorter_plan = Plan { steps, setting: plan.setting.clone(), timers: plan.timers };
        let is_in_time = Instant::now() < deadline;
        let result =
            is_in_time.then(|| episode::run(&shorter_plan, plants_lost_cancels).err()).flatten();
        result.is_some_and(|new_failure| {
            (*plan, failure) = (shorter_plan, new_failure);
            true
        })
    };
    let steps = plan.steps.iter().take(steps_begun).copied().collect();
    still_fails(plan, steps);
    // Removes many steps at a time, then fewer, down to single ones, until none can be removed.
    let (mut removal_size, mut is_simplified) = (plan.steps.len(), false);
    loop {
        let (mut index, mut has_shrunk) = (0, false);
        while index < plan.steps.len() && Instant::now() < deadline {
            let mut steps = plan.steps.clone();
            steps.drain(index..plan.steps.len().min(index + removal_size));
            if still_fails(plan, steps) {
                has_shrunk = true;
            } else {
                index += removal_size;
            }
        }
        if removal_size == 1 && !has_shrunk {
            if is_simplified {
                break;
            }
            is_simplified = true;
            for index in 0..plan.steps.len() {
                for simpler in Step::SIMPLER {
                    let mut steps = plan.steps.clone();
                    simpler(&mut steps[index]);
                    let _ = steps != plan.steps && still_fails(plan, steps);
                }
            }
        }
        removal_size = removal_size.div_ceil(2);
    }
    failure
}

impl fmt::Display for ShrunkFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, failure, setting, steps, shrunk } = self;
        writeln!(f, "seed {seed} failed at step {}: {}", failure.step, failure.what)?;
        writeln!(f, "  these steps fail: {}", shrunk.what)?;
        writeln!(f, "    {setting}")?;
        steps.iter().try_for_each(|step| writeln!(f, "    {step}"))?;
        write!(f, "  to reproduce: cargo simulate --seed {seed} --operations 1")
    }
}
