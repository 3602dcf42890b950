//! `When`: each form has the same effect on every kind of wheel, for adds and resets (P1). Timers
//! with slack share wake-ups, and timers with spread are distributed over the ticks (P9).

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use corewheel::{Cancel, Config, ManualClock, Shard, When, local_timer, purgatory::Purgatory};

use crate::support::{
    HOUR, Log, OpRecord, TICK, call_from_another_thread, in_checked_virtual_time, manual_shard,
    must_not_run, nanos, on_a_thread, turn_after, turn_and_expire, turn_at_each_tick,
};

const START_TICK: u64 = 1_000;

/// Returns each form of `When` with the first and the last tick at which its timer may fire, if
/// `now` is 0.4 ticks after the tick `START_TICK`.
fn when_forms(now: Instant) -> [(When, u64, u64); 14] {
    let (after, at) = (When::after(TICK * 5), When::at(now + TICK * 5));
    [
        ((TICK * 5).into(), 1_006, 1_006),
        ((now + TICK * 5).into(), 1_006, 1_006),
        (Duration::ZERO.into(), START_TICK, START_TICK),
        (When::after(Duration::ZERO).slack(TICK / 2), START_TICK, START_TICK),
        (now.into(), START_TICK, START_TICK),
        ((now - TICK / 20).into(), START_TICK, START_TICK),
        ((now - TICK * 3).into(), START_TICK, START_TICK),
        (After(5).into(), 1_006, 1_006),
        // The multiple of the largest possible power of two in 1,006..=1,015.
        (after.slack(TICK * 10), 1_008, 1_008),
        (at.slack(TICK * 10), 1_008, 1_008),
        (after.spread(TICK * 10), 1_006, 1_016),
        (at.spread(TICK * 10), 1_006, 1_016),
        (after.spread(TICK * 2).slack(TICK * 50), 1_024, 1_024),
        (When::at(now - TICK * 3).slack(TICK * 50), 1_024, 1_024),
    ]
}

struct After(u32);

impl From<After> for When {
    fn from(After(ticks): After) -> Self {
        // Uses the wheel, which is not borrowed during a conversion (P5).
        let _ = local_timer().is_empty();
        Self::after(TICK * ticks)
    }
}

fn tick(clock: &ManualClock) -> u64 {
    nanos(clock.elapsed()) / nanos(TICK)
}

fn set_start_time(clock: &ManualClock) {
    clock.set(TICK * 1_000 + TICK * 3 / 10);
}

/// Adds or resets ten timers and adds two operations with `form`. Returns the ticks in which they
/// fired.
fn callback_ticks(form: usize) -> Vec<u64> {
    in_checked_virtual_time(|clock| {
        let (timer, fired) = (local_timer(), Log::new());
        let note = || {
            let (clock, fired) = (clock.clone(), fired.clone());
            move || fired.write(tick(&clock))
        };
        let (shard, far_timers) = (timer.shard_ref(), [(); 3].map(|()| timer.add(HOUR, note())));
        let [own, other, guarded] = far_timers;
        let (local, guard) = (timer.add_local(HOUR, note()), guarded.guard());
        set_start_time(clock);
        timer.turn();
        clock.advance(TICK / 10);
        let (when, ..) = when_forms(clock.now())[form];
        timer.add(when, note());
        timer.try_add(when, note()).expect("there is room");
        timer.add_local(when, note());
        let purgatory = Purgatory::new();
        for _ in 0..2 {
            let op = OpRecord::new().op_with(|| (), note());
            let _ = purgatory.try_complete_else_watch(op, [0], when).expect("there is room");
        }
        shard.add(when, note());
        let remote = on_a_thread(|| {
            assert!(other.reset(when));
            shard.add(when, note());
            shard.add(HOUR, note())
        });
        assert!(remote.reset(when), "before its admission");
        assert!(own.reset(when) && local.reset(when) && guard.reset(when));
        timer.turn();
        turn_at_each_tick(clock, 60);
        guard.disarm();
        fired.take()
    })
}

/// Adds one payload at the given form of `When`, and resets another to it. Returns the ticks in
/// which they fired.
fn payload_ticks(form: usize) -> Vec<u64> {
    let (mut shard, clock) = manual_shard();
    let reset_timer = shard.add(HOUR, ());
    set_start_time(&clock);
    shard.turn();
    clock.advance(TICK / 10);
    let (when, ..) = when_forms(clock.now())[form];
    shard.add(when, ());
    assert!(shard.reset(reset_timer, when));
    let mut fired = Vec::new();
    for _ in 0..60 {
        fired.extend(turn_and_expire(&mut shard).iter().map(|()| tick(&clock)));
        clock.advance(TICK);
    }
    fired
}

#[test]
fn every_add_and_reset_treats_each_form_alike() {
    for (form, (_, first, last)) in when_forms(Instant::now()).into_iter().enumerate() {
        let (callbacks, payloads) = (callback_ticks(form), payload_ticks(form));
        assert_eq!((callbacks.len(), payloads.len()), (12, 2), "form {form}");
        for tick in callbacks.into_iter().chain(payloads) {
            assert!((first..=last).contains(&tick), "form {form}: {tick} not in {first}..={last}");
        }
    }
}

