//! Virtual time for async tests: the clock goes on when all tasks are idle, and a seed decides who goes first.

use std::{
    cell::{Cell, RefCell},
    future,
    rc::Rc,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use corewheel::{
    Cancel, Completion, Config, DelayedOperation, ManualClock, PurgatoryGroup, Shard,
    future::{MissedTickBehavior, Timers, VirtualTime, interval, sleep, timeout},
    local_timer,
};

const SECOND: Duration = Duration::from_secs(1);

/// What a client does when its server does not answer: it waits twice as long each time, at most ten minutes.
async fn fetch(mut attempt: impl AsyncFnMut() -> Option<&'static str>) -> (u32, &'static str) {
    let (mut attempts, mut pause) = (0, SECOND);
    loop {
        attempts += 1;
        if let Ok(Some(answer)) = timeout(SECOND * 5, attempt()).await {
            return (attempts, answer);
        }
        sleep(pause).await;
        pause = (pause * 2).min(SECOND * 600);
    }
}

#[test]
fn a_retry_with_an_hour_of_back_off_takes_milliseconds() {
    let begun = Instant::now();
    let time = VirtualTime::new();
    let answer = time.block_on(|| async {
        let start = local_timer().now();
        fetch(async || {
            let is_up = local_timer().now() - start >= SECOND * 3600;
            // A server that is down does not answer at all.
            if is_up { Some("hello") } else { future::pending().await }
        })
        .await
    });
    assert_eq!(answer, (16, "hello"));
    assert_eq!(time.elapsed(), SECOND * (1023 + 5 * 10 + 5 * (600 + 5)));
    assert!(cfg!(miri) || begun.elapsed() < SECOND * 10, "{:?}", begun.elapsed());
}

/// A deadline at the end of time does not come, as on any other clock: who waits for nothing else is left.
#[test]
fn a_task_that_sleeps_for_ever_is_left() {
    let time = VirtualTime::new();
    time.spawn(|| sleep(Duration::MAX));
    time.spawn(|| sleep(SECOND));
    assert_eq!(time.run(), 1);
    time.advance(Duration::MAX);
    assert_eq!(time.run(), 1);
}

#[test]
#[should_panic(expected = "wait for ever")]
fn what_sleeps_for_ever_is_no_result() {
    VirtualTime::new().block_on(|| sleep(Duration::MAX));
}

/// Completes when its flag is set, and says so.
struct UntilSet {
    is_set: Arc<AtomicBool>,
    completed: Arc<AtomicBool>,
}

impl DelayedOperation for UntilSet {
    fn try_complete(&mut self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    fn on_complete(self, how: Completion) {
        self.completed.store(how == Completion::Condition, Ordering::Release);
    }
}

/// What a purgatory has to say to another core is said at this moment, whichever core goes first.
#[test]
fn an_event_of_a_purgatory_reaches_the_other_core_before_time_passes() {
    for seed in 0..50 {
        let time = VirtualTime::with_cores(2, seed);
        let group = PurgatoryGroup::by(|&key: &usize| key);
        let [is_set, completed] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        for core in 0..2 {
            let (group, shards) = (group.clone(), time.shards().to_vec());
            let (wait, set) = (
                UntilSet { is_set: Arc::clone(&is_set), completed: Arc::clone(&completed) },
                Arc::clone(&is_set),
            );
            let _task = time.spawn_on(core, move || {
                let purgatory = group.join(core, &shards);
                async move {
                    if core == 1 {
                        let _ = purgatory
                            .try_complete_else_watch(wait, [1], SECOND * 100)
                            .expect("there is room");
                    } else {
                        sleep(SECOND).await;
                        set.store(true, Ordering::Release);
                        purgatory.notify(&1);
                    }
                    sleep(SECOND * 200).await;
                }
            });
        }
        time.settle();
        time.clock().advance(SECOND);
        time.settle();
        assert!(completed.load(Ordering::Acquire), "seed {seed}");
    }
}

/// Says when it is dropped.
struct Noter {
    clock: ManualClock,
    dropped_at: Arc<Mutex<Option<Duration>>>,
}

impl Drop for Noter {
    fn drop(&mut self) {
        *self.dropped_at.lock().unwrap() = Some(self.clock.elapsed());
    }
}

/// What a callback cancels on another core is dropped there at this moment, whichever core goes first.
#[test]
fn what_is_cancelled_on_another_core_is_dropped_before_time_passes() {
    for seed in 0..20 {
        let time = VirtualTime::with_cores(2, seed);
        let dropped_at = Arc::default();
        let noter = Noter { clock: time.clock().clone(), dropped_at: Arc::clone(&dropped_at) };
        let cancelled = time.shards()[1].add(SECOND * 100, move || drop(noter));
        time.shards()[0].add(SECOND, move || assert_eq!(cancelled.cancel(), Cancel::Cancelled));
        time.advance(SECOND * 50);
        assert_eq!(*dropped_at.lock().unwrap(), Some(SECOND), "seed {seed}");
    }
}

/// Timers that no task waits for are no reason to go on.
#[test]
fn time_stops_when_the_last_task_has_finished() {
    let time = VirtualTime::new();
    let task = time.spawn(|| async {
        local_timer().add(SECOND * 100, || ());
        sleep(SECOND).await;
    });
    assert_eq!((time.run(), task.is_finished(), time.elapsed()), (0, true, SECOND));
}

#[test]
fn time_passes_only_when_all_are_idle() {
    let time = VirtualTime::with_cores(2, 1);
    let at = |core, delays: [u64; 2]| {
        let clock = time.clock().clone();
        time.spawn_on(core, move || async move {
            let mut moments = Vec::new();
            for delay in delays {
                sleep(SECOND * u32::try_from(delay).expect("small")).await;
                moments.push(clock.elapsed().as_secs());
            }
            moments
        })
    };
    let (one, other) = (at(0, [3, 4]), at(1, [5, 1]));
    assert_eq!(time.tasks(), 2);
    time.settle();
    assert_eq!(time.elapsed(), Duration::ZERO);
    time.advance(SECOND * 4);
    assert_eq!((time.elapsed(), one.is_finished()), (SECOND * 4, false));
    assert_eq!(time.run(), 0);
    assert_eq!((one.take(), other.take()), (Some(vec![3, 7]), Some(vec![5, 6])));
    assert_eq!((one.take(), time.elapsed()), (None, SECOND * 7));
}

#[test]
fn time_moved_by_hand_passes_each_deadline_on_its_way() {
    let time = VirtualTime::new();
    let clock = time.clock().clone();
    let moments = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&moments);
    let _ticks = time.spawn(move || async move {
        let mut interval = interval(SECOND * 10);
        interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            interval.tick().await;
            seen.lock().unwrap().push(clock.elapsed().as_secs());
        }
    });
    time.advance(SECOND * 35);
    assert_eq!(*moments.lock().unwrap(), [0, 10, 20, 30]);
    assert_eq!((time.elapsed(), time.tasks()), (SECOND * 35, 1));
}

