//! The end of a thread that others add to (P11): whatever they have added, moved and cancelled ends with it, once, whether it had
//! arrived or not; and what is asked of it afterwards has a defined answer.

use std::{
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use corewheel::{AddErrorReason, Cancel, Config, Cores, Shard, ShardRef, TimerHandle, local_timer};

use crate::common::{TICK, on_a_thread};

const HOUR: Duration = Duration::from_secs(3_600);

/// Callbacks that must not run, and what has become of them.
#[derive(Clone, Default)]
struct Callbacks {
    made: Arc<AtomicUsize>,
    dropped: Arc<Mutex<Vec<thread::ThreadId>>>,
}

struct Captured(Callbacks);

impl Drop for Captured {
    fn drop(&mut self) {
        self.0.dropped.lock().expect("sound").push(thread::current().id());
    }
}

impl Callbacks {
    fn never(&self) -> impl FnOnce() + Send + 'static {
        self.made.fetch_add(1, Ordering::Relaxed);
        let captured = Captured(self.clone());
        move || unreachable!("this callback must not run, {:?}", captured.0.made)
    }

    /// One that does not fit in place.
    fn large(&self) -> impl FnOnce() + Send + 'static {
        let (callback, large) = (self.never(), [7_u64; 100]);
        move || {
            assert_eq!(large, [7; 100]);
            callback();
        }
    }

    fn made(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }

    fn dropped(&self) -> usize {
        self.dropped.lock().expect("sound").len()
    }

    fn dropped_by(&self, thread: thread::ThreadId) -> bool {
        self.dropped.lock().expect("sound").iter().all(|&dropper| dropper == thread)
    }
}

fn assert_ended(handle: TimerHandle) {
    assert_eq!((handle.cancel(), handle.cancel_wait()), (Cancel::Ended, Ok(Cancel::Ended)));
    assert!(!handle.reset(HOUR) && !handle.reset(Duration::ZERO) && !handle.is_pending());
    drop(handle.guard());
}

/// The callback comes back by value, and it can be called.
fn assert_shut_down(shard: &ShardRef) {
    let (called, captured) = (Arc::new(AtomicUsize::new(0)), vec![1, 2, 3]);
    let count = Arc::clone(&called);
    let callback = move || _ = count.fetch_add(captured.len(), Ordering::Relaxed);
    let error = shard.try_add(TICK, callback).expect_err("it has ended");
    assert_eq!((error.reason(), Arc::strong_count(&called)), (AddErrorReason::ShutDown, 2));
    error.into_inner()();
    assert_eq!((called.load(Ordering::Relaxed), Arc::strong_count(&called)), (3, 1));
    let captured = Arc::clone(&called);
    assert!(
        catch_unwind(AssertUnwindSafe(|| shard.add(TICK, move || drop(captured)))).is_err(),
        "`add` panics"
    );
    assert_eq!(Arc::strong_count(&called), 1, "and drops the callback");
}

/// How a thread ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Returns,
    Panics,
}

/// A thread that lives until it is told to end, and then turns once more or not. Its timer.
struct Owner {
    shard: ShardRef,
    turn: mpsc::Sender<Option<End>>,
    turned: mpsc::Receiver<()>,
    thread: thread::JoinHandle<()>,
}

impl Owner {
    fn start() -> Self {
        let ((turn, turns), (done, turned)) = (mpsc::channel(), mpsc::channel());
        let (sender, shards) = mpsc::channel();
        let thread = thread::spawn(move || {
            sender.send(local_timer().shard_ref()).expect("it is waited for");
            for end in turns {
                match end {
                    None => _ = local_timer().turn(),
                    Some(End::Returns) => break,
                    Some(End::Panics) => panic!("as it must"),
                }
                done.send(()).expect("it is waited for");
            }
        });
        Self { shard: shards.recv().expect("it has a timer"), turn, turned, thread }
    }

    fn turn(&self) {
        self.turn.send(None).expect("it listens");
        self.turned.recv().expect("it turns");
    }

    /// Its thread has ended then.
    fn end(self, end: End) -> (ShardRef, thread::ThreadId) {
        self.turn.send(Some(end)).expect("it listens");
        let id = self.thread.thread().id();
        assert_eq!(self.thread.join().is_err(), end == End::Panics);
        (self.shard, id)
    }
}

#[test]
fn what_others_have_added_is_dropped_once_where_its_thread_ends() {
    for end in [End::Returns, End::Panics] {
        for turns in 0..2 {
            let (owner, callbacks) = (Owner::start(), Callbacks::default());
            let shard = &owner.shard;
            let mut handles: Vec<_> =
                (0..700).map(|_| shard.add(HOUR, callbacks.never())).collect();
            handles.extend((0..10).map(|_| shard.add(Duration::MAX, callbacks.large())));
            assert!(handles[..50].iter().all(|handle| handle.reset(HOUR * 2)));
            (0..turns).for_each(|_| owner.turn());
            assert!(handles[100..150].iter().all(|handle| handle.reset(HOUR * 2)));
            assert!(handles[140..200].iter().all(|handle| handle.cancel() == Cancel::Cancelled));
            // These arrive after the last turn.
            handles.extend((0..700).map(|_| owner.shard.add(HOUR, callbacks.never())));
            assert!(handles[800..820].iter().all(|handle| handle.reset(HOUR * 2)));
            assert!(handles[810..850].iter().all(|handle| handle.cancel() == Cancel::Cancelled));
            assert_eq!(callbacks.dropped(), 0);
            let (shard, thread) = owner.end(end);
            assert_eq!(callbacks.dropped(), callbacks.made(), "{end:?} after {turns} turns");
            assert!(callbacks.dropped_by(thread), "by the thread that was to run them");
            let counts = shard.metrics().counts;
            assert_eq!((counts.added, counts.fired, counts.live), (1_410, 0, 0));
            assert_eq!(
                (counts.cancelled, counts.cancelled_elsewhere, counts.handed_back),
                (100, 100, 1_310)
            );
            handles.into_iter().for_each(assert_ended);
            assert_shut_down(&shard);
        }
    }
}

