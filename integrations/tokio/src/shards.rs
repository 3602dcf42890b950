//! Timers for a work-stealing runtime: shards on dedicated threads.

use std::{
    cell::Cell,
    io,
    sync::atomic::{AtomicUsize, Ordering},
};

use corewheel::{Cores, CoresBuilder, ShardRef};

/// Threads that only run timers, for programs whose tasks move between threads. Each thread has one
/// wheel, called a shard, and is pinned to a core by default. Tasks add timers through a
/// [`ShardRef`]. Callbacks run on the shard's thread and should only wake a task, which does the
/// work.
///
/// A task's add is a remote add, which uses compare-and-swaps and no lock. It wakes the shard's
/// thread in three cases:
///
/// - The new deadline is before the wake-up time of the thread.
/// - The number of queued messages about deadlines reaches a multiple of 1,024.
/// - The shard is full and cancelled timers could make room.
///
/// For deadlines of tasks, use [`time`](crate::time) or
/// [`Timers::per_worker`](corewheel::future::Timers::per_worker), whose futures keep their wheels
/// alive.
///
/// Keep this value while its timers are used. Dropping it ends the threads without waiting for
/// them, and drops their pending callbacks. So do not pass [`all`](Self::all) to
/// [`Timers::new`](corewheel::future::Timers::new). Use
/// [`Timers::start`](corewheel::future::Timers::start), which keeps its threads alive.
///
/// # Examples
///
/// ```
/// use corewheel_tokio::Shards;
/// use std::{sync::Arc, time::Duration};
/// use tokio::sync::oneshot;
///
/// # let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
/// let shards = Arc::new(Shards::start(1)?);
/// # runtime.block_on(async {
/// let task = tokio::spawn(async move {
///     let (late, deadline) = oneshot::channel();
///     let timer = shards.nearest().add(Duration::from_millis(5), move || _ = late.send(())).guard();
///     tokio::select! {
///         () = std::future::pending() => unreachable!("an operation that takes for ever"),
///         _ = deadline => println!("too late"),
///     }
///     drop(timer); // cancels the timer if the operation was in time
/// });
/// # task.await.unwrap();
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping it ends its timers"]
pub struct Shards {
    shards: Box<[ShardRef]>,
    /// `None` after `join`.
    cores: Option<Cores<()>>,
}

impl Shards {
    /// Starts `shards` threads, each with a shard in the default configuration; zero counts as one.
    /// One or two are enough for most programs, since they only wake tasks.
    ///
    /// # Errors
    ///
    /// If a thread cannot be started, or 16,384 shards exist.
    pub fn start(shards: usize) -> io::Result<Self> {
        Self::start_with(Cores::builder().shards(shards))
    }

    /// Starts the threads of a builder. The builder sets their number, one per core by default,
    /// whether they are pinned, and the configuration of each shard. Idle threads park, and the
    /// default wake hook unparks them. Another wake hook must unpark the thread, which is
    /// `thread::current()` in the function given to [`CoresBuilder::config`].
    ///
    /// # Errors
    ///
    /// The errors of [`CoresBuilder::start_with`].
    ///
    /// # Panics
    ///
    /// If the function given to [`CoresBuilder::config`] panics.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Clock, Config, Cores};
    /// use corewheel_tokio::Shards;
    /// use std::time::Duration;
    ///
    /// let config = |index| {
    ///     let config = Config::new().clock(Clock::fast()).tick(Duration::from_micros(100));
    ///     config.limit(1_000_000).name(format!("timeouts-{index}"))
    /// };
    /// let shards = Shards::start_with(Cores::builder().shards(2).pin(false).config(config))?;
    /// assert_eq!(shards.all()[1].metrics().name, "timeouts-1");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn start_with(threads: CoresBuilder) -> io::Result<Self> {
        let cores = threads.start(|core| core.run_timers())?;
        Ok(Self { shards: cores.shards().into(), cores: Some(cores) })
    }

    /// Returns the shard to which the current thread is assigned. A thread always gets the same
    /// shard. Threads are assigned round-robin, so that the workers of a runtime are spread over
    /// all shards.
    pub fn nearest(&self) -> &ShardRef {
        &self.shards[thread_number() % self.shards.len()]
    }

    /// Returns all shards, at least one.
    pub fn all(&self) -> &[ShardRef] {
        &self.shards
    }

    /// Ends the threads, drops their pending callbacks, and waits for the threads. Do not call it
    /// in a callback, which would wait for its own thread, or in a task, which would block a
    /// worker.
    pub fn join(mut self) {
        if let Some(cores) = self.cores.take() {
            cores.stop();
            // No panic to report: a turn catches the panics of callbacks.
            let _ = cores.join();
        }
    }
}

impl Drop for Shards {
    fn drop(&mut self) {
        if let Some(cores) = &self.cores {
            cores.stop();
        }
    }
}

/// Returns the number of this thread, in the order of first calls.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static NUMBER: Cell<Option<usize>> = const { Cell::new(None) });
    NUMBER.get().unwrap_or_else(|| {
        // Relaxed: numbers need only be distinct.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        NUMBER.set(Some(number));
        number
    })
}
