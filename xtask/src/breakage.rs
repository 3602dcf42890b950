//! Breaks the library on purpose, one thing at a time, and asks which test notices.
//!
//! What is broken: every atomic ordering that is stronger than Relaxed, made a step weaker ([`scan`]), and the faults of
//! `break/faults.txt` ([`list`]). Where: in a copy of the workspace ([`workshop`]) below the target directory. Who should
//! notice: the loom models, the unit and integration tests, Miri, the quick ones first ([`stage`]). What is found is kept
//! below the target directory as well ([`record`]), so that a run of hours can be interrupted, and who noticed what stands in
//! `break/killers.txt` ([`killers`]), so that the next run is one of minutes.
//!
//! A mutant that nobody notices is a hole in the tests, or an ordering that is stronger than it need be, or something
//! that no tool can see. In the last case, or if the ordering is to stay, it stands in `break/survivors.txt` with the reason.
//! The command fails if a survivor does not stand there, and if one that stands there does not survive.

mod killers;
pub(crate) mod list;
mod mutant;
mod record;
mod scan;
mod stage;
mod workshop;

use std::{
    io,
    time::{Duration, Instant},
};

use self::{
    killers::{KILLERS, Killer, Killers},
    list::Survivor,
    mutant::Mutant,
    record::{Known, Record, Sources},
    stage::{Stage, Verdict, Which},
    workshop::Workshop,
};
use crate::{lanes, run::Failure, tools};

const FAULTS: &str = "xtask/break/faults.txt";
const SURVIVORS: &str = "xtask/break/survivors.txt";

/// What to break.
#[derive(Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools)] // Switches of a command line.
pub(crate) struct Options {
    /// Break only what has this in its name, its file, or its kind, which is "an ordering" or "a planted fault".
    #[arg(long, default_value = "")]
    only: String,
    /// List the mutants and break nothing.
    #[arg(long)]
    list: bool,
    /// Leave out what takes minutes for each: the models with epochs, and Miri. Who survives the rest is not judged.
    #[arg(long)]
    quick: bool,
    /// Take the word of survivors.txt for those that stand there: they are what takes longest.
    #[arg(long)]
    skip_survivors: bool,
    /// Go on with an earlier run: take over what it has found out about the same library and the same tests.
    #[arg(long)]
    resume: bool,
}

/// Where mutants are judged, and what is known of them.
struct Bench {
    workshop: Workshop,
    sources: Sources,
    stages: Vec<Stage>,
    record: Record,
    killers: Killers,
    resume: bool,
}

/// What became of a mutant.
#[derive(Debug)]
struct Fate {
    mutant: Mutant,
    /// The stage and the test; `None` if it survived all.
    killed_by: Option<Killer>,
    took: Duration,
}

/// See the module.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let all = mutants()?;
    let survivors =
        list::survivors(&workshop::read(SURVIVORS)?).map_err(|error| in_list(SURVIVORS, &error))?;
    are_mutants(&survivors, &all)?;
    let is_explained =
        |mutant: &Mutant| survivors.iter().any(|survivor| survivor.name == mutant.name);
    let chosen: Vec<Mutant> = all
        .iter()
        .filter(|mutant| {
            [&mutant.name[..], &mutant.file, mutant.kind()]
                .iter()
                .any(|part| part.contains(&options.only))
        })
        .filter(|mutant| !options.skip_survivors || !is_explained(mutant))
        .cloned()
        .collect();
    if options.list {
        return print_list(&chosen, is_explained);
    }
    if !options.quick {
        tools::require(tools::MIRI)?;
    }
    let fates = break_each(chosen, &all, options)?;
    print_table(&fates);
    if options.quick { Ok(()) } else { verdict(&fates, is_explained) }
}

fn print_list(mutants: &[Mutant], is_explained: impl Fn(&Mutant) -> bool) -> Result<(), Failure> {
    let killers = Killers::read()?;
    for mutant in mutants {
        let end = match killers.of(mutant) {
            Some(killer) => killer.to_string(),
            None if is_explained(mutant) => "survives".to_owned(),
            None => "not judged".to_owned(),
        };
        println!("{:32} {} ({end})", mutant.place(), mutant.name);
    }
    let killed = mutants.iter().filter(|mutant| killers.of(mutant).is_some()).count();
    println!("{} mutants, of which {KILLERS} says of {killed} who notices them", mutants.len());
    Ok(())
}