/// Due, but not turned any more: the end of a thread runs nothing.
#[test]
fn what_is_due_at_the_end_does_not_run() {
    let (owner, callbacks) = (Owner::start(), Callbacks::default());
    let first = owner.shard.add(HOUR, callbacks.never());
    owner.turn();
    assert!(first.reset(Duration::ZERO));
    owner.shard.add(Duration::ZERO, callbacks.never());
    thread::sleep(TICK * 3);
    owner.end(End::Returns);
    assert_eq!(callbacks.dropped(), 2);
}

#[test]
fn a_reference_to_a_thread_that_is_gone_never_reaches_the_next_one() {
    let (mut gone, callbacks) = (Vec::<(ShardRef, TimerHandle)>::new(), Callbacks::default());
    for _ in 0..20 {
        let owner = Owner::start();
        let handle = owner.shard.add(HOUR, callbacks.never());
        owner.turn();
        for (shard, handle) in &gone {
            assert_shut_down(shard);
            assert_ended(*handle);
        }
        assert!(handle.is_pending());
        gone.push((owner.end(End::Returns).0, handle));
    }
}

/// What is dropped at the end of a thread may ask its own timer, by whatever it has: it is as if it were another's.
#[test]
fn a_callback_that_is_dropped_at_the_end_finds_its_own_timer_ended() {
    struct Asks(ShardRef, mpsc::Sender<()>);
    impl Drop for Asks {
        fn drop(&mut self) {
            assert_shut_down(&self.0);
            let there = thread::spawn({
                let shard = self.0.clone();
                move || assert_shut_down(&shard)
            });
            there.join().expect("no panic");
            self.1.send(()).expect("it is waited for");
        }
    }
    let (owner, (sender, asked)) = (Owner::start(), mpsc::channel());
    for delay in [HOUR, Duration::MAX] {
        let asks = Asks(owner.shard.clone(), sender.clone());
        owner.shard.add(delay, move || drop(asks));
    }
    let (shard, _) = owner.end(End::Returns);
    assert_eq!(asked.try_iter().count(), 2);
    assert_shut_down(&shard);
}

/// A destructor at the end that panics is kept in, and the others are dropped.
#[test]
fn a_destructor_that_panics_at_the_end_keeps_nothing_from_ending() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("as it must");
        }
    }
    let (owner, callbacks) = (Owner::start(), Callbacks::default());
    let handles = [0, 1, 2].map(|_| {
        let panics = Panics;
        owner.shard.add(HOUR, callbacks.never());
        owner.shard.add(HOUR, move || drop(panics))
    });
    assert_eq!(handles[0].cancel(), Cancel::Cancelled);
    owner.end(End::Returns);
    assert_eq!(callbacks.dropped(), 3);
    handles.into_iter().for_each(assert_ended);
}

/// The thread-locals of a thread go in some order: one of the user's may ask after the timer has gone.
#[test]
fn a_thread_local_that_goes_after_the_timer_adds_nothing() {
    struct Last(RefCell<Option<ShardRef>>);
    impl Drop for Last {
        fn drop(&mut self) {
            if let Some(shard) = self.0.take() {
                // Either order is fine: it is added and dropped, or comes back.
                let _ = shard
                    .try_add(HOUR, || unreachable!("its thread is ending"))
                    .map(TimerHandle::cancel);
            }
        }
    }
    thread_local! {
        static LAST: Last = const { Last(RefCell::new(None)) };
    }
    for timer_first in [true, false] {
        on_a_thread(|| {
            if timer_first {
                let _ = local_timer().turn();
            }
            LAST.with(|_| ());
            let shard = local_timer().shard_ref();
            LAST.with(|last| last.0.replace(Some(shard)));
        });
    }
}

#[test]
fn cores_that_have_ended_can_be_asked() {
    let cores = Cores::builder().shards(3).start(|core| {
        // One goes at once, the others after they have heard of it.
        if core.index() > 0 {
            while core.shards()[0].try_add(HOUR, || {}).is_ok() {
                thread::yield_now();
            }
            assert_shut_down(&core.shards()[0]);
        }
    });
    let cores = cores.expect("started");
    let shards: Vec<_> = cores.shards().into();
    assert!(cores.join().into_iter().all(|thread| thread.is_ok()));
    shards.iter().for_each(assert_shut_down);
}

/// P4: what a shard leaves behind when it ends is dropped by a thread that ends one, never by one that cancels at that time.
#[test]
fn who_cancels_never_drops_what_a_shard_has_left() {
    let (is_over, left) = (AtomicBool::new(false), Callbacks::default());
    let mut living = Shard::new();
    let handle = living.add(HOUR, ());
    thread::scope(|scope| {
        let canceller = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                handle.cancel();
            }
            thread::current().id()
        });
        for _ in 0..2_000 {
            let captured = Captured(left.clone());
            let config = Config::new().on_wake(move || _ = &captured);
            drop(Shard::<()>::with_config(config).expect("valid"));
        }
        is_over.store(true, Ordering::Relaxed);
        let canceller = canceller.join().expect("no panic");
        let dropped = left.dropped.lock().expect("sound");
        assert!(
            !dropped.is_empty() && !dropped.contains(&canceller),
            "dropped by a thread that only cancels"
        );
    });
}
