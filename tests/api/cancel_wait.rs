//! `TimerHandle::cancel_wait` returns once the callback is not running and will not run again. If
//! waiting could deadlock, it returns an error and changes nothing.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    thread,
    time::Duration,
};

use corewheel::{Cancel, Config, Counts, TimerHandle, future::Timers, local_timer};

use crate::support::{
    Log, OnDrop, TICK, TOO_LONG, cancel_remotely, in_checked_virtual_time, must_not_run,
    spawn_owner, wait_until,
};

/// Controls a callback whose run lasts until the test sends to `end_sender`.
struct SlowCallbackControl {
    run_receiver: Receiver<()>,
    end_sender: Sender<()>,
    has_ended: Arc<AtomicBool>,
}

fn slow_callback() -> (SlowCallbackControl, impl FnMut() + Send + 'static) {
    let ((run_sender, run_receiver), (end_sender, end_receiver)) =
        (mpsc::channel(), mpsc::channel());
    let has_ended = Arc::new(AtomicBool::new(false));
    let has_ended_clone = Arc::clone(&has_ended);
    let callback = move || {
        run_sender.send(()).expect("the test waits");
        end_receiver.recv_timeout(TOO_LONG).expect("the test ends the run");
        // Relaxed: `cancel_wait` itself must make the store visible.
        has_ended_clone.store(true, Ordering::Relaxed);
    };
    (SlowCallbackControl { run_receiver, end_sender, has_ended }, callback)
}

impl SlowCallbackControl {
    /// Asserts that three waiters return `Running`, and only after the running callback has ended.
    fn assert_waited_for(&self, handle: TimerHandle) {
        self.run_receiver.recv_timeout(TOO_LONG).expect("the callback runs");
        let (waiting, has_ended) = (AtomicU64::new(0), &self.has_ended);
        thread::scope(|scope| {
            let wait = || {
                waiting.fetch_add(1, Ordering::SeqCst);
                let answer = handle.cancel_wait();
                waiting.fetch_sub(1, Ordering::SeqCst);
                (answer, has_ended.load(Ordering::Relaxed))
            };
            let waiters = [(); 3].map(|()| scope.spawn(wait));
            wait_until("three threads wait", || waiting.load(Ordering::SeqCst) == 3);
            // A faulty call that does not wait would return within this time.
            thread::sleep(Duration::from_millis(30));
            assert_eq!(waiting.load(Ordering::SeqCst), 3, "a waiter returned early");
            self.end_sender.send(()).expect("the callback waits");
            let answers = waiters.map(|waiter| waiter.join().expect("no panic"));
            assert_eq!(answers, [(Ok(Cancel::Running), true); 3]);
        });
    }
}

/// Starts a thread that adds a timer, turns until its wheel is empty, and returns its counts.
fn turn_until_empty(
    add: impl FnOnce() -> TimerHandle + Send + 'static,
) -> (TimerHandle, thread::JoinHandle<Counts>) {
    let (sender, handle) = mpsc::channel();
    let (_, thread) = spawn_owner(Config::new(), move || {
        sender.send(add()).expect("the test waits");
        local_timer().run_until_empty();
        local_timer().counts()
    });
    (handle.recv().expect("the timer is added"), thread)
}

#[test]
fn cancel_wait_waits_for_a_callback_on_another_thread() {
    let (first, callback) = slow_callback();
    let (handle, thread) = turn_until_empty(|| local_timer().add(Duration::ZERO, callback));
    first.assert_waited_for(handle);
    thread.join().expect("no panic");
    let (second, callback) = slow_callback();
    let (shard, thread) = spawn_owner(Config::new(), || while local_timer().turn().fired == 0 {});
    let remote = shard.add(Duration::ZERO, callback);
    second.assert_waited_for(remote);
    thread.join().expect("no panic");
    assert_eq!([handle, remote].map(TimerHandle::cancel_wait), [Ok(Cancel::Ended); 2]);
}

