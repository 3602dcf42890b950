//! Request timeouts in tokio's multi-thread runtime. Most requests are answered, which cancels
//! their timers; some time out:
//!
//! ```sh
//! cargo run --release -p corewheel-tokio --example work_stealing
//! ```

use std::{
    io,
    time::{Duration, Instant},
};

use corewheel::future::Timers;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
};

const REQUESTS: u32 = 10_000;
const TIMEOUT: Duration = Duration::from_millis(300);

/// Returns true for one in a hundred requests, which the server never answers.
fn is_never_answered(request: u32) -> bool {
    request.is_multiple_of(100)
}

/// Answers each request with its number, except those that are never answered.
async fn serve(mut requests: mpsc::Receiver<(u32, oneshot::Sender<u32>)>) {
    let mut unanswered = Vec::new();
    while let Some((request, answer)) = requests.recv().await {
        if is_never_answered(request) {
            unanswered.push(answer);
        } else {
            let _ = answer.send(request);
        }
    }
}

/// Returns the answer, or the time after which the request timed out.
async fn ask(
    timers: &Timers,
    server: &mpsc::Sender<(u32, oneshot::Sender<u32>)>,
    request: u32,
) -> Result<u32, Duration> {
    let (answer, answered) = oneshot::channel();
    let asked = Instant::now();
    let answered = timers.timeout(TIMEOUT, answered);
    server.send((request, answer)).await.expect("the server runs");
    match answered.await {
        Ok(answer) => Ok(answer.expect("the server runs")),
        Err(_) => Err(asked.elapsed()),
    }
}

async fn run_load(timers: Timers) {
    let (server, requests) = mpsc::channel(64);
    tokio::spawn(serve(requests));
    let mut asking = JoinSet::new();
    for request in 0..REQUESTS {
        let (timers, server) = (timers.clone(), server.clone());
        asking.spawn(async move { (request, ask(&timers, &server, request).await) });
    }
    let (mut timeouts, mut longest) = (0, Duration::ZERO);
    while let Some(asked) = asking.join_next().await {
        match asked.expect("no panic") {
            (request, Ok(answer)) => assert_eq!(answer, request),
            (request, Err(waited)) => {
                // On a busy machine, answered requests may time out too.
                assert!(waited >= TIMEOUT, "request {request} timed out early");
                timeouts += 1;
                longest = longest.max(waited);
            }
        }
    }
    println!("{REQUESTS} requests, {timeouts} timed out, after {longest:?} at most");
    assert!(timeouts >= REQUESTS / 100, "unanswered requests time out");
}

fn main() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().build()?;
    runtime.block_on(run_load(Timers::per_worker()?));
    Ok(())
}
