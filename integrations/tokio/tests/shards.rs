//! Shards on dedicated threads, beside a multi-thread runtime.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use corewheel::{Cancel, Config, Cores};
use corewheel_tokio::Shards;
use tokio::{runtime, sync::oneshot};

const HOUR: Duration = Duration::from_secs(3_600);

#[test]
fn threads_are_spread_and_each_keeps_its_shard() {
    let shards = Arc::new(Shards::start(3).expect("threads"));
    let mut seen: Vec<String> = Vec::new();
    for _ in 0..6 {
        let shards = Arc::clone(&shards);
        let nearest =
            move || (format!("{:?}", shards.nearest()), format!("{:?}", shards.nearest()));
        let (first, again) = thread::spawn(nearest).join().expect("no panic");
        assert_eq!(first, again);
        seen.push(first);
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 3);
}

#[test]
fn start_with_applies_or_refuses_a_configuration() {
    let builder = |tick| {
        Cores::builder().shards(2).pin(false).config(move |_| Config::new().tick(tick).limit(1))
    };
    let shards = Shards::start_with(builder(Duration::from_millis(1))).expect("threads");
    assert_eq!(shards.all().len(), 2);
    for shard in shards.all() {
        assert!(shard.try_add(HOUR, || ()).is_ok());
        assert!(shard.try_add(HOUR, || ()).is_err(), "the limit is one timer");
    }
    assert!(Shards::start_with(builder(Duration::ZERO)).is_err(), "a tick of zero is invalid");
}

#[test]
fn timers_of_tasks_fire_and_are_never_early() {
    let shards = Arc::new(Shards::start(2).expect("threads"));
    let runtime =
        runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
    let delays = (0..200).map(|round| Duration::from_micros(round * 97));
    let tasks: Vec<_> = delays
        .map(|delay| {
            let shards = Arc::clone(&shards);
            runtime.spawn(async move {
                let (sender, fired) = oneshot::channel();
                let begun = Instant::now();
                shards.nearest().add(delay, move || _ = sender.send(()));
                fired.await.expect("the timer fires");
                assert!(begun.elapsed() >= delay, "early");
            })
        })
        .collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.expect("no panic");
        }
    });
}

struct CountDrops(Arc<AtomicU32>);

impl Drop for CountDrops {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn join_drops_pending_callbacks() {
    let shards = Shards::start(2).expect("threads");
    let dropped = Arc::new(AtomicU32::new(0));
    let handles: Vec<_> = (0..100_usize)
        .map(|number| {
            let counts = CountDrops(Arc::clone(&dropped));
            shards.all()[number % 2].add(HOUR, move || drop(counts))
        })
        .collect();
    assert_eq!(handles[0].cancel(), Cancel::Cancelled);
    let shard = shards.nearest().clone();
    shards.join();
    assert_eq!(dropped.load(Ordering::SeqCst), 100);
    assert_eq!(handles[1].cancel(), Cancel::Ended);
    assert!(shard.try_add(HOUR, || ()).is_err());
}

#[test]
fn shards_may_be_dropped_in_their_own_callback() {
    let shards = Arc::new(Shards::start(1).expect("a thread"));
    let (sender, gone) = mpsc::channel();
    let last = Arc::clone(&shards);
    shards.all()[0].add(Duration::from_millis(5), move || {
        drop(last);
        sender.send(()).expect("the test receives");
    });
    drop(shards);
    gone.recv_timeout(Duration::from_secs(20)).expect("the drop returns");
}
