//! The interface of a peer whose timers another core cancels.
//!
//! A peer has two ends on two cores. One end adds timers. The other has their handles and cancels
//! them. Then the first end collects them, and only then their memory can be reused.

mod floor;

use std::{
    fmt::Debug,
    mem,
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
    time::Duration,
};

use corewheel::{Cancel, Config, ManualClock, Shard, TimerHandle, local_timer};
use rtrb::{Consumer, Producer, RingBuffer};
use tokio::time::sleep;

pub use self::floor::FloorEnd;
use crate::{
    peers::{self, LocalClock, Place, RealTime},
    timers::{Payload, Timers, not_due},
    workloads::OPERATIONS_PER_TICK,
};

/// Timers that one core has handed to the other and not yet taken in, at most.
pub const IN_FLIGHT: usize = 4096;

/// How many timers are handed over at a time.
pub const BATCH: usize = 64;

/// The virtual time after this number of adds, for peers that read no clock.
fn tick(added: u64) -> u64 {
    added / OPERATIONS_PER_TICK as u64
}

/// One of two ends.
pub trait Crossing: Sized {
    /// Names a timer to the other end.
    type Handle: Debug + Send + 'static;
    /// What an end is made of, on its own thread.
    type Seed: Send + 'static;

    /// Creates two connected ends, each for at most this number of timers at a time.
    fn seeds(timers: usize) -> [Self::Seed; 2];

    /// One end.
    fn new(seed: Self::Seed) -> Self;

    /// Adds a timer that is due in `delay` milliseconds.
    fn add(&mut self, delay: u64, payload: Payload) -> Self::Handle;

    /// Cancels a timer of the other end; false if the answer is that it had ended. Where there is no answer, the end that
    /// takes it in looks whether it was live.
    fn cancel(&mut self, handle: Self::Handle) -> bool;

    /// Sends the other end more, after some cancels, for peers that need it.
    fn send(&mut self) {}

    /// Lets the timers have their turn, in which none may fire, and takes in those that the other end has cancelled;
    /// how many these were.
    fn turn(&mut self) -> u64;
}

/// Opens a channel in each direction; returns the two ends of each side.
pub(crate) fn both_ways<S, R>(open: impl Fn() -> (S, R)) -> [(S, R); 2] {
    let [(to_first, of_first), (to_second, of_second)] = [(); 2].map(|()| open());
    [(to_second, of_first), (to_first, of_second)]
}

/// `corewheel-local` by the machine's clock, or its fast one.
#[derive(Debug)]
pub struct Local<const FAST: bool>(());

impl<const FAST: bool> Crossing for Local<FAST> {
    type Handle = TimerHandle;
    type Seed = ();

    fn seeds(_: usize) -> [(); 2] {
        [(), ()]
    }

    fn new((): ()) -> Self {
        RealTime::<FAST>::install();
        Self(())
    }

    fn add(&mut self, delay: u64, payload: Payload) -> TimerHandle {
        local_timer().add(Duration::from_millis(delay), move || not_due(payload))
    }

    fn cancel(&mut self, handle: TimerHandle) -> bool {
        handle.cancel() == Cancel::Cancelled
    }

    fn turn(&mut self) -> u64 {
        let turn = local_timer().turn();
        assert_eq!(turn.fired, 0, "nothing is due");
        turn.collected as u64
    }
}

/// `corewheel-shard`, in virtual time.
#[derive(Debug)]
pub struct LocalShard {
    shard: Shard<Payload>,
    clock: ManualClock,
    added: u64,
    live: usize,
}

impl Crossing for LocalShard {
    type Handle = TimerHandle;
    type Seed = ();

    fn seeds(_: usize) -> [(); 2] {
        [(), ()]
    }

    fn new((): ()) -> Self {
        let clock = ManualClock::new();
        let shard = Shard::with_config(Config::new().clock(&clock)).expect("there are few shards");
        Self { shard, clock, added: 0, live: 0 }
    }

