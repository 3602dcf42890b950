//! Operations of `local_timer`: callbacks, remote requests, purgatories and async sleeps.
//!
//! Remote operations run in batches on a second thread. Each of the two threads blocks while it
//! waits for the other. The number of batches does not depend on the number of iterations, so the
//! difference of two runs excludes the hand-overs.

use std::{
    cell::Cell,
    hint::black_box,
    pin::pin,
    rc::Rc,
    sync::{
        Mutex,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    task::{Context, Waker},
    thread::{self, Thread},
    time::Duration,
};

use corewheel::{
    Cancel, Config, ManualClock, ShardRef, TimerHandle, future, local_timer,
    purgatory::{Completion, DelayedOperation, PurgatoryGroup, WatchOutcome, local_purgatory},
};

use crate::{
    one_thread::{Draws, TICKS_BETWEEN_TIMERS, WARM_UP},
    timers::{Payload, payload},
};

/// Batches of a remote operation. The number of iterations is a multiple of this number.
const BATCHES: usize = 64;
/// The number of warm-up batches.
const WARM_UP_BATCHES: usize = 16;
/// The number of operations in a warm-up batch.
const WARM_UP_SIZE: usize = 128;

fn install_wheel() -> ManualClock {
    let clock = ManualClock::new();
    Config::new().clock(&clock).install().expect("the first timer of this thread");
    local_timer().register_driver();
    clock
}

fn callback(id: usize) -> impl FnOnce() + Send + 'static {
    let captured = payload(id);
    move || _ = black_box(captured)
}

fn delay(draws: &mut Draws) -> Duration {
    Duration::from_millis(draws.delay())
}

fn add_live_timers(live: usize, draws: &mut Draws) -> Vec<TimerHandle> {
    (0..live).map(|id| local_timer().add(delay(draws), callback(id))).collect()
}

/// Runs a server's loop: adds and cancels the timeout of a request, turns, and announces a sleep.
/// The other timers are idle timeouts, due after the run.
pub(crate) fn poll_loop(live: usize, iterations: usize) {
    let (clock, mut draws) = (install_wheel(), Draws::new(live));
    for id in 0..live {
        local_timer().add(Duration::from_secs(30) + delay(&mut draws), callback(id));
    }
    for id in 0..WARM_UP + iterations {
        let request = local_timer().add(Duration::from_secs(5), callback(id));
        assert_eq!(request.cancel(), Cancel::Cancelled);
        clock.advance(Duration::from_millis(1));
        local_timer().turn();
        black_box(local_timer().sleep_with(|timeout| timeout));
    }
}

/// Cancels a random timer and adds another one. All callbacks share an `Rc`.
pub(crate) fn cancel_add_rc(live: usize, iterations: usize) {
    let (_clock, mut draws, fired) = (install_wheel(), Draws::new(live), Rc::new(Cell::new(0)));
    let add = |draws: &mut Draws, id: usize| {
        let (fired, captured) = (Rc::clone(&fired), [id; 2]);
        local_timer().add(delay(draws), move || fired.set(captured[0]))
    };
    let mut handles: Vec<TimerHandle> = (0..live).map(|id| add(&mut draws, id)).collect();
    for _ in 0..WARM_UP + iterations {
        let id = draws.index();
        assert_eq!(handles[id].cancel(), Cancel::Cancelled);
        handles[id] = add(&mut draws, id);
    }
}

/// Advances to the next deadline, where a callback adds itself again, due after all other timers.
pub(crate) fn fire_add(live: usize, iterations: usize) {
    /// Adds this callback again. `captured[1]` is the delay in milliseconds.
    fn fire(captured: Payload) {
        local_timer().add(Duration::from_millis(captured[1]), move || fire(captured));
    }
    let (clock, round) = (install_wheel(), TICKS_BETWEEN_TIMERS * live as u64);
    for id in 1..=live as u64 {
        local_timer()
            .add(Duration::from_millis(TICKS_BETWEEN_TIMERS * id), move || fire([id, round, 0]));
    }
    for turn in 1..=(WARM_UP + iterations) as u64 {
        clock.set(Duration::from_millis(TICKS_BETWEEN_TIMERS * turn));
        assert_eq!(local_timer().turn().fired, 1);
    }
}