/// Sleeps until no timer remains. Returns the number of wake-ups, and the tick of each expiry.
fn sleep_and_turn(timers: &mut Shard<usize>, clock: &ManualClock) -> (usize, HashMap<usize, u64>) {
    let (mut wakes, mut fired) = (0, HashMap::new());
    while let Some(sleep) = timers.time_until_next() {
        clock.advance(sleep);
        wakes += 1;
        for id in turn_and_expire(timers) {
            assert_eq!(fired.insert(id, tick(clock)), None, "{id} fires once");
        }
    }
    (wakes, fired)
}

#[test]
fn far_timers_with_slack_share_wake_ups() {
    let ((mut timers, clock), mut random) = (manual_shard(), fastrand::Rng::with_seed(1));
    for id in 0..1_000 {
        let delay = Duration::from_millis(random.u64(600_000..700_000));
        timers.add(When::after(delay).slack(Duration::from_secs(10)), id);
    }
    let (wakes, fired) = sleep_and_turn(&mut timers, &clock);
    assert_eq!(fired.len(), 1_000);
    assert!(wakes <= 14, "{wakes} wake-ups in 110 s, more than one per 8,192 ticks");
    assert_eq!(timers.counts().relinked, 1_000, "each timer cascades once");
}

/// Each tick gets at most two timers more than its share, even if other timers are added in
/// between.
#[test]
fn timers_with_spread_are_distributed_evenly() {
    let (mut timers, clock) = manual_shard();
    for count in [10, 1_000] {
        for timers_between in [0, 1, 2, 20, 54, 143] {
            for id in 0..count {
                timers.add(When::after(Duration::from_secs(2)).spread(TICK * 1_000), id);
                let now = timers.now();
                (0..timers_between).for_each(|_| _ = timers.add(now, usize::MAX));
                turn_and_expire(&mut timers);
            }
            let start = tick(&clock) + 2_000;
            let (_, fired) = sleep_and_turn(&mut timers, &clock);
            let mut by_tick = [0; 1_001];
            for &tick in fired.values() {
                by_tick[usize::try_from(tick - start).expect("few")] += 1;
            }
            let fired_max = by_tick.iter().max().copied();
            assert!(
                fired_max <= Some(count.div_ceil(1_000) + 2),
                "{fired_max:?} of {count} and {timers_between}"
            );
            let fired_max = by_tick.chunks(100).map(|tenth| tenth.iter().sum::<usize>()).max();
            assert!(
                fired_max <= Some(count / 10 + 4),
                "{fired_max:?} of {count} and {timers_between}"
            );
        }
    }
}

/// Processes that start together must not retry at the same times.
#[test]
fn the_first_fraction_is_random_in_real_time() {
    let first_deadline = || {
        let start = Instant::now();
        let mut timers = Shard::new();
        let timer = timers.add(When::at(start).spread(Duration::from_secs(1 << 30)), ());
        timers.deadline(timer).expect("the timer is live") - start
    };
    // Each new shard takes over the number of the previous one.
    let [first, second] = [first_deadline(), first_deadline()];
    assert!(first.abs_diff(second) > Duration::from_secs(1), "{first:?} {second:?}");
}

#[test]
fn in_virtual_time_the_fractions_do_not_depend_on_other_clocks() {
    let time_left = |clock: &ManualClock| {
        let mut timers = Shard::with_config(Config::new().clock(clock)).expect("few shards");
        let timer = timers.add(When::after(TICK).spread(HOUR), ());
        timers.time_left(timer).expect("the timer is live")
    };
    let times_left_of_two_wheels = || {
        let clock = ManualClock::new();
        [time_left(&clock), time_left(&clock)]
    };
    let first_run = times_left_of_two_wheels();
    assert_ne!(first_run[0], first_run[1]);
    let _other = Shard::<()>::new();
    assert_eq!(times_left_of_two_wheels(), first_run);
}

#[test]
fn spread_applies_to_resets_and_remote_adds() {
    in_checked_virtual_time(|clock| {
        let when = When::after(TICK).spread(TICK * 100);
        for _ in 0..50 {
            assert!(local_timer().add(HOUR, || ()).reset(when));
        }
        call_from_another_thread(|shard| (0..50).for_each(|_| _ = shard.add(when, || ())));
        let fired_max = (0..102).map(|_| turn_after(clock, 1).fired).max();
        assert!(fired_max <= Some(3), "{fired_max:?} of 100 in a tick");
        assert!(local_timer().is_empty());
    });
}

#[test]
fn the_maximum_slack_is_accepted() {
    let (mut timers, clock) = manual_shard();
    let timer = timers.add(When::after(Duration::from_secs(1)).slack(Duration::MAX), 0);
    clock.advance(HOUR);
    assert!(turn_and_expire(&mut timers).is_empty(), "the slack ends in 584 years");
    assert_eq!(timers.cancel(timer), Some(0));
}

