//! Tests of the peers and schemes against a model.

use std::any::type_name;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::thread;

use corewheel_bench::peers::{
    BTree, CorewheelLocal, CorewheelShard, CorewheelWheel, DelayQueuePeer, Floor, HashWheel, Heap4,
    LazyBinaryHeap, Linked64, Single65536, TokioSleep,
};
use corewheel_bench::schemes::{
    Countdown, Kafka, Linux, Netty, OrderedList, RoundsWheel, SchemeTimers, SortedSlots,
};
use corewheel_bench::timers::{ReportsDeadline, TimerSet, Window, connection, payload};
use fastrand::Rng;

const OPERATIONS: usize = 30_000;

#[derive(Clone, Copy)]
struct PeerProperties {
    delay_max: u64,
    /// Returns the maximum lateness of a timer with the given interval, in ticks.
    lateness_max: fn(u64) -> u64,
    /// Whether a stale handle is recognized after its node is reused.
    detects_stale_handles: bool,
}

const EXACT: PeerProperties =
    PeerProperties { delay_max: 200_000, lateness_max: |_| 0, detects_stale_handles: true };

struct Timer<H> {
    deadline: u64,
    /// The last tick at which the timer may fire.
    latest: u64,
    handle: H,
}

struct Model<T: TimerSet> {
    timers: T,
    live: BTreeMap<usize, Timer<T::Handle>>,
    ended: Vec<T::Handle>,
    now: u64,
    next_id: usize,
    rng: Rng,
    properties: PeerProperties,
    reached_latest: bool,
}

impl<T: TimerSet> Model<T> {
    fn new(properties: PeerProperties) -> Self {
        Self {
            timers: T::new(),
            live: BTreeMap::new(),
            ended: Vec::new(),
            now: 0,
            next_id: 0,
            rng: Rng::with_seed(7),
            properties,
            reached_latest: false,
        }
    }

    fn run(mut self) {
        for _ in 0..OPERATIONS {
            match self.rng.u32(..100) {
                0..40 => self.add(),
                40..60 => self.cancel(),
                60..75 => self.reset(),
                75..80 => self.cancel_ended(),
                _ => self.advance(),
            }
        }
        assert!(self.next_id > OPERATIONS / 4, "the model added too few timers");
        assert!(self.reached_latest, "no timer was as late as documented");
        let last = self.live.values().map(|timer| timer.latest).max();
        self.advance_by(last.map_or(0, |last| last - self.now));
        assert!(self.live.is_empty(), "a timer has not fired");
    }

    /// Draws a deadline, mostly near, sometimes as far as the peer's range.
    fn deadline(&mut self) -> u64 {
        let longest = self.properties.delay_max;
        let delay_limit = [10, 100, 5000, longest][self.rng.usize(..4)].min(longest);
        self.now + self.rng.u64(1..=delay_limit)
    }

    fn latest(&self, deadline: u64) -> u64 {
        deadline + (self.properties.lateness_max)(deadline - self.now)
    }

    fn add(&mut self) {
        let (id, deadline) = (self.next_id, self.deadline());
        self.next_id += 1;
        let handle = self.timers.add(deadline, payload(id));
        let latest = self.latest(deadline);
        self.live.insert(id, Timer { deadline, latest, handle });
    }

    fn any_live(&mut self) -> Option<usize> {
        let from = self.rng.usize(..=self.next_id);
        self.live.range(from..).next().map(|(&id, _)| id)
    }

    fn cancel(&mut self) {
        let Some(id) = self.any_live() else { return };
        let Timer { handle, .. } = self.live.remove(&id).expect("live");
        assert!(self.timers.cancel(&handle), "timer {id} was live");
        self.ended.push(handle);
    }

    fn reset(&mut self) {
        let Some(id) = self.any_live() else { return };
        let deadline = self.deadline();
        let latest = self.latest(deadline);
        let timer = self.live.get_mut(&id).expect("live");
        assert!(self.timers.reset(&mut timer.handle, deadline), "timer {id} was live");
        (timer.deadline, timer.latest) = (deadline, latest);
    }

