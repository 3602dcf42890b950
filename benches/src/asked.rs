//! The interface of a peer for requests between cores: add a timer, move it, run a closure.
//!
//! The owner's timers belong to its thread, with whatever the peer needs for others to reach them.

use std::{
    cell::Cell,
    collections::VecDeque,
    fmt, mem,
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
    time::Duration,
};

use corewheel::{Cancel, ShardRef, TimerHandle, local_timer};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    task::yield_now,
    time::{Instant, sleep},
};

use crate::{
    crossing::{Alone, Lock, Shareable},
    peers::{self, LocalClock, Place, RealTime},
    timers::{Payload, Timers, not_due},
};

thread_local! {
    /// How much has been run on this thread.
    static RAN: Cell<u64> = const { Cell::new(0) };
}

/// The closure to run, where the peer has no call for that.
struct Task(Box<dyn FnOnce() + Send>);

impl Task {
    fn new(payload: Payload) -> Self {
        Self(Box::new(move || note(payload)))
    }

    fn run(self) {
        (self.0)();
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").finish_non_exhaustive()
    }
}

/// Counts one run of a closure, on the owner's thread.
pub fn note(payload: Payload) {
    RAN.set(RAN.get() + payload[0]);
}

/// What all that has been run on this thread says, added up.
pub fn ran() -> u64 {
    RAN.get()
}

/// Virtual milliseconds, of peers that have such: a turn is short beside one.
fn tick(turns: u64) -> u64 {
    turns / 16
}

/// The thread whose timers they are.
pub trait Owner: Sized {
    /// Who asks.
    type Asker: Asker + Send;

    /// A thread without timers, and the requester.
    fn new() -> (Self, Self::Asker);

    /// Consumes the requests and turns the timers, of which none may fire. Runs closures until
    /// [`ran`] reaches the number.
    fn turn(&mut self, runs: u64);

    /// Whether nothing that was asked is left.
    fn is_settled(&self) -> bool {
        true
    }
}

/// Another thread.
pub trait Asker {
    /// Names a requested timer.
    type Handle;

    /// Adds a timer that is due in `delay` milliseconds.
    fn add(&mut self, delay: u64, payload: Payload) -> Self::Handle;

    /// Moves a timer; false if the answer is that it has ended.
    fn reset(&mut self, handle: &mut Self::Handle, delay: u64) -> bool;

    /// Has the owner [`note`] the payload.
    fn run(&mut self, payload: Payload);

    /// Cancels a timer; false if the answer is that it had ended.
    fn cancel(&mut self, handle: Self::Handle) -> bool;
}

/// `corewheel-local` by the machine's clock, or its fast one.
#[derive(Debug)]
pub struct Local<const FAST: bool>(());

impl<const FAST: bool> Owner for Local<FAST> {
    type Asker = ShardRef;

    fn new() -> (Self, ShardRef) {
        RealTime::<FAST>::install();
        (Self(()), local_timer().shard_ref())
    }

    fn turn(&mut self, runs: u64) {
        let before = ran();
        let turn = local_timer().turn();
        assert_eq!(
            (ran(), turn.fired as u64),
            (runs, runs - before),
            "it takes in all, and nothing else is due"
        );
    }

    fn is_settled(&self) -> bool {
        local_timer().counts().queued == 0
    }
}

impl Asker for ShardRef {
    type Handle = TimerHandle;

    fn add(&mut self, delay: u64, payload: Payload) -> TimerHandle {
        ShardRef::add(self, Duration::from_millis(delay), move || not_due(payload))
    }

    fn reset(&mut self, handle: &mut TimerHandle, delay: u64) -> bool {
        handle.reset(Duration::from_millis(delay))
    }

    fn run(&mut self, payload: Payload) {
        ShardRef::run(self, move || note(payload));
    }

    fn cancel(&mut self, handle: TimerHandle) -> bool {
        handle.cancel() == Cancel::Cancelled
    }
}

/// `channel`: a wheel that only its owner touches, and a channel of requests. The asker numbers its timers and gets no
/// answer. In virtual time.
#[derive(Debug)]
pub struct Channel<T: Timers> {
    timers: T,
    /// By number.
    handles: Vec<Option<T::Handle>>,
    requests: Receiver<Request>,
    turns: u64,
}

/// Who asks it.
#[derive(Debug)]
pub struct ChannelAsker {
    requests: Sender<Request>,
    /// Numbers of timers that have been cancelled.
    free: Vec<usize>,
    /// Numbers so far.
    numbers: usize,
}

#[derive(Debug)]
enum Request {
    Add { number: usize, delay: u64, payload: Payload },
    Reset { number: usize, delay: u64 },
    Run(Task),
    Cancel { number: usize },
}

impl<T: Timers> Channel<T> {
    fn deal_with(&mut self, request: Request) {
        let now = tick(self.turns);
        match request {
            Request::Add { number, delay, payload } => {
                if number == self.handles.len() {
                    self.handles.push(None);
                }
                self.handles[number] = Some(self.timers.add(now + delay, payload));
            }
            Request::Reset { number, delay } => {
                let handle = self.handles[number].as_mut().expect("it was added");
                assert!(self.timers.reset(handle, now + delay), "it is live");
            }
            Request::Run(task) => task.run(),
            Request::Cancel { number } => {
                let handle = self.handles[number].take().expect("it was added");
                assert!(self.timers.cancel(&handle), "it is live");
            }
        }
    }
}

impl<T: Timers> Owner for Channel<T> {
    type Asker = ChannelAsker;

