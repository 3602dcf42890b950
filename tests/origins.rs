//! `live_timers_by_call_site`: the call sites that added the live timers.

mod common;
#[path = "common/operation.rs"]
mod operation;

use std::{
    future::pending,
    panic::{Location, catch_unwind, resume_unwind},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Waker},
    time::{Duration, Instant},
};

use common::{HOUR, TICK, in_virtual_time, manual_shard, on_a_thread};
use corewheel::{
    Cancel, Clock, Config, LocalTimer, ReusableTimer,
    future::{Timers, interval, interval_at, sleep, sleep_until, timeout, timeout_at},
    local_timer,
    metrics::{CallSiteTimers, LiveTimersByCallSite},
    purgatory::Purgatory,
};
use operation::NeverCompletes;

/// Returns the lines of this file that added live timers, and the number of timers of each line.
fn lines(report: &LiveTimersByCallSite) -> Vec<(u32, usize)> {
    let here = |it: &&CallSiteTimers| it.location.file() == file!();
    let call_sites = report.by_live_count().iter().filter(here);
    let mut lines: Vec<_> = call_sites.map(|it| (it.location.line(), it.live)).collect();
    lines.sort_unstable();
    assert_eq!(
        lines.len(),
        report.by_live_count().len(),
        "a call site outside this file: {report}"
    );
    lines
}

#[track_caller]
fn line() -> u32 {
    Location::caller().line()
}

#[test]
fn each_add_records_its_call_site() {
    in_virtual_time(|_| {
        let (timer, shard) = (local_timer(), local_timer().shard_ref());
        let reusable = [(); 2].map(|()| ReusableTimer::new(|_| ()));
        let first = line() + 1;
        timer.add(HOUR, || ());
        timer.try_add(HOUR, || ()).expect("there is room");
        timer.add_periodic(HOUR, || ());
        timer.try_add_periodic(HOUR, || ()).expect("there is room");
        timer.add_local(HOUR, || ());
        timer.try_add_local(HOUR, || ()).expect("there is room");
        shard.add(HOUR, || ());
        shard.try_add(HOUR, || ()).expect("there is room");
        shard.add_periodic(HOUR, || ());
        shard.try_add_periodic(HOUR, || ()).expect("there is room");
        shard.run(|| ());
        shard.try_run(|| ()).expect("there is room");
        reusable[0].arm(HOUR);
        reusable[1].try_arm(HOUR).expect("there is room");
        let expected: Vec<_> = (first..first + 14).map(|line| (line, 1)).collect();
        assert_eq!(lines(&timer.live_timers_by_call_site()), expected);
    });
}

#[test]
fn each_add_to_a_shard_records_its_call_site() {
    let (mut shard, _) = manual_shard();
    let first = line() + 1;
    shard.add(HOUR, ());
    shard.try_add(HOUR, ()).expect("there is room");
    shard.add_periodic(HOUR, ());
    shard.try_add_periodic(HOUR, ()).expect("there is room");
    let expected: Vec<_> = (first..first + 4).map(|line| (line, 1)).collect();
    assert_eq!(lines(&shard.live_timers_by_call_site()), expected);
    drop(shard.drain());
    assert!(shard.live_timers_by_call_site().by_live_count().is_empty());
}

#[test]
fn a_remote_add_records_the_call_site_of_its_caller() {
    in_virtual_time(|clock| {
        let shard = local_timer().shard_ref();
        let added = on_a_thread(|| {
            shard.add(HOUR, || ());
            shard.add_periodic(HOUR, || ());
            shard.run(|| ());
            line() - 3
        });
        assert_eq!(lines(&local_timer().live_timers_by_call_site()), [], "not admitted yet");
        local_timer().turn();
        clock.advance(TICK);
        let expected = [(added, 1), (added + 1, 1)];
        assert_eq!(
            lines(&local_timer().live_timers_by_call_site()),
            expected,
            "the closure has run"
        );
    });
}

fn poll_all<F: Future + Unpin>(futures: &mut [F]) {
    let context = &mut Context::from_waker(Waker::noop());
    assert!(futures.iter_mut().all(|it| Pin::new(it).poll(context).is_pending()));
}

