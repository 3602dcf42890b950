//! Sleeps on the timers of other threads: polled, moved and dropped from anywhere, and what becomes of them when such a thread is
//! full or ends.

use std::{
    future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    thread,
    time::{Duration, Instant},
};

use corewheel::{
    AddErrorReason, Cores, Counts,
    future::{Interval, Remote, Sleep, Timeout, Timers, VirtualTime, sleep},
    local_timer,
};

use crate::{
    common::{TICK, in_virtual_time, on_a_thread},
    lockstep::Lockstep,
    polling::{Poller, block_on},
};

fn cores(count: usize) -> Lockstep<()> {
    Lockstep::start(count)
}

fn counts(cores: &Lockstep<()>, core: usize) -> Counts {
    cores.on(core, |()| local_timer().counts())
}

/// Where the timers are, by core.
fn live(cores: &Lockstep<()>) -> Vec<u64> {
    (0..cores.shards.len()).map(|core| counts(cores, core).live).collect()
}

#[test]
fn a_sleep_fires_on_the_thread_that_has_its_timer() {
    let cores = cores(1);
    let timers = Timers::new(&cores.shards);
    let (mut sleep, poller) = (timers.sleep(TICK * 3), Poller::new());
    assert_eq!(sleep.deadline(), cores.clock.now() + TICK * 3);
    assert!(poller.poll(&mut sleep).is_pending());
    for _ in 0..2 {
        cores.clock.advance(TICK);
        cores.turn(0);
        assert!(poller.poll(&mut sleep).is_pending() && !sleep.is_elapsed());
    }
    cores.clock.advance(TICK);
    assert_eq!(cores.turn(0).fired, 1);
    assert!(sleep.is_elapsed());
    assert_eq!((poller.woken(), poller.poll(&mut sleep), poller.clones()), (1, Poll::Ready(()), 0));
}

#[test]
fn it_may_go_from_thread_to_thread() {
    fn is_free<T: Send + Unpin + 'static>() {}
    fn is_shared<T: Send + Sync + Clone>() {}
    is_free::<Sleep<Remote>>();
    is_free::<Interval<Remote>>();
    is_free::<Timeout<future::Ready<()>, Remote>>();
    is_shared::<Timers>();
    let origin = if cfg!(feature = "origins") { size_of::<usize>() } else { 0 };
    assert!(size_of::<Sleep<Remote>>() <= 64 + origin, "{}", size_of::<Sleep<Remote>>());

    let cores = cores(1);
    let mut sleep = Timers::new(&cores.shards).sleep(TICK);
    let pollers = [(); 4].map(|()| Poller::new());
    for poller in &pollers {
        sleep = on_a_thread(|| {
            assert!(poller.poll(&mut sleep).is_pending());
            sleep
        });
    }
    cores.clock.advance(TICK);
    cores.turn(0);
    assert_eq!(pollers.each_ref().map(Poller::woken), [0, 0, 0, 1]);
    assert_eq!(
        pollers.each_ref().map(Poller::clones),
        [0; 4],
        "those of the others went with the cancelled timers"
    );
}

#[test]
fn a_drop_is_a_cancel_from_wherever_it_happens() {
    let cores = cores(1);
    let timers = Timers::new(&cores.shards);
    let (mut sleep, poller) = (timers.sleep(TICK), Poller::new());
    assert!(poller.poll(&mut sleep).is_pending());
    cores.turn(0);
    on_a_thread(move || drop(sleep));
    assert_eq!(
        (counts(&cores, 0).held, poller.clones()),
        (1, 1),
        "the waker goes when the owner turns"
    );
    cores.clock.advance(TICK);
    let turn = cores.turn(0);
    assert_eq!((turn.fired, turn.collected, turn.live), (0, 1, 0));
    assert_eq!((poller.woken(), poller.clones()), (0, 0));
}

#[test]
fn what_is_ready_at_once_reaches_no_other_thread() {
    let cores = cores(1);
    let (timers, poller) = (Timers::new(&cores.shards), Poller::new());
    assert_eq!(poller.poll(&mut timers.timeout(TICK, future::ready(5))), Poll::Ready(Ok(5)));
    assert!(poller.poll(&mut timers.sleep(Duration::ZERO)).is_ready());
    assert!(poller.poll(&mut timers.sleep_until(cores.clock.now())).is_ready());
    assert!(timers.interval(TICK).poll_tick(&mut poller.context()).is_ready());
    drop(timers.sleep(TICK));
    cores.turn(0);
    assert_eq!((counts(&cores, 0).added, poller.clones()), (0, 0));
}

