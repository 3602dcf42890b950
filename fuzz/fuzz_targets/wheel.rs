//! The wheel as users have it.
#![no_main]

use corewheel_fuzz::wheel::Run;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|run: Run| run.check::<11, 6>());
