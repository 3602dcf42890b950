//! Exports metrics to the recorder of the `metrics` facade.

use std::{collections::HashMap, fmt, mem, sync::Arc, time::Duration};

use ::metrics::{
    Label, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};

use super::{Counts, Histogram, ShardMetrics};
use crate::cross_core::{reclaim::pin, registry, shared::Shared};

/// A counter's name, the value of its label `by`, and the function that reads the counter.
type CounterSpec = (&'static str, Option<&'static str>, fn(&ShardMetrics) -> u64);

const COUNTERS: [CounterSpec; 13] = [
    ("corewheel_added_total", None, |shard| shard.counts.added),
    ("corewheel_fired_total", None, |shard| shard.counts.fired),
    ("corewheel_cancelled_total", Some("own"), |it| it.counts.cancelled - it.counts.remote_cancels),
    ("corewheel_cancelled_total", Some("other"), |shard| shard.counts.remote_cancels),
    ("corewheel_resets_total", Some("own"), |shard| shard.counts.resets),
    ("corewheel_resets_total", Some("other"), |shard| shard.counts.remote_resets),
    ("corewheel_handed_back_total", None, |shard| shard.counts.handed_back),
    ("corewheel_runs_total", None, |shard| shard.counts.runs),
    ("corewheel_turns_total", None, |shard| shard.counts.turns),
    ("corewheel_turns_behind_total", None, |shard| shard.counts.turns_behind),
    ("corewheel_panics_total", None, |shard| shard.counts.panicked),
    ("corewheel_clock_regressions_total", None, |shard| shard.counts.clock_regressions),
    ("corewheel_stalls_total", None, |shard| shard.stalls),
];

/// A histogram's name, the value of its label `by`, and the function that reads the histogram.
type HistogramSpec = (&'static str, Option<&'static str>, fn(&ShardMetrics) -> &Histogram);

const HISTOGRAMS: [HistogramSpec; 3] = [
    ("corewheel_lateness_seconds", Some("loop"), |shard| &shard.loop_lateness),
    ("corewheel_lateness_seconds", Some("leftover"), |shard| &shard.leftover_lateness),
    ("corewheel_callback_seconds", None, |shard| &shard.callback_durations),
];

/// Exports the metrics of all shards to the recorder of the [`metrics`](https://docs.rs/metrics)
/// facade. Needs the feature `metrics`.
///
/// Call [`export`](Self::export) every few seconds, always on the same exporter. Each call exports
/// the changes since the previous call. The first call after a shard's end sets the shard's gauges
/// to zero. A shard that begins and ends between two calls is not exported.
///
/// Install the recorder before the call of [`Exporter::new`](Self::new). For Prometheus, use a
/// version of `metrics-exporter-prometheus` that depends on corewheel's version of `metrics`; then
/// `cargo tree --duplicates` does not list `metrics`. The Prometheus recorder exports histograms as
/// summaries, unless the program sets the ranges of their cells in the recorder's builder.
///
/// Do not call `export` on a busy core: many recorders record each fired timer separately.
///
/// Every metric has the labels `shard` and `name`.
///
/// * Counters: `corewheel_added_total`, `corewheel_fired_total`, `corewheel_handed_back_total`,
///   `corewheel_runs_total`, `corewheel_turns_total`, `corewheel_turns_behind_total`,
///   `corewheel_panics_total`, `corewheel_clock_regressions_total` and `corewheel_stalls_total`.
///   `corewheel_cancelled_total` and `corewheel_resets_total` have the label `by`, which is `own`
///   for the owner and `other` for other threads.
/// * Gauges: `corewheel_live`, `corewheel_queued`, `corewheel_longest_turn_seconds` and
///   `corewheel_overdue_seconds`.
/// * Histograms: `corewheel_callback_seconds`, for measured callbacks, and
///   `corewheel_lateness_seconds`. The label `by` of `corewheel_lateness_seconds` is `loop` for
///   [`loop_lateness`](ShardMetrics::loop_lateness) and `leftover` for
///   [`leftover_lateness`](ShardMetrics::leftover_lateness). Durations up to 73 minutes are rounded
///   up, by at most a quarter or 1,023 ns, whichever is more.
///
/// # Examples
///
/// ```
/// use corewheel::metrics::Exporter;
/// use std::{thread, time::Duration};
///
/// thread::spawn(|| {
///     let mut exporter = Exporter::new();
///     loop {
///         exporter.export();
///         thread::sleep(Duration::from_secs(10));
///     }
/// });
/// ```
pub struct Exporter {
    /// The metrics of each shard at its latest export, keyed by the shard's serial.
    last_exported: HashMap<u64, (ShardMetrics, Arc<Shared>)>,
}

