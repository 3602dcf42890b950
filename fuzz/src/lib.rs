//! Fuzz targets, whose input chooses the operations that the tests' models check.

#[allow(
    dead_code,
    clippy::pedantic,
    reason = "a part of the library's tests, which use more of it"
)]
#[path = "../../tests/model/mod.rs"]
mod model;

use libfuzzer_sys::arbitrary::Unstructured;

/// The maximum number of live entries in a wheel.
const LIVE_MAX: usize = 2_000;

/// Approximate numbers of input bytes for a step of the simulator and for its setting.
const BYTES_PER_STEP: usize = 26;
const BYTES_OF_SETTING: usize = 60;

/// Compares a wheel with its model.
///
/// # Panics
///
/// If the two differ.
pub fn wheel<const BITS: u32, const LEVELS: usize>(bytes: &mut Unstructured<'_>) {
    let start = model::start_times(&mut |bound| choose(bytes, bound));
    let mut pair = model::Pair::<BITS, LEVELS>::starting_at(start);
    while !bytes.is_empty() {
        pair.any_operation(&mut |bound| choose(bytes, bound), LIVE_MAX);
        // The check of a large geometry takes too long.
        #[cfg(debug_assertions)]
        if BITS < 4 {
            pair.wheel.check();
        }
    }
    pair.finish();
}

/// Runs a short episode of the simulator.
///
/// # Panics
///
/// If a shard deviates from its model.
pub fn shard(bytes: &[u8]) {
    let (steps, mut bytes) =
        (bytes.len().saturating_sub(BYTES_OF_SETTING) / BYTES_PER_STEP, Unstructured::new(bytes));
    let done =
        corewheel_simulator::run_drawn_episode(steps, &mut |bound| choose(&mut bytes, bound));
    assert!(done.is_ok(), "{done:?}");
}

/// Returns a number below `bound`, or 0 if the bytes are used up.
fn choose(bytes: &mut Unstructured<'_>, bound: u64) -> u64 {
    bytes.int_in_range(0..=bound - 1).unwrap_or(0)
}
