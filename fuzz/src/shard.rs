//! `Shard` in virtual time against a plain list of its timers: what its owner does, and what its handles are asked, which
//! goes by way of the mailbox also on the owner's thread.

use std::time::{Duration, Instant};

use arbitrary::Arbitrary;
use corewheel::{Cancel, Config, Expired, ManualClock, Shard, TimerHandle};

use crate::moment::Moment;

const TICK: u64 = 1_000_000;

/// A run: when time begins, and what is done.
#[derive(Arbitrary, Debug)]
pub struct Run {
    start: Span,
    operations: Vec<Operation>,
}

/// A length of time in ticks, and some nanoseconds.
#[derive(Arbitrary, Clone, Copy, Debug)]
struct Span(Moment, u16);

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Operation {
    Add(Span),
    AddWithin(Span, Span),
    AddSpread(Span, Span),
    /// At a moment of the clock, which may have passed.
    AddAt(Moment),
    AddMany(Span, u8),
    Cancel(u16),
    Reset(u16, Span),
    ResetAll(Span),
    /// The same by the handle.
    HandleCancel(u16),
    HandleReset(u16, Span),
    /// What has ended stays so.
    UseEnded(u16),
    Begin,
    BeginWithin(u8),
    Take(u8),
    TakeAll,
    /// The clock shows another time, which may be earlier.
    Time(Moment, u16),
    /// It shows when the shard wants to be turned.
    Wake,
}

struct Timer {
    id: u32,
    handle: TimerHandle,
    /// It is due at a moment from here to there.
    due: (u64, u64),
    /// The tick of the pass in which it was placed: it fires at that if it was due before.
    placed: u64,
    /// The pass in which it was added, or moved.
    since: u32,
    added: u32,
}

/// The pass under way.
#[derive(Clone, Copy, Default)]
struct Pass {
    number: u32,
    nanos: u64,
    budget: Option<u64>,
    spent: u64,
    /// The latest deadline handed out.
    last: u64,
    /// Something other than time may change what comes out, and in which order.
    is_disturbed: bool,
}

struct Pair {
    shard: Shard<u32>,
    clock: ManualClock,
    origin: Instant,
    /// The latest time that the owner has read.
    latest: u64,
    live: Vec<Timer>,
    ended: Vec<TimerHandle>,
    pass: Pass,
    added: u32,
    fired: u64,
    cancelled: u64,
    /// Cancelled by their handles in this pass.
    cancelled_now: u64,
}

/// More timers would only be slower.
const MOST: usize = 900;

impl Run {
    /// Holds a shard to the model; panics where they differ.
    ///
    /// # Panics
    ///
    /// If the shard is wrong.
    pub fn check(&self) {
        let mut pair = Pair::starting_at(self.start.nanos());
        for &operation in &self.operations {
            pair.apply(operation);
            pair.compare();
        }
        pair.finish();
    }
}

impl Span {
    fn nanos(self) -> u64 {
        self.0.length().saturating_mul(TICK).saturating_add(u64::from(self.1) * 16)
    }

    fn time(self) -> Duration {
        // What is beyond any clock is said as such.
        if self.nanos() == u64::MAX { Duration::MAX } else { Duration::from_nanos(self.nanos()) }
    }
}

impl Pair {
    fn starting_at(nanos: u64) -> Self {
        let clock = ManualClock::new();
        let origin = clock.now();
        clock.set(Duration::from_nanos(nanos));
        let config = Config::new().tick(Duration::from_nanos(TICK)).clock(&clock);
        let shard = Shard::with_config(config).expect("one shard");
        let pass = Pass { nanos, ..Pass::default() };
        Self {
            shard,
            clock,
            origin,
            latest: nanos,
            live: Vec::new(),
            ended: Vec::new(),
            pass,
            added: 0,
            fired: 0,
            cancelled: 0,
            cancelled_now: 0,
        }
    }

    fn apply(&mut self, operation: Operation) {
        match operation {
            Operation::Add(delay) => self.add(delay, |shard, id| shard.add(delay.time(), id)),
            Operation::AddMany(delay, count) => {
                (0..count).for_each(|_| self.add(delay, |shard, id| shard.add(delay.time(), id)));
            }
            Operation::AddWithin(delay, slack) => {
                self.add_between(delay, slack, |shard, id| {
                    shard.add_within(delay.time(), slack.time(), id)
                });
            }
            Operation::AddSpread(delay, range) => {
                self.add_between(delay, range, |shard, id| {
                    shard.add_spread(delay.time(), range.time(), id)
                });
            }
            Operation::AddAt(at) => self.add_at(at),
            Operation::Cancel(which) => self.cancel(which),
            Operation::Reset(which, delay) => self.reset(which, delay),
            Operation::ResetAll(delay) => {
                (0..self.live.len()).for_each(|place| self.reset_at(place, delay));
            }
            Operation::HandleCancel(which) => self.cancel_by_handle(which),
            Operation::HandleReset(which, delay) => self.reset_by_handle(which, delay),
            Operation::UseEnded(which) => self.use_ended(which),
            Operation::Begin => self.begin(None),
            Operation::BeginWithin(budget) => self.begin(Some(budget)),
            Operation::Take(count) => self.take_most(count.into()),
            Operation::TakeAll => self.take_most(usize::MAX),
            Operation::Time(at, nanos) => self.set_time(at.from(self.time() / TICK), nanos),
            Operation::Wake => {
                let until = self.shard.time_until_next().unwrap_or_default();
                self.clock.advance(until);
            }
        }
    }

