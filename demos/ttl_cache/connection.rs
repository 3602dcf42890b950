//! One client: reads its commands, executes them, and sends the answers in order. The memory is
//! bounded: bytes are read only after all earlier commands have been answered.
//!
//! A connection ends if no byte is read or written for the idle timeout.

use std::io::{self, ErrorKind};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use corewheel::future::timeout;
use resp_rs::ParseError;
use resp_rs::resp2::{self, Frame, Parser};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::commands::error_frame;
use crate::worker::Worker;

/// The maximum number of bytes of an incomplete command. A longer one is a protocol error.
const INCOMPLETE_MAX: usize = 1 << 20;
/// The maximum number of commands that are executed together.
const BATCH: usize = 256;
const READ_MAX: usize = 16 << 10;
/// Answers are sent before their batch is complete if they have at least this many bytes.
const WRITE_MIN: usize = 256 << 10;

/// Serves a client until it disconnects or is idle.
pub(crate) async fn serve(mut stream: TcpStream, core: &Worker, idle: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut parser = Parser::new();
    loop {
        let (mut commands, mut refused, mut is_leaving) = (Vec::new(), None, false);
        while commands.len() < BATCH && !is_leaving {
            match next_command(&mut parser) {
                Ok(Some(words)) => {
                    is_leaving = words.first().is_some_and(|it| it.eq_ignore_ascii_case(b"quit"));
                    commands.extend((!words.is_empty()).then_some(words));
                }
                Ok(None) => break,
                Err(why) => {
                    refused = Some(error_frame(format!("ERR Protocol error: {why}")));
                    is_leaving = true;
                }
            }
        }
        if commands.is_empty() && !is_leaving {
            let mut received = BytesMut::with_capacity(READ_MAX);
            if timeout(idle, stream.read_buf(&mut received)).await?? == 0 {
                return Ok(());
            }
            parser.feed(received.freeze());
            continue;
        }
        let mut output = BytesMut::new();
        for answer in core.answer_commands(&commands).await.into_iter().chain(refused) {
            output.extend_from_slice(&resp2::frame_to_bytes(&answer));
            if output.len() >= WRITE_MIN {
                send(&mut stream, &mut output, idle).await?;
            }
        }
        send(&mut stream, &mut output, idle).await?;
        if is_leaving {
            return Ok(());
        }
    }
}

async fn send(stream: &mut TcpStream, output: &mut BytesMut, idle: Duration) -> io::Result<()> {
    while !output.is_empty() {
        if timeout(idle, stream.write_buf(output)).await?? == 0 {
            return Err(ErrorKind::WriteZero.into());
        }
    }
    Ok(())
}

/// Returns the words of the next command, perhaps zero words. Returns `None` if the command is
/// incomplete.
fn next_command(parser: &mut Parser) -> Result<Option<Vec<Bytes>>, ParseError> {
    let Some(frame) = parser.next_frame()? else {
        let is_long = parser.buffered_bytes() > INCOMPLETE_MAX;
        return if is_long { Err(ParseError::BadLength) } else { Ok(None) };
    };
    let words = frame.into_array().map_err(|_| ParseError::InvalidFormat)?.into_iter();
    let words = words.map(Frame::into_bulk_string).collect::<Result<_, _>>();
    words.map(Some).map_err(|_| ParseError::InvalidFormat)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_and_long_commands_are_refused() {
        let malformed =
            ["*x\r\n", "*1\r\n:1\r\n", "*1\r\n$-1\r\n", "*1\r\n$1\r\nabc", "+OK\r\n", "PING\r\n"];
        let long = ["*1\r\n$2000000\r\n", &"a".repeat(INCOMPLETE_MAX)].concat();
        for refused in malformed.into_iter().chain([&long[..]]) {
            let mut parser = Parser::new();
            parser.feed(Bytes::copy_from_slice(refused.as_bytes()));
            assert!(next_command(&mut parser).is_err(), "{refused:.20?}");
        }
    }
}
