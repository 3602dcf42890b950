//! Finds the atomic orderings in a source and what each can be weakened to.
//!
//! It reads the source as text, the way rustfmt leaves it; a test that this finds every ordering stands at the end.

use super::mutant::Mutant;

const ORDERINGS: [&str; 5] = ["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];
const PREFIX: &str = "Ordering::";

/// The mutants of `file`: each ordering a step weaker, one at a time.
///
/// # Errors
///
/// If an ordering is named in a way that this would overlook.
pub(super) fn weakenings(file: &str, text: &str) -> Result<Vec<Mutant>, String> {
    let code = without_tests(&without_text(text));
    if let Some(at) = overlooked(&code) {
        let line = line_of(text, at);
        return Err(format!(
            "{file}:{line}: an ordering without `{PREFIX}` before it: `break` would overlook it"
        ));
    }
    let mut mutants: Vec<Mutant> =
        sites(&code).iter().flat_map(|site| site.mutants(file, text, &code)).collect();
    number_equals(&mut mutants);
    Ok(mutants)
}

/// An ordering in the code.
struct Site {
    /// Where `Ordering::X` begins and ends.
    start: usize,
    end: usize,
    ordering: &'static str,
    /// The function that it is an argument of, where its name begins, and how many arguments come before it.
    call: String,
    call_start: usize,
    argument: usize,
}

impl Site {
    fn mutants(&self, file: &str, text: &str, code: &str) -> Vec<Mutant> {
        let module = file.trim_start_matches("src/").trim_end_matches(".rs").replace('/', "::");
        let function = function_around(code, self.start);
        let line = line_of(text, self.start);
        let mutant = |(to, range, with): (&str, std::ops::Range<usize>, String)| {
            let mut broken = text.to_owned();
            broken.replace_range(range, &with);
            let name = format!("{module}::{function} {}: {} -> {to}", self.call, self.ordering);
            Mutant {
                name,
                file: file.to_owned(),
                line,
                sound: text.to_owned(),
                broken,
                planted: false,
            }
        };
        let weaker = weaker(self.ordering, &self.call, self.argument);
        if self.call == "fence" && weaker.is_empty() && self.ordering != "Relaxed" {
            let end = self.end + code[self.end..].find(')').map_or(0, |at| at + 1);
            return vec![mutant(("none", self.call_start..end, "()".to_owned()))];
        }
        weaker
            .iter()
            .map(|to| mutant((to, self.start..self.end, format!("{PREFIX}{to}"))))
            .collect()
    }
}

/// One step weaker than `ordering`, where it is an argument of `call`. A fence that is Acquire or Release has nothing
/// weaker but its absence.
fn weaker(ordering: &str, call: &str, argument: usize) -> &'static [&'static str] {
    let on_failure = argument == 3 || (call == "fetch_update" && argument == 1);
    match (ordering, call) {
        ("Acquire" | "Release", "fence") => &[],
        ("Acquire" | "Release", _) => &["Relaxed"],
        ("AcqRel", _) => &["Acquire", "Release"],
        ("SeqCst", "store") => &["Release"],
        ("SeqCst", call) if call == "load" || on_failure => &["Acquire"],
        ("SeqCst", _) => &["AcqRel"],
        _ => &[],
    }
}

fn sites(code: &str) -> Vec<Site> {
    let mut sites = Vec::new();
    for (start, _) in code.match_indices(PREFIX) {
        let after = &code[start + PREFIX.len()..];
        let Some(&ordering) = ORDERINGS.iter().find(|&&ordering| is_word_at(after, 0, ordering))
        else {
            continue;
        };
        let end = start + PREFIX.len() + ordering.len();
        let Some((call_start, call, argument)) = call_around(code, start) else { continue };
        sites.push(Site { start, end, ordering, call, call_start, argument });
    }
    sites
}

/// An ordering's name that stands alone, but in an import of nothing else.
fn overlooked(code: &str) -> Option<usize> {
    let found = ORDERINGS
        .iter()
        .flat_map(|ordering| code.match_indices(ordering).map(move |(at, _)| (at, ordering)));
    found
        .filter(|&(at, ordering)| is_word_at(code, at, ordering))
        .find(|&(at, _)| !code[..at].ends_with(PREFIX) || call_around(code, at).is_none())
        .map(|(at, _)| at)
}

fn is_word_at(code: &str, at: usize, word: &str) -> bool {
    let ends = |c: Option<char>| !c.is_some_and(is_of_a_word);
    code[at..].starts_with(word)
        && ends(code[at + word.len()..].chars().next())
        && ends(code[..at].chars().next_back())
}

