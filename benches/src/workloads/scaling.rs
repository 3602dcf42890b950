//! The speed-up of a second core: the load `churn` runs on one core, and on both at once with
//! separate timers. The cores share memory, caches and power, so the speed-up of the peer `floor`
//! shows the limit of the machine.

use std::sync::Barrier;
use std::time::Duration;

use super::operations::{Churn, Delay};
use crate::cores;
use crate::measure::{
    self, ClockId, Load, Sample, median_of, run_batches, warm_up, warm_up_operations,
};
use crate::peers::Floor;
use crate::plan::Job;
use crate::timers::TimerSet;

/// How long the peer or the floor runs before the other one runs. A slice is much longer than
/// refilling the cache takes.
const SLICE: Duration = Duration::from_millis(40);

/// For each slice of a round: whether the floor runs, and the cores that take part.
const ROUND: [(bool, [bool; 2]); 6] = {
    let [first, second, both] = [[true, false], [false, true], [true, true]];
    [(false, first), (true, first), (false, both), (true, both), (false, second), (true, second)]
};

/// Operations per second in each slice of a round; 0 if the core does not take part.
type Rates = [f64; ROUND.len()];

/// Measures the speed-ups of the peer and of the floor, and their ratio.
pub fn run<T: TimerSet>(job: Job) -> Vec<Sample> {
    let barrier = Barrier::new(2);
    let core = |core| measure_rates::<T>(job, core, &barrier);
    let (first, second) = cores::run_on_two(|| core(0), || core(1));
    let rounds: Vec<_> = first.iter().zip(&second).map(|(a, b)| scalings(a, b)).collect();
    vec![
        job.sample("", "times", median_of(&rounds, |[peer_load, _]| *peer_load)),
        job.sample("empty", "times", median_of(&rounds, |[_, floor_load]| *floor_load)),
        job.sample(
            "share",
            "times",
            median_of(&rounds, |[peer_load, floor_load]| peer_load / floor_load),
        ),
    ]
}

fn measure_rates<T: TimerSet>(job: Job, core: usize, barrier: &Barrier) -> Vec<Rates> {
    let (n, durations) = (job.n, job.durations());
    let mut peer_load = Churn::<T>::new(n, Delay::MIXED);
    let mut floor_load = Churn::<Floor<false>>::new(n, Delay::MIXED);
    measure::expect_ready(warm_up(&mut peer_load, warm_up_operations(n), durations));
    measure::expect_ready(warm_up(&mut floor_load, warm_up_operations(n), durations));
    let mut run_slice = |(runs_floor, cores): (bool, [bool; 2])| {
        barrier.wait();
        match runs_floor {
            _ if !cores[core] => 0.0,
            true => measure_rate(&mut floor_load),
            false => measure_rate(&mut peer_load),
        }
    };
    (0..job.scale.pick(8, 2, 1)).map(|_| ROUND.map(&mut run_slice)).collect()
}

/// Returns operations per second of CPU time, which excludes other load on the machine.
fn measure_rate(load: &mut impl Load) -> f64 {
    let cpu_start = measure::read_clock(ClockId::ThreadCPUTime);
    let timing = measure::expect_ready(run_batches(load, u64::MAX, SLICE));
    timing.operations as f64
        / measure::read_clock(ClockId::ThreadCPUTime).saturating_sub(cpu_start).as_secs_f64()
}

/// Divides the rate of both cores by the mean rate of one core, for the peer and for the floor.
fn scalings(first: &Rates, second: &Rates) -> [f64; 2] {
    let sum = |floor_load: bool, cores: usize| -> f64 {
        let slices = (0..ROUND.len()).filter(|&slice| {
            let (runs_floor, takes_part) = ROUND[slice];
            runs_floor == floor_load && takes_part.iter().filter(|&&it| it).count() == cores
        });
        slices.map(|slice| first[slice] + second[slice]).sum()
    };
    [false, true].map(|floor_load| sum(floor_load, 2) / (sum(floor_load, 1) / 2.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaling_is_relative_to_the_mean_of_one_core() {
        // Rates of the peer: 100 and 300 alone, 120 and 200 together; of the floor: 10 and 10, 10
        // and 8.
        let first = [100.0, 10.0, 120.0, 10.0, 0.0, 0.0];
        let second = [0.0, 0.0, 200.0, 8.0, 300.0, 10.0];
        assert_eq!(scalings(&first, &second).map(f64::to_bits), [1.6, 1.8].map(f64::to_bits));
    }
}
