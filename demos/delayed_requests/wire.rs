//! The protocol: requests and answers as lines of JSON.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub(crate) enum Kind {
    /// Appends `position` bytes, and waits until all followers have them.
    Produce,
    /// Waits until all followers have the log up to `position`.
    Fetch,
    /// Reports that the follower has the log up to `position`, and waits for more.
    Follow,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Request {
    /// The index of the request within its connection.
    pub(crate) number: usize,
    pub(crate) timeout_ms: u64,
    pub(crate) kind: Kind,
    pub(crate) partition: u32,
    pub(crate) follower: u32,
    /// A position in the log, or for `Produce` the number of bytes to append.
    pub(crate) position: u64,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Answer {
    pub(crate) number: usize,
    pub(crate) is_timed_out: bool,
    /// The end of the bytes that the client may read or has produced.
    pub(crate) position: u64,
}

pub(crate) fn encode_line(message: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).expect("plain numbers");
    line.push(b'\n');
    line
}
