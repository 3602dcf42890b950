//! The report: whether exactly the silent connections were closed, and how late. It is made from
//! the clients' observations by their own clocks. The server's counts must match it exactly.

use std::time::{Duration, Instant};

use corewheel::Cancel;
use serde::Serialize;

use crate::client::{Client, Fate, Role};
use crate::common::verdict::{Failures, Lateness, Timers};

/// The number of parts of the run for which the lateness is also reported.
const STRETCHES: usize = 10;

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    connections: usize,
    unconnected: u64,
    /// Connections that fell silent with an armed timer.
    silent: u64,
    /// Silent connections that the server has closed.
    closed_idle: u64,
    /// Connections that the server has closed within a timeout of their last packet.
    closed_early: u64,
    /// Connections that the server has closed although they were not silent.
    closed_wrongly: u64,
    /// Connections that their client thread left silent for a timeout by mistake. Any of them makes
    /// the run invalid.
    stalled: u64,
    closed_by_client: u64,
    open_at_end: u64,
    /// Open connections that have not received all their echoes.
    unanswered: u64,
    cancelled_remotely: u64,
    /// Connections whose timer was cancelled, and which then were silent and open for more than a
    /// timeout.
    kept_open: u64,
    /// Connections whose timer should have been cancelled, but whose handle was never published.
    unknown: u64,
    /// Remote cancels of a live timer that did not return `Cancelled`.
    refused: u64,
    /// Cancelled timers whose handle does not report `Ended` at the end.
    revived: u64,
    /// Packets that did not reset the timer of their connection, because it was cancelled.
    resets_refused: u64,
    timers: Timers,
    lateness_us: Lateness,
    /// The lateness in the course of the run, in parts with the same number of closings.
    lateness_us_by_stretch: Vec<Lateness>,
}

impl Report {
    pub(crate) fn new(
        clients: &[Client],
        idle: Duration,
        late_limit: Duration,
        resets_refused: u64,
        timers: Timers,
    ) -> Self {
        let count = |is_counted: &dyn Fn(&Client) -> bool| {
            clients.iter().filter(|client| is_counted(client)).count() as u64
        };
        let is_silent = |client: &Client| matches!(client.role, Role::FallsSilent(_));
        let cancels = |client: &Client| matches!(client.role, Role::CancelsTimer(_));
        let is_open = |client: &Client| matches!(client.fate, Fate::Open);
        let silence = |client: &Client| match (client.fate, client.last_sent) {
            (Fate::ClosedByServer(at), sent) => Some(sent.map_or(Duration::ZERO, |sent| at - sent)),
            _ => None,
        };
        let is_closed = |client: &Client| silence(client).is_some();
        let is_cancelled =
            |client: &Client| matches!(client.cancelled, Some((_, Cancel::Cancelled)));

        let lateness = |closings: &[(Instant, Duration)]| {
            Lateness::new(closings.iter().map(|(_, late)| *late), late_limit)
        };
        let closing = |client: &Client| match client.fate {
            Fate::ClosedByServer(at) if is_silent(client) => {
                Some((at, silence(client)?.saturating_sub(idle)))
            }
            _ => None,
        };
        let mut closings: Vec<_> = clients.iter().filter_map(closing).collect();
        closings.sort_unstable();
        let stretches = closings.chunks(closings.len().div_ceil(STRETCHES).max(1));

        Self {
            connections: clients.len(),
            unconnected: count(&|client| matches!(client.fate, Fate::Unconnected)),
            silent: count(&is_silent),
            closed_idle: count(&|client| is_silent(client) && is_closed(client)),
            closed_early: count(&|client| silence(client).is_some_and(|silence| silence < idle)),
            closed_wrongly: count(&|client| !is_silent(client) && is_closed(client)),
            stalled: count(&|client| {
                let should_talk = !is_silent(client) && !cancels(client);
                should_talk && silence(client).is_some_and(|silence| silence >= idle)
            }),
            closed_by_client: count(&|client| matches!(client.fate, Fate::Left)),
            open_at_end: count(&is_open),
            unanswered: count(&|client| is_open(client) && client.unanswered > 0),
            cancelled_remotely: count(&is_cancelled),
            kept_open: count(&|client| {
                is_open(client) && cancels(client) && client.longest_silence > idle
            }),
            unknown: count(&|client| cancels(client) && client.cancelled.is_none()),
            refused: count(&|client| client.cancelled.is_some() && !is_cancelled(client)),
            revived: count(&|client| {
                let handle = client.cancelled.map(|(handle, _)| handle);
                handle.is_some_and(|handle| handle.is_pending() || handle.cancel() != Cancel::Ended)
            }),
            resets_refused,
            timers,
            lateness_us: lateness(&closings),
            lateness_us_by_stretch: stretches.map(lateness).collect(),
        }
    }

    pub(crate) fn check(&self, failures: &mut Failures) {
        let cancelled = self.cancelled_remotely;
        failures.expect_none(&[
            (self.stalled, "connections were silent because the load was held up: the run is void"),
            (self.unconnected, "connections were never open"),
            (self.silent - self.closed_idle, "silent connections were not closed"),
            (self.closed_early, "connections were closed within a timeout of their last packet"),
            (self.closed_wrongly, "connections were closed that should have stayed open"),
            (self.unanswered, "open connections have not received all their echoes"),
            (self.unknown, "connections should have lost their timer, but its handle was missing"),
            (self.refused, "remote cancels of a live timer did not return `Cancelled`"),
            (self.revived, "cancelled timers did not stay cancelled"),
            (
                cancelled.saturating_sub(self.kept_open),
                "connections without a timer were not silent and open for more than a timeout",
            ),
            (
                cancelled.saturating_sub(self.resets_refused),
                "cancelled timers did not refuse the reset by a later packet",
            ),
        ]);
        self.lateness_us.check(failures);
        let closed = self.closed_idle + self.closed_wrongly;
        let opened = closed + self.closed_by_client + self.open_at_end;
        let ended = self.closed_by_client + cancelled;
        let armed = self.open_at_end.saturating_sub(cancelled);
        failures.expect_equal(&[
            ("timers added", self.timers.added, "connections opened", opened),
            ("timers fired", self.timers.fired, "connections closed by the server", closed),
            ("timers cancelled", self.timers.cancelled, "connections left or cancelled", ended),
            ("live timers", self.timers.live, "open connections with a timer", armed),
        ]);
    }
}
