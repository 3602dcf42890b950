//! A failure made small: steps are left out for as long as what is left still fails.

use std::time::{Duration, Instant};

use crate::{
    conductor::Failure,
    plan::{Act, Plan, Script, Step},
};

/// How long it may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// The smallest plan that was found to fail, and how it does.
pub(crate) fn shrink(
    plan: &Plan,
    failure: Failure,
    fails: impl Fn(&Plan) -> Option<Failure>,
) -> (Plan, Failure) {
    let mut smallest =
        Smallest { plan: plan.clone(), failure, fails, until: Instant::now() + PATIENCE };
    if smallest.failure.hangs {
        return (smallest.plan, smallest.failure);
    }
    let reached = (smallest.failure.step + 1).min(plan.steps.len());
    smallest.try_steps(plan.steps[..reached].to_vec());
    smallest.leave_out();
    smallest.make_plain();
    smallest.leave_out();
    (smallest.plan, smallest.failure)
}

struct Smallest<F> {
    plan: Plan,
    failure: Failure,
    fails: F,
    until: Instant,
}

impl<F: Fn(&Plan) -> Option<Failure>> Smallest<F> {
    fn try_steps(&mut self, steps: Vec<Step>) -> bool {
        if Instant::now() > self.until {
            return false;
        }
        let plan = self.plan.with_steps(steps);
        let failure = (self.fails)(&plan);
        let still_fails = failure.is_some();
        if let Some(failure) = failure {
            (self.plan, self.failure) = (plan, failure);
        }
        still_fails
    }

    /// Leaves out as many at a time as possible, then fewer, down to single ones, until none can go.
    fn leave_out(&mut self) {
        let mut size = self.plan.steps.len().div_ceil(2).max(1);
        loop {
            let has_shrunk = self.leave_out_of_size(size);
            if size == 1 && !has_shrunk || Instant::now() > self.until {
                break;
            }
            size = size.div_ceil(2).min(self.plan.steps.len().max(1));
        }
    }

    fn leave_out_of_size(&mut self, size: usize) -> bool {
        let (mut at, mut has_shrunk) = (0, false);
        while at < self.plan.steps.len() {
            let end = (at + size).min(self.plan.steps.len());
            let mut steps = self.plan.steps.clone();
            steps.drain(at..end);
            if self.try_steps(steps) {
                has_shrunk = true;
            } else {
                at = end;
            }
        }
        has_shrunk
    }

    /// Callbacks that do nothing, floods that are none.
    fn make_plain(&mut self) {
        for at in 0..self.plan.steps.len() {
            let mut steps = self.plan.steps.clone();
            if let Some(act) = plainer(steps[at].act) {
                steps[at].act = act;
                self.try_steps(steps);
            }
        }
    }
}

fn plainer(act: Act) -> Option<Act> {
    let mut plain = act;
    match &mut plain {
        Act::Add { script, .. } | Act::AddElsewhere { script, .. } | Act::Watch { script, .. } => {
            *script = Script::Nothing;
        }
        Act::Flood { count, .. } => *count = 1,
        _ => (),
    }
    (plain != act).then_some(plain)
}
