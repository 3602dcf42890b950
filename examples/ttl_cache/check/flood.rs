//! Very many keys expire within one second: what other clients notice of it, and when the memory is back.
//!
//! Two threads ask for a key that stays, again and again, first while nothing happens and then while keys expire.
//! Another one looks how many keys there are.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hdrhistogram::Histogram;
use serde::Serialize;

use super::client::{Answer, Client};

const PROBES: usize = 2;
const PROBE_PAUSE: Duration = Duration::from_micros(200);
const QUIET: Duration = Duration::from_secs(1);
const PING_PAUSE: Duration = Duration::from_millis(500);
const SAMPLE_PAUSE: Duration = Duration::from_millis(2);
/// How many keys are set in one go.
const TOGETHER: u32 = 500;
/// How many keys a slow machine sets in a second.
const KEYS_PER_SECOND: f64 = 150_000.0;
/// A server that has not let go of all keys by then will not.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the probes are to do; it stands for itself, so it is relaxed everywhere.
const NOTHING: u8 = 0;
const NOTE_QUIET: u8 = 1;
const NOTE_EXPIRING: u8 = 2;
const END: u8 = 3;

/// What was seen.
#[derive(Debug, Serialize)]
pub(crate) struct Flood {
    pub(crate) expiring: u32,
    /// How long GETs took, in microseconds.
    pub(crate) quiet_us: Latency,
    pub(crate) expiring_us: Latency,
    /// How long after its deadline a key was there, on the average, in milliseconds.
    pub(crate) release_mean_ms: f64,
    /// The most keys at a time that were there after their deadline.
    pub(crate) backlog_max: u32,
    /// How long after the last deadline the last of them was gone, in milliseconds.
    pub(crate) last_gone_ms: f64,
    pub(crate) left: i64,
    /// How many keys were set in a second, with their deadlines, in a pipeline.
    pub(crate) set_per_second: f64,
    /// Keys expired before all were set: nothing is known then.
    pub(crate) is_void: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct Latency {
    pub(crate) count: u64,
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) p999: u64,
    pub(crate) max: u64,
}

/// How many keys there were, and when.
struct Sample {
    at: Duration,
    keys: i64,
}

pub(crate) fn check(server: SocketAddr, expiring: u32) -> io::Result<Flood> {
    let mut client = Client::connect(server)?;
    empty(&mut client)?;
    let phase = AtomicU8::new(NOTHING);
    thread::scope(|scope| {
        let probes: Vec<_> = (0..PROBES).map(|_| scope.spawn(|| probe(server, &phase))).collect();
        phase.store(NOTE_QUIET, Relaxed);
        thread::sleep(QUIET);
        phase.store(NOTHING, Relaxed);
        let watched = patiently(&mut client, expiring, &phase);
        phase.store(END, Relaxed);
        let mut latencies = [histogram(), histogram()];
        for probe in probes {
            let seen = probe.join().map_err(|_| io::Error::other("a probe panicked"))??;
            latencies
                .iter_mut()
                .zip(seen)
                .try_for_each(|(all, one)| all.add(one))
                .map_err(io::Error::other)?;
        }
        let mut flood = watched?;
        [flood.quiet_us, flood.expiring_us] = latencies.map(|latency| Latency::of(&latency));
        Ok(flood)
    })
}

/// Leaves nothing but the key that the probes ask for.
fn empty(client: &mut Client) -> io::Result<()> {
    client.ask(&["FLUSHALL"])?;
    client.ask(&["SET", "probe", "stays"])?;
    Ok(())
}

/// Where the machine was too slow to set all keys before the first of them expires, there is more time the next time.
fn patiently(client: &mut Client, expiring: u32, phase: &AtomicU8) -> io::Result<Flood> {
    for keys_per_second in [KEYS_PER_SECOND, KEYS_PER_SECOND / 3.0] {
        let seen = watch(client, expiring, keys_per_second, phase)?;
        if !seen.is_void {
            return Ok(seen);
        }
        empty(client)?;
    }
    watch(client, expiring, KEYS_PER_SECOND / 10.0, phase)
}

