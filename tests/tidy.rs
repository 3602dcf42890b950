//! Keeps `src/` to the habits that no compiler checks.
//!
//! Each rule reads the sources as text, the way rustfmt leaves them, and names file and line. Modules called `tests`
//! are exempt. How a source is read stands in `tidy/source.rs`; the end of this file proves that each rule still bites.

#[path = "tidy/source.rs"]
mod source;

use std::{
    fs,
    path::{Path, PathBuf},
};

use source::{Name, Source};

/// The modules in reading order: each may use itself and those before it.
const ORDER: &str = "limits sync trace error tick clock prefetch paged origin wheel state mailbox parker reclaim slab callback parcel \
                     guests gate gauges descriptor hooks config shared registry handle metrics shard local timer_fd cores purgatory future";

/// Names that belong to certain files, and what to use everywhere else.
const HOMES: &[Home] = &[
    Home {
        name: "std::sync::atomic",
        files: &["src/sync/"],
        instead: "take it from `crate::sync`",
    },
    Home {
        name: "core::sync::atomic",
        files: &["src/sync/"],
        instead: "take it from `crate::sync`",
    },
    Home { name: "crossbeam_epoch", files: &["src/reclaim.rs"], instead: "ask `crate::reclaim`" },
    Home {
        name: "Instant::now",
        files: &["src/clock.rs", "src/clock/"],
        instead: "ask the shard's clock",
    },
    Home { name: "unsafe", files: UNSAFE, instead: "find a safe way" },
];

const UNSAFE: &[&str] = &[
    "src/callback.rs",
    "src/clock/boot.rs",
    "src/clock/counter.rs",
    "src/parcel.rs",
    "src/prefetch.rs",
    "src/reclaim.rs",
];

/// Words that the project does without, and the one it uses instead.
const WORDS: &[(&str, &str)] = &[
    ("bucket", "slot"),
    ("spoke", "slot"),
    ("timeout wheel", "wheel"),
    ("rotation", "revolution"),
    ("jiffy", "tick"),
    ("expiration", "deadline"),
    ("expiry time", "deadline"),
    ("due time", "deadline"),
    ("tombstone", "held or stale"),
    ("zombie", "held or stale"),
    ("inbox", "mailbox"),
    ("fn schedule", "add or insert"),
    ("fn start timer", "add or insert"),
    ("fn stop timer", "cancel or remove"),
    ("fn reschedule", "reset"),
];

const ORDERINGS: [&str; 5] = ["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];

/// How many lines may stand between an atomic operation and its reason.
const REASON_REACH: usize = 8;

struct Home {
    name: &'static str,
    files: &'static [&'static str],
    instead: &'static str,
}

/// A line, counted from 1, and what is wrong there.
type Finding = (usize, String);
type Rule = fn(&Source) -> Vec<Finding>;

const RULES: [Rule; 4] = [order, homes, reasons, words];

#[test]
fn src_is_tidy() {
    let files = rust_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert!(!files.is_empty(), "src/ holds no Rust file");
    let findings: Vec<String> = files.iter().flat_map(|path| untidy(path)).collect();
    assert!(findings.is_empty(), "{} findings\n{}", findings.len(), findings.join("\n"));
}

fn untidy(path: &Path) -> Vec<String> {
    let file = path.strip_prefix(env!("CARGO_MANIFEST_DIR")).expect("a file of ours");
    let file = file.to_string_lossy().replace('\\', "/");
    let source = Source::new(&file, &fs::read_to_string(path).expect("readable"));
    let findings = RULES.iter().flat_map(|rule| rule(&source));
    findings.map(|(line, what)| format!("{file}:{line}: {what}")).collect()
}

fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(directory).expect("readable").map(|entry| entry.expect("readable").path());
    let mut files: Vec<PathBuf> = entries
        .flat_map(|path| if path.is_dir() { rust_files(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect();
    files.sort();
    files
}

// ---- the rules

/// Dependencies run one way. The crate's root, which shows all modules to the world, is free.
fn order(source: &Source) -> Vec<Finding> {
    let (own, depth) = source.place();
    let position = |module: &str| ORDER.split_whitespace().position(|other| other == module);
    let judge = |name: &Name| {
        let used = name.module(depth)?;
        let what = match (position(own), position(used)) {
            (Some(own), Some(used)) if used <= own => return None,
            (Some(_), Some(_)) => format!("`{own}` uses `{used}`, which comes after it in ORDER"),
            (None, _) => format!("`{own}` has no place in ORDER yet"),
            (_, None) => {
                format!("`{used}` is no module of ORDER: import from the module where it lives")
            }
        };
        Some((name.line, what))
    };
    if own == "lib" { Vec::new() } else { source.names.iter().filter_map(judge).collect() }
}

/// Some names are at home in a few files only.
fn homes(source: &Source) -> Vec<Finding> {
    let is_stranger = |home: &&Home| !home.files.iter().any(|file| source.is_in(file));
    let found = HOMES.iter().filter(is_stranger).flat_map(|home| {
        let names = source.names.iter().filter(|name| name.contains(home.name));
        names.map(|name| {
            (name.line, format!("`{}` outside {:?}: {}", home.name, home.files, home.instead))
        })
    });
    found.collect()
}

/// Every atomic operation says why it may have the ordering it has, as in `// Release: publishes the payload`.
fn reasons(source: &Source) -> Vec<Finding> {
    let orderings =
        source.names.iter().filter(|name| !name.import && ORDERINGS.contains(&name.last()));
    let silent = orderings
        .filter(|name| !gives_reason(&source.comments_above(name.line, REASON_REACH), name.last()));
    silent
        .map(|name| (name.line, format!("no comment above says `{}: ` and a reason", name.last())))
        .collect()
}

fn gives_reason(comments: &str, ordering: &str) -> bool {
    comments.match_indices(ordering).any(|(at, _)| {
        let after = comments[at..].split_once(':');
        after.is_some_and(|(_, reason)| reason.split_whitespace().count() >= 3)
    })
}

/// One word for one thing, in names and in comments.
fn words(source: &Source) -> Vec<Finding> {
    let lines = source.lines.iter().zip(1..);
    let found = lines.flat_map(|(line, number)| {
        let phrase = line.phrase();
        let says = move |word: &str| {
            phrase.contains(&format!(" {word} ")) || phrase.contains(&format!(" {word}s "))
        };
        let banned = WORDS.iter().filter(move |(word, _)| says(word));
        banned.map(move |(word, instead)| (number, format!("\"{word}\": say {instead}")))
    });
    found.collect()
}

// ---- each rule still bites

/// The lines of a fake source that a rule finds.
fn found(rule: Rule, file: &str, text: &str) -> Vec<usize> {
    rule(&Source::new(file, text)).into_iter().map(|(line, _)| line).collect()
}

#[test]
fn order_finds_what_comes_later_or_has_no_place() {
    assert_eq!(
        found(order, "src/clock.rs", "use crate::limits::A;\nuse crate::wheel::Wheel;"),
        [2]
    );
    assert_eq!(
        found(order, "src/wheel/slot.rs", "use crate::{\n    tick::Tick,\n    shard::{A, B},\n};"),
        [3, 3]
    );
    assert_eq!(found(order, "src/wheel.rs", "fn a() {\n    crate::local::turn();\n}"), [2]);
    assert_eq!(found(order, "src/wheel.rs", "use super::slab::Slab;"), [1]);
    assert_eq!(found(order, "src/wheel/slot.rs", "use super::super::slab::Slab;"), [1]);
    assert_eq!(found(order, "src/wheel.rs", "use crate::TimerHandle;"), [1]);
    assert_eq!(found(order, "src/novelty.rs", "use crate::tick::Tick;"), [1]);
}

#[test]
fn order_allows_what_comes_before_and_tests() {
    let tests = "#[cfg(test)]\nmod tests {\n    use crate::local::turn;\n}";
    assert_eq!(found(order, "src/wheel.rs", tests), []);
    assert_eq!(found(order, "src/wheel/tests.rs", "use crate::local::turn;"), []);
    assert_eq!(
        found(
            order,
            "src/wheel.rs",
            "use crate::{limits, tick::Tick, wheel::slot};\n// crate::local"
        ),
        []
    );
    assert_eq!(found(order, "src/wheel/slot.rs", "use super::level;\nuse self::part::Part;"), []);
    assert_eq!(found(order, "src/lib.rs", "pub use crate::local::local_timer;"), []);
}

#[test]
fn homes_finds_strangers() {
    let atomics = "use std::{\n    sync::{Arc, atomic::AtomicU64},\n    time::Instant,\n};";
    assert_eq!(found(homes, "src/state.rs", atomics), [2]);
    assert_eq!(found(homes, "src/state.rs", "use core::sync::atomic;"), [1]);
    assert_eq!(found(homes, "src/state.rs", "use crossbeam_epoch::pin;"), [1]);
    assert_eq!(found(homes, "src/shard.rs", "let now = std::time::Instant::now();"), [1]);
    assert_eq!(found(homes, "src/slab.rs", "let quote = '\"';\nunsafe { read() }"), [2]);
}

#[test]
fn homes_leaves_residents_text_and_tests_alone() {
    assert_eq!(found(homes, "src/sync/native.rs", "pub(crate) use std::sync::atomic::fence;"), []);
    assert_eq!(found(homes, "src/clock/fast.rs", "Instant::now()"), []);
    assert_eq!(found(homes, "src/reclaim.rs", "unsafe { guard.defer_unchecked(free) }"), []);
    assert_eq!(
        found(
            homes,
            "src/slab.rs",
            "/// Like [`Instant::now`], never unsafe.\nlet a = \"unsafe\";"
        ),
        []
    );
    assert_eq!(
        found(homes, "src/slab.rs", "mod tests {\n    fn a() {\n        unsafe {}\n    }\n}"),
        []
    );
}

#[test]
fn reasons_finds_silent_operations() {
    assert_eq!(found(reasons, "src/state.rs", "fn a() {\n    word.load(Acquire)\n}"), [2]);
    assert_eq!(
        found(
            reasons,
            "src/state.rs",
            "// Release: what another thread sees.\nfn a() {\n    b(Release)\n}"
        ),
        [3]
    );
    assert_eq!(
        found(
            reasons,
            "src/state.rs",
            "// Release: publishes the payload.\nword.load(Ordering::Acquire)"
        ),
        [2]
    );
    assert_eq!(found(reasons, "src/state.rs", "// Relaxed: fine.\nword.load(Relaxed)"), [2]);
    let far = format!(
        "// SeqCst: orders it with the sleeper.\n{}fence(SeqCst);",
        "b();\n".repeat(REASON_REACH + 1)
    );
    assert_eq!(found(reasons, "src/parker.rs", &far), [REASON_REACH + 3]);
}

#[test]
fn reasons_accepts_a_comment_in_reach() {
    let swap = "// AcqRel: takes the payload, publishes the claim.\n// Relaxed on failure: nothing is read.\n\
                word.compare_exchange(\n    old,\n    new,\n    Ordering::AcqRel,\n    Ordering::Relaxed,\n)";
    assert_eq!(found(reasons, "src/state.rs", swap), []);
    let long = format!(
        "// SeqCst: a long story,\n{}fence(SeqCst);",
        "// told at length,\n".repeat(2 * REASON_REACH)
    );
    assert_eq!(found(reasons, "src/parker.rs", &long), []);
    assert_eq!(
        found(reasons, "src/state.rs", "use crate::sync::Ordering::{Acquire, Release};"),
        []
    );
}

#[test]
fn words_finds_synonyms_in_names_and_comments() {
    assert_eq!(
        found(words, "src/a.rs", "// The Buckets of a level.\nlet slot = 1;\nlet next_bucket = 2;"),
        [1, 3]
    );
    assert_eq!(
        found(words, "src/a.rs", "struct TimeoutWheel;\nfn schedule(a: u64);\n/// On schedule."),
        [1, 2]
    );
    assert_eq!(
        found(words, "src/a.rs", "// Slots, deadlines; a bucketful.\nlet a = \"bucket\";"),
        []
    );
}
