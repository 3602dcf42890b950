//! The ledger counts dropped payloads, intentional panics and wake-ups, apart from the model.
//!
//! Only one thread runs at a time, so atomics and locks only make the ledger shareable.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::{mem, thread};

use corewheel::Config;

use crate::core::on_payload_drop;
use crate::plan::Id;

#[derive(Debug)]
pub(crate) struct Ledger {
    /// How often the payload of each timer was dropped.
    drops: Box<[AtomicU8]>,
    shards: Box<[Mutex<Totals>]>,
    /// True while destructors of payloads must only count, because the simulator itself drops
    /// payloads.
    quiet: AtomicBool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) dropped: u64,
    pub(crate) planned_panics: u64,
    /// The number of planned panics that the library has reported.
    pub(crate) reported_panics: u64,
    pub(crate) wakes: u64,
    /// True if the next call of the wake hook must panic.
    pub(crate) wake_panics: bool,
}

/// The payload of an intentional panic.
struct PlannedPanic;

impl Ledger {
    pub(crate) fn new(timers: usize, shards: usize) -> Arc<Self> {
        Arc::new(Self {
            drops: (0..timers).map(|_| AtomicU8::new(0)).collect(),
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            quiet: AtomicBool::new(false),
        })
    }

    pub(crate) fn payload(self: &Arc<Self>, id: Id, shard: usize, panics: bool) -> Payload {
        Payload { ledger: Arc::clone(self), id, shard, panics }
    }

    pub(crate) fn drops(&self, id: usize) -> u8 {
        self.drops[id].load(Relaxed)
    }

    pub(crate) fn shard(&self, shard: usize) -> MutexGuard<'_, Totals> {
        self.shards[shard].lock().expect("no holder panics")
    }

    pub(crate) fn panic_as_planned(&self, shard: usize) -> ! {
        self.shard(shard).planned_panics += 1;
        // Unlike `panic!`, this prints nothing.
        resume_unwind(Box::new(PlannedPanic))
    }

    /// Drops a value. During the drop, destructors of payloads only count: they neither panic nor
    /// cancel.
    pub(crate) fn drop_quietly<T>(&self, value: T) {
        self.quiet.store(true, Relaxed);
        drop(value);
        self.quiet.store(false, Relaxed);
    }

    /// Adds counting hooks to a shard's configuration.
    pub(crate) fn add_hooks(self: &Arc<Self>, config: Config, shard: usize) -> Config {
        let (waking, reporting) = (Arc::clone(self), Arc::clone(self));
        let wake = move || {
            if mem::take(&mut waking.shard(shard).wake_panics) {
                waking.panic_as_planned(shard);
            }
            waking.shard(shard).wakes += 1;
        };
        config.wake_hook(wake).panic_hook(move |report| {
            let planned = report.payload().is::<PlannedPanic>();
            reporting.shard(shard).reported_panics += u64::from(planned);
        })
    }
}

/// The payload of a timer: a `Shard` stores it, or a callback captures it.
#[derive(Debug)]
pub(crate) struct Payload {
    ledger: Arc<Ledger>,
    pub(crate) id: Id,
    shard: usize,
    /// True if the payload's destructor must panic.
    panics: bool,
}

impl Drop for Payload {
    fn drop(&mut self) {
        if let Some(drops) = self.ledger.drops.get(self.id as usize) {
            drops.fetch_add(1, Relaxed);
        }
        self.ledger.shard(self.shard).dropped += 1;
        if self.ledger.quiet.load(Relaxed) {
            return;
        }
        on_payload_drop(self.id);
        // A second panic during unwinding would abort the process.
        if self.panics && !thread::panicking() {
            self.ledger.panic_as_planned(self.shard);
        }
    }
}
