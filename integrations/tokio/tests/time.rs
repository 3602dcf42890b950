//! Tests that `corewheel_tokio::time` behaves as `tokio::time` documents, except for the documented
//! differences. Most tests run in virtual time.
#![cfg(any(target_os = "linux", target_os = "android"))]

mod common;
#[path = "../../../tests/common/polling.rs"]
mod polling;

use std::{
    cell::Cell,
    future::{pending, poll_fn, ready},
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    rc::Rc,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
    thread,
};

use common::run_paused;
use corewheel::{Config, ManualClock, Shard, local_timer};
use corewheel_tokio::{
    run,
    time::{self, Duration, Instant, IntervalStream, MissedTickBehavior},
};
use futures_core::Stream;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime,
    sync::Notify,
    task,
};

const SECOND: Duration = Duration::from_secs(1);

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn panic_of<R>(call: impl FnOnce() -> R) -> String {
    let panic = catch_unwind(AssertUnwindSafe(call)).err().expect("a panic");
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).expect("a message")
}

#[test]
fn futures_are_send_and_sync() {
    fn assert_send_sync<T: Send + Sync + 'static>() {}
    assert_send_sync::<time::Sleep>();
    assert_send_sync::<time::Timeout<()>>();
    assert_send_sync::<time::Interval>();
    assert_send_sync::<time::Instant>();
    assert_send_sync::<time::error::Elapsed>();
}

#[test]
fn past_and_zero_sleeps_are_ready_at_the_first_poll() {
    run_paused(|| async {
        assert!(poll_once(&mut time::sleep(Duration::ZERO)).is_ready());
        time::advance(SECOND).await;
        assert!(poll_once(&mut time::sleep_until(Instant::now() - SECOND)).is_ready());
    });
}

/// Code written for tokio may call `reset` on a temporary `Pin`, or on one that is not `mut`.
#[test]
fn sleep_is_reset_through_every_kind_of_pin() {
    fn consume(sleep: Pin<&mut time::Sleep>, deadline: Instant) {
        sleep.reset(deadline);
    }

    run_paused(|| async {
        let start = Instant::now();
        let mut boxed = Box::pin(time::sleep(SECOND));
        boxed.as_mut().reset(start + 2 * SECOND);
        boxed.as_mut().await;
        assert_eq!(start.elapsed(), 2 * SECOND);
        consume(boxed.as_mut(), start + 3 * SECOND);
        boxed.await;
        assert_eq!(start.elapsed(), 3 * SECOND);
        let mut unpinned = time::sleep(SECOND);
        Pin::new(&mut unpinned).reset(start + 5 * SECOND);
        (&mut unpinned).await;
        assert_eq!(start.elapsed(), 5 * SECOND);
        assert!(unpinned.is_elapsed());
    });
}

#[test]
fn timeout_polls_its_future_first() {
    run_paused(|| async {
        assert_eq!(time::timeout(Duration::ZERO, ready(7)).await, Ok(7));
        assert_eq!(time::timeout_at(Instant::now() - SECOND, ready(7)).await, Ok(7));
        let start = Instant::now();
        let slow = async {
            time::sleep(2 * SECOND).await;
            "slow"
        };
        assert_eq!(time::timeout(2 * SECOND, slow).await, Ok("slow"), "ready at the deadline");
        assert_eq!(start.elapsed(), 2 * SECOND);
    });
}

#[test]
fn timeout_ends_with_elapsed() {
    run_paused(|| async {
        let start = Instant::now();
        let elapsed = time::timeout(SECOND, pending::<()>()).await.expect_err("a timeout");
        assert_eq!(start.elapsed(), SECOND);
        assert_eq!(elapsed.to_string(), "deadline has elapsed");
        assert_eq!(io::Error::from(elapsed).kind(), io::ErrorKind::TimedOut);
        let mut timeout = time::timeout(SECOND, ready(7));
        *timeout.get_mut() = ready(8);
        assert_eq!(timeout.get_ref().clone().into_inner(), 8);
        assert_eq!(timeout.into_inner().await, 8);
    });
}

