//! The correct answers to each command: the answers of Redis.
//!
//! The commands are sent one by one for several keys, which are probably on several cores. Then the
//! commands before the wait are sent again in one pipeline, whose answers must arrive in order.

use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use super::client::{Client, format_answer};
use crate::common::verdict::Failures;

/// The names that replace `@` in a command.
const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// Commands and their answers: a text, `:` and a number, or `-` and the start of an error. `WAIT`
/// is not a command: the check waits for this many milliseconds.
#[rustfmt::skip]
const STEPS: &[(&str, &str)] = &[
    ("DEL @", ":0"), ("GET @", "nil"), ("SET @ 1", "OK"), ("GET @", "1"), ("TTL @", ":-1"),
    ("TTL @no", ":-2"), ("PTTL @no", ":-2"),
    ("SET @ 2 EX 100", "OK"), ("TTL @", ":100"), ("PTTL @", ":100000"), ("SET @ 3", "OK"),
    ("TTL @", ":-1"), ("SET @ 4 PX 100000", "OK"), ("SET @ 5 KEEPTTL", "OK"), ("TTL @", ":100"),
    ("GET @", "5"), ("SET @ 7 EX 50", "OK"), ("SET @ 8 EX 0", "-ERR invalid expire"),
    ("SET @ 8 EX x", "-ERR value"), ("SET @ 8 EX 1 PX 1", "-ERR syntax"),
    ("SET @ 8 PX", "-ERR syntax"), ("SET @ 8 EX +1", "-ERR value"),
    ("SET @ 8 EX 9223372036854775807", "-ERR invalid expire"),
    ("SET @ 8 PX 9223372036854775807", "-ERR invalid expire"), ("GET @", "7"), ("EXISTS @no", ":0"),
    ("SET @ 9 PXAT 4102444800123", "OK"), ("PERSIST @", ":1"), ("SET @ 9 EXAT 4102444801", "OK"),
    ("PERSIST @", ":1"),
    ("EXPIRE @no 10", ":0"), ("EXPIRE @ 100", ":1"), ("TTL @", ":100"), ("PERSIST @", ":1"),
    ("PERSIST @", ":0"), ("TTL @", ":-1"), ("EXPIRE @ x", "-ERR value"), ("EXPIRE @ 1 2", "-ERR"),
    ("PEXPIRE @ 90000", ":1"), ("TTL @", ":90"), ("EXPIREAT @ 4102444800", ":1"),
    ("PERSIST @", ":1"), ("PEXPIREAT @ 4102444800001", ":1"),
    ("EXPIRE @ 9223372036854775807", "-ERR invalid expire"), ("PERSIST @", ":1"),
    ("EXPIRE @ -1", ":1"), ("GET @", "nil"), ("SET @ 1", "OK"), ("EXPIREAT @ 1", ":1"),
    ("EXISTS @", ":0"), ("SET @ 1 PXAT 1", "OK"), ("EXISTS @", ":0"),
    ("PING", "PONG"), ("pInG hello", "hello"), ("GET", "-ERR wrong"), ("GET @ @", "-ERR wrong"),
    ("NOSUCH @", "-ERR unknown command"),
    ("SET @ 1 PX 700", "OK"), ("SET @2 1 PX 700", "OK"), ("PERSIST @2", ":1"),
    ("SET @3 1 PX 700", "OK"), ("SET @3 2", "OK"), ("SET @4 1 PX 700", "OK"),
    ("PEXPIRE @4 100000", ":1"), ("SET @5 1 PX 90000", "OK"), ("SET @5 1 PX 700", "OK"),
    ("WAIT 705", ""), ("GET @", "nil"), ("GET @2", "1"), ("GET @3", "2"), ("GET @4", "1"),
    ("GET @5", "nil"), ("TTL @", ":-2"), ("DEL @4", ":1"),
];

pub(super) fn check(server: SocketAddr, failures: &mut Failures) -> io::Result<usize> {
    let mut answers = 0;
    let mut compare = |command: &str, answer: String, expected: &str| {
        answers += 1;
        if !is_correct_answer(command, &answer, expected) {
            failures.push(format!("{command:?} was answered {answer}, not {expected}"));
        }
    };
    let mut client = Client::connect(server)?;
    client.ask("FLUSHALL")?;
    for part in STEPS.chunk_by(|_, next| parse_wait(next.0).is_none()) {
        // If the part begins with a wait, waits once, before the commands of all names.
        thread::sleep(
            part.first().and_then(|(command, _)| parse_wait(command)).unwrap_or_default(),
        );
        for name in NAMES {
            for (command, expected) in
                part.iter().filter(|(command, _)| parse_wait(command).is_none())
            {
                let command = command.replace('@', name);
                compare(&command, format_answer(&client.ask(&command)?), expected);
            }
        }
    }
    // All commands before the wait, in one pipeline.
    let until_wait = STEPS.iter().take_while(|(command, _)| parse_wait(command).is_none());
    let steps = NAMES.iter().flat_map(|name| {
        until_wait.clone().map(|(command, expected)| (command.replace('@', name), expected))
    });
    steps.clone().for_each(|(command, _)| client.enqueue(&command));
    client.send()?;
    for (command, expected) in steps {
        compare(&format!("pipelined {command}"), format_answer(&client.read_answer()?), expected);
    }
    // A command that arrives byte by byte.
    let mut client = Client::connect(server)?;
    for byte in b"*2\r\n$4\r\nPING\r\n$4\r\n\r\n\r\n\r\n" {
        client.stream.write_all(&[*byte])?;
    }
    compare("PING in pieces", format_answer(&client.read_answer()?), "\r\n\r\n");
    // Malformed commands get an error, and the connection is closed.
    for request in ["*x\r\n", "*1\r\n:1\r\n", "*1\r\n$x\r\n", "*3000000000\r\n"] {
        let mut client = Client::connect(server)?;
        client.stream.write_all(request.as_bytes())?;
        compare(request, format_answer(&client.read_answer()?), "-ERR Protocol error");
        let end = match client.wait_for_end() {
            Ok(false) => "closed".into(),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => "closed".into(),
            other => format!("{other:?}"),
        };
        compare(&format!("end after {request:?}"), end, "closed");
    }
    Ok(answers)
}

fn parse_wait(command: &str) -> Option<Duration> {
    Some(Duration::from_millis(command.strip_prefix("WAIT ")?.parse().ok()?))
}

fn is_correct_answer(command: &str, answer: &str, expected: &str) -> bool {
    if expected.starts_with('-') {
        return answer.starts_with(expected);
    }
    // On a busy machine, a TTL may be smaller than expected: by at most half, and at most 10,000
    // units.
    let number = |text: &str| text.strip_prefix(':')?.parse().ok().filter(|&left: &i64| left > 0);
    match (number(answer), number(expected)) {
        (Some(left), Some(whole)) if command.contains("TTL ") => {
            (whole - (whole / 2).min(10_000)..=whole).contains(&left)
        }
        _ => answer == expected,
    }
}
