//! One client: reads what it sends, has its commands carried out, and answers them in order. All of this is bounded.
//!
//! ```text
//! bytes --> input --> commands --> router      commands are taken only while there is room for their answers,
//!                                     |        and bytes are read only when no complete command is left
//! bytes <-- output <-- replies <------+
//! ```
//!
//! Every byte in either direction resets the connection's idle timer.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::mem;
use std::time::Duration;

use bytes::Bytes;
use corewheel::LocalHandle;
use mio::net::TcpStream;
use resp_rs::ParseError;
use resp_rs::resp2::{self, Frame};

use crate::commands::{Merge, error};
use crate::worker::Router;

/// The longest command. A longer one is a protocol error.
const COMMAND_MAX: usize = 1 << 20;
/// No command is taken while more bytes of answers wait for the client to read,
const UNSENT_MAX: usize = 256 << 10;
/// more answers wait for cores,
const REPLIES_MAX: usize = 256;
/// or their commands hold more bytes.
const REPLIES_BYTES: usize = 1 << 20;
/// The longest array of answers. A longer one, by an MGET, is replaced by an error.
const ARRAY_MAX: usize = 32 << 20;

pub(crate) struct Connection {
    stream: TcpStream,
    pub(crate) idle: LocalHandle,
    /// Bytes that were read, before the next command is taken from them.
    input: Bytes,
    pub(crate) replies: Replies,
    output: Vec<u8>,
    sent: usize,
    /// The poll has announced bytes or the end. It announces the end only once.
    pub(crate) is_readable: bool,
    pub(crate) is_read_closed: bool,
    /// The connection ends when everything is answered.
    is_leaving: bool,
}

/// The state of a connection after it was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    Waits,
    HasMore,
    Ends,
}

/// The answers to a client's commands, in the order of the commands, of which cores still owe some.
#[derive(Default)]
pub(crate) struct Replies {
    waiting: VecDeque<Reply>,
    /// The number of the first one.
    first: u64,
    /// The bytes of their commands.
    bytes: usize,
}

struct Reply {
    merge: Merge,
    parts: Vec<Frame>,
    missing: usize,
    bytes: usize,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream, idle: LocalHandle) -> Self {
        Self {
            stream,
            idle,
            input: Bytes::new(),
            replies: Replies::default(),
            output: Vec::new(),
            sent: 0,
            is_readable: false,
            is_read_closed: false,
            is_leaving: false,
        }
    }

    /// Takes commands, reads once if none is left, and sends.
    pub(crate) fn serve(
        &mut self,
        router: &mut Router<'_>,
        scratch: &mut [u8],
        idle: Duration,
    ) -> Served {
        match self.try_serve(router, scratch) {
            Ok(bytes) if bytes > 0 && !self.idle.reset(idle) => Served::Ends,
            Ok(_) if self.is_leaving && self.replies.waiting.is_empty() && self.unsent() == 0 => {
                Served::Ends
            }
            Ok(_) if !self.is_leaving && self.has_room() && self.is_readable => Served::HasMore,
            Ok(_) => Served::Waits,
            Err(_) => Served::Ends,
        }
    }

    /// Returns how many bytes went in either direction.
    fn try_serve(&mut self, router: &mut Router<'_>, scratch: &mut [u8]) -> io::Result<usize> {
        let (mut bytes, mut may_read) = (0, true);
        loop {
            let is_drained = self.take_commands(router);
            bytes += self.send()?;
            if !self.has_room() || self.is_leaving {
                break;
            }
            if is_drained {
                if !self.is_readable || !mem::replace(&mut may_read, false) {
                    break;
                }
                bytes += self.read(scratch)?;
            }
        }
        Ok(bytes)
    }

    fn has_room(&self) -> bool {
        let Replies { waiting, bytes, .. } = &self.replies;
        self.unsent() < UNSENT_MAX && waiting.len() < REPLIES_MAX && *bytes < REPLIES_BYTES
    }

    /// Takes commands while there is room for their answers. Returns true if no complete one is left.
    fn take_commands(&mut self, router: &mut Router<'_>) -> bool {
        while self.has_room() && !self.is_leaving {
            match parse(&self.input) {
                Ok(Some((words, rest))) => {
                    self.input = rest;
                    if let Some(name) = words.first() {
                        self.is_leaving = name.eq_ignore_ascii_case(b"quit");
                        router.route(words, &mut self.replies);
                    }
                }
                Ok(None) => return true,
                Err(why) => {
                    self.replies.push(error(format!("ERR Protocol error: {why}")));
                    self.is_leaving = true;
                }
            }
        }
        self.is_leaving
    }

    fn read(&mut self, scratch: &mut [u8]) -> io::Result<usize> {
        let length = unless_blocked(self.stream.read(scratch))?;
        // A short read has emptied the socket: the poll announces what comes later, but not the end again.
        self.is_readable = length == Some(scratch.len()) || self.is_read_closed;
        self.is_leaving = length == Some(0);
        let length = length.unwrap_or(0);
        self.input = Bytes::from([&self.input, &scratch[..length]].concat());
        Ok(length)
    }

    /// Sends the answers that are complete until the client's side is full.
    fn send(&mut self) -> io::Result<usize> {
        let mut bytes = 0;
        loop {
            while self.unsent() < UNSENT_MAX
                && let Some(answer) = self.replies.pop()
            {
                self.output.extend_from_slice(&resp2::frame_to_bytes(&answer));
            }
            if self.unsent() == 0 {
                return Ok(bytes);
            }
            match unless_blocked(self.stream.write(&self.output[self.sent..]))? {
                Some(0) => return Err(ErrorKind::WriteZero.into()),
                Some(length) => (self.sent, bytes) = (self.sent + length, bytes + length),
                None => return Ok(bytes),
            }
            if self.unsent() == 0 {
                self.sent = 0;
                self.output.clear();
                self.output.shrink_to(UNSENT_MAX);
            }
        }
    }

    fn unsent(&self) -> usize {
        self.output.len() - self.sent
    }
}

