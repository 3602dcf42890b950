//! The lane `cost`: instructions per operation of the library and its peers, counted by valgrind.
//!
//! Each case of the program in `cost/` runs twice, with different numbers of iterations. The
//! difference of the counts, divided by the difference of the iterations, is the cost of one
//! operation. `cost/best.txt` holds the lowest counts so far.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    env, fs,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
    thread,
};

use crate::{Result, lanes, root};

const USAGE: &str = "usage: cargo xtask cost [--save [--force]]";
/// How many percent above its best a count may be.
const TOLERANCE: u64 = 3;

/// The live timers and the two numbers of iterations where instructions are counted.
const FEW_TIMERS: (u64, [u64; 2]) = (1_000, [4_096, 8_192]);
/// The live timers and the two numbers of iterations where cache misses are counted.
const MANY_TIMERS: (u64, [u64; 2]) = (300_000, [20_000, 100_000]);
/// The cases with many timers.
const MISSES: [&str; 3] = ["cancel-add wheel", "cancel-add local", "cancel-add linked64"];
/// The variants of corewheel; the others are its peers.
const OURS: [&str; 3] = ["wheel", "shard", "local"];

/// Tenths of an instruction or of a miss.
type Tenths = u64;

/// Counts, prints the table, and saves what `options` say. Returns whether no count is worse.
pub(crate) fn run(options: &[&str]) -> Result<bool> {
    let (save, force) = match options {
        [] => (false, false),
        ["--save"] => (true, false),
        ["--save", "--force"] => (true, true),
        _ => return Err(USAGE.into()),
    };
    if let Some(reason) = lanes::missing_tool("xtask cost") {
        println!("SKIPPED cost: {reason}");
        return Ok(true);
    }
    let default = Program::build("default", &["--release"])?;
    let all = Program::build("all", &["--release", "--features", "all"])?;
    let debug = Program::build("debug", &[])?;
    let list = output(Command::new(&default.path).arg("--list"))?;
    let (paths, cases): (Vec<_>, Vec<_>) = list.lines().partition(|case| case.starts_with("path"));

    let mut jobs: Vec<Job> = Vec::new();
    jobs.extend(MISSES.iter().map(|case| Job { program: &default, case, misses: true }));
    jobs.extend(cases.iter().map(|case| Job { program: &default, case, misses: false }));
    let ours = cases.iter().filter(|case| OURS.iter().any(|name| case.ends_with(name)));
    jobs.extend(ours.clone().map(|case| Job { program: &all, case, misses: false }));
    let counts = in_parallel(&jobs)?;
    let (misses, counts) = counts.split_at(MISSES.len());
    let (columns, all_columns) = counts.split_at(cases.len());

    let versions = versions()?;
    let mut best = Best::read()?;
    let is_comparable = best.versions == versions;
    let all_columns: BTreeMap<_, _> = ours.zip(all_columns).collect();
    let mut worse = 0;
    println!("instructions per operation, {} live timers; {versions}", FEW_TIMERS.0);
    print_row(["operation variant", "default", "locked", "best", "all features", "best"]);
    for (case, [instructions, locked]) in cases.iter().zip(columns) {
        let locked = if default.locked.is_empty() { "-".into() } else { shown(*locked) };
        let (best_default, is_worse) = best.compare(case, *instructions);
        worse += u32::from(is_worse);
        let (mut count_all, mut best_all) = (String::new(), String::new());
        if let Some(&&[instructions, _]) = all_columns.get(case) {
            let (best, is_worse) = best.compare(&format!("{case}+all"), instructions);
            worse += u32::from(is_worse);
            (count_all, best_all) = (shown(instructions), best);
        }
        print_row([case, &shown(*instructions), &locked, &best_default, &count_all, &best_all]);
    }
    println!("\nmisses per operation, {} live timers", MANY_TIMERS.0);
    print_row(["operation variant", "L1", "last level", "", "", ""]);
    for (case, [first, last]) in MISSES.iter().zip(misses) {
        print_row([case, &shown(*first), &shown(*last), "", "", ""]);
    }
    println!("\npath in an unoptimised build");
    print_row(["operation variant", "functions", "files", "", "", ""]);
    for case in paths {
        let (functions, files) = debug.path_of(case)?;
        print_row([case, &functions.to_string(), &files.to_string(), "", "", ""]);
    }
    if save && (is_comparable || force) {
        let ours = cases.iter().zip(columns).filter(|(case, _)| all_columns.contains_key(case));
        let ours = ours.map(|(case, counts)| ((*case).to_owned(), counts[0]));
        let all = all_columns.iter().map(|(case, counts)| (format!("{case}+all"), counts[0]));
        best.save(versions, ours.chain(all), force)?;
    } else if !is_comparable {
        println!(
            "\nthe best counts are of other tools, {}: compared for information",
            best.versions
        );
        return if save { Err("to replace them, add --force".into()) } else { Ok(true) };
    } else if worse > 0 {
        println!("\nFAILED: {worse} counts marked ! are more than {TOLERANCE} % above their best");
    }
    Ok(save || worse == 0)
}

