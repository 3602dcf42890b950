//! What people are shown: figures in `Debug`, plain sentences in errors. And that a default is what `new` makes.

use std::{cell::Cell, future::pending, time::Duration};

use corewheel::{
    AddErrorReason, Clock, Completion, Config, ConfigError, DelayedOperation, ManualClock, Outcome,
    Purgatory, PurgatoryGroup, Shard,
    future::{Timers, VirtualTime, sleep, timeout},
    local_timer,
};

use crate::common::{in_virtual_time, on_a_thread};

thread_local! {
    static HAS_RUN: Cell<bool> = const { Cell::new(false) };
}

const HOUR: Duration = Duration::from_secs(3_600);

struct Never;

impl DelayedOperation for Never {
    fn try_complete(&mut self) -> bool {
        false
    }

    fn on_complete(self, _: Completion) {}
}

#[test]
fn what_is_shown_has_the_figures() {
    in_virtual_time(|_| {
        let purgatory = Purgatory::<&str, Never>::default();
        let outcome = purgatory.try_complete_else_watch(Never, ["key"], HOUR);
        assert!(matches!(outcome, Ok(Outcome::Waits(_))));
        assert!(format!("{purgatory:?}").starts_with("Purgatory { counts: PurgatoryCounts {"));
        assert!(
            format!("{:?}", PurgatoryGroup::<&str>::default())
                .starts_with("PurgatoryGroup { number: ")
        );
        assert!(format!("{:?}", sleep(HOUR)).starts_with("Sleep { home: "));
        let timers = Timers::new(&[local_timer().shard_ref()]);
        assert!(format!("{timers:?}").starts_with("Timers([ShardRef"), "{timers:?}");
        assert!(format!("{:?}", timers.sleep(HOUR)).contains("Remote(ShardRef"));
        assert!(format!("{:?}", Shard::<()>::default()).contains("added: 0"));
    });
    let time = VirtualTime::default();
    assert_eq!(format!("{time:?}"), "VirtualTime { cores: 1, tasks: 0, elapsed: 0ns, .. }");
}

#[test]
fn errors_are_sentences() {
    let refused = [AddErrorReason::ShutDown, AddErrorReason::Full, AddErrorReason::TooManyShards];
    for words in refused.map(|reason| reason.to_string()) {
        assert!(words.contains(' ') && !words.ends_with('.'), "{words}");
    }
    let short = Config::default().tick(Duration::from_nanos(1));
    let error = Shard::<()>::with_config(short).expect_err("shorter than a microsecond");
    assert!(matches!(error, ConfigError::TickTooShort { .. }));
    assert!(error.to_string().contains("tick"), "{error}");
}

#[test]
fn a_default_is_what_new_makes() {
    assert_eq!(ManualClock::default().elapsed(), Duration::ZERO);
    on_a_thread(|| {
        let config = Config::default().tick(Duration::from_millis(1)).clock(Clock::default());
        config.install().expect("a fresh thread");
        local_timer().add(HOUR, || ());
        let until = local_timer().time_until_next().expect("a timer waits");
        assert!(until <= HOUR + Duration::from_millis(1));
    });
}

/// A thread that runs something on its own timer does so in its next turn, as others would.
#[test]
fn a_callback_run_on_the_own_timer_waits_for_the_turn() {
    in_virtual_time(|_| {
        let shard = local_timer().shard_ref();
        shard.run(|| HAS_RUN.set(true));
        assert!(!HAS_RUN.get());
        assert_eq!(local_timer().turn().fired, 1);
        assert!(HAS_RUN.get());
    });
}

/// What a timeout is around can be reached while it waits.
#[test]
fn a_timeout_shows_its_future() {
    in_virtual_time(|_| {
        let mut limited = timeout(HOUR, pending::<()>());
        assert_eq!(format!("{:?}", limited.get_ref()), format!("{:?}", pending::<()>()));
        *limited.get_mut() = pending();
    });
}
