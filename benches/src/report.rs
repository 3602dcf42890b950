//! The results of all runs, as tables, JSON lines, plots, and the page `doc/figures.md`.

mod plot;

use std::fmt::Write;
use std::process::Command;
use std::{env, fs};

use clap::ValueEnum;
use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;
use serde::Serialize;

pub use self::plot::draw;
use crate::measure::{Sample, median};
use crate::plan::{Named, Peer, Scale, Workload};

/// The maximum number of characters in a line of a table with ranges.
const LINE_MAX: usize = 118;

pub struct Section {
    workload: Workload,
    figures: Vec<Measured>,
}

/// One quantity of a peer, with its values in all rounds.
struct Measured {
    peer: Peer,
    sample: Sample,
    values: Vec<f64>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Summary {
    median: f64,
    min: f64,
    max: f64,
}

impl Section {
    pub fn new(workload: Workload) -> Self {
        Self { workload, figures: Vec::new() }
    }

    pub fn add(&mut self, peer: Peer, samples: Vec<Sample>) {
        for sample in samples {
            let key = (peer, sample.title(), sample.n);
            let is_same_figure =
                |it: &&mut Measured| (it.peer, it.sample.title(), it.sample.n) == key;
            if let Some(figure) = self.figures.iter_mut().find(is_same_figure) {
                figure.values.push(sample.value);
            } else {
                let values = vec![sample.value];
                self.figures.push(Measured { peer, sample, values });
            }
        }
    }

    pub fn json_lines(&self) -> String {
        #[derive(Serialize)]
        struct Line<'a> {
            peer: String,
            workload: String,
            /// The size of the workload.
            n: usize,
            unit: &'a str,
            #[serde(flatten)]
            summary: Summary,
        }
        let line = |figure: &Measured| {
            let Measured { peer, sample, .. } = figure;
            let (workload, summary) = (sample.title(), figure.summary());
            let (peer, n, unit) = (peer.name(), sample.n, &sample.unit);
            let line = Line { peer, workload, n, unit, summary };
            serde_json::to_string(&line).expect("plain figures") + "\n"
        };
        self.figures.iter().map(line).collect()
    }

    fn markdown(&self) -> String {
        let (workload, counted) = (self.workload, self.workload.counted());
        let mut text = format!("## {}\n\n{}\n\n", workload.name(), workload.about());
        for chart in self.charts() {
            let Chart { name, unit, .. } = &chart;
            let n = format_short(chart.n as f64);
            let title = match chart.columns {
                Columns::Metrics => format!("{name}, {n} {counted}"),
                Columns::Settings => format!("{name}, {unit} ({n} {counted})"),
                Columns::Sizes => format!("{name}, {unit} by number of {counted}"),
            };
            let table_with_ranges = chart.table(workload, true).to_string();
            let ranges_fit = table_with_ranges.lines().all(|line| line.chars().count() <= LINE_MAX);
            let cells = if ranges_fit { "median (min-max)" } else { "median" };
            let table = if ranges_fit {
                table_with_ranges
            } else {
                chart.table(workload, false).to_string()
            };
            let _ = write!(text, "### {title}: {cells}\n\n{table}\n\n");
        }
        text
    }

