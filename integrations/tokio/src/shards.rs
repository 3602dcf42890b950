//! Timers for a work-stealing runtime: shards on threads of their own.

use std::{
    cell::Cell,
    io,
    sync::atomic::{AtomicUsize, Ordering},
};

use corewheel::{Cores, CoresBuilder, ShardRef};

/// Threads that do nothing but timers, each pinned to a core (unless told otherwise) and with a shard of its own, for programs
/// whose tasks wander from thread to thread. Tasks add by a [`ShardRef`]; callbacks run on the shard's thread, so they should be
/// short: wake the task, and leave the work to it.
///
/// Adding is an add to another core's timer: some compare-and-swaps, no lock, and the shard's thread is woken if the new timer is
/// the first one due, if it is the 1 024th message of its kind that waits (about deadlines, or about cancelled timers), or if the shard is
/// full and what has been cancelled could make room.
///
/// For deadlines of tasks take [`Timers::start`](corewheel::future::Timers::start), which starts such threads. Its futures may move
/// between threads, and keep the threads of the timers alive.
///
/// Dropping this ends the threads without waiting for them; what is pending is dropped.
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
    /// Taken by who waits for them.
    cores: Option<Cores<()>>,
}

impl Shards {
    /// Starts so many threads, each with a shard in the default configuration; zero counts as one. One or two are enough for most
    /// programs, as they do nothing but wake tasks.
    ///
    /// # Errors
    ///
    /// If a thread cannot be started, or 16 384 shards exist.
    pub fn start(shards: usize) -> io::Result<Self> {
        Self::start_with(Cores::builder().shards(shards))
    }

    /// Starts the threads as the builder says: how many (one for each core, unless it says so), whether they are pinned, and how the
    /// timer of each is made. The threads park when they have nothing to do, and the default wake hook unparks them: if the
    /// configuration has a hook of its own, that must unpark the thread, which is `thread::current()` in the function given to
    /// [`CoresBuilder::config`].
    ///
    /// # Errors
    ///
    /// As [`CoresBuilder::start_with`].
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

    /// The shard for whoever runs on this thread: always the same one, and another thread has the next one, so that the workers
    /// of a runtime are spread over all of them. Cost: a few nanoseconds.
    pub fn nearest(&self) -> &ShardRef {
        &self.shards[thread_number() % self.shards.len()]
    }

    /// All of them: at least one.
    pub fn all(&self) -> &[ShardRef] {
        &self.shards
    }

    /// Ends the threads and waits for them; what is pending is dropped. Do not call it in a callback, which would wait for its own
    /// thread, nor in a task, which would block a worker.
    pub fn join(mut self) {
        if let Some(cores) = self.cores.take() {
            cores.stop();
            // Callbacks do not panic out of their turn, and there is nothing else.
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

/// A number for each thread that asks, from 0.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static NUMBER: Cell<Option<usize>> = const { Cell::new(None) });
    NUMBER.get().unwrap_or_else(|| {
        // Relaxed: only that numbers differ.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        NUMBER.set(Some(number));
        number
    })
}
