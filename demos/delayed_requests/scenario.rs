//! The actions of the clients of a partition, and the expected answer to each request.
//! They do not depend on the speed of the machine, except that a follower must take less than a
//! timeout.

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

use crate::client::{Client, Expected};
use crate::common::load::Acting;
use crate::wire::Kind;

/// The clients of a partition.
pub(crate) const FOLLOWERS: Range<usize> = 0..2;
pub(crate) const PRODUCERS: Range<usize> = 2..6;
pub(crate) const CONSUMERS: Range<usize> = 6..10;

/// How many requests a producer can send within one timeout.
const PRODUCES_PER_TIMEOUT: u32 = 5;
/// The largest distance between a contested condition and the timeout, and the number of steps from
/// one side to the other.
const CONTEST: Duration = Duration::from_millis(2);
const CONTEST_STEPS: u32 = 8;
/// How long the load waits after the planned end for answers.
const PATIENCE: Duration = Duration::from_secs(10);
/// The size of a record in bytes, and how many a consumer waits for while there are producers.
const RECORD: u64 = 100;
const RECORDS_WANTED: u64 = 3;
/// The follower that stalls.
const STALLING: u32 = 1;

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

    /// Returns the last time at which a round may begin. A round takes a timeout, and then the
    /// followers wait in vain.
    pub(crate) fn last_call(&self) -> Duration {
        self.run.saturating_sub(self.timeout + self.follower_timeout() + self.timeout / 2)
    }

    /// The load gives up at this time.
    pub(crate) fn give_up(&self) -> Duration {
        self.run + PATIENCE
    }

    /// A follower's request must outlast a stall of the other follower, during which nothing is
    /// appended.
    pub(crate) fn follower_timeout(&self) -> Duration {
        self.timeout * 2
    }

    /// How long a producer waits before its next request.
    pub(crate) fn pause(&self) -> Duration {
        self.timeout / PRODUCES_PER_TIMEOUT
    }

    /// How long after a request its contested condition comes true, in the stall of this number.
    pub(crate) fn contested(&self, stall: u32) -> Duration {
        // 7 and 9 have no common divisor, so every step occurs.
        self.timeout.saturating_sub(CONTEST)
            + CONTEST * 2 * (stall * 7 % (CONTEST_STEPS + 1)) / CONTEST_STEPS
    }

    /// When the first round of a partition ends. They should not all stall at once.
    pub(crate) fn first_round(&self, partition: u32) -> Duration {
        self.timeout + self.timeout * 2 * partition / self.partitions
    }
}

/// Performs the actions of the clients of a partition until all are done. Then notes late answers
/// until the server has ended. Returns the clients.
pub(crate) async fn run(
    id: u32,
    plan: Plan,
    server: SocketAddr,
    (start, acting): (Instant, Acting),
) -> io::Result<Vec<Client>> {
    let (mut clients, mut readers) = (Vec::new(), Vec::new());
    for _ in 0..CONSUMERS.end {
        let stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        let (reader, writer) = stream.into_split();
        clients.push(Client::new(writer));
        readers.push(BufReader::new(reader).lines());
    }
    let (clients, answered) = (RefCell::new(clients), Notify::new());
    let receive = async |(index, mut lines): (usize, Lines<BufReader<OwnedReadHalf>>)| {
        while let Ok(Some(line)) = lines.next_line().await
            && let Ok(answer) = serde_json::from_str(&line)
        {
            clients.borrow_mut()[index].note(answer);
            answered.notify_one();
        }
    };
    let act = async {
        let mut partition = Partition::new(id, plan);
        loop {
            let next = partition.act(&mut clients.borrow_mut(), start.elapsed());
            let is_over = partition.phase == Phase::Over && are_idle(&clients.borrow());
            if is_over || start.elapsed() >= plan.give_up() {
                break;
            }
            let next = start + next.unwrap_or(plan.give_up());
            let _ = timeout_at(next.into(), answered.notified()).await;
        }
        drop(acting);
    };
    join(act, join_all(readers.into_iter().enumerate().map(receive))).await;
    Ok(clients.into_inner())
}

fn are_idle(clients: &[Client]) -> bool {
    clients.iter().all(|client| client.is_idle)
}

/// The clients of a partition work in rounds, each of which ends with a stall of one follower.
struct Partition {
    id: u32,
    plan: Plan,
    phase: Phase,
    /// Counts the stalls, from another number in each partition, so that their contests are not
    /// alike.
    stalls: u32,
    /// When each producer may produce again.
    produces_at: [Duration; PRODUCERS.end - PRODUCERS.start],
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Phase {
    /// All clients send requests, which must complete.
    Well { until: Duration },
    /// The consumers send no more requests.
    ConsumersEnd,
    /// The producers send no more requests either. Then both followers have everything, and wait
    /// for more.
    ProducersEnd,
    /// One follower stalls. Each producer produces once, and each consumer fetches more than they
    /// produce. These requests must time out before the follower continues. In every other round it
    /// continues at `until`, about when the requests of the producers time out.
    Stalled { until: Option<Duration> },
    /// The follower continues, but some requests have not been answered.
    Recovering,
    /// Nothing is produced any more, so the last requests of the followers must time out.
    Over,
}

impl Partition {
    fn new(id: u32, plan: Plan) -> Self {
        let phase = Phase::Well { until: plan.first_round(id) };
        let produces_at = [0, 1, 2, 3].map(|producer| plan.pause() * producer / 4);
        Self { id, plan, phase, stalls: id, produces_at }
    }

