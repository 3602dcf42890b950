#![allow(dead_code, reason = "no test uses all of it")]

use std::{
    fmt::Debug,
    sync::{Arc, Mutex},
    thread,
};

use corewheel_tokio::{run, time};
use tokio::{runtime::Builder, task::LocalSet};

pub(crate) type Log<S> = Arc<Mutex<Vec<S>>>;

/// Runs a test in virtual time, on a new thread.
pub(crate) fn run_paused<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
    let test = || {
        let paused = async {
            time::pause();
            test().await;
        };
        run(paused).expect("a runtime");
    };
    thread::spawn(test).join().expect("no panic");
}

/// Runs a seed with corewheel and with tokio, in virtual time, and asserts that both log equal
/// steps.
pub(crate) fn assert_equal_logs<S, O, T>(
    seed: u64,
    run_ours: fn(u64, Log<S>) -> O,
    run_theirs: fn(u64, Log<S>) -> T,
    is_equal: fn(&S, &S) -> bool,
) where
    S: Debug + PartialEq + Send + 'static,
    O: Future<Output = ()> + 'static,
    T: Future<Output = ()>,
{
    let [ours, theirs] = [Log::default(), Log::default()];
    let log = Arc::clone(&ours);
    run_paused(move || run_ours(seed, log));
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    LocalSet::new().block_on(&runtime, run_theirs(seed, Arc::clone(&theirs)));
    let (ours, theirs) = (ours.lock().unwrap(), theirs.lock().unwrap());
    let pairs = ours.iter().zip(&*theirs);
    let equal = pairs.take_while(|(ours, theirs)| is_equal(ours, theirs)).count();
    let before = &ours[equal.saturating_sub(4)..equal];
    let differing = (ours.get(equal), theirs.get(equal));
    assert_eq!(differing, (None, None), "seed {seed}, after {before:?}");
}
