//! Which commands there are, how many words each takes, and where it is carried out.

use crate::deadlines;
use crate::gather::Kind;
use crate::keys::Keys;
use crate::reply::{Refused, Reply};
use crate::resp::Words;
use crate::session::{self, After, Service};
use crate::setting;
use crate::strings;

/// What is asked of the keys of one core.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) words: Words<'a>,
    /// Of the key, if there is one: the second word.
    pub(crate) hash: u64,
}

/// Carries a request out on the core of its key.
pub(crate) type Run = fn(&mut Keys, &Request<'_>, &mut Reply<'_>) -> Result<(), Refused>;
/// Carries a command out on the core of its connection.
pub(crate) type RunHere = fn(&Service, Words<'_>, &mut Reply<'_>) -> Result<After, Refused>;

/// Where a command is carried out.
#[derive(Clone, Copy)]
pub(crate) enum Route {
    /// Where its connection is: it has nothing to do with keys.
    Here(RunHere),
    /// Where the key is.
    Key(Run),
    /// Taken apart: a request for each key, which stands at every so many words, and the answers put together.
    EachKey(Run, usize, Kind),
    /// On every core, and the answers put together.
    EveryCore(Run, Kind),
}

pub(crate) struct Command {
    name: &'static str,
    least: usize,
    most: usize,
    pub(crate) route: Route,
}

impl Request<'_> {
    pub(crate) fn key(&self) -> &[u8] {
        self.words.word(1)
    }

    /// Finds the key; its number.
    pub(crate) fn find(&self, keys: &mut Keys) -> Option<usize> {
        keys.find(self.hash, self.key())
    }
}

/// The command that these words are, if there is one and it takes so many.
pub(crate) fn find(words: Words<'_>) -> Result<&'static Command, Refused> {
    let name = words.word(0);
    let lower = || name.iter().map(u8::to_ascii_lowercase);
    let found = TABLE.binary_search_by(|command| command.name.bytes().cmp(lower()));
    let command = found.map(|at| &TABLE[at]).map_err(|_| Refused::unknown(name))?;
    if (command.least..=command.most).contains(&words.len()) && command.is_even(words.len()) {
        Ok(command)
    } else {
        Err(Refused::WrongCount(command.name))
    }
}

pub(crate) fn count() -> usize {
    TABLE.len()
}

/// Carries a request out and writes the answer, or why there is none.
pub(crate) fn answer(run: Run, keys: &mut Keys, request: &Request<'_>, out: &mut Vec<u8>) {
    let start = out.len();
    if let Err(refused) = run(keys, request, &mut Reply(out)) {
        out.truncate(start);
        Reply(out).error(&refused);
    }
}

impl Command {
    /// Whether no key lacks what comes with it.
    fn is_even(&self, words: usize) -> bool {
        match self.route {
            Route::EachKey(_, step, _) => (words - 1).is_multiple_of(step),
            _ => true,
        }
    }
}

const ANY: usize = usize::MAX;

const fn command(name: &'static str, least: usize, most: usize, route: Route) -> Command {
    Command { name, least, most, route }
}

/// In the order of their names. How many words a command takes, its name counts as one.
const TABLE: &[Command] = &[
    command("append", 3, 3, Route::Key(strings::append)),
    command("client", 2, ANY, Route::Here(session::client)),
    command("command", 1, ANY, Route::Here(session::command)),
    command("config", 2, ANY, Route::Here(session::config)),
    command("dbsize", 1, 1, Route::EveryCore(strings::dbsize, Kind::Sum)),
    command("decr", 2, 2, Route::Key(strings::decr)),
    command("decrby", 3, 3, Route::Key(strings::decrby)),
    command("del", 2, ANY, Route::EachKey(strings::del, 1, Kind::Sum)),
    command("echo", 2, 2, Route::Here(session::echo)),
    command("exists", 2, ANY, Route::EachKey(strings::exists, 1, Kind::Sum)),
    command("expire", 3, ANY, Route::Key(deadlines::expire)),
    command("expireat", 3, ANY, Route::Key(deadlines::expireat)),
    command("expiretime", 2, 2, Route::Key(deadlines::expiretime)),
    command("flushall", 1, 2, Route::EveryCore(strings::flush, Kind::AllOk)),
    command("flushdb", 1, 2, Route::EveryCore(strings::flush, Kind::AllOk)),
    command("get", 2, 2, Route::Key(strings::get)),
    command("getdel", 2, 2, Route::Key(strings::getdel)),
    command("getex", 2, ANY, Route::Key(setting::getex)),
    command("getset", 3, 3, Route::Key(strings::getset)),
    command("hello", 1, ANY, Route::Here(session::hello)),
    command("incr", 2, 2, Route::Key(strings::incr)),
    command("incrby", 3, 3, Route::Key(strings::incrby)),
    command("info", 1, ANY, Route::Here(session::info)),
    command("mget", 2, ANY, Route::EachKey(strings::get, 1, Kind::Array)),
    command("mset", 3, ANY, Route::EachKey(strings::mset, 2, Kind::AllOk)),
    command("persist", 2, 2, Route::Key(deadlines::persist)),
    command("pexpire", 3, ANY, Route::Key(deadlines::pexpire)),
    command("pexpireat", 3, ANY, Route::Key(deadlines::pexpireat)),
    command("pexpiretime", 2, 2, Route::Key(deadlines::pexpiretime)),
    command("ping", 1, 2, Route::Here(session::ping)),
    command("psetex", 4, 4, Route::Key(setting::psetex)),
    command("pttl", 2, 2, Route::Key(deadlines::pttl)),
    command("quit", 1, ANY, Route::Here(session::quit)),
    command("reset", 1, 1, Route::Here(session::reset)),
    command("select", 2, 2, Route::Here(session::select)),
    command("set", 3, ANY, Route::Key(setting::set)),
    command("setex", 4, 4, Route::Key(setting::setex)),
    command("setnx", 3, 3, Route::Key(strings::setnx)),
    command("strlen", 2, 2, Route::Key(strings::strlen)),
    command("touch", 2, ANY, Route::EachKey(strings::exists, 1, Kind::Sum)),
    command("ttl", 2, 2, Route::Key(deadlines::ttl)),
    command("type", 2, 2, Route::Key(strings::type_of)),
    command("unlink", 2, ANY, Route::EachKey(strings::del, 1, Kind::Sum)),
];

#[cfg(test)]
mod tests {
    use super::TABLE;

    #[test]
    fn names_are_lower_case_and_in_order() {
        assert!(TABLE.is_sorted_by(|one, other| one.name < other.name));
        assert!(TABLE.iter().all(|command| command.name == command.name.to_ascii_lowercase()));
    }
}
