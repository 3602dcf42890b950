//! Which lines of `src/` no test reaches: a table of all files, and the lines themselves where it matters most, in the files
//! that have `unsafe` or are on the hot path.
//!
//! Unit tests are left out of the count, since whoever runs them covers them.

use std::{fs, path::Path};

use crate::{
    lane::{Lane, root, target_base},
    run::{self, Failure},
    tools,
};

/// What timers go through all the time, and what decides about them.
const HOT: [&str; 6] = ["callback", "guests", "mailbox", "slab", "state", "wheel"];

/// Less than this of all lines is a failure, in percent.
const LEAST: f64 = 97.0;

/// One file of `src/`: its lines that can be reached, and whether one was.
#[derive(Debug, PartialEq)]
struct File {
    name: String,
    lines: Vec<(usize, bool)>,
}

/// See the module.
pub(crate) fn run() -> Result<(), Failure> {
    tools::provide(tools::COVERAGE)?;
    let report = target_base().join("coverage.info");
    let measure = Lane::new(
        "coverage",
        "cargo llvm-cov -p corewheel --features fd,metrics,origins,tracing --lib --tests --locked --lcov",
    )
    .and("--output-path")
    .word(report.display().to_string());
    run::all(&[measure])?;
    let read = |path: &Path| {
        fs::read_to_string(path).map_err(|error| Failure(format!("{}: {error}", path.display())))
    };
    let mut files = files(&read(&report)?, root());
    for file in &mut files {
        let source = read(&root().join(&file.name))?;
        file.leave_out(unit_tests(&source));
        if file.is_hot() || has_unsafe(&source) {
            file.print_missing(&source);
        }
    }
    print_table(&files)
}

impl File {
    fn covered(&self) -> usize {
        self.lines.iter().filter(|(_, reached)| *reached).count()
    }

    fn missing(&self) -> impl Iterator<Item = usize> {
        self.lines.iter().filter(|(_, reached)| !reached).map(|&(line, _)| line)
    }

    fn leave_out(&mut self, from: usize) {
        self.lines.retain(|&(line, _)| line < from);
    }

    /// Whether it is one of `HOT`, or in the directory of one.
    fn is_hot(&self) -> bool {
        let path = self.name.trim_start_matches("src/").trim_end_matches(".rs");
        path.split('/').next().is_some_and(|module| HOT.contains(&module))
    }

    fn print_missing(&self, source: &str) {
        for line in self.missing() {
            let text = source.lines().nth(line - 1).unwrap_or_default().trim();
            println!("{}:{line}: {text}", self.name);
        }
    }
}

/// The files below `src/` in a report of lcov's.
fn files(report: &str, root: &Path) -> Vec<File> {
    let mut files: Vec<File> = Vec::new();
    for record in report.lines() {
        if let Some(path) = record.strip_prefix("SF:") {
            let name =
                Path::new(path).strip_prefix(root).unwrap_or(Path::new(path)).display().to_string();
            files.push(File { name, lines: Vec::new() });
        } else if let (Some(data), Some(file)) = (record.strip_prefix("DA:"), files.last_mut()) {
            let mut numbers = data.split(',').map(str::parse);
            if let (Some(Ok(line)), Some(Ok(count))) = (numbers.next(), numbers.next()) {
                file.lines.push((line, count > 0));
            }
        }
    }
    files.retain(|file| file.name.starts_with("src/"));
    files
}

/// The line with which the unit tests begin; they are the last of a file.
fn unit_tests(source: &str) -> usize {
    let is_begin =
        |line: &str| line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test");
    let lines: Vec<&str> = source.lines().collect();
    let begin = lines
        .windows(2)
        .position(|two| is_begin(two[0]) && two[1].starts_with("mod ") && two[1].ends_with('{'));
    begin.map_or(usize::MAX, |at| at + 1)
}

fn has_unsafe(source: &str) -> bool {
    source.lines().any(|line| !line.trim_start().starts_with("//") && line.contains("unsafe "))
}

/// Fails if too little is covered.
fn print_table(files: &[File]) -> Result<(), Failure> {
    let width = files.iter().map(|file| file.name.len()).max().unwrap_or_default();
    println!("\n{:width$}  lines  missed  covered", "");
    for file in files {
        print_row(&file.name, width, file.lines.len(), file.covered());
    }
    let (all, covered) =
        files.iter().fold((0, 0), |sum, file| (sum.0 + file.lines.len(), sum.1 + file.covered()));
    print_row("all", width, all, covered);
    let share = percent(covered, all);
    if share < LEAST {
        Err(Failure(format!("{share:.1} % of the lines are covered, less than {LEAST} %")))
    } else {
        Ok(())
    }
}

fn print_row(name: &str, width: usize, lines: usize, covered: usize) {
    println!("{name:width$}  {lines:5}  {:6}  {:5.1} %", lines - covered, percent(covered, lines));
}

#[allow(clippy::cast_precision_loss)] // Lines are few.
fn percent(part: usize, whole: usize) -> f64 {
    if whole == 0 { 100.0 } else { 100.0 * part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{File, files, has_unsafe, unit_tests};

    #[test]
    fn a_report_is_read() {
        let report =
            "SF:/a/src/state.rs\nFN:1,x\nDA:3,7\nDA:4,0\nend_of_record\nSF:/a/tests/b.rs\nDA:1,1\n";
        let found = files(report, Path::new("/a"));
        let lines = vec![(3, true), (4, false)];
        assert_eq!(found, [File { name: "src/state.rs".to_owned(), lines }]);
        assert_eq!((found[0].covered(), found[0].missing().collect::<Vec<_>>()), (1, vec![4]));
    }

    #[test]
    fn what_is_hot_is_a_module_with_all_below_it() {
        let is_hot = |name: &str| File { name: name.to_owned(), lines: Vec::new() }.is_hot();
        assert!(is_hot("src/wheel.rs") && is_hot("src/wheel/slot.rs") && is_hot("src/callback.rs"));
        assert!(!is_hot("src/cores.rs") && !is_hot("src/local/inner.rs"));
    }

    #[test]
    fn unit_tests_do_not_count() {
        assert_eq!(unit_tests("fn a() {}\n\n#[cfg(test)]\nmod tests {\n}\n"), 3);
        assert_eq!(unit_tests("#[cfg(test)]\nmod tests;\nfn a() {}\n"), usize::MAX);
    }

    #[test]
    fn unsafe_in_a_comment_is_none() {
        assert!(
            has_unsafe("let a = unsafe { b() };")
                && !has_unsafe("    // unsafe is elsewhere\nfn a() {}")
        );
    }
}
