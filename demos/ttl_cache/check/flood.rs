//! The flood: very many keys expire within one second. Measures the latency of other clients, and
//! when the server removes the keys.
//!
//! Two probes send GETs of a permanent key, first on a quiet server and then while keys expire.
//! Another client samples the number of keys.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{io, thread};

use serde::Serialize;

use super::client::{Client, format_answer};
use crate::common::verdict::{LatenessPercentiles, micros};

const PROBES: usize = 2;
const PROBE_PAUSE: Duration = Duration::from_micros(200);
const QUIET_TIME: Duration = Duration::from_secs(1);
const SAMPLE_PAUSE: Duration = Duration::from_millis(2);
const PIPELINE: u32 = 500;
/// The assumed rates of SETs per second, one per attempt. The rate determines the first deadline.
/// If this deadline comes before all keys are set, the next rate is tried.
const KEYS_PER_SECOND: [f64; 3] = [150_000.0, 50_000.0, 15_000.0];
/// How long the removal of all keys may take.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Serialize)]
pub(super) struct Flood {
    expiring: u32,
    /// The 99th percentile of the latency of GETs before the flood, in microseconds.
    quiet_p99: u64,
    /// The latency of GETs while keys expired. The limit includes the latency on the quiet server.
    pub(super) get_latency: LatenessPercentiles,
    #[serde(flatten)]
    pub(super) observed_removal: ObservedRemoval,
}

#[derive(Debug, Serialize)]
pub(super) struct ObservedRemoval {
    /// The mean time from a key's deadline to its removal, in microseconds.
    mean_lateness_us: u64,
    /// The largest sampled number of keys that existed after their deadline.
    backlog_max: u32,
    /// The time from the last deadline to the removal of the last key, in microseconds.
    last_removal_delay_us: u64,
    pub(super) left: u32,
}

pub(super) fn check(server: SocketAddr, expiring: u32, late_limit: Duration) -> io::Result<Flood> {
    leave_only_probe_key(&mut Client::connect(server)?)?;
    let (quiet, ()) = probe_during(server, || {
        thread::sleep(QUIET_TIME);
        Ok(())
    })?;
    let (get_latencies, observed_removal) = expire(server, expiring)?;
    let quiet_p99 = LatenessPercentiles::new(quiet.into_iter(), late_limit).p99;
    let limit = Duration::from_micros(quiet_p99) + late_limit;
    let get_latency = LatenessPercentiles::new(get_latencies.into_iter(), limit);
    Ok(Flood { expiring, quiet_p99, get_latency, observed_removal })
}

fn leave_only_probe_key(client: &mut Client) -> io::Result<()> {
    client.ask("FLUSHALL")?;
    client.ask("SET probe stays").map(drop)
}

/// Sets keys that expire within a second, and observes their removal. On a slow machine, repeats
/// with later deadlines. Also returns the latencies of the probes.
fn expire(server: SocketAddr, expiring: u32) -> io::Result<(Vec<Duration>, ObservedRemoval)> {
    for keys_per_second in KEYS_PER_SECOND {
        let ahead = Duration::from_secs_f64(2.0 + f64::from(expiring) / keys_per_second);
        // A whole number of seconds, so that the conversion to milliseconds is exact.
        let first_deadline = Duration::from_secs((since_epoch() + ahead).as_secs());
        let mut client = Client::connect(server)?;
        set_all(&mut client, expiring, first_deadline)?;
        if let Some(wait) = first_deadline.checked_sub(since_epoch()) {
            thread::sleep(wait);
            return probe_during(server, || {
                observe_removal(&mut Client::connect(server)?, expiring, first_deadline)
            });
        }
        leave_only_probe_key(&mut client)?;
    }
    Err(io::Error::other(format!("{expiring} keys expire before all are set; reduce --expiring")))
}

/// Sets keys whose deadlines are spread over the second that begins at `first_deadline`.
fn set_all(client: &mut Client, expiring: u32, first_deadline: Duration) -> io::Result<()> {
    for begin in (0..expiring).step_by(PIPELINE as usize) {
        let numbers = begin..expiring.min(begin + PIPELINE);
        for number in numbers.clone() {
            let at = first_deadline.as_millis() + u128::from(number) * 1_000 / u128::from(expiring);
            client.enqueue(&format!("SET flood:{number} a-value-of-some-length PXAT {at}"));
        }
        client.send()?;
        for _ in numbers {
            let answer = client.read_answer()?;
            if answer.is_error() {
                return Err(io::Error::other(format!(
                    "a SET was answered {}",
                    format_answer(&answer)
                )));
            }
        }
    }
    Ok(())
}

fn observe_removal(
    client: &mut Client,
    expiring: u32,
    first_deadline: Duration,
) -> io::Result<ObservedRemoval> {
    let (mut backlog_max, mut late_seconds, mut last_sample) = (0, 0.0, (Duration::ZERO, 0));
    loop {
        let left = client.key_count()?.saturating_sub(1);
        let at = since_epoch().saturating_sub(first_deadline);
        let due = (at.as_millis() + 1) * u128::from(expiring) / 1_000;
        let due = u32::try_from(due).unwrap_or(u32::MAX).min(expiring);
        let removed_keys = expiring.saturating_sub(left);
        let late_keys = due.saturating_sub(removed_keys);
        backlog_max = late_keys.max(backlog_max);
        late_seconds += f64::from(last_sample.1) * at.saturating_sub(last_sample.0).as_secs_f64();
        last_sample = (at, late_keys);
        if at > Duration::from_secs(1) && (left == 0 || at > REMOVAL_TIMEOUT) {
            // Little's law: the mean lateness is the integral of the number of late keys, divided
            // by the number of all keys.
            let mean_lateness = Duration::from_secs_f64(late_seconds / f64::from(expiring));
            return Ok(ObservedRemoval {
                mean_lateness_us: micros(mean_lateness),
                backlog_max,
                // The last deadline is a millisecond before the end of the second.
                last_removal_delay_us: micros(at.saturating_sub(Duration::from_millis(999))),
                left,
            });
        }
        thread::sleep(SAMPLE_PAUSE);
    }
}

/// Returns the result of `work`, and the latencies of probes while it runs.
fn probe_during<R>(
    server: SocketAddr,
    work: impl FnOnce() -> io::Result<R>,
) -> io::Result<(Vec<Duration>, R)> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let probes = [(); PROBES].map(|()| scope.spawn(|| probe(server, &is_over)));
        let result = work();
        // Relaxed: the flag publishes no other data.
        is_over.store(true, Relaxed);
        let mut latencies = Vec::new();
        for probe in probes {
            latencies.extend(probe.join().map_err(|_| io::Error::other("a probe panicked"))??);
        }
        Ok((latencies, result?))
    })
}

fn probe(server: SocketAddr, is_over: &AtomicBool) -> io::Result<Vec<Duration>> {
    let (mut client, mut latencies) = (Client::connect(server)?, Vec::new());
    while !is_over.load(Relaxed) {
        let request_time = Instant::now();
        client.ask("GET probe")?;
        latencies.push(request_time.elapsed());
        thread::sleep(PROBE_PAUSE);
    }
    Ok(latencies)
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
