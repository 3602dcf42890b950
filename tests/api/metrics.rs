//! The metrics of a shard: its counts, the lateness of its timers by cause, and its stalls.

use std::{
    panic::panic_any,
    sync::mpsc,
    task::{Context, Waker},
    thread,
    time::Duration,
};

use corewheel::{
    Cancel, Config, Counts, ManualClock, ShardRef, TimerHandle,
    future::Timers,
    local_timer,
    metrics::{self, Histogram, ShardMetrics, Stall, Watchdog},
};

use crate::support::{
    Counter, HOUR, Lockstep, OnDrop, TICK, TOO_LONG, WAKE_AT_QUEUED_MESSAGES,
    call_from_another_thread, cancel_all_remotely, in_checked_virtual_time, manual_shard,
    must_not_run, named_shard, on_a_thread, on_configured_thread, turn_after, turn_and_expire,
    turn_at_each_tick,
};

fn owner_metrics() -> ShardMetrics {
    local_timer().metrics().expect("the thread has a wheel")
}

fn published() -> Counts {
    local_timer().shard_ref().metrics().counts
}

fn announce_sleep() {
    drop(local_timer().prepare_sleep());
}

pub(crate) fn published_metrics(name: &str) -> ShardMetrics {
    metrics::shards().into_iter().find(|shard| shard.name == name).expect("the shard is listed")
}

// ---- counts

#[test]
fn resets_of_local_remote_and_periodic_timers_are_counted() {
    in_checked_virtual_time(|_| {
        let periodic = local_timer().add_periodic(TICK * 5, must_not_run);
        let moved = local_timer().add(TICK * 5, must_not_run);
        let arrived = call_from_another_thread(|shard| shard.add(TICK * 5, must_not_run));
        let _ = local_timer().turn();
        assert!(on_a_thread(|| moved.reset(TICK * 9)));
        assert!([periodic, moved, arrived].iter().all(|timer| timer.reset(TICK * 7)));
        assert_eq!(local_timer().counts().resets, 3);
        let _ = local_timer().turn();
        announce_sleep();
        assert_eq!((published().resets, published().remote_resets), (3, 0));
        // A reset to the deadline that the timer already has is counted, too.
        assert!(on_a_thread(|| moved.reset(TICK * 7)));
        let _ = local_timer().turn();
        announce_sleep();
        assert_eq!((published().resets, published().remote_resets), (3, 1));
    });
    // The remote reset of a due timer counts once.
    in_checked_virtual_time(|clock| {
        let moved = local_timer().add(TICK * 2, || {});
        local_timer().add(TICK, move || assert!(on_a_thread(|| moved.reset(TICK * 10))));
        assert_eq!(turn_after(clock, 3).fired, 1);
        let Counts { fired, resets, remote_resets, live, .. } = local_timer().counts();
        assert_eq!((fired, resets, remote_resets, live), (1, 0, 1, 1));
        assert_eq!((turn_after(clock, 9).fired, turn_after(clock, 1).fired), (0, 1));
        assert_eq!(local_timer().counts().remote_resets, 1);
    });
}

#[test]
fn each_count_is_published_before_a_sleep() {
    type Count = fn(Counts) -> u64;
    let steps: [fn(&ManualClock, &ShardRef) -> Count; 5] = [
        // The closure of `run` is never in the wheel.
        |_, shard| {
            on_a_thread(|| shard.run(|| ()));
            assert_eq!(local_timer().turn().fired, 1);
            |counts| counts.runs
        },
        |_, shard| {
            assert_eq!(on_a_thread(|| shard.add(TICK, must_not_run).cancel()), Cancel::Cancelled);
            assert_eq!(local_timer().turn().collected, 1);
            |counts| counts.cancelled
        },
        |_, shard| {
            assert!(on_a_thread(|| shard.add(TICK, must_not_run)).reset(TICK * 2));
            |counts| counts.resets
        },
        |clock, _| {
            clock.set(Duration::ZERO);
            let _ = local_timer().turn();
            |counts| counts.clock_regressions
        },
        |clock, _| {
            local_timer().add(TICK, must_not_run);
            clock.advance(TICK);
            announce_sleep();
            assert!(local_timer().turn_within(0).behind);
            |counts| counts.turns_behind
        },
    ];
    for step in steps {
        in_checked_virtual_time(|clock| {
            turn_after(clock, 1);
            let shard = local_timer().shard_ref();
            let count = step(clock, &shard);
            announce_sleep();
            let published = on_a_thread(|| shard.metrics().counts);
            assert_eq!((count(published), count(local_timer().counts())), (1, 1));
        });
    }
}

