//! What came out of all runs, as tables, JSON lines, plots, and the page `doc/figures.md`.

mod plot;

use std::{env, fmt::Write, fs, process::Command};

use clap::ValueEnum;
use comfy_table::{Table, presets::ASCII_MARKDOWN};
use jiff::Zoned;
use serde::Serialize;

pub use self::plot::draw;
use crate::{
    measure::{Sample, median},
    plan::{Named, Peer, Workload},
};

/// The widest line of a table with ranges, in characters.
const PAGE: usize = 118;

const SCHEMES: &str = "The timer schemes of the literature, which `doc/schemes.md` explains: what each routine costs.";

/// The figures of one workload.
#[derive(Debug)]
pub struct Section {
    /// `None` for the schemes.
    workload: Option<Workload>,
    figures: Vec<Figure>,
}

/// All rounds of one figure.
#[derive(Debug)]
struct Figure {
    peer: String,
    /// Of the first round.
    sample: Sample,
    values: Vec<f64>,
}

/// Median, least and greatest of the rounds.
#[derive(Clone, Copy, Debug, Serialize)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Section {
    /// Creates a section without figures; for the schemes, without a workload.
    pub fn new(workload: Option<Workload>) -> Self {
        Self { workload, figures: Vec::new() }
    }

    /// Adds what one run of a peer has measured.
    pub fn add(&mut self, peer: &str, samples: Vec<Sample>) {
        for sample in samples {
            let key = |sample: &Sample| (sample.title(), sample.n);
            let known =
                |figure: &&mut Figure| figure.peer == peer && key(&figure.sample) == key(&sample);
            if let Some(figure) = self.figures.iter_mut().find(known) {
                figure.values.push(sample.value);
            } else {
                let values = vec![sample.value];
                self.figures.push(Figure { peer: peer.to_owned(), sample, values });
            }
        }
    }

    /// Writes a line of JSON per figure.
    pub fn json_lines(&self) -> String {
        #[derive(Serialize)]
        struct Line<'a> {
            peer: &'a str,
            workload: String,
            n: usize,
            unit: &'a str,
            #[serde(flatten)]
            spread: Spread,
        }
        let line = |figure: &Figure| {
            let Figure { peer, sample, .. } = figure;
            let (workload, spread) = (sample.title(), figure.spread());
            let line = Line { peer, workload, n: sample.n, unit: &sample.unit, spread };
            serde_json::to_string(&line).expect("plain figures") + "\n"
        };
        self.figures.iter().map(line).collect()
    }

    /// Writes the section as Markdown: what is measured and a table per kind of figure. With a
    /// directory of plots, they are referred to.
    fn markdown(&self, plots: Option<&str>) -> String {
        if self.figures.is_empty() {
            return String::new();
        }
        let (title, about) = match self.workload {
            Some(workload) => (workload.name(), workload.about()),
            None => ("schemes".to_owned(), SCHEMES.to_owned()),
        };
        let mut text = format!("## {title}\n\n{about}\n\n");
        let plots_drawn: Vec<String> =
            plot::plots(self).into_iter().map(|plot| plot.name).collect();
        let refer = |text: &mut String, name: &str| {
            if let Some(plots) = plots.filter(|_| plots_drawn.iter().any(|drawn| drawn == name)) {
                let _ = write!(text, "![{name}]({plots}/{name}.svg)\n\n");
            }
        };
        if !self.names().contains(&title.as_str()) {
            refer(&mut text, &title);
        }
        let tables = if self.is_profile() { vec![""] } else { self.names() };
        for kind in tables {
            let of_kind = |figure: &&Figure| kind.is_empty() || figure.sample.workload == kind;
            let figures: Vec<&Figure> = self.figures.iter().filter(of_kind).collect();
            let Sample { n, unit, setting, .. } = &figures[0].sample;
            let counted = self.workload.map_or("timers", Workload::counted);
            let title = match kind {
                "" => format!("{title}, {} {counted}", short(*n as f64)),
                _ if setting.is_empty() => format!("{kind}, {unit} by number of {counted}"),
                _ => format!("{kind}, {unit} ({} {counted})", short(*n as f64)),
            };
            let full = self.table(&figures, true).to_string();
            let ranges = full.lines().all(|line| line.chars().count() <= PAGE);
            let cells = if ranges { "median (min-max)" } else { "median" };
            let table = if ranges { full } else { self.table(&figures, false).to_string() };
            let _ = write!(text, "### {title}: {cells}\n\n");
            refer(&mut text, kind);
            let _ = write!(text, "{table}\n\n");
        }
        text
    }

    /// Returns whether it has figures of several kinds for one size, which then stand side by side.
    fn is_profile(&self) -> bool {
        self.workload.is_some_and(|workload| workload.sizes(false).len() == 1)
            && self.figures.iter().all(|figure| figure.sample.setting.is_empty())
    }

    /// Returns the kinds of figures.
    fn names(&self) -> Vec<&str> {
        distinct(self.figures.iter().map(|figure| figure.sample.workload.as_str()))
    }

    /// Returns what stands above the column of a figure: its kind, the setting, or the number of timers.
    fn column(&self, Figure { sample, .. }: &Figure) -> String {
        if self.is_profile() {
            let prefix = self.workload.map(|workload| workload.name()).unwrap_or_default() + "-";
            let kind = sample.workload.strip_prefix(&prefix).unwrap_or(&sample.workload);
            format!("{kind}, {}", sample.unit)
        } else if sample.setting.is_empty() {
            short(sample.n as f64)
        } else {
            sample.setting.clone()
        }
    }

    /// A row per peer; for times by size, the ratios of corewheel below.
    fn table(&self, figures: &[&Figure], ranges: bool) -> Table {
        let columns = distinct(figures.iter().map(|figure| self.column(figure)));
        let peers = distinct(figures.iter().map(|figure| figure.peer.as_str()));
        let find = |peer: &str, column: &String| {
            figures.iter().find(|figure| figure.peer == peer && self.column(figure) == *column)
        };
        let median =
            |peer: Peer, column: &String| Some(find(&peer.name(), column)?.spread().median);
        let mut table = Table::new();
        let mut add = |head: String, cells: Vec<Option<String>>| {
            let cells = cells.into_iter().map(|cell| cell.unwrap_or_else(|| "-".to_owned()));
            table.add_row([head].into_iter().chain(cells));
        };
        for &peer in &peers {
            let cell = |column| Some(find(peer, column)?.cell(ranges));
            add(peer.to_owned(), columns.iter().map(cell).collect());
        }
        let Sample { unit, setting, .. } = &figures[0].sample;
        let is_time_by_size = unit == "ns" && setting.is_empty() && !self.is_profile();
        let peers = peers.iter().filter_map(|peer| Peer::from_str(peer, false).ok());
        for peer in peers.clone().filter(|peer| is_time_by_size && peer.is_corewheel()) {
            let to_floor = |column| {
                let floor = median(peer.floor(self.workload?)?, column)?;
                Some(format!("{:.2}", median(peer, column)? / floor))
            };
            let to_best = |column| {
                let complete = peers.clone().filter(|peer| peer.is_complete());
                let others = complete.filter_map(|peer| Some((median(peer, column)?, peer)));
                let (best, other) = others.min_by(|a, b| a.0.total_cmp(&b.0))?;
                Some(format!("{:.2} {}", best / median(peer, column)?, other.name()))
            };
            let ratios: [(String, Vec<Option<String>>); 2] = [
                (
                    format!("{}, times its floor", peer.name()),
                    columns.iter().map(to_floor).collect(),
                ),
                (
                    format!("best complete peer, times {}", peer.name()),
                    columns.iter().map(to_best).collect(),
                ),
            ];
            for (head, cells) in ratios {
                if cells.iter().any(Option::is_some) {
                    add(head, cells);
                }
            }
        }
        table.load_style(ASCII_MARKDOWN);
        table.set_header(["peer".to_owned()].into_iter().chain(columns));
        table
    }
}

