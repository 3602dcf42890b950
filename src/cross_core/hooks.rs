//! The user's hooks, and the functions that run user code and catch its panics (promise P6 in
//! `ARCHITECTURE.md`).
//!
//! A hook may call `process::exit`, which drops the thread's wheel, while scoped threads still use
//! the hook's captures. So a thread calls a hook or a waker through its own `Arc`, which an exit
//! never drops.

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
    limits::NESTED_WAKE_HOOKS_MAX,
    trace,
    util::{
        panics::catch_panic_silently,
        sync::{AtomicU64, Ordering, Thread, TryLock, per_thread, this_thread},
    },
};

/// Describes a panic in user code, for the hook of
/// [`Config::panic_hook`](crate::Config::panic_hook).
///
/// # Examples
///
/// ```
/// use corewheel::{Config, PanicPlace, local_timer};
/// use std::time::Duration;
///
/// Config::new()
///     .panic_hook(|report| {
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
/// let config = Config::new().panic_hook(|report| {
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
    /// A running callback.
    Callback,
    /// The destructor of a callback or payload, after a cancel, at the end of its wheel or at the
    /// drop of its [`ReusableTimer`](crate::ReusableTimer). `Drop` also covers the destructor of a
    /// purgatory's key, operation or group function, or of a driver task's waker.
    Drop,
    /// The hook that wakes a sleeping owner, or the waker of the task that drives the wheel.
    Wake,
    /// A delayed operation that was checking its condition or completing, or the code of its key,
    /// such as `hash`.
    DelayedOperation,
}

impl PanicReport<'_> {
    /// Returns which part of the user's code panicked.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Config;
    ///
    /// let config = Config::new().panic_hook(|report| eprintln!("a panic in {:?}", report.place()));
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
    /// let config = Config::new().panic_hook(|report| {
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

    /// Returns the message of the panic, or `None` if the payload is not a string.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Config;
    ///
    /// let config = Config::new().panic_hook(|report| eprintln!("{:?}", report.message()));
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

/// The user's hooks of a shard, and the means to wake the shard's owner.
#[repr(align(128))]
pub(crate) struct Hooks {
    wake_hook: Option<WakeHook>,
    /// The thread to unpark. A shard may move between threads. So before each sleep that an unpark
    /// must end, the owner stores its present thread. A `TryLock`, so that no thread blocks.
    thread_to_unpark: TryLock<Thread>,
    pub(crate) descriptor: LazyDescriptor,
    /// The waker of the task that drives the wheel, if there is one. The owner sets the waker
    /// before it announces a sleep, so a thread that sees the announcement also sees the waker. A
    /// `OnceLock`, because a `SetOnce` of `util::sync` would add steps to the loom models.
    driver_waker: OnceLock<TryLock<Option<Arc<Waker>>>>,
    panic_hook: Option<PanicHook>,
    panic_count: AtomicU64,
}

/// An unfinished call of a wake hook or of a driver task's waker: the address of the shard's
/// [`Hooks`], and the sleep that the call ends.
type ActiveHookCall = Cell<Option<(usize, SleepId)>>;

per_thread! {
    /// This thread's unfinished calls of hooks, the outermost first.
    static ACTIVE_HOOK_CALLS: [ActiveHookCall; NESTED_WAKE_HOOKS_MAX] =
        [const { Cell::new(None) }; NESTED_WAKE_HOOKS_MAX];
}

impl Hooks {
    pub(crate) fn new(wake_hook: Option<WakeHook>, panic_hook: Option<PanicHook>) -> Self {
        Self {
            wake_hook,
            thread_to_unpark: TryLock::new(this_thread()),
            descriptor: LazyDescriptor::default(),
            driver_waker: OnceLock::new(),
            panic_hook,
            panic_count: AtomicU64::new(0),
        }
    }

    /// Wakes the owner from a sleep: makes its timerfd readable, wakes the driver task, calls the
    /// wake hook, and unparks the owner if [necessary](Self::must_unpark). Any thread may call
    /// this. Returns false if a wake-up step panicked or was omitted. A wake-up step is omitted in
    /// these cases:
    ///
    /// - This thread is inside a hook of this shard for the same sleep.
    /// - This thread is inside `NESTED_WAKE_HOOKS_MAX` nested hooks.
    /// - Another thread holds the lock of the driver task's waker, or of the thread to unpark.
    pub(crate) fn try_wake_owner(&self, sleep: SleepId) -> bool {
        self.descriptor.trigger();
        let is_unparked =
            !self.must_unpark(sleep.owner_has_parked()) || self.try_unpark().is_some();
        let task_is_woken =
            self.driver_waker.get().is_none_or(|waker| self.try_wake_driver_task(sleep, waker));
        let hook = self.wake_hook.clone();
        let hook_is_called =
            hook.is_none_or(|hook| self.call_unless_recursive(sleep, move || hook()));
        is_unparked && hook_is_called && task_is_woken
    }

    /// Wakes the task that drives the wheel, if there is one. Returns false if the task's waker
    /// panicked or was not called.
    #[cold]
    fn try_wake_driver_task(&self, sleep: SleepId, waker: &TryLock<Option<Arc<Waker>>>) -> bool {
        let Some(waker) = waker.try_with_lock(|waker| waker.clone()) else { return false };
        waker.is_none_or(|waker| self.call_unless_recursive(sleep, move || waker.wake_by_ref()))
    }

