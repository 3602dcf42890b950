//! Finds the atomic orderings of a source file, and weakens each by one step. The search relies on
//! the layout of rustfmt.

use std::ops::Range;

use anyhow::{Result, bail};
use regex::Regex;

use super::Mutant;

/// Replaces comments and test modules in the text of a file by blanks.
fn blank_non_code(text: &str) -> Result<String> {
    let non_code_pattern =
        r"//[^\n]*|(?ms:^#\[cfg\((all\()?test[,)][^\n]*\n(#[^\n]*\n)*mod [a-z_]+ \{$.*?^\})";
    let blanks = |captures: &regex::Captures<'_>| " ".repeat(captures[0].len());
    Ok(Regex::new(non_code_pattern)?.replace_all(text, blanks).into_owned())
}

/// Returns the names and ranges of all functions. A range ends at the next `}` indented like the
/// `fn`.
pub(super) fn functions(text: &str) -> Result<Vec<(String, Range<usize>)>> {
    let code = blank_non_code(text)?;
    let head = Regex::new(
        r#"(?m)^( *)(?:pub |pub\([a-z]+\) |const |unsafe |extern "C" )*fn ([a-z_0-9]+)"#,
    )?;
    let function = |captures: regex::Captures<'_>| {
        let name = captures.get(2).expect("each function has a name");
        let end = format!("\n{}}}\n", &captures[1]);
        let end = code[name.end()..].find(&end).map_or(code.len(), |end| name.end() + end);
        (name.as_str().to_owned(), name.start()..end)
    };
    Ok(head.captures_iter(&code).map(function).collect())
}

/// Returns the name of the call that has an argument at `position`, and the position of the name.
fn enclosing_call(code: &str, position: usize) -> (&str, usize) {
    let mut depth = 0;
    let is_enclosing_bracket = |part: char| {
        depth += i32::from(")]}".contains(part)) - i32::from("([{".contains(part));
        depth < 0
    };
    let open = code[..position].rfind(is_enclosing_bracket).unwrap_or(0);
    let start = code[..open].rfind(|part: char| !part.is_alphanumeric() && part != '_');
    let start = start.map_or(0, |before| before + 1);
    (&code[start..open], start)
}

/// Returns the mutants of `file`, each with one ordering that is a step weaker. Fails if an
/// ordering is not an argument `Ordering::X` of a call, or is `SeqCst` and the call is no fence.
pub(super) fn weaker_mutants(file: &str, text: &str) -> Result<Vec<Mutant>> {
    let module = file.trim_start_matches("src/").trim_end_matches(".rs").trim_end_matches("/mod");
    let module = module.replace('/', "::");
    if !text.contains("Ordering") {
        return Ok(Vec::new());
    }
    let (code, functions, mut mutants) = (blank_non_code(text)?, functions(text)?, Vec::new());
    let orderings =
        Regex::new(r"([A-Za-z]+::)?(?-u:\b)(Relaxed|Acquire|Release|AcqRel|SeqCst)(?-u:\b)")?;
    for captures in orderings.captures_iter(&code) {
        let (ordering, range) = (&captures[2], captures.get(2).expect("the group matches").range());
        let (call, start) = enclosing_call(&code, range.start);
        let is_path = captures.get(1).is_some_and(|path| path.as_str() == "Ordering::");
        if !is_path || call.is_empty() || (ordering == "SeqCst" && !call.starts_with("fence")) {
            let line = text[..range.start].matches('\n').count() + 1;
            bail!("{file}:{line}: an ordering that `break` cannot weaken");
        }
        let enclosing_function = functions.iter().rfind(|(_, body)| body.contains(&range.start));
        let function = enclosing_function.map_or("", |(name, _)| name);
        // No fence is weaker than Acquire or Release, so the mutant has no fence.
        let weaker: &[_] = match (ordering, call) {
            ("Acquire" | "Release", "fence") => &["none"],
            ("Acquire" | "Release", _) => &["Relaxed"],
            ("AcqRel", _) => &["Acquire", "Release"],
            ("SeqCst", _) => &["AcqRel"],
            _ => &[],
        };
        for weaker in weaker {
            let name = format!("{module}::{function} {call}: {ordering} -> {weaker}");
            let (range, replacement) = match *weaker {
                "none" => (start..range.end + ")".len(), "()"),
                weaker => (range.clone(), weaker),
            };
            mutants.push(Mutant::new(name, file, text, range, replacement));
        }
    }
    number_duplicates(&mut mutants);
    Ok(mutants)
}

