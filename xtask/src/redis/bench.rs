//! redis-benchmark, and the example's own check, which works against any server.

use std::{
    fmt::{self, Display, Formatter},
    process::Command,
};

use serde_json::Value;

use super::{
    said,
    server::{Server, example},
};
use crate::run::Failure;

/// How many keys expire within a second.
pub(super) const EXPIRING: &str = "1000000";
/// Of the plain tests of redis-benchmark.
const REQUESTS: &str = "200000";

/// One line of redis-benchmark.
#[derive(Clone, Debug)]
pub(super) struct Throughput {
    pub(super) test: String,
    pub(super) per_second: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
}

/// What the check of a server has seen.
#[derive(Debug)]
pub(super) struct Seen(Value);

/// Its own tests, pipelined.
pub(super) fn check(server: &Server) -> Result<(), Failure> {
    println!("\n==> redis-benchmark -P 16");
    let tests = "ping_inline,ping_mbulk,set,get,incr,mset";
    let lines = benchmark(server, &["-P", "16", "-n", REQUESTS, "-r", "100000", "-t", tests])?;
    for Throughput { test, per_second, p50_ms, p99_ms } in &lines {
        println!(
            "    {test:16} {per_second:>10.0} per second, p50 {p50_ms:.3} ms, p99 {p99_ms:.3} ms"
        );
    }
    let asked = tests.split(',').count();
    if lines.len() == asked {
        Ok(())
    } else {
        Err(Failure(format!("{} of {asked} tests came to an end", lines.len())))
    }
}

/// What redis-benchmark measures.
pub(super) fn benchmark(server: &Server, arguments: &[&str]) -> Result<Vec<Throughput>, Failure> {
    let mut command = Command::new("redis-benchmark");
    let said = said(command.args(["-p", &server.port.to_string(), "--csv"]).args(arguments))?;
    Ok(said.lines().filter_map(Throughput::of).collect())
}

/// The example's check against a server, with the flood of expiring keys.
pub(super) fn flood(server: &Server) -> Result<Seen, Failure> {
    let address = format!("127.0.0.1:{}", server.port);
    let mut command = example();
    command.args(["--against", &address, "--json", "--expiring", EXPIRING]);
    let ran = command
        .output()
        .map_err(|error| Failure(format!("{command:?} cannot be started: {error}")))?;
    // A verdict that is not ok has figures all the same.
    let said = String::from_utf8_lossy(&ran.stdout);
    let failed =
        |error| Failure(format!("{command:?}: {error}: {}", String::from_utf8_lossy(&ran.stderr)));
    serde_json::from_str(said.trim()).map(Seen).map_err(failed)
}

impl Throughput {
    /// Of a line in CSV: the name, requests per second, and latencies in milliseconds (average, least, p50, p95, p99, most).
    fn of(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split("\",\"").map(|field| field.trim_matches('"')).collect();
        let number = |at: usize| fields.get(at)?.parse().ok();
        Some(Self {
            test: fields[0].to_owned(),
            per_second: number(1)?,
            p50_ms: number(4)?,
            p99_ms: number(6)?,
        })
    }
}

impl Seen {
    pub(super) fn is_ok(&self) -> bool {
        self.0["ok"] == true
    }

    pub(super) fn failures(&self) -> String {
        self.0["failures"].to_string()
    }

    /// One figure.
    pub(super) fn of(&self, place: &str) -> f64 {
        self.0.pointer(place).and_then(Value::as_f64).unwrap_or(f64::NAN)
    }
}

impl Display for Seen {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let of = |place: &str| self.of(place);
        write!(
            f,
            "gone after {} ms on the average; GET p99 {} us, {} us before; {} keys seen after their deadline",
            of("/flood/release_mean_ms"),
            of("/flood/expiring_us/p99"),
            of("/flood/quiet_us/p99"),
            of("/exactness/late"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Throughput;

    #[test]
    fn a_line_of_redis_benchmark_is_understood() {
        let line = "\"SET a PX 60000\",\"363636.34\",\"2.036\",\"0.432\",\"2.007\",\"3.279\",\"4.447\",\"5.223\"";
        let Throughput { test, per_second, p50_ms, p99_ms } =
            Throughput::of(line).expect("understood");
        assert_eq!(
            (test.as_str(), per_second, p50_ms, p99_ms),
            ("SET a PX 60000", 363_636.34, 2.007, 4.447)
        );
        assert!(Throughput::of("\"test\",\"rps\",\"avg_latency_ms\"").is_none(), "the head");
    }
}
