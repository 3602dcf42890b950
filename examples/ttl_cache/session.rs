//! The commands that have nothing to do with keys: what clients ask when they begin, and how they end.

#![allow(clippy::unnecessary_wraps)] // Each has the type that the table of commands asks for.

use std::fmt::Write;
use std::process;
use std::sync::Arc;
use std::time::Instant;

use crate::board::Board;
use crate::commands;
use crate::reply::{NO_INTEGER, Refused, Reply, SYNTAX};
use crate::resp::{self, Words};

/// What Redis understands of the protocol that we speak; clients that ask are told this one.
const VERSION: &str = "7.0.0";
const PROTOCOL: i64 = 2;

/// What becomes of the connection after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    Stay,
    Leave,
}

/// What is known about the server as a whole.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) board: Arc<Board>,
    pub(crate) port: u16,
    pub(crate) started: Instant,
}

type Answered = Result<After, Refused>;

pub(crate) fn ping(_: &Service, words: Words<'_>, reply: &mut Reply<'_>) -> Answered {
    if words.len() > 1 {
        reply.bulk(words.word(1));
    } else {
        reply.simple("PONG");
    }
    Ok(After::Stay)
}

pub(crate) fn echo(_: &Service, words: Words<'_>, reply: &mut Reply<'_>) -> Answered {
    reply.bulk(words.word(1));
    Ok(After::Stay)
}

pub(crate) fn quit(_: &Service, _: Words<'_>, reply: &mut Reply<'_>) -> Answered {
    reply.ok();
    Ok(After::Leave)
}

pub(crate) fn reset(_: &Service, _: Words<'_>, reply: &mut Reply<'_>) -> Answered {
    reply.simple("RESET");
    Ok(After::Stay)
}

/// There is one database.
pub(crate) fn select(_: &Service, words: Words<'_>, reply: &mut Reply<'_>) -> Answered {
    match resp::number(words.word(1)) {
        Some(0) => reply.ok(),
        Some(_) => return Err(Refused::Because("ERR DB index is out of range")),
        None => return Err(NO_INTEGER),
    }
    Ok(After::Stay)
}

/// Version 2 of the protocol and no other; nobody has a password here.
pub(crate) fn hello(service: &Service, words: Words<'_>, reply: &mut Reply<'_>) -> Answered {
    if words.len() > 1 && resp::number(words.word(1)) != Some(PROTOCOL) {
        return Err(Refused::Because("NOPROTO unsupported protocol version"));
    }
    if words.iter().any(|word| word.eq_ignore_ascii_case(b"auth")) {
        return Err(Refused::Because("ERR AUTH called without any password configured"));
    }
    let text = [
        ("server", "corewheel ttl_cache"),
        ("version", VERSION),
        ("mode", "standalone"),
        ("role", "master"),
    ];
    reply.array(2 * (text.len() + 2));
    for (name, value) in text {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    for (name, value) in
        [("proto", PROTOCOL), ("cores", i64::try_from(service.board.cores()).unwrap_or(i64::MAX))]
    {
        reply.bulk(name.as_bytes());
        reply.integer(value);
    }
    Ok(After::Stay)
}

/// What clients tell about themselves is taken note of and forgotten.
pub(crate) fn client(_: &Service, words: Words<'_>, reply: &mut Reply<'_>) -> Answered {
    match words.word(1).to_ascii_lowercase().as_slice() {
        b"setname" | b"setinfo" | b"no-evict" | b"no-touch" => reply.ok(),
        b"getname" => reply.nil(),
        _ => return Err(SYNTAX),
    }
    Ok(After::Stay)
}

/// Clients ask for the list in order to complete what is typed; an empty one is an answer.
pub(crate) fn command(_: &Service, words: Words<'_>, reply: &mut Reply<'_>) -> Answered {
    if words.word(1).eq_ignore_ascii_case(b"count") {
        reply.count(commands::count());
    } else {
        reply.array(0);
    }
    Ok(After::Stay)
}

/// Nothing is stored on disk: that is what redis-benchmark asks.
pub(crate) fn config(_: &Service, words: Words<'_>, reply: &mut Reply<'_>) -> Answered {
    if !words.word(1).eq_ignore_ascii_case(b"get") {
        return Err(Refused::Because(
            "ERR only CONFIG GET is served here; see --help for what can be set at the start",
        ));
    }
    let known = [("save", ""), ("appendonly", "no"), ("databases", "1")];
    let asked =
        |name: &str| words.from(2).iter().any(|word| word.eq_ignore_ascii_case(name.as_bytes()));
    let found: Vec<_> = known.into_iter().filter(|(name, _)| asked(name)).collect();
    reply.array(2 * found.len());
    for word in found.into_iter().flat_map(|(name, value)| [name, value]) {
        reply.bulk(word.as_bytes());
    }
    Ok(After::Stay)
}

pub(crate) fn info(service: &Service, _: Words<'_>, reply: &mut Reply<'_>) -> Answered {
    let keys = service.board.total(|figures| &figures.keys);
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "# Server\r\nredis_version:{VERSION}\r\nserver_name:corewheel ttl_cache\r\nredis_mode:standalone\r\n\
         process_id:{}\r\ntcp_port:{}\r\nuptime_in_seconds:{}\r\ncores:{}\r\n\r\n\
         # Clients\r\nconnected_clients:{}\r\n\r\n\
         # Memory\r\nused_memory:{}\r\n\r\n\
         # Stats\r\nexpired_keys:{}\r\n\r\n# Keyspace\r\n",
        process::id(),
        service.port,
        service.started.elapsed().as_secs(),
        service.board.cores(),
        service.board.total(|figures| &figures.clients),
        service.board.total(|figures| &figures.bytes),
        service.board.total(|figures| &figures.expired),
    );
    if keys > 0 {
        let expiring = service.board.total(|figures| &figures.expiring);
        let _ = write!(text, "db0:keys={keys},expires={expiring},avg_ttl=0\r\n");
    }
    reply.bulk(text.as_bytes());
    Ok(After::Stay)
}
