//! The ledger counts dropped payloads, intentional panics and wake-ups. It is separate from the
//! model.
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
    only_counts_drops: AtomicBool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) dropped: u64,
    pub(crate) planned_panics: u64,
    /// The number of planned panics that the library has reported.
    pub(crate) reported_panics: u64,
    pub(crate) wakes: u64,
    /// True if the next call of the wake hook must panic.
    pub(crate) next_wake_must_panic: bool,
}

/// The payload of an intentional panic.
struct PlannedPanic;

impl Ledger {
    pub(crate) fn new(timers: usize, shards: usize) -> Arc<Self> {
        Arc::new(Self {
            drops: (0..timers).map(|_| AtomicU8::new(0)).collect(),
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            only_counts_drops: AtomicBool::new(false),
        })
    }

    pub(crate) fn payload(self: &Arc<Self>, id: Id, shard: usize, must_panic: bool) -> Payload {
        Payload { ledger: Arc::clone(self), id, shard, must_panic }
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
    pub(crate) fn drop_only_counting<T>(&self, value: T) {
        self.only_counts_drops.store(true, Relaxed);
        drop(value);
        self.only_counts_drops.store(false, Relaxed);
    }

    /// Adds counting hooks to a shard's configuration.
    pub(crate) fn add_hooks(self: &Arc<Self>, config: Config, shard: usize) -> Config {
        let (ledger_of_wakes, ledger_of_reports) = (Arc::clone(self), Arc::clone(self));
        let wake = move || {
            if mem::take(&mut ledger_of_wakes.shard(shard).next_wake_must_panic) {
                ledger_of_wakes.panic_as_planned(shard);
            }
            ledger_of_wakes.shard(shard).wakes += 1;
        };
        config.wake_hook(wake).panic_hook(move |report| {
            let is_planned = report.payload().is::<PlannedPanic>();
            ledger_of_reports.shard(shard).reported_panics += u64::from(is_planned);
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
    must_panic: bool,
}

impl Drop for Payload {
    fn drop(&mut self) {
        if let Some(drops) = self.ledger.drops.get(self.id as usize) {
            drops.fetch_add(1, Relaxed);
        }
        self.ledger.shard(self.shard).dropped += 1;
        if self.ledger.only_counts_drops.load(Relaxed) {
            return;
        }
        on_payload_drop(self.id);
        // A second panic during unwinding would abort the process.
        if self.must_panic && !thread::panicking() {
            self.ledger.panic_as_planned(self.shard);
        }
    }
}
