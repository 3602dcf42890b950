//! The maximum number of shards. The test has its own process, because it uses up all shard
//! numbers.
#![cfg(feature = "std")]

mod common;

use std::{iter, panic};

use common::{TICK, on_a_thread};
use corewheel::{AddErrorReason, Config, ConfigError, Shard, Turn, local_timer};

#[test]
fn shards_beyond_the_maximum_are_refused() {
    let make = || Shard::<()>::with_config(Config::new());
    let mut shards: Vec<_> = iter::from_fn(|| make().ok()).collect();
    assert_eq!(make().map(drop), Err(ConfigError::TooManyShards));
    let panic = panic::catch_unwind(|| drop(Shard::<()>::new())).expect_err("there is no room");
    let message = panic.downcast_ref::<String>();
    assert_eq!(message.expect("a message"), "no shard can be created: TooManyShards");
    on_a_thread(|| {
        let error = local_timer().try_add(TICK, || ()).expect_err("there is no room");
        assert_eq!(error.reason(), AddErrorReason::TooManyShards);
        assert_eq!((local_timer().len(), local_timer().turn()), (0, Turn::default()));
        local_timer().run_until(|| false);
    });
    shards.truncate(16_000);
    let handle = shards[0].add(TICK, ());
    assert!(handle.is_pending());
    assert!(make().is_ok());
}
