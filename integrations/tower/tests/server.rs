//! The timeout layer around a service of an HTTP server on tokio's runtimes.

use std::{
    convert::Infallible,
    error::Error,
    future, io,
    net::{Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use corewheel::{future::Timers, local_timer};
use corewheel_tokio::time;
use corewheel_tower::{BoxError, TimeoutError, TimeoutLayer};
use http_body_util::Empty;
use hyper::{Request, Response, StatusCode, body::Bytes, body::Incoming, server::conn::http1};
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

const TIMEOUT: Duration = Duration::from_millis(150);

type Answer = Result<Response<Empty<Bytes>>, BoxError>;

/// Answers as the path says: at once, after a third of the timeout, never, or with an error.
async fn handle(request: Request<Incoming>) -> Answer {
    match request.uri().path() {
        "/slow" => time::sleep(TIMEOUT / 3).await,
        "/never" => future::pending().await,
        "/error" => return Err("broken".into()),
        _ => (),
    }
    Ok(Response::new(Empty::new()))
}

async fn status(answer: Answer) -> Answer {
    let status = match answer {
        Ok(answer) => return Ok(answer),
        Err(error) if error.is::<TimeoutError>() => StatusCode::GATEWAY_TIMEOUT,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let mut answer = Response::new(Empty::new());
    *answer.status_mut() = status;
    Ok(answer)
}

async fn serve(listener: TcpListener, layer: TimeoutLayer) {
    let (stream, _) = listener.accept().await.expect("a client");
    let service = ServiceBuilder::new().then(status).layer(layer).service_fn(handle);
    let service = TowerToHyperService::new(service);
    http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.expect("served");
}

async fn ask(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

async fn times_requests_out(timers: Timers) {
    for (path, status) in [("/", 200), ("/slow", 200), ("/never", 504), ("/error", 500)] {
        let layer = TimeoutLayer::new(timers.clone(), TIMEOUT);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("bound");
        let address = listener.local_addr().expect("bound");
        let start = Instant::now();
        let ((), answer) = tokio::join!(serve(listener, layer), ask(address, path));
        let answer = answer.expect("an answer");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{path}: {answer}");
        assert!(status != 504 || start.elapsed() >= TIMEOUT, "early");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_time_out_in_a_multi_thread_runtime() {
    let timers = time::timers();
    times_requests_out(timers.clone()).await;
    // Two timers fire: the sleep of `/slow`, and the timeout of `/never`. A shard publishes its
    // counts after the turn that woke this task.
    let fired = || timers.shards().iter().map(|shard| shard.metrics().counts.fired).sum::<u64>();
    while fired() < 2 {
        tokio::task::yield_now().await;
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
#[test]
fn requests_time_out_on_the_wheel_of_a_core() {
    let test = || {
        corewheel_tokio::run(async {
            times_requests_out(time::timers()).await;
            // Two timers fired: the sleep of `/slow`, and the timeout of `/never`.
            assert_eq!(local_timer().counts().fired, 2);
        })
        .expect("a runtime");
    };
    std::thread::spawn(test).join().expect("no panic");
}

#[tokio::test]
async fn errors_and_readiness_of_the_service_pass_through() {
    let timers = Timers::start(1).expect("a thread");
    let layer = TimeoutLayer::new(timers.clone(), TIMEOUT);
    let mut service = layer.layer(service_fn(|answer: Result<u32, io::Error>| async { answer }));
    let broken = io::Error::other("broken");
    let ready = ServiceExt::<Result<u32, io::Error>>::ready(&mut service).await.expect("ready");
    let error: Box<dyn Error> = ready.call(Err(broken)).await.expect_err("broken");
    assert!(error.is::<io::Error>());
    assert_eq!(service.into_inner().oneshot(Ok(7)).await.expect("an answer"), 7);
    assert_eq!(timers.shards()[0].metrics().counts.added, 0, "ready at the first poll");

    let refused = tower::util::service_fn(|()| future::ready(Ok::<_, Infallible>(())));
    assert!(layer.layer(refused).oneshot(()).await.is_ok());
}
