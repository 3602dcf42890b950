//! Runs one operation of a timer many times: `cost OPERATION VARIANT LIVE_TIMERS ITERATIONS`.
//!
//! `cargo xtask cost` runs this program under valgrind with two numbers of iterations.

mod corewheel_timers;
mod local;
mod one_thread;
mod peers;
#[allow(
    dead_code,
    unreachable_pub,
    clippy::cast_possible_truncation,
    reason = "shared with a library"
)]
#[path = "../../benches/src/timers.rs"]
mod timers;

use std::{
    env, panic,
    process::{self, ExitCode},
};

use self::{
    corewheel_timers::{LocalTimers, ShardTimers, WheelTimers},
    one_thread::{cancel_add, empty, fire_add, idle_turn, reset},
    peers::{DelayQueuePeer, Floor, Heap4, Linked64, TokioSleep},
};

/// `run` takes the numbers of live timers and iterations.
struct Case {
    operation: &'static str,
    variant: &'static str,
    run: fn(usize, usize),
}

macro_rules! cases {
    ($($operation:literal: $($variant:literal $run:expr),+;)+) => {
        [$($(Case { operation: $operation, variant: $variant, run: $run }),+),+]
    };
}

const CASES: &[Case] = &cases! {
    "empty": "harness" empty;
    "cancel-add": "wheel" cancel_add::<WheelTimers, 0>, "shard" cancel_add::<ShardTimers, 0>,
        "local" cancel_add::<LocalTimers, 0>, "floor" cancel_add::<Floor<false>, 0>,
        "linked64" cancel_add::<Linked64, 0>, "heap4" cancel_add::<Heap4, 0>,
        "delay-queue" cancel_add::<DelayQueuePeer, 0>, "tokio-sleep" cancel_add::<TokioSleep, 0>;
    "cancel-add-far": "wheel" cancel_add::<WheelTimers, 10>, "shard" cancel_add::<ShardTimers, 10>,
        "local" cancel_add::<LocalTimers, 10>, "floor" cancel_add::<Floor<false>, 10>,
        "linked64" cancel_add::<Linked64, 10>, "heap4" cancel_add::<Heap4, 10>,
        "delay-queue" cancel_add::<DelayQueuePeer, 10>, "tokio-sleep" cancel_add::<TokioSleep, 10>;
    "cancel-add-rc": "local" local::cancel_add_rc;
    "reset": "wheel" reset::<WheelTimers>, "shard" reset::<ShardTimers>,
        "local" reset::<LocalTimers>, "floor" reset::<Floor<false>>,
        "linked64" reset::<Linked64>, "heap4" reset::<Heap4>,
        "delay-queue" reset::<DelayQueuePeer>, "tokio-sleep" reset::<TokioSleep>;
    "idle-turn": "wheel" idle_turn::<WheelTimers>, "shard" idle_turn::<ShardTimers>,
        "local" idle_turn::<LocalTimers>, "linked64" idle_turn::<Linked64>,
        "heap4" idle_turn::<Heap4>, "delay-queue" idle_turn::<DelayQueuePeer>,
        "tokio-sleep" idle_turn::<TokioSleep>;
    "fire-add": "wheel" fire_add::<WheelTimers>, "shard" fire_add::<ShardTimers>,
        "local" local::fire_add, "linked64" fire_add::<Linked64>, "heap4" fire_add::<Heap4>,
        "delay-queue" fire_add::<DelayQueuePeer>, "tokio-sleep" fire_add::<TokioSleep>;
    "remote-cancel": "local" local::remote_cancel;
    "remote-reset": "local" local::remote_reset::<false>;
    "remote-reset-later": "local" local::remote_reset::<true>;
    "remote-add": "local" local::remote_add;
    "remote-run": "local" local::remote_run;
    "purgatory": "local" local::purgatory;
    "purgatory-remote": "local" local::purgatory_remote;
    "sleep": "local" local::sleep;
    "packet": "local" local::packet;
    "poll-loop": "local" local::poll_loop;
    "path-add-fire": "local" local::path_add_fire;
    "path-remote-cancel": "local" local::path_remote_cancel;
};

const USAGE: &str = "usage: cost OPERATION VARIANT LIVE_TIMERS ITERATIONS | cost --list";

fn main() -> ExitCode {
    // The two threads of a remote operation wait for each other, so a panic of one must end both.
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        report(panic);
        process::abort();
    }));
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["--list"] => {
            for Case { operation, variant, .. } in CASES {
                println!("{operation} {variant}");
            }
            ExitCode::SUCCESS
        }
        [operation, variant, live, iterations] => {
            let is_named = |case: &&Case| (case.operation, case.variant) == (operation, variant);
            let case = CASES.iter().find(is_named);
            match (case, live.parse(), iterations.parse()) {
                (Some(case), Ok(live), Ok(iterations)) => (case.run)(live, iterations),
                _ => return usage(),
            }
            ExitCode::SUCCESS
        }
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::FAILURE
}
