//! The schemes of the seeds: a table for each routine.

use std::fmt::Write;

use super::{
    Spread, distinct,
    json::json_line,
    table::{Detail, cell, grouped, new_table},
};
use crate::schemes::{About, Growth, ROUTINES, Row, all};

/// A table per routine: a row per scheme, with what it promises, and a column per number of timers.
pub fn scheme_tables(rows: &[Row]) -> String {
    let sizes = distinct(rows.iter().map(|row| row.n));
    let head = || {
        ["scheme", "accuracy", "cost"]
            .map(str::to_owned)
            .into_iter()
            .chain(sizes.iter().map(|&n| grouped(n)))
    };
    let mut text = String::new();
    for routine in ROUTINES {
        let mut table = new_table(head());
        for about in all() {
            let promise = [
                about.name.to_owned(),
                about.accuracy.to_string(),
                growth(&about, routine).to_string(),
            ];
            let of_scheme = |n| {
                rows.iter().find(|row| (row.scheme, row.routine, row.n) == (about.name, routine, n))
            };
            let cells = sizes.iter().map(|&n| {
                of_scheme(n).map_or("-".to_owned(), |row| cell(row.spread(), Detail::Median))
            });
            table.add_row(promise.into_iter().chain(cells));
        }
        let _ = writeln!(text, "\n## scheme-{routine}, ns: median\n\n{table}\n");
    }
    text
}

/// A line per figure.
pub fn scheme_json_lines(rows: &[Row]) -> String {
    let line = |row: &Row| {
        json_line(row.scheme, &format!("scheme-{}", row.routine), row.n, "ns", row.spread())
    };
    rows.iter().map(line).collect()
}

/// How the cost of a routine grows, as the scheme's author says.
fn growth(about: &About, routine: &str) -> Growth {
    match routine {
        "start" => about.cost.start,
        "stop" => about.cost.stop,
        "tick" => about.cost.tick,
        _ => about.cost.expiry,
    }
}

impl Row {
    pub(super) fn spread(&self) -> Spread {
        Spread { median: self.median, min: self.min, max: self.max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{report::PAGE, schemes::names};

    #[test]
    fn tables_fit_the_page_and_have_a_row_per_scheme() {
        let of_scheme = |scheme| {
            let of_size = move |n| {
                ROUTINES.map(|routine| Row {
                    scheme,
                    routine,
                    n,
                    median: 123_456.7,
                    min: 1.0,
                    max: 9.0,
                })
            };
            [10, 100, 1000, 10_000, 100_000].map(of_size).into_iter().flatten()
        };
        let rows: Vec<Row> = names().into_iter().flat_map(of_scheme).collect();
        let tables = scheme_tables(&rows);
        assert!(tables.lines().all(|line| line.chars().count() <= PAGE), "{tables}");
        let of_linux =
            tables.lines().filter(|line| line.starts_with("| linux") && line.contains("+8/63"));
        assert_eq!(of_linux.count(), ROUTINES.len());
        assert_eq!(scheme_json_lines(&rows).lines().count(), rows.len());
    }
}
