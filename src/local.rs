//! `local_timer()`: the thread's own timer, a shard of callbacks.
//!
//! The shard is borrowed for one step at a time and never while the user's code runs: a callback, a hook or a destructor
//! may add, cancel, reset and even turn (P5).

mod adding;
#[cfg(all(feature = "fd", any(target_os = "linux", target_os = "android")))]
mod descriptor;
mod inner;
mod sampler;
mod services;
mod shard_ref;
mod telling;

use std::{
    marker::PhantomData,
    time::{Duration, Instant},
};

use self::inner::Local;
pub(crate) use self::services::{Client, ClientPlace, Expiry};
pub use self::shard_ref::ShardRef;
use crate::{clock::Clock, config::Config, error::ConfigError, shard::PreparedSleep};

/// This thread's timer. It is made on first use, with a tick of a millisecond and the monotonic clock; to change that,
/// install a [`Config`] first.
///
/// It fires nothing by itself: the thread's loop calls [`turn`](LocalTimer::turn), and asks how long it may sleep with
/// [`prepare_sleep`](LocalTimer::prepare_sleep). When the thread ends, its pending callbacks are dropped and its handles
/// are stale. What a thread that is exiting asks after that is answered as if it were empty: its length is zero, a turn
/// fires nothing, [`try_add`](LocalTimer::try_add) is an error and [`add`](LocalTimer::add) panics. The same holds for
/// a thread that cannot have a timer because 16 384 shards exist.
///
/// # Examples
///
/// A thread that does nothing but timers:
///
/// ```
/// use corewheel::local_timer;
/// use std::time::Duration;
///
/// local_timer().add(Duration::from_millis(5), || println!("five milliseconds later"));
/// local_timer().run_until_empty(); // sleeps, and turns
/// ```
pub fn local_timer() -> LocalTimer {
    LocalTimer(PhantomData)
}

/// The timer of the thread that holds it; from [`local_timer`]. It holds nothing: copy it, or call `local_timer` again.
#[derive(Clone, Copy, Debug)]
pub struct LocalTimer(PhantomData<*const ()>);

/// What a turn did, and what it left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Turn {
    /// Callbacks run: each timer that fired and each run of a periodic one.
    pub fired: usize,
    /// Timers taken in that other cores had cancelled.
    pub collected: usize,
    /// Timers left live.
    pub live: usize,
    /// Entries of the wheel that the turn touched.
    pub touched: u64,
    /// The budget was used up, or more than 1 024 messages of other cores waited: something is left to do.
    pub behind: bool,
    /// The turn was called from a callback of another one, and did nothing.
    pub nested: bool,
}

impl LocalTimer {
    /// Takes in what other cores have added or moved, in the order in which they asked, and runs what was to run at once. Then it runs
    /// every callback that is due, in the order of the deadlines, whoever has added it (within a tick the order is unspecified). At its
    /// end it takes in what other cores have cancelled, and what has arrived meanwhile.
    ///
    /// In all it takes in up to 1 024 messages: half of them, if there are more of both, about what was cancelled. The rest comes in
    /// the next turn, which [`Turn::behind`] and a zero [`time_until_next`](Self::time_until_next) ask for. What a callback adds fires
    /// in a later turn.
    ///
    /// A callback that panics is caught and reported; the others run. Called from inside a callback it does nothing and
    /// says so ([`Turn::nested`]).
    ///
    /// Cost: one reading of the clock and some tens of nanoseconds when nothing is due; constant per timer besides the
    /// callback. For each tick that has passed: a few entries that come down from a higher level of the wheel, and at most 96 that were
    /// reset away from that tick (as many again for each slot of a higher level that starts there). What a purgatory of several cores
    /// has to deal with comes in a message for up to 64 events, and an event has all operations look that watch its key. For each
    /// message that is taken in about a miss of the cache; and as much for each of up to 4 096 requests about deadlines that it puts
    /// into their order, whatever the budget.
    pub fn turn(self) -> Turn {
        self.turn_within(usize::MAX)
    }

    /// As [`turn`](Self::turn), but takes in at most `budget` messages of other cores, each of which may run a timer, and then
    /// touches at most as many entries of the wheel (fired, or moved). What is left comes first in the next turn, in order;
    /// [`Turn::behind`] tells, and until then [`time_until_next`](Self::time_until_next) is zero.
    pub fn turn_within(self, budget: usize) -> Turn {
        let mut turn = Turn::default();
        let _ = Local::with(|local| local.turn(budget, &mut turn));
        turn
    }

    /// When the thread's timer next wants a turn. See [`Shard::next_deadline`](crate::Shard::next_deadline).
    ///
    /// It sends what the thread's purgatories have for other cores, since a loop may sleep until that moment.
    pub fn next_deadline(self) -> Option<Instant> {
        Local::with(Local::next_deadline).ok().flatten()
    }

    /// How long until the [`next_deadline`](Self::next_deadline); zero if it has come. Reads the clock.
    ///
    /// It is a loop's question before it sleeps: it sends what the thread's purgatories have for other cores, and tells
    /// [`metrics`](crate::metrics) when the loop wants to turn.
    pub fn time_until_next(self) -> Option<Duration> {
        Local::with(Local::time_until_next).ok().flatten()
    }

