//! What a shard says of itself: the counts, how late its timers fire and why, and a loop that does not turn.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use corewheel::{
    Cancel, Config, Counts, ManualClock, Shard, local_timer,
    metrics::{self, Histogram, ShardMetrics, Stall, Watch},
};

use crate::common::{TICK, in_virtual_time, on_a_thread, operations};

/// What takes longer than this does not happen.
const TOO_LONG: Duration = Duration::from_secs(20);

fn own() -> ShardMetrics {
    local_timer().metrics().expect("the thread has a timer")
}

fn own_counts() -> Counts {
    own().counts
}

/// The metrics of the shard of that name, as any thread sees them.
fn named(name: &str) -> Option<ShardMetrics> {
    metrics::shards().into_iter().find(|shard| shard.name == name)
}

fn elsewhere<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| scope.spawn(work).join().expect("no panic"))
}

#[test]
fn what_happens_here_and_elsewhere_is_counted_apart() {
    in_virtual_time(|clock| {
        let timers: Vec<_> = (0..6).map(|_| local_timer().add(TICK * 10, || ())).collect();
        assert_eq!(timers[0].cancel(), Cancel::Cancelled);
        assert!(timers[1].reset(TICK * 20) && timers[1].reset(TICK * 30));
        elsewhere(|| {
            assert_eq!(timers[2].cancel(), Cancel::Cancelled);
            assert_eq!(timers[3].cancel(), Cancel::Cancelled);
            assert!(timers[4].reset(TICK * 20));
        });
        let before = own().counts;
        assert_eq!((before.held, before.queued), (2, 3));
        local_timer().turn();
        clock.advance(TICK * 20);
        local_timer().turn();
        let Counts {
            added,
            fired,
            live,
            cancelled,
            cancelled_elsewhere,
            resets,
            resets_elsewhere,
            turns,
            ..
        } = own().counts;
        assert_eq!((added, fired, live), (6, 2, 1));
        assert_eq!((cancelled, cancelled_elsewhere), (3, 2));
        assert_eq!((resets, resets_elsewhere), (2, 1));
        assert_eq!(turns, 2);
    });
}

#[test]
fn what_comes_from_elsewhere_is_counted_however_it_is_met() {
    in_virtual_time(|clock| {
        let shard = local_timer().shard_ref();
        let add = || elsewhere(|| shard.add(TICK * 10, || ()));
        // Cancelled before it arrives, by each side; after it has arrived; moved after it has arrived; cancelled at the end.
        elsewhere(|| assert_eq!(shard.add(TICK, || ()).cancel(), Cancel::Cancelled));
        assert_eq!(add().cancel(), Cancel::Cancelled);
        let (gone, moved, met_when_due) = (add(), add(), local_timer().add(TICK * 5, || ()));
        local_timer().turn();
        elsewhere(|| {
            assert_eq!(gone.cancel(), Cancel::Cancelled);
            assert!(moved.reset(TICK * 30) && met_when_due.reset(TICK * 30));
        });
        clock.advance(TICK * 5);
        local_timer().turn();
        let counts = own().counts;
        assert_eq!((counts.cancelled, counts.cancelled_elsewhere), (3, 2));
        assert_eq!((counts.resets, counts.resets_elsewhere, counts.live), (0, 2, 2));
    });
}

#[test]
fn lateness_is_the_loops_where_no_turn_came_before() {
    in_virtual_time(|clock| {
        local_timer().add(TICK * 10, || ());
        local_timer().add(TICK * 10, || ());
        local_timer().add(TICK * 12, || ());
        clock.advance(TICK * 14);
        assert_eq!(local_timer().turn().fired, 3);
        let (metrics, lateness) = (own(), own().loop_lateness);
        assert_eq!((lateness.count(), lateness.max(), lateness.total()), (3, TICK * 4, TICK * 10));
        assert!(lateness.percentile(1.0) >= TICK * 2 && lateness.percentile(1.0) < TICK * 5 / 2);
        assert_eq!(metrics.turn_lateness.count(), 0);
    });
}

