//! The event loop of one core: accepts connections, echoes packets, and closes silent connections.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use corewheel::{Config, Core, Cores, TimerHandle, local_timer};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Registry, Token, Waker};

use crate::common::server::{self, Server};
use crate::connections::Connections;

/// The tokens of a loop's own listener and waker. The tokens of the loop's connections count from
/// zero.
const LISTENER: Token = Token(usize::MAX);
const WAKER: Token = Token(usize::MAX - 1);
/// More events than connections, so that after a pause one poll returns all received packets,
/// before the turn closes silent connections.
const EVENT_CAPACITY: usize = 32_768;

/// Each connection's idle timer, by the address of its client: any thread may cancel the timer.
pub(crate) type IdleTimers = Mutex<HashMap<SocketAddr, TimerHandle>>;

/// Starts a loop on each core. Each loop returns the number of packets that did not reset the idle
/// timer of their connection, because the timer had been cancelled.
pub(crate) fn start(
    cores: usize,
    idle: Duration,
    idle_timers: Arc<IdleTimers>,
) -> io::Result<Server<u64>> {
    let (address, listeners) = server::open_listeners(0, cores)?;
    // Creates the polls before the threads, because the configuration of each wheel needs the waker
    // of a poll.
    let (mut wakers, mut endpoints) = (Vec::new(), Vec::new());
    for listener in listeners {
        let (mut listener, poll) = (TcpListener::from_std(listener), Poll::new()?);
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        wakers.push(Arc::new(Waker::new(poll.registry(), WAKER)?));
        endpoints.push((poll, listener));
    }
    let config = move |core: usize| {
        let waker = Arc::clone(&wakers[core]);
        Config::new().wake_hook(move || waker.wake().expect("the poll lives as long as its core"))
    };
    let cores = Cores::builder().config(config);
    Server::start(cores, address, endpoints, move |core, (poll, listener)| {
        run(core, poll, &listener, idle, &idle_timers)
    })
}

fn run(
    core: &Core,
    mut poll: Poll,
    listener: &TcpListener,
    idle: Duration,
    idle_timers: &IdleTimers,
) -> io::Result<u64> {
    // Dropping the stream closes the connection.
    let connections = Connections::new(idle, |_stream, _silent_for| ());
    let mut events = Events::with_capacity(EVENT_CAPACITY);
    let mut resets_refused = 0;
    while !core.is_stopping() {
        local_timer().sleep_with(|timeout| match poll.poll(&mut events, timeout) {
            // A signal also ends a poll, which is no error.
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            polled => polled,
        })?;
        for event in &events {
            match event.token() {
                LISTENER => accept_all(listener, poll.registry(), &connections, idle_timers)?,
                WAKER => {}
                Token(key) => match connections.with_socket(key, echo) {
                    Some(Ok(true)) => resets_refused += u64::from(!connections.on_packet(key)),
                    Some(Err(_)) => drop(connections.close(key)),
                    Some(Ok(false)) | None => {}
                },
            }
        }
        local_timer().turn();
    }
    Ok(resets_refused)
}

fn accept_all(
    listener: &TcpListener,
    registry: &Registry,
    connections: &Connections<TcpStream>,
    idle_timers: &IdleTimers,
) -> io::Result<()> {
    loop {
        let (stream, client) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock => return Ok(()),
                // A signal, or the connection ended before it was accepted.
                ErrorKind::Interrupted | ErrorKind::ConnectionAborted => continue,
                _ => return Err(error),
            },
        };
        let key = connections.accept(stream);
        let register = |stream: &mut _| registry.register(stream, Token(key), Interest::READABLE);
        connections.with_socket(key, register).transpose()?;
        if let Some(handle) = connections.idle_timer(key) {
            idle_timers.lock().expect("no holder panics").insert(client, handle);
        }
    }
}

/// Echoes all received data. Returns true if any data has arrived; an error ends the connection.
fn echo(stream: &mut TcpStream) -> io::Result<bool> {
    let mut buffer = [0; 1_024];
    let mut has_arrived = false;
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(length) => stream.write_all(&buffer[..length])?,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(has_arrived),
            Err(error) => return Err(error),
        }
        has_arrived = true;
    }
}
