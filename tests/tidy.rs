//! Checks rules for `src/` that the compiler does not check. The checks read formatted sources as
//! text. Modules called `tests` are exempt.

#[path = "tidy/source.rs"]
mod source;

use std::{
    fs,
    path::{Path, PathBuf},
};

use source::{Name, Source};

/// The modules of `src/` and of its folders. A module may use itself and the modules before it.
/// Inside a folder, all modules may use the items of its `mod.rs`.
const MODULE_ORDER: &[(&str, &str)] = &[
    (
        "",
        "limits util error trace clock when wheel gauges cross_core config metrics shard local purgatory future",
    ),
    ("util", "sync snapshot prefetch pages panics"),
    ("clock", "tick counter estimator manual reader"),
    ("wheel", "storage entries level slot prefetcher raw check"),
    ("gauges", "counts histogram"),
    (
        "cross_core",
        "call_site state mailbox parker reclaim callback slab admission descriptor hooks shared registry handle",
    ),
    ("metrics", "live_timers watchdog export"),
    ("shard", "expired sleep engine"),
    ("local", "client thread_wheel shard_ref reusable_timer drained_timer timer_fd cores"),
    ("purgatory", "operation hash records table group"),
    (
        "future",
        "waker_callback backend sleep timeout interval claimable_wheels timers drive virtual_time",
    ),
];

/// A name, the file or folder that may use it, and the replacement elsewhere.
const RESTRICTED: &[(&str, &str, &str)] = &[
    ("std::sync::atomic", "src/util/sync/", "use `crate::util::sync`"),
    ("core::sync::atomic", "src/util/sync/", "use `crate::util::sync`"),
    ("crossbeam_epoch", "src/cross_core/reclaim/mod.rs", "use `crate::cross_core::reclaim`"),
    ("Instant::now", "src/clock/", "use the shard's clock"),
];

const BANNED_WORDS: &[(&str, &str)] = &[
    ("bucket", "slot"),
    ("spoke", "slot"),
    ("jiffy", "tick"),
    ("expiration", "deadline"),
    ("tombstone", "stale"),
    ("zombie", "stale"),
    ("inbox", "mailbox"),
    ("whoever", "the thread that"),
    ("meanwhile", "the interval"),
    ("anyone", "remote"),
];

