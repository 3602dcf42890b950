//! Timers of a thread that sleeps, and how the other core reaches them.

use std::{
    cell::RefCell,
    rc::Rc,
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use corewheel::{Cancel, TimerHandle, local_timer};

use super::{super::late::Log, Owner};
use crate::{crossing::Lock, timers::Waking};

/// `corewheel-local`, which parks and is unparked.
#[derive(Debug)]
pub struct Corewheel {
    log: Rc<RefCell<Log>>,
}

impl Owner for Corewheel {
    type Handle = TimerHandle;
    type Other = ();

    fn new() -> Self {
        Self { log: Rc::default() }
    }

    fn other(&self) {}

    fn add(&mut self, delay: Duration) -> TimerHandle {
        let (log, due) = (Rc::clone(&self.log), Instant::now() + delay);
        local_timer().add(delay, move || log.borrow_mut().fired(due))
    }

    fn cancel((): &(), handle: TimerHandle) -> bool {
        handle.cancel() == Cancel::Cancelled
    }

    fn turn(&mut self, budget: usize) {
        local_timer().turn_within(budget);
    }

    fn sleep(&self) {
        let sleep = local_timer().prepare_sleep();
        if let Some(timeout) = sleep.timeout() {
            thread::park_timeout(timeout);
        }
    }

    fn live(&self) -> usize {
        local_timer().len()
    }

    fn fired(&self) -> usize {
        self.log.borrow().lateness.len()
    }

    fn into_lateness(self) -> Vec<f64> {
        self.log.take().lateness
    }
}

/// A wheel in ticks of a millisecond, told the time.
#[derive(Debug)]
pub struct Ticking<T> {
    timers: T,
    start: Instant,
    log: Log,
    live: usize,
}

impl<T: Waking> Ticking<T> {
    fn new() -> Self {
        Self { timers: T::new(), start: Instant::now(), log: Log::default(), live: 0 }
    }

    fn add(&mut self, delay: Duration) -> T::Handle {
        let due = self.start.elapsed() + delay;
        self.live += 1;
        // In the tick after the one that is passing, at least.
        let deadline = due.as_nanos().div_ceil(1_000_000) as u64;
        self.timers.add(deadline, [due.as_nanos() as u64; 3])
    }

    fn cancel(&mut self, handle: &T::Handle) -> bool {
        let was_live = self.timers.cancel(handle);
        self.live -= usize::from(was_live);
        was_live
    }

    fn advance(&mut self) {
        let Self { timers, start, log, live } = self;
        timers.advance(start.elapsed().as_millis() as u64, |[due, ..]| {
            *live -= 1;
            log.fired(*start + Duration::from_nanos(due));
        });
    }

    /// When to turn next; `None` without timers.
    fn next(&self) -> Option<Instant> {
        self.timers.next_deadline().map(|tick| self.start + Duration::from_millis(tick))
    }
}

fn park_until(instant: Option<Instant>) {
    if let Some(timeout) =
        instant.and_then(|instant| instant.checked_duration_since(Instant::now()))
    {
        thread::park_timeout(timeout);
    }
}

/// `mutex-std`, `mutex-parking-lot`, `mutex-linked64`.
#[derive(Debug)]
pub struct Locked<T, L>(Arc<L>, std::marker::PhantomData<fn() -> T>);

impl<T: Waking, L: Lock<Ticking<T>>> Owner for Locked<T, L>
where
    T::Handle: Send,
{
    type Handle = T::Handle;
    type Other = Arc<L>;

    fn new() -> Self {
        Self(Arc::new(L::new(Ticking::new())), std::marker::PhantomData)
    }

    fn other(&self) -> Arc<L> {
        Arc::clone(&self.0)
    }

    fn add(&mut self, delay: Duration) -> T::Handle {
        self.0.with(|timers| timers.add(delay))
    }

    fn cancel(other: &Arc<L>, handle: T::Handle) -> bool {
        other.with(|timers| timers.cancel(&handle))
    }

    fn turn(&mut self, _: usize) {
        self.0.with(Ticking::advance);
    }

    fn sleep(&self) {
        park_until(self.0.with(|timers| timers.next()));
    }

    fn live(&self) -> usize {
        self.0.with(|timers| timers.live)
    }

    fn fired(&self) -> usize {
        self.0.with(|timers| timers.log.lateness.len())
    }

    fn into_lateness(self) -> Vec<f64> {
        self.0.with(|timers| std::mem::take(&mut timers.log)).lateness
    }
}

/// `channel`. A request wakes nobody.
#[derive(Debug)]
pub struct Channel<T: Waking> {
    timers: Ticking<T>,
    to_owner: Sender<T::Handle>,
    requests: Receiver<T::Handle>,
    /// The last turn has left requests.
    behind: bool,
}

impl<T: Waking> Owner for Channel<T>
where
    T::Handle: Send,
{
    type Handle = T::Handle;
    type Other = Sender<T::Handle>;

    fn new() -> Self {
        let (to_owner, requests) = mpsc::channel();
        Self { timers: Ticking::new(), to_owner, requests, behind: false }
    }

    fn other(&self) -> Sender<T::Handle> {
        self.to_owner.clone()
    }

    fn add(&mut self, delay: Duration) -> T::Handle {
        self.timers.add(delay)
    }

    fn cancel(other: &Sender<T::Handle>, handle: T::Handle) -> bool {
        other.send(handle).expect("the owner is there");
        true
    }

    fn turn(&mut self, budget: usize) {
        self.timers.advance();
        let mut taken_in = 0;
        for handle in self.requests.try_iter().take(budget) {
            assert!(self.timers.cancel(&handle), "it was live");
            taken_in += 1;
        }
        self.behind = taken_in == budget;
    }

    fn sleep(&self) {
        if !self.behind {
            park_until(self.timers.next());
        }
    }

    fn live(&self) -> usize {
        self.timers.live
    }

    fn fired(&self) -> usize {
        self.timers.log.lateness.len()
    }

    fn into_lateness(self) -> Vec<f64> {
        self.timers.log.lateness
    }
}
