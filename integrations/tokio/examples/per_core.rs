//! An echo server with one current-thread runtime per core. Every connection has an idle timeout on
//! its core's wheel. The example also runs the clients:
//!
//! ```sh
//! cargo run --release -p corewheel-tokio --example per_core
//! ```

use std::{io, net, rc::Rc, sync::Mutex, time::Duration, time::Instant};

use corewheel::{Cores, local_timer};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
    task,
};

const CORES: usize = 2;
const IDLE: Duration = Duration::from_millis(500);

/// Echoes until the client disconnects or is silent for [`IDLE`].
async fn serve(mut stream: TcpStream) -> io::Result<()> {
    let silent = Rc::new(Notify::new());
    let alarm = Rc::clone(&silent);
    let idle = local_timer().add(IDLE, move || alarm.notify_one()).guard();
    let mut buffer = [0; 1_024];
    loop {
        let length = tokio::select! {
            length = stream.read(&mut buffer) => length?,
            () = silent.notified() => 0,
        };
        if length == 0 || !idle.handle().reset(IDLE) {
            return Ok(());
        }
        stream.write_all(&buffer[..length]).await?;
    }
}

/// Serves `connections` connections on one core. Returns the number of timers that fired.
async fn serve_clients(listener: net::TcpListener, connections: usize) -> io::Result<u64> {
    let listener = TcpListener::from_std(listener)?;
    let mut serving = task::JoinSet::new();
    for _ in 0..connections {
        serving.spawn_local(serve(listener.accept().await?.0));
    }
    while let Some(served) = serving.join_next().await {
        served.expect("no panic")?;
    }
    Ok(local_timer().counts().fired)
}

/// Sends `packets` packets. Returns the time from the last packet until the server disconnects.
fn send_then_await_close(address: net::SocketAddr, packets: u32) -> io::Result<Duration> {
    use io::{Read, Write};
    // Read before `connect`, because the server's idle timeout can begin before `connect` returns.
    let mut last_sent = Instant::now();
    let (mut stream, mut buffer) = (net::TcpStream::connect(address)?, [0; 16]);
    for _ in 0..packets {
        std::thread::sleep(IDLE / 10);
        last_sent = Instant::now();
        stream.write_all(b"still here")?;
        assert!(stream.read(&mut buffer)? > 0, "disconnected an active client");
    }
    assert_eq!(stream.read(&mut buffer)?, 0, "the server disconnects");
    Ok(last_sent.elapsed())
}

fn main() -> io::Result<()> {
    let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
    for _ in 0..CORES {
        let listener = net::TcpListener::bind((net::Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        addresses.push(listener.local_addr()?);
        listeners.push(listener);
    }
    let cores = Cores::builder().start_with(listeners, |_, listener| {
        corewheel_tokio::run(serve_clients(listener, 2)).and_then(|served| served)
    })?;

    let silences = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for (address, packets) in
            addresses.into_iter().flat_map(|address| [(address, 0), (address, 8)])
        {
            let silences = &silences;
            scope.spawn(move || {
                let silence = send_then_await_close(address, packets).expect("the server serves");
                silences.lock().expect("no panic").push(silence);
            });
        }
    });
    let fired: Vec<u64> =
        cores.join().into_iter().map(|core| core.expect("no panic")).collect::<io::Result<_>>()?;
    let silences = silences.into_inner().expect("no panic");
    println!("disconnected after a silence of {silences:?}; timers fired on each core: {fired:?}");
    assert!(silences.iter().all(|&silence| silence >= IDLE), "never early");
    assert_eq!(fired, [2; CORES], "one timer per connection");
    Ok(())
}