/// Publishing the counts must not walk the messages of a backlog.
#[test]
fn a_published_backlog_stays_3072_until_it_is_consumed() {
    const BATCH: u64 = WAKE_AT_QUEUED_MESSAGES as u64;
    /// The count that is published for a larger backlog until it is consumed.
    const PUBLISHED_BACKLOG_COUNT: u64 = 3 * BATCH;
    in_checked_virtual_time(|_| {
        let timers: Vec<_> =
            (0..5_000).map(|_| local_timer().add(TICK * 10, must_not_run)).collect();
        let late_timer = local_timer().add(TICK * 10, must_not_run);
        cancel_all_remotely(&timers);
        let counts = || owner_metrics().counts;
        assert_eq!((counts().uncollected, counts().queued), (5_000, 5_000), "exact for the owner");
        assert_eq!(published().queued, PUBLISHED_BACKLOG_COUNT);
        for turn in 1..4 {
            local_timer().turn();
            announce_sleep();
            let messages_left = 5_000 - turn * BATCH;
            let Counts { remote_cancels, live, queued, uncollected, .. } = published();
            assert_eq!(
                (remote_cancels, live, queued),
                (turn * BATCH, messages_left + 1, PUBLISHED_BACKLOG_COUNT)
            );
            assert_eq!(
                (uncollected, counts().uncollected, counts().queued),
                (PUBLISHED_BACKLOG_COUNT, messages_left, messages_left)
            );
        }
        cancel_all_remotely(&[late_timer]);
        assert_eq!(
            (published().queued, counts().queued),
            (PUBLISHED_BACKLOG_COUNT + 1, 5_001 - PUBLISHED_BACKLOG_COUNT)
        );
        while local_timer().turn().behind {}
        assert_eq!((counts().uncollected, counts().queued), (0, 0));
    });
    in_checked_virtual_time(|_| {
        let timers = [(); 2].map(|()| local_timer().add(TICK * 100, must_not_run));
        on_a_thread(|| assert!(timers.iter().all(|timer| timer.reset(TICK * 200))));
        assert_eq!(timers.map(TimerHandle::cancel), [Cancel::Cancelled; 2]);
        for queued in [1, 0] {
            local_timer().turn_within(1);
            announce_sleep();
            assert_eq!(published().queued, queued);
        }
    });
}

#[test]
fn counts_are_published_at_sleeps_and_after_64_turns() {
    const NAME: &str = "seen from elsewhere";
    let mut cores: Lockstep<()> = Lockstep::start_with(1, |_, config| config.name(NAME));
    let read_counts = || {
        let counts = published_metrics(NAME).counts;
        (counts.added, counts.live, counts.turns)
    };
    cores.run_on(0, |()| _ = local_timer().add(HOUR, must_not_run));
    assert_eq!(read_counts(), (1, 1, 0), "published at once before the first turn");
    cores.run_on(0, |()| {
        local_timer().turn();
        local_timer().add(HOUR, must_not_run);
        announce_sleep();
    });
    assert_eq!(read_counts(), (2, 2, 1));
    cores.end(0);
    assert!(metrics::shards().iter().all(|shard| shard.name != NAME));
    let last = cores.shards[0].metrics().counts;
    assert_eq!((last.added, last.live, last.handed_back), (2, 0, 2));
    // A loop that never sleeps publishes every 64 turns.
    in_checked_virtual_time(|_| {
        local_timer().add(HOUR, must_not_run);
        (0..64).for_each(|_| _ = local_timer().turn());
        let Counts { added, live, turns, .. } = published();
        assert_eq!((added, live, turns), (1, 1, 64));
    });
    // Turns without work count toward these 64 turns, too.
    in_checked_virtual_time(|clock| {
        turn_after(clock, 1);
        local_timer().add(HOUR, must_not_run);
        (0..65).for_each(|_| _ = turn_after(clock, 1));
        assert_eq!((published().added, published().turns), (1, 66));
    });
}

