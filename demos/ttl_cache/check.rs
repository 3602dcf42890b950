//! A check of a server by clients, with a verdict: whether commands are answered correctly, keys
//! expire on time, limits are enforced, and a flood of expiring keys does not delay other clients.

mod answers;
mod bounds;
mod client;
mod flood;

use std::net::SocketAddr;
use std::time::Duration;
use std::{io, thread};

use serde::Serialize;

use crate::common::verdict::{Failures, TimerTotals, Verdict};
use crate::{Args, worker};
use bounds::ExpiryErrors;
use flood::Flood;

/// The idle timeout of the checked server, in seconds.
const IDLE_SECONDS: u64 = 3;
const FEW_KEYS: u32 = 100;
/// Redis counts milliseconds, and returns a key during the millisecond of its deadline.
const TOLERANCE_US: u64 = 1_000;

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    answers: usize,
    expiry_errors: ExpiryErrors,
    flood: Flood,
    /// The timers of the server that the check has started.
    timers: TimerTotals,
    /// The number of requests that a core has executed for a connection of another core.
    remote_requests: u64,
}

pub(crate) fn own_server(args: &Args) -> io::Result<Verdict<Report>> {
    let mut failures = Failures::default();
    // The cores get slightly different numbers of keys.
    let max_keys = args.max_keys.max(args.expiring as usize / 8 * 9 + 1_000);
    let server = worker::start(&Args { idle_seconds: IDLE_SECONDS, max_keys, ..args.clone() }, 0)?;
    let address = server.address;
    let silent = thread::spawn(move || bounds::time_idle_close(address));
    let mut report = check(args, address, 0, &mut failures)?;
    bounds::backpressure(address, &mut failures)?;
    let silent_for = silent.join().map_err(|_| io::Error::other("a client panicked"))??;
    if silent_for < Duration::from_secs(IDLE_SECONDS) {
        failures.push(format!("a connection was closed after {silent_for:?} of silence"));
    }
    let (remote_requests, timers) = server.stop(&mut failures);
    report.timers = timers;
    report.remote_requests = remote_requests.iter().sum();
    if args.options.cores() > 1 && report.remote_requests == 0 {
        failures.push("no request was executed on another core".into());
    }
    let small = worker::start(&Args { max_keys: FEW_KEYS as usize, ..args.clone() }, 0)?;
    bounds::key_limit(small.address, (FEW_KEYS, args.options.cores()), &mut failures)?;
    small.stop(&mut failures);
    Ok(Verdict::new(report, failures))
}

pub(crate) fn other_server(args: &Args, server: SocketAddr) -> io::Result<Verdict<Report>> {
    let mut failures = Failures::default();
    let report = check(args, server, TOLERANCE_US, &mut failures)?;
    Ok(Verdict::new(report, failures))
}

/// Runs the checks that apply to any server. A key may be returned up to `tolerance_us` after its
/// deadline.
fn check(
    args: &Args,
    server: SocketAddr,
    tolerance_us: u64,
    failures: &mut Failures,
) -> io::Result<Report> {
    let answers = answers::check(server, failures)?;
    let expiry_errors = bounds::check_expiry_errors(server, tolerance_us, failures)?;
    let flood = flood::check(server, args.expiring, args.options.late_limit())?;
    flood.get_latency.check_percentile(failures);
    failures.add_cases(flood.observed_removal.left, "keys never expired");
    Ok(Report { answers, expiry_errors, flood, timers: TimerTotals::default(), remote_requests: 0 })
}