/// The owner's part runs after the owner has turned its wheel.
struct RemoteOperation {
    /// True if the other thread gets the handles of live timers.
    takes_handles: bool,
    /// Runs on the other thread: uses the given handles, or returns new ones in their place. The
    /// last argument is the size of the batch.
    other: fn(&ShardRef, &mut Draws, &mut Vec<TimerHandle>, usize),
    /// Runs on the owner: gets its handles, the positions of those that the other thread got, and
    /// the returned handles.
    owner: fn(&mut [TimerHandle], &[usize], &mut Draws, &mut Vec<TimerHandle>),
}

impl RemoteOperation {
    fn run(self, live: usize, iterations: usize) {
        let (clock, mut draws) = (install_wheel(), Draws::new(live));
        let mut handles = add_live_timers(live, &mut draws);
        let order = draws.order();
        let batches = batches(&order, iterations);
        let shard = local_timer().shard_ref();
        let (baton, batch) = (Baton::default(), Mutex::new(Vec::with_capacity(live)));
        let batch = || batch.lock().expect("no holder panics");
        let owner = thread::current();
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                let mut draws = Draws::new(live);
                for chosen in &batches {
                    baton.wait(true);
                    (self.other)(&shard, &mut draws, &mut batch(), chosen.len());
                    baton.pass(false, &owner);
                }
            });
            for chosen in &batches {
                if self.takes_handles {
                    // A local slice, so that the loop does not load its pointer and length again.
                    let handles = &handles[..];
                    batch().extend(chosen.iter().map(|&id| handles[id]));
                }
                baton.pass(true, other.thread());
                baton.wait(false);
                clock.advance(Duration::from_millis(1));
                local_timer().turn();
                (self.owner)(&mut handles, chosen, &mut draws, &mut batch());
                batch().clear();
            }
            other.join().expect("a panic aborts");
        });
    }
}

/// True if it is the other thread's turn to run. The waiting thread parks: a barrier or channel
/// would first spin, which would vary the count of instructions.
#[derive(Default)]
struct Baton(AtomicBool);

impl Baton {
    fn pass(&self, is_other_threads_turn: bool, next: &Thread) {
        self.0.store(is_other_threads_turn, Release);
        next.unpark();
    }

    fn wait(&self, is_other_threads_turn: bool) {
        while self.0.load(Acquire) != is_other_threads_turn {
            thread::park();
        }
    }
}

/// Divides the iterations, and the warm-up before them, into batches of positions in `order`.
fn batches(order: &[usize], iterations: usize) -> Vec<&[usize]> {
    let sizes = [(WARM_UP_BATCHES, WARM_UP_SIZE), (BATCHES, iterations / BATCHES)];
    let mut start = 0;
    let batch = |size| {
        start = if start + size > order.len() { 0 } else { start };
        start += size;
        &order[start - size..start]
    };
    sizes.into_iter().flat_map(|(batches, size)| [size].repeat(batches)).map(batch).collect()
}

/// Another thread cancels a timer; the owner turns and adds another one.
pub(crate) fn remote_cancel(live: usize, iterations: usize) {
    let remote = RemoteOperation {
        takes_handles: true,
        other: |_, _, batch, _| {
            for handle in batch {
                assert_eq!(handle.cancel(), Cancel::Cancelled);
            }
        },
        owner: |handles, chosen, draws, _| {
            for &id in chosen {
                handles[id] = local_timer().add(delay(draws), callback(id));
            }
        },
    };
    remote.run(live, iterations);
}