impl Replies {
    /// Adds an answer that is complete.
    pub(crate) fn push(&mut self, answer: Frame) {
        let parts = vec![answer];
        self.waiting.push_back(Reply { merge: Merge::One, parts, missing: 0, bytes: 0 });
    }

    /// Keeps the place of an answer in this many parts, to a command of this many bytes. Returns its number.
    pub(crate) fn reserve(&mut self, merge: Merge, parts: usize, bytes: usize) -> u64 {
        let reply = Reply { merge, parts: vec![Frame::Array(None); parts], missing: parts, bytes };
        self.waiting.push_back(reply);
        self.bytes += bytes;
        self.first + self.waiting.len() as u64 - 1
    }

    /// Takes one part of an answer, each of which comes once.
    pub(crate) fn deliver(&mut self, number: u64, part: usize, answer: Frame) {
        let at = usize::try_from(number - self.first).unwrap_or(usize::MAX);
        let reply = &mut self.waiting[at];
        reply.parts[part] = answer;
        reply.missing -= 1;
    }

    /// Removes the first answer, if it is complete.
    fn pop(&mut self) -> Option<Frame> {
        if self.waiting.front()?.missing > 0 {
            return None;
        }
        let reply = self.waiting.pop_front()?;
        self.first += 1;
        self.bytes -= reply.bytes;
        let lengths = reply.parts.iter().filter_map(Frame::as_bytes).map(Bytes::len);
        if reply.merge == Merge::Array && lengths.sum::<usize>() > ARRAY_MAX {
            return Some(error("ERR the values are too long for one answer"));
        }
        Some(reply.merge.merge(reply.parts))
    }
}

/// Parses one command. Returns its words, of which there may be none, and the bytes after it; `None` if it is incomplete.
fn parse(input: &Bytes) -> Result<Option<(Vec<Bytes>, Bytes)>, ParseError> {
    let parsed = match input.first() {
        None => return Ok(None),
        Some(b'*') => resp2::parse_frame(input.clone()),
        Some(_) => parse_line(input),
    };
    match parsed {
        Ok((frame, rest)) => {
            let words = frame.into_array().unwrap_or_default().into_iter();
            let words = words.map(Frame::into_bulk_string).collect::<Result<_, _>>();
            Ok(Some((words.map_err(|_| ParseError::InvalidFormat)?, rest)))
        }
        Err(ParseError::Incomplete) if input.len() > COMMAND_MAX => Err(ParseError::BadLength),
        Err(ParseError::Incomplete) => Ok(None),
        Err(malformed) => Err(malformed),
    }
}

