//! A server loop over `io_uring` that closes connections after an idle timeout. The example also
//! runs the clients:
//!
//! ```sh
//! cargo run --release -p corewheel-io-uring --example idle
//! ```

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    net::Shutdown,
    os::{fd::AsRawFd, unix::net::UnixStream},
    rc::Rc,
    thread,
    time::{Duration, Instant},
};

use corewheel::{Config, TimerHandle, local_timer};
use corewheel_io_uring::Driver;
use io_uring::{IoUring, cqueue, opcode, types::Fd};

const IDLE: Duration = Duration::from_millis(500);
/// `POLLIN`.
const READABLE: u32 = 1;

/// The server's end of a connection, and its idle timer.
struct Connection {
    stream: Rc<UnixStream>,
    idle: TimerHandle,
}

impl Connection {
    fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let stream = Rc::new(stream);
        let silent = Rc::clone(&stream);
        // After the shutdown, a read returns no data, and the loop drops the connection.
        let hang_up = move || silent.shutdown(Shutdown::Both).expect("a connected socket");
        Ok(Self { idle: local_timer().add(IDLE, hang_up), stream })
    }

    /// Queues a poll that completes with `number` when the connection is readable.
    #[allow(unsafe_code)]
    fn queue_poll(&self, number: u64, ring: &mut IoUring) {
        let poll =
            opcode::PollAdd::new(Fd(self.stream.as_raw_fd()), READABLE).build().user_data(number);
        // SAFETY: the entry refers to no memory.
        unsafe { ring.submission().push(&poll) }.expect("room for a poll per connection");
    }

    /// Reads the available bytes. Returns false if the connection has ended.
    fn read_available(&self) -> bool {
        let mut stream = &*self.stream;
        matches!(stream.read(&mut [0; 1_024]), Ok(1..)) && self.idle.reset(IDLE)
    }
}

/// Serves until all connections are closed.
fn serve(ring: &mut IoUring, driver: &mut Driver, streams: Vec<UnixStream>) -> io::Result<()> {
    let mut connections = BTreeMap::new();
    for (number, stream) in (0..).zip(streams) {
        let connection = Connection::new(stream)?;
        connection.queue_poll(number, ring);
        connections.insert(number, connection);
    }
    while !connections.is_empty() {
        driver.submit_and_wait(ring)?;
        let completions: Vec<_> = ring.completion().collect();
        for number in completions
            .iter()
            .filter(|done| !driver.process_completion(done))
            .map(cqueue::Entry::user_data)
        {
            if connections[&number].read_available() {
                connections[&number].queue_poll(number, ring);
            } else {
                connections.remove(&number);
            }
        }
        local_timer().turn();
    }
    Ok(())
}

/// Sends `packets` packets. Returns the time from the last packet until the server disconnects.
fn send_then_await_close(
    mut stream: &UnixStream,
    packets: u32,
    connected_at: Instant,
) -> io::Result<Duration> {
    let mut last_sent = connected_at;
    for _ in 0..packets {
        thread::sleep(IDLE / 10);
        last_sent = Instant::now();
        stream.write_all(b"still here")?;
    }
    assert_eq!(stream.read(&mut [0])?, 0, "the server disconnects");
    Ok(last_sent.elapsed())
}

fn main() -> io::Result<()> {
    let mut ring = match IoUring::new(64) {
        Err(error) if corewheel_io_uring::is_io_uring_unavailable(&error) => {
            println!("skipped: the kernel refuses io_uring: {error}");
            return Ok(());
        }
        ring => ring?,
    };
    let mut driver = Driver::install(Config::new())?;
    let (mut streams, mut clients) = (Vec::new(), Vec::new());
    for packets in [0, 4, 8] {
        let connected_at = Instant::now();
        let (stream, client) = UnixStream::pair()?;
        streams.push(stream);
        clients.push(thread::spawn(move || send_then_await_close(&client, packets, connected_at)));
    }
    serve(&mut ring, &mut driver, streams)?;
    for client in clients {
        let silence = client.join().expect("no panic")?;
        println!("disconnected after a silence of {silence:?}");
        assert!(silence >= IDLE, "never early");
    }
    assert_eq!(local_timer().counts().fired, 3, "one timer per connection");
    Ok(())
}
