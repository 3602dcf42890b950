//! Two threads, each pinned to a core of its own.

use std::{fs, sync::OnceLock, thread};

use core_affinity::CoreId;

/// How many cores are there, of those that this process may use.
pub fn count() -> usize {
    all().len()
}

/// Looked for before any thread is pinned: a pinned one, and those it starts, would see its own core only.
fn all() -> &'static [CoreId] {
    static ALL: OnceLock<Vec<CoreId>> = OnceLock::new();
    ALL.get_or_init(|| core_affinity::get_core_ids().unwrap_or_default())
}

/// Pins the calling thread to a core, counted from 0. Where there are fewer, threads share them: right, and slow.
pub fn pin(core: usize) {
    let cores = all();
    if !cores.is_empty() {
        assert!(core_affinity::set_for_current(cores[core % cores.len()]), "core {core} can be pinned to");
    }
}

/// How often the calling thread has lost its core to another one; `None` where the system does not tell.
pub fn losses() -> Option<u64> {
    let status = fs::read_to_string("/proc/thread-self/status").ok()?;
    let count = status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"))?;
    count.trim().parse().ok()
}

/// Runs both at the same time, on the first two cores.
pub fn on_two<A: Send, B: Send>(first: impl FnOnce() -> A + Send, second: impl FnOnce() -> B + Send) -> (A, B) {
    thread::scope(|scope| {
        let first = scope.spawn(|| pinned(0, first));
        let second = scope.spawn(|| pinned(1, second));
        let done = "a run that does not panic";
        (first.join().expect(done), second.join().expect(done))
    })
}

/// Runs it on this thread, pinned to a core from now on.
fn pinned<R>(core: usize, run: impl FnOnce() -> R) -> R {
    pin(core);
    run()
}
