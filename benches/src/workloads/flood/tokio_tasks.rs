//! The flood in a tokio runtime with two workers: a task for each timer that is due; one task drops the others, and
//! gives way after each batch, as a task should.

use std::{
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use tokio::{
    runtime::Runtime,
    task::{JoinSet, unconstrained, yield_now},
    time::sleep,
};

use super::{
    super::late::{Log, delays},
    Load, Outcome, flood_delay, pending,
};
use crate::crossing::{BATCH, Place};

/// Runs it.
pub fn tokio(load: Load, runtime: &Runtime) -> Outcome {
    runtime.block_on(async {
        let registered = tokio::spawn(unconstrained(async move { register(load) }));
        let places = registered.await.expect("a task that does not panic");
        let mut tasks = JoinSet::new();
        for delay in delays(load.due) {
            let due = Instant::now() + delay;
            let sleep = sleep(delay);
            tasks.spawn(async move {
                sleep.await;
                let mut log = Log::default();
                log.fired(due);
                log.lateness[0]
            });
        }
        let flood = tokio::spawn(unconstrained(flood(load, places)));
        let lateness = tasks.join_all().await;
        let (places, took) = flood.await.expect("a task that does not panic");
        drop(places);
        Outcome { lateness, flood: took }
    })
}

/// Those that do not fire, each polled once.
fn register(load: Load) -> Vec<Place> {
    let registered = pending(load).map(|delay| {
        let mut place = Box::pin(Some(sleep(delay)));
        if let Some(sleep) = place.as_mut().as_pin_mut() {
            let _: Poll<()> = sleep.poll(&mut Context::from_waker(Waker::noop()));
        }
        place
    });
    registered.collect()
}

/// Drops them where they are; the places go when all is over.
async fn flood(load: Load, mut places: Vec<Place>) -> (Vec<Place>, Option<Duration>) {
    sleep(flood_delay(load)).await;
    if !load.setting.is_flooded() {
        return (places, None);
    }
    let started = Instant::now();
    for batch in places.chunks_mut(BATCH) {
        for place in batch {
            assert!(
                place.as_ref().as_pin_ref().is_some_and(|sleep| !sleep.is_elapsed()),
                "it was live"
            );
            place.set(None);
        }
        yield_now().await;
    }
    (places, Some(started.elapsed()))
}