// ---- lateness

/// Returns the count, and the maximum and total in ticks.
fn count_max_total(histogram: &Histogram) -> (u64, u128, u128) {
    let ticks = |duration: Duration| duration.as_nanos() / TICK.as_nanos();
    (histogram.count(), ticks(histogram.max()), ticks(histogram.sum()))
}

fn lateness() -> [(u64, u128, u128); 2] {
    let metrics = owner_metrics();
    [count_max_total(&metrics.loop_lateness), count_max_total(&metrics.leftover_lateness)]
}

const NO_LATENESS: (u64, u128, u128) = (0, 0, 0);

#[test]
fn lateness_without_an_exhausted_budget_is_loop_lateness() {
    in_checked_virtual_time(|clock| {
        for ticks in [10, 10, 12] {
            local_timer().add(TICK * ticks, || ());
        }
        assert_eq!(turn_after(clock, 14).fired, 3);
        assert_eq!(lateness(), [(3, 4, 10), NO_LATENESS]);
        let percentile = owner_metrics().loop_lateness.percentile(1.0);
        assert!(percentile >= TICK * 2 && percentile < TICK * 5 / 2);
    });
    in_checked_virtual_time(|clock| {
        local_timer().add_periodic(TICK * 10, || ());
        (0..3).for_each(|_| assert_eq!(turn_after(clock, 11).fired, 1));
        assert_eq!(lateness(), [(3, 3, 6), NO_LATENESS]);
    });
}

#[test]
fn lateness_after_an_exhausted_budget_is_leftover_lateness() {
    in_checked_virtual_time(|clock| {
        (0..5).for_each(|_| _ = local_timer().add(TICK * 10, || ()));
        clock.advance(TICK * 10);
        assert_eq!(local_timer().turn_within(2).fired, 2);
        clock.advance(TICK * 3);
        assert_eq!((local_timer().turn_within(2).fired, local_timer().turn().fired), (2, 1));
        assert_eq!(lateness(), [(2, 0, 0), (3, 3, 9)]);
        assert_eq!((owner_metrics().counts.turns, owner_metrics().counts.turns_behind), (3, 2));
    });
}

#[test]
fn lateness_is_recorded_for_remote_adds_but_not_for_submitted_closures() {
    in_checked_virtual_time(|clock| {
        clock.advance(TICK * 1_000);
        call_from_another_thread(|shard| _ = (shard.add(TICK * 2, || ()), shard.run(|| ())));
        assert_eq!(turn_after(clock, 7).fired, 2);
        assert_eq!(lateness(), [(1, 5, 5), NO_LATENESS]);
    });
    // If the latest turn was behind, the lateness of timers due before that turn counts as
    // leftover.
    in_checked_virtual_time(|clock| {
        clock.advance(TICK * 10);
        local_timer().add(TICK, || ());
        clock.advance(TICK * 3);
        assert!(local_timer().turn_within(0).behind);
        let past = local_timer().now().checked_sub(TICK * 2).expect("after the start");
        call_from_another_thread(|shard| _ = (shard.add(past, || ()), shard.run(|| ())));
        assert_eq!(turn_after(clock, 1).fired, 3);
        announce_sleep();
        let [by_loop, (count, max, _)] = lateness();
        assert_eq!((by_loop, count, max), (NO_LATENESS, 2, 3));
    });
}

#[test]
fn a_timer_that_was_due_when_it_was_added_is_not_late() {
    in_checked_virtual_time(|clock| {
        let past = local_timer().now();
        turn_after(clock, 10);
        local_timer().add(past, || ());
        local_timer().shard_ref().run(|| ());
        assert_eq!((turn_after(clock, 5).fired, lateness()), (2, [NO_LATENESS; 2]));
    });
    // A remote timer that is reset to the past before its admission is not late either.
    in_checked_virtual_time(|clock| {
        let timers = Timers::new(&[local_timer().shard_ref()]);
        clock.advance(TICK * 50);
        let deadline = clock.now();
        turn_after(clock, 50);
        let timer = local_timer().add(TICK * 1_000, must_not_run);
        let _sleep = on_a_thread(|| {
            let mut sleep = timers.sleep(TICK * 2_000);
            assert!(sleep.poll_elapsed(&mut Context::from_waker(Waker::noop())).is_pending());
            sleep.reset(deadline);
            sleep
        });
        timer.cancel();
        assert_eq!((turn_after(clock, 5).fired, lateness()), (1, [NO_LATENESS; 2]));
    });
}

