//! The event loop of one core. It accepts connections, echoes their packets, and closes the silent
//! ones.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use corewheel::{Core, TimerHandle, local_timer};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Registry, Token};

use crate::common::server::{self, Endpoint, LISTENER, WAKER};
use crate::connections::Connections;

/// More events than connections: after a pause, one poll must return all received packets, before
/// the turn closes silent connections.
const EVENTS: usize = 32_768;

/// The idle timer of each connection by the address of its client: any thread may cancel it.
pub(crate) type IdleTimers = Mutex<HashMap<SocketAddr, TimerHandle>>;

/// Serves until the core is asked to stop. Returns the number of packets that did not reset the
/// idle timer of their connection, because it had been cancelled.
pub(crate) fn run(
    core: &Core,
    (mut poll, listener): Endpoint,
    idle: Duration,
    idle_timers: &IdleTimers,
) -> io::Result<u64> {
    // Dropping the stream closes the connection.
    let connections = Connections::new(idle, |_stream, _silent_for| ());
    let mut events = Events::with_capacity(EVENTS);
    let mut resets_refused = 0;
    while !core.is_stopping() {
        local_timer().sleep_with(|timeout| server::poll(&mut poll, &mut events, timeout))?;
        for event in &events {
            match event.token() {
                LISTENER => accept_all(&listener, poll.registry(), &connections, idle_timers)?,
                WAKER => {}
                Token(key) => match connections.with(key, echo) {
                    Some(Ok(true)) => resets_refused += u64::from(!connections.packet(key)),
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
    while let Some((stream, client)) = server::accept(listener)? {
        let key = connections.accept(stream);
        let register = |stream: &mut _| registry.register(stream, Token(key), Interest::READABLE);
        connections.with(key, register).transpose()?;
        if let Some(handle) = connections.idle_timer(key) {
            idle_timers.lock().expect("no holder panics").insert(client, handle);
        }
    }
    Ok(())
}

/// Echoes all received data. Returns true if there was any, and an error if the connection has
/// ended.
fn echo(stream: &mut TcpStream) -> io::Result<bool> {
    let mut buffer = [0; 1_024];
    let mut has_arrived = false;
    while let Some(length) = server::receive(stream, &mut buffer)? {
        server::send(stream, &buffer[..length])?;
        has_arrived = true;
    }
    Ok(has_arrived)
}
