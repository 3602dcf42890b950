//! The report: whether every request was answered exactly once and as expected, and how late the timeouts were. It is made
//! from what the clients have seen by their own clocks. The counts of the server must agree with it.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::client::{Client, Expected, Record};
use crate::common::verdict::{self, Failures, Lateness, Timers};
use crate::event_loop::CoreReport;
use crate::wire::Kind;

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    connections: usize,
    #[serde(flatten)]
    answers: Answers,
    lateness_us: Lateness,
    /// The longest time that the machine held up a thread of the server or of the load. It is part of the limit.
    held_up_us: u64,
    server: Counts,
    timers: Timers,
}

/// What the clients have seen.
#[derive(Debug, Default, Serialize)]
struct Answers {
    requests: u64,
    /// By kind: `[requests, timed out]`.
    produces: [u64; 2],
    fetches: [u64; 2],
    follows: [u64; 2],
    joins: [u64; 2],
    completed_by_condition: u64,
    timed_out: u64,
    /// Requests with answers of both kinds.
    both: u64,
    /// Requests with two answers of the same kind.
    answered_twice: u64,
    /// Answers to requests that were never sent.
    strays: u64,
    unanswered: u64,
    /// Requests that had to time out.
    expected_timed_out: u64,
    /// Requests that might complete or time out, and how many of them timed out.
    contested: u64,
    contested_timed_out: u64,
    wrongly_timed_out: u64,
    wrongly_completed: u64,
    /// Requests that timed out before their timeout had elapsed.
    early: u64,
}

/// The counts of the purgatories of all cores.
#[derive(Debug, Default, Serialize)]
struct Counts {
    added: u64,
    by_condition: u64,
    expired: u64,
    /// Operations that were forced or handed back, which nothing here asks for.
    otherwise: u64,
    live: u64,
    watches: u64,
    /// Requests whose partition or group belongs to another core.
    elsewhere: u64,
}

impl Report {
    pub(crate) fn new<'a>(
        clients: impl Iterator<Item = &'a Client>,
        cores: &[CoreReport],
        timers: Timers,
        load_held_up: Duration,
        late_limit: Duration,
    ) -> Self {
        let (mut connections, mut answers) = (0, Answers::default());
        let mut lateness = verdict::histogram();
        for client in clients {
            connections += 1;
            answers.strays += client.strays;
            client.records.iter().for_each(|record| answers.add(record, &mut lateness));
        }
        let held_up = cores.iter().map(|core| core.held_up).fold(load_held_up, Duration::max);
        let mut server = Counts::default();
        for core in cores {
            server.add(core);
        }
        Self {
            connections,
            answers,
            lateness_us: Lateness::new(&lateness, late_limit + held_up),
            held_up_us: verdict::micros(held_up),
            server,
            timers,
        }
    }

    pub(crate) fn check(&self, cores: usize, timeout: Duration, failures: &mut Failures) {
        let Self { answers, server, .. } = self;
        failures.expect_none(&[
            (
                answers.both,
                "requests were told that they had completed and that they had timed out",
            ),
            (answers.answered_twice, "requests were answered twice"),
            (answers.strays, "answers were to requests that were never sent"),
            (answers.unanswered, "requests were not answered"),
            (answers.wrongly_timed_out, "requests timed out although nothing stalled"),
            (answers.wrongly_completed, "requests completed although a client stalled"),
            (answers.early, "requests timed out before their timeout had elapsed"),
            (server.otherwise, "operations were forced or handed back"),
        ]);
        if answers.wrongly_timed_out > 0 && self.held_up_us > verdict::micros(timeout) / 4 {
            let held_up = self.held_up_us;
            failures.push(format!("a thread was held up for {held_up} us: the run is void"));
        }
        if [answers.expected_timed_out, answers.completed_by_condition, answers.contested]
            .contains(&0)
        {
            failures.push(String::from("the run was too short"));
        }
        self.lateness_us.check(failures);
        let (completed, unanswered) = (answers.completed_by_condition, answers.unanswered);
        failures.expect_equal(&[
            ("operations added", server.added, "requests", answers.requests),
            ("completed by their condition", server.by_condition, "completed", completed),
            ("timed out", server.expired, "timed out", answers.timed_out),
            ("waiting at the end", server.live, "unanswered", unanswered),
            ("watches left", server.watches, "unanswered", unanswered),
        ]);
        if cores > 1 && server.elsewhere == 0 {
            failures.push(String::from("no request arrived on another core than its partition's"));
        }
    }
}

impl Answers {
    fn add(&mut self, record: &Record, lateness: &mut Histogram<u64>) {
        let (is_completed, is_timed_out) = (record.completed > 0, record.timed_out > 0);
        let kind = match record.kind {
            Kind::Produce => &mut self.produces,
            Kind::Fetch => &mut self.fetches,
            Kind::Follow => &mut self.follows,
            Kind::Join => &mut self.joins,
        };
        kind[0] += 1;
        kind[1] += u64::from(is_timed_out);
        self.requests += 1;
        self.completed_by_condition += record.completed;
        self.timed_out += record.timed_out;
        self.both += u64::from(is_completed && is_timed_out);
        self.answered_twice += u64::from(record.completed > 1 || record.timed_out > 1);
        self.unanswered += u64::from(!is_completed && !is_timed_out);
        match record.expected {
            Expected::Condition => self.wrongly_timed_out += u64::from(is_timed_out),
            Expected::Timeout => {
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
            lateness.saturating_record(verdict::micros(waited.saturating_sub(record.timeout)));
        }
    }
}

impl Counts {
    fn add(&mut self, CoreReport { counts, elsewhere, .. }: &CoreReport) {
        self.added += counts.added;
        self.by_condition += counts.by_condition;
        self.expired += counts.expired;
        self.otherwise += counts.forced + counts.handed_back;
        self.live += counts.live;
        self.watches += counts.watches;
        self.elsewhere += elsewhere;
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { answers, server, .. } = self;
        writeln!(f, "requests            {:>8}", answers.requests)?;
        let kinds = [
            ("produce", answers.produces),
            ("fetch", answers.fetches),
            ("follow", answers.follows),
            ("join", answers.joins),
        ];
        for (kind, [requests, timed_out]) in kinds {
            writeln!(f, "  {kind:<18}{requests:>8}  timed out {timed_out}")?;
        }
        let Answers { completed_by_condition, wrongly_completed, .. } = answers;
        writeln!(
            f,
            "completed           {completed_by_condition:>8}  wrongly {wrongly_completed}"
        )?;
        let Answers { timed_out, expected_timed_out, wrongly_timed_out, early, .. } = answers;
        writeln!(
            f,
            "timed out           {timed_out:>8}  expected {expected_timed_out}, wrongly {wrongly_timed_out}, early {early}"
        )?;
        writeln!(f, "  late by             {}", self.lateness_us)?;
        writeln!(f, "                      (a thread was held up for {} us)", self.held_up_us)?;
        let Answers { contested, contested_timed_out, .. } = answers;
        writeln!(f, "contested           {contested:>8}  timed out {contested_timed_out}")?;
        let Answers { both, answered_twice, unanswered, .. } = answers;
        writeln!(
            f,
            "both                {both:>8}  twice {answered_twice}, unanswered {unanswered}"
        )?;
        let Counts { added, by_condition, expired, live, elsewhere, watches, .. } = server;
        writeln!(
            f,
            "the server counts   {added:>8}  = {by_condition} completed + {expired} timed out + {live} waiting"
        )?;
        write!(f, "across cores        {elsewhere:>8}  watches left {watches}")
    }
}