    fn time(&self) -> u64 {
        nanos(self.clock.elapsed())
    }

    fn set_time(&mut self, tick: u64, more: u16) {
        let nanos = tick.saturating_mul(TICK).saturating_add(u64::from(more) * 16);
        self.clock.set(Duration::from_nanos(nanos));
    }

    /// The owner reads the clock, which is held where it was if it has gone back.
    fn read(&mut self) -> u64 {
        self.latest = self.latest.max(self.time());
        self.latest
    }

    fn add(&mut self, delay: Span, add: impl FnOnce(&mut Shard<u32>, u32) -> TimerHandle) {
        self.add_between(delay, Span(Moment::Near(0), 0), add);
    }

    fn add_between(
        &mut self,
        delay: Span,
        range: Span,
        add: impl FnOnce(&mut Shard<u32>, u32) -> TimerHandle,
    ) {
        let from = self.read().saturating_add(delay.nanos());
        self.add_due((from, from.saturating_add(range.nanos())), add);
    }

    fn add_at(&mut self, at: Moment) {
        let nanos = at.from(self.time());
        let instant = self.origin.checked_add(Duration::from_nanos(nanos));
        if let Some(instant) = instant {
            self.add_due((nanos, nanos), |shard, id| shard.add_at(instant, id));
        }
    }

    fn add_due(&mut self, due: (u64, u64), add: impl FnOnce(&mut Shard<u32>, u32) -> TimerHandle) {
        if self.live.len() >= MOST {
            return;
        }
        let (id, number) = (self.added, self.pass.number);
        let handle = add(&mut self.shard, id);
        let placed = self.pass.nanos / TICK;
        self.live.push(Timer { id, handle, due, placed, since: number, added: number });
        self.added += 1;
    }

    fn any_live(&self, which: u16) -> Option<usize> {
        usize::from(which).checked_rem(self.live.len())
    }

    fn cancel(&mut self, which: u16) {
        if let Some(place) = self.any_live(which) {
            let gone = self.live.swap_remove(place);
            assert_eq!(
                self.shard.cancel(gone.handle),
                Some(gone.id),
                "a live timer is cancelled, with its payload"
            );
            self.ended.push(gone.handle);
            self.cancelled += 1;
        }
    }

    fn cancel_by_handle(&mut self, which: u16) {
        if let Some(place) = self.any_live(which) {
            let gone = self.live.swap_remove(place);
            assert_eq!(gone.handle.cancel(), Cancel::Cancelled, "a live timer is cancelled");
            self.ended.push(gone.handle);
            self.cancelled += 1;
            self.cancelled_now += 1;
            self.pass.is_disturbed = true;
        }
    }

    fn reset(&mut self, which: u16, delay: Span) {
        if let Some(place) = self.any_live(which) {
            self.reset_at(place, delay);
        }
    }

    fn reset_at(&mut self, place: usize, delay: Span) {
        let due = self.read().saturating_add(delay.nanos());
        assert!(
            self.shard.reset(self.live[place].handle, delay.time()),
            "a live timer can be moved"
        );
        self.is_moved(place, (due, due), self.pass.nanos / TICK);
    }

    fn reset_by_handle(&mut self, which: u16, delay: Span) {
        if let Some(place) = self.any_live(which) {
            assert!(self.live[place].handle.reset(delay.time()), "a live timer can be moved");
            // It reads the clock for itself.
            let from = self.time().saturating_add(delay.nanos());
            let to = self.latest.saturating_add(delay.nanos());
            self.is_moved(place, (from.min(to), from.max(to)), u64::MAX);
        }
    }

    fn is_moved(&mut self, place: usize, due: (u64, u64), placed: u64) {
        let timer = &mut self.live[place];
        (timer.due, timer.placed, timer.since) = (due, placed, self.pass.number);
        self.pass.is_disturbed = true;
    }

    fn use_ended(&mut self, which: u16) {
        if let Some(place) = usize::from(which).checked_rem(self.ended.len()) {
            let ended = self.ended[place];
            assert_eq!(self.shard.cancel(ended), None, "it has ended");
            assert!(!self.shard.reset(ended, Duration::ZERO), "it has ended");
            self.read();
            assert_eq!(ended.cancel(), Cancel::Ended);
            assert!(!ended.reset(Duration::ZERO) && !ended.is_pending(), "it has ended");
        }
    }