#[test]
fn futures_and_operations_record_where_they_were_created() {
    in_virtual_time(|clock| {
        let (timers, at) = (Timers::new(&[local_timer().shard_ref()]), clock.now() + HOUR);
        let purgatory = Purgatory::<u8, NeverCompletes>::new();
        let never = pending::<()>;
        let first = line() + 1;
        let mut sleeps = [sleep(HOUR), sleep_until(at)];
        let mut other_sleeps = [timers.sleep(HOUR), timers.sleep_until(at)];
        let mut timeouts = [timeout(HOUR, never()), timeout_at(at, never())];
        let mut other_timeouts = [timers.timeout(HOUR, never()), timers.timeout_at(at, never())];
        let mut intervals = [interval(HOUR), interval_at(at, HOUR)];
        let mut other_intervals = [timers.interval(HOUR), timers.interval_at(at, HOUR)];
        let _ = purgatory.try_complete_else_watch(NeverCompletes, [1], HOUR).expect("room is left");
        poll_all(&mut sleeps);
        poll_all(&mut other_sleeps);
        poll_all(&mut timeouts);
        poll_all(&mut other_timeouts);
        // The first tick of `interval` is ready at once, and the second in an hour.
        let context = &mut Context::from_waker(Waker::noop());
        for _ in 0..2 {
            let _ = intervals.each_mut().map(|it| it.poll_tick(context));
            let _ = other_intervals.each_mut().map(|it| it.poll_tick(context));
        }
        let pairs = (first..first + 6).flat_map(|line| [(line, 1); 2]);
        let expected: Vec<_> = pairs.chain([(first + 6, 1)]).collect();
        assert_eq!(lines(&local_timer().live_timers_by_call_site()), expected);
    });
}

fn leak(timer: LocalTimer) {
    timer.add(HOUR, || ());
}

#[test]
fn live_timers_by_call_site_sorts_by_frequency_and_by_age() {
    in_virtual_time(|clock| {
        let timer = local_timer();
        let old = timer.add(HOUR, || ());
        let ended = timer.add(TICK, || ());
        clock.advance(TICK * 5);
        (0..100).for_each(|_| leak(timer));
        timer.turn();
        assert!(!ended.is_pending());
        clock.advance(TICK * 10);
        timer.turn();
        // Later timers do not change the age of the oldest one.
        (0..2).for_each(|_| leak(timer));
        // A reset does not change the age of a timer.
        assert!(old.reset(HOUR));
        let report = timer.live_timers_by_call_site();
        let [leaked, other] = report.by_live_count() else { panic!("two call sites: {report}") };
        assert_eq!((leaked.live, leaked.oldest_age), (102, TICK * 10));
        assert_eq!((other.live, other.oldest_age), (1, TICK * 15));
        assert_eq!(report.by_age(), [*other, *leaked]);
        let text = report.to_string();
        let leaks = text.lines().nth(1).expect("a line for the first call site");
        assert!(["102", "0.010 s", "origins.rs"].iter().all(|it| leaks.contains(it)), "{text}");
        assert_eq!(old.cancel(), Cancel::Cancelled);
        assert_eq!(timer.live_timers_by_call_site().by_live_count().len(), 1);
    });
}

/// A reused node reports the call site of its new timer, even if its page was freed in between.
#[test]
fn live_timers_by_call_site_omits_ended_timers() {
    in_virtual_time(|clock| {
        let timers: Vec<_> = (0..5_000).map(|_| local_timer().add(HOUR, || ())).collect();
        for timer in timers {
            assert_eq!(timer.cancel(), Cancel::Cancelled);
        }
        for _ in 0..100 {
            clock.advance(TICK);
            local_timer().turn();
        }
        assert!(local_timer().live_timers_by_call_site().by_live_count().is_empty());
        let last = line() + 1;
        (0..5_000).for_each(|_| _ = local_timer().add(HOUR, || ()));
        assert_eq!(lines(&local_timer().live_timers_by_call_site()), [(last, 5_000)]);
    });
}

/// If the function of a clock panics against its contract, the wheel stays intact.
#[test]
fn a_panic_of_the_clock_leaves_the_wheel_intact() {
    on_a_thread(|| {
        let calls_until_panic = Arc::new(AtomicUsize::new(usize::MAX));
        let left = Arc::clone(&calls_until_panic);
        let clock = Clock::from_fn(Instant::now(), move || {
            if left.fetch_sub(1, Ordering::Relaxed) == 0 {
                resume_unwind(Box::new("planned"));
            }
            Duration::ZERO
        });
        Config::new().clock(clock).install().expect("a new thread");
        let (timer, shard) = (local_timer(), local_timer().shard_ref());
        let mut live = 0;
        for calls in 0..4 {
            // The next add uses the node of this timer again.
            assert_eq!(timer.add(HOUR, || ()).cancel(), Cancel::Cancelled);
            calls_until_panic.store(calls, Ordering::Relaxed);
            live += usize::from(catch_unwind(|| timer.add(HOUR, || ())).is_ok());
            calls_until_panic.store(usize::MAX, Ordering::Relaxed);
            on_a_thread(|| shard.add(HOUR, || ()));
            calls_until_panic.store(calls, Ordering::Relaxed);
            let _ = catch_unwind(|| timer.turn());
            calls_until_panic.store(usize::MAX, Ordering::Relaxed);
            timer.turn();
            live += 1;
            assert_eq!(timer.len(), live);
        }
        assert_eq!(timer.drain().len(), live);
    });
}