/// Another thread moves a timer, about as often to an earlier as to a later deadline; the owner
/// turns. If `TO_LATER`, each deadline is a minute from now, as for an idle connection.
pub(crate) fn remote_reset<const TO_LATER: bool>(live: usize, iterations: usize) {
    let remote = RemoteOperation {
        takes_handles: true,
        other: |_, draws, batch, _| {
            for handle in batch {
                let delay = if TO_LATER { Duration::from_secs(60) } else { delay(draws) };
                assert!(handle.reset(delay));
            }
        },
        owner: |_, _, _, _| {},
    };
    remote.run(live, iterations);
}

/// Another thread adds a timer; the owner turns and cancels it.
pub(crate) fn remote_add(live: usize, iterations: usize) {
    let remote = RemoteOperation {
        takes_handles: false,
        other: |shard, draws, batch, size| {
            batch.extend((0..size).map(|id| shard.add(delay(draws), callback(id))));
        },
        owner: |_, _, _, batch| {
            for handle in batch {
                assert_eq!(handle.cancel(), Cancel::Cancelled);
            }
        },
    };
    remote.run(live, iterations);
}

/// Another thread sends a closure; the owner runs it in its turn.
pub(crate) fn remote_run(live: usize, iterations: usize) {
    let remote = RemoteOperation {
        takes_handles: false,
        other: |shard, _, _, size| {
            for id in 0..size {
                shard.run(callback(id));
            }
        },
        owner: |_, _, _, _| {},
    };
    remote.run(live, iterations);
}

/// Meets the condition of a random operation, completes it, and adds another one on its key.
pub(crate) fn purgatory(live: usize, iterations: usize) {
    struct Fetch {
        counts: &'static [Cell<u64>],
        partition: usize,
        required_count: u64,
    }
    impl DelayedOperation for Fetch {
        fn try_complete(&mut self) -> bool {
            self.counts[self.partition].get() >= self.required_count
        }
        fn on_complete(self, how: Completion) {
            black_box((self.partition, how));
        }
    }
    let (_clock, mut draws) = (install_wheel(), Draws::new(live));
    let counts: &'static [Cell<u64>] = vec![Cell::new(0); live].leak();
    let watch = |draws: &mut Draws, partition: usize| {
        let fetch = Fetch { counts, partition, required_count: counts[partition].get() + 1 };
        let purgatory = local_purgatory::<usize, Fetch>();
        let outcome = purgatory.try_complete_else_watch(fetch, [partition], delay(draws));
        assert!(matches!(outcome, Ok(WatchOutcome::Waits(_))));
    };
    (0..live).for_each(|partition| watch(&mut draws, partition));
    let purgatory = local_purgatory::<usize, Fetch>();
    for _ in 0..WARM_UP + iterations {
        let partition = draws.index();
        counts[partition].update(|count| count + 1);
        assert_eq!(purgatory.check_and_complete(&partition), 1);
        watch(&mut draws, partition);
    }
}

