//! The verdict: whether every request was answered exactly once, and as it must be, and how late the time-outs were. It
//! is computed from what the clients have seen by their own clocks; what the server has counted must agree with that.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::accounts::Accounts;
use crate::client::{Client, Expected, Record};
use crate::event_loop::CoreReport;
use crate::wire::What;

/// What is later still is recorded as this late: an hour, which is over any limit.
const LONGEST_LATENESS_US: u64 = 3_600_000_000;

/// All that is known when the run is over.
pub(crate) struct Evidence {
    pub(crate) clients: Vec<Client>,
    /// The longest that a thread of the load was held up.
    pub(crate) held_up: Duration,
    /// What each core has to say, or what has become of it.
    pub(crate) cores: Vec<Result<CoreReport, String>>,
    pub(crate) timeout: Duration,
    pub(crate) late_limit: Duration,
}

#[derive(Debug, Serialize)]
pub(crate) struct Verdict {
    pub(crate) ok: bool,
    pub(crate) connections: usize,
    #[serde(flatten)]
    pub(crate) answers: Answers,
    pub(crate) lateness_us: Lateness,
    pub(crate) server: Accounts,
    /// Why it is not ok, in words.
    pub(crate) failures: Vec<String>,
}

/// What the clients have seen.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Answers {
    pub(crate) requests: u64,
    /// By kind: `[requests, timed out]`.
    pub(crate) produces: [u64; 2],
    pub(crate) fetches: [u64; 2],
    pub(crate) follows: [u64; 2],
    pub(crate) joins: [u64; 2],
    /// Answers, of each kind.
    pub(crate) completed_by_condition: u64,
    pub(crate) timed_out: u64,
    /// Requests that were told they had completed, and that they had timed out.
    pub(crate) both: u64,
    /// Those that were told the same twice.
    pub(crate) answered_twice: u64,
    /// Answers to what nobody has asked for.
    pub(crate) strays: u64,
    pub(crate) unanswered: u64,
    /// Those that had to time out, because somebody stalled.
    pub(crate) expected_timed_out: u64,
    /// Those that might do either, and those of them that timed out.
    pub(crate) contested: u64,
    pub(crate) contested_timed_out: u64,
    /// Those that timed out and should not have, and the reverse.
    pub(crate) wrongly_timed_out: u64,
    pub(crate) wrongly_completed: u64,
    /// Those that timed out before their timeout was over.
    pub(crate) early: u64,
}

/// How long after the timeout the client had the answer that it is over, in microseconds.
#[derive(Debug, Serialize)]
pub(crate) struct Lateness {
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) p999: u64,
    pub(crate) max: u64,
    pub(crate) limit_p99: u64,
    /// The longest that a thread, of the server or of the load, slept longer than it had asked for: the machine's part,
    /// on top of the limit.
    pub(crate) held_up: u64,
}

impl Verdict {
    pub(crate) fn reach(evidence: &Evidence) -> Self {
        let mut answers = Answers::default();
        let mut lateness = Histogram::new_with_bounds(1, LONGEST_LATENESS_US, 3)
            .expect("the bounds are constants, and right");
        for client in &evidence.clients {
            answers.strays += client.strays;
            client.records.iter().for_each(|record| answers.take_in(record, &mut lateness));
        }
        let server = Accounts::of(&evidence.cores);
        let of_cores = evidence.cores.iter().flatten().map(|core| core.held_up).max();
        let held_up = of_cores.map_or(evidence.held_up, |of_cores| of_cores.max(evidence.held_up));
        let lateness = Lateness::of(&lateness, evidence.late_limit, held_up);
        let mut failures = answers.failures();
        failures.extend(lateness.failures());
        failures.extend(server.failures(&answers));
        if answers.wrongly_timed_out > 0 && held_up > evidence.timeout / 4 {
            failures.push(format!(
                "the machine held up one of the threads for {held_up:?}: the run is void"
            ));
        }
        Self {
            ok: failures.is_empty(),
            connections: evidence.clients.len(),
            answers,
            lateness_us: lateness,
            server,
            failures,
        }
    }
}

impl Answers {
    fn take_in(&mut self, record: &Record, lateness: &mut Histogram<u64>) {
        let is_completed = record.completed > 0;
        let is_timed_out = record.timed_out > 0;
        self.requests += 1;
        let kind = self.of_kind(record.what);
        kind[0] += 1;
        kind[1] += u64::from(is_timed_out);
        self.completed_by_condition += u64::from(record.completed);
        self.timed_out += u64::from(record.timed_out);
        self.both += u64::from(is_completed && is_timed_out);
        self.answered_twice += u64::from(record.completed > 1 || record.timed_out > 1);
        self.unanswered += u64::from(!is_completed && !is_timed_out);
        match record.expected {
            Expected::Condition => self.wrongly_timed_out += u64::from(is_timed_out),
            Expected::TimeOut => {
                self.expected_timed_out += 1;
                self.wrongly_completed += u64::from(is_completed);
            }
            Expected::Either => {
                self.contested += 1;
                self.contested_timed_out += u64::from(is_timed_out);
            }
        }
        if let (true, Some(answered)) = (is_timed_out, record.answered) {
            let waited = answered - record.sent;
            self.early += u64::from(waited < record.timeout);
            lateness.saturating_record(micros(waited.saturating_sub(record.timeout)));
        }
    }

    fn of_kind(&mut self, what: What) -> &mut [u64; 2] {
        match what {
            What::Produce { .. } => &mut self.produces,
            What::Fetch { .. } => &mut self.fetches,
            What::Follow { .. } => &mut self.follows,
            What::Join { .. } => &mut self.joins,
        }
    }

    fn failures(&self) -> Vec<String> {
        let complaints = [
            (self.both, "requests were told that they had completed and that they had timed out"),
            (self.answered_twice, "requests were answered twice"),
            (self.strays, "answers were to nothing that was asked"),
            (self.unanswered, "requests were not answered"),
            (self.wrongly_timed_out, "requests timed out although nobody stalled"),
            (self.wrongly_completed, "requests completed although somebody stalled"),
            (self.early, "requests timed out before their timeout was over"),
        ];
        let real = complaints.iter().filter(|(count, _)| *count > 0);
        let mut failures: Vec<_> =
            real.map(|(count, complaint)| format!("{count} {complaint}")).collect();
        if self.expected_timed_out == 0 || self.completed_by_condition == 0 || self.contested == 0 {
            failures.push(String::from("the run was too short to say anything"));
        }
        failures
    }
}

impl Lateness {
    fn of(histogram: &Histogram<u64>, limit: Duration, held_up: Duration) -> Self {
        Self {
            p50: histogram.value_at_quantile(0.5),
            p99: histogram.value_at_quantile(0.99),
            p999: histogram.value_at_quantile(0.999),
            max: histogram.max(),
            limit_p99: micros(limit),
            held_up: micros(held_up),
        }
    }

    fn failures(&self) -> Option<String> {
        let Self { p99, limit_p99, held_up, .. } = self;
        let limit = limit_p99.saturating_add(*held_up);
        (*p99 > limit)
            .then(|| format!("the lateness has a p99 of {p99} us, over the limit of {limit} us"))
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
