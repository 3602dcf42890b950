//! Sleeps, timeouts and intervals of this thread's timer: lazy, never early, one wake each, whoever polls and however a waker
//! behaves. Those of other threads are in `future_timers.rs`, random operations against a model in `future_model.rs`.

use std::{
    cell::{Cell, RefCell},
    future,
    panic::{self, AssertUnwindSafe},
    pin::{Pin, pin},
    rc::Rc,
    sync::{Arc, mpsc},
    task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker},
    thread,
    time::{Duration, Instant},
};

use corewheel::{
    AddErrorReason, Config, ManualClock,
    future::{
        Elapsed, Interval, MissedTickBehavior, Sleep, Timeout, interval, interval_at, sleep,
        sleep_until, timeout, timeout_at,
    },
    local_timer,
};

use crate::{
    common::{TICK, in_virtual_time, on_a_thread},
    polling::Poller,
};

/// Lets time pass tick by tick, with a turn at each.
fn pass(clock: &ManualClock, ticks: u32) {
    for _ in 0..ticks {
        clock.advance(TICK);
        local_timer().turn();
    }
}

fn added() -> u64 {
    local_timer().counts().added
}

// ---- sleep

#[test]
fn a_sleep_is_over_in_the_turn_that_reaches_its_deadline_and_wakes_once() {
    in_virtual_time(|clock| {
        let (mut sleep, poller) = (sleep(TICK * 5), Poller::new());
        assert!(poller.poll(&mut sleep).is_pending());
        pass(clock, 4);
        assert!(poller.poll(&mut sleep).is_pending() && !sleep.is_elapsed());
        assert_eq!(poller.woken(), 0);
        pass(clock, 1);
        assert!(sleep.is_elapsed());
        assert_eq!((poller.woken(), poller.poll(&mut sleep)), (1, Poll::Ready(())));
        pass(clock, 10);
        assert_eq!((poller.woken(), poller.clones(), added()), (1, 0, 1));
    });
}

#[test]
fn the_deadline_counts_from_creation_and_the_timer_from_the_first_poll() {
    in_virtual_time(|clock| {
        let mut late = sleep(TICK * 5);
        assert_eq!(late.deadline(), clock.now() + TICK * 5);
        drop(sleep(TICK));
        pass(clock, 3);
        assert_eq!(added(), 0);
        let poller = Poller::new();
        assert!(poller.poll(&mut late).is_pending());
        assert_eq!(added(), 1);
        pass(clock, 2);
        assert_eq!((poller.woken(), poller.poll(&mut late)), (1, Poll::Ready(())));
    });
}

#[test]
fn a_sleep_whose_moment_has_come_is_ready_at_its_first_poll_and_touches_no_wheel() {
    in_virtual_time(|clock| {
        let (poller, past) = (Poller::new(), local_timer().now());
        clock.advance(TICK * 3);
        let mut late = sleep(TICK);
        let sleeps = [
            &mut sleep(Duration::ZERO),
            &mut sleep_until(past),
            &mut sleep_until(clock.now()),
            &mut late,
        ];
        clock.advance(TICK);
        for sleep in sleeps {
            assert!(!sleep.is_elapsed(), "nobody has looked");
            assert!(poller.poll(sleep).is_ready() && sleep.is_elapsed());
        }
        assert_eq!((added(), poller.woken(), poller.clones()), (0, 0, 0));
    });
}

/// It does not look at the clock again, and so it need not be found over before a turn has looked.
#[test]
fn a_long_sleep_that_is_over_at_its_first_poll_ends_in_the_next_turn() {
    in_virtual_time(|clock| {
        let (mut long, poller) = (sleep(Duration::from_secs(2)), Poller::new());
        let mut until = sleep_until(long.deadline());
        clock.advance(Duration::from_secs(3));
        assert!(poller.poll(&mut until).is_ready() && poller.poll(&mut long).is_pending());
        local_timer().turn();
        assert_eq!((poller.woken(), poller.poll(&mut long)), (1, Poll::Ready(())));
    });
}

#[test]
fn a_sleep_is_never_early_within_a_tick() {
    in_virtual_time(|clock| {
        clock.advance(TICK / 2);
        let (mut sleep, poller) = (sleep(TICK), Poller::new());
        assert!(poller.poll(&mut sleep).is_pending());
        clock.advance(Duration::from_nanos(999_999));
        local_timer().turn();
        assert!(poller.poll(&mut sleep).is_pending());
        clock.advance(TICK / 2 + Duration::from_nanos(1));
        local_timer().turn();
        assert_eq!((poller.woken(), poller.poll(&mut sleep)), (1, Poll::Ready(())));
    });
}

