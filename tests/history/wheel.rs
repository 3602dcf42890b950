//! The wheel alone, mostly on geometries so small that levels and revolutions end every few ticks.

use std::{collections::BTreeSet, time::Duration};

use corewheel::{Cancel, Wheel, local_timer};

use crate::{
    CANCELS, RING, Tiny,
    common::{TICK, operations},
    counter, fire_tick_by_tick, first_to_fire, never, on_a_core, turn_after,
};

/// tokio #8334: a sleep of 333 ms took 2.2 years. For each power of two that time comes to, with
/// timers alive at every greater one.
fn near_timers_fire_beside_far_ones<const BITS: u32, const LEVELS: usize>() {
    for bits in 1..64 {
        for (before, delay) in [(100, 333), (1, 1), (1, 2), (3, 3), (RING, RING)] {
            let mut wheel = Wheel::<bool, BITS, LEVELS>::starting_at(0);
            let boundary = 1_u64 << bits;
            let now = boundary.saturating_sub(before);
            wheel.insert(u64::MAX, false);
            for further in bits + 1..64 {
                wheel.insert((1 << further) + 5_000, false);
            }
            assert_eq!(wheel.advance(now).next(), None);
            wheel.insert(now + delay, true);
            assert_eq!(first_to_fire(&mut wheel), (now + delay, true), "{delay} ticks from {now}");
        }
    }
}

/// tokio.
#[test]
fn bug_05_a_timer_far_ahead_hid_nearer_ones() {
    near_timers_fire_beside_far_ones::<1, 64>();
    near_timers_fire_beside_far_ones::<2, 32>();
    near_timers_fire_beside_far_ones::<6, 11>();
    near_timers_fire_beside_far_ones::<11, 6>();
}

/// tokio. `TiKV` #11940: after 2^36 ms, two years, an index was out of range.
#[test]
fn bug_06_an_uptime_of_two_years_was_out_of_range() {
    for bits in 0..64 {
        for start in (1_u64 << bits).saturating_sub(2)..=(1 << bits) + 1 {
            let mut wheel = Wheel::<u64>::starting_at(start);
            let delays = [1, 2, 3, 63, 64, 1 << 17, 1 << 36];
            let deadlines = delays.map(|delay| start.saturating_add(delay));
            let keys = deadlines.map(|deadline| wheel.insert(deadline, deadline));
            assert!(wheel.reset(keys[6], start));
            assert_eq!(first_to_fire(&mut wheel), (start, deadlines[6]));
            for deadline in &deadlines[..6] {
                assert_eq!(first_to_fire(&mut wheel), (*deadline, *deadline));
            }
        }
    }
}

/// tokio-timer #2473 and #868: a deadline that is the present tick, or next to it. `present`
/// entries are due at it as well, one of which has been handed out.
fn deadlines_around_the_present(now: u64, inserted: u64, moved: Option<u64>, present: u64) {
    let mut wheel = Tiny::<u64>::starting_at(0);
    for value in 0..present {
        wheel.insert(now, value);
    }
    assert_eq!(wheel.advance(now).next().is_some(), present > 0);
    let key = wheel.insert(inserted, 100);
    assert!(moved.is_none_or(|moved| wheel.reset(key, moved)));
    let due = moved.unwrap_or(inserted).max(now);
    let mut fired: Vec<_> = wheel.advance(now).collect();
    assert_eq!(fired.len() as u64, present.saturating_sub(1) + u64::from(due == now));
    fired.extend(wheel.advance(now + 1));
    assert!(fired.contains(&(due, 100)), "due at {due}, fired: {fired:?}");
    assert!(wheel.is_empty() && wheel.next_deadline().is_none());
}

/// tokio.
#[test]
fn bug_07_a_deadline_of_the_present_tick_panicked() {
    let last = if cfg!(miri) { 5 } else { RING * operations(1).min(3) + 5 };
    for now in 1..last {
        for inserted in now - 1..=now + 1 {
            for present in 0..3 {
                deadlines_around_the_present(now, inserted, None, present);
                (now - 1..=now + 1).for_each(|moved| {
                    deadlines_around_the_present(now, inserted, Some(moved), present);
                });
            }
        }
    }
}

