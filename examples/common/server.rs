//! A server with one event loop per core. Each loop has a listener on the same port, and the kernel
//! distributes the connections among them.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{self, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use corewheel::{Config, Core, Cores, CoresBuilder, Counts, local_timer};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use socket2::{Domain, Protocol, Socket, Type};

use super::verdict::{Failures, Timers};

/// The tokens of a loop's own listener and waker. The tokens of its connections count from zero.
pub(crate) const LISTENER: Token = Token(usize::MAX);
pub(crate) const WAKER: Token = Token(usize::MAX - 1);

/// The length of the listen queue. It exceeds the number of connections that arrive while a core is
/// busy.
const BACKLOG: i32 = 4_096;
/// File descriptors of one loop: listener, waker, poll, and a duplicate of the poll.
const FILES_PER_CORE: usize = 4;
/// File descriptors of the process besides connections and loops.
const OTHER_FILES: usize = 64;

/// The poll and the listener of a loop. They are created before the thread starts, because the
/// wheel's configuration needs the waker.
pub(crate) type Endpoint = (Poll, TcpListener);

/// The running event loops. Each returns an `R` when it ends.
pub(crate) struct Server<R> {
    cores: Cores<io::Result<(R, Counts)>>,
    pub(crate) address: SocketAddr,
}

impl<R: Send + 'static> Server<R> {
    /// Starts `run` on each core. The server listens on this port of the loopback interface; 0
    /// chooses a free port.
    pub(crate) fn start(
        port: u16,
        cores: usize,
        run: impl Fn(&Core, Endpoint) -> io::Result<R> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let (mut wakers, mut endpoints) = (Vec::new(), Vec::new());
        let listeners = listeners(port, cores)?;
        let address = listeners[0].local_addr()?;
        for listener in listeners {
            let mut listener = TcpListener::from_std(listener);
            let poll = Poll::new()?;
            poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
            wakers.push(Arc::new(Waker::new(poll.registry(), WAKER)?));
            endpoints.push((poll, listener));
        }
        let config = move |index: usize| {
            let waker = Arc::clone(&wakers[index]);
            Config::new().on_wake(move || waker.wake().expect("the poll lives as long as its core"))
        };
        Self::launch(Cores::builder().config(config), address, endpoints, run)
    }

    /// Starts `run` on each core, with an endpoint of the server at this address.
    pub(crate) fn launch<E: Send + 'static>(
        cores: CoresBuilder,
        address: SocketAddr,
        endpoints: Vec<E>,
        run: impl Fn(&Core, E) -> io::Result<R> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let run = move |core: Core, endpoint| Ok((run(&core, endpoint)?, local_timer().counts()));
        Ok(Self { cores: cores.start_with(endpoints, run)?, address })
    }

    /// Asks the loops to end and waits for them.
    pub(crate) fn stop(self, failures: &mut Failures) -> (Vec<R>, Timers) {
        self.cores.stop();
        self.join(failures)
    }

    /// Waits for the loops. Returns their results and the counts of their timers.
    pub(crate) fn join(self, failures: &mut Failures) -> (Vec<R>, Timers) {
        let (mut reports, mut timers) = (Vec::new(), Timers::default());
        for (core, end) in self.cores.join().into_iter().enumerate() {
            match end {
                Ok(Ok((report, counts))) => {
                    reports.push(report);
                    timers.add(core, &counts, failures);
                }
                Ok(Err(error)) => failures.push(format!("core {core} failed: {error}")),
                Err(_) => failures.push(format!("core {core} panicked")),
            }
        }
        (reports, timers)
    }
}

/// Opens a listener for each core.
pub(crate) fn listeners(port: u16, cores: usize) -> io::Result<Vec<net::TcpListener>> {
    let mut address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let listen = |_| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_port(true)?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        let listener = net::TcpListener::from(socket);
        // The first listener finds a free port, which the others share.
        address = listener.local_addr()?;
        Ok(listener)
    };
    (0..cores).map(listen).collect()
}

/// Raises the limit of open files to what these sockets need.
pub(crate) fn reserve_files(sockets: usize, cores: usize) -> io::Result<()> {
    let needed = (sockets + cores * FILES_PER_CORE + OTHER_FILES) as u64;
    let limit = rlimit::increase_nofile_limit(needed)?;
    if limit >= needed {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "{needed} open files are needed, but the limit is {limit}: ask for fewer connections, or \
         raise the limit as root: ulimit -Hn {needed}"
    )))
}

/// Polls for events. Ignores an interruption by a signal.
pub(crate) fn poll(
    poll: &mut Poll,
    events: &mut Events,
    timeout: Option<Duration>,
) -> io::Result<()> {
    match poll.poll(events, timeout) {
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
        polled => polled,
    }
}

/// Accepts a queued connection, if there is one. Skips connections that ended before they were
/// accepted.
pub(crate) fn accept(listener: &TcpListener) -> io::Result<Option<(TcpStream, SocketAddr)>> {
    loop {
        return match listener.accept() {
            Ok(accepted) => Ok(Some(accepted)),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock => Ok(None),
                ErrorKind::Interrupted | ErrorKind::ConnectionAborted => continue,
                _ => Err(error),
            },
        };
    }
}

/// Reads the received data. Returns `None` if there is none, and an error if the connection has
/// ended.
pub(crate) fn receive(stream: &mut impl Read, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    match stream.read(buffer) {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Ok(length) => Ok(Some(length)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Sends a small message completely, or fails. A full send buffer means that the peer has stopped
/// reading.
pub(crate) fn send(stream: &mut impl Write, message: &[u8]) -> io::Result<()> {
    let sent = stream.write(message)?;
    if sent == message.len() { Ok(()) } else { Err(ErrorKind::WriteZero.into()) }
}
