//! Wheels of the default geometry, and wheels with few slots per level, whose levels wrap often.
#![no_main]

use libfuzzer_sys::{arbitrary::Unstructured, fuzz_target};

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = Unstructured::new(bytes);
    match bytes.int_in_range(0..=3) {
        Ok(0) => corewheel_fuzz::wheel::<1, 64>(&mut bytes),
        Ok(1) => corewheel_fuzz::wheel::<2, 32>(&mut bytes),
        Ok(2) => corewheel_fuzz::wheel::<3, 22>(&mut bytes),
        _ => corewheel_fuzz::wheel::<11, 6>(&mut bytes),
    }
});
