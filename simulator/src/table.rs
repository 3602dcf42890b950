//! Coverage as tables for people, and as JSON.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::coverage::{Coverage, Fault, Operation};

impl Coverage {
    /// In Markdown: what was done, and how often each operation came right after each fault.
    pub fn table(&self) -> String {
        let mut text = self.totals();
        text.push_str("\n| operation | in all |");
        for number in 1..=Fault::NAMES.len() {
            let _ = write!(text, " {number} |");
        }
        text.push_str("\n|---|---|");
        text.push_str(&"---|".repeat(Fault::NAMES.len()));
        for (operation, name) in Operation::NAMES.iter().enumerate() {
            let _ = write!(text, "\n| {name} | {} |", grouped(self.operations[operation]));
            self.pairs.iter().for_each(|row| _ = write!(text, " {} |", short(row[operation])));
        }
        text.push('\n');
        text
    }

    fn totals(&self) -> String {
        let mut text = format!(
            "{} operations over {:.0} virtual years in {} episodes; {} timers fired. {} turns that a \
             shard had asked for found nothing to do.\n\n",
            grouped(self.operations()),
            self.years(),
            grouped(self.episodes),
            grouped(self.fired),
            grouped(self.needless)
        );
        text.push_str("| | fault | times |\n|---|---|---|\n");
        for (fault, name) in Fault::NAMES.iter().enumerate() {
            let _ = writeln!(text, "| {} | {name} | {} |", fault + 1, grouped(self.faults[fault]));
        }
        text
    }

    /// The same, for programs.
    pub fn json(&self) -> Value {
        let counts = |names: &[&str], counts: &[u64]| -> Value {
            names
                .iter()
                .zip(counts)
                .map(|(name, count)| ((*name).to_owned(), Value::from(*count)))
                .collect()
        };
        let pairs = Fault::NAMES.iter().zip(&self.pairs);
        let pairs: Value = pairs
            .map(|(fault, row)| ((*fault).to_owned(), counts(Operation::NAMES, row)))
            .collect();
        json!({
            "operations": self.operations(),
            "virtual_years": self.years(),
            "episodes": self.episodes,
            "fired": self.fired,
            "needless_turns": self.needless,
            "faults": counts(Fault::NAMES, &self.faults),
            "by_operation": counts(Operation::NAMES, &self.operations),
            "pairs": pairs,
            "pairs_missing": self.missing().len(),
        })
    }
}

/// With a blank between thousands.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// In few characters.
fn short(number: u64) -> String {
    match number {
        0..10_000 => number.to_string(),
        10_000..10_000_000 => format!("{}k", number / 1_000),
        _ => format!("{}M", number / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::{grouped, short};

    #[test]
    fn numbers_are_readable() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1 000", "1 234 567"]);
        assert_eq!([0, 9_999, 10_000, 12_345_678].map(short), ["0", "9999", "10k", "12M"]);
    }
}
