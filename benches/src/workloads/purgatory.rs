//! Delayed operations. Of four, two complete by an event, one is forced, and one times out. On two
//! cores the other core makes the events. The results are operations per second, and the cost of
//! one from its add to its end.

use std::{
    sync::Arc,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::Instant,
};

use corewheel::{Core, Cores};
use fastrand::Rng;

use super::{SEED, in_settings};
use crate::{
    delayed::{Board, Delayed, Ended, Layout, Operation},
    measure::{Sample, cpu_nanos},
    plan::Job,
};

/// How many operations a core adds before it does anything else.
const TOGETHER: usize = 64;
/// How many operations of a core may wait: beyond that it waits for the other one.
const WAITING_MAX: u64 = 4096;
/// In ticks; a tick is a pass of the load. Long enough for every key to have its event.
const LONG: u64 = 30_000;
const SHORT: u64 = 10;

/// Where the keys belong, where there are two cores: to the core whose operations wait, or to the one that makes the events.
const SETTINGS: [(&str, Layout); 3] = [
    ("1-core", Layout { cores: 1, far: false }),
    ("2-cores", Layout { cores: 2, far: false }),
    ("2-cores-far", Layout { cores: 2, far: true }),
];

/// For each setting: thousands of operations a second, the time that the threads ran for one, and the share that completed
/// by an event.
pub fn run<D: Delayed>(job: Job) -> Vec<Sample> {
    in_settings(&SETTINGS, |layout| in_layout::<D>(job, layout))
}

fn in_layout<D: Delayed>(job: Job, layout: Layout) -> Vec<Sample> {
    let (keys, effort) = (job.n, job.effort());
    // For ever: a run is a process.
    let board: &Board = Box::leak(Box::new(Board {
        events: (0..keys).map(|_| AtomicU64::new(0)).collect(),
        ended: (0..layout.cores).map(|_| Ended::default()).collect(),
    }));
    let (common, is_over) = (D::common(layout), Arc::new(AtomicBool::new(false)));
    let cores = Cores::builder().shards(layout.cores).config({
        let common = common.clone();
        move |core| D::config(&common, core)
    });
    let cores = cores.start({
        let is_over = Arc::clone(&is_over);
        move |core| {
            let mut load = Load::new(D::new(&common, &core), &core, board, layout);
            while !is_over.load(Relaxed) {
                load.pass();
            }
            load.added
        }
    });
    let cores = cores.expect("threads can be started");
    thread::sleep(effort.warm_up_max);
    let (began, cpu, before) = (Instant::now(), cpu_nanos(), ended(board));
    // Longer on a machine so busy that the threads had no turn.
    while began.elapsed() < effort.timed || ended(board) == before {
        thread::sleep(effort.timed);
    }
    let (took, cpu, after) = (began.elapsed(), cpu_nanos() - cpu, ended(board));
    is_over.store(true, Relaxed);
    let added: u64 =
        cores.join().into_iter().map(|added| added.expect("a load that does not panic")).sum();
    assert!(ended(board).iter().sum::<u64>() <= added, "each ends once");
    let [condition, otherwise] = [0, 1].map(|way| (after[way] - before[way]) as f64);
    let all = condition + otherwise;
    vec![
        job.sample("rate", "k/s", all / took.as_secs_f64() / 1e3),
        job.sample("cpu", "ns", cpu / all),
        job.sample("by-event", "%", condition / all * 100.0),
    ]
}

fn ended(board: &Board) -> [u64; 2] {
    let sum = |[a, b]: [u64; 2], [c, d]: [u64; 2]| [a + c, b + d];
    board.ended.iter().map(Ended::read).fold([0, 0], sum)
}

struct Load<D: Delayed> {
    delayed: D,
    board: &'static Board,
    layout: Layout,
    core: usize,
    rng: Rng,
    added: u64,
    /// Whose turn it is to be forced.
    to_force: Vec<D::Id>,
    /// The key on which this core makes the next event.
    next: usize,
    made: u64,
}

impl<D: Delayed> Load<D> {
    fn new(delayed: D, core: &Core, board: &'static Board, layout: Layout) -> Self {
        let rng = Rng::with_seed(SEED + core.index() as u64);
        let (core, to_force) = (core.index(), Vec::new());
        Self { delayed, board, layout, core, rng, added: 0, to_force, next: core, made: 0 }
    }

    fn pass(&mut self) {
        for id in self.to_force.drain(..) {
            self.delayed.force(id);
        }
        let ended: u64 = self.board.ended[self.core].read().iter().sum();
        if self.added - ended <= WAITING_MAX {
            for place in 0..TOGETHER {
                self.add(place % 4);
            }
            self.board.ended[self.core].added.fetch_add(TOGETHER as u64 / 2, Relaxed);
        } else {
            thread::yield_now();
        }
        for _ in 0..self.events_wanted() {
            self.make_event();
        }
        self.delayed.tick();
    }

    /// Adds one that waits for an event, or one that is forced, or one that times out.
    fn add(&mut self, kind: usize) {
        let cores = self.layout.cores;
        // The core before this one makes the events.
        let maker = (self.core + cores - 1) % cores;
        let key = maker + cores * self.rng.usize(..self.board.events.len() / cores);
        let next = self.board.events[key].load(Relaxed) + 1;
        let (wanted, ticks) = match kind {
            0 | 1 => (next, LONG),
            2 => (u64::MAX, LONG),
            _ => (u64::MAX, SHORT),
        };
        let operation =
            Operation { board: self.board, key: key as u32, core: self.core as u32, wanted };
        let id = self.delayed.add(operation, ticks);
        self.added += 1;
        self.to_force.extend(id.filter(|_| kind == 2));
    }

    /// As many events as the other core has added operations that wait for one. Otherwise a core
    /// that runs while the other does not would fill its mailbox with needless events.
    fn events_wanted(&self) -> u64 {
        let keys = self.board.events.len() as u64;
        let added = self.board.ended[self.layout.waiting_for(self.core)].added.load(Relaxed);
        (added + keys).saturating_sub(self.made).min(TOGETHER as u64 / 2)
    }

    /// On one key after the other.
    fn make_event(&mut self) {
        self.made += 1;
        self.board.events[self.next].fetch_add(1, Relaxed);
        self.delayed.notify(self.next);
        self.next += self.layout.cores;
        if self.next >= self.board.events.len() {
            self.next = self.core;
        }
    }
}