impl Figure {
    fn spread(&self) -> Spread {
        let [min, max] =
            [f64::min, f64::max].map(|pick| self.values.iter().copied().fold(self.values[0], pick));
        Spread { median: median(self.values.clone()), min, max }
    }

    fn cell(&self, range: bool) -> String {
        let Spread { median, min, max } = self.spread();
        let [median, min, max] = [median, min, max].map(rounded);
        if !range || min == max { median } else { format!("{median} ({min}-{max})") }
    }
}

/// Writes all sections as Markdown. With a directory of plots, they are referred to.
pub fn sections(sections: &[Section], plots: Option<&str>) -> String {
    sections.iter().map(|section| section.markdown(plots)).collect()
}

/// Writes the whole page.
pub fn page(all: &[Section], plots: Option<&str>) -> String {
    let mut peers = Table::new();
    peers.load_style(ASCII_MARKDOWN).set_header(["peer", "what it is"]);
    for &peer in Peer::value_variants() {
        peers.add_row([peer.name(), peer.about()]);
    }
    format!(
        "<!-- Generated by `{command}`. Do not edit. -->\n\n\
         # All figures\n\n\
         What the command below printed, of every workload and every peer.\n\n\
         ```sh\n{command}\n```\n\n{}\n\n\
         Values are medians of the rounds, with the least and the greatest where they fit. Times swing from run to run, \
         above all on a shared machine: compare ratios. Most workloads run in virtual time with a tick of 1 ms. A \
         *complete* peer takes any delay, is exact to the tick, and its cancel answers for stale handles too.\n\n\
         {peers}\n\n{}\n",
        machine(),
        sections(all, plots).trim_end(),
        command = command(),
    )
}

