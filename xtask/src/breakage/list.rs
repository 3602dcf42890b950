//! The lists of this command: `break/faults.txt` and `break/survivors.txt`, which people write, and `break/killers.txt`.
//!
//! They are records of lines `key  value`, parted by empty lines; lines that begin with `#` are comments.

use std::ops::Range;

use super::{
    killers::Killer,
    mutant::Mutant,
    scan::{function_name, indent, line_of},
};

/// A fault that is planted on purpose.
#[derive(Debug, Default)]
pub(super) struct Fault {
    pub(super) name: String,
    pub(super) file: String,
    /// The function that holds the place; the whole file if empty.
    within: String,
    find: Vec<String>,
    with: Vec<String>,
    /// What it breaks.
    why: String,
}

/// A mutant that no test can kill, and why.
#[derive(Debug, Default)]
pub(crate) struct Survivor {
    pub(crate) name: String,
    pub(crate) why: String,
}

pub(super) fn faults(list: &str) -> Result<Vec<Fault>, String> {
    records(list).iter().map(|record| Fault::new(record)).collect()
}

pub(crate) fn survivors(list: &str) -> Result<Vec<Survivor>, String> {
    records(list).iter().map(|record| Survivor::new(record)).collect()
}

/// Names of mutants, and who noticed them.
pub(super) fn killers(list: &str) -> Result<Vec<(String, Killer)>, String> {
    records(list).iter().map(|record| killed(record)).collect()
}

fn killed(record: &[Entry<'_>]) -> Result<(String, Killer), String> {
    let by =
        |by: &str| by.split_once(": ").map(|(stage, test)| (stage.to_owned(), test.to_owned()));
    match *record {
        [(_, "name", name), (line, "by", killer)] => {
            let (stage, test) =
                by(killer).ok_or_else(|| format!("line {line}: a killer is a stage and a test"))?;
            Ok((name.to_owned(), Killer { stage, test }))
        }
        _ => Err(format!("line {}: who is noticed has a name and, after it, by whom", record[0].0)),
    }
}

/// The number of a line, its key, its value.
type Entry<'list> = (usize, &'list str, &'list str);

fn records(list: &str) -> Vec<Vec<Entry<'_>>> {
    let mut records = vec![Vec::new()];
    for (line, number) in list.lines().zip(1..) {
        if line.starts_with('#') {
            continue;
        }
        if line.trim().is_empty() {
            records.push(Vec::new());
        } else if let Some(record) = records.last_mut() {
            let (key, value) = line.split_once(' ').unwrap_or((line, ""));
            record.push((number, key, value.trim()));
        }
    }
    records.retain(|record| !record.is_empty());
    records
}

impl Fault {
    fn new(record: &[Entry<'_>]) -> Result<Self, String> {
        let mut fault = Self::default();
        for &(line, key, value) in record {
            match key {
                "name" => value.clone_into(&mut fault.name),
                "file" => value.clone_into(&mut fault.file),
                "within" => value.clone_into(&mut fault.within),
                "find" => fault.find.push(value.to_owned()),
                "with" => fault.with.push(value.to_owned()),
                "why" => add_line(&mut fault.why, value),
                _ => return Err(format!("line {line}: a fault has no \"{key}\"")),
            }
        }
        let is_whole = ![&fault.name, &fault.file, &fault.why].iter().any(|part| part.is_empty());
        if is_whole && !fault.find.is_empty() {
            return Ok(fault);
        }
        Err(format!("line {}: a fault needs name, file, find and why", record[0].0))
    }

    /// The fault in the text of its file.
    ///
    /// # Errors
    ///
    /// If the place to find is not there once.
    pub(super) fn plant(&self, text: &str) -> Result<Mutant, String> {
        let region = self.region(text)?;
        let found = find(text, region, &self.find.join("\n"));
        let [place] = &found[..] else {
            let (name, file, count, find) =
                (&self.name, &self.file, found.len(), self.find.join("\n    "));
            return Err(format!(
                "the fault \"{name}\" finds its place {count} times in {file}, not once; bring the list up to date:\n    {find}"
            ));
        };
        let mut broken = text.to_owned();
        broken.replace_range(place.clone(), &self.with.join("\n"));
        let line = line_of(text, place.start);
        let (name, file, sound) = (self.name.clone(), self.file.clone(), text.to_owned());
        Ok(Mutant { name, file, line, sound, broken, planted: true })
    }

    /// The part of the file to look in.
    fn region(&self, text: &str) -> Result<Range<usize>, String> {
        if self.within.is_empty() {
            return Ok(0..text.len());
        }
        let lines: Vec<Range<usize>> = lines(text);
        let begins =
            |line: &&Range<usize>| function_name(&text[(*line).clone()]) == Some(&self.within[..]);
        let [first] = lines.iter().filter(begins).collect::<Vec<_>>()[..] else {
            let (name, function, file) = (&self.name, &self.within, &self.file);
            return Err(format!(
                "the fault \"{name}\" is within `fn {function}`, of which {file} has none or several"
            ));
        };
        let end = format!("{}}}", " ".repeat(indent(&text[first.clone()])));
        let last =
            lines.iter().find(|line| line.start > first.start && text[(*line).clone()] == end);
        Ok(first.start..last.map_or(text.len(), |line| line.end))
    }
}

/// The lines of a text without their ends.
fn lines(text: &str) -> Vec<Range<usize>> {
    let mut start = 0;
    text.split('\n')
        .map(|line| {
            let range = start..start + line.len();
            start = range.end + 1;
            range
        })
        .collect()
}

/// Every place in `region` where `wanted` stands, in whatever lines rustfmt has laid it.
fn find(text: &str, region: Range<usize>, wanted: &str) -> Vec<Range<usize>> {
    let code = dense(&text[region.clone()]);
    let places: Vec<usize> = code.iter().map(|&(at, _)| region.start + at).collect();
    let code: Vec<u8> = code.into_iter().map(|(_, byte)| byte).collect();
    let wanted: Vec<u8> = dense(wanted).into_iter().map(|(_, byte)| byte).collect();
    code.windows(wanted.len())
        .enumerate()
        .filter(|(_, window)| *window == wanted)
        .map(|(at, _)| places[at]..places[at + wanted.len() - 1] + 1)
        .collect()
}

/// The bytes of `text` and where they are, without white space and trailing commas.
fn dense(text: &str) -> Vec<(usize, u8)> {
    let mut dense: Vec<(usize, u8)> = Vec::new();
    for (at, byte) in text.bytes().enumerate().filter(|(_, byte)| !byte.is_ascii_whitespace()) {
        if b")]}".contains(&byte) {
            let _ = dense.pop_if(|last| last.1 == b',');
        }
        dense.push((at, byte));
    }
    dense
}

impl Survivor {
    fn new(record: &[Entry<'_>]) -> Result<Self, String> {
        let mut survivor = Self::default();
        for &(line, key, value) in record {
            match key {
                "name" => value.clone_into(&mut survivor.name),
                "why" => add_line(&mut survivor.why, value),
                _ => return Err(format!("line {line}: a survivor has no \"{key}\"")),
            }
        }
        if survivor.name.is_empty() || survivor.why.is_empty() {
            return Err(format!("line {}: a survivor needs name and why", record[0].0));
        }
        Ok(survivor)
    }
}

fn add_line(text: &mut String, line: &str) {
    if !text.is_empty() {
        text.push(' ');
    }
    text.push_str(line);
}

#[cfg(test)]
mod tests {
    use super::{faults, killers, survivors};

