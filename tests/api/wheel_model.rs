//! Compares `Wheel` with a sorted set (`tests/model`), on small geometries, whose rings wrap often,
//! and on the geometry of shards.

use corewheel::Wheel;

use crate::model::{
    agrees_with_the_model,
    common::{operations, seeded},
    magnitude, start_times,
};

#[test]
fn one_bit_and_64_levels() {
    agrees_with_the_model::<1, 64>(operations(10_000), 500, 40);
}

#[test]
fn two_to_nine_bits() {
    agrees_with_the_model::<2, 32>(operations(20_000), 500, 40);
    agrees_with_the_model::<3, 22>(operations(20_000), 500, 40);
    agrees_with_the_model::<5, 13>(operations(10_000), 1_000, 400);
    agrees_with_the_model::<9, 8>(operations(20_000), 5_000, 1_000);
}

#[test]
fn the_geometry_of_shards() {
    agrees_with_the_model::<11, 6>(operations(50_000), 50_000, 10_000);
}

#[test]
fn a_deadline_costs_at_most_one_wake_up_per_level() {
    seeded(0..operations(300), |random| {
        let choose = &mut |bound| random.u64(..bound);
        let start = start_times(choose);
        let mut wheel = Wheel::<(), 11, 6>::starting_at(start);
        let deadline = start.saturating_add(magnitude(choose));
        wheel.insert(deadline, ());
        let mut wakes = 0;
        while let Some(next) = wheel.next_deadline() {
            wakes += 1;
            let fired = wheel.advance(next).next();
            assert_eq!(fired.is_some(), next == deadline);
        }
        assert!(wakes <= 6, "{wakes} wake-ups");
        // The first level spans more than 120,000 ticks.
        assert!(wakes <= 1 || deadline - start > 120_000, "{wakes} wake-ups");
    });
}