#[test]
fn sleeps_and_timeouts_use_the_cooperative_budget_and_end_without_it() {
    run_paused(|| async {
        let other = task::spawn_local(async { Instant::now() });
        for _ in 0..1_000 {
            time::sleep(Duration::ZERO).await;
        }
        assert!(other.is_finished(), "no yield in 1,000 sleeps");
        let other = task::spawn_local(async { Instant::now() });
        for _ in 0..1_000 {
            assert!(time::timeout(Duration::ZERO, pending::<()>()).await.is_err());
        }
        assert!(other.is_finished(), "no yield in 1,000 timeouts");
    });
    let runtime = runtime::Builder::new_current_thread().build().expect("a runtime");
    let greedy = async {
        loop {
            task::coop::consume_budget().await;
        }
    };
    let greedy: Result<(), _> = runtime.block_on(time::timeout(millis(5), greedy));
    assert!(greedy.is_err());
}

#[test]
fn interval_is_a_stream() {
    run_paused(|| async {
        let start = Instant::now();
        let mut ticks = IntervalStream::new(time::interval(SECOND));
        for tick in 0..3 {
            let next = poll_fn(|cx| Pin::new(&mut ticks).poll_next(cx)).await;
            assert_eq!(next, Some(start + tick * SECOND));
        }
        let interval = ticks.into_inner();
        assert_eq!(interval.period(), SECOND);
        assert_eq!(interval.missed_tick_behavior(), MissedTickBehavior::Burst);
    });
}

#[test]
fn a_period_of_zero_panics() {
    let message = panic_of(|| time::interval(Duration::ZERO));
    assert!(message.contains("non-zero"), "{message}");
}

#[test]
fn a_driven_thread_uses_its_own_wheel() {
    let test = || {
        run(async {
            let added = local_timer().counts().added;
            time::sleep(millis(2)).await;
            assert_eq!(local_timer().counts().added, added + 1);
        })
        .expect("a runtime");
        // The wheel has no driver after `run`.
        let runtime = runtime::Builder::new_current_thread().build().expect("a runtime");
        let added = local_timer().counts().added;
        runtime.block_on(time::sleep(millis(2)));
        assert_eq!(local_timer().counts().added, added);
    };
    thread::spawn(test).join().expect("no panic");
}

#[test]
fn sleeps_in_a_multi_thread_runtime_are_never_early() {
    let runtime =
        runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
    runtime.block_on(async {
        let mut tasks = task::JoinSet::new();
        for round in 0..200 {
            let delay = Duration::from_micros(round * 97);
            tasks.spawn(async move {
                let start = Instant::now();
                let mut sleep = Box::pin(time::sleep(delay));
                task::yield_now().await;
                sleep.as_mut().await;
                assert!(start.elapsed() >= delay, "early");
            });
        }
        while let Some(task) = tasks.join_next().await {
            task.expect("no panic");
        }
    });
}

#[test]
fn set_default_timers_fails_after_the_first_future() {
    drop(time::sleep(Duration::ZERO));
    let timers = corewheel::future::Timers::start(1).expect("a thread");
    let refused =
        time::set_default_timers(timers.clone()).expect_err("a future has used the defaults");
    assert!(refused.to_string().contains("already set"), "{refused}");
    assert_eq!(refused.into_timers().shards(), timers.shards());
    let refused = time::set_default_timers(timers).map_err(io::Error::from).expect_err("as before");
    assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
}

#[test]
fn pause_and_resume_panic_in_the_wrong_state() {
    run_paused(|| async {
        assert!(panic_of(time::pause).starts_with("the clock is paused already"));
        time::resume();
        assert!(panic_of(time::resume).starts_with("the clock is not paused"));
    });
    let runtime = runtime::Builder::new_multi_thread().worker_threads(1).build().expect("one");
    let message = runtime.block_on(async { panic_of(time::pause) });
    assert!(message.contains("current-thread runtime"), "{message}");
    assert!(panic_of(time::pause).contains("current-thread runtime"), "no runtime");
}

