//! Two endpoints over the loopback device, with corewheel's timers.

#[path = "../examples/common/mod.rs"]
mod common;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use corewheel::{Cores, future::Timers};
use corewheel_quinn::Runtime;
#[cfg(any(target_os = "linux", target_os = "android"))]
use corewheel_tokio::time;
use quinn::ConnectionError;

const IDLE: Duration = Duration::from_millis(300);

/// The runtime has no tokio timer, so quinn can only use corewheel.
#[test]
fn a_connection_echoes_and_then_times_out() {
    let mut tokio = tokio::runtime::Builder::new_multi_thread();
    let tokio = tokio.worker_threads(2).enable_io().build().expect("a runtime");
    let timers = Timers::start(1).expect("a thread");
    let runtime: Arc<dyn quinn::Runtime> = Arc::new(Runtime::new(timers.clone()));
    tokio.block_on(async {
        let (server, client) = common::endpoints(&runtime, IDLE);
        let address = server.local_addr().expect("bound");
        let serving = tokio::spawn(common::serve(server, 1));
        let connection =
            client.connect(address, common::SERVER_NAME).expect("valid").await.expect("connected");
        for round in 0..20_u8 {
            assert_eq!(common::ask(&connection, &[round]).await, [round]);
        }
        let silent = Instant::now();
        assert_eq!(connection.closed().await, ConnectionError::TimedOut);
        assert!(silent.elapsed() >= IDLE / 2, "early: {:?}", silent.elapsed());
        serving.await.expect("no panic");
    });
    let counts = timers.shards()[0].metrics().counts;
    assert!(counts.added > 2 && counts.fired > 0, "{counts:?}");
}

#[test]
fn a_connection_without_a_timer_continues() {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let cores = Cores::builder().threads(1).start(|core| core.run_timers()).expect("a thread");
    let runtime: Arc<dyn quinn::Runtime> = Arc::new(Runtime::new(Timers::new(cores.shards())));
    tokio.expect("a runtime").block_on(async {
        let (server, client) = common::endpoints(&runtime, IDLE);
        let address = server.local_addr().expect("bound");
        tokio::spawn(common::serve(server, 1));
        let connection =
            client.connect(address, common::SERVER_NAME).expect("valid").await.expect("connected");
        assert_eq!(common::ask(&connection, b"before").await, b"before");
        cores.stop();
        assert!(cores.join().iter().all(Result::is_ok));
        assert_eq!(common::ask(&connection, b"after").await, b"after");
    });
}

/// An uncaught panic would abort the process.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[test]
fn a_connection_without_a_driver_continues() {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let tokio = tokio.expect("a runtime");
    let driven = corewheel_tokio::run_in(&tokio, async {
        let runtime: Arc<dyn quinn::Runtime> = Arc::new(Runtime::new(time::timers()));
        common::endpoints(&runtime, IDLE)
    });
    let (server, client) = driven.expect("a descriptor");
    tokio.block_on(async {
        let address = server.local_addr().expect("bound");
        tokio::spawn(common::serve(server, 1));
        let connection =
            client.connect(address, common::SERVER_NAME).expect("valid").await.expect("connected");
        assert_eq!(common::ask(&connection, b"undriven").await, b"undriven");
    });
}
