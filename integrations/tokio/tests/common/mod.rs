use std::thread;

use corewheel_tokio::{run, time};

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
