//! Real clocks, compared with `Instant`.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use corewheel::{Clock, Config, Shard, When, local_timer};

use crate::support::{HOUR, on_a_thread, scaled, turn_and_expire};

/// Uses the shortest tick, so that rounding hides no error.
fn shard(clock: Clock) -> Shard<Instant> {
    Shard::with_config(Config::new().tick(Duration::from_micros(1)).clock(clock)).expect("valid")
}

#[test]
fn no_timer_fires_early_on_any_real_clock() {
    let clocks = [Clock::monotonic(), Clock::fast(), Clock::boot_time()];
    let test = |clock| assert_none_is_early(shard(clock), false);
    thread::scope(|scope| clocks.map(|clock| _ = scope.spawn(move || test(clock))));
}

/// A reading of the fast clock is an uncertainty interval, which may reach into the future.
#[test]
fn no_timer_fires_before_its_instant_on_any_real_clock() {
    for clock in [Clock::monotonic(), Clock::fast()] {
        assert_none_is_early(Shard::with_config(Config::new().clock(clock)).expect("valid"), true);
    }
}

/// Adds timers with delays below 12 us or 300 us. Each payload is the earliest time at which its
/// timer may fire.
fn assert_none_is_early(mut shard: Shard<Instant>, adds_by_instant: bool) {
    let (mut random, mut added, mut fired) = (fastrand::Rng::with_seed(5), 0, 0);
    while fired < scaled(200_000) {
        let longest = if random.bool() { 12_000 } else { 300_000 };
        for _ in 0..random.u64(..4) {
            let delay = Duration::from_nanos(random.u64(..longest));
            let due = Instant::now() + delay;
            let when: When = if adds_by_instant { due.into() } else { delay.into() };
            shard.add(when, due);
            added += 1;
        }
        shard.turn();
        while let Some(expired) = shard.next_expired() {
            let now = Instant::now();
            assert!(expired.payload <= now, "early by {:?}", expired.payload - now);
            fired += 1;
        }
        if random.u32(..500) == 0 {
            thread::sleep(Duration::from_micros(random.u64(..2_000)));
        }
    }
    assert_eq!((shard.counts().added, shard.counts().clock_regressions), (added, 0));
}

/// Sleeps for over a second, because system clocks report seconds and nanoseconds separately.
#[test]
fn all_clocks_have_the_same_rate() {
    let clocks = [Clock::monotonic(), Clock::fast(), Clock::boot_time()];
    let shards = clocks.map(shard);
    // A reading lies between two instants, so a pause of this thread only widens the interval.
    let read = |shard: &Shard<_>| [Instant::now(), shard.now(), Instant::now()];
    let first = shards.each_ref().map(read);
    thread::sleep(Duration::from_millis(1_100));
    for (shard, [before, earlier, after]) in shards.iter().zip(first) {
        let [later_before, later, later_after] = read(shard);
        let (shown_time, tolerance) = (later - earlier, Duration::from_millis(20));
        let (min, max) = (later_before - after, later_after - before);
        let has_same_rate = min <= shown_time + tolerance && shown_time <= max + tolerance;
        assert!(has_same_rate, "{shown_time:?} in {min:?} to {max:?}");
    }
}

#[test]
fn a_turn_after_time_until_next_fires_the_timer() {
    let mut shard = shard(Clock::fast());
    for _ in 0..20 {
        shard.add(Duration::from_millis(2), Instant::now());
        thread::sleep(shard.time_until_next().expect("a timer is pending"));
        assert_eq!(turn_and_expire(&mut shard).len(), 1);
    }
}

#[test]
fn fast_clock_instants_agree_with_the_monotonic_clock() {
    let (clock, before) = (Clock::fast(), Instant::now());
    let mut shard = shard(clock.clone());
    let now = clock.now();
    assert!(before <= now && now <= Instant::now());
    shard.add(now + Duration::from_millis(1), now);
    let deadline = shard.next_deadline().expect("a timer is pending");
    let late = deadline.duration_since(now + Duration::from_millis(1));
    assert!(late <= Duration::from_micros(1), "{late:?} is more than a tick");
}