#[test]
fn a_sleep_without_end_waits() {
    in_virtual_time(|clock| {
        let (mut sleep, poller) = (sleep(Duration::MAX), Poller::new());
        assert!(poller.poll(&mut sleep).is_pending());
        clock.advance(Duration::from_secs(100 * 365 * 86_400));
        local_timer().turn();
        assert!(poller.poll(&mut sleep).is_pending());
    });
}

#[test]
fn a_sleep_that_was_ready_stays_ready() {
    in_virtual_time(|clock| {
        let (mut sleep, poller) = (sleep(TICK), Poller::new());
        assert!(poller.poll(&mut sleep).is_pending());
        pass(clock, 1);
        assert!((0..3).all(|_| poller.poll(&mut sleep).is_ready()));
        assert_eq!((added(), poller.woken()), (1, 1));
    });
}

#[test]
fn the_waker_of_the_last_poll_is_called_and_no_other() {
    in_virtual_time(|clock| {
        let (mut sleep, pollers) = (sleep(TICK * 2), [(); 3].map(|()| Poller::new()));
        for poller in pollers.iter().chain(&pollers[1..2]) {
            assert!(poller.poll(&mut sleep).is_pending());
        }
        assert_eq!(pollers.each_ref().map(Poller::clones), [0, 1, 0]);
        pass(clock, 2);
        assert_eq!(pollers.each_ref().map(Poller::woken), [0, 1, 0]);
        assert_eq!(pollers[0].poll(&mut sleep), Poll::Ready(()), "whoever asks");
        assert!(local_timer().is_empty());
    });
}

#[test]
fn a_poll_with_the_same_waker_changes_nothing() {
    in_virtual_time(|_| {
        let (mut sleep, poller) = (sleep(TICK), Poller::new());
        for _ in 0..10 {
            assert!(poller.poll(&mut sleep).is_pending());
            // Under Miri a clone has another table of functions.
            assert!(cfg!(miri) || poller.clone().poll(&mut sleep).is_pending());
        }
        assert_eq!((added(), poller.clones()), (1, 1));
    });
}

#[test]
fn a_dropped_sleep_leaves_nothing_behind() {
    in_virtual_time(|clock| {
        let (mut sleep, poller) = (sleep(TICK), Poller::new());
        assert!(poller.poll(&mut sleep).is_pending());
        assert_eq!((local_timer().len(), poller.clones()), (1, 1));
        drop(sleep);
        assert_eq!((local_timer().len(), poller.clones()), (0, 0));
        pass(clock, 2);
        assert_eq!((poller.woken(), local_timer().counts().cancelled), (0, 1));
    });
}

#[test]
fn a_reset_counts_whenever_it_comes() {
    in_virtual_time(|clock| {
        let (mut sleep, poller) = (sleep(TICK), Poller::new());
        sleep.reset_after(TICK * 5);
        assert_eq!((sleep.deadline(), added()), (clock.now() + TICK * 5, 0));
        assert!(poller.poll(&mut sleep).is_pending());
        pass(clock, 1);
        // Later, then earlier, while it waits; nobody polls it in between.
        sleep.reset_after(TICK * 10);
        pass(clock, 5);
        assert_eq!(poller.woken(), 0);
        sleep.reset(clock.now() + TICK * 2);
        pass(clock, 1);
        assert_eq!(poller.woken(), 0);
        pass(clock, 1);
        assert_eq!((poller.woken(), poller.poll(&mut sleep), added()), (1, Poll::Ready(()), 1));
        // After it was over.
        sleep.reset_after(TICK * 3);
        assert!(!sleep.is_elapsed() && poller.poll(&mut sleep).is_pending());
        pass(clock, 3);
        assert_eq!((poller.woken(), added()), (2, 2));
        // Fired, and reset before anybody has polled.
        sleep.reset_after(TICK);
        assert!(poller.poll(&mut sleep).is_pending());
        sleep.reset_after(Duration::ZERO);
        pass(clock, 1);
        assert_eq!((poller.woken(), poller.poll(&mut sleep)), (3, Poll::Ready(())));
    });
}

