//! The end of a shard, of a thread and of cores.

use std::{
    collections::BTreeMap,
    panic::resume_unwind,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use corewheel::{Cancel, Config, Cores, ManualClock, Shard, TimerHandle, Wheel, When, local_timer};

use crate::{
    Counter, CountsDrop, HOUR, cancel_elsewhere,
    common::{TICK, in_virtual_time, on_a_thread, operations},
    ends_soon, shard_by,
};

/// When it is dropped, makes a shard and ends it, and cancels a timer of the one that is ending.
struct EndsAShard(ManualClock, Option<TimerHandle>);

impl Drop for EndsAShard {
    fn drop(&mut self) {
        let mut other = shard_by(&self.0);
        other.add(TICK, ());
        assert_eq!(other.drain().len(), 1);
        assert!(self.1.is_none_or(|handle| handle.cancel() == Cancel::Ended));
    }
}

/// Makes shards whose payloads and hooks end others, and ends them.
fn end_shards(clock: &ManualClock) {
    for round in 0..operations(100).min(3_000) {
        let captured = EndsAShard(clock.clone(), None);
        let hook = move || _ = &captured;
        let mut shard: Shard<EndsAShard> =
            Shard::with_config(Config::new().clock(clock).on_wake(hook)).expect("valid");
        let first = shard.add(TICK, EndsAShard(clock.clone(), None));
        let second = shard.add(HOUR, EndsAShard(clock.clone(), Some(first)));
        assert!(round % 3 > 0 || cancel_elsewhere(second) == Cancel::Cancelled);
        if round % 2 == 0 {
            assert!(!shard.drain().is_empty());
        }
    }
}

/// DPDK eb63c85d: stopping all timers took a lock and then called what took it again. Here two
/// threads end shards while a third one looks at what they leave behind: so each frees what the
/// other one could not free, and its hooks with it.
#[test]
fn bug_20_stopping_all_timers_took_a_lock_twice() {
    ends_soon(|| {
        let (clock, is_over) = (ManualClock::new(), AtomicBool::new(false));
        let looked_at = shard_by(&clock).add(TICK, ());
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    assert_eq!(looked_at.cancel(), Cancel::Ended);
                }
            });
            let enders = [0; 2].map(|_| scope.spawn(|| end_shards(&clock)));
            let ended = enders.map(|ender| ender.join().is_ok());
            is_over.store(true, Ordering::SeqCst);
            assert_eq!(ended, [true; 2], "no assertion failed");
        });
    });
}

/// Adds a timer in every place where one can be: near, far and further, with slack, in a crowd,
/// moved ahead, moved back, and late. Their ticks by id.
fn add_everywhere<T>(
    shard: &mut Shard<T>,
    payload: impl Fn(usize) -> T,
) -> BTreeMap<usize, Duration> {
    let (begun, mut deadlines) = (shard.now(), BTreeMap::new());
    let far = [1, 2, 2_047, 2_048, 131_071, 131_072, 200_000, 10_000_000, u32::MAX]
        .map(|ticks| TICK * ticks);
    for (id, delay) in far.into_iter().chain([TICK * 77; 200]).enumerate() {
        let handle = shard.add(delay, payload(id));
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
        shard.add(When::after(TICK * 300_000).slack(slack), payload(id));
        deadlines.insert(id, if slack < TICK * 10_000 { TICK * 300_032 } else { TICK * 524_288 });
    }
    for past in [begun, begun.checked_sub(HOUR).unwrap_or(begun)] {
        let id = deadlines.len();
        shard.add(past, payload(id));
        deadlines.insert(id, Duration::ZERO);
    }
    deadlines
}