#[test]
fn the_longest_turn_is_updated_at_the_next_sleep() {
    in_checked_virtual_time(|clock| {
        let slow = clock.clone();
        local_timer().add(TICK, move || slow.advance(TICK * 7));
        turn_after(clock, 1);
        assert_eq!(owner_metrics().longest_turn, Duration::ZERO);
        announce_sleep();
        assert_eq!(owner_metrics().longest_turn, TICK * 7);
        // The time between two turns is no part of the longest turn.
        clock.advance(TICK * 20);
        announce_sleep();
        local_timer().turn();
        announce_sleep();
        assert_eq!(owner_metrics().longest_turn, TICK * 7);
    });
}

#[test]
fn the_turn_of_an_abandoned_pass_is_measured_until_the_next_sleep() {
    let (mut shard, clock) = manual_shard();
    (0..2).for_each(|payload| _ = shard.add(TICK, payload));
    clock.advance(TICK);
    shard.turn();
    assert!(shard.next_expired().is_some());
    clock.advance(TICK * 7);
    drop(shard.prepare_sleep());
    assert_eq!(shard.metrics().longest_turn, TICK * 7);
    // The loop continues the pass after the sleep, whose length does not count.
    clock.advance(TICK * 20);
    assert_eq!((shard.next_expired().is_some(), shard.next_expired().is_none()), (true, true));
    drop(shard.prepare_sleep());
    assert_eq!(shard.metrics().longest_turn, TICK * 7);
}

#[test]
fn callbacks_are_timed_if_configured() {
    // Each callback takes one tick longer than the callback before it.
    let timed = |one_in, timers| {
        on_configured_thread(Config::new().sample_callbacks(one_in), |clock| {
            for ticks in 1..=timers {
                let slow = clock.clone();
                local_timer().add(TICK, move || slow.advance(TICK * ticks));
                assert_eq!(turn_after(clock, 1).fired, 1);
            }
            count_max_total(&owner_metrics().callback_durations)
        })
    };
    assert_eq!(timed(0, 5), NO_LATENESS);
    assert_eq!(timed(1, 5), (5, 5, 15));
    assert_eq!(timed(3, 7), (2, 6, 9), "the third and the sixth callback");
    on_configured_thread(Config::new().sample_callbacks(1).panic_hook(|_| ()), |clock| {
        let slow = clock.clone();
        local_timer().add_periodic(TICK, move || {
            slow.advance(TICK * 2);
            panic!("as planned");
        });
        turn_at_each_tick(clock, 3);
        assert_eq!(count_max_total(&owner_metrics().callback_durations), (3, 2, 6));
    });
}

#[test]
fn levels_report_their_slots_and_occupied_slots() {
    in_checked_virtual_time(|clock| {
        let levels = || owner_metrics().levels;
        let occupied = || levels().iter().map(|level| level.occupied).collect::<Vec<_>>();
        let slots: Vec<_> = levels().iter().map(|level| level.slot_count).collect();
        assert_eq!(slots, [131_072, 4_096, 4_096, 4_096, 4_096, 4_096]);
        assert_eq!((levels()[0].slot_span, levels()[1].slot_span), (TICK, TICK * 2_048));
        assert_eq!(occupied(), [0; 6]);
        let near = [10, 10, 20].map(|ticks| local_timer().add(TICK * ticks, || ()));
        local_timer().add(HOUR, must_not_run);
        local_timer().add(HOUR * 24, must_not_run);
        assert_eq!(occupied(), [2, 1, 1, 0, 0, 0]);
        near[2].cancel();
        assert_eq!(occupied(), [1, 1, 1, 0, 0, 0]);
        turn_after(clock, 10);
        assert_eq!(occupied(), [0, 1, 1, 0, 0, 0]);
    });
}

