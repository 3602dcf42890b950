//! The client's end of one connection, and the record it keeps by its own clock: what the verdict is made of.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use crate::board::Board;
use crate::wire::{ANSWER, Answer, Heard, How, Messages, Request, What};

/// How a request must be answered, as far as its client knows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Expected {
    Condition,
    TimeOut,
    /// Its condition comes about when it times out: either, but not both.
    Either,
}

/// All that is known of one request.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) what: What,
    /// Read before the request was sent, so that the server cannot have got it earlier.
    pub(crate) sent: Instant,
    pub(crate) timeout: Duration,
    pub(crate) expected: Expected,
    /// How often it was answered in each way.
    pub(crate) completed: u32,
    pub(crate) timed_out: u32,
    /// When the first answer was seen.
    pub(crate) answered: Option<Instant>,
}

/// It has at most one request under way.
#[derive(Debug)]
pub(crate) struct Client {
    stream: Option<TcpStream>,
    messages: Messages<ANSWER>,
    /// Its requests, by number.
    pub(crate) records: Vec<Record>,
    /// Answers to requests that were never made.
    pub(crate) strays: u64,
    is_waiting: bool,
    at: u64,
}

impl Client {
    pub(crate) fn connect(server: SocketAddr) -> io::Result<Self> {
        let stream = std::net::TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream: Some(TcpStream::from_std(stream)),
            messages: Messages::new(),
            records: Vec::new(),
            strays: 0,
            is_waiting: false,
            at: 0,
        })
    }

    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        self.stream
            .as_mut()
            .map_or(Ok(()), |stream| registry.register(stream, token, Interest::READABLE))
    }

    /// Whether its last request has been answered.
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_waiting
    }

    /// Where the log ended by its last answer, or which generation that was.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    pub(crate) fn send(
        &mut self,
        what: What,
        timeout: Duration,
        expected: Expected,
        board: &Board,
    ) {
        let Ok(number) = u32::try_from(self.records.len()) else { return };
        let timeout_ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        let sent = Instant::now();
        self.records.push(Record {
            what,
            sent,
            timeout,
            expected,
            completed: 0,
            timed_out: 0,
            answered: None,
        });
        self.is_waiting = true;
        let stream = self.stream.as_mut();
        if stream.is_some_and(|stream| Request { number, timeout_ms, what }.send(stream).is_err()) {
            // It waits for ever, and the verdict finds a request that was not answered.
            self.stream = None;
        }
        board.sent.one_more();
    }

    /// Something has happened that tells how the request under way must end.
    pub(crate) fn expect(&mut self, expected: Expected) {
        if let Some(record) = self.records.last_mut().filter(|_| self.is_waiting) {
            record.expected = expected;
        }
    }

    /// Takes the answers that have come.
    pub(crate) fn receive(&mut self, board: &Board) {
        while let Some(stream) = &mut self.stream {
            match self.messages.next(stream) {
                Heard::Message(bytes) => self.take_in(Answer::of(bytes), board),
                Heard::Nothing => return,
                Heard::End => self.stream = None,
            }
        }
    }

    fn take_in(&mut self, answer: Answer, board: &Board) {
        let is_last = answer.number as usize + 1 == self.records.len();
        let Some(record) = self.records.get_mut(answer.number as usize) else {
            self.strays += 1;
            return;
        };
        record.answered.get_or_insert_with(Instant::now);
        match answer.how {
            How::Condition => {
                record.completed += 1;
                board.completed.one_more();
            }
            How::TimedOut => {
                record.timed_out += 1;
                board.timed_out.one_more();
            }
        }
        if is_last {
            self.is_waiting = false;
            self.at = answer.at;
        }
    }
}
