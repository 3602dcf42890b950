//! `When`: every way to say when a timer is due means the same to every kind of wheel, for adds and
//! for resets (P1, P9).

use std::time::{Duration, Instant};

use corewheel::{ManualClock, When, local_timer};

use crate::support::{
    HOUR, Log, TICK, TICK_NANOS, expired, manual_shard, nanos, on_a_core, on_a_thread, pass,
    turn_after,
};

/// The tick at which the timers are added.
const START: u64 = 1_000;

/// Each form of `When` with the first and the last tick at which its timer fires. The clock shows
/// four tenths of a tick more than `START`.
fn forms(now: Instant) -> [(When, u64, u64); 14] {
    let (after, at) = (When::after(TICK * 5), When::at(now + TICK * 5));
    [
        ((TICK * 5).into(), 1_006, 1_006),
        ((now + TICK * 5).into(), 1_006, 1_006),
        (Duration::ZERO.into(), START, START),
        (When::after(Duration::ZERO).slack(TICK / 2), START, START),
        (now.into(), START, START),
        ((now - TICK / 20).into(), START, START),
        ((now - TICK * 3).into(), START, START),
        (After(5).into(), 1_006, 1_006),
        // The multiple of the largest power of two from 1,006 to 1,015.
        (after.slack(TICK * 10), 1_008, 1_008),
        (at.slack(TICK * 10), 1_008, 1_008),
        (after.spread(TICK * 10), 1_006, 1_016),
        (at.spread(TICK * 10), 1_006, 1_016),
        (after.spread(TICK * 2).slack(TICK * 50), 1_024, 1_024),
        (When::at(now - TICK * 3).slack(TICK * 50), 1_024, 1_024),
    ]
}

/// A type of a user's own.
struct After(u32);

impl From<After> for When {
    fn from(After(ticks): After) -> Self {
        // Nothing of the wheel is borrowed while a conversion runs (P5).
        let _ = local_timer().is_empty();
        Self::after(TICK * ticks)
    }
}

fn tick(clock: &ManualClock) -> u64 {
    nanos(clock.elapsed()) / TICK_NANOS
}

fn start(clock: &ManualClock) {
    clock.set(TICK * 1_000 + TICK * 3 / 10);
}

/// Adds or moves ten timers of this thread to `form`. Returns the ticks in which they fired.
fn callbacks_fire_in(form: usize) -> Vec<u64> {
    on_a_core(|clock| {
        let (timer, fired) = (local_timer(), Log::new());
        let note = || {
            let (clock, fired) = (clock.clone(), fired.clone());
            move || fired.write(tick(&clock))
        };
        let (shard, far) = (timer.shard_ref(), [(); 3].map(|()| timer.add(HOUR, note())));
        let [own, other, guarded] = far;
        let (local, guard) = (timer.add_local(HOUR, note()), guarded.guard());
        start(clock);
        timer.turn();
        clock.advance(TICK / 10);
        let (when, ..) = forms(clock.now())[form];
        timer.add(when, note());
        timer.try_add(when, note()).expect("there is room");
        timer.add_local(when, note());
        shard.add(when, note());
        let remote = on_a_thread(|| {
            assert!(other.reset(when));
            shard.add(when, note());
            shard.add(HOUR, note())
        });
        assert!(remote.reset(when), "before its admission");
        assert!(own.reset(when) && local.reset(when) && guard.reset(when));
        timer.turn();
        pass(clock, 60);
        guard.disarm();
        fired.take()
    })
}

/// Adds or moves two payloads to `form`. Returns the ticks in which they fired.
fn payloads_fire_in(form: usize) -> Vec<u64> {
    let (mut shard, clock) = manual_shard();
    let moved = shard.add(HOUR, ());
    start(&clock);
    shard.turn();
    clock.advance(TICK / 10);
    let (when, ..) = forms(clock.now())[form];
    shard.add(when, ());
    assert!(shard.reset(moved, when));
    let mut fired = Vec::new();
    for _ in 0..60 {
        fired.extend(expired(&mut shard).iter().map(|()| tick(&clock)));
        clock.advance(TICK);
    }
    fired
}

