//! Sleeps on wheels of other threads: the choice of a wheel, full wheels, and ended threads.

use std::{
    future,
    sync::mpsc,
    task::Poll,
    thread,
    time::{Duration, Instant},
};

use corewheel::{AddErrorReason, Core, Cores, Counts, future::Timers, local_timer};

use crate::support::{
    HOUR, Lockstep, Poller, TICK, block_on, on_a_thread, panic_message, wait_until,
};

const SHUT_DOWN: Poll<Result<(), AddErrorReason>> = Poll::Ready(Err(AddErrorReason::ShutDown));

fn start_timers(count: usize) -> (Lockstep<()>, Timers) {
    let cores = Lockstep::start(count);
    let timers = Timers::new(&cores.shards);
    (cores, timers)
}

fn counts(cores: &Lockstep<()>, core: usize) -> Counts {
    cores.run_on(core, |()| local_timer().counts())
}

fn live(cores: &Lockstep<()>) -> Vec<u64> {
    (0..cores.shards.len()).map(|core| counts(cores, core).live).collect()
}

#[test]
fn a_future_ready_at_its_first_poll_adds_no_timer() {
    let (cores, timers) = start_timers(1);
    let poller = Poller::new();
    assert_eq!(poller.poll(&mut timers.timeout(TICK, future::ready(5))), Poll::Ready(Ok(5)));
    assert!(poller.poll(&mut timers.sleep(Duration::ZERO)).is_ready());
    assert!(poller.poll(&mut timers.sleep_until(cores.clock.now())).is_ready());
    assert!(timers.interval(TICK).poll_tick(&mut poller.context()).is_ready());
    assert_eq!(timers.interval(Duration::ZERO).period(), TICK);
    drop(timers.sleep(TICK));
    cores.turn(0);
    assert_eq!((counts(&cores, 0).added, poller.clones()), (0, 0));
}

// ---- the choice of a wheel

#[test]
fn a_thread_uses_its_own_wheel_or_else_a_single_other_one() {
    let (cores, timers) = start_timers(3);
    // Rotates the shards, so that the thread's own shard is not always the first.
    for first in 0..3 {
        let timers = Timers::new(&[&cores.shards[first..], &cores.shards[..first]].concat());
        for core in 0..3 {
            let timers = timers.clone();
            cores.run_on(core, move |()| {
                let (poller, before) = (Poller::new(), local_timer().len());
                let sleep = poller.poll_pending(timers.sleep(TICK));
                assert_eq!((local_timer().len(), poller.clones()), (before + 1, 1));
                drop(sleep);
                assert_eq!((local_timer().len(), poller.clones()), (before, 0), "at once");
            });
        }
    }
    // This thread first has no wheel, and then one that `timers` does not use.
    for has_timer in [false, true] {
        assert!(!has_timer || local_timer().is_empty());
        let sleeps: Vec<_> =
            (0..10).map(|_| Poller::new().poll_pending(timers.sleep(TICK))).collect();
        cores.run_until_stalled();
        let mut live = live(&cores);
        live.sort_unstable();
        assert_eq!(live, [0, 0, 10]);
        drop(sleeps);
        cores.run_until_stalled();
    }
    assert!(panic_message(|| Timers::new(&[])).contains("needs at least one wheel"));
}

#[test]
fn threads_without_a_wheel_spread_over_the_wheels() {
    let (cores, timers) = start_timers(2);
    let poll = || on_a_thread(|| Poller::new().poll_pending(timers.sleep(TICK)));
    let _sleeps: Vec<_> = (0..20).map(|_| poll()).collect();
    cores.run_until_stalled();
    // Other tests start threads at the same time, so the shares may differ.
    assert!(live(&cores).iter().all(|&live| live > 0), "{:?}", live(&cores));
}

/// The search for room starts at the thread's own wheel.
#[test]
fn sleeps_of_a_full_wheel_go_to_the_next_wheel() {
    let cores: Lockstep<()> = Lockstep::start_with(3, |_, config| config.limit(2));
    let (timers, poller) = (Timers::new(&cores.shards), Poller::new());
    let mut sleeps = Vec::new();
    for (own, count, expected) in [(1, 4, [0, 2, 2]), (2, 2, [2, 2, 2])] {
        let (timers, poller) = (timers.clone(), poller.clone());
        let polled = move |_| poller.poll_pending(timers.sleep(TICK));
        sleeps.extend(cores.run_on(own, move |()| (0..count).map(polled).collect::<Vec<_>>()));
        cores.run_until_stalled();
        assert_eq!(live(&cores), expected, "from core {own}");
    }
    let refused = timers.sleep(TICK).poll_elapsed(&mut poller.context());
    assert_eq!(refused, Poll::Ready(Err(AddErrorReason::Full)));
    cores.clock.advance(TICK);
    cores.run_until_stalled();
    assert_eq!(poller.wake_count(), 6);
}

// ---- the end of a thread

