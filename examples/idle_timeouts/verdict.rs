//! The verdict: whether exactly the silent connections were closed, and how late. It is computed from what the clients
//! have seen by their own clocks; what the server has counted must agree with that to the last timer.

use std::io;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::accounts::Accounts;
use crate::admin::AdminReport;
use crate::client::{Client, Fate};
use crate::event_loop::CoreReport;
use crate::plan::Role;
use crate::stretches;

/// What is later still is recorded as this late: an hour, which is over any limit.
const LONGEST_LATENESS_US: u64 = 3_600_000_000;

/// All that is known when the run is over.
pub(crate) struct Evidence {
    pub(crate) clients: Vec<Client>,
    pub(crate) admin: AdminReport,
    /// What each core has to say, or what has become of it.
    pub(crate) cores: Vec<Result<CoreReport, String>>,
    pub(crate) idle: Duration,
    pub(crate) late_limit: Duration,
}

#[derive(Debug, Serialize)]
pub(crate) struct Verdict {
    pub(crate) ok: bool,
    pub(crate) connections: usize,
    #[serde(flatten)]
    pub(crate) seen: Seen,
    pub(crate) cancelled_remotely: u64,
    #[serde(flatten)]
    pub(crate) accounts: Accounts,
    pub(crate) lateness_us: Lateness,
    /// The same in the course of the run.
    pub(crate) lateness_us_by_stretch: Vec<Lateness>,
    /// Why it is not ok, in words.
    pub(crate) failures: Vec<String>,
}

/// What the clients have seen.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Seen {
    pub(crate) unconnected: u64,
    /// Why the first of them could not be opened.
    #[serde(skip)]
    refusal: Option<String>,
    /// Those that fell silent, as planned, with their timer armed.
    pub(crate) silent: u64,
    /// Those of them that the server has closed, in time or late.
    pub(crate) closed_idle: u64,
    /// Those of all that the server has closed within a timeout of their last packet.
    pub(crate) closed_early: u64,
    /// Those that the server has closed and that should have stayed open.
    pub(crate) closed_wrongly: u64,
    /// Those of them whose own thread had let them be silent for so long: the load is at fault, and the run is void.
    pub(crate) stalled: u64,
    pub(crate) closed_by_client: u64,
    pub(crate) open_at_end: u64,
    /// Those released, then silent for more than a timeout, and still open at the end.
    pub(crate) kept_open: u64,
    /// Those open at the end that have not had all of their echoes.
    pub(crate) unanswered: u64,
}

/// How long after a timeout of silence the client saw its connection closed, in microseconds.
#[derive(Debug, Serialize)]
pub(crate) struct Lateness {
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) p999: u64,
    pub(crate) max: u64,
    pub(crate) limit_p99: u64,
}

impl Verdict {
    pub(crate) fn reach(evidence: &Evidence) -> Self {
        let mut seen = Seen::default();
        let mut lateness = empty_histogram();
        for client in &evidence.clients {
            seen.take_in(client, evidence.idle, &mut lateness);
        }
        let accounts = Accounts::of(&evidence.cores);
        let lateness = Lateness::of(&lateness, evidence.late_limit);
        let mut failures = seen.failures();
        failures.extend(lateness.failures());
        failures.extend(evidence.admin.failures(&seen));
        failures.extend(accounts.failures(&seen, evidence.admin.cancelled));
        Self {
            ok: failures.is_empty(),
            connections: evidence.clients.len(),
            seen,
            cancelled_remotely: evidence.admin.cancelled,
            accounts,
            lateness_us: lateness,
            lateness_us_by_stretch: stretches::lateness(
                &evidence.clients,
                evidence.idle,
                evidence.late_limit,
            ),
            failures,
        }
    }
}

impl Seen {
    fn take_in(&mut self, client: &Client, idle: Duration, lateness: &mut Histogram<u64>) {
        let is_silent = matches!(client.role, Role::FallsSilent(_));
        self.silent += u64::from(is_silent);
        match &client.fate {
            Fate::Unconnected(error) => self.take_in_unconnected(error.as_ref()),
            Fate::Left => self.closed_by_client += 1,
            Fate::Open => self.take_in_open(client, idle),
            Fate::Closed(at) => {
                let silence = client.last_sent.map_or(Duration::ZERO, |sent| *at - sent);
                self.closed_early += u64::from(silence < idle);
                self.closed_idle += u64::from(is_silent);
                self.closed_wrongly += u64::from(!is_silent);
                let should_talk = matches!(client.role, Role::Talks | Role::Leaves(_));
                self.stalled += u64::from(should_talk && silence >= idle);
                if is_silent {
                    lateness.saturating_record(micros(silence.saturating_sub(idle)));
                }
            }
        }
    }

    fn take_in_unconnected(&mut self, error: Option<&io::Error>) {
        self.unconnected += 1;
        if let Some(error) = error {
            self.refusal
                .get_or_insert_with(|| format!("a connection could not be opened: {error}"));
        }
    }

    fn take_in_open(&mut self, client: &Client, idle: Duration) {
        self.open_at_end += 1;
        self.unanswered += u64::from(client.unanswered > 0);
        let is_released = matches!(client.role, Role::Released(_));
        self.kept_open += u64::from(is_released && client.longest_silence > idle);
    }

    fn failures(&self) -> Vec<String> {
        let complaints = [
            (
                self.stalled,
                "connections were silent by the load's own fault: it is too much for this machine, and void",
            ),
            (self.unconnected, "connections were never open"),
            (self.silent - self.closed_idle, "silent connections were not closed"),
            (self.closed_early, "connections were closed before a timeout of silence had passed"),
            (self.closed_wrongly, "connections were closed that should have stayed open"),
            (self.unanswered, "open connections have not had all their echoes"),
        ];
        let mut failures = complain(&complaints);
        failures.extend(self.refusal.clone());
        failures
    }
}

impl AdminReport {
    fn failures(&self, seen: &Seen) -> Vec<String> {
        let not_kept = self.cancelled.saturating_sub(seen.kept_open);
        complain(&[
            (self.unknown, "connections were to be released, but their handle never came"),
            (self.refused, "remote cancels of a live timer were not answered `Cancelled`"),
            (self.revived, "timers cancelled from elsewhere did not stay cancelled"),
            (not_kept, "released connections were not silent and open for more than a timeout"),
        ])
    }
}

impl Lateness {
    pub(crate) fn of(histogram: &Histogram<u64>, limit: Duration) -> Self {
        Self {
            p50: histogram.value_at_quantile(0.5),
            p99: histogram.value_at_quantile(0.99),
            p999: histogram.value_at_quantile(0.999),
            max: histogram.max(),
            limit_p99: micros(limit),
        }
    }

    fn failures(&self) -> Option<String> {
        let Self { p99, limit_p99, .. } = self;
        (p99 > limit_p99).then(|| {
            format!("the lateness has a p99 of {p99} us, over the limit of {limit_p99} us")
        })
    }
}

/// What there is more of than nothing, in words.
fn complain(complaints: &[(u64, &str)]) -> Vec<String> {
    let real = complaints.iter().filter(|(count, _)| *count > 0);
    real.map(|(count, complaint)| format!("{count} {complaint}")).collect()
}

pub(crate) fn empty_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_LATENESS_US, 3)
        .expect("the bounds are constants, and right")
}

pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
