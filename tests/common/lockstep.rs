//! Cores in virtual time that run one job at a time, on request.
#![allow(dead_code, reason = "no test uses all of it")]

use std::{
    panic::{self, AssertUnwindSafe},
    sync::mpsc::{Receiver, Sender, channel},
    thread::{self, JoinHandle},
};

use corewheel::{Config, ManualClock, ShardRef, Turn, local_timer};

type Job<S> = Box<dyn FnOnce(&mut S) + Send>;

/// Threads, each with a wheel and with a state that stays on the thread.
pub(crate) struct Lockstep<S> {
    cores: Vec<Option<Core<S>>>,
    pub(crate) clock: ManualClock,
    pub(crate) shards: Vec<ShardRef>,
}

struct Core<S> {
    jobs: Sender<Job<S>>,
    thread: JoinHandle<()>,
}

impl<S: Default + 'static> Lockstep<S> {
    pub(crate) fn start(cores: usize) -> Self {
        Self::start_with(cores, |_, config| config)
    }

    /// Starts cores. `configure` gets the index of each core.
    pub(crate) fn start_with(cores: usize, configure: impl Fn(usize, Config) -> Config) -> Self {
        let clock = ManualClock::new();
        let config = |core| configure(core, Config::new().clock(&clock));
        let started = (0..cores).map(|core| Core::start(config(core)));
        let (cores, shards) = started.map(|(core, shard)| (Some(core), shard)).unzip();
        Self { cores, clock, shards }
    }

    pub(crate) fn run_on<R: Send + 'static>(
        &self,
        core: usize,
        job: impl FnOnce(&mut S) -> R + Send + 'static,
    ) -> R {
        let (done, result) = channel();
        let job = move |state: &mut S| {
            let _ = done.send(panic::catch_unwind(AssertUnwindSafe(|| job(state))));
        };
        let core = self.cores[core].as_ref().expect("the core has not ended");
        core.jobs.send(Box::new(job)).expect("the core listens");
        result.recv().expect("the core answers").unwrap_or_else(|panic| panic::resume_unwind(panic))
    }

    pub(crate) fn turn(&self, core: usize) -> Turn {
        self.run_on(core, |_| local_timer().turn())
    }

    /// Turns each live core four times. An event takes at most three steps: to the core of its key,
    /// to the core of the operation, and back.
    pub(crate) fn run_until_stalled(&self) {
        for _ in 0..4 {
            for core in (0..self.cores.len()).filter(|&core| self.cores[core].is_some()) {
                self.turn(core);
            }
        }
    }

    pub(crate) fn end(&mut self, core: usize) {
        let Core { jobs, thread } = self.cores[core].take().expect("the core has not ended");
        drop(jobs);
        thread.join().unwrap_or_else(|panic| panic::resume_unwind(panic));
    }
}

impl<S: Default + 'static> Core<S> {
    fn start(config: Config) -> (Self, ShardRef) {
        let (jobs, received): (_, Receiver<Job<S>>) = channel();
        let (shard, thread) = spawn_owner(config, move || {
            let mut state = S::default();
            for job in received {
                job(&mut state);
            }
        });
        (Self { jobs, thread }, shard)
    }
}

impl<S> Drop for Lockstep<S> {
    fn drop(&mut self) {
        for Core { jobs, thread } in self.cores.drain(..).flatten() {
            drop(jobs);
            let _ = thread.join();
        }
    }
}

/// Starts a thread that installs `config`, sends its shard to the caller, and then calls `run`.
pub(crate) fn spawn_owner<R: Send + 'static>(
    config: Config,
    run: impl FnOnce() -> R + Send + 'static,
) -> (ShardRef, JoinHandle<R>) {
    let (sender, shard) = channel();
    let thread = thread::spawn(move || {
        config.install().expect("a new thread");
        local_timer().register_driver();
        sender.send(local_timer().shard_ref()).expect("the starter waits");
        run()
    });
    (shard.recv().expect("the thread has a wheel"), thread)
}