#[test]
fn lateness_is_the_turns_where_one_has_left_something() {
    in_virtual_time(|clock| {
        (0..5).for_each(|_| _ = local_timer().add(TICK * 10, || ()));
        clock.advance(TICK * 10);
        assert_eq!(local_timer().turn_within(2).fired, 2);
        clock.advance(TICK * 3);
        assert_eq!(local_timer().turn_within(2).fired, 2);
        assert_eq!(local_timer().turn().fired, 1);
        let metrics = own();
        assert_eq!(
            (metrics.loop_lateness.count(), metrics.loop_lateness.max()),
            (2, Duration::ZERO)
        );
        assert_eq!((metrics.turn_lateness.count(), metrics.turn_lateness.max()), (3, TICK * 3));
        assert_eq!((metrics.counts.turns, metrics.counts.overruns), (3, 2));
    });
}

#[test]
fn what_arrives_late_is_late_and_what_is_to_run_at_once_is_not() {
    in_virtual_time(|clock| {
        let shard = local_timer().shard_ref();
        clock.advance(TICK * 1_000);
        elsewhere(|| _ = (shard.add(TICK * 2, || ()), shard.run(|| ())));
        clock.advance(TICK * 7);
        assert_eq!(local_timer().turn().fired, 2);
        let lateness = own().loop_lateness;
        assert_eq!((lateness.count(), lateness.max()), (1, TICK * 5));
    });
}

/// On its own core as well: no earlier turn could have fired it.
#[test]
fn what_was_due_when_it_was_added_is_not_late() {
    in_virtual_time(|clock| {
        let past = local_timer().now();
        clock.advance(TICK * 10);
        local_timer().turn();
        local_timer().add_at(past, || ());
        local_timer().shard_ref().run(|| ());
        clock.advance(TICK * 5);
        assert_eq!(local_timer().turn().fired, 2);
        assert_eq!((own().loop_lateness.count(), own().turn_lateness.count()), (0, 0));
    });
}

/// A reset to where the timer is already changes nothing else, and is told.
#[test]
fn a_reset_from_elsewhere_that_moves_nothing_is_told() {
    in_virtual_time(|_| {
        let (shard, timer) = (local_timer().shard_ref(), local_timer().add(TICK * 10, || ()));
        local_timer().turn();
        drop(local_timer().prepare_sleep());
        elsewhere(|| assert!(timer.reset(TICK * 10)));
        local_timer().turn();
        drop(local_timer().prepare_sleep());
        assert_eq!(shard.metrics().counts.resets_elsewhere, 1);
    });
}

/// Whatever changes, others hear of it when the loop is about to sleep, also if nothing else changes and the wheel has no work.
#[test]
fn each_count_is_told_by_itself() {
    type Step = (fn(&ManualClock), fn(Counts) -> u64);
    let steps: [Step; 4] = [
        (
            |_| {
                let shard = local_timer().shard_ref();
                assert_eq!(elsewhere(|| shard.add(TICK, || ()).cancel()), Cancel::Cancelled);
                assert_eq!(local_timer().turn().collected, 1);
            },
            |counts| counts.cancelled,
        ),
        (
            |_| {
                let shard = local_timer().shard_ref();
                assert!(elsewhere(|| shard.add(TICK, || ())).reset(TICK * 2));
            },
            |counts| counts.resets,
        ),
        (
            |clock| {
                clock.set(Duration::ZERO);
                let _ = local_timer().turn();
            },
            |counts| counts.clock_regressions,
        ),
        (
            |clock| {
                local_timer().add(TICK, || ());
                clock.advance(TICK);
                drop(local_timer().prepare_sleep());
                assert!(local_timer().turn_within(0).behind);
            },
            |counts| counts.overruns,
        ),
    ];
    for (step, count) in steps {
        in_virtual_time(|clock| {
            clock.advance(TICK);
            let _ = local_timer().turn();
            step(clock);
            drop(local_timer().prepare_sleep());
            let shard = local_timer().shard_ref();
            assert_eq!(
                (elsewhere(|| count(shard.metrics().counts)), count(local_timer().counts())),
                (1, 1)
            );
        });
    }
}

