//! What users write: the examples of the README compile with the dependencies that it prints and no
//! others, and the compiler's message about a mistake names the way out.
#![cfg(not(miri))]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A package of this test run, with its own workspace.
struct Package {
    name: &'static str,
    folder: PathBuf,
}

impl Package {
    /// Writes a package with these `[dependencies]`.
    fn new(name: &'static str, dependencies: &str) -> Self {
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

    fn write(&self, file: &str, text: &str) {
        let path = self.folder.join(file);
        fs::create_dir_all(path.parent().expect("inside the package")).expect("writable");
        fs::write(path, text).expect("writable");
    }

    /// Returns the result of `cargo check` for the examples.
    fn check_examples(&self) -> Output {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["check", "--offline", "--quiet", "--examples", "--target-dir"]);
        let target = format!("{}-target", self.name);
        cargo.arg(Path::new(env!("CARGO_TARGET_TMPDIR")).join(target));
        // The flags of a build for a sanitizer or for coverage fit only that build.
        for flags in
            ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER"]
        {
            cargo.env_remove(flags);
        }
        cargo.current_dir(&self.folder).output().expect("cargo runs")
    }
}

#[test]
fn a_local_future_that_must_be_send_names_timers() {
    let package =
        Package::new("ui", &format!("[dependencies]\ncorewheel = {{ path = \"{ROOT}\" }}\n"));
    package.write("examples/send_sleep.rs", include_str!("compile/send_sleep.rs"));
    let output = package.check_examples();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "it compiles");
    let errors = message.lines().filter(|line| line.starts_with("error: future cannot be sent"));
    assert_eq!(errors.count(), 1, "{message}");
    assert!(message.contains("UseTimersForSendFutures`"), "{message}");
}

/// Builds a package with the README's `[dependencies]` and each of its Rust blocks as an example.
#[test]
fn the_examples_of_the_readme_compile_with_the_dependencies_it_prints() {
    let readme = fs::read_to_string(Path::new(ROOT).join("README.md")).expect("readable");
    let dependencies = blocks(&readme, "toml");
    let [dependencies] = dependencies.as_slice() else { panic!("one list of dependencies") };
    let package = Package::new("readme", &dependencies.replace("../corewheel", ROOT));
    let examples = blocks(&readme, "rust");
    assert!(examples.len() > 2, "{} examples", examples.len());
    for (number, example) in examples.iter().enumerate() {
        package.write(&format!("examples/e{number}.rs"), &as_program(example));
    }
    let output = package.check_examples();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Returns the code blocks of a language.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let fenced = text.split("```").skip(1).step_by(2);
    let is_language = |block: &&str| block.split([',', '\n']).next() == Some(language);
    fenced
        .filter(is_language)
        .map(|block| block.split_once('\n').expect("lines").1.to_owned())
        .collect()
}

/// Completes an example as rustdoc does. No example of the README returns a `Result`.
fn as_program(example: &str) -> String {
    if example.contains("fn main()") {
        example.to_owned()
    } else {
        format!("fn main() {{\n{example}\n}}")
    }
}
