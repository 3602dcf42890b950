//! The reports of a shard: its counts, the lateness of its timers with the cause, and a loop that
//! stalls.

use std::{
    panic::panic_any,
    sync::mpsc,
    task::{Context, Waker},
    time::Duration,
};

use corewheel::{
    Cancel, Config, Counts, ManualClock, ShardRef, TimerHandle,
    future::Timers,
    local_timer,
    metrics::{self, Histogram, ShardMetrics, Stall, Watch},
};

use crate::support::{
    Counter, HOUR, Lockstep, OnDrop, TICK, TOO_LONG, WAKE_BACKLOG, cancel_all_elsewhere,
    configured, elsewhere, expired, named_shard, never, on_a_core, on_a_thread, pass, turn_after,
};

fn own() -> ShardMetrics {
    local_timer().metrics().expect("the thread has a timer")
}

/// The counts that other threads see.
fn published() -> Counts {
    local_timer().shard_ref().metrics().counts
}

fn announce_sleep() {
    drop(local_timer().prepare_sleep());
}

/// The metrics of the shard called `name`, as any thread sees them.
pub(crate) fn named(name: &str) -> Option<ShardMetrics> {
    metrics::shards().into_iter().find(|shard| shard.name == name)
}

// ---- counts

#[test]
fn resets_of_every_kind_of_timer_are_counted() {
    on_a_core(|_| {
        let periodic = local_timer().add_periodic(TICK * 5, never);
        let moved = local_timer().add(TICK * 5, never);
        let arrived = elsewhere(|shard| shard.add(TICK * 5, never));
        let _ = local_timer().turn();
        assert!(on_a_thread(|| moved.reset(TICK * 9)));
        assert!([periodic, moved, arrived].iter().all(|timer| timer.reset(TICK * 7)));
        assert_eq!(local_timer().counts().resets, 3);
        let _ = local_timer().turn();
        announce_sleep();
        assert_eq!((published().resets, published().resets_elsewhere), (3, 0));
        // Also one that moves nothing.
        assert!(on_a_thread(|| moved.reset(TICK * 7)));
        let _ = local_timer().turn();
        announce_sleep();
        assert_eq!((published().resets, published().resets_elsewhere), (3, 1));
    });
    // A due timer that another thread resets is counted once.
    on_a_core(|clock| {
        let moved = local_timer().add(TICK * 2, || {});
        local_timer().add(TICK, move || assert!(on_a_thread(|| moved.reset(TICK * 10))));
        assert_eq!(turn_after(clock, 3).fired, 1);
        let Counts { fired, resets, resets_elsewhere, live, .. } = local_timer().counts();
        assert_eq!((fired, resets, resets_elsewhere, live), (1, 0, 1, 1));
        assert_eq!((turn_after(clock, 9).fired, turn_after(clock, 1).fired), (0, 1));
        assert_eq!(local_timer().counts().resets_elsewhere, 1);
    });
}

/// It also holds if nothing else changes and the wheel has no work.
#[test]
fn each_count_is_published_before_a_sleep() {
    type Count = fn(Counts) -> u64;
    let steps: [fn(&ManualClock, &ShardRef) -> Count; 5] = [
        // A callback that runs at once is never in the wheel.
        |_, shard| {
            on_a_thread(|| shard.run(|| ()));
            assert_eq!(local_timer().turn().fired, 1);
            |counts| counts.runs
        },
        |_, shard| {
            assert_eq!(on_a_thread(|| shard.add(TICK, never).cancel()), Cancel::Cancelled);
            assert_eq!(local_timer().turn().collected, 1);
            |counts| counts.cancelled
        },
        |_, shard| {
            assert!(on_a_thread(|| shard.add(TICK, never)).reset(TICK * 2));
            |counts| counts.resets
        },
        |clock, _| {
            clock.set(Duration::ZERO);
            let _ = local_timer().turn();
            |counts| counts.clock_regressions
        },
        |clock, _| {
            local_timer().add(TICK, never);
            clock.advance(TICK);
            announce_sleep();
            assert!(local_timer().turn_within(0).behind);
            |counts| counts.overruns
        },
    ];
    for step in steps {
        on_a_core(|clock| {
            turn_after(clock, 1);
            let shard = local_timer().shard_ref();
            let count = step(clock, &shard);
            announce_sleep();
            let published = on_a_thread(|| shard.metrics().counts);
            assert_eq!((count(published), count(local_timer().counts())), (1, 1));
        });
    }
}

