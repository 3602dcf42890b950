//! The commands that read and write values. What they do with a deadline is in one word: a value that is put in another
//! one's place stays for ever, a value that is changed keeps its deadline.

#![allow(clippy::unnecessary_wraps)] // Each has the type that the table of commands asks for.

use crate::commands::Request;
use crate::keys::Keys;
use crate::reply::{NO_INTEGER, Refused, Reply};
use crate::resp;

const OVERFLOW: Refused = Refused::Because("ERR increment or decrement would overflow");

type Answered = Result<(), Refused>;

pub(crate) fn get(keys: &mut Keys, request: &Request<'_>, reply: &mut Reply<'_>) -> Answered {
    match request.find(keys) {
        Some(number) => reply.bulk(keys.value(number)),
        None => reply.nil(),
    }
    Ok(())
}

pub(crate) fn getdel(keys: &mut Keys, request: &Request<'_>, reply: &mut Reply<'_>) -> Answered {
    get(keys, request, reply)?;
    remove(keys, request);
    Ok(())
}

pub(crate) fn getset(keys: &mut Keys, request: &Request<'_>, reply: &mut Reply<'_>) -> Answered {
    get(keys, request, reply)?;
    put(keys, request, request.words.word(2))
}

pub(crate) fn setnx(keys: &mut Keys, request: &Request<'_>, reply: &mut Reply<'_>) -> Answered {
    let is_new = request.find(keys).is_none();
    if is_new {
        keys.insert(request.hash, request.key(), request.words.word(2))?;
    }
    reply.integer(i64::from(is_new));
    Ok(())
}

/// One key of them.
pub(crate) fn mset(keys: &mut Keys, request: &Request<'_>, reply: &mut Reply<'_>) -> Answered {
    put(keys, request, request.words.word(2))?;
    reply.ok();
    Ok(())
}

pub(crate) fn append(keys: &mut Keys, request: &Request<'_>, reply: &mut Reply<'_>) -> Answered {
    let more = request.words.word(2);
    let length = match request.find(keys) {
        Some(number) if keys.value(number).len() + more.len() > resp::WORD_MAX => {
            return Err(Refused::Because("ERR string exceeds maximum allowed size"));
        }
        Some(number) => keys.append(number, more)?,
        None => keys.insert(request.hash, request.key(), more).map(|_| more.len())?,
    };
    reply.count(length);
    Ok(())
}

pub(crate) fn strlen(keys: &mut Keys, request: &Request<'_>, reply: &mut Reply<'_>) -> Answered {
    let length = request.find(keys).map_or(0, |number| keys.value(number).len());
    reply.count(length);
    Ok(())
}

pub(crate) fn type_of(keys: &mut Keys, request: &Request<'_>, reply: &mut Reply<'_>) -> Answered {
    reply.simple(if request.find(keys).is_some() { "string" } else { "none" });
    Ok(())
}

pub(crate) fn incr(keys: &mut Keys, request: &Request<'_>, reply: &mut Reply<'_>) -> Answered {
    add(keys, request, 1, reply)
}

pub(crate) fn decr(keys: &mut Keys, request: &Request<'_>, reply: &mut Reply<'_>) -> Answered {
    add(keys, request, -1, reply)
}

pub(crate) fn incrby(keys: &mut Keys, request: &Request<'_>, reply: &mut Reply<'_>) -> Answered {
    add(keys, request, summand(request)?, reply)
}

pub(crate) fn decrby(keys: &mut Keys, request: &Request<'_>, reply: &mut Reply<'_>) -> Answered {
    add(keys, request, summand(request)?.checked_neg().ok_or(OVERFLOW)?, reply)
}

/// One key of them.
pub(crate) fn del(keys: &mut Keys, request: &Request<'_>, reply: &mut Reply<'_>) -> Answered {
    reply.integer(i64::from(remove(keys, request)));
    Ok(())
}

/// One key of them.
pub(crate) fn exists(keys: &mut Keys, request: &Request<'_>, reply: &mut Reply<'_>) -> Answered {
    reply.integer(i64::from(request.find(keys).is_some()));
    Ok(())
}

/// One core of them.
pub(crate) fn dbsize(keys: &mut Keys, _: &Request<'_>, reply: &mut Reply<'_>) -> Answered {
    reply.count(keys.len());
    Ok(())
}

/// One core of them.
pub(crate) fn flush(keys: &mut Keys, _: &Request<'_>, reply: &mut Reply<'_>) -> Answered {
    keys.clear();
    reply.ok();
    Ok(())
}

/// Puts a value in the place of what is there, for ever.
fn put(keys: &mut Keys, request: &Request<'_>, value: &[u8]) -> Answered {
    match request.find(keys) {
        Some(number) => {
            keys.set_value(number, value)?;
            keys.persist(number);
        }
        None => drop(keys.insert(request.hash, request.key(), value)?),
    }
    Ok(())
}

fn remove(keys: &mut Keys, request: &Request<'_>) -> bool {
    let found = request.find(keys);
    if let Some(number) = found {
        keys.remove(number);
    }
    found.is_some()
}

fn summand(request: &Request<'_>) -> Result<i64, Refused> {
    resp::number(request.words.word(2)).ok_or(NO_INTEGER)
}

fn add(keys: &mut Keys, request: &Request<'_>, summand: i64, reply: &mut Reply<'_>) -> Answered {
    let found = request.find(keys);
    let held =
        found.map_or(Some(0), |number| resp::number(keys.value(number))).ok_or(NO_INTEGER)?;
    let sum = held.checked_add(summand).ok_or(OVERFLOW)?;
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(sum).as_bytes();
    match found {
        Some(number) => keys.set_value(number, digits)?,
        None => drop(keys.insert(request.hash, request.key(), digits)?),
    }
    reply.integer(sum);
    Ok(())
}