fn in_list(list: &str, error: &str) -> Failure {
    Failure(format!("{list}: {error}"))
}

/// All mutants: of each source file, then the planted ones.
fn mutants() -> Result<Vec<Mutant>, Failure> {
    let mut mutants = Vec::new();
    for file in workshop::sources()? {
        mutants.extend(scan::weakenings(&file, &workshop::read(&file)?).map_err(Failure)?);
    }
    let mut misplaced = Vec::new();
    for fault in list::faults(&workshop::read(FAULTS)?).map_err(|error| in_list(FAULTS, &error))? {
        match fault.plant(&workshop::read(&fault.file)?) {
            Ok(mutant) => mutants.push(mutant),
            Err(error) => misplaced.push(error),
        }
    }
    if misplaced.is_empty() { Ok(mutants) } else { Err(in_list(FAULTS, &misplaced.join("\n"))) }
}

/// Fails if a survivor's name is that of no mutant, or of several.
fn are_mutants(survivors: &[Survivor], mutants: &[Mutant]) -> Result<(), Failure> {
    for survivor in survivors {
        let count = mutants.iter().filter(|mutant| mutant.name == survivor.name).count();
        if count != 1 {
            return Err(in_list(
                SURVIVORS,
                &format!("\"{}\" is the name of {count} mutants, not of one", survivor.name),
            ));
        }
    }
    Ok(())
}

fn break_each(
    mutants: Vec<Mutant>,
    all: &[Mutant],
    options: &Options,
) -> Result<Vec<Fate>, Failure> {
    let mut bench = Bench::open(options)?;
    println!("{} mutants, in {}", mutants.len(), bench.workshop.root().display());
    for mutant in &mutants {
        bench.prove_first(mutant)?;
    }
    let mut fates = Vec::new();
    let count = mutants.len();
    for mutant in mutants {
        let start = Instant::now();
        let killed_by = bench.kill(&mutant);
        bench.workshop.mend(&mutant)?;
        let killed_by = killed_by?;
        bench.tell(&mutant, killed_by.clone(), all, options.quick)?;
        let fate = Fate { mutant, killed_by, took: start.elapsed() };
        println!(
            "[{}/{count}] {}, {:.0} s",
            fates.len() + 1,
            fate.line(0, 0),
            fate.took.as_secs_f64()
        );
        fates.push(fate);
    }
    Ok(fates)
}

impl Bench {
    fn open(options: &Options) -> Result<Self, Failure> {
        let workshop = Workshop::open()?;
        let lanes = lanes::proving()
            .into_iter()
            .filter(|lane| !options.quick || !lanes::SLOW.contains(&lane.name));
        let (sources, stages) = (workshop::judged()?, lanes.map(Stage::new).collect());
        let record = Record::open(workshop.record()).map_err(|error| unrecorded(&error))?;
        Ok(Self {
            workshop,
            sources,
            stages,
            record,
            killers: Killers::read()?,
            resume: options.resume,
        })
    }

    /// The stage and the test that noticed `mutant` last.
    fn first(&self, mutant: &Mutant) -> Option<(usize, Which)> {
        let killer = self.killers.of(mutant)?;
        let at = self.stages.iter().position(|stage| stage.name == killer.stage)?;
        Some((at, self.stages[at].which(&killer.test, &self.sources)))
    }

    /// Sees to it that whom a mutant will be shown first passes the sound library, while nothing has to be built anew for that.
    fn prove_first(&mut self, mutant: &Mutant) -> Result<(), Failure> {
        let first = self.first(mutant).filter(|(_, which)| which.test().is_some());
        first.map_or(Ok(()), |(at, which)| self.prove(at, mutant, &which))
    }

    /// Keeps who noticed `mutant`; nobody is a verdict only if all stages were asked.
    fn tell(
        &mut self,
        mutant: &Mutant,
        killer: Option<Killer>,
        all: &[Mutant],
        quick: bool,
    ) -> Result<(), Failure> {
        if killer.is_none() && quick {
            return Ok(());
        }
        self.killers.note(mutant, killer);
        self.killers.write(all).map_err(|error| in_list(KILLERS, &error.to_string()))
    }