#[test]
fn a_future_may_be_polled_from_inside_its_wake() {
    thread_local! {
        static SLEEP: RefCell<Option<Sleep>> = const { RefCell::new(None) };
        static SEEN: RefCell<Vec<Poll<()>>> = const { RefCell::new(Vec::new()) };
    }
    struct Inline;
    impl Wake for Inline {
        fn wake(self: Arc<Self>) {
            let polled =
                SLEEP.with_borrow_mut(|sleep| Poller::new().poll(sleep.as_mut().expect("there")));
            SEEN.with_borrow_mut(|seen| seen.push(polled));
        }
    }
    in_virtual_time(|clock| {
        let (mut sleep, waker) = (sleep(TICK), Waker::from(Arc::new(Inline)));
        assert!(Pin::new(&mut sleep).poll(&mut Context::from_waker(&waker)).is_pending());
        SLEEP.set(Some(sleep));
        pass(clock, 3);
        assert_eq!(SEEN.take(), [Poll::Ready(())]);
        SLEEP.set(None);
    });
}

#[test]
fn a_sleep_by_the_machines_clock_is_not_early() {
    for clock in [corewheel::Clock::monotonic(), corewheel::Clock::fast()] {
        on_a_thread(|| {
            Config::new().clock(clock).install().expect("a new thread");
            for millis in [1, 3, 10] {
                let (begun, delay) = (Instant::now(), Duration::from_millis(millis));
                let (mut sleep, poller, mut waited) = (sleep(delay), Poller::new(), false);
                while poller.poll(&mut sleep).is_pending() {
                    waited = true;
                    thread::park_timeout(local_timer().prepare_sleep().timeout().expect("a timer"));
                    local_timer().turn();
                }
                assert!(begun.elapsed() >= delay, "{:?}", begun.elapsed());
                // On a slow day it is over when it is first polled.
                assert_eq!(poller.woken(), usize::from(waited));
            }
        });
    }
}

/// Also by a clock that knows the time to a microsecond only.
#[test]
fn a_sleep_of_nothing_is_over_at_its_first_poll() {
    for clock in [corewheel::Clock::monotonic(), corewheel::Clock::fast()] {
        on_a_thread(|| {
            Config::new().clock(clock).install().expect("a new thread");
            let poller = Poller::new();
            // The fast clock needs some milliseconds to know itself.
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(30) {
                assert!(poller.poll(&mut sleep(Duration::ZERO)).is_ready());
                let mut waits = sleep(Duration::from_secs(1));
                assert!(poller.poll(&mut waits).is_pending());
                waits.reset_after(Duration::ZERO);
                let mut moved = sleep(Duration::from_millis(1));
                moved.reset_after(Duration::ZERO);
                assert!(poller.poll(&mut moved).is_ready());
                let mut interval = interval(Duration::from_secs(1));
                assert!(poller.poll_pinned(std::pin::pin!(interval.tick())).is_ready());
            }
        });
    }
}

/// Of a type that is not `Send` the compiler finds one `answer`; of another it finds two, and refuses.
trait NotSend<Way> {
    fn answer() {}
}

struct IfSend;

impl<T> NotSend<()> for T {}
impl<T: Send> NotSend<IfSend> for T {}

#[test]
fn a_sleep_is_a_handful_of_words_and_stays_on_its_thread() {
    let origin = if cfg!(feature = "origins") { size_of::<usize>() } else { 0 };
    assert!(size_of::<Sleep>() <= 48 + origin, "{}", size_of::<Sleep>());
    <Sleep as NotSend<_>>::answer();
    <Interval as NotSend<_>>::answer();
    <Timeout<()> as NotSend<_>>::answer();
}

// ---- timeout

#[test]
fn a_timeout_of_a_future_that_is_ready_at_once_touches_no_wheel() {
    in_virtual_time(|clock| {
        let poller = Poller::new();
        assert_eq!(poller.poll(&mut timeout(TICK, future::ready(1))), Poll::Ready(Ok(1)));
        let mut overdue = timeout(TICK, future::ready(2));
        clock.advance(TICK * 2);
        assert_eq!(poller.poll(&mut overdue), Poll::Ready(Ok(2)), "the future goes first");
        assert_eq!((added(), poller.clones()), (0, 0));
    });
}

