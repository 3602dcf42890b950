//! A copy of the workspace to break things in.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{mutant::Mutant, record::Sources};
use crate::{lane, run::Failure};

/// What is not copied.
const LEFT_OUT: [&str; 2] = ["target", ".git"];

/// The copy.
#[derive(Debug)]
pub(super) struct Workshop {
    root: PathBuf,
}

impl Workshop {
    /// Makes the copy, or brings that of an earlier run up to date. What has not changed is not touched, so that cargo builds
    /// little.
    pub(super) fn open() -> Result<Self, Failure> {
        let root = lane::target_base().join("break/workspace");
        mirror(lane::root(), &root).map_err(|error| {
            Failure(format!("the workspace cannot be copied to {}: {error}", root.display()))
        })?;
        Ok(Self { root })
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Where findings are recorded.
    pub(super) fn record(&self) -> PathBuf {
        self.root.with_file_name("record.txt")
    }

    /// Puts a broken file in the place of the sound one.
    pub(super) fn plant(&self, mutant: &Mutant) -> Result<(), Failure> {
        self.write(&mutant.file, &mutant.broken)
    }

    /// Puts the sound file back.
    pub(super) fn mend(&self, mutant: &Mutant) -> Result<(), Failure> {
        self.write(&mutant.file, &mutant.sound)
    }

    fn write(&self, file: &str, text: &str) -> Result<(), Failure> {
        let path = self.root.join(file);
        fs::write(&path, text)
            .map_err(|error| Failure(format!("{} cannot be written: {error}", path.display())))
    }
}

/// A file of the repository.
pub(super) fn read(file: &str) -> Result<String, Failure> {
    let path = lane::root().join(file);
    fs::read_to_string(&path)
        .map_err(|error| Failure(format!("{} cannot be read: {error}", path.display())))
}

/// What a verdict depends on: the library and its tests.
pub(super) fn judged() -> Result<Sources, Failure> {
    let mut files: Vec<String> = ["Cargo.lock", "Cargo.toml"].map(str::to_owned).into();
    for directory in ["src", "tests", "loom-tests", "shuttle-tests"] {
        let path = lane::root().join(directory);
        collect(&path, directory, &mut files, |_| true)
            .map_err(|error| Failure(format!("{directory}: {error}")))?;
    }
    files.sort();
    let texts = files.into_iter().map(|file| read(&file).map(|text| (file, text)));
    texts.collect::<Result<_, _>>().map(Sources)
}

/// The sources of the library, from the root of the repository.
pub(super) fn sources() -> Result<Vec<String>, Failure> {
    let mut files = Vec::new();
    let is_ours = |file: &str| !is_for_tests(file);
    collect(&lane::root().join("src"), "src", &mut files, is_ours)
        .map_err(|error| Failure(format!("src: {error}")))?;
    files.sort();
    Ok(files)
}

fn collect(
    directory: &Path,
    name: &str,
    files: &mut Vec<String>,
    wanted: fn(&str) -> bool,
) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = format!("{name}/{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), &name, files, wanted)?;
        } else if entry.path().extension().is_some_and(|extension| extension == "rs")
            && wanted(&name)
        {
            files.push(name);
        }
    }
    Ok(())
}

fn is_for_tests(file: &str) -> bool {
    file.split('/').any(|part| matches!(part, "tests" | "tests.rs"))
}

/// Makes `to` like `from`.
fn mirror(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if LEFT_OUT.iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            mirror(&entry.path(), &target)?;
        } else {
            let text = fs::read(entry.path())?;
            if fs::read(&target).ok().as_ref() != Some(&text) {
                fs::write(&target, text)?;
            }
        }
    }
    for entry in fs::read_dir(to)? {
        let entry = entry?;
        match from.join(entry.file_name()).exists() {
            true => (),
            false if entry.file_type()?.is_dir() => fs::remove_dir_all(entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{env, fs, process};

    use super::mirror;

    #[test]
    fn a_mirror_is_like_its_original_and_left_alone_where_nothing_changed() {
        let base = env::temp_dir().join(format!("corewheel-mirror-{}", process::id()));
        let (from, to) = (base.join("from"), base.join("to"));
        for directory in [from.join("a"), from.join("target"), to.join("gone"), to.join("target")] {
            fs::create_dir_all(directory).expect("made");
        }
        for (file, text) in
            [("from/a/one", "1"), ("from/two", "2"), ("to/two", "mutant"), ("to/gone/three", "3")]
        {
            fs::write(base.join(file), text).expect("written");
        }
        mirror(&from, &to).expect("mirrored");
        let read = |file| fs::read_to_string(to.join(file)).ok();
        assert_eq!(
            (read("a/one"), read("two"), read("gone/three")),
            (Some("1".into()), Some("2".into()), None)
        );
        let changed = || fs::metadata(to.join("two")).expect("there").modified().expect("known");
        let before = changed();
        mirror(&from, &to).expect("mirrored");
        assert_eq!(before, changed());
        fs::remove_dir_all(base).expect("removed");
    }
}
