//! What can be asked of a shard at any time.

use corewheel::Counts;

use super::{World, life::Asleep};
use crate::{coverage::Fault, plan::Nanos};

impl World {
    /// Counts add up, and agree with the model.
    pub(crate) fn compare_counts(&mut self, number: usize, counts: Counts) {
        let Counts { added, fired, cancelled, handed_back, live, runs, .. } = counts;
        let sums = added == live + fired + cancelled + handed_back;
        self.expect(sums, || format!("{counts:?} do not add up"));
        let (planned, reported) = (self.ledger.planned(number), self.ledger.reported(number));
        let life = &self.lives[number];
        let ours = (life.fired, life.runs, 0, life.regressions, planned, planned);
        let theirs =
            (fired, runs, handed_back, counts.clock_regressions, counts.panicked, reported);
        let what = "fired, runs, handed back, clock regressions, panicked, reported";
        self.expect(ours == theirs, || format!("shard {number}: {what}: {theirs:?}, not {ours:?}"));
        self.compare_messages(number, &counts);
        self.lives[number].seen = counts;
    }

    /// What other cores asked for, as far as its owner knows.
    fn compare_messages(&mut self, number: usize, counts: &Counts) {
        let &Counts { added, cancelled, live, held, queued, .. } = counts;
        let life = &self.lives[number];
        let (alive, asked) = (life.live.len() as u64, life.asked.len() as u64);
        let (arriving, unseen) =
            (life.added.wrapping_sub(added), life.cancelled.wrapping_sub(cancelled));
        let fits = arriving <= queued
            && queued <= asked
            && held <= unseen.min(live).min(queued)
            && unseen <= held + arriving
            && live + arriving == alive + unseen;
        let exact = life.partly || (queued, arriving, held) == (asked, life.unarrived, life.held);
        let ours = (asked, life.unarrived, life.held);
        self.expect(fits, || {
            format!(
                "shard {number}: {counts:?}, but {alive} live, {arriving} arriving, {unseen} unseen"
            )
        });
        self.expect(exact, || {
            format!("shard {number}: {counts:?}, but {ours:?} asked, arriving, held")
        });
    }

    /// A sleep is never longer than it may be.
    pub(crate) fn compare_sleep(&mut self, number: usize, slept: Option<Nanos>) {
        let life = &self.lives[number];
        let now = life.latest.max(self.clock(life.core));
        let earliest = life.live.first().map(|&(tick, _)| life.start(tick).saturating_sub(now));
        let (is_idle, at_once) =
            (life.asked.is_empty() && !life.behind, life.urgent && !life.partly);
        let short = earliest.is_none_or(|earliest| slept.is_some_and(|slept| slept <= earliest));
        self.expect(short, || {
            format!("shard {number} would sleep {slept:?}, and the next is due in {earliest:?}")
        });
        self.expect(!at_once || slept == Some(0), || {
            format!("shard {number} sleeps {slept:?} over a deadline")
        });
        let awake = earliest.is_none() && is_idle && slept.is_some();
        self.expect(!awake, || {
            format!("shard {number} has nothing to wait for, and sleeps {slept:?}")
        });
    }

    /// After a turn that has left nothing: there is nothing to do now.
    pub(crate) fn expect_rest(&mut self, number: usize, slept: Option<Nanos>) {
        let life = &self.lives[number];
        let is_later = life.live.first().is_none_or(|&(tick, _)| tick > life.target);
        let is_now = self.clock(life.core) <= life.turn_now && life.turn_now < Nanos::MAX;
        // One that callbacks have added for the next turn may have been moved away since.
        let is_plain = life.asked.is_empty() && !life.behind && !life.was_nested;
        let rests = is_later && is_now && is_plain;
        self.expect(!rests || slept != Some(0), || {
            format!("shard {number} wants another turn, for nothing")
        });
    }

    /// A core has announced a sleep, at most so long.
    pub(crate) fn falls_asleep(&mut self, number: usize, timeout: Option<Nanos>) {
        self.compare_sleep(number, timeout);
        let (wakes, planned) = (self.ledger.wakes(number), self.ledger.planned(number));
        let life = &self.lives[number];
        let now = life.latest.max(self.clock(life.core));
        let until = timeout.map_or(Nanos::MAX, |timeout| now.saturating_add(timeout));
        let asleep = Asleep { until, wakes, planned, may_wake: false, must_wake: false };
        self.lives[number].asleep = (timeout != Some(0)).then_some(asleep);
    }

    /// It has slept, while others went on; so many messages wait.
    pub(crate) fn wakes_up(&mut self, number: usize, queued: u64) {
        const DEBT: u64 = 1024;
        let Some(asleep) = self.lives[number].asleep.take() else { return };
        let wakes = self.ledger.wakes(number) - asleep.wakes;
        let has_panicked = self.ledger.planned(number) > asleep.planned;
        if has_panicked {
            let core = self.lives[number].core;
            self.fault(Fault::WakePanic, core);
        }
        // Of each of the two kinds of messages so many.
        let (must_wake, may_wake) =
            (asleep.must_wake || queued >= 2 * DEBT, asleep.may_wake || queued >= DEBT);
        self.expect(wakes > 0 || has_panicked || !must_wake, || {
            format!("shard {number} was not woken")
        });
        self.expect(wakes == 0 || may_wake, || format!("shard {number} was woken for nothing"));
        self.expect(wakes <= 1, || format!("shard {number} was woken {wakes} times"));
    }
}