const ORDERINGS: [&str; 5] = ["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];

/// Public items that need no example: other crates cannot reach them, or a macro defines them.
const WITHOUT_EXAMPLE: [&str; 4] = ["BackendOps", "Counts", "WakerCallback", "CallSite"];

/// Maximum number of lines between an atomic operation and the comment above that gives its
/// ordering's reason.
const REASON_REACH: usize = 8;

/// A line number, counted from 1, and the problem in this line.
type Finding = (usize, String);
type Rule = fn(&Source) -> Vec<Finding>;

const RULES: [Rule; 5] =
    [module_order, restricted_names, ordering_reasons, banned_words, missing_examples];

#[test]
fn src_is_tidy() {
    let files = rust_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert!(!files.is_empty(), "src/ has no Rust file");
    let findings: Vec<String> = files.iter().flat_map(|path| findings_in(path)).collect();
    assert!(findings.is_empty(), "{} findings\n{}", findings.len(), findings.join("\n"));
}

fn findings_in(path: &Path) -> Vec<String> {
    let file = path.strip_prefix(env!("CARGO_MANIFEST_DIR")).expect("inside the package");
    let file = file.to_string_lossy().replace('\\', "/");
    let source = Source::new(&file, &fs::read_to_string(path).expect("readable"));
    let findings = RULES.iter().flat_map(|rule| rule(&source));
    findings.map(|(line, what)| format!("{file}:{line}: {what}")).collect()
}

fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("readable");
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("readable").path())
        .flat_map(|path| if path.is_dir() { rust_files(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect();
    files.sort();
    files
}

// ---- the rules

/// Finds uses of a module that is later or missing in [`MODULE_ORDER`]. The crate's root is exempt.
fn module_order(source: &Source) -> Vec<Finding> {
    let own = source.module_path();
    let order_violation = |name: &Name| {
        let used = name.resolve(&own)?;
        let (depth, (own_part, used_part)) =
            own.iter().zip(&used).enumerate().find(|(_, (own, used))| own != used)?;
        let folder = own[..depth].join("::");
        let (_, order) = MODULE_ORDER.iter().find(|(name, _)| *name == folder)?;
        let position = |module: &str| order.split_whitespace().position(|other| other == module);
        let what = match (position(own_part), position(used_part)) {
            (Some(own), Some(used)) if used <= own => return None,
            (Some(_), Some(_)) => {
                format!("`{own_part}` uses `{used_part}`, after it in MODULE_ORDER")
            }
            (None, _) => format!("`{own_part}` is missing in MODULE_ORDER"),
            (_, None) if !folder.is_empty() => return None,
            (_, None) => {
                format!("`{used_part}` is not in MODULE_ORDER: import it from its own module")
            }
        };
        Some((name.line, what))
    };
    if own == ["lib"] {
        Vec::new()
    } else {
        source.names.iter().filter_map(order_violation).collect()
    }
}

fn restricted_names(source: &Source) -> Vec<Finding> {
    let restricted_here = RESTRICTED.iter().filter(|(_, home, _)| !source.is_in(home));
    let found = restricted_here.flat_map(|(name, home, instead)| {
        let names = source.names.iter().filter(|found| found.contains(name));
        names.map(move |found| (found.line, format!("`{name}` outside {home}: {instead}")))
    });
    found.collect()
}

/// Finds atomic orderings without a reason in a comment, such as
/// `// Release: publishes the payload`.
fn ordering_reasons(source: &Source) -> Vec<Finding> {
    let lacks_reason = |name: &&Name| {
        let needs_reason = !name.import && ORDERINGS.contains(&name.last());
        let comments = || source.comments_above(name.line, REASON_REACH);
        needs_reason && !gives_reason(&comments(), name.last())
    };
    let what = |name: &Name| format!("no comment above says `{}: ` and a reason", name.last());
    source.names.iter().filter(lacks_reason).map(|name| (name.line, what(name))).collect()
}

fn banned_words(source: &Source) -> Vec<Finding> {
    let has_word = |text: &str, word: &str| {
        let mut words = text.split(|letter: char| !letter.is_alphabetic());
        words.any(|said| said.to_lowercase().trim_end_matches('s') == word)
    };
    let banned = |(line, text): (usize, String)| {
        let banned = BANNED_WORDS.iter().filter(move |(word, _)| has_word(&text, word));
        banned.map(move |(word, instead)| (line, format!("\"{word}\": say {instead}")))
    };
    source.texts().flat_map(banned).collect()
}

fn gives_reason(comments: &str, ordering: &str) -> bool {
    comments.match_indices(ordering).any(|(at, _)| {
        let after = comments[at..].split_once(':');
        after.is_some_and(|(_, reason)| reason.split_whitespace().count() >= 3)
    })
}

fn missing_examples(source: &Source) -> Vec<Finding> {
    let items = source.without_example().filter(|(_, name)| !WITHOUT_EXAMPLE.contains(name));
    items.map(|(line, name)| (line, format!("`{name}` has no example"))).collect()
}

// ---- tests of the rules

/// A rule, a file, its text, and the lines where the rule finds something.
type Case<'a> = (Rule, &'a str, &'a str, &'a [usize]);

#[test]
fn each_rule_reports_exactly_its_violations() {
    const STATE: &str = "src/cross_core/state/mod.rs";
    let nested = "use crate::{\n    limits::Tick,\n    shard::{A, B},\n};";
    let before = "use crate::{limits, clock::Clock, wheel::storage};\n// crate::local";
    let tests = "#[cfg(test)]\nmod tests {\n    use crate::local::turn;\n    Instant::now()\n}";
    let atomics = "use std::{\n    sync::{Arc, atomic::AtomicU64},\n    time::Instant,\n};";
    let texts = "/// Like [`Instant::now`].\nlet a = \"Instant::now\";";
    let above = "// Release: what another thread sees.\nfn a() {\n    b(Release)\n}";
    let far = "// SeqCst: orders it with the sleeper.\n\n\n\n\n\n\n\n\n\nfence(SeqCst);";
    let swap = "// AcqRel: takes the payload, publishes the claim.\n// Relaxed on failure: nothing is read.\n\
                word.compare_exchange(\n    old,\n    new,\n    Ordering::AcqRel,\n    Ordering::Relaxed,\n)";
    let bare = "/// Says.\npub const fn a() {}\n/// Says.\npub struct B {\n    pub c: u8,\n}";
    let cases: &[Case<'_>] = &[
        (module_order, "src/wheel/slot.rs", nested, &[3, 3]),
        (module_order, "src/wheel/mod.rs", "fn a() {\n    crate::local::turn();\n}", &[2]),
        (module_order, "src/wheel/slot.rs", "use super::super::gauges::Counts;", &[1]),
        (module_order, "src/wheel/mod.rs", "use crate::TimerHandle;", &[1]),
        (module_order, "src/novelty.rs", "use crate::clock::Clock;", &[1]),
        (module_order, STATE, "use super::slab::Slab;", &[1]),
        (module_order, "src/wheel/level.rs", before, &[]),
        (
            module_order,
            "src/wheel/slot.rs",
            "use super::{level, Wheel};\nuse self::part::Part;",
            &[],
        ),
        (module_order, "src/wheel/mod.rs", tests, &[]),
        (module_order, "src/lib.rs", "pub use crate::local::local_timer;", &[]),
        (restricted_names, STATE, atomics, &[2]),
        (restricted_names, "src/wheel/mod.rs", "let quote = '\"';\nInstant::now();", &[2]),
        (restricted_names, "src/clock/fast.rs", "Instant::now()", &[]),
        (restricted_names, "src/wheel/mod.rs", texts, &[]),
        (restricted_names, "src/wheel/mod.rs", tests, &[]),
        (ordering_reasons, STATE, above, &[3]),
        (
            ordering_reasons,
            STATE,
            "// Release: publishes the payload.\nword.load(Ordering::Acquire)",
            &[2],
        ),
        (ordering_reasons, STATE, "// Relaxed: fine.\nword.load(Relaxed)", &[2]),
        (ordering_reasons, STATE, far, &[11]),
        (ordering_reasons, STATE, swap, &[]),
        (ordering_reasons, STATE, "use crate::sync::Ordering::{Acquire, Release};", &[]),
        (banned_words, STATE, "// Two zombies.\nlet zombie_count = 1;", &[1, 2]),
        (banned_words, STATE, "// A stale timer, \nlet a = \"zombie\";", &[]),
        (missing_examples, STATE, bare, &[2, 4]),
        (missing_examples, STATE, "/// ```\n/// a();\n/// ```\n///\n#[inline]\npub fn a() {}", &[]),
        (missing_examples, STATE, "pub(crate) fn a() {}\n#[doc(hidden)]\npub fn b() {}", &[]),
    ];
    for &(rule, file, text, expected) in cases {
        let found: Vec<_> = rule(&Source::new(file, text)).into_iter().map(|(at, _)| at).collect();
        assert_eq!(found, expected, "{file}:\n{text}");
    }
}