    const SOURCE: &str =
        "fn a() {\n    fence(SeqCst);\n}\n\nfn b() {\n    look();\n    fence(SeqCst);\n}\n";

    fn planted(record: &str) -> Result<(usize, String), String> {
        let list = format!("name  n\nfile  src/a.rs\nwhy   it is\nwhy   gone\n{record}\n");
        faults(&list)?[0].plant(SOURCE).map(|mutant| (mutant.line, mutant.broken))
    }

    #[test]
    fn a_fault_takes_the_place_of_what_it_finds() {
        let (line, text) = planted("find  look();").expect("planted");
        assert_eq!((line, text), (6, SOURCE.replace("look();", "")));
        let (line, text) = planted("find  look\nwith  close").expect("planted");
        assert_eq!((line, text), (6, SOURCE.replace("look", "close")));
        let (line, text) = planted("within b\nfind  fence(SeqCst);\nwith  ();").expect("planted");
        assert_eq!(
            (line, text),
            (7, "fn a() {\n    fence(SeqCst);\n}\n\nfn b() {\n    look();\n    ();\n}\n".into())
        );
        let (line, text) =
            planted("find  look();\nfind  fence(\nwith  fence(\nwith  look(); (").expect("planted");
        assert_eq!((line, text.contains("    fence(\nlook(); (SeqCst);\n")), (6, true));
    }

    #[test]
    fn a_place_that_is_not_there_once_is_an_error() {
        let twice = planted("find  fence(SeqCst);").expect_err("twice");
        assert!(twice.contains("\"n\" finds its place 2 times in src/a.rs, not once"), "{twice}");
        assert!(planted("find  fence(AcqRel);").expect_err("gone").contains("0 times"));
        assert!(planted("within c\nfind  look();").expect_err("gone").contains("`fn c`"));
    }

    #[test]
    fn a_record_that_lacks_a_part_is_an_error() {
        assert!(planted("").expect_err("no place").starts_with("line 1: "));
        assert!(
            planted("fnd   look();")
                .expect_err("unknown")
                .contains("line 5: a fault has no \"fnd\"")
        );
        assert!(survivors("# a list\n\nname  a\n").is_err());
        assert!(survivors("name\n").is_err());
        assert!(killers("name  a\n").is_err());
        assert!(killers("name  a\nby    nobody\n").expect_err("no stage").starts_with("line 2: "));
    }

    #[test]
    fn a_survivor_has_a_name_and_a_reason() {
        let list = survivors("# a list\n\nname  a b\nwhy   one\nwhy   two\n\n\nname  c\nwhy   d\n")
            .expect("sound");
        let read: Vec<_> =
            list.iter().map(|survivor| (&survivor.name[..], &survivor.why[..])).collect();
        assert_eq!(read, [("a b", "one two"), ("c", "d")]);
    }
}