    fn cancel_ended(&mut self) {
        if !self.properties.detects_stale_handles || self.ended.is_empty() {
            return;
        }
        let mut handle = self.ended[self.rng.usize(..self.ended.len())].clone();
        assert!(!self.timers.cancel(&handle), "a stale handle cancelled a timer");
        let deadline = self.deadline();
        assert!(!self.timers.reset(&mut handle, deadline), "a stale handle moved a timer");
    }

    fn advance(&mut self) {
        match self.rng.u32(..40) {
            0 => {
                let ticks = self.rng.u64(1..=3000);
                self.advance_by(ticks);
            }
            1..4 => (0..30).for_each(|_| self.advance_by(1)),
            _ => (0..self.rng.u32(1..=3)).for_each(|_| self.advance_by(1)),
        }
    }

    fn advance_by(&mut self, ticks: u64) {
        let first = self.now + 1;
        self.now += ticks;
        let mut fired = BTreeSet::new();
        self.timers
            .advance(self.now, |payload| assert!(fired.insert(connection(payload)), "fired twice"));
        for id in fired {
            let timer = self.live.remove(&id).expect("live");
            assert!(timer.deadline <= self.now, "{} is early at {}", timer.deadline, self.now);
            self.reached_latest |= first == timer.latest;
            self.ended.push(timer.handle);
        }
        assert!(self.live.values().all(|timer| timer.latest > self.now), "late at {}", self.now);
    }
}

/// Runs the model in a new thread, because some peers are thread-local.
fn assert_matches_model<T: TimerSet>(properties: PeerProperties) {
    let checked = thread::scope(|scope| scope.spawn(|| Model::<T>::new(properties).run()).join());
    assert!(checked.is_ok(), "{}", type_name::<T>());
}

#[test]
fn peers_match_the_model() {
    assert_matches_model::<CorewheelWheel>(EXACT);
    assert_matches_model::<CorewheelShard>(EXACT);
    assert_matches_model::<CorewheelLocal>(EXACT);
    assert_matches_model::<BTree>(EXACT);
    assert_matches_model::<Heap4>(EXACT);
    assert_matches_model::<LazyBinaryHeap>(EXACT);
    assert_matches_model::<Linked64>(EXACT);
    assert_matches_model::<Single65536>(PeerProperties { delay_max: 65_535, ..EXACT });
    assert_matches_model::<HashWheel>(EXACT);
    assert_matches_model::<DelayQueuePeer>(PeerProperties {
        detects_stale_handles: false,
        ..EXACT
    });
    assert_matches_model::<TokioSleep>(EXACT);
}

#[test]
fn schemes_match_the_model() {
    assert_matches_model::<SchemeTimers<Countdown>>(EXACT);
    assert_matches_model::<SchemeTimers<OrderedList>>(EXACT);
    assert_matches_model::<SchemeTimers<SortedSlots>>(EXACT);
    assert_matches_model::<SchemeTimers<SortedSlots<4>>>(EXACT);
    assert_matches_model::<SchemeTimers<RoundsWheel>>(EXACT);
    assert_matches_model::<SchemeTimers<RoundsWheel<4>>>(EXACT);
    assert_matches_model::<SchemeTimers<Kafka>>(EXACT);
    assert_matches_model::<SchemeTimers<Kafka<2>>>(EXACT);
    assert_matches_model::<SchemeTimers<Kafka<3>>>(EXACT);
    assert_matches_model::<SchemeTimers<Netty>>(PeerProperties { lateness_max: |_| 100, ..EXACT });
    assert_matches_model::<SchemeTimers<Netty<7>>>(PeerProperties { lateness_max: |_| 7, ..EXACT });
    assert_matches_model::<SchemeTimers<Netty<1>>>(PeerProperties { lateness_max: |_| 1, ..EXACT });
    let lateness_max = |interval: u64| (interval * 8 / 63).max(1);
    assert_matches_model::<SchemeTimers<Linux>>(PeerProperties { lateness_max, ..EXACT });
}

