//! Extreme durations, instants and configurations (P10): each has a defined answer; none
//! aborts, hangs or loses a timer.

use std::time::{Duration, Instant};

use corewheel::{
    Cancel, Config, ConfigError, ManualClock, Shard, TimerHandle, local_timer, purgatory::Purgatory,
};

use crate::support::{
    Counter, Never, TICK, cancel_elsewhere, never, on_a_core, on_a_thread, turn_after,
};

const NANOSECOND: Duration = Duration::from_nanos(1);

// ---- durations and instants

/// By the clock of the machine it has a deadline that an `Instant` can hold, and needs no turn.
#[test]
fn an_endless_delay_has_a_deadline() {
    on_a_thread(|| {
        let handle = local_timer().add(Duration::MAX, never);
        assert!(local_timer().deadline(handle).is_some_and(|deadline| deadline > Instant::now()));
        assert_eq!(local_timer().prepare_sleep().timeout(), None);
        assert_eq!((local_timer().turn().fired, handle.cancel()), (0, Cancel::Cancelled));
    });
}

/// A loop over a clock in virtual time ends, although a timer waits for its reset.
#[test]
fn an_endless_delay_needs_no_turn_at_the_end_of_the_clock() {
    on_a_core(|clock| {
        let endless = local_timer().add(Duration::MAX, never);
        let mut turns = 0;
        while let Some(wait) = local_timer().time_until_next() {
            clock.advance(wait);
            assert_eq!(local_timer().turn().fired, 0);
            turns += 1;
            assert!(turns < 100);
        }
        assert_eq!((local_timer().next_deadline(), endless.is_pending()), (None, true));
    });
}

/// embassy #4736, #5017: a timer for the end of time was removed from the queue and still looked
/// queued, so that the next timer of its task was not queued.
#[test]
fn bug_37_after_a_timer_for_never_the_next_one_was_not_queued() {
    on_a_core(|clock| {
        let runs = Counter::default();
        for (ran, cancel) in (1..10).zip([TimerHandle::cancel, cancel_elsewhere].iter().cycle()) {
            let endless = local_timer().add(Duration::MAX, never);
            assert_eq!(turn_after(clock, 1).fired, 0);
            assert!(local_timer().next_deadline().is_none() && endless.is_pending());
            assert_eq!(cancel(endless), Cancel::Cancelled);
            local_timer().turn();
            // In the same node.
            local_timer().add(TICK, runs.callback());
            assert_eq!(local_timer().time_until_next(), Some(TICK));
            assert_eq!((turn_after(clock, 1).fired, runs.get()), (1, ran));
        }
    });
}

// ---- configuration

#[test]
fn a_tick_below_a_microsecond_is_refused() {
    for tick in [Duration::ZERO, NANOSECOND, Duration::from_nanos(999)] {
        let refused = Err(ConfigError::TickTooShort { tick });
        assert_eq!(Shard::<()>::with_config(Config::new().tick(tick)).map(drop), refused);
        on_a_thread(|| {
            assert_eq!(Config::new().tick(tick).install(), refused);
            // The thread is as it was.
            let clock = ManualClock::new();
            assert_eq!(Config::new().clock(&clock).install(), Ok(()));
            local_timer().add(TICK, || ());
            assert_eq!(turn_after(&clock, 1).fired, 1);
        });
    }
}

#[test]
fn a_configuration_after_the_first_use_is_refused() {
    let refused = Err(ConfigError::AlreadyRunning);
    let uses: [(fn(), _); 5] = [
        (|| _ = local_timer().add(TICK, never), refused),
        (|| _ = local_timer().turn(), refused),
        (|| _ = local_timer().len(), refused),
        (|| drop(local_timer().prepare_sleep()), refused),
        (|| drop(Purgatory::<u8, Never>::new()), Ok(())),
    ];
    for (first_use, answer) in uses {
        on_a_thread(|| {
            first_use();
            assert_eq!(Config::new().install(), answer);
        });
    }
    // It changes nothing.
    on_a_core(|clock| {
        let other = ManualClock::new();
        assert_eq!(Config::new().tick(TICK * 100).clock(&other).install(), refused);
        local_timer().add(TICK, || ());
        other.advance(TICK * 1_000);
        assert_eq!((local_timer().turn().fired, turn_after(clock, 1).fired), (0, 1));
    });
}
