//! The clients of one partition, in rounds: for a while all is well, then one follower stalls.
//!
//! ```text
//! well       everybody talks; every request must complete
//! ending     the consumers end, when they are answered the producers: now both followers have all, and wait for more
//! stalled    the second follower stalls. Each producer produces once, and each consumer asks for more than they
//!            produce: these requests must time out. Only when all of them are answered does the follower go on,
//!            or, every other time, when the producers' requests are about to time out: those are contested
//! over       nobody produces any more: the last requests of the followers must time out
//! ```
//!
//! What must happen does not depend on how fast the machine is, but that a follower takes less than a timeout.

use std::time::Duration;

use crate::board::Board;
use crate::client::{Client, Expected};
use crate::log::PartitionId;
use crate::plan::{FOLLOWERS, OF_A_PARTITION, PRODUCERS, Plan, RECORD, RECORDS_WANTED};
use crate::wire::What;

/// Which of the followers stalls.
const STALLS: u32 = 1;

#[derive(Debug)]
pub(crate) struct PartitionCast {
    partition: PartitionId,
    phase: Phase,
    /// Counts the stalls, from another number in each partition: so they are contested at different moments.
    stalls: u32,
    /// When each producer may produce again.
    produces_at: [Duration; PRODUCERS],
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    Well {
        until: Duration,
    },
    ConsumersEnd,
    ProducersEnd,
    /// Until that moment where it is contested, otherwise until all are answered.
    Stalled {
        until: Option<Duration>,
    },
    /// The follower goes on, but not everybody is answered.
    Recovering,
    Over,
}

impl PartitionCast {
    pub(crate) fn new(index: u32, plan: &Plan) -> Self {
        let until = plan.first_round(index, plan.partitions);
        let produces_at = [0, 1, 2, 3].map(|producer| plan.pause() * producer / 4);
        Self {
            partition: PartitionId(index),
            phase: Phase::Well { until },
            stalls: index,
            produces_at,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Lets everybody do what is to be done now. Gives the next moment when there will be something without an answer.
    pub(crate) fn act(
        &mut self,
        clients: &mut [Client],
        plan: &Plan,
        board: &Board,
        now: Duration,
    ) -> Option<Duration> {
        debug_assert_eq!(clients.len(), OF_A_PARTITION);
        let (followers, others) = clients.split_at_mut(FOLLOWERS);
        let (producers, consumers) = others.split_at_mut(PRODUCERS);
        let mut stage =
            Stage { partition: self.partition, followers, producers, consumers, plan, board };
        self.advance(&mut stage, now);
        stage.follow(self.phase);
        match self.phase {
            Phase::Well { until } => {
                stage.consume();
                Some(stage.produce(&mut self.produces_at, now).min(until))
            }
            Phase::ConsumersEnd => Some(stage.produce(&mut self.produces_at, now)),
            Phase::Stalled { until } => until,
            Phase::ProducersEnd | Phase::Recovering | Phase::Over => None,
        }
    }

    fn advance(&mut self, stage: &mut Stage, now: Duration) {
        let plan = stage.plan;
        if matches!(self.phase, Phase::Well { until } if now >= until) {
            self.phase = Phase::ConsumersEnd;
        }
        if self.phase == Phase::ConsumersEnd && are_idle(stage.consumers) {
            self.phase = Phase::ProducersEnd;
        }
        if self.phase == Phase::ProducersEnd && are_idle(stage.producers) {
            if now < plan.last_call {
                let is_contested = self.stalls % 2 == 1;
                stage.stall(if is_contested { Expected::Either } else { Expected::TimeOut });
                self.phase = Phase::Stalled {
                    until: is_contested.then(|| now + plan.contested(self.stalls)),
                };
                self.stalls += 1;
            } else {
                stage.followers.iter_mut().for_each(|follower| follower.expect(Expected::TimeOut));
                self.phase = Phase::Over;
            }
        }
        if matches!(self.phase, Phase::Stalled { until: Some(until) } if now >= until) {
            self.phase = Phase::Recovering;
        }
        let has_stalled = matches!(self.phase, Phase::Stalled { .. } | Phase::Recovering);
        if has_stalled && are_idle(stage.producers) && are_idle(stage.consumers) {
            // Long enough for every producer to see that the followers have all again.
            let until = (now + plan.timeout * 2).min(plan.last_call).max(now + plan.pause());
            self.phase = Phase::Well { until };
        }
    }
}

fn are_idle(clients: &[Client]) -> bool {
    clients.iter().all(Client::is_idle)
}

/// The clients by what they do.
struct Stage<'a> {
    partition: PartitionId,
    followers: &'a mut [Client],
    producers: &'a mut [Client],
    consumers: &'a mut [Client],
    plan: &'a Plan,
    board: &'a Board,
}

impl Stage<'_> {
    /// Every follower that has been given something says so and asks for more, but one that stalls.
    fn follow(&mut self, phase: Phase) {
        let stalls = matches!(phase, Phase::Stalled { .. });
        if phase == Phase::Over {
            return;
        }
        for (follower, index) in self.followers.iter_mut().zip(0..) {
            if follower.is_idle() && !(stalls && index == STALLS) {
                let what = What::Follow {
                    partition: self.partition,
                    follower: index,
                    from: follower.at(),
                    least: 1,
                };
                follower.send(what, self.plan.follower_timeout(), Expected::Condition, self.board);
            }
        }
    }

    /// Every producer whose turn it is produces. Gives the next one's moment.
    fn produce(&mut self, moments: &mut [Duration], now: Duration) -> Duration {
        for (producer, moment) in self.producers.iter_mut().zip(&mut *moments) {
            if *moment <= now && producer.is_idle() {
                let what = What::Produce { partition: self.partition, bytes: RECORD };
                producer.send(what, self.plan.timeout, Expected::Condition, self.board);
                *moment = now + self.plan.pause();
            }
        }
        // The answer brings those back whose moment has passed.
        moments
            .iter()
            .copied()
            .filter(|&moment| moment > now)
            .min()
            .unwrap_or(now + self.plan.pause())
    }

    fn consume(&mut self) {
        for consumer in self.consumers.iter_mut().filter(|consumer| consumer.is_idle()) {
            let what = What::Fetch {
                partition: self.partition,
                from: consumer.at(),
                least: RECORD * RECORDS_WANTED,
            };
            consumer.send(what, self.plan.timeout, Expected::Condition, self.board);
        }
    }

    /// Everybody asks once for what will not be. All producers have been answered, so the last of them knows the end.
    fn stall(&mut self, produce: Expected) {
        let end = self.producers.iter().map(Client::at).max().unwrap_or(0);
        let appended = self.producers.iter().map(|_| RECORD).sum::<u32>();
        for producer in self.producers.iter_mut() {
            let what = What::Produce { partition: self.partition, bytes: RECORD };
            producer.send(what, self.plan.timeout, produce, self.board);
        }
        for consumer in self.consumers.iter_mut() {
            let what = What::Fetch { partition: self.partition, from: end, least: appended + 1 };
            consumer.send(what, self.plan.timeout, Expected::TimeOut, self.board);
        }
    }
}
