//! Shards beside a multi-thread runtime: each thread always uses the same shard, timers fire and
//! are cancelled, and all threads end.

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
fn a_thread_keeps_to_its_shard_and_threads_are_spread() {
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

/// The caller configures the wheels of the threads, and an invalid configuration is an error.
#[test]
fn the_threads_are_as_they_were_asked_to_be() {
    let builder = |tick| {
        Cores::builder().shards(2).pin(false).config(move |_| Config::new().tick(tick).limit(1))
    };
    let shards = Shards::start_with(builder(Duration::from_millis(1))).expect("threads");
    assert_eq!(shards.all().len(), 2);
    for shard in shards.all() {
        assert!(shard.try_add(HOUR, || ()).is_ok());
        assert!(shard.try_add(HOUR, || ()).is_err(), "the limit");
    }
    assert!(Shards::start_with(builder(Duration::ZERO)).is_err(), "no such tick");
}

#[test]
fn tasks_time_out_and_are_never_early() {
    let shards = Arc::new(Shards::start(2).expect("threads"));
    let runtime =
        runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
    let delays = (0..200).map(|round| Duration::from_micros(round * 97));
    let tasks: Vec<_> = delays
        .map(|delay| {
            let shards = Arc::clone(&shards);
            runtime.spawn(async move {
                let (bell, rung) = oneshot::channel();
                let begun = Instant::now();
                shards.nearest().add(delay, move || _ = bell.send(()));
                rung.await.expect("it fires");
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

/// Increments a counter when it is dropped.
struct Counts(Arc<AtomicU32>);

impl Drop for Counts {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn the_end_drops_what_is_pending() {
    let shards = Shards::start(2).expect("threads");
    let dropped = Arc::new(AtomicU32::new(0));
    let handles: Vec<_> = (0..100_usize)
        .map(|number| {
            let counts = Counts(Arc::clone(&dropped));
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
fn the_last_reference_may_go_in_a_callback() {
    let shards = Arc::new(Shards::start(1).expect("a thread"));
    let (sender, gone) = mpsc::channel();
    let last = Arc::clone(&shards);
    shards.all()[0].add(Duration::from_millis(5), move || {
        drop(last);
        sender.send(()).expect("it is waited for");
    });
    drop(shards);
    gone.recv_timeout(Duration::from_secs(20)).expect("nobody waits for itself");
}
