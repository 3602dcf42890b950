//! Where tasks run.

use std::fmt;

use tokio::{
    runtime::{Builder, Runtime},
    task::LocalSet,
};

use super::Errand;
use crate::{
    cores,
    timeouts::{LocalTimeouts, Timeouts, Unguarded},
};

/// Runs tasks until all are over.
pub trait Stage {
    /// With timeouts.
    fn run(&self, errands: Vec<Errand>);

    /// Without.
    fn run_floor(&self, errands: Vec<Errand>);
}

/// The workers of a runtime, which move tasks between them.
pub struct Workers<T> {
    runtime: Runtime,
    timeouts: T,
}

impl<T> Workers<T> {
    /// Of this runtime.
    pub fn new(runtime: Runtime, timeouts: T) -> Self {
        Self { runtime, timeouts }
    }

    fn spawn<U>(&self, timeouts: &U, errands: Vec<Errand>)
    where
        U: Timeouts<Guarded: Send> + Send + Sync,
    {
        self.runtime.block_on(async {
            let spawn = |errand: Errand| tokio::spawn(errand.run(timeouts.clone()));
            let tasks: Vec<_> = errands.into_iter().map(spawn).collect();
            for task in tasks {
                task.await.expect("a task that does not panic");
            }
        });
    }
}

impl<T: Timeouts<Guarded: Send> + Send + Sync> Stage for Workers<T> {
    fn run(&self, errands: Vec<Errand>) {
        self.spawn(&self.timeouts, errands);
    }

    fn run_floor(&self, errands: Vec<Errand>) {
        self.spawn(&Unguarded, errands);
    }
}

/// A runtime on each of two cores, whose tasks stay there.
#[derive(Clone, Copy, Debug)]
pub struct TwoCores<T>(pub T);

impl<T: LocalTimeouts> Stage for TwoCores<T> {
    fn run(&self, errands: Vec<Errand>) {
        on_two_cores(&self.0, errands);
    }

    fn run_floor(&self, errands: Vec<Errand>) {
        on_two_cores(&Unguarded, errands);
    }
}

fn on_two_cores<T: LocalTimeouts>(timeouts: &T, mut errands: Vec<Errand>) {
    let others = errands.split_off(errands.len() / 2);
    cores::on_two(|| on_this_core(timeouts, errands), || on_this_core(timeouts, others));
}

fn on_this_core<T: LocalTimeouts>(timeouts: &T, errands: Vec<Errand>) {
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    let local = LocalSet::new();
    local.spawn_local(T::drive());
    local.block_on(&runtime, async {
        let spawn = |errand: Errand| tokio::task::spawn_local(errand.run(timeouts.clone()));
        let tasks: Vec<_> = errands.into_iter().map(spawn).collect();
        for task in tasks {
            task.await.expect("a task that does not panic");
        }
    });
}

impl<T> fmt::Debug for Workers<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").field("runtime", &self.runtime).finish_non_exhaustive()
    }
}