    /// Sets the waker of the task that drives the wheel; `None` removes it. Only the owner calls
    /// this. If another thread is copying the waker, changes nothing and returns false.
    pub(crate) fn set_driver_waker(&self, mut waker: Option<Arc<Waker>>) -> bool {
        let stored_waker = self.driver_waker.get_or_init(|| TryLock::new(None));
        let was_set = stored_waker.try_with_lock(|old| mem::swap(old, &mut waker)).is_some();
        // Drops the old waker outside of the lock, because the drop may run user code.
        self.drop_catching_panic(waker);
        was_set
    }

    /// Returns true if a wake-up must unpark the owner: there is no wake hook, or the owner has
    /// ever called `PreparedSleep::park`.
    pub(crate) fn must_unpark(&self, owner_has_parked: bool) -> bool {
        owner_has_parked || self.wake_hook.is_none()
    }

    /// Returns true if a wake-up only unparks the owner.
    pub(crate) fn only_unpark_wakes(&self) -> bool {
        self.wake_hook.is_none() && self.driver_waker.get().is_none() && !self.descriptor.is_open()
    }

    /// Unparks the owner, and returns its thread, initially the shard's creator. Returns `None` if
    /// another thread holds the lock of `thread_to_unpark`.
    pub(crate) fn try_unpark(&self) -> Option<Thread> {
        // No wake-up is lost: a thread that holds the lock is about to unpark the owner, or is the
        // owner, which checks for requests before it sleeps. Unparks after releasing the lock, so
        // that the woken thread does not find the lock held.
        let thread = self.thread_to_unpark.try_with_lock(|thread| thread.clone());
        thread.inspect(Thread::unpark)
    }

    /// Calls `hook`, unless this thread is inside `NESTED_WAKE_HOOKS_MAX` hooks, or inside a hook
    /// of this shard for the same sleep. The checks let a hook send requests to its own shard.
    /// Returns false if `hook` was not called or panicked.
    fn call_unless_recursive(&self, sleep: SleepId, hook: impl FnOnce()) -> bool {
        let this_call = Some((ptr::from_ref(self).addr(), sleep));
        // `ACTIVE_HOOK_CALLS` has no destructor, so it is usable while other thread-locals are
        // destroyed.
        let call_result = ACTIVE_HOOK_CALLS.try_with(|calls| {
            let active_calls = calls.iter().take_while(|call| call.get().is_some());
            let is_recursive = active_calls.clone().any(|call| call.get() == this_call);
            let free_cell = calls.get(active_calls.count()).filter(|_| !is_recursive)?;
            free_cell.set(this_call);
            let hook_result = self.catch_panic(PanicPlace::Wake, hook);
            free_cell.set(None);
            hook_result
        });
        call_result.ok().flatten().is_some()
    }

    /// Makes later wake-ups unpark the calling thread, if they [must unpark](Self::must_unpark) the
    /// owner. If another thread is copying the stored thread handle, changes nothing and returns
    /// false.
    pub(crate) fn try_set_thread_to_unpark(&self, owner_has_parked: bool) -> bool {
        if !self.must_unpark(owner_has_parked) {
            return true;
        }
        let store_this_thread = |stored: &mut Thread| {
            let current = this_thread();
            if stored.id() != current.id() {
                *stored = current;
            }
        };
        self.thread_to_unpark.try_with_lock(store_this_thread).is_some()
    }

    /// Runs user code, and catches and reports its panic. Returns `None` after a panic.
    #[inline]
    pub(crate) fn catch_panic<R>(&self, place: PanicPlace, run: impl FnOnce() -> R) -> Option<R> {
        let result = catch_unwind(AssertUnwindSafe(run));
        result.map_err(|payload| self.report_panic(place, payload)).ok()
    }

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

    /// Counts a caught panic, reports it to `trace` and the panic hook, and drops its payload.
    #[cold]
    pub(crate) fn report_panic(&self, place: PanicPlace, payload: Box<dyn Any + Send>) {
        // Relaxed: an independent counter.
        self.panic_count.fetch_add(1, Ordering::Relaxed);
        let report = PanicReport { place, payload: &*payload };
        catch_panic_silently(|| trace::report_caught_panic(&place, report.message()));
        if let Some(hook) = self.panic_hook.clone() {
            catch_panic_silently(move || hook(&report));
        }
        catch_panic_silently(|| drop(payload));
    }
}

impl Drop for Hooks {
    fn drop(&mut self) {
        // Dropping a hook or a waker may panic.
        catch_panic_silently(|| drop(self.wake_hook.take()));
        catch_panic_silently(|| drop(self.driver_waker.take()));
        catch_panic_silently(|| drop(self.panic_hook.take()));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::{
        thread,
        time::{Duration, Instant},
    };

    use super::*;
    use crate::local_timer;

    #[test]
    fn run_until_without_a_driver_task_creates_no_lock_of_a_waker() {
        local_timer().add(Duration::ZERO, || ());
        local_timer().run_until(|| local_timer().is_empty());
        assert!(local_timer().shard_ref().shared.hooks.driver_waker.get().is_none());
    }

    /// A waking thread omits its unpark while another thread holds the lock.
    #[test]
    fn a_thread_that_reads_the_thread_to_unpark_unparks_it() {
        let hooks = Hooks::new(None, None);
        assert_eq!(hooks.try_unpark().map(|thread| thread.id()), Some(thread::current().id()));
        let start = Instant::now();
        thread::park_timeout(Duration::from_secs(10));
        assert!(start.elapsed() < Duration::from_secs(10), "the owner was not unparked");
    }
}