#[test]
fn a_sleep_on_an_ended_wheel_is_woken_and_moves_to_another() {
    let (mut cores, timers) = start_timers(2);
    let pollers = [(); 10].map(|()| Poller::new());
    let mut sleeps: Vec<_> = Vec::new();
    for (at, poller) in pollers.iter().enumerate() {
        sleeps.push(poller.poll_pending(timers.sleep(TICK * 5)));
        // The first six sleeps are admitted before the thread ends.
        if at == 5 {
            cores.run_until_stalled();
        }
    }
    let used = (0..2).find(|&core| counts(&cores, core).live > 0).expect("one core has the sleeps");
    cores.end(used);
    let woken = || pollers.each_ref().map(Poller::wake_count);
    assert_eq!(woken(), [1; 10]);
    assert!(sleeps.iter_mut().zip(&pollers).all(|(sleep, poller)| poller.poll(sleep).is_pending()));
    cores.clock.advance(TICK * 4);
    cores.run_until_stalled();
    assert_eq!(woken(), [1; 10], "not early");
    cores.clock.advance(TICK);
    cores.run_until_stalled();
    assert_eq!(woken(), [2; 10]);
    assert!(sleeps.iter_mut().zip(&pollers).all(|(sleep, poller)| poller.poll(sleep).is_ready()));
    drop(pollers[0].poll_pending(timers.sleep(TICK)));
    cores.end(1 - used);
    let mut last = timers.sleep(TICK);
    assert_eq!([(); 2].map(|()| last.poll_elapsed(&mut pollers[0].context())), [SHUT_DOWN; 2]);
}

/// The clock of each shard has its own origin.
#[test]
fn a_deadline_survives_the_move_to_another_threads_clock() {
    let start = || {
        let turns = |core: Core| {
            while !core.is_stopping() {
                local_timer().turn();
                thread::sleep(Duration::from_micros(200));
            }
        };
        Cores::builder().threads(1).start(turns).expect("a thread")
    };
    let end = |core: Cores<()>| {
        core.stop();
        assert!(core.join().iter().all(Result::is_ok));
    };
    let first = start();
    thread::sleep(Duration::from_millis(20));
    let second = start();
    // This thread's number decides whether it begins at the first or at the second wheel. So one of
    // the two `Timers` begins at the wheel that ends.
    let [one, other] = [first.shards(), second.shards()];
    let timers = [[one, other], [other, one]].map(|shards| Timers::new(&shards.concat()));
    let poller = Poller::new();
    let deadline = Instant::now() + Duration::from_millis(500);
    let mut sleeps =
        timers.map(|timers| (timers.sleep_until(deadline), timers.sleep(Duration::MAX)));
    let mut are_pending = || {
        sleeps.each_mut().map(|(sleep, never)| {
            assert!(poller.poll(never).is_pending());
            let is_pending = poller.poll(sleep).is_pending();
            let difference = sleep.deadline().max(deadline) - sleep.deadline().min(deadline);
            assert!(difference <= Duration::from_micros(1), "{difference:?}");
            is_pending
        })
    };
    assert_eq!(are_pending(), [true; 2]);
    end(first);
    let are_pending = are_pending();
    for ((sleep, _), is_pending) in sleeps.iter_mut().zip(are_pending) {
        if is_pending {
            block_on(sleep);
        }
    }
    assert!(Instant::now() >= deadline);
    end(second);
}

/// Whichever of the two wheels a thread tries first, the error is `Full`, because a full wheel may
/// have room later.
#[test]
fn a_full_wheel_beside_an_ended_one_refuses_as_full() {
    let mut cores: Lockstep<()> = Lockstep::start_with(2, |_, config| config.limit(0));
    let poller = Poller::new();
    let [full, ended] = [0, 1].map(|core| cores.shards[core].clone());
    cores.end(1);
    for shards in [[full.clone(), ended.clone()], [ended, full]] {
        let refused = Timers::new(&shards).sleep(TICK).poll_elapsed(&mut poller.context());
        assert_eq!(refused, Poll::Ready(Err(AddErrorReason::Full)));
    }
}

// ---- `Timers` that own their threads

#[test]
fn threads_of_timers_end_after_the_last_clone_and_future() {
    let timers = Timers::start(2).expect("threads");
    let shards = timers.shards().to_vec();
    assert_eq!((shards.len(), Timers::start(0).expect("a thread").shards().len()), (2, 1));
    let (clone, mut sleep) = (timers.clone(), timers.sleep(HOUR));
    assert!(Poller::new().poll(&mut sleep).is_pending());
    drop(timers);
    let live = || shards.iter().filter(|shard| shard.try_add(HOUR, || ()).is_ok()).count();
    drop(clone);
    thread::sleep(Duration::from_millis(20));
    assert_eq!(live(), 2, "the sleep keeps the threads alive");
    drop(sleep);
    wait_until("the threads have ended", || live() == 0);
}

#[test]
fn timers_may_be_dropped_in_their_own_callback() {
    let timers = Timers::start(1).expect("a thread");
    let (sender, dropped) = mpsc::channel();
    let last = timers.clone();
    timers.shards()[0].add(Duration::from_millis(5), move || {
        drop(last);
        sender.send(()).expect("the test receives");
    });
    drop(timers);
    dropped.recv_timeout(Duration::from_secs(20)).expect("the drop returns");
}
