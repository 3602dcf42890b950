//! Go's runtime and `time.Timer`.

use std::{cell::Cell, collections::BTreeMap, rc::Rc, time::Duration};

use corewheel::{Cancel, ManualClock, Shard, TimerHandle, local_timer};

use crate::{
    HOUR, RING, Tiny, cancel_elsewhere,
    common::{TICK, on_a_thread},
    counter, first_to_fire, never, on_a_core, on_a_core_that_sleeps, shard, turn_after,
};

/// Adds a timer in every place where one can be: near, far and further, with slack, in a crowd, moved ahead, moved
/// back, and late. Their ticks by id.
fn add_everywhere(shard: &mut Shard<usize>) -> BTreeMap<usize, Duration> {
    let (begun, mut deadlines) = (shard.now(), BTreeMap::new());
    let far = [1, 2, 2_047, 2_048, 131_071, 131_072, 200_000, 10_000_000, u32::MAX]
        .map(|ticks| TICK * ticks);
    for (id, delay) in far.into_iter().chain([TICK * 77; 200]).enumerate() {
        let handle = shard.add(delay, id);
        deadlines.insert(id, delay);
        if id % 3 == 0 {
            let moved = if id % 2 == 0 { delay * 2 } else { TICK * 40 };
            assert!(shard.reset(handle, moved));
            deadlines.insert(id, moved);
        }
    }
    for slack in [TICK * 512, TICK * 400_000] {
        let id = deadlines.len();
        // The tick that is a multiple of the largest power of two.
        shard.add_within(TICK * 300_000, slack, id);
        deadlines.insert(id, if slack < TICK * 10_000 { TICK * 300_032 } else { TICK * 524_288 });
    }
    for past in [begun, begun.checked_sub(HOUR).unwrap_or(begun)] {
        let id = deadlines.len();
        shard.add_at(past, id);
        deadlines.insert(id, Duration::ZERO);
    }
    deadlines
}

/// #45716: when fewer processors were to be used, timers of those that went were lost. Here a shard is ended after so
/// many timers were handed out by a pass that is not over; another one takes what is left, and each fires at its own
/// time.
#[test]
fn bug_28_timers_of_a_retired_processor_were_lost() {
    for (taken, budget) in
        [(0, 0), (0, 9), (1, 1_000), (3, 3), (50, 60), (100, 1_000), (1_000, 120)]
    {
        let clock = ManualClock::new();
        let (begun, mut retired, mut heir) = (clock.now(), shard(&clock), shard(&clock));
        let mut left = add_everywhere(&mut retired);
        clock.advance(TICK * 100);
        retired.turn_within(budget);
        for expired in std::iter::from_fn(|| retired.next_expired()).take(taken) {
            assert_eq!(left.remove(&expired.payload), Some(expired.deadline - begun));
        }
        let pending = retired.drain();
        assert_eq!(pending.len(), left.len());
        for (deadline, id) in pending {
            assert_eq!(left.get(&id), Some(&(deadline - begun)), "the deadline of timer {id}");
            heir.add_at(deadline, id);
        }
        drop(retired);
        while let Some(wait) = heir.time_until_next() {
            clock.advance(wait);
            heir.turn();
            while let Some(expired) = heir.next_expired() {
                let deadline = left.remove(&expired.payload).expect("it fires once");
                assert_eq!(clock.elapsed(), deadline.max(TICK * 100), "timer {}", expired.payload);
            }
        }
        assert!(left.is_empty(), "{left:?} were lost");
    }
}

/// One timer, and so many resets; time passes in between where it can.
fn the_last_reset_counts(delays: [u64; 3], passes: u64) {
    let mut wheel = Tiny::<bool>::starting_at(RING - 5);
    let key = wheel.insert(wheel.now() + 500, true);
    let mut deadline = 0;
    for delay in delays {
        deadline = wheel.now() + delay;
        assert!(wheel.reset(key, deadline));
        assert!(
            wheel.next_deadline().is_some_and(|next| next <= deadline),
            "it would be slept through"
        );
        let now = wheel.now() + passes.min(delay - 1);
        assert_eq!(wheel.advance(now).next(), None);
    }
    assert_eq!(first_to_fire(&mut wheel), (deadline, true), "{delays:?}");
    assert!(wheel.is_empty() && wheel.next_deadline().is_none());
}

