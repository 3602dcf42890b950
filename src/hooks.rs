//! The user's hooks, and the fence around the user's code: a panic stays where it happened (P6).

use std::{
    any::Any,
    cell::Cell,
    fmt, mem,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
};

use crate::{
    descriptor::WakeDescriptor,
    limits::HOOKS_NESTED_MAX,
    parker::Asleep,
    sync::{AtomicU64, Ordering, Thread, TryLock, per_thread, this_thread},
    trace,
};

/// What a panic in a callback, a destructor, the wake hook or a delayed operation was; see [`Config::on_panic`](crate::Config::on_panic).
pub struct PanicReport<'a> {
    place: PanicPlace,
    payload: &'a (dyn Any + Send),
}

/// Where a panic was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PanicPlace {
    /// A callback, while it ran.
    Callback,
    /// A callback or payload that was dropped because its timer was cancelled or its shard ended; a key or an operation of a purgatory.
    Drop,
    /// The hook that wakes a sleeping owner.
    Wake,
    /// A delayed operation, while it looked at its condition or completed.
    Operation,
}

impl PanicReport<'_> {
    /// Which of the user's code panicked.
    pub fn place(&self) -> PanicPlace {
        self.place
    }

    /// What was thrown, as [`std::panic::catch_unwind`] gives it.
    pub fn payload(&self) -> &(dyn Any + Send) {
        self.payload
    }

    /// The message of the panic, if it has one, as those of `panic!` have.
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

pub(crate) type WakeHook = Box<dyn Fn() + Send + Sync>;
pub(crate) type PanicHook = Box<dyn Fn(&PanicReport<'_>) + Send + Sync>;

/// What a shard calls of the user's besides callbacks.
pub(crate) struct Hooks {
    wake: Wake,
    descriptor: WakeDescriptor,
    panic: Option<PanicHook>,
    panicked: AtomicU64,
}

/// How the owner is woken.
enum Wake {
    Hook(WakeHook),
    /// By default the thread that announced the sleep is unparked: a shard may have moved to another thread since it was
    /// made. Nobody waits for this lock; see the two places that try it.
    Unpark(TryLock<Thread>),
}

/// A wake hook that is being called: whose, and for which sleep.
type Called = Cell<Option<(usize, Asleep)>>;

per_thread! {
    /// The wake hooks that this thread is in, the outermost one first.
    static CALLED: [Called; HOOKS_NESTED_MAX] = [const { Cell::new(None) }; HOOKS_NESTED_MAX];
}

impl Hooks {
    pub(crate) fn new(wake: Option<WakeHook>, panic: Option<PanicHook>) -> Self {
        let wake = wake.map_or_else(|| Wake::Unpark(TryLock::new(this_thread())), Wake::Hook);
        Self { wake, descriptor: WakeDescriptor::default(), panic, panicked: AtomicU64::new(0) }
    }

    /// Returns the descriptor that every wake-up fires.
    #[allow(dead_code, reason = "only `TimerFd` opens it")]
    pub(crate) fn descriptor(&self) -> &WakeDescriptor {
        &self.descriptor
    }

    /// Wakes the owner from a sleep. On any thread. False if the hook has panicked, is being called for that sleep by this thread
    /// already, or would be one too many inside others.
    pub(crate) fn wake(&self, asleep: Asleep) -> bool {
        self.descriptor.fire();
        match &self.wake {
            Wake::Hook(hook) => {
                let mut has_woken = false;
                self.once_inside(asleep, || {
                    self.isolate(PanicPlace::Wake, || {
                        hook();
                        has_woken = true;
                    });
                });
                has_woken
            }
            // If it is taken, either another thread is about to unpark it, or the owner is about to announce its next sleep and will
            // look for requests after that.
            Wake::Unpark(sleeper) => {
                // Not while it is locked: who is woken might run at once, in this thread's stead, and find it so.
                let sleeper = sleeper.try_with(|sleeper| sleeper.clone());
                sleeper.inspect(Thread::unpark).is_some()
            }
        }
    }

    /// Calls the hook, unless it is what this thread is doing already on behalf of that sleep: a hook may ask something of its shard,
    /// or of another one whose hook does, and is not called inside itself for that.
    fn once_inside(&self, asleep: Asleep, call: impl FnOnce()) {
        let this = Some((ptr::from_ref(self).addr(), asleep));
        // It has no destructor, and so outlasts those of the thread.
        let _ = CALLED.try_with(|called| {
            let outside = called.iter().take_while(|hook| hook.get().is_some());
            let is_inside = outside.clone().any(|hook| hook.get() == this);
            if let Some(place) = called.get(outside.count()).filter(|_| !is_inside) {
                place.set(this);
                call();
                place.set(None);
            }
        });
    }

    /// The calling thread is going to sleep: remembers whom to unpark. False if a wake is under way at this moment.
    pub(crate) fn sleeper_is_this_thread(&self) -> bool {
        let Wake::Unpark(sleeper) = &self.wake else { return true };
        let remember = |sleeper: &mut Thread| {
            let this = this_thread();
            if sleeper.id() != this.id() {
                *sleeper = this;
            }
        };
        sleeper.try_with(remember).is_some()
    }

    /// Runs the user's code and keeps its panic in.
    #[inline]
    pub(crate) fn isolate(&self, place: PanicPlace, run: impl FnOnce()) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
            self.report(place, payload);
        }
    }

    /// Drops a payload of the user's and keeps its panic in.
    #[inline]
    pub(crate) fn isolate_drop<T>(&self, payload: T) {
        if mem::needs_drop::<T>() {
            self.isolate(PanicPlace::Drop, || drop(payload));
        }
    }

    /// How many panics were kept in.
    pub(crate) fn panicked(&self) -> u64 {
        // Relaxed: a counter, read for its own sake.
        self.panicked.load(Ordering::Relaxed)
    }

    #[cold]
    pub(crate) fn report(&self, place: PanicPlace, payload: Box<dyn Any + Send>) {
        // Relaxed: a counter; other threads add to it when a wake panics.
        self.panicked.fetch_add(1, Ordering::Relaxed);
        let report = PanicReport { place, payload: &*payload };
        let hook = || {
            if let Some(hook) = &self.panic {
                hook(&report);
            }
        };
        contain(|| trace::caught_panic(&place, report.message()));
        contain(hook);
        contain(|| drop(payload));
    }
}

/// Runs the user's code and keeps its panic in, where nothing can be reported: the thread is exiting, or the code is itself a
/// reaction to a panic.
pub(crate) fn contain(run: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
        // What its destructor throws is of no use, and dropping that could throw again.
        catch_unwind(AssertUnwindSafe(|| drop(payload))).unwrap_or_else(mem::forget);
    }
}

impl Drop for Hooks {
    fn drop(&mut self) {
        // What a hook captured may panic when it is dropped, and this may be any thread that had the last reference.
        let wake = mem::replace(&mut self.wake, Wake::Hook(Box::new(|| ())));
        let panic = self.panic.take();
        contain(|| drop(wake));
        contain(|| drop(panic));
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").field("panicked", &self.panicked()).finish_non_exhaustive()
    }
}
