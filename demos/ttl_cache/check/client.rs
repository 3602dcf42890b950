//! The client with which the check sends commands to the server. Its reads and writes block.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use resp_rs::resp2::{self, Frame, Parser};

const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

pub(super) struct Client {
    pub(super) stream: TcpStream,
    parser: Parser,
    buffer: Vec<u8>,
    output: Vec<u8>,
}

impl Client {
    pub(super) fn connect(server: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        Ok(Self { stream, parser: Parser::new(), buffer: vec![0; 64 << 10], output: Vec::new() })
    }

    /// Sends a command, whose words are separated by blanks, and waits for the answer.
    pub(super) fn ask(&mut self, command: &str) -> io::Result<Frame> {
        self.enqueue(command);
        self.send()?;
        self.read_answer()
    }

    pub(super) fn enqueue(&mut self, command: &str) {
        let words = command.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes()));
        let words = words.map(|word| Frame::BulkString(Some(word))).collect();
        self.output.extend_from_slice(&resp2::frame_to_bytes(&Frame::Array(Some(words))));
    }

    pub(super) fn send(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.output)?;
        self.output.clear();
        Ok(())
    }

    pub(super) fn read_answer(&mut self) -> io::Result<Frame> {
        loop {
            if let Some(frame) = self.parser.next_frame().map_err(io::Error::other)? {
                return Ok(frame);
            }
            match self.stream.read(&mut self.buffer)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                length => self.parser.feed(Bytes::copy_from_slice(&self.buffer[..length])),
            }
        }
    }

    pub(super) fn key_count(&mut self) -> io::Result<u32> {
        let answer = self.ask("DBSIZE")?;
        let key_count = answer.as_integer().and_then(|key_count| key_count.try_into().ok());
        key_count.ok_or_else(|| {
            io::Error::other(format!("DBSIZE was answered {}", format_answer(&answer)))
        })
    }

    /// Waits until the server closes the connection. Returns true if bytes arrived before.
    pub(super) fn wait_for_end(&mut self) -> io::Result<bool> {
        self.stream.read_to_end(&mut Vec::new()).map(|length| length > 0)
    }
}

/// Formats an answer, similar to redis-cli.
pub(super) fn format_answer(answer: &Frame) -> String {
    match answer {
        Frame::SimpleString(text) | Frame::BulkString(Some(text)) => {
            String::from_utf8_lossy(text).into_owned()
        }
        Frame::Error(why) => format!("-{}", String::from_utf8_lossy(why)),
        Frame::Integer(number) => format!(":{number}"),
        Frame::BulkString(None) | Frame::Array(None) => "nil".into(),
        Frame::Array(Some(items)) => {
            format!("[{}]", items.iter().map(format_answer).collect::<Vec<_>>().join(" "))
        }
    }
}
