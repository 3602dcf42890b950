//! The user's hooks, and the guard around user code: a panic is caught where it happens (P6).

use std::{
    any::Any,
    cell::Cell,
    fmt, mem,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
    sync::{Arc, OnceLock},
    task::Waker,
};

use crate::{
    cross_core::{descriptor::LazyDescriptor, parker::SleepId},
    limits::HOOKS_NESTED_MAX,
    trace,
    util::sync::{AtomicU64, Ordering, Thread, TryLock, per_thread, this_thread},
};

/// A panic in a callback, a destructor, the wake hook or a delayed operation, as
/// [`Config::on_panic`](crate::Config::on_panic) gets it.
///
/// # Examples
///
/// ```
/// use corewheel::{Config, PanicPlace, local_timer};
/// use std::time::Duration;
///
/// Config::new()
///     .on_panic(|report| {
///         assert_eq!(report.place(), PanicPlace::Callback);
///         assert_eq!(report.message(), Some("a bug"));
///         assert!(report.payload().is::<&str>());
///     })
///     .install()?;
/// local_timer().add(Duration::ZERO, || panic!("a bug"));
/// # std::thread::sleep(Duration::from_millis(2));
/// assert_eq!(local_timer().turn().fired, 1);
/// assert_eq!(local_timer().counts().panicked, 1);
/// # Ok::<(), corewheel::ConfigError>(())
/// ```
pub struct PanicReport<'a> {
    place: PanicPlace,
    payload: &'a (dyn Any + Send),
}

/// The part of the user's code that panicked.
///
/// # Examples
///
/// ```
/// use corewheel::{Config, PanicPlace};
///
/// let config = Config::new().on_panic(|report| {
///     if report.place() == PanicPlace::Wake {
///         eprintln!("the wake hook is broken: {report:?}");
///     }
/// });
/// # config.install()?;
/// # Ok::<(), corewheel::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PanicPlace {
    /// A callback, while it ran.
    Callback,
    /// The destructor of a callback or payload whose timer was cancelled or whose shard ended, or
    /// of a key or an operation of a purgatory.
    Drop,
    /// The hook that wakes a sleeping owner, or the waker of the task that drives the wheel.
    Wake,
    /// A delayed operation, while it checked its condition or completed.
    Operation,
}

impl PanicReport<'_> {
    /// Returns which part of the user's code panicked.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Config;
    ///
    /// let config = Config::new().on_panic(|report| eprintln!("a panic in {:?}", report.place()));
    /// # config.install()?;
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    pub fn place(&self) -> PanicPlace {
        self.place
    }

    /// Returns the payload of the panic, as [`std::panic::catch_unwind`] returns it.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Config;
    /// use std::io;
    ///
    /// let config = Config::new().on_panic(|report| {
    ///     if let Some(error) = report.payload().downcast_ref::<io::Error>() {
    ///         eprintln!("thrown by `panic_any`: {error}");
    ///     }
    /// });
    /// # config.install()?;
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    pub fn payload(&self) -> &(dyn Any + Send) {
        self.payload
    }

    /// Returns the message of the panic, if it has one. Panics of `panic!` do.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Config;
    ///
    /// let config = Config::new().on_panic(|report| eprintln!("{:?}", report.message()));
    /// # config.install()?;
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    pub fn message(&self) -> Option<&str> {
        let text = self.payload.downcast_ref::<&str>().copied();
        text.or_else(|| self.payload.downcast_ref::<String>().map(String::as_str))
    }
}

impl fmt::Debug for PanicReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PanicReport")
            .field("place", &self.place)
            .field("message", &self.message())
            .finish_non_exhaustive()
    }
}

