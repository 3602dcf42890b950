//! The findings of a run, and how they are printed.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use corewheel::Counts;
use serde::Serialize;
use serde_json::{Map, Value, from_value, to_value};

/// [`Cores::stop`](corewheel::Cores::stop) counts as three timers of each core.
const TIMERS_OF_STOP: u64 = 3;
/// The exit status of a run that failed before its end.
const EXIT_ERROR: u8 = 2;

/// The report of a run, and its failures. The verdict is "ok" if there are no failures.
#[derive(Debug, Serialize)]
pub(crate) struct Verdict<R> {
    ok: bool,
    #[serde(flatten)]
    report: R,
    failures: Vec<String>,
}

impl<R: Serialize> Verdict<R> {
    pub(crate) fn new(report: R, failures: Failures) -> Self {
        let failures = failures.into_texts();
        Self { ok: failures.is_empty(), report, failures }
    }

    fn print(&self, json: bool) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if json {
            return writeln!(out, "{}", serde_json::to_string(self)?);
        }
        let fields: Map<String, Value> = from_value(to_value(&self.report)?)?;
        for (name, value) in fields.iter().filter(|(_, value)| !value.is_array()) {
            // Removes the punctuation of JSON from an object.
            let value = value.to_string().replace(['{', '}', '"'], "");
            writeln!(out, "{name:<20} {}", value.replace(':', " ").replace(',', ", "))?;
        }
        for failure in &self.failures {
            writeln!(out, "FAILURE: {failure}")?;
        }
        writeln!(out, "{:<20} {}", "verdict", if self.ok { "ok" } else { "FAILED" })
    }
}

/// Prints the verdict of a run. Returns 0 for "ok", 1 for failures, 2 if the run was not possible.
pub(crate) fn conclude(run: io::Result<Verdict<impl Serialize>>, json: bool) -> ExitCode {
    match run.and_then(|verdict| verdict.print(json).map(|()| verdict.ok)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(EXIT_ERROR)
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Failures {
    cases: BTreeMap<&'static str, u64>,
    other_failures: Vec<String>,
}

impl Failures {
    pub(crate) fn push(&mut self, failure: String) {
        self.other_failures.push(failure);
    }

    /// Counts `cases` more cases of a failure; true counts as one case.
    pub(crate) fn add_cases(&mut self, cases: impl Into<u64>, failure: &'static str) {
        *self.cases.entry(failure).or_default() += cases.into();
    }

    pub(crate) fn into_texts(self) -> Vec<String> {
        let cases = self.cases.into_iter().filter(|(_, count)| *count > 0);
        cases.map(|(what, count)| format!("{count} {what}")).chain(self.other_failures).collect()
    }

    /// Adds a failure for each pair of unequal counts: a count of the server with its name, and a
    /// count of the clients with its name.
    pub(crate) fn expect_equal(&mut self, counts: &[(&str, u64, &str, u64)]) {
        let wrong = counts.iter().filter(|(_, counted, _, seen)| counted != seen);
        self.other_failures.extend(wrong.map(|(what, counted, seen_as, seen)| {
            format!("the server counts {counted} {what}, the clients saw {seen} {seen_as}")
        }));
    }
}

/// The sums of all cores' timer counts, without the timers of `Cores::stop`.
#[derive(Debug, Default, Serialize)]
pub(crate) struct TimerTotals {
    pub(crate) added: u64,
    pub(crate) fired: u64,
    pub(crate) cancelled: u64,
    pub(crate) handed_back: u64,
    pub(crate) live: u64,
}

impl TimerTotals {
    /// Adds the counts of one core. Checks that these counts add up and no callback has panicked.
    pub(crate) fn add(&mut self, core: usize, counts: &Counts, failures: &mut Failures) {
        if counts.added != counts.live + counts.fired + counts.cancelled + counts.handed_back {
            failures.push(format!("core {core}: the counts do not add up: {counts:?}"));
        }
        if counts.panicked > 0 {
            failures.push(format!("core {core}: {} callbacks panicked", counts.panicked));
        }
        self.added += counts.added.saturating_sub(TIMERS_OF_STOP);
        self.fired += counts.fired.saturating_sub(TIMERS_OF_STOP);
        self.cancelled += counts.cancelled;
        self.handed_back += counts.handed_back;
        self.live += counts.live;
    }
}

/// Percentiles of the lateness, in microseconds.
#[derive(Debug, Serialize)]
pub(crate) struct LatenessPercentiles {
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) p999: u64,
    pub(crate) max: u64,
    pub(crate) limit_p99: u64,
}

impl LatenessPercentiles {
    pub(crate) fn new(latenesses: impl Iterator<Item = Duration>, limit: Duration) -> Self {
        let mut sorted: Vec<u64> = latenesses.map(micros).collect();
        sorted.sort_unstable();
        let per_mille = |share: usize| {
            let rank = (sorted.len() * share).div_ceil(1_000);
            rank.checked_sub(1).map_or(0, |index| sorted[index])
        };
        Self {
            p50: per_mille(500),
            p99: per_mille(990),
            p999: per_mille(999),
            max: per_mille(1_000),
            limit_p99: micros(limit),
        }
    }

    pub(crate) fn check_percentile(&self, failures: &mut Failures) {
        let Self { p99, limit_p99, .. } = self;
        if p99 > limit_p99 {
            failures.push(format!("the p99 of the lateness is {p99} us, over {limit_p99} us"));
        }
    }
}

pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
