//! Linux' `kernel/time/timer.c`.

use corewheel::{ManualClock, Wheel};

use crate::{RING, Tiny, common::TICK, expired, fire_tick_by_tick, first_to_fire, shard};

/// 30c66fc30ee7: a timer that was late already set the base's clock back, so slots were gone through again, and
/// timers of upper levels fired early.
#[test]
fn bug_25_a_late_timer_turned_the_clock_back() {
    let end = if cfg!(miri) { 300 } else { 4 * RING };
    for ago in [0, 1, 2, RING - 1, RING, u64::MAX] {
        let (mut wheel, mut late) = (Tiny::<u64>::starting_at(0), 0);
        let mut expected = Vec::new();
        for now in 1..=end {
            let fired: Vec<_> = wheel.advance(now).collect();
            let due = expected.iter().filter(|&&deadline| deadline == now).count();
            assert_eq!(fired.len(), due + late, "at {now}");
            assert!(
                fired.iter().all(
                    |&(deadline, value)| deadline == now - 1 && value == 0 || deadline == value
                )
            );
            wheel.insert(now.saturating_sub(ago), 0);
            late = 1;
            assert_eq!((wheel.now(), wheel.next_deadline()), (now, Some(now)));
            let deadline = now + 1 + now * 37 % (3 * RING);
            wheel.insert(deadline, deadline);
            expected.push(deadline);
        }
    }
    let clock = ManualClock::new();
    let (mut shard, begun) = (shard(&clock), clock.now());
    for step in 0..500 {
        shard.add(TICK * (300_000 - step), 1);
        shard.add_at(begun, 0);
        clock.advance(TICK);
        assert_eq!(expired(&mut shard), [0]);
        assert_eq!(shard.counts().clock_regressions, 0);
    }
}

/// 66e4b63624fc: whether a deadline is beyond the last level was decided by the deadline, not by how far it is.
fn far_deadlines_at_any_time<const BITS: u32, const LEVELS: usize>() {
    let around = |bits: u32| (1_u64 << bits) - 1..=(1 << bits) + 1;
    for start in (0..64).step_by(5).flat_map(around) {
        for delay in (0..63).step_by(3).flat_map(around) {
            let mut wheel = Wheel::<u64, BITS, LEVELS>::starting_at(start);
            let deadline = start.saturating_add(delay);
            wheel.insert(deadline, deadline);
            assert_eq!(first_to_fire(&mut wheel), (deadline, deadline), "{delay} after {start}");
            assert!(wheel.is_empty());
        }
    }
}

#[test]
fn bug_26_how_far_a_deadline_is_was_taken_for_when_it_is() {
    far_deadlines_at_any_time::<1, 64>();
    far_deadlines_at_any_time::<4, 16>();
    // Time passes on its own, too, and the delays stay.
    for delay in [RING - 1, RING, 3 * RING, 5 * RING] {
        let mut wheel = Tiny::<u64>::starting_at(0);
        let end = if cfg!(miri) { 200 } else { 3_000 };
        for now in 0..end {
            assert_eq!(fire_tick_by_tick(&mut wheel, now), usize::from(now >= delay));
            wheel.insert(now + delay, now + delay);
        }
    }
}
