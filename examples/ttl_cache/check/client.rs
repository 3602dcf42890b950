//! A client of the check: it blocks, and reads what the server writes by its own means.

use std::fmt::{self, Display, Formatter};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A server that has not answered by then will not.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
    out: Vec<u8>,
}

/// What a server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Simple(String),
    Error(String),
    Integer(i64),
    Nil,
    Bulk(String),
    Array(Vec<Self>),
}

impl Client {
    pub(crate) fn connect(server: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream: BufReader::with_capacity(64 << 10, stream), out: Vec::new() })
    }

    /// Asks for something and waits for the answer.
    pub(crate) fn ask(&mut self, words: &[&str]) -> io::Result<Answer> {
        self.put(words);
        self.send()?;
        self.answer()
    }

    /// A command that is sent with the next ones.
    pub(crate) fn put(&mut self, words: &[&str]) {
        // Writing to a vector cannot fail.
        let _ = write!(self.out, "*{}\r\n", words.len());
        for word in words {
            let _ = write!(self.out, "${}\r\n{word}\r\n", word.len());
        }
    }

    /// Sends the commands that were put.
    pub(crate) fn send(&mut self) -> io::Result<()> {
        self.stream.get_mut().write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    pub(crate) fn stream(&mut self) -> &mut TcpStream {
        self.stream.get_mut()
    }

    /// The next answer.
    pub(crate) fn answer(&mut self) -> io::Result<Answer> {
        let line = self.line()?;
        let (kind, rest) = line.split_at_checked(1).ok_or_else(nonsense)?;
        Ok(match kind {
            "+" => Answer::Simple(rest.to_owned()),
            "-" => Answer::Error(rest.to_owned()),
            ":" => Answer::Integer(number(rest)?),
            "$" => self.bulk(number(rest)?)?,
            "*" => {
                Answer::Array((0..number(rest)?).map(|_| self.answer()).collect::<io::Result<_>>()?)
            }
            _ => return Err(nonsense()),
        })
    }

    /// Waits until the server has closed the connection; whether it has said anything before.
    pub(crate) fn wait_for_end(&mut self) -> io::Result<bool> {
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).map(|bytes| bytes > 0)
    }

    fn bulk(&mut self, length: i64) -> io::Result<Answer> {
        let Ok(length) = usize::try_from(length) else { return Ok(Answer::Nil) };
        let mut bytes = vec![0; length + 2];
        self.stream.read_exact(&mut bytes)?;
        bytes.truncate(length);
        Ok(Answer::Bulk(String::from_utf8_lossy(&bytes).into_owned()))
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        line.truncate(line.trim_end().len());
        Ok(line)
    }
}

fn number(digits: &str) -> io::Result<i64> {
    digits.parse().map_err(|_| nonsense())
}

fn nonsense() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the server's answer is no RESP")
}

/// About as redis-cli shows it.
impl Display for Answer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Simple(text) | Self::Bulk(text) => f.write_str(text),
            Self::Error(why) => write!(f, "-{why}"),
            Self::Integer(number) => write!(f, ":{number}"),
            Self::Nil => f.write_str("nil"),
            Self::Array(answers) => {
                let answers: Vec<_> = answers.iter().map(Self::to_string).collect();
                write!(f, "[{}]", answers.join(" "))
            }
        }
    }
}