/// Sets the keys, and looks on as they go.
fn watch(
    client: &mut Client,
    expiring: u32,
    keys_per_second: f64,
    phase: &AtomicU8,
) -> io::Result<Flood> {
    let ahead = Duration::from_secs_f64(1.0 + f64::from(expiring) / keys_per_second);
    // To a whole millisecond, as a deadline can be told.
    let first =
        Duration::from_millis(u64::try_from((unix_time() + ahead).as_millis()).unwrap_or(u64::MAX));
    let set_in = set_all(client, expiring, first)?;
    let set_per_second = f64::from(expiring) / set_in.as_secs_f64();
    if unix_time() >= first {
        return Ok(Flood { set_per_second, is_void: true, ..Flood::of(expiring, &[]) });
    }
    while unix_time() < first {
        // Who is silent for long is cut off.
        client.ask(&["PING"])?;
        thread::sleep(first.saturating_sub(unix_time()).min(PING_PAUSE));
    }
    phase.store(NOTE_EXPIRING, Relaxed);
    let mut samples = Vec::new();
    loop {
        let Answer::Integer(keys) = client.ask(&["DBSIZE"])? else {
            return Err(io::Error::other("no DBSIZE"));
        };
        let at = unix_time().saturating_sub(first);
        // The probes' key stays.
        samples.push(Sample { at, keys: keys - 1 });
        if at > Duration::from_secs(1) && (keys <= 1 || at > PATIENCE) {
            break;
        }
        thread::sleep(SAMPLE_PAUSE);
    }
    Ok(Flood { set_per_second, ..Flood::of(expiring, &samples) })
}

/// Sets keys whose deadlines are spread over a second; how long that took.
fn set_all(client: &mut Client, expiring: u32, first: Duration) -> io::Result<Duration> {
    let start = Instant::now();
    for begin in (0..expiring).step_by(TOGETHER as usize) {
        let numbers = begin..expiring.min(begin + TOGETHER);
        for number in numbers.clone() {
            let at = first.as_millis() + u128::from(number) * 1_000 / u128::from(expiring);
            client.put(&[
                "SET",
                &format!("flood:{number}"),
                "a value of some length",
                "PXAT",
                &at.to_string(),
            ]);
        }
        client.send()?;
        for _ in numbers {
            match client.answer()? {
                Answer::Simple(_) => {}
                refused => {
                    return Err(io::Error::other(format!("a key could not be set: {refused}")));
                }
            }
        }
    }
    Ok(start.elapsed())
}

/// Asks for a key that stays; how long it took in each phase.
fn probe(server: SocketAddr, phase: &AtomicU8) -> io::Result<[Histogram<u64>; 2]> {
    let (mut client, mut latencies) = (Client::connect(server)?, [histogram(), histogram()]);
    loop {
        let asked = Instant::now();
        client.ask(&["GET", "probe"])?;
        let took = u64::try_from(asked.elapsed().as_micros()).unwrap_or(u64::MAX);
        match phase.load(Relaxed) {
            END => return Ok(latencies),
            NOTE_QUIET => latencies[0].saturating_record(took),
            NOTE_EXPIRING => latencies[1].saturating_record(took),
            _ => {}
        }
        thread::sleep(PROBE_PAUSE);
    }
}

impl Flood {
    /// What the samples say. The average is by Little's law: keys that were late at a time, times how long.
    fn of(expiring: u32, samples: &[Sample]) -> Self {
        let late: Vec<(Duration, u32)> =
            samples.iter().map(|sample| (sample.at, sample.late(expiring))).collect();
        let area: f64 = late
            .windows(2)
            .map(|pair| f64::from(pair[1].1) * pair[1].0.saturating_sub(pair[0].0).as_secs_f64())
            .sum();
        // The last deadline is a millisecond before the end of the second.
        let last_gone = samples
            .last()
            .map_or(Duration::ZERO, |last| last.at.saturating_sub(Duration::from_millis(999)));
        Self {
            expiring,
            quiet_us: Latency::of(&histogram()),
            expiring_us: Latency::of(&histogram()),
            release_mean_ms: rounded(area * 1e3 / f64::from(expiring)),
            backlog_max: late.iter().map(|&(_, keys)| keys).max().unwrap_or(0),
            last_gone_ms: rounded(last_gone.as_secs_f64() * 1e3),
            left: samples.last().map_or(0, |last| last.keys),
            set_per_second: 0.0,
            is_void: false,
        }
    }
}

impl Sample {
    /// Keys that were there and should not have been.
    fn late(&self, expiring: u32) -> u32 {
        let due = (self.at.as_millis() + 1) * u128::from(expiring) / 1_000;
        let due = u32::try_from(due).unwrap_or(u32::MAX).min(expiring);
        let gone = expiring.saturating_sub(u32::try_from(self.keys).unwrap_or(0));
        due.saturating_sub(gone)
    }
}

impl Latency {
    fn of(histogram: &Histogram<u64>) -> Self {
        Self {
            count: histogram.len(),
            p50: histogram.value_at_quantile(0.5),
            p99: histogram.value_at_quantile(0.99),
            p999: histogram.value_at_quantile(0.999),
            max: histogram.max(),
        }
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000, 3).expect("the bounds are constants, and right")
}

fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// To a tenth.
fn rounded(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}
