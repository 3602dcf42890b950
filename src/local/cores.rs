//! `Cores` starts one thread per core, each with its own wheel, and joins the threads.

use std::{
    collections::BTreeMap,
    fmt,
    future::poll_fn,
    io, mem,
    num::NonZeroUsize,
    panic,
    sync::{Arc, Mutex, OnceLock, mpsc},
    task::{Context, Poll, Waker},
    thread::{self, JoinHandle, ThreadId},
};

use super::{CatchDropPanic, ShardRef, local_timer};
use crate::{
    config::Config,
    cross_core::hooks::PanicPlace,
    error::ConfigError,
    limits::SHARDS_MAX,
    util::{
        panics::catch_panic_silently,
        sync::{AtomicBool, Ordering, lock},
    },
};

/// The threads of a thread-per-core program, each with its own wheel and, by default, pinned to a
/// core.
///
/// [`stop`](Cores::stop) asks the threads to end, and [`join`](Cores::join) waits for them. If this
/// value is dropped, the threads continue.
///
/// # Examples
///
/// Each thread sleeps in a `mio::Poll`. The thread's `mio::Waker` ends the sleep when another
/// thread adds a timer that is due before the end of the sleep:
///
/// ```
/// use corewheel::{Config, Cores, local_timer};
/// use mio::{Events, Poll, Token, Waker};
/// use std::{io::ErrorKind, sync::Arc, time::Duration};
///
/// let polls = [Poll::new()?, Poll::new()?];
/// let waker = |poll: &Poll| Waker::new(poll.registry(), Token(usize::MAX)).map(Arc::new);
/// let wakers = polls.iter().map(waker).collect::<Result<Vec<_>, _>>()?;
/// let config = move |index: usize| {
///     let waker = Arc::clone(&wakers[index]);
///     Config::new().wake_hook(move || waker.wake().expect("the poll is open"))
/// };
///
/// let cores = Cores::builder().config(config).start_with(Vec::from(polls), |core, mut poll| {
///     let mut events = Events::with_capacity(1024);
///     let hello = move || println!("hello from core {}", core.index());
///     local_timer().add(Duration::from_millis(5), hello);
///     while !local_timer().is_empty() {
///         match local_timer().sleep_with(|timeout| poll.poll(&mut events, timeout)) {
///             Err(error) if error.kind() != ErrorKind::Interrupted => panic!("poll: {error}"),
///             _ => (), // a signal ends a poll as well
///         }
///         local_timer().turn();
///     }
///     local_timer().counts().fired
/// })?;
/// for fired in cores.join() {
///     assert_eq!(fired.unwrap(), 1);
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "if this is dropped, the threads run on and no thread joins them"]
pub struct Cores<R> {
    /// A thread returns `None` only if the start failed, so that no `Cores` value exists.
    threads: Vec<JoinHandle<Option<R>>>,
    pinned_core_by_thread: Vec<Option<usize>>,
    shared: Arc<CoresShared>,
}

/// One of the threads of [`Cores`], passed to the thread's function.
///
/// # Examples
///
/// ```
/// use corewheel::{Cores, local_timer};
///
/// let cores = Cores::builder().threads(2).start(|core| {
///     println!("thread {} of {}", core.index(), core.shards().len());
///     println!("pinned to core {:?}", core.pinned_to());
///     core.run_timers();
///     core.index()
/// })?;
/// cores.stop();
/// assert_eq!(cores.join().into_iter().map(Result::unwrap).collect::<Vec<_>>(), [0, 1]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Core {
    index: usize,
    pinned_to: Option<usize>,
    thread_id: ThreadId,
    shared: Arc<CoresShared>,
}

/// The state that the threads of a [`Cores`] share.
#[derive(Debug)]
struct CoresShared {
    shards: Box<[ShardRef]>,
    stop_state_by_thread: Box<[StopState]>,
    is_stop_requested: AtomicBool,
}

/// Whether a thread has processed a stop request, and the wakers of the waiting tasks.
#[derive(Debug, Default)]
struct StopState {
    /// True once the thread's stop request was processed or dropped.
    is_processed: AtomicBool,
    /// The wakers of the futures of [`Core::stopped`], keyed by `StopWaiter::waker_key`.
    wakers: Mutex<BTreeMap<u64, Waker>>,
}