    /// Returns a chart per metric, or a single chart if there is one size and no setting.
    fn charts(&self) -> Vec<Chart<'_>> {
        let Some(first) = self.figures.first() else { return Vec::new() };
        let has_settings = !first.sample.setting.is_empty();
        if self.workload.sizes(Scale::Full).len() == 1 && !has_settings {
            let all: Vec<_> = self.figures.iter().collect();
            return vec![Chart::new(&self.workload.name(), Columns::Metrics, &all)];
        }
        let columns = if has_settings { Columns::Settings } else { Columns::Sizes };
        let metrics = distinct(self.figures.iter().map(|figure| &figure.sample.workload));
        let chart = |metric_name: &String| {
            let of_metric = |figure: &&Measured| figure.sample.workload == *metric_name;
            Chart::new(
                metric_name,
                columns,
                &self.figures.iter().filter(of_metric).collect::<Vec<_>>(),
            )
        };
        metrics.into_iter().map(chart).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Columns {
    Metrics,
    Settings,
    Sizes,
}

/// A table, and optionally its plot.
struct Chart<'a> {
    name: String,
    columns: Columns,
    is_drawn: bool,
    n: usize,
    unit: &'a str,
    headings: Vec<String>,
    rows: Vec<(Peer, Vec<Option<&'a Measured>>)>,
}

impl<'a> Chart<'a> {
    fn new(name: &str, columns: Columns, figures: &[&'a Measured]) -> Self {
        let prefix = format!("{name}-");
        let heading = |Measured { sample, .. }: &Measured| match columns {
            Columns::Metrics => {
                let metric_name = sample.workload.strip_prefix(&prefix).unwrap_or(&sample.workload);
                format!("{metric_name}, {}", sample.unit)
            }
            Columns::Settings => sample.setting.clone(),
            Columns::Sizes => format_short(sample.n as f64),
        };
        let headings = distinct(figures.iter().map(|figure| heading(figure)));
        let row = |peer| {
            let of_peer = figures.iter().copied().filter(|figure| figure.peer == peer);
            let find = |column: &String| of_peer.clone().find(|figure| heading(figure) == *column);
            (peer, headings.iter().map(find).collect())
        };
        let peers = distinct(figures.iter().map(|figure| figure.peer));
        let rows = peers.into_iter().map(row).collect();
        let Sample { n, unit, .. } = &figures[0].sample;
        let is_drawn = match columns {
            Columns::Metrics => figures[0].has_curve(),
            Columns::Settings => false,
            Columns::Sizes => unit == "ns" && headings.len() > 1,
        };
        Self { name: name.to_owned(), columns, is_drawn, n: *n, unit, headings, rows }
    }

    /// Returns a table with a row per peer. If the values are times and the columns are not
    /// metrics, appends rows with ratios of corewheel to other peers.
    fn table(&self, workload: Workload, with_ranges: bool) -> Table {
        let mut table = Table::new();
        table.load_style(ASCII_MARKDOWN);
        table.set_header([&"peer".to_owned()].into_iter().chain(&self.headings));
        let mut add_row = |heading: &str, cells: Vec<Option<String>>| {
            let cells = cells.into_iter().map(|cell| cell.unwrap_or_else(|| "-".to_owned()));
            table.add_row([heading.to_owned()].into_iter().chain(cells));
        };
        for (peer, figures) in &self.rows {
            let cells = figures.iter().map(|it| Some((*it)?.format_cell(with_ranges)));
            add_row(&peer.name(), cells.collect());
        }
        if self.unit != "ns" || self.columns == Columns::Metrics {
            return table;
        }
        let median = |it: Option<&Measured>| Some(it?.summary().median);
        for (peer, own) in self.rows.iter().filter(|(peer, _)| peer.is_corewheel()) {
            let floor = peer.floor(workload);
            if let Some((_, floor)) = self.rows.iter().find(|(other, _)| Some(*other) == floor) {
                let ratio = |(&own, &floor)| Some(format!("{:.2}", median(own)? / median(floor)?));
                let ratios = own.iter().zip(floor).map(ratio).collect();
                add_row(&format!("{}, times its floor", peer.name()), ratios);
            }
            let ratio = |(column, &own)| {
                let complete_peers =
                    self.rows.iter().filter(|(peer, _)| peer.can_replace_corewheel());
                let medians =
                    complete_peers.filter_map(|(it, row)| Some((median(row[column])?, it)));
                let (best_median, other) = medians.min_by(|a, b| a.0.total_cmp(&b.0))?;
                Some(format!("{:.2} {}", best_median / median(own)?, other.name()))
            };
            let ratios: Vec<_> = own.iter().enumerate().map(ratio).collect();
            if ratios.iter().any(Option::is_some) {
                add_row(&format!("best complete peer, times {}", peer.name()), ratios);
            }
        }
        table
    }
}

impl Measured {
    fn summary(&self) -> Summary {
        let (values, first) = (self.values.iter().copied(), self.values[0]);
        let [min, max] = [f64::min, f64::max].map(|pick| values.clone().fold(first, pick));
        Summary { median: median(self.values.clone()), min, max }
    }

    fn has_curve(&self) -> bool {
        !self.sample.curve.is_empty()
    }