fn print_row([case, cells @ ..]: [&str; 6]) {
    let cells: String = cells.map(|cell| format!("{cell:>13}")).concat();
    println!("{}", format!("{case:<28}{cells}").trim_end());
}

fn shown(tenths: Tenths) -> String {
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// Runs a command and returns what it printed; valgrind prints its counts to standard error.
fn output(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        Ok(text + &errors)
    } else {
        Err(format!("{command:?}: {}\n{errors}", output.status).into())
    }
}

/// Returns the versions of the tools that a count depends on, in one line.
fn versions() -> Result<String> {
    let rustc = output(Command::new("rustc").arg("--version"))?;
    let valgrind = output(Command::new("valgrind").arg("--version"))?;
    Ok(format!("{} {} {}", rustc.trim(), valgrind.trim(), env::consts::ARCH))
}

/// The lowest counts so far, and the tools that counted them.
struct Best {
    versions: String,
    counts: BTreeMap<String, Tenths>,
}

impl Best {
    fn path() -> PathBuf {
        root().join("cost/best.txt")
    }

    /// Reads the file: a line with the versions, then `OPERATION VARIANT INSTRUCTIONS` in each line.
    fn read() -> Result<Self> {
        let text = fs::read_to_string(Self::path())?;
        let (versions, lines) = text.split_once('\n').ok_or("cost/best.txt has no counts")?;
        let count = |line: &str| {
            let (case, count) = line.rsplit_once(' ')?;
            Some((case.to_owned(), count.replace('.', "").parse().ok()?))
        };
        let counts: Option<_> = lines.lines().map(count).collect();
        let counts = counts.ok_or("cost/best.txt has a line that is no count")?;
        Ok(Self { versions: versions.to_owned(), counts })
    }

    /// Returns the best count of a case, marked if `count` is worse, and whether it is worse.
    fn compare(&self, case: &str, count: Tenths) -> (String, bool) {
        let Some(&best) = self.counts.get(case) else { return (String::new(), false) };
        let is_worse = count * 100 > best * (100 + TOLERANCE);
        (format!("{}{}", if is_worse { "! " } else { "" }, shown(best)), is_worse)
    }

    /// Writes the lower counts, or with `force` the new ones.
    fn save(
        &mut self,
        versions: String,
        counts: impl Iterator<Item = (String, Tenths)>,
        force: bool,
    ) -> Result<()> {
        let old = std::mem::take(&mut self.counts);
        self.counts.extend(counts.map(|(case, count)| {
            let best = old.get(&case).map_or(count, |best| count.min(*best));
            (case, if force { count } else { best })
        }));
        self.versions = versions;
        let lines = self.counts.iter().map(|(case, count)| format!("{case} {}\n", shown(*count)));
        let text = format!("{}\n{}", self.versions, lines.collect::<String>());
        Ok(fs::write(Self::path(), text)?)
    }
}