/// Returns the control of a slow callback, a flag that is set when the callback's captured values
/// have been dropped, and the callback.
fn slow_callback_with_slow_drop()
-> (SlowCallbackControl, Arc<AtomicBool>, impl FnMut() + Send + 'static) {
    let (slow, mut callback) = slow_callback();
    let is_dropped = Arc::new(AtomicBool::new(false));
    let dropped = Arc::clone(&is_dropped);
    let captured = OnDrop(move || {
        thread::sleep(Duration::from_millis(50));
        dropped.store(true, Ordering::Relaxed);
    });
    let run = move || {
        let _captured = &captured;
        callback();
    };
    (slow, is_dropped, run)
}

/// The wait includes the drop of the captured values.
#[test]
fn cancel_wait_ends_a_running_periodic_timer() {
    let (slow, is_dropped, run) = slow_callback_with_slow_drop();
    let (handle, thread) = turn_until_empty(|| local_timer().add_periodic(Duration::ZERO, run));
    slow.assert_waited_for(handle);
    assert!(is_dropped.load(Ordering::Relaxed));
    let counts = thread.join().expect("no panic");
    assert_eq!((counts.runs, counts.fired), (1, 0));
    assert_eq!((counts.cancelled, counts.remote_cancels), (1, 1));
}

#[test]
fn cancel_wait_ends_a_running_periodic_timer_of_a_timers_driver() {
    let (slow, is_dropped, run) = slow_callback_with_slow_drop();
    let (timers, driver) = Timers::per_worker_with(1, |_| Config::new()).expect("valid");
    let handle = timers.shards()[0].add_periodic(Duration::ZERO, run);
    let driver = thread::spawn(move || driver.run());
    slow.assert_waited_for(handle);
    assert!(is_dropped.load(Ordering::Relaxed));
    drop(timers);
    driver.join().expect("no panic");
}

#[test]
fn cancel_wait_waits_for_a_callback_that_panics() {
    let (slow, mut callback) = slow_callback();
    let panics = move || {
        callback();
        panic!("as planned");
    };
    let (handle, thread) = turn_until_empty(|| local_timer().add(Duration::ZERO, panics));
    slow.assert_waited_for(handle);
    assert_eq!(thread.join().expect("no panic").panicked, 1);
}

#[test]
fn cancel_wait_in_a_destructor_fails_only_inside_a_turn() {
    in_checked_virtual_time(|_| {
        let log = Log::new();
        let other = local_timer().add(TICK * 9, must_not_run);
        let add = || {
            let written = log.clone();
            let waits_on_drop = OnDrop(move || written.write(other.cancel_wait()));
            local_timer().add(TICK * 9, move || drop(waits_on_drop))
        };
        let (own, remote) = (add(), add());
        assert_eq!(cancel_remotely(remote), Cancel::Cancelled);
        assert_eq!(local_timer().turn().collected, 1);
        assert!(log.take()[0].is_err() && other.is_pending());
        assert_eq!(own.cancel(), Cancel::Cancelled);
        assert_eq!(log.take(), [Ok(Cancel::Cancelled)]);
    });
}

#[test]
fn cancel_wait_fails_in_its_own_callback_on_a_timers_driver() {
    let (timers, mut driver) = Timers::per_worker_with(1, |_| Config::new()).expect("valid");
    let (_timers, mut other_driver) = Timers::per_worker_with(1, |_| Config::new()).expect("valid");
    let (own, answer) = (Arc::new(OnceLock::new()), Log::new());
    let (handle, written) = (Arc::clone(&own), answer.clone());
    let wait_for_itself = move || {
        other_driver.turn();
        written.write(handle.get().map(|handle: &TimerHandle| handle.cancel_wait()));
    };
    own.set(timers.shards()[0].run(wait_for_itself)).expect("set once");
    driver.turn();
    assert!(matches!(answer.take()[..], [Some(Err(_))]));
    assert_eq!(own.get().map(|handle| handle.cancel_wait()), Some(Ok(Cancel::Ended)));
}