/// Parses a command as people type it: words in one line, without quotes.
fn parse_line(input: &Bytes) -> Result<(Frame, Bytes), ParseError> {
    let end = input.iter().take(resp2::MAX_LINE_LENGTH).position(|&byte| byte == b'\n');
    let Some(end) = end else {
        let is_long = input.len() >= resp2::MAX_LINE_LENGTH;
        return Err(if is_long { ParseError::LineTooLong } else { ParseError::Incomplete });
    };
    let words = input[..end].split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let words = words.map(|word| Frame::BulkString(Some(input.slice_ref(word))));
    Ok((Frame::Array(Some(words.collect())), input.slice(end + 1..)))
}

/// Returns `None` if the other side must be waited for.
fn unless_blocked(done: io::Result<usize>) -> io::Result<Option<usize>> {
    match done {
        Ok(length) => Ok(Some(length)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use resp_rs::ParseError;
    use resp_rs::resp2::{Frame, MAX_LINE_LENGTH};

    use super::{COMMAND_MAX, Replies, parse};
    use crate::commands::Merge;

    /// Parses bytes that arrive this many at a time. Returns the commands, and the bytes that are left.
    fn commands(bytes: &[u8], step: usize) -> Result<(Vec<Vec<Bytes>>, usize), ParseError> {
        let (mut input, mut commands) = (Bytes::new(), Vec::new());
        for piece in bytes.chunks(step) {
            input = Bytes::from([&input, piece].concat());
            while let Some((words, rest)) = parse(&input)? {
                commands.push(words);
                input = rest;
            }
        }
        Ok((commands, input.len()))
    }

    #[test]
    fn commands_are_the_same_however_their_bytes_arrive() {
        let bytes = b"*2\r\n$3\r\nGET\r\n$6\r\n\r\n*1\0\xff\r\nPING\r\n*1\r\n$4\r\nPING\r\n  SET  a b \n\r\n*0\r\n*1\r\n$0\r\n\r\n*1";
        let expected: [&[&[u8]]; 7] = [
            &[b"GET", b"\r\n*1\0\xff"],
            &[b"PING"],
            &[b"PING"],
            &[b"SET", b"a", b"b"],
            &[],
            &[],
            &[b""],
        ];
        for step in 1..=bytes.len() {
            let (commands, left) = commands(bytes, step).expect("well-formed");
            assert_eq!(commands, expected, "{step} bytes at a time");
            assert_eq!(left, 2);
        }
    }

    #[test]
    fn malformed_and_long_commands_are_refused() {
        let malformed =
            ["*x\r\n", "*1\r\n:1\r\n", "*1\r\n$-1\r\n", "*1\r\n$1\r\nabc", "*1\r\n*0\r\n"];
        for malformed in malformed {
            assert!(commands(malformed.as_bytes(), 1).is_err(), "{malformed:?}");
        }
        let deep = b"*1\r\n".repeat(100_000);
        assert_eq!(commands(&deep, deep.len()), Err(ParseError::DepthExceeded));
        let long = vec![b'a'; MAX_LINE_LENGTH];
        assert_eq!(commands(&long, long.len()), Err(ParseError::LineTooLong));
        assert!(commands(&long[1..], long.len()).is_ok());
        let long = [&b"*1\r\n$2000000\r\n"[..], &vec![b'a'; COMMAND_MAX]].concat();
        assert_eq!(commands(&long, long.len()), Err(ParseError::BadLength));
    }

    #[test]
    fn answers_go_out_in_the_order_of_their_commands() {
        let mut replies = Replies::default();
        let a = replies.reserve(Merge::One, 1, 10);
        replies.push(Frame::Integer(2));
        let c = replies.reserve(Merge::Sum, 2, 20);
        replies.deliver(c, 1, Frame::Integer(1));
        assert_eq!((replies.pop(), replies.bytes), (None, 30));
        replies.deliver(a, 0, Frame::Integer(1));
        assert_eq!(replies.pop(), Some(Frame::Integer(1)));
        assert_eq!((replies.pop(), replies.pop()), (Some(Frame::Integer(2)), None));
        replies.deliver(c, 0, Frame::Integer(2));
        assert_eq!((replies.pop(), replies.bytes), (Some(Frame::Integer(3)), 0));
    }
}
