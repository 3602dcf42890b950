//! A package that a test writes and checks with cargo.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

pub(crate) const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A package of this test run, with its own workspace.
pub(crate) struct Package {
    name: &'static str,
    folder: PathBuf,
}

impl Package {
    /// Writes a package with these `[dependencies]`.
    pub(crate) fn new(name: &'static str, dependencies: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&folder);
        let package = Self { name, folder };
        let head = format!(
            "[workspace]\n[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n"
        );
        package.write("Cargo.toml", &format!("{head}{dependencies}"));
        package.write("src/lib.rs", "");
        // The versions that the workspace has downloaded.
        let lock = fs::read_to_string(Path::new(ROOT).join("Cargo.lock")).expect("readable");
        package.write("Cargo.lock", &lock);
        package
    }

    pub(crate) fn write(&self, file: &str, text: &str) {
        let path = self.folder.join(file);
        fs::create_dir_all(path.parent().expect("inside the package")).expect("writable");
        fs::write(path, text).expect("writable");
    }

    /// Returns the result of `cargo check` for the examples.
    pub(crate) fn check_examples(&self) -> Output {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["check", "--offline", "--quiet", "--examples", "--target-dir"]);
        let target = format!("{}-target", self.name);
        cargo.arg(Path::new(env!("CARGO_TARGET_TMPDIR")).join(target));
        // A build of this test for a sanitizer or for coverage has flags that only that build can use.
        for flags in
            ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER"]
        {
            cargo.env_remove(flags);
        }
        cargo.current_dir(&self.folder).output().expect("cargo runs")
    }
}
