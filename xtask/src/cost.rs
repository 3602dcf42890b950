//! The command `cost`: counts the instructions per operation of the library and its *peers*, which
//! are other timers, with valgrind.
//!
//! Each case of the program in `cost/` runs twice, with different numbers of iterations. The
//! difference of the counts, divided by the difference of the iterations, is the cost of one
//! operation. `cost/best.txt` contains the lowest saved counts of corewheel.

use std::{
    collections::{BTreeMap, HashSet},
    env, fs, mem,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};

use crate::{
    lanes,
    process::{on_all_cores, stdout_of},
    root,
};

const USAGE: &str = "usage: cargo xtask cost [--save [--all]]";
const BEST_FILE: &str = "cost/best.txt";
/// The largest allowed excess of a count over its best, in percent.
const TOLERANCE_PERCENT: u64 = 3;

const LIVE_TIMERS: u64 = 1_000;
const ITERATIONS: [u64; 2] = [4_096, 8_192];
/// The variants of corewheel. All other variants are peers.
const COREWHEEL_VARIANTS: [&str; 3] = ["wheel", "shard", "local"];

type Tenths = u64;
/// The numbers of instructions and of locked instructions, by the name of a case. A name ends in
/// `+all` if the library has all features.
type Counts = BTreeMap<String, [Tenths; 2]>;

/// Runs `cargo xtask cost`. Returns false if a count exceeds the best of the same tools by more
/// than the tolerance.
pub(crate) fn run(options: &[&str]) -> Result<bool> {
    let (save, save_all) = match options {
        [] => (false, false),
        ["--save"] => (true, false),
        ["--save", "--all"] => (true, true),
        _ => bail!(USAGE),
    };
    if let Some(reason) = lanes::missing_tool("xtask cost") {
        println!("SKIPPED cost: {reason}");
        return Ok(true);
    }
    let default_program = Program::build("default", "", "")?;
    let all_features_program = Program::build("all", "+all", "--features all")?;
    let list = stdout_of(&format!("'{}' --list", default_program.path.display()))?;
    let cases: Vec<_> = list.lines().filter(|case| !case.starts_with("path")).collect();
    let corewheel_cases =
        cases.iter().filter(|case| is_corewheel(case)).map(|case| (&all_features_program, *case));
    let jobs: Vec<_> =
        cases.iter().map(|case| (&default_program, *case)).chain(corewheel_cases).collect();
    let instructions = count_instructions(&jobs)?;

    let (versions, mut best) = (versions()?, Best::read()?);
    println!("instructions per operation, {LIVE_TIMERS} live timers; {versions}");
    println!("a timer stores 24 bytes, one of `wheel` and `shard` 8");
    print_row(["operation variant", "default", "locked", "best", "all features", "best"]);
    for case in cases {
        let with_all = format!("{case}+all");
        let [count, locked] = instructions[case];
        let locked =
            if default_program.locked.is_empty() { "-".into() } else { format_tenths(locked) };
        let count_all =
            instructions.get(&with_all).map_or(String::new(), |count| format_tenths(count[0]));
        let [best, best_all] = [case, &with_all].map(|case| best.format_best(case, &instructions));
        print_row([case, &format_tenths(count), &locked, &best, &count_all, &best_all]);
    }
    if best.versions != versions && !save_all {
        println!("\nreported only: the best counts are of {}", best.versions);
        ensure!(!save, "to replace them, add --all");
        return Ok(true);
    }
    if save {
        best.save(&versions, &instructions, save_all)?;
    }
    let is_worse = instructions.keys().any(|case| best.is_worse(case, &instructions));
    if is_worse {
        println!(
            "\nFAILED: counts marked with ! are more than {TOLERANCE_PERCENT} % above their best"
        );
    }
    Ok(!is_worse)
}

fn is_corewheel(case: &str) -> bool {
    let variant = case.split(' ').next_back().expect("split returns at least one word");
    COREWHEEL_VARIANTS.contains(&variant.trim_end_matches("+all"))
}

