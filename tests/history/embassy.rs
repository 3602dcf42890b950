//! embassy's time drivers and timer queues.

use std::time::Duration;

use corewheel::{Cancel, ManualClock, local_timer};

use crate::{
    CANCELS, HOUR, Tiny,
    common::{TICK, operations, seeded},
    counter, expired, never, on_a_core, shard, turn_after,
};

/// #3758, #6528, #3672: a deadline passed, or another alarm was set, between working out the next one and setting the
/// alarm for it: the alarm never came, and all timers stood still. Here time passes at every step of a loop that also
/// adds.
#[test]
fn bug_36_a_deadline_that_passed_before_the_alarm_was_set_stopped_everything() {
    seeded(0..operations(50).min(500), |random| {
        let mut pauses: Vec<_> = (0..1_000).map(|_| random.u32(..30) * random.u32(..2)).collect();
        on_a_core(|clock| {
            let mut pause = || clock.advance(TICK * pauses.pop().unwrap_or(0) / 2);
            let (runs, run) = counter();
            local_timer().add_periodic(TICK * 3, run.clone());
            for added in 1..300 {
                let late = clock.clone();
                let counts = run.clone();
                local_timer().add(TICK * (added % 20), move || {
                    counts();
                    late.advance(TICK * (added % 7));
                });
                pause();
                let sleep = local_timer().prepare_sleep();
                pause();
                let slept = sleep.timeout().expect("a periodic timer is pending");
                assert!(slept <= TICK * 3, "asleep for {slept:?}");
                clock.advance(slept);
                drop(sleep);
                let before = runs.get();
                local_timer().turn();
                assert!(runs.get() > before, "what it has slept for is due");
                pause();
            }
        });
    });
}

/// The first level is all that the tests of a shard reach in few ticks; here the alarm is for the start of an upper
/// slot.
#[test]
fn bug_36_the_start_of_an_upper_slot_passed_before_the_alarm_was_set() {
    for late in 0..300 {
        let mut wheel = Tiny::<u64>::starting_at(0);
        for deadline in [200, 300, 500, 1_000, 5_000] {
            wheel.insert(deadline, deadline);
        }
        let mut fired = Vec::new();
        while let Some(alarm) = wheel.next_deadline() {
            let now = alarm + late;
            fired.extend(wheel.advance(now).map(|(deadline, _)| deadline));
            assert!(
                wheel.next_deadline().is_none_or(|next| next > now),
                "the next alarm is in the past"
            );
        }
        assert_eq!(fired, [200, 300, 500, 1_000, 5_000]);
    }
}

/// #4736, #5017: a timer for the end of time was taken out of the queue and still looked as if it were in it, so that
/// the next one of its task was not put in.
#[test]
fn bug_37_after_a_timer_for_never_the_next_one_was_not_queued() {
    for cancel in CANCELS {
        on_a_core(|clock| {
            let (runs, run) = counter();
            for ran in 1..10 {
                let endless = local_timer().add(Duration::MAX, never);
                assert_eq!(turn_after(clock, 1).fired, 0);
                assert!(local_timer().next_deadline().is_some() && endless.is_pending());
                assert_eq!(cancel(endless), Cancel::Cancelled);
                local_timer().turn();
                // In the same node.
                local_timer().add(TICK, run.clone());
                assert_eq!(local_timer().time_until_next(), Some(TICK));
                assert_eq!((turn_after(clock, 1).fired, runs.get()), (1, ran));
            }
        });
    }
    let clock = ManualClock::new();
    let mut shard = shard(&clock);
    let endless = shard.add(Duration::MAX, 'x');
    for delay in [TICK, HOUR, Duration::MAX, HOUR, Duration::MAX, TICK] {
        assert!(shard.reset(endless, delay) && expired(&mut shard).is_empty());
    }
    clock.advance(TICK);
    assert_eq!(expired(&mut shard), ['x']);
    let mut wheel = Tiny::<u64>::starting_at(7);
    for deadline in 8..400 {
        let endless = wheel.insert(u64::MAX, 0);
        assert_eq!(wheel.advance(deadline - 1).next(), None);
        assert_eq!(wheel.remove(endless), Some(0));
        wheel.insert(deadline, deadline);
        assert_eq!(wheel.advance(deadline).next(), Some((deadline, deadline)));
    }
}
