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

/// How long one load runs before the next one; much longer than refilling the cache takes.
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
    let core = |core| rates::<T>(job, core, &barrier);
    let (first, second) = cores::on_two(|| core(0), || core(1));
    let rounds: Vec<_> = first.iter().zip(&second).map(|(a, b)| scalings(a, b)).collect();
    vec![
        job.sample("", "times", median_of(&rounds, |[own, _]| *own)),
        job.sample("empty", "times", median_of(&rounds, |[_, empty]| *empty)),
        job.sample("share", "times", median_of(&rounds, |[own, empty]| own / empty)),
    ]
}

fn rates<T: TimerSet>(job: Job, core: usize, barrier: &Barrier) -> Vec<Rates> {
    let (n, durations) = (job.n, job.durations());
    let mut own = Churn::<T>::new(n, Delay::MIXED);
    let mut empty = Churn::<Floor<false>>::new(n, Delay::MIXED);
    measure::poll_ready(warm_up(&mut own, warm_up_operations(n), durations));
    measure::poll_ready(warm_up(&mut empty, warm_up_operations(n), durations));
    let mut slice = |(is_empty, cores): (bool, [bool; 2])| {
        barrier.wait();
        match is_empty {
            _ if !cores[core] => 0.0,
            true => rate(&mut empty),
            false => rate(&mut own),
        }
    };
    (0..job.scale.pick(8, 2, 1)).map(|_| ROUND.map(&mut slice)).collect()
}

/// Returns operations per second of CPU time, which excludes other load on the machine.
fn rate(load: &mut impl Load) -> f64 {
    let ran = measure::read_clock(ClockId::ThreadCPUTime);
    let timing = measure::poll_ready(run_batches(load, u64::MAX, SLICE));
    timing.operations as f64
        / measure::read_clock(ClockId::ThreadCPUTime).saturating_sub(ran).as_secs_f64()
}

/// Divides the rate of both cores by the mean rate of one core, for the peer and for the floor.
fn scalings(first: &Rates, second: &Rates) -> [f64; 2] {
    let sum = |empty: bool, cores: usize| -> f64 {
        let turns = (0..ROUND.len()).filter(|&turn| {
            let (is_empty, takes_part) = ROUND[turn];
            is_empty == empty && takes_part.iter().filter(|&&it| it).count() == cores
        });
        turns.map(|turn| first[turn] + second[turn]).sum()
    };
    [false, true].map(|empty| sum(empty, 2) / (sum(empty, 1) / 2.0))
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