/// The slots of the levels are 1, 8, 64, 512 and 4,096 ticks wide.
#[test]
fn linux_fires_at_the_slot_after_the_deadline() {
    for (deadline, fires) in
        [(1, 2), (63, 64), (64, 72), (505, 512), (4033, 4096), (32_257, 32_768), (32_768, 36_864)]
    {
        let mut linux = SchemeTimers::<Linux>::new();
        linux.add(deadline, payload(0));
        linux.advance(fires - 1, |_| panic!("{deadline} fired too early"));
        let mut fired = false;
        linux.advance(fires, |_| fired = true);
        assert!(fired, "{deadline} did not fire at {fires}");
    }
}

/// Floors never fire, so they cannot match the model.
fn assert_rejects_stale_handles<const CAS: bool>() {
    let mut floor = Floor::<CAS>::new();
    let first = floor.add(5, payload(1));
    let mut second = floor.add(6, payload(2));
    assert!(floor.cancel(&first) && !floor.cancel(&first));
    let third = floor.add(7, payload(3));
    assert!(!floor.cancel(&first), "the node has a new timer");
    assert!(floor.reset(&mut second, 9));
    assert!(floor.cancel(&third) && floor.cancel(&second));
}

#[test]
fn floors_reject_stale_handles() {
    assert_rejects_stale_handles::<false>();
    assert_rejects_stale_handles::<true>();
}

fn assert_fires_at_deadline<T: TimerSet>(bits: Range<u32>) {
    for shift in bits {
        let mut wheel = T::new();
        let deadline = (1 << shift) + 1;
        wheel.add(deadline, payload(1));
        wheel.advance(deadline - 1, |_| panic!("early"));
        let mut fired = 0;
        wheel.advance(deadline, |_| fired += 1);
        assert_eq!(fired, 1, "2^{shift}");
    }
}

#[test]
fn timers_of_every_level_fire_at_their_deadlines() {
    assert_fires_at_deadline::<Linked64>(0..63);
    assert_fires_at_deadline::<SchemeTimers<Kafka>>(0..40);
}

const TIMERS: usize = 5000;
const DELAY_MAX: u64 = 200_000;

/// Advances from deadline to deadline; returns the tick at which each timer fired.
fn firing_ticks(mut timers: impl ReportsDeadline) -> Vec<u64> {
    let mut fired = vec![0; TIMERS];
    let mut now = 0;
    while let Some(next) = timers.next_deadline() {
        assert!(next > now, "a timer is overdue at {now}");
        now = next;
        timers.advance(now, |payload| {
            assert_eq!(std::mem::replace(&mut fired[connection(payload)], now), 0);
        });
    }
    fired
}

fn assert_fires_in_window<T: ReportsDeadline>(window: fn(u64) -> Window) {
    let (mut timers, mut rng) = (T::new(), Rng::with_seed(3));
    let windows: Vec<(u64, u64)> = (0..TIMERS)
        .map(|id| (rng.u64(1..DELAY_MAX), if id % 3 == 0 { 0 } else { rng.u64(..DELAY_MAX / 10) }))
        .collect();
    for (id, &(deadline, width)) in windows.iter().enumerate() {
        timers.add_in_window(deadline, window(width), payload(id));
    }
    for ((deadline, width), fired) in windows.into_iter().zip(firing_ticks(timers)) {
        assert!((deadline..=deadline + width).contains(&fired), "{deadline} + {width}: {fired}");
    }
}

fn assert_fires_in_each_window<T: ReportsDeadline + 'static>() {
    for window in [Window::Slack, Window::Spread] {
        thread::spawn(move || assert_fires_in_window::<T>(window)).join().expect("in its window");
    }
}

#[test]
fn timers_fire_within_their_slack_or_spread() {
    assert_fires_in_each_window::<CorewheelWheel>();
    assert_fires_in_each_window::<CorewheelShard>();
    assert_fires_in_each_window::<CorewheelLocal>();
    assert_fires_in_each_window::<Linked64>();
    assert_fires_in_each_window::<BTree>();
}
