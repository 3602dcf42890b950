//! tokio's drivers (and, of the same wheel, the store `TiKV` and the old crate tokio-timer).

use std::{
    cell::Cell,
    panic::resume_unwind,
    rc::Rc,
    sync::{Arc, Mutex},
    time::Duration,
};

use corewheel::{Cancel, ManualClock, Shard, TimerHandle, Wheel, local_timer};

use crate::{
    CANCELS, Drops, RING, Tiny, cancel_elsewhere,
    common::{TICK, in_virtual_time},
    counter, expired, first_to_fire, never, on_a_core, on_a_core_that_sleeps, shard, turn_after,
};

/// tokio's alternative timer, #8252. Here a periodic timer is in no slot while it runs, and one that was due when
/// another thread cancelled it has left its slot before its message is read.
#[test]
fn bug_01_a_cancel_before_the_timer_was_linked_leaked_it() {
    for cancel in CANCELS {
        on_a_core(|clock| {
            let (drops, own) = (Drops::default(), Rc::new(Cell::new(None::<TimerHandle>)));
            let (held, handle) = (drops.one(), Rc::clone(&own));
            own.set(Some(local_timer().add_periodic(TICK, move || {
                let _held = &held;
                assert_eq!(handle.get().map(cancel), Some(Cancel::Running));
            })));
            let held = drops.one();
            let due = local_timer().add(TICK, move || drop(held));
            clock.advance(TICK);
            assert_eq!(cancel(due), Cancel::Cancelled);
            assert_eq!(local_timer().turn().fired, 1);
            assert_eq!(
                (drops.count(), local_timer().len(), local_timer().counts().held),
                (2, 0, 0)
            );
            assert_eq!(local_timer().next_deadline(), None);
            assert_eq!(turn_after(clock, 10).fired, 0);
        });
    }
}

/// #6683: the next wake-up was computed from one wheel while an earlier timer came to another.
#[test]
fn bug_02_an_earlier_timer_did_not_shorten_the_sleep() {
    on_a_core_that_sleeps(|clock, wakes| {
        let (runs, run) = counter();
        for delay in (1..=20).rev() {
            let sleep = local_timer().prepare_sleep();
            assert!(
                sleep.timeout().is_none_or(|timeout| timeout > TICK * delay),
                "it would sleep too long"
            );
            local_timer().add(TICK * delay, run.clone());
            assert_eq!(wakes.take(), 1, "so it is woken");
        }
        for fired in 1..=20 {
            let timeout = local_timer().prepare_sleep().timeout();
            assert_eq!(timeout, Some(TICK));
            assert_eq!((turn_after(clock, 1).fired, runs.get()), (1, fired));
        }
    });
}

/// #6714: entries were fired straight from their slot, and one that was reset and dropped meanwhile broke the walk.
/// Here one of a due batch is cancelled and others are moved while `before` of them have been handed out.
fn changes_in_the_middle_of_a_batch(batch: usize, before: usize) {
    let clock = ManualClock::new();
    let mut shard: Shard<usize> = shard(&clock);
    let handles: Vec<_> = (0..batch).map(|id| shard.add(TICK, id)).collect();
    clock.advance(TICK);
    shard.turn();
    let mut waiting: Vec<usize> = (0..batch).collect();
    let take = |shard: &mut Shard<usize>, waiting: &mut Vec<usize>| {
        let expired = shard.next_expired()?;
        let place = waiting.iter().rposition(|&id| id == expired.payload).expect("it fires once");
        waiting.swap_remove(place);
        Some(())
    };
    for _ in 0..before {
        take(&mut shard, &mut waiting).expect("more are due");
    }
    let (cancelled, later, at_once, twice) = (waiting[0], waiting[1], waiting[2], waiting[3]);
    assert_eq!(shard.cancel(handles[cancelled]), Some(cancelled));
    assert!(shard.reset(handles[later], TICK * 5) && shard.reset(handles[at_once], Duration::ZERO));
    assert!(shard.reset(handles[twice], TICK * 5) && shard.reset(handles[twice], TICK));
    waiting.drain(..4);
    while take(&mut shard, &mut waiting).is_some() {}
    assert!(waiting.is_empty(), "{waiting:?} were passed over");
    assert_eq!(expired(&mut shard), [at_once]);
    clock.advance(TICK);
    assert_eq!(expired(&mut shard), [twice]);
    clock.advance(TICK * 4);
    assert_eq!(expired(&mut shard), [later]);
    assert!(shard.is_empty() && shard.next_deadline().is_none());
}

