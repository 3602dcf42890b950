//! The examples of the README compile with the dependencies that the README prints, and no others.

#![cfg(not(miri))]

#[path = "common/package.rs"]
mod package;

use std::{fs, path::Path};

use package::{Package, ROOT};

/// Builds a package with the README's `[dependencies]` and each of its Rust blocks as an example.
#[test]
fn examples_compile_with_the_printed_dependencies() {
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
