use super::{super::workshop, ORDERINGS, is_word_at, weakenings, without_tests, without_text};

fn names(text: &str) -> Vec<String> {
    weakenings("src/part/word.rs", text)
        .expect("scanned")
        .into_iter()
        .map(|mutant| mutant.name)
        .collect()
}

/// The lines that the first mutant has changed.
fn changed(text: &str) -> Vec<String> {
    let mutants = weakenings("src/word.rs", text).expect("scanned");
    let lines = text.lines().zip(mutants[0].broken.lines()).filter(|(old, new)| old != new);
    lines.map(|(_, new)| new.trim().to_owned()).collect()
}

#[test]
fn each_ordering_becomes_a_step_weaker() {
    let source =
        "fn a() {\n    x.load(Ordering::Acquire);\n    x.store(1, Ordering::Release);\n}\n";
    assert_eq!(
        names(source),
        ["part::word::a load: Acquire -> Relaxed", "part::word::a store: Release -> Relaxed"]
    );
    assert_eq!(changed(source), ["x.load(Ordering::Relaxed);"]);
    let both = "fn a() {\n    x.swap(1, Ordering::AcqRel);\n}\n";
    assert_eq!(
        names(both),
        ["part::word::a swap: AcqRel -> Acquire", "part::word::a swap: AcqRel -> Release"]
    );
    let strongest =
        "fn a() {\n    x.load(SC);\n    x.store(1, SC);\n    x.swap(1, SC);\n    fence(SC);\n}\n";
    let weaker: Vec<String> = names(&strongest.replace("SC", "Ordering::SeqCst"))
        .iter()
        .filter_map(|name| name.split(' ').next_back().map(str::to_owned))
        .collect();
    assert_eq!(weaker, ["Acquire", "Release", "AcqRel", "AcqRel"]);
}

#[test]
fn the_ordering_of_a_failure_is_weakened_to_what_is_allowed() {
    let swap = "fn a() {\n    x.compare_exchange(\n        f(0, 1),\n        1,\n        Ordering::SeqCst,\n        Ordering::SeqCst,\n    );\n}\n";
    assert_eq!(
        names(swap),
        [
            "part::word::a compare_exchange: SeqCst -> AcqRel",
            "part::word::a compare_exchange: SeqCst -> Acquire"
        ]
    );
    let update =
        "fn a() {\n    x.fetch_update(Ordering::Relaxed, Ordering::SeqCst, |x| Some(x));\n}\n";
    assert_eq!(names(update), ["part::word::a fetch_update: SeqCst -> Acquire"]);
}

#[test]
fn a_fence_that_cannot_be_weaker_goes() {
    let source = "fn a() {\n    fence(Ordering::Release);\n}\n";
    assert_eq!(names(source), ["part::word::a fence: Release -> none"]);
    assert_eq!(changed(source), ["();"]);
}

#[test]
fn relaxed_text_and_tests_have_none() {
    let source = "//! Ordering::SeqCst\nfn a() {\n    x.load(Ordering::Relaxed); // Ordering::Acquire\n    \
                  say(\"(Ordering::AcqRel \\\" )\", '(', '\\'', r#\"Ordering::Release\"#);\n}\n\
                  #[cfg(all(test, not(loom)))]\nmod tests {\n    fn b() {\n        x.load(Ordering::SeqCst);\n    }\n}\n";
    assert_eq!(names(source), [""; 0]);
    assert_eq!(without_text(source).len(), source.len());
}

#[test]
fn equals_are_numbered_and_functions_found() {
    let source = "impl A {\n    fn a(&self) -> u64 {\n        let b = |x: &X| {\n            x.load(Ordering::Acquire)\n        };\n        \
                  b(self) + self.0.load(Ordering::Acquire)\n    }\n\n    fn b<'a>(&'a self) -> u64 { self.0.load(Ordering::Acquire) }\n}\n";
    assert_eq!(
        names(source),
        [
            "part::word::a load: Acquire -> Relaxed #1",
            "part::word::a load: Acquire -> Relaxed #2",
            "part::word::b load: Acquire -> Relaxed",
        ]
    );
}

#[test]
fn what_would_be_overlooked_is_an_error() {
    let imported = "use core::sync::atomic::Ordering::{Acquire, Release};\n";
    let error = weakenings("src/word.rs", imported).expect_err("seen");
    assert!(error.starts_with("src/word.rs:1: "), "{error}");
    let constant = "const LOOK: Ordering = Ordering::Acquire;\n";
    assert!(weakenings("src/word.rs", constant).is_err());
}

/// Counted another way, the library has as many.
#[test]
fn all_of_the_library_are_found() {
    for file in workshop::sources().unwrap_or_else(|failure| panic!("{failure}")) {
        let text = workshop::read(&file).unwrap_or_else(|failure| panic!("{failure}"));
        let code = without_tests(&without_text(&text));
        let count = |ordering: &str| {
            let found = code
                .match_indices(ordering)
                .filter(|&(at, word)| is_word_at(&code, at, word))
                .count();
            // What is Relaxed has nothing weaker; AcqRel has two.
            found
                * [("Relaxed", 0), ("AcqRel", 2)]
                    .iter()
                    .find(|(name, _)| *name == ordering)
                    .map_or(1, |(_, times)| *times)
        };
        let expected: usize = ORDERINGS.iter().map(|ordering| count(ordering)).sum();
        assert_eq!(weakenings(&file, &text).expect("scanned").len(), expected, "{file}");
    }
}