#[test]
fn a_shard_of_payloads_reports_counts_and_lateness() {
    let (mut shard, clock) = named_shard("payloads");
    let [_, _, cancelled] = [1, 2, 3].map(|id| shard.add(TICK, id));
    assert_eq!(shard.cancel(cancelled), Some(3));
    clock.advance(TICK * 3);
    shard.turn();
    assert!(shard.next_expired().is_some());
    // The loop abandons the pass, and the next turn hands out the second payload.
    clock.advance(TICK);
    assert_eq!(turn_and_expire(&mut shard).len(), 1);
    assert_eq!(shard.time_until_next(), None);
    let (own_metrics, published) = (shard.metrics(), published_metrics("payloads"));
    assert_eq!(own_metrics.counts, published.counts);
    assert_eq!(
        (own_metrics.counts.fired, own_metrics.counts.cancelled, own_metrics.counts.turns),
        (2, 1, 2)
    );
    assert_eq!(
        (published.loop_lateness.max(), published.leftover_lateness.max()),
        (TICK * 2, TICK * 3)
    );
    let summary = format!("{shard:?}");
    assert!(summary.contains("payloads") && summary.contains("loop_lateness"), "{summary}");
}

#[test]
fn a_loop_that_abandons_each_pass_publishes_counts() {
    const NAME: &str = "abandoned passes";
    let (mut shard, clock) = named_shard(NAME);
    for turn in 1..=100 {
        shard.add(TICK, turn);
        clock.advance(TICK);
        shard.turn();
        assert!(shard.next_expired().is_some());
    }
    let published = published_metrics(NAME).counts;
    // A turn publishes the counts if 64 turns have passed since the last publication.
    assert!((36..=100).contains(&published.fired), "{published:?}");
}

// ---- stalls

pub(crate) fn start_watchdog(
    limit: Duration,
    name: &'static str,
) -> (Watchdog, mpsc::Receiver<Stall>) {
    let (sender, receiver) = mpsc::channel();
    let report = move |stall: &Stall| {
        if stall.name == name {
            let _ = sender.send(stall.clone());
        }
    };
    (Watchdog::start(limit, report).expect("a thread"), receiver)
}

pub(crate) fn next_stall(stalls: &mpsc::Receiver<Stall>) -> Stall {
    stalls.recv_timeout(TOO_LONG).expect("a report")
}

#[test]
fn a_loop_that_hangs_while_it_is_behind_is_reported() {
    const NAME: &str = "a loop that is behind";
    let (_watchdog, stalls) = start_watchdog(TICK * 20, NAME);
    let (mut shard, clock) = named_shard(NAME);
    (0..20).for_each(|timer| _ = shard.add(TICK, timer));
    clock.advance(TICK);
    shard.turn_within(5);
    while shard.next_expired().is_some() {}
    assert_eq!((shard.len(), shard.prepare_sleep().timeout()), (15, Some(Duration::ZERO)));
    clock.advance(TICK * 1_000);
    assert!(!next_stall(&stalls).is_in_turn);
}

#[test]
fn a_sleep_after_an_abandoned_pass_is_no_stall() {
    const NAME: &str = "a pass given up";
    let (_watchdog, stalls) = start_watchdog(TICK * 20, NAME);
    let (mut shard, clock) = named_shard(NAME);
    shard.add(TICK, 1);
    shard.add(TICK * 100_000, 2);
    clock.advance(TICK);
    shard.turn();
    assert_eq!(shard.next_expired().map(|expired| expired.payload), Some(1));
    drop(shard.prepare_sleep());
    clock.advance(TICK * 99_000);
    assert!(stalls.recv_timeout(Duration::from_millis(100)).is_err(), "a sleep is no stall");
    clock.advance(TICK * 2_000);
    assert!(!next_stall(&stalls).is_in_turn);
}