/// A build of `cost/`.
struct Program {
    path: PathBuf,
    /// The addresses of its locked instructions.
    locked: HashSet<String>,
}

impl Program {
    fn build(name: &str, options: &[&str]) -> Result<Self> {
        let directory = root().join(lanes::target()).join("cost");
        let mut cargo = Command::new("cargo");
        cargo.args(["build", "--quiet", "--locked", "--manifest-path", "cost/Cargo.toml"]);
        cargo.arg("--target-dir").arg(&directory).args(options).current_dir(root());
        output(&mut cargo)?;
        // The next build with other features replaces the file.
        let path = directory.join(format!("cost-{name}"));
        let profile = if options.contains(&"--release") { "release" } else { "debug" };
        fs::copy(directory.join(profile).join("cost"), &path)?;
        let locked = locked_instructions(&path);
        Ok(Self { path, locked })
    }

    fn callgrind(&self, case: &str, options: &[&str], counts: [u64; 2]) -> Result<String> {
        let file = self.path.with_extension(format!("{}.{}", case.replace(' ', "."), counts[1]));
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["--tool=callgrind", "--compress-strings=no", "--compress-pos=no"]);
        valgrind.args(options).arg(format!("--callgrind-out-file={}", file.display()));
        output(self.command(&mut valgrind, case, counts))?;
        Ok(fs::read_to_string(file)?)
    }

    fn command<'a>(&self, tool: &'a mut Command, case: &str, counts: [u64; 2]) -> &'a mut Command {
        tool.arg(&self.path).args(case.split(' ')).args(counts.map(|count| count.to_string()))
    }

    /// Returns how many functions and files of the library one operation enters.
    fn path_of(&self, case: &str) -> Result<(usize, usize)> {
        const COLLECT: &str = "--toggle-collect=cost::local::collected*";
        let profile = self.callgrind(case, &[COLLECT], [FEW_TIMERS.0, 1])?;
        let library = root().join("src");
        let (mut functions, mut files) = (BTreeSet::new(), BTreeSet::new());
        let (mut file, mut function) = ("", "");
        own_lines(&profile, |line| match line.split_once('=') {
            Some(("fl", name)) => file = name,
            Some(("fn", name)) => function = name,
            None if Path::new(file).starts_with(&library) => {
                functions.insert(function);
                files.insert(file);
            }
            _ => {}
        });
        Ok((functions.len(), files.len()))
    }
}

/// Returns the addresses of locked instructions; none if there is no objdump, or on another
/// processor than x86.
fn locked_instructions(program: &Path) -> HashSet<String> {
    let mut objdump = Command::new("objdump");
    let code = output(objdump.args(["-d", "--no-show-raw-insn"]).arg(program)).unwrap_or_default();
    let is_locked =
        |code: &str| code.starts_with("lock ") || (code.starts_with("xchg ") && code.contains('('));
    let lines = code.lines().filter_map(|line| line.trim_start().split_once(":\t"));
    let locked = lines.filter(|(_, code)| is_locked(code));
    locked.map(|(address, _)| format!("0x{address}")).collect()
}

/// Calls `look` with each line of a profile that names a place, or has the count of one: a line of
/// numbers after `calls=` has the count of a callee.
fn own_lines<'a>(profile: &'a str, mut look: impl FnMut(&'a str)) {
    let mut lines = profile.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("calls=") {
            lines.next();
        } else if line.contains('=') || line.starts_with(|first: char| first.is_ascii_digit()) {
            look(line);
        }
    }
}

/// One case to count.
struct Job<'a> {
    program: &'a Program,
    case: &'a str,
    /// Whether to count misses, of the first and the last level, with many timers. Otherwise
    /// instructions are counted, all and the locked ones.
    misses: bool,
}

