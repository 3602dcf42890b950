//! Tests for runtimes that drive their thread's wheel.

#[path = "wake_ups.rs"]
pub(crate) mod wake_ups;

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    mem,
    panic::{self, AssertUnwindSafe},
    pin::Pin,
    rc::Rc,
    sync::mpsc,
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};

use corewheel::{future::sleep, local_timer};

pub(crate) type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Runs a task in a runtime that drives this thread's wheel. Returns false without such a runtime.
pub(crate) trait Run: Fn(Task<'_>) -> bool + Clone + Send + 'static {}

impl<F: Fn(Task<'_>) -> bool + Clone + Send + 'static> Run for F {}

pub(crate) fn on_a_thread<R: Send + 'static>(test: impl FnOnce() -> R + Send + 'static) -> R {
    thread::spawn(test).join().expect("no panic")
}

/// `spawn` is called in the runtime, and spawns a task there.
pub(crate) fn assert_drives_the_wheel(run: impl Run, spawn: fn(Task<'static>)) {
    for test in [assert_fires_in_order_and_never_early, assert_fires_more_than_a_turn_takes] {
        let run = run.clone();
        on_a_thread(move || run(Box::pin(test())));
    }
    assert_continues_with_earlier_timers(run.clone());
    assert_leaves_no_driver(run.clone());
    assert_ends_before_its_tasks_wait(run.clone(), spawn);
    assert_is_woken_from_other_threads(run);
}

/// A wait that would never end must panic, even if the runtime has created the thread's wheel.
fn assert_leaves_no_driver(run: impl Run) {
    on_a_thread(move || {
        if run(Box::pin(sleep(Duration::from_millis(1)))) {
            let mut late = sleep(Duration::from_secs(1));
            let polled = panic::catch_unwind(AssertUnwindSafe(|| {
                Pin::new(&mut late).poll(&mut Context::from_waker(Waker::noop()))
            }));
            assert!(polled.is_err(), "a driver is left");
        }
    });
}

/// A runtime may still poll tasks after the end of the main future. The waits of these tasks must
/// not panic.
fn assert_ends_before_its_tasks_wait(run: impl Run, spawn: fn(Task<'static>)) {
    on_a_thread(move || {
        run(Box::pin(async move {
            for yields in 0..5 {
                spawn(Box::pin(async move {
                    for _ in 0..yields {
                        yield_once().await;
                    }
                    sleep(Duration::from_millis(5)).await;
                }));
            }
        }));
    });
}

async fn yield_once() {
    let mut was_polled = false;
    poll_fn(|cx| {
        if mem::replace(&mut was_polled, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn assert_fires_in_order_and_never_early() -> Task<'static> {
    Box::pin(async {
        let order = Rc::new(RefCell::new(Vec::new()));
        for millis in [30, 10, 0, 20] {
            let (order, begun) = (Rc::clone(&order), Instant::now());
            local_timer().add(Duration::from_millis(millis), move || {
                assert!(begun.elapsed() >= Duration::from_millis(millis), "early");
                order.borrow_mut().push(millis);
            });
        }
        for millis in [10, 25] {
            let (begun, delay) = (Instant::now(), Duration::from_millis(millis));
            sleep(delay).await;
            assert!(begun.elapsed() >= delay, "early");
        }
        assert_eq!(order.take(), [0, 10, 20, 30]);
    })
}

fn assert_fires_more_than_a_turn_takes() -> Task<'static> {
    Box::pin(async {
        let fired = Rc::new(Cell::new(0));
        for _ in 0..10_000 {
            let fired = Rc::clone(&fired);
            local_timer().add(Duration::from_millis(5), move || fired.set(fired.get() + 1));
        }
        while fired.get() < 10_000 {
            sleep(Duration::from_millis(1)).await;
        }
    })
}

thread_local! {
    static IS_NOTIFIED: Cell<bool> = const { Cell::new(false) };
    static WAKER: Cell<Option<Waker>> = const { Cell::new(None) };
}

/// Completes [`notified`] on this thread.
fn notify() {
    IS_NOTIFIED.set(true);
    WAKER.take().into_iter().for_each(Waker::wake);
}

/// Waits for [`notify`], without a timer, which would hide a lost wake-up.
async fn notified() {
    poll_fn(|cx| {
        WAKER.set(Some(cx.waker().clone()));
        if IS_NOTIFIED.take() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Adds a timer before the first runtime starts, and another one before the second runtime starts.
fn assert_continues_with_earlier_timers(run: impl Run) {
    on_a_thread(move || {
        local_timer().add(Duration::from_millis(3), notify);
        let task = async {
            notified().await;
            local_timer().add(Duration::from_millis(10), notify);
        };
        if run(Box::pin(task)) {
            run(Box::pin(notified()));
        }
    });
}

fn assert_is_woken_from_other_threads(run: impl Run) {
    let (sender, shard) = mpsc::channel();
    let thread = thread::spawn(move || {
        run(Box::pin(async {
            sender.send(local_timer().shard_ref()).expect("the test waits");
            notified().await;
        }));
    });
    // If this system has no such runtime, no shard is sent.
    if let Ok(shard) = shard.recv() {
        wake_ups::assert_no_wake_up_is_lost(&shard, 1, 2_000);
        shard.run(notify);
    }
    thread.join().expect("no panic");
}
