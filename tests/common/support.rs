//! Helpers for tests in virtual time, and re-exports of the other helpers.
#![allow(dead_code, reason = "no test uses all of it")]

use std::{
    cell::RefCell,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use corewheel::{
    AddErrorReason, Cancel, Config, Counts, ManualClock, ShardRef, TimerHandle, When, local_timer,
};

pub(crate) use crate::{common::*, lockstep::*, operation::*, polling::*};

/// Number of queued messages of one priority that wakes a sleeping owner (P8).
pub(crate) const WAKE_AT_QUEUED_MESSAGES: usize = 1_024;

/// Leaks a value on purpose. The stored address hides the leak from a leak sanitizer.
pub(crate) fn leak_hidden<T>(value: T) {
    static LEAKED_ADDRESSES: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let address = Box::into_raw(Box::new(value)).expose_provenance();
    LEAKED_ADDRESSES.lock().expect("no push panics").push(address);
}

/// Runs `test` in virtual time. Asserts that the counts add up and no callback has panicked.
pub(crate) fn in_checked_virtual_time<R: Send>(test: impl FnOnce(&ManualClock) -> R + Send) -> R {
    in_virtual_time(|clock| run_and_check_counts(|| test(clock)))
}

pub(crate) fn run_and_check_counts<R>(test: impl FnOnce() -> R) -> R {
    let (result, counts) = (test(), local_timer().counts());
    assert_counts_add_up(counts);
    assert_eq!(counts.panicked, 0, "a callback has panicked");
    result
}

/// Runs `test` in virtual time, with a wake hook that counts its calls.
pub(crate) fn with_counted_wakes<R: Send>(
    test: impl FnOnce(&ManualClock, &Counter, &ShardRef) -> R + Send,
) -> R {
    let wakes = Counter::default();
    let test = |clock: &ManualClock| {
        run_and_check_counts(|| test(clock, &wakes, &local_timer().shard_ref()))
    };
    on_configured_thread(Config::new().wake_hook(wakes.callback()), test)
}

/// Runs `test` on a new thread; fails if it hangs.
pub(crate) fn assert_ends_soon(test: impl FnOnce() + Send + 'static) {
    let (end_sender, ended) = mpsc::channel();
    let thread = thread::spawn(move || {
        test();
        end_sender.send(()).expect("the test waits");
    });
    assert_ne!(ended.recv_timeout(TOO_LONG), Err(mpsc::RecvTimeoutError::Timeout), "it hangs");
    thread.join().expect("no assertion failed");
}

/// Starts a thread that calls `prepare` once, and the returned closure repeatedly. Returns the
/// thread's shard, and a function that ends the thread.
pub(crate) fn spawn_repeating_owner<S: FnMut()>(
    config: Config,
    prepare: impl FnOnce() -> S + Send + 'static,
) -> (ShardRef, impl FnOnce()) {
    let is_over = Arc::new(AtomicBool::new(false));
    let is_over_clone = Arc::clone(&is_over);
    let (shard, thread) = spawn_owner(config, move || {
        let mut step = prepare();
        while !is_over_clone.load(Ordering::Relaxed) {
            step();
        }
    });
    let woken = shard.clone();
    let end_thread = move || {
        woken.run(move || is_over.store(true, Ordering::Relaxed));
        thread.join().expect("no panic");
    };
    (shard, end_thread)
}

pub(crate) fn call_from_another_thread<R: Send>(ask: impl FnOnce(&ShardRef) -> R + Send) -> R {
    let shard = local_timer().shard_ref();
    on_a_thread(|| ask(&shard))
}

pub(crate) fn turn_at_each_tick(clock: &ManualClock, ticks: u32) {
    (0..ticks).for_each(|_| _ = turn_after(clock, 1));
}

pub(crate) fn assert_stale(handle: TimerHandle) {
    assert_eq!((handle.cancel(), handle.is_pending()), (Cancel::Ended, false));
    assert!(!handle.reset(Duration::ZERO));
}

/// Asserts that `try_add` returns the callback, and that `add` drops it and panics.
pub(crate) fn assert_refuses(shard: &ShardRef, reason: AddErrorReason) {
    let runs = Counter::default();
    let error = shard.try_add(TICK, runs.callback()).expect_err("the shard is full or has ended");
    assert_eq!((error.reason(), runs.other_refs()), (reason, 1));
    error.into_inner()();
    assert_eq!((runs.get(), runs.other_refs()), (1, 0));
    assert!(panics(|| shard.add(TICK, runs.callback())));
    assert_eq!(runs.other_refs(), 0);
}

pub(crate) fn assert_counts_add_up(counts: Counts) {
    let ended = counts.fired + counts.cancelled + counts.handed_back;
    assert_eq!(counts.added, counts.live + ended, "{counts:?}");
}

pub(crate) fn panic_message<R>(run: impl FnOnce() -> R) -> String {
    let panic = catch_unwind(AssertUnwindSafe(run)).map(drop).expect_err("it panics");
    let literal = panic.downcast_ref::<&str>().map(|&message| message.to_owned());
    literal.or_else(|| panic.downcast_ref::<String>().cloned()).expect("a message")
}

pub(crate) fn panics<R>(run: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(run)).is_err()
}