/// If a callback calls `time_until_next` or announces a sleep, the watchdog still sees the turn in
/// progress.
#[test]
fn a_callback_that_reads_the_timeout_and_hangs_is_reported() {
    const NAME: &str = "a callback that asks";
    let (_watchdog, stalls) = start_watchdog(TICK * 20, NAME);
    on_configured_thread(Config::new().name(NAME), |clock| {
        let (sender, receiver) = mpsc::channel();
        let time = clock.clone();
        local_timer().add(TICK, move || {
            let _ = local_timer().time_until_next();
            announce_sleep();
            time.advance(TICK * 1_000);
            let stall = next_stall(&stalls);
            let is_reported_again = stalls.recv_timeout(Duration::from_millis(100)).is_ok();
            sender.send((stall, is_reported_again)).expect("the test listens");
        });
        assert_eq!(turn_after(clock, 1).fired, 1);
        let (stall, is_reported_again) = receiver.recv().expect("the callback has run");
        assert!(stall.is_in_turn && stall.to_string().contains(NAME), "{stall}");
        assert!(
            !is_reported_again && owner_metrics().stalls >= 1,
            "one report, but other watchdogs count"
        );
    });
}

#[test]
fn a_loop_that_does_not_turn_is_reported_but_a_sleep_is_not() {
    const NAME: &str = "a loop that is elsewhere";
    let limit = TICK * 20;
    let (_watchdog, stalls) = start_watchdog(limit, NAME);
    on_configured_thread(Config::new().name(NAME), move |clock| {
        // The first sleep has no timer; the second has one that is due in an hour.
        for _ in 0..2 {
            let sleep = local_timer().prepare_sleep();
            clock.advance(limit * 5);
            assert!(stalls.recv_timeout(limit * 5).is_err(), "a sleep is no stall");
            drop(sleep);
            local_timer().add(HOUR, must_not_run);
        }
        local_timer().add(TICK, || ());
        let sleep = local_timer().prepare_sleep();
        clock.advance(limit * 5);
        let stall = next_stall(&stalls);
        assert!(!stall.is_in_turn && stall.lasted > limit, "{stall}");
        drop(sleep);
        local_timer().turn();
        announce_sleep();
        clock.advance(limit * 5);
        assert!(stalls.recv_timeout(limit * 5).is_err(), "the loop has turned");
        assert!(owner_metrics().stalls >= 1, "other watchdogs count, too");
    });
}

#[test]
fn a_loop_that_leaves_requests_waiting_is_reported_but_a_sleep_is_not() {
    const NAME: &str = "a loop with requests";
    let limit = TICK * 20;
    let (_watchdog, stalls) = start_watchdog(limit, NAME);
    on_configured_thread(Config::new().name(NAME), move |clock| {
        let next_stall = || {
            clock.advance(limit * 5);
            stalls.recv_timeout(Duration::from_millis(100)).ok()
        };
        local_timer().add(HOUR, must_not_run);
        local_timer().turn();
        let sleep = local_timer().prepare_sleep();
        call_from_another_thread(|shard| _ = shard.add(HOUR * 2, must_not_run));
        assert_eq!(next_stall(), None, "the owner sleeps");
        drop(sleep);
        // One check of the watchdog finds the request, and a later check reports the stall.
        let stall = (0..100).find_map(|_| next_stall()).expect("a report");
        assert!(!stall.is_in_turn && stall.has_turned && stall.lasted > limit, "{stall}");
        local_timer().turn();
        assert_eq!(next_stall(), None, "the request was consumed");
    });
}

/// As in a loop that polls without a hook, the wake-up does not end the wait.
#[test]
fn a_first_sleep_that_no_wake_up_ends_is_reported() {
    const NAME: &str = "a poll without a hook";
    let limit = Duration::from_millis(20);
    let (_watchdog, stalls) = start_watchdog(limit, NAME);
    let wait = move |_| {
        call_from_another_thread(|shard| _ = shard.add(TICK, || ()));
        let stall = next_stall(&stalls);
        assert!(!stall.has_turned && stall.requests_wait && stall.lasted > limit, "{stall:?}");
        let text = stall.to_string();
        assert!(
            text.contains("has never turned") && text.contains("`Config::wake_hook`"),
            "{text}"
        );
    };
    on_a_thread(|| {
        Config::new().name(NAME).install().expect("the first use");
        local_timer().sleep_with(wait);
    });
}

