//! Access to the timers of a shard or wheel: lookup, iteration, removal and capacity.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
    thread,
    time::Instant,
};

use corewheel::{Cancel, Config, Shard, TimerHandle, Wheel};

use crate::support::{
    Counter, HOUR, OnDrop, TICK, assert_counts_add_up, cancel_remotely, manual_shard, on_a_thread,
    panics, turn_and_expire, wait_until,
};

type ExpectedTimers = HashMap<TimerHandle, (Instant, u32)>;

fn list_timers(shard: &Shard<Rc<Cell<u32>>>) -> ExpectedTimers {
    let listed = shard.iter().map(|(handle, deadline, value)| (handle, (deadline, value.get())));
    let map: ExpectedTimers = listed.collect();
    assert_eq!(map.len(), shard.iter().count(), "a timer is listed twice");
    map
}

#[test]
fn iter_get_mut_and_retain_reach_exactly_the_pending_timers() {
    let (mut shard, clock) = manual_shard();
    let start = shard.now();
    let mut map = ExpectedTimers::new();
    for number in 1..=2_000 {
        let handle = shard.add(TICK * number, Rc::new(Cell::new(number)));
        map.insert(handle, (start + TICK * number, number));
    }
    assert_eq!(list_timers(&shard), map);

    // The owner cancels some timers, another thread cancels or resets others, and some fire.
    let handles: Vec<TimerHandle> = map.keys().copied().collect();
    for handle in handles.iter().copied().filter(|handle| map[handle].1.is_multiple_of(7)) {
        assert!(shard.cancel(handle).is_some());
    }
    let with_remainder = |remainder: u32| -> Vec<TimerHandle> {
        handles.iter().copied().filter(|handle| map[handle].1 % 7 == remainder).collect()
    };
    let (cancelled, reset_timers) = (with_remainder(1), with_remainder(2));
    on_a_thread(|| {
        assert!(cancelled.iter().all(|handle| handle.cancel() == Cancel::Cancelled));
        assert!(reset_timers.iter().all(|handle| handle.reset(HOUR)));
    });
    map.retain(|_, (_, number)| !matches!(*number % 7, 0 | 1));
    for handle in &reset_timers {
        map.get_mut(handle).expect("the timer is pending").0 = start + HOUR;
    }
    assert_eq!(list_timers(&shard), map);
    assert!(cancelled.iter().all(|&handle| {
        !shard.contains(handle) && shard.get(handle).is_none() && shard.deadline(handle).is_none()
    }));
    clock.advance(TICK * 1_000);
    for value in turn_and_expire(&mut shard) {
        map.retain(|_, (_, number)| *number != value.get());
    }
    assert_eq!(list_timers(&shard), map);

    for (handle, (_, number)) in &mut map {
        *number += 10_000;
        *shard.get_mut(*handle).expect("the timer is pending") = Rc::new(Cell::new(*number));
        assert!(shard.contains(*handle));
    }
    assert_eq!(list_timers(&shard), map);
    shard.retain(|handle, deadline, value| {
        assert_eq!(map[&handle], (deadline, value.get()));
        value.set(value.get() + 1);
        value.get().is_multiple_of(2)
    });
    map.retain(|_, (_, number)| {
        *number += 1;
        number.is_multiple_of(2)
    });
    assert_eq!(list_timers(&shard), map);
    assert_eq!(shard.len(), map.len());

    shard.clear();
    assert_eq!((shard.len(), shard.iter().count()), (0, 0));
    assert!(map.keys().all(|&handle| handle.cancel() == Cancel::Ended));
    assert_counts_add_up(shard.counts());
    let handle = shard.add(TICK, Rc::default());
    assert_eq!(list_timers(&shard).into_keys().collect::<Vec<_>>(), [handle]);
}

#[test]
fn lookups_fail_in_another_shard_and_in_a_drained_one() {
    let (mut shard, _) = manual_shard();
    let (mut other, _) = manual_shard();
    let handle = shard.add(TICK, "payload");
    let same_index = other.add(TICK, "another");
    assert!(!other.contains(handle) && other.get_mut(handle).is_none());
    assert!(shard.get(same_index).is_none() && shard.deadline(same_index).is_none());
    assert_eq!(shard.drain().len(), 1);
    assert!(shard.get(handle).is_none() && shard.iter().next().is_none());
    shard.clear();
}

#[test]
fn a_borrowed_payload_survives_a_remote_cancel() {
    let (mut shard, _) = manual_shard();
    let handle = shard.add(TICK, Counter::default());
    let payload = shard.get(handle).expect("the timer is pending");
    payload.callback()();
    assert_eq!(cancel_remotely(handle), Cancel::Cancelled);
    payload.callback()();
    assert_eq!(payload.get(), 2);
    assert!(shard.get(handle).is_none() && shard.get_mut(handle).is_none());
    assert_eq!((shard.len(), turn_and_expire(&mut shard).len(), shard.len()), (1, 0, 0));
}

