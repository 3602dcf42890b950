//! The commands that give a key a value and decide about its deadline in one go: SET, its older relatives, and GETEX,
//! which reads.

use crate::commands::Request;
use crate::keys::Keys;
use crate::moment::{Clock, Moment};
use crate::reply::{Refused, Reply, SYNTAX};
use crate::resp::Words;
use crate::strings;
use crate::unit::Unit;

type Answered = Result<(), Refused>;

/// What becomes of a key's deadline.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Expires(Moment),
    Stays,
    /// As it was.
    Kept,
}

/// When SET sets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Only {
    IfNew,
    IfThere,
}

/// What SET was told besides.
struct SetOptions {
    fate: Fate,
    only: Option<Only>,
    gets: bool,
}

pub(crate) fn set(keys: &mut Keys, request: &Request<'_>, reply: &mut Reply<'_>) -> Answered {
    let SetOptions { fate, only, gets } = SetOptions::of(request.words.from(3), keys.clock())?;
    let found = request.find(keys);
    if gets {
        strings::get(keys, request, reply)?;
    }
    if only.is_some_and(|only| found.is_some() != (only == Only::IfThere)) {
        if !gets {
            reply.nil();
        }
        return Ok(());
    }
    put(keys, request, found, request.words.word(2), fate)?;
    if !gets {
        reply.ok();
    }
    Ok(())
}

pub(crate) fn setex(keys: &mut Keys, request: &Request<'_>, reply: &mut Reply<'_>) -> Answered {
    set_for(keys, request, Unit::Seconds, "setex", reply)
}

pub(crate) fn psetex(keys: &mut Keys, request: &Request<'_>, reply: &mut Reply<'_>) -> Answered {
    set_for(keys, request, Unit::Millis, "psetex", reply)
}

fn set_for(
    keys: &mut Keys,
    request: &Request<'_>,
    unit: Unit,
    command: &'static str,
    reply: &mut Reply<'_>,
) -> Answered {
    let at = unit.positive(request.words.word(2), keys.clock(), command)?;
    let found = request.find(keys);
    put(keys, request, found, request.words.word(3), Fate::Expires(at))?;
    reply.ok();
    Ok(())
}

fn put(
    keys: &mut Keys,
    request: &Request<'_>,
    found: Option<usize>,
    value: &[u8],
    fate: Fate,
) -> Result<(), Refused> {
    let number = match found {
        Some(number) => keys.set_value(number, value).map(|()| number)?,
        None => keys.insert(request.hash, request.key(), value)?,
    };
    decide(keys, number, fate);
    Ok(())
}

fn decide(keys: &mut Keys, number: usize, fate: Fate) {
    match fate {
        Fate::Expires(at) => keys.expire_at(number, at),
        Fate::Stays => drop(keys.persist(number)),
        Fate::Kept => {}
    }
}

impl SetOptions {
    fn of(words: Words<'_>, clock: Clock) -> Result<Self, Refused> {
        let mut options = Self { fate: Fate::Stays, only: None, gets: false };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if let Some(unit) = Unit::of(word) {
                let at = unit.positive(words.next().ok_or(SYNTAX)?, clock, "set")?;
                options.decide(Fate::Expires(at))?;
            } else if word.eq_ignore_ascii_case(b"keepttl") {
                options.decide(Fate::Kept)?;
            } else if word.eq_ignore_ascii_case(b"nx") {
                options.only_if(Only::IfNew)?;
            } else if word.eq_ignore_ascii_case(b"xx") {
                options.only_if(Only::IfThere)?;
            } else if word.eq_ignore_ascii_case(b"get") {
                options.gets = true;
            } else {
                return Err(SYNTAX);
            }
        }
        Ok(options)
    }

    /// Once.
    fn decide(&mut self, fate: Fate) -> Result<(), Refused> {
        if self.fate != Fate::Stays {
            return Err(SYNTAX);
        }
        self.fate = fate;
        Ok(())
    }

    /// One of the two.
    fn only_if(&mut self, only: Only) -> Result<(), Refused> {
        if *self.only.get_or_insert(only) == only { Ok(()) } else { Err(SYNTAX) }
    }
}

pub(crate) fn getex(keys: &mut Keys, request: &Request<'_>, reply: &mut Reply<'_>) -> Answered {
    let words = request.words;
    let fate = match (words.len(), Unit::of(words.word(2))) {
        (2, _) => Fate::Kept,
        (3, _) if words.word(2).eq_ignore_ascii_case(b"persist") => Fate::Stays,
        (4, Some(unit)) => Fate::Expires(unit.positive(words.word(3), keys.clock(), "getex")?),
        _ => return Err(SYNTAX),
    };
    strings::get(keys, request, reply)?;
    if let Some(number) = request.find(keys) {
        decide(keys, number, fate);
    }
    Ok(())
}
