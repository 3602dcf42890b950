//! `TimerHandle::cancel_wait`: it returns when the callback neither runs nor ever will, on whichever thread that was, and where
//! waiting could be for ever it refuses and changes nothing.

use std::{
    cell::{Cell, RefCell},
    error::Error,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use corewheel::{
    Cancel, Config, InsideCallback, ManualClock, Shard, TimerHandle, Turn, local_timer,
};

use crate::common::{TICK, in_virtual_time, on_a_thread, operations, wait_until};

/// Longer than any test may take.
const TOO_LONG: Duration = Duration::from_secs(20);

fn never() {
    unreachable!("this callback must not run");
}

fn turn_after(clock: &ManualClock, ticks: u32) -> Turn {
    clock.advance(TICK * ticks);
    local_timer().turn()
}

/// A callback that says when it runs, and then runs until it is told to end.
struct Slow {
    runs: Receiver<()>,
    end: Sender<()>,
    over: Arc<AtomicBool>,
}

fn slow() -> (Slow, impl FnMut() + Send + 'static) {
    let ((run, runs), (end, ended)) = (mpsc::channel(), mpsc::channel());
    let over = Arc::new(AtomicBool::new(false));
    let mine = Arc::clone(&over);
    let callback = move || {
        run.send(()).expect("the test listens");
        ended.recv_timeout(TOO_LONG).expect("the test ends it");
        // Relaxed: whether whoever waited sees it is the question.
        mine.store(true, Ordering::Relaxed);
    };
    (Slow { runs, end, over }, callback)
}

/// Several threads wait for the callback, which is running; then it ends. What they were told, and whether it was over then.
fn wait_for(
    handle: TimerHandle,
    Slow { runs, end, over }: &Slow,
) -> Vec<(Result<Cancel, InsideCallback>, bool)> {
    runs.recv_timeout(TOO_LONG).expect("it runs");
    let waiting = AtomicU64::new(0);
    thread::scope(|scope| {
        let wait = || {
            waiting.fetch_add(1, Ordering::SeqCst);
            let answer = handle.cancel_wait();
            waiting.fetch_sub(1, Ordering::SeqCst);
            (answer, over.load(Ordering::Relaxed))
        };
        let waiters = [(); 3].map(|()| scope.spawn(wait));
        wait_until("they wait", || waiting.load(Ordering::SeqCst) == 3);
        // Those who do not wait come back within this.
        thread::sleep(Duration::from_millis(30));
        assert_eq!(waiting.load(Ordering::SeqCst), 3, "they wait until it is over");
        end.send(()).expect("it waits");
        waiters.map(|waiter| waiter.join().expect("no panic")).into()
    })
}

#[test]
fn it_waits_for_a_callback_that_runs_on_another_thread() {
    let (slow, callback) = slow();
    let (sender, handles) = mpsc::channel();
    let owner = thread::spawn(move || {
        sender.send(local_timer().add(Duration::ZERO, callback)).expect("it is waited for");
        while !local_timer().is_empty() {
            let _ = local_timer().turn();
        }
    });
    let handle = handles.recv().expect("added");
    assert_eq!(wait_for(handle, &slow), [(Ok(Cancel::Running), true); 3]);
    owner.join().expect("no panic");
    assert_eq!(handle.cancel_wait(), Ok(Cancel::Ended));
}

/// The same, of a timer from elsewhere, whose owner's thread is over as soon as the callback is.
#[test]
fn it_returns_when_the_thread_ends() {
    let (slow, callback) = slow();
    let (sender, shards) = mpsc::channel();
    let owner = thread::spawn(move || {
        sender.send(local_timer().shard_ref()).expect("it is waited for");
        while local_timer().turn().fired == 0 {}
    });
    let handle = shards.recv().expect("it has a timer").add(Duration::ZERO, callback);
    assert_eq!(wait_for(handle, &slow), [(Ok(Cancel::Running), true); 3]);
    owner.join().expect("no panic");
    assert_eq!(handle.cancel_wait(), Ok(Cancel::Ended));
}

#[test]
fn a_periodic_timer_makes_no_further_run() {
    let (slow, callback) = slow();
    let (sender, handles) = mpsc::channel();
    let owner = thread::spawn(move || {
        sender
            .send(local_timer().add_periodic(Duration::ZERO, callback))
            .expect("it is waited for");
        while !local_timer().is_empty() {
            let _ = local_timer().turn();
        }
        local_timer().counts()
    });
    let handle = handles.recv().expect("added");
    assert_eq!(wait_for(handle, &slow), [(Ok(Cancel::Running), true); 3]);
    let counts = owner.join().expect("no panic");
    assert_eq!((counts.runs, counts.fired, counts.cancelled), (1, 0, 1));
}

#[test]
fn a_callback_that_panics_is_over() {
    let (run, runs) = mpsc::channel();
    let (sender, handles) = mpsc::channel();
    let owner = thread::spawn(move || {
        let callback = move || {
            run.send(()).expect("the test listens");
            thread::sleep(Duration::from_millis(20));
            panic!("as it must");
        };
        sender.send(local_timer().add(Duration::ZERO, callback)).expect("it is waited for");
        while !local_timer().is_empty() {
            let _ = local_timer().turn();
        }
        local_timer().counts().panicked
    });
    let handle = handles.recv().expect("added");
    runs.recv_timeout(TOO_LONG).expect("it runs");
    assert!(matches!(handle.cancel_wait(), Ok(Cancel::Running | Cancel::Ended)));
    assert_eq!(owner.join().expect("no panic"), 1);
}

#[test]
fn what_does_not_run_is_not_waited_for() {
    in_virtual_time(|clock| {
        let handle = || local_timer().add(TICK, never);
        // On the own thread, and on another while the owner does nothing.
        let cancelled = [handle(), handle()];
        assert_eq!(cancelled[0].cancel_wait(), Ok(Cancel::Cancelled));
        assert_eq!(on_a_thread(|| cancelled[1].cancel_wait()), Ok(Cancel::Cancelled));
        let shard = local_timer().shard_ref();
        let there = on_a_thread(|| [(); 3].map(|()| shard.add(TICK, never)));
        assert_eq!(on_a_thread(|| there[0].cancel_wait()), Ok(Cancel::Cancelled));
        assert_eq!(there[1].cancel_wait(), Ok(Cancel::Cancelled));
        let _ = local_timer().turn();
        assert_eq!(there[2].cancel_wait(), Ok(Cancel::Cancelled));
        let fired = local_timer().add(TICK, || {});
        assert_eq!(turn_after(clock, 1).fired, 1);
        for ended in cancelled.into_iter().chain(there).chain([fired]) {
            assert_eq!(ended.cancel_wait(), Ok(Cancel::Ended));
            assert_eq!(on_a_thread(|| ended.cancel_wait()), Ok(Cancel::Ended));
        }
        let mut shard = Shard::new();
        let handle = shard.add(TICK, ());
        assert_eq!(handle.cancel_wait(), Ok(Cancel::Cancelled));
        assert_eq!(handle.cancel_wait(), Ok(Cancel::Ended));
    });
}

#[test]
fn inside_a_callback_it_refuses_and_changes_nothing() {
    in_virtual_time(|clock| {
        let other = local_timer().add(TICK * 5, || {});
        let (elsewhere, far) = on_a_thread(|| {
            let mut shard = Shard::new();
            let far = shard.add(TICK, ());
            (shard, far)
        });
        let own = Rc::new(Cell::new(other));
        let (seen, asked) = (Rc::new(RefCell::new(Vec::new())), Rc::clone(&own));
        let answers = Rc::clone(&seen);
        own.set(local_timer().add_periodic(TICK, move || {
            answers.borrow_mut().extend([asked.get(), other, far].map(TimerHandle::cancel_wait));
        }));
        assert_eq!(turn_after(clock, 1).fired, 1);
        assert!(seen.take().into_iter().eq([Err(InsideCallback::clone(&refusal())); 3]));
        assert!(other.is_pending() && own.get().is_pending() && far.is_pending());
        assert_eq!(turn_after(clock, 1).fired, 1, "it goes on");
        // After the turn it is outside.
        assert_eq!(own.get().cancel_wait(), Ok(Cancel::Cancelled));
        assert_eq!(other.cancel_wait(), Ok(Cancel::Cancelled));
        assert_eq!(elsewhere.len(), 1);
        assert!(!refusal().to_string().is_empty() && Error::source(&refusal()).is_none());
    });
}

/// What a callback is told that waits.
fn refusal() -> InsideCallback {
    on_a_thread(|| {
        let clock = ManualClock::new();
        Config::new().clock(&clock).install().expect("a fresh thread");
        let (sender, answer) = mpsc::channel();
        let handle = local_timer().add(TICK * 2, never);
        local_timer()
            .add(TICK, move || sender.send(handle.cancel_wait()).expect("it is waited for"));
        assert_eq!(turn_after(&clock, 1).fired, 1);
        answer.recv().expect("asked").expect_err("inside a callback")
    })
}

/// Also in what a turn drops; but not in what a cancel drops outside of one.
#[test]
fn in_a_destructor_it_refuses_where_a_turn_runs_it() {
    struct Asks(TimerHandle, Rc<Cell<Option<Result<Cancel, InsideCallback>>>>);
    impl Drop for Asks {
        fn drop(&mut self) {
            self.1.set(Some(self.0.cancel_wait()));
        }
    }
    in_virtual_time(|_| {
        let answer = Rc::new(Cell::new(None));
        let other = local_timer().add(TICK * 9, never);
        let add = || {
            let asks = Asks(other, Rc::clone(&answer));
            local_timer().add(TICK * 9, move || drop(asks))
        };
        let (here, there) = (add(), add());
        assert_eq!(on_a_thread(|| there.cancel()), Cancel::Cancelled);
        assert_eq!(local_timer().turn().collected, 1);
        assert!(answer.take().is_some_and(|answer| answer.is_err()));
        assert!(other.is_pending());
        assert_eq!(here.cancel(), Cancel::Cancelled);
        assert_eq!(answer.take(), Some(Ok(Cancel::Cancelled)));
    });
}

/// What is freed after the wait is used by no callback: under chance, with the callbacks looking.
#[test]
fn after_the_wait_nobody_uses_what_the_callback_used() {
    let deadline = Instant::now() + Duration::from_millis(operations(300).min(5_000));
    let (sender, handles) = mpsc::channel::<(TimerHandle, Arc<AtomicBool>)>();
    let owner = thread::spawn(move || {
        Config::new().tick(Duration::from_micros(1)).install().expect("a fresh thread");
        while Instant::now() < deadline {
            let freed = Arc::new(AtomicBool::new(false));
            let used = Arc::clone(&freed);
            let callback = move || {
                for _ in 0..20 {
                    assert!(!used.load(Ordering::Relaxed), "used after it was freed");
                }
            };
            // Every third runs again and again.
            let handle = match local_timer().counts().added % 3 {
                0 => local_timer().add_periodic(Duration::ZERO, callback),
                _ => local_timer().add(Duration::from_micros(5), callback),
            };
            sender.send((handle, freed)).expect("it listens");
            for _ in 0..4 {
                let _ = local_timer().turn();
            }
        }
        drop(sender);
        while !local_timer().is_empty() {
            let _ = local_timer().turn();
        }
        local_timer().counts().panicked
    });
    let mut answers = [0_u64; 3];
    for (handle, freed) in handles {
        answers[handle.cancel_wait().expect("outside of a callback") as usize] += 1;
        freed.store(true, Ordering::Relaxed);
    }
    assert_eq!(owner.join().expect("no panic"), 0);
    println!("{answers:?} cancelled, running, ended");
}