#[test]
fn a_shard_on_the_threads_clock_sees_virtual_time() {
    let turn_and_take_expired = |shard: &mut Shard<u32>| {
        shard.turn();
        shard.next_expired().map(|expired| expired.payload)
    };
    let shard = || Shard::with_config(Config::new().clock(time::clock())).expect("a valid config");
    run_paused(move || async move {
        let mut shard = shard();
        shard.add(SECOND * 3_600, 7);
        time::sleep(SECOND * 3_599).await;
        assert_eq!(turn_and_take_expired(&mut shard), None);
        time::sleep(SECOND).await;
        assert_eq!(turn_and_take_expired(&mut shard), Some(7));
    });
    // Without virtual time, `clock` returns the clock of the thread's own wheel.
    thread::spawn(move || {
        let clock = ManualClock::new();
        Config::new().clock(&clock).install().expect("the first use");
        let mut shard = shard();
        shard.add(SECOND, 8);
        clock.advance(SECOND);
        assert_eq!(turn_and_take_expired(&mut shard), Some(8));
    })
    .join()
    .expect("no panic");
}

#[test]
fn a_paused_sleep_panics_if_no_hook_advances_the_clock() {
    let test = || {
        let runtime = runtime::Builder::new_current_thread().build().expect("one");
        let sleeps = async {
            time::pause();
            time::sleep(SECOND).await;
        };
        let message = panic_of(|| runtime.block_on(sleeps));
        assert!(message.contains("auto_advance"), "{message}");
        let waits = async {
            let mut queue = time::DelayQueue::new();
            queue.insert((), SECOND);
            poll_fn(|cx| queue.poll_expired(cx)).await;
        };
        let message = panic_of(|| runtime.block_on(waits));
        assert!(message.contains("auto_advance"), "{message}");
        // `advance` works without the hook, even after waits that ended without a panic.
        runtime.block_on(async {
            let wait = || time::timers().sleep(SECOND);
            wait().await;
            time::resume();
            time::sleep(Duration::from_millis(1)).await;
            time::pause();
            wait().await;
            let mut sleep = time::sleep(SECOND);
            assert!(poll_once(&mut sleep).is_pending());
            time::advance(SECOND).await;
            assert!(poll_once(&mut sleep).is_ready());
        });
    };
    thread::spawn(test).join().expect("no panic");
}

#[test]
fn a_wait_in_a_runtime_without_a_hook_does_not_affect_one_with_a_hook() {
    let test = || {
        let without = runtime::Builder::new_current_thread().build().expect("one");
        without.block_on(async {
            time::pause();
            time::timers().sleep(SECOND).await;
        });
        let awaited = Arc::new(Notify::new());
        let notify = Arc::clone(&awaited);
        // Wakes the task before the hook advances the clock.
        let hook = move || {
            time::auto_advance();
            notify.notify_one();
        };
        let with =
            runtime::Builder::new_current_thread().on_thread_park(hook).build().expect("one");
        with.block_on(async {
            awaited.notified().await;
            time::sleep(Duration::ZERO).await;
        });
    };
    thread::spawn(test).join().expect("no panic");
}

/// A turn of the wheel adds at most 1,024 new sleeps.
#[test]
fn advance_fires_many_new_sleeps_in_deadline_order() {
    run_paused(|| async {
        let (start, fired) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
        let new_sleep = |delay| {
            let (mut sleep, fired) = (time::sleep(millis(delay)), Arc::clone(&fired));
            let waker = polling::waker(move || fired.lock().unwrap().push(delay));
            assert!(polling::poll_with(&waker, &mut sleep).is_pending());
            sleep
        };
        let _sleeps: Vec<_> = (1..=2_000).rev().map(new_sleep).collect();
        time::advance(5 * SECOND).await;
        assert_eq!(start.elapsed(), 5 * SECOND);
        assert_eq!(fired.lock().unwrap().len(), 2_000);
        assert!(fired.lock().unwrap().is_sorted());
    });
}

