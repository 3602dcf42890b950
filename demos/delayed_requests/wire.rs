//! The protocol: requests and answers as lines of JSON.

use std::io;

use mio::net::TcpStream;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::common::server;

#[derive(Clone, Copy, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub(crate) enum Kind {
    /// Appends `position` bytes, and waits until all followers have them.
    Produce,
    /// Waits until all followers have the log up to `position`.
    Fetch,
    /// Says that the follower has the log up to `position`, and waits for more.
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
    pub(crate) position: u64,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Answer {
    pub(crate) number: usize,
    pub(crate) is_timed_out: bool,
    /// The end of the log as far as the client may know it.
    pub(crate) position: u64,
}

pub(crate) fn line(message: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).expect("plain numbers");
    line.push(b'\n');
    line
}

/// The bytes received of the next messages.
#[derive(Debug, Default)]
pub(crate) struct Messages(Vec<u8>);

impl Messages {
    /// Reads the next message. `None` if it has not arrived, and an error if the connection has
    /// ended.
    pub(crate) fn receive<M: DeserializeOwned>(
        &mut self,
        mut stream: &TcpStream,
    ) -> io::Result<Option<M>> {
        let Self(bytes) = self;
        loop {
            if let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
                let message = serde_json::from_slice(&bytes[..end])?;
                bytes.drain(..=end);
                return Ok(Some(message));
            }
            let mut buffer = [0; 1_024];
            let Some(length) = server::receive(&mut stream, &mut buffer)? else { return Ok(None) };
            bytes.extend_from_slice(&buffer[..length]);
        }
    }
}
