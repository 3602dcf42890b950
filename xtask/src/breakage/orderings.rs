//! Finds the atomic orderings of a source file and what each can be weakened to.

use std::ops::Range;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use super::Mutant;
use crate::Result;

const ORDERINGS: [&str; 5] = ["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];

/// What `break` knows of a source file, without its test modules.
#[derive(Debug, Default)]
pub(super) struct Source {
    /// Each function with its body; one within another comes before that.
    functions: Vec<(String, Range<usize>)>,
    orderings: Vec<Site>,
    /// Where an ordering is named in a way that is not understood.
    overlooked: Option<usize>,
}

/// An ordering that is an argument of a call.
#[derive(Debug)]
struct Site {
    ordering: String,
    place: Range<usize>,
    call: Call,
    /// How many arguments come before it.
    argument: usize,
}

#[derive(Clone, Debug)]
struct Call {
    name: String,
    /// From the name to the closing parenthesis.
    place: Range<usize>,
}

impl Source {
    /// Reads the text of a file.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let mut source = Self::default();
        source.read(text.parse()?, None);
        Ok(source)
    }

    /// Reads the tokens of a group, which are the arguments of `call` if there is one.
    fn read(&mut self, tokens: TokenStream, call: Option<&Call>) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let word = |at: usize| match tokens.get(at) {
            Some(TokenTree::Ident(ident)) => ident.to_string(),
            Some(TokenTree::Punct(punct)) => punct.as_char().to_string(),
            _ => String::new(),
        };
        let place = |at: usize| tokens[at].span().byte_range();
        let (mut at, mut argument, mut function) = (0, 0, None);
        while at < tokens.len() {
            if let [TokenTree::Punct(_), TokenTree::Group(attribute), ..] = &tokens[at..]
                && is_for_tests(attribute)
                && word(at + 2) == "mod"
            {
                at += 5;
                continue;
            }
            match (&word(at)[..], &tokens[at]) {
                ("fn", _) if !word(at + 1).is_empty() => {
                    function = Some((word(at + 1), place(at).start));
                }
                (";", _) => function = None,
                (",", _) => argument += 1,
                (name, _) if ORDERINGS.contains(&name) => {
                    let is_path = at >= 3 && word(at - 3) == "Ordering" && word(at - 1) == ":";
                    match call.filter(|_| is_path) {
                        Some(call) => self.orderings.push(Site {
                            ordering: name.to_owned(),
                            place: place(at),
                            call: call.clone(),
                            argument,
                        }),
                        None => self.overlooked = Some(place(at).start),
                    }
                }
                (_, TokenTree::Group(group)) => {
                    let is_call = group.delimiter() == Delimiter::Parenthesis && at > 0;
                    let call = is_call.then(|| Call {
                        name: word(at - 1),
                        place: place(at - 1).start..place(at).end,
                    });
                    self.read(group.stream(), call.filter(|call| is_word(&call.name)).as_ref());
                    if group.delimiter() == Delimiter::Brace
                        && let Some((name, start)) = function.take()
                    {
                        self.functions.push((name, start..place(at).end));
                    }
                }
                _ => (),
            }
            at += 1;
        }
    }

    /// Returns the bodies of the functions of that name.
    pub(super) fn functions(&self, name: &str) -> Vec<Range<usize>> {
        let named = self.functions.iter().filter(|(function, _)| function == name);
        named.map(|(_, place)| place.clone()).collect()
    }

    /// Returns the mutants of `file`: each ordering one step weaker, one at a time. Fails if an
    /// ordering is named elsewhere than in `Ordering::X` as the argument of a call.
    pub(super) fn weakenings(&self, file: &str, text: &str) -> Result<Vec<Mutant>> {
        if let Some(at) = self.overlooked {
            let line = super::line_of(text, at);
            return Err(
                format!("{file}:{line}: an ordering that is no argument `Ordering::X`").into()
            );
        }
        let module =
            file.trim_start_matches("src/").trim_end_matches(".rs").trim_end_matches("/mod");
        let module = module.replace('/', "::");
        let mut mutants = Vec::new();
        for Site { ordering, place, call, argument } in &self.orderings {
            let around = self.functions.iter().find(|(_, body)| body.contains(&place.start));
            let function = around.map_or("", |(name, _)| name);
            for weaker in weaker(ordering, &call.name, *argument) {
                let name = format!("{module}::{function} {}: {ordering} -> {weaker}", call.name);
                let (place, with) = match *weaker {
                    "none" => (call.place.clone(), "()"),
                    weaker => (place.clone(), weaker),
                };
                mutants.push(Mutant::new(name, file, text, place, with));
            }
        }
        number_equals(&mut mutants);
        Ok(mutants)
    }
}

