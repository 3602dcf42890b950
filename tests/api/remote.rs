//! A thread's timer against a model in virtual time, with a second thread that adds, cancels and moves as well: each timer
//! fires in the first turn that reaches its deadline, wherever it was added or moved before that turn, never early and once;
//! the counters add up after each step, and no sleep is too long. What the other thread does is over before the next step, so
//! the model knows the order.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

use corewheel::{Cancel, Counts, ManualClock, ShardRef, TimerHandle, Turn, local_timer};

use crate::common::{
    TICK, TICK_NANOS, any_delay, any_magnitude, in_virtual_time, nanos, operations, seeded, tick_of,
};

type Task = Box<dyn FnOnce() + Send>;

/// Another thread, which does one thing at a time while its caller waits.
struct Elsewhere(mpsc::Sender<Task>);

impl Elsewhere {
    fn new() -> Self {
        let (sender, tasks) = mpsc::channel::<Task>();
        thread::spawn(move || tasks.into_iter().for_each(|task| task()));
        Self(sender)
    }

    fn ask<R: Send + 'static>(&self, question: impl FnOnce() -> R + Send + 'static) -> R {
        let (sender, answer) = mpsc::channel();
        self.0.send(Box::new(move || _ = sender.send(question()))).expect("it listens");
        answer.recv().expect("it answers")
    }
}

/// A timer that has not ended.
#[derive(Clone, Copy, Debug)]
struct Live {
    handle: TimerHandle,
    /// As it was asked for, in nanoseconds.
    due: u64,
    period: Option<u64>,
}

/// What must be true.
struct Model {
    clock: ManualClock,
    shard: ShardRef,
    elsewhere: Elsewhere,
    /// The callbacks that have run, in order.
    ran: Arc<Mutex<Vec<usize>>>,
    live: BTreeMap<usize, Live>,
    ended: Vec<TimerHandle>,
    /// Timers of which the owner may have a message that it has not dealt with: asked for elsewhere since the last full turn.
    asked: BTreeSet<usize>,
    /// Of these, the ones that were added or moved; they are the ones that were cancelled otherwise.
    urgent: bool,
    /// Cancelled elsewhere, and those of them that had arrived before.
    held: BTreeSet<usize>,
    /// Added elsewhere since the last full turn.
    arriving: BTreeSet<usize>,
    /// A turn with a budget has dealt with some of what was asked, nobody knows which.
    partly: bool,
    /// The tick of the last turn.
    turned_to: u64,
    added: usize,
    fired: u64,
    runs: u64,
    cancelled: u64,
}

impl Model {
    fn new(clock: &ManualClock) -> Self {
        Self {
            clock: clock.clone(),
            shard: local_timer().shard_ref(),
            elsewhere: Elsewhere::new(),
            ran: Arc::default(),
            live: BTreeMap::new(),
            ended: Vec::new(),
            asked: BTreeSet::new(),
            urgent: false,
            held: BTreeSet::new(),
            arriving: BTreeSet::new(),
            partly: false,
            turned_to: 0,
            added: 0,
            fired: 0,
            runs: 0,
            cancelled: 0,
        }
    }

    fn now(&self) -> u64 {
        nanos(self.clock.elapsed())
    }

    fn any_operation(&mut self, random: &mut fastrand::Rng) {
        match random.u32(..100) {
            0..14 if self.live.len() < 200 => self.add(random),
            14..32 if self.live.len() < 200 => self.add_elsewhere(random),
            32..37 => self.cancel(random),
            37..43 => self.cancel_elsewhere(random),
            43..49 => self.reset(random),
            49..60 => self.reset_elsewhere(random),
            60..64 => self.use_an_ended_handle(random),
            64..72 => self.turn(),
            72..82 => self.turn_within(random.usize(..6)),
            _ => self.move_the_clock(random),
        }
        self.compare_counts();
        self.compare_sleeps();
    }

    // ---- what is asked