    fn begin(&mut self, budget: Option<u8>) {
        let queued = self.shard.counts().queued;
        let before = self.shard.counts().touched;
        match budget {
            Some(budget) => self.shard.turn_within(budget.into()),
            None => self.shard.turn(),
        }
        let spent = self.shard.counts().touched - before;
        let (number, nanos) = (self.pass.number + 1, self.read());
        let budget = budget.map(u64::from);
        self.pass = Pass { number, nanos, budget, spent, last: 0, is_disturbed: queued > 0 };
        self.cancelled_now = 0;
    }

    fn take_most(&mut self, most: usize) {
        let mut left = most;
        while left > 0 && self.take() {
            left -= 1;
        }
    }

    /// Takes one that is due. False if there was none.
    fn take(&mut self) -> bool {
        let before = self.shard.counts().touched;
        let expired = self.shard.next_expired();
        self.pass.spent += self.shard.counts().touched - before;
        let is_some = expired.is_some();
        match expired {
            Some(expired) => self.has_fired(&expired),
            None => self.pass_is_over(),
        }
        let Pass { budget, spent, is_disturbed, .. } = self.pass;
        let is_within = budget.is_none_or(|budget| spent <= budget);
        assert!(is_within || is_disturbed, "{spent} touched with a budget of {budget:?}");
        is_some
    }

    fn has_fired(&mut self, expired: &Expired<u32>) {
        let place = self.live.iter().position(|timer| timer.id == expired.payload);
        let timer = self.live.swap_remove(place.expect("a timer ends once"));
        let deadline = nanos(expired.deadline - self.origin);
        let (tick, Pass { number, nanos: now, last, is_disturbed, .. }) =
            (deadline / TICK, self.pass);
        assert_eq!(deadline % TICK, 0, "a deadline is a tick's");
        assert!(tick >= timer.due.0.div_ceil(TICK) && deadline <= now, "never early");
        assert!(tick <= timer.due.1.div_ceil(TICK).max(timer.placed), "by its own deadline");
        assert!(timer.added < number, "what a pass adds fires in a later one");
        assert!(deadline >= last || is_disturbed, "in the order of the deadlines");
        assert_eq!(nanos(expired.lateness), now - deadline);
        self.pass.last = deadline;
        self.ended.push(timer.handle);
        self.fired += 1;
    }

    /// Unless it had a budget, it leaves nothing that was due when it began.
    fn pass_is_over(&mut self) {
        let Pass { number, nanos, budget, .. } = self.pass;
        if budget.is_none() && number > 0 {
            let is_due =
                |timer: &Timer| timer.since < number && timer.due.1.div_ceil(TICK) <= nanos / TICK;
            assert!(!self.live.iter().any(is_due), "never late");
            assert!(self.shard.counts().held <= self.cancelled_now, "cancelled payloads go");
        }
    }

    fn compare(&mut self) {
        let (counts, live) = (self.shard.counts(), self.live.len() as u64);
        assert_eq!(
            (counts.added, counts.fired, counts.handed_back),
            (self.added.into(), self.fired, 0)
        );
        assert_eq!(counts.cancelled + counts.held, self.cancelled);
        assert_eq!(
            (counts.live, self.shard.len() as u64),
            (live + counts.held, live + counts.held)
        );
        assert_eq!(counts.added, counts.live + counts.fired + counts.cancelled);
        let until = self.shard.time_until_next().map(nanos);
        let truth =
            self.live.iter().map(|timer| timer.due.1.div_ceil(TICK).saturating_mul(TICK)).min();
        assert_eq!(until.is_some(), counts.live > 0);
        if let (Some(until), Some(truth)) = (until, truth) {
            let now = self.latest.max(self.time());
            assert!(until <= truth.saturating_sub(now), "a sleep of {until} ns would miss {truth}");
        }
        if let Some(last) = self.live.last() {
            assert!(last.handle.is_pending());
        }
    }

    /// What is left is handed back, and nothing can be added any more.
    fn finish(mut self) {
        let mut pending: Vec<u32> = self.shard.drain().into_iter().map(|(_, id)| id).collect();
        let mut left: Vec<u32> = self.live.iter().map(|timer| timer.id).collect();
        pending.sort_unstable();
        left.sort_unstable();
        assert_eq!(pending, left, "each pending payload is handed back");
        let counts = self.shard.counts();
        assert_eq!((counts.live, counts.held, counts.queued), (0, 0, 0));
        assert_eq!(counts.added, counts.fired + counts.cancelled + counts.handed_back);
        let refused = self.shard.try_add(Duration::ZERO, 7).expect_err("it has ended");
        assert_eq!(refused.into_inner(), 7);
        assert!(self.live.iter().all(|timer| timer.handle.cancel() == Cancel::Ended));
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
