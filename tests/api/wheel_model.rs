//! `Wheel` against a sorted map (see `model`), on tiny geometries with many wraps and on the real
//! one, from start times up to the end of the range.

use corewheel::Wheel;

use crate::model::{
    Pair, agrees_with_the_model,
    common::{any_magnitude, operations, seeded},
    start_times,
};

#[test]
fn one_bit_and_64_levels() {
    agrees_with_the_model::<1, 64>(operations(10_000), 500, 40);
}

#[test]
fn two_bits_and_32_levels() {
    agrees_with_the_model::<2, 32>(operations(20_000), 500, 40);
}

#[test]
fn three_bits_and_22_levels() {
    agrees_with_the_model::<3, 22>(operations(20_000), 500, 40);
}

#[test]
fn five_bits_and_13_levels() {
    agrees_with_the_model::<5, 13>(operations(10_000), 1_000, 400);
}

#[test]
fn nine_bits_and_8_levels() {
    agrees_with_the_model::<9, 8>(operations(20_000), 5_000, 1_000);
}

#[test]
fn the_real_geometry() {
    agrees_with_the_model::<11, 6>(operations(50_000), 50_000, 10_000);
}

/// A slot boundary of every level is crossed with a live entry in every other level, from one tick
/// before to one after. A wheel that searches the wrong slot first would lose a near timer behind a
/// far one.
#[test]
fn every_boundary_is_crossed_with_far_entries_alive() {
    for level in 1..32 {
        let boundary = 1_u64 << (2 * level);
        for before in 1..=boundary.min(5) {
            let mut pair = Pair::<2, 32>::starting_at(0);
            for far in 0..64 {
                pair.insert_at(1_u64 << far);
            }
            pair.advance_to(boundary - before);
            for delay in 1..=10 {
                pair.insert_at(boundary - before + delay);
            }
            for step in 1..=12 {
                pair.advance_to(boundary - before + step);
                pair.compare_next_deadline();
            }
        }
    }
}

/// A sleeper that always wakes at `next_deadline` reaches any deadline with at most one wake-up per
/// level.
#[test]
fn a_deadline_costs_at_most_one_wake_per_level() {
    seeded(0..operations(300), |random| {
        let start = start_times(&mut |bound| random.u64(..bound));
        let mut wheel = Wheel::<(), 11, 6>::starting_at(start);
        let deadline = start.saturating_add(any_magnitude(random));
        wheel.insert(deadline, ());
        let mut wakes = 0;
        while let Some(next) = wheel.next_deadline() {
            wakes += 1;
            let fired = wheel.advance(next).next();
            assert_eq!(fired.is_some(), next == deadline);
        }
        assert!(wakes <= 6, "{wakes} wakes");
        // The first level reaches farther than two minutes of ticks of a millisecond.
        assert!(wakes <= 1 || deadline - start > 120_000, "{wakes} wakes");
    });
}

/// Removing entries leaves nothing that would wake a sleeper.
#[test]
fn removed_entries_wake_nobody() {
    seeded(0..operations(20), |random| {
        let mut wheel =
            Wheel::<u32, 11, 6>::starting_at(start_times(&mut |bound| random.u64(..bound)) / 2);
        let now = wheel.now();
        let keys: Vec<_> = (0..1000)
            .map(|value| wheel.insert(now + 1 + any_magnitude(random) / 2, value))
            .collect();
        let last = wheel.insert(u64::MAX, u32::MAX);
        for key in keys {
            assert!(wheel.remove(key).is_some());
        }
        assert!(wheel.remove(last).is_some());
        assert_eq!(wheel.next_deadline(), None);
        assert_eq!(wheel.len(), 0);
    });
}
