//! One client: what it sends is read, carried out and answered in order, and nothing of it is without a bound.
//!
//! ```text
//! bytes --> input --> commands --> dispatch        read only while there is room for the answers
//!                                     |
//! bytes <-- replies <-----------------+            a client that does not read its answers is not read either
//! ```
//!
//! Its idle timer begins anew with every byte that goes either way.

use std::io::{self, ErrorKind, Read, Write};
use std::time::Duration;

use corewheel::LocalHandle;
use mio::net::TcpStream;

use crate::dispatch::Dispatch;
use crate::input::Input;
use crate::replies::Replies;
use crate::reply::Reply;
use crate::session::After;

/// No further command is taken while so many bytes have not been sent.
const OWED_MAX: usize = 256 << 10;
/// Commands that were taken before may be answered at length; who is owed this much is let go of.
const OWED_END: usize = 32 << 20;

pub(crate) struct Connection {
    stream: TcpStream,
    id: u64,
    input: Input,
    replies: Replies,
    idle: LocalHandle,
    arrived: Arrived,
    /// It ends when it has been answered.
    is_leaving: bool,
    is_ready: bool,
}

/// What the poll has announced and nobody has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrived {
    Nothing,
    Bytes,
    /// Bytes, perhaps, and the end. It is announced only once.
    End,
}

/// What has come of serving a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    /// There is nothing to do before somebody is heard of.
    Waits,
    /// It has had its share.
    HasMore,
    Ends,
}

/// Why no further command was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stopped {
    /// The next one is not complete.
    ForBytes,
    /// There is no room for its answer.
    ForRoom,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream, id: u64, idle: LocalHandle) -> Self {
        let (input, replies) = (Input::new(), Replies::new());
        Self {
            stream,
            id,
            input,
            replies,
            idle,
            arrived: Arrived::Nothing,
            is_leaving: false,
            is_ready: false,
        }
    }

    /// A number that no other connection of this core has had.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The poll has announced bytes, perhaps the last ones.
    pub(crate) fn may_read(&mut self, is_end: bool) {
        if self.arrived != Arrived::End {
            self.arrived = if is_end { Arrived::End } else { Arrived::Bytes };
        }
    }

    pub(crate) fn deliver(&mut self, answer: u64, part: usize, bytes: &[u8]) {
        self.replies.deliver(answer, part, bytes);
    }

    /// Whether it was not ready before.
    pub(crate) fn becomes_ready(&mut self) -> bool {
        !std::mem::replace(&mut self.is_ready, true)
    }

    pub(crate) fn begins(&mut self) {
        self.is_ready = false;
    }

    pub(crate) fn end_idle_timer(&self) {
        // Where it is this timer that ends the connection, there is nothing left to cancel.
        self.idle.cancel();
    }

    /// Reads once, takes the commands that are there, and sends what can be sent.
    pub(crate) fn serve(
        &mut self,
        dispatch: &mut Dispatch<'_>,
        scratch: &mut [u8],
        idle: Duration,
    ) -> Served {
        match self.go_on(dispatch, scratch) {
            Err(_) => Served::Ends,
            Ok(_) if self.replies.owed() > OWED_END => Served::Ends,
            Ok(_) if self.is_leaving && self.replies.is_empty() => Served::Ends,
            Ok(progress) => {
                if progress.bytes > 0 && !self.idle.reset(idle) {
                    return Served::Ends;
                }
                if progress.has_more { Served::HasMore } else { Served::Waits }
            }
        }
    }

    fn go_on(&mut self, dispatch: &mut Dispatch<'_>, scratch: &mut [u8]) -> io::Result<Progress> {
        let mut stopped = self.take_commands(dispatch);
        let mut bytes = 0;
        if stopped == Stopped::ForBytes && self.arrived != Arrived::Nothing && !self.is_leaving {
            bytes += self.read(scratch)?;
            stopped = self.take_commands(dispatch);
        }
        bytes += self.send()?;
        let can_go_on = match stopped {
            Stopped::ForBytes => self.arrived != Arrived::Nothing,
            Stopped::ForRoom => self.has_room(dispatch),
        };
        let crowded = stopped == Stopped::ForRoom && !dispatch.has_room();
        Ok(Progress { bytes, has_more: !self.is_leaving && (can_go_on || crowded) })
    }

    fn take_commands(&mut self, dispatch: &mut Dispatch<'_>) -> Stopped {
        while !self.is_leaving {
            if !self.has_room(dispatch) {
                return Stopped::ForRoom;
            }
            match self.input.next() {
                Ok(Some(words)) => {
                    self.is_leaving = dispatch.command(words, &mut self.replies) == After::Leave;
                }
                Ok(None) => break,
                Err(malformed) => {
                    self.replies.write(|out| Reply(out).error(&malformed));
                    self.is_leaving = true;
                }
            }
        }
        Stopped::ForBytes
    }

    fn has_room(&self, dispatch: &Dispatch<'_>) -> bool {
        self.replies.has_room() && self.replies.owed() < OWED_MAX && dispatch.has_room()
    }

    /// Reads what there is, up to the scratch's length.
    fn read(&mut self, scratch: &mut [u8]) -> io::Result<usize> {
        match unless_blocked(self.stream.read(scratch))? {
            Some(0) => {
                // The client sends nothing more; it may still read.
                self.is_leaving = true;
                Ok(0)
            }
            Some(length) => {
                self.input.push(&scratch[..length]);
                if length < scratch.len() {
                    self.has_read_all();
                }
                Ok(length)
            }
            None => {
                self.has_read_all();
                Ok(0)
            }
        }
    }

    /// No bytes are there, but the end may be.
    fn has_read_all(&mut self) {
        if self.arrived == Arrived::Bytes {
            self.arrived = Arrived::Nothing;
        }
    }

    /// Sends until the client's side is full.
    fn send(&mut self) -> io::Result<usize> {
        let mut sent = 0;
        while !self.replies.unsent().is_empty() {
            match unless_blocked(self.stream.write(self.replies.unsent()))? {
                Some(0) => return Err(ErrorKind::WriteZero.into()),
                Some(length) => {
                    self.replies.sent(length);
                    sent += length;
                }
                None => break,
            }
        }
        Ok(sent)
    }
}

/// Bytes that went either way, and whether it could go on at once.
struct Progress {
    bytes: usize,
    has_more: bool,
}

/// `None` if the other side must be waited for.
fn unless_blocked(done: io::Result<usize>) -> io::Result<Option<usize>> {
    match done {
        Ok(length) => Ok(Some(length)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
