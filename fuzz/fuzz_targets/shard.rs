//! Short episodes of the simulator, which compares shards of several cores with its model.
#![no_main]

use corewheel_simulator::run_drawn_episode;
use libfuzzer_sys::{arbitrary::Unstructured, fuzz_target};

/// Approximate number of input bytes for a step of the simulator.
const BYTES_PER_STEP: usize = 26;
/// Approximate number of input bytes for an episode's setting.
const BYTES_OF_SETTING: usize = 60;

fuzz_target!(|bytes: &[u8]| {
    let steps = bytes.len().saturating_sub(BYTES_OF_SETTING) / BYTES_PER_STEP;
    let mut bytes = Unstructured::new(bytes);
    // The choice is 0 if the bytes are used up.
    let mut choose = |bound| bytes.int_in_range(0..=bound - 1).unwrap_or(0);
    let done = run_drawn_episode(steps, &mut choose);
    assert!(done.is_ok(), "{done:?}");
});