type Add = fn(Duration, Box<dyn Fn()>);

pub(crate) const ADD_CALLS: [(&str, Add); 7] = [
    ("add", |delay, run| _ = local_timer().add(delay, run)),
    ("instant", |delay, run| _ = local_timer().add(local_timer().now() + delay, run)),
    ("try_add", |delay, run| _ = local_timer().try_add(delay, run)),
    ("add_local", |delay, run| _ = local_timer().add_local(delay, run)),
    ("slack", |delay, run| _ = local_timer().add(When::after(delay).slack(TICK / 1_000), run)),
    ("spread", |delay, run| _ = local_timer().add(When::after(delay).spread(Duration::ZERO), run)),
    ("add_periodic", |delay, run| _ = local_timer().add_periodic(delay, run)),
];

#[derive(Clone, Default)]
pub(crate) struct Counter(Arc<AtomicUsize>);

impl Counter {
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    pub(crate) fn take(&self) -> usize {
        self.0.swap(0, Ordering::SeqCst)
    }

    pub(crate) fn increment(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn callback(&self) -> impl Fn() + Clone + Send + Sync + use<> {
        let counter = self.clone();
        move || _ = counter.increment()
    }

    /// Returns a value whose drop increments the count.
    pub(crate) fn on_drop(&self) -> OnDrop<impl Fn() + Send + Sync + use<>> {
        OnDrop(self.callback())
    }

    /// Returns the number of other clones and callbacks that share the count.
    pub(crate) fn other_refs(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }

    /// Returns how often `ask`, run on another thread, wakes the sleeping owner.
    pub(crate) fn wakes_during_sleep(&self, ask: impl FnOnce() + Send) -> usize {
        let sleep = local_timer().prepare_sleep();
        assert_ne!(sleep.timeout(), Some(Duration::ZERO));
        on_a_thread(ask);
        self.take()
    }
}

/// Runs `prepare` on a new thread, and the returned closure after that thread's wheel has ended.
pub(crate) fn run_after_wheel_ends<R: Send + 'static, F: FnMut() -> R + 'static>(
    prepare: impl FnOnce() -> F + Send,
) -> R {
    type AtExit = RefCell<Option<OnDrop<Box<dyn FnMut()>>>>;
    thread_local! {
        static FIRST: AtExit = const { RefCell::new(None) };
        static LAST: AtExit = const { RefCell::new(None) };
    }
    let (sender, answers) = mpsc::channel();
    on_a_thread(move || {
        // `FIRST` is initialized before the wheel, and `LAST` after it, so one of them outlives the
        // wheel.
        FIRST.with(|_| ());
        let run = Rc::new(RefCell::new(prepare()));
        for place in [&FIRST, &LAST] {
            let (run, sender) = (Rc::clone(&run), sender.clone());
            let at_exit = move || {
                if local_timer().try_add(TICK, || ()).is_err() {
                    sender.send((run.borrow_mut())()).expect("the test listens");
                }
            };
            place.set(Some(OnDrop(Box::new(at_exit))));
        }
    });
    answers.recv().expect("one of the two is dropped after the wheel")
}

pub(crate) struct OnDrop<F: FnMut()>(pub(crate) F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

pub(crate) struct Log<T>(Arc<Mutex<Vec<T>>>);

impl<T> Clone for Log<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: 'static> Log<T> {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    pub(crate) fn write(&self, entry: T) {
        self.0.lock().expect("no write panics").push(entry);
    }

    pub(crate) fn writer(&self, entry: T) -> impl FnOnce() + use<T> {
        let log = self.clone();
        move || log.write(entry)
    }

    pub(crate) fn take(&self) -> Vec<T> {
        mem::take(&mut self.0.lock().expect("no write panics"))
    }
}
