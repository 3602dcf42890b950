//! One JSON object per line.

use serde::Serialize;

use super::{Results, Spread};

#[derive(Serialize)]
struct Line<'a> {
    peer: String,
    workload: &'a str,
    n: usize,
    unit: &'a str,
    #[serde(flatten)]
    spread: Spread,
}

/// A line per figure.
pub fn json_lines(results: &Results) -> String {
    let lines = results.figures.iter().map(|figure| {
        let spread = figure.spread();
        let line =
            Line { peer: figure.peer.name(), workload: &figure.workload, n: figure.n, unit: &figure.unit, spread };
        serde_json::to_string(&line).expect("plain figures") + "\n"
    });
    lines.collect()
}
