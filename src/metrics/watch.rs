//! A thread that notices loops which do not turn.

use std::{
    collections::HashMap,
    fmt, io,
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::Duration,
};

use crate::{gauges::Turns, hooks::contain, registry, shared::Shared, trace};

/// How often a watch looks: so many times in its limit, but at least and at most so often.
const LOOKS: u32 = 4;
const LOOK_MIN: Duration = Duration::from_millis(1);
const LOOK_MAX: Duration = Duration::from_secs(1);

/// A shard whose owner has not turned for too long while timers were due.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stall {
    /// The shard's number, as in [`ShardMetrics`](super::ShardMetrics).
    pub number: u32,
    /// Its name.
    pub name: String,
    /// How long it has been so, up to now.
    pub lasted: Duration,
    /// It began a turn and has not ended it: a callback takes that long. Otherwise the loop is elsewhere.
    pub is_in_turn: bool,
}

/// Watches all shards of the process for loops that do not turn: a callback or an event that takes too long, a lock, a loop
/// that has ended and left its thread alive.
///
/// A loop is stalled when it has been in a turn for longer than the limit; or when the moment of its next turn has passed by
/// more than the limit, as it was told when it last asked how long it may sleep (`prepare_sleep`, `time_until_next`, a
/// `TimerFd`). A loop that never asks is watched in its turns only. The pass of a [`Shard`](crate::Shard) lasts until
/// `next_expired` has said that there is no more, or the loop asks or turns again: to do part of it, use `turn_within`.
///
/// It is a thread of its own, which ends when this is dropped: who drops it waits for a `report` that is under way, and must not hold
/// what that needs. (Dropped by the report itself, it does not wait.) Time is that of each shard's clock.
///
/// # Examples
///
/// ```
/// use corewheel::{local_timer, metrics::Watch};
/// use std::{sync::mpsc, thread, time::Duration};
///
/// let (tell, told) = mpsc::channel();
/// let _watch = Watch::start(Duration::from_millis(10), move |stall| drop(tell.send(stall.clone())))?;
///
/// local_timer().add(Duration::from_millis(1), || ());
/// let _sleep = local_timer().prepare_sleep();
/// thread::sleep(Duration::from_millis(100)); // and no turn
///
/// let stall = told.recv_timeout(Duration::from_secs(20)).expect("it was noticed");
/// assert!(!stall.is_in_turn && stall.lasted >= Duration::from_millis(10));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the watch ends when this is dropped"]
pub struct Watch {
    over: Arc<Over>,
    thread: Option<thread::JoinHandle<()>>,
}

/// Whether the watch is over, and how its thread is told.
#[derive(Debug, Default)]
struct Over {
    is_over: Mutex<bool>,
    changed: Condvar,
}

impl Watch {
    /// Starts a watch. It calls `report` on its own thread, once for each stall, when that has lasted longer than `limit` and a
    /// look finds it: every quarter of the limit, but at most every millisecond and at least every second. A `report` that
    /// panics ends the watch.
    ///
    /// # Errors
    ///
    /// If the system gives no thread.
    pub fn start(limit: Duration, report: impl FnMut(&Stall) + Send + 'static) -> io::Result<Self> {
        let over = Arc::<Over>::default();
        let watched = Arc::clone(&over);
        let watch = move || watch(limit, report, &watched);
        let thread = thread::Builder::new().name("corewheel-watch".to_owned()).spawn(watch)?;
        Ok(Self { over, thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        *self.over.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.over.changed.notify_all();
        // It may be dropped by its own report.
        if let Some(thread) =
            self.thread.take().filter(|watch| watch.thread().id() != thread::current().id())
        {
            // The panic of a report has been printed, and its payload may panic as well.
            contain(|| drop(thread.join()));
        }
    }
}

impl Over {
    /// Waits so long, or until it is over. Whether it is.
    fn within(&self, wait: Duration) -> bool {
        let is_over = self.is_over.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(is_over, wait, |is_over| !*is_over);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

fn watch(limit: Duration, mut report: impl FnMut(&Stall), over: &Over) {
    let interval = (limit / LOOKS).clamp(LOOK_MIN, LOOK_MAX);
    // What was reported of each shard that stands still.
    let mut known = HashMap::new();
    while !over.within(interval) {
        for number in registry::numbers() {
            let found =
                registry::with(number, |seen| seen.and_then(|shared| look(number, shared, limit)));
            let turns = found.as_ref().map(|(turns, _)| *turns);
            if known.insert(number, turns) == Some(turns) {
                continue;
            }
            if let Some((turns, stall)) = found {
                registry::with(number, |seen| {
                    let same = seen.filter(|shared| shared.gauges.serial() == turns.serial);
                    let _ = same.map(|shared| shared.gauges.stalled());
                });
                let event = || trace::stalled(number, &stall.name, stall.lasted, stall.is_in_turn);
                // The panic of a subscriber has been printed.
                contain(event);
                report(&stall);
            }
        }
    }
}

/// The shard's turns, if it is stalled, and how.
fn look(number: u32, shared: &Shared, limit: Duration) -> Option<(Turns, Stall)> {
    // Before the turns: if this thread is held up in between, they seem shorter, not longer.
    let now = shared.clock().nanos();
    let turns = shared.gauges.turns();
    let lasted = now.saturating_sub(turns.stands_still_since()?);
    let lasted = Duration::from_nanos(lasted);
    let stall =
        || Stall { number, name: shared.name.to_string(), lasted, is_in_turn: turns.is_in_turn };
    (lasted > limit).then(|| (turns, stall()))
}

impl Turns {
    /// Since when the owner has been in its turn, or should have begun one, in nanoseconds of its clock; `None` if neither.
    fn stands_still_since(self) -> Option<u64> {
        match self {
            Self { is_in_turn: true, began, .. } => Some(began),
            Self { began, next_due, .. } => {
                (began < next_due && next_due < u64::MAX).then_some(next_due)
            }
        }
    }
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, name, lasted, is_in_turn } = self;
        let what = if *is_in_turn {
            "has been in one turn"
        } else {
            "has not turned while timers were due"
        };
        write!(f, "shard {number} ({name}) {what} for {lasted:?}")
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use std::{thread, time::Instant};

    use super::{Duration, Over, PoisonError, Turns};

    #[test]
    fn a_wait_ends_in_time_or_when_it_is_over() {
        let over = Over::default();
        let begun = Instant::now();
        assert!(!over.within(Duration::from_millis(50)));
        assert!(
            begun.elapsed() >= Duration::from_millis(50),
            "it waits and does not ask again and again"
        );
        thread::scope(|scope| {
            scope.spawn(|| {
                *over.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
                over.changed.notify_all();
            });
            assert!(over.within(Duration::MAX));
        });
        assert!(over.within(Duration::MAX), "and stays so");
    }

    #[test]
    fn who_is_in_a_turn_or_late_for_one_stands_still() {
        let since = |is_in_turn, began, next_due| {
            Turns { serial: 1, begun: 3, is_in_turn, began, next_due }.stands_still_since()
        };
        assert_eq!(since(true, 5, 9), Some(5));
        assert_eq!(since(false, 5, 9), Some(9));
        assert_eq!(
            [since(false, 9, 9), since(false, 9, 5)],
            [None, None],
            "the turn of that moment has been"
        );
        assert_eq!(since(false, 5, u64::MAX), None, "it sleeps until it is told");
    }
}