    fn new() -> (Self, ChannelAsker) {
        let (sender, requests) = mpsc::channel();
        let asker = ChannelAsker { requests: sender, free: Vec::new(), numbers: 0 };
        (Self { timers: T::new(), handles: Vec::new(), requests, turns: 0 }, asker)
    }

    fn turn(&mut self, runs: u64) {
        self.turns += 1;
        while let Ok(request) = self.requests.try_recv() {
            self.deal_with(request);
        }
        self.timers.advance(tick(self.turns), not_due);
        assert_eq!(ran(), runs, "it takes in all");
    }
}

impl ChannelAsker {
    fn send(&self, request: Request) {
        self.requests.send(request).expect("the owner is there");
    }
}

impl Asker for ChannelAsker {
    type Handle = usize;

    fn add(&mut self, delay: u64, payload: Payload) -> usize {
        let number = self.free.pop().unwrap_or(self.numbers);
        self.numbers += usize::from(number == self.numbers);
        self.send(Request::Add { number, delay, payload });
        number
    }

    fn reset(&mut self, &mut number: &mut usize, delay: u64) -> bool {
        self.send(Request::Reset { number, delay });
        true
    }

    fn run(&mut self, payload: Payload) {
        self.send(Request::Run(Task::new(payload)));
    }

    fn cancel(&mut self, number: usize) -> bool {
        self.send(Request::Cancel { number });
        self.free.push(number);
        true
    }
}

/// `mutex-std`, `mutex-parking-lot`, `mutex-linked64`: a wheel and a queue of tasks, both behind one lock. In virtual time.
#[derive(Debug)]
pub struct Locked<T: Shareable, L: Lock> {
    shared: Arc<Alone<L::Of<Guarded<T>>>>,
    /// Changes places with the one behind the lock.
    to_run: VecDeque<Task>,
    turns: u64,
}

/// Who asks it.
#[derive(Debug)]
pub struct LockAsker<T: Shareable, L: Lock>(Arc<Alone<L::Of<Guarded<T>>>>);

/// The value behind the lock.
#[derive(Debug)]
pub struct Guarded<T> {
    timers: T,
    now: u64,
    to_run: VecDeque<Task>,
}

impl<T: Shareable, L: Lock> Owner for Locked<T, L> {
    type Asker = LockAsker<T, L>;

    fn new() -> (Self, Self::Asker) {
        let guarded = Guarded { timers: T::new(), now: 0, to_run: VecDeque::new() };
        let shared = Arc::new(Alone(L::new(guarded)));
        let asker = LockAsker(Arc::clone(&shared));
        (Self { shared, to_run: VecDeque::new(), turns: 0 }, asker)
    }

    fn turn(&mut self, runs: u64) {
        self.turns += 1;
        let (now, to_run) = (tick(self.turns), &mut self.to_run);
        L::with(&self.shared.0, |guarded| {
            guarded.now = now;
            guarded.timers.advance(now, not_due);
            mem::swap(&mut guarded.to_run, to_run);
        });
        self.to_run.drain(..).for_each(Task::run);
        assert_eq!(ran(), runs, "it takes in all");
    }
}

impl<T: Shareable, L: Lock> Asker for LockAsker<T, L> {
    type Handle = T::Handle;

    fn add(&mut self, delay: u64, payload: Payload) -> T::Handle {
        L::with(&self.0.0, |guarded| guarded.timers.add(guarded.now + delay, payload))
    }

    fn reset(&mut self, handle: &mut T::Handle, delay: u64) -> bool {
        L::with(&self.0.0, |guarded| guarded.timers.reset(handle, guarded.now + delay))
    }

    fn run(&mut self, payload: Payload) {
        let task = Task::new(payload);
        L::with(&self.0.0, |guarded| guarded.to_run.push_back(task));
    }

    fn cancel(&mut self, handle: T::Handle) -> bool {
        L::with(&self.0.0, |guarded| guarded.timers.cancel(&handle))
    }
}

/// `tokio-sleep`: a current-thread runtime of tokio that another thread enters. Its sleeps are
/// registered with the owner's driver, and its tasks run there. By the machine's clock. Each
/// `Sleep` is pinned in a reused slot, so that the allocator has no part in it.
#[derive(Debug)]
pub struct Entered(Runtime);

/// Who asks it.
#[derive(Debug)]
pub struct EnteredAsker {
    runtime: Handle,
    free: Vec<Place>,
}

impl Owner for Entered {
    type Asker = EnteredAsker;

    fn new() -> (Self, EnteredAsker) {
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
        let asker = EnteredAsker { runtime: runtime.handle().clone(), free: Vec::new() };
        (Self(runtime), asker)
    }

    fn turn(&mut self, runs: u64) {
        self.0.block_on(async {
            yield_now().await;
            while ran() < runs {
                yield_now().await;
            }
        });
    }
}

impl Asker for EnteredAsker {
    type Handle = Place;

    fn add(&mut self, delay: u64, _: Payload) -> Place {
        let _entered = self.runtime.enter();
        peers::put(&mut self.free, sleep(Duration::from_millis(delay)))
    }

    fn reset(&mut self, place: &mut Place, delay: u64) -> bool {
        let Some(mut sleep) = place.as_mut().as_pin_mut() else { return false };
        let was_live = !sleep.is_elapsed();
        sleep.as_mut().reset(Instant::now() + Duration::from_millis(delay));
        was_live
    }

    fn run(&mut self, payload: Payload) {
        drop(self.runtime.spawn(async move { note(payload) }));
    }

    fn cancel(&mut self, mut place: Place) -> bool {
        let was_live = peers::empty(&mut place);
        self.free.push(place);
        was_live
    }
}
