//! Tasks that any worker may poll, as in a work-stealing runtime, with timeouts and sleeps on two
//! other threads. Each task finishes, no timer is early, and none is left behind.
use std::{
    collections::VecDeque,
    future::{self, Future},
    pin::Pin,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::{Duration, Instant},
};

use corewheel::{Config, Cores, Counts, future::Timers, local_timer};

use crate::common::operations;

const WORKERS: usize = 3;

type Boxed = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A task: `None` when it has finished.
struct Task {
    future: Mutex<Option<Boxed>>,
    queue: Arc<Queue>,
    is_queued: AtomicBool,
}

/// The tasks to be polled, for whichever worker comes first.
#[derive(Default)]
struct Queue {
    tasks: Mutex<VecDeque<Arc<Task>>>,
    changed: Condvar,
    unfinished: AtomicU64,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::AcqRel) {
            let queue = Arc::clone(&self.queue);
            queue.tasks.lock().unwrap().push_back(self);
            queue.changed.notify_one();
        }
    }
}

impl Queue {
    fn spawn(self: &Arc<Self>, future: impl Future<Output = ()> + Send + 'static) {
        self.unfinished.fetch_add(1, Ordering::Relaxed);
        let future = Mutex::new(Some(Box::pin(future) as Boxed));
        Arc::new(Task { future, queue: Arc::clone(self), is_queued: AtomicBool::new(false) })
            .wake();
    }

    fn is_done(&self) -> bool {
        self.unfinished.load(Ordering::Acquire) == 0
    }

    /// A worker's loop. It fails if nothing is to be done for as long as no timer lasts.
    fn work(&self) {
        while !self.is_done() {
            let tasks = self.tasks.lock().unwrap();
            let idle = |tasks: &mut VecDeque<_>| tasks.is_empty() && !self.is_done();
            let (mut tasks, waited) =
                self.changed.wait_timeout_while(tasks, Duration::from_secs(60), idle).unwrap();
            assert!(!waited.timed_out(), "a wake was lost");
            let task = tasks.pop_front();
            drop(tasks);
            if let Some(task) = task {
                self.poll(&task);
            }
        }
        // Under the lock, so that no thread misses it between the check and the wait.
        let _tasks = self.tasks.lock().unwrap();
        self.changed.notify_all();
    }

    fn poll(&self, task: &Arc<Task>) {
        let mut future = task.future.lock().unwrap();
        task.is_queued.store(false, Ordering::Release);
        let waker = Waker::from(Arc::clone(task));
        let is_over = future.as_mut().is_some_and(|future| {
            future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
        });
        if is_over {
            *future = None;
            self.unfinished.fetch_sub(1, Ordering::Release);
        }
    }
}

/// Ready at the second poll, which comes at once and perhaps on another worker.
async fn operation() {
    let mut is_second = false;
    future::poll_fn(|cx| {
        if std::mem::replace(&mut is_second, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

async fn serve(timers: Timers, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..20 {
        let (begun, delay) = (Instant::now(), Duration::from_micros(random.u64(..4_000)));
        match random.u32(..8) {
            0 => {
                timers.sleep(delay).await;
                assert!(begun.elapsed() >= delay);
            }
            1 => {
                let guarded = timers.timeout(delay, timers.sleep(Duration::from_secs(3600))).await;
                assert!(guarded.is_err() && begun.elapsed() >= delay);
            }
            2 => {
                let mut moved = timers.sleep(Duration::from_secs(3600));
                assert!(timers.timeout(delay, &mut moved).await.is_err());
                moved.reset_after(delay);
                moved.await;
                assert!(begun.elapsed() >= delay * 2);
            }
            _ => timers
                .timeout(Duration::from_secs(30), operation())
                .await
                .expect("it is ready long before"),
        }
    }
}

/// Serves tasks on a few workers.
fn serve_all(timers: &Timers) {
    let queue = Arc::new(Queue::default());
    (0..operations(500)).for_each(|seed| queue.spawn(serve(timers.clone(), seed)));
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| queue.work());
        }
    });
}

#[test]
fn tasks_that_change_workers_end_in_time_and_leave_nothing_behind() {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let run = move |_| {
        local_timer().run_until(|| stopped.load(Ordering::Relaxed));
        while local_timer().counts().queued > 0 {
            local_timer().turn();
        }
        local_timer().counts()
    };
    let cores = Cores::builder().shards(2).start(run).expect("threads");
    let timers = Timers::new(cores.shards());
    serve_all(&timers);
    stop.store(true, Ordering::Relaxed);
    // One that is awake may have seen it already, and ended.
    cores.shards().iter().for_each(|shard| drop(shard.try_run(|| ())));
    for ended in cores.join() {
        let Counts { added, fired, cancelled, live, held, panicked, .. } = ended.expect("no panic");
        assert_eq!((live, held, panicked, added), (0, 0, 0, fired + cancelled));
    }
}

/// With fewer wheels than workers, threads often claim the same one.
#[test]
fn tasks_on_claimed_wheels_end_in_time_and_leave_nothing_behind() {
    let (timers, mut watcher) = Timers::per_worker_with(2, |_| Config::new()).expect("valid");
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let watching = thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            watcher.turn();
            watcher.sleep_with(|timeout| thread::park_timeout(timeout.unwrap_or(Duration::MAX)));
        }
        watcher.turn();
        watcher.sleep_with(|_| ());
    });
    // A worker that is stuck has timers too, which fire without it.
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut stuck = [1, 20, 300].map(|delay| timers.sleep(Duration::from_millis(delay)));
    for sleep in &mut stuck {
        assert!(Pin::new(sleep).poll(&mut Context::from_waker(&waker)).is_pending());
    }
    serve_all(&timers);
    let begun = Instant::now();
    while woken.0.load(Ordering::Relaxed) < stuck.len() as u64 {
        assert!(begun.elapsed() < Duration::from_secs(60), "a wake was lost");
        thread::yield_now();
    }
    stop.store(true, Ordering::Relaxed);
    watching.thread().unpark();
    watching.join().expect("no panic");
    for shard in timers.shards() {
        let Counts { added, fired, cancelled, live, held, panicked, .. } = shard.metrics().counts;
        assert_eq!((live, held, panicked, added), (0, 0, 0, fired + cancelled));
    }
}

/// Counts its wakes.
#[derive(Default)]
struct Woken(AtomicU64);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