fn print_row([case, cells @ ..]: [&str; 6]) {
    let cells = cells.map(|cell| format!("{cell:>13}")).concat();
    println!("{}", format!("{case:<28}{cells}").trim_end());
}

fn format_tenths(tenths: Tenths) -> String {
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// Returns the versions of the tools on which a count depends, in one line.
fn versions() -> Result<String> {
    let [rustc, valgrind] = ["rustc --version", "valgrind --version"].map(stdout_of);
    Ok(format!("{} {} {}", rustc?.trim(), valgrind?.trim(), env::consts::ARCH))
}

struct Best {
    versions: String,
    counts: BTreeMap<String, Tenths>,
}

impl Best {
    /// Reads the file: a line with the versions, then lines `OPERATION VARIANT INSTRUCTIONS`.
    fn read() -> Result<Self> {
        let text = fs::read_to_string(root().join(BEST_FILE))?;
        let (versions, lines) = text.split_once('\n').context("cost/best.txt has no counts")?;
        let count = |line: &str| {
            let (case, count) = line.rsplit_once(' ').context("a count follows each case")?;
            Ok((case.to_owned(), count.replace('.', "").parse()?))
        };
        let counts = lines.lines().map(count).collect::<Result<_>>().context(BEST_FILE)?;
        Ok(Self { versions: versions.to_owned(), counts })
    }

    fn is_worse(&self, case: &str, counts: &Counts) -> bool {
        let pair = self.counts.get(case).zip(counts.get(case));
        pair.is_some_and(|(best, count)| count[0] * 100 > best * (100 + TOLERANCE_PERCENT))
    }

    fn format_best(&self, case: &str, counts: &Counts) -> String {
        let mark = if self.is_worse(case, counts) { "! " } else { "" };
        self.counts
            .get(case)
            .map_or(String::new(), |best| format!("{mark}{}", format_tenths(*best)))
    }

    /// Saves corewheel's counts that are below their best; with `save_all`, saves all.
    fn save(&mut self, versions: &str, counts: &Counts, save_all: bool) -> Result<()> {
        let old_counts = mem::take(&mut self.counts);
        for (case, &[count, _]) in counts.iter().filter(|(case, _)| is_corewheel(case)) {
            let best =
                old_counts.get(case).filter(|_| !save_all).map_or(count, |best| count.min(*best));
            self.counts.insert(case.clone(), best);
        }
        let lines =
            self.counts.iter().map(|(case, count)| format!("{case} {}\n", format_tenths(*count)));
        let text = format!("{versions}\n{}", lines.collect::<String>());
        Ok(fs::write(root().join(BEST_FILE), text)?)
    }
}

struct Program {
    path: PathBuf,
    /// The suffix of this program's cases in the tables.
    suffix: &'static str,
    locked: HashSet<String>,
}

impl Program {
    fn build(name: &str, suffix: &'static str, options: &str) -> Result<Self> {
        // Clears the user's compiler flags, which would change the counts.
        stdout_of(&format!(
            "CARGO_ENCODED_RUSTFLAGS= cargo build --quiet --locked -p corewheel-cost --profile cost \
             {options}"
        ))?;
        let directory = root().join(lanes::target_directory()).join("cost");
        // Copies the built program, because the build with other features replaces it.
        let path = directory.join(format!("cost-{name}"));
        fs::copy(directory.join("cost"), &path)?;
        // Profiles contain the path without symbolic links.
        let path = fs::canonicalize(path)?;
        let locked = locked_instructions(&path);
        Ok(Self { path, suffix, locked })
    }

    /// Runs a case under callgrind. Returns the numbers of all and of locked instructions.
    fn instructions(&self, case: &str, iterations: u64) -> Result<[u64; 2]> {
        let file = self.path.with_extension(format!("{}.{iterations}", case.replace(' ', ".")));
        stdout_of(&format!(
            "valgrind --tool=callgrind --compress-strings=no --compress-pos=no --dump-instr=yes \
             --callgrind-out-file='{}' '{}' {case} {LIVE_TIMERS} {iterations}",
            file.display(),
            self.path.display()
        ))?;
        let profile = fs::read_to_string(&file)?;
        fs::remove_file(file)?;
        Ok(count_self_instructions(&profile, &self.path.to_string_lossy(), &self.locked))
    }
}

/// Returns the addresses of x86's locked instructions, such as `lock xadd`. Finds none without
/// objdump.
fn locked_instructions(program: &Path) -> HashSet<String> {
    let code = stdout_of(&format!("objdump -d --no-show-raw-insn '{}'", program.display()));
    let code = code.unwrap_or_default();
    let is_locked =
        |code: &str| code.starts_with("lock ") || (code.starts_with("xchg ") && code.contains('('));
    let lines = code.lines().filter_map(|line| line.trim_start().split_once(":\t"));
    let locked = lines.filter(|(_, code)| is_locked(code));
    locked.map(|(address, _)| format!("0x{address}")).collect()
}

/// Returns the numbers of all and of locked instructions in a profile. Skips the line after
/// `calls=`, which has the count of a callee.
fn count_self_instructions(profile: &str, program: &str, locked: &HashSet<String>) -> [u64; 2] {
    let ([mut all, mut locked_count], mut is_program, mut lines) = ([0, 0], false, profile.lines());
    while let Some(line) = lines.next() {
        if line.starts_with("calls=") {
            lines.next();
        } else if let Some(object) = line.strip_prefix("ob=") {
            is_program = object == program;
        } else if line.starts_with("0x") {
            let mut words = line.split(' ');
            let is_locked = words.next().is_some_and(|address| locked.contains(address));
            let count = words.nth(1).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
            all += count;
            locked_count += if is_program && is_locked { count } else { 0 };
        }
    }
    [all, locked_count]
}

/// Counts the instructions per operation of each case. Cases run in parallel, at most one on each
/// core. Purgatories hash keys with a random secret, so the counts of their cases are medians of
/// five runs.
fn count_instructions(jobs: &[(&Program, &str)]) -> Result<Counts> {
    let work = |&(program, case): &(&Program, &str)| {
        let [few_iterations, many_iterations] = ITERATIONS;
        let count_once = |_| {
            let [few_counts, many_counts] = [
                program.instructions(case, few_iterations)?,
                program.instructions(case, many_iterations)?,
            ];
            let operations = many_iterations - few_iterations;
            let per_operation = |i: usize| {
                (many_counts[i].saturating_sub(few_counts[i]) * 10 + operations / 2) / operations
            };
            Ok([0, 1].map(per_operation))
        };
        let runs = if case.starts_with("purgatory") { 5 } else { 1 };
        let mut counts = (0..runs).map(count_once).collect::<Result<Vec<_>>>()?;
        counts.sort_unstable();
        Ok((format!("{case}{}", program.suffix), counts[runs / 2]))
    };
    on_all_cores(jobs, work).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_worse_beyond_the_tolerance() {
        let case = "reset wheel";
        let best = BTreeMap::from([(case.to_owned(), 1_000)]);
        let best = Best { versions: String::new(), counts: best };
        let formatted =
            |count| best.format_best(case, &Counts::from([(case.to_owned(), [count, 0])]));
        assert_eq!([1_030, 1_031].map(formatted), ["100.0", "! 100.0"]);
        assert!(!best.is_worse("reset shard", &Counts::from([("reset shard".to_owned(), [9, 0])])));
    }

    #[test]
    fn counts_of_callees_are_left_out() {
        let profile = "events: Ir\n\nob=a\n0x10 0 3\ncfn=b\ncalls=1 0x20\n0x12 0 9\n0x14 0 1\n";
        assert_eq!(
            count_self_instructions(profile, "a", &HashSet::from(["0x14".to_owned()])),
            [4, 1]
        );
    }
}
