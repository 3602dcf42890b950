//! The commands that give keys a deadline, take it away, or ask for it.

#![allow(clippy::unnecessary_wraps)] // Each has the type that the table of commands asks for.

use crate::commands::Request;
use crate::keys::Keys;
use crate::moment::{Clock, Moment};
use crate::reply::{NO_INTEGER, Refused, Reply, SYNTAX};
use crate::resp::{self, Words};
use crate::unit::Unit;

const NX: Refused =
    Refused::Because("ERR NX and XX, GT or LT options at the same time are not compatible");
const GT_AND_LT: Refused =
    Refused::Because("ERR GT and LT options at the same time are not compatible");
/// What is answered about a key that is not there, and about one without a deadline.
const NO_KEY: i64 = -2;
const NO_DEADLINE: i64 = -1;

type Answered = Result<(), Refused>;

/// The conditions of EXPIRE.
#[derive(Default)]
struct Conditions {
    if_none: bool,
    if_any: bool,
    only: Option<Only>,
}

/// Which way a deadline may be moved.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Only {
    Later,
    Earlier,
}

pub(crate) fn expire(keys: &mut Keys, request: &Request<'_>, reply: &mut Reply<'_>) -> Answered {
    expire_by(keys, request, Unit::Seconds, "expire", reply)
}

pub(crate) fn pexpire(keys: &mut Keys, request: &Request<'_>, reply: &mut Reply<'_>) -> Answered {
    expire_by(keys, request, Unit::Millis, "pexpire", reply)
}

pub(crate) fn expireat(keys: &mut Keys, request: &Request<'_>, reply: &mut Reply<'_>) -> Answered {
    expire_by(keys, request, Unit::UnixSeconds, "expireat", reply)
}

pub(crate) fn pexpireat(keys: &mut Keys, request: &Request<'_>, reply: &mut Reply<'_>) -> Answered {
    expire_by(keys, request, Unit::UnixMillis, "pexpireat", reply)
}

fn expire_by(
    keys: &mut Keys,
    request: &Request<'_>,
    unit: Unit,
    command: &'static str,
    reply: &mut Reply<'_>,
) -> Answered {
    let number = resp::number(request.words.word(2)).ok_or(NO_INTEGER)?;
    let at = unit.moment(number, keys.clock()).ok_or(Refused::BadDeadline(command))?;
    let conditions = Conditions::of(request.words.from(3))?;
    let found = request.find(keys).filter(|&found| conditions.hold(keys.deadline(found), at));
    if let Some(found) = found {
        keys.expire_at(found, at);
    }
    reply.integer(i64::from(found.is_some()));
    Ok(())
}

impl Conditions {
    fn of(words: Words<'_>) -> Result<Self, Refused> {
        let mut conditions = Self::default();
        for word in words.iter() {
            match word.to_ascii_lowercase().as_slice() {
                b"nx" => conditions.if_none = true,
                b"xx" => conditions.if_any = true,
                b"gt" => conditions.only(Only::Later)?,
                b"lt" => conditions.only(Only::Earlier)?,
                _ => return Err(SYNTAX),
            }
        }
        if conditions.if_none && (conditions.if_any || conditions.only.is_some()) {
            Err(NX)
        } else {
            Ok(conditions)
        }
    }

    fn only(&mut self, only: Only) -> Result<(), Refused> {
        if *self.only.get_or_insert(only) == only { Ok(()) } else { Err(GT_AND_LT) }
    }

    /// A key without a deadline goes later than any.
    fn hold(&self, old: Option<Moment>, new: Moment) -> bool {
        let moves = match self.only {
            None => true,
            Some(Only::Later) => old.is_some_and(|old| new > old),
            Some(Only::Earlier) => old.is_none_or(|old| new < old),
        };
        moves && !(self.if_none && old.is_some()) && !(self.if_any && old.is_none())
    }
}

pub(crate) fn persist(keys: &mut Keys, request: &Request<'_>, reply: &mut Reply<'_>) -> Answered {
    let persists = request.find(keys).is_some_and(|number| keys.persist(number));
    reply.integer(i64::from(persists));
    Ok(())
}

// ---- asking

pub(crate) fn ttl(keys: &mut Keys, request: &Request<'_>, reply: &mut Reply<'_>) -> Answered {
    ask(keys, request, |at, clock| seconds(clock.millis_until(at)), reply)
}

pub(crate) fn pttl(keys: &mut Keys, request: &Request<'_>, reply: &mut Reply<'_>) -> Answered {
    ask(keys, request, |at, clock| clock.millis_until(at), reply)
}

pub(crate) fn expiretime(
    keys: &mut Keys,
    request: &Request<'_>,
    reply: &mut Reply<'_>,
) -> Answered {
    ask(keys, request, |at, _| seconds(at.unix_millis()), reply)
}

pub(crate) fn pexpiretime(
    keys: &mut Keys,
    request: &Request<'_>,
    reply: &mut Reply<'_>,
) -> Answered {
    ask(keys, request, |at, _| at.unix_millis(), reply)
}

fn ask(
    keys: &mut Keys,
    request: &Request<'_>,
    about: impl FnOnce(Moment, Clock) -> i64,
    reply: &mut Reply<'_>,
) -> Answered {
    reply.integer(match request.find(keys) {
        None => NO_KEY,
        Some(number) => keys.deadline(number).map_or(NO_DEADLINE, |at| about(at, keys.clock())),
    });
    Ok(())
}

/// Rounded as Redis does.
fn seconds(millis: i64) -> i64 {
    millis.saturating_add(500) / 1_000
}
