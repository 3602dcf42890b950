//! Tests that `DelayQueue` behaves as tokio-util documents, and follows virtual time. Most tests
//! run in virtual time.
#![cfg(any(target_os = "linux", target_os = "android"))]

mod common;
#[path = "../../../tests/common/polling.rs"]
mod polling;

use std::{
    cell::Cell,
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    rc::Rc,
    sync::mpsc,
    task::Poll,
    thread,
};

use corewheel_tokio::{
    run,
    time::{self, DelayQueue, Duration, Instant, delay_queue::Expired},
};
use futures_core::Stream;
use tokio::task;

use common::run_paused;
use polling::Poller;

const SECOND: Duration = Duration::from_secs(1);

async fn next<T>(queue: &mut DelayQueue<T>) -> Option<Expired<T>> {
    poll_fn(|cx| queue.poll_expired(cx)).await
}

fn panics<R>(call: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(call)).is_err()
}

#[test]
fn entries_expire_in_deadline_order() {
    run_paused(|| async {
        let (mut queue, start) = (DelayQueue::new(), Instant::now());
        let keys = [3, 1, 2].map(|delay| queue.insert(delay, delay * SECOND));
        let late = queue.insert_at(4, start + 4 * SECOND);
        assert_eq!((queue.len(), queue.is_empty()), (4, false));
        assert_eq!(queue.deadline(&keys[0]), start + 3 * SECOND);
        for (delay, key) in [(1, keys[1]), (2, keys[2]), (3, keys[0]), (4, late)] {
            assert_eq!(queue.peek(), Some(key));
            let mut expired = next(&mut queue).await.expect("an entry");
            assert_eq!(start.elapsed(), delay * SECOND);
            assert_eq!((*expired.get_ref(), expired.key()), (delay, key));
            assert_eq!(expired.deadline(), start + delay * SECOND);
            *expired.get_mut() += 1;
            assert_eq!(expired.into_inner(), delay + 1);
        }
        assert!(next(&mut queue).await.is_none());
        assert_eq!((queue.peek(), queue.is_empty()), (None, true));
    });
}

#[test]
fn past_and_zero_delays_expire_at_once_and_far_ones_later() {
    run_paused(|| async {
        let (mut queue, start) = (DelayQueue::new(), Instant::now());
        time::advance(SECOND).await;
        queue.insert("never", Duration::MAX);
        queue.insert("in three years", 3 * 365 * 86_400 * SECOND);
        queue.insert_at("past", start);
        queue.insert("now", Duration::ZERO);
        let mut first = [(); 2].map(|()| "");
        for value in &mut first {
            *value = next(&mut queue).await.expect("an entry").into_inner();
        }
        first.sort_unstable();
        assert_eq!((first, start.elapsed()), (["now", "past"], SECOND));
        assert_eq!(next(&mut queue).await.expect("an entry").into_inner(), "in three years");
        assert_eq!(start.elapsed(), SECOND + 3 * 365 * 86_400 * SECOND);
        let mut interval = time::interval(Duration::MAX);
        interval.tick().await;
        time::advance(100 * 365 * 86_400 * SECOND).await;
        assert!(poll_fn(|cx| Poll::Ready(queue.poll_expired(cx))).await.is_pending());
        assert!(poll_fn(|cx| Poll::Ready(interval.poll_tick(cx))).await.is_pending());
    });
}

#[test]
fn entries_can_be_removed_and_moved() {
    run_paused(|| async {
        let (mut queue, start) = (DelayQueue::new(), Instant::now());
        let [earlier, later, gone] =
            ["earlier", "later", "gone"].map(|name| queue.insert(name, 5 * SECOND));
        queue.reset(&earlier, 2 * SECOND);
        queue.reset_at(&later, start + 8 * SECOND);
        assert_eq!(queue.deadline(&later), start + 8 * SECOND);
        let removed = queue.remove(&gone);
        assert_eq!((removed.deadline(), removed.into_inner()), (start + 5 * SECOND, "gone"));
        assert!(queue.try_remove(&gone).is_none());
        for (name, delay) in [("earlier", 2), ("later", 8)] {
            let expired = next(&mut queue).await.expect("an entry");
            assert_eq!(start.elapsed(), delay * SECOND);
            assert_eq!((expired.deadline(), expired.into_inner()), (Instant::now(), name));
        }
    });
}