/// Go #45716: when the number of processors was reduced, the timers of the removed ones were lost.
/// Here a shard is ended in the middle of a pass. Another shard takes the remaining timers, and
/// each fires at its time.
#[test]
fn bug_28_timers_of_a_retired_processor_were_lost() {
    for (taken, budget) in
        [(0, 0), (0, 9), (1, 1_000), (3, 3), (50, 60), (100, 1_000), (1_000, 120)]
    {
        let clock = ManualClock::new();
        let (begun, mut retired, mut heir) = (clock.now(), shard_by(&clock), shard_by(&clock));
        let mut left = add_everywhere(&mut retired, |id| id);
        clock.advance(TICK * 100);
        retired.turn_within(budget);
        for expired in std::iter::from_fn(|| retired.next_expired()).take(taken) {
            assert_eq!(left.remove(&expired.payload), Some(expired.deadline() - begun));
        }
        let pending = retired.drain();
        assert_eq!(pending.len(), left.len());
        for (deadline, id) in pending {
            assert_eq!(left.get(&id), Some(&(deadline - begun)), "the deadline of timer {id}");
            heir.add(deadline, id);
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

/// Timers that another core has moved, and the owner has not heard of it when it ends, come back
/// with their new deadlines.
#[test]
fn bug_28_timers_of_a_retired_processor_came_back_with_their_old_deadlines() {
    let clock = ManualClock::new();
    let (begun, mut retired) = (clock.now(), shard_by(&clock));
    let handles: Vec<_> = (0..100).map(|id| retired.add(TICK * (1 + id), id)).collect();
    clock.advance(TICK * 20);
    on_a_thread(|| assert!(handles.iter().step_by(3).all(|handle| handle.reset(HOUR))));
    let pending = retired.drain();
    assert_eq!(pending.len(), 100);
    for (deadline, id) in pending {
        let due = if id % 3 == 0 { TICK * 20 + HOUR } else { TICK * (1 + id) };
        assert_eq!(deadline - begun, due, "timer {id}");
    }
}

/// Ticks to be due in: near, far, further and never.
const DELAYS: [u64; 6] = [1, 2, 77, 150_000, 1 << 30, 1 << 50];

/// How many timers a test adds for each of these.
const COPIES: usize = 300;
const ADDED: usize = DELAYS.len() * COPIES;

/// Adds to the thread's timer: one-shot and periodic, in place and boxed.
fn fill_the_threads_timer(drops: &Counter) {
    for delay in DELAYS.map(|ticks| TICK * u32::try_from(ticks).unwrap_or(u32::MAX)) {
        for copy in 0..COPIES / 4 {
            let (once, large) = (drops.on_drop(), (drops.on_drop(), [copy; 20]));
            let (again, private) = (drops.on_drop(), drops.on_drop());
            let handle = local_timer().add(delay, move || drop(once));
            local_timer().add(delay, move || drop(large));
            local_timer().add_periodic(delay, move || _ = &again);
            local_timer().add_local(delay, move || drop(private));
            assert!(copy % 7 > 0 || cancel_elsewhere(handle) == Cancel::Cancelled);
        }
    }
}

/// glommio #239.
#[test]
fn bug_41_timers_that_had_not_fired_leaked_with_their_executor() {
    let (drops, mut wheel) = (Counter::default(), Wheel::<CountsDrop>::new());
    for delay in DELAYS {
        for copy in 0..COPIES as u64 {
            let key = wheel.insert(delay + copy, drops.on_drop());
            assert!(copy % 3 > 0 || wheel.reset(key, delay * 2));
        }
    }
    drop(wheel.advance(100).next());
    drop(wheel);
    assert_eq!(drops.get(), ADDED, "of a wheel");
    for drains in [false, true] {
        let (drops, clock) = (Counter::default(), ManualClock::new());
        let mut shard = shard_by(&clock);
        let added = 1 + add_everywhere(&mut shard, |_| drops.on_drop()).len();
        assert_eq!(cancel_elsewhere(shard.add(HOUR, drops.on_drop())), Cancel::Cancelled);
        clock.advance(TICK * 100);
        shard.turn();
        drop(shard.next_expired());
        let pending = if drains { shard.drain() } else { Vec::new() };
        assert!(!drains || pending.len() + drops.get() == added);
        drop((pending, shard));
        assert_eq!(drops.get(), added, "of a shard");
    }
}

/// glommio.
#[test]
fn bug_41_timers_that_had_not_fired_leaked_with_their_thread() {
    let drops = Counter::default();
    in_virtual_time(|clock| {
        fill_the_threads_timer(&drops);
        clock.advance(TICK * 5);
        local_timer().turn_within(20);
    });
    assert_eq!(drops.get(), ADDED, "of a thread that ends");

    let (drops, clock) = (Counter::default(), ManualClock::new());
    let held = drops.clone();
    let panicked: thread::JoinHandle<()> = thread::spawn(move || {
        Config::new().clock(&clock).install().expect("a fresh thread");
        fill_the_threads_timer(&held);
        resume_unwind(Box::new("as planned"));
    });
    assert!(panicked.join().is_err());
    assert_eq!(drops.get(), ADDED, "of a thread that panics");

    let (drops, clock) = (Counter::default(), ManualClock::new());
    let (held, config) = (drops.clone(), move |_| Config::new().clock(&clock));
    let cores =
        Cores::builder().shards(2).config(config).start(move |_| fill_the_threads_timer(&held));
    assert!(cores.expect("they start").join().iter().all(Result::is_ok));
    assert_eq!(drops.get(), 2 * ADDED, "of two cores");
}