    /// The stage and the test that notice `mutant`.
    fn kill(&mut self, mutant: &Mutant) -> Result<Option<Killer>, Failure> {
        let mut chosen = Vec::new();
        for (at, stage) in self.stages.iter().enumerate() {
            if !mutant.planted && lanes::is_blind_to_ordering(stage.name, &mutant.file) {
                continue;
            }
            let known = self.record.verdict(mutant, &stage.place(), &self.sources);
            match known {
                Known::Killed(test) if self.resume => {
                    return Ok(Some(stage.killer(test.to_owned())));
                }
                Known::Passed if self.resume => (),
                _ => chosen.push(at),
            }
        }
        // Who killed it last is asked first.
        if let Some((at, which)) = self.first(mutant).filter(|(at, _)| chosen.contains(at))
            && let Some(killer) = self.judge(at, mutant, &which)?
        {
            return Ok(Some(killer));
        }
        for at in chosen {
            for which in lanes::likely(self.stages[at].name, &mutant.file)
                .map(Which::Some)
                .chain([Which::All])
            {
                if let Some(killer) = self.judge(at, mutant, &which)? {
                    return Ok(Some(killer));
                }
            }
        }
        Ok(None)
    }

    /// Has a stage judge the mutant by these of its tests.
    fn judge(
        &mut self,
        at: usize,
        mutant: &Mutant,
        which: &Which,
    ) -> Result<Option<Killer>, Failure> {
        self.prove(at, mutant, which)?;
        self.workshop.plant(mutant)?;
        let Self { stages, record, sources, workshop, .. } = self;
        let stage = &stages[at];
        let mut note = |test: Option<&str>| record.note(mutant, &stage.place(), sources, test);
        match stage.judge(workshop.root(), which)? {
            Verdict::Survived if *which == Which::All => {
                note(None).map_err(|error| unrecorded(&error)).map(|()| None)
            }
            Verdict::Survived => Ok(None),
            Verdict::Killed(test) => {
                note(Some(&test)).map_err(|error| unrecorded(&error))?;
                Ok(Some(stage.killer(test)))
            }
            Verdict::DoesNotBuild(error) => {
                Err(Failure(format!("the mutant \"{}\" does not build:\n{error}", mutant.name)))
            }
        }
    }

    /// Sees to it that the sound library is known to pass those tests of the stage.
    fn prove(&mut self, at: usize, mutant: &Mutant, which: &Which) -> Result<(), Failure> {
        let Self { stages, record, sources, workshop, resume, .. } = self;
        let (stage, which) = (&mut stages[at], which.proof());
        if *resume && let Some(took) = record.sound(&stage.place(), sources, which.test()) {
            stage.is_proven(which, took);
        }
        if !stage.is_sound(which) {
            workshop.mend(mutant)?;
            let took = stage.prove(workshop.root(), which)?;
            let what = which.test().unwrap_or("all");
            println!(
                "    {}: {what} passed before anything is broken, {:.0} s",
                stage.name,
                took.as_secs_f64()
            );
            record
                .note_sound(&stage.place(), sources, which.test(), took)
                .map_err(|error| unrecorded(&error))?;
        }
        Ok(())
    }
}

fn unrecorded(error: &io::Error) -> Failure {
    Failure(format!("the record cannot be kept: {error}"))
}

impl Fate {
    /// Name, place, and who killed it, in columns at least so wide.
    fn line(&self, name: usize, place: usize) -> String {
        let end = match &self.killed_by {
            Some(killer) => killer.to_string(),
            None => "SURVIVED".to_owned(),
        };
        format!("{:name$}  {:place$}  {end}", self.mutant.name, self.mutant.place())
    }
}