#[test]
fn only_try_remove_accepts_a_stale_key() {
    run_paused(|| async {
        let mut queue = DelayQueue::new();
        let stale = queue.insert(1, SECOND);
        next(&mut queue).await;
        let live = queue.insert(2, SECOND);
        assert_ne!(stale, live);
        assert!(queue.try_remove(&stale).is_none());
        assert!(panics(|| queue.remove(&stale)));
        assert!(panics(|| queue.reset(&stale, SECOND)));
        assert!(panics(|| queue.reset_at(&stale, Instant::now())));
        assert!(panics(|| queue.deadline(&stale)));
        assert_eq!(queue.remove(&live).into_inner(), 2);
    });
}

#[test]
fn an_earlier_deadline_wakes_the_polling_task() {
    run_paused(|| async {
        let poller = Poller::new();
        let mut cx = poller.context();
        let mut queue = DelayQueue::new();
        assert!(matches!(queue.poll_expired(&mut cx), Poll::Ready(None)));
        let key = queue.insert("first", 10 * SECOND);
        assert_eq!(poller.take_wake_count(), 1, "the queue was empty");
        assert!(queue.poll_expired(&mut cx).is_pending());
        queue.insert("later", 20 * SECOND);
        assert_eq!(poller.take_wake_count(), 0);
        queue.insert("earlier", 5 * SECOND);
        assert_eq!(poller.take_wake_count(), 1);
        assert!(queue.poll_expired(&mut cx).is_pending());
        queue.reset(&key, SECOND);
        assert_eq!(poller.take_wake_count(), 1);
        assert!(queue.poll_expired(&mut cx).is_pending());
        time::advance(SECOND).await;
        assert_eq!(poller.take_wake_count(), 1);
        let Poll::Ready(Some(expired)) = queue.poll_expired(&mut cx) else { panic!("not due") };
        assert_eq!(expired.into_inner(), "first");
    });
}

#[test]
fn an_insert_wakes_the_task_that_emptied_the_queue() {
    run_paused(|| async {
        let poller = Poller::new();
        let mut cx = poller.context();
        let mut queue = DelayQueue::new();
        queue.insert("first", SECOND);
        assert!(queue.poll_expired(&mut cx).is_pending());
        time::advance(SECOND).await;
        assert_eq!(poller.take_wake_count(), 1);
        assert!(matches!(queue.poll_expired(&mut cx), Poll::Ready(Some(_))));
        queue.insert("second", SECOND);
        assert_eq!(poller.take_wake_count(), 1, "the latest poll returned the last entry");
        time::advance(SECOND).await;
        assert!(matches!(queue.poll_expired(&mut cx), Poll::Ready(Some(_))));
        assert!(matches!(queue.poll_expired(&mut cx), Poll::Ready(None)));
        queue.clear();
        assert_eq!(poller.take_wake_count(), 0, "the queue was empty already");
        queue.insert("third", SECOND);
        assert_eq!(poller.take_wake_count(), 1, "the latest poll returned `None`");
    });
}

#[test]
fn the_stream_yields_again_after_none() {
    run_paused(|| async {
        let mut queue = DelayQueue::new();
        for round in 0..3 {
            queue.insert(round, SECOND);
            assert_eq!(queue.size_hint(), (1, None));
            let expired = poll_fn(|cx| Pin::new(&mut queue).poll_next(cx)).await;
            assert_eq!(expired.expect("an entry").into_inner(), round);
            assert!(poll_fn(|cx| Pin::new(&mut queue).poll_next(cx)).await.is_none());
        }
    });
}

