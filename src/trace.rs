//! Reports rare events through `tracing`. Without the feature `tracing`, or without a
//! subscriber, reports only wheels that no loop drives or wakes, on standard error.
//!
//! A `tracing` subscriber may call corewheel or panic, so callers of this module must hold no
//! borrow and must catch panics (P5 and P6 in `ARCHITECTURE.md`).
#![cfg_attr(
    not(feature = "tracing"),
    allow(unused_variables, reason = "only events of `tracing` use them")
)]

use std::{
    fmt,
    io::{self, Write},
    time::Duration,
};

#[cfg(feature = "tracing")]
use tracing::{Dispatch, subscriber::NoSubscriber};

#[cold]
pub(crate) fn report_caught_panic(place: &dyn fmt::Debug, message: Option<&str>) {
    #[cfg(feature = "tracing")]
    tracing::error!(?place, message, "a panic was caught");
}

/// Why a wheel that no loop drives is reported.
#[derive(Clone, Copy, Debug)]
pub(crate) enum UndrivenReason {
    /// A timer is overdue.
    Overdue,
    /// The thread has ended and dropped this number of timers. The thread's wheel never had a turn.
    DroppedWithoutTurn(usize),
    /// The thread has ended after the wheel's last turn, and dropped this number of timers, at
    /// least one of them overdue.
    DroppedAfterLastTurn(usize),
    /// The thread runs a `TimersDriver`, which does not turn the thread's own wheel. The thread's
    /// own wheel has a timer.
    UsedOnTimersDriver,
    /// `run_until` waits for a timer, but the virtual clock has not moved for a second.
    ClockStandsStill,
    /// The loop went on waiting after it was unparked.
    UnparkEndsNoWait,
}

/// Whose wheel is reported.
#[derive(Clone, Copy, Debug)]
pub(crate) enum UndrivenWheel {
    /// The wheel of a thread.
    OfThread,
    /// A wheel of `Timers::per_worker_with`.
    OfTimers,
    /// A `Shard`.
    Shard,
}

/// Reports a wheel that no loop drives, on standard error if no subscriber can get the event.
/// `overdue` says how long a timer is or was overdue, or how long a wait went on. `thread` identifies the owner if `name` is
/// empty. At the end of a thread, calls no subscriber, because the subscriber's thread-locals may be
/// destroyed.
#[cold]
pub(crate) fn report_undriven_wheel(
    shard: u32,
    name: &str,
    thread: Option<impl fmt::Debug>,
    overdue: Duration,
    wheel: UndrivenWheel,
    reason: UndrivenReason,
) {
    use UndrivenReason::{
        ClockStandsStill, DroppedAfterLastTurn, DroppedWithoutTurn, Overdue, UnparkEndsNoWait,
        UsedOnTimersDriver,
    };
    let advice = match (reason, wheel) {
        (ClockStandsStill, _) => {
            "move the clock in the condition of `run_until`, or from another thread"
        }
        (UnparkEndsNoWait, _) => "set a hook that ends the loop's wait: `Config::wake_hook`",
        (UsedOnTimersDriver, _) => {
            "in a callback, do not add through `local_timer()`: capture a clone of the `ShardRef` \
             and add through it"
        }
        (_, UndrivenWheel::OfThread) => {
            "call `local_timer().turn()` in the thread's loop, or `run_until_empty` after the add, \
             or see `LocalTimer::register_driver`"
        }
        (_, UndrivenWheel::OfTimers) => {
            "run the `TimersDriver` that `Timers::per_worker_with` returned"
        }
        (_, UndrivenWheel::Shard) => {
            "call `Shard::turn` and `Shard::next_expired` in the loop that owns the shard"
        }
    };
    #[cfg(feature = "tracing")]
    {
        let event_text = match reason {
            Overdue => "a timer is overdue and no loop drives it",
            UsedOnTimersDriver => {
                "a thread that runs a `TimersDriver` has a timer on its own wheel"
            }
            ClockStandsStill => "`run_until` waits for a timer, but the virtual clock stands still",
            UnparkEndsNoWait => "a loop went on waiting after it was unparked",
            DroppedWithoutTurn(_) | DroppedAfterLastTurn(_) => "",
        };
        if !event_text.is_empty() && !tracing::dispatcher::get_default(Dispatch::is::<NoSubscriber>)
        {
            let overdue = matches!(reason, Overdue).then(|| tracing::field::debug(overdue));
            return tracing::error!(shard, name, overdue, advice, "{event_text}");
        }
    }
    let owner = match (name, thread) {
        ("", Some(id)) => format!("an unnamed thread ({id:?})"),
        ("", None) => "an unnamed thread".to_owned(),
        _ => format!("thread '{name}'"),
    };
    let report_text = match reason {
        Overdue => format!(
            "a timer of {owner} (shard {shard}) has been overdue for {overdue:?}, and no loop \
             drives it: {advice}"
        ),
        DroppedWithoutTurn(timers) => format!(
            "{owner} (shard {shard}) has ended and dropped {timers} pending timer(s), because no \
             loop turned its wheel: {advice}"
        ),
        DroppedAfterLastTurn(timers) => format!(
            "{owner} (shard {shard}) has ended and dropped {timers} pending timer(s), at least one \
             of them overdue by {overdue:?}: the wheel's loop was blocked or had ended"
        ),
        UsedOnTimersDriver => format!(
            "{owner} runs a `TimersDriver`, so no loop drives the thread's own wheel (shard \
             {shard}), which has a timer: {advice}"
        ),
        ClockStandsStill => format!(
            "{owner} (shard {shard}) waits in `run_until` for a timer, but the virtual clock has \
             not moved for a second: {advice}"
        ),
        UnparkEndsNoWait => format!(
            "the loop of {owner} (shard {shard}) went on waiting for {overdue:?} after it was \
             unparked: {advice}"
        ),
    };
    if cfg!(panic = "abort") {
        // Unlike `eprintln!`, does not panic if standard error cannot be written.
        let _ = writeln!(io::stderr(), "corewheel: {report_text}");
    } else {
        // Unlike `writeln!`, lets tests capture the report. The caller catches a panic.
        eprintln!("corewheel: {report_text}");
    }
}