/// tokio's scheduler begins a new round after 61 polls. It then polls tasks that have yielded
/// before tasks that another thread has woken.
#[test]
fn advance_lets_the_woken_tasks_run() {
    run_paused(|| async {
        for others in 0..70 {
            let sleeper = task::spawn_local(time::sleep(SECOND));
            (0..others).for_each(|_| drop(task::spawn_local(async {})));
            let advance = task::spawn_local(async move {
                time::advance(SECOND).await;
                assert!(sleeper.is_finished(), "{others} other tasks");
            });
            advance.await.expect("no panic");
        }
    });
}

#[test]
fn the_clock_advances_only_when_all_tasks_are_idle() {
    run_paused(|| async {
        let start = Instant::now();
        let slept = Rc::new(Cell::new(false));
        let sleeps = Rc::clone(&slept);
        let sleeper = task::spawn_local(async move {
            time::sleep(millis(1)).await;
            sleeps.set(true);
        });
        for _ in 0..500 {
            task::yield_now().await;
        }
        assert!(!slept.get());
        assert_eq!(start.elapsed(), Duration::ZERO);
        sleeper.await.expect("no panic");
        assert_eq!(start.elapsed(), millis(1));
    });
}

/// Returns a server that sends back each byte of one client, and that client.
async fn echo_server_and_client() -> [Pin<Box<dyn Future<Output = ()> + Send>>; 2] {
    let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await.expect("bound");
    let address = listener.local_addr().expect("bound");
    let serve = async move {
        let (mut stream, _) = listener.accept().await.expect("a client");
        let mut byte = [0];
        while stream.read(&mut byte).await.expect("read") > 0 {
            stream.write_all(&byte).await.expect("written");
        }
    };
    let request = async move {
        let mut stream = TcpStream::connect(address).await.expect("connected");
        for byte in 0..50 {
            stream.write_all(&[byte]).await.expect("written");
            let mut answer = [0];
            let answered = time::timeout(60 * SECOND, stream.read_exact(&mut answer)).await;
            answered.expect("no timeout").expect("read");
            assert_eq!(answer, [byte]);
        }
    };
    [Box::pin(serve), Box::pin(request)]
}

#[test]
fn sockets_are_served_before_the_clock_advances() {
    run_paused(|| async {
        let [server, client] = echo_server_and_client().await;
        let (start, served) = (Instant::now(), task::spawn_local(server));
        client.await;
        served.await.expect("no panic");
        assert_eq!(start.elapsed(), Duration::ZERO);
    });
}

