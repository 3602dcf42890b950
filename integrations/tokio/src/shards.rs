//! Timers for a work-stealing runtime: shards on threads of their own.

use std::{
    cell::Cell,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use corewheel::{Core, Cores, ShardRef, local_timer};

/// Threads that do nothing but timers, each pinned to a core and with a shard of its own, for programs whose tasks wander from
/// thread to thread. Tasks add by a [`ShardRef`]; callbacks run on the shard's thread, so they should be short: wake the
/// task, and leave the work to it.
///
/// Adding is an add to another core's timer: some compare-and-swaps, no lock, and the shard's thread is woken only if the new timer is
/// the first one due. Of the timers that are cancelled, every thousandth wakes it.
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
    cores: Cores<()>,
    end: End,
}

/// Ends the threads when it is dropped.
#[derive(Debug)]
struct End {
    over: Arc<AtomicBool>,
    shards: Vec<ShardRef>,
}

impl Shards {
    /// Starts so many threads, each with a shard in the default configuration; zero counts as one. One or two are enough for most
    /// programs, as they do nothing but wake tasks.
    ///
    /// # Errors
    ///
    /// If a thread cannot be started, or 16 384 shards exist.
    pub fn start(shards: usize) -> io::Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&over);
        let cores = Cores::builder().shards(shards).start(move |_: Core| serve(&until))?;
        let end = End { over, shards: cores.shards().to_vec() };
        Ok(Self { cores, end })
    }

    /// The shard for whoever runs on this thread: always the same one, and another thread has the next one, so that the workers
    /// of a runtime are spread over all of them. Cost: a few nanoseconds.
    pub fn nearest(&self) -> &ShardRef {
        let shards = self.all();
        &shards[thread_number() % shards.len()]
    }

    /// All of them: at least one.
    pub fn all(&self) -> &[ShardRef] {
        self.cores.shards()
    }

    /// Ends the threads and waits for them; what is pending is dropped. Do not call it in a callback, which would wait for its own
    /// thread, nor in a task, which would block a worker.
    pub fn join(self) {
        drop(self.end);
        // Callbacks do not panic out of their turn, and there is nothing else.
        let _ = self.cores.join();
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // Relaxed: it is alone, and the message behind it is what the thread wakes up for.
        self.over.store(true, Ordering::Relaxed);
        for shard in &self.shards {
            // One that has 2^25 timers takes no more, and ends when the first of them is due.
            let _ = shard.try_run(|| ());
        }
    }
}

/// The life of a shard's thread.
fn serve(over: &AtomicBool) {
    // Relaxed: see `End`.
    while !over.load(Ordering::Relaxed) {
        let sleep = local_timer().prepare_sleep();
        sleep.timeout().map_or_else(thread::park, thread::park_timeout);
        drop(sleep);
        local_timer().turn();
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
