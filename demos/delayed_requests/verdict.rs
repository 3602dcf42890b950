//! The report: whether every request was answered exactly once and as expected, and how late the
//! timeouts were, by the clocks of the clients. The counts of the server must agree.

use std::time::Duration;

use corewheel::purgatory::PurgatoryCounts;
use serde::Serialize;

use crate::client::{Client, ExpectedAnswer, Record};
use crate::common::verdict::{self, Failures, LatenessPercentiles, TimerTotals};
use crate::core::CoreReport;

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    #[serde(flatten)]
    answers: Answers,
    /// Requests whose partition belongs to another core than the connection.
    foreign_requests: u64,
    timers: TimerTotals,
    lateness_us: LatenessPercentiles,
    /// The longest delay that the machine caused to a thread of the clients. It is added to the
    /// limit of the lateness.
    held_up_us: u64,
}

#[derive(Debug, Default, Serialize)]
struct Answers {
    connections: u64,
    requests: u64,
    completed: u64,
    timed_out: u64,
    unanswered: u64,
    /// Requests that had to time out.
    expected_timed_out: u64,
    /// Requests that might complete or time out.
    contested: u64,
    wrongly_timed_out: u64,
}

impl Report {
    pub(crate) fn new<'a>(
        clients: impl Iterator<Item = &'a Client>,
        cores: &[CoreReport],
        timers: TimerTotals,
        longest_delay: Duration,
        (late_limit, timeout): (Duration, Duration),
        failures: &mut Failures,
    ) -> Self {
        let (mut answers, mut latenesses) = (Answers::default(), Vec::new());
        for client in clients {
            answers.connections += 1;
            failures.add_cases(
                client.unexpected_answers,
                "answers were to requests that were never sent",
            );
            for record in &client.records {
                latenesses.extend(answers.add(record, failures));
            }
        }
        let lateness_us =
            LatenessPercentiles::new(latenesses.into_iter(), late_limit + longest_delay);
        lateness_us.check_percentile(failures);
        if [answers.expected_timed_out, answers.completed, answers.contested].contains(&0) {
            failures.push(String::from("the run was too short"));
        }
        if answers.wrongly_timed_out > 0 && longest_delay > timeout / 4 {
            failures.push(format!("a thread was delayed for {longest_delay:?}: the run is void"));
        }

        let sum = |count: fn(&PurgatoryCounts) -> u64| {
            cores.iter().map(|core| count(&core.counts)).sum::<u64>()
        };
        let Answers { requests, completed, timed_out, unanswered, .. } = answers;
        failures.expect_equal(&[
            ("operations added", sum(|counts| counts.added), "requests", requests),
            ("completed by condition", sum(|counts| counts.by_condition), "completed", completed),
            ("expired", sum(|counts| counts.expired), "timed out", timed_out),
            ("waiting at the end", sum(|counts| counts.live), "unanswered", unanswered),
            ("watches left", sum(|counts| counts.watches), "unanswered", unanswered),
            ("forced or handed back", sum(|counts| counts.forced + counts.handed_back), "such", 0),
        ]);
        let foreign_requests = cores.iter().map(|core| core.foreign_requests).sum();
        if cores.len() > 1 && foreign_requests == 0 {
            failures.push(String::from("no request arrived on another core than its partition's"));
        }
        Self {
            answers,
            foreign_requests,
            timers,
            lateness_us,
            held_up_us: verdict::micros(longest_delay),
        }
    }
}

impl Answers {
    /// Counts a request and its answers. Returns the lateness of its timeout, if it timed out.
    fn add(&mut self, record: &Record, failures: &mut Failures) -> Option<Duration> {
        let (is_completed, is_timed_out) = (record.completed > 0, record.timed_out > 0);
        let answers = record.completed + record.timed_out;
        self.requests += 1;
        self.completed += record.completed;
        self.timed_out += record.timed_out;
        self.unanswered += u64::from(answers == 0);
        failures.add_cases(answers > 1, "requests were answered more than once");
        failures.add_cases(answers == 0, "requests were not answered");
        match record.expected {
            ExpectedAnswer::Condition => {
                self.wrongly_timed_out += u64::from(is_timed_out);
                failures.add_cases(is_timed_out, "requests timed out although no client stalled");
            }
            ExpectedAnswer::Timeout => {
                self.expected_timed_out += 1;
                failures.add_cases(is_completed, "requests completed although a client stalled");
            }
            ExpectedAnswer::Either => self.contested += 1,
        }
        let waited = record.answered.filter(|_| is_timed_out)? - record.sent;
        let is_early = waited < record.timeout;
        failures.add_cases(is_early, "requests timed out before their timeout had elapsed");
        Some(waited.saturating_sub(record.timeout))
    }
}
