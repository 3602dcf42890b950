//! An HTTP server on a current-thread runtime, with a timeout for request headers. The example also
//! runs the clients. Clients that send their request byte by byte time out:
//!
//! ```sh
//! cargo run --release -p corewheel-hyper --example slow_clients
//! ```

use std::{
    convert::Infallible,
    io::{self, Read, Write},
    net, thread,
    time::{Duration, Instant},
};

use corewheel::local_timer;
use corewheel_hyper::Timer;
use http_body_util::Full;
use hyper::{Response, body::Bytes, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, task::JoinSet};

const CLIENTS: u64 = 40;
const HEADER_TIMEOUT: Duration = Duration::from_millis(300);

/// Serves all clients. Returns the number of timers that fired.
async fn serve(listener: net::TcpListener) -> io::Result<u64> {
    let listener = TcpListener::from_std(listener)?;
    let timer = Timer::new(corewheel_tokio::time::timers());
    let mut serving = JoinSet::new();
    for _ in 0..CLIENTS {
        let (stream, _) = listener.accept().await?;
        let hello = service_fn(|_| async {
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"hello"))))
        });
        let mut server = http1::Builder::new();
        server.timer(timer.clone()).header_read_timeout(HEADER_TIMEOUT);
        serving.spawn_local(server.serve_connection(TokioIo::new(stream), hello));
    }
    while let Some(served) = serving.join_next().await {
        // Errors are expected here: timeouts and closed connections.
        let _ = served.expect("no panic");
    }
    Ok(local_timer().counts().fired)
}

/// Sends a request, all at once or byte by byte. Returns whether the server answered, and the
/// lifetime of the connection.
fn ask(address: net::SocketAddr, is_slow: bool) -> io::Result<(bool, Duration)> {
    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let start = Instant::now();
    let mut stream = net::TcpStream::connect(address)?;
    if is_slow {
        for byte in REQUEST {
            thread::sleep(HEADER_TIMEOUT / 10);
            if stream.write_all(&[*byte]).is_err() {
                break;
            }
        }
    } else {
        stream.write_all(REQUEST)?;
    }
    let mut answer = String::new();
    let is_answered = stream.read_to_string(&mut answer).is_ok() && answer.ends_with("hello");
    Ok((is_answered, start.elapsed()))
}

fn main() -> io::Result<()> {
    let listener = net::TcpListener::bind((net::Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let server = thread::spawn(|| corewheel_tokio::run(serve(listener)));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let is_slow = client.is_multiple_of(2);
            thread::spawn(move || (is_slow, ask(address, is_slow)))
        })
        .collect();
    let (mut answered, mut timed_out) = (0, 0);
    for client in clients {
        let (is_slow, asked) = client.join().expect("no panic");
        let (is_answered, lifetime) = asked?;
        assert_eq!(is_answered, !is_slow, "only slow clients time out");
        assert!(!is_slow || lifetime >= HEADER_TIMEOUT, "never early");
        *if is_answered { &mut answered } else { &mut timed_out } += 1;
    }
    let fired = server.join().expect("no panic")??;
    println!("{answered} answered, {timed_out} timed out; {fired} timers fired");
    assert_eq!(fired, CLIENTS / 2, "one per slow client");
    Ok(())
}