/// Netty #13018: of the timers of one slot, only those before the first one of a later revolution
/// were looked at. Here all of them are `ring` ticks apart.
fn a_slot_of_many_revolutions<const BITS: u32, const LEVELS: usize>(ring: usize, end: u64) {
    let rising: Vec<u64> = (5..=end).step_by(ring).collect();
    let falling = rising.iter().rev().copied().collect();
    let mut mixed = rising.clone();
    fastrand::Rng::with_seed(7).shuffle(&mut mixed);
    for deadlines in [rising, falling, mixed] {
        let mut wheel = Wheel::<u64, BITS, LEVELS>::starting_at(0);
        for (place, &deadline) in deadlines.iter().enumerate() {
            // Every other entry is inserted at tick 5 and reset, so it stays in the slot of tick 5
            // until that tick.
            let first = if place % 2 == 0 { deadline } else { 5 };
            let key = wheel.insert(first, deadline);
            assert!(wheel.reset(key, deadline));
        }
        assert_eq!(fire_tick_by_tick(&mut wheel, end), deadlines.len());
    }
}

/// Netty.
#[test]
fn bug_14_timers_behind_one_of_a_later_revolution_were_skipped() {
    let end = if cfg!(miri) { 600 } else { 1_500 * operations(1).min(3) };
    // A revolution; the first level; levels above.
    for ring in [2, 128, 512, 1024] {
        a_slot_of_many_revolutions::<1, 64>(ring, end);
    }
    for ring in [8, 512, 1024] {
        a_slot_of_many_revolutions::<3, 22>(ring, end);
    }
}

/// Netty #1953: a deadline in the past fired a whole revolution later. Also folly 055fce5f.
#[test]
fn bug_15_a_deadline_in_the_past_fired_a_revolution_late() {
    for now in [0, 1, RING - 1, RING, RING + 1, 1 << 40] {
        for ago in [0, 1, 2, RING - 1, RING, RING + 1, u64::MAX] {
            let mut wheel = Tiny::<u64>::starting_at(now);
            let moved = wheel.insert(now + 1_000, 1);
            wheel.insert(now.saturating_sub(ago), 2);
            assert_eq!((wheel.next_deadline(), wheel.is_behind()), (Some(now), false));
            assert_eq!(wheel.advance(now).collect::<Vec<_>>(), [(now, 2)]);
            assert!(wheel.reset(moved, now.saturating_sub(ago)));
            assert_eq!(first_to_fire(&mut wheel), (now, 1));
        }
    }
}

/// folly c53bda78: a slot was used for the next revolution while it still held timers of this one,
/// which then fired with them, or made those fire at once. Here timers are added for later
/// revolutions while the wheel lags by up to three revolutions.
#[test]
fn bug_21_a_lagging_wheel_fired_timers_of_the_next_revolution() {
    for lag in [1, 2, RING - 2, RING - 1, RING, RING + 1, 3 * RING] {
        for budget in [0, 1, 2, 10] {
            let mut wheel = Tiny::<u64>::starting_at(0);
            let overdue = lag.min(40);
            for deadline in 1..=overdue {
                wheel.insert(deadline, deadline);
            }
            let before = wheel.advance_within(lag, budget).take(1).count();
            let ahead = 2 * RING + 3;
            for deadline in lag + 1..=lag + ahead {
                wheel.insert(deadline, deadline);
            }
            let rest: BTreeSet<_> = wheel.advance(lag).collect();
            assert_eq!((before + rest.len()) as u64, overdue, "of those that are due");
            assert!(
                rest.iter().all(|&(deadline, value)| deadline == value && value <= lag),
                "{rest:?}"
            );
            assert_eq!(fire_tick_by_tick(&mut wheel, lag + ahead) as u64, ahead);
        }
    }
}

/// Linux 30c66fc30ee7: a timer that was late already set the base's clock back, so slots were gone
/// through again, and timers of upper levels fired early.
#[test]
fn bug_25_a_late_timer_turned_the_clock_back() {
    let end = if cfg!(miri) { 300 } else { 4 * RING };
    for ago in [0, 1, 2, RING - 1, RING, u64::MAX] {
        let (mut wheel, mut late) = (Tiny::<u64>::starting_at(0), 0);
        let mut expected = Vec::new();
        for now in 1..=end {
            let fired: Vec<_> = wheel.advance(now).collect();
            let due = expected.iter().filter(|&&deadline| deadline == now).count();
            assert_eq!(fired.len(), due + late, "at {now}");
            assert!(
                fired.iter().all(
                    |&(deadline, value)| deadline == now - 1 && value == 0 || deadline == value
                )
            );
            wheel.insert(now.saturating_sub(ago), 0);
            late = 1;
            assert_eq!((wheel.now(), wheel.next_deadline()), (now, Some(now)));
            let deadline = now + 1 + now * 37 % (3 * RING);
            wheel.insert(deadline, deadline);
            expected.push(deadline);
        }
    }
}

