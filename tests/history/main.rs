//! The bugs that other timer systems have shipped, as tests of corewheel. `doc/history.md` lists all
//! of them under the same numbers. It names the test of each, in this folder or elsewhere: most are
//! faults that the model of the simulator or of the wheel finds, planted in
//! `xtask/break/faults.txt`.
//!
//! A test's name says what went wrong, its comment in which system. A failed assertion in a callback
//! is caught like any panic (P6), so `on_a_core` checks the count of panics at the end.
#![cfg(feature = "std")]
#![allow(clippy::unchecked_time_subtraction, reason = "a test that underflows fails")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/operation.rs"]
mod operation;
#[path = "../common/support.rs"]
mod support;

mod callbacks;
mod end;
mod purgatory;

use std::{sync::mpsc, thread};

use support::TOO_LONG;

/// Runs `test` on a new thread; fails if it hangs.
fn ends_soon(test: impl FnOnce() + Send + 'static) {
    let (end, ended) = mpsc::channel();
    let thread = thread::spawn(move || {
        test();
        end.send(()).expect("somebody waits");
    });
    assert_ne!(ended.recv_timeout(TOO_LONG), Err(mpsc::RecvTimeoutError::Timeout), "it hangs");
    thread.join().expect("no assertion failed");
}