/// Of which kind they are, and where they come from.
#[test]
fn the_owners_resets_are_counted_of_all_timers() {
    in_virtual_time(|_| {
        let shard = local_timer().shard_ref();
        let (periodic, moved) =
            (local_timer().add_periodic(TICK * 5, || ()), local_timer().add(TICK * 5, || ()));
        let arrived = elsewhere(|| shard.add(TICK * 5, || ()));
        let _ = local_timer().turn();
        assert!(elsewhere(|| moved.reset(TICK * 9)));
        assert!([periodic, moved, arrived].iter().all(|timer| timer.reset(TICK * 7)));
        assert_eq!(local_timer().counts().resets, 3);
    });
}

/// What comes from another thread after a turn that has left something, and was due before that: it is late by the turn, as that
/// would not have left it. What is asked to run at once is not late.
#[test]
fn what_comes_late_to_a_loop_that_is_behind_is_late_by_the_turn() {
    in_virtual_time(|clock| {
        let shard = local_timer().shard_ref();
        clock.advance(TICK * 10);
        local_timer().add(TICK, || ());
        clock.advance(TICK * 3);
        assert!(local_timer().turn_within(0).behind);
        let past = local_timer().now().checked_sub(TICK * 2).expect("after the start");
        elsewhere(|| shard.add_at(past, || ()));
        elsewhere(|| shard.run(|| ()));
        clock.advance(TICK);
        assert_eq!(local_timer().turn().fired, 3);
        drop(local_timer().prepare_sleep());
        let ShardMetrics { loop_lateness, turn_lateness, .. } = own();
        assert_eq!(
            (loop_lateness.count(), turn_lateness.count(), turn_lateness.max()),
            (0, 2, TICK * 3)
        );
    });
}

/// And what is left at the end, also if its thread had never met it.
#[test]
fn what_is_handed_back_is_told() {
    let ((sender, shards), (end, ended)) = (mpsc::channel(), mpsc::channel::<()>());
    let owner = thread::spawn(move || {
        sender.send(local_timer().shard_ref()).expect("it is received");
        ended.recv().expect_err("nothing is sent");
    });
    let shard = shards.recv().expect("it has a timer");
    shard.add(TICK * 100_000, || ());
    drop(end);
    owner.join().expect("no panic");
    let Counts { added, handed_back, live, .. } = shard.metrics().counts;
    assert_eq!((added, handed_back, live), (1, 1, 0));
}

/// Of a timer that has not arrived yet, too; and the wheel's work is what it has to do with, of any shard.
#[test]
fn what_the_owner_does_with_what_has_not_arrived_is_counted() {
    in_virtual_time(|clock| {
        let shard = local_timer().shard_ref();
        let there = elsewhere(|| shard.add(TICK * 10, || ()));
        assert!(there.reset(TICK * 20) && there.reset(TICK * 5));
        assert_eq!((own_counts().resets, own_counts().touched), (2, 0));
        clock.advance(TICK * 5);
        assert_eq!(local_timer().turn().fired, 1);
        assert!(own_counts().touched > 0);
        let mut shard = Shard::with_config(Config::new().clock(clock)).expect("valid");
        shard.add(TICK, ());
        assert_eq!(shard.counts().touched, 1);
    });
}

/// Whoever forbids further runs during one has cancelled it.
#[test]
fn a_periodic_timer_stopped_in_its_run_is_counted_for_who_did_it() {
    for by_another in [false, true] {
        in_virtual_time(|clock| {
            let own = std::rc::Rc::new(std::cell::Cell::new(None::<corewheel::TimerHandle>));
            let handle = std::rc::Rc::clone(&own);
            own.set(Some(local_timer().add_periodic(TICK, move || {
                let handle = handle.get().expect("it is set");
                let answer =
                    if by_another { elsewhere(|| handle.cancel()) } else { handle.cancel() };
                assert_eq!(answer, Cancel::Running);
            })));
            clock.advance(TICK);
            assert_eq!(local_timer().turn().fired, 1);
            let Counts { cancelled, cancelled_elsewhere, live, panicked, .. } = own_counts();
            assert_eq!((cancelled, cancelled_elsewhere, live), (1, u64::from(by_another), 0));
            assert_eq!(panicked, 0, "each answer was `Running`");
        });
    }
}