/// Another core meets the conditions of operations, and sends the events in batches.
pub(crate) fn purgatory_remote(live: usize, iterations: usize) {
    struct WaitForCount {
        counts: &'static AtomicU64,
        required_count: u64,
    }
    impl DelayedOperation for WaitForCount {
        fn try_complete(&mut self) -> bool {
            self.counts.load(Relaxed) >= self.required_count
        }
        fn on_complete(self, how: Completion) {
            black_box((self.required_count, how));
        }
    }
    let (_clock, mut draws) = (install_wheel(), Draws::new(live));
    let counts: &'static [AtomicU64] = Box::leak((0..live).map(|_| AtomicU64::new(0)).collect());
    let order = draws.order();
    let group = PurgatoryGroup::<usize>::partitioned_by(|_| 0);
    let batches = batches(&order, iterations);
    let (baton, owner) = (Baton(AtomicBool::new(true)), thread::current());
    let shards = Mutex::new(vec![local_timer().shard_ref()]);
    let join = |core| group.join::<WaitForCount>(core, &shards.lock().expect("no holder panics"));
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let _clock = install_wheel();
            shards.lock().expect("no holder panics").push(local_timer().shard_ref());
            let purgatory = join(1);
            baton.pass(false, &owner);
            for keys in &batches {
                baton.wait(true);
                for &key in *keys {
                    counts[key].fetch_add(1, Relaxed);
                    purgatory.notify(&key);
                }
                local_timer().turn();
                baton.pass(false, &owner);
            }
        });
        baton.wait(false);
        let purgatory = join(0);
        let watch = |draws: &mut Draws, key: usize| {
            let required_count = counts[key].load(Relaxed) + 1;
            let wait = WaitForCount { counts: &counts[key], required_count };
            let outcome = purgatory.try_complete_else_watch(wait, [key], delay(draws));
            assert!(matches!(outcome, Ok(WatchOutcome::Waits(_))));
        };
        (0..live).for_each(|key| watch(&mut draws, key));
        for chosen in &batches {
            baton.pass(true, other.thread());
            baton.wait(false);
            local_timer().turn();
            assert_eq!(purgatory.len(), live - chosen.len());
            for &key in *chosen {
                watch(&mut draws, key);
            }
        }
        other.join().expect("a panic aborts");
    });
}

/// Polls an async sleep once and drops it.
pub(crate) fn sleep(live: usize, iterations: usize) {
    let (_clock, mut draws) = (install_wheel(), Draws::new(live));
    black_box(add_live_timers(live, &mut draws));
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..WARM_UP + iterations {
        let sleep = pin!(future::sleep(delay(&mut draws)));
        assert!(sleep.poll(&mut context).is_pending());
    }
}

/// Moves a random async sleep to a minute from now, and polls it again, as a server does for a
/// packet.
pub(crate) fn packet(live: usize, iterations: usize) {
    let (_clock, mut draws) = (install_wheel(), Draws::new(live));
    let mut context = Context::from_waker(Waker::noop());
    let mut sleeps: Vec<_> = (0..live).map(|_| future::sleep(delay(&mut draws))).collect();
    for sleep in &mut sleeps {
        assert!(pin!(sleep).poll(&mut context).is_pending());
    }
    for _ in 0..WARM_UP + iterations {
        let sleep = &mut sleeps[draws.index()];
        sleep.reset_after(Duration::from_secs(60));
        assert!(pin!(sleep).poll(&mut context).is_pending());
    }
}

/// Runs `step`. In the lane `paths`, callgrind counts only what runs inside this function.
#[inline(never)]
fn run_profiled<R>(step: impl FnOnce() -> R) -> R {
    step()
}

/// Lets callgrind collect one add and the turn that fires the timer.
pub(crate) fn path_add_fire(live: usize, _: usize) {
    let clock = install_wheel();
    black_box(add_live_timers(live, &mut Draws::new(live)));
    // Adds and turns once first, so that no allocation of a first add or turn is profiled.
    local_timer().add(Duration::from_millis(1), callback(0));
    clock.advance(Duration::from_millis(1));
    assert_eq!(local_timer().turn().fired, 1);
    run_profiled(|| local_timer().add(Duration::from_millis(500), callback(1)));
    clock.advance(Duration::from_millis(500));
    assert_eq!(run_profiled(|| local_timer().turn()).fired, 1);
}

/// Lets callgrind collect one cancel by another thread and the owner's turn.
pub(crate) fn path_remote_cancel(live: usize, _: usize) {
    let _clock = install_wheel();
    let handles = add_live_timers(live, &mut Draws::new(live));
    let [first, second] = [handles[0], handles[1]];
    let other = thread::spawn(move || {
        first.cancel();
        run_profiled(|| second.cancel())
    });
    assert_eq!(other.join().expect("a cancel does not panic"), Cancel::Cancelled);
    assert_eq!(run_profiled(|| local_timer().turn()).collected, 2);
}
