//! Virtual time for async tests: cores that step one at a time, and a clock that advances when all
//! cores are idle.

mod core;
mod join_handle;
mod scheduler;

use std::{
    cell::Cell,
    fmt,
    marker::PhantomData,
    sync::{Arc, Mutex},
    time::Duration,
};

pub use self::join_handle::JoinHandle;
use self::{core::VirtualCore, scheduler::Scheduler};
use super::timers::set_wheel_selector;
use crate::{clock::ManualClock, local::ShardRef, util::sync::lock};

/// A small executor for tests, with virtual cores and a virtual clock. [`run`](Self::run) and
/// [`block_on`](Self::block_on) advance the clock to the next deadline whenever all cores are idle.
///
/// Each core is a thread with its own [`local_timer`](crate::local_timer). One core at a time takes
/// a step: a poll of one task, or a turn. The seed of [`with_cores`](Self::with_cores) decides the
/// order of the steps and the delays that [`When::spread`](crate::When::spread) adds. With a given
/// seed, a test always runs the same way, unless it depends on other threads, sockets, or
/// randomness such as a `HashMap`'s order. Create purgatory groups by
/// [`PurgatoryGroup::partitioned_by`](crate::purgatory::PurgatoryGroup::partitioned_by), because
/// [`PurgatoryGroup::new`](crate::purgatory::PurgatoryGroup::new) chooses a random hash.
///
/// Cost: a switch to another core usually takes some microseconds, much longer than a step of a
/// core or an advance of the clock.
///
/// A panic in a poll of a task propagates to the method that runs the task. Unfinished tasks are
/// dropped with the executor. A panic of a future's destructor is caught.
///
/// # Examples
///
/// A retry with back-off, tested over an hour of virtual time:
///
/// ```
/// use corewheel::{future::{VirtualTime, sleep}, local_timer};
/// use std::time::Duration;
///
/// async fn retry<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
///     let mut pause = Duration::from_secs(1);
///     loop {
///         match attempt() {
///             Some(answer) => return answer,
///             None => sleep(pause).await,
///         }
///         pause *= 2;
///     }
/// }
///
/// let time = VirtualTime::new();
/// let attempts = time.block_on(|| async {
///     let mut attempts = 0;
///     retry(|| {
///         attempts += 1;
///         (attempts > 12).then_some(attempts)
///     })
///     .await
/// });
/// assert_eq!((attempts, time.elapsed()), (13, Duration::from_secs(4095)));
/// ```
///
/// Tasks that are ready at the same moment may run in any order. Each seed tries one order:
///
/// ```
/// use corewheel::future::{Timers, VirtualTime, sleep};
/// use std::time::Duration;
///
/// for seed in 0..8 {
///     let time = VirtualTime::with_cores(2, seed);
///     let timers = Timers::new(&time.shards()[..1]); // the wheel of the first core
///     let tasks = [0, 1].map(|core| {
///         let timers = timers.clone();
///         time.spawn_on(core, move || async move {
///             sleep(Duration::from_secs(1)).await; // on the core's own wheel
///             timers.sleep(Duration::from_secs(1)).await;
///             core
///         })
///     });
///     assert_eq!(time.run(), 0);
///     assert_eq!(tasks.map(|task| task.take()), [Some(0), Some(1)]);
///     assert_eq!(time.elapsed(), Duration::from_secs(2));
/// }
/// ```
pub struct VirtualTime {
    clock: ManualClock,
    cores: Vec<VirtualCore>,
    shards: Vec<ShardRef>,
    scheduler: Arc<Mutex<Scheduler>>,
    /// Makes the type `!Sync`. If two threads ran steps at once, the seed alone would not decide
    /// the order of the steps.
    _not_sync: PhantomData<Cell<()>>,
}

impl VirtualTime {
    /// Creates an executor with one core.
    ///
    /// # Panics
    ///
    /// Panics if a thread cannot be started, or 16,384 shards, the maximum, exist.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::{VirtualTime, sleep};
    /// use std::time::Duration;
    ///
    /// let time = VirtualTime::new();
    /// time.spawn(|| sleep(Duration::from_secs(3_600)));
    /// assert_eq!(time.run(), 0);
    /// ```
    pub fn new() -> Self {
        Self::with_cores(1, 0)
    }

