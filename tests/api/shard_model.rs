//! `Shard` and `local_timer` against a ledger in virtual time: random add, cancel, reset and turn at times that are no
//! multiples of the tick, with a clock that jumps and goes back. Never early, never late, exactly once, P2's sum exact.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    rc::Rc,
    time::Duration,
};

use corewheel::{Cancel, Config, Counts, ManualClock, Shard, TimerHandle, local_timer};

use crate::common::{
    TICK, TICK_NANOS, any_delay, any_magnitude, in_virtual_time, nanos, on_a_thread, operations,
    seeded, tick_of,
};

/// A shard or the thread's timer: what the model drives.
trait Timers {
    fn add(&mut self, delay: Duration, id: usize) -> TimerHandle;
    fn cancel(&mut self, handle: TimerHandle) -> bool;
    fn reset(&mut self, handle: TimerHandle, delay: Duration) -> bool;
    /// What fired, in order.
    fn turn(&mut self) -> Vec<usize>;
    fn counts(&self) -> Counts;
    fn time_until_next(&self) -> Option<Duration>;
}

impl Timers for Shard<usize> {
    fn add(&mut self, delay: Duration, id: usize) -> TimerHandle {
        Shard::add(self, delay, id)
    }

    fn cancel(&mut self, handle: TimerHandle) -> bool {
        Shard::cancel(self, handle).is_some()
    }

    fn reset(&mut self, handle: TimerHandle, delay: Duration) -> bool {
        Shard::reset(self, handle, delay)
    }

    fn turn(&mut self) -> Vec<usize> {
        Shard::turn(self);
        std::iter::from_fn(|| self.next_expired()).map(|expired| expired.payload).collect()
    }

    fn counts(&self) -> Counts {
        Shard::counts(self)
    }

    fn time_until_next(&self) -> Option<Duration> {
        Shard::time_until_next(self)
    }
}

/// The thread's timer, whose callbacks write down that they ran.
#[derive(Default)]
struct Callbacks {
    ran: Rc<RefCell<Vec<usize>>>,
}

impl Timers for Callbacks {
    fn add(&mut self, delay: Duration, id: usize) -> TimerHandle {
        let ran = Rc::clone(&self.ran);
        let run = move || ran.borrow_mut().push(id);
        if id.is_multiple_of(2) {
            local_timer().add(delay, run)
        } else {
            local_timer().add_local(delay, run).share()
        }
    }

    fn cancel(&mut self, handle: TimerHandle) -> bool {
        handle.cancel() == Cancel::Cancelled
    }

    fn reset(&mut self, handle: TimerHandle, delay: Duration) -> bool {
        handle.reset(delay)
    }

    fn turn(&mut self) -> Vec<usize> {
        let turn = local_timer().turn();
        let ran = self.ran.take();
        assert_eq!(turn.fired, ran.len());
        ran
    }

    fn counts(&self) -> Counts {
        local_timer().counts()
    }

    fn time_until_next(&self) -> Option<Duration> {
        local_timer().time_until_next()
    }
}

/// What must be true, in nanoseconds.
struct Ledger {
    clock: ManualClock,
    /// The latest time seen by the shard: it holds there when the clock goes back.
    latest: u64,
    /// Deadlines as they were asked for, of what is live.
    live: BTreeMap<usize, u64>,
    handles: HashMap<usize, TimerHandle>,
    ended: Vec<TimerHandle>,
    added: usize,
    fired: u64,
    cancelled: u64,
    regressions: u64,
}

impl Ledger {
    fn new(clock: &ManualClock) -> Self {
        Self {
            clock: clock.clone(),
            latest: nanos(clock.elapsed()),
            live: BTreeMap::new(),
            handles: HashMap::new(),
            ended: Vec::new(),
            added: 0,
            fired: 0,
            cancelled: 0,
            regressions: 0,
        }
    }

    /// The shard reads the clock.
    fn reading(&mut self) -> u64 {
        let now = nanos(self.clock.elapsed());
        self.regressions += u64::from(now < self.latest);
        self.latest = self.latest.max(now);
        self.latest
    }

