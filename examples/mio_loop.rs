//! A plain mio loop with corewheel, which keeps a table of online clients. Each packet of a client
//! renews the client's lease. When a lease ends, its client is offline. A second thread requests
//! the number of the loop's timers.
//!
//! The program also runs the clients, and checks the results:
//!
//! ```sh
//! cargo run --release --example mio_loop
//! ```

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use corewheel::{Config, ShardRef, TimerHandle, local_timer};
use mio::net::UdpSocket;
use mio::{Events, Interest, Poll, Token, Waker};

const SOCKET: Token = Token(0);
const WAKER: Token = Token(1);
const LEASE: Duration = Duration::from_millis(500);

/// The clients that are online, each with the timer that ends its lease.
#[derive(Clone, Default)]
struct Online(Rc<RefCell<BTreeMap<u8, TimerHandle>>>);

/// Sends the number of a silent client, and the time at which its lease ended.
type OfflineSender = mpsc::Sender<(u8, Instant)>;

impl Online {
    fn renew_lease(&self, client: u8, offline: &OfflineSender) {
        let renewed = self.0.borrow().get(&client).is_some_and(|lease| lease.reset(LEASE));
        if !renewed {
            let (online, offline) = (self.clone(), offline.clone());
            let lease = local_timer().add(LEASE, move || online.end_lease(client, &offline));
            self.0.borrow_mut().insert(client, lease);
        }
    }

    fn end_lease(&self, client: u8, offline: &OfflineSender) {
        self.0.borrow_mut().remove(&client);
        // Fails if the receiver has ended.
        let _ = offline.send((client, Instant::now()));
    }
}

/// Runs the loop until two callbacks have fired: the first end of a lease, and the other thread's
/// closure.
fn serve(mut poll: Poll, socket: &UdpSocket, offline: &OfflineSender) -> io::Result<()> {
    let (mut events, online) = (Events::with_capacity(64), Online::default());
    while local_timer().counts().fired < 2 {
        match local_timer().sleep_with(|timeout| poll.poll(&mut events, timeout)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
            _ => (), // a signal also ends a poll
        }
        if events.iter().any(|event| event.token() == SOCKET) {
            let mut packet = [0];
            while socket.recv(&mut packet).is_ok() {
                online.renew_lease(packet[0], offline);
            }
        }
        local_timer().turn();
    }
    Ok(())
}

/// Starts the loop's thread, whose wake hook ends a poll through mio's waker.
fn start(offline: OfflineSender) -> io::Result<(SocketAddr, ShardRef, JoinHandle<io::Result<()>>)> {
    let poll = Poll::new()?;
    let waker = Waker::new(poll.registry(), WAKER)?;
    let mut socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0).into())?;
    poll.registry().register(&mut socket, SOCKET, Interest::READABLE)?;
    let (address, (ready, shard)) = (socket.local_addr()?, mpsc::channel());
    let server = thread::spawn(move || {
        let config = Config::new().wake_hook(move || waker.wake().expect("the poll is alive"));
        config.install().expect("this thread has no wheel yet");
        ready.send(local_timer().shard_ref()).expect("the main thread waits for it");
        serve(poll, &socket, &offline)
    });
    Ok((address, shard.recv().expect("the thread sends it"), server))
}

fn main() -> io::Result<()> {
    let (offline, seen_offline) = mpsc::channel();
    let (address, shard, server) = start(offline)?;
    let client = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;

    // Client 1 sends one packet. Client 2 sends packets until the loop has reported client 1.
    let last_sent_at = Instant::now();
    client.send_to(&[1], address)?;
    let (silent, lease_end) = loop {
        client.send_to(&[2], address)?;
        if let Ok(silent) = seen_offline.recv_timeout(LEASE / 10) {
            break silent;
        }
    };
    // The closure that this thread submits runs in the loop's next turn.
    let (answer, answers) = mpsc::channel();
    let request_sent_at = Instant::now();
    shard.run(move || answer.send(local_timer().len()).expect("main waits for it"));
    let live = answers.recv().expect("the loop answers");

    let silence = lease_end - last_sent_at;
    println!(
        "client {silent} is offline after {silence:?}; {live} timer live; answer after {:?}",
        request_sent_at.elapsed()
    );
    assert_eq!((silent, live), (1, 1), "only client 1 is offline");
    assert!(silence >= LEASE, "a lease ended early");
    server.join().expect("no panic")
}
