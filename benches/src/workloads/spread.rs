//! Timers that are added at the same moment with the same delay: what their loop is spared when they are spread out.

use std::{hint::black_box, time::Instant};

use super::{SEED, pause::quantile};
use crate::{
    measure::Sample,
    timers::{Payload, Waking, payload},
};

/// One second.
const DELAY: u64 = 1000;
/// What they are spread over, in ticks.
const RANGES: [(&str, u64); 5] =
    [("0", 0), ("10ms", 10), ("100ms", 100), ("1s", 1000), ("10s", 10_000)];

/// For each range: the most timers that fire in a tick, the 99th percentile of those ticks in which any do, and the
/// longest turn.
pub fn run<T: Waking>(name: &str, n: usize) -> Vec<Sample> {
    let all = RANGES.map(|(setting, range)| {
        // Some peers are the thread's.
        super::in_thread(|| over_range::<T>(name, n, range)).map(|sample| sample.at(setting))
    });
    all.into_iter().flatten().collect()
}

fn over_range<T: Waking>(name: &str, n: usize, range: u64) -> [Sample; 3] {
    fastrand::seed(SEED);
    let mut timers = T::new();
    for id in 0..n {
        black_box(timers.add_spread(DELAY, range, payload(id)));
    }
    // Room for all, and in memory: what the caller does with them is not the peer's time.
    let mut fired: Vec<Payload> = vec![payload(0); n];
    fired.clear();
    let (mut per_tick, mut longest, mut now) = (Vec::new(), 0.0_f64, 0);
    while fired.len() < n {
        now += 1;
        let before = fired.len();
        let started = Instant::now();
        timers.advance(now, |payload| fired.push(payload));
        longest = longest.max(started.elapsed().as_nanos() as f64 / 1e3);
        per_tick.push((fired.len() - before) as f64);
    }
    per_tick.retain(|&fired| fired > 0.0);
    per_tick.sort_by(f64::total_cmp);
    [
        Sample::new(format!("{name}-most"), n, "timers", quantile(&per_tick, 1.0)),
        Sample::new(format!("{name}-p99"), n, "timers", quantile(&per_tick, 0.99)),
        Sample::new(format!("{name}-turn-max"), n, "us", longest),
    ]
}
