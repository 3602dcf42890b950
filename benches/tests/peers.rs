//! Each peer against a model: a peer must be right before it is fast.

use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
};

use corewheel_bench::{
    peers::{
        BTree, CorewheelLocal, CorewheelShard, CorewheelWheel, DelayQueuePeer, Floor, HashWheel,
        Heap4, LazyBinaryHeap, Linked64, Single65536, TokioSleep,
    },
    timers::{Timers, connection, payload},
};
use fastrand::Rng;

const OPERATIONS: usize = 30_000;

/// The properties of a peer, besides being right.
#[derive(Clone, Copy)]
struct Promise {
    longest_delay: u64,
    /// A handle whose timer has ended finds nothing, also when what it names is used again.
    survives_reuse: bool,
}

const COMPLETE: Promise = Promise { longest_delay: 200_000, survives_reuse: true };

/// The peer, and its expected contents: live timers by number, with deadline and handle.
struct Model<T: Timers> {
    timers: T,
    live: BTreeMap<usize, (u64, T::Handle)>,
    ended: Vec<T::Handle>,
    now: u64,
    next: usize,
    rng: Rng,
    promise: Promise,
}

impl<T: Timers> Model<T> {
    fn new(promise: Promise) -> Self {
        let (live, ended, rng) = (BTreeMap::new(), Vec::new(), Rng::with_seed(7));
        Self { timers: T::new(), live, ended, now: 0, next: 0, rng, promise }
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
        assert!(self.next > OPERATIONS / 4, "the model did too little");
    }

    /// Mostly near, so that much fires; sometimes as far as the peer reaches.
    fn deadline(&mut self) -> u64 {
        let reach = [10, 100, 5000, self.promise.longest_delay][self.rng.usize(..4)];
        self.now + self.rng.u64(1..=reach)
    }

    fn add(&mut self) {
        let (id, deadline) = (self.next, self.deadline());
        self.next += 1;
        let handle = self.timers.add(deadline, payload(id));
        self.live.insert(id, (deadline, handle));
    }

    fn any_live(&mut self) -> Option<usize> {
        let from = self.rng.usize(..=self.next);
        self.live.range(from..).next().map(|(&id, _)| id)
    }

    fn cancel(&mut self) {
        let Some(id) = self.any_live() else { return };
        let (_, handle) = self.live.remove(&id).expect("live");
        assert!(self.timers.cancel(&handle), "timer {id} was live");
        self.ended.push(handle);
    }

    fn reset(&mut self) {
        let Some(id) = self.any_live() else { return };
        let deadline = self.deadline();
        let (known, handle) = self.live.get_mut(&id).expect("live");
        assert!(self.timers.reset(handle, deadline), "timer {id} was live");
        *known = deadline;
    }

    fn cancel_ended(&mut self) {
        if !self.promise.survives_reuse || self.ended.is_empty() {
            return;
        }
        let mut handle = self.ended[self.rng.usize(..self.ended.len())].clone();
        assert!(!self.timers.cancel(&handle), "a stale handle cancelled a timer");
        let deadline = self.deadline();
        assert!(!self.timers.reset(&mut handle, deadline), "a stale handle moved a timer");
    }

    fn advance(&mut self) {
        self.now +=
            if self.rng.u32(..20) == 0 { self.rng.u64(1..=3000) } else { self.rng.u64(1..=3) };
        let mut fired = BTreeSet::new();
        self.timers
            .advance(self.now, |payload| assert!(fired.insert(connection(payload)), "fired twice"));
        let due = self.live.iter().filter(|(_, (deadline, _))| *deadline <= self.now);
        assert_eq!(fired, due.map(|(&id, _)| id).collect(), "at tick {}", self.now);
        for id in fired {
            let (_, handle) = self.live.remove(&id).expect("live");
            self.ended.push(handle);
        }
    }
}

type Check = fn(Promise);

/// Each has a thread, because some peers are thread-local.
#[test]
fn peers_keep_to_the_model() {
    let near = Promise { longest_delay: 65_535, ..COMPLETE };
    let reuses_keys = Promise { survives_reuse: false, ..COMPLETE };
    let peers: [(&str, Check, Promise); 11] = [
        ("corewheel-wheel", check::<CorewheelWheel>, COMPLETE),
        ("corewheel-shard", check::<CorewheelShard>, COMPLETE),
        ("corewheel-local", check::<CorewheelLocal>, COMPLETE),
        ("linked64", check::<Linked64>, COMPLETE),
        ("single65536", check::<Single65536>, near),
        ("heap4", check::<Heap4>, COMPLETE),
        ("binary-heap", check::<LazyBinaryHeap>, COMPLETE),
        ("btree", check::<BTree>, COMPLETE),
        ("hierarchical-hash-wheel", check::<HashWheel>, COMPLETE),
        ("delay-queue", check::<DelayQueuePeer>, reuses_keys),
        ("tokio-sleep", check::<TokioSleep>, COMPLETE),
    ];
    let threads = peers.map(|(name, check, promise)| {
        thread::Builder::new().name(name.to_owned()).spawn(move || check(promise)).expect(name)
    });
    let all_kept = threads.into_iter().all(|thread| thread.join().is_ok());
    assert!(all_kept, "the thread of a peer that failed has said why");
}

fn check<T: Timers>(promise: Promise) {
    Model::<T>::new(promise).run();
}

/// The floors never fire; the rest of their contract holds.
fn check_floor<const CAS: bool>() {
    let mut floor = Floor::<CAS>::new();
    let first = floor.add(5, payload(1));
    let mut second = floor.add(6, payload(2));
    assert!(floor.cancel(&first) && !floor.cancel(&first));
    let third = floor.add(7, payload(3));
    assert!(!floor.cancel(&first), "its node has a new timer");
    assert!(floor.reset(&mut second, 9));
    assert!(floor.cancel(&third) && floor.cancel(&second));
}

#[test]
fn floors() {
    check_floor::<false>();
    check_floor::<true>();
}

/// `linked64` to the end of time: each level has its cascade.
#[test]
fn linked64_reaches_everywhere() {
    for shift in 0..63 {
        let mut wheel = Linked64::new();
        let deadline = (1 << shift) + 1;
        wheel.add(deadline, payload(1));
        wheel.advance(deadline - 1, |_| panic!("early"));
        let mut fired = 0;
        wheel.advance(deadline, |_| fired += 1);
        assert_eq!(fired, 1, "2^{shift}");
    }
}
