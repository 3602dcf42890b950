//! One lane: a shell command with a name.

use std::{
    env,
    fmt::{self, Display, Formatter},
    path::{Path, PathBuf},
    process,
    time::Duration,
};

/// One command of a list, with what it changes in the environment.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    pub(crate) name: &'static str,
    /// Whether the command's last line must be a verdict, a JSON object with `"ok":true`.
    pub(crate) verdict: bool,
    /// How long it may take: one that hangs is a failure, and not the end of whoever waits for it.
    pub(crate) limit: Option<Duration>,
    /// Whether it may run beside others that may: it uses little more than a core, and what others do to its time does not matter.
    pub(crate) beside_others: bool,
    words: Vec<String>,
    env: Vec<(&'static str, String)>,
    unset: Vec<&'static str>,
    target: Option<&'static str>,
}

impl Lane {
    /// A lane that runs `command`, whose words are separated by blanks.
    pub(crate) fn new(name: &'static str, command: &'static str) -> Self {
        Self {
            name,
            verdict: false,
            limit: None,
            beside_others: false,
            words: words(command),
            env: Vec::new(),
            unset: Vec::new(),
            target: None,
        }
    }

    /// Sets an environment variable.
    pub(crate) fn env(mut self, key: &'static str, value: &str) -> Self {
        self.env.push((key, value.to_owned()));
        self
    }

    /// Removes an environment variable that the caller may have set.
    pub(crate) fn unset(mut self, key: &'static str) -> Self {
        self.unset.push(key);
        self
    }

    /// Builds into a directory of its own, so that lanes whose flags differ do not rebuild each other.
    pub(crate) fn target(mut self, directory: &'static str) -> Self {
        self.target = Some(directory);
        self
    }

    /// Asks for a verdict in the last line of output.
    pub(crate) fn verdict(mut self) -> Self {
        self.verdict = true;
        self
    }

    /// Stops the command after so long.
    pub(crate) fn limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Lets it run beside others that may.
    pub(crate) fn beside_others(mut self) -> Self {
        self.beside_others = true;
        self
    }

    /// The same by another name.
    pub(crate) fn named(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    /// The same command with more words at its end.
    pub(crate) fn and(mut self, more: &str) -> Self {
        self.words.extend(words(more));
        self
    }

    /// The same command with one more word, which may hold blanks.
    pub(crate) fn word(mut self, word: String) -> Self {
        self.words.push(word);
        self
    }

    /// The command and what it changes in the environment, wherever it builds.
    pub(crate) fn command(&self) -> String {
        format!("{:?} {:?} {:?}", self.env, self.unset, self.words)
    }

    /// The package that cargo is asked for.
    pub(crate) fn package(&self) -> Option<&str> {
        let named = self.words.iter().skip_while(|word| *word != "-p").nth(1);
        named.map(String::as_str)
    }

    /// The same command for one file of integration tests.
    pub(crate) fn only_test(mut self, file: &str) -> Self {
        let words = std::mem::take(&mut self.words);
        let mut named = false;
        self.words = words
            .into_iter()
            .filter(|word| !std::mem::replace(&mut named, word == "--test") && !named)
            .collect();
        self.words.retain(|word| word != "--lib");
        self.and(&format!("--test {file}"))
    }

    /// The command as a process, not yet started.
    pub(crate) fn process(&self) -> process::Command {
        self.process_in(root())
    }

    /// The same for a copy of the repository.
    pub(crate) fn process_in(&self, copy: &Path) -> process::Command {
        let mut process = process::Command::new(&self.words[0]);
        process
            .args(&self.words[1..])
            .envs(self.env.iter().map(|(key, value)| (key, value)))
            .current_dir(copy);
        for key in &self.unset {
            process.env_remove(key);
        }
        if let Some(directory) = self.target {
            process.env("CARGO_TARGET_DIR", target_base().join(directory));
        }
        process
    }
}

/// Writes the lane as a line for a shell.
impl Display for Lane {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if !self.unset.is_empty() {
            write!(f, "env")?;
            self.unset.iter().try_for_each(|key| write!(f, " -u {key}"))?;
            write!(f, " ")?;
        }
        self.env.iter().try_for_each(|(key, value)| write!(f, "{key}=\"{value}\" "))?;
        if let Some(directory) = self.target {
            // As short as the caller's own, to be run from the root.
            write!(f, "CARGO_TARGET_DIR=\"{}\" ", given_base().join(directory).display())?;
        }
        f.write_str(&self.words.join(" "))
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Where cargo builds, unless a lane has a directory of its own below.
pub(crate) fn target_base() -> PathBuf {
    root().join(given_base())
}

fn given_base() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from)
}

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a directory of the repository")
}

#[cfg(test)]
mod tests {
    use super::Lane;

    #[test]
    fn a_lane_is_narrowed_to_a_file() {
        let lane =
            Lane::new("name", "cargo test -p x --lib --test a --test b --locked").only_test("c");
        assert_eq!(lane.to_string(), "cargo test -p x --locked --test c");
    }

    #[test]
    fn a_lane_reads_as_a_shell_line() {
        let lane =
            Lane::new("name", "cargo test  -p x").env("RUSTFLAGS", "--cfg loom").unset("BOUND");
        assert_eq!(lane.to_string(), "env -u BOUND RUSTFLAGS=\"--cfg loom\" cargo test -p x");
    }
}