#[test]
fn a_timeout_gives_its_future_up_when_the_time_is_over() {
    in_virtual_time(|clock| {
        let poller = Poller::new();
        let mut guarded = timeout(TICK * 2, future::pending::<()>());
        assert!(poller.poll(&mut guarded).is_pending());
        pass(clock, 1);
        assert!(poller.poll(&mut guarded).is_pending());
        pass(clock, 1);
        let Poll::Ready(Err(elapsed)) = poller.poll(&mut guarded) else { panic!("it is over") };
        assert_eq!(
            (elapsed.without_timer(), elapsed.to_string().as_str()),
            (None, "the time was over")
        );
        let error: Box<dyn std::error::Error + Send + Sync> = elapsed.into();
        assert!(error.downcast_ref::<Elapsed>().is_some());
    });
}

#[test]
fn a_timeout_cancels_its_timer_with_its_end() {
    in_virtual_time(|clock| {
        let (poller, done) = (Poller::new(), Rc::new(RefCell::new(false)));
        let told = Rc::clone(&done);
        let work =
            future::poll_fn(
                move |_| if *told.borrow() { Poll::Ready("done") } else { Poll::Pending },
            );
        let mut guarded = timeout_at(clock.now() + TICK * 10, work);
        assert!(poller.poll(&mut guarded).is_pending());
        assert_eq!(local_timer().len(), 1);
        *done.borrow_mut() = true;
        assert_eq!(poller.poll(&mut guarded), Poll::Ready(Ok("done")));
        drop(guarded);
        assert_eq!((local_timer().len(), poller.clones()), (0, 0));
    });
}

#[test]
fn a_timeout_gives_its_future_back_and_its_time_can_be_moved() {
    in_virtual_time(|clock| {
        let poller = Poller::new();
        let mut guarded = timeout(TICK * 2, future::pending::<u8>());
        assert!(poller.poll(&mut guarded).is_pending());
        Pin::new(&mut guarded).sleep().reset_after(TICK * 4);
        pass(clock, 3);
        assert!(poller.poll(&mut guarded).is_pending());
        let _: (&future::Pending<u8>, future::Pending<u8>) =
            (&future::pending(), guarded.into_inner());
        assert!(local_timer().is_empty());
    });
}

#[test]
fn timeouts_nest_and_hold_futures_that_cannot_move() {
    in_virtual_time(|clock| {
        let poller = Poller::new();
        let nested =
            timeout(TICK * 5, async { timeout(TICK * 2, async { sleep(TICK * 9).await }).await });
        let mut nested = pin!(nested);
        assert!(poller.poll_pinned(nested.as_mut()).is_pending());
        pass(clock, 2);
        assert!(matches!(poller.poll_pinned(nested.as_mut()), Poll::Ready(Ok(Err(_)))));
    });
}

// ---- interval

/// The moments at which an interval ticks, in ticks since its creation, when it is polled after so many ticks each time.
fn ticks_of(clock: &ManualClock, interval: &mut Interval, waits: &[u32]) -> Vec<(u32, u32)> {
    let (start, poller) = (clock.now(), Poller::new());
    let in_ticks = |time: Duration| u32::try_from(time.as_millis()).expect("short");
    let mut ticks = Vec::new();
    for &wait in waits {
        pass(clock, wait);
        while let Poll::Ready(tick) = interval.poll_tick(&mut poller.context()) {
            ticks.push((in_ticks(clock.now() - start), in_ticks(tick - start)));
        }
    }
    ticks
}

#[test]
fn an_interval_keeps_to_its_schedule_within_a_period() {
    in_virtual_time(|clock| {
        for behavior in
            [MissedTickBehavior::Burst, MissedTickBehavior::Delay, MissedTickBehavior::Skip]
        {
            let mut interval = interval(TICK * 10);
            interval.set_missed_tick_behavior(behavior);
            assert_eq!((interval.period(), interval.missed_tick_behavior()), (TICK * 10, behavior));
            let ticks = ticks_of(clock, &mut interval, &[0, 9, 1, 9, 9, 2]);
            assert_eq!(ticks, [(0, 0), (10, 10), (28, 20), (30, 30)]);
        }
    });
}

