//! Small messages: sent as a whole, or not at all.

use std::io::{self, ErrorKind, Write};

/// Sends all of it at once, or fails: who does not read what he has asked for, until the buffers between are full of
/// these few bytes, is not waited for.
pub(crate) fn send(stream: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    match stream.write(bytes) {
        Ok(length) if length == bytes.len() => Ok(()),
        Ok(_) => Err(ErrorKind::WriteZero.into()),
        Err(error) => Err(error),
    }
}