fn is_of_a_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The call whose parentheses enclose `at`: where its name begins, the name, and the arguments before `at`.
fn call_around(code: &str, at: usize) -> Option<(usize, String, usize)> {
    let (mut depth, mut arguments) = (0, 0);
    for (position, c) in code[..at].char_indices().rev() {
        match c {
            ')' | ']' | '}' => depth += 1,
            '(' if depth == 0 => {
                let name: String = word_before(code, position);
                return (!name.is_empty()).then(|| (position - name.len(), name, arguments));
            }
            '[' | '{' if depth == 0 => return None,
            '(' | '[' | '{' => depth -= 1,
            ',' if depth == 0 => arguments += 1,
            _ => (),
        }
    }
    None
}

fn word_before(code: &str, at: usize) -> String {
    let reversed: String = code[..at].chars().rev().take_while(|&c| is_of_a_word(c)).collect();
    reversed.chars().rev().collect()
}

/// The name of the function that `at` is in.
fn function_around(code: &str, at: usize) -> String {
    let before = &code[..code[at..].find('\n').map_or(code.len(), |end| at + end)];
    let mut lines = before.lines().rev().peekable();
    let own = lines.peek().map_or(0, |line| indent(line));
    let functions = lines.enumerate().filter(|(above, line)| *above == 0 || indent(line) < own);
    let names = functions.filter_map(|(_, line)| function_name(line));
    names.map(str::to_owned).next().unwrap_or_default()
}

pub(super) fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// The name of the function that `line` begins.
pub(super) fn function_name(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let name = after.split(|c| !is_of_a_word(c)).next()?;
    (!before.ends_with(is_of_a_word) && !name.is_empty()).then_some(name)
}

pub(super) fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// Tells those apart that have the same name: `#1`, `#2`, in the order of the source.
fn number_equals(mutants: &mut [Mutant]) {
    let names: Vec<String> = mutants.iter().map(|mutant| mutant.name.clone()).collect();
    for (index, mutant) in mutants.iter_mut().enumerate() {
        if names.iter().filter(|name| **name == names[index]).count() > 1 {
            let number = names[..=index].iter().filter(|name| **name == names[index]).count();
            mutant.name = format!("{} #{number}", names[index]);
        }
    }
}

/// The source with blanks in place of comments and of what is between quotes: every place stays where it is.
fn without_text(source: &str) -> String {
    let mut blanked = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let length = text_length(rest, blanked.chars().next_back());
        if length == 0 {
            blanked.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            blank(&mut blanked, &rest[..length]);
            rest = &rest[length..];
        }
    }
    blanked
}

/// As many blanks as `text` has bytes, with its line ends.
fn blank(blanked: &mut String, text: &str) {
    blanked.extend(text.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }));
}

/// How long the comment, string or character is that `rest` begins with; 0 if there is none.
fn text_length(rest: &str, before: Option<char>) -> usize {
    let until = |end: &str, from: usize| {
        rest[from..].find(end).map_or(rest.len(), |at| from + at + end.len())
    };
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return until("*/", 2);
    }
    if let Some(raw) = rest.strip_prefix('r').filter(|_| !before.is_some_and(is_of_a_word)) {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            return until(&format!("\"{}", "#".repeat(hashes)), hashes + 2);
        }
    }
    if let Some(string) = rest.strip_prefix('"') {
        let mut escaped = false;
        let end = string.char_indices().find(|&(_, c)| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        return end.map_or(rest.len(), |(at, _)| at + 2);
    }
    character_length(rest)
}

/// The same for a character, which is not a lifetime.
fn character_length(rest: &str) -> usize {
    let Some(after) = rest.strip_prefix('\'') else { return 0 };
    let mut characters = after.char_indices();
    match characters.next() {
        Some((_, '\\')) => after[2..].find('\'').map_or(0, |at| at + 4),
        Some(_) => characters.next().filter(|&(_, c)| c == '\'').map_or(0, |(at, _)| at + 2),
        None => 0,
    }
}

/// The code with blanks in place of modules that are there for tests only.
fn without_tests(code: &str) -> String {
    let mut blanked = code.to_owned();
    for (start, _) in code.match_indices("#[cfg(") {
        let Some(attribute) = code[start..].find(']').map(|end| &code[start..start + end]) else {
            continue;
        };
        let after = start + attribute.len() + 1;
        let is_for_tests = !attribute.contains("not(test)")
            && attribute.match_indices("test").any(|(at, word)| is_word_at(attribute, at, word));
        if is_for_tests && code[after..].trim_start().starts_with("mod ") {
            let end = end_of_block(code, after);
            let mut blanks = String::new();
            blank(&mut blanks, &code[start..end]);
            blanked.replace_range(start..end, &blanks);
        }
    }
    blanked
}

/// Where the block or the statement ends that begins after `at`.
fn end_of_block(code: &str, at: usize) -> usize {
    let mut depth = 0;
    for (position, c) in code[at..].char_indices() {
        match c {
            ';' if depth == 0 => return at + position + 1,
            '{' => depth += 1,
            '}' if depth == 1 => return at + position + 1,
            '}' => depth -= 1,
            _ => (),
        }
    }
    code.len()
}

#[cfg(test)]
#[path = "scan/tests.rs"]
mod tests;