    fn add(&mut self, delay: u64, payload: Payload) -> TimerHandle {
        self.added += 1;
        self.live += 1;
        self.shard.add(Duration::from_millis(delay), payload)
    }

    fn cancel(&mut self, handle: TimerHandle) -> bool {
        handle.cancel() == Cancel::Cancelled
    }

    fn turn(&mut self) -> u64 {
        self.clock.set(Duration::from_millis(tick(self.added)));
        self.shard.turn();
        let expired = self.shard.next_expired();
        assert!(expired.is_none(), "nothing is due");
        // Not by its counts, which would look at all that waits.
        let before = mem::replace(&mut self.live, self.shard.len());
        (before - self.live) as u64
    }
}

/// `channel`: a wheel that only its owner touches, and a channel by which others ask it to cancel. They get no answer: the
/// timer may have fired, or fire before the request is read. In virtual time.
#[derive(Debug)]
pub struct Channel<T: Timers> {
    timers: T,
    to_other: Sender<T::Handle>,
    requests: Receiver<T::Handle>,
    added: u64,
}

impl<T: Timers> Crossing for Channel<T>
where
    T::Handle: Send + 'static,
{
    type Handle = T::Handle;
    type Seed = (Sender<T::Handle>, Receiver<T::Handle>);

    fn seeds(_: usize) -> [Self::Seed; 2] {
        both_ways(mpsc::channel)
    }

    fn new((to_other, requests): Self::Seed) -> Self {
        Self { timers: T::new(), to_other, requests, added: 0 }
    }

    fn add(&mut self, delay: u64, payload: Payload) -> T::Handle {
        self.added += 1;
        self.timers.add(tick(self.added) + delay, payload)
    }

    fn cancel(&mut self, handle: T::Handle) -> bool {
        self.to_other.send(handle).expect("the other end is there");
        true
    }

    fn turn(&mut self) -> u64 {
        self.timers.advance(tick(self.added), not_due);
        let mut taken_in = 0;
        for handle in self.requests.try_iter() {
            assert!(self.timers.cancel(&handle), "it was live");
            taken_in += 1;
        }
        taken_in
    }
}

/// `mutex-std`, `mutex-parking-lot`, `mutex-linked64`: one wheel for both cores behind one lock, as where all cores share a
/// timer. Each add and each cancel takes the lock; memory is free at once. In virtual time.
#[derive(Debug)]
pub struct Locked<T: Shareable, L: Lock> {
    shared: Arc<Alone<L::Of<Guarded<T>>>>,
    end: usize,
    taken_in: u64,
}

/// Aligned so that it shares its cache lines with nothing else.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Alone<T>(pub(crate) T);

/// The value behind the lock.
#[derive(Debug)]
pub struct Guarded<T> {
    timers: T,
    added: u64,
    /// How many timers of each end have been cancelled.
    cancelled: [u64; 2],
}

/// Timers that can be put behind a lock.
pub trait Shareable: Timers<Handle: Send> + Debug + Send + 'static {}

impl<T: Timers<Handle: Send> + Debug + Send + 'static> Shareable for T {}

/// A kind of lock.
pub trait Lock: Debug + Sized + 'static {
    /// The lock around a `T`.
    type Of<T: Debug + Send + 'static>: Debug + Send + Sync + 'static;

    /// Puts a value behind a new lock.
    fn new<T: Debug + Send + 'static>(value: T) -> Self::Of<T>;

    /// Calls `act` with the lock taken.
    fn with<T: Debug + Send + 'static, R>(lock: &Self::Of<T>, act: impl FnOnce(&mut T) -> R) -> R;
}

/// `std::sync::Mutex`.
#[derive(Debug)]
pub enum Std {}

impl Lock for Std {
    type Of<T: Debug + Send + 'static> = std::sync::Mutex<T>;

