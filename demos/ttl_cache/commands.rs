//! The commands: the number of words of each, its route to the keys, and its effect.

#![allow(clippy::unnecessary_wraps, reason = "all commands have the types of the table")]

use std::convert::identity;
use std::fmt::Write;
use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::Bytes;
use resp_rs::resp2::Frame;

use crate::keys::Keys;
use crate::worker::Board;

/// The version of Redis that INFO claims, whose answers these are.
const VERSION: &str = "7.0.0";
const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
const SYNTAX: &str = "ERR syntax error";
/// What TTL answers for a missing key, and for a key without a deadline.
const NO_KEY: i64 = -2;
const NO_DEADLINE: i64 = -1;

/// An answer to a client. `Err` is an error frame.
pub(crate) type Answer = Result<Frame, Frame>;

/// A request to one core, about one of its keys or about all of them.
pub(crate) struct Request {
    /// The command and its arguments. The key, if there is one, is the second word.
    pub(crate) words: Vec<Bytes>,
    /// The hash of the key.
    pub(crate) hash: u64,
    run: RunOnKeys,
}

pub(crate) type RunOnKeys = fn(&mut Keys, &Request) -> Answer;
type RunOnServer = fn(&Board, &[Bytes]) -> Answer;

pub(crate) struct Command {
    name: &'static str,
    /// How many words it takes, its name included.
    words: RangeInclusive<usize>,
    pub(crate) route: Route,
}

/// Which cores carry a command out.
#[derive(Clone, Copy)]
pub(crate) enum Route {
    /// The core of the connection: it is about no keys.
    Server(RunOnServer),
    /// The core of the key.
    Key(RunOnKeys),
    /// The cores of several keys, one request for each. A key and its arguments are this many words.
    EachKey(usize, RunOnKeys, Merge),
    /// All cores.
    EveryCore(RunOnKeys, Merge),
}

/// How the answers to the requests of one command become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Merge {
    /// There is only one.
    One,
    Array,
    Sum,
    AllOk,
}

const ANY: usize = usize::MAX;

const COMMANDS: &[Command] = &[
    command("command", 1..=ANY, Route::Server(|_, _| Ok(Frame::Array(Some(Vec::new()))))),
    command("config", 2..=ANY, Route::Server(config)),
    command("dbsize", 1..=1, Route::EveryCore(|keys, _| count(keys.len()), Merge::Sum)),
    command("del", 2..=ANY, Route::EachKey(1, del, Merge::Sum)),
    command("echo", 2..=2, Route::Server(|_, words| Ok(bulk(words[1].clone())))),
    command("exists", 2..=ANY, Route::EachKey(1, exists, Merge::Sum)),
    command("expire", 3..=3, Route::Key(expire)),
    command("expireat", 3..=3, Route::Key(expire)),
    command("flushall", 1..=2, Route::EveryCore(flush, Merge::AllOk)),
    command("get", 2..=2, Route::Key(get)),
    command("incr", 2..=2, Route::Key(incr)),
    command("info", 1..=ANY, Route::Server(info)),
    command("mget", 2..=ANY, Route::EachKey(1, get, Merge::Array)),
    command("mset", 3..=ANY, Route::EachKey(2, set, Merge::AllOk)),
    command("persist", 2..=2, Route::Key(persist)),
    command("pexpire", 3..=3, Route::Key(expire)),
    command("pexpireat", 3..=3, Route::Key(expire)),
    command("ping", 1..=2, Route::Server(ping)),
    command("pttl", 2..=2, Route::Key(pttl)),
    command("quit", 1..=ANY, Route::Server(|_, _| Ok(ok()))),
    command("set", 3..=ANY, Route::Key(set)),
    command("ttl", 2..=2, Route::Key(ttl)),
];

const fn command(name: &'static str, words: RangeInclusive<usize>, route: Route) -> Command {
    Command { name, words, route }
}

/// Finds the command of these words, which are at least one.
pub(crate) fn find(words: &[Bytes]) -> Result<&'static Command, Frame> {
    let named = |command: &&Command| words[0].eq_ignore_ascii_case(command.name.as_bytes());
    let command = COMMANDS.iter().find(named).ok_or_else(|| {
        // One short line, whatever the client has sent.
        let printable = |byte: &u8| if byte.is_ascii_graphic() { char::from(*byte) } else { '?' };
        let name: String = words[0].iter().take(64).map(printable).collect();
        error(format!("ERR unknown command '{name}'"))
    })?;
    let is_complete = match command.route {
        Route::EachKey(step, ..) => (words.len() - 1).is_multiple_of(step),
        _ => true,
    };
    if command.words.contains(&words.len()) && is_complete {
        Ok(command)
    } else {
        Err(error(format!("ERR wrong number of arguments for '{}' command", command.name)))
    }
}

impl Request {
    pub(crate) fn new(words: Vec<Bytes>, hash: u64, run: RunOnKeys) -> Self {
        Self { words, hash, run }
    }