/// The loop has published the deadline of a timer that was then cancelled. The turns after this
/// deadline find nothing to do.
#[test]
fn a_loop_whose_due_turns_are_idle_is_not_reported() {
    const NAME: &str = "a loop with idle turns";
    let (_watchdog, stalls) = start_watchdog(TICK * 50, NAME);
    on_configured_thread(Config::new().name(NAME), move |clock| {
        local_timer().add(HOUR, must_not_run);
        turn_after(clock, 5);
        let next = local_timer().add(TICK * 10, must_not_run);
        local_timer().sleep_with(|_| ());
        next.cancel();
        call_from_another_thread(|shard| _ = shard.run(|| ()));
        turn_after(clock, 1);
        for _ in 0..10 {
            turn_after(clock, 20);
            thread::sleep(Duration::from_millis(15));
        }
        assert!(stalls.try_recv().is_err());
    });
}

fn stall_until_reported(name: &'static str, receiver: mpsc::Receiver<()>) {
    on_a_thread(move || {
        Config::new().name(name).install().expect("a new thread");
        local_timer().add(Duration::from_millis(1), || ());
        let _sleep = local_timer().prepare_sleep();
        receiver.recv_timeout(TOO_LONG).expect("a report");
    });
}

/// The report panics with a value whose destructor also panics.
#[test]
fn a_panic_of_a_report_does_not_reach_the_drop_of_its_watchdog() {
    const NAME: &str = "a report that panics";
    let (sender, receiver) = mpsc::channel();
    let watchdog = Watchdog::start(Duration::from_millis(1), move |stall| {
        if stall.name == NAME {
            sender.send(()).expect("the test listens");
            panic_any(OnDrop(|| panic!("a thrown value that panics")));
        }
    });
    stall_until_reported(NAME, receiver);
    drop(watchdog.expect("a thread"));
}

#[test]
fn a_watchdog_may_be_dropped_in_its_own_report() {
    const NAME: &str = "the last report";
    let (give, given) = mpsc::channel::<Watchdog>();
    let (sender, receiver) = mpsc::channel();
    let watchdog = Watchdog::start(Duration::from_millis(1), move |stall| {
        if stall.name == NAME {
            drop(given.recv());
            sender.send(()).expect("the test listens");
        }
    });
    give.send(watchdog.expect("a thread")).expect("the report receives");
    stall_until_reported(NAME, receiver);
    // Dropping a watchdog drops its report closure.
    let listener = Counter::default();
    let listens = listener.clone();
    drop(Watchdog::start(Duration::from_millis(1), move |_| _ = listens.get()).expect("a thread"));
    assert_eq!(listener.other_refs(), 0);
}

#[test]
fn an_abandoned_pass_that_leaves_work_is_behind() {
    let (mut shard, clock) = manual_shard();
    (0..3).for_each(|payload| _ = shard.add(TICK, payload));
    clock.advance(TICK);
    for _ in 0..2 {
        shard.turn();
        assert!(shard.next_expired().is_some() && shard.is_behind());
    }
    shard.turn();
    while shard.next_expired().is_some() {}
    assert_eq!((shard.counts().turns, shard.counts().turns_behind), (3, 2));
}

#[test]
fn an_abandoned_pass_with_a_queued_cancel_is_behind() {
    let (mut shard, clock) = manual_shard();
    shard.add(TICK, 1);
    let cancelled = shard.add(Duration::MAX, 2);
    on_a_thread(|| assert_eq!(cancelled.cancel(), Cancel::Cancelled));
    clock.advance(TICK);
    shard.turn();
    assert!(shard.next_expired().is_some() && shard.is_behind());
    assert_eq!(shard.time_until_next(), Some(Duration::ZERO));
    assert_eq!(turn_and_expire(&mut shard), []);
    assert_eq!((shard.counts().turns_behind, shard.time_until_next()), (1, None));
}

#[test]
fn an_abandoned_pass_without_further_messages_is_not_behind() {
    let (mut shard, _clock) = manual_shard();
    let timer = shard.add(HOUR, 1);
    on_a_thread(|| assert!(timer.reset(Duration::ZERO)));
    shard.turn();
    assert!(shard.next_expired().is_some() && !shard.is_behind());
    shard.turn();
    assert_eq!((shard.counts().turns_behind, shard.time_until_next()), (0, None));
}