pub(crate) type WakeHook = Arc<dyn Fn() + Send + Sync>;
pub(crate) type PanicHook = Arc<dyn Fn(&PanicReport<'_>) + Send + Sync>;

/// The user's hooks of a shard.
pub(crate) struct Hooks {
    wake: WakeMethod,
    descriptor: LazyDescriptor,
    /// The task that drives the wheel, if there is one. It is set before a sleep is announced, so a
    /// thread that sees the sleep sees the task. It is not a `SetOnce`, which would add a step to
    /// every wake-up in the models.
    driver_task: OnceLock<TryLock<Option<Arc<Waker>>>>,
    panic: Option<PanicHook>,
    panic_count: AtomicU64,
}

/// The way to wake the owner.
enum WakeMethod {
    Hook(WakeHook),
    /// The default unparks the thread that announced the sleep, because a shard may have moved to
    /// another thread. No thread ever waits for this lock: wakers and the owner only try it.
    Unpark(TryLock<Thread>),
}

/// A wake hook call in progress: the shard, and the sleep to be ended.
type HookCall = Cell<Option<(usize, SleepId)>>;

per_thread! {
    /// This thread's wake hook calls in progress, the outermost first.
    static HOOK_CALLS: [HookCall; HOOKS_NESTED_MAX] = [const { Cell::new(None) }; HOOKS_NESTED_MAX];
}

impl Hooks {
    pub(crate) fn new(wake: Option<WakeHook>, panic: Option<PanicHook>) -> Self {
        let wake =
            wake.map_or_else(|| WakeMethod::Unpark(TryLock::new(this_thread())), WakeMethod::Hook);
        Self {
            wake,
            descriptor: LazyDescriptor::default(),
            driver_task: OnceLock::new(),
            panic,
            panic_count: AtomicU64::new(0),
        }
    }

    /// Returns the descriptor that every wake-up fires.
    #[allow(dead_code, reason = "only `TimerFd` opens it")]
    pub(crate) fn descriptor(&self) -> &LazyDescriptor {
        &self.descriptor
    }

    /// Wakes the owner from a sleep, on any thread. Returns false if a hook or waker panicked or
    /// was not called. No call is made if another thread holds the lock of the thread or waker to
    /// be woken, if this thread is inside a hook for the same sleep, or if calls are nested too
    /// deeply.
    pub(crate) fn wake(&self, asleep: SleepId) -> bool {
        self.descriptor.fire();
        let task_is_woken = self.driver_task.get().is_none_or(|task| self.wake_task(asleep, task));
        self.wake_owner(asleep) && task_is_woken
    }

    /// Wakes the task that drives the owner. Returns false in the same cases as
    /// [`wake`](Self::wake).
    #[cold]
    fn wake_task(&self, asleep: SleepId, task: &TryLock<Option<Arc<Waker>>>) -> bool {
        let Some(waker) = task.try_with(|task| task.clone()) else { return false };
        let mut has_woken = waker.is_none();
        self.call_unless_nested(asleep, || {
            self.catch_panic(PanicPlace::Wake, || {
                if let Some(waker) = waker {
                    waker.wake_by_ref();
                }
                has_woken = true;
            });
        });
        has_woken
    }

    /// Sets the task to wake. Only the owner calls this. Returns false if another thread is waking
    /// the task at this moment.
    pub(crate) fn set_driver_task(&self, task: Option<&Waker>) -> bool {
        let place = self.driver_task.get_or_init(|| TryLock::new(None));
        let is_set = |set: &mut Option<Arc<Waker>>| match (set, task) {
            (Some(set), Some(task)) => set.will_wake(task),
            (None, None) => true,
            _ => false,
        };
        if place.try_with(is_set) == Some(true) {
            return true;
        }
        // Cloning and dropping a waker run user code, so both happen outside of the lock.
        let mut task = task.map(|task| Arc::new(task.clone()));
        let was_set = place.try_with(|set| mem::swap(set, &mut task)).is_some();
        catch_panic_silently(|| drop(task));
        was_set
    }

    fn wake_owner(&self, asleep: SleepId) -> bool {
        match &self.wake {
            WakeMethod::Hook(hook) => {
                let mut has_woken = false;
                self.call_unless_nested(asleep, || {
                    self.catch_panic(PanicPlace::Wake, || {
                        hook();
                        has_woken = true;
                    });
                });
                has_woken
            }
            // If the lock is taken, another thread is about to unpark the owner, or the owner is
            // about to announce its next sleep, after which it checks for requests.
            WakeMethod::Unpark(sleeper) => {
                // Unparks after releasing the lock: the woken thread may run at once, and must not
                // find the lock taken.
                let sleeper = sleeper.try_with(|sleeper| sleeper.clone());
                sleeper.inspect(Thread::unpark).is_some()
            }
        }
    }

    /// Runs `call`, which calls a hook, unless this thread is already calling a hook of this shard
    /// for the same sleep, or its calls are nested too deeply. So a hook may send requests to its
    /// own shard, directly or through another shard's hook, without being called inside itself.
    fn call_unless_nested(&self, asleep: SleepId, call: impl FnOnce()) {
        let this = Some((ptr::from_ref(self).addr(), asleep));
        // `HOOK_CALLS` has no destructor, so it is still usable while other thread-locals are
        // destroyed.
        let _ = HOOK_CALLS.try_with(|called| {
            let outside = called.iter().take_while(|hook| hook.get().is_some());
            let is_inside = outside.clone().any(|hook| hook.get() == this);
            if let Some(place) = called.get(outside.count()).filter(|_| !is_inside) {
                place.set(this);
                call();
                place.set(None);
            }
        });
    }

    /// Makes the default wake-up unpark the calling thread. Returns false if another thread is
    /// waking the owner at this moment.
    pub(crate) fn set_sleeper(&self) -> bool {
        let WakeMethod::Unpark(sleeper) = &self.wake else { return true };
        let remember = |sleeper: &mut Thread| {
            let this = this_thread();
            if sleeper.id() != this.id() {
                *sleeper = this;
            }
        };
        sleeper.try_with(remember).is_some()
    }

    /// Runs user code and catches its panic.
    #[inline]
    pub(crate) fn catch_panic(&self, place: PanicPlace, run: impl FnOnce()) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
            self.report_panic(place, payload);
        }
    }

    /// Drops a payload and catches its panic.
    #[inline]
    pub(crate) fn drop_catching_panic<T>(&self, payload: T) {
        if mem::needs_drop::<T>() {
            self.catch_panic(PanicPlace::Drop, || drop(payload));
        }
    }

    pub(crate) fn panic_count(&self) -> u64 {
        // Relaxed: an independent counter.
        self.panic_count.load(Ordering::Relaxed)
    }

    /// Counts and reports a panic that was caught.
    #[cold]
    pub(crate) fn report_panic(&self, place: PanicPlace, payload: Box<dyn Any + Send>) {
        // Relaxed: a counter, to which other threads add when a wake or a remote cancel panics.
        self.panic_count.fetch_add(1, Ordering::Relaxed);
        let report = PanicReport { place, payload: &*payload };
        let hook = || {
            if let Some(hook) = &self.panic {
                hook(&report);
            }
        };
        catch_panic_silently(|| trace::caught_panic(&place, report.message()));
        catch_panic_silently(hook);
        catch_panic_silently(|| drop(payload));
    }
}

/// Runs user code and drops the payload of its panic. For cases where nothing can be reported, such
/// as a panic in the panic hook.
pub(crate) fn catch_panic_silently(run: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
        // If the panic payload's destructor panics, leaks the second payload, because dropping it
        // could panic again.
        catch_unwind(AssertUnwindSafe(|| drop(payload))).unwrap_or_else(mem::forget);
    }
}

impl Drop for Hooks {
    fn drop(&mut self) {
        // Dropping the values that a hook captured may panic.
        let wake = mem::replace(&mut self.wake, WakeMethod::Hook(Arc::new(|| ())));
        let panic = self.panic.take();
        let task = self.driver_task.take();
        catch_panic_silently(|| drop(wake));
        catch_panic_silently(|| drop(task));
        catch_panic_silently(|| drop(panic));
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").field("panicked", &self.panic_count()).finish_non_exhaustive()
    }
}
