//! Tables: a row per peer. None is wider than a page.

use comfy_table::{Table, presets::ASCII_MARKDOWN};

use super::{Figure, PAGE, Results, Spread, distinct};
use crate::plan::{Pass, Peer};

/// What a cell says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    /// Median, least and greatest.
    Range,
    /// The median.
    Median,
}

impl Detail {
    fn name(self) -> &'static str {
        match self {
            Self::Range => "median (min-max)",
            Self::Median => "median",
        }
    }
}

/// A table under a head that says what its cells are: with the ranges, if it is not too wide then.
fn titled(title: &str, table: impl Fn(Detail) -> Table) -> String {
    let section =
        |detail: Detail| format!("\n## {title}: {}\n\n{}\n\n", detail.name(), table(detail));
    let full = section(Detail::Range);
    if full.lines().all(|line| line.chars().count() <= PAGE) {
        full
    } else {
        section(Detail::Median)
    }
}

/// All tables, in the order in which the figures came.
pub fn tables(results: &Results) -> String {
    let passes = distinct(results.figures.iter().map(|figure| figure.pass));
    let mut text = String::new();
    for pass in passes {
        let figures: Vec<&Figure> =
            results.figures.iter().filter(|figure| figure.pass == pass).collect();
        if figures.iter().any(|figure| !figure.setting.is_empty()) {
            text += &tables_by_setting(&figures);
        } else if pass.is_profile() {
            let title = format!("{}, {} {}", pass.name(), grouped(figures[0].n), pass.counted());
            text += &titled(&title, |detail| profile(pass, &figures, detail));
        } else {
            text += &tables_by_size(results, &figures);
        }
        text += &remarks(results, pass, &figures);
    }
    text
}

/// A table per kind of figure: a row per peer, a column per number of timers.
fn tables_by_size(results: &Results, of_pass: &[&Figure]) -> String {
    let mut text = String::new();
    for workload in distinct(of_pass.iter().map(|figure| figure.workload.as_str())) {
        let figures: Vec<&Figure> =
            of_pass.iter().copied().filter(|figure| figure.workload == workload).collect();
        let title = format!("{workload}, {}", figures[0].unit);
        text += &titled(&title, |detail| by_size(results, workload, &figures, detail));
    }
    text
}

/// A table per kind of figure: a row per peer, a column per setting.
fn tables_by_setting(of_pass: &[&Figure]) -> String {
    let mut text = String::new();
    for workload in distinct(of_pass.iter().map(|figure| figure.workload.as_str())) {
        let figures: Vec<&Figure> =
            of_pass.iter().copied().filter(|figure| figure.workload == workload).collect();
        let Figure { pass, n, unit, .. } = figures[0];
        let title = format!("{workload}, {unit} ({} {})", grouped(*n), pass.counted());
        text += &titled(&title, |detail| by_setting(&figures, detail));
    }
    text
}

fn by_setting(figures: &[&Figure], detail: Detail) -> Table {
    let settings = distinct(figures.iter().map(|figure| figure.setting.as_str()));
    let mut table =
        new_table(std::iter::once("peer").chain(settings.iter().copied()).map(str::to_owned));
    for peer in distinct(figures.iter().map(|figure| figure.peer)) {
        let at = |setting| {
            figures.iter().find(|figure| figure.peer == peer && figure.setting == setting)
        };
        let cells = settings
            .iter()
            .map(|&name| at(name).map_or("-".to_owned(), |it| cell(it.spread(), detail)));
        table.add_row(std::iter::once(peer.name()).chain(cells));
    }
    table
}

/// A row per peer, a column per kind of figure.
fn profile(pass: Pass, figures: &[&Figure], detail: Detail) -> Table {
    let columns =
        distinct(figures.iter().map(|figure| (figure.workload.as_str(), figure.unit.as_str())));
    let prefix = pass.name() + "-";
    let heads = columns
        .iter()
        .map(|(name, unit)| format!("{}, {unit}", name.strip_prefix(&prefix).unwrap_or(name)));
    let mut table = new_table(std::iter::once("peer".to_owned()).chain(heads));
    for peer in distinct(figures.iter().map(|figure| figure.peer)) {
        let of_peer =
            |name| figures.iter().find(|figure| figure.peer == peer && figure.workload == name);
        let cells = columns.iter().map(|&(name, _)| {
            of_peer(name).map_or("-".to_owned(), |figure| cell(figure.spread(), detail))
        });
        table.add_row(std::iter::once(peer.name()).chain(cells));
    }
    table
}

fn by_size(results: &Results, workload: &str, figures: &[&Figure], detail: Detail) -> Table {
    let mut sizes = distinct(figures.iter().map(|figure| figure.n));
    sizes.sort_unstable();
    let peers = distinct(figures.iter().map(|figure| figure.peer));
    let mut table =
        new_table(std::iter::once("peer".to_owned()).chain(sizes.iter().map(|&n| grouped(n))));
    for &peer in &peers {
        let of_peer = |n| results.find(peer, workload, n);
        let cells = sizes
            .iter()
            .map(|&n| of_peer(n).map_or("-".to_owned(), |figure| cell(figure.spread(), detail)));
        table.add_row(std::iter::once(peer.name()).chain(cells));
    }
    // Ratios are for times; of bytes and counts some are zero.
    for &peer in peers.iter().filter(|peer| peer.is_corewheel() && figures[0].unit == "ns") {
        let ratios = sizes.iter().map(|&n| to_floor(results, peer, figures[0], n));
        add_ratios(&mut table, format!("{}, times its floor", peer.name()), ratios.collect());
        let ratios = sizes.iter().map(|&n| ahead_of_best(results, peer, workload, n, &peers));
        add_ratios(
            &mut table,
            format!("best complete peer, times {}", peer.name()),
            ratios.collect(),
        );
    }
    table
}