    fn any_operation(&mut self, timers: &mut impl Timers, random: &mut fastrand::Rng) {
        match random.u32(..100) {
            0..35 if self.live.len() < 200 => self.add(timers, random),
            0..45 => self.cancel(timers, random),
            45..60 => self.reset(timers, random),
            60..63 => self.use_an_ended_handle(timers, random),
            63..80 => self.turn(timers),
            _ => self.move_the_clock(timers, random),
        }
        self.compare_counts(timers);
    }

    fn add(&mut self, timers: &mut impl Timers, random: &mut fastrand::Rng) {
        let (delay, id) = (any_delay(random), self.added);
        let deadline = self.reading().saturating_add(nanos(delay));
        self.handles.insert(id, timers.add(delay, id));
        self.live.insert(id, deadline);
        self.added += 1;
    }

    fn any_live(&self, random: &mut fastrand::Rng) -> Option<usize> {
        random.choice(self.live.keys()).copied()
    }

    fn cancel(&mut self, timers: &mut impl Timers, random: &mut fastrand::Rng) {
        if let Some(id) = self.any_live(random) {
            assert!(timers.cancel(self.handles[&id]));
            self.end(id);
            self.cancelled += 1;
        }
    }

    fn reset(&mut self, timers: &mut impl Timers, random: &mut fastrand::Rng) {
        if let Some(id) = self.any_live(random) {
            let delay = any_delay(random);
            let deadline = self.reading().saturating_add(nanos(delay));
            assert!(timers.reset(self.handles[&id], delay));
            self.live.insert(id, deadline);
        }
    }

    fn use_an_ended_handle(&mut self, timers: &mut impl Timers, random: &mut fastrand::Rng) {
        if let Some(&ended) = random.choice(&self.ended) {
            assert!(!timers.cancel(ended));
            assert!(!timers.reset(ended, Duration::ZERO));
            assert_eq!(ended.cancel(), Cancel::Ended);
            assert!(!ended.is_pending());
        }
    }

    fn turn(&mut self, timers: &mut impl Timers) {
        let now = self.reading();
        let mut last = 0;
        for id in timers.turn() {
            let deadline =
                *self.live.get(&id).expect("a timer fires once, and not after its cancel");
            assert!(deadline <= now, "early by {} ns", deadline - now);
            assert!(tick_of(deadline) >= last, "in the order of the deadlines, by tick");
            last = tick_of(deadline);
            self.end(id);
            self.fired += 1;
        }
        let late =
            self.live.values().filter(|&&deadline| tick_of(deadline) <= now / TICK_NANOS).count();
        assert_eq!(late, 0, "the first turn that reaches the deadline's tick fires it");
    }

    /// On by anything, back by a little, or exactly to where the timers want to be turned.
    fn move_the_clock(&mut self, timers: &impl Timers, random: &mut fastrand::Rng) {
        match random.u32(..20) {
            0 => self.clock.advance(Duration::from_nanos(any_magnitude(random) >> 10)),
            1 => self
                .clock
                .set(self.clock.elapsed().saturating_sub(Duration::from_millis(random.u64(..50)))),
            2..10 => self.clock.advance(timers.time_until_next().unwrap_or_default()),
            _ => self.clock.advance(Duration::from_nanos(random.u64(..3 * TICK_NANOS))),
        }
    }

    fn end(&mut self, id: usize) {
        self.live.remove(&id);
        self.ended.extend(self.handles.remove(&id));
    }

    fn compare_counts(&self, timers: &impl Timers) {
        let counts = timers.counts();
        let ours = (self.added as u64, self.live.len() as u64, self.fired, self.cancelled, 0);
        let theirs = (counts.added, counts.live, counts.fired, counts.cancelled, counts.held);
        assert_eq!(ours, theirs);
        assert_eq!(
            counts.added,
            counts.live + counts.fired + counts.cancelled + counts.handed_back
        );
        assert_eq!(counts.clock_regressions, self.regressions);
        let until = timers.time_until_next().map(nanos);
        let truth =
            self.live.values().map(|&deadline| tick_of(deadline).saturating_mul(TICK_NANOS)).min();
        assert_eq!(until.is_some(), truth.is_some());
        if let (Some(until), Some(truth)) = (until, truth) {
            let now = self.latest.max(nanos(self.clock.elapsed()));
            assert!(until <= truth.saturating_sub(now), "a sleep of {until} ns would be too long");
        }
    }
}

