//! The README's examples compile. If a value of a thread's wheel is used where a `Send` value is
//! required, the compile error names the remedy.
#![cfg(not(miri))]

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Runs `cargo check` on a new package with these `[dependencies]` and these examples.
fn cargo_check(name: &str, dependencies: &str, examples: &[String]) -> Output {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    let write = |file: &str, text: &str| {
        let path = folder.join(file);
        fs::create_dir_all(path.parent().expect("inside the package")).expect("writable");
        fs::write(path, text).expect("writable");
    };
    let head = "version = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n";
    write("Cargo.toml", &format!("[package]\nname = \"{name}\"\n{head}{dependencies}"));
    write("src/lib.rs", "");
    // The lock file selects dependency versions that cargo has already downloaded.
    let lock = fs::read_to_string(Path::new(ROOT).join("Cargo.lock")).expect("readable");
    write("Cargo.lock", &lock);
    for (number, example) in examples.iter().enumerate() {
        write(&format!("examples/e{number}.rs"), example);
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["check", "--offline", "--quiet", "--examples", "--target-dir"]);
    cargo.arg(folder.with_extension("target"));
    // Flags for a sanitizer or for coverage must not reach this build.
    cargo.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    cargo.env_remove("RUSTC_WRAPPER").env_remove("RUSTC_WORKSPACE_WRAPPER");
    cargo.current_dir(&folder).output().expect("cargo runs")
}

#[test]
fn the_compile_error_of_a_non_send_value_names_the_remedy() {
    let dependencies = format!("[dependencies]\ncorewheel = {{ path = \"{ROOT}\" }}\n");
    let example = "use corewheel::{LocalHandle, ReusableTimer, purgatory::*};
        fn spawn(_: impl Future<Output = ()> + Send) {}
        fn send<T: Send>() {}
        fn main() { spawn(async { corewheel::future::sleep(std::time::Duration::MAX).await }) }
        fn local_handle() { send::<LocalHandle>() }
        fn reusable_timer() { send::<ReusableTimer>() }
        fn purgatory<Op: DelayedOperation>() { send::<Purgatory<u8, Op>>() }";
    let output = cargo_check("ui", &dependencies, &[example.to_owned()]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "it compiles");
    let errors = message.lines().filter(|line| line.starts_with("error: future cannot be sent"));
    assert_eq!(errors.count(), 1, "{message}");
    for remedy in [
        "UseShardRefOrTimers`",
        "UseLocalHandleShare` cannot be sent between threads",
        "UseReusableTimerHandle` cannot be sent between threads",
        "UsePurgatoryGroupNotify` cannot be sent between threads",
    ] {
        assert!(message.contains(remedy), "{message}");
    }
}

#[test]
fn readme_examples_compile_with_the_printed_dependencies() {
    let readme = fs::read_to_string(Path::new(ROOT).join("README.md")).expect("readable");
    let dependencies = code_blocks(&readme, "toml");
    let [dependencies] = dependencies.as_slice() else { panic!("one list of dependencies") };
    // Wraps an example without `main`, as rustdoc does.
    let complete = |example: String| {
        let is_whole = example.contains("fn main()");
        if is_whole { example } else { format!("fn main() {{\n{example}\n}}") }
    };
    let examples: Vec<_> = code_blocks(&readme, "rust").into_iter().map(complete).collect();
    assert!(examples.len() > 2, "{} examples", examples.len());
    let output = cargo_check("readme", &dependencies.replace("../corewheel", ROOT), &examples);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn code_blocks(text: &str, language: &str) -> Vec<String> {
    let fenced = text.split("```").skip(1).step_by(2);
    let is_language = |block: &&str| block.split([',', '\n']).next() == Some(language);
    let code = |block: &str| block.split_once('\n').expect("a first line").1.to_owned();
    fenced.filter(is_language).map(code).collect()
}