#[test]
fn lookups_that_race_with_remote_cancels_lose_no_timer() {
    for _ in 0..20 {
        let mut shard = Shard::new();
        let handles: Vec<_> = (0..1_000_u32).map(|n| shard.add(HOUR, Box::new(n))).collect();
        let won = thread::scope(|scope| {
            let canceller = scope.spawn(|| {
                let every_other = handles.iter().step_by(2);
                every_other.filter(|handle| handle.cancel().is_cancelled()).count()
            });
            for handle in &handles {
                if let Some(payload) = shard.get_mut(*handle) {
                    **payload += 1_000;
                }
            }
            shard.retain(|_, _, payload| (1_000..2_000).contains(&**payload) && **payload % 5 > 0);
            canceller.join().expect("no panic")
        });
        shard.turn();
        assert!(shard.next_expired().is_none());
        let counts = shard.counts();
        assert_counts_add_up(counts);
        assert_eq!(counts.remote_cancels, won as u64);
        assert_eq!(counts.live, 400, "odd numbers that are no multiple of five");
        assert!(shard.iter().all(|(_, _, payload)| **payload % 2 == 1 && **payload % 5 > 0));
    }
}

#[test]
fn clear_counts_the_panics_of_destructors() {
    let (mut shard, _) = manual_shard();
    (0..3).for_each(|_| _ = shard.add(TICK, OnDrop(|| panic!("as planned"))));
    shard.clear();
    assert_eq!((shard.len(), shard.counts().panicked), (0, 3));
}

#[test]
fn dropping_a_wheel_drops_all_values_despite_a_panic() {
    let (mut wheel, drops) = (Wheel::new(), Counter::default());
    for value in 0..5 {
        let dropped = drops.callback();
        let panic = move || assert_ne!(value, 2, "as planned");
        wheel.insert(1, (OnDrop(dropped), OnDrop(panic)));
    }
    assert!(panics(move || drop(wheel)));
    assert_eq!(drops.get(), 5);
}

#[test]
fn peek_returns_the_earliest_pending_timer() {
    let (mut shard, clock) = manual_shard();
    assert!(shard.peek().is_none());
    let timers = [7, 3, 3, 9].map(|ticks| shard.add(TICK * ticks, ticks));
    let peeked = |shard: &Shard<u32>| shard.peek().map(|(handle, _, value)| (handle, *value));
    let (first, deadline, &value) = shard.peek().expect("four are pending");
    assert!(timers[1..3].contains(&first));
    assert_eq!((value, shard.deadline(first)), (3, Some(deadline)));
    assert!(shard.reset(timers[3], TICK));
    assert_eq!(peeked(&shard), Some((timers[3], 9)));
    cancel_remotely(timers[3]);
    assert_eq!(peeked(&shard).map(|(_, value)| value), Some(3));
    clock.advance(TICK * 5);
    assert_eq!(turn_and_expire(&mut shard).len(), 2);
    assert_eq!(peeked(&shard), Some((timers[0], 7)));

    let mut wheel = Wheel::new();
    assert!(wheel.peek().is_none());
    let keys = [700, 30, 1 << 40].map(|deadline| wheel.insert(deadline, deadline));
    assert_eq!(wheel.peek(), Some((keys[1], 30, &30)));
    assert!(wheel.reset(keys[2], 5));
    assert_eq!(wheel.peek(), Some((keys[2], 5, &(1 << 40))));
}

/// Repeats `shrink_to_fit`, because a page stays while a thread of another test may be reading it.
fn shrink_until_below(shard: &mut Shard<u32>, capacity_bound: usize) {
    let shard = RefCell::new(shard);
    wait_until("the spare pages are freed", || {
        shard.borrow_mut().shrink_to_fit();
        shard.borrow().capacity() < capacity_bound
    });
}

#[test]
fn shrink_to_fit_frees_spare_capacity_and_keeps_timers() {
    const MANY: usize = 50_000;
    const PAGE_LEN: usize = 4_096;
    let configured = Shard::<()>::with_config(Config::new().capacity(MANY)).expect("valid");
    assert!(configured.capacity() >= MANY);
    let (mut shard, clock) = manual_shard();
    shard.reserve(MANY);
    assert!(shard.capacity() >= MANY);
    let kept_timer = shard.add(TICK, 1);
    shrink_until_below(&mut shard, 2 * PAGE_LEN);
    let timers: Vec<_> = (0..50_000).map(|number| shard.add(HOUR, number)).collect();
    assert!(shard.capacity() >= MANY);
    let last_timer = timers[MANY - 1];
    assert!(timers[..MANY - 1].iter().all(|&timer| shard.cancel(timer).is_some()));
    shrink_until_below(&mut shard, 3 * PAGE_LEN);
    assert_eq!(
        (shard.get(kept_timer), shard.get(last_timer), shard.len()),
        (Some(&1), Some(&49_999), 2)
    );
    clock.advance(TICK);
    assert_eq!(turn_and_expire(&mut shard), [1]);
    assert_counts_add_up(shard.counts());
    assert_eq!(shard.drain().len(), 1);
    shard.shrink_to_fit();

    let mut wheel = Wheel::with_capacity(MANY);
    assert!(wheel.capacity() >= MANY);
    let keys: Vec<_> = (0..50_000).map(|number| wheel.insert(1_000 + number, number)).collect();
    assert!(keys[1..].iter().all(|&key| wheel.remove(key).is_some()));
    wheel.shrink_to_fit();
    assert!(wheel.capacity() < 2 * PAGE_LEN, "{}", wheel.capacity());
    assert_eq!((wheel.get(keys[0]), wheel.get(keys[1])), (Some(&0), None));
    #[cfg(debug_assertions)]
    wheel.check();
    assert_eq!(wheel.advance(1_000).collect::<Vec<_>>(), [(1_000, 0)]);
}