    /// Carries the request out on the core of its key.
    pub(crate) fn answer(&self, keys: &mut Keys) -> Frame {
        (self.run)(keys, self).unwrap_or_else(identity)
    }

    fn find(&self, keys: &mut Keys) -> Option<usize> {
        keys.find(self.hash, &self.words[1])
    }

    /// Gives the key, which `find` has or has not found, another value. Returns its number.
    fn put(&self, keys: &mut Keys, found: Option<usize>, value: &[u8]) -> Result<usize, Frame> {
        let put = match found {
            Some(number) => keys.set_value(number, value).map(|()| number),
            None => keys.insert(self.hash, &self.words[1], value),
        };
        put.map_err(error)
    }
}

// ---- Values

fn get(keys: &mut Keys, request: &Request) -> Answer {
    Ok(request.find(keys).map_or_else(nil, |number| bulk(keys.value(number).clone())))
}

fn set(keys: &mut Keys, request: &Request) -> Answer {
    let options = SetOptions::parse(&request.words[3..], keys.now())?;
    let found = request.find(keys);
    let old = found.map_or_else(nil, |number| bulk(keys.value(number).clone()));
    let applies = options.only_if_exists.is_none_or(|exists| exists == found.is_some());
    if applies {
        let number = request.put(keys, found, &request.words[2])?;
        match options.deadline {
            Some(deadline) => keys.expire_at(number, deadline),
            None if options.keeps_deadline => {}
            None => drop(keys.persist(number)),
        }
    }
    Ok(match (options.returns_old, applies) {
        (true, _) => old,
        (false, true) => ok(),
        (false, false) => nil(),
    })
}

#[derive(Default)]
struct SetOptions {
    deadline: Option<Duration>,
    keeps_deadline: bool,
    only_if_exists: Option<bool>,
    returns_old: bool,
}

impl SetOptions {
    fn parse(words: &[Bytes], now: Duration) -> Result<Self, Frame> {
        let mut options = Self::default();
        let mut words = words.iter().map(|word| word.to_ascii_lowercase());
        while let Some(word) = words.next() {
            match word.as_slice() {
                unit @ (b"ex" | b"px" | b"exat" | b"pxat") if !options.decides_deadline() => {
                    let number = integer(&words.next().ok_or_else(|| error(SYNTAX))?)?;
                    let deadline = deadline(unit, number, now).filter(|_| number > 0);
                    options.deadline = Some(deadline.ok_or_else(|| invalid_deadline("set"))?);
                }
                b"keepttl" if !options.decides_deadline() => options.keeps_deadline = true,
                b"nx" if options.only_if_exists != Some(true) => {
                    options.only_if_exists = Some(false);
                }
                b"xx" if options.only_if_exists != Some(false) => {
                    options.only_if_exists = Some(true);
                }
                b"get" => options.returns_old = true,
                _ => return Err(error(SYNTAX)),
            }
        }
        Ok(options)
    }

    fn decides_deadline(&self) -> bool {
        self.keeps_deadline || self.deadline.is_some()
    }
}

fn incr(keys: &mut Keys, request: &Request) -> Answer {
    let found = request.find(keys);
    let old = found.map_or(Ok(0), |number| integer(keys.value(number)))?;
    let overflow = || error("ERR increment or decrement would overflow");
    let new = old.checked_add(1).ok_or_else(overflow)?;
    request.put(keys, found, new.to_string().as_bytes())?;
    Ok(Frame::Integer(new))
}

fn del(keys: &mut Keys, request: &Request) -> Answer {
    let found = request.find(keys);
    found.inspect(|&number| keys.remove(number));
    Ok(flag(found.is_some()))
}

fn exists(keys: &mut Keys, request: &Request) -> Answer {
    Ok(flag(request.find(keys).is_some()))
}

fn flush(keys: &mut Keys, _: &Request) -> Answer {
    keys.clear();
    Ok(ok())
}

// ---- Deadlines

/// EXPIRE, PEXPIRE, EXPIREAT and PEXPIREAT.
fn expire(keys: &mut Keys, request: &Request) -> Answer {
    let name = request.words[0].to_ascii_lowercase();
    let deadline = deadline(&name, integer(&request.words[2])?, keys.now())
        .ok_or_else(|| invalid_deadline(&String::from_utf8_lossy(&name)))?;
    let found = request.find(keys);
    found.inspect(|&number| keys.expire_at(number, deadline));
    Ok(flag(found.is_some()))
}

/// Returns a deadline since the Unix epoch; `None` if it is too far away. The name of the unit, or of the command, ends in
/// "at" if the number counts from the epoch, and starts with "p" if it counts milliseconds.
fn deadline(unit: &[u8], number: i64, now: Duration) -> Option<Duration> {
    let millis = if unit.starts_with(b"p") { number } else { number.checked_mul(1_000)? };
    let start = if unit.ends_with(b"at") { Duration::ZERO } else { now };
    // A negative delay is in the past, as its start is: the key expires at once.
    let delay = u64::try_from(millis).map_or(Duration::ZERO, Duration::from_millis);
    let deadline = start + delay;
    i64::try_from(deadline.as_millis()).is_ok().then_some(deadline)
}

