//! A thread that reports stalled loops.

use std::{
    collections::HashMap,
    fmt, io,
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::{
    cross_core::{reclaim::pin, registry, shared::Shared},
    gauges::TurnState,
    util::panics::catch_panic_silently,
};

/// The number of checks per `limit`, unless `CHECK_INTERVAL_MIN` or `CHECK_INTERVAL_MAX` applies.
const CHECKS_PER_LIMIT: u32 = 4;
const CHECK_INTERVAL_MIN: Duration = Duration::from_millis(1);
const CHECK_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// A stalled shard: a turn has lasted too long, or no turn has begun although timers are due or
/// requests wait.
///
/// # Examples
///
/// ```
/// use corewheel::metrics::{Stall, Watchdog};
/// use std::time::Duration;
///
/// let report = |stall: &Stall| {
///     let place = if stall.is_in_turn { "in a callback" } else { "outside of its turns" };
///     eprintln!("wheel {} '{}' has hung for {:?}, {place}", stall.number, stall.name, stall.lasted);
/// };
/// let watchdog = Watchdog::start(Duration::from_millis(100), report)?;
/// # drop(watchdog);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stall {
    /// The shard's number, as in [`ShardMetrics`](super::ShardMetrics).
    pub number: u32,
    /// The shard's name, which is empty if neither [`Config::name`](crate::Config::name) nor the
    /// thread has set one.
    pub name: String,
    /// How long the stall has lasted so far.
    pub lasted: Duration,
    /// True if the owner is inside a turn, for example in a callback.
    pub is_in_turn: bool,
    /// True if the shard has ever begun a turn. If false, perhaps no loop drives the shard: see
    /// [`LocalTimer::register_driver`](crate::LocalTimer::register_driver) or
    /// [`Shard::turn`](crate::Shard::turn).
    pub has_turned: bool,
    /// True if the loop is awake or was woken, but has not yet consumed a remote add, reset or
    /// closure. Always false inside a turn, and until the loop has turned or announced a sleep.
    /// Perhaps no wake hook ([`Config::wake_hook`](crate::Config::wake_hook)) ends the loop's I/O
    /// poll.
    pub requests_wait: bool,
}

/// Watches all shards of the process for stalled loops.
///
/// The watchdog reports a loop in these cases:
///
/// * A turn lasts longer than the limit. The turn of a [`Shard`](crate::Shard) usually ends when
///   `next_expired` or `next_expiry` returns `None`.
/// * The next turn is late by more than the limit. Late turns are usually reported only if the loop
///   has a `TimerFd`, or calls `prepare_sleep` or `time_until_next`.
/// * A remote add, reset or closure has waited for longer than the limit, while the loop was awake
///   or woken. Waiting requests are reported only after the loop has turned or announced a sleep.
/// * The loop has begun no turn yet, and a timer is overdue by more than the limit. The overdue
///   timer may already have been cancelled or reset.
///
/// To detect a loop that blocks while no turn is due and no request waits, add a periodic timer to
/// each loop as a heartbeat.
///
/// The watchdog is a thread, which ends when this value is dropped. The drop waits for a running
/// `report`, so do not drop the watchdog while you hold a lock that `report` needs. `report` may
/// drop its own watchdog. Times are measured by each shard's own clock.
///
/// # Examples
///
/// ```
/// use corewheel::{local_timer, metrics::Watchdog};
/// use std::{sync::mpsc, thread, time::Duration};
///
/// let (sender, stalls) = mpsc::channel();
/// let report = move |stall: &corewheel::metrics::Stall| drop(sender.send(stall.clone()));
/// let _watch = Watchdog::start(Duration::from_millis(10), report)?;
///
/// local_timer().add(Duration::from_millis(1), || ());
/// let _sleep = local_timer().prepare_sleep();
/// thread::sleep(Duration::from_millis(100)); // and no turn
///
/// let stall = stalls.recv_timeout(Duration::from_secs(20)).expect("a report");
/// assert!(!stall.is_in_turn && stall.lasted >= Duration::from_millis(10));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the watchdog ends when this is dropped"]
pub struct Watchdog {
    /// The thread ends after the sender is dropped. `None` during the drop of this value.
    thread: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Watchdog {
    /// Starts a thread that watches all shards, and calls `report` once for each stall longer than
    /// `limit`.
    ///
    /// The thread waits a quarter of `limit` between checks, but at least 1 ms and at most 1 s. A
    /// panic of `report` ends the watchdog.
    ///
    /// # Errors
    ///
    /// Fails if the system cannot create a thread.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::metrics::Watchdog;
    /// use std::time::Duration;
    ///
    /// let watchdog = Watchdog::start(Duration::from_millis(100), |stall| eprintln!("{stall}"))?;
    /// # drop(watchdog);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn start(limit: Duration, report: impl FnMut(&Stall) + Send + 'static) -> io::Result<Self> {
        let (sender, stop_receiver) = mpsc::channel();
        let run_watchdog = move || run_watchdog_loop(limit, report, &stop_receiver);
        let thread =
            thread::Builder::new().name("corewheel-watch".to_owned()).spawn(run_watchdog)?;
        Ok(Self { thread: Some((sender, thread)) })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        let Some((sender, thread)) = self.thread.take() else { return };
        drop(sender);
        // `report` may drop its own watchdog, but a thread cannot join itself.
        if thread.thread().id() != thread::current().id() {
            // Ignores a panic of `report`, which the standard panic hook has printed. Dropping the
            // panic's payload may panic again.
            catch_panic_silently(|| drop(thread.join()));
        }
    }
}