/// Linux 66e4b63624fc: whether a deadline is beyond the last level was decided by the deadline, not
/// by how far it is.
fn far_deadlines_at_any_time<const BITS: u32, const LEVELS: usize>() {
    let around = |bits: u32| (1_u64 << bits) - 1..=(1 << bits) + 1;
    for start in (0..64).step_by(7).flat_map(around) {
        for delay in (0..63).step_by(4).flat_map(around) {
            let mut wheel = Wheel::<u64, BITS, LEVELS>::starting_at(start);
            let deadline = start.saturating_add(delay);
            wheel.insert(deadline, deadline);
            assert_eq!(first_to_fire(&mut wheel), (deadline, deadline), "{delay} after {start}");
            assert!(wheel.is_empty());
        }
    }
}

/// Linux.
#[test]
fn bug_26_how_far_a_deadline_is_was_taken_for_when_it_is() {
    far_deadlines_at_any_time::<1, 64>();
    far_deadlines_at_any_time::<4, 16>();
}

/// One timer, and several resets. Time passes in between where it can.
fn the_last_reset_counts(delays: [u64; 3], passes: u64) {
    let mut wheel = Tiny::<bool>::starting_at(RING - 5);
    let key = wheel.insert(wheel.now() + 500, true);
    let mut deadline = 0;
    for delay in delays {
        deadline = wheel.now() + delay;
        assert!(wheel.reset(key, deadline));
        assert!(
            wheel.next_deadline().is_some_and(|next| next <= deadline),
            "it would be slept through"
        );
        let now = wheel.now() + passes.min(delay - 1);
        assert_eq!(wheel.advance(now).next(), None);
    }
    assert_eq!(first_to_fire(&mut wheel), (deadline, true), "{delays:?}");
    assert!(wheel.is_empty() && wheel.next_deadline().is_none());
}

/// #47762: a timer that was moved to an earlier time fired at the later one. All sequences of three resets over
/// deadlines in all kinds of slots.
#[test]
fn bug_29_a_reset_to_earlier_was_ignored() {
    let delays = [1, 2, 3, RING - 2, RING - 1, RING, 2 * RING, 1_000];
    for first in delays {
        for second in delays {
            for third in delays {
                (0..3).for_each(|passes| the_last_reset_counts([first, second, third], passes));
            }
        }
    }
}

/// embassy. The first level is all that the tests of a shard reach in few ticks; here the alarm is
/// for the start of an upper slot.
#[test]
fn bug_36_the_start_of_an_upper_slot_passed_before_the_alarm_was_set() {
    for late in 0..300 {
        let mut wheel = Tiny::<u64>::starting_at(0);
        for deadline in [200, 300, 500, 1_000, 5_000] {
            wheel.insert(deadline, deadline);
        }
        let mut fired = Vec::new();
        while let Some(alarm) = wheel.next_deadline() {
            let now = alarm + late;
            fired.extend(wheel.advance(now).map(|(deadline, _)| deadline));
            assert!(
                wheel.next_deadline().is_none_or(|next| next > now),
                "the next alarm is in the past"
            );
        }
        assert_eq!(fired, [200, 300, 500, 1_000, 5_000]);
    }
}

/// embassy #4736, #5017: a timer for the end of time was removed from the queue and still looked
/// queued, so that the next timer of its task was not queued.
#[test]
fn bug_37_after_a_timer_for_never_the_next_one_was_not_queued() {
    for cancel in CANCELS {
        on_a_core(|clock| {
            let (runs, run) = counter();
            for ran in 1..10 {
                let endless = local_timer().add(Duration::MAX, never);
                assert_eq!(turn_after(clock, 1).fired, 0);
                assert!(local_timer().next_deadline().is_some() && endless.is_pending());
                assert_eq!(cancel(endless), Cancel::Cancelled);
                local_timer().turn();
                // In the same node.
                local_timer().add(TICK, run.clone());
                assert_eq!(local_timer().time_until_next(), Some(TICK));
                assert_eq!((turn_after(clock, 1).fired, runs.get()), (1, ran));
            }
        });
    }
}
