//! Shards of several cores in virtual time.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| corewheel_fuzz::shard(bytes));
