//! The file limit: a connection takes a descriptor for each of its ends that is in this process.

use rlimit::Resource;

/// A listener, a poll with a copy, and a waker.
const PER_CORE: u64 = 4;
/// A poll.
const PER_LOAD_THREAD: u64 = 1;
/// The standard streams, what the environment has left open, what the run-time opens for a moment, and the clients of
/// a check.
const OTHERS: u64 = 64;

/// What will be open at a time.
#[derive(Clone, Copy)]
pub(crate) struct Needs {
    pub(crate) connections: usize,
    /// Of a connection: both if the load is in this process.
    pub(crate) ends: u64,
    pub(crate) cores: usize,
    pub(crate) load_threads: usize,
}

/// Sees to it that so much can be opened, by raising the limit where it may be raised. Says in words why it cannot;
/// `ask_for` says what to ask for instead, given how many connections are possible.
pub(crate) fn reserve(needs: Needs, ask_for: impl Fn(u64) -> String) -> Result<(), String> {
    let Needs { connections, ends, cores, load_threads } = needs;
    let rest = PER_CORE * cores as u64 + PER_LOAD_THREAD * load_threads as u64 + OTHERS;
    let needed = ends * connections as u64 + rest;
    let (soft, hard) = Resource::NOFILE
        .get()
        .map_err(|error| format!("the file limit cannot be read: {error}"))?;
    if needed <= soft {
        return Ok(());
    }
    if needed <= hard {
        return Resource::NOFILE.set(needed, hard).map_err(|error| {
            format!("the file limit cannot be raised from {soft} to {needed}: {error}")
        });
    }
    let instead = ask_for(hard.saturating_sub(rest) / ends);
    Err(format!(
        "{connections} connections need {needed} open files ({ends} for each and {rest} for the rest), but the limit \
         here is {hard}: ask for {instead}, or raise the limit first, as root: ulimit -Hn {needed}"
    ))
}
