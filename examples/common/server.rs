//! A server with one event loop per core. Each loop has a listener on the same port, and the kernel
//! distributes the connections among them.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use corewheel::{Core, Cores, CoresBuilder, Counts, local_timer};
use socket2::{Domain, Protocol, Socket, Type};

use super::verdict::{Failures, TimerTotals};

/// The length of the listen queue: more than the connections that arrive while a core is busy.
const LISTEN_BACKLOG: i32 = 4_096;
/// The maximum number of file descriptors of a loop: listener, wakers, timer, poll, duplicates.
const FILES_PER_CORE: usize = 8;
/// The number of other file descriptors of the process.
const OTHER_FILE_COUNT: usize = 64;

/// The running event loops. Each loop returns an `R` when it ends.
pub(crate) struct Server<R> {
    cores: Cores<io::Result<(R, Counts)>>,
    pub(crate) address: SocketAddr,
}

impl<R: Send + 'static> Server<R> {
    /// Starts `run` on each core with one of the `endpoints`, which listen at `address`.
    pub(crate) fn start<E: Send + 'static>(
        cores: CoresBuilder,
        address: SocketAddr,
        endpoints: Vec<E>,
        run: impl Fn(&Core, E) -> io::Result<R> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let run = move |core: Core, endpoint| Ok((run(&core, endpoint)?, local_timer().counts()));
        Ok(Self { cores: cores.start_with(endpoints, run)?, address })
    }

    /// Asks the loops to end and waits for them.
    pub(crate) fn stop(self, failures: &mut Failures) -> (Vec<R>, TimerTotals) {
        self.cores.stop();
        self.join(failures)
    }

    /// Waits for the loops. Returns the results of the loops and the counts of the loops' timers.
    pub(crate) fn join(self, failures: &mut Failures) -> (Vec<R>, TimerTotals) {
        let (mut reports, mut timers) = (Vec::new(), TimerTotals::default());
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

/// Opens a listener for each core at a port of the loopback interface; 0 chooses a free port.
pub(crate) fn open_listeners(
    port: u16,
    cores: usize,
) -> io::Result<(SocketAddr, Vec<TcpListener>)> {
    let mut address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let listen = |_| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_port(true)?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(LISTEN_BACKLOG)?;
        let listener = TcpListener::from(socket);
        // The first listener finds a free port, which the others share.
        address = listener.local_addr()?;
        Ok(listener)
    };
    let listeners = (0..cores).map(listen).collect::<io::Result<_>>()?;
    Ok((address, listeners))
}

/// Raises the limit of open files to the number that these sockets and cores need.
pub(crate) fn raise_open_file_limit(sockets: usize, cores: usize) -> io::Result<()> {
    let needed = (sockets + cores * FILES_PER_CORE + OTHER_FILE_COUNT) as u64;
    let limit = rlimit::increase_nofile_limit(needed)?;
    if limit >= needed {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "{needed} open files are needed, but the limit is {limit}: use fewer connections, or raise \
         the limit as root: ulimit -Hn {needed}"
    )))
}