/// A flood of cancels from elsewhere is told without looking through it in each turn.
#[test]
fn a_flood_is_told_and_met_in_portions() {
    /// That other threads count.
    const MANY: u64 = 3_072;
    in_virtual_time(|_| {
        let timers: Vec<_> = (0..5_000).map(|_| local_timer().add(TICK * 10, || ())).collect();
        let late = local_timer().add(TICK * 10, || ());
        elsewhere(|| timers.iter().for_each(|timer| assert_eq!(timer.cancel(), Cancel::Cancelled)));
        let told = || local_timer().shard_ref().metrics().counts;
        assert_eq!(
            (own_counts().held, own_counts().queued),
            (5_000, 5_000),
            "the owner looks through all"
        );
        assert_eq!(told().queued, MANY, "or more");
        for turn in 1..4 {
            local_timer().turn();
            drop(local_timer().prepare_sleep());
            let left = 5_000 - turn * 1_024;
            assert_eq!(
                (told().cancelled_elsewhere, told().live, told().queued),
                (turn * 1_024, left + 1, MANY)
            );
            assert_eq!((told().held, own_counts().held, own_counts().queued), (16, left, left));
        }
        elsewhere(|| assert_eq!(late.cancel(), Cancel::Cancelled));
        assert_eq!(
            (told().queued, own_counts().queued),
            (MANY + 1, 5_001 - 3 * 1_024),
            "and what came after the turn"
        );
        while local_timer().turn().behind {}
        assert_eq!((own_counts().held, own_counts().queued), (0, 0));
    });
}

#[test]
fn a_panic_is_told_to_all_at_once() {
    on_a_thread(|| {
        Config::new().on_panic(|_| ()).install().expect("a fresh thread");
        local_timer().add(Duration::ZERO, || panic!("as planned"));
        while local_timer().turn().fired == 0 {}
        assert_eq!(
            (local_timer().shard_ref().metrics().counts.panicked, own_counts().panicked),
            (1, 1)
        );
    });
}

/// Each run of a periodic timer has a deadline.
#[test]
fn runs_of_periodic_timers_are_late_too() {
    in_virtual_time(|clock| {
        local_timer().add_periodic(TICK * 10, || ());
        for _ in 0..3 {
            clock.advance(TICK * 11);
            assert_eq!(local_timer().turn().fired, 1);
        }
        let lateness = own().loop_lateness;
        assert_eq!((lateness.count(), lateness.max(), lateness.total()), (3, TICK * 3, TICK * 6));
    });
}

#[test]
fn the_longest_turn_is_known_when_the_loop_asks_for_the_next() {
    in_virtual_time(|clock| {
        let slow = clock.clone();
        local_timer().add(TICK, move || slow.advance(TICK * 7));
        clock.advance(TICK);
        local_timer().turn();
        assert_eq!(own().longest_turn, Duration::ZERO);
        drop(local_timer().prepare_sleep());
        assert_eq!(own().longest_turn, TICK * 7);
        // What comes after the turn is not part of it.
        clock.advance(TICK * 20);
        drop(local_timer().prepare_sleep());
        local_timer().turn();
        drop(local_timer().prepare_sleep());
        assert_eq!(own().longest_turn, TICK * 7);
    });
}

/// Runs `timers` one after the other, of which each takes a tick longer than the one before; how long those took that were timed.
fn timed(one_in: u32, timers: u32) -> Histogram {
    on_a_thread(move || {
        let clock = ManualClock::new();
        Config::new().clock(&clock).time_callbacks(one_in).install().expect("a fresh thread");
        for ticks in 1..=timers {
            let slow = clock.clone();
            local_timer().add(TICK, move || slow.advance(TICK * ticks));
            clock.advance(TICK);
            assert_eq!(local_timer().turn().fired, 1);
        }
        own().callback_durations
    })
}

