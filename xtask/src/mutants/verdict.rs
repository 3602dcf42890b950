//! Names that stay when lines move, and what is to be said of who survived.

use std::{collections::BTreeMap, io};

use crate::{breakage::list::Survivor, run::Failure};

/// Of those that can be built so many must be noticed, in percent.
const LEAST: f64 = 95.0;

/// What we call each mutant, by what cargo-mutants calls it: without line and column, which change with every edit, and with a
/// number where a function has several of a kind.
#[derive(Debug)]
pub(super) struct Names(BTreeMap<String, String>);

/// What cargo-mutants has found out, in its words.
#[derive(Debug, Default)]
pub(super) struct Fates {
    caught: Vec<String>,
    timeout: Vec<String>,
    missed: Vec<String>,
    unviable: Vec<String>,
}

impl Names {
    /// From a list of mutants in the order of their places.
    pub(super) fn of(list: &str) -> Self {
        let mut counts = BTreeMap::<String, usize>::new();
        for mutant in list.lines() {
            *counts.entry(unplaced(mutant)).or_default() += 1;
        }
        let mut seen = BTreeMap::<String, usize>::new();
        let name = |mutant: &str| {
            let name = unplaced(mutant);
            let number = seen.entry(name.clone()).or_default();
            *number += 1;
            let name = if counts[&name] > 1 { format!("{name} #{number}") } else { name };
            (mutant.to_owned(), name)
        };
        Self(list.lines().map(name).collect())
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.values().any(|other| other == name)
    }

    fn name<'a>(&'a self, mutant: &'a str) -> &'a str {
        self.0.get(mutant).map_or(mutant, |name| name)
    }
}

/// `src/a.rs:12:5: replace ...` without its line and column.
fn unplaced(mutant: &str) -> String {
    let mut parts = mutant.splitn(4, ':');
    match (parts.next(), parts.nth(2)) {
        (Some(file), Some(what)) => format!("{file}:{what}"),
        _ => mutant.to_owned(),
    }
}

impl Fates {
    /// From the lists that cargo-mutants leaves behind.
    pub(super) fn read(list: impl Fn(&str) -> io::Result<String>) -> io::Result<Self> {
        let read = |name| Ok::<_, io::Error>(list(name)?.lines().map(str::to_owned).collect());
        Ok(Self {
            caught: read("caught.txt")?,
            timeout: read("timeout.txt")?,
            missed: read("missed.txt")?,
            unviable: read("unviable.txt")?,
        })
    }

    /// What is known when those that survived, or hung, have been judged by other tests. (Who hung has been noticed, whatever they say.)
    pub(super) fn and_of_those_left(mut self, left: Self) -> Self {
        self.caught.extend(left.caught);
        self.unviable.extend(left.unviable);
        let (hung, missed): (Vec<_>, _) =
            left.missed.into_iter().partition(|mutant| self.timeout.contains(mutant));
        Self { missed, timeout: [left.timeout, hung].concat(), ..self }
    }

    /// Fails if one survived without a reason, if one with a reason did not, or if too few were noticed.
    pub(super) fn verdict(&self, names: &Names, survivors: &[Survivor]) -> Result<(), Failure> {
        let is_explained =
            |mutant: &&String| survivors.iter().any(|survivor| survivor.name == names.name(mutant));
        let noticed = || self.caught.iter().chain(&self.timeout);
        let viable = noticed().count() + self.missed.len();
        let share = percent(noticed().count(), viable);
        println!(
            "{} noticed by a test, {} by hanging, {} survived, {} of them for a reason, {} do not build: {share:.1} % noticed",
            self.caught.len(),
            self.timeout.len(),
            self.missed.len(),
            self.missed.iter().filter(is_explained).count(),
            self.unviable.len(),
        );
        let unexplained = self.missed.iter().filter(|mutant| !is_explained(mutant));
        let complaints = unexplained
            .map(|mutant| format!("survived: {}\n         at {mutant}", names.name(mutant)));
        let dead = noticed()
            .filter(is_explained)
            .map(|mutant| format!("dies after all: {}", names.name(mutant)));
        let few = (share < LEAST).then(|| format!("{share:.1} % are noticed, less than {LEAST} %"));
        let complaints: Vec<String> = complaints.chain(dead).chain(few).collect();
        if complaints.is_empty() { Ok(()) } else { Err(Failure(complaints.join("\n       "))) }
    }
}

#[allow(clippy::cast_precision_loss)] // Mutants are thousands.
fn percent(part: usize, whole: usize) -> f64 {
    if whole == 0 { 100.0 } else { 100.0 * part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::{Fates, Names, Survivor};

    const LIST: &str = "src/a.rs:1:2: replace < with > in f\nsrc/a.rs:9:2: replace < with > in f\nsrc/b.rs:3:4: replace g -> u8 with 0\n";

    fn fates(caught: usize, missed: &[usize]) -> Fates {
        let mutants: Vec<String> = LIST.lines().map(str::to_owned).collect();
        let missed = missed.iter().map(|&at| mutants[at].clone()).collect();
        Fates { caught: vec!["another".to_owned(); caught], missed, ..Fates::default() }
    }

    fn survivor(name: &str) -> Survivor {
        Survivor { name: name.to_owned(), why: "nobody knows".to_owned() }
    }

    #[test]
    fn names_have_no_lines_and_a_number_where_there_are_several() {
        let names = Names::of(LIST);
        assert_eq!(
            names.name("src/a.rs:9:2: replace < with > in f"),
            "src/a.rs: replace < with > in f #2"
        );
        assert!(
            names.has("src/b.rs: replace g -> u8 with 0")
                && !names.has("src/a.rs: replace < with > in f")
        );
    }

    #[test]
    fn who_is_left_is_judged_by_the_second_pass() {
        let list = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let first = Fates {
            caught: list(&["a"]),
            timeout: list(&["b", "f"]),
            missed: list(&["c", "d", "g"]),
            unviable: list(&["e"]),
        };
        let second = Fates {
            caught: list(&["b", "c"]),
            missed: list(&["d", "f"]),
            timeout: list(&["g"]),
            ..Fates::default()
        };
        let all = first.and_of_those_left(second);
        assert_eq!((all.caught, all.timeout), (list(&["a", "b", "c"]), list(&["g", "f"])));
        assert_eq!((all.missed, all.unviable), (list(&["d"]), list(&["e"])));
    }

    #[test]
    fn who_survives_must_be_explained_and_who_is_explained_must_survive() {
        let (names, explained) = (Names::of(LIST), [survivor("src/b.rs: replace g -> u8 with 0")]);
        assert!(fates(99, &[]).verdict(&names, &[]).is_ok());
        assert!(fates(99, &[2]).verdict(&names, &explained).is_ok());
        let failure =
            fates(99, &[0]).verdict(&names, &explained).expect_err("unexplained").to_string();
        assert!(failure.starts_with("survived: src/a.rs: replace < with > in f #1\n"), "{failure}");
        let caught = Fates {
            caught: vec![LIST.lines().last().expect("one").to_owned()],
            ..Fates::default()
        };
        let failure = caught.verdict(&names, &explained).expect_err("it died").to_string();
        assert_eq!(failure, "dies after all: src/b.rs: replace g -> u8 with 0");
    }

    #[test]
    fn too_few_are_a_failure_even_if_all_have_reasons() {
        let (names, explained) = (Names::of(LIST), [survivor("src/b.rs: replace g -> u8 with 0")]);
        let failure = fates(18, &[2]).verdict(&names, &explained).expect_err("too few").to_string();
        assert_eq!(failure, "94.7 % are noticed, less than 95 %");
    }
}