#[test]
fn missed_ticks_come_in_a_burst_or_begin_anew_or_are_skipped() {
    in_virtual_time(|clock| {
        let ticks = |behavior| {
            let mut interval = interval(TICK * 10);
            interval.set_missed_tick_behavior(behavior);
            ticks_of(clock, &mut interval, &[0, 35, 5, 5, 5, 5, 5])
        };
        let bursts = ticks(MissedTickBehavior::Burst);
        assert_eq!(bursts, [(0, 0), (35, 10), (35, 20), (35, 30), (40, 40), (50, 50), (60, 60)]);
        assert_eq!(ticks(MissedTickBehavior::Delay), [(0, 0), (35, 10), (45, 45), (55, 55)]);
        assert_eq!(
            ticks(MissedTickBehavior::Skip),
            [(0, 0), (35, 10), (40, 40), (50, 50), (60, 60)]
        );
    });
}

#[test]
fn an_interval_does_not_drift_from_a_period_that_is_no_number_of_ticks() {
    in_virtual_time(|clock| {
        let (mut interval, poller, start) = (interval(TICK * 3 / 2), Poller::new(), clock.now());
        for number in 0..1000 {
            let tick = loop {
                match interval.poll_tick(&mut poller.context()) {
                    Poll::Ready(tick) => break tick,
                    Poll::Pending => pass(clock, 1),
                }
            };
            assert_eq!(tick - start, TICK * 3 / 2 * number);
            assert!(clock.now() >= tick && clock.now() < tick + TICK);
        }
    });
}

#[test]
fn an_interval_begins_when_it_is_told_to() {
    in_virtual_time(|clock| {
        let mut later = interval_at(clock.now() + TICK * 4, TICK * 10);
        assert_eq!(ticks_of(clock, &mut later, &[0, 3, 1, 9, 1, 5]), [(4, 4), (14, 14)]);
        later.reset();
        assert_eq!(ticks_of(clock, &mut later, &[0, 9, 1, 10]), [(10, 10), (20, 20)]);
        later.reset_immediately();
        assert_eq!(ticks_of(clock, &mut later, &[0, 1, 9]), [(1, 0), (10, 10)], "in the next turn");
        later.reset_after(TICK * 3);
        assert_eq!(ticks_of(clock, &mut later, &[0, 3, 10]), [(3, 3), (13, 13)]);
        later.reset_at(clock.now() + TICK * 2);
        assert_eq!(ticks_of(clock, &mut later, &[0, 2, 10]), [(2, 2), (12, 12)]);
    });
}

#[test]
fn a_period_is_at_least_a_tick() {
    in_virtual_time(|clock| {
        let mut interval = interval(Duration::ZERO);
        assert_eq!(interval.period(), TICK);
        assert_eq!(ticks_of(clock, &mut interval, &[0, 1, 1]), [(0, 0), (1, 1), (2, 2)]);
    });
}

#[test]
fn a_tick_that_is_given_up_is_not_lost() {
    in_virtual_time(|clock| {
        let (mut interval, poller) = (interval_at(clock.now() + TICK, TICK * 10), Poller::new());
        assert!(poller.poll_pinned(pin!(interval.tick())).is_pending());
        pass(clock, 1);
        assert_eq!(poller.woken(), 1);
        assert!(poller.poll_pinned(pin!(interval.tick())).is_ready());
    });
}

// ---- wakers that panic

thread_local! {
    /// What a spiteful waker does next.
    static CONDUCT: Cell<Conduct> = const { Cell::new(Conduct::Calm) };
}

#[derive(Clone, Copy, PartialEq)]
enum Conduct {
    Calm,
    PanicsWhenCloned,
    PanicsWhenWoken,
    PanicsWhenDropped,
}

/// Panics if this is what wakers do now.
fn behave(as_planned: Conduct) {
    assert!(CONDUCT.get() != as_planned, "as planned");
}

/// A waker that panics when it is told to.
fn spiteful() -> Waker {
    const TABLE: RawWakerVTable = RawWakerVTable::new(
        |_| {
            behave(Conduct::PanicsWhenCloned);
            RawWaker::new(std::ptr::null(), &TABLE)
        },
        |_| behave(Conduct::PanicsWhenWoken),
        |_| behave(Conduct::PanicsWhenWoken),
        |_| behave(Conduct::PanicsWhenDropped),
    );
    // SAFETY: there is no data, and the functions use none.
    #[allow(unsafe_code)]
    unsafe {
        Waker::new(std::ptr::null(), &TABLE)
    }
}