impl Job<'_> {
    /// Returns two counts of one operation.
    fn run(&self) -> Result<[Tenths; 2]> {
        let (live, [few, many]) = if self.misses { MANY_TIMERS } else { FEW_TIMERS };
        let count = |iterations| {
            let counts = [live, iterations];
            if self.misses { self.misses(counts) } else { self.instructions(counts) }
        };
        let (start, end) = (count(few)?, count(many)?);
        let operations = many - few;
        let per_operation =
            |i: usize| (end[i].saturating_sub(start[i]) * 10 + operations / 2) / operations;
        Ok([per_operation(0), per_operation(1)])
    }

    fn instructions(&self, counts: [u64; 2]) -> Result<[u64; 2]> {
        let profile = self.program.callgrind(self.case, &["--dump-instr=yes"], counts)?;
        let (mut all, mut locked, mut is_program) = (0, 0, false);
        let program = self.program.path.to_string_lossy();
        own_lines(&profile, |line| {
            if let Some(object) = line.strip_prefix("ob=") {
                is_program = object == program;
            }
            let mut words = line.split(' ');
            if let Some(address) = words.next().filter(|word| word.starts_with("0x")) {
                let count = words.nth(1).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
                all += count;
                if is_program && self.program.locked.contains(address) {
                    locked += count;
                }
            }
        });
        Ok([all, locked])
    }

    fn misses(&self, counts: [u64; 2]) -> Result<[u64; 2]> {
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["--tool=cachegrind", "--cache-sim=yes", "--D1=32768,8,64"]);
        valgrind.args(["--LL=2097152,16,64", "--cachegrind-out-file=/dev/null"]);
        let text = output(self.program.command(&mut valgrind, self.case, counts))?;
        let number = |key: &str| {
            let count = text.split_once(key)?.1.split_whitespace().next()?;
            count.replace(',', "").parse().ok()
        };
        let misses = number("D1  misses:").zip(number("LLd misses:"));
        misses.map(|(first, last)| [first, last]).ok_or_else(|| "cachegrind has no counts".into())
    }
}

/// Runs the jobs on all cores and returns their counts in order.
fn in_parallel(jobs: &[Job]) -> Result<Vec<[Tenths; 2]>> {
    let (waiting, done) = (Mutex::new(jobs.iter().enumerate()), Mutex::new(BTreeMap::new()));
    let work = || {
        loop {
            let job = waiting.lock().expect("no job panics").next();
            let Some((index, job)) = job else { return };
            let counts = job.run().map_err(|error| error.to_string());
            done.lock().expect("no job panics").insert(index, counts);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZeroUsize::get) {
            scope.spawn(work);
        }
    });
    let done = done.into_inner().expect("no job panics");
    Ok(done.into_values().collect::<std::result::Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_worse_beyond_the_tolerance() {
        let counts = BTreeMap::from([("reset wheel".to_owned(), 1_000)]);
        let best = Best { versions: String::new(), counts };
        assert_eq!(best.compare("reset wheel", 1_030), ("100.0".to_owned(), false));
        assert_eq!(best.compare("reset wheel", 1_031), ("! 100.0".to_owned(), true));
        assert_eq!(best.compare("reset shard", 9), (String::new(), false));
    }

    #[test]
    fn the_checked_in_counts_can_be_read() {
        assert!(!Best::read().expect("readable").counts.is_empty());
    }

    #[test]
    fn counts_of_callees_are_left_out() {
        let mut lines = Vec::new();
        let profile = "events: Ir\n\nfn=a\n0x10 0 3\ncfn=b\ncalls=1 0x20\n0x12 0 9\n0x14 0 1\n";
        own_lines(profile, |line| lines.push(line));
        assert_eq!(lines, ["fn=a", "0x10 0 3", "cfn=b", "0x14 0 1"]);
    }
}
