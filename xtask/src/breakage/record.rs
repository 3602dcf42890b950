//! What was found before, in a file of the target directory. A run that was interrupted goes on from there (`--resume`).
//!
//! A finding holds for the sources that it was made with: a kill for the library and the file of the killing test, a survival for
//! the library and all tests of the stage. What has changed since then is judged again.

use std::{
    collections::HashMap,
    fs::{self, File},
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Write},
    path::PathBuf,
    time::Duration,
};

use super::mutant::Mutant;

/// The text that takes the place of a test's name where all tests of a stage have passed.
const NOBODY: &str = "-";

/// See the module.
#[derive(Debug)]
pub(super) struct Record {
    file: File,
    /// By mutant and stage; the sound library is the mutant [`SOUND`].
    findings: HashMap<(String, String), Finding>,
}

#[derive(Debug)]
struct Finding {
    sources: u64,
    /// Who killed it, or [`NOBODY`].
    test: String,
    took: Duration,
}

/// What is known of a mutant at a stage.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Known<'record> {
    Nothing,
    Passed,
    /// By the named test.
    Killed(&'record str),
}

/// A program whose modules are files of their own.
const MODULES: &str = "tests/api/";

/// The name under which the sound library is recorded.
const SOUND: &str = "the sound library";

/// Where something is found: a stage, where it has its tests, and how it runs them.
#[derive(Clone, Debug)]
pub(super) struct At {
    pub(super) stage: &'static str,
    pub(super) directory: &'static str,
    pub(super) command: String,
}

/// What findings depend on: each file's path from the root, and its text.
#[derive(Debug, Default)]
pub(super) struct Sources(pub(super) Vec<(String, String)>);

impl Sources {
    /// A number for what a finding depends on: the mutant, how the tests are run, and they; of those only the file of `test`
    /// if there is one.
    fn fingerprint(&self, mutant: Option<&Mutant>, at: &At, test: &str) -> u64 {
        let mut hasher = DefaultHasher::new();
        if test == NOBODY {
            at.command.hash(&mut hasher);
        }
        for (file, text) in
            self.0.iter().filter(|(file, text)| matters(file, text, at.directory, test))
        {
            let broken = mutant.filter(|mutant| mutant.file == *file).map(|mutant| &mutant.broken);
            (file, broken.unwrap_or(text)).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Whether one of the files has a test of that name.
    #[cfg(test)]
    pub(super) fn have(&self, test: &str) -> bool {
        self.0.iter().any(|(_, text)| has(text, test))
    }

    /// The file of integration tests in `directory` that has this one, as cargo calls it.
    pub(super) fn home(&self, directory: &str, test: &str) -> Option<String> {
        let holds = |(file, text): &&(String, String)| {
            file.starts_with(directory) && is_of_tests(file) && has(text, test)
        };
        let (file, _) = self.0.iter().find(holds)?;
        program(file).map(str::to_owned)
    }
}

/// Whether a finding depends on a file.
fn matters(file: &str, text: &str, directory: &str, test: &str) -> bool {
    let is_of_all = file.starts_with("src/") || !file.contains('/');
    is_of_all
        || file.starts_with(directory) && (test == NOBODY || !is_of_tests(file) || has(text, test))
}

/// A file of integration tests, not one that they share.
fn is_of_tests(file: &str) -> bool {
    file.starts_with("tests/") && file.matches('/').count() == 1
        || file.starts_with(MODULES)
        || file.contains("-tests/tests/")
}

/// What cargo calls the program that a file of integration tests is part of.
fn program(file: &str) -> Option<&str> {
    let path = if file.starts_with(MODULES) { MODULES.trim_end_matches('/') } else { file };
    path.rsplit('/').next().map(|name| name.trim_end_matches(".rs"))
}

/// Whether a source has a test of that name.
fn has(text: &str, test: &str) -> bool {
    test.rsplit("::").next().is_some_and(|name| text.contains(&format!("fn {name}(")))
}

impl Record {
    /// Reads what is there; what comes is appended.
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let text = fs::read_to_string(&path).unwrap_or_default();
        let findings = text.lines().filter_map(finding).collect();
        let file = File::options().create(true).append(true).open(path)?;
        Ok(Self { file, findings })
    }

    /// What a stage has said of the mutant with the sources as they are.
    pub(super) fn verdict(&self, mutant: &Mutant, at: &At, sources: &Sources) -> Known<'_> {
        let found = self.findings.get(&(mutant.name.clone(), at.stage.to_owned()));
        match found
            .filter(|found| found.sources == sources.fingerprint(Some(mutant), at, &found.test))
        {
            Some(found) if found.test == NOBODY => Known::Passed,
            Some(found) => Known::Killed(&found.test),
            None => Known::Nothing,
        }
    }

    /// A stage has judged the mutant, `None` if it let it pass.
    pub(super) fn note(
        &mut self,
        mutant: &Mutant,
        at: &At,
        sources: &Sources,
        test: Option<&str>,
    ) -> io::Result<()> {
        let test = test.unwrap_or(NOBODY);
        let print = sources.fingerprint(Some(mutant), at, test);
        self.add(
            &mutant.name,
            at.stage,
            Finding { sources: print, test: test.to_owned(), took: Duration::ZERO },
        )
    }

    /// How long the sound library took for all tests of a stage, or for one, if it is known to pass with the sources as they are.
    pub(super) fn sound(&self, at: &At, sources: &Sources, test: Option<&str>) -> Option<Duration> {
        let found = self.findings.get(&(sound(test), at.stage.to_owned()))?;
        (found.sources == sources.fingerprint(None, at, test.unwrap_or(NOBODY)))
            .then_some(found.took)
    }

