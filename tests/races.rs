//! Short races of cancels with fires, resets and drops. No lock or channel of the tests orders the
//! racing accesses. Miri explores schedules and stale values; native runs repeat the races.
#![cfg(feature = "std")]

mod common;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use common::{TICK, in_virtual_time, manual_shard, scaled, seeded, shard_with_clock, turn_after};
use corewheel::{Cancel, TimerHandle, local_timer};
use fastrand::Rng;

const CANCELLERS: usize = 2;
const TIMERS: u32 = 6;

/// The test's observations of one timer. All accesses are relaxed, because the library must
/// order them.
#[derive(Default)]
struct TimerLog {
    /// How often the payload was handed out or the callback ran.
    fired: AtomicU32,
    dropped: AtomicU32,
    /// Each canceller stores 1 here before it cancels.
    work: [AtomicU32; CANCELLERS],
    /// For each canceller, 10 plus the `work` that the payload's destructor has read.
    seen: [AtomicU32; CANCELLERS],
}

struct Payload(Arc<TimerLog>);

impl Payload {
    fn fire(&self) {
        self.0.fired.fetch_add(1, Relaxed);
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        for (work, seen) in self.0.work.iter().zip(&self.0.seen) {
            seen.store(10 + work.load(Relaxed), Relaxed);
        }
        self.0.dropped.fetch_add(1, Relaxed);
    }
}

type SharedTimer = (TimerHandle, Arc<TimerLog>);

fn add_timers(
    random: &mut Rng,
    mut add: impl FnMut(Duration, Payload) -> TimerHandle,
) -> Vec<SharedTimer> {
    let mut add_one = || {
        let log = Arc::new(TimerLog::default());
        (add(TICK * random.u32(1..4), Payload(Arc::clone(&log))), log)
    };
    (0..TIMERS).map(|_| add_one()).collect()
}

/// Cancels every timer. Returns, for each timer, the answer and the number of fires that the
/// canceller sees afterwards.
fn cancel_all(canceller_index: usize, timers: &[SharedTimer]) -> Vec<(Cancel, u32)> {
    let cancel = |(handle, log): &SharedTimer| {
        log.work[canceller_index].store(1, Relaxed);
        let answer = handle.cancel();
        (answer, log.fired.load(Relaxed))
    };
    // The two cancellers start at different timers.
    let (first, second) = timers.split_at(if canceller_index == 0 { 0 } else { timers.len() / 2 });
    let mut answers: Vec<_> = second.iter().chain(first).map(cancel).collect();
    answers.rotate_right(first.len());
    answers
}

/// Asserts that each timer ended once and that every answer was true. If `loop_records_late`, a
/// canceller may get `Ended` before the loop has recorded the fire.
fn assert_each_ended_once(
    loop_records_late: bool,
    timers: &[SharedTimer],
    answers: &[Vec<(Cancel, u32)>],
    handed_back: u32,
) {
    let mut unended = 0;
    for (timer, (_, log)) in timers.iter().enumerate() {
        let fired = log.fired.load(Relaxed);
        let timer_answers: Vec<_> =
            answers.iter().map(|answers_of_canceller| answers_of_canceller[timer]).collect();
        let has_cancelled = |&canceller: &usize| timer_answers[canceller].0 == Cancel::Cancelled;
        let cancelled_by: Vec<usize> = (0..timer_answers.len()).filter(has_cancelled).collect();
        assert_eq!(log.dropped.load(Relaxed), 1);
        match (fired, &cancelled_by[..]) {
            (1, []) => assert!(
                loop_records_late
                    || timer_answers
                        .iter()
                        .all(|&(answer, fired)| answer == Cancel::Running || fired == 1),
                "`Ended`, but the fire is not visible: {timer_answers:?}"
            ),
            (0, &[winner]) => {
                assert_eq!(log.seen[winner].load(Relaxed), 11, "work is visible");
            }
            (0, []) => unended += 1,
            _ => panic!("fired {fired} times and cancelled by {cancelled_by:?}"),
        }
    }
    assert_eq!(unended, handed_back);
}

#[test]
fn a_shards_timers_end_once_while_other_threads_cancel() {
    seeded(0..scaled(300), |random| {
        let (mut shard, clock) = manual_shard();
        let timers = add_timers(random, |delay, payload| shard.add(delay, payload));
        let (turns, next) = (random.u32(..4), Arc::new(TimerLog::default()));
        let (answers, handed_back) = thread::scope(|scope| {
            let timers = &timers;
            let cancellers = [0, 1]
                .map(|canceller_index| scope.spawn(move || cancel_all(canceller_index, timers)));
            for _ in 0..turns {
                clock.advance(TICK);
                shard.turn();
                while let Some(expired) = shard.next_expired() {
                    expired.payload.fire();
                }
            }
            let counts = shard.counts();
            assert_eq!(counts.added, u64::from(TIMERS));
            assert_eq!(counts.added, counts.live + counts.fired + counts.cancelled);
            // The new timer may reuse a node, whose old handles must not reach the timer.
            let last = shard.add(TICK, Payload(Arc::clone(&next)));
            assert!(last.is_pending());
            let handed_back = shard.drain();
            assert_eq!(last.cancel(), Cancel::Ended);
            (cancellers.map(|canceller| canceller.join().expect("no panic")), handed_back.len())
        });
        assert_eq!((next.fired.load(Relaxed), next.dropped.load(Relaxed)), (0, 1));
        assert_each_ended_once(
            true,
            &timers,
            &answers,
            u32::try_from(handed_back).expect("few") - 1,
        );
    });
}

