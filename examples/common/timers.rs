//! What the timers of all cores do, in lines for a live view: how many there are and what becomes of them, how late they fire, and
//! how full the levels of their wheels are.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use corewheel::Counts;
use corewheel::metrics::{self, Level, ShardMetrics};

/// Remembers what it has seen last, to say how fast it goes on.
#[derive(Default)]
pub(crate) struct Timers {
    seen: HashMap<u32, (Instant, Counts)>,
}

impl Timers {
    /// Three lines for each core, in the order of the cores.
    pub(crate) fn lines(&mut self) -> Vec<String> {
        let mut cores = metrics::shards();
        cores.sort_by_key(|core| (core.name.len(), core.name.clone()));
        cores.iter().flat_map(|core| [self.traffic(core), lateness(core), levels(core)]).collect()
    }

    /// How many timers there are, and what has become of others per second since the last look.
    fn traffic(&mut self, core: &ShardMetrics) -> String {
        let (now, counts) = (Instant::now(), core.counts);
        let (then, before) = self.seen.insert(core.number, (now, counts)).unwrap_or((now, counts));
        let per_second = |count: fn(&Counts) -> u64| {
            rate(count(&counts).saturating_sub(count(&before)), now - then)
        };
        format!(
            "{}: {:>7} live, {:>3} in the mailbox; per second {:>8} added {:>8} moved {:>8} cancelled {:>8} fired",
            core.name,
            counts.live,
            counts.queued,
            per_second(|counts| counts.added),
            per_second(|counts| counts.resets + counts.resets_elsewhere),
            per_second(|counts| counts.cancelled),
            per_second(|counts| counts.runs),
        )
    }
}

fn rate(count: u64, elapsed: Duration) -> u64 {
    let nanos = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX).max(1);
    count.saturating_mul(1_000_000_000) / nanos
}

/// How late the loop is for its timers, and how long they keep it.
fn lateness(core: &ShardMetrics) -> String {
    let late = |percent| core.loop_lateness.percentile(percent).as_micros();
    format!(
        "    late {:>5} us by the median, {:>6} by p99, {:>6} by p99.9; the longest turn took {:>6} us",
        late(50.0),
        late(99.0),
        late(99.9),
        core.longest_turn.as_micros(),
    )
}

/// In how many slots of each level there are timers; the levels that nobody uses are left out.
fn levels(core: &ShardMetrics) -> String {
    let used =
        core.levels.iter().enumerate().filter(|&(number, level)| number < 2 || level.occupied > 0);
    let levels: Vec<String> = used.map(|(_, level)| describe(level)).collect();
    // A loop says so when it has been asked, and turns.
    let levels = if levels.is_empty() { "not said yet".to_owned() } else { levels.join(", ") };
    format!("    slots in use: {levels}")
}

fn describe(level: &Level) -> String {
    format!("{} of {} of {}", level.occupied, level.slots, in_words(level.slot))
}

/// A duration in the largest unit of which there is one.
fn in_words(duration: Duration) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms")];
    let millis = duration.as_millis();
    let unit = units.iter().find(|&&(unit, _)| millis >= unit);
    unit.map_or_else(|| format!("{duration:?}"), |(unit, name)| format!("{} {name}", millis / unit))
}
