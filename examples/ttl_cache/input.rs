//! What a client has sent and what of it is not understood yet.

use crate::resp::{Malformed, Parser, Words};

/// Room that an empty input keeps.
const KEPT: usize = 32 << 10;

#[derive(Debug)]
pub(crate) struct Input {
    bytes: Vec<u8>,
    /// Where the next command begins.
    start: usize,
    parser: Parser,
    /// The length of the command that was last handed out.
    read: usize,
}

impl Input {
    pub(crate) fn new() -> Self {
        Self { bytes: Vec::new(), start: 0, parser: Parser::new(), read: 0 }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.forget();
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.bytes.shrink_to(KEPT);
            self.start = 0;
        } else if self.start > self.bytes.len() / 2 {
            // Each byte is moved at most once for each one that has gone.
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next command, when it is complete; some have no words.
    pub(crate) fn next(&mut self) -> Result<Option<Words<'_>>, Malformed> {
        self.forget();
        let bytes = &self.bytes[self.start..];
        let Some(length) = self.parser.read(bytes)? else { return Ok(None) };
        self.read = length;
        Ok(Some(self.parser.words(bytes)))
    }

    fn forget(&mut self) {
        if self.read > 0 {
            self.start += self.read;
            self.read = 0;
            self.parser.next();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Input;

    #[test]
    fn commands_come_out_whole_however_they_arrive() {
        let bytes = b"PING\r\n*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n\r\nGET a\r\n".repeat(50);
        for step in 1..30 {
            let (mut input, mut words) = (Input::new(), 0);
            for piece in bytes.chunks(step) {
                input.push(piece);
                while let Some(command) = input.next().expect("well-formed") {
                    words += command.len();
                }
            }
            assert_eq!(words, 5 * 50, "{step} bytes at a time");
            assert!(input.bytes.len() - input.start <= step, "what was read is forgotten");
        }
    }
}