/// The number of messages that one stop request sends to a thread; the callback of each message
/// sends the next.
///
/// A stop request must be processed after the earlier requests of the thread that calls `stop`. A
/// thread processes the requests of another thread in FIFO order. But a closure that the caller of
/// `stop` has submitted to itself is a due timer, which fires after the turn has processed
/// messages. So the first stop message may run before an earlier closure. The second message may
/// run in the turn of the first, but the third always runs in a later turn.
const STOP_MESSAGE_COUNT: u32 = 3;

/// A request to a thread to stop. The callback of each message moves the request into the next
/// message, and the last callback drops it. A failed send drops the request too. The drop sets
/// `is_processed` and wakes the futures of [`Core::stopped`].
struct ThreadStopRequest {
    shared: Arc<CoresShared>,
    thread_index: usize,
}

impl ThreadStopRequest {
    fn send_remaining_messages(self, remaining_message_count: u32) {
        let Some(remaining_message_count) = remaining_message_count.checked_sub(1) else { return };
        let shard = self.shared.shards[self.thread_index].clone();
        shard.run_ignoring_timer_limit(move || {
            self.send_remaining_messages(remaining_message_count);
        });
    }
}

impl Drop for ThreadStopRequest {
    fn drop(&mut self) {
        let stop_state = &self.shared.stop_state_by_thread[self.thread_index];
        // Relaxed: the flag publishes no other data. A future of `Core::stopped` reads
        // `is_processed` and adds its waker under the lock taken below. So either the future sees
        // this store, or `wakers` contains the future's waker.
        stop_state.is_processed.store(true, Ordering::Relaxed);
        let wakers = mem::take(&mut *lock(&stop_state.wakers));
        let hooks = &self.shared.shards[self.thread_index].shared.hooks;
        for waker in wakers.into_values() {
            hooks.catch_panic(PanicPlace::Callback, || waker.wake());
        }
    }
}

/// Keeps the waker of a [`Core::stopped`] future registered until this value is dropped.
struct StopWaiter<'c> {
    core: &'c Core,
    waker_key: Option<u64>,
}

impl StopWaiter<'_> {
    fn poll(&mut self, cx: &Context<'_>) -> Poll<()> {
        let waker = cx.waker().clone();
        let mut wakers = lock(&self.core.stop_state().wakers);
        // A waker's destructor is user code, so it runs without the lock.
        if self.core.is_stopping() {
            drop(wakers);
            self.drop_catching_panic(Some(waker));
            return Poll::Ready(());
        }
        let next_key = || wakers.last_key_value().map_or(0, |(last, _)| last + 1);
        let waker_key = *self.waker_key.get_or_insert_with(next_key);
        let previous_waker = wakers.insert(waker_key, waker);
        drop(wakers);
        self.drop_catching_panic(previous_waker);
        Poll::Pending
    }

    fn drop_catching_panic(&self, waker: Option<Waker>) {
        self.core.shared.shards[self.core.index].shared.hooks.drop_catching_panic(waker);
    }
}

impl Drop for StopWaiter<'_> {
    fn drop(&mut self) {
        if let Some(waker_key) = self.waker_key {
            let waker = lock(&self.core.stop_state().wakers).remove(&waker_key);
            self.drop_catching_panic(waker);
        }
    }
}

/// Configures and starts the threads of [`Cores`]; returned by [`Cores::builder`].
///
/// # Examples
///
/// ```
/// use corewheel::{Config, Cores, local_timer};
/// use std::time::Duration;
///
/// let cores = Cores::builder()
///     .threads(2)
///     .pin(false)
///     .config(|index| {
///         Config::new().name(format!("core {index}")).tick(Duration::from_micros(100))
///     })
///     .start(|_| local_timer().metrics().map(|metrics| metrics.name))?;
/// let names: Vec<_> = cores.join().into_iter().map(Result::unwrap).collect();
/// assert_eq!(names, [Some("core 0".to_owned()), Some("core 1".to_owned())]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "nothing runs before `start`"]
pub struct CoresBuilder {
    thread_count: Option<usize>,
    must_pin: bool,
    config_of_thread: Arc<dyn Fn(usize) -> Config + Send + Sync>,
}

