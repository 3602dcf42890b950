//! The commands: the number of words of each, the cores that execute it, and its effect.

#![allow(clippy::unnecessary_wraps, reason = "all commands have the types of the table")]

use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::Bytes;
use resp_rs::resp2::Frame;

use crate::keys::{Entry, Keys};

const SYNTAX: &str = "ERR syntax error";

/// An answer to a client. `Err` is an error frame.
pub(crate) type Answer = Result<Frame, Frame>;

/// Executes a command on the keys of a core. The words are the command and its arguments. The key,
/// if there is one, is the second word.
pub(crate) type RunOnKeys = fn(&mut Keys, &[Bytes]) -> Answer;

/// The cores that execute a command.
#[derive(Clone, Copy)]
pub(crate) enum Route {
    /// The core of the connection: the command uses no keys.
    ThisCore(fn(&[Bytes]) -> Frame),
    Key(RunOnKeys),
    /// All cores. Integer answers are added; other answers are equal.
    EveryCore(RunOnKeys),
}

/// The commands, each with the number of its words, including its name.
const COMMANDS: &[(&str, RangeInclusive<usize>, Route)] = &[
    ("dbsize", 1..=1, Route::EveryCore(|keys, _| Ok(integer(keys.len())))),
    ("del", 2..=2, Route::Key(del)),
    ("exists", 2..=2, Route::Key(|keys, words| Ok(integer_flag(keys.find(&words[1]).is_some())))),
    ("expire", 3..=3, Route::Key(expire)),
    ("expireat", 3..=3, Route::Key(expire)),
    ("flushall", 1..=2, Route::EveryCore(flush)),
    ("get", 2..=2, Route::Key(get)),
    ("persist", 2..=2, Route::Key(persist)),
    ("pexpire", 3..=3, Route::Key(expire)),
    ("pexpireat", 3..=3, Route::Key(expire)),
    ("ping", 1..=2, Route::ThisCore(ping)),
    ("pttl", 2..=2, Route::Key(pttl)),
    ("quit", 1..=1, Route::ThisCore(|_| simple_string("OK"))),
    ("set", 3..=usize::MAX, Route::Key(set)),
    ("ttl", 2..=2, Route::Key(ttl)),
];

/// Finds the route of a command. `words` must not be empty.
pub(crate) fn route(words: &[Bytes]) -> Result<Route, Frame> {
    let is_named = |name: &str| words[0].eq_ignore_ascii_case(name.as_bytes());
    let command = COMMANDS.iter().find(|(name, ..)| is_named(name));
    let (name, lengths, route) = command.ok_or_else(|| error_frame("ERR unknown command"))?;
    if !lengths.contains(&words.len()) {
        return Err(error_frame(format!("ERR wrong number of arguments for '{name}' command")));
    }
    Ok(*route)
}

fn get(keys: &mut Keys, words: &[Bytes]) -> Answer {
    Ok(Frame::BulkString(keys.find(&words[1]).map(|entry| entry.value.clone())))
}

fn set(keys: &mut Keys, words: &[Bytes]) -> Answer {
    let [_, key, value, options @ ..] = words else { return Err(error_frame(SYNTAX)) };
    let options: Vec<_> = options.iter().map(|word| word.to_ascii_lowercase()).collect();
    let options: Vec<&[u8]> = options.iter().map(Vec::as_slice).collect();
    let (deadline, keeps_deadline) = match options[..] {
        [] => (None, false),
        [b"keepttl"] => (None, true),
        [unit @ (b"ex" | b"px" | b"exat" | b"pxat"), number] => {
            let number = parse_integer(number)?;
            let deadline = deadline(unit, number, keys.now()).filter(|_| number > 0);
            (Some(deadline.ok_or_else(|| invalid_deadline("set"))?), false)
        }
        _ => return Err(error_frame(SYNTAX)),
    };
    let entry = keys.set(key, value).map_err(error_frame)?;
    if !keeps_deadline {
        // Called before `expire_at`: if the old deadline has passed, `expire_at` would remove the
        // new value.
        entry.persist();
    }
    if let Some(deadline) = deadline {
        keys.expire_at(key, deadline);
    }
    Ok(simple_string("OK"))
}

fn del(keys: &mut Keys, words: &[Bytes]) -> Answer {
    let key = &words[1];
    Ok(integer_flag(keys.find(key).is_some() && keys.remove(key)))
}

