//! The client's end of one connection, and the times that the client has observed.

use std::time::{Duration, Instant};

use tokio::net::tcp::OwnedWriteHalf;

use crate::wire::{self, Answer, Kind, Request};

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ExpectedAnswer {
    Condition,
    Timeout,
    /// A completion or a timeout: the condition becomes true close to the timeout.
    Either,
}

pub(crate) struct Record {
    /// Read before the request was sent, so that the server cannot have received the request
    /// earlier.
    pub(crate) sent: Instant,
    pub(crate) timeout: Duration,
    pub(crate) expected: ExpectedAnswer,
    /// The number of answers that report a completion.
    pub(crate) completed: u64,
    /// The number of answers that report a timeout.
    pub(crate) timed_out: u64,
    pub(crate) answered: Option<Instant>,
}

/// A client that waits for each answer before it sends the next request.
pub(crate) struct Client {
    pub(crate) stream: OwnedWriteHalf,
    pub(crate) records: Vec<Record>,
    /// The number of answers to requests that the client has not sent.
    pub(crate) unexpected_answers: u64,
    pub(crate) is_idle: bool,
    /// The position of the latest answer.
    pub(crate) position: u64,
}

impl Client {
    pub(crate) fn send(
        &mut self,
        kind: Kind,
        (partition, follower): (u32, u32),
        position: u64,
        timeout: Duration,
        expected: ExpectedAnswer,
    ) {
        let number = self.records.len();
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        let request = Request { number, timeout_ms, kind, partition, follower, position };
        let sent = Instant::now();
        let (completed, timed_out, answered) = (0, 0, None);
        self.records.push(Record { sent, timeout, expected, completed, timed_out, answered });
        self.is_idle = false;
        // Fails if the connection has ended. The verdict reports unanswered requests.
        let _ = self.stream.try_write(&wire::encode_line(&request));
    }

    /// Sets the answer that the client expects to its pending request.
    pub(crate) fn expect_answer(&mut self, expected: ExpectedAnswer) {
        if let Some(record) = self.records.last_mut().filter(|_| !self.is_idle) {
            record.expected = expected;
        }
    }

    pub(crate) fn record_answer(&mut self, Answer { number, is_timed_out, position }: Answer) {
        let is_last = number + 1 == self.records.len();
        let Some(record) = self.records.get_mut(number) else {
            self.unexpected_answers += 1;
            return;
        };
        record.answered.get_or_insert_with(Instant::now);
        *(if is_timed_out { &mut record.timed_out } else { &mut record.completed }) += 1;
        if is_last {
            self.is_idle = true;
            self.position = position;
        }
    }
}
