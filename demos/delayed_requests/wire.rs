//! The protocol: requests and answers of a fixed number of 64-bit words.

use std::array;
use std::io::{self, Read, Write};

use crate::common::server;

const WORD: usize = 8;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// Appends `position` bytes, and waits until all followers have them.
    Produce,
    /// Waits until all followers have the log up to `position`.
    Fetch,
    /// Says that the follower `member` has the log up to `position`, and waits for more.
    Follow,
    /// Joins the generation `position` of a group, and waits until all members have.
    Join,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Counts the requests of a connection.
    pub(crate) number: u64,
    pub(crate) timeout_ms: u64,
    pub(crate) kind: Kind,
    /// The partition or group.
    pub(crate) target: u32,
    pub(crate) member: u32,
    pub(crate) position: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) number: u64,
    pub(crate) is_timed_out: bool,
    /// The end of the log as far as the client may know it, or the generation.
    pub(crate) position: u64,
}

impl Request {
    pub(crate) const WORDS: usize = 6;

    pub(crate) fn send(&self, stream: &mut impl Write) -> io::Result<()> {
        let Self { number, timeout_ms, kind, target, member, position } = *self;
        send([number, timeout_ms, kind as u64, target.into(), member.into(), position], stream)
    }

    /// `None` if the words are no request.
    pub(crate) fn parse(words: [u64; Self::WORDS]) -> Option<Self> {
        let [number, timeout_ms, kind, target, member, position] = words;
        let kinds = [Kind::Produce, Kind::Fetch, Kind::Follow, Kind::Join];
        let kind = *kinds.get(usize::try_from(kind).ok()?)?;
        let (target, member) = (target.try_into().ok()?, member.try_into().ok()?);
        Some(Self { number, timeout_ms, kind, target, member, position })
    }
}

impl Answer {
    pub(crate) const WORDS: usize = 3;

    pub(crate) fn send(&self, stream: &mut impl Write) -> io::Result<()> {
        send([self.number, self.is_timed_out.into(), self.position], stream)
    }

    pub(crate) fn parse([number, is_timed_out, position]: [u64; Self::WORDS]) -> Self {
        Self { number, is_timed_out: is_timed_out != 0, position }
    }
}

fn send<const WORDS: usize>(words: [u64; WORDS], stream: &mut impl Write) -> io::Result<()> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    server::send(stream, &bytes)
}

/// Splits what arrives into messages.
#[derive(Debug, Default)]
pub(crate) struct Messages<const WORDS: usize> {
    bytes: Vec<u8>,
}

impl<const WORDS: usize> Messages<WORDS> {
    /// Reads the next message. `None` if it has not arrived, and an error if the connection has ended.
    pub(crate) fn receive(&mut self, stream: &mut impl Read) -> io::Result<Option<[u64; WORDS]>> {
        let mut buffer = [[0; WORD]; WORDS];
        while self.bytes.len() < WORDS * WORD {
            let missing = &mut buffer.as_flattened_mut()[self.bytes.len()..];
            let Some(length) = server::receive(stream, missing)? else { return Ok(None) };
            self.bytes.extend_from_slice(&missing[..length]);
        }
        let (words, _) = self.bytes.as_chunks();
        let message = array::from_fn(|index| u64::from_le_bytes(words[index]));
        self.bytes.clear();
        Ok(Some(message))
    }
}
