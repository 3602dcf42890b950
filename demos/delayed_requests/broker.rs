//! The requests of one core. A request may change the log and notify requests that wait for the
//! change. Then the request waits for a change itself:
//!
//! ```text
//! produce  appends                          notifies readers                 waits for followers
//! follow   reports a follower's position    notifies producers and readers   waits for bytes
//! fetch                                                                      waits for bytes
//! ```
//!
//! A request waits on the core of its connection, with a watch on the core of its partition. If
//! these are different cores, the purgatories send messages between them.

use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use corewheel::Core;
use corewheel::purgatory::{Completion, DelayedOperation, Purgatory, PurgatoryGroup};
use tokio::net::tcp::OwnedWriteHalf;

use crate::log::Log;
use crate::wire::{self, Answer, Kind, Request};

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Key {
    Producers(u32),
    Readers(u32),
}

/// Returns the group of all cores' purgatories. Partition `n` belongs to core `n` modulo the number
/// of cores.
pub(crate) fn purgatory_group() -> PurgatoryGroup<Key> {
    PurgatoryGroup::partitioned_by(|key| match *key {
        Key::Producers(partition) | Key::Readers(partition) => partition as usize,
    })
}

pub(crate) struct DelayedRequest {
    log: Arc<Log>,
    request: Request,
    required_position: u64,
    stream: Rc<OwnedWriteHalf>,
}

impl DelayedRequest {
    /// Returns the current position, which must reach `required_position`.
    fn current_position(&self) -> u64 {
        let Request { kind, partition, .. } = self.request;
        let Some(partition) = self.log.get(partition as usize) else { return 0 };
        match kind {
            Kind::Produce | Kind::Fetch => partition.replicated_end(),
            Kind::Follow => partition.end(),
        }
    }
}

impl DelayedOperation for DelayedRequest {
    fn try_complete(&mut self) -> bool {
        self.current_position() >= self.required_position
    }

    fn on_complete(self, how: Completion) {
        let Request { number, kind, .. } = self.request;
        // The answer to a producer is the end of its bytes. The answer to a reader is the end of
        // the readable bytes.
        let position =
            if kind == Kind::Produce { self.required_position } else { self.current_position() };
        let is_timed_out = how == Completion::Expired;
        // Fails if the client has disconnected or reads too slowly. The verdict reports this.
        let answer = wire::encode_line(&Answer { number, is_timed_out, position });
        let _ = self.stream.try_write(&answer);
    }
}

pub(crate) struct Broker {
    pub(crate) purgatory: Purgatory<Key, DelayedRequest>,
    log: Arc<Log>,
    core: usize,
    cores: usize,
    /// The number of requests whose partition belongs to another core.
    pub(crate) foreign_requests: Cell<u64>,
}

impl Broker {
    pub(crate) fn new(purgatory: &PurgatoryGroup<Key>, core: &Core, log: Arc<Log>) -> Self {
        let (index, shards) = (core.index(), core.shards());
        let purgatory = purgatory.join(index, shards);
        Self { purgatory, log, core: index, cores: shards.len(), foreign_requests: Cell::new(0) }
    }

    pub(crate) fn serve(&self, request: Request, stream: &Rc<OwnedWriteHalf>) -> io::Result<()> {
        let is_foreign = request.partition as usize % self.cores != self.core;
        self.foreign_requests.update(|count| count + u64::from(is_foreign));
        let (key, required_position) = self.apply_to_log(request).ok_or(ErrorKind::InvalidData)?;
        let (log, stream) = (Arc::clone(&self.log), Rc::clone(stream));
        let delayed = DelayedRequest { log, request, required_position, stream };
        let timeout = Duration::from_millis(request.timeout_ms);
        match self.purgatory.try_complete_else_watch(delayed, [key], timeout) {
            Ok(_completed_or_waits) => Ok(()),
            Err(_full) => Err(ErrorKind::OutOfMemory.into()),
        }
    }

    /// Applies the request to the log. Returns the key to watch, and the position to wait for.
    fn apply_to_log(&self, request: Request) -> Option<(Key, u64)> {
        let Request { kind, partition, follower, position, .. } = request;
        let data = self.log.get(partition as usize)?;
        let (producers, readers) = (Key::Producers(partition), Key::Readers(partition));
        Some(match kind {
            Kind::Produce => {
                let end = data.append(position);
                self.purgatory.notify(&readers);
                (producers, end)
            }
            Kind::Fetch => (readers, position),
            Kind::Follow => {
                data.advance_follower(follower, position)?;
                // Notifies even if the other follower seems to be behind: each of two concurrent
                // updates may read the old position of the other follower.
                self.purgatory.notify(&producers);
                self.purgatory.notify(&readers);
                (readers, position + 1)
            }
        })
    }
}