fn behaving<R>(conduct: Conduct, run: impl FnOnce() -> R) -> R {
    CONDUCT.set(conduct);
    let result = panic::catch_unwind(AssertUnwindSafe(run));
    CONDUCT.set(Conduct::Calm);
    result.unwrap_or_else(|panic| panic::resume_unwind(panic))
}

fn poll_spitefully(sleep: &mut Sleep) -> Poll<()> {
    Pin::new(sleep).poll(&mut Context::from_waker(&spiteful()))
}

#[test]
fn a_waker_that_panics_when_it_is_called_harms_nobody() {
    in_virtual_time(|clock| {
        let mut sleeps = [(); 20].map(|()| sleep(TICK));
        let poller = Poller::new();
        for (number, sleep) in sleeps.iter_mut().enumerate() {
            let polled = if number % 2 == 0 { poller.poll(sleep) } else { poll_spitefully(sleep) };
            assert!(polled.is_pending());
        }
        clock.advance(TICK);
        let turn = behaving(Conduct::PanicsWhenWoken, || local_timer().turn());
        assert_eq!((turn.fired, poller.woken(), local_timer().counts().panicked), (20, 10, 10));
        assert!(sleeps.iter_mut().all(|sleep| poller.poll(sleep).is_ready()));
    });
}

#[test]
fn a_waker_that_panics_when_it_is_dropped_harms_nobody() {
    in_virtual_time(|clock| {
        let [mut dropped, mut changed, mut other] = [(); 3].map(|()| sleep(TICK));
        let poller = Poller::new();
        assert!(
            poll_spitefully(&mut dropped).is_pending()
                && poll_spitefully(&mut changed).is_pending()
        );
        assert!(poller.poll(&mut other).is_pending());
        behaving(Conduct::PanicsWhenDropped, || {
            drop(dropped);
            assert!(poller.poll(&mut changed).is_pending());
        });
        assert_eq!((local_timer().len(), local_timer().counts().panicked), (2, 2));
        pass(clock, 1);
        assert_eq!(poller.woken(), 2);
    });
}

#[test]
fn a_waker_that_panics_when_it_is_cloned_changes_nothing() {
    in_virtual_time(|clock| {
        let (mut fresh, mut waits, poller) = (sleep(TICK), sleep(TICK), Poller::new());
        assert!(poller.poll(&mut waits).is_pending());
        for sleep in [&mut fresh, &mut waits] {
            let poll = || behaving(Conduct::PanicsWhenCloned, || poll_spitefully(sleep));
            assert!(panic::catch_unwind(AssertUnwindSafe(poll)).is_err());
        }
        assert_eq!((local_timer().len(), added()), (1, 1));
        assert!(poller.poll(&mut fresh).is_pending());
        pass(clock, 1);
        assert_eq!((poller.woken(), local_timer().counts().panicked), (2, 0));
    });
}

#[test]
fn a_wake_may_do_anything_with_the_timer_and_its_sleeps() {
    thread_local! {
        static OTHERS: RefCell<Vec<Sleep>> = const { RefCell::new(Vec::new()) };
    }
    struct Meddles;
    impl Wake for Meddles {
        fn wake(self: Arc<Self>) {
            OTHERS.with_borrow_mut(Vec::clear);
            let mut new = sleep(Duration::from_secs(1));
            assert!(Poller::new().poll(&mut new).is_pending());
            OTHERS.with_borrow_mut(|others| others.push(new));
            assert!(local_timer().turn().nested);
        }
    }
    in_virtual_time(|clock| {
        let mut sleeps = [(); 3].map(|()| sleep(TICK));
        let mut others: Vec<_> = (0..5).map(|_| sleep(TICK)).collect();
        let waker = Waker::from(Arc::new(Meddles));
        assert!(
            sleeps
                .iter_mut()
                .all(|sleep| Pin::new(sleep).poll(&mut Context::from_waker(&waker)).is_pending())
        );
        let poller = Poller::new();
        assert!(others.iter_mut().all(|sleep| poller.poll(sleep).is_pending()));
        OTHERS.set(others);
        pass(clock, 1);
        assert!(poller.woken() <= 5, "those that were dropped by then are silent");
        assert_eq!((local_timer().len(), local_timer().counts().panicked), (1, 0));
        OTHERS.take();
        assert!(local_timer().is_empty());
    });
}

// ---- without a timer

