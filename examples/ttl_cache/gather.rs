//! Answers that come from other cores, put together to the one that the client gets.
//!
//! A command about several keys is taken apart into one request for each key, and one about all keys into one for each
//! core; each is answered as the command about one key would be. What cores are asked at the same time they do at their
//! own time: such a command is not atomic.

use crate::reply::Reply;
use crate::resp::number;

/// How answers become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// There is only one.
    One,
    /// They are the elements of an array.
    Array,
    /// They are numbers, of which the sum counts.
    Sum,
    /// Each of them is OK, or there is an error.
    AllOk,
}

/// The answers to one command, some of which are still to come.
#[derive(Debug)]
pub(crate) struct Gather {
    kind: Kind,
    missing: usize,
    /// Those of which the bytes count, in the order of what was asked.
    parts: Vec<Vec<u8>>,
    sum: i64,
    error: Option<Vec<u8>>,
}

impl Gather {
    pub(crate) fn new(kind: Kind, parts: usize) -> Self {
        let kept = if kind == Kind::Array { parts } else { 0 };
        Self { kind, missing: parts, parts: vec![Vec::new(); kept], sum: 0, error: None }
    }

    /// Whether it waits for this and nothing else, and it is the answer as it is.
    pub(crate) fn is_one(&self) -> bool {
        self.kind == Kind::One
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// Bytes that it holds.
    pub(crate) fn held(&self) -> usize {
        self.parts.iter().map(Vec::len).sum()
    }

    /// Takes the answer to one of the requests in.
    pub(crate) fn take_in(&mut self, part: usize, answer: &[u8]) {
        self.missing = self.missing.saturating_sub(1);
        let is_error = answer.first() == Some(&b'-');
        match (self.kind, self.parts.get_mut(part)) {
            (Kind::One, _) => self.parts.push(answer.to_vec()),
            _ if is_error => drop(self.error.get_or_insert_with(|| answer.to_vec())),
            (Kind::Array, Some(place)) => *place = answer.to_vec(),
            (Kind::Sum, _) => self.sum += integer(answer),
            _ => {}
        }
    }

    /// Writes the answer of all of them.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        if let Some(error) = &self.error {
            out.extend_from_slice(error);
            return;
        }
        match self.kind {
            Kind::Sum => Reply(out).integer(self.sum),
            Kind::AllOk => Reply(out).ok(),
            Kind::Array => Reply(out).array(self.parts.len()),
            Kind::One => {}
        }
        self.parts.iter().for_each(|part| out.extend_from_slice(part));
    }
}

/// What an answer that is an integer says.
fn integer(answer: &[u8]) -> i64 {
    let digits = answer.strip_prefix(b":").and_then(|rest| rest.strip_suffix(b"\r\n"));
    digits.and_then(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{Gather, Kind};

    fn gathered(kind: Kind, answers: &[&str]) -> String {
        let mut gather = Gather::new(kind, answers.len());
        // They come as they come.
        for (part, answer) in answers.iter().enumerate().rev() {
            assert!(!gather.is_complete());
            gather.take_in(part, answer.as_bytes());
        }
        assert!(gather.is_complete());
        let mut out = Vec::new();
        gather.write(&mut out);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn answers_become_one() {
        assert_eq!(gathered(Kind::One, &["-ERR no\r\n"]), "-ERR no\r\n");
        assert_eq!(gathered(Kind::Array, &["$1\r\na\r\n", "$-1\r\n"]), "*2\r\n$1\r\na\r\n$-1\r\n");
        assert_eq!(gathered(Kind::Sum, &[":1\r\n", ":0\r\n", ":40\r\n"]), ":41\r\n");
        assert_eq!(gathered(Kind::AllOk, &["+OK\r\n", "+OK\r\n"]), "+OK\r\n");
        assert_eq!(gathered(Kind::AllOk, &["+OK\r\n", "-OOM\r\n"]), "-OOM\r\n");
    }
}