/// Appends `#1`, `#2` and so on to equal names, in the order of the source.
fn number_duplicates(mutants: &mut [Mutant]) {
    let names: Vec<String> = mutants.iter().map(|mutant| mutant.name.clone()).collect();
    for (index, mutant) in mutants.iter_mut().enumerate() {
        let count = |names: &[String]| names.iter().filter(|name| **name == mutant.name).count();
        let (all, number) = (count(&names), count(&names[..=index]));
        if all > 1 {
            mutant.name = format!("{} #{number}", mutant.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutants(text: &str) -> Result<Vec<Mutant>> {
        weaker_mutants("src/part/word.rs", text)
    }

    #[test]
    fn each_ordering_becomes_one_step_weaker() {
        for (body, expected) in [
            ("x.load(Ordering::Acquire)", &["load: Acquire -> Relaxed"][..]),
            ("x.store(f(0, [1]), Ordering::Release)", &["store: Release -> Relaxed"]),
            ("x.or(1, Ordering::AcqRel)", &["or: AcqRel -> Acquire", "or: AcqRel -> Release"]),
            ("fence(Ordering::SeqCst)", &["fence: SeqCst -> AcqRel"]),
            ("fence(Ordering::Release)", &["fence: Release -> none"]),
            ("assert!(x.load(Ordering::Acquire))", &["load: Acquire -> Relaxed"]),
            ("x.load(Ordering::Relaxed) // Acquire", &[]),
            (
                "let b = |x| { x.load(Ordering::Acquire) }; b(self) + x.load(Ordering::Acquire)",
                &["load: Acquire -> Relaxed #1", "load: Acquire -> Relaxed #2"],
            ),
        ] {
            let mutants = mutants(&format!("fn a() {{\n    {body}\n}}\n")).expect("understood");
            let names: Vec<_> = mutants.iter().map(|mutant| &mutant.name[..]).collect();
            let expected: Vec<_> =
                expected.iter().map(|name| format!("part::word::a {name}")).collect();
            assert_eq!(names, expected, "{body}");
        }
    }

    #[test]
    fn a_weakening_changes_one_place_in_the_text() {
        let text = "fn a() {\n    let µ = 1; x.load(Ordering::Acquire);\n}\n";
        let mutant = &mutants(text).expect("understood")[0];
        assert_eq!(mutant.mutated_text, text.replace("Acquire", "Relaxed"));
        let text = "fn a() { fence(Ordering::Acquire); }";
        assert_eq!(mutants(text).expect("understood")[0].mutated_text, "fn a() { (); }");
    }

    #[test]
    fn test_modules_are_skipped_and_functions_are_found() {
        let inner = "    pub(super) fn c() {\n        d();\n    }\n";
        let text = format!(
            "const fn b<'a>(&'a self) {{\n{inner}}}\n\n#[cfg(all(test, not(loom)))]\n\
             mod tests {{\n    fn e() {{\n        f(Ordering::SeqCst)\n    }}\n}}\n"
        );
        assert_eq!(mutants(&text).expect("understood").len(), 0);
        let functions = functions(&text).expect("understood");
        let names: Vec<_> = functions.iter().map(|(name, _)| &name[..]).collect();
        assert_eq!(names, ["b", "c"]);
        assert_eq!(&text[functions[1].1.clone()], "c() {\n        d();");
    }

    #[test]
    fn unsupported_orderings_are_errors() {
        for text in [
            "use core::sync::atomic::Ordering::{Acquire, Release};",
            "const LOOK: Ordering = Ordering::Acquire;",
            "fn a() { x.load(Ordering::SeqCst) }",
        ] {
            let error = mutants(text).expect_err("not understood").to_string();
            assert!(error.starts_with("src/part/word.rs:1: "), "{error}");
        }
    }
}
