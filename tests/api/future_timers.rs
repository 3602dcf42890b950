//! Sleeps on the timers of other threads: polled, moved and dropped on any thread, and what happens
//! when such a timer is full or its thread ends.

use std::{
    future,
    task::Poll,
    thread,
    time::{Duration, Instant},
};

use corewheel::{AddErrorReason, Core, Cores, Counts, future::Timers, local_timer};

use crate::support::{
    HOUR, Lockstep, Poller, TICK, block_on, on_a_thread, panic_message, wait_until,
};

const SHUT_DOWN: Poll<Result<(), AddErrorReason>> = Poll::Ready(Err(AddErrorReason::ShutDown));

fn start(count: usize) -> (Lockstep<()>, Timers) {
    let cores = Lockstep::start(count);
    let timers = Timers::new(&cores.shards);
    (cores, timers)
}

fn counts(cores: &Lockstep<()>, core: usize) -> Counts {
    cores.on(core, |()| local_timer().counts())
}

fn live(cores: &Lockstep<()>) -> Vec<u64> {
    (0..cores.shards.len()).map(|core| counts(cores, core).live).collect()
}

#[test]
fn a_future_that_is_ready_at_once_reaches_no_other_thread() {
    let (cores, timers) = start(1);
    let poller = Poller::new();
    assert_eq!(poller.poll(&mut timers.timeout(TICK, future::ready(5))), Poll::Ready(Ok(5)));
    assert!(poller.poll(&mut timers.sleep(Duration::ZERO)).is_ready());
    assert!(poller.poll(&mut timers.sleep_until(cores.clock.now())).is_ready());
    assert!(timers.interval(TICK).poll_tick(&mut poller.context()).is_ready());
    drop(timers.sleep(TICK));
    cores.turn(0);
    assert_eq!((counts(&cores, 0).added, poller.clones()), (0, 0));
}

// ---- the choice of a timer

#[test]
fn a_thread_uses_its_own_timer_or_else_one_of_the_others() {
    let (cores, timers) = start(3);
    // In each order, so that the first of them is not always the own one.
    for first in 0..3 {
        let timers = Timers::new(&[&cores.shards[first..], &cores.shards[..first]].concat());
        for core in 0..3 {
            let timers = timers.clone();
            cores.on(core, move |()| {
                let (poller, before) = (Poller::new(), local_timer().len());
                let sleep = poller.pending(timers.sleep(TICK));
                assert_eq!((local_timer().len(), poller.clones()), (before + 1, 1));
                drop(sleep);
                assert_eq!((local_timer().len(), poller.clones()), (before, 0), "at once");
            });
        }
    }
    // This thread has no timer at first, and then one that is not among them.
    for has_timer in [false, true] {
        assert!(!has_timer || local_timer().is_empty());
        let sleeps: Vec<_> = (0..10).map(|_| Poller::new().pending(timers.sleep(TICK))).collect();
        cores.settle();
        let mut live = live(&cores);
        live.sort_unstable();
        assert_eq!(live, [0, 0, 10]);
        drop(sleeps);
        cores.settle();
    }
    assert!(panic_message(|| Timers::new(&[])).contains("no timer to wait for"));
}

#[test]
fn threads_spread_over_the_timers() {
    let (cores, timers) = start(2);
    let poll = || on_a_thread(|| Poller::new().pending(timers.sleep(TICK)));
    let _sleeps: Vec<_> = (0..20).map(|_| poll()).collect();
    cores.settle();
    // Threads of other tests come between them, so the halves need not be equal.
    assert!(live(&cores).iter().all(|&live| live > 0), "{:?}", live(&cores));
}

/// Starting at the own timer, so that not all go to the first.
#[test]
fn a_full_timer_passes_its_sleeps_to_the_next() {
    let cores: Lockstep<()> = Lockstep::start_with(3, |config| config.limit(2));
    let (timers, poller) = (Timers::new(&cores.shards), Poller::new());
    let mut sleeps = Vec::new();
    for (own, count, expected) in [(1, 4, [0, 2, 2]), (2, 2, [2, 2, 2])] {
        let (timers, poller) = (timers.clone(), poller.clone());
        let polled = move |_| poller.pending(timers.sleep(TICK));
        sleeps.extend(cores.on(own, move |()| (0..count).map(polled).collect::<Vec<_>>()));
        cores.settle();
        assert_eq!(live(&cores), expected, "from {own}");
    }
    let refused = timers.sleep(TICK).poll_elapsed(&mut poller.context());
    assert_eq!(refused, Poll::Ready(Err(AddErrorReason::Full)));
    cores.clock.advance(TICK);
    cores.settle();
    assert_eq!(poller.woken(), 6);
}