    /// Creates an executor with `cores` cores, at least one. `seed` decides the order of the cores'
    /// steps.
    ///
    /// # Panics
    ///
    /// Panics if a thread cannot be started, or 16,384 shards, the maximum, exist.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::VirtualTime;
    ///
    /// let time = VirtualTime::with_cores(4, 7); // the seed 7
    /// assert_eq!(time.shards().len(), 4);
    /// ```
    pub fn with_cores(cores: usize, seed: u64) -> Self {
        // Makes the calling thread's futures always use the same wheel of a `Timers`, regardless of
        // how many threads have used a `Timers` before.
        set_wheel_selector(1);
        let clock = ManualClock::with_spread_seed(seed);
        let mut scheduler = Scheduler::new(clock.clone(), seed);
        let (cores, shards) =
            (0..cores.max(1)).map(|core| VirtualCore::start(core, &clock, &mut scheduler)).unzip();
        let scheduler = Arc::new(Mutex::new(scheduler));
        Self { clock, cores, shards, scheduler, _not_sync: PhantomData }
    }

    /// Calls `make_future` on the first core, and spawns the returned future there as a task. The
    /// future need not be `Send`.
    ///
    /// # Panics
    ///
    /// Panics if `make_future` panics.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::{VirtualTime, sleep};
    /// use std::time::Duration;
    ///
    /// let time = VirtualTime::new();
    /// let task = time.spawn(|| async {
    ///     sleep(Duration::from_secs(1)).await;
    ///     "done"
    /// });
    /// assert_eq!(time.run(), 0);
    /// assert_eq!(task.take(), Some("done"));
    /// ```
    pub fn spawn<F>(
        &self,
        make_future: impl FnOnce() -> F + Send + 'static,
    ) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + 'static,
    {
        self.spawn_on(0, make_future)
    }

    /// Calls `make_future` on the core with index `core`, and spawns the returned future there as a
    /// task.
    ///
    /// # Panics
    ///
    /// Panics if there is no core with index `core`, or if `make_future` panics.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::{VirtualTime, sleep};
    /// use std::time::Duration;
    ///
    /// let time = VirtualTime::with_cores(2, 0);
    /// for core in [0, 1] {
    ///     time.spawn_on(core, || sleep(Duration::from_secs(1)));
    /// }
    /// assert_eq!(time.run(), 0);
    /// ```
    #[track_caller]
    pub fn spawn_on<F>(
        &self,
        core: usize,
        make_future: impl FnOnce() -> F + Send + 'static,
    ) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + 'static,
    {
        self.cores[core].spawn(make_future)
    }

