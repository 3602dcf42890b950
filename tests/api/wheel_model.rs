//! Compares `Wheel` with a sorted set (`tests/model`), on small geometries, whose rings wrap often,
//! and on the geometry of shards.

use std::collections::BTreeMap;

use corewheel::{Key, Wheel};

use crate::model::{
    any_start_time, assert_agrees_with_the_model,
    common::{scaled, seeded},
    log_uniform,
};

#[test]
fn one_bit_and_64_levels_agree_with_the_model() {
    assert_agrees_with_the_model::<1, 64>(scaled(10_000), 500, 40);
}

#[test]
fn two_to_nine_bits_agree_with_the_model() {
    assert_agrees_with_the_model::<2, 32>(scaled(20_000), 500, 40);
    assert_agrees_with_the_model::<3, 22>(scaled(20_000), 500, 40);
    assert_agrees_with_the_model::<5, 13>(scaled(10_000), 1_000, 400);
    assert_agrees_with_the_model::<9, 8>(scaled(20_000), 5_000, 1_000);
}

#[test]
fn the_geometry_of_shards_agrees_with_the_model() {
    assert_agrees_with_the_model::<11, 6>(scaled(50_000), 50_000, 10_000);
}

/// Simulates events that insert and reset other events, from deadline to deadline. Returns the
/// ticks, the numbers and the keys of the events, in their order.
fn simulate<const LEVEL_BITS: u32, const LEVELS: usize>(seed: u64) -> Vec<(u64, u64, Key)> {
    let mut random = fastrand::Rng::with_seed(seed);
    let delay = |random: &mut fastrand::Rng| match random.u64(..4) {
        0 => random.u64(..3),
        _ => log_uniform(&mut |bound| random.u64(..bound)) >> random.u32(20..64),
    };
    let mut wheel = Wheel::<u64, LEVEL_BITS, LEVELS>::starting_at(0);
    let (mut deadlines, mut log, mut number) = (BTreeMap::new(), Vec::new(), 0);
    let mut insert =
        |wheel: &mut Wheel<_, LEVEL_BITS, LEVELS>, deadlines: &mut BTreeMap<_, _>, at| {
            deadlines.insert(number, (at, wheel.insert(at, number)));
            number += 1;
        };
    (0..8).for_each(|_| insert(&mut wheel, &mut deadlines, delay(&mut random)));
    let end = 1 << 43;
    while let Some(tick) = wheel.next_deadline().filter(|&tick| tick <= end) {
        while let Some((now, event)) = wheel.advance(tick).next() {
            let (deadline, key) = deadlines.remove(&event).expect("live");
            assert_eq!((now, wheel.now()), (deadline, deadline), "each event at its own tick");
            log.push((now, event, key));
            if log.len() < 2_000 {
                (0..random.u64(..4)).for_each(|_| {
                    insert(&mut wheel, &mut deadlines, now + delay(&mut random));
                });
                if let Some((deadline, key)) = deadlines.values_mut().next() {
                    *deadline = now + delay(&mut random);
                    assert!(wheel.reset(*key, *deadline));
                }
            }
        }
    }
    assert!(deadlines.values().all(|&(deadline, _)| deadline > end));
    assert_eq!(wheel.len(), deadlines.len());
    log
}

#[test]
fn a_simulation_gets_each_event_at_its_own_tick_and_can_be_repeated() {
    let (seeds, mut events) = (scaled(20), 0);
    for seed in 0..seeds {
        let (tiny, log) = (simulate::<2, 32>(seed), simulate::<11, 6>(seed));
        assert_eq!((&tiny, &log), (&simulate::<2, 32>(seed), &simulate::<11, 6>(seed)));
        events += log.len() as u64;
    }
    assert!(events > 1_000 * seeds, "{events} events");
}

#[test]
fn a_deadline_costs_at_most_one_wake_up_per_level() {
    seeded(0..scaled(300), |random| {
        let choose = &mut |bound| random.u64(..bound);
        let start = any_start_time(choose);
        let mut wheel = Wheel::<(), 11, 6>::starting_at(start);
        let deadline = start.saturating_add(log_uniform(choose));
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
