//! The file limit: every connection takes two descriptors here, since both of its ends are in this process.

use rlimit::Resource;

const PER_CONNECTION: u64 = 2;
/// A listener, a poll and a waker.
const PER_CORE: u64 = 3;
/// A poll.
const PER_LOAD_THREAD: u64 = 1;
/// The standard streams, what the environment has left open, and what the run-time opens for a moment.
const OTHERS: u64 = 32;

/// Sees to it that so many connections can be opened, by raising the limit where it may be raised. Says in words why
/// they cannot; `ask_for` says what to ask for instead, given how many are possible.
pub(crate) fn reserve(
    connections: usize,
    cores: usize,
    load_threads: usize,
    ask_for: impl Fn(u64) -> String,
) -> Result<(), String> {
    let connections = connections as u64;
    let rest = PER_CORE * cores as u64 + PER_LOAD_THREAD * load_threads as u64 + OTHERS;
    let needed = PER_CONNECTION * connections + rest;
    let (soft, hard) = Resource::NOFILE.get().map_err(|error| format!("the file limit cannot be read: {error}"))?;
    if needed <= soft {
        return Ok(());
    }
    if needed <= hard {
        return Resource::NOFILE
            .set(needed, hard)
            .map_err(|error| format!("the file limit cannot be raised from {soft} to {needed}: {error}"));
    }
    let instead = ask_for(hard.saturating_sub(rest) / PER_CONNECTION);
    Err(format!(
        "{connections} connections need {needed} open files ({PER_CONNECTION} for each, as both ends are in this \
         process, and {rest} for the rest), but the limit here is {hard}: ask for {instead}, or raise the limit first, \
         as root: ulimit -Hn {needed}"
    ))
}