#[test]
fn callbacks_are_timed_where_that_is_asked_for() {
    assert_eq!(timed(0, 5).count(), 0);
    let all = timed(1, 5);
    assert_eq!((all.count(), all.max(), all.total()), (5, TICK * 5, TICK * 15));
    let some = timed(3, 7);
    assert_eq!(
        (some.count(), some.max(), some.total()),
        (2, TICK * 6, TICK * 9),
        "the third and the sixth"
    );
}

#[test]
fn runs_are_timed_and_those_that_panic_as_well() {
    let durations = on_a_thread(|| {
        let clock = ManualClock::new();
        Config::new().clock(&clock).time_callbacks(1).install().expect("a fresh thread");
        let slow = clock.clone();
        local_timer().add_periodic(TICK, move || {
            slow.advance(TICK * 2);
            std::panic::resume_unwind(Box::new("a run that fails"));
        });
        for _ in 0..3 {
            clock.advance(TICK);
            assert_eq!(local_timer().turn().fired, 1);
        }
        own().callback_durations
    });
    assert_eq!((durations.count(), durations.total()), (3, TICK * 6));
}

#[test]
fn other_threads_are_told_of_levels_when_they_have_asked() {
    in_virtual_time(|_| {
        let shard = local_timer().shard_ref();
        let occupied = || elsewhere(|| shard.metrics().levels).first().map(|level| level.occupied);
        local_timer().add(TICK * 10, || ());
        assert_eq!(occupied(), None, "nobody has asked");
        drop(local_timer().prepare_sleep());
        local_timer().add(TICK * 20, || ());
        assert_eq!(occupied(), Some(1), "as it was after the first question");
        drop(local_timer().prepare_sleep());
        assert_eq!(occupied(), Some(2));
    });
}

#[test]
fn levels_say_how_full_they_are() {
    in_virtual_time(|clock| {
        let levels = || own().levels;
        let occupied = || levels().iter().map(|level| level.occupied).collect::<Vec<_>>();
        assert_eq!(
            levels().iter().map(|level| level.slots).collect::<Vec<_>>(),
            [131_072, 4_096, 4_096, 4_096, 4_096, 4_096]
        );
        assert_eq!((levels()[0].slot, levels()[1].slot), (TICK, TICK * 2_048));
        assert_eq!(occupied(), [0; 6]);
        // Two of them meet in a tick.
        let near: Vec<_> = [10, 10, 20].map(|ticks| local_timer().add(TICK * ticks, || ())).into();
        local_timer().add(Duration::from_secs(3_600), || ());
        local_timer().add(Duration::from_secs(86_400), || ());
        assert_eq!(occupied(), [2, 1, 1, 0, 0, 0]);
        near[2].cancel();
        assert_eq!(occupied(), [1, 1, 1, 0, 0, 0]);
        clock.advance(TICK * 10);
        local_timer().turn();
        assert_eq!(occupied(), [0, 1, 1, 0, 0, 0]);
    });
}

#[test]
fn a_shard_of_payloads_says_the_same() {
    let clock = ManualClock::new();
    let mut shard =
        Shard::with_config(Config::new().clock(&clock).name("payloads")).expect("valid");
    shard.add(TICK, 1);
    shard.add(TICK, 2);
    let cancelled = shard.add(TICK, 3);
    assert_eq!(shard.cancel(cancelled), Some(3));
    clock.advance(TICK * 3);
    shard.turn();
    assert!(shard.next_expired().is_some());
    // The pass is given up, and the next one takes it up. Its first timer was not late by the turn.
    clock.advance(TICK);
    shard.turn();
    while shard.next_expired().is_some() {}
    assert_eq!(shard.time_until_next(), None);
    let (here, there) = (shard.metrics(), named("payloads").expect("it exists"));
    assert_eq!(here.counts, there.counts);
    assert_eq!((here.counts.fired, here.counts.cancelled, here.counts.turns), (2, 1, 2));
    assert_eq!((there.loop_lateness.max(), there.turn_lateness.max()), (TICK * 2, TICK * 3));
    let summary = format!("{shard:?}");
    assert!(summary.contains("payloads") && summary.contains("loop_lateness"), "{summary}");
}

