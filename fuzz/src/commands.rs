//! The parser of the example `ttl_cache`: it takes any bytes, in any pieces, and reads what is written for it.

use arbitrary::Arbitrary;

use crate::{
    input::Input,
    reply::Reply,
    resp::{COMMAND_MAX, LINE_MAX, Malformed, Parser, WORDS_MAX},
};

/// What a client sends, and how it arrives.
#[derive(Arbitrary, Debug)]
pub struct Stream {
    parts: Vec<Part>,
    /// Lengths of the pieces, again and again.
    pieces: Vec<u16>,
}

#[derive(Arbitrary, Debug)]
enum Part {
    /// A command, as a client's library writes it.
    Command(Vec<Vec<u8>>),
    Bytes(Vec<u8>),
    /// What a client would have to write by hand.
    Count(i32),
    Length(i32),
    /// The same byte so many times: long lines and words.
    Run(u8, u16),
}

type Commands = Vec<Vec<Vec<u8>>>;

/// What came out, and what ended it.
type Outcome = (Commands, Result<(), Malformed>);

/// Of a short input every way to cut it in two is tried.
const SHORT: usize = 100;

impl Stream {
    /// Reads the stream whole and in pieces.
    ///
    /// # Panics
    ///
    /// If the parser is wrong.
    pub fn check(&self) {
        let bytes = self.bytes();
        let whole = read_whole(&bytes);
        assert_eq!(read_pieces(pieces(&bytes, &self.pieces)), whole, "in pieces as at once");
        if bytes.len() <= SHORT {
            assert_eq!(read_pieces(bytes.chunks(1)), whole, "byte by byte as at once");
            for at in 0..bytes.len() {
                let (first, second) = bytes.split_at(at);
                assert_eq!(
                    read_pieces([first, second].into_iter()),
                    whole,
                    "cut at {at} as at once"
                );
            }
        }
        if let Some(written) = self.written() {
            assert_eq!(whole, (written, Ok(())), "what was written is read");
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.parts.iter().for_each(|part| part.write(&mut bytes));
        bytes
    }

    /// The commands, if the stream has nothing else.
    fn written(&self) -> Option<Commands> {
        let command = |part: &Part| match part {
            Part::Command(words) => Some(words.clone()),
            _ => None,
        };
        self.parts.iter().map(command).collect()
    }
}

impl Part {
    fn write(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Command(words) => {
                Reply(bytes).array(words.len());
                for word in words {
                    Reply(bytes).bulk(word);
                }
            }
            Self::Bytes(some) => bytes.extend_from_slice(some),
            Self::Count(count) => bytes.extend_from_slice(format!("*{count}\r\n").as_bytes()),
            Self::Length(length) => bytes.extend_from_slice(format!("${length}\r\n").as_bytes()),
            Self::Run(byte, count) => bytes.resize(bytes.len() + usize::from(*count), *byte),
        }
    }
}

fn read_whole(bytes: &[u8]) -> Outcome {
    let (mut parser, mut found, mut start) = (Parser::new(), Vec::new(), 0);
    loop {
        match parser.read(&bytes[start..]) {
            Ok(Some(length)) => {
                assert!(
                    length > 0 && start + length <= bytes.len(),
                    "a command is within its bytes"
                );
                let words = parser.words(&bytes[start..]);
                assert!(words.len() <= WORDS_MAX, "bounded memory");
                found.push(words.iter().map(<[u8]>::to_vec).collect());
                parser.next();
                start += length;
            }
            Ok(None) => {
                assert!(
                    bytes.len() - start <= COMMAND_MAX + LINE_MAX,
                    "what is not understood yet is bounded"
                );
                return (found, Ok(()));
            }
            Err(malformed) => return (found, Err(malformed)),
        }
    }
}

/// The same by what the server has for each connection.
fn read_pieces<'bytes>(pieces: impl Iterator<Item = &'bytes [u8]>) -> Outcome {
    let (mut input, mut found) = (Input::new(), Vec::new());
    for piece in pieces {
        input.push(piece);
        loop {
            match input.next() {
                Ok(Some(words)) => found.push(words.iter().map(<[u8]>::to_vec).collect()),
                Ok(None) => break,
                Err(malformed) => return (found, Err(malformed)),
            }
        }
    }
    (found, Ok(()))
}

/// The bytes in pieces of these lengths.
fn pieces<'of>(bytes: &'of [u8], lengths: &'of [u16]) -> impl Iterator<Item = &'of [u8]> {
    let mut lengths = lengths.iter().cycle();
    let mut rest = bytes;
    std::iter::from_fn(move || {
        // At least a byte, and not so few that a long stream takes for ever.
        let least = 1 + bytes.len() / 4_096;
        let length = lengths
            .next()
            .map_or(rest.len(), |&length| usize::from(length))
            .clamp(least, rest.len().max(least));
        let piece;
        (piece, rest) = rest.split_at(length.min(rest.len()));
        (!piece.is_empty()).then_some(piece)
    })
}