#[test]
fn turn_at_does_not_read_the_clock() {
    in_checked_virtual_time(|clock| {
        let start = clock.now();
        local_timer().add(TICK * 3, || ());
        local_timer().add(TICK * 4, move || assert!(local_timer().turn_at(start).nested));
        clock.advance(TICK * 4);
        assert_eq!(local_timer().turn_at(start).fired, 0);
        assert_eq!(local_timer().turn_at(start + TICK * 3).fired, 1);
        assert_eq!(local_timer().turn().fired, 1);
        local_timer().add(start + TICK * 4, || ());
        assert_eq!(local_timer().turn_at(start).fired, 1, "the latest reading is later");
        assert_eq!(local_timer().counts().clock_regressions, 0);
    });
}

#[test]
fn delays_count_from_the_instant_of_the_last_turn_at() {
    // The clock is real, so it stays behind the instant.
    let mut shard = Shard::new();
    let delays = [When::after(TICK), When::after(TICK).slack(TICK)];
    let added = shard.add(TICK, ());
    let instant = shard.now() + HOUR;
    shard.turn_at(instant);
    assert!(shard.next_expired().is_some_and(|expired| expired.handle == added));
    for delay in delays {
        let timer = shard.add(delay, ());
        assert!(shard.deadline(timer) >= Some(instant + TICK), "an add: {delay:?}");
        for delay in delays {
            assert!(shard.reset(timer, delay));
            assert!(shard.deadline(timer) >= Some(instant + TICK), "a reset: {delay:?}");
        }
    }
}

#[test]
fn a_nested_turn_at_does_not_move_the_time() {
    in_checked_virtual_time(|clock| {
        let later = clock.now() + HOUR;
        local_timer().add(TICK, move || assert!(local_timer().turn_at(later).nested));
        let early = local_timer().add(TICK * 3, must_not_run);
        clock.advance(TICK);
        assert_eq!([(); 2].map(|()| local_timer().turn().fired), [1, 0]);
        assert_eq!(early.cancel(), Cancel::Cancelled);
    });
}

#[test]
fn turn_at_an_earlier_instant_uses_the_latest_reading() {
    let (mut shard, clock) = manual_shard();
    let start = clock.now();
    clock.advance(TICK * 5);
    shard.turn();
    shard.add(start + TICK * 3, ());
    shard.add(start + TICK * 7, ());
    shard.turn_at(start);
    assert_eq!(shard.next_expired().map(|expired| expired.lateness()), Some(Duration::ZERO));
    assert!(shard.next_expired().is_none());
    // A reading that goes back is clamped to the latest one.
    clock.set(TICK * 2);
    shard.turn_at(clock.now());
    let pending_timer = shard.add(TICK, ());
    assert_eq!(shard.deadline(pending_timer), Some(start + TICK * 6));
    shard.cancel(pending_timer);
    shard.turn_at(start + TICK * 9);
    assert_eq!(shard.next_expired().map(|expired| expired.lateness()), Some(TICK * 2));
    assert!(shard.next_expired().is_none());
    // Until the clock reaches the latest turn's instant, readings are clamped to that instant.
    shard.add(Duration::ZERO, ());
    shard.turn();
    assert_eq!(shard.next_expired().map(|expired| expired.deadline()), Some(start + TICK * 9));
    assert_eq!(shard.counts().clock_regressions, 3, "two adds and a turn");
}

/// Idle turns do not advance the wheel, so the wheel's time must not decide which ticks are past.
#[test]
fn slack_that_began_in_the_past_ends_at_the_same_tick_after_any_turn() {
    let (mut shard, clock) = manual_shard();
    let start = shard.now();
    for turns in [0, 1] {
        clock.set(TICK * 1_000);
        (0..turns).for_each(|_| shard.turn());
        let when = When::at(start + TICK * 10).slack(TICK * 1_000);
        let [added, reset_timer] = [shard.add(when, ()), shard.add(HOUR, ())];
        assert!(shard.reset(reset_timer, when));
        for handle in [added, reset_timer] {
            let deadline = shard.deadline(handle).expect("it is pending");
            assert_eq!(deadline - start, TICK * 1_008, "the coarsest tick of 1,001 to 1,010");
        }
    }
}

#[test]
fn slack_and_spread_count_from_an_instant_before_the_clock() {
    let (mut shard, _clock) = manual_shard();
    let instant = shard.now() - TICK * 100;
    for when in [When::at(instant).slack(TICK * 10), When::at(instant).spread(TICK * 10)] {
        shard.add(when, 1);
        let reset_timer = shard.add(HOUR, 2);
        assert!(shard.reset(reset_timer, when));
        assert!(on_a_thread(move || reset_timer.reset(when)));
        assert_eq!(turn_and_expire(&mut shard).len(), 2);
    }
}
