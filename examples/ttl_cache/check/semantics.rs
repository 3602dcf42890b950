//! What each command must answer: a list that holds of Redis as well.
//!
//! It is gone through one by one, with keys of several names, so that all cores have some of them; and once more all at
//! once, so that the answers must come in order.

use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use super::client::{Answer, Client};

/// Names of keys; `@` stands for them.
const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// What is asked, and what must be answered: a text, a number after `:`, or `-` and how the error begins. `WAIT` is not a
/// command: it waits for so many milliseconds.
#[rustfmt::skip]
const STEPS: &[(&str, &str)] = &[
    ("UNLINK @ @2", ":0"), ("GET @", "nil"), ("SET @ 1", "OK"), ("GET @", "1"), ("TTL @", ":-1"), ("TTL @no", ":-2"),
    // SET over a key with a deadline, and its options.
    ("SET @ 2 EX 100", "OK"), ("TTL @", ":100"), ("PTTL @", ":100000"), ("SET @ 3", "OK"), ("TTL @", ":-1"),
    ("SET @ 4 PX 100000", "OK"), ("SET @ 5 KEEPTTL", "OK"), ("TTL @", ":100"), ("SET @ 6 NX", "nil"), ("SET @ 6 XX GET", "5"),
    ("TTL @", ":-1"), ("SET @ 7 GET EX 50", "6"), ("SET @ 8 EX 0", "-ERR invalid expire"), ("SET @ 8 EX x", "-ERR value"),
    ("SET @ 8 EX 1 PX 1", "-ERR syntax"), ("SET @ 8 NX XX", "-ERR syntax"), ("SET @ 8 PX", "-ERR syntax"), ("GET @", "7"),
    ("SET @ 8 EX 9223372036854775807", "-ERR invalid expire"), ("SET @ 9 PXAT 4102444800123", "OK"),
    ("PEXPIRETIME @", ":4102444800123"), ("EXPIRETIME @", ":4102444800"), ("SET @ 9 EXAT 4102444801", "OK"),
    ("EXPIRETIME @", ":4102444801"), ("SETEX @ 20 10", "OK"), ("TTL @", ":20"), ("PSETEX @ 20000 11", "OK"), ("TTL @", ":20"),
    ("SETEX @ -1 10", "-ERR invalid expire"), ("SETNX @ 12", ":0"), ("GETSET @ 13", "11"), ("TTL @", ":-1"),
    // EXPIRE and its conditions, PERSIST.
    ("EXPIRE @no 10", ":0"), ("EXPIRE @ 100", ":1"), ("EXPIRE @ 50 GT", ":0"), ("EXPIRE @ 200 GT", ":1"), ("EXPIRE @ 300 LT", ":0"),
    ("EXPIRE @ 100 LT", ":1"), ("EXPIRE @ 70 NX", ":0"), ("TTL @", ":100"), ("PERSIST @", ":1"), ("PERSIST @", ":0"),
    ("EXPIRE @ 70 XX", ":0"), ("EXPIRE @ 70 GT", ":0"), ("EXPIRE @ 70 LT", ":1"), ("EXPIRE @ 70 NX XX", "-ERR NX and XX"),
    ("EXPIRE @ 70 GT LT", "-ERR GT and LT"), ("EXPIRE @ x", "-ERR value"), ("EXPIRE @ 1 2", "-ERR"), ("PEXPIRE @ 90000", ":1"),
    ("TTL @", ":90"), ("EXPIREAT @ 4102444800", ":1"), ("EXPIRETIME @", ":4102444800"), ("PEXPIREAT @ 4102444800001", ":1"),
    ("PEXPIRETIME @", ":4102444800001"), ("EXPIRE @ 9223372036854775807", "-ERR invalid expire"), ("EXPIRE @ -1", ":1"),
    ("GET @", "nil"), ("SET @ 1", "OK"), ("EXPIREAT @ 1", ":1"), ("EXISTS @", ":0"), ("SET @ 1 PXAT 1", "OK"), ("EXISTS @", ":0"),
    // A value that is changed keeps its deadline.
    ("SET @ 10 EX 100", "OK"), ("INCR @", ":11"), ("DECR @", ":10"), ("INCRBY @ 5", ":15"), ("DECRBY @ 25", ":-10"), ("TTL @", ":100"),
    ("APPEND @ x", ":4"), ("STRLEN @", ":4"), ("GET @", "-10x"), ("INCR @", "-ERR value"), ("TTL @", ":100"), ("TYPE @", "string"),
    ("GETEX @", "-10x"), ("TTL @", ":100"), ("GETEX @ PERSIST", "-10x"), ("TTL @", ":-1"), ("GETEX @ PX 30000", "-10x"), ("TTL @", ":30"),
    ("GETEX @ EX 0", "-ERR invalid expire"), ("GETDEL @", "-10x"), ("GETDEL @", "nil"), ("TYPE @", "none"), ("STRLEN @", ":0"),
    ("SET @ 9223372036854775807", "OK"), ("INCR @", "-ERR increment"), ("SET @ 01x", "OK"), ("INCR @", "-ERR value"),
    // Several keys at once.
    ("MSET @ 1 @2 2", "OK"), ("MGET @ @no @2 @", "[1 nil 2 1]"), ("EXISTS @ @no @2 @", ":3"), ("TOUCH @ @no", ":1"), ("MSET @ 1 @2", "-ERR wrong"),
    ("EXPIRE @ 100", ":1"), ("MSET @ 3", "OK"), ("TTL @", ":-1"), ("UNLINK @2", ":1"), ("DEL @ @2 @no", ":1"),
    // At its deadline.
    ("SET @ 1 PX 700", "OK"), ("SET @2 1 PX 700", "OK"), ("PERSIST @2", ":1"), ("SET @3 1 PX 700", "OK"), ("SET @3 2", "OK"),
    ("SET @4 1 PX 700", "OK"), ("PEXPIRE @4 100000", ":1"), ("SET @5 1 PX 90000", "OK"), ("SET @5 1 PX 700", "OK"), ("WAIT 705", ""),
    ("MGET @ @2 @3 @4 @5", "[nil 1 2 1 nil]"), ("TTL @", ":-2"), ("DEL @ @2 @3 @4 @5", ":3"),
    // Nothing to do with keys.
    ("PING", "PONG"), ("PING hello", "hello"), ("ECHO hello", "hello"), ("SELECT 0", "OK"), ("SELECT 99", "-ERR DB index"), ("GET", "-ERR wrong"),
    ("GET @ @", "-ERR wrong"), ("NOSUCH @", "-ERR unknown command"), ("CLIENT SETNAME x", "OK"), ("CONFIG GET nosuch", "[]"), ("hElLo 9", "-NOPROTO"),
];