#[test]
fn any_thread_sees_every_shard_up_to_its_last_question() {
    let (turned, turns) = mpsc::channel();
    let (seen, looks) = mpsc::channel();
    let owner = thread::spawn(move || {
        Config::new().name("seen from elsewhere").install().expect("a fresh thread");
        local_timer().add(Duration::from_secs(3_600), || ());
        turned.send(local_timer().shard_ref()).expect("it is waited for");
        looks.recv().expect("it is told");
        local_timer().turn();
        drop(local_timer().prepare_sleep());
        turned.send(local_timer().shard_ref()).expect("it is waited for");
        looks.recv().expect("it is told");
    });
    let shard = turns.recv().expect("it has a timer");
    assert_eq!(named("seen from elsewhere").expect("it exists").counts.added, 0);
    seen.send(()).expect("it waits");
    turns.recv().expect("it has turned");
    let told = named("seen from elsewhere").expect("it exists");
    assert_eq!((told.counts.added, told.counts.live, told.counts.turns), (1, 1, 1));
    seen.send(()).expect("it waits");
    owner.join().expect("no panic");
    assert!(named("seen from elsewhere").is_none(), "it has ended");
    let last = shard.metrics().counts;
    assert_eq!((last.added, last.live, last.handed_back), (1, 0, 1), "the last word");
}

#[test]
fn a_thread_gives_its_shard_its_name() {
    let named =
        thread::Builder::new().name("reactor 7".to_owned()).spawn(|| own().name).expect("started");
    assert_eq!(named.join().expect("no panic"), "reactor 7");
    assert_eq!(thread::spawn(|| own().name).join().expect("no panic"), "");
}

/// While the owner works, every reading adds up and none goes back.
#[test]
fn every_reading_adds_up() {
    let is_over = AtomicBool::new(false);
    let (sender, shard) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(1);
            local_timer().add(Duration::from_secs(3_600), || ());
            sender.send(local_timer().shard_ref()).expect("it is waited for");
            for _ in 0..operations(20_000) {
                let timer = local_timer().add(Duration::from_micros(random.u64(..3_000)), || ());
                if random.bool() {
                    timer.cancel();
                }
                if random.u8(..4) == 0 {
                    local_timer().turn_within(random.usize(..4));
                }
            }
            // Relaxed: an end, sooner or later.
            is_over.store(true, Ordering::Relaxed);
        });
        let shard = shard.recv().expect("it has a timer");
        let mut last = (0, 0, 0);
        while !is_over.load(Ordering::Relaxed) {
            let Counts { added, live, fired, cancelled, handed_back, .. } = shard.metrics().counts;
            assert_eq!(added, live + fired + cancelled + handed_back);
            assert!(added >= last.0 && fired >= last.1 && cancelled >= last.2);
            last = (added, fired, cancelled);
        }
    });
}

/// A watch whose reports about the shard of that name arrive in the channel.
fn watch(limit: Duration, name: &'static str) -> (Watch, mpsc::Receiver<Stall>) {
    let (tell, told) = mpsc::channel();
    let report = move |stall: &Stall| {
        if stall.name == name {
            let _ = tell.send(stall.clone());
        }
    };
    (Watch::start(limit, report).expect("a thread"), told)
}

#[test]
fn a_callback_that_takes_too_long_is_noticed_once() {
    const NAME: &str = "a slow callback";
    let limit = Duration::from_millis(20);
    let (watch, stalls) = watch(limit, NAME);
    on_a_thread(move || {
        Config::new().name(NAME).install().expect("a fresh thread");
        let (tell, told) = mpsc::channel();
        local_timer().add(Duration::ZERO, move || {
            let first = stalls.recv_timeout(TOO_LONG).expect("it is noticed");
            tell.send((first, stalls.recv_timeout(limit * 5).ok())).expect("it is waited for");
        });
        thread::sleep(Duration::from_millis(2));
        assert_eq!(local_timer().turn().fired, 1);
        let (stall, another) = told.recv().expect("the callback did not panic");
        assert_eq!(another, None, "it is one stall");
        assert!(stall.is_in_turn && stall.lasted > limit, "{stall}");
        assert!(stall.to_string().contains(NAME), "{stall}");
        assert!(own().stalls >= 1, "each watch of the process counts it");
    });
    drop(watch);
}

