//! Who noticed each mutant when it was last judged: `break/killers.txt`. A reader learns from it what guards an ordering, and a
//! machine that has judged nothing yet whom to ask first.

use std::{
    collections::BTreeMap,
    fmt::{self, Display, Formatter},
    fs, io, iter,
};

use super::{list, mutant::Mutant, workshop};
use crate::{lane, run::Failure};

pub(super) const KILLERS: &str = "xtask/break/killers.txt";

const HEAD: &str = "\
# The test that noticed each mutant of `cargo xtask break` when that last judged it. The command writes this list, and shows
# a mutant to that test before all others. Whom you do not find here survives, and survivors.txt says why, or is not judged yet.
#
# name   as the command prints it
# by     the stage, and its test
";

/// A stage, and one of its tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Killer {
    pub(super) stage: String,
    pub(super) test: String,
}

impl Display for Killer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.stage, self.test)
    }
}

/// See the module; by the mutant's name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Killers(BTreeMap<String, Killer>);

impl Killers {
    pub(super) fn read() -> Result<Self, Failure> {
        Self::parse(&workshop::read(KILLERS)?)
            .map_err(|error| Failure(format!("{KILLERS}: {error}")))
    }

    fn parse(list: &str) -> Result<Self, String> {
        list::killers(list).map(|killers| Self(killers.into_iter().collect()))
    }

    pub(super) fn of(&self, mutant: &Mutant) -> Option<&Killer> {
        self.0.get(&mutant.name)
    }

    pub(super) fn note(&mut self, mutant: &Mutant, killer: Option<Killer>) {
        match killer {
            Some(killer) => self.0.insert(mutant.name.clone(), killer),
            None => self.0.remove(&mutant.name),
        };
    }

    /// Writes the list anew, in the order of `mutants`; who is none of them any more is gone.
    pub(super) fn write(&self, mutants: &[Mutant]) -> io::Result<()> {
        fs::write(lane::root().join(KILLERS), self.text(mutants))
    }

    fn text(&self, mutants: &[Mutant]) -> String {
        let lines = |mutant: &Mutant| {
            self.of(mutant).map(|killer| format!("\nname   {}\nby     {killer}\n", mutant.name))
        };
        iter::once(HEAD.to_owned()).chain(mutants.iter().filter_map(lines)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Killer, Killers, Mutant};
    use crate::breakage::{mutants, record::Sources, stage::HANGS, workshop};

    fn mutant(name: &str) -> Mutant {
        let (file, sound, broken) = ("src/a.rs".to_owned(), String::new(), String::new());
        Mutant { name: name.to_owned(), file, line: 1, sound, broken, planted: true }
    }

    fn killer(stage: &str, test: &str) -> Killer {
        Killer { stage: stage.to_owned(), test: test.to_owned() }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let [a, b, c] = ["a: b -> c #1", "b", "c"].map(mutant);
        let mut killers = Killers::default();
        killers.note(&a, Some(killer("loom with epochs", "one")));
        killers.note(&b, Some(killer("unit", "mailbox::tests::two, which hangs")));
        killers.note(&c, Some(killer("unit", "three")));
        killers.note(&c, None);
        let read =
            Killers::parse(&killers.text(&[c.clone(), b.clone(), a.clone()])).expect("sound");
        assert_eq!(read, killers);
        assert_eq!(read.of(&a), Some(&killer("loom with epochs", "one")));
        assert_eq!(read.of(&c), None);
        assert_eq!(
            Killers::parse(&killers.text(&[a])).expect("sound").of(&b),
            None,
            "no mutant any more"
        );
    }

    /// The list fits the library and its tests as they are now.
    #[test]
    fn every_killer_is_a_test_and_has_a_mutant() {
        let (killers, mutants) = (Killers::read().expect("sound"), mutants().expect("sound"));
        let sources: Sources = workshop::judged().expect("readable");
        for (name, killer) in &killers.0 {
            assert!(mutants.iter().any(|mutant| mutant.name == *name), "\"{name}\" is no mutant");
            let test = killer.test.trim_end_matches(HANGS);
            // Where no test could be told, it is a complaint.
            assert!(
                test.contains(' ') || sources.have(test),
                "\"{name}\" is noticed by {test}, which is no test"
            );
        }
    }
}
