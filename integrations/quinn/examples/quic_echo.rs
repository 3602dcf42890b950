//! Compares the processor time of QUIC connections under tokio's timer and under corewheel. The
//! argument is the number of connections, 100 by default.
//!
//! ```sh
//! cargo run --release -p corewheel-quinn --example quic_echo -- 2000
//! ```

mod common;

use std::{
    env, io,
    sync::Arc,
    time::{Duration, Instant},
};

use corewheel::future::Timers;
use corewheel_quinn::Runtime;
use cpu_time::ProcessTime;
use quinn::{ConnectionError, TokioRuntime};
use tokio::task::JoinSet;

const REQUESTS: u32 = 50;
const IDLE: Duration = Duration::from_secs(5);

/// Opens connections that send requests and then time out. Returns the processor time of the
/// requests.
async fn measure_cpu_time(runtime: Arc<dyn quinn::Runtime>, connections: usize) -> Duration {
    let (server, client) = common::endpoints(&runtime, IDLE);
    let address = server.local_addr().expect("bound");
    let serving = tokio::spawn(common::serve(server, connections));
    let mut connected = Vec::new();
    for _ in 0..connections {
        let connecting = client.connect(address, common::SERVER_NAME).expect("valid");
        connected.push(connecting.await.expect("connected"));
    }
    let start = ProcessTime::now();
    let mut asking = JoinSet::new();
    for connection in connected {
        asking.spawn(async move {
            for request in 0..REQUESTS {
                let request = request.to_le_bytes();
                assert_eq!(common::ask(&connection, &request).await, request);
            }
            connection
        });
    }
    let asked = asking.join_all().await;
    let cpu_time = start.elapsed();
    let silent = Instant::now();
    for connection in asked {
        assert_eq!(connection.closed().await, ConnectionError::TimedOut);
    }
    assert!(silent.elapsed() >= IDLE / 2, "connections ended early");
    serving.await.expect("no panic");
    cpu_time
}

fn main() -> io::Result<()> {
    let connections = env::args().nth(1).map_or(100, |number| number.parse().expect("a number"));
    let timers = Timers::per_worker()?;
    let tokio_timer: (_, Arc<dyn quinn::Runtime>) = ("tokio's timer", Arc::new(TokioRuntime));
    let corewheel: (_, Arc<dyn quinn::Runtime>) =
        ("corewheel", Arc::new(Runtime::new(timers.clone())));
    // The first run also pays for new memory, so each timer runs both before and after the other.
    let runs = [&tokio_timer, &corewheel, &corewheel, &tokio_timer];
    for (name, runtime) in runs {
        let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let cpu_time = tokio.block_on(measure_cpu_time(Arc::clone(runtime), connections));
        let requests = u32::try_from(connections).expect("fewer than 2^32") * REQUESTS;
        println!(
            "{name:<14} {connections} connections, {:?} of a processor per request",
            cpu_time / requests
        );
    }
    let fired: u64 = timers.shards().iter().map(|shard| shard.metrics().counts.fired).sum();
    println!("{fired} timers fired");
    assert!(fired > 0, "corewheel times connections out");
    Ok(())
}
