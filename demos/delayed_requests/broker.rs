//! The requests of one core: each changes the log, parks until its condition holds, and tells those who wait for the change.
//!
//! ```text
//! produce  appends                            waits for the followers   tells who fetches
//! follow   says what the follower has         waits for bytes           tells who produces, and who fetches
//! fetch                                       waits for bytes
//! join     says who is in                     waits for all members     tells who joins
//! ```
//!
//! A request waits on the core of its connection, with a watch on the core of its partition or group, which is often
//! another one; the purgatories see to it.

use std::ops::AddAssign;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use corewheel::{AddError, Core, Outcome, Purgatory, PurgatoryCounts, PurgatoryGroup, local_timer};
use mio::net::TcpStream;
use serde::Serialize;

use crate::board::Board;
use crate::delayed::{DelayedFetch, DelayedJoin, DelayedProduce, Reader, Reply};
use crate::log::{GroupId, Log, PartitionId};
use crate::wire::{Request, What};

/// The purgatories of all cores, and which core a partition or a group belongs to.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    produces: PurgatoryGroup<PartitionId>,
    fetches: PurgatoryGroup<PartitionId>,
    joins: PurgatoryGroup<GroupId>,
}

/// One core's part.
pub(crate) struct Broker {
    produces: Purgatory<PartitionId, DelayedProduce>,
    fetches: Purgatory<PartitionId, DelayedFetch>,
    joins: Purgatory<GroupId, DelayedJoin>,
    log: Arc<Log>,
    board: Arc<Board>,
    core: usize,
    cores: usize,
    /// Requests whose partition or group belongs to another core.
    elsewhere: u64,
}

/// A request that cannot be served: it makes no sense, or there is no place for it.
#[derive(Debug)]
pub(crate) struct Refused;

impl<T> From<AddError<T>> for Refused {
    fn from(_: AddError<T>) -> Self {
        Self
    }
}

impl Waiting {
    pub(crate) fn new() -> Self {
        Self {
            produces: PurgatoryGroup::by(|&PartitionId(id)| id as usize),
            fetches: PurgatoryGroup::by(|&PartitionId(id)| id as usize),
            joins: PurgatoryGroup::by(|&GroupId(id)| id as usize),
        }
    }
}

impl Broker {
    pub(crate) fn new(waiting: &Waiting, core: &Core, log: Arc<Log>, board: Arc<Board>) -> Self {
        let (index, shards) = (core.index(), core.shards());
        Self {
            produces: waiting.produces.join(index, shards),
            fetches: waiting.fetches.join(index, shards),
            joins: waiting.joins.join(index, shards),
            log,
            board,
            core: index,
            cores: shards.len(),
            elsewhere: 0,
        }
    }

    /// Does what is asked; the answer comes when it is complete, here and now or later.
    pub(crate) fn serve(
        &mut self,
        request: Request,
        stream: &Rc<TcpStream>,
    ) -> Result<(), Refused> {
        let timeout = Duration::from_millis(request.timeout_ms.into());
        let reply = Reply {
            stream: Rc::clone(stream),
            number: request.number,
            deadline: local_timer().now() + timeout,
            board: Arc::clone(&self.board),
            core: self.core,
        };
        self.elsewhere += u64::from(request.what.target() as usize % self.cores != self.core);
        // Whether it waits or is complete already is all the same here: the answer says it.
        let _: Outcome = match request.what {
            What::Produce { partition, bytes } => self.produce(partition, bytes, reply, timeout)?,
            What::Fetch { partition, from, least } => {
                self.fetch(partition, Reader::Consumer, from + u64::from(least), reply, timeout)?
            }
            What::Follow { partition, follower, from, least } => {
                self.follow(partition, follower, from)?;
                self.fetch(partition, Reader::Follower, from + u64::from(least), reply, timeout)?
            }
            What::Join { group, member, generation } => {
                self.join(group, member, generation, reply, timeout)?
            }
        };
        Ok(())
    }

    fn produce(
        &self,
        id: PartitionId,
        bytes: u32,
        reply: Reply,
        timeout: Duration,
    ) -> Result<Outcome, Refused> {
        let end = self.log.partition(id).ok_or(Refused)?.append(bytes);
        self.fetches.notify(&id);
        let produce = DelayedProduce { log: Arc::clone(&self.log), partition: id, end, reply };
        Ok(self.produces.try_complete_else_watch(produce, [id], timeout)?)
    }

    /// A follower has all that comes before.
    ///
    /// That is told in any case. To ask first whether it was the last of the followers would be a mistake: of two that
    /// come at once on two cores, neither might see the other. The events meet on the partition's core.
    fn follow(&self, id: PartitionId, follower: u32, from: u64) -> Result<(), Refused> {
        if !self.log.partition(id).ok_or(Refused)?.follow(follower, from) {
            return Err(Refused);
        }
        self.produces.notify(&id);
        self.fetches.notify(&id);
        Ok(())
    }

    fn fetch(
        &self,
        id: PartitionId,
        reader: Reader,
        wanted: u64,
        reply: Reply,
        timeout: Duration,
    ) -> Result<Outcome, Refused> {
        self.log.partition(id).ok_or(Refused)?;
        let fetch =
            DelayedFetch { log: Arc::clone(&self.log), partition: id, reader, wanted, reply };
        Ok(self.fetches.try_complete_else_watch(fetch, [id], timeout)?)
    }

    fn join(
        &self,
        id: GroupId,
        member: u32,
        generation: u64,
        reply: Reply,
        timeout: Duration,
    ) -> Result<Outcome, Refused> {
        if !self.log.group(id).ok_or(Refused)?.join(member, generation) {
            return Err(Refused);
        }
        self.joins.notify(&id);
        let join = DelayedJoin { log: Arc::clone(&self.log), group: id, generation, reply };
        Ok(self.joins.try_complete_else_watch(join, [id], timeout)?)
    }

    /// What has become of all operations of this core.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals { elsewhere: self.elsewhere, ..Totals::default() };
        for counts in [self.produces.counts(), self.fetches.counts(), self.joins.counts()] {
            totals.take_in(&counts);
        }
        totals
    }
}

/// The counts of several purgatories together.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Totals {
    pub(crate) added: u64,
    pub(crate) by_condition: u64,
    pub(crate) expired: u64,
    /// Forced or handed back, which nothing here asks for.
    pub(crate) otherwise: u64,
    pub(crate) live: u64,
    pub(crate) watches: u64,
    /// Requests whose partition or group belongs to another core than their connection.
    pub(crate) elsewhere: u64,
}

impl Totals {
    fn take_in(&mut self, counts: &PurgatoryCounts) {
        self.added += counts.added;
        self.by_condition += counts.by_condition;
        self.expired += counts.expired;
        self.otherwise += counts.forced + counts.handed_back;
        self.live += counts.live;
        self.watches += counts.watches;
    }
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.added += other.added;
        self.by_condition += other.by_condition;
        self.expired += other.expired;
        self.otherwise += other.otherwise;
        self.live += other.live;
        self.watches += other.watches;
        self.elsewhere += other.elsewhere;
    }
}