    /// Announces that the thread is going to sleep, for at most [`PreparedSleep::timeout`]. From here on whatever cannot wait
    /// calls the wake hook ([`Config::on_wake`]), until the [`PreparedSleep`] is dropped: a timer that another core adds or
    /// moves to an earlier moment than the sleep ends, the 1 024th message of a kind that waits (about deadlines, or about cancelled
    /// timers), a timer refused by a full shard where cancelled ones would make room, and also an earlier timer that this thread itself
    /// adds before it sleeps, or a message of its purgatory, to it or from it.
    ///
    /// In a thread that is exiting, whose timer has ended, or that cannot have one, the timeout is zero: it must not sleep, since
    /// nothing would wake it.
    ///
    /// The announcement ends with the value: keep it over the sleep, or let [`sleep_with`](Self::sleep_with) do so.
    ///
    /// Cost: a reading of the clock, a sequentially consistent fence and a swap, and a look for the next occupied slot.
    pub fn prepare_sleep(self) -> PreparedSleep<'static> {
        Local::with(Local::prepare_sleep).unwrap_or_else(|_| PreparedSleep::ended())
    }

    /// Announces a sleep, calls `wait` with its [timeout](PreparedSleep::timeout), and ends the announcement when that returns.
    ///
    /// See [`prepare_sleep`](Self::prepare_sleep). If `wait` panics, the announcement ends as well.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, local_timer};
    /// use mio::{Events, Poll, Token, Waker};
    /// use std::time::Duration;
    ///
    /// let mut poll = Poll::new()?;
    /// let waker = Waker::new(poll.registry(), Token(usize::MAX))?;
    /// Config::new().on_wake(move || waker.wake().expect("the poll is alive")).install().expect("the first use");
    ///
    /// let mut events = Events::with_capacity(1024);
    /// local_timer().add(Duration::from_millis(5), || println!("five milliseconds later"));
    /// while !local_timer().is_empty() {
    ///     local_timer().sleep_with(|timeout| poll.poll(&mut events, timeout))?;
    ///     local_timer().turn();
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn sleep_with<R>(self, wait: impl FnOnce(Option<Duration>) -> R) -> R {
        self.prepare_sleep().wait_with(wait)
    }

    /// Drives a thread of nothing but timers: [parks](PreparedSleep::park) and turns until `is_over` returns true.
    ///
    /// It asks `is_over` before each sleep, and so at once. If another thread changes the answer, it wakes the loop with a request to
    /// this timer, as [`ShardRef::run`] is, or by unparking the thread.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::{cell::Cell, rc::Rc, time::Duration};
    ///
    /// let answer = Rc::new(Cell::new(None));
    /// let told = Rc::clone(&answer);
    /// local_timer().add(Duration::from_millis(5), move || told.set(Some(42)));
    /// local_timer().run_until(|| answer.get().is_some());
    /// ```
    pub fn run_until(self, mut is_over: impl FnMut() -> bool) {
        while !is_over() {
            self.prepare_sleep().park();
            self.turn();
        }
    }

    /// Drives a thread of nothing but timers until none is [left](Self::is_empty).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::time::Duration;
    ///
    /// local_timer().add(Duration::from_millis(5), || println!("five milliseconds later"));
    /// local_timer().run_until_empty();
    /// ```
    pub fn run_until_empty(self) {
        self.run_until(|| self.is_empty());
    }

    /// Says that a loop of this thread is going to turn its timer, for a loop that polls futures before its first turn.
    ///
    /// A future of [`corewheel::future`](crate::future) that has to wait [panics](crate::future#without-a-driver) on a thread whose
    /// timer has no driver. Every driver registers when it is made: [`future::drive`](crate::future::drive), a `TimerFd`,
    /// [`Config::install`], [`Cores`](crate::Cores), the packages for runtimes. So does a loop that calls [`turn`](Self::turn),
    /// [`prepare_sleep`](Self::prepare_sleep) or [`time_until_next`](Self::time_until_next). A thread stays registered.
    ///
    /// # Examples
    ///
    /// An executor that polls its task before it turns:
    ///
    /// ```
    /// use corewheel::{future::sleep, local_timer};
    /// use std::{pin::pin, task::{Context, Waker}, time::Duration};
    ///
    /// local_timer().register_driver();
    /// let mut task = pin!(sleep(Duration::from_millis(5)));
    /// local_timer().run_until(|| task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    /// ```
    pub fn register_driver(self) {
        // A thread that is exiting has no timer, and its futures say so.
        let _ = Local::with(Local::register_driver);
    }

    /// A reference by which other threads can add to this thread's timer.
    ///
    /// # Panics
    ///
    /// If the thread is exiting and its timer has ended, or cannot have one because 16 384 shards exist.
    #[track_caller]
    pub fn shard_ref(self) -> ShardRef {
        match Local::with(Local::shard_ref) {
            Ok(shard) => shard,
            Err(reason) => panic!("no timer to refer to: {reason}"),
        }
    }

    /// How many timers are live, held ones included. What other cores have added counts from when the owner has taken it in.
    pub fn len(self) -> usize {
        Local::with(|local| local.step(|shard| shard.len())).unwrap_or(0)
    }

    /// Whether no timer is live.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// What time it is by this thread's timer: real, or virtual as its [`Config`] says.
    pub fn now(self) -> Instant {
        Local::with(|local| local.step(|shard| shard.now()))
            .unwrap_or_else(|_| Clock::monotonic().now())
    }
}

impl Config {
    /// Makes this thread's timer as configured. Call it before anything else uses [`local_timer`] in the thread.
    ///
    /// It counts as a driver, since only a loop that turns the timer needs a configuration: futures that wait do not
    /// [panic](crate::future#without-a-driver) on this thread, whether it turns or not.
    ///
    /// # Errors
    ///
    /// If the thread's timer is in use already, the tick is shorter than a microsecond, or 16 384 shards exist.
    pub fn install(self) -> Result<(), ConfigError> {
        Local::install(self)
    }
}