fn with_room_for_one(test: impl FnOnce(&ManualClock) + Send) {
    let clock = ManualClock::new();
    on_a_thread(|| {
        Config::new().tick(TICK).clock(&clock).limit(1).install().expect("a new thread");
        test(&clock);
    });
}

#[test]
fn a_sleep_that_finds_the_timer_full_says_so_and_may_try_again() {
    with_room_for_one(|clock| {
        let (mut first, mut second, poller) = (sleep(TICK * 3), sleep(TICK * 2), Poller::new());
        assert!(poller.poll(&mut first).is_pending());
        for _ in 0..2 {
            assert_eq!(
                second.poll_elapsed(&mut poller.context()),
                Poll::Ready(Err(AddErrorReason::Full))
            );
        }
        let poll = || poller.poll(&mut second);
        let panic = panic::catch_unwind(AssertUnwindSafe(poll)).expect_err("as documented");
        assert!(
            panic.downcast_ref::<String>().is_some_and(|said| said.starts_with("cannot sleep: "))
        );
        assert!(matches!(
            poller.poll(&mut timeout(TICK, future::pending::<()>())),
            Poll::Ready(Err(elapsed)) if elapsed.without_timer() == Some(AddErrorReason::Full)
        ));
        assert_eq!(poller.woken(), 0);
        // Another waker does not need more room.
        assert!(Poller::new().poll(&mut first).is_pending());
        drop(first);
        assert!(poller.poll(&mut second).is_pending());
        pass(clock, 2);
        assert_eq!((poller.woken(), poller.poll(&mut second)), (1, Poll::Ready(())));
    });
}

#[test]
fn an_interval_that_finds_the_timer_full_says_so_and_goes_on_later() {
    with_room_for_one(|clock| {
        let (mut sleep, mut interval, poller) = (sleep(TICK * 9), interval(TICK), Poller::new());
        assert!(poller.poll(&mut sleep).is_pending());
        assert!(
            interval.poll_tick(&mut poller.context()).is_ready(),
            "the first one needs no timer"
        );
        assert_eq!(
            interval.try_poll_tick(&mut poller.context()),
            Poll::Ready(Err(AddErrorReason::Full))
        );
        let tick = || interval.poll_tick(&mut poller.context());
        assert!(panic::catch_unwind(AssertUnwindSafe(tick)).is_err());
        drop(sleep);
        assert!(interval.poll_tick(&mut poller.context()).is_pending());
        pass(clock, 1);
        assert!(interval.poll_tick(&mut poller.context()).is_ready());
    });
}

/// What a thread that is exiting still polls: its timer has ended.
#[test]
fn a_sleep_that_outlives_its_threads_timer_is_woken_and_says_that_it_has_ended() {
    struct AtTheEnd(RefCell<Option<Sleep>>, mpsc::Sender<[Poll<Result<(), AddErrorReason>>; 2]>);
    impl Drop for AtTheEnd {
        fn drop(&mut self) {
            let (poller, waited) = (Poller::new(), self.0.take());
            let polls = [waited, Some(sleep(TICK))].map(|sleep| {
                let mut sleep = sleep.expect("two sleeps");
                sleep.poll_elapsed(&mut poller.context())
            });
            self.1.send(polls).expect("somebody listens");
        }
    }
    thread_local! {
        static END: RefCell<Option<AtTheEnd>> = const { RefCell::new(None) };
    }
    let (tell, told) = mpsc::channel();
    let poller = Poller::new();
    let polled = poller.clone();
    on_a_thread(move || {
        // Destructors run in the order of registration or against it, so once before the timer and once after it is no
        // matter of ours: the sleep is dropped by the first that comes after the timer's own.
        END.set(Some(AtTheEnd(RefCell::new(None), tell)));
        let mut waits = sleep(Duration::from_secs(3600));
        assert!(polled.poll(&mut waits).is_pending());
        END.with_borrow(|end| end.as_ref().expect("just set").0.replace(Some(waits)));
    });
    let ended = Poll::Ready(Err(AddErrorReason::ShutDown));
    let polls = told.recv().expect("the thread has ended");
    // Where thread-locals go in the order in which they came, the timer was still there.
    assert!(polls == [ended, ended] || polls == [Poll::Pending, Poll::Pending], "{polls:?}");
    assert!(poller.woken() <= 1 && poller.clones() == 0);
}