impl Core {
    /// Returns the index of this thread, from 0.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Cores;
    ///
    /// let cores = Cores::builder().threads(2).start(|core| core.index())?;
    /// println!("{} threads", cores.len());
    /// # cores.join();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns the number of the core that the thread is pinned to, or `None`.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Cores;
    ///
    /// let cores = Cores::builder().threads(2).start(|core| core.pinned_to())?;
    /// assert_eq!(cores.pinned_cores().len(), 2);
    /// # cores.join();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn pinned_to(&self) -> Option<usize> {
        self.pinned_to
    }

    /// Returns references to the wheels of all threads, ordered by index.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Cores;
    ///
    /// let cores = Cores::builder().threads(2).start(|core| {
    ///     let next = (core.index() + 1) % core.shards().len();
    ///     core.shards()[next].run(|| println!("from the previous core"));
    /// })?;
    /// assert_eq!(cores.shards().len(), 2);
    /// # cores.join();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn shards(&self) -> &[ShardRef] {
        &self.shared.shards
    }

    /// Drives this thread's wheel until the thread [should stop](Self::is_stopping) or the wheel
    /// has ended.
    ///
    /// After this call, [`LocalTimer::drain`](crate::LocalTimer::drain) returns the timers that are
    /// still pending.
    ///
    /// # Panics
    ///
    /// Panics if called by another thread, or by a callback while `is_stopping` returns false.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Cores;
    /// use std::time::Duration;
    ///
    /// let cores = Cores::builder().start(|core| core.run_timers())?;
    /// cores.shards()[0].add(Duration::from_millis(1), || println!("on the first core"));
    /// cores.stop();
    /// assert!(cores.join().iter().all(Result::is_ok)); // no core has panicked
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn run_timers(&self) {
        assert!(
            self.thread_id == thread::current().id(),
            "`run_timers` is for this core's own thread"
        );
        local_timer().run_until(|| self.is_stopping());
    }

    /// Returns true once a turn of this thread has processed the request of [`Cores::stop`]. After
    /// the end of the thread's wheel, returns true once `stop` was called. Check `is_stopping`
    /// after each turn.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Cores, local_timer};
    ///
    /// let cores = Cores::builder().threads(1).start(|core| core.run_timers())?;
    /// cores.stop();
    /// assert!(cores.join().iter().all(Result::is_ok)); // no core has panicked
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[inline]
    pub fn is_stopping(&self) -> bool {
        // Relaxed: the two flags publish no other data, and this thread may see their new values
        // late.
        self.stop_state().is_processed.load(Ordering::Relaxed)
            || self.shared.is_stop_requested.load(Ordering::Relaxed)
                && self.shared.shards[self.index].has_ended()
    }

    /// Waits until [`is_stopping`](Self::is_stopping) returns true. Any number of tasks, on any
    /// executor, may await `stopped`.
    ///
    /// If [`LocalTimer::drain`](crate::LocalTimer::drain) returns the stop request, the waiting
    /// tasks wake when the drained timers are dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Cores, future, local_timer};
    /// use std::{pin::pin, task::{Context, Waker}, thread};
    ///
    /// let cores = Cores::builder().threads(2).start(|core| {
    ///     // In place of a runtime, which polls when the waker is called.
    ///     let mut stopped = pin!(core.stopped());
    ///     while stopped.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
    ///         local_timer().prepare_sleep().park();
    ///         local_timer().turn();
    ///     }
    /// })?;
    /// cores.stop();
    /// assert!(cores.join().iter().all(Result::is_ok));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn stopped(&self) {
        let mut waiter = StopWaiter { core: self, waker_key: None };
        poll_fn(|cx| waiter.poll(cx)).await;
    }

    fn stop_state(&self) -> &StopState {
        &self.shared.stop_state_by_thread[self.index]
    }
}

impl Cores<()> {
    /// Returns a builder that starts one thread per available core, each with a wheel in the
    /// default configuration.
    ///
    /// The number of threads is [`thread::available_parallelism`], which respects affinity and a
    /// container's CPU quota.
    ///
    /// The threads are pinned to the cores that the calling thread may use, in the system's order.
    /// If there are more threads than cores, the assignment continues from the first core. To
    /// exclude a core, start the program under `taskset` or in a cpuset. Disable
    /// [pinning](CoresBuilder::pin) if several containers share cores and are limited only by CPU
    /// quotas: such containers would pin their threads to the same cores.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Cores;
    ///
    /// let cores = Cores::builder().start(|core| core.index())?;
    /// for index in cores.join() {
    ///     println!("thread {} has ended", index.unwrap());
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn builder() -> CoresBuilder {
        CoresBuilder {
            thread_count: None,
            must_pin: true,
            config_of_thread: Arc::new(|_| Config::new()),
        }
    }
}

