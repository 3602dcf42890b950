//! Wheels of the default geometry, and wheels with few slots per level, whose levels wrap often,
//! compared with the model of the library's tests.
#![no_main]

#[allow(clippy::pedantic, reason = "a part of the library's tests")]
#[path = "../../tests/model/mod.rs"]
mod model;

use libfuzzer_sys::{arbitrary::Unstructured, fuzz_target};

/// The maximum number of live entries in a wheel.
const LIVE_MAX: usize = 2_000;

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = Unstructured::new(bytes);
    match bytes.int_in_range(0..=3) {
        Ok(0) => compare::<1, 64>(&mut bytes),
        Ok(1) => compare::<2, 32>(&mut bytes),
        Ok(2) => compare::<3, 22>(&mut bytes),
        _ => compare::<11, 6>(&mut bytes),
    }
});

fn compare<const LEVEL_BITS: u32, const LEVELS: usize>(bytes: &mut Unstructured<'_>) {
    let start = model::any_start_time(&mut |bound| choose(bytes, bound));
    let mut modelled_wheel = model::ModelledWheel::<LEVEL_BITS, LEVELS>::starting_at(start);
    while !bytes.is_empty() {
        modelled_wheel.do_random_operation(&mut |bound| choose(bytes, bound), LIVE_MAX);
        // The check of a large geometry takes too long.
        #[cfg(debug_assertions)]
        if LEVEL_BITS < 4 {
            modelled_wheel.wheel.check();
        }
    }
    modelled_wheel.fire_all_remaining();
}

/// Returns a number below `bound`, or 0 if the bytes are used up.
fn choose(bytes: &mut Unstructured<'_>, bound: u64) -> u64 {
    bytes.int_in_range(0..=bound - 1).unwrap_or(0)
}