/// A shard in virtual time, so that no pause of the machine is a stall.
fn virtual_shard(name: &str) -> (Shard<u32>, ManualClock) {
    let clock = ManualClock::new();
    (Shard::with_config(Config::new().clock(&clock).name(name)).expect("valid"), clock)
}

#[test]
fn a_loop_that_hangs_while_it_is_behind_is_noticed() {
    const NAME: &str = "a loop that is behind";
    let (watch, stalls) = watch(TICK * 20, NAME);
    let (mut shard, clock) = virtual_shard(NAME);
    (0..20).for_each(|timer| _ = shard.add(TICK, timer));
    clock.advance(TICK);
    shard.turn_within(5);
    while shard.next_expired().is_some() {}
    assert_eq!((shard.len(), shard.prepare_sleep().timeout()), (15, Some(Duration::ZERO)));
    clock.advance(TICK * 1_000);
    let stall = stalls.recv_timeout(TOO_LONG).expect("it is noticed");
    assert!(!stall.is_in_turn, "{stall}");
    drop(watch);
}

/// A pass that is given up loses nothing, and is over when the loop goes to sleep.
#[test]
fn a_loop_that_has_given_a_pass_up_may_sleep() {
    const NAME: &str = "a pass given up";
    let (watch, stalls) = watch(TICK * 20, NAME);
    let (mut shard, clock) = virtual_shard(NAME);
    shard.add(TICK, 1);
    shard.add(TICK * 100_000, 2);
    clock.advance(TICK);
    shard.turn();
    assert_eq!(shard.next_expired().map(|expired| expired.payload), Some(1));
    drop(shard.prepare_sleep());
    clock.advance(TICK * 99_000);
    assert!(stalls.recv_timeout(Duration::from_millis(100)).is_err(), "it may sleep");
    clock.advance(TICK * 2_000);
    assert!(!stalls.recv_timeout(TOO_LONG).expect("it is noticed").is_in_turn);
    drop(watch);
}

/// A callback is not the loop: what it asks says nothing of when that turns, and does not end its turn.
#[test]
fn a_callback_that_asks_and_then_hangs_is_noticed() {
    const NAME: &str = "a callback that asks";
    let (watch, stalls) = watch(TICK * 20, NAME);
    on_a_thread(move || {
        let clock = ManualClock::new();
        Config::new().clock(&clock).name(NAME).install().expect("a fresh thread");
        let (tell, told) = mpsc::channel();
        let time = clock.clone();
        local_timer().add(TICK, move || {
            let _ = local_timer().time_until_next();
            drop(local_timer().prepare_sleep());
            time.advance(TICK * 1_000);
            tell.send(stalls.recv_timeout(TOO_LONG)).expect("it is waited for");
        });
        clock.advance(TICK);
        assert_eq!(local_timer().turn().fired, 1);
        assert!(told.recv().expect("it has run").expect("it is noticed").is_in_turn);
    });
    drop(watch);
}

/// What waits of a flood is told turn by turn, to its end.
#[test]
fn what_is_queued_is_told_until_it_is_none() {
    in_virtual_time(|_| {
        let shard = local_timer().shard_ref();
        let timers = [(); 2].map(|()| local_timer().add(TICK * 100, || ()));
        elsewhere(|| timers.map(|timer| assert!(timer.reset(TICK * 200))));
        assert_eq!(timers.map(corewheel::TimerHandle::cancel), [Cancel::Cancelled; 2]);
        for queued in [1, 0] {
            local_timer().turn_within(1);
            drop(local_timer().prepare_sleep());
            assert_eq!(shard.metrics().counts.queued, queued);
        }
    });
}

