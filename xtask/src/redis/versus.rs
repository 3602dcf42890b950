//! Side by side with Redis: rounds in turn, one server at a time, and a table of medians.

use std::{fs, process::Command, thread};

use super::{bench, said, server::Server};
use crate::run::Failure;

const ROUNDS: usize = 3;
const COMMAND: &str = "cargo xtask redis --versus";

/// What is measured, and in what.
const ROWS: [(&str, &str); 16] = [
    ("SET key value PX 60000, 16 in a pipeline", "per second"),
    ("  its p99", "ms"),
    ("GET, 16 in a pipeline", "per second"),
    ("  its p99", "ms"),
    ("SET key value PX 60000, one at a time", "per second"),
    ("  its p99", "ms"),
    ("1 000 000 keys expire within a second: a key is gone after its deadline, mean", "ms"),
    ("  the most keys at a time that are there after their deadline", "keys"),
    ("  the last is gone after the last deadline", "ms"),
    ("  resident memory at the most", "MiB"),
    ("  resident memory when all are gone", "MiB"),
    ("GET of another client before that, p99", "us"),
    ("GET of another client meanwhile, p50", "us"),
    ("GET of another client meanwhile, p99", "us"),
    ("GET of another client meanwhile, p99.9", "us"),
    ("GET of another client meanwhile, max", "us"),
];

type Figures = [f64; ROWS.len()];

pub(super) fn run() -> Result<(), Failure> {
    let (mut ours, mut redis) = (Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        println!("\n==> round {round} of {ROUNDS}: ttl_cache");
        ours.push(measure(&Server::ours()?)?);
        println!("\n==> round {round} of {ROUNDS}: redis-server");
        redis.push(measure(&Server::redis()?)?);
    }
    println!("\n{}", table(&medians(&ours), &medians(&redis)));
    Ok(())
}

/// What `ROWS` asks for, of one server.
fn measure(server: &Server) -> Result<Figures, Failure> {
    let pipelined = ["-P", "16", "-c", "50", "-n", "1000000", "-r", "1000000"];
    let single = ["-c", "50", "-n", "100000", "-r", "1000000"];
    let (key, set) = ("key:__rand_int__", ["SET", "key:__rand_int__", "value", "PX", "60000"]);
    let [set_p, set_p99] = throughput(server, &[&pipelined[..], &set].concat())?;
    let [get_p, get_p99] = throughput(server, &[&pipelined[..], &["GET", key]].concat())?;
    let [set_1, set_1_p99] = throughput(server, &[&single[..], &set].concat())?;
    let seen = bench::flood(server)?;
    println!("    {seen}");
    // Memory goes back in steps, a turn each.
    thread::sleep(std::time::Duration::from_secs(1));
    let (resident, most) = server.memory();
    let flood = |place: &str| seen.of(&format!("/flood/{place}"));
    Ok([
        set_p,
        set_p99,
        get_p,
        get_p99,
        set_1,
        set_1_p99,
        flood("release_mean_ms"),
        flood("backlog_max"),
        flood("last_gone_ms"),
        most,
        resident,
        flood("quiet_us/p99"),
        flood("expiring_us/p50"),
        flood("expiring_us/p99"),
        flood("expiring_us/p999"),
        flood("expiring_us/max"),
    ])
}

/// Requests per second, and the p99 in milliseconds.
fn throughput(server: &Server, arguments: &[&str]) -> Result<[f64; 2], Failure> {
    let lines = bench::benchmark(server, arguments)?;
    let line = lines
        .first()
        .ok_or_else(|| Failure(String::from("redis-benchmark has measured nothing")))?;
    println!("    {:40} {:>10.0} per second", line.test, line.per_second);
    Ok([line.per_second, line.p99_ms])
}

fn medians(rounds: &[Figures]) -> Figures {
    std::array::from_fn(|row| {
        let mut figures: Vec<f64> = rounds.iter().map(|round| round[row]).collect();
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    })
}

/// In Markdown, to be put into `doc/ttl_cache.md` as it is.
fn table(ours: &Figures, redis: &Figures) -> String {
    let mut lines = vec![
        format!("`{COMMAND}`: {}. Medians of {ROUNDS} rounds.", machine()),
        String::new(),
        String::from("| | | ttl_cache | redis-server |"),
        String::from("|---|---|---:|---:|"),
    ];
    let rows = ROWS.iter().zip(ours.iter().zip(redis));
    lines.extend(rows.map(|((what, unit), (ours, redis))| {
        format!(
            "| {} | {unit} | {} | {} |",
            what.replacen("  ", "&nbsp;&nbsp;", 1),
            shown(*ours),
            shown(*redis)
        )
    }));
    lines.join("\n")
}

/// With as many digits as mean something.
fn shown(figure: f64) -> String {
    if figure >= 100.0 { format!("{figure:.0}") } else { format!("{figure:.1}") }
}

/// Where and when: no figure means anything without it.
fn machine() -> String {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu =
        cpus.lines().find_map(|line| Some(line.strip_prefix("model name")?.split_once(": ")?.1));
    let cores = thread::available_parallelism().map_or(0, Into::into);
    let system = word(Command::new("uname").arg("-sr"));
    let redis = word(Command::new("redis-server").arg("--version"));
    let version =
        redis.split_whitespace().find_map(|part| part.strip_prefix("v=")).unwrap_or("?").to_owned();
    let date = word(Command::new("date").args(["-u", "+%F %R UTC"]));
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split_whitespace().next().unwrap_or("?");
    let cpu = cpu.unwrap_or("an unknown processor");
    format!("{cpu}, {cores} cores, {system}, Redis {version}, {date}, load at the end {load}")
}

fn word(command: &mut Command) -> String {
    said(command).map_or_else(|_| String::from("?"), |said| said.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::{ROWS, medians, table};

    #[test]
    fn the_table_has_a_line_for_each_row() {
        let rounds = [[1.0; ROWS.len()], [300.0; ROWS.len()], [20.0; ROWS.len()]];
        let table = table(&medians(&rounds), &medians(&rounds[..1]));
        assert_eq!(
            table.lines().filter(|line| line.ends_with("| 20.0 | 1.0 |")).count(),
            ROWS.len()
        );
    }
}