    fn new<T: Debug + Send + 'static>(value: T) -> Self::Of<T> {
        value.into()
    }

    fn with<T: Debug + Send + 'static, R>(lock: &Self::Of<T>, act: impl FnOnce(&mut T) -> R) -> R {
        act(&mut lock.lock().expect("nobody panics"))
    }
}

/// `parking_lot::Mutex`.
#[derive(Debug)]
pub enum ParkingLot {}

impl Lock for ParkingLot {
    type Of<T: Debug + Send + 'static> = parking_lot::Mutex<T>;

    fn new<T: Debug + Send + 'static>(value: T) -> Self::Of<T> {
        value.into()
    }

    fn with<T: Debug + Send + 'static, R>(lock: &Self::Of<T>, act: impl FnOnce(&mut T) -> R) -> R {
        act(&mut lock.lock())
    }
}

impl<T: Shareable, L: Lock> Crossing for Locked<T, L> {
    type Handle = T::Handle;
    type Seed = (Arc<Alone<L::Of<Guarded<T>>>>, usize);

    fn seeds(_: usize) -> [Self::Seed; 2] {
        let guarded = Guarded { timers: T::new(), added: 0, cancelled: [0; 2] };
        let shared = Arc::new(Alone(L::new(guarded)));
        [(Arc::clone(&shared), 0), (shared, 1)]
    }

    fn new((shared, end): Self::Seed) -> Self {
        Self { shared, end, taken_in: 0 }
    }

    fn add(&mut self, delay: u64, payload: Payload) -> T::Handle {
        L::with(&self.shared.0, |guarded| {
            guarded.added += 1;
            guarded.timers.add(tick(guarded.added) + delay, payload)
        })
    }

    fn cancel(&mut self, handle: T::Handle) -> bool {
        L::with(&self.shared.0, |guarded| {
            guarded.cancelled[1 - self.end] += 1;
            guarded.timers.cancel(&handle)
        })
    }

    fn turn(&mut self) -> u64 {
        let cancelled = L::with(&self.shared.0, |guarded| {
            guarded.timers.advance(tick(guarded.added), not_due);
            guarded.cancelled[self.end]
        });
        let before = mem::replace(&mut self.taken_in, cancelled);
        cancelled - before
    }
}

/// `tokio-threads`, `tokio-alt`: tokio's `Sleep`, registered in one worker by a first poll and dropped in the other, by the
/// machine's clock. The drop itself says nothing; `is_elapsed`, asked before, is the answer. Each `Sleep` is pinned in a
/// place that goes back to its owner by a ring and is used again, so that the allocator has no part in it.
#[derive(Debug)]
pub struct TokioDrop {
    free: Vec<Place>,
    emptied: Vec<Place>,
    to_other: Producer<Place>,
    from_other: Consumer<Place>,
}

impl Crossing for TokioDrop {
    type Handle = Place;
    type Seed = (Producer<Place>, Consumer<Place>);

    fn seeds(_: usize) -> [Self::Seed; 2] {
        both_ways(|| RingBuffer::new(IN_FLIGHT))
    }

    fn new((to_other, from_other): Self::Seed) -> Self {
        Self { free: Vec::new(), emptied: Vec::new(), to_other, from_other }
    }

    fn add(&mut self, delay: u64, _: Payload) -> Place {
        peers::put(&mut self.free, sleep(Duration::from_millis(delay)))
    }

    fn cancel(&mut self, mut place: Place) -> bool {
        let was_live = peers::empty(&mut place);
        self.emptied.push(place);
        was_live
    }

    fn send(&mut self) {
        let chunk =
            self.to_other.write_chunk_uninit(self.emptied.len()).expect("room for all in flight");
        chunk.fill_from_iter(self.emptied.drain(..));
    }

    fn turn(&mut self) -> u64 {
        let count = self.from_other.slots();
        self.free.extend(self.from_other.read_chunk(count).expect("they are there"));
        count as u64
    }
}