#[test]
fn bug_03_a_sibling_moved_in_the_middle_of_a_batch_broke_it() {
    (0..8).for_each(|before| changes_in_the_middle_of_a_batch(12, before));
    // So many that the lists of a tick are walked ahead.
    let many = if cfg!(miri) { 20 } else { 10_000 };
    for before in [0, 1, many / 2, many - 4] {
        changes_in_the_middle_of_a_batch(many, before);
    }
}

/// Adds two timers that are due at once, of which the one that runs first cancels the other.
fn two_that_cancel_each_other(cancel: fn(TimerHandle) -> Cancel) {
    let handles = Rc::new(Cell::new(None::<[TimerHandle; 2]>));
    let add = |other: usize| {
        let handles = Rc::clone(&handles);
        local_timer().add(Duration::ZERO, move || {
            assert_eq!(
                handles.get().map(|handles| cancel(handles[other])),
                Some(Cancel::Cancelled)
            );
        })
    };
    handles.set(Some([add(1), add(0)]));
}

/// #3229, #5989.
#[test]
fn bug_04_a_timer_dropped_in_the_tick_it_fires_in_panicked() {
    for cancel in CANCELS {
        on_a_core(|clock| {
            let add = || local_timer().add(TICK, never);
            let (before, between, guarded) = (add(), add(), add().guard());
            clock.advance(TICK);
            assert_eq!(cancel(before), Cancel::Cancelled);
            // A pass that may touch nothing has begun, and stands at the tick of all of them.
            assert!(local_timer().turn_within(0).behind);
            assert_eq!(cancel(between), Cancel::Cancelled);
            drop(guarded);
            two_that_cancel_each_other(cancel);
            assert_eq!(local_timer().turn().fired, 1);
            assert_eq!(local_timer().turn().live, 0);
        });
    }
}

/// #8334: a sleep of 333 ms took 2.2 years. For each power of two that time comes to, with timers alive at every
/// greater one.
fn near_timers_fire_beside_far_ones<const BITS: u32, const LEVELS: usize>() {
    for bits in 1..64 {
        for (before, delay) in [(100, 333), (1, 1), (1, 2), (3, 3), (RING, RING)] {
            let mut wheel = Wheel::<bool, BITS, LEVELS>::starting_at(0);
            let boundary = 1_u64 << bits;
            let now = boundary.saturating_sub(before);
            wheel.insert(u64::MAX, false);
            for further in bits + 1..64 {
                wheel.insert((1 << further) + 5_000, false);
            }
            assert_eq!(wheel.advance(now).next(), None);
            wheel.insert(now + delay, true);
            assert_eq!(first_to_fire(&mut wheel), (now + delay, true), "{delay} ticks from {now}");
        }
    }
}

#[test]
fn bug_05_a_timer_far_ahead_hid_nearer_ones() {
    near_timers_fire_beside_far_ones::<1, 64>();
    near_timers_fire_beside_far_ones::<2, 32>();
    near_timers_fire_beside_far_ones::<6, 11>();
    near_timers_fire_beside_far_ones::<11, 6>();
}

/// `TiKV` #11940: after 2^36 ms, two years, an index was out of range.
#[test]
fn bug_06_an_uptime_of_two_years_was_out_of_range() {
    for bits in 0..64 {
        for start in (1_u64 << bits).saturating_sub(2)..=(1 << bits) + 1 {
            let mut wheel = Wheel::<u64>::starting_at(start);
            let delays = [1, 2, 3, 63, 64, 1 << 17, 1 << 36];
            let deadlines = delays.map(|delay| start.saturating_add(delay));
            let keys = deadlines.map(|deadline| wheel.insert(deadline, deadline));
            assert!(wheel.reset(keys[6], start));
            assert_eq!(first_to_fire(&mut wheel), (start, deadlines[6]));
            for deadline in &deadlines[..6] {
                assert_eq!(first_to_fire(&mut wheel), (*deadline, *deadline));
            }
        }
    }
    let clock = ManualClock::new();
    let end = Duration::from_nanos(u64::MAX);
    for uptime in [TICK * u32::MAX * 16 + TICK * 14, end - TICK * 2, end] {
        clock.set(uptime);
        let mut shard: Shard<u32> = shard(&clock);
        shard.add(TICK, 1);
        shard.add(Duration::MAX, 2);
        clock.advance(TICK * 2);
        assert_eq!(
            expired(&mut shard).first(),
            Some(&1).filter(|_| uptime < end),
            "after {uptime:?}"
        );
    }
}