#[test]
fn timeouts_and_intervals_work_as_on_their_own_thread() {
    let cores = cores(1);
    let (timers, poller) = (Timers::new(&cores.shards), Poller::new());
    let start = cores.clock.now();
    let mut timeouts = [
        timers.timeout(TICK * 2, future::pending::<()>()),
        timers.timeout_at(start + TICK * 2, future::pending::<()>()),
    ];
    let mut intervals = [timers.interval_at(start + TICK, TICK * 2), timers.interval(TICK)];
    let mut ticks = [0; 2];
    for _ in 0..=4 {
        for (interval, ticks) in intervals.iter_mut().zip(&mut ticks) {
            *ticks += usize::from(interval.poll_tick(&mut poller.context()).is_ready());
            assert!(interval.poll_tick(&mut poller.context()).is_pending());
        }
        let is_over = cores.clock.now() >= start + TICK * 2;
        for timeout in &mut timeouts {
            assert_eq!(poller.poll(timeout).is_ready(), is_over);
        }
        cores.clock.advance(TICK);
        cores.turn(0);
    }
    assert_eq!(ticks, [2, 5]);
}

#[test]
fn a_reset_moves_the_timer_where_it_is() {
    let cores = cores(1);
    let (mut sleep, poller) = (Timers::new(&cores.shards).sleep(TICK), Poller::new());
    assert!(poller.poll(&mut sleep).is_pending());
    sleep.reset_after(TICK * 5);
    cores.clock.advance(TICK * 4);
    cores.turn(0);
    assert_eq!(poller.woken(), 0);
    sleep.reset(cores.clock.now());
    cores.turn(0);
    assert_eq!((poller.woken(), poller.poll(&mut sleep)), (1, Poll::Ready(())));
    assert_eq!(counts(&cores, 0).added, 1);
    sleep.reset_after(TICK);
    assert!(poller.poll(&mut sleep).is_pending());
    cores.clock.advance(TICK);
    cores.turn(0);
    assert_eq!((poller.woken(), counts(&cores, 0).added), (2, 2));
}

#[test]
fn a_thread_takes_its_own_timer_if_that_is_among_them_and_else_keeps_to_one() {
    let cores = cores(3);
    let timers = Timers::new(&cores.shards);
    // In each order, as one that takes no account of whose they are might be lucky with one.
    let orders = (0..3).map(|first| [&cores.shards[first..], &cores.shards[..first]].concat());
    for (core, shards) in orders.flat_map(|shards| (0..3).map(move |core| (core, shards.clone()))) {
        let timers = Timers::new(&shards);
        cores.on(core, move |()| {
            let (mut sleep, before) = (timers.sleep(TICK), local_timer().len());
            assert!(Poller::new().poll(&mut sleep).is_pending());
            assert_eq!(local_timer().len(), before + 1);
            drop(sleep);
            assert_eq!(local_timer().len(), before, "at once");
        });
    }
    // This thread has no timer of its own, and then one that is not among them.
    for has_timer in [false, true] {
        assert!(!has_timer || local_timer().is_empty());
        let mut sleeps: Vec<_> = (0..10).map(|_| timers.sleep(TICK)).collect();
        assert!(sleeps.iter_mut().all(|sleep| Poller::new().poll(sleep).is_pending()));
        cores.settle();
        let mut live = live(&cores);
        live.sort_unstable();
        assert_eq!(live, [0, 0, 10]);
        drop(sleeps);
        cores.settle();
    }
}

#[test]
fn threads_spread_over_the_timers() {
    let cores = cores(2);
    let timers = Timers::new(&cores.shards);
    let poll_one = || {
        let mut sleep = timers.sleep(TICK);
        assert!(Poller::new().poll(&mut sleep).is_pending());
        sleep
    };
    let sleeps: Vec<_> = (0..20).map(|_| on_a_thread(poll_one)).collect();
    cores.settle();
    // Other tests start threads meanwhile; that all of these are every other one is not to be expected.
    assert!(live(&cores).iter().all(|&live| live > 0), "{:?}", live(&cores));
    drop(sleeps);
}

#[test]
fn who_finds_a_timer_full_goes_to_the_next_one() {
    let cores: Lockstep<()> = Lockstep::start_with(2, |config| config.limit(2));
    let (timers, poller) = (Timers::new(&cores.shards), Poller::new());
    let mut sleeps: Vec<_> = (0..5).map(|_| timers.sleep(TICK)).collect();
    let polls: Vec<_> =
        sleeps.iter_mut().map(|sleep| sleep.poll_elapsed(&mut poller.context())).collect();
    assert_eq!(polls[..4], [Poll::Pending; 4]);
    assert_eq!(polls[4], Poll::Ready(Err(AddErrorReason::Full)));
    cores.settle();
    assert_eq!(live(&cores), [2, 2]);
    cores.clock.advance(TICK);
    cores.settle();
    assert_eq!(poller.woken(), 4);
}

