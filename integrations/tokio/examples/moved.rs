//! A program written for `tokio::time` in which only the `use` lines have changed. A `DelayQueue`
//! ends the sessions of clients that stop renewing them. Requests have a timeout, and an interval
//! ticks:
//!
//! ```sh
//! cargo run --release -p corewheel-tokio --example moved
//! ```

use std::{collections::HashMap, future::poll_fn, io};

// Formerly: use tokio::time::{self, Duration, Instant, MissedTickBehavior}; use
// tokio_util::time::{DelayQueue, delay_queue::Key};
use corewheel_tokio::time::{
    self, DelayQueue, Duration, Instant, MissedTickBehavior, delay_queue::Key,
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
};

const CLIENTS: u32 = 1_000;
const RENEWALS: u32 = 5;
const SESSION: Duration = Duration::from_millis(200);

/// A client's renewal of its session. The answer is true if the session still existed.
struct Renewal {
    client: u32,
    answer: oneshot::Sender<bool>,
}

#[derive(Debug, Default)]
struct Totals {
    sessions: usize,
    expired: usize,
    heartbeats: u32,
    max_lateness: Duration,
}

/// Serves until every client has ended and every session has expired.
async fn serve_sessions(mut renewals: mpsc::Receiver<Renewal>) -> Totals {
    let (mut queue, mut keys) = (DelayQueue::new(), HashMap::<u32, Key>::new());
    let mut heartbeat = time::interval(SESSION / 20);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut totals = Totals::default();
    loop {
        tokio::select! {
            Some(Renewal { client, answer }) = renewals.recv() => {
                let existed = if let Some(key) = keys.get(&client) {
                    queue.reset(key, SESSION);
                    true
                } else {
                    keys.insert(client, queue.insert(client, SESSION));
                    totals.sessions += 1;
                    false
                };
                let _ = answer.send(existed);
            }
            Some(expired) = poll_fn(|cx| queue.poll_expired(cx)), if !queue.is_empty() => {
                assert!(expired.deadline() <= Instant::now(), "never early");
                totals.max_lateness = totals.max_lateness.max(expired.deadline().elapsed());
                totals.expired += 1;
                keys.remove(expired.get_ref());
            }
            _ = heartbeat.tick() => {
                totals.heartbeats += 1;
                if renewals.is_closed() && queue.is_empty() {
                    return totals;
                }
            }
        }
    }
}

/// Renews a client's session several times, always before the session expires.
async fn client(client: u32, renewals: mpsc::Sender<Renewal>) -> Result<u32, time::error::Elapsed> {
    let mut successful_renewals = 0;
    for _ in 0..RENEWALS {
        let (answer, answered) = oneshot::channel();
        let renewal = Renewal { client, answer };
        let ask = async {
            renewals.send(renewal).await.expect("the server runs");
            answered.await.expect("the server runs")
        };
        successful_renewals += u32::from(time::timeout(Duration::from_secs(20), ask).await?);
        time::sleep(SESSION / 10).await;
    }
    Ok(successful_renewals)
}

fn main() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().build()?;
    let (successful_renewals, totals) = runtime.block_on(async {
        let (sender, renewals) = mpsc::channel(64);
        let server = tokio::spawn(serve_sessions(renewals));
        let mut clients: JoinSet<_> =
            (0..CLIENTS).map(|number| client(number, sender.clone())).collect();
        drop(sender);
        let mut successful_renewals = 0;
        while let Some(renewed) = clients.join_next().await {
            successful_renewals += renewed.expect("no panic").expect("an answer within 20 s");
        }
        (successful_renewals, server.await.expect("no panic"))
    });
    println!("{successful_renewals} renewals in time; {totals:?}");
    assert_eq!(totals.sessions, totals.expired, "each session expires once");
    assert_eq!(
        successful_renewals as usize + totals.sessions,
        (CLIENTS * RENEWALS) as usize,
        "no renewal is lost"
    );
    assert!(totals.heartbeats > 2, "the interval ticks");
    Ok(())
}