/// tokio-timer #2473 and #868: a deadline that is the present tick, or next to it. `present` entries are due at it as
/// well, one of which has been handed out.
fn deadlines_around_the_present(now: u64, inserted: u64, moved: Option<u64>, present: u64) {
    let mut wheel = Tiny::<u64>::starting_at(0);
    for value in 0..present {
        wheel.insert(now, value);
    }
    assert_eq!(wheel.advance(now).next().is_some(), present > 0);
    let key = wheel.insert(inserted, 100);
    assert!(moved.is_none_or(|moved| wheel.reset(key, moved)));
    let due = moved.unwrap_or(inserted).max(now);
    let mut fired: Vec<_> = wheel.advance(now).collect();
    assert_eq!(fired.len() as u64, present.saturating_sub(1) + u64::from(due == now));
    fired.extend(wheel.advance(now + 1));
    assert!(fired.contains(&(due, 100)), "due at {due}, fired: {fired:?}");
    assert!(wheel.is_empty() && wheel.next_deadline().is_none());
}

#[test]
fn bug_07_a_deadline_of_the_present_tick_panicked() {
    let last = if cfg!(miri) { 5 } else { 3 * RING };
    for now in 1..last {
        for inserted in now - 1..=now + 1 {
            for present in 0..3 {
                deadlines_around_the_present(now, inserted, None, present);
                (now - 1..=now + 1).for_each(|moved| {
                    deadlines_around_the_present(now, inserted, Some(moved), present)
                });
            }
        }
    }
}

/// Uses the thread's timer in every way when it is dropped, as a waker may that is dropped or called.
struct UsesTheTimer {
    drops: Arc<Mutex<u32>>,
    sibling: TimerHandle,
}

impl Drop for UsesTheTimer {
    fn drop(&mut self) {
        let timer = local_timer();
        if let Ok(added) = timer.try_add(TICK * 9, never) {
            assert!(added.reset(TICK * 8) && self.sibling.reset(TICK * 7));
            assert_eq!(added.cancel(), Cancel::Cancelled);
        }
        timer.turn();
        assert!(timer.counts().held <= 1 && timer.prepare_sleep().timeout().is_some());
        *self.drops.lock().expect("no panic") += 1;
    }
}

/// #8550, #8552.
#[test]
fn bug_09_wakers_were_called_and_dropped_under_the_lock() {
    let drops = Arc::new(Mutex::new(0));
    on_a_core(|clock| {
        let sibling = local_timer().add(TICK * 5, never);
        let uses_the_timer = || UsesTheTimer { drops: Arc::clone(&drops), sibling };
        let add = || {
            let held = uses_the_timer();
            local_timer().add(TICK, move || drop(held))
        };
        let (cancelled, cancelled_elsewhere, fired) = (add(), add(), add());
        assert_eq!(cancelled.cancel(), Cancel::Cancelled);
        assert_eq!(cancel_elsewhere(cancelled_elsewhere), Cancel::Cancelled);
        let held = uses_the_timer();
        let again = local_timer().add_periodic(TICK, move || _ = &held);
        assert_eq!(turn_after(clock, 1).fired, 2);
        assert_eq!((fired.cancel(), again.cancel()), (Cancel::Ended, Cancel::Cancelled));
        assert_eq!(*drops.lock().expect("no panic"), 4);
        // Two are handed back when the thread ends.
        let _pending = (add(), add());
    });
    assert_eq!(*drops.lock().expect("no panic"), 6);
}

/// Measured with tokio 1.54.1: of 20 sleeps due together, those behind one whose waker panics were never woken.
#[test]
fn bug_11_a_panic_dropped_the_timers_behind_it() {
    for timers in [3, 20, 101] {
        for panics in [0, 1, timers / 2, timers - 1] {
            in_virtual_time(|clock| {
                let (runs, run) = counter();
                for _ in 0..timers {
                    let (run, runs) = (run.clone(), Rc::clone(&runs));
                    local_timer().add(TICK, move || {
                        run();
                        if runs.get() == panics + 1 {
                            // As `panic!` does, but silently.
                            resume_unwind(Box::new("as planned"));
                        }
                    });
                }
                let turn = turn_after(clock, 1);
                assert_eq!((turn.fired, runs.get(), turn.live), (timers as usize, timers, 0));
                assert_eq!(local_timer().counts().panicked, 1);
                local_timer().add(TICK, run);
                assert_eq!(turn_after(clock, 1).fired, 1);
            });
        }
    }
}
