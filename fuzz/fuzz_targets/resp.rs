//! The parser of the example `ttl_cache`: any bytes, in any pieces.
#![no_main]

use corewheel_fuzz::commands::Stream;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|stream: Stream| stream.check());