fn is_for_tests(attribute: &Group) -> bool {
    let text = attribute.stream().to_string().replace(' ', "");
    let mut words = text.split(|c: char| !c.is_alphanumeric());
    text.starts_with("cfg(") && !text.contains("not(test)") && words.any(|word| word == "test")
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Returns what is one step weaker than `ordering` where it is an argument of `call`. A fence that
/// is Acquire or Release has nothing weaker but its absence.
fn weaker(ordering: &str, call: &str, argument: usize) -> &'static [&'static str] {
    let on_failure = argument == 3 || (call == "fetch_update" && argument == 1);
    match (ordering, call) {
        ("Acquire" | "Release", "fence") => &["none"],
        ("Acquire" | "Release", _) => &["Relaxed"],
        ("AcqRel", _) => &["Acquire", "Release"],
        ("SeqCst", "store") => &["Release"],
        ("SeqCst", call) if call == "load" || on_failure => &["Acquire"],
        ("SeqCst", _) => &["AcqRel"],
        _ => &[],
    }
}

/// Appends `#1`, `#2` and so on to names that occur several times, in the order of the source.
fn number_equals(mutants: &mut [Mutant]) {
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
        Source::parse(text)?.weakenings("src/part/word.rs", text)
    }

    /// Returns the names of the mutants of a function `a` with that body.
    fn names(body: &str) -> Vec<String> {
        let text = format!("fn a() {{ {} }}", body.replace("SC", "Ordering::SeqCst"));
        let name =
            |mutant: Mutant| mutant.name.strip_prefix("part::word::a ").expect("in a").to_owned();
        mutants(&text).expect("understood").into_iter().map(name).collect()
    }

    #[test]
    fn each_ordering_becomes_one_step_weaker() {
        for (body, expected) in [
            ("x.load(Ordering::Acquire)", &["load: Acquire -> Relaxed"][..]),
            ("x.store(f(0, 1), Ordering::Release)", &["store: Release -> Relaxed"]),
            (
                "x.swap(1, Ordering::AcqRel)",
                &["swap: AcqRel -> Acquire", "swap: AcqRel -> Release"],
            ),
            ("x.load(SC)", &["load: SeqCst -> Acquire"]),
            ("x.store(1, SC)", &["store: SeqCst -> Release"]),
            ("x.swap(1, SC)", &["swap: SeqCst -> AcqRel"]),
            ("fence(SC)", &["fence: SeqCst -> AcqRel"]),
            ("fence(Ordering::Release)", &["fence: Release -> none"]),
            ("x.cas(f(0, 1), 1, SC, SC)", &["cas: SeqCst -> AcqRel", "cas: SeqCst -> Acquire"]),
            (
                "x.fetch_update(Ordering::Relaxed, SC, |x| Some(x))",
                &["fetch_update: SeqCst -> Acquire"],
            ),
            ("assert!(x.load(SC))", &["load: SeqCst -> Acquire"]),
            ("/* SC */ say(\"SC\", 'S', r#\"SC\"#); x.load(Ordering::Relaxed)", &[]),
            (
                "let b = |x: &X| { x.load(SC) }; b(self) + self.0.load(SC)",
                &["load: SeqCst -> Acquire #1", "load: SeqCst -> Acquire #2"],
            ),
        ] {
            assert_eq!(names(body), expected, "{body}");
        }
    }

    #[test]
    fn the_text_changes_in_one_place() {
        let text = "fn a() {\n    let µ = 1; x.load(Ordering::Acquire);\n}\n";
        let mutant = &mutants(text).expect("understood")[0];
        assert_eq!(mutant.broken, text.replace("Acquire", "Relaxed"));
        assert_eq!(mutant.line, 2);
        let text = "fn a() { fence(Ordering::Acquire); }";
        assert_eq!(mutants(text).expect("understood")[0].broken, "fn a() { (); }");
    }

    #[test]
    fn modules_for_tests_are_left_out_and_functions_found() {
        let text = "impl A { fn b<'a>(&'a self) { fn c() { d(); } } }\n\
                    #[cfg(all(test, not(loom)))] mod tests { fn e() { f(Ordering::SeqCst) } }";
        assert_eq!(mutants(text).expect("understood").len(), 0);
        let source = Source::parse(text).expect("Rust");
        let bodies = |name| source.functions(name).into_iter().map(|place| &text[place]);
        assert_eq!(bodies("c").collect::<Vec<_>>(), ["fn c() { d(); }"]);
        assert_eq!((bodies("b").count(), bodies("e").count()), (1, 0));
    }

    #[test]
    fn an_ordering_that_would_be_overlooked_is_an_error() {
        for text in [
            "use core::sync::atomic::Ordering::{Acquire, Release};",
            "const LOOK: Ordering = Ordering::Acquire;",
        ] {
            let error = mutants(text).expect_err("not understood").to_string();
            assert!(error.starts_with("src/part/word.rs:1: "), "{error}");
        }
    }
}
