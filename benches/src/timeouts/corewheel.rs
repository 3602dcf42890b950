//! corewheel's two kinds of futures.

use std::{thread, time::Duration};

use corewheel::{
    Clock, Config, Cores,
    future::{Elapsed, Remote, Timeout, Timers, timeout},
    local_timer,
};

use super::{LocalTimeouts, Operation, Timeouts};

/// The longest sleep of a thread that has timers: what others have cancelled waits until it turns.
const NAP: Duration = Duration::from_millis(10);
const TICK: Duration = Duration::from_millis(1);

/// `corewheel-timers`: on threads beside the runtime.
#[derive(Clone, Debug)]
pub struct There(Timers);

impl There {
    /// With as many threads, pinned to one core each, for as long as the process lives.
    pub fn on_threads(threads: usize) -> Self {
        let cores = Cores::builder().shards(threads).start(|_| {
            loop {
                let sleep = local_timer().prepare_sleep();
                sleep
                    .timeout()
                    .map_or_else(thread::park, |timeout| thread::park_timeout(timeout.min(NAP)));
                drop(sleep);
                local_timer().turn();
            }
        });
        let cores: Cores<()> = cores.expect("threads can be started");
        Self(Timers::new(cores.shards()))
    }
}

impl Timeouts for There {
    type Elapsed = Elapsed;
    type Guarded = Timeout<Operation, Remote>;

    fn guard(&self, limit: Duration, operation: Operation) -> Self::Guarded {
        self.0.timeout(limit, operation)
    }
}

/// `corewheel-local`, `corewheel-local-fast`: on each thread's own.
#[derive(Clone, Copy, Debug)]
pub struct Here<const FAST: bool>;

impl<const FAST: bool> Timeouts for Here<FAST> {
    type Elapsed = Elapsed;
    type Guarded = Timeout<Operation>;

    fn guard(&self, limit: Duration, operation: Operation) -> Self::Guarded {
        timeout(limit, operation)
    }
}

impl<const FAST: bool> LocalTimeouts for Here<FAST> {
    fn drive() -> impl Future<Output = ()> + 'static {
        let clock = if FAST { Clock::fast() } else { Clock::monotonic() };
        Config::new().clock(clock).install().expect("a new thread");
        async {
            loop {
                tokio::time::sleep(TICK).await;
                local_timer().turn();
            }
        }
    }
}