#[test]
fn tasks_spawn_others_and_wait_for_them() {
    let time = VirtualTime::new();
    let sum = time.block_on(|| async {
        // Not `Send`, and shared by tasks of one core.
        let sum = Rc::new(Cell::new(0));
        let tasks = [3, 1, 2].map(|number| {
            let sum = Rc::clone(&sum);
            VirtualTime::spawn_local(async move {
                sleep(SECOND * number).await;
                sum.set(sum.get() * 10 + number);
                Rc::clone(&sum)
            })
        });
        for task in tasks {
            task.await;
        }
        sum.get()
    });
    assert_eq!((sum, time.elapsed(), time.tasks()), (123, SECOND * 3, 0));
}

#[test]
fn tasks_that_wait_for_what_cannot_come_are_counted() {
    let time = VirtualTime::new();
    let [never, ends] = [true, false].map(|never| {
        time.spawn(move || async move {
            sleep(SECOND).await;
            if never {
                future::pending::<()>().await;
            }
        })
    });
    assert_eq!(time.run(), 1);
    assert!(!never.is_finished() && ends.is_finished());
    assert_eq!(time.elapsed(), SECOND);
}

#[test]
#[should_panic(expected = "it would wait for ever")]
fn what_would_wait_for_ever_panics() {
    VirtualTime::new().block_on(future::pending::<()>);
}

#[test]
#[should_panic(expected = "as planned")]
fn a_panic_in_a_task_goes_to_who_runs_it() {
    VirtualTime::new().block_on(|| async {
        sleep(SECOND).await;
        panic!("as planned");
    });
}

#[test]
fn after_a_panic_the_others_go_on() {
    let time = VirtualTime::new();
    let _panics = time.spawn(|| async {
        sleep(SECOND).await;
        panic!("as planned");
    });
    let other = time.spawn(|| sleep(SECOND * 2));
    let run = std::panic::AssertUnwindSafe(|| time.run());
    assert!(std::panic::catch_unwind(run).is_err());
    assert_eq!((time.tasks(), time.run()), (1, 0));
    assert!(other.is_finished());
}

#[test]
#[should_panic(expected = "not in a task of a `VirtualTime`")]
fn a_task_of_a_core_is_spawned_by_another() {
    drop(VirtualTime::spawn_local(async {}));
}

