//! What clients send: commands in RESP, the protocol of Redis, taken out of the bytes as they arrive.
//!
//! ```text
//! *2\r\n $3\r\nGET\r\n $5\r\nmykey\r\n      two words, each with its length before it
//! GET mykey\r\n                            the same as one types it ("inline": words between blanks, without quotes)
//! ```
//!
//! The parser takes any bytes and never panics. It remembers how far it has come, so that a command that arrives byte by
//! byte costs no more than one that arrives at once. Nothing is copied: words are places in the bytes.

use std::fmt::{self, Display, Formatter};
use std::ops::Range;

use memchr::memchr;

/// The longest word of a command: a key or a value.
pub(crate) const WORD_MAX: usize = 1 << 20;
/// The most words of a command.
pub(crate) const WORDS_MAX: usize = 1 << 14;
/// The longest command.
pub(crate) const COMMAND_MAX: usize = 4 << 20;
/// The longest line: a command that somebody types, or a number.
pub(crate) const LINE_MAX: usize = 64 << 10;

/// Where a word is, counted from the start of the command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    start: u32,
    end: u32,
}

/// The words of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
}

/// Bytes that are no command. The connection is of no use any more, because nobody knows where the next command begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    WordCount,
    WordLength,
    NoWordLength,
    NoWordEnd,
    LongLine,
    LongCommand,
}

/// Where the parser is in the command that it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Start,
    /// Before the length of a word; so many are to come.
    Length(usize),
    /// In a word of this length, the first of so many to come.
    Word(usize, usize),
}

/// Reads one command after the other.
#[derive(Debug)]
pub(crate) struct Parser {
    stage: Stage,
    /// All before this has been understood.
    at: usize,
    /// There is no end of a line between `at` and this.
    searched: usize,
    spans: Vec<Span>,
}

impl<'a> Words<'a> {
    pub(crate) fn new(bytes: &'a [u8], spans: &'a [Span]) -> Self {
        Self { bytes, spans }
    }

    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }

    /// The word of this number; none counts as an empty one.
    pub(crate) fn word(&self, number: usize) -> &'a [u8] {
        self.spans.get(number).map_or(&[], |span| &self.bytes[span.range()])
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &'a [u8]> {
        let bytes = self.bytes;
        self.spans.iter().map(move |span| &bytes[span.range()])
    }

    /// The words from `number` on.
    pub(crate) fn from(&self, number: usize) -> Self {
        Self { spans: self.spans.get(number..).unwrap_or_default(), ..*self }
    }

    pub(crate) fn spans(&self) -> &'a [Span] {
        self.spans
    }

    /// The same bytes with other words.
    pub(crate) fn with<'b>(&self, spans: &'b [Span]) -> Words<'b>
    where
        'a: 'b,
    {
        Words { bytes: self.bytes, spans }
    }
}

impl Span {
    /// Commands are far shorter than 4 GiB.
    pub(crate) fn new(range: Range<usize>) -> Self {
        let short = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        Self { start: short(range.start), end: short(range.end) }
    }

    fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

impl Parser {
    pub(crate) fn new() -> Self {
        Self { stage: Stage::Start, at: 0, searched: 0, spans: Vec::new() }
    }

