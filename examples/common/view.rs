//! The live view of each core's timers, redrawn in place on a terminal, and printed periodically
//! elsewhere.

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use corewheel::Counts;
use corewheel::metrics::{self, ShardMetrics};
use indicatif::{ProgressBar, ProgressStyle};

const REDRAW_INTERVAL: Duration = Duration::from_millis(250);
const PRINT_INTERVAL: Duration = Duration::from_secs(3);
/// The interval at which the view checks for its next update and for the end of the run.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Shows the summary and the timers until the run is over; if quiet, only waits. `run_time` is the
/// expected length of the run.
pub(crate) fn show_until(
    is_over: impl Fn() -> bool,
    run_time: Duration,
    summary: &str,
    is_quiet: bool,
) {
    if is_quiet {
        while !is_over() {
            thread::sleep(POLL_INTERVAL);
        }
        return;
    }
    let style = ProgressStyle::with_template("{elapsed:>4} {wide_bar}\n{msg}");
    let style = style.expect("the template is a valid constant");
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let bar = ProgressBar::new(millis(run_time)).with_style(style);
    let pause = if bar.is_hidden() { PRINT_INTERVAL } else { REDRAW_INTERVAL };
    let (start, mut last_counts, mut next) = (Instant::now(), HashMap::new(), Duration::ZERO);
    loop {
        let (is_over, now) = (is_over(), start.elapsed());
        if is_over || now >= next {
            next = now + pause;
            // Requests the occupied slots, which a loop publishes in its next turn.
            drop(metrics::shards());
            thread::sleep(POLL_INTERVAL);
            let text = format!("{summary}\n{}", describe_cores(&mut last_counts));
            if bar.is_hidden() {
                eprintln!("{:.1} s  {text}", now.as_secs_f64());
            } else {
                bar.set_position(millis(now));
                bar.set_message(text);
            }
        }
        if is_over {
            // Leaves the last view on the terminal, above the verdict.
            bar.abandon();
            eprintln!();
            return;
        }
        thread::sleep(POLL_INTERVAL);
    }
}

fn describe_cores(last_counts: &mut HashMap<u32, (Instant, Counts)>) -> String {
    let mut cores = metrics::shards();
    cores.sort_by_key(|core| (core.name.len(), core.name.clone()));
    let describe = |core: &ShardMetrics| {
        let now = (Instant::now(), core.counts);
        let before = last_counts.insert(core.number, now).unwrap_or(now);
        format!("{}\n{}\n{}", traffic(core, before), lateness(core), levels(core))
    };
    cores.iter().map(describe).collect::<Vec<_>>().join("\n")
}

fn traffic(core: &ShardMetrics, (previous_time, previous_counts): (Instant, Counts)) -> String {
    let (millis, counts) = (previous_time.elapsed().as_millis().max(1), core.counts);
    let per_second = |count: fn(&Counts) -> u64| {
        u128::from(count(&counts).saturating_sub(count(&previous_counts))) * 1_000 / millis
    };
    format!(
        "{}: {:>7} live, {:>3} in the mailbox; per second {:>8} added {:>8} moved {:>8} cancelled {:>8} fired",
        core.name,
        counts.live,
        counts.queued,
        per_second(|counts| counts.added),
        per_second(|counts| counts.resets + counts.remote_resets),
        per_second(|counts| counts.cancelled),
        per_second(|counts| counts.runs),
    )
}

fn lateness(core: &ShardMetrics) -> String {
    let late = |percent| core.loop_lateness.percentile(percent).as_micros();
    format!(
        "    late p50 {:>5} us, p99 {:>6} us, p99.9 {:>6} us; the longest turn took {:>6} us",
        late(50.0),
        late(99.0),
        late(99.9),
        core.longest_turn.as_micros(),
    )
}

/// Formats the numbers of occupied slots of the first two levels, and of other levels in use.
fn levels(core: &ShardMetrics) -> String {
    let used = core.levels.iter().zip(0..).filter(|(level, at)| *at < 2 || level.occupied > 0);
    let levels: Vec<_> = used
        .map(|(level, _)| {
            format!("{} of {} of {:?}", level.occupied, level.slot_count, level.slot_span)
        })
        .collect();
    let levels = if levels.is_empty() { "not published yet".to_owned() } else { levels.join(", ") };
    format!("    slots in use: {levels}")
}
