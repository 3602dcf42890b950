//! The members of one group, who join one generation after another. Of four:
//!
//! ```text
//! whole      all join, one after the other; every request must complete
//! missing    one does not join: the requests of the others must time out
//! whole
//! contested  one joins when the requests of the others are about to time out; its own must complete
//! ```

use std::time::Duration;

use crate::board::Board;
use crate::client::{Client, Expected};
use crate::log::GroupId;
use crate::plan::{MEMBERS, Plan};
use crate::wire::What;

#[derive(Debug)]
pub(crate) struct GroupCast {
    group: GroupId,
    generation: u32,
    /// What each has still to do in this generation.
    joins: [Option<Join>; MEMBERS],
    is_over: bool,
}

#[derive(Clone, Copy, Debug)]
struct Join {
    at: Duration,
    expected: Expected,
}

impl GroupCast {
    pub(crate) fn new(index: u32, plan: &Plan) -> Self {
        // Groups are at different points of their four rounds.
        let mut cast = Self {
            group: GroupId(index),
            generation: index,
            joins: [None; MEMBERS],
            is_over: false,
        };
        cast.begin(plan, plan.first_round(index, plan.groups) / 4);
        cast
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Lets everybody do what is to be done now. Gives the next moment when there will be something without an answer.
    pub(crate) fn act(
        &mut self,
        members: &mut [Client],
        plan: &Plan,
        board: &Board,
        now: Duration,
    ) -> Option<Duration> {
        if self.joins.iter().all(Option::is_none) && members.iter().all(Client::is_idle) {
            if now >= plan.last_call {
                self.is_over = true;
                return None;
            }
            self.begin(plan, now + plan.pause());
        }
        for ((member, join), index) in members.iter_mut().zip(&mut self.joins).zip(0..) {
            if let Some(Join { expected, .. }) = join.take_if(|join| join.at <= now) {
                let what = What::Join {
                    group: self.group,
                    member: index,
                    generation: self.generation.into(),
                };
                member.send(what, plan.timeout, expected, board);
            }
        }
        self.joins.iter().flatten().map(|join| join.at).min()
    }

    /// The next generation, which begins at that moment.
    fn begin(&mut self, plan: &Plan, at: Duration) {
        self.generation += 1;
        let odd_one = (self.generation / 4) as usize % MEMBERS;
        let of_others = match self.generation % 4 {
            1 => Expected::TimeOut,
            3 => Expected::Either,
            _ => Expected::Condition,
        };
        let mut step = 0;
        self.joins = [(); MEMBERS].map(|()| {
            step += 1;
            // Where all join they come one after the other; else the others' requests time out together.
            let wait = if of_others == Expected::Condition {
                plan.pause() * step / 4
            } else {
                Duration::ZERO
            };
            Some(Join { at: at + wait, expected: of_others })
        });
        self.joins[odd_one] = match of_others {
            Expected::Condition => self.joins[odd_one],
            Expected::TimeOut => None,
            Expected::Either => Some(Join {
                at: at + plan.contested(self.generation / 4),
                expected: Expected::Condition,
            }),
        };
    }
}