impl Exporter {
    /// Creates an exporter, and describes the metrics to the recorder.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::metrics::Exporter;
    ///
    /// let mut exporter = Exporter::new(); // after the recorder is installed
    /// exporter.export();
    /// ```
    pub fn new() -> Self {
        describe_counter!("corewheel_added_total", "timers added");
        describe_counter!("corewheel_fired_total", "timers that ended by firing");
        describe_counter!("corewheel_cancelled_total", "timers cancelled");
        describe_counter!("corewheel_resets_total", "timers reset to another deadline");
        describe_counter!(
            "corewheel_handed_back_total",
            "timers handed back at the end of a shard"
        );
        describe_counter!("corewheel_runs_total", "callbacks run and payloads handed out");
        describe_counter!("corewheel_turns_total", "turns of the loop");
        describe_counter!("corewheel_turns_behind_total", "turns that did not finish");
        describe_counter!(
            "corewheel_panics_total",
            "panics caught in callbacks, destructors and hooks"
        );
        describe_counter!(
            "corewheel_clock_regressions_total",
            "readings of the clock that were earlier than a previous reading"
        );
        describe_counter!("corewheel_stalls_total", "detected stalls of a loop");
        describe_gauge!("corewheel_live", "timers that have not ended");
        describe_gauge!(
            "corewheel_queued",
            "messages from other threads that the owner has not processed"
        );
        describe_gauge!("corewheel_longest_turn_seconds", Unit::Seconds, "the longest turn so far");
        describe_gauge!(
            "corewheel_overdue_seconds",
            Unit::Seconds,
            "how long ago the next turn was due"
        );
        describe_histogram!(
            "corewheel_lateness_seconds",
            Unit::Seconds,
            "time from the deadline to the turn that fired the timer"
        );
        describe_histogram!(
            "corewheel_callback_seconds",
            Unit::Seconds,
            "durations of the measured callbacks"
        );
        Self { last_exported: HashMap::new() }
    }

    /// Exports the changes since the previous call. If the recorder panics, some changes are lost,
    /// but none is exported twice.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{local_timer, metrics::Exporter};
    /// use std::time::Duration;
    ///
    /// let mut exporter = Exporter::new();
    /// local_timer().add(Duration::from_millis(5), || ());
    /// while !local_timer().is_empty() {
    ///     local_timer().prepare_sleep().park();
    ///     local_timer().turn();
    ///     exporter.export();
    /// }
    /// ```
    pub fn export(&mut self) {
        // Exports ended shards first, so that resetting their gauges does not overwrite the gauges
        // of a new shard with the same number and name.
        self.last_exported.retain(|&serial, (exported_metrics, shared)| {
            let is_registered = registry::find_shard(exported_metrics.number, &pin())
                .is_some_and(|current| current.serial == serial);
            if is_registered {
                return true;
            }
            let final_metrics = ShardMetrics::of(shared);
            let previous = mem::replace(exported_metrics, final_metrics.clone());
            export_changes(&final_metrics, Some(&previous));
            export_gauges(&ShardMetrics {
                counts: Counts::default(),
                longest_turn: Duration::ZERO,
                overdue: Duration::ZERO,
                ..final_metrics
            });
            // Removes the shard only after its last export, so that after a panic of the recorder,
            // the next call sets the shard's gauges to zero.
            false
        });
        for number in registry::ever_used_shard_numbers() {
            let Some(shared) = registry::find_shard_arc(number) else { continue };
            let (current, serial) = (ShardMetrics::of(&shared), shared.serial);
            let previous = self.last_exported.insert(serial, (current.clone(), shared));
            export_changes(&current, previous.as_ref().map(|(previous, _)| previous));
            export_gauges(&current);
        }
    }
}

impl Default for Exporter {
    fn default() -> Self {
        Self::new()
    }
}

fn labels(shard: &ShardMetrics, by: Option<&'static str>) -> Vec<Label> {
    let number = Label::new("shard", shard.number.to_string());
    let name = Label::new("name", shard.name.clone());
    [number, name].into_iter().chain(by.map(|by| Label::from_static_parts("by", by))).collect()
}

fn export_changes(current: &ShardMetrics, previous: Option<&ShardMetrics>) {
    for (name, by, read_count) in COUNTERS {
        let change = read_count(current).saturating_sub(previous.map_or(0, read_count));
        counter!(name, labels(current, by)).increment(change);
    }
    for (name, by, read_histogram) in HISTOGRAMS {
        let recorder = histogram!(name, labels(current, by));
        let change =
            read_histogram(current).since(previous.map_or(&Histogram::default(), read_histogram));
        for (duration, count) in change.ranges() {
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            recorder.record_many(duration.as_secs_f64(), count);
        }
    }
}

fn export_gauges(current: &ShardMetrics) {
    // An `f64` represents each count up to 2^53 exactly.
    #[allow(clippy::cast_precision_loss)]
    let [live, queued] = [current.counts.live, current.counts.queued].map(|count| count as f64);
    for (name, value) in [
        ("corewheel_live", live),
        ("corewheel_queued", queued),
        ("corewheel_longest_turn_seconds", current.longest_turn.as_secs_f64()),
        ("corewheel_overdue_seconds", current.overdue.as_secs_f64()),
    ] {
        gauge!(name, labels(current, None)).set(value);
    }
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporter")
            .field("shards", &self.last_exported.len())
            .finish_non_exhaustive()
    }
}