impl<R> Cores<R> {
    /// Returns the number of threads.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Cores;
    ///
    /// let cores = Cores::builder().threads(2).start(|core| core.index())?;
    /// assert_eq!(cores.len(), 2);
    /// # cores.join();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn len(&self) -> usize {
        self.threads.len()
    }

    /// Returns true if there is no thread.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Cores;
    ///
    /// let cores = Cores::builder().threads(2).start(|core| core.index())?;
    /// assert!(!cores.is_empty());
    /// # cores.join();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// Returns, for each thread, the number of the core that it is pinned to, or `None`.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Cores;
    ///
    /// let cores = Cores::builder().threads(2).start(|core| core.index())?;
    /// println!("the threads run on the cores {:?}", cores.pinned_cores());
    /// # cores.join();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn pinned_cores(&self) -> &[Option<usize>] {
        &self.pinned_core_by_thread
    }

    /// Returns references to the wheels of all threads, ordered by index.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Cores, local_timer};
    /// use std::{thread, time::Duration};
    ///
    /// let cores = Cores::builder().threads(2).start(|core| {
    ///     while local_timer().turn().fired == 0 {
    ///         local_timer().prepare_sleep().park();
    ///     }
    ///     core.index()
    /// })?;
    /// for shard in cores.shards() {
    ///     shard.add(Duration::from_millis(1), || println!("on {:?}", thread::current().name()));
    /// }
    /// assert_eq!(cores.join().len(), 2);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn shards(&self) -> &[ShardRef] {
        &self.shared.shards
    }

    /// Asks all threads to end.
    ///
    /// This call wakes threads that are in an announced sleep. Without a backlog, each thread
    /// processes the request within three turns. Then the thread's [`Core::is_stopping`] returns
    /// true, and the thread decides when to end. A loop must check `is_stopping`; the main future
    /// of a runtime awaits [`Core::stopped`].
    ///
    /// Adds, resets and closures ([`ShardRef::run`]) that the caller submitted earlier are
    /// processed before the request. Only a closure that the caller has submitted to its own wheel
    /// may be processed later, if a turn's budget defers it.
    ///
    /// If a thread's wheel has ended, or has no free node for the request, `is_stopping` returns
    /// true at once.
    ///
    /// In each wheel, the request runs as up to three timers, which the wheel's counts include.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Cores, local_timer};
    ///
    /// let cores = Cores::builder().start(|core| core.run_timers())?;
    /// cores.stop();
    /// assert!(cores.join().iter().all(Result::is_ok));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stop(&self) {
        // Relaxed: the swap only prevents a second request, and `is_stopping` may see the flag
        // late.
        if self.shared.is_stop_requested.swap(true, Ordering::Relaxed) {
            return;
        }
        for index in 0..self.shared.shards.len() {
            let request =
                ThreadStopRequest { shared: Arc::clone(&self.shared), thread_index: index };
            request.send_remaining_messages(STOP_MESSAGE_COUNT);
        }
    }

    /// Waits for all threads. For each thread, returns its result, or the panic that ended it. Only
    /// [`stop`](Self::stop) asks the threads to end. The end of a thread drops its pending
    /// callbacks, unless the thread [drains](crate::LocalTimer::drain) its wheel.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Cores;
    ///
    /// let cores = Cores::builder().threads(2).start(|core| {
    ///     assert_eq!(core.index(), 0, "the second thread panics");
    ///     "done"
    /// })?;
    /// let results = cores.join();
    /// assert_eq!(results[0].as_ref().unwrap(), &"done");
    /// assert!(results[1].is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use = "an error is the panic that ended a thread"]
    pub fn join(self) -> Vec<thread::Result<R>> {
        let unwrap_result = |returned: Option<R>| {
            returned.unwrap_or_else(|| unreachable!("`start` has released every thread"))
        };
        self.threads.into_iter().map(|thread| thread.join().map(unwrap_result)).collect()
    }
}

impl<R> fmt::Debug for Cores<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cores")
            .field("pinned_to", &self.pinned_core_by_thread)
            .finish_non_exhaustive()
    }
}

