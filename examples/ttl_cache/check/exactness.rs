//! Whether keys go at their deadline, to the microsecond that a client can tell, and not before.
//!
//! A client knows the deadline up to the time that its SET took: it is at least the time-to-live after the command was
//! sent, and at most that after the answer came. So a value that was there when asked for after the latest deadline is
//! late, and one that was missing before the earliest is early; no tolerance is needed.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::client::{Answer, Client};

const KEYS: u32 = 200;
/// The least and the most that they live.
const LIFE_MS: std::ops::Range<u32> = 40..140;

/// What was seen.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Exactness {
    pub(crate) keys: u32,
    /// Keys that were missing before their deadline.
    pub(crate) early: u32,
    /// Keys that were there at or after their deadline, and how long after at most, in microseconds.
    pub(crate) late: u32,
    pub(crate) latest_us: u64,
}

struct Key {
    name: String,
    /// The deadline is in between.
    earliest: Instant,
    latest: Instant,
    is_late: bool,
}

pub(crate) fn check(server: SocketAddr) -> io::Result<Exactness> {
    let mut setter = Client::connect(server)?;
    let keys: io::Result<Vec<Key>> = (0..KEYS).map(|number| set(&mut setter, number)).collect();
    let (mut keys, mut seen) = (keys?, Exactness { keys: KEYS, ..Exactness::default() });
    let mut getter = Client::connect(server)?;
    while !keys.is_empty() {
        let mut left = Vec::new();
        for mut key in keys {
            let asked = Instant::now();
            let answer = getter.ask(&["GET", &key.name])?;
            if answer == Answer::Nil {
                seen.early += u32::from(Instant::now() < key.earliest);
                continue;
            }
            let lateness = asked.saturating_duration_since(key.latest);
            seen.note(lateness, &mut key);
            left.push(key);
        }
        keys = left;
    }
    Ok(seen)
}

fn set(setter: &mut Client, number: u32) -> io::Result<Key> {
    let life = LIFE_MS.start + number % (LIFE_MS.end - LIFE_MS.start);
    let (name, life_ms) = (format!("exact:{number}"), life.to_string());
    let life = Duration::from_millis(life.into());
    let earliest = Instant::now() + life;
    setter.ask(&["SET", &name, "value", "PX", &life_ms])?;
    Ok(Key { name, earliest, latest: Instant::now() + life, is_late: false })
}

impl Exactness {
    fn note(&mut self, lateness: Duration, key: &mut Key) {
        if !lateness.is_zero() {
            self.late += u32::from(!std::mem::replace(&mut key.is_late, true));
            self.latest_us =
                self.latest_us.max(u64::try_from(lateness.as_micros()).unwrap_or(u64::MAX));
        }
    }
}
