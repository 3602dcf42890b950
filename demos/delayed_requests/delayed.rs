//! The requests that wait: each knows its condition, and whom to answer. This is how the library is used.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use corewheel::{Completion, DelayedOperation, local_timer};
use mio::net::TcpStream;

use crate::board::Board;
use crate::log::{GroupId, Log, PartitionId};
use crate::wire::{Answer, How};

/// Waits until all followers have what it has appended.
pub(crate) struct DelayedProduce {
    pub(crate) log: Arc<Log>,
    pub(crate) partition: PartitionId,
    /// Where the log ended with it.
    pub(crate) end: u64,
    pub(crate) reply: Reply,
}

/// Waits until there is enough to read.
pub(crate) struct DelayedFetch {
    pub(crate) log: Arc<Log>,
    pub(crate) partition: PartitionId,
    pub(crate) reader: Reader,
    /// How far it must be readable: where it begins, and the least number of bytes.
    pub(crate) wanted: u64,
    pub(crate) reply: Reply,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Reader {
    /// May read all that has been appended.
    Follower,
    /// May read what all followers have.
    Consumer,
}

/// Waits until all members of the group are in.
pub(crate) struct DelayedJoin {
    pub(crate) log: Arc<Log>,
    pub(crate) group: GroupId,
    pub(crate) generation: u64,
    pub(crate) reply: Reply,
}

impl DelayedOperation for DelayedProduce {
    fn try_complete(&mut self) -> bool {
        self.log
            .partition(self.partition)
            .is_some_and(|partition| partition.replicated() >= self.end)
    }

    fn on_complete(self, how: Completion) {
        self.reply.send(how, self.end);
    }
}

impl DelayedFetch {
    fn readable(&self) -> u64 {
        self.log.partition(self.partition).map_or(0, |partition| match self.reader {
            Reader::Follower => partition.end(),
            Reader::Consumer => partition.replicated(),
        })
    }
}

impl DelayedOperation for DelayedFetch {
    fn try_complete(&mut self) -> bool {
        self.readable() >= self.wanted
    }

    fn on_complete(self, how: Completion) {
        // Who has waited in vain gets what there is.
        let readable = self.readable();
        self.reply.send(how, readable);
    }
}

impl DelayedOperation for DelayedJoin {
    fn try_complete(&mut self) -> bool {
        self.log.group(self.group).is_some_and(|group| group.is_complete(self.generation))
    }

    fn on_complete(self, how: Completion) {
        self.reply.send(how, self.generation);
    }
}

/// How a request is answered, on the core of its connection.
pub(crate) struct Reply {
    pub(crate) stream: Rc<TcpStream>,
    pub(crate) number: u32,
    /// When it times out.
    pub(crate) deadline: Instant,
    pub(crate) board: Arc<Board>,
    pub(crate) core: usize,
}

impl Reply {
    fn send(self, completion: Completion, at: u64) {
        let how = match completion {
            Completion::Condition | Completion::Forced => How::Condition,
            Completion::Expired => How::TimedOut,
        };
        if how == How::TimedOut {
            let late = local_timer().now().saturating_duration_since(self.deadline);
            self.board.cores[self.core].note_lateness(late);
        }
        // A client that has gone is not told; the verdict will miss the answer.
        let _ = Answer { number: self.number, how, at }.send(&mut &*self.stream);
    }
}