    /// Does everything that is due. Returns the next moment to act if no answer arrives before.
    fn act(&mut self, clients: &mut [Client], now: Duration) -> Option<Duration> {
        self.advance(clients, now);
        self.follow(&mut clients[FOLLOWERS]);
        match self.phase {
            Phase::Well { until } => {
                for consumer in clients[CONSUMERS].iter_mut().filter(|consumer| consumer.is_idle) {
                    let wanted = consumer.position + RECORD * RECORDS_WANTED;
                    self.send(consumer, Kind::Fetch, wanted, Expected::Condition);
                }
                Some(self.produce(&mut clients[PRODUCERS], now).min(until))
            }
            Phase::ConsumersEnd => Some(self.produce(&mut clients[PRODUCERS], now)),
            Phase::Stalled { until } => until,
            Phase::ProducersEnd | Phase::Recovering | Phase::Over => None,
        }
    }

    fn advance(&mut self, clients: &mut [Client], now: Duration) {
        let (plan, idle) = (self.plan, |who: Range<usize>| are_idle(&clients[who]));
        let (producers_idle, consumers_idle) = (idle(PRODUCERS), idle(CONSUMERS));
        if matches!(self.phase, Phase::Well { until } if now >= until) {
            self.phase = Phase::ConsumersEnd;
        }
        if self.phase == Phase::ConsumersEnd && consumers_idle {
            self.phase = Phase::ProducersEnd;
        }
        if matches!(self.phase, Phase::Stalled { until: Some(until) } if now >= until) {
            self.phase = Phase::Recovering;
        }
        match self.phase {
            Phase::ProducersEnd if producers_idle && now < plan.last_call() => {
                let until = (self.stalls % 2 == 1).then(|| now + plan.contested(self.stalls));
                self.stall(clients, until.is_some());
                self.phase = Phase::Stalled { until };
                self.stalls += 1;
            }
            Phase::ProducersEnd if producers_idle => {
                for follower in &mut clients[FOLLOWERS] {
                    follower.expect(Expected::Timeout);
                }
                self.phase = Phase::Over;
            }
            Phase::Stalled { .. } | Phase::Recovering if producers_idle && consumers_idle => {
                // Every producer must have time to see that the followers have caught up.
                let until = (now + plan.timeout * 2).min(plan.last_call()).max(now + plan.pause());
                self.phase = Phase::Well { until };
            }
            _ => {}
        }
    }

    fn send(&self, client: &mut Client, kind: Kind, position: u64, expected: Expected) {
        client.send(kind, (self.id, 0), position, self.plan.timeout, expected);
    }

    /// Lets each follower confirm its last answer and request more, unless it stalls.
    fn follow(&self, followers: &mut [Client]) {
        let stalls = matches!(self.phase, Phase::Stalled { .. });
        for (follower, index) in followers.iter_mut().zip(0..) {
            if follower.is_idle && self.phase != Phase::Over && !(stalls && index == STALLING) {
                let (who, timeout) = ((self.id, index), self.plan.follower_timeout());
                follower.send(Kind::Follow, who, follower.position, timeout, Expected::Condition);
            }
        }
    }

    /// Lets each idle producer produce whose pause is over. Returns the moment of the next one.
    fn produce(&mut self, producers: &mut [Client], now: Duration) -> Duration {
        let again = now + self.plan.pause();
        for (index, producer) in producers.iter_mut().enumerate() {
            if self.produces_at[index] <= now && producer.is_idle {
                self.send(producer, Kind::Produce, RECORD, Expected::Condition);
                self.produces_at[index] = again;
            }
        }
        // A producer whose moment has passed produces when its answer arrives.
        self.produces_at.into_iter().filter(|moment| *moment > now).min().unwrap_or(again)
    }

    /// Every producer and consumer sends a request that cannot complete while the follower stalls.
    fn stall(&self, clients: &mut [Client], is_contested: bool) {
        let producers = &mut clients[PRODUCERS];
        // All producers have been answered, so the last of them knows the end of the log.
        let end = producers.iter().map(|producer| producer.position).max().unwrap_or(0);
        let beyond = end + RECORD * producers.len() as u64 + 1;
        let expected = if is_contested { Expected::Either } else { Expected::Timeout };
        for producer in producers {
            self.send(producer, Kind::Produce, RECORD, expected);
        }
        for consumer in &mut clients[CONSUMERS] {
            self.send(consumer, Kind::Fetch, beyond, Expected::Timeout);
        }
    }
}
