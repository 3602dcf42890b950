//! The command `break`: mutation tests of the library.
//!
//! A mutant has one atomic ordering that is a step weaker ([`orderings`]), or one fault of
//! `break/faults.txt` ([`lists`]). The mutants are planted one at a time in one copy of the
//! repository, below the target directory. The expected test runs first: the test in the list, or
//! the test that last noticed the mutant. If the expected test passes, the stages of tests run
//! until one fails.
//!
//! If a mutant survives all stages, a test is missing, or the ordering is stronger than needed, or
//! no tool shows the fault. The command fails if `break/survivors.txt` gives no reason for a
//! survivor, if a test notices a mutant of that list, or if a mutant does not compile.

mod lists;
mod orderings;
mod stages;

use std::{
    collections::HashMap,
    fs::{self, File},
    io::Write,
    ops::Range,
    path::PathBuf,
};

use anyhow::{Context, Result, bail, ensure};

use self::{
    lists::{parse_records, plant_fault},
    orderings::weaker_mutants,
    stages::{Stages, Test},
};
use crate::{lanes, process, root};

const FAULTS: &str = "xtask/break/faults.txt";
const FAULT_KEYS: &[&str] = &["name", "file", "within", "find", "with", "why", "by"];
const SURVIVORS: &str = "xtask/break/survivors.txt";

#[derive(Debug)]
struct Mutant {
    /// The fault's name in the list, or `module::function call: Ordering -> Weaker`.
    name: String,
    /// The source file, relative to the root of the repository.
    file: String,
    mutated_text: String,
    is_planted: bool,
    /// The stage and the test that should notice the mutant; `None` if unknown.
    noticed_by: Option<String>,
}

impl Mutant {
    fn new(name: String, file: &str, text: &str, range: Range<usize>, replacement: &str) -> Self {
        let mutated_text = [&text[..range.start], replacement, &text[range.end..]].concat();
        Self { name, file: file.to_owned(), mutated_text, is_planted: false, noticed_by: None }
    }
}

/// Runs `cargo xtask break`. Returns true if, of the mutants that ran, exactly the listed survivors
/// survived.
pub(crate) fn run(options: &[&str]) -> Result<bool> {
    let word = match options {
        [] => "",
        ["--only", word] => *word,
        _ => bail!("usage: cargo xtask break [--only WORD]"),
    };
    let (mut mutants, survivors) = (mutants()?, survivors()?);
    mutants.retain(|mutant| mutant.name.contains(word) || mutant.file.contains(word));
    ensure!(!mutants.is_empty(), "no mutant matches");
    let cached_tests = fs::read_to_string(cache_path()?).unwrap_or_default();
    let cached_tests: HashMap<_, _> =
        cached_tests.lines().filter_map(|line| line.split_once('\t')).collect();
    for mutant in &mut mutants {
        let cached_test = cached_tests.get(&mutant.name[..]).map(|by| (*by).to_owned());
        mutant.noticed_by = mutant.noticed_by.take().or(cached_test);
    }
    break_each(&mutants, |mutant| survivors.contains(&mutant.name))
}

fn break_each(mutants: &[Mutant], is_survivor: impl Fn(&Mutant) -> bool) -> Result<bool> {
    let mut stages = Stages { copy: copy_repository()?, sound_durations: HashMap::new() };
    let mut cache = File::options().create(true).append(true).open(cache_path()?)?;
    // Runs these tests before any mutant is planted, so that the sound library is built once.
    for test in mutants.iter().filter_map(Test::expected) {
        stages.ensure_sound_passes(&test)?;
    }
    let (mut survived, mut complaints) = (0, Vec::new());
    for (mutant, number) in mutants.iter().zip(1..) {
        let noticing_test = match find_noticing_test(&mut stages, mutant) {
            Ok(noticing_test) => noticing_test,
            // For example, the mutant does not compile.
            Err(error) => {
                println!("[{number}/{}] {}: {error:#}", mutants.len(), mutant.name);
                complaints.push(format!("{} has no result", mutant.name));
                continue;
            }
        };
        let by = noticing_test.as_deref().unwrap_or("SURVIVED");
        println!("[{number}/{}] {}: {by}", mutants.len(), mutant.name);
        match (&noticing_test, is_survivor(mutant)) {
            (None, false) => complaints.push(format!("{} survived", mutant.name)),
            (Some(_), true) => complaints.push(format!("{} is in {SURVIVORS}", mutant.name)),
            _ => (),
        }
        if let (Some(by), Some(expected), true) =
            (&noticing_test, &mutant.noticed_by, mutant.is_planted)
            && by != expected
        {
            println!("    {FAULTS} names another test: {expected}");
        }
        match noticing_test {
            Some(by) => writeln!(cache, "{}\t{by}", mutant.name)?,
            None => survived += 1,
        }
    }
    println!("{} of {} mutants survived", survived, mutants.len());
    for complaint in &complaints {
        println!("FAILED: {complaint}");
    }
    Ok(complaints.is_empty())
}

/// Returns the stage and the test that notice the mutant, if any.
fn find_noticing_test(stages: &mut Stages, mutant: &Mutant) -> Result<Option<String>> {
    for test in Test::expected(mutant).into_iter().chain(Test::all(mutant)) {
        stages.ensure_sound_passes(&test)?;
        let path = stages.copy.join(&mutant.file);
        let sound_text = fs::read(&path)?;
        fs::write(&path, &mutant.mutated_text)?;
        let noticing_test = stages.run_test(&test);
        fs::write(&path, sound_text)?;
        if let Some(test_name) = noticing_test? {
            return Ok(Some(test_name));
        }
    }
    Ok(None)
}