fn add_ratios(table: &mut Table, head: String, ratios: Vec<Option<String>>) {
    if ratios.iter().any(Option::is_some) {
        table.add_row(
            std::iter::once(head).chain(ratios.into_iter().map(Option::unwrap_or_default)),
        );
    }
}

fn to_floor(
    results: &Results,
    peer: Peer,
    Figure { pass, workload, .. }: &Figure,
    n: usize,
) -> Option<String> {
    let (own, floor) =
        (median(results, peer, workload, n)?, median(results, peer.floor(*pass)?, workload, n)?);
    Some(format!("{:.2}", own / floor))
}

fn ahead_of_best(
    results: &Results,
    peer: Peer,
    workload: &str,
    n: usize,
    peers: &[Peer],
) -> Option<String> {
    let own = median(results, peer, workload, n)?;
    let complete = peers.iter().filter(|peer| peer.is_complete());
    let others = complete.filter_map(|&other| Some((median(results, other, workload, n)?, other)));
    let (best, other) = others.min_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(format!("{:.2} {}", best / own, other.name()))
}

fn median(results: &Results, peer: Peer, workload: &str, n: usize) -> Option<f64> {
    results.find(peer, workload, n).map(|figure| figure.spread().median)
}

/// Who takes no part, and who does in his own way.
fn remarks(results: &Results, pass: Pass, figures: &[&Figure]) -> String {
    let of_pass: Vec<_> = results.refusals.iter().filter(|refusal| refusal.pass == pass).collect();
    let mut remarks = Vec::new();
    for reason in distinct(of_pass.iter().map(|refusal| refusal.reason)) {
        let peers =
            of_pass.iter().filter(|refusal| refusal.reason == reason).map(|refusal| refusal.peer);
        remarks.push(format!("Not in {}: {} ({reason}).", pass.name(), names(peers)));
    }
    let part = distinct(figures.iter().map(|figure| figure.peer));
    let plain: Vec<Peer> = part.iter().copied().filter(|peer| !peer.is_corewheel()).collect();
    if let Some(instead) = pass.instead().filter(|_| !plain.is_empty()) {
        remarks.push(format!("{instead}: {}.", names(plain.into_iter())));
    }
    if pass.runs_in_virtual_time() && part.iter().any(|peer| !peer.has_virtual_time()) {
        let real = part.iter().copied().filter(|peer| !peer.has_virtual_time());
        remarks.push(format!(
            "By the machine's clock, yielding after each thousand operations: {}.",
            names(real)
        ));
    }
    remarks.extend(pass.remark().map(str::to_owned));
    remarks.iter().map(|remark| wrapped(remark)).collect()
}

/// In lines that fit the page.
fn wrapped(text: &str) -> String {
    let mut lines = String::new();
    let mut column = 0;
    for word in text.split(' ') {
        let width = word.chars().count();
        let fits = column + 1 + width <= PAGE;
        lines += if column == 0 {
            ""
        } else if fits {
            " "
        } else {
            "\n"
        };
        lines += word;
        column = if column > 0 && fits { column + 1 + width } else { width };
    }
    lines + "\n"
}

fn names(peers: impl Iterator<Item = Peer>) -> String {
    distinct(peers.map(Peer::name)).join(", ")
}

pub(super) fn new_table(head: impl Iterator<Item = String>) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_header(head.collect::<Vec<_>>());
    table
}

pub(super) fn cell(spread: Spread, detail: Detail) -> String {
    let [median, min, max] = [spread.median, spread.min, spread.max].map(rounded);
    if detail == Detail::Median || min == max { median } else { format!("{median} ({min}-{max})") }
}

/// Three digits that mean something.
fn rounded(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

pub(super) fn grouped(n: usize) -> String {
    let digits = n.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|group| str::from_utf8(group).ok()).collect();
    groups.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remarks_are_wrapped_between_words() {
        let text = ["linked64,"; 40].join(" ");
        let lines = wrapped(&text);
        assert!(
            lines.lines().count() > 3
                && lines.lines().all(|line| line.len() <= PAGE && !line.starts_with(' '))
        );
        assert_eq!(lines.split_whitespace().collect::<Vec<_>>().join(" "), text);
    }

    #[test]
    fn a_wide_table_is_left_with_its_medians() {
        let table = |columns: usize| {
            titled("churn", |detail| {
                let mut table = new_table((0..columns).map(|n| n.to_string()));
                let spread = Spread { median: 1234.0, min: 1000.0, max: 9999.0 };
                table.add_row((0..columns).map(|_| cell(spread, detail)));
                table
            })
        };
        assert!(
            table(4).contains("1234 (1000-9999)") && table(4).contains("churn: median (min-max)")
        );
        assert!(table(9).contains("| 1234 | 1234 |") && table(9).contains("churn: median\n"));
    }
}