    /// Reads on in `bytes`, which begin with the command under way and are at least those of the last call. The length
    /// of the command, when it is complete; then `words` are its words, until `next` is called.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        loop {
            let went_on = match self.stage {
                Stage::Start => match bytes.get(self.at) {
                    None => return Ok(None),
                    Some(b'*') => self.read_count(bytes)?,
                    Some(_) => return self.read_inline(bytes),
                },
                Stage::Length(0) => return Ok(Some(self.at)),
                Stage::Length(left) => self.read_length(bytes, left)?,
                Stage::Word(length, left) => self.read_word(bytes, length, left)?,
            };
            if !went_on {
                return Ok(None);
            }
        }
    }

    /// The words of the command that has been read. An empty line has none.
    pub(crate) fn words<'a>(&'a self, bytes: &'a [u8]) -> Words<'a> {
        Words::new(bytes, &self.spans)
    }

    /// Forgets the command that has been read.
    pub(crate) fn next(&mut self) {
        (self.stage, self.at, self.searched) = (Stage::Start, 0, 0);
        self.spans.clear();
    }

    fn read_count(&mut self, bytes: &[u8]) -> Result<bool, Malformed> {
        let Some(line) = self.line(bytes)? else { return Ok(false) };
        let count = number(&bytes[line.start + 1..line.end]).ok_or(Malformed::WordCount)?;
        // None, or fewer than none, is a command that does nothing.
        let count = usize::try_from(count.max(0)).map_err(|_| Malformed::WordCount)?;
        if count > WORDS_MAX {
            return Err(Malformed::WordCount);
        }
        self.stage = Stage::Length(count);
        Ok(true)
    }

    fn read_length(&mut self, bytes: &[u8], left: usize) -> Result<bool, Malformed> {
        match bytes.get(self.at) {
            None => return Ok(false),
            Some(b'$') => {}
            Some(_) => return Err(Malformed::NoWordLength),
        }
        let Some(line) = self.line(bytes)? else { return Ok(false) };
        let length = number(&bytes[line.start + 1..line.end]).ok_or(Malformed::WordLength)?;
        let length = usize::try_from(length).map_err(|_| Malformed::WordLength)?;
        if length > WORD_MAX {
            return Err(Malformed::WordLength);
        }
        if self.at + length > COMMAND_MAX {
            return Err(Malformed::LongCommand);
        }
        self.stage = Stage::Word(length, left);
        Ok(true)
    }

    fn read_word(&mut self, bytes: &[u8], length: usize, left: usize) -> Result<bool, Malformed> {
        let end = self.at + length;
        let Some(line_end) = bytes.get(end..end + 2) else { return Ok(false) };
        if line_end != b"\r\n" {
            return Err(Malformed::NoWordEnd);
        }
        self.spans.push(Span::new(self.at..end));
        (self.at, self.searched) = (end + 2, end + 2);
        self.stage = Stage::Length(left - 1);
        Ok(true)
    }

    fn read_inline(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        let Some(line) = self.line(bytes)? else { return Ok(None) };
        let mut at = line.start;
        for word in bytes[line].split(u8::is_ascii_whitespace) {
            if !word.is_empty() {
                self.spans.push(Span::new(at..at + word.len()));
            }
            at += word.len() + 1;
        }
        if self.spans.len() > WORDS_MAX {
            return Err(Malformed::WordCount);
        }
        self.stage = Stage::Length(0);
        Ok(Some(self.at))
    }

    /// The line at hand without its end, if that has come.
    fn line(&mut self, bytes: &[u8]) -> Result<Option<Range<usize>>, Malformed> {
        let start = self.at;
        let found = memchr(b'\n', &bytes[self.searched..]).map(|offset| self.searched + offset);
        if found.unwrap_or(bytes.len()) - start > LINE_MAX {
            return Err(Malformed::LongLine);
        }
        let Some(end) = found else {
            self.searched = bytes.len();
            return Ok(None);
        };
        (self.at, self.searched) = (end + 1, end + 1);
        let has_return = end > start && bytes[end - 1] == b'\r';
        Ok(Some(start..end - usize::from(has_return)))
    }
}

/// A whole number as clients write it.
pub(crate) fn number(digits: &[u8]) -> Option<i64> {
    let is_plain = |digits: &[u8]| digits.first().is_some_and(u8::is_ascii_digit);
    if !is_plain(digits.strip_prefix(b"-").unwrap_or(digits)) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

impl Display for Malformed {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("ERR Protocol error: ")?;
        f.write_str(match self {
            Self::WordCount => "invalid multibulk length",
            Self::WordLength => "invalid bulk length",
            Self::NoWordLength => "expected '$'",
            Self::NoWordEnd => "expected the end of a line after a bulk string",
            Self::LongLine => "too long a line",
            Self::LongCommand => "too long a command",
        })
    }
}

#[cfg(test)]
#[path = "resp_tests.rs"]
mod tests;
