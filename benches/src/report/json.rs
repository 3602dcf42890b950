//! One JSON object per line.

use serde::Serialize;

use super::{Figure, Results, Spread};

#[derive(Serialize)]
struct Line<'a> {
    peer: &'a str,
    workload: &'a str,
    n: usize,
    unit: &'a str,
    #[serde(flatten)]
    spread: Spread,
}

/// A line per figure.
pub fn json_lines(results: &Results) -> String {
    let line = |figure: &Figure| {
        json_line(&figure.peer.name(), &figure.name(), figure.n, &figure.unit, figure.spread())
    };
    results.figures.iter().map(line).collect()
}

pub(super) fn json_line(
    peer: &str,
    workload: &str,
    n: usize,
    unit: &str,
    spread: Spread,
) -> String {
    let line = Line { peer, workload, n, unit, spread };
    serde_json::to_string(&line).expect("plain figures") + "\n"
}