#[test]
fn each_form_means_the_same_everywhere() {
    for (form, (_, first, last)) in forms(Instant::now()).into_iter().enumerate() {
        let (callbacks, payloads) = (callbacks_fire_in(form), payloads_fire_in(form));
        assert_eq!((callbacks.len(), payloads.len()), (10, 2), "form {form}");
        for tick in callbacks.into_iter().chain(payloads) {
            assert!((first..=last).contains(&tick), "form {form}: {tick} not in {first}..={last}");
        }
    }
}

#[test]
fn resets_and_remote_adds_with_slack_share_their_wake_ups() {
    on_a_core(|clock| {
        let (shard, slack) = (local_timer().shard_ref(), TICK * 512);
        for i in 0..45 {
            let when = When::after(TICK * (10_000 + 5 * i)).slack(slack);
            assert!(local_timer().add(HOUR, || ()).reset(when));
            on_a_thread(|| shard.add(when, || ()));
        }
        local_timer().turn();
        let mut wakes = 0;
        while let Some(sleep) = local_timer().time_until_next() {
            clock.advance(sleep);
            local_timer().turn();
            wakes += 1;
        }
        assert_eq!(wakes, 1, "all may fire at tick 10,240");
    });
}

#[test]
fn resets_and_remote_adds_with_spread_are_apart() {
    on_a_core(|clock| {
        let (shard, when) = (local_timer().shard_ref(), When::after(TICK).spread(TICK * 100));
        for _ in 0..50 {
            assert!(local_timer().add(HOUR, || ()).reset(when));
        }
        on_a_thread(|| (0..50).for_each(|_| _ = shard.add(when, || ())));
        let most = (0..102).map(|_| turn_after(clock, 1).fired).max();
        assert!(most <= Some(3), "{most:?} of 100 in a tick");
        assert!(local_timer().is_empty());
    });
}

// ---- a loop that reads the clock itself

#[test]
fn a_turn_at_an_instant_reads_no_clock() {
    on_a_core(|clock| {
        let begun = clock.now();
        local_timer().add(TICK * 3, || ());
        local_timer().add(TICK * 4, move || assert!(local_timer().turn_at(begun).nested));
        clock.advance(TICK * 4);
        assert_eq!(local_timer().turn_at(begun).fired, 0);
        assert_eq!(local_timer().turn_at(begun + TICK * 3).fired, 1);
        assert_eq!(local_timer().turn().fired, 1);
        local_timer().add(begun + TICK * 4, || ());
        assert_eq!(local_timer().turn_at(begun).fired, 1, "time has passed that");
        assert_eq!(local_timer().counts().clock_regressions, 0);
    });
}

#[test]
fn a_turn_before_the_latest_reading_counts_as_that() {
    let (mut shard, clock) = manual_shard();
    let begun = clock.now();
    clock.advance(TICK * 5);
    shard.turn();
    shard.add(begun + TICK * 3, ());
    shard.add(begun + TICK * 7, ());
    shard.turn_at(begun);
    assert_eq!(shard.next_expired().map(|expired| expired.lateness()), Some(Duration::ZERO));
    assert!(shard.next_expired().is_none());
    // A reading that has gone back is held at the latest one.
    clock.set(TICK * 2);
    shard.turn_at(clock.now());
    let held = shard.add(TICK, ());
    assert_eq!(shard.deadline(held), Some(begun + TICK * 6));
    shard.cancel(held);
    shard.turn_at(begun + TICK * 9);
    assert_eq!(shard.next_expired().map(|expired| expired.lateness()), Some(TICK * 2));
    assert!(shard.next_expired().is_none());
    // The clock stands still until it has caught up with the last turn.
    shard.add(Duration::ZERO, ());
    shard.turn();
    assert_eq!(shard.next_expired().map(|expired| expired.deadline()), Some(begun + TICK * 9));
    assert_eq!(shard.counts().clock_regressions, 3, "by two adds and a turn");
}