impl CoresBuilder {
    /// Sets the number of threads, which may exceed the number of cores. A number of zero counts as
    /// one.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Cores;
    ///
    /// let cores = Cores::builder().threads(2).start(|core| core.index())?;
    /// assert_eq!(cores.join().len(), 2);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn threads(mut self, threads: usize) -> Self {
        self.thread_count = Some(threads.max(1));
        self
    }

    /// Sets whether each thread is pinned to a core, by default true. Threads that a pinned thread
    /// starts run on the same core.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Cores;
    ///
    /// let cores = Cores::builder().threads(2).pin(false).start(|core| core.index())?;
    /// assert_eq!(cores.join().len(), 2);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn pin(mut self, pin: bool) -> Self {
        self.must_pin = pin;
        self
    }

    /// Sets the configuration of each thread's wheel. Each thread calls `config` with its index.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, Cores};
    ///
    /// let config = |_index| Config::new().capacity(10_000);
    /// let cores = Cores::builder().threads(2).config(config).start(|core| core.index())?;
    /// assert_eq!(cores.join().len(), 2);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn config(mut self, config: impl Fn(usize) -> Config + Send + Sync + 'static) -> Self {
        self.config_of_thread = Arc::new(config);
        self
    }

    /// Starts the threads and runs `run` on each.
    ///
    /// # Errors
    ///
    /// Returns an error in the same cases as [`start_with`](Self::start_with).
    ///
    /// # Panics
    ///
    /// Panics if the function given to [`config`](Self::config) panics.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Cores;
    ///
    /// let cores = Cores::builder().threads(2).start(|core| core.index())?;
    /// assert_eq!(cores.join().len(), 2);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn start<R: Send + 'static>(
        self,
        run: impl Fn(Core) -> R + Send + Sync + 'static,
    ) -> io::Result<Cores<R>> {
        let thread_count = self
            .thread_count
            .unwrap_or_else(|| thread::available_parallelism().map_or(1, NonZeroUsize::get));
        self.start_with(vec![(); thread_count], move |core, ()| run(core))
    }

    /// Starts a thread for each element of `args`. Each thread calls `run` with its element.
    ///
    /// An element is a value prepared for one thread, such as a `mio::Poll`. The number of elements
    /// is the number of threads; [`threads`](Self::threads) has no effect. `run` starts only after
    /// every thread has its wheel and, where possible, is pinned.
    ///
    /// # Errors
    ///
    /// Returns an error if a thread cannot be started, or its wheel cannot be created. If a wheel
    /// cannot be created, [`io::Error::get_ref`] returns the [`ConfigError`]. After an error, no
    /// thread has entered `run`, and all started threads have ended.
    ///
    /// # Panics
    ///
    /// Panics if the function given to [`config`](Self::config) panics.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Cores;
    ///
    /// let args = vec!["north", "south"];
    /// let name = |core: corewheel::Core, arg| format!("{arg} {}", core.index());
    /// let cores = Cores::builder().start_with(args, name)?;
    /// let names: Vec<_> = cores.join().into_iter().map(Result::unwrap).collect();
    /// assert_eq!(names, ["north 0", "south 1"]);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn start_with<S: Send + 'static, R: Send + 'static>(
        self,
        args: Vec<S>,
        run: impl Fn(Core, S) -> R + Send + Sync + 'static,
    ) -> io::Result<Cores<R>> {
        if args.len() > SHARDS_MAX as usize {
            return Err(ConfigError::TooManyShards.into());
        }
        let core_ids =
            self.must_pin.then(core_affinity::get_core_ids).flatten().unwrap_or_default();
        let mut core_ids = core_ids.into_iter().cycle();
        let run = Arc::new(run);
        // The threads wait for this value; `None` means that the start has failed.
        let start_signal = Arc::new(OnceLock::<Option<Arc<CoresShared>>>::new());
        // Ends the started threads, and returns the first panic.
        let abort_start = |threads: Vec<JoinHandle<_>>| {
            let _ = start_signal.set(None);
            let panics = threads.into_iter().filter_map(|thread| thread.join().err());
            panics.reduce(|first, other| {
                catch_panic_silently(|| drop(other));
                first
            })
        };
        let (mut threads, mut receivers) = (Vec::new(), Vec::new());
        let args: Vec<_> = args.into_iter().map(|arg| CatchDropPanic(Some(arg))).collect();
        for (index, mut arg) in args.into_iter().enumerate() {
            let core_id = core_ids.next();
            let (config_of_thread, run) = (Arc::clone(&self.config_of_thread), Arc::clone(&run));
            let (start_signal, (sender, receiver)) = (Arc::clone(&start_signal), mpsc::channel());
            let builder = thread::Builder::new().name(format!("corewheel-{index}"));
            let spawn_result = builder.spawn(move || {
                let pinned_to =
                    core_id.filter(|&id| core_affinity::set_for_current(id)).map(|id| id.id);
                let install_result = config_of_thread(index).install();
                let _ =
                    sender.send(install_result.map(|()| (pinned_to, local_timer().shard_ref())));
                let shared = start_signal.wait().clone()?;
                // If this thread kept `start_signal`, the memory of all wheels would stay allocated
                // even after `run` has dropped its `Core`.
                drop(start_signal);
                let thread_id = thread::current().id();
                Some(run(Core { index, pinned_to, thread_id, shared }, arg.0.take()?))
            });
            match spawn_result {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    catch_panic_silently(|| drop(abort_start(threads)));
                    return Err(error);
                }
            }
            receivers.push(receiver);
        }
        let start_reports: Result<Vec<_>, _> = receivers.iter().map(mpsc::Receiver::recv).collect();
        let Ok(start_reports) = start_reports else {
            // A thread that did not report its start has panicked, and its panic continues here.
            panic::resume_unwind(abort_start(threads).expect("a thread has panicked"));
        };
        match start_reports.into_iter().collect::<Result<(Vec<_>, Vec<_>), ConfigError>>() {
            Ok((pinned_core_by_thread, shards)) => {
                let shared = Arc::new(CoresShared {
                    stop_state_by_thread: shards.iter().map(|_| StopState::default()).collect(),
                    shards: shards.into_boxed_slice(),
                    is_stop_requested: AtomicBool::new(false),
                });
                let _ = start_signal.set(Some(Arc::clone(&shared)));
                Ok(Cores { threads, pinned_core_by_thread, shared })
            }
            Err(error) => {
                catch_panic_silently(|| drop(abort_start(threads)));
                Err(error.into())
            }
        }
    }
}

