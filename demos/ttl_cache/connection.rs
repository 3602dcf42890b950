//! One client: reads what it sends, has its commands carried out, and answers them in order. All of
//! this is bounded.
//!
//! ```text
//! bytes --> parser --> commands --> router    Commands are taken only while there is room for
//!                                      |      their answers, and bytes are read only when no
//! bytes <-- output <-- replies <-------+      complete command is left.
//! ```
//!
//! Every byte in either direction resets the connection's idle timer.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::mem;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use corewheel::LocalHandle;
use mio::net::TcpStream;
use resp_rs::ParseError;
use resp_rs::resp2::{self, Frame, Parser};

use crate::commands::error;
use crate::worker::Router;

/// The longest command. A longer one is a protocol error.
const COMMAND_MAX: usize = 1 << 20;
/// No command is taken while more bytes of answers wait for the client to read,
const UNSENT_MAX: usize = 256 << 10;
/// or more answers wait for other cores.
const REPLIES_MAX: usize = 256;

pub(crate) struct Connection {
    token: usize,
    stream: TcpStream,
    pub(crate) idle: LocalHandle,
    /// Has the bytes that were read before the next command is taken from them.
    parser: Parser,
    pub(crate) replies: Replies,
    output: BytesMut,
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

/// The answers to a client's commands, in the order of the commands. Cores still owe some of them.
#[derive(Default)]
pub(crate) struct Replies {
    waiting: VecDeque<Reply>,
    /// The number of the first one.
    first: usize,
}

/// An answer, and the number of cores that have not answered yet.
struct Reply {
    answer: Option<Frame>,
    missing: usize,
}

impl Connection {
    pub(crate) fn new(token: usize, stream: TcpStream, idle: LocalHandle) -> Self {
        Self {
            token,
            stream,
            idle,
            parser: Parser::new(),
            replies: Replies::default(),
            output: BytesMut::new(),
            is_readable: false,
            is_read_closed: false,
            is_leaving: false,
        }
    }

    /// Takes commands, reads once if none is left, and sends.
    pub(crate) fn serve(
        &mut self,
        router: &mut Router,
        scratch: &mut [u8],
        idle: Duration,
    ) -> Served {
        match self.try_serve(router, scratch) {
            Ok(bytes) if bytes > 0 && !self.idle.reset(idle) => Served::Ends,
            Ok(_)
                if self.is_leaving && self.replies.waiting.is_empty() && self.output.is_empty() =>
            {
                Served::Ends
            }
            Ok(_) if !self.is_leaving && self.has_room() && self.is_readable => Served::HasMore,
            Ok(_) => Served::Waits,
            Err(_) => Served::Ends,
        }
    }

    /// Returns how many bytes went in either direction.
    fn try_serve(&mut self, router: &mut Router, scratch: &mut [u8]) -> io::Result<usize> {
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
        self.output.len() < UNSENT_MAX && self.replies.waiting.len() < REPLIES_MAX
    }

    /// Takes commands while there is room for their answers. Returns true if no complete one is
    /// left.
    fn take_commands(&mut self, router: &mut Router) -> bool {
        while self.has_room() && !self.is_leaving {
            match next_command(&mut self.parser) {
                Ok(Some(words)) => {
                    if let Some(name) = words.first() {
                        self.is_leaving = name.eq_ignore_ascii_case(b"quit");
                        router.route(self.token, &words, &mut self.replies);
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
        // A short read has emptied the socket: the poll announces later bytes, but not the end
        // again.
        self.is_readable = length == Some(scratch.len()) || self.is_read_closed;
        self.is_leaving = length == Some(0);
        let length = length.unwrap_or(0);
        self.parser.feed(Bytes::copy_from_slice(&scratch[..length]));
        Ok(length)
    }

    /// Sends the answers that are complete until the client's side is full.
    fn send(&mut self) -> io::Result<usize> {
        let mut bytes = 0;
        loop {
            while self.output.len() < UNSENT_MAX
                && let Some(answer) = self.replies.pop()
            {
                self.output.extend_from_slice(&resp2::frame_to_bytes(&answer));
            }
            if self.output.is_empty() {
                return Ok(bytes);
            }
            match unless_blocked(self.stream.write(&self.output))? {
                Some(0) => return Err(ErrorKind::WriteZero.into()),
                Some(length) => {
                    self.output.advance(length);
                    bytes += length;
                }
                None => return Ok(bytes),
            }
        }
    }
}

impl Replies {
    /// Adds an answer that is complete.
    pub(crate) fn push(&mut self, answer: Frame) {
        self.waiting.push_back(Reply { answer: Some(answer), missing: 0 });
    }

    /// Keeps the place of an answer that this many cores give. Returns its number.
    pub(crate) fn reserve(&mut self, cores: usize) -> usize {
        self.waiting.push_back(Reply { answer: None, missing: cores });
        self.first + self.waiting.len() - 1
    }

    /// Takes the answer of one core. Integers are added up; other answers are alike.
    pub(crate) fn deliver(&mut self, number: usize, answer: Frame) {
        let reply = &mut self.waiting[number - self.first];
        reply.missing -= 1;
        reply.answer = Some(match (reply.answer.take(), answer) {
            (Some(Frame::Integer(sum)), Frame::Integer(more)) => Frame::Integer(sum + more),
            (_, answer) => answer,
        });
    }

    /// Removes the first answer, if it is complete.
    fn pop(&mut self) -> Option<Frame> {
        if self.waiting.front()?.missing > 0 {
            return None;
        }
        self.first += 1;
        self.waiting.pop_front()?.answer
    }
}

/// Returns the words of the next command, of which there may be none; `None` if it is incomplete.
fn next_command(parser: &mut Parser) -> Result<Option<Vec<Bytes>>, ParseError> {
    let Some(frame) = parser.next_frame()? else {
        let is_long = parser.buffered_bytes() > COMMAND_MAX;
        return if is_long { Err(ParseError::BadLength) } else { Ok(None) };
    };
    let words = frame.into_array().map_err(|_| ParseError::InvalidFormat)?.into_iter();
    let words = words.map(Frame::into_bulk_string).collect::<Result<_, _>>();
    words.map(Some).map_err(|_| ParseError::InvalidFormat)
}

/// Returns `None` if the other side must be waited for.
fn unless_blocked(done: io::Result<usize>) -> io::Result<Option<usize>> {
    match done {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        done => done.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_and_long_commands_are_refused() {
        let malformed =
            ["*x\r\n", "*1\r\n:1\r\n", "*1\r\n$-1\r\n", "*1\r\n$1\r\nabc", "+OK\r\n", "PING\r\n"];
        let long = ["*1\r\n$2000000\r\n", &"a".repeat(COMMAND_MAX)].concat();
        for refused in malformed.into_iter().chain([&long[..]]) {
            let mut parser = Parser::new();
            parser.feed(Bytes::copy_from_slice(refused.as_bytes()));
            assert!(next_command(&mut parser).is_err(), "{refused:.20?}");
        }
    }
}
