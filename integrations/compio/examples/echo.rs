//! An echo server on compio, over io_uring or a poller. Every connection has an idle timeout, and
//! the server closes the connections of silent clients. The example also runs the clients:
//!
//! ```sh
//! cargo run --release -p corewheel-compio --example echo
//! ```

use std::{
    io, net, thread,
    time::{Duration, Instant},
};

use compio::{
    BufResult,
    io::{AsyncRead, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::Runtime,
};
use corewheel::local_timer;
use futures::{FutureExt, channel::oneshot, future::try_join_all, select};

const PACKETS_PER_CLIENT: [u32; 3] = [0, 4, 8];
const IDLE: Duration = Duration::from_millis(500);

/// Echoes until the client disconnects or is silent for [`IDLE`].
async fn serve(mut stream: TcpStream) -> io::Result<()> {
    let (alarm, mut silent) = oneshot::channel();
    let idle = local_timer().add(IDLE, move || _ = alarm.send(())).guard();
    let mut buffer = Vec::with_capacity(1_024);
    loop {
        buffer.clear();
        let BufResult(length, read) = select! {
            read = stream.read(buffer).fuse() => read,
            _ = silent => return Ok(()),
        };
        if length? == 0 || !idle.handle().reset(IDLE) {
            return Ok(());
        }
        let BufResult(written, back) = stream.write_all(read).await;
        written?;
        buffer = back;
    }
}

/// Serves each client once. Returns the number of timers that fired.
async fn serve_clients(listener: net::TcpListener) -> io::Result<u64> {
    println!("compio waits with {:?}", Runtime::with_current(Runtime::driver_type));
    let listener = TcpListener::from_std(listener)?;
    let mut serving = Vec::new();
    for _ in PACKETS_PER_CLIENT {
        let (stream, _) = listener.accept().await?;
        serving.push(compio::runtime::spawn(serve(stream)).map(|served| served.expect("no panic")));
    }
    try_join_all(serving).await?;
    Ok(local_timer().counts().fired)
}

/// Sends `packets` packets. Returns the time from the last packet until the server disconnects.
fn send_then_await_close(address: net::SocketAddr, packets: u32) -> io::Result<Duration> {
    use io::{Read, Write};
    // Read before `connect`, because the server's idle timeout can begin before `connect` returns.
    let mut last_sent = Instant::now();
    let (mut stream, mut buffer) = (net::TcpStream::connect(address)?, [0; 16]);
    for _ in 0..packets {
        thread::sleep(IDLE / 10);
        last_sent = Instant::now();
        stream.write_all(b"still here")?;
        assert!(stream.read(&mut buffer)? > 0, "disconnected an active client");
    }
    assert_eq!(stream.read(&mut buffer)?, 0, "the server disconnects");
    Ok(last_sent.elapsed())
}

fn main() -> io::Result<()> {
    let listener = net::TcpListener::bind((net::Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let server = thread::spawn(move || corewheel_compio::run(serve_clients(listener))?);
    let clients = PACKETS_PER_CLIENT
        .map(|packets| thread::spawn(move || send_then_await_close(address, packets)));
    for client in clients {
        let silence = client.join().expect("no panic")?;
        println!("disconnected after a silence of {silence:?}");
        assert!(silence >= IDLE, "never early");
    }
    let fired = server.join().expect("no panic")?;
    assert_eq!(fired, PACKETS_PER_CLIENT.len() as u64, "one timer per connection");
    Ok(())
}