/// Not to the first one, to which all would go.
#[test]
fn the_next_one_is_the_one_after() {
    let cores: Lockstep<()> = Lockstep::start_with(3, |config| config.limit(2));
    let mut sleeps = Vec::new();
    for (own, count, expected) in [(1, 4, [0, 2, 2]), (2, 2, [2, 2, 2])] {
        let timers = Timers::new(&cores.shards);
        let wait = move |_| {
            let mut sleep = timers.sleep(TICK);
            assert!(Poller::new().poll(&mut sleep).is_pending());
            sleep
        };
        sleeps.extend(cores.on(own, move |()| (0..count).map(wait).collect::<Vec<_>>()));
        cores.settle();
        assert_eq!(live(&cores), expected, "from {own}");
    }
}

#[test]
fn who_waits_at_a_thread_that_ends_is_woken_and_goes_on_at_another() {
    let mut cores = cores(2);
    let timers = Timers::new(&cores.shards);
    let pollers = [(); 10].map(|()| Poller::new());
    let mut sleeps = [(); 10].map(|()| timers.sleep(TICK * 5));
    for (sleep, poller) in sleeps.iter_mut().zip(&pollers) {
        assert!(poller.poll(sleep).is_pending());
        // Some have arrived when it ends, and some have not.
        if poller.clones() % 2 == 0 {
            cores.settle();
        }
    }
    cores.settle();
    let first =
        live(&cores).iter().position(|&live| live == 10).expect("one thread keeps to one timer");
    cores.end(first);
    assert_eq!(pollers.each_ref().map(Poller::woken), [1; 10]);
    assert!(sleeps.iter_mut().zip(&pollers).all(|(sleep, poller)| poller.poll(sleep).is_pending()));
    cores.clock.advance(TICK * 4);
    cores.settle();
    assert_eq!(pollers.each_ref().map(Poller::woken), [1; 10], "not early");
    cores.clock.advance(TICK);
    cores.settle();
    assert_eq!(pollers.each_ref().map(Poller::woken), [2; 10]);
    assert!(sleeps.iter_mut().zip(&pollers).all(|(sleep, poller)| poller.poll(sleep).is_ready()));
    // New ones find the other at once.
    assert!(pollers[0].poll(&mut timers.sleep(TICK)).is_pending());
    cores.end(1 - first);
    let mut last = timers.sleep(TICK);
    assert_eq!(
        last.poll_elapsed(&mut pollers[0].context()),
        Poll::Ready(Err(AddErrorReason::ShutDown))
    );
    assert_eq!(
        last.poll_elapsed(&mut pollers[0].context()),
        Poll::Ready(Err(AddErrorReason::ShutDown))
    );
}

#[test]
fn nothing_hangs_when_the_last_thread_has_ended() {
    let mut cores = cores(1);
    let (timers, poller) = (Timers::new(&cores.shards), Poller::new());
    let mut arrived = timers.timeout(TICK * 5, future::pending::<()>());
    assert!(poller.poll(&mut arrived).is_pending());
    cores.settle();
    let mut on_its_way = timers.sleep(TICK * 5);
    assert!(poller.poll(&mut on_its_way).is_pending());
    cores.end(0);
    assert_eq!(poller.woken(), 2);
    let Poll::Ready(Err(elapsed)) = poller.poll(&mut arrived) else {
        panic!("it would wait for ever")
    };
    assert_eq!(elapsed.without_timer(), Some(AddErrorReason::ShutDown));
    assert!(elapsed.to_string().starts_with("given up without a timer: "));
    assert_eq!(
        on_its_way.poll_elapsed(&mut poller.context()),
        Poll::Ready(Err(AddErrorReason::ShutDown))
    );
    // Whose time has come is over, whether or not there was a thread to say so.
    cores.clock.advance(TICK * 5);
    assert_eq!(poller.poll(&mut on_its_way), Poll::Ready(()));
    assert_eq!(poller.clones(), 0);
}