#[test]
fn a_threads_timers_end_once_while_other_threads_cancel() {
    seeded(0..scaled(300), |random| {
        let mut random = random.fork();
        let (timers, cancellers) = in_virtual_time(move |clock| {
            let add = |delay, payload: Payload| local_timer().add(delay, move || payload.fire());
            let timers = Arc::new(add_timers(&mut random, add));
            let cancellers = [0, 1].map(|canceller_index| {
                let timers = Arc::clone(&timers);
                thread::spawn(move || cancel_all(canceller_index, &timers))
            });
            for _ in 0..random.u32(..4) {
                clock.advance(TICK);
                local_timer().turn();
            }
            (timers, cancellers)
        });
        let answers = cancellers.map(|canceller| canceller.join().expect("no panic"));
        // The wheel's thread has exited, which dropped the timers that were still pending.
        let pending = timers.iter().enumerate().filter(|&(timer, (_, log))| {
            let won = answers
                .iter()
                .any(|answers_of_canceller| answers_of_canceller[timer].0 == Cancel::Cancelled);
            !won && log.fired.load(Relaxed) == 0
        });
        assert_each_ended_once(
            false,
            &timers,
            &answers,
            u32::try_from(pending.count()).expect("few"),
        );
    });
}

#[test]
fn remote_timers_end_once_during_remote_resets_and_cancels() {
    // In native runs, the adders seldom overlap unless they add many timers.
    let timers = if cfg!(miri) { TIMERS } else { 100 * TIMERS };
    seeded(0..scaled(100), |random| {
        let seed = random.u64(..);
        in_virtual_time(|clock| {
            let core = local_timer().shard_ref();
            let adders = [0, 1].map(|canceller_index| {
                let (core, mut random) = (core.clone(), Rng::with_seed(seed + canceller_index));
                thread::spawn(move || {
                    let mut cancelled = 0;
                    for _ in 0..timers {
                        let log = Arc::new(TimerLog::default());
                        let payload = Payload(Arc::clone(&log));
                        log.work[0].store(1, Relaxed);
                        let handle = core.add(TICK * random.u32(..3), move || payload.fire());
                        let was_reset = random.bool() && handle.reset(TICK * random.u32(..3));
                        let answer = if random.bool() { handle.cancel() } else { Cancel::Running };
                        let fired = log.fired.load(Relaxed);
                        assert!(answer != Cancel::Ended || fired == 1, "moved: {was_reset}");
                        cancelled += u64::from(answer == Cancel::Cancelled);
                    }
                    cancelled
                })
            });
            for _ in 0..random.u32(..6) * timers / TIMERS {
                turn_after(clock, 1);
            }
            let cancelled: u64 = adders.map(|adder| adder.join().expect("no panic")).iter().sum();
            let mut turns = 0;
            while !local_timer().is_empty() || local_timer().counts().queued > 0 {
                turn_after(clock, 1);
                turns += 1;
                assert!(turns < 10_000, "timers are lost: {:?}", local_timer().counts());
            }
            let counts = local_timer().counts();
            assert_eq!((counts.added, counts.cancelled), (2 * u64::from(timers), cancelled));
            assert_eq!(counts.fired, counts.added - cancelled);
        });
    });
}

/// The new shard may reuse the number of the old one.
#[test]
fn old_handles_never_reach_the_timers_of_a_successor_shard() {
    seeded(0..scaled(100), |_| {
        let (mut old_shard, clock) = manual_shard();
        let handles = [(); 3].map(|()| old_shard.add(TICK, 1));
        thread::scope(|scope| {
            let canceller = scope.spawn(move || handles.map(|it| (it.is_pending(), it.cancel())));
            let handed_back = old_shard.drain().len();
            drop(old_shard);
            let mut new_shard = shard_with_clock(&clock);
            let new_timers = [(); 3].map(|()| new_shard.add(TICK, 2));
            let answers = canceller.join().expect("no panic");
            let cancelled = answers.iter().filter(|(_, it)| *it == Cancel::Cancelled).count();
            assert_eq!(cancelled + handed_back, handles.len(), "{answers:?}");
            assert!(new_timers.into_iter().all(TimerHandle::is_pending));
        });
    });
}
