//! `Timers::per_worker` in a multi-thread runtime without hooks.

use std::{
    sync::mpsc,
    time::{Duration, Instant},
};

use corewheel::future::{TimeoutError, Timers};
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinSet,
};

const DELAY: Duration = Duration::from_millis(20);
const TOO_LONG: Duration = Duration::from_secs(20);

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).build().expect("a runtime")
}

#[test]
fn timeouts_elapse_or_return_the_output() {
    let (runtime, timers) = (runtime(), Timers::per_worker().expect("a thread"));
    runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for task in 0..200 {
            let timers = timers.clone();
            tasks.spawn(async move {
                let start = Instant::now();
                if task % 2 == 0 {
                    let slow = timers.timeout(DELAY, std::future::pending::<()>()).await;
                    assert_eq!(slow, Err(TimeoutError::Elapsed));
                    assert!(start.elapsed() >= DELAY);
                } else {
                    let fast = timers.timeout(TOO_LONG, tokio::task::yield_now()).await;
                    assert_eq!(fast, Ok(()));
                }
            });
        }
        while let Some(task) = tasks.join_next().await {
            task.expect("no panic");
        }
    });
}

/// The `TimersDriver` fires timers that a blocked worker has added.
#[test]
fn a_blocked_worker_delays_no_timer() {
    struct SendOnWake(mpsc::Sender<()>);
    impl std::task::Wake for SendOnWake {
        fn wake(self: std::sync::Arc<Self>) {
            let _ = self.0.send(());
        }
    }
    let (runtime, timers) = (runtime(), Timers::per_worker().expect("a thread"));
    let (sender, woken) = mpsc::channel();
    let (unblock, blocked) = mpsc::channel::<()>();
    runtime.spawn(async move {
        let waker = std::sync::Arc::new(SendOnWake(sender)).into();
        let mut sleep = timers.sleep(DELAY);
        let mut context = std::task::Context::from_waker(&waker);
        assert!(sleep.poll_elapsed(&mut context).is_pending());
        let _ = blocked.recv_timeout(TOO_LONG);
    });
    woken.recv_timeout(TOO_LONG / 2).expect("woken while its worker is blocked");
    drop(unblock);
}
