//! Wheels of a few slots a level, where wrapped levels are ordinary.
#![no_main]

use corewheel_fuzz::wheel::Run;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|run: Run| match run.geometry % 3 {
    0 => run.check::<1, 64>(),
    1 => run.check::<2, 32>(),
    _ => run.check::<3, 22>(),
});