fn persist(keys: &mut Keys, request: &Request) -> Answer {
    Ok(flag(request.find(keys).is_some_and(|number| keys.persist(number))))
}

/// Rounds as Redis does.
fn ttl(keys: &mut Keys, request: &Request) -> Answer {
    remaining(keys, request, |left| (left.as_millis() + 500) / 1_000)
}

fn pttl(keys: &mut Keys, request: &Request) -> Answer {
    remaining(keys, request, |left| left.as_nanos().div_ceil(1_000_000))
}

fn remaining(keys: &mut Keys, request: &Request, unit: fn(Duration) -> u128) -> Answer {
    let Some(number) = request.find(keys) else { return Ok(Frame::Integer(NO_KEY)) };
    let left = keys.deadline(number).map(|at| at.saturating_sub(keys.now()));
    Ok(Frame::Integer(left.map_or(NO_DEADLINE, |left| unit(left).try_into().unwrap_or(i64::MAX))))
}

// ---- The server

fn ping(_: &Board, words: &[Bytes]) -> Answer {
    Ok(words.get(1).map_or_else(|| simple("PONG"), |word| bulk(word.clone())))
}

/// Tells redis-benchmark that nothing is stored on disk.
fn config(_: &Board, words: &[Bytes]) -> Answer {
    if !words[1].eq_ignore_ascii_case(b"get") {
        return Err(error("ERR settings are given when the server starts: see --help"));
    }
    let known = [("save", ""), ("appendonly", "no")].into_iter();
    let asked = known.filter(|(name, _)| words[2..].iter().any(|word| word == name));
    Ok(Frame::Array(Some(asked.flat_map(|(name, value)| [bulk(name), bulk(value)]).collect())))
}

fn info(board: &Board, _: &[Bytes]) -> Answer {
    let mut text = format!("redis_version:{VERSION}\r\nredis_mode:standalone\r\n");
    for (name, total) in board.totals() {
        // Writing to a string cannot fail.
        let _ = write!(text, "{name}:{total}\r\n");
    }
    Ok(bulk(text))
}

// ---- Answers

fn ok() -> Frame {
    simple("OK")
}

fn nil() -> Frame {
    Frame::BulkString(None)
}

fn simple(text: &'static str) -> Frame {
    Frame::SimpleString(Bytes::from_static(text.as_bytes()))
}

/// Must be one line.
pub(crate) fn error(text: impl Into<Bytes>) -> Frame {
    Frame::Error(text.into())
}

fn invalid_deadline(command: &str) -> Frame {
    error(format!("ERR invalid expire time in '{command}' command"))
}

fn bulk(bytes: impl Into<Bytes>) -> Frame {
    Frame::BulkString(Some(bytes.into()))
}

fn flag(holds: bool) -> Frame {
    Frame::Integer(holds.into())
}

fn count(count: usize) -> Answer {
    Ok(Frame::Integer(i64::try_from(count).unwrap_or(i64::MAX)))
}

/// Reads an integer as Redis does: without a plus sign.
fn integer(word: &[u8]) -> Result<i64, Frame> {
    let digits = str::from_utf8(word).ok().filter(|digits| !digits.starts_with('+'));
    digits.and_then(|digits| digits.parse().ok()).ok_or_else(|| error(NOT_AN_INTEGER))
}

impl Merge {
    pub(crate) fn merge(self, mut answers: Vec<Frame>) -> Frame {
        if let Some(failed) = answers.iter().position(Frame::is_error) {
            return answers.swap_remove(failed);
        }
        match self {
            Self::One => answers.pop().unwrap_or_else(nil),
            Self::Array => Frame::Array(Some(answers)),
            Self::Sum => Frame::Integer(answers.iter().filter_map(Frame::as_integer).sum()),
            Self::AllOk => ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use resp_rs::resp2::Frame;

    use super::{Merge, bulk, error, nil, ok};

    #[test]
    fn answers_merge_into_one_and_an_error_wins() {
        let integers = vec![Frame::Integer(1), Frame::Integer(0), Frame::Integer(40)];
        assert_eq!(Merge::Sum.merge(integers), Frame::Integer(41));
        let array = vec![bulk("a"), nil()];
        assert_eq!(Merge::Array.merge(array.clone()), Frame::Array(Some(array)));
        assert_eq!(Merge::One.merge(vec![bulk("a")]), bulk("a"));
        assert_eq!(Merge::AllOk.merge(vec![ok(), ok()]), ok());
        assert_eq!(Merge::AllOk.merge(vec![ok(), error("OOM")]), error("OOM"));
    }
}
