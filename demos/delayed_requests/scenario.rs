//! The actions of the clients of a partition, and the expected answer to each request. The expected
//! answers do not depend on the machine's speed, unless the followers confirm bytes so late that a
//! request of a producer or consumer times out.
//!
//! In a *stall*, one follower confirms nothing. The stall is *contested* if it ends at about the
//! time when the producers' requests time out.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::{Duration, Instant};

use futures_util::future::{join, join_all};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::Notify;
use tokio::time::timeout_at;

use crate::client::{Client, ExpectedAnswer};
use crate::common::load::ActiveToken;
use crate::wire::Kind;

pub(crate) const FOLLOWERS: Range<usize> = 0..2;
/// The followers that never stall.
const STEADY_FOLLOWERS: Range<usize> = 0..1;
pub(crate) const PRODUCERS: Range<usize> = 2..6;
pub(crate) const CONSUMERS: Range<usize> = 6..10;

/// The maximum number of requests that a producer sends within one timeout.
const PRODUCES_PER_TIMEOUT: u32 = 5;
/// In a contested stall, the condition of a producer's request is planned to become true at most
/// this long before or after the request times out.
const CONTEST_MARGIN: Duration = Duration::from_millis(2);
const CONTEST_STEPS: u32 = 8;
/// How long the load waits for answers after the planned end.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The size of a record in bytes. A consumer waits for `RECORDS_WANTED` records, except in a stall.
const RECORD_BYTES: u64 = 100;
const RECORDS_WANTED: u64 = 3;

/// The size of the load and the times of its actions. Times count from the start of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) partitions: u32,
    /// The timeout of all requests except `Follow`.
    pub(crate) timeout: Duration,
    pub(crate) run: Duration,
}

impl Plan {
    pub(crate) fn connections(&self) -> usize {
        self.partitions as usize * CONSUMERS.end
    }

    /// Returns the latest time at which a stall may begin, so that the stall and the last timeouts
    /// of the followers precede the end of the run.
    pub(crate) fn last_stall_start(&self) -> Duration {
        self.run.saturating_sub(self.timeout + self.follower_timeout() + self.timeout / 2)
    }

    pub(crate) fn give_up_at(&self) -> Duration {
        self.run + ANSWER_TIMEOUT
    }

    /// Returns the timeout of `Follow` requests. It is longer than a stall, because the log does
    /// not grow before the stall ends.
    pub(crate) fn follower_timeout(&self) -> Duration {
        self.timeout * 2
    }

    pub(crate) fn pause(&self) -> Duration {
        self.timeout / PRODUCES_PER_TIMEOUT
    }

    /// Returns the planned time from a producer's request until its condition becomes true, in the
    /// contested stall with the number `stall`.
    pub(crate) fn contest_delay(&self, stall: u32) -> Duration {
        // `CONTEST_STEPS + 1` and 7 have no common divisor, so every step occurs.
        self.timeout.saturating_sub(CONTEST_MARGIN)
            + CONTEST_MARGIN * 2 * (stall * 7 % (CONTEST_STEPS + 1)) / CONTEST_STEPS
    }

    /// Returns the end of a partition's first round. The partitions do not all stall at once.
    pub(crate) fn first_round_end(&self, partition: u32) -> Duration {
        self.timeout + self.timeout * 2 * partition / self.partitions
    }
}

/// Performs the actions of a partition's clients. Then records late answers until the server ends.
pub(crate) async fn run(
    id: u32,
    plan: Plan,
    server: SocketAddr,
    (start, active_token): (Instant, ActiveToken),
) -> io::Result<Vec<Client>> {
    let (mut clients, mut readers) = (Vec::new(), Vec::new());
    for _ in 0..CONSUMERS.end {
        let stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        let (reader, stream) = stream.into_split();
        let records = Vec::new();
        clients.push(Client { stream, records, unexpected_answers: 0, is_idle: true, position: 0 });
        readers.push(BufReader::new(reader).lines());
    }
    let (clients, answered) = (RefCell::new(clients), Notify::new());
    let receive = async |(index, mut lines): (usize, Lines<BufReader<OwnedReadHalf>>)| {
        while let Ok(Some(line)) = lines.next_line().await
            && let Ok(answer) = serde_json::from_str(&line)
        {
            clients.borrow_mut()[index].record_answer(answer);
            answered.notify_one();
        }
    };
    let run_until_given_up = async {
        let next_produce = [0, 1, 2, 3].map(|producer| plan.pause() * producer / 4);
        let (clients, answered) = (&clients, &answered);
        let partition = PartitionClients { id, plan, start, clients, answered, next_produce };
        // The verdict reports unanswered requests.
        let _ = timeout_at((start + plan.give_up_at()).into(), partition.run_rounds()).await;
        drop(active_token);
    };
    join(run_until_given_up, join_all(readers.into_iter().enumerate().map(receive))).await;
    Ok(clients.into_inner())
}

/// The clients of a partition. They work in rounds, each of which ends with a stall of one
/// follower.
struct PartitionClients<'a> {
    id: u32,
    plan: Plan,
    start: Instant,
    clients: &'a RefCell<Vec<Client>>,
    answered: &'a Notify,
    /// The time from which each producer may produce again.
    next_produce: [Duration; PRODUCERS.end - PRODUCERS.start],
}

