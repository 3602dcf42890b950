//! Whether keys expire at their deadline, and whether the server limits keys, unread answers and
//! silent connections.

use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use resp_rs::resp2::Frame;
use serde::Serialize;

use super::client::{Client, format_answer};
use crate::common::verdict::{Failures, micros};

const KEY_COUNT: u32 = 200;
const LIFE_MS: std::ops::Range<u32> = 40..140;
/// More bytes than the buffers of the sockets can hold.
const REQUESTS_MAX: usize = 256 << 20;
/// How long the check waits until keys with a lifetime of half a second have expired.
const EXPIRY_TIMEOUT: Duration = Duration::from_secs(5);
/// If a client cannot write for this long, the check assumes that the server holds it back.
const WRITE_TIMEOUT: Duration = Duration::from_millis(300);

/// How early or late keys expired. A client knows a deadline only to within the duration of its
/// SET: the earliest deadline counts from the command, the latest from the answer.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct ExpiryErrors {
    keys: u32,
    /// The number of keys that were missing before the earliest deadline.
    early: u64,
    /// The longest time after the latest deadline at which a key still existed.
    latest_us: u64,
}

struct Key {
    name: String,
    earliest: Instant,
    latest: Instant,
}

pub(super) fn check_expiry_errors(
    server: SocketAddr,
    tolerance_us: u64,
    failures: &mut Failures,
) -> io::Result<ExpiryErrors> {
    let mut setter = Client::connect(server)?;
    let mut set_key = |number: u32| {
        let life_ms = LIFE_MS.start + number % (LIFE_MS.end - LIFE_MS.start);
        let (name, life) = (format!("exact:{number}"), Duration::from_millis(life_ms.into()));
        let earliest = Instant::now() + life;
        setter.ask(&format!("SET {name} value PX {life_ms}"))?;
        Ok(Key { name, earliest, latest: Instant::now() + life })
    };
    let mut keys = (0..KEY_COUNT).map(&mut set_key).collect::<io::Result<Vec<Key>>>()?;
    let mut result = ExpiryErrors { keys: KEY_COUNT, ..ExpiryErrors::default() };
    let mut getter = Client::connect(server)?;
    while !keys.is_empty() {
        for key in std::mem::take(&mut keys) {
            let request_time = Instant::now();
            if getter.ask(&format!("GET {}", key.name))?.is_null() {
                result.early += u64::from(Instant::now() < key.earliest);
                continue;
            }
            let lateness = request_time.saturating_duration_since(key.latest);
            result.latest_us = result.latest_us.max(micros(lateness));
            keys.push(key);
        }
    }
    failures.add_cases(result.early, "keys expired before their deadline");
    if result.latest_us > tolerance_us {
        failures.push(format!("keys existed up to {} us after their deadline", result.latest_us));
    }
    Ok(result)
}

/// Checks that a full server refuses keys, and accepts a key after the others have expired. Each
/// core rounds its share of `max_keys` up, so each may hold one more key.
pub(super) fn key_limit(
    server: SocketAddr,
    (max_keys, cores): (u32, usize),
    failures: &mut Failures,
) -> io::Result<()> {
    let mut client = Client::connect(server)?;
    for number in 0..8 * max_keys {
        client.enqueue(&format!("SET bound:{number} value PX 500"));
    }
    client.send()?;
    let mut refused = None;
    for _ in 0..8 * max_keys {
        refused = Some(client.read_answer()?).filter(Frame::is_error).or(refused);
    }
    let (refused, key_count) =
        (refused.as_ref().map(format_answer).unwrap_or_default(), client.key_count()?);
    if !refused.starts_with("-OOM") || key_count as usize > max_keys as usize + cores {
        failures.push(format!(
            "{key_count} keys, not {max_keys}, were stored; the error is {refused:?}"
        ));
    }
    let start = Instant::now();
    while client.key_count()? > 0 && start.elapsed() < EXPIRY_TIMEOUT {
        thread::sleep(Duration::from_millis(20));
    }
    let later_answer = format_answer(&client.ask("SET bound value")?);
    if later_answer != "OK" {
        failures.push(format!("after all keys expired, a SET was answered {later_answer}"));
    }
    Ok(())
}

/// Checks that the server stops reading from a client that reads no answers, and still serves other
/// clients.
pub(super) fn backpressure(server: SocketAddr, failures: &mut Failures) -> io::Result<()> {
    let (mut greedy_client, mut other_client) =
        (Client::connect(server)?, Client::connect(server)?);
    other_client.ask(&format!("SET long {}", "x".repeat(10_000)))?;
    let requests = b"*2\r\n$3\r\nGET\r\n$4\r\nlong\r\n".repeat(10_000);
    greedy_client.stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    let mut sent = 0;
    let end = loop {
        match greedy_client.stream.write(&requests) {
            Ok(length) if sent < REQUESTS_MAX => sent += length,
            end => break end,
        }
    };
    let is_stuck = |it: io::Error| matches!(it.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
    if !end.is_err_and(is_stuck) {
        failures.push(format!("a client that did not read was closed, or could send {sent} bytes"));
    }
    let answer = format_answer(&other_client.ask("PING")?);
    if answer != "PONG" {
        failures.push(format!("beside a client that did not read, PING was answered {answer}"));
    }
    Ok(())
}

/// Returns the time after which the server closes a silent connection.
pub(super) fn time_idle_close(server: SocketAddr) -> io::Result<Duration> {
    let start = Instant::now();
    Client::connect(server)?.wait_for_end()?;
    Ok(start.elapsed())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::{Args, worker};

    /// The share of each core is 10 keys, so the cores hold up to 110 keys.
    #[test]
    fn the_key_limit_holds_with_many_cores() -> io::Result<()> {
        let args = Args::parse_from(["ttl_cache", "--cores", "11", "--max-keys", "100"]);
        let (server, mut failures) = (worker::start(&args, 0)?, Failures::default());
        key_limit(server.address, (100, 11), &mut failures)?;
        server.stop(&mut failures);
        assert_eq!(failures.into_texts(), [""; 0]);
        Ok(())
    }
}
