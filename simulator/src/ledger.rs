//! What is counted where no model can be asked: payloads that are dropped, panics that are thrown on purpose, wakes.
//!
//! One thread runs at a time; the atomics stand for cells that are reached from every thread, also from one that is ending.

use std::{
    panic::resume_unwind,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed},
    },
    thread,
};

use corewheel::Config;

use crate::here;

/// Counts of one episode.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// How often the payload of each timer was dropped, by the timer's number.
    drops: Box<[AtomicU8]>,
    lives: Box<[OfLife]>,
    /// The simulator itself drops a payload: nothing else happens.
    quiet: AtomicBool,
}

/// Counts of one shard, from its making to its end.
#[derive(Debug, Default)]
struct OfLife {
    dropped: AtomicU64,
    /// Panics thrown where the library catches them, and panics that it has reported.
    planned: AtomicU64,
    reported: AtomicU64,
    wakes: AtomicU64,
    wake_panics: AtomicBool,
}

/// What is thrown on purpose.
struct Planned;

impl Ledger {
    pub(crate) fn new(timers: usize, lives: usize) -> Arc<Self> {
        Arc::new(Self {
            drops: (0..timers).map(|_| AtomicU8::new(0)).collect(),
            lives: (0..lives).map(|_| OfLife::default()).collect(),
            quiet: AtomicBool::new(false),
        })
    }

    pub(crate) fn payload(self: &Arc<Self>, id: u32, life: usize, panics: bool) -> Payload {
        let life = u16::try_from(life).expect("an episode has few shards");
        Payload { ledger: Arc::clone(self), id, life, panics }
    }

    /// A payload that is of no timer.
    pub(crate) fn stray(self: &Arc<Self>, life: usize) -> Payload {
        self.payload(u32::MAX, life, false)
    }

    pub(crate) fn drops(&self, id: usize) -> u8 {
        self.drops[id].load(Relaxed)
    }

    pub(crate) fn dropped(&self, life: usize) -> u64 {
        self.lives[life].dropped.load(Relaxed)
    }

    pub(crate) fn planned(&self, life: usize) -> u64 {
        self.lives[life].planned.load(Relaxed)
    }

    pub(crate) fn reported(&self, life: usize) -> u64 {
        self.lives[life].reported.load(Relaxed)
    }

    pub(crate) fn wakes(&self, life: usize) -> u64 {
        self.lives[life].wakes.load(Relaxed)
    }

    /// The next call of the wake hook panics.
    pub(crate) fn let_wake_panic(&self, life: usize) {
        self.lives[life].wake_panics.store(true, Relaxed);
    }

    /// Panics, on behalf of the user's code.
    pub(crate) fn throw(&self, life: usize) -> ! {
        self.lives[life].planned.fetch_add(1, Relaxed);
        // Unlike `panic!` this prints nothing.
        resume_unwind(Box::new(Planned))
    }

    /// Drops what came back, without what its payload would do.
    pub(crate) fn drop_quietly<T>(&self, value: T) {
        self.quiet.store(true, Relaxed);
        drop(value);
        self.quiet.store(false, Relaxed);
    }

    /// Gives a shard hooks that count.
    pub(crate) fn hooks(self: &Arc<Self>, config: Config, life: usize) -> Config {
        let (waking, reporting) = (Arc::clone(self), Arc::clone(self));
        config.on_wake(move || waking.woken(life)).on_panic(move |report| {
            let planned = report.payload().is::<Planned>();
            reporting.lives[life].reported.fetch_add(u64::from(planned), Relaxed);
        })
    }

    fn woken(&self, life: usize) {
        if self.lives[life].wake_panics.swap(false, Relaxed) {
            self.throw(life);
        }
        self.lives[life].wakes.fetch_add(1, Relaxed);
    }
}

/// What a shard holds, or a callback captures.
#[derive(Debug)]
pub(crate) struct Payload {
    ledger: Arc<Ledger>,
    pub(crate) id: u32,
    life: u16,
    /// When it is dropped.
    panics: bool,
}

impl Drop for Payload {
    fn drop(&mut self) {
        let life = usize::from(self.life);
        if let Some(drops) = self.ledger.drops.get(self.id as usize) {
            drops.fetch_add(1, Relaxed);
        }
        self.ledger.lives[life].dropped.fetch_add(1, Relaxed);
        if self.ledger.quiet.load(Relaxed) {
            return;
        }
        here::payload_dropped(self.id);
        // A second panic while unwinding aborts, as everywhere.
        if self.panics && !thread::panicking() {
            self.ledger.throw(life);
        }
    }
}
