//! Every timer accounted for: what the cores have counted at their end, held against what the clients have seen.

use serde::Serialize;

use crate::event_loop::CoreReport;
use crate::verdict::Seen;

/// A core's timers are those of its connections, and the request to end, which counts as two.
const REQUESTS_TO_END: u64 = 2;

/// The counts of all cores together, of connections' timers only.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Accounts {
    pub(crate) cores: usize,
    pub(crate) added: u64,
    pub(crate) fired: u64,
    pub(crate) cancelled: u64,
    pub(crate) handed_back: u64,
    pub(crate) live_at_end: u64,
    pub(crate) resets_refused: u64,
    /// What is wrong within one core.
    #[serde(skip)]
    faults: Vec<String>,
}

impl Accounts {
    pub(crate) fn of(cores: &[Result<CoreReport, String>]) -> Self {
        let mut accounts = Self { cores: cores.len(), ..Self::default() };
        for (index, core) in cores.iter().enumerate() {
            match core {
                Ok(report) => accounts.take_in(index, report),
                Err(end) => accounts.faults.push(format!("core {index} {end}")),
            }
        }
        accounts
    }

    fn take_in(&mut self, index: usize, report: &CoreReport) {
        let counts = &report.counts;
        self.added += counts.added - REQUESTS_TO_END;
        self.fired += counts.fired - REQUESTS_TO_END;
        self.cancelled += counts.cancelled;
        self.handed_back += counts.handed_back;
        self.live_at_end += counts.live;
        self.resets_refused += report.resets_refused;
        if counts.added != counts.live + counts.fired + counts.cancelled + counts.handed_back {
            self.faults.push(format!("core {index}: the timers added do not add up: {counts:?}"));
        }
        if counts.panicked > 0 {
            self.faults.push(format!("core {index}: {} callbacks panicked", counts.panicked));
        }
    }

    /// Where the server's counts and the clients' records disagree.
    pub(crate) fn failures(&self, seen: &Seen, released: u64) -> Vec<String> {
        let closed = seen.closed_idle + seen.closed_wrongly;
        let ever_open = closed + seen.closed_by_client + seen.open_at_end;
        let still_armed = seen.open_at_end.saturating_sub(released);
        let compared = [
            ("timers added", self.added, "connections opened", ever_open),
            ("timers fired", self.fired, "connections closed by the server", closed),
            (
                "timers cancelled",
                self.cancelled,
                "connections left or released",
                seen.closed_by_client + released,
            ),
            ("live timers", self.live_at_end, "open connections not released", still_armed),
        ];
        let differing = compared.iter().filter(|(_, counted, _, seen)| counted != seen);
        let mut failures = self.faults.clone();
        failures.extend(differing.map(|(timers, counted, connections, seen)| {
            format!("the server counts {counted} {timers}, the clients saw {seen} {connections}")
        }));
        if self.resets_refused < released {
            let refused = self.resets_refused;
            failures.push(format!(
                "{released} timers were cancelled from elsewhere, but only {refused} resets refused"
            ));
        }
        failures
    }
}
