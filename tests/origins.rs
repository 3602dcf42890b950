//! `live_report`: the call sites that added the live timers.

mod common;
#[path = "common/operation.rs"]
mod operation;

use std::{
    panic::Location,
    pin::pin,
    task::{Context, Waker},
};

use common::{HOUR, TICK, in_virtual_time, manual_shard, on_a_thread};
use corewheel::{
    Cancel, LocalTimer, When,
    future::{Timers, interval, sleep, timeout},
    local_timer,
    metrics::{LiveCallSite, LiveReport},
    purgatory::Purgatory,
};
use operation::NeverCompletes;

/// Returns the lines of this file that added live timers, and the number of timers of each line.
fn lines(report: &LiveReport) -> Vec<(u32, usize)> {
    let here = |it: &&LiveCallSite| it.location.file() == file!();
    let call_sites = report.most_frequent().iter().filter(here);
    let mut lines: Vec<_> = call_sites.map(|it| (it.location.line(), it.live)).collect();
    lines.sort_unstable();
    assert_eq!(
        lines.len(),
        report.most_frequent().len(),
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
        let timer = local_timer();
        let first = line() + 1;
        timer.add(HOUR, || ());
        timer.add(timer.now() + HOUR, || ());
        timer.add(When::after(HOUR).slack(HOUR), || ());
        timer.add(When::after(HOUR).spread(HOUR), || ());
        timer.add_periodic(HOUR, || ());
        timer.try_add(HOUR, || ()).expect("there is room");
        timer.try_add(timer.now() + HOUR, || ()).expect("there is room");
        timer.try_add(When::after(HOUR).slack(HOUR), || ()).expect("there is room");
        timer.try_add(When::after(HOUR).spread(HOUR), || ()).expect("there is room");
        timer.try_add_periodic(HOUR, || ()).expect("there is room");
        timer.add_local(HOUR, || ());
        timer.try_add_local(HOUR, || ()).expect("there is room");
        timer.shard_ref().add(HOUR, || ());
        timer.shard_ref().run(|| ());
        let expected: Vec<_> = (first..first + 14).map(|line| (line, 1)).collect();
        assert_eq!(lines(&timer.live_report()), expected);
    });
}

#[test]
fn each_add_to_a_shard_records_its_call_site() {
    let (mut shard, _) = manual_shard();
    let first = line() + 1;
    shard.add(HOUR, ());
    shard.add(shard.now() + HOUR, ());
    shard.add(When::after(HOUR).slack(HOUR), ());
    shard.add(When::after(HOUR).spread(HOUR), ());
    shard.try_add(HOUR, ()).expect("there is room");
    shard.try_add(shard.now() + HOUR, ()).expect("there is room");
    shard.try_add(When::after(HOUR).slack(HOUR), ()).expect("there is room");
    shard.try_add(When::after(HOUR).spread(HOUR), ()).expect("there is room");
    let expected: Vec<_> = (first..first + 8).map(|line| (line, 1)).collect();
    assert_eq!(lines(&shard.live_report()), expected);
    drop(shard.drain());
    assert!(shard.live_report().most_frequent().is_empty());
}

#[test]
fn a_remote_add_records_the_call_site_of_its_caller() {
    in_virtual_time(|clock| {
        let shard = local_timer().shard_ref();
        let added = on_a_thread(|| {
            shard.add(HOUR, || ());
            shard.run(|| ());
            line() - 2
        });
        assert_eq!(lines(&local_timer().live_report()), [], "not admitted yet");
        local_timer().turn();
        clock.advance(TICK);
        assert_eq!(lines(&local_timer().live_report()), [(added, 1)], "the closure has run");
    });
}

fn poll<F: Future>(future: std::pin::Pin<&mut F>) {
    assert!(future.poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

#[test]
fn futures_and_operations_record_where_they_were_created() {
    in_virtual_time(|_| {
        let timers = Timers::new(&[local_timer().shard_ref()]);
        let purgatory = Purgatory::<u8, NeverCompletes>::new();
        let first = line() + 1;
        let mut sleep = pin!(sleep(HOUR));
        let mut timeout = pin!(timeout(HOUR, std::future::pending::<()>()));
        let mut elsewhere = pin!(timers.sleep(HOUR));
        let mut interval = interval(HOUR);
        let _ = purgatory.try_complete_else_watch(NeverCompletes, [1], HOUR).expect("room is left");
        poll(sleep.as_mut());
        poll(timeout.as_mut());
        poll(elsewhere.as_mut());
        // The interval's first tick is ready at once, and the second in an hour.
        let context = &mut Context::from_waker(Waker::noop());
        assert!(interval.poll_tick(context).is_ready() && interval.poll_tick(context).is_pending());
        let expected: Vec<_> = (first..first + 5).map(|line| (line, 1)).collect();
        assert_eq!(lines(&local_timer().live_report()), expected);
    });
}

fn leak(timer: LocalTimer) {
    timer.add(HOUR, || ());
}

#[test]
fn live_report_sorts_by_frequency_and_by_age() {
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
        // A reset does not change the age of a timer.
        assert!(old.reset(HOUR));
        let report = timer.live_report();
        let [leaked, other] = report.most_frequent() else { panic!("two call sites: {report}") };
        assert_eq!((leaked.live, leaked.oldest), (100, TICK * 10));
        assert_eq!((other.live, other.oldest), (1, TICK * 15));
        assert_eq!(report.oldest(), [*other, *leaked]);
        let text = report.to_string();
        let leaks = text.lines().nth(1).expect("a line for the first call site");
        assert!(["100", "0.010 s", "origins.rs"].iter().all(|it| leaks.contains(it)), "{text}");
        assert_eq!(old.cancel(), Cancel::Cancelled);
        assert_eq!(timer.live_report().most_frequent().len(), 1);
    });
}

/// A reused node reports the call site of its new timer, even if its page was freed in between.
#[test]
fn live_report_omits_ended_timers() {
    in_virtual_time(|clock| {
        let timers: Vec<_> = (0..5_000).map(|_| local_timer().add(HOUR, || ())).collect();
        for timer in timers {
            assert_eq!(timer.cancel(), Cancel::Cancelled);
        }
        for _ in 0..100 {
            clock.advance(TICK);
            local_timer().turn();
        }
        assert!(local_timer().live_report().most_frequent().is_empty());
        let last = line() + 1;
        (0..5_000).for_each(|_| _ = local_timer().add(HOUR, || ()));
        assert_eq!(lines(&local_timer().live_report()), [(last, 5_000)]);
    });
}
