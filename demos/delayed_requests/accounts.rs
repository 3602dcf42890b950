//! Every request accounted for: what the cores have counted at their end, held against what the clients have seen.

use serde::Serialize;

use crate::broker::Totals;
use crate::event_loop::CoreReport;
use crate::verdict::Answers;

/// The counts of all cores together.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Accounts {
    pub(crate) cores: usize,
    #[serde(flatten)]
    pub(crate) totals: Totals,
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

    fn take_in(&mut self, index: usize, CoreReport { totals, timers, .. }: &CoreReport) {
        self.totals += *totals;
        if timers.added != timers.live + timers.fired + timers.cancelled + timers.handed_back {
            self.faults.push(format!("core {index}: the timers added do not add up: {timers:?}"));
        }
        if timers.panicked > 0 {
            self.faults.push(format!("core {index}: {} callbacks panicked", timers.panicked));
        }
    }

    /// Where the server's counts and the clients' records disagree.
    pub(crate) fn failures(&self, seen: &Answers) -> Vec<String> {
        let Totals { added, by_condition, expired, otherwise, live, watches, elsewhere } =
            self.totals;
        let compared = [
            ("operations added", added, "requests", seen.requests),
            (
                "completed by their condition",
                by_condition,
                "completed",
                seen.completed_by_condition,
            ),
            ("timed out", expired, "timed out", seen.timed_out),
            ("forced or handed back", otherwise, "that could be", 0),
            ("waiting at the end", live, "unanswered", seen.unanswered),
            ("watches left", watches, "that may wait", seen.unanswered),
        ];
        let differing = compared.iter().filter(|(_, counted, _, seen)| counted != seen);
        let mut failures = self.faults.clone();
        failures.extend(differing.map(|(counts, counted, requests, seen)| {
            format!("the server counts {counted} {counts}, the clients saw {seen} {requests}")
        }));
        if self.cores > 1 && elsewhere == 0 {
            failures.push(String::from(
                "no request arrived on another core than that of its partition or group",
            ));
        }
        failures
    }
}