impl fmt::Debug for CoresBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoresBuilder")
            .field("threads", &self.thread_count)
            .field("pin", &self.must_pin)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "depends on how fast the threads are")]
    fn stop_ends_a_sleeping_core_without_a_free_node() {
        let cores = Cores::builder().threads(1).pin(false).start(|core| core.run_timers());
        let cores = cores.expect("started");
        let hour = Duration::from_secs(3_600);
        while cores.shards()[0].try_add(hour, || ()).is_ok() {}
        thread::sleep(Duration::from_millis(200));
        assert!(cores.shards()[0].try_add(hour, || ()).is_err(), "all nodes are in use");
        thread::sleep(Duration::from_millis(200));
        cores.stop();
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || sender.send(cores.join().len()));
        assert_eq!(receiver.recv_timeout(Duration::from_secs(20)), Ok(1));
    }

    /// Another thread calls `stop` between the loop's check of `is_stopping` and the announcement
    /// of its next sleep.
    #[test]
    fn stop_before_the_announcement_ends_the_sleep_of_a_core_without_a_free_node() {
        let ((checked, is_checked), (stopped, is_stopped)) = (mpsc::channel(), mpsc::channel());
        let run = |core: Core, (checked, is_stopped): (mpsc::Sender<()>, mpsc::Receiver<()>)| {
            while local_timer().try_add(Duration::from_secs(3_600), || ()).is_ok() {}
            local_timer().turn();
            assert_ne!(local_timer().prepare_sleep().timeout(), Some(Duration::ZERO));
            assert!(!core.is_stopping());
            checked.send(()).expect("the test waits");
            is_stopped.recv().expect("the test stops the core");
            assert_eq!(local_timer().prepare_sleep().timeout(), Some(Duration::ZERO));
            local_timer().turn();
            assert!(core.is_stopping());
            assert_ne!(local_timer().prepare_sleep().timeout(), Some(Duration::ZERO));
        };
        let args = vec![(checked, is_stopped)];
        let cores = Cores::builder().pin(false).start_with(args, run).expect("started");
        is_checked.recv().expect("the core runs");
        cores.stop();
        stopped.send(()).expect("the core waits");
        assert!(cores.join().iter().all(Result::is_ok));
    }
}
