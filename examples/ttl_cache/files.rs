//! The file limit: every client takes a descriptor.

use rlimit::Resource;

/// A listener, a poll with a copy, and a waker.
const PER_CORE: usize = 4;
/// The standard streams, what the environment has left open, what the run-time opens for a moment, and the clients of
/// a check.
const OTHERS: usize = 64;

/// Sees to it that so many clients can connect, by raising the limit where it may be raised. Says in words why they
/// cannot.
pub(crate) fn reserve(clients: usize, cores: usize) -> Result<(), String> {
    let needed = (clients + PER_CORE * cores + OTHERS) as u64;
    let (soft, hard) = Resource::NOFILE.get().map_err(|error| format!("the file limit cannot be read: {error}"))?;
    if needed <= soft {
        return Ok(());
    }
    if needed <= hard {
        return Resource::NOFILE
            .set(needed, hard)
            .map_err(|error| format!("the file limit cannot be raised from {soft} to {needed}: {error}"));
    }
    Err(format!(
        "{clients} clients need {needed} open files, but the limit here is {hard}: ask for fewer --max-clients, or raise \
         the limit first, as root: ulimit -Hn {needed}"
    ))
}
