//! Sleeps, timeouts and intervals on the wheel of this thread.

use std::{
    cell::{Cell, RefCell},
    future,
    pin::pin,
    task::{Poll, RawWaker, RawWakerVTable, Waker},
    time::{Duration, Instant},
};

use corewheel::{
    AddErrorReason, Clock, Config, ManualClock,
    future::{
        Backend, Interval, MissedTickBehavior, Sleep, TimeoutError, Timers, interval, interval_at,
        sleep, sleep_until, timeout, timeout_at,
    },
    local_timer,
};

use crate::support::{
    HOUR, OnDrop, Poller, TICK, TOO_LONG, in_checked_virtual_time, in_virtual_time, on_a_thread,
    on_configured_thread, panic_message, panics, poll_with, run_after_wheel_ends,
    turn_at_each_tick, waker,
};

fn added() -> u64 {
    local_timer().counts().added
}

fn pending_sleep(poller: &Poller, delay: Duration) -> Sleep {
    poller.poll_pending(sleep(delay))
}

/// A reading of the fast clock is an uncertainty interval. In this test, the interval may contain a
/// deadline.
#[test]
fn the_fast_clock_neither_delays_a_passed_deadline_nor_misses_a_future_tick() {
    on_a_thread(|| {
        let config = Config::new().clock(Clock::fast()).tick(Duration::from_micros(1));
        config.install().expect("a new thread");
        local_timer().register_driver();
        let (poller, test_start, period) =
            (Poller::new(), Instant::now(), Duration::from_micros(200));
        let mut taken = 0;
        // A slow machine needs a longer margin before the tick.
        for margin in (1..=5).map(|log2| Duration::from_micros(1 << log2)).cycle() {
            let limit = if taken > 0 { Duration::from_millis(500) } else { TOO_LONG };
            if test_start.elapsed() > limit {
                break;
            }
            local_timer().turn();
            let start = Instant::now();
            assert!(poller.poll(&mut sleep_until(start)).is_ready());
            let mut ticks = interval_at(start, period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            let next = start + period;
            while Instant::now() < next - margin {
                local_timer().turn();
            }
            let tick = poller.poll_pinned(pin!(ticks.tick()));
            if Instant::now() < next {
                assert_eq!(tick, Poll::Ready(start));
                taken += 1;
                while Instant::now() < next {}
                assert_eq!(poller.poll_pinned(pin!(ticks.tick())), Poll::Ready(next));
            }
        }
        assert!(taken > 0, "the machine is too slow for this test");
    });
}

#[test]
fn a_sleep_of_zero_is_ready_at_its_first_poll() {
    for clock in [Clock::monotonic(), Clock::fast()] {
        on_a_thread(|| {
            Config::new().clock(clock).install().expect("a new thread");
            local_timer().register_driver();
            let (poller, test_start) = (Poller::new(), Instant::now());
            // The fast clock calibrates itself within this time.
            while test_start.elapsed() < Duration::from_millis(30) {
                assert!(!sleep(Duration::ZERO).is_elapsed(), "no poll has returned ready");
                assert!(poller.poll(&mut sleep(Duration::ZERO)).is_ready());
                pending_sleep(&poller, Duration::from_secs(1)).reset_after(Duration::ZERO);
                let mut moved = sleep(Duration::from_millis(1));
                moved.reset_after(Duration::ZERO);
                assert!(poller.poll(&mut moved).is_ready());
                let mut interval = interval(Duration::from_secs(1));
                let tick = poller.poll_pinned(pin!(interval.tick()));
                assert!(matches!(tick, Poll::Ready(first) if first <= Instant::now()));
            }
        });
    }
}

#[test]
fn a_timeout_ends_with_its_deadline_or_its_future() {
    in_checked_virtual_time(|clock| {
        let poller = Poller::new();
        assert_eq!(poller.poll(&mut timeout(TICK, future::ready(1))), Poll::Ready(Ok(1)));
        let mut overdue = timeout(TICK, future::ready(2));
        clock.advance(TICK * 2);
        assert_eq!(poller.poll(&mut overdue), Poll::Ready(Ok(2)), "the future is polled first");
        assert_eq!((added(), poller.clones()), (0, 0));

        let mut guarded = timeout(TICK * 2, future::pending::<()>());
        assert!(poller.poll(&mut guarded).is_pending());
        turn_at_each_tick(clock, 1);
        assert!(poller.poll(&mut guarded).is_pending());
        turn_at_each_tick(clock, 1);
        let Poll::Ready(Err(error)) = poller.poll(&mut guarded) else { panic!("not elapsed") };
        assert!(error == TimeoutError::Elapsed && error.is_elapsed());
        let error = std::io::Error::from(error);
        let source = error.get_ref().and_then(|error| error.downcast_ref());
        assert_eq!(source, Some(&TimeoutError::Elapsed));

        let done = Cell::new(false);
        let work =
            future::poll_fn(|_| if done.get() { Poll::Ready("done") } else { Poll::Pending });
        let mut guarded = timeout_at(clock.now() + TICK * 10, work);
        assert!(poller.poll(&mut guarded).is_pending());
        assert_eq!(local_timer().len(), 1);
        done.set(true);
        assert_eq!(poller.poll(&mut guarded), Poll::Ready(Ok("done")));
        drop(guarded);
        assert_eq!((local_timer().len(), poller.clones()), (0, 0));
    });
}

/// Polls an interval after each wait. Returns the actual and the reported time of each tick, in
/// milliseconds since the call.
fn ticks_of(clock: &ManualClock, interval: &mut Interval, waits: &[u32]) -> Vec<(u32, u32)> {
    let (start, poller) = (clock.now(), Poller::new());
    let in_ticks = |time: Duration| u32::try_from(time.as_millis()).expect("short");
    let mut ticks = Vec::new();
    for &wait in waits {
        turn_at_each_tick(clock, wait);
        while let Poll::Ready(tick) = interval.poll_tick(&mut poller.context()) {
            ticks.push((in_ticks(clock.now() - start), in_ticks(tick - start)));
        }
    }
    ticks
}

#[test]
fn a_reset_moves_the_next_tick_of_an_interval() {
    in_checked_virtual_time(|clock| {
        let mut later = interval_at(clock.now() + TICK * 4, TICK * 10);
        assert_eq!(ticks_of(clock, &mut later, &[0, 3, 1, 9, 1, 5]), [(4, 4), (14, 14)]);
        later.reset();
        assert_eq!(ticks_of(clock, &mut later, &[0, 9, 1, 10]), [(10, 10), (20, 20)]);
        later.reset_immediately();
        assert_eq!(ticks_of(clock, &mut later, &[0, 9, 1]), [(0, 0), (10, 10)], "at once");
        later.reset_after(TICK * 3);
        assert_eq!(ticks_of(clock, &mut later, &[0, 3, 10]), [(3, 3), (13, 13)]);
        later.reset_at(clock.now() + TICK * 2);
        assert_eq!(ticks_of(clock, &mut later, &[0, 2, 10]), [(2, 2), (12, 12)]);
        later.set_period(TICK * 3);
        assert_eq!(ticks_of(clock, &mut later, &[10, 3]), [(10, 10), (13, 13)]);
        let mut shortest = interval(Duration::ZERO);
        assert_eq!(shortest.period(), TICK);
        assert_eq!(ticks_of(clock, &mut shortest, &[0, 1, 1]), [(0, 0), (1, 1), (2, 2)]);
        // Resets to now, between two ticks of the wheel.
        clock.advance(TICK / 2);
        let to_now = |it: &mut Interval| it.reset_at(local_timer().now());
        for reset in [Interval::reset_immediately, to_now] {
            assert_eq!(ticks_of(clock, &mut later, &[0]), []);
            reset(&mut later);
            assert_eq!(ticks_of(clock, &mut later, &[0]), [(0, 0)]);
        }
    });
}

/// Returns how many ticks after `start` the interval's first five ticks are.
fn first_ticks<B: Backend>(
    clock: &ManualClock,
    start: Instant,
    mut interval: Interval<B>,
) -> Vec<u128> {
    let poller = Poller::new();
    let mut ticks = Vec::new();
    while ticks.len() < 5 {
        match interval.poll_tick(&mut poller.context()) {
            Poll::Ready(tick) => ticks.push((tick - start).as_nanos() / TICK.as_nanos()),
            Poll::Pending => turn_at_each_tick(clock, 1),
        }
    }
    ticks
}

#[test]
fn an_interval_may_start_before_the_origin_of_the_clock() {
    for (behavior, expected) in [
        (MissedTickBehavior::Burst, [0, 10, 20, 30, 40]),
        (MissedTickBehavior::Delay, [0, 35, 45, 55, 65]),
        (MissedTickBehavior::Skip, [0, 30, 40, 50, 60]),
    ] {
        for kind in ["interval_at", "reset_at", "Timers::interval_at"] {
            let ticks = in_checked_virtual_time(|clock| {
                let start = clock.now().checked_sub(TICK * 25).expect("a valid instant");
                if kind == "Timers::interval_at" {
                    let timers = Timers::new(&[local_timer().shard_ref()]);
                    let mut interval = timers.interval_at(start, TICK * 10);
                    interval.set_missed_tick_behavior(behavior);
                    return first_ticks(clock, start, interval);
                }
                let mut interval = interval_at(start, TICK * 10);
                interval.set_missed_tick_behavior(behavior);
                if kind == "reset_at" {
                    interval.reset();
                    interval.reset_at(start);
                }
                first_ticks(clock, start, interval)
            });
            assert_eq!(ticks, expected, "{kind} {behavior:?}");
        }
    }
}

#[test]
fn dropping_a_tick_future_loses_no_tick() {
    in_checked_virtual_time(|clock| {
        let (mut interval, poller) = (interval_at(clock.now() + TICK, TICK * 10), Poller::new());
        assert!(poller.poll_pinned(pin!(interval.tick())).is_pending());
        turn_at_each_tick(clock, 1);
        assert_eq!(poller.wake_count(), 1);
        assert!(poller.poll_pinned(pin!(interval.tick())).is_ready());
    });
}

/// Each turn exhausts its budget before it reaches the sleep's timer, which each poll replaces.
#[test]
fn a_sleep_polled_with_changing_wakers_elapses_despite_a_budget() {
    fn add_again() {
        local_timer().add(Duration::ZERO, add_again);
    }
    in_virtual_time(|clock| {
        (0..20).for_each(|_| add_again());
        let mut sleep = sleep(TICK * 10);
        let polls = (0..100).take_while(|_| {
            let is_pending = Poller::new().poll(&mut sleep).is_pending();
            clock.advance(TICK);
            assert!(local_timer().turn_within(10).behind);
            is_pending
        });
        assert_eq!(polls.count(), 10);
    });
}

// ---- wakers that panic or use the wheel

#[test]
fn a_panicking_waker_drop_does_not_affect_other_sleeps() {
    in_virtual_time(|clock| {
        let poller = Poller::new();
        let [dropped, mut changed] = [(); 2].map(|()| {
            let (panics, mut sleep) = (OnDrop(|| panic!("as planned")), sleep(TICK));
            assert!(poll_with(&waker(move || _ = &panics), &mut sleep).is_pending());
            sleep
        });
        let _other = pending_sleep(&poller, TICK);
        drop(dropped);
        assert!(poller.poll(&mut changed).is_pending());
        assert_eq!((local_timer().len(), local_timer().counts().panicked), (2, 2));
        turn_at_each_tick(clock, 1);
        assert_eq!(poller.wake_count(), 2);
    });
}

#[test]
fn a_panicking_waker_clone_leaves_the_sleep_unchanged() {
    const TABLE: RawWakerVTable =
        RawWakerVTable::new(|_| panic!("as planned"), |_| (), |_| (), |_| ());
    // SAFETY: there is no data, and the functions use none.
    #[allow(unsafe_code)]
    let panics_when_cloned = unsafe { Waker::new(std::ptr::null(), &TABLE) };
    in_checked_virtual_time(|clock| {
        let (mut new, poller) = (sleep(TICK), Poller::new());
        let mut waits = pending_sleep(&poller, TICK);
        for sleep in [&mut new, &mut waits] {
            assert!(panics(|| poll_with(&panics_when_cloned, sleep)));
        }
        assert_eq!((local_timer().len(), added()), (1, 1));
        assert!(poller.poll(&mut new).is_pending());
        turn_at_each_tick(clock, 1);
        assert_eq!(poller.wake_count(), 2);
    });
}

/// A poll needs no timer with the new waker if the old timer fires during the poll.
#[test]
fn a_panicking_drop_of_an_unneeded_waker_is_contained() {
    const CLONE: RawWakerVTable =
        RawWakerVTable::new(|_| unreachable!(), |_| (), |_| (), |_| panic!("as planned"));
    const TURNS_WHEN_CLONED: RawWakerVTable = RawWakerVTable::new(
        |data| {
            assert_eq!(local_timer().turn().fired, 1);
            RawWaker::new(data, &CLONE)
        },
        |_| (),
        |_| (),
        |_| (),
    );
    // SAFETY: there is no data, and the functions use none.
    #[allow(unsafe_code)]
    let waker = unsafe { Waker::new(std::ptr::null(), &TURNS_WHEN_CLONED) };
    in_virtual_time(|clock| {
        let poller = Poller::new();
        let mut sleep = pending_sleep(&poller, TICK);
        clock.advance(TICK);
        assert!(poll_with(&waker, &mut sleep).is_ready());
        assert_eq!((poller.wake_count(), local_timer().counts().panicked), (1, 1));
    });
}

thread_local! {
    /// Sleeps that a waker drops and replaces.
    static SLEEPS: RefCell<Vec<Sleep>> = const { RefCell::new(Vec::new()) };
}

#[test]
fn a_waker_may_use_the_wheel_and_other_sleeps() {
    in_checked_virtual_time(|clock| {
        let replace_sleeps = || {
            let new = pending_sleep(&Poller::new(), Duration::from_secs(1));
            drop(SLEEPS.replace(vec![new]));
            assert!(local_timer().turn().nested);
        };
        let (mut sleeps, poller) = ([(); 3].map(|()| sleep(TICK)), Poller::new());
        let waker = waker(replace_sleeps);
        assert!(sleeps.iter_mut().all(|sleep| poll_with(&waker, sleep).is_pending()));
        SLEEPS.set((0..5).map(|_| pending_sleep(&poller, TICK)).collect());
        turn_at_each_tick(clock, 1);
        assert!(poller.wake_count() <= 5);
        assert_eq!(local_timer().len(), 1);
        SLEEPS.take();
        assert!(local_timer().is_empty());
    });
}

// ---- refused timers

#[test]
fn a_timeout_without_a_timer_adds_one_when_there_is_room() {
    on_configured_thread(Config::new().limit(1), |clock| {
        let poller = Poller::new();
        let (first, mut polls) = (pending_sleep(&poller, TICK * 30), 0);
        let operation = future::poll_fn(|_| {
            polls += 1;
            Poll::<()>::Pending
        });
        let mut guarded = timeout(TICK * 2, operation).keep_waiting_without_timer();
        for _ in 0..2 {
            assert!(poller.poll(&mut guarded).is_pending());
        }
        assert_eq!(local_timer().len(), 1);
        drop(first);
        assert!(poller.poll(&mut guarded).is_pending());
        assert_eq!(local_timer().len(), 1, "the timeout has a timer");
        turn_at_each_tick(clock, 2);
        assert_eq!(poller.wake_count(), 1);
        assert_eq!(poller.poll(&mut guarded), Poll::Ready(Err(TimeoutError::Elapsed)));
        drop(guarded);
        assert_eq!(polls, 4);
    });
}

#[test]
fn a_refused_sleep_reports_full_and_may_be_polled_again() {
    on_configured_thread(Config::new().limit(1), |clock| {
        let poller = Poller::new();
        let (mut first, mut second) = (pending_sleep(&poller, TICK * 3), sleep(TICK * 2));
        for _ in 0..2 {
            let refused = second.poll_elapsed(&mut poller.context());
            assert_eq!(refused, Poll::Ready(Err(AddErrorReason::Full)));
        }
        let message = panic_message(|| poller.poll(&mut second));
        assert!(message.starts_with("cannot sleep: "), "{message}");
        assert_eq!(
            poller.poll(&mut timeout(TICK, future::pending::<()>())),
            Poll::Ready(Err(TimeoutError::NoTimer(AddErrorReason::Full)))
        );
        assert_eq!(poller.wake_count(), 0);
        // A change of the waker needs no room.
        assert!(Poller::new().poll(&mut first).is_pending());
        drop(first);
        assert!(poller.poll(&mut second).is_pending());
        turn_at_each_tick(clock, 2);
        assert_eq!((poller.wake_count(), poller.poll(&mut second)), (1, Poll::Ready(())));
    });
}

#[test]
fn a_sleep_that_outlives_its_wheel_is_woken_and_fails() {
    let poller = Poller::new();
    let polled = poller.clone();
    let polls = run_after_wheel_ends(move || {
        local_timer().register_driver();
        let mut waits = pending_sleep(&polled, HOUR);
        move || {
            let woken = polled.wake_count();
            let polls = [&mut waits, &mut sleep(TICK)];
            (woken, polls.map(|sleep| sleep.poll_elapsed(&mut polled.context())))
        }
    });
    assert_eq!(polls, (1, [Poll::Ready(Err(AddErrorReason::ShutDown)); 2]));
    assert_eq!((poller.wake_count(), poller.clones()), (1, 0));
}

#[test]
fn a_zero_sleep_needs_no_wheel() {
    let polls = run_after_wheel_ends(|| {
        || {
            let (poller, mut reset) = (Poller::new(), sleep(TICK));
            let _unspecified = reset.deadline();
            reset.reset_after(Duration::ZERO);
            let elapsed = poller.poll(&mut timeout(Duration::ZERO, future::pending::<()>()));
            assert_eq!(elapsed, Poll::Ready(Err(TimeoutError::Elapsed)));
            [sleep(Duration::ZERO), reset].map(|sleep| poller.poll(&mut { sleep }))
        }
    });
    assert_eq!(polls, [Poll::Ready(()); 2]);
}

/// A reading of the fast clock may begin before the call.
#[test]
fn an_interval_counts_from_its_start_with_the_fast_clock() {
    on_a_thread(|| {
        Config::new().clock(Clock::fast()).install().expect("a new thread");
        local_timer().register_driver();
        let poller = Poller::new();
        let mut ticks = interval(HOUR);
        for round in 0..10_000 {
            let start = Instant::now();
            if round % 2 == 0 {
                ticks = interval(HOUR);
            } else {
                ticks.reset_immediately();
            }
            let first = poller.poll(&mut pin!(ticks.tick()));
            assert!(matches!(first, Poll::Ready(tick) if tick >= start), "an early tick");
        }
    });
}

/// The first poll of a sleep of more than a second does not read the clock before it adds a timer.
#[test]
fn an_elapsed_deadline_ends_a_wait_on_a_full_wheel() {
    on_configured_thread(Config::new().limit(1), |clock| {
        local_timer().add(HOUR, || ());
        let poller = Poller::new();
        for wait in [TICK * 1_000, TICK * 1_001] {
            let mut sleep = sleep(wait);
            let mut refused = timeout(wait, future::pending::<()>());
            let mut kept = timeout(wait, future::pending::<()>()).keep_waiting_without_timer();
            clock.advance(TICK * 3_000);
            assert!(poller.poll(&mut sleep).is_ready());
            let elapsed = Poll::Ready(Err(TimeoutError::Elapsed));
            assert_eq!(poller.poll(&mut refused), elapsed);
            assert_eq!(poller.poll(&mut kept), elapsed);
        }
    });
}

/// A wake would cause a poll, whose refusal would cause another wake, without end.
#[test]
fn a_refused_poll_on_a_drained_thread_does_not_wake_its_task() {
    on_a_thread(|| {
        let poller = Poller::new();
        let timers = Timers::new(&[local_timer().shard_ref()]);
        drop(local_timer().drain());
        let pending = future::pending::<()>;
        let mut own = pin!(timeout(HOUR, pending()).keep_waiting_without_timer());
        let mut shared = pin!(timers.timeout(HOUR, pending()).keep_waiting_without_timer());
        for _ in 0..3 {
            assert!(poller.poll_pinned(own.as_mut()).is_pending());
            assert!(poller.poll_pinned(shared.as_mut()).is_pending());
        }
        assert_eq!((poller.wake_count(), poller.clones()), (0, 0));
    });
}

#[test]
fn a_cancel_on_a_drained_thread_does_not_wake_its_task() {
    on_a_thread(|| {
        let (timers, _driver) = Timers::per_worker_with(1, |_| Config::new()).expect("valid");
        let [poller, other] = [Poller::new(), Poller::new()];
        drop(local_timer().drain());
        drop(poller.poll_pending(timers.sleep(HOUR)));
        assert_eq!((poller.wake_count(), poller.clones()), (0, 0), "a drop");
        let mut sleep = poller.poll_pending(timers.sleep(HOUR));
        assert!(other.poll(&mut sleep).is_pending());
        assert_eq!((poller.wake_count(), poller.clones()), (0, 0), "another waker");
    });
}