/// What was answered otherwise, in words; and how many answers were looked at.
pub(crate) fn check(server: SocketAddr) -> io::Result<(usize, Vec<String>)> {
    let (mut answers, mut wrong) = (0, Vec::new());
    let mut client = Client::connect(server)?;
    client.ask(&["FLUSHALL"])?;
    for part in STEPS.chunk_by(|_, next| wait(next.0).is_none()) {
        // All names wait together.
        thread::sleep(part.first().and_then(|(asked, _)| wait(asked)).unwrap_or_default());
        let steps = || part.iter().filter(|(asked, _)| wait(asked).is_none());
        for (name, (asked, expected)) in
            NAMES.iter().flat_map(|name| steps().map(move |step| (name, step)))
        {
            let asked = asked.replace('@', name);
            let words: Vec<&str> = asked.split(' ').collect();
            wrong.extend(judge(&asked, &client.ask(&words)?, expected));
            answers += 1;
        }
    }
    answers += pipelined(&mut client, &mut wrong)?;
    answers += torn(server, &mut wrong)?;
    answers += malformed(server, &mut wrong)?;
    Ok((answers, wrong))
}

/// All at once, as far as it does not take time.
fn pipelined(client: &mut Client, wrong: &mut Vec<String>) -> io::Result<usize> {
    let until_wait = || STEPS.iter().take_while(|(asked, _)| wait(asked).is_none());
    for name in NAMES {
        for (asked, _) in until_wait() {
            client.put(&asked.replace('@', name).split(' ').collect::<Vec<_>>());
        }
    }
    client.send()?;
    for name in NAMES {
        for (asked, expected) in until_wait() {
            wrong.extend(judge(
                &format!("pipelined {}", asked.replace('@', name)),
                &client.answer()?,
                expected,
            ));
        }
    }
    Ok(NAMES.len() * until_wait().count())
}

/// Commands that arrive in pieces.
fn torn(server: SocketAddr, wrong: &mut Vec<String>) -> io::Result<usize> {
    let mut client = Client::connect(server)?;
    for byte in b"*2\r\n$4\r\nECHO\r\n$4\r\n\r\n\r\n\r\nPING\r\n" {
        client.stream().write_all(&[*byte])?;
    }
    wrong.extend(judge("ECHO in pieces", &client.answer()?, "\r\n\r\n"));
    wrong.extend(judge("PING in pieces", &client.answer()?, "PONG"));
    Ok(2)
}

/// Bytes that are no command get an error, and the connection is closed.
fn malformed(server: SocketAddr, wrong: &mut Vec<String>) -> io::Result<usize> {
    let requests = ["*x\r\n", "*1\r\n:1\r\n", "*1\r\n$x\r\n", "*3000000000\r\n"];
    for request in requests {
        let mut client = Client::connect(server)?;
        client.stream().write_all(request.as_bytes())?;
        wrong.extend(judge(&format!("{request:?}"), &client.answer()?, "-ERR Protocol error"));
        match client.wait_for_end() {
            Ok(false) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            other => {
                wrong.push(format!("after {request:?} the connection was not closed: {other:?}"))
            }
        }
    }
    Ok(requests.len())
}

fn wait(asked: &str) -> Option<Duration> {
    Some(Duration::from_millis(asked.strip_prefix("WAIT ")?.parse().ok()?))
}

/// A machine that is busy may have let ten seconds pass, or half of what there was.
fn is_left_of(left: i64, expected: &str) -> bool {
    let whole: i64 = expected.strip_prefix(':').and_then(|number| number.parse().ok()).unwrap_or(0);
    (whole - (whole / 2).min(10_000)..=whole).contains(&left)
}

fn judge(asked: &str, answer: &Answer, expected: &str) -> Option<String> {
    let is_right = match answer {
        Answer::Error(why) => {
            expected.strip_prefix('-').is_some_and(|begin| why.starts_with(begin))
        }
        Answer::Integer(left) if *left > 0 && asked.contains("TTL ") => is_left_of(*left, expected),
        _ => answer.to_string() == expected,
    };
    (!is_right).then(|| format!("{asked:?} was answered {answer}, not {expected}"))
}