    /// Spawns a future as a task on the core of the calling task.
    ///
    /// # Panics
    ///
    /// Panics if the calling thread is not a core of a `VirtualTime`.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::{VirtualTime, sleep};
    /// use std::time::Duration;
    ///
    /// let time = VirtualTime::new();
    /// let answer = time.block_on(|| async {
    ///     let task = VirtualTime::spawn_local(async {
    ///         sleep(Duration::from_secs(1)).await;
    ///         7
    ///     });
    ///     task.await
    /// });
    /// assert_eq!(answer, 7);
    /// ```
    #[track_caller]
    pub fn spawn_local<F: Future + 'static>(future: F) -> JoinHandle<F::Output> {
        core::spawn_on_current_core(future).expect("not in a task of a `VirtualTime`")
    }

    /// Calls `make_future` on the first core, runs the returned future there with all other tasks,
    /// and returns the future's output. Whenever all cores are idle, advances the clock to the next
    /// deadline. Unfinished tasks continue in the next call that runs tasks.
    ///
    /// The call returns when all cores are idle, so it never returns if a task is always ready.
    ///
    /// # Panics
    ///
    /// Panics if all cores are idle and no deadline remains, but the future is not ready. Also
    /// panics if `make_future` or a task panics.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::{VirtualTime, sleep};
    /// use std::time::Duration;
    ///
    /// let time = VirtualTime::new();
    /// let answer = time.block_on(|| async {
    ///     sleep(Duration::from_secs(60)).await;
    ///     7
    /// });
    /// assert_eq!((answer, time.elapsed()), (7, Duration::from_secs(60)));
    /// ```
    #[track_caller]
    pub fn block_on<F>(&self, make_future: impl FnOnce() -> F + Send + 'static) -> F::Output
    where
        F: Future<Output: Send> + 'static,
    {
        let task = self.spawn(make_future);
        let handle = task.clone_handle();
        self.advance_while(move |_, _| !handle.is_finished());
        task.take().expect(
            "no task is runnable and no timer of the cores is pending, so the future would wait for \
             ever",
        )
    }

    /// Runs all tasks. Whenever all cores are idle, advances the clock to the next deadline. Stops
    /// when all tasks have finished or no deadline remains. Returns the number of unfinished tasks,
    /// which would wait for ever.
    ///
    /// The call never returns if a task sets new deadlines for ever, for example by looping over an
    /// interval. For such a task, use [`advance`](Self::advance).
    ///
    /// # Panics
    ///
    /// Panics if a task panics.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::{VirtualTime, sleep};
    /// use std::time::Duration;
    ///
    /// let time = VirtualTime::new();
    /// time.spawn(|| sleep(Duration::from_secs(60)));
    /// time.spawn(std::future::pending::<()>);
    /// assert_eq!(time.run(), 1); // one task waits for ever
    /// assert_eq!(time.elapsed(), Duration::from_secs(60));
    /// ```
    #[must_use = "unfinished tasks would wait for ever"]
    pub fn run(&self) -> usize {
        self.advance_while(|_, task_count| task_count > 0);
        self.task_count()
    }

    /// Advances the clock by `by`, in steps from one deadline to the next. Before the first step
    /// and after each step, runs tasks and timers until all cores are idle.
    ///
    /// # Panics
    ///
    /// Panics if a task panics.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::{VirtualTime, sleep};
    /// use std::time::Duration;
    ///
    /// let time = VirtualTime::new();
    /// let task = time.spawn(|| sleep(Duration::from_secs(60)));
    /// time.advance(Duration::from_secs(59));
    /// assert!(!task.is_finished());
    /// time.advance(Duration::from_secs(1));
    /// assert!(task.is_finished());
    /// ```
    pub fn advance(&self, by: Duration) {
        let end = self.elapsed().saturating_add(by);
        self.advance_while(move |deadline, _| deadline <= end);
        // The subtraction saturates, because a task may have advanced the clock beyond `end`.
        self.clock.advance(end.saturating_sub(self.elapsed()));
        self.run_until_stalled();
    }

    /// Runs tasks and due timers until all cores are idle, without advancing the clock. The call
    /// never returns if a task is always ready.
    ///
    /// # Panics
    ///
    /// Panics if a task panics.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::VirtualTime;
    ///
    /// let time = VirtualTime::new();
    /// let task = time.spawn(|| async { 7 });
    /// time.run_until_stalled(); // no time passes
    /// assert_eq!(task.take(), Some(7));
    /// ```
    pub fn run_until_stalled(&self) {
        self.advance_while(|_, _| false);
    }

    /// Returns the virtual time that has passed since the executor was created.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::{VirtualTime, sleep};
    /// use std::time::Duration;
    ///
    /// let time = VirtualTime::new();
    /// time.block_on(|| sleep(Duration::from_secs(60)));
    /// assert_eq!(time.elapsed(), Duration::from_secs(60));
    /// ```
    pub fn elapsed(&self) -> Duration {
        self.clock.elapsed()
    }

    /// Returns the clock that all cores share.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, Shard, future::VirtualTime};
    /// use std::time::Duration;
    ///
    /// let time = VirtualTime::new();
    /// let mut shard = Shard::with_config(Config::new().clock(time.clock()))?;
    /// shard.add(Duration::from_secs(60), "idle");
    /// time.advance(Duration::from_secs(60));
    /// shard.turn();
    /// assert!(shard.next_expired().is_some());
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    pub fn clock(&self) -> &ManualClock {
        &self.clock
    }

    /// Returns the wheel of each core.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::VirtualTime;
    /// use std::time::Duration;
    ///
    /// let time = VirtualTime::with_cores(2, 0);
    /// let timer = time.shards()[1].add(Duration::from_secs(1), || println!("on the second core"));
    /// time.advance(Duration::from_secs(1));
    /// assert!(!timer.is_pending());
    /// ```
    pub fn shards(&self) -> &[ShardRef] {
        &self.shards
    }

    /// Returns the number of unfinished tasks.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::{VirtualTime, sleep};
    /// use std::time::Duration;
    ///
    /// let time = VirtualTime::new();
    /// time.spawn(|| sleep(Duration::from_secs(60)));
    /// assert_eq!(time.task_count(), 1);
    /// assert_eq!(time.run(), 0);
    /// assert_eq!(time.task_count(), 0);
    /// ```
    pub fn task_count(&self) -> usize {
        self.cores.iter().map(VirtualCore::task_count).sum()
    }

    /// Runs tasks and timers. Whenever all cores are idle, calls `should_advance`, and advances the
    /// clock to the next deadline if the result is true. Ends when `should_advance` returns false
    /// or no deadline remains.
    fn advance_while(&self, should_advance: impl Fn(Duration, usize) -> bool + Send + 'static) {
        let mut next = lock(&self.scheduler).begin_run(Box::new(should_advance));
        while let Some((core, step)) = next {
            next = self.cores[core].take_steps(step, &self.scheduler);
        }
    }
}

impl Default for VirtualTime {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for VirtualTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VirtualTime")
            .field("cores", &self.cores.len())
            .field("tasks", &self.task_count())
            .field("elapsed", &self.elapsed())
            .finish_non_exhaustive()
    }
}
