//! Chooses which virtual core takes the next step, and advances the clock when no core has a step
//! to take.

use std::{sync::Arc, time::Duration};

use super::core::{ReadySet, Step, StepResult};
use crate::{clock::ManualClock, local::ShardRef};

/// Decides whether the clock advances to the next deadline. The arguments are the deadline, as a
/// time of the clock, and the number of unfinished tasks.
pub(super) type ShouldAdvance = Box<dyn Fn(Duration, usize) -> bool + Send>;

/// The states of all cores after their latest steps.
pub(super) struct Scheduler {
    clock: ManualClock,
    cores: Vec<CoreState>,
    rng_state: u64,
    should_advance: ShouldAdvance,
}

/// What the scheduler knows about a virtual core.
struct CoreState {
    ready_set: Arc<ReadySet>,
    shard: ShardRef,
    /// True if the core's next turn may have an effect.
    needs_turn: bool,
    /// The time of the clock at which the core's wheel next needs a turn.
    next_turn_time: Option<Duration>,
    task_count: usize,
}

impl Scheduler {
    /// Creates a scheduler without cores. `seed` decides the order of the steps.
    pub(super) fn new(clock: ManualClock, seed: u64) -> Self {
        let should_advance = Box::new(|_, _| false);
        Self { clock, cores: Vec::new(), rng_state: seed, should_advance }
    }

    pub(super) fn add_core(&mut self, ready_set: Arc<ReadySet>, shard: ShardRef) {
        self.cores.push(CoreState {
            ready_set,
            shard,
            needs_turn: false,
            next_turn_time: None,
            task_count: 0,
        });
    }

    /// Begins a run, and chooses its first step. Requests a turn of every core, because the user
    /// may have advanced the clock, added timers, or spawned tasks since the latest run.
    pub(super) fn begin_run(&mut self, should_advance: ShouldAdvance) -> Option<(usize, Step)> {
        self.should_advance = should_advance;
        for core in &mut self.cores {
            core.needs_turn = true;
        }
        self.choose_next_step()
    }

    /// Requests a turn of each core that has a due timer or a queued message.
    fn request_needed_turns(&mut self) {
        let now = self.clock.elapsed();
        for core in &mut self.cores {
            let is_due = core.next_turn_time.is_some_and(|time| time <= now);
            core.needs_turn |= is_due || !core.shard.shared.mailbox.is_empty();
        }
    }

    /// Records the step that `core` has taken, and chooses the next step.
    pub(super) fn finish_step(&mut self, core: usize, result: StepResult) -> Option<(usize, Step)> {
        let now = self.clock.elapsed();
        let state = &mut self.cores[core];
        state.needs_turn = result.had_effect;
        state.next_turn_time = result.time_until_next.map(|wait| now.saturating_add(wait));
        state.task_count = result.task_count;
        if result.had_effect {
            self.request_needed_turns();
        }
        self.choose_next_step()
    }

    /// Chooses the next step of any core. If no step is possible, advances the clock to the next
    /// deadline and tries again. Returns `None` if `should_advance` returns false or no deadline
    /// remains.
    fn choose_next_step(&mut self) -> Option<(usize, Step)> {
        loop {
            if let Some(step) = self.choose_random_step() {
                return Some(step);
            }
            let next_turn_time = self.next_turn_time()?;
            let task_count = self.cores.iter().map(|core| core.task_count).sum();
            if !(self.should_advance)(next_turn_time, task_count) {
                return None;
            }
            self.clock.advance(next_turn_time.saturating_sub(self.clock.elapsed()));
            self.request_needed_turns();
        }
    }

    /// Chooses a core and its step pseudo-randomly. Returns `None` if no step is possible.
    fn choose_random_step(&mut self) -> Option<(usize, Step)> {
        let position = self.next_random();
        let cores = || self.cores.iter().enumerate();
        let polls = cores().filter(|(_, core)| core.ready_set.ready_count() > 0);
        let polls = polls.map(|(core, _)| (core, Step::Poll(position)));
        let turns = cores().filter(|(_, core)| core.needs_turn);
        let turns = turns.map(|(core, _)| (core, Step::Turn));
        let possible_steps: Vec<_> = polls.chain(turns).collect();
        let chosen_index = self.next_random().checked_rem(possible_steps.len())?;
        Some(possible_steps[chosen_index])
    }

    /// Returns the earliest time of the clock at which a core needs a turn. Ignores the last
    /// representable time, because the clock stops there.
    fn next_turn_time(&self) -> Option<Duration> {
        const CLOCK_MAX: Duration = Duration::from_nanos(u64::MAX);
        self.cores
            .iter()
            .filter_map(|core| core.next_turn_time)
            .min()
            .filter(|&time| time < CLOCK_MAX)
    }

    /// Returns the next pseudo-random number (`splitmix64`).
    #[allow(clippy::cast_possible_truncation)] // All bits are equally random.
    fn next_random(&mut self) -> usize {
        self.rng_state = self.rng_state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let state = self.rng_state;
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) as usize
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{future::VirtualTime, util::sync::lock};

    #[test]
    fn only_cores_with_work_take_further_steps() {
        let time = VirtualTime::with_cores(3, 0);
        time.run_until_stalled();
        let finish_step = |core, had_effect, time_until_next| {
            let result = StepResult { had_effect, time_until_next, task_count: 0 };
            lock(&time.scheduler).finish_step(core, result).map(|(core, _)| core)
        };
        assert_eq!(finish_step(0, true, None), Some(0));
        assert_eq!(finish_step(0, false, Some(Duration::from_secs(1))), None);
        time.shards()[2].run(|| ());
        assert!(matches!(finish_step(1, true, None), Some(1 | 2)));
        assert_eq!(finish_step(1, false, None), Some(2));
        assert_eq!(finish_step(2, false, None), None);
        time.clock().advance(Duration::from_secs(1));
        finish_step(2, true, None);
        assert_eq!(finish_step(2, false, None), Some(0));
    }
}