#[test]
fn what_was_due_when_it_arrived_is_not_late() {
    in_virtual_time(|clock| {
        let timers = corewheel::future::Timers::new(&[local_timer().shard_ref()]);
        clock.advance(TICK * 50);
        let deadline = clock.now();
        clock.advance(TICK * 50);
        local_timer().turn();
        let timer = local_timer().add(TICK * 1_000, || ());
        let _sleep = elsewhere(|| {
            let mut sleep = timers.sleep(TICK * 2_000);
            let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
            assert!(sleep.poll_elapsed(context).is_pending());
            sleep.reset(deadline);
            sleep
        });
        timer.cancel();
        clock.advance(TICK * 5);
        assert_eq!(local_timer().turn().fired, 1);
        assert_eq!((own().loop_lateness.count(), own().turn_lateness.count()), (0, 0));
    });
}

#[test]
fn a_loop_that_does_not_turn_is_noticed_and_one_that_sleeps_is_not() {
    const NAME: &str = "a loop that is elsewhere";
    let limit = Duration::from_millis(20);
    let (watch, stalls) = watch(limit, NAME);
    on_a_thread(move || {
        Config::new().name(NAME).install().expect("a fresh thread");
        // With nothing due, and with something that is due in an hour.
        for _ in 0..2 {
            let sleep = local_timer().prepare_sleep();
            assert!(stalls.recv_timeout(limit * 5).is_err(), "it may sleep");
            drop(sleep);
            local_timer().add(Duration::from_secs(3_600), || ());
        }
        local_timer().add(Duration::from_millis(1), || ());
        let sleep = local_timer().prepare_sleep();
        let stall = stalls.recv_timeout(TOO_LONG).expect("it is noticed");
        assert!(!stall.is_in_turn && stall.lasted > limit, "{stall}");
        drop(sleep);
        local_timer().turn();
        drop(local_timer().prepare_sleep());
        assert!(stalls.recv_timeout(limit * 5).is_err(), "it has turned");
        assert!(own().stalls >= 1, "each watch of the process counts it");
    });
    drop(watch);
}

/// Nothing of it is left then.
#[test]
fn a_watch_that_is_dropped_is_over() {
    let listener = Arc::new(());
    let listens = Arc::clone(&listener);
    let watch = Watch::start(Duration::from_millis(1), move |_| _ = &listens).expect("a thread");
    drop(watch);
    assert_eq!(Arc::strong_count(&listener), 1);
}

#[test]
fn a_watch_may_end_in_its_own_report() {
    const NAME: &str = "the last report";
    let (give, given) = mpsc::channel::<Watch>();
    let (tell, told) = mpsc::channel();
    let watch = Watch::start(Duration::from_millis(1), move |stall| {
        if stall.name == NAME {
            drop(given.recv());
            tell.send(()).expect("it is waited for");
        }
    });
    give.send(watch.expect("a thread")).expect("it is there");
    on_a_thread(move || {
        Config::new().name(NAME).install().expect("a fresh thread");
        local_timer().add(Duration::from_millis(1), || ());
        let _sleep = local_timer().prepare_sleep();
        told.recv_timeout(TOO_LONG).expect("it is noticed");
    });
}

/// A loop that never sleeps says what it does, too.
#[test]
fn a_loop_that_never_asks_is_seen_after_some_turns() {
    let (turned, turns) = mpsc::channel();
    let (seen, looks) = mpsc::channel::<()>();
    let owner = thread::spawn(move || {
        local_timer().add(Duration::from_secs(3_600), || ());
        (0..64).for_each(|_| _ = local_timer().turn());
        turned.send(local_timer().shard_ref()).expect("it is waited for");
        let _ = looks.recv();
    });
    let counts = turns.recv().expect("it has a timer").metrics().counts;
    assert_eq!((counts.added, counts.live, counts.turns), (1, 1, 64));
    drop(seen);
    owner.join().expect("no panic");
}