/// Tasks that are left are dropped where they ran, while that thread still has its timer.
#[test]
fn tasks_that_are_left_are_dropped_on_their_core() {
    struct AtTheEnd(Arc<Mutex<Vec<usize>>>);
    impl Drop for AtTheEnd {
        fn drop(&mut self) {
            self.0.lock().unwrap().push(local_timer().len());
        }
    }
    let seen = Arc::new(Mutex::new(Vec::new()));
    let time = VirtualTime::new();
    let inside = Arc::clone(&seen);
    let _left = time.spawn(move || async move {
        let _end = AtTheEnd(inside);
        let mut waits = sleep(SECOND);
        let twice = async { future::poll_fn(|cx| waits.poll_elapsed(cx)).await };
        let _ = timeout(SECOND, twice).await;
    });
    time.settle();
    drop(time);
    assert_eq!(
        *seen.lock().unwrap(),
        [0],
        "the future's own timers go before what was there before them"
    );
}

/// What happens, in the order in which it does: three cores with three tasks each, which all act at the same moments, on each
/// other's timers.
fn trace(seed: u64) -> Vec<(usize, usize, u32)> {
    let time = VirtualTime::with_cores(3, seed);
    let timers = Timers::new(time.shards());
    let trace = Arc::new(Mutex::new(Vec::new()));
    for core in 0..3 {
        for task in 0..3 {
            let (trace, timers, next) =
                (Arc::clone(&trace), timers.clone(), time.shards()[(core + 1) % 3].clone());
            let _task = time.spawn_on(core, move || async move {
                for round in 0..3 {
                    sleep(SECOND).await;
                    let other = next.add(SECOND / 2, || ());
                    timers.sleep(SECOND).await;
                    assert_eq!(other.cancel(), Cancel::Ended);
                    trace.lock().unwrap().push((core, task, round));
                }
            });
        }
    }
    assert_eq!(time.run(), 0);
    assert_eq!(time.elapsed(), SECOND * 6);
    Arc::try_unwrap(trace).expect("the tasks have ended").into_inner().unwrap()
}

#[test]
fn a_seed_decides_the_order_and_nothing_else_does() {
    let seeds = if cfg!(miri) { 2 } else { 20 };
    let traces: Vec<_> = (0..seeds).map(trace).collect();
    assert_eq!(traces, (0..seeds).map(trace).collect::<Vec<_>>(), "twice the same");
    let mut orders = traces.clone();
    orders.sort_unstable();
    orders.dedup();
    assert_eq!(orders.len(), traces.len(), "another seed, another order");
    for mut trace in traces {
        assert!(trace.is_sorted_by_key(|&(_, _, round)| round), "rounds are at different moments");
        trace.sort_unstable();
        trace.dedup();
        assert_eq!(trace.len(), 27);
    }
}

/// Nor does what the process has done before: it gives shards and threads other numbers.
#[test]
fn a_run_does_not_depend_on_those_before() {
    let run = || {
        let time = VirtualTime::with_cores(3, 7);
        let timers = Timers::new(&time.shards()[..2]);
        let trace = Arc::new(Mutex::new(Vec::new()));
        for task in 0..6 {
            let (timers, trace, start) = (timers.clone(), Arc::clone(&trace), time.clock().now());
            time.spawn_on(2, move || async move {
                for _ in 0..5 {
                    timers.sleep(SECOND).await;
                    trace.lock().expect("sound").push((task, local_timer().now() - start));
                    let spread = Arc::clone(&trace);
                    let note = move || {
                        spread.lock().expect("sound").push((task + 10, local_timer().now() - start))
                    };
                    local_timer().add_spread(Duration::ZERO, SECOND, note);
                }
                sleep(SECOND).await;
            });
        }
        assert_eq!(time.run(), 0);
        let trace = trace.lock().expect("sound");
        assert_eq!(trace.len(), 60);
        trace.clone()
    };
    let first = run();
    for _ in 0..8 {
        // A thread more that has asked for a number, and a shard that is kept.
        let _shard = Shard::<()>::with_config(Config::new()).expect("valid");
        assert_eq!(run(), first);
    }
}

/// A race that a test would meet once in a while: a seed that shows it shows it every time.
#[test]
fn a_race_between_tasks_is_found_by_some_seed_and_then_by_it_always() {
    let last_writer = |seed| {
        VirtualTime::with_cores(1, seed).block_on(|| async {
            let last = Rc::new(RefCell::new(""));
            let tasks = ["one", "other"].map(|name| {
                let last = Rc::clone(&last);
                VirtualTime::spawn_local(async move {
                    sleep(SECOND).await;
                    *last.borrow_mut() = name;
                })
            });
            for task in tasks {
                task.await;
            }
            *last.borrow()
        })
    };
    let winners: Vec<_> = (0..16).map(last_writer).collect();
    assert!(winners.contains(&"one") && winners.contains(&"other"));
    assert_eq!(winners, (0..16).map(last_writer).collect::<Vec<_>>());
}