async fn assert_exchange_takes_no_time() {
    let [server, client] = echo_server_and_client().await;
    let (start, tasks) = (Instant::now(), [task::spawn(client), task::spawn(server)]);
    for task in tasks {
        task.await.expect("no panic");
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[test]
fn sockets_of_spawned_tasks_are_served_before_the_clock_advances() {
    run_paused(assert_exchange_takes_no_time);
    let on_a_new_thread = thread::spawn(|| {
        let mut runtime = runtime::Builder::new_current_thread();
        let runtime = runtime.enable_io().on_thread_park(time::auto_advance).build();
        runtime.expect("a runtime").block_on(async {
            time::pause();
            assert_exchange_takes_no_time().await;
        });
    });
    on_a_new_thread.join().expect("no panic");
}

#[test]
fn resume_continues_from_the_paused_time() {
    run_paused(|| async {
        let start = Instant::now();
        let mut before = pin!(time::sleep(SECOND + millis(20)));
        assert!(poll_fn(|cx| Poll::Ready(before.as_mut().poll(cx))).await.is_pending());
        time::advance(SECOND).await;
        time::resume();
        assert!(start.elapsed() >= SECOND);
        time::sleep(millis(5)).await;
        assert!(start.elapsed() >= SECOND + millis(5), "early");
        before.await;
        assert!(start.elapsed() >= SECOND + millis(20), "early");
        assert!(start.elapsed() < 3600 * SECOND);
        time::pause();
        let unadvanced_instant = Instant::now();
        time::sleep(3600 * SECOND).await;
        assert_eq!(unadvanced_instant.elapsed(), 3600 * SECOND);
    });
}

#[test]
fn a_paused_sleep_of_duration_max_stays_pending() {
    run_paused(|| async {
        let (done, waits) = tokio::sync::oneshot::channel();
        let other = thread::spawn(move || {
            thread::sleep(millis(20));
            done.send(()).expect("the test receives");
        });
        let start = Instant::now();
        tokio::select! {
            () = time::sleep(Duration::MAX) => unreachable!("the end of time"),
            done = waits => done.expect("no panic"),
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        other.join().expect("no panic");
    });
}

#[test]
fn a_sleep_after_resume_is_not_early() {
    run_paused(|| async {
        time::advance(SECOND).await;
        time::resume();
        thread::sleep(millis(60));
        let start = Instant::now();
        time::sleep(millis(30)).await;
        assert!(start.elapsed() >= millis(30));
    });
}

#[test]
fn timers_that_wake_no_task_do_not_stop_the_clock() {
    run_paused(|| async {
        let mut first = time::sleep(SECOND);
        assert!(poll_once(&mut first).is_pending());
        time::timers().shards()[0].add(SECOND, || ());
        time::sleep(2 * SECOND).await;
        assert!(first.is_elapsed());
    });
}

/// After a turn has found no due timer, a request may arrive before the query for the next
/// deadline.
#[test]
fn requests_of_other_threads_do_not_stop_the_clock() {
    for _ in 0..10 {
        run_paused(|| async {
            let timers = time::timers();
            let other = thread::spawn(move || {
                for _ in 0..10_000 {
                    let mut sleep = timers.sleep(3_600 * SECOND);
                    let _ = sleep.poll_elapsed(&mut Context::from_waker(Waker::noop()));
                }
            });
            for _ in 0..1_000 {
                time::sleep(millis(1)).await;
            }
            other.join().expect("no panic");
        });
    }
}

/// The clock of the thread's wheel begins when `run` makes the wheel.
#[test]
fn an_instant_before_the_clock_stays_a_deadline() {
    let start = Instant::now();
    thread::sleep(millis(20));
    let on_a_new_thread = thread::spawn(move || {
        run(async move {
            assert_eq!(time::sleep_until(start).deadline(), start);
            let mut ticks = time::interval_at(start, millis(10));
            assert_eq!([ticks.tick().await, ticks.tick().await], [start, start + millis(10)]);
        })
    });
    on_a_new_thread.join().expect("no panic").expect("a runtime");
}

#[test]
fn stored_timers_and_clocks_run_after_resume() {
    run_paused(|| async {
        let (timers, clock) = (time::timers(), time::clock());
        let mut shard = Shard::with_config(Config::new().clock(clock)).expect("valid");
        shard.add(millis(5), "due");
        let (paused_at, start) = (timers.now(), std::time::Instant::now());
        time::resume();
        thread::sleep(millis(20));
        assert!(timers.now() >= paused_at + millis(20));
        timers.sleep(millis(30)).await;
        assert!(start.elapsed() >= millis(50), "early: {:?}", start.elapsed());
        shard.turn();
        assert_eq!(shard.next_expired().expect("it is due").payload, "due");
    });
}

#[test]
fn an_interval_created_before_pause_stays_in_real_time() {
    let on_a_new_thread = thread::spawn(|| {
        run(async {
            let mut ticks = time::interval(millis(10));
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks.tick().await;
            time::pause();
            time::advance(3_600 * SECOND).await;
            let three_ticks = async {
                ticks.tick().await;
                ticks.tick().await;
                ticks.reset();
                ticks.tick().await;
            };
            corewheel::future::timeout(10 * SECOND, three_ticks).await.expect("in real time");
        })
    });
    on_a_new_thread.join().expect("no panic").expect("a runtime");
}