/// Each shard has its own clock, with its own origin.
#[test]
fn a_deadline_stays_what_it_is_on_another_threads_clock() {
    let shard = || {
        let (tell, told) = std::sync::mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            tell.send(local_timer().shard_ref()).expect("somebody waits");
            while !stopped.load(Ordering::Relaxed) {
                local_timer().turn();
                thread::sleep(Duration::from_micros(200));
            }
        });
        let shard = told.recv().expect("it has a timer");
        let end = move || {
            stop.store(true, Ordering::Relaxed);
            thread.join().expect("no panic");
        };
        (shard, end)
    };
    let (first, end_first) = shard();
    thread::sleep(Duration::from_millis(20));
    let (second, end_second) = shard();
    let timers = Timers::new(&[first, second]);
    let deadline = Instant::now() + Duration::from_millis(300);
    let (mut sleep, mut never, poller) =
        (timers.sleep_until(deadline), timers.sleep(Duration::MAX), Poller::new());
    assert!(poller.poll(&mut sleep).is_pending() && poller.poll(&mut never).is_pending());
    // Whichever it was.
    end_first();
    let is_off = |at: Instant| at.max(deadline) - at.min(deadline) > Duration::from_micros(1);
    let is_pending = poller.poll(&mut sleep).is_pending();
    assert!(!is_off(sleep.deadline()), "{:?}", sleep.deadline());
    assert!(poller.poll(&mut never).is_pending());
    if is_pending {
        block_on(&mut sleep);
    }
    assert!(Instant::now() >= deadline);
    end_second();
}

#[test]
fn a_pinned_core_wakes_tasks_of_other_threads_in_real_time() {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let cores = Cores::builder()
        .shards(2)
        .start(move |_| {
            while !stopped.load(Ordering::Relaxed) {
                local_timer()
                    .prepare_sleep()
                    .timeout()
                    .map_or_else(thread::park, thread::park_timeout);
                local_timer().turn();
            }
        })
        .expect("threads");
    let timers = Timers::new(cores.shards());
    thread::scope(|scope| {
        for number in 0..4 {
            let timers = &timers;
            scope.spawn(move || {
                for round in 0..20 {
                    let (begun, delay) =
                        (Instant::now(), Duration::from_millis((number + round) % 4));
                    block_on(timers.sleep(delay));
                    assert!(begun.elapsed() >= delay);
                    assert!(block_on(timers.timeout(delay, future::pending::<()>())).is_err());
                }
            });
        }
    });
    stop.store(true, Ordering::Relaxed);
    // One that is awake may have seen it already, and ended.
    cores.shards().iter().for_each(|shard| drop(shard.try_run(|| ())));
    cores.join();
}

#[test]
#[should_panic(expected = "no timer to wait for")]
fn timers_are_at_least_one() {
    let _ = Timers::new(&[]);
}

/// As everywhere: what runs on the timer's own thread is of this thread, also by way of `Timers`.
#[test]
fn on_its_own_thread_a_drop_gives_the_waker_back_at_once() {
    in_virtual_time(|clock| {
        let timers = Timers::new(&[local_timer().shard_ref()]);
        let (mut sleep, poller) = (timers.sleep(TICK), Poller::new());
        assert!(poller.poll(&mut sleep).is_pending());
        drop(sleep);
        assert_eq!((poller.clones(), local_timer().len()), (0, 0));
        let mut fires = timers.sleep(TICK);
        assert!(poller.poll(&mut fires).is_pending());
        clock.advance(TICK);
        local_timer().turn();
        assert_eq!((poller.woken(), poller.poll(&mut fires)), (1, Poll::Ready(())));
    });
}

/// Tasks of several virtual cores, each on all the others' timers, in orders that seeds decide.
#[test]
fn sleeps_across_cores_end_at_their_moment_in_any_order() {
    let seeds = if cfg!(miri) { 2 } else { 100 };
    for seed in 0..seeds {
        let time = VirtualTime::with_cores(3, seed);
        let timers = Timers::new(time.shards());
        let tasks = [0, 1, 2].map(|core| {
            let timers = timers.clone();
            let (clock, other) =
                (time.clock().clone(), Timers::new(&time.shards()[(core + 1) % 3..][..1]));
            time.spawn_on(core, move || async move {
                let mut moments = Vec::new();
                for step in 1..=3 {
                    sleep(TICK * step).await;
                    other.sleep(TICK * 2).await;
                    assert!(other.timeout(TICK * 3, timers.sleep(TICK * 9)).await.is_err());
                    moments.push(clock.elapsed());
                }
                moments
            })
        });
        assert_eq!(time.run(), 0);
        for task in tasks {
            assert_eq!(task.take(), Some(vec![TICK * 6, TICK * 13, TICK * 21]), "seed {seed}");
        }
        time.settle();
        assert!(time.elapsed() == TICK * 21);
    }
}
