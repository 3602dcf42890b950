//! Timers for a work-stealing runtime: shards on dedicated threads.

use std::{
    cell::Cell,
    io,
    sync::atomic::{AtomicUsize, Ordering},
};

use corewheel::{Cores, CoresBuilder, ShardRef};

/// Threads that only run timers, for programs whose tasks move between threads. Each has one shard
/// and is pinned to a core by default. Tasks add by a [`ShardRef`]. Callbacks run on the shard's
/// thread and should be short: wake a task, which does the work.
///
/// Every add is a remote add, which takes some compare-and-swaps and no lock. It wakes the shard's
/// thread in three cases:
///
/// - The new timer is due before all others.
/// - The add is the 1,024th queued message about deadlines.
/// - The shard is full and cancelled timers could make room.
///
/// For deadlines of tasks use [`time`](crate::time), or
/// [`Timers::per_worker`](corewheel::future::Timers::per_worker), which keep their timers alive.
///
/// Keep this value while its timers are used. Dropping it ends the threads without waiting for
/// them; their pending callbacks are dropped. So do not pass [`all`](Self::all) to
/// [`Timers::new`](corewheel::future::Timers::new); use
/// [`Timers::start`](corewheel::future::Timers::start), which keeps its threads.
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
///     drop(timer); // cancelled, had the operation been in time
/// });
/// # task.await.unwrap();
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "dropped, its timers end"]
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

    /// Starts threads with this builder, which sets their number (by default one per core), whether
    /// they are pinned, and the configuration of each shard. Idle threads park, and the default
    /// wake hook unparks them. A wake hook in the configuration must unpark the thread, which is
    /// `thread::current()` in the function given to [`CoresBuilder::config`].
    ///
    /// # Errors
    ///
    /// As for [`CoresBuilder::start_with`].
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

    /// Returns the shard of the current thread. A thread always gets the same shard. Threads are
    /// assigned in turn, so that the workers of a runtime are spread over all shards. Cost: a few
    /// nanoseconds.
    pub fn nearest(&self) -> &ShardRef {
        &self.shards[thread_number() % self.shards.len()]
    }

    /// Returns all shards: at least one.
    pub fn all(&self) -> &[ShardRef] {
        &self.shards
    }

    /// Ends the threads and waits for them; their pending callbacks are dropped. Do not call it in
    /// a callback, which would wait for its own thread, nor in a task, which would block a worker.
    pub fn join(mut self) {
        if let Some(cores) = self.cores.take() {
            cores.stop();
            // Callbacks panic only in a turn, which catches it.
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

/// Returns a number for each thread that calls it, from 0.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static NUMBER: Cell<Option<usize>> = const { Cell::new(None) });
    NUMBER.get().unwrap_or_else(|| {
        // Relaxed: the numbers must only be distinct.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        NUMBER.set(Some(number));
        number
    })
}