fn print_table(fates: &[Fate]) {
    println!();
    let width = |of: fn(&Fate) -> usize| fates.iter().map(of).max().unwrap_or_default();
    let (name, place) =
        (width(|fate| fate.mutant.name.len()), width(|fate| fate.mutant.place().len()));
    for fate in fates {
        println!("{}", fate.line(name, place));
    }
    let killed = fates.iter().filter(|fate| fate.killed_by.is_some()).count();
    println!("\n{} mutants: {killed} killed, {} survived", fates.len(), fates.len() - killed);
    for stage in lanes::proving().iter().map(|lane| lane.name) {
        let by = fates
            .iter()
            .filter(|fate| fate.killed_by.as_ref().is_some_and(|killer| killer.stage == stage));
        println!("{:6} by {stage}", by.count());
    }
}

/// Fails if a mutant survived that should not, or the other way round.
fn verdict(fates: &[Fate], is_explained: impl Fn(&Mutant) -> bool) -> Result<(), Failure> {
    let complaints: Vec<String> = fates
        .iter()
        .filter_map(|fate| match (fate.killed_by.is_some(), is_explained(&fate.mutant)) {
            (false, false) => {
                Some(format!("\"{}\" survived, and {SURVIVORS} does not say why", fate.mutant.name))
            }
            (true, true) => {
                Some(format!("\"{}\" is killed: take it out of {SURVIVORS}", fate.mutant.name))
            }
            _ => None,
        })
        .collect();
    if complaints.is_empty() { Ok(()) } else { Err(Failure(complaints.join("\n       "))) }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, time::Duration};

    use super::{
        FAULTS, Fate, Killer, Mutant, SURVIVORS, Survivor, are_mutants, list, mutants, verdict,
        workshop,
    };

    fn mutant(name: &str) -> Mutant {
        let (sound, broken) = (String::new(), String::new());
        Mutant {
            name: name.to_owned(),
            file: "src/a.rs".to_owned(),
            line: 1,
            sound,
            broken,
            planted: true,
        }
    }

    fn fate(name: &str, killed: bool) -> Fate {
        let killed_by =
            killed.then(|| Killer { stage: "unit".to_owned(), test: "a_test".to_owned() });
        Fate { mutant: mutant(name), killed_by, took: Duration::ZERO }
    }

    /// The lists fit the library as it is now.
    #[test]
    fn every_fault_finds_its_place_and_every_survivor_its_mutant() {
        let all = mutants().unwrap_or_else(|failure| panic!("{failure}"));
        let names: BTreeSet<&str> = all.iter().map(|mutant| &mutant.name[..]).collect();
        assert_eq!(names.len(), all.len(), "two mutants have one name");
        let survivors =
            list::survivors(&workshop::read(SURVIVORS).expect("readable")).expect("sound");
        are_mutants(&survivors, &all).unwrap_or_else(|failure| panic!("{failure}"));
        let faults = list::faults(&workshop::read(FAULTS).expect("readable")).expect("sound");
        assert!(faults.len() >= 12 && all.len() > faults.len());
        for mutant in &all {
            assert_ne!(mutant.sound, mutant.broken, "{} changes nothing", mutant.name);
        }
    }

    #[test]
    fn a_survivor_that_is_no_mutant_is_a_failure() {
        let survivor = Survivor { name: "gone".to_owned(), why: "nobody knows".to_owned() };
        let failure = are_mutants(&[survivor], &[mutant("here")]).expect_err("unknown").to_string();
        assert_eq!(failure, format!("{SURVIVORS}: \"gone\" is the name of 0 mutants, not of one"));
    }

    #[test]
    fn who_survives_must_be_explained_and_who_is_explained_must_survive() {
        let fates = [fate("a", true), fate("b", false)];
        assert!(verdict(&fates, |mutant| mutant.name == "b").is_ok());
        let unexplained = verdict(&fates, |_| false).expect_err("b survived").to_string();
        assert!(unexplained.starts_with("\"b\" survived"), "{unexplained}");
        let killed = verdict(&fates, |_| true).expect_err("a was killed").to_string();
        assert!(killed.starts_with("\"a\" is killed"), "{killed}");
    }

    #[test]
    fn a_fate_is_told_in_a_line() {
        assert_eq!(fate("a b", true).line(5, 0), "a b    src/a.rs:1  unit: a_test");
        assert_eq!(fate("a b", false).line(0, 12), "a b  src/a.rs:1    SURVIVED");
    }
}
