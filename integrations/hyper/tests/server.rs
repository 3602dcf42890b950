//! hyper's server with corewheel's timer, on tokio's runtimes.

use std::{
    convert::Infallible,
    io,
    net::{Ipv4Addr, SocketAddr},
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use corewheel::{Config, ManualClock, future::Timers, local_timer};
use corewheel_hyper::Timer;
use http_body_util::Full;
use hyper::{Response, body::Bytes, rt::Timer as _, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

const HEADER_TIMEOUT: Duration = Duration::from_millis(150);

/// Serves one connection, whose headers must arrive within [`HEADER_TIMEOUT`].
async fn serve(listener: TcpListener, timer: Timer) -> Result<(), hyper::Error> {
    let (stream, _) = listener.accept().await.expect("a client");
    let hello = service_fn(|_| async {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"hello"))))
    });
    let mut server = http1::Builder::new();
    server.timer(timer).header_read_timeout(HEADER_TIMEOUT);
    server.serve_connection(TokioIo::new(stream), hello).await
}

/// Sends `request`. Returns the received text and the lifetime of the connection.
async fn ask(address: SocketAddr, request: &str) -> io::Result<(String, Duration)> {
    let mut stream = TcpStream::connect(address).await?;
    let start = Instant::now();
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok((String::from_utf8(answer).expect("text"), start.elapsed()))
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("bound");
    let address = listener.local_addr().expect("bound");
    (listener, address)
}

async fn times_slow_headers_out(timer: Timer) {
    let (listener, address) = listen().await;
    let request = "GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n";
    let (served, asked) = tokio::join!(serve(listener, timer.clone()), ask(address, request));
    served.expect("in time");
    assert!(asked.expect("an answer").0.ends_with("hello"));

    let (listener, address) = listen().await;
    let half = "GET / HTTP/1.1\r\nHost: he";
    let (served, asked) = tokio::join!(serve(listener, timer), ask(address, half));
    assert!(served.expect_err("half a request").is_timeout());
    assert!(asked.expect("a closed connection").1 >= HEADER_TIMEOUT, "early");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_headers_time_out_in_a_multi_thread_runtime() {
    let timers = Timers::start(1).expect("a thread");
    times_slow_headers_out(Timer::new(timers.clone())).await;
    // The shard publishes its counts after the turn that woke this task.
    while timers.shards()[0].metrics().counts.fired == 0 {
        tokio::task::yield_now().await;
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
#[test]
fn slow_headers_time_out_on_the_wheel_of_a_core() {
    let test = || {
        corewheel_tokio::run(async {
            let fired = local_timer().counts().fired;
            times_slow_headers_out(Timer::new(corewheel_tokio::time::timers())).await;
            assert_eq!(local_timer().counts().fired, fired + 1);
        })
        .expect("a runtime");
    };
    std::thread::spawn(test).join().expect("no panic");
}

#[test]
fn reset_moves_own_sleeps_and_replaces_foreign_ones() {
    struct OtherSleep;
    impl Future for OtherSleep {
        type Output = ();
        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            Poll::Pending
        }
    }
    impl hyper::rt::Sleep for OtherSleep {}

    let clock = ManualClock::new();
    let timers = Timers::per_worker_with(1, |_| Config::new().clock(&clock));
    let (timers, _driver) = timers.expect("a valid config");
    let timer = Timer::new(timers);
    let start = timer.now();
    assert_eq!(start, clock.now());
    let mut cx = Context::from_waker(Waker::noop());
    let mut sleep = timer.sleep(Duration::from_secs(10));
    timer.reset(&mut sleep, start + Duration::from_secs(30));
    let mut replaced: Pin<Box<dyn hyper::rt::Sleep>> = Box::pin(OtherSleep);
    timer.reset(&mut replaced, start + Duration::from_secs(20));
    clock.advance(Duration::from_secs(20));
    assert!(sleep.as_mut().poll(&mut cx).is_pending());
    assert!(replaced.as_mut().poll(&mut cx).is_ready());
    clock.advance(Duration::from_secs(10));
    let mut later = pin!(timer.sleep_until(clock.now()));
    assert!(later.as_mut().poll(&mut cx).is_ready());
    timer.reset(&mut sleep, clock.now());
}
