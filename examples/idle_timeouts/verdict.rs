//! The report: whether exactly the silent connections were closed, and how late, by the clocks of
//! the clients. The server's counts must match exactly.

use std::time::{Duration, Instant};

use corewheel::Cancel;
use serde::Serialize;

use crate::client::{Client, ConnectionState, Role};
use crate::common::verdict::{Failures, LatenessPercentiles, TimerTotals};

/// The number of consecutive parts of the run whose lateness is reported separately.
const RUN_PARTS: usize = 10;

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    connections: usize,
    /// Silent connections that the server has closed.
    closed_idle: usize,
    closed_by_client: u64,
    open_at_end: u64,
    /// Connections whose idle timer another thread has cancelled.
    cancelled_remotely: u64,
    /// Packets that did not reset the timer of their connection, because the timer was cancelled.
    resets_refused: u64,
    timers: TimerTotals,
    lateness_us: LatenessPercentiles,
    /// The lateness in each part of the run. About equal numbers of connections were closed in each
    /// part.
    lateness_us_by_part: Vec<LatenessPercentiles>,
}

impl Report {
    pub(crate) fn new(
        clients: &[Client],
        idle: Duration,
        late_limit: Duration,
        resets_refused: u64,
        timers: TimerTotals,
        failures: &mut Failures,
    ) -> Self {
        let mut closings = Vec::new();
        let (mut closed, mut left, mut open, mut cancelled) = (0, 0, 0_u64, 0);
        for client in clients {
            check(client, idle, failures);
            match client.state {
                ConnectionState::Open => open += 1,
                ConnectionState::Left => left += 1,
                ConnectionState::ClosedByServer(at) => {
                    closed += 1;
                    if let (Role::FallsSilent(_), Some(sent)) = (client.role, client.last_sent) {
                        closings.push((at, (at - sent).saturating_sub(idle)));
                    }
                }
            }
            cancelled += u64::from(client.has_cancelled());
        }
        let missing_refusals = cancelled.saturating_sub(resets_refused);
        failures.add_cases(missing_refusals, "cancelled timers refused no reset");
        let armed = open.saturating_sub(cancelled);
        failures.expect_equal(&[
            ("timers added", timers.added, "connections opened", closed + left + open),
            ("timers fired", timers.fired, "connections closed by the server", closed),
            ("timers cancelled", timers.cancelled, "left or cancelled", left + cancelled),
            ("live timers", timers.live, "open connections with a timer", armed),
        ]);
        closings.sort_unstable();
        let lateness = |closings: &[(Instant, Duration)]| {
            LatenessPercentiles::new(closings.iter().map(|(_, late)| *late), late_limit)
        };
        let parts = closings.chunks(closings.len().div_ceil(RUN_PARTS).max(1));
        let lateness_us = lateness(&closings);
        lateness_us.check_percentile(failures);
        Self {
            connections: clients.len(),
            closed_idle: closings.len(),
            closed_by_client: left,
            open_at_end: open,
            cancelled_remotely: cancelled,
            resets_refused,
            timers,
            lateness_us,
            lateness_us_by_part: parts.map(lateness).collect(),
        }
    }
}

fn check(client: &Client, idle: Duration, failures: &mut Failures) {
    let is_silent = matches!(client.role, Role::FallsSilent(_));
    let cancels = matches!(client.role, Role::CancelsTimer(_));
    let is_open = matches!(client.state, ConnectionState::Open);
    let closed_after = match client.state {
        ConnectionState::ClosedByServer(at) => {
            Some(client.last_sent.map_or(Duration::ZERO, |sent| at - sent))
        }
        _ => None,
    };
    let (is_closed, is_early) = (closed_after.is_some(), closed_after.is_some_and(|it| it < idle));
    let is_kept = is_open && client.longest_silence > idle;
    let has_tried = client.cancel_attempt.is_some();
    let is_revived = client
        .cancel_attempt
        .is_some_and(|(handle, _)| handle.is_pending() || handle.cancel() != Cancel::Ended);
    for (is_wrong, what) in [
        (
            is_closed && !is_early && !is_silent && !cancels,
            "connections were silent because the load was delayed: the run is void",
        ),
        (is_silent && !is_closed, "silent connections were not closed"),
        (is_early, "connections were closed before their timeout elapsed"),
        (is_closed && !is_silent, "connections were closed that should have stayed open"),
        (
            is_open && client.unechoed_bytes > 0,
            "open connections have not received all their echoes",
        ),
        (cancels && !has_tried, "clients found no handle of their timer"),
        (has_tried && !client.has_cancelled(), "remote cancels of live timers failed"),
        (is_revived, "cancelled timers did not stay cancelled"),
        (
            client.has_cancelled() && !is_kept,
            "connections without a timer were not silent and open for more than a timeout",
        ),
    ] {
        failures.add_cases(is_wrong, what);
    }
}