/// Returns the command line that started this program.
pub fn command() -> String {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let command = "cargo run --release -p corewheel-bench --bin compare --";
    format!("{command} {}", arguments.join(" ")).trim_end_matches(" -- ").to_owned()
}

/// Describes where and when the figures were made.
pub fn machine() -> String {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let rustc = Command::new("rustc").arg("--version").output().ok();
    let rustc = rustc.and_then(|output| String::from_utf8(output.stdout).ok());
    let system = rustix::system::uname();
    format!(
        "{}, {} cores, {} {}, {}, {}",
        cpu.map_or("an unknown processor", |(_, name)| name),
        std::thread::available_parallelism().map_or(0, Into::into),
        system.sysname().to_string_lossy(),
        system.release().to_string_lossy(),
        rustc.as_deref().unwrap_or("an unknown compiler").trim(),
        Zoned::now().strftime("%F %R %Z"),
    )
}

/// Returns each once, in the order of the first appearance.
fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    all.fold(Vec::new(), |mut seen, one| {
        if !seen.contains(&one) {
            seen.push(one);
        }
        seen
    })
}

/// Writes three significant digits.
fn rounded(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Writes `1M`, `20k`, `5`, `0.2`.
fn short(value: f64) -> String {
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
        let mut section = Section::new(Some(workload));
        for value in [5000.0, 1000.0, 3000.0, 9000.0] {
            for &n in sizes {
                section.add("btree", vec![Sample::nanos("churn", n, value)]);
            }
        }
        section
    }

    #[test]
    fn rounds_become_median_and_range() {
        let section = section(Workload::Churn, &[10]);
        assert_eq!(section.figures.len(), 1);
        assert_eq!(section.figures[0].cell(true), "4000 (1000-9000)");
    }

    #[test]
    fn a_wide_table_is_left_with_its_medians() {
        let narrow = section(Workload::Churn, &[1, 2, 3, 4]).markdown(None);
        assert!(narrow.contains("4000 (1000-9000)") && narrow.contains("timers: median (min-max)"));
        let wide = section(Workload::Churn, &[1, 2, 3, 4, 5, 6, 7, 8, 9]).markdown(None);
        assert!(wide.contains("| 4000 | 4000 |") && wide.contains("timers: median\n"), "{wide}");
    }
}
