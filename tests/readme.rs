//! The examples of the README compile with the dependencies that the README prints, and no others.

#![cfg(not(miri))]

use std::{env, fs, path::Path, process::Command};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Builds a package with the README's `[dependencies]` and each of its Rust blocks as an example.
#[test]
fn examples_compile_with_the_printed_dependencies() {
    let readme = fs::read_to_string(Path::new(ROOT).join("README.md")).expect("readable");
    let package = Path::new(env!("CARGO_TARGET_TMPDIR")).join("readme");
    let _ = fs::remove_dir_all(&package);
    let write = |name: &str, text: String| {
        let path = package.join(name);
        fs::create_dir_all(path.parent().expect("inside the package")).expect("writable");
        fs::write(path, text).expect("writable");
    };

    let dependencies = blocks(&readme, "toml");
    let [dependencies] = dependencies.as_slice() else { panic!("one list of dependencies") };
    let dependencies = dependencies.replace("../corewheel", ROOT);
    let head =
        "[workspace]\n[package]\nname = \"readme\"\nversion = \"0.0.0\"\nedition = \"2024\"\n";
    write("Cargo.toml", format!("{head}{dependencies}"));
    write("src/lib.rs", String::new());
    let examples = blocks(&readme, "rust");
    assert!(examples.len() > 2, "{} examples", examples.len());
    for (number, example) in examples.iter().enumerate() {
        write(&format!("examples/e{number}.rs"), as_program(example));
    }
    // The versions that the workspace has downloaded.
    let lock = fs::read_to_string(Path::new(ROOT).join("Cargo.lock")).expect("readable");
    write("Cargo.lock", lock);

    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["check", "--offline", "--quiet", "--examples", "--target-dir"]);
    cargo.arg(Path::new(env!("CARGO_TARGET_TMPDIR")).join("readme-target"));
    // A build of this test for a sanitizer or for coverage has flags that only that build can use.
    for flags in
        ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER"]
    {
        cargo.env_remove(flags);
    }
    let output = cargo.current_dir(&package).output().expect("cargo runs");
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
