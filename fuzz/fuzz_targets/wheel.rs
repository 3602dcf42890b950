//! Wheels of the default geometry.
#![no_main]

use libfuzzer_sys::{arbitrary::Unstructured, fuzz_target};

fuzz_target!(|bytes: &[u8]| corewheel_fuzz::wheel::<11, 6>(&mut Unstructured::new(bytes)));