/// Returns all mutants: the weaker orderings of each source file, then the planted faults.
fn mutants() -> Result<Vec<Mutant>> {
    let (mut mutants, mut errors) = (Vec::new(), Vec::new());
    for file in source_files("src")? {
        mutants.extend(weaker_mutants(&file, &read_file(&file)?)?);
    }
    for fault in parse_records(&read_file(FAULTS)?, FAULT_KEYS)? {
        let file = fault.single_value("file")?;
        match read_file(file).and_then(|text| plant_fault(&fault, file, &text)) {
            Ok(mutant) => mutants.push(mutant),
            Err(error) => errors.push(error.to_string()),
        }
    }
    ensure!(errors.is_empty(), errors.join("\n"));
    Ok(mutants)
}

fn survivors() -> Result<Vec<String>> {
    let list = read_file(SURVIVORS)?;
    let records = parse_records(&list, &["name", "why"])?;
    records.iter().map(|record| record.single_value("name").map(str::to_owned)).collect()
}

/// Returns the source files below a directory, without tests, in order. Does not need git, because
/// `cargo xtask test` lists the mutants.
fn source_files(directory: &str) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(root().join(directory))? {
        let entry = entry?;
        let name = entry.file_name().into_string().unwrap_or_default();
        let path = format!("{directory}/{name}");
        if entry.file_type()?.is_dir() && name != "tests" {
            files.extend(source_files(&path)?);
        } else if name != "tests.rs" && entry.path().extension().is_some_and(|it| it == "rs") {
            files.push(path);
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// Returns the files of the repository that git does not ignore.
fn files_not_ignored() -> Result<Vec<String>> {
    let files = process::stdout_of("git ls-files --cached --others --exclude-standard")?;
    Ok(files.lines().filter(|file| root().join(file).is_file()).map(str::to_owned).collect())
}

/// Copies the repository to an empty directory. Cargo builds the copy anew, because all its files
/// are new.
fn copy_repository() -> Result<PathBuf> {
    let copy = break_directory()?.join("workspace");
    let _ = fs::remove_dir_all(&copy);
    for file in files_not_ignored()? {
        let to = copy.join(&file);
        fs::create_dir_all(to.parent().expect("a file is in a directory"))?;
        fs::write(to, fs::read(root().join(&file))?)?;
    }
    Ok(copy)
}

fn break_directory() -> Result<PathBuf> {
    let directory = root().join(lanes::target_directory()).join("break");
    fs::create_dir_all(&directory)?;
    Ok(directory)
}

fn read_file(file: &str) -> Result<String> {
    fs::read_to_string(root().join(file)).with_context(|| file.to_owned())
}

/// Returns the path of the cache. A line has a mutant, a tab, and the stage and test that noticed
/// it.
fn cache_path() -> Result<PathBuf> {
    Ok(break_directory()?.join("noticed.txt"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_can_be_planted_and_every_survivor_is_a_mutant() {
        let mutants = mutants().unwrap_or_else(|error| panic!("{error}"));
        let count = |name: &str| mutants.iter().filter(|mutant| mutant.name == name).count();
        for mutant in &mutants {
            assert_eq!(count(&mutant.name), 1, "two mutants have the name {}", mutant.name);
            let sound_text = read_file(&mutant.file).expect("readable");
            assert_ne!(sound_text, mutant.mutated_text, "{} changes nothing", mutant.name);
        }
        for name in survivors().unwrap_or_else(|error| panic!("{error}")) {
            assert_eq!(count(&name), 1, "the survivor {name} is not a mutant");
        }
    }

    /// `cargo mutants` ignores patterns that match no mutant. A function's name with an underscore
    /// stands for its pattern.
    #[test]
    fn excluded_mutants_are_in_existing_functions() {
        let config = read_file(".cargo/mutants.toml").expect("readable");
        let (_, patterns) = config.split_once("exclude_re = [").expect("a list");
        let (patterns, _) = patterns.split_once("\n]").expect("the end of the list");
        let patterns = patterns.lines().filter(|line| !line.trim_start().starts_with('#'));
        let is_in_name = |c: char| c.is_ascii_lowercase() || c == '_';
        let words = patterns.flat_map(|line| line.split(|c| !is_in_name(c)));
        let files = source_files("src").expect("readable");
        let text: String = files.iter().map(|file| read_file(file).expect("readable")).collect();
        for name in words.filter(|word| word.len() > 1 && word.contains('_')) {
            assert!(text.contains(&format!("fn {name}")), "no function is called {name}");
        }
    }

    #[test]
    fn a_word_that_matches_no_mutant_is_an_error() {
        let error = run(&["--only", "no such mutant"]).expect_err("an error");
        assert_eq!(error.to_string(), "no mutant matches");
    }

    #[test]
    fn every_test_that_a_fault_names_exists() {
        let mutants = mutants().unwrap_or_else(|error| panic!("{error}"));
        let unknown: Vec<_> = mutants
            .iter()
            .filter(|mutant| mutant.noticed_by.is_some() && Test::expected(mutant).is_none())
            .map(|mutant| format!("{}: {:?}", mutant.name, mutant.noticed_by))
            .collect();
        assert!(unknown.is_empty(), "{FAULTS} names unknown tests:\n{}", unknown.join("\n"));
    }
}