/// The uncertainty interval of a reading of the fast clock may contain the beginning of a tick.
#[test]
fn a_timer_without_delay_fires_in_the_next_turn_on_any_real_clock() {
    for clock in [Clock::monotonic(), Clock::fast(), Clock::boot_time()] {
        let config = Config::new().tick(Duration::from_micros(20)).clock(clock);
        let mut shard = Shard::with_config(config).expect("valid");
        for round in 0..scaled(100_000) {
            match round % 2 {
                0 => shard.add(Duration::ZERO, round),
                _ => shard.add(shard.now(), round),
            };
            assert_eq!(turn_and_expire(&mut shard).len(), 1, "{round}");
        }
    }
}

/// The owner's reading of the fast clock may begin in an earlier tick than the adder's.
#[test]
fn a_remote_timer_without_a_delay_fires_in_the_next_turn() {
    on_a_thread(|| {
        let config = Config::new().clock(Clock::fast()).tick(Duration::from_micros(20));
        config.install().expect("a new thread");
        local_timer().turn();
        let shard = local_timer().shard_ref();
        let [to_adder, to_owner] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
        let (begun, added) = (Arc::clone(&to_adder), Arc::clone(&to_owner));
        let rounds = scaled(3_000);
        let adder = thread::spawn(move || {
            for round in 1..=rounds {
                spin_until(&begun, round);
                let timer = shard.add(if round % 2 == 0 { Duration::ZERO } else { HOUR }, || ());
                assert!(round % 2 == 0 || timer.reset(Duration::ZERO));
                added.store(round, Ordering::Release);
            }
        });
        let mut late = 0;
        for round in 1..=rounds {
            to_adder.store(round, Ordering::Release);
            spin_until(&to_owner, round);
            let fired = local_timer().turn().fired;
            late += u32::from(fired == 0);
            while fired == 0 && local_timer().turn().fired == 0 {}
        }
        adder.join().expect("no panic");
        assert_eq!(late, 0, "of {rounds} timers");
    });
}

fn spin_until(value: &AtomicU64, expected: u64) {
    while value.load(Ordering::Acquire) != expected {
        thread::yield_now();
    }
}

#[test]
fn a_clock_of_a_function_shows_its_time() {
    on_a_thread(|| {
        let millis = Arc::new(AtomicU64::new(0));
        let (shown_time, origin) = (Arc::clone(&millis), Instant::now());
        let clock = Clock::from_fn(origin, move || {
            Duration::from_millis(shown_time.load(Ordering::Relaxed))
        });
        Config::new().clock(clock).install().expect("a new thread");
        let shard = local_timer().shard_ref();
        local_timer().add(Duration::from_millis(10), || ());
        let remote = shard.clone();
        thread::spawn(move || remote.add(Duration::from_millis(20), || ()))
            .join()
            .expect("no panic");
        for (now, fired) in [(9, 0), (10, 1), (19, 0), (20, 1)] {
            millis.store(now, Ordering::Relaxed);
            assert_eq!(local_timer().turn().fired, fired, "at {now} ms");
            assert_eq!(local_timer().now(), origin + Duration::from_millis(now));
        }
        // The engine uses the greatest reading.
        millis.store(5, Ordering::Relaxed);
        local_timer().add(Duration::from_millis(1), || ());
        assert_eq!(local_timer().next_deadline(), Some(origin + Duration::from_millis(21)));
        assert!(local_timer().counts().clock_regressions > 0);
        // Adds of other threads also use the greatest reading.
        thread::spawn(move || shard.add(Duration::from_millis(1), || ())).join().expect("no panic");
        assert_eq!(local_timer().turn().fired, 0);
        millis.store(21, Ordering::Relaxed);
        assert_eq!(local_timer().turn().fired, 2);
    });
}