#[test]
fn clear_drops_values_and_keeps_the_queue_usable() {
    run_paused(|| async {
        let (value, mut queue) = (Rc::new(()), DelayQueue::with_capacity(100));
        assert!(queue.capacity() >= 100);
        time::advance(SECOND).await;
        let stale = queue.insert(Rc::clone(&value), SECOND);
        queue.insert(Rc::clone(&value), 3 * SECOND);
        queue.clear();
        assert_eq!((Rc::strong_count(&value), queue.len()), (1, 0));
        assert!(queue.capacity() >= 100, "`clear` keeps the capacity");
        assert!(next(&mut queue).await.is_none());
        let start = Instant::now();
        queue.insert(value, 2 * SECOND);
        assert!(queue.try_remove(&stale).is_none(), "a key from before `clear`");
        assert!(next(&mut queue).await.is_some());
        assert_eq!(start.elapsed(), 2 * SECOND);
        queue.shrink_to_fit();
        assert_eq!(queue.capacity(), 0);
        queue.reserve(50);
        assert!(queue.capacity() >= 50);
        queue.compact();
        assert_eq!(queue.capacity(), 0);
    });
}

#[test]
fn clear_empties_the_queue_even_if_a_destructor_panics() {
    struct PanicOnDrop;
    impl Drop for PanicOnDrop {
        fn drop(&mut self) {
            panic!("a destructor panics, as it should here");
        }
    }
    run_paused(|| async {
        let mut queue = DelayQueue::new();
        queue.insert(Some(PanicOnDrop), SECOND);
        queue.insert(None, 2 * SECOND);
        assert!(panics(|| queue.clear()));
        assert_eq!(queue.len(), 0);
        let start = Instant::now();
        let key = queue.insert(None, 3 * SECOND);
        assert_eq!(next(&mut queue).await.expect("an entry").key(), key);
        assert_eq!(start.elapsed(), 3 * SECOND);
        assert!(next(&mut queue).await.is_none());
    });
}

/// The first poll arms a `Sleep`, which elapses in real time before the entry is due in virtual
/// time.
#[test]
fn a_queue_polled_before_pause_continues_in_virtual_time() {
    let (done, waits) = mpsc::channel();
    thread::spawn(move || {
        run(async {
            let mut queue = DelayQueue::new();
            queue.insert((), Duration::from_millis(50));
            assert!(poll_fn(|cx| Poll::Ready(queue.poll_expired(cx))).await.is_pending());
            time::pause();
            let deadline = next(&mut queue).await.expect("an entry").deadline();
            assert!(deadline <= Instant::now(), "early");
        })
        .expect("a runtime");
        done.send(()).expect("the test receives");
    });
    waits.recv_timeout(20 * SECOND).expect("no spinning and no panic");
}

/// The clock ends 584 years after its creation.
#[test]
fn an_entry_after_the_end_of_the_clock_is_pending() {
    let (done, waits) = mpsc::channel();
    thread::spawn(move || {
        run_paused(|| async {
            let mut queue = DelayQueue::new();
            queue.insert((), Duration::from_secs(1_000 * 365 * 86_400));
            time::advance(Duration::MAX).await;
            let poll = poll_fn(|cx| Poll::Ready(queue.poll_expired(cx)));
            // Unconstrained: otherwise tokio's budget would end a poll that spins.
            assert!(task::unconstrained(poll).await.is_pending());
        });
        done.send(()).expect("the test receives");
    });
    waits.recv_timeout(20 * SECOND).expect("no spinning and no panic");
}

#[test]
fn a_task_that_takes_many_due_entries_yields() {
    run_paused(|| async {
        const ENTRIES: u32 = 1_000;
        let mut queue = DelayQueue::new();
        (0..ENTRIES).for_each(|entry| _ = queue.insert(entry, SECOND));
        time::advance(SECOND).await;
        let other_has_run = Rc::new(Cell::new(false));
        let has_run = Rc::clone(&other_has_run);
        task::spawn_local(async move { has_run.set(true) });
        for _ in 0..ENTRIES {
            assert!(next(&mut queue).await.is_some());
        }
        assert!(other_has_run.get());
    });
}
