//! The protocol: requests of 32 bytes, answers of 16, numbered by the connection.

use std::io::{self, ErrorKind, Read, Write};

use crate::log::{GroupId, PartitionId};
use crate::small;

pub(crate) const REQUEST: usize = 32;
pub(crate) const ANSWER: usize = 16;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Request {
    pub(crate) number: u32,
    pub(crate) timeout_ms: u32,
    pub(crate) what: What,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum What {
    /// Append so many bytes; the answer comes when all followers have them.
    Produce { partition: PartitionId, bytes: u32 },
    /// Give at least so many bytes of what all followers have.
    Fetch { partition: PartitionId, from: u64, least: u32 },
    /// The same for a follower, of what has been appended; it says that it has all that comes before.
    Follow { partition: PartitionId, follower: u32, from: u64, least: u32 },
    /// Join a group; the answer comes when all members have.
    Join { group: GroupId, member: u32, generation: u64 },
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Answer {
    pub(crate) number: u32,
    pub(crate) how: How,
    /// Where the log ends, or the generation.
    pub(crate) at: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum How {
    Condition,
    TimedOut,
}

impl Request {
    pub(crate) fn send(self, stream: &mut impl Write) -> io::Result<()> {
        let (kind, target, who, amount, at) = match self.what {
            What::Produce { partition: PartitionId(id), bytes } => (0, id, 0, bytes, 0),
            What::Fetch { partition: PartitionId(id), from, least } => (1, id, 0, least, from),
            What::Follow { partition: PartitionId(id), follower, from, least } => {
                (2, id, follower, least, from)
            }
            What::Join { group: GroupId(id), member, generation } => (3, id, member, 0, generation),
        };
        let mut bytes = [0; REQUEST];
        for (place, word) in
            bytes.chunks_mut(4).zip([self.number, self.timeout_ms, kind, target, who, amount])
        {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes[24..].copy_from_slice(&at.to_le_bytes());
        small::send(stream, &bytes)
    }

    /// `None` if these bytes are no request.
    pub(crate) fn of(bytes: [u8; REQUEST]) -> Option<Self> {
        let [number, timeout_ms, kind, target, who, amount] =
            [0, 4, 8, 12, 16, 20].map(|at| word(&bytes, at));
        let at = long(&bytes, 24);
        let partition = PartitionId(target);
        let what = match kind {
            0 => What::Produce { partition, bytes: amount },
            1 => What::Fetch { partition, from: at, least: amount },
            2 => What::Follow { partition, follower: who, from: at, least: amount },
            3 => What::Join { group: GroupId(target), member: who, generation: at },
            _ => return None,
        };
        Some(Self { number, timeout_ms, what })
    }
}

impl What {
    /// The number of the partition or the group.
    pub(crate) fn target(self) -> u32 {
        match self {
            Self::Produce { partition: PartitionId(id), .. }
            | Self::Fetch { partition: PartitionId(id), .. }
            | Self::Follow { partition: PartitionId(id), .. }
            | Self::Join { group: GroupId(id), .. } => id,
        }
    }
}

impl Answer {
    pub(crate) fn send(self, stream: &mut impl Write) -> io::Result<()> {
        let mut bytes = [0; ANSWER];
        bytes[..4].copy_from_slice(&self.number.to_le_bytes());
        bytes[4] = u8::from(self.how == How::TimedOut);
        bytes[8..].copy_from_slice(&self.at.to_le_bytes());
        small::send(stream, &bytes)
    }

    pub(crate) fn of(bytes: [u8; ANSWER]) -> Self {
        let how = if bytes[4] == 0 { How::Condition } else { How::TimedOut };
        Self { number: word(&bytes, 0), how, at: long(&bytes, 8) }
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Cuts what arrives into messages of one length.
#[derive(Debug)]
pub(crate) struct Messages<const LENGTH: usize> {
    bytes: [u8; LENGTH],
    /// How many of them are there.
    there: usize,
}

/// What a non-blocking read found.
pub(crate) enum Heard<const LENGTH: usize> {
    Message([u8; LENGTH]),
    /// Nothing more for now.
    Nothing,
    /// The other end has closed the connection, or it has broken.
    End,
}

impl<const LENGTH: usize> Messages<LENGTH> {
    pub(crate) fn new() -> Self {
        Self { bytes: [0; LENGTH], there: 0 }
    }

    pub(crate) fn next(&mut self, stream: &mut impl Read) -> Heard<LENGTH> {
        while self.there < LENGTH {
            match stream.read(&mut self.bytes[self.there..]) {
                Ok(0) => return Heard::End,
                Ok(length) => self.there += length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Heard::Nothing,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Heard::End,
            }
        }
        self.there = 0;
        Heard::Message(self.bytes)
    }
}
