//! What the server answers, in RESP, written at the end of a buffer.

use std::fmt::{self, Display, Formatter};
use std::io::Write;

/// A command that was refused, and why: an error for the client, who may go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// By its rules; said in the words of Redis, which clients know.
    Because(&'static str),
    Unknown(String),
    WrongCount(&'static str),
    BadDeadline(&'static str),
}

pub(crate) const SYNTAX: Refused = Refused::Because("ERR syntax error");
pub(crate) const NO_INTEGER: Refused =
    Refused::Because("ERR value is not an integer or out of range");

/// The end of a buffer, where one answer goes.
pub(crate) struct Reply<'a>(pub(crate) &'a mut Vec<u8>);

impl Reply<'_> {
    /// Must be a line.
    pub(crate) fn simple(&mut self, line: &str) {
        self.line(b'+', line.as_bytes());
    }

    pub(crate) fn ok(&mut self) {
        self.simple("OK");
    }

    pub(crate) fn integer(&mut self, number: i64) {
        self.line(b':', itoa::Buffer::new().format(number).as_bytes());
    }

    pub(crate) fn count(&mut self, count: usize) {
        self.integer(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(crate) fn nil(&mut self) {
        self.0.extend_from_slice(b"$-1\r\n");
    }

    pub(crate) fn bulk(&mut self, bytes: &[u8]) {
        self.line(b'$', itoa::Buffer::new().format(bytes.len()).as_bytes());
        self.0.extend_from_slice(bytes);
        self.0.extend_from_slice(b"\r\n");
    }

    /// So many answers follow, which are its elements.
    pub(crate) fn array(&mut self, length: usize) {
        self.line(b'*', itoa::Buffer::new().format(length).as_bytes());
    }

    pub(crate) fn error(&mut self, why: &impl Display) {
        self.0.push(b'-');
        // Writing to a vector cannot fail.
        let _ = write!(self.0, "{why}\r\n");
    }

    fn line(&mut self, kind: u8, line: &[u8]) {
        self.0.push(kind);
        self.0.extend_from_slice(line);
        self.0.extend_from_slice(b"\r\n");
    }
}

impl Refused {
    pub(crate) fn unknown(command: &[u8]) -> Self {
        // One line, and not a long one, whatever was sent.
        let shown = command
            .iter()
            .take(64)
            .map(|&byte| if byte.is_ascii_graphic() { char::from(byte) } else { '?' });
        Self::Unknown(shown.collect())
    }
}

impl Display for Refused {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Because(why) => f.write_str(why),
            Self::Unknown(command) => write!(f, "ERR unknown command '{command}'"),
            Self::WrongCount(command) => {
                write!(f, "ERR wrong number of arguments for '{command}' command")
            }
            Self::BadDeadline(command) => {
                write!(f, "ERR invalid expire time in '{command}' command")
            }
        }
    }
}