    fn callback(&self) -> impl FnMut() + Send + 'static {
        let (ran, id) = (Arc::clone(&self.ran), self.added);
        move || ran.lock().expect("sound").push(id)
    }

    fn begin(&mut self, handle: TimerHandle, due: u64, period: Option<u64>) {
        self.live.insert(self.added, Live { handle, due, period });
        self.added += 1;
    }

    fn add(&mut self, random: &mut fastrand::Rng) {
        let delay = any_delay(random);
        let (due, callback) = (self.now().saturating_add(nanos(delay)), self.callback());
        match random.u32(..5) {
            0 => {
                let period = delay.max(TICK);
                let due = self.now().saturating_add(nanos(period));
                self.begin(local_timer().add_periodic(period, callback), due, Some(nanos(period)));
            }
            1 => self.begin(local_timer().add_local(delay, callback).share(), due, None),
            // On the owner's own thread a `ShardRef` is the same.
            2 => self.begin(self.shard.add(delay, callback), due, None),
            _ => self.begin(local_timer().add(delay, callback), due, None),
        }
    }

    fn add_elsewhere(&mut self, random: &mut fastrand::Rng) {
        let (delay, at_once) = (any_delay(random), random.u32(..6) == 0);
        let due = if at_once { 0 } else { self.now().saturating_add(nanos(delay)) };
        let (shard, callback) = (self.shard.clone(), self.callback());
        let handle = self.elsewhere.ask(move || {
            let handle = if at_once { shard.run(callback) } else { shard.add(delay, callback) };
            assert!(handle.is_pending(), "at once");
            handle
        });
        assert!(handle.is_pending());
        self.arriving.insert(self.added);
        self.ask_for(self.added, true);
        self.begin(handle, due, None);
    }

    fn ask_for(&mut self, id: usize, urgent: bool) {
        self.asked.insert(id);
        self.urgent |= urgent;
    }

    fn any_live(&self, random: &mut fastrand::Rng) -> Option<(usize, Live)> {
        random.choice(&self.live).map(|(&id, &live)| (id, live))
    }

    fn cancel(&mut self, random: &mut fastrand::Rng) {
        if let Some((id, Live { handle, .. })) = self.any_live(random) {
            let answer = if random.bool() { Ok(handle.cancel()) } else { handle.cancel_wait() };
            assert_eq!(answer, Ok(Cancel::Cancelled));
            // One that has not arrived is counted now.
            self.arriving.remove(&id);
            self.end_cancelled(id);
        }
    }

    fn cancel_elsewhere(&mut self, random: &mut fastrand::Rng) {
        if let Some((id, Live { handle, .. })) = self.any_live(random) {
            let answer = self.elsewhere.ask(move || handle.cancel_wait());
            assert_eq!(answer, Ok(Cancel::Cancelled));
            self.ask_for(id, false);
            self.held.insert(id);
            self.end_cancelled(id);
        }
    }

    fn end_cancelled(&mut self, id: usize) {
        self.cancelled += 1;
        self.end(id);
    }

    fn end(&mut self, id: usize) {
        let Live { handle, .. } = self.live.remove(&id).expect("it lives");
        assert!(!handle.is_pending());
        self.ended.push(handle);
    }

    fn reset(&mut self, random: &mut fastrand::Rng) {
        if let Some((id, live)) = self.any_live(random) {
            let delay = any_delay(random);
            assert!(live.handle.reset(delay));
            let due = self.now().saturating_add(nanos(delay));
            self.live.insert(id, Live { due, ..live });
        }
    }

    fn reset_elsewhere(&mut self, random: &mut fastrand::Rng) {
        if let Some((id, live)) = self.any_live(random) {
            let (delay, handle) = (any_delay(random), live.handle);
            assert!(self.elsewhere.ask(move || handle.reset(delay)));
            let due = self.now().saturating_add(nanos(delay));
            self.live.insert(id, Live { due, ..live });
            self.ask_for(id, true);
        }
    }

    fn use_an_ended_handle(&self, random: &mut fastrand::Rng) {
        if let Some(&handle) = random.choice(&self.ended) {
            let ask = move || {
                (handle.cancel(), handle.cancel_wait(), handle.reset(TICK), handle.is_pending())
            };
            let answers = if random.bool() { ask() } else { self.elsewhere.ask(ask) };
            assert_eq!(answers, (Cancel::Ended, Ok(Cancel::Ended), false, false));
        }
    }

    /// On by anything, or exactly to where the timer wants to be turned.
    fn move_the_clock(&self, random: &mut fastrand::Rng) {
        self.clock.advance(match random.u32(..20) {
            0 => Duration::from_nanos(any_magnitude(random) >> 12),
            1..10 => local_timer().time_until_next().unwrap_or_default(),
            _ => Duration::from_nanos(random.u64(..3 * TICK_NANOS)),
        });
    }

    // ---- turns

    /// Runs a turn, and takes note of what has run in it. One that is whole knows of all that was asked for before.
    fn run(&mut self, is_whole: bool, turn: impl FnOnce() -> Turn) -> Turn {
        let before = local_timer().counts();
        let turn = turn();
        let ran = std::mem::take(&mut *self.ran.lock().expect("sound"));
        assert_eq!((turn.fired, turn.nested), (ran.len(), false));
        let (now, mut last, mut seen) = (self.now(), 0, BTreeSet::new());
        for id in ran {
            assert!(seen.insert(id), "once in a turn");
            let live = *self.live.get(&id).expect("a timer fires once, and not after its cancel");
            assert!(live.due <= now, "early by {} ns", live.due - now);
            if !self.asked.contains(&id) || is_whole && tick_of(live.due) > self.turned_to {
                assert!(tick_of(live.due) >= last, "in the order of the deadlines, by tick");
                last = tick_of(live.due);
            }
            self.runs += 1;
            if let Some(period) = live.period {
                let missed = (now - live.due) / period;
                let due = live.due.saturating_add(period.saturating_mul(missed + 1));
                self.live.insert(id, Live { due, ..live });
            } else {
                self.fired += 1;
                self.end(id);
            }
        }
        let overtaken = self
            .due()
            .filter(|(id, live)| !self.asked.contains(id) && tick_of(live.due) < last)
            .count();
        assert_eq!(overtaken, 0, "what is left comes after what has run");
        self.turned_to = now / TICK_NANOS;
        let after = local_timer().counts();
        assert_eq!(turn.live as u64, after.live);
        assert_eq!(turn.collected as u64, after.cancelled - before.cancelled);
        turn
    }

    fn due(&self) -> impl Iterator<Item = (&usize, &Live)> {
        let tick = self.now() / TICK_NANOS;
        self.live.iter().filter(move |(_, live)| tick_of(live.due) <= tick)
    }

    fn turn(&mut self) {
        let turn = self.run(true, || local_timer().turn());
        assert!(!turn.behind);
        assert_eq!(
            self.due().count(),
            0,
            "the first turn that reaches the deadline's tick fires it"
        );
        assert_eq!(local_timer().counts().queued, 0, "all that was asked for has been dealt with");
        (self.urgent, self.partly) = (false, false);
        self.asked.clear();
        self.held.clear();
        self.arriving.clear();
        // But at the end of time.
        let timeout = local_timer().prepare_sleep().timeout();
        assert!(
            timeout != Some(Duration::ZERO) || self.now() == u64::MAX,
            "nothing is left to do now"
        );
    }

    fn turn_within(&mut self, budget: usize) {
        let queued = local_timer().counts().queued;
        let turn = self.run(false, || local_timer().turn_within(budget));
        let left = local_timer().counts().queued;
        assert!(
            turn.fired <= 2 * budget
                && turn.collected <= budget
                && turn.touched <= 6 * budget as u64,
            "{turn:?}"
        );
        assert!(
            left <= queued && queued - left <= budget as u64,
            "{queued} messages, {left} left of {budget}"
        );
        assert!(queued == 0 || budget == 0 || left < queued, "there is progress");
        self.partly |= queued != left;
        if self.due().any(|(id, _)| !self.asked.contains(id)) {
            assert!(turn.behind && local_timer().time_until_next() == Some(Duration::ZERO));
        }
    }

    // ---- what can be asked at any time

    fn compare_counts(&self) {
        let Counts { added, fired, cancelled, handed_back, live, held, queued, runs, .. } =
            local_timer().counts();
        assert_eq!(added, live + fired + cancelled + handed_back);
        assert_eq!((fired, runs, handed_back), (self.fired, self.runs, 0));
        assert!(live == local_timer().len() as u64 && held <= live && held <= queued);
        let arriving = self.added as u64 - added;
        let (asked, unseen) = (self.asked.len() as u64, self.cancelled - cancelled);
        assert!(
            arriving <= queued && queued <= asked && held <= unseen && unseen <= held + arriving
        );
        assert_eq!(live - held + arriving - (unseen - held), self.live.len() as u64);
        if !self.partly {
            let theirs = (queued, arriving, held);
            assert_eq!(
                theirs,
                (
                    asked,
                    self.arriving.len() as u64,
                    self.held.difference(&self.arriving).count() as u64
                )
            );
        }
    }

    fn compare_sleeps(&self) {
        let now = self.now();
        let until = |live: &Live| tick_of(live.due).saturating_mul(TICK_NANOS).saturating_sub(now);
        let earliest = self.live.values().map(until).min();
        let asleep = |slept: Option<Duration>| slept.map_or(u64::MAX, nanos);
        let time_until_next = local_timer().time_until_next();
        assert_eq!(local_timer().next_deadline().is_some(), time_until_next.is_some());
        let timeout = local_timer().prepare_sleep().timeout();
        for slept in [time_until_next, timeout] {
            assert!(
                earliest.is_none_or(|earliest| asleep(slept) <= earliest && slept.is_some()),
                "{slept:?}"
            );
            // Something is in the mailbox that may be due.
            assert!(!self.urgent || self.partly || slept == Some(Duration::ZERO), "{slept:?}");
        }
    }
}

#[test]
fn timers_from_elsewhere_keep_the_promises_in_virtual_time() {
    seeded(0..operations(20), |random| {
        let random = random.fork();
        in_virtual_time(move |clock| {
            let mut random = random;
            clock.set(Duration::from_nanos(any_magnitude(&mut random) >> 2));
            let mut model = Model::new(clock);
            for _ in 0..2_000 {
                model.any_operation(&mut random);
            }
            model.turn();
            model.compare_counts();
        });
    });
}