#[derive(Clone, Copy)]
struct ShardCheck {
    /// The shard's serial, the number of its latest turn, and whether the turn is in progress. A
    /// stall lasts until `observed_turn` changes.
    observed_turn: (u64, u64, bool),
    /// The time of the first check that found this `observed_turn` and a waiting request, in
    /// nanoseconds of the shard's clock.
    requests_wait_since: Option<u64>,
    is_stalled: bool,
}

fn run_watchdog_loop(
    limit: Duration,
    mut report: impl FnMut(&Stall),
    stop_receiver: &Receiver<()>,
) {
    let interval = (limit / CHECKS_PER_LIMIT).clamp(CHECK_INTERVAL_MIN, CHECK_INTERVAL_MAX);
    let mut latest_checks = HashMap::<u32, ShardCheck>::new();
    while stop_receiver.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
        for number in registry::ever_used_shard_numbers() {
            let pinned = pin();
            let Some(shared) = registry::find_shard(number, &pinned) else { continue };
            let previous_check = latest_checks.get(&number).copied();
            let (check, stall) = check_shard(&shared, limit, previous_check);
            latest_checks.insert(number, check);
            if let Some(stall) = stall {
                shared.gauges.count_stall();
                // A pinned thread delays the freeing of memory, and `report` may take long.
                drop(pinned);
                // A `tracing` subscriber may panic. The standard panic hook prints the panic, and
                // the watchdog continues.
                #[cfg(feature = "tracing")]
                catch_panic_silently(|| {
                    tracing::warn!(
                        shard = stall.number,
                        name = stall.name.as_str(),
                        lasted = ?stall.lasted,
                        is_in_turn = stall.is_in_turn,
                        has_turned = stall.has_turned,
                        requests_wait = stall.requests_wait,
                        "a loop does not turn"
                    );
                });
                report(&stall);
            }
        }
    }
}

/// Checks a shard. Returns a stall longer than `limit`, unless the previous check has already found
/// it.
fn check_shard(
    shared: &Shared,
    limit: Duration,
    previous_check: Option<ShardCheck>,
) -> (ShardCheck, Option<Stall>) {
    // Reads the clock before the turn state, so that a delay between the two readings makes the
    // stall seem too short, never too long.
    let now = shared.clock.nanos();
    let turn_state = shared.turn_state_with_undriven_due();
    let has_turned = turn_state.turns_begun > 0;
    let observed_turn = (shared.serial, turn_state.turns_begun, turn_state.is_in_turn);
    let previous_check =
        previous_check.filter(|previous_check| previous_check.observed_turn == observed_turn);
    let loop_has_begun = has_turned || shared.parker.loop_announces_sleeps();
    // Requests wait for an owner that is awake. Without a fence F2 (`parker`), both loads may be
    // outdated, which a later check corrects.
    let requests_wait = loop_has_begun
        && !turn_state.is_in_turn
        && shared.mailbox.urgent.has_messages()
        && shared.parker.sleep_in_progress().is_none();
    let requests_wait_since = requests_wait.then(|| {
        previous_check.and_then(|previous_check| previous_check.requests_wait_since).unwrap_or(now)
    });
    let stalled_since =
        turn_state.turn_or_wait_start().into_iter().chain(requests_wait_since).min();
    let lasted =
        stalled_since.map(|stalled_since| Duration::from_nanos(now.saturating_sub(stalled_since)));
    let lasted = lasted.filter(|&lasted| lasted > limit);
    let check = ShardCheck { observed_turn, requests_wait_since, is_stalled: lasted.is_some() };
    let is_new = !previous_check.is_some_and(|previous_check| previous_check.is_stalled);
    let stall = lasted.filter(|_| is_new).map(|lasted| Stall {
        number: shared.number,
        name: shared.name.to_string(),
        lasted,
        is_in_turn: turn_state.is_in_turn,
        has_turned,
        requests_wait,
    });
    (check, stall)
}

impl TurnState {
    /// Returns the time at which the turn in progress began, in nanoseconds of the shard's clock.
    /// Between turns, returns [`pending_turn_due`](Self::pending_turn_due).
    fn turn_or_wait_start(self) -> Option<u64> {
        if self.is_in_turn { Some(self.latest_turn_began_at) } else { self.pending_turn_due() }
    }
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, name, lasted, is_in_turn, has_turned, requests_wait } = self;
        let problem = match (is_in_turn, has_turned) {
            (true, _) => "has been in one turn",
            (false, true) => "has not turned while timers or requests waited",
            (false, false) => "has never turned while timers or requests waited",
        };
        let name = if name.is_empty() { "an unnamed thread" } else { name };
        write!(f, "shard {number} ({name}) {problem} for {lasted:?}")?;
        let advice = "; if its loop polls, does the hook of `Config::wake_hook` end the poll?";
        f.write_str(if *requests_wait { advice } else { "" })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::TurnState;

    #[test]
    fn turn_or_wait_start_returns_the_turn_begin_or_the_due_time() {
        let since = |is_in_turn, latest_turn_began_at, next_due| {
            TurnState { turns_begun: 3, is_in_turn, latest_turn_began_at, next_due }
                .turn_or_wait_start()
        };
        assert_eq!(since(true, 5, 9), Some(5));
        assert_eq!(since(false, 5, 9), Some(9));
        assert_eq!([since(false, 9, 9), since(false, 9, 5)], [None, None], "no turn is due");
        assert_eq!(since(false, 5, u64::MAX), None, "no turn is due");
    }
}