    fn format_cell(&self, with_range: bool) -> String {
        let Summary { median, min, max } = self.summary();
        let [median, min, max] = [median, min, max].map(format_value);
        if !with_range || min == max { median } else { format!("{median} ({min}-{max})") }
    }
}

pub fn sections(sections: &[Section]) -> String {
    let sections = sections.iter().filter(|section| !section.figures.is_empty());
    sections.map(Section::markdown).collect()
}

/// The remark of a page about the limits of a quick run.
const QUICK_RUN_REMARK: &str = " This was a quick run: it has one round from 100,000 timers on, it is \
     too short to warm up a million timers, and the fast clock calibrates itself during short \
     intervals.";

pub fn page(all: &[Section], is_quick: bool) -> String {
    let mut peers = Table::new();
    peers.load_style(ASCII_MARKDOWN).set_header(["peer", "description"]);
    for &peer in Peer::value_variants() {
        peers.add_row([peer.name(), peer.about()]);
    }
    format!(
        "<!-- Generated by `{command}`. Do not edit. -->\n\n\
         # All figures\n\n\
         Written by this command:\n\n\
         ```sh\n{command}\n```\n\n{}\n\n\
         Values are medians of the rounds, with the minimum and the maximum where they fit. Times \
         vary between runs, above all on a shared machine, so compare ratios. Most workloads run \
         in virtual time with a tick of 1 ms. A *complete* peer takes any delay, fires at the \
         exact tick, and recognizes stale handles.{}\n\n\
         {peers}\n\n{}\n",
        machine_description(),
        if is_quick { QUICK_RUN_REMARK } else { "" },
        sections(all).trim_end(),
        command = command_line(),
    )
}

pub fn command_line() -> String {
    let flags = if cfg!(tokio_unstable) { "RUSTFLAGS=\"--cfg tokio_unstable\" " } else { "" };
    let command = format!("{flags}cargo run --release -p corewheel-bench --bin compare --");
    let arguments: Vec<String> = env::args().skip(1).collect();
    format!("{command} {}", arguments.join(" ")).trim_end_matches(" -- ").to_owned()
}

pub fn machine_description() -> String {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let output = |program, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().ok();
        let text = output.and_then(|output| String::from_utf8(output.stdout).ok());
        text.map_or_else(|| format!("unknown {program}"), |text| text.trim().to_owned())
    };
    format!(
        "{}, {} cores, {}, {}, {}",
        cpu.map_or("an unknown processor", |(_, name)| name),
        std::thread::available_parallelism().map_or(0, Into::into),
        output("uname", &["-sr"]),
        output("rustc", &["--version"]),
        output("date", &["-u", "+%F %R UTC"]),
    )
}

fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    all.fold(Vec::new(), |mut distinct, value| {
        if !distinct.contains(&value) {
            distinct.push(value);
        }
        distinct
    })
}

fn format_value(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Formats like `1M`, `20k`, `5`, `0.2`.
fn format_short(value: f64) -> String {
    match value {
        1e6.. => format!("{}M", value / 1e6),
        1e3.. => format!("{}k", value / 1e3),
        _ => format!("{value}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(workload: Workload, sizes: &[usize]) -> Section {
        let mut section = Section::new(workload);
        for value in [5000.0, 1000.0, 3000.0, 9000.0] {
            for &n in sizes {
                section.add(Peer::BTree, vec![Sample::new("churn", n, "ns", value)]);
            }
        }
        section
    }

    #[test]
    fn a_cell_shows_the_median_and_range_of_all_rounds() {
        let section = section(Workload::Churn, &[10]);
        assert_eq!(section.figures.len(), 1);
        assert_eq!(section.figures[0].format_cell(true), "4000 (1000-9000)");
    }

    #[test]
    fn a_wide_table_shows_only_medians() {
        let narrow = section(Workload::Churn, &[1, 2, 3, 4]).markdown();
        assert!(narrow.contains("4000 (1000-9000)") && narrow.contains("timers: median (min-max)"));
        let wide = section(Workload::Churn, &[1, 2, 3, 4, 5, 6, 7, 8, 9]).markdown();
        assert!(wide.contains("| 4000 | 4000 |") && wide.contains("timers: median\n"), "{wide}");
    }
}