    /// The sound library has passed all tests of a stage, or one.
    pub(super) fn note_sound(
        &mut self,
        at: &At,
        sources: &Sources,
        test: Option<&str>,
        took: Duration,
    ) -> io::Result<()> {
        let print = sources.fingerprint(None, at, test.unwrap_or(NOBODY));
        self.add(&sound(test), at.stage, Finding { sources: print, test: NOBODY.to_owned(), took })
    }

    fn add(&mut self, name: &str, stage: &str, found: Finding) -> io::Result<()> {
        let Finding { sources, test, took } = &found;
        writeln!(self.file, "{sources:016x}\t{}\t{stage}\t{test}\t{name}", took.as_millis())?;
        self.findings.insert((name.to_owned(), stage.to_owned()), found);
        Ok(())
    }
}

/// The name under which it stands that the sound library passes all tests of a stage, or one.
fn sound(test: Option<&str>) -> String {
    test.map_or_else(|| SOUND.to_owned(), |test| format!("{SOUND}: {test}"))
}

/// A line of the file; `None` if it is not whole.
fn finding(line: &str) -> Option<((String, String), Finding)> {
    let mut parts = line.splitn(5, '\t');
    let sources = u64::from_str_radix(parts.next()?, 16).ok()?;
    let took = Duration::from_millis(parts.next()?.parse().ok()?);
    let (stage, test, name) = (parts.next()?, parts.next()?, parts.next()?);
    Some(((name.to_owned(), stage.to_owned()), Finding { sources, test: test.to_owned(), took }))
}

#[cfg(test)]
mod tests {
    use std::{env, fs, process, time::Duration};

    use super::{At, Known, Mutant, Record, Sources};

    fn sources(library: &str, models: &str, other: &str) -> Sources {
        let files = [
            ("src/a.rs", library),
            ("loom-tests/tests/a.rs", models),
            ("loom-tests/tests/b.rs", other),
        ];
        Sources(files.map(|(file, text)| (file.to_owned(), text.to_owned())).into())
    }

    fn loom() -> At {
        At { stage: "loom", directory: "loom-tests/", command: "cargo test".to_owned() }
    }

    fn miri() -> At {
        At { stage: "miri", directory: "tests/", command: "cargo miri".to_owned() }
    }

    fn mutant(broken: &str) -> Mutant {
        let (name, file) = ("a::b store: Release -> Relaxed".to_owned(), "src/a.rs".to_owned());
        Mutant {
            name,
            file,
            line: 1,
            sound: "sound".to_owned(),
            broken: broken.to_owned(),
            planted: false,
        }
    }

    #[test]
    fn a_finding_holds_for_what_it_was_made_with() {
        let path = env::temp_dir().join(format!("corewheel-record-{}", process::id()));
        let mutant = mutant("broken");
        let now = sources("sound", "fn model() {}", "fn other() {}");
        let mut record = Record::open(path.clone()).expect("made");
        assert_eq!(record.verdict(&mutant, &loom(), &now), Known::Nothing);
        record.note(&mutant, &loom(), &now, Some("model")).expect("written");
        record.note(&mutant, &miri(), &now, None).expect("written");
        record.note_sound(&loom(), &now, None, Duration::from_secs(5)).expect("written");
        record.note_sound(&loom(), &now, Some("model"), Duration::from_secs(2)).expect("written");

        let record = Record::open(path.clone()).expect("read");
        fs::remove_file(path).expect("removed");
        let says = |of: &Sources, at: &At| record.verdict(&mutant, at, of);
        assert_eq!(says(&now, &loom()), Known::Killed("model"));
        assert_eq!(says(&now, &miri()), Known::Passed);
        let is_sound = |of: &Sources, test| record.sound(&loom(), of, test);
        assert_eq!(is_sound(&now, None), Some(Duration::from_secs(5)));
        assert_eq!(
            (is_sound(&now, Some("model")), is_sound(&now, Some("other"))),
            (Some(Duration::from_secs(2)), None)
        );
        // Another test is another matter for the sound library, and not for who was killed by this one.
        let more = sources("sound", "fn model() {}", "fn other() {} fn third() {}");
        assert_eq!(says(&more, &loom()), Known::Killed("model"));
        assert_eq!(says(&more, &miri()), Known::Passed, "those tests are elsewhere");
        assert_eq!(
            (is_sound(&more, None), is_sound(&more, Some("model"))),
            (None, Some(Duration::from_secs(2)))
        );
        let changed = sources("sound", "fn model() { else }", "fn other() {}");
        assert_eq!(says(&changed, &loom()), Known::Nothing);
        let mut library = sources("sound", "fn model() {}", "fn other() {}");
        library.0.push(("src/b.rs".to_owned(), "more".to_owned()));
        assert_eq!(
            (says(&library, &loom()), says(&library, &miri())),
            (Known::Nothing, Known::Nothing)
        );
    }

    #[test]
    fn a_test_is_found_in_its_file() {
        let sources = sources("fn model() {}", "fn a_model() {}", "fn model() {}");
        assert_eq!(sources.home("loom-tests/", "model"), Some("b".to_owned()));
        assert_eq!(sources.home("tests/", "model"), None);
        let files = ["tests/api/a.rs", "tests/history/b.rs"]
            .map(|file| (file.to_owned(), "fn test() {}".to_owned()));
        assert_eq!(Sources(files.into()).home("tests/", "a::test"), Some("api".to_owned()));
    }
}
