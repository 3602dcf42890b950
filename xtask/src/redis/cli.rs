//! redis-cli: what it shows for commands about deadlines, and what it sends in bulk.

use std::{
    fmt::Write as _,
    io::Write as _,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use super::{said_by, server::Server};
use crate::run::Failure;

/// Commands and what redis-cli shows, a line each. Before each part some time passes.
const PARTS: &[(Duration, &[(&str, &str)])] = &[
    (
        Duration::ZERO,
        &[
            ("SET key value", "OK"),
            ("TTL key", "(integer) -1"),
            ("EXPIRE key 100", "(integer) 1"),
            ("TTL key", "(integer) 100"),
            ("SET key other", "OK"),
            ("TTL key", "(integer) -1"),
            ("SET key other EX 100", "OK"),
            ("PERSIST key", "(integer) 1"),
            ("PERSIST key", "(integer) 0"),
            ("TTL key", "(integer) -1"),
            ("PEXPIREAT key 4102444800123", "(integer) 1"),
            ("PEXPIRETIME key", "(integer) 4102444800123"),
            ("EXPIRE key 10 GT", "(integer) 0"),
            ("TTL nobody", "(integer) -2"),
            ("SET brief value PX 100", "OK"),
            ("SET kept value PX 100", "OK"),
            ("PERSIST kept", "(integer) 1"),
            ("SET again value PX 100", "OK"),
            ("SET again value PX 60000", "OK"),
            ("GET brief", "\"value\""),
            ("FLY", "(error) ERR unknown command 'FLY'"),
        ],
    ),
    (
        Duration::from_millis(105),
        &[
            ("GET brief", "(nil)"),
            ("TTL brief", "(integer) -2"),
            ("GET kept", "\"value\""),
            ("EXISTS brief kept again", "(integer) 2"),
            ("SET brief value NX PX 60000", "OK"),
            ("GETEX brief PERSIST", "\"value\""),
            ("GETDEL brief", "\"value\""),
            ("FLUSHALL", "OK"),
            ("DBSIZE", "(integer) 0"),
        ],
    ),
];

/// How many commands are sent in bulk.
const BULK: usize = 100_000;

pub(super) fn check(server: &Server) -> Result<(), Failure> {
    println!("\n==> redis-cli: deadlines");
    for (pause, steps) in PARTS {
        thread::sleep(*pause);
        let asked: Vec<&str> = steps.iter().map(|(asked, _)| *asked).collect();
        let shown = cli(server, &["--no-raw"], &(asked.join("\n") + "\n"))?;
        compare(steps, &shown)?;
    }
    bulk(server)
}

/// `redis-cli --pipe` sends all at once and counts the answers.
fn bulk(server: &Server) -> Result<(), Failure> {
    println!("\n==> redis-cli --pipe: {BULK} commands");
    let mut input = String::new();
    for number in 0..BULK {
        let _ = write!(input, "SET bulk:{number} value PX 60000\r\n");
    }
    let said = cli(server, &["--pipe"], &input)?;
    let held = cli(server, &[], "DBSIZE\n")?;
    if said.contains(&format!("errors: 0, replies: {BULK}")) && held.trim() == BULK.to_string() {
        return Ok(());
    }
    Err(Failure(format!("redis-cli --pipe: {said}, and then there were {held} keys")))
}

fn cli(server: &Server, options: &[&str], input: &str) -> Result<String, Failure> {
    let failed = |error| Failure(format!("redis-cli: {error}"));
    let mut command = Command::new("redis-cli");
    command.args(["-p", &server.port.to_string()]).args(options);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    if let Some(mut pipe) = child.stdin.take() {
        pipe.write_all(input.as_bytes()).map_err(failed)?;
    }
    said_by("redis-cli", child.wait_with_output().map_err(failed)?)
}

fn compare(steps: &[(&str, &str)], shown: &str) -> Result<(), Failure> {
    let mut lines = shown.lines();
    for (asked, expected) in steps {
        let line = lines.next().unwrap_or("nothing");
        if line != *expected {
            return Err(Failure(format!("redis-cli {asked}: it shows {line:?}, not {expected:?}")));
        }
    }
    Ok(())
}