#[test]
fn a_shard_keeps_its_promises_in_virtual_time() {
    seeded(0..operations(40), |random| {
        let clock = ManualClock::new();
        clock.set(Duration::from_nanos(any_magnitude(random)));
        let mut shard = Shard::with_config(Config::new().tick(TICK).clock(&clock)).expect("valid");
        let mut ledger = Ledger::new(&clock);
        for _ in 0..2_000 {
            ledger.any_operation(&mut shard, random);
        }
        let mut handed_back: Vec<_> = shard.drain().into_iter().map(|(_, id)| id).collect();
        handed_back.sort_unstable();
        let counts = shard.counts();
        assert_eq!(
            (counts.handed_back, counts.live, counts.held),
            (handed_back.len() as u64, 0, 0)
        );
        assert_eq!(counts.added, counts.fired + counts.cancelled + counts.handed_back);
        assert!(
            handed_back.into_iter().eq(ledger.live.into_keys()),
            "each pending payload is handed back"
        );
    });
}

#[test]
fn the_thread_timer_keeps_its_promises_in_virtual_time() {
    seeded(0..operations(40), |random| {
        let random = random.fork();
        in_virtual_time(move |clock| {
            let mut random = random;
            let mut ledger = Ledger::new(clock);
            let mut callbacks = Callbacks::default();
            for _ in 0..2_000 {
                ledger.any_operation(&mut callbacks, &mut random);
            }
        });
    });
}

/// A shard that is given up half-way through a pass goes on where it was.
#[test]
fn a_pass_that_is_given_up_loses_nothing() {
    let clock = ManualClock::new();
    let mut shard = Shard::with_config(Config::new().tick(TICK).clock(&clock)).expect("valid");
    for id in 0..10_u32 {
        shard.add(TICK * (10 - id), id);
    }
    clock.advance(TICK * 5);
    shard.turn();
    assert_eq!(shard.next_expired().map(|expired| expired.payload), Some(9));
    clock.advance(TICK * 5);
    shard.add(Duration::ZERO, 100);
    shard.turn();
    let rest: Vec<_> =
        std::iter::from_fn(|| shard.next_expired()).map(|expired| expired.payload).collect();
    assert_eq!(rest[..8], [8, 7, 6, 5, 4, 3, 2, 1]);
    assert_eq!(
        {
            let mut last = rest[8..].to_vec();
            last.sort_unstable();
            last
        },
        [0, 100]
    );
}

/// A payload comes with its deadline and its lateness.
#[test]
fn expired_payloads_know_their_deadline() {
    let clock = ManualClock::new();
    let mut shard = Shard::with_config(Config::new().tick(TICK).clock(&clock)).expect("valid");
    let begun = clock.now();
    shard.add(Duration::from_micros(2_500), "a");
    clock.advance(Duration::from_micros(7_250));
    shard.turn();
    let expired = shard.next_expired().expect("due");
    assert_eq!(expired.deadline - begun, Duration::from_millis(3));
    assert_eq!(expired.lateness, Duration::from_micros(4_250));
    assert!(shard.next_expired().is_none());
    // Whoever has moved it: of a moment before the turn before, that counts.
    let turned = begun + Duration::from_millis(7);
    let own = shard.add(Duration::from_secs(60), "own");
    let moved = shard.add(Duration::from_secs(60), "elsewhere");
    assert!(shard.reset_at(own, begun));
    on_a_thread(|| assert!(moved.reset_at(begun)));
    clock.advance(TICK);
    shard.turn();
    for _ in 0..2 {
        let expired = shard.next_expired().expect("due");
        assert_eq!(
            (expired.deadline, expired.lateness),
            (turned, Duration::from_micros(1_250)),
            "{}",
            expired.payload
        );
    }
}
