//! What came out of all runs, and how it is shown.

mod json;
mod machine;
mod plot;
mod schemes;
mod table;

use serde::Serialize;

pub use self::{
    json::json_lines,
    machine::Machine,
    plot::{draw, draw_schemes},
    schemes::{scheme_json_lines, scheme_tables},
    table::tables,
};
use crate::{
    measure::Sample,
    plan::{Pass, Peer},
};

/// The widest line, in characters.
const PAGE: usize = 118;

/// The figures of all runs.
#[derive(Debug, Default)]
pub struct Results {
    figures: Vec<Figure>,
    refusals: Vec<Refusal>,
}

/// All rounds of one figure.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    pub(crate) peer: Peer,
    pub(crate) pass: Pass,
    pub(crate) workload: String,
    pub(crate) setting: String,
    pub(crate) n: usize,
    pub(crate) unit: String,
    values: Vec<f64>,
    /// The distribution in the first round, where there is one.
    pub(crate) curve: Vec<(f64, f64)>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    pub(crate) peer: Peer,
    pub(crate) pass: Pass,
    pub(crate) reason: &'static str,
}

/// Median, least and greatest of the rounds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Results {
    /// Adds what one run found.
    pub fn add(&mut self, peer: Peer, pass: Pass, samples: Vec<Sample>) {
        for Sample { workload, setting, n, unit, value, curve } in samples {
            let known = |figure: &&mut Figure| {
                let of_run = (figure.peer, figure.pass, figure.n) == (peer, pass, n);
                of_run && figure.workload == workload && figure.setting == setting
            };
            if let Some(figure) = self.figures.iter_mut().find(known) {
                figure.values.push(value);
            } else {
                let values = vec![value];
                self.figures.push(Figure { peer, pass, workload, setting, n, unit, values, curve });
            }
        }
    }

    /// Notes that a peer takes no part.
    pub fn refuse(&mut self, peer: Peer, pass: Pass, reason: &'static str) {
        self.refusals.push(Refusal { peer, pass, reason });
    }

    pub(crate) fn find(&self, peer: Peer, workload: &str, n: usize) -> Option<&Figure> {
        self.figures
            .iter()
            .find(|figure| (figure.peer, figure.n) == (peer, n) && figure.workload == workload)
    }
}

impl Figure {
    /// What is measured, and in which setting.
    pub(crate) fn name(&self) -> String {
        let setting =
            if self.setting.is_empty() { String::new() } else { format!("-{}", self.setting) };
        self.workload.clone() + &setting
    }

    pub(crate) fn spread(&self) -> Spread {
        let mut values = self.values.clone();
        values.sort_by(f64::total_cmp);
        let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Spread { median: f64::midpoint(low, high), min: values[0], max: values[values.len() - 1] }
    }
}

/// Each once, in the order of the first appearance.
pub(crate) fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    all.fold(Vec::new(), |mut seen, one| {
        if !seen.contains(&one) {
            seen.push(one);
        }
        seen
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_become_median_and_range() {
        let mut results = Results::default();
        for value in [5.0, 1.0, 3.0, 9.0] {
            results.add(Peer::BTree, Pass::Churn, vec![Sample::nanos("churn", 10, value)]);
        }
        let spread = results.find(Peer::BTree, "churn", 10).expect("added").spread();
        assert_eq!(
            (spread.median.to_bits(), spread.min.to_bits()),
            (4f64.to_bits(), 1f64.to_bits())
        );
        assert!(results.find(Peer::BTree, "churn", 11).is_none());
    }
}
