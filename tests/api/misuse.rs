//! Extreme durations, instants and configurations (P10). None of them causes an abort, a hang or
//! the loss of a timer.

use std::{
    cell::Cell,
    panic,
    time::{Duration, Instant},
};

use corewheel::{
    Cancel, Config, ConfigError, ManualClock, Shard, TimerHandle,
    future::VirtualTime,
    local_timer,
    purgatory::{Purgatory, PurgatoryGroup},
};

use crate::operation::NeverCompletes;
use crate::support::{
    Counter, TICK, cancel_remotely, in_checked_virtual_time, must_not_run, on_a_thread,
    on_configured_thread, panics, turn_after,
};

const NANOSECOND: Duration = Duration::from_nanos(1);

#[test]
fn duration_max_has_a_deadline_but_never_ends_a_sleep() {
    on_a_thread(|| {
        let handle = local_timer().add(Duration::MAX, must_not_run);
        assert!(local_timer().deadline(handle).is_some_and(|deadline| deadline > Instant::now()));
        assert_eq!(local_timer().prepare_sleep().timeout(), None);
        assert_eq!((local_timer().turn().fired, handle.cancel()), (0, Cancel::Cancelled));
    });
}

/// embassy #4736, #5017: a timer that never fires left the queue and still looked queued, so the
/// next timer of its task was not queued.
#[test]
fn bug_37_a_timer_added_after_an_endless_timer_fires() {
    in_checked_virtual_time(|clock| {
        let runs = Counter::default();
        for (run_number, cancel) in
            (1..10).zip([TimerHandle::cancel, cancel_remotely].iter().cycle())
        {
            let endless = local_timer().add(Duration::MAX, must_not_run);
            assert_eq!(turn_after(clock, 1).fired, 0);
            assert!(local_timer().next_deadline().is_none() && endless.is_pending());
            assert_eq!(cancel(endless), Cancel::Cancelled);
            local_timer().turn();
            // The new timer uses the node of the cancelled one.
            local_timer().add(TICK, runs.callback());
            assert_eq!(local_timer().time_until_next(), Some(TICK));
            assert_eq!((turn_after(clock, 1).fired, runs.get()), (1, run_number));
        }
    });
}

#[test]
fn a_tick_below_a_microsecond_or_above_an_hour_is_refused() {
    let too_short = [Duration::ZERO, NANOSECOND, Duration::from_nanos(999)];
    let too_long = [Duration::from_secs(3_600) + NANOSECOND, Duration::MAX];
    for tick in too_short.into_iter().chain(too_long) {
        let refused = Err(ConfigError::TickOutOfRange { tick });
        assert_eq!(Shard::<()>::with_config(Config::new().tick(tick)).map(drop), refused);
        on_a_thread(|| {
            assert_eq!(Config::new().tick(tick).install(), refused);
            // The thread can still be configured.
            let clock = ManualClock::new();
            assert_eq!(Config::new().clock(&clock).install(), Ok(()));
            local_timer().add(TICK, || ());
            assert_eq!(turn_after(&clock, 1).fired, 1);
        });
    }
}

#[test]
fn a_configuration_after_the_first_use_is_refused() {
    let refused = Err(ConfigError::ThreadHasWheel);
    let first_uses: [(fn(), _); 5] = [
        (|| _ = local_timer().add(TICK, must_not_run), refused),
        (|| _ = local_timer().turn(), refused),
        (|| _ = local_timer().len(), refused),
        (|| drop(local_timer().prepare_sleep()), refused),
        (|| drop(Purgatory::<u8, NeverCompletes>::new()), Ok(())),
    ];
    for (first_use, answer) in first_uses {
        on_a_thread(|| {
            first_use();
            assert_eq!(Config::new().install(), answer);
        });
    }
    // A refused configuration changes nothing.
    in_checked_virtual_time(|clock| {
        let other_clock = ManualClock::new();
        assert_eq!(Config::new().tick(TICK * 100).clock(&other_clock).install(), refused);
        local_timer().add(TICK, || ());
        other_clock.advance(TICK * 1_000);
        assert_eq!((local_timer().turn().fired, turn_after(clock, 1).fired), (0, 1));
    });
}

/// The wheel stands still until the clock has caught up.
#[test]
fn time_left_includes_a_backward_clock_step() {
    let (clock, start) = (ManualClock::new(), TICK * 100);
    clock.set(start);
    let mut shard = Shard::with_config(Config::new().clock(&clock)).expect("valid");
    shard.turn();
    clock.set(TICK * 40);
    let timer = shard.add(TICK * 5, 1);
    assert_eq!(shard.time_left(timer), Some(TICK * 65));
    assert_eq!(shard.time_until_next(), Some(TICK * 65));
    shard.turn_at(shard.now() + TICK * 500);
    assert_eq!(shard.time_left(timer), Some(Duration::ZERO));
}

#[test]
fn a_panic_shows_the_callers_line() {
    thread_local! {
        static PANIC_LOCATION: Cell<Option<(String, u32)>> = const { Cell::new(None) };
    }
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        PANIC_LOCATION.set(info.location().map(|at| (at.file().to_owned(), at.line())));
        before(info);
    }));
    on_configured_thread(Config::new().limit(0), |_| {
        let timer = local_timer();
        let calls: [(u32, &dyn Fn()); 7] = [
            (line!(), &|| _ = timer.add(TICK, must_not_run)),
            (line!(), &|| _ = timer.add_periodic(TICK, must_not_run)),
            (line!(), &|| _ = timer.add_local(TICK, must_not_run)),
            (line!(), &|| _ = timer.shard_ref().run(must_not_run)),
            (line!(), &|| _ = timer.shard_ref().add_periodic(TICK, must_not_run)),
            (line!(), &|| _ = VirtualTime::new().spawn_on(1, || async {})),
            (line!(), &|| _ = PurgatoryGroup::<u8>::new().join::<NeverCompletes>(0, &[])),
        ];
        for (line, call) in calls {
            assert!(panics(call));
            assert_eq!(PANIC_LOCATION.take(), Some((file!().to_owned(), line)));
        }
    });
}
