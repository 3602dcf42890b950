//! Reads `break/faults.txt` and `break/survivors.txt`: records of lines `key  value`, separated by
//! empty lines.

use anyhow::{Result, bail, ensure};
use regex::Regex;

use super::{Mutant, orderings::functions};

pub(super) struct Record<'list>(Vec<(&'list str, &'list str)>);

impl<'list> Record<'list> {
    pub(super) fn values_of(&self, key: &str) -> Vec<&'list str> {
        self.0.iter().filter(|(of, _)| *of == key).map(|(_, value)| *value).collect()
    }

    /// Returns the value of a key that must occur once.
    pub(super) fn single_value(&self, key: &str) -> Result<&'list str> {
        match self.values_of(key)[..] {
            [value] if !value.is_empty() => Ok(value),
            _ => bail!("a record needs one line `{key}`: {:?}", self.0[0]),
        }
    }
}

/// Reads the records of a list. Each record must have a name and a reason, and only keys of `keys`.
pub(super) fn parse_records<'list>(list: &'list str, keys: &[&str]) -> Result<Vec<Record<'list>>> {
    let mut records = vec![Record(Vec::new())];
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let (key, value) = line.split_once(' ').unwrap_or((line, ""));
        if key.is_empty() {
            records.push(Record(Vec::new()));
        } else if keys.contains(&key) {
            records.last_mut().expect("the list begins with a record").0.push((key, value.trim()));
        } else {
            bail!("a record has no line `{key}`: {line}");
        }
    }
    records.retain(|record| !record.0.is_empty());
    for record in &records {
        record.single_value("name")?;
        ensure!(!record.values_of("why").is_empty(), "no reason: {:?}", record.0[0]);
    }
    Ok(records)
}

/// Plants a fault in the text of its file. Fails unless the text to replace occurs exactly once.
pub(super) fn plant_fault(fault: &Record<'_>, file: &str, text: &str) -> Result<Mutant> {
    let (name, text_to_find) = (fault.single_value("name")?, fault.values_of("find").join("\n"));
    let mut search_range = 0..text.len();
    if let [function] = fault.values_of("within")[..] {
        let mut bodies = functions(text)?;
        bodies.retain(|(name, _)| name == function);
        let [(_, body)] = &bodies[..] else {
            bail!("\"{name}\": {file} has not one function {function}");
        };
        search_range = body.clone();
    }
    let layout = any_layout_of(&text_to_find)?;
    let matches: Vec<_> =
        layout.find_iter(&text[search_range.clone()]).map(|it| it.range()).collect();
    let [place] = &matches[..] else {
        bail!("\"{name}\" is found {} times in {file}, not once:\n{text_to_find}", matches.len());
    };
    let place = search_range.start + place.start..search_range.start + place.end;
    let with = fault.values_of("with").join("\n");
    let mut mutant = Mutant::new(name.to_owned(), file, text, place, &with);
    mutant.is_planted = true;
    mutant.noticed_by = fault.values_of("by").first().map(|by| (*by).to_owned());
    Ok(mutant)
}

/// Returns a pattern for `text` in any layout of rustfmt: with other white space, and with or
/// without a comma before a closing bracket.
fn any_layout_of(text: &str) -> Result<Regex> {
    let text = text.split_whitespace().collect::<String>();
    let part = |part: char| {
        let comma = if ")]}".contains(part) { r",?[ \n]*" } else { "" };
        format!("{comma}{}", regex::escape(&part.to_string()))
    };
    let parts: Vec<String> =
        Regex::new(r",([)\]}])")?.replace_all(&text, "$1").chars().map(part).collect();
    Ok(Regex::new(&parts.join(r"[ \n]*"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "fn a() {\nfence(SeqCst);\n}\nfn b() { look(1,\n 2,\n); fence(SeqCst); }";

    fn source_with_fault(lines: &str) -> Result<String> {
        let list = format!("# a list\n\nname  n\nwhy   it is\nwhy   gone\n{lines}\n");
        let records = parse_records(&list, super::super::FAULT_KEYS)?;
        plant_fault(&records[0], "src/a.rs", SOURCE).map(|mutant| mutant.mutated_text)
    }

    #[test]
    fn a_planted_fault_replaces_the_text_to_find() {
        let look = "look(1,\n 2,\n)";
        for (lines, expected) in [
            ("find  look(1, 2)\nwith  close()", SOURCE.replace(look, "close()")),
            ("find  look(1, 2);", SOURCE.replace(&format!("{look};"), "")),
            ("within a\nfind fence(SeqCst);\nwith ();", SOURCE.replacen("fence(SeqCst)", "()", 1)),
            ("find  2);\nfind  fence(\nwith  2); (", SOURCE.replace("2,\n); fence(", "2); (")),
        ] {
            assert_eq!(source_with_fault(lines).expect(lines), expected);
        }
    }

    #[test]
    fn ambiguous_and_incomplete_faults_are_errors() {
        for (lines, expected) in [
            ("find  fence(SeqCst);", "found 2 times in src/a.rs"),
            ("find  fence(AcqRel);", "found 0 times"),
            ("within c\nfind  look", "not one function c"),
            ("fnd   look", "no line `fnd`"),
            ("\nname  m\n", "no reason"),
            ("name  m\n", "one line `name`"),
        ] {
            let error = source_with_fault(lines).expect_err(lines).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