/// #47762: a timer that was moved to an earlier time fired at the later one. All sequences of three resets over
/// deadlines in all kinds of slots.
#[test]
fn bug_29_a_reset_to_earlier_was_ignored() {
    let delays = [1, 2, 3, RING - 2, RING - 1, RING, 2 * RING, 1_000];
    for first in delays {
        for second in delays {
            for third in delays {
                (0..3).for_each(|passes| the_last_reset_counts([first, second, third], passes));
            }
        }
    }
    on_a_core_that_sleeps(|_, wakes| {
        for add in [|| local_timer().add(HOUR, never), || local_timer().add_periodic(HOUR, never)] {
            let handle = add();
            for delay in [TICK * 200_000, TICK * 500, TICK] {
                let sleep = local_timer().prepare_sleep();
                assert!(handle.reset(delay));
                assert_eq!(wakes.take(), 1, "the sleeper would come too late");
                drop(sleep);
                assert_eq!(local_timer().time_until_next().map(|next| next <= delay), Some(true));
            }
            assert_eq!(handle.cancel(), Cancel::Cancelled);
        }
    });
}

/// What is done to a timer.
#[derive(Clone, Copy, Debug)]
enum Step {
    Cancel,
    CancelElsewhere,
    Reset,
    Turn,
}

const STEPS: [Step; 4] = [Step::Cancel, Step::CancelElsewhere, Step::Reset, Step::Turn];

/// Does what `steps` says to one timer that is due in two ticks; every answer must fit those before.
fn answers_fit(clock: &ManualClock, steps: [Step; 4]) {
    let (runs, run) = counter();
    let handle = local_timer().add(TICK * 2, run);
    let (mut due_in, mut ran) = (Some(2), 0);
    for step in steps {
        match step {
            Step::Cancel | Step::CancelElsewhere => {
                let cancel = if matches!(step, Step::Cancel) {
                    TimerHandle::cancel
                } else {
                    cancel_elsewhere
                };
                let expected =
                    if due_in.take().is_some() { Cancel::Cancelled } else { Cancel::Ended };
                assert_eq!(cancel(handle), expected, "{steps:?}");
            }
            Step::Reset => {
                assert_eq!(handle.reset(TICK * 2), due_in.is_some(), "{steps:?}");
                due_in = due_in.map(|_| 2);
            }
            Step::Turn => {
                due_in = due_in.map(|ticks| ticks - 1);
                ran += u32::from(due_in == Some(0));
                due_in = due_in.filter(|&ticks| ticks > 0);
                turn_after(clock, 1);
            }
        }
        assert_eq!((runs.get(), handle.is_pending()), (ran, due_in.is_some()), "{steps:?}");
        assert_eq!(on_a_thread(|| handle.is_pending()), due_in.is_some(), "{steps:?}");
    }
    handle.cancel();
    local_timer().turn();
    assert_eq!((runs.get(), local_timer().len()), (ran, 0));
}

/// #80760, #69312 (stopping said yes, and so did resetting; or no, and nothing ever ran), #69969 (a counter
/// overflowed). All sequences of four steps, with one thread at a time; `loom-tests/tests/cancel.rs` has the races.
/// (Our counters: indices of a wheel retire, `src/wheel/tests.rs`; a shard's 56 bits last 22 years, and then it
/// refuses.)
#[test]
fn bug_30_stop_and_reset_gave_answers_that_contradict() {
    on_a_core(|clock| {
        for first in STEPS {
            for second in STEPS {
                for third in STEPS {
                    for last in STEPS {
                        answers_fit(clock, [first, second, third, last]);
                    }
                }
            }
        }
    });
}

/// The same from within the run: it cannot be undone and is not said to be.
#[test]
fn bug_30_stop_while_running_claimed_to_have_stopped() {
    on_a_core(|clock| {
        let (runs, run) = counter();
        let own = Rc::new(Cell::new(None::<TimerHandle>));
        let handle = Rc::clone(&own);
        own.set(Some(local_timer().add(TICK, move || {
            let handle = handle.get().expect("it was added");
            assert_eq!(
                (handle.cancel(), cancel_elsewhere(handle)),
                (Cancel::Running, Cancel::Running)
            );
            assert_eq!((handle.reset(TICK), handle.is_pending()), (false, false));
            run();
        })));
        assert_eq!((turn_after(clock, 1).fired, runs.get()), (1, 1));
        assert_eq!(own.get().map(TimerHandle::cancel), Some(Cancel::Ended));
        assert_eq!(turn_after(clock, 5).fired, 0);
    });
}