// ---- the end of a thread

#[test]
fn a_sleep_on_a_thread_that_ends_is_woken_and_moves_to_another() {
    let (mut cores, timers) = start(2);
    let pollers = [(); 10].map(|()| Poller::new());
    let mut sleeps: Vec<_> = Vec::new();
    for (at, poller) in pollers.iter().enumerate() {
        sleeps.push(poller.pending(timers.sleep(TICK * 5)));
        // Half of them have arrived when the thread ends.
        if at == 5 {
            cores.settle();
        }
    }
    let used = (0..2).find(|&core| counts(&cores, core).live > 0).expect("one of them");
    cores.end(used);
    let woken = || pollers.each_ref().map(Poller::woken);
    assert_eq!(woken(), [1; 10]);
    assert!(sleeps.iter_mut().zip(&pollers).all(|(sleep, poller)| poller.poll(sleep).is_pending()));
    cores.clock.advance(TICK * 4);
    cores.settle();
    assert_eq!(woken(), [1; 10], "not early");
    cores.clock.advance(TICK);
    cores.settle();
    assert_eq!(woken(), [2; 10]);
    assert!(sleeps.iter_mut().zip(&pollers).all(|(sleep, poller)| poller.poll(sleep).is_ready()));
    drop(pollers[0].pending(timers.sleep(TICK)));
    cores.end(1 - used);
    let mut last = timers.sleep(TICK);
    assert_eq!([(); 2].map(|()| last.poll_elapsed(&mut pollers[0].context())), [SHUT_DOWN; 2]);
}

/// Each shard has its own clock, with its own origin.
#[test]
fn a_deadline_is_kept_on_the_clock_of_another_thread() {
    let start = || {
        let turns = |core: Core| {
            while !core.is_stopping() {
                local_timer().turn();
                thread::sleep(Duration::from_micros(200));
            }
        };
        Cores::builder().shards(1).start(turns).expect("a thread")
    };
    let end = |core: Cores<()>| {
        core.stop();
        assert!(core.join().iter().all(Result::is_ok));
    };
    let first = start();
    thread::sleep(Duration::from_millis(20));
    let second = start();
    let timers = Timers::new(&[first.shards(), second.shards()].concat());
    let poller = Poller::new();
    let deadline = Instant::now() + Duration::from_millis(150);
    let (mut sleep, mut never) = (timers.sleep_until(deadline), timers.sleep(Duration::MAX));
    assert!(poller.poll(&mut sleep).is_pending() && poller.poll(&mut never).is_pending());
    // Whether or not this thread had the timer.
    end(first);
    let is_pending = poller.poll(&mut sleep).is_pending();
    let off = sleep.deadline().max(deadline) - sleep.deadline().min(deadline);
    assert!(off <= Duration::from_micros(1), "{off:?}");
    assert!(poller.poll(&mut never).is_pending());
    if is_pending {
        block_on(&mut sleep);
    }
    assert!(Instant::now() >= deadline);
    end(second);
}

// ---- timers that own their threads

#[test]
fn the_threads_of_timers_end_with_the_last_clone_and_the_last_future() {
    let timers = Timers::start(2).expect("threads");
    let shards = timers.shards().to_vec();
    assert_eq!((shards.len(), Timers::start(0).expect("a thread").shards().len()), (2, 1));
    let (clone, mut sleep) = (timers.clone(), timers.sleep(HOUR));
    assert!(Poller::new().poll(&mut sleep).is_pending());
    drop(timers);
    let live = || shards.iter().filter(|shard| shard.try_add(HOUR, || ()).is_ok()).count();
    drop(clone);
    thread::sleep(Duration::from_millis(20));
    assert_eq!(live(), 2, "a future waits there");
    drop(sleep);
    wait_until("the threads have ended", || live() == 0);
}