fn flush(keys: &mut Keys, _: &[Bytes]) -> Answer {
    keys.clear();
    Ok(simple_string("OK"))
}

/// Executes EXPIRE, PEXPIRE, EXPIREAT and PEXPIREAT.
fn expire(keys: &mut Keys, words: &[Bytes]) -> Answer {
    let name = words[0].to_ascii_lowercase();
    let deadline = deadline(&name, parse_integer(&words[2])?, keys.now())
        .ok_or_else(|| invalid_deadline(&String::from_utf8_lossy(&name)))?;
    Ok(integer_flag(keys.expire_at(&words[1], deadline)))
}

/// Returns a deadline since the Unix epoch, or `None` if it is too far away. `unit` is a command or
/// an option of SET. It ends in "at" if `number` counts from the epoch, and starts with "p" if
/// `number` counts milliseconds.
fn deadline(unit: &[u8], number: i64, now: Duration) -> Option<Duration> {
    let millis = if unit.starts_with(b"p") { number } else { number.checked_mul(1_000)? };
    let start = if unit.ends_with(b"at") { Duration::ZERO } else { now };
    // A negative delay counts as zero: the key expires at once.
    let delay = u64::try_from(millis).map_or(Duration::ZERO, Duration::from_millis);
    let deadline = start + delay;
    i64::try_from(deadline.as_millis()).is_ok().then_some(deadline)
}

fn persist(keys: &mut Keys, words: &[Bytes]) -> Answer {
    Ok(integer_flag(keys.find(&words[1]).is_some_and(Entry::persist)))
}

/// Executes TTL. Rounds the remaining time to the nearest second, as Redis does.
fn ttl(keys: &mut Keys, words: &[Bytes]) -> Answer {
    Ok(remaining_time_frame(keys, words, |time_left| (time_left.as_millis() + 500) / 1_000))
}

fn pttl(keys: &mut Keys, words: &[Bytes]) -> Answer {
    Ok(remaining_time_frame(keys, words, |time_left| time_left.as_nanos().div_ceil(1_000_000)))
}

fn remaining_time_frame(keys: &mut Keys, words: &[Bytes], unit: fn(Duration) -> u128) -> Frame {
    let now = keys.now();
    // As in Redis: -2 if there is no key, -1 if the key has no deadline.
    let Some(entry) = keys.find(&words[1]) else { return Frame::Integer(-2) };
    let time_left = entry.deadline().map(|at| at.saturating_sub(now));
    time_left.map_or(Frame::Integer(-1), |time_left| integer(unit(time_left)))
}

fn ping(words: &[Bytes]) -> Frame {
    words.get(1).map_or_else(|| simple_string("PONG"), |word| Frame::BulkString(Some(word.clone())))
}

fn simple_string(text: &'static str) -> Frame {
    Frame::SimpleString(Bytes::from_static(text.as_bytes()))
}

/// Returns an error frame. `text` must be one line.
pub(crate) fn error_frame(text: impl Into<Bytes>) -> Frame {
    Frame::Error(text.into())
}

fn invalid_deadline(command: &str) -> Frame {
    error_frame(format!("ERR invalid expire time in '{command}' command"))
}

fn integer_flag(holds: bool) -> Frame {
    Frame::Integer(holds.into())
}

fn integer(number: impl TryInto<i64>) -> Frame {
    Frame::Integer(number.try_into().unwrap_or(i64::MAX))
}

/// Parses a decimal integer without a plus sign. Unlike Redis, accepts `007` and `-0`.
fn parse_integer(word: &[u8]) -> Result<i64, Frame> {
    let digits = str::from_utf8(word).ok().filter(|digits| !digits.starts_with('+'));
    let number = digits.and_then(|digits| digits.parse().ok());
    number.ok_or_else(|| error_frame("ERR value is not an integer or out of range"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The old deadline passes while SET copies the new value.
    #[test]
    fn set_with_a_deadline_outlives_the_old_deadline() {
        let value = Bytes::from(vec![1; 64 << 20]);
        let [name, key, unit, number] = ["SET", "key", "EX", "100"].map(Bytes::from);
        let shared = Keys::new(1);
        let keys = &mut *shared.borrow_mut();
        keys.set(&key, b"old").expect("there is room");
        assert!(keys.expire_at(&key, keys.now() + Duration::from_millis(3)));
        assert!(set(keys, &[name, key.clone(), value, unit, number]).is_ok());
        assert!(keys.find(&key).is_some());
    }
}