impl PartitionClients<'_> {
    async fn run_rounds(mut self) {
        let plan = self.plan;
        let mut round_end = plan.first_round_end(self.id);
        // Starts at a different number in each partition, so that the contests differ.
        for stall in self.id.. {
            while self.now() < round_end {
                self.follow(FOLLOWERS);
                self.fetch();
                let next = self.produce().min(round_end);
                self.wait(Some(next)).await;
            }
            // First the consumers and then the producers stop sending. Then both followers have
            // all records, and wait for more.
            while !self.are_idle(CONSUMERS) {
                self.follow(FOLLOWERS);
                let next = self.produce();
                self.wait(Some(next)).await;
            }
            while !self.are_idle(PRODUCERS) {
                self.follow(FOLLOWERS);
                self.wait(None).await;
            }
            if self.now() >= plan.last_stall_start() {
                break;
            }
            // One follower stalls. Each producer produces once, and each consumer requests more
            // than the producers append. In every other round, all these requests must time out
            // before the follower continues. The other rounds are contested: the follower continues
            // at about the time when the producers' requests time out.
            let contest_end = (stall % 2 == 1).then(|| self.now() + plan.contest_delay(stall));
            self.request_during_stall(contest_end.is_some());
            while !self.are_idle(PRODUCERS.start..CONSUMERS.end) {
                let is_stalled = contest_end.is_none_or(|contest_end| self.now() < contest_end);
                self.follow(if is_stalled { STEADY_FOLLOWERS } else { FOLLOWERS });
                self.wait(contest_end.filter(|_| is_stalled)).await;
            }
            // Every producer must have time to see that the followers have caught up.
            let now = self.now();
            round_end =
                (now + plan.timeout * 2).min(plan.last_stall_start()).max(now + plan.pause());
        }
        // No producer sends any more, so the last requests of the followers must time out.
        for follower in &mut self.clients.borrow_mut()[FOLLOWERS] {
            follower.expect_answer(ExpectedAnswer::Timeout);
        }
        while !self.are_idle(FOLLOWERS) {
            self.wait(None).await;
        }
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn are_idle(&self, clients: Range<usize>) -> bool {
        self.clients.borrow()[clients].iter().all(|client| client.is_idle)
    }

    /// Waits for an answer. Waits until `until` at most, counted from the start.
    async fn wait(&self, until: Option<Duration>) {
        let deadline = self.start + until.unwrap_or(self.plan.give_up_at());
        let _ = timeout_at(deadline.into(), self.answered.notified()).await;
    }

    fn send(&self, client: &mut Client, kind: Kind, position: u64, expected: ExpectedAnswer) {
        client.send(kind, (self.id, 0), position, self.plan.timeout, expected);
    }

    /// Lets each idle follower confirm its last answer and request more bytes.
    fn follow(&self, followers: Range<usize>) {
        for (follower, index) in self.clients.borrow_mut()[followers].iter_mut().zip(0..) {
            if follower.is_idle {
                let (target, timeout) = ((self.id, index), self.plan.follower_timeout());
                follower.send(
                    Kind::Follow,
                    target,
                    follower.position,
                    timeout,
                    ExpectedAnswer::Condition,
                );
            }
        }
    }

    fn fetch(&self) {
        let clients = &mut self.clients.borrow_mut()[CONSUMERS];
        for consumer in clients.iter_mut().filter(|consumer| consumer.is_idle) {
            let required_position = consumer.position + RECORD_BYTES * RECORDS_WANTED;
            self.send(consumer, Kind::Fetch, required_position, ExpectedAnswer::Condition);
        }
    }

    /// Lets each idle producer produce after its pause. Returns the earliest time at which a
    /// producer's pause ends, or a full pause from now if no producer pauses.
    fn produce(&mut self) -> Duration {
        let (now, full_pause_end) = (self.now(), self.now() + self.plan.pause());
        for (index, producer) in self.clients.borrow_mut()[PRODUCERS].iter_mut().enumerate() {
            if self.next_produce[index] <= now && producer.is_idle {
                self.send(producer, Kind::Produce, RECORD_BYTES, ExpectedAnswer::Condition);
                self.next_produce[index] = full_pause_end;
            }
        }
        // A producer that still waits after its pause produces when its answer arrives.
        self.next_produce.into_iter().filter(|moment| *moment > now).min().unwrap_or(full_pause_end)
    }

    /// Sends a request of every producer and consumer. No such request can complete during the
    /// stall.
    fn request_during_stall(&self, is_contested: bool) {
        let clients = &mut self.clients.borrow_mut();
        let producers = &mut clients[PRODUCERS];
        // All producers have been answered, so the largest position is the end of the log.
        let end = producers.iter().map(|producer| producer.position).max().unwrap_or(0);
        let beyond = end + RECORD_BYTES * producers.len() as u64 + 1;
        let expected = if is_contested { ExpectedAnswer::Either } else { ExpectedAnswer::Timeout };
        for producer in producers {
            self.send(producer, Kind::Produce, RECORD_BYTES, expected);
        }
        for consumer in &mut clients[CONSUMERS] {
            self.send(consumer, Kind::Fetch, beyond, ExpectedAnswer::Timeout);
        }
    }
}
