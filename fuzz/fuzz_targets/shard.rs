//! A shard in virtual time, its owner and its handles.
#![no_main]

use corewheel_fuzz::shard::Run;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|run: Run| run.check());