/// Published counts follow a backlog without a look at each of its messages.
#[test]
fn a_backlog_is_published_in_portions() {
    const BATCH: u64 = WAKE_BACKLOG as u64;
    /// The most that other threads see.
    const MANY: u64 = 3 * BATCH;
    on_a_core(|_| {
        let timers: Vec<_> = (0..5_000).map(|_| local_timer().add(TICK * 10, never)).collect();
        let late = local_timer().add(TICK * 10, never);
        cancel_all_elsewhere(&timers);
        let counts = || own().counts;
        assert_eq!((counts().held, counts().queued), (5_000, 5_000), "the owner sees all");
        assert_eq!(published().queued, MANY, "or more");
        for turn in 1..4 {
            local_timer().turn();
            announce_sleep();
            let left = 5_000 - turn * BATCH;
            let Counts { cancelled_elsewhere, live, queued, held, .. } = published();
            assert_eq!((cancelled_elsewhere, live, queued), (turn * BATCH, left + 1, MANY));
            assert_eq!((held, counts().held, counts().queued), (MANY, left, left));
        }
        cancel_all_elsewhere(&[late]);
        assert_eq!((published().queued, counts().queued), (MANY + 1, 5_001 - MANY));
        while local_timer().turn().behind {}
        assert_eq!((counts().held, counts().queued), (0, 0));
    });
    on_a_core(|_| {
        let timers = [(); 2].map(|()| local_timer().add(TICK * 100, never));
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
fn any_thread_sees_every_shard_as_of_its_last_sleep() {
    const NAME: &str = "seen from elsewhere";
    let mut cores: Lockstep<()> = Lockstep::start_with(1, |config| config.name(NAME));
    let seen = || {
        let counts = named(NAME).expect("it exists").counts;
        (counts.added, counts.live, counts.turns)
    };
    cores.on(0, |()| _ = local_timer().add(HOUR, never));
    assert_eq!(seen(), (1, 1, 0), "at once, as the loop has not begun");
    cores.on(0, |()| {
        local_timer().turn();
        local_timer().add(HOUR, never);
        announce_sleep();
    });
    assert_eq!(seen(), (2, 2, 1));
    cores.end(0);
    assert!(named(NAME).is_none(), "it has ended");
    let last = cores.shards[0].metrics().counts;
    assert_eq!((last.added, last.live, last.handed_back), (2, 0, 2));
    // A loop that never sleeps publishes after some turns.
    on_a_core(|_| {
        local_timer().add(HOUR, never);
        (0..64).for_each(|_| _ = local_timer().turn());
        let Counts { added, live, turns, .. } = published();
        assert_eq!((added, live, turns), (1, 1, 64));
    });
}

// ---- lateness

/// Count, maximum and total of a histogram in ticks.
fn in_ticks(histogram: &Histogram) -> (u64, u128, u128) {
    let ticks = |duration: Duration| duration.as_nanos() / TICK.as_nanos();
    (histogram.count(), ticks(histogram.max()), ticks(histogram.total()))
}

/// Lateness that the loop caused, and that the budget of earlier turns caused.
fn lateness() -> [(u64, u128, u128); 2] {
    let metrics = own();
    [in_ticks(&metrics.loop_lateness), in_ticks(&metrics.leftover_lateness)]
}

const NONE: (u64, u128, u128) = (0, 0, 0);

#[test]
fn lateness_after_a_turn_that_was_not_behind_is_the_loops() {
    on_a_core(|clock| {
        for ticks in [10, 10, 12] {
            local_timer().add(TICK * ticks, || ());
        }
        assert_eq!(turn_after(clock, 14).fired, 3);
        assert_eq!(lateness(), [(3, 4, 10), NONE]);
        let percentile = own().loop_lateness.percentile(1.0);
        assert!(percentile >= TICK * 2 && percentile < TICK * 5 / 2);
    });
    // Each run of a periodic timer.
    on_a_core(|clock| {
        local_timer().add_periodic(TICK * 10, || ());
        (0..3).for_each(|_| assert_eq!(turn_after(clock, 11).fired, 1));
        assert_eq!(lateness(), [(3, 3, 6), NONE]);
    });
}

#[test]
fn lateness_after_a_turn_that_was_behind_is_the_turns() {
    on_a_core(|clock| {
        (0..5).for_each(|_| _ = local_timer().add(TICK * 10, || ()));
        clock.advance(TICK * 10);
        assert_eq!(local_timer().turn_within(2).fired, 2);
        clock.advance(TICK * 3);
        assert_eq!((local_timer().turn_within(2).fired, local_timer().turn().fired), (2, 1));
        assert_eq!(lateness(), [(2, 0, 0), (3, 3, 9)]);
        assert_eq!((own().counts.turns, own().counts.overruns), (3, 2));
    });
}

#[test]
fn a_remote_timer_is_late_and_a_remote_run_is_not() {
    on_a_core(|clock| {
        clock.advance(TICK * 1_000);
        elsewhere(|shard| _ = (shard.add(TICK * 2, || ()), shard.run(|| ())));
        assert_eq!(turn_after(clock, 7).fired, 2);
        assert_eq!(lateness(), [(1, 5, 5), NONE]);
    });
    // After a turn that was behind, a timer that was due before that turn is late by the turn.
    on_a_core(|clock| {
        clock.advance(TICK * 10);
        local_timer().add(TICK, || ());
        clock.advance(TICK * 3);
        assert!(local_timer().turn_within(0).behind);
        let past = local_timer().now().checked_sub(TICK * 2).expect("after the start");
        elsewhere(|shard| _ = (shard.add(past, || ()), shard.run(|| ())));
        assert_eq!(turn_after(clock, 1).fired, 3);
        announce_sleep();
        let [by_loop, (count, max, _)] = lateness();
        assert_eq!((by_loop, count, max), (NONE, 2, 3));
    });
}

/// No earlier turn could have fired it.
#[test]
fn a_timer_that_was_due_when_it_was_added_is_not_late() {
    on_a_core(|clock| {
        let past = local_timer().now();
        turn_after(clock, 10);
        local_timer().add(past, || ());
        local_timer().shard_ref().run(|| ());
        assert_eq!((turn_after(clock, 5).fired, lateness()), (2, [NONE; 2]));
    });
    // Nor one that another thread resets to the past before it arrives.
    on_a_core(|clock| {
        let timers = Timers::new(&[local_timer().shard_ref()]);
        clock.advance(TICK * 50);
        let deadline = clock.now();
        turn_after(clock, 50);
        let timer = local_timer().add(TICK * 1_000, never);
        let _sleep = on_a_thread(|| {
            let mut sleep = timers.sleep(TICK * 2_000);
            assert!(sleep.poll_elapsed(&mut Context::from_waker(Waker::noop())).is_pending());
            sleep.reset(deadline);
            sleep
        });
        timer.cancel();
        assert_eq!((turn_after(clock, 5).fired, lateness()), (1, [NONE; 2]));
    });
}

#[test]
fn the_longest_turn_is_known_at_the_next_sleep() {
    on_a_core(|clock| {
        let slow = clock.clone();
        local_timer().add(TICK, move || slow.advance(TICK * 7));
        turn_after(clock, 1);
        assert_eq!(own().longest_turn, Duration::ZERO);
        announce_sleep();
        assert_eq!(own().longest_turn, TICK * 7);
        // The time between turns is not part of them.
        clock.advance(TICK * 20);
        announce_sleep();
        local_timer().turn();
        announce_sleep();
        assert_eq!(own().longest_turn, TICK * 7);
    });
}

#[test]
fn callbacks_are_timed_if_configured() {
    // Each callback takes one tick more than the one before.
    let timed = |one_in, timers| {
        configured(Config::new().time_callbacks(one_in), |clock| {
            for ticks in 1..=timers {
                let slow = clock.clone();
                local_timer().add(TICK, move || slow.advance(TICK * ticks));
                assert_eq!(turn_after(clock, 1).fired, 1);
            }
            in_ticks(&own().callback_durations)
        })
    };
    assert_eq!(timed(0, 5), NONE);
    assert_eq!(timed(1, 5), (5, 5, 15));
    assert_eq!(timed(3, 7), (2, 6, 9), "the third and the sixth");
    configured(Config::new().time_callbacks(1).on_panic(|_| ()), |clock| {
        let slow = clock.clone();
        local_timer().add_periodic(TICK, move || {
            slow.advance(TICK * 2);
            panic!("as planned");
        });
        pass(clock, 3);
        assert_eq!(in_ticks(&own().callback_durations), (3, 2, 6));
    });
}

// ---- levels and shards of payloads

#[test]
fn levels_report_their_slots_and_how_many_are_occupied() {
    on_a_core(|clock| {
        let levels = || own().levels;
        let occupied = || levels().iter().map(|level| level.occupied).collect::<Vec<_>>();
        let slots: Vec<_> = levels().iter().map(|level| level.slot_count).collect();
        assert_eq!(slots, [131_072, 4_096, 4_096, 4_096, 4_096, 4_096]);
        assert_eq!((levels()[0].slot_span, levels()[1].slot_span), (TICK, TICK * 2_048));
        assert_eq!(occupied(), [0; 6]);
        // Two of them share a slot.
        let near = [10, 10, 20].map(|ticks| local_timer().add(TICK * ticks, || ()));
        local_timer().add(HOUR, never);
        local_timer().add(HOUR * 24, never);
        assert_eq!(occupied(), [2, 1, 1, 0, 0, 0]);
        near[2].cancel();
        assert_eq!(occupied(), [1, 1, 1, 0, 0, 0]);
        turn_after(clock, 10);
        assert_eq!(occupied(), [0, 1, 1, 0, 0, 0]);
    });
}

#[test]
fn a_shard_of_payloads_reports_the_same() {
    let (mut shard, clock) = named_shard("payloads");
    let [_, _, cancelled] = [1, 2, 3].map(|id| shard.add(TICK, id));
    assert_eq!(shard.cancel(cancelled), Some(3));
    clock.advance(TICK * 3);
    shard.turn();
    assert!(shard.next_expired().is_some());
    // The pass is given up, and the next turn finishes it.
    clock.advance(TICK);
    assert_eq!(expired(&mut shard).len(), 1);
    assert_eq!(shard.time_until_next(), None);
    let (here, there) = (shard.metrics(), named("payloads").expect("it exists"));
    assert_eq!(here.counts, there.counts);
    assert_eq!((here.counts.fired, here.counts.cancelled, here.counts.turns), (2, 1, 2));
    assert_eq!((there.loop_lateness.max(), there.leftover_lateness.max()), (TICK * 2, TICK * 3));
    let summary = format!("{shard:?}");
    assert!(summary.contains("payloads") && summary.contains("loop_lateness"), "{summary}");
}

// ---- stalls

pub(crate) fn watch(limit: Duration, name: &'static str) -> (Watch, mpsc::Receiver<Stall>) {
    let (tell, told) = mpsc::channel();
    let report = move |stall: &Stall| {
        if stall.name == name {
            let _ = tell.send(stall.clone());
        }
    };
    (Watch::start(limit, report).expect("a thread"), told)
}

pub(crate) fn wait_for(stalls: &mpsc::Receiver<Stall>) -> Stall {
    stalls.recv_timeout(TOO_LONG).expect("it is noticed")
}

#[test]
fn a_loop_that_hangs_while_it_is_behind_is_noticed() {
    const NAME: &str = "a loop that is behind";
    let (_watch, stalls) = watch(TICK * 20, NAME);
    let (mut shard, clock) = named_shard(NAME);
    (0..20).for_each(|timer| _ = shard.add(TICK, timer));
    clock.advance(TICK);
    shard.turn_within(5);
    while shard.next_expired().is_some() {}
    assert_eq!((shard.len(), shard.prepare_sleep().timeout()), (15, Some(Duration::ZERO)));
    clock.advance(TICK * 1_000);
    assert!(!wait_for(&stalls).is_in_turn);
}

/// The pass ends when the loop announces a sleep.
#[test]
fn a_loop_that_has_given_a_pass_up_may_sleep() {
    const NAME: &str = "a pass given up";
    let (_watch, stalls) = watch(TICK * 20, NAME);
    let (mut shard, clock) = named_shard(NAME);
    shard.add(TICK, 1);
    shard.add(TICK * 100_000, 2);
    clock.advance(TICK);
    shard.turn();
    assert_eq!(shard.next_expired().map(|expired| expired.payload), Some(1));
    drop(shard.prepare_sleep());
    clock.advance(TICK * 99_000);
    assert!(stalls.recv_timeout(Duration::from_millis(100)).is_err(), "it may sleep");
    clock.advance(TICK * 2_000);
    assert!(!wait_for(&stalls).is_in_turn);
}

/// A callback that reads the timeout neither ends its turn nor announces a sleep.
#[test]
fn a_callback_that_asks_for_a_timeout_and_hangs_is_noticed() {
    const NAME: &str = "a callback that asks";
    let (_watch, stalls) = watch(TICK * 20, NAME);
    configured(Config::new().name(NAME), |clock| {
        let (tell, told) = mpsc::channel();
        let time = clock.clone();
        local_timer().add(TICK, move || {
            let _ = local_timer().time_until_next();
            announce_sleep();
            time.advance(TICK * 1_000);
            let stall = wait_for(&stalls);
            let is_reported_again = stalls.recv_timeout(Duration::from_millis(100)).is_ok();
            tell.send((stall, is_reported_again)).expect("the test listens");
        });
        assert_eq!(turn_after(clock, 1).fired, 1);
        let (stall, is_reported_again) = told.recv().expect("it is noticed");
        assert!(stall.is_in_turn && stall.to_string().contains(NAME), "{stall}");
        assert!(!is_reported_again && own().stalls >= 1, "once, but other watches count it");
    });
}

#[test]
fn a_loop_that_does_not_turn_is_noticed_and_one_that_sleeps_is_not() {
    const NAME: &str = "a loop that is elsewhere";
    let limit = Duration::from_millis(20);
    let (_watch, stalls) = watch(limit, NAME);
    on_a_thread(move || {
        Config::new().name(NAME).install().expect("a new thread");
        // Without a timer, and with a timer in an hour.
        for _ in 0..2 {
            let sleep = local_timer().prepare_sleep();
            assert!(stalls.recv_timeout(limit * 5).is_err(), "it may sleep");
            drop(sleep);
            local_timer().add(HOUR, never);
        }
        local_timer().add(Duration::from_millis(1), || ());
        let sleep = local_timer().prepare_sleep();
        let stall = wait_for(&stalls);
        assert!(!stall.is_in_turn && stall.lasted > limit, "{stall}");
        drop(sleep);
        local_timer().turn();
        announce_sleep();
        assert!(stalls.recv_timeout(limit * 5).is_err(), "it has turned");
        assert!(own().stalls >= 1, "other watches count it, too");
    });
}

/// Lets the loop of a new thread stall until a watch has noticed it.
fn stall_until_told(name: &'static str, told: mpsc::Receiver<()>) {
    on_a_thread(move || {
        Config::new().name(name).install().expect("a new thread");
        local_timer().add(Duration::from_millis(1), || ());
        let _sleep = local_timer().prepare_sleep();
        told.recv_timeout(TOO_LONG).expect("it is noticed");
    });
}

/// Otherwise the thread that drops the watch would unwind, or abort.
#[test]
fn a_watch_whose_report_throws_a_value_that_panics_ends_quietly() {
    const NAME: &str = "a report that panics";
    let (tell, told) = mpsc::channel();
    let watch = Watch::start(Duration::from_millis(1), move |stall| {
        if stall.name == NAME {
            tell.send(()).expect("the test listens");
            panic_any(OnDrop(|| panic!("a thrown value that panics")));
        }
    });
    stall_until_told(NAME, told);
    drop(watch.expect("a thread"));
}

#[test]
fn a_watch_may_end_in_its_own_report() {
    const NAME: &str = "the last report";
    let (give, given) = mpsc::channel::<Watch>();
    let (tell, told) = mpsc::channel();
    let watch = Watch::start(Duration::from_millis(1), move |stall| {
        if stall.name == NAME {
            drop(given.recv());
            tell.send(()).expect("the test listens");
        }
    });
    give.send(watch.expect("a thread")).expect("it listens");
    stall_until_told(NAME, told);
    // A dropped one has dropped its listener.
    let listener = Counter::default();
    let listens = listener.clone();
    drop(Watch::start(Duration::from_millis(1), move |_| _ = listens.get()).expect("a thread"));
    assert_eq!(listener.shared_by(), 0);
}
