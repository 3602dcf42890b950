//! The protocol: a client sends packets, each the number of the connection, and the server echoes every byte.

use std::io::{ErrorKind, Read};

pub(crate) const LENGTH: usize = 4;

pub(crate) fn of(id: u32) -> [u8; LENGTH] {
    id.to_le_bytes()
}

pub(crate) fn id(packet: [u8; LENGTH]) -> u32 {
    u32::from_le_bytes(packet)
}

/// What a non-blocking read found.
pub(crate) enum Heard {
    Bytes(usize),
    /// Nothing more for now.
    Nothing,
    /// The other end has closed the connection, or it has broken.
    End,
}

pub(crate) fn receive(stream: &mut impl Read, buffer: &mut [u8]) -> Heard {
    loop {
        return match stream.read(buffer) {
            Ok(0) => Heard::End,
            Ok(length) => Heard::Bytes(length),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Heard::Nothing,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => Heard::End,
        };
    }
}
