//! The wheel alone, against its model, mostly on geometries so small that levels and revolutions
//! end every few ticks. The model asserts that each entry fires in order, once, at its deadline.

use std::time::Duration;

use corewheel::{Cancel, local_timer};

use crate::{
    CANCELS,
    common::{TICK, operations},
    counter,
    model::Pair,
    never, on_a_core, turn_after,
};

/// The smallest wheel there is: two slots a revolution, 64 revolutions in the first level.
type Tiny = Pair<1, 64>;

/// Slots of its first level.
const RING: u64 = 128;

/// Most wake-ups of a sleeper that the few entries of a test need.
const WAKES: usize = 1_000;

fn advance_tick_by_tick<const BITS: u32, const LEVELS: usize>(
    pair: &mut Pair<BITS, LEVELS>,
    end: u64,
) {
    (pair.wheel.now()..=end).for_each(|now| pair.advance_to(now));
    assert!(pair.wheel.is_empty(), "all are due");
}

/// tokio #8334: a sleep of 333 ms took 2.2 years. For each power of two that time comes to, with
/// timers alive at every greater one.
fn near_timers_fire_beside_far_ones<const BITS: u32, const LEVELS: usize>() {
    for bits in 1..64 {
        for before in [1, 2, 3, 4, 5, 100, RING] {
            let mut pair = Pair::<BITS, LEVELS>::starting_at(0);
            pair.insert_at(u64::MAX);
            pair.insert_all((0..64).flat_map(|further| [1 << further, (1 << further) + 5_000]));
            let now = (1_u64 << bits).saturating_sub(before);
            pair.advance_to(now);
            pair.insert_all((1..=10).chain([RING, 333]).map(|delay| now + delay));
            while pair.wheel.now() < now + 333 {
                pair.advance_to_next();
            }
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
            let mut pair = Pair::<11, 6>::starting_at(start);
            let delays = [1, 2, 3, 63, 64, 1 << 17, 1 << 36];
            pair.insert_all(delays.map(|delay| start.saturating_add(delay)));
            pair.reset(6, start);
            pair.sleep_until_empty(WAKES);
        }
    }
}

/// tokio-timer #2473 and #868: a deadline that is the present tick, or next to it. `present`
/// entries are due at it as well, one of which has been handed out.
fn deadlines_around_the_present(now: u64, inserted: u64, moved: Option<u64>, present: usize) {
    let mut pair = Tiny::starting_at(0);
    pair.insert_all(vec![now; present]);
    pair.advance_within(now, 1, usize::MAX);
    pair.insert_at(inserted);
    if let Some(moved) = moved {
        pair.reset(present.saturating_sub(1), moved);
    }
    pair.advance_to(now);
    pair.advance_to(now + 1);
    assert!(pair.wheel.is_empty() && pair.wheel.next_deadline().is_none());
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
        let mut pair = Pair::<BITS, LEVELS>::starting_at(0);
        for (place, deadline) in deadlines.into_iter().enumerate() {
            // Every other entry is inserted at tick 5 and reset, so it stays in the slot of tick 5
            // until that tick.
            pair.insert_at(if place % 2 == 0 { deadline } else { 5 });
            pair.reset(place, deadline);
        }
        advance_tick_by_tick(&mut pair, end);
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
            let mut pair = Tiny::starting_at(now);
            pair.insert_all([now + 1_000, now.saturating_sub(ago)]);
            assert_eq!((pair.wheel.next_deadline(), pair.wheel.is_behind()), (Some(now), false));
            pair.advance_to(now);
            pair.reset(0, now.saturating_sub(ago));
            assert_eq!(pair.wheel.next_deadline(), Some(now));
            pair.sleep_until_empty(1);
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
            let mut pair = Tiny::starting_at(0);
            pair.insert_all(1..=lag.min(40));
            pair.advance_within(lag, 1, budget);
            let end = lag + 2 * RING + 3;
            pair.insert_all(lag + 1..=end);
            advance_tick_by_tick(&mut pair, end);
        }
    }
}

/// Linux 30c66fc30ee7: a timer that was late already set the base's clock back, so slots were gone
/// through again, and timers of upper levels fired early.
#[test]
fn bug_25_a_late_timer_turned_the_clock_back() {
    let end = if cfg!(miri) { 300 } else { 4 * RING };
    for ago in [0, 1, 2, RING - 1, RING, u64::MAX] {
        let mut pair = Tiny::starting_at(0);
        for now in 1..=end {
            pair.advance_to(now);
            pair.insert_at(now.saturating_sub(ago));
            assert_eq!((pair.wheel.now(), pair.wheel.next_deadline()), (now, Some(now)));
            pair.insert_at(now + 1 + now * 37 % (3 * RING));
        }
    }
}

/// Linux 66e4b63624fc: whether a deadline is beyond the last level was decided by the deadline, not
/// by how far it is.
fn far_deadlines_at_any_time<const BITS: u32, const LEVELS: usize>() {
    let around = |bits: u32| (1_u64 << bits) - 1..=(1 << bits) + 1;
    for start in (0..64).step_by(7).flat_map(around) {
        for delay in (0..63).step_by(4).flat_map(around) {
            let mut pair = Pair::<BITS, LEVELS>::starting_at(start);
            pair.insert_at(start.saturating_add(delay));
            pair.sleep_until_empty(WAKES);
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
    let mut pair = Tiny::starting_at(RING - 5);
    pair.insert_at(RING + 495);
    for delay in delays {
        let now = pair.wheel.now();
        pair.reset(0, now + delay);
        pair.compare_next_deadline();
        pair.advance_to(now + passes.min(delay - 1));
    }
    pair.sleep_until_empty(WAKES);
}

/// #47762: a timer that was moved to an earlier time fired at the later one. All sequences of three
/// resets over deadlines in all kinds of slots.
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
        let mut pair = Tiny::starting_at(0);
        pair.insert_all([200, 300, 500, 1_000, 5_000]);
        while let Some(alarm) = pair.wheel.next_deadline() {
            pair.advance_to(alarm + late);
        }
        assert!(pair.wheel.is_empty());
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
