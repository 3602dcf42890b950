//! Cores that each poll a listener of their own on the same port; the kernel deals the connections out.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZero;
use std::sync::Arc;
use std::thread;

use corewheel::{Config, Core, Cores};
use mio::net::TcpListener;
use mio::{Interest, Poll, Token, Waker};
use socket2::{Domain, Protocol, Socket, Type};

/// What a loop's own listener and waker are polled as; its connections begin at zero.
pub(crate) const LISTENER: Token = Token(usize::MAX);
pub(crate) const WAKER: Token = Token(usize::MAX - 1);

/// More than can queue up while a core is busy for a while.
const BACKLOG: i32 = 4_096;

/// What a core polls, prepared before it starts: its waker must be there when its timer is configured.
pub(crate) type Seat = (Poll, TcpListener);

/// Listeners of the loopback interface that no core has yet.
pub(crate) struct Listeners {
    listeners: Vec<TcpListener>,
    pub(crate) address: SocketAddr,
}

/// A loop per core, each with what it says at its end.
pub(crate) struct Seats<R> {
    cores: Cores<io::Result<R>>,
    pub(crate) address: SocketAddr,
}

impl Listeners {
    /// So many at this port; 0 is a free one.
    pub(crate) fn bind(port: u16, count: usize) -> io::Result<Self> {
        let mut address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listeners = (0..count).map(|_| {
            let listener = listen_at(address)?;
            // The others take the port that the first of them has found.
            address = listener.local_addr()?;
            Ok(listener)
        });
        let listeners = listeners.collect::<io::Result<_>>()?;
        Ok(Self { listeners, address })
    }

    /// Starts `run` on as many cores.
    pub(crate) fn start<R: Send + 'static>(
        self,
        run: impl Fn(Core, Seat) -> io::Result<R> + Send + Sync + 'static,
    ) -> io::Result<Seats<R>> {
        let (wakers, seats): (Vec<_>, Vec<_>) = prepare(self.listeners)?.into_iter().unzip();
        let cores = Cores::builder()
            .config(move |index| wake_through(&wakers[index]))
            .start_with(seats, run)?;
        Ok(Seats { cores, address: self.address })
    }
}

impl<R: Send + 'static> Seats<R> {
    /// Which core of the machine each loop is pinned to; `None` where that was not possible.
    pub(crate) fn pinned(&self) -> &[Option<usize>] {
        self.cores.pinned()
    }

    /// Ends the loops, and joins them.
    pub(crate) fn stop(self) -> Vec<Result<R, String>> {
        self.cores.stop();
        self.join()
    }

    /// Waits for the loops and gives what each has to say at its end, or in words what has ended it before.
    pub(crate) fn join(self) -> Vec<Result<R, String>> {
        let ends = self.cores.join().into_iter();
        ends.map(|end| match end {
            Ok(report) => report.map_err(|error| format!("failed: {error}")),
            Err(_) => Err(String::from("panicked")),
        })
        .collect()
    }
}

/// As many as were asked for, or one for each core that may be used.
pub(crate) fn cores(asked: Option<u16>) -> usize {
    let of_the_machine = || thread::available_parallelism().map_or(1, NonZero::get);
    asked.map_or_else(of_the_machine, usize::from)
}

/// How a core is woken from its sleep when another one wants something of its timers.
fn wake_through(waker: &Arc<Waker>) -> Config {
    let waker = Arc::clone(waker);
    Config::new().on_wake(move || {
        waker.wake().expect("the poll lives as long as the core");
    })
}

fn listen_at(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_port(true)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(TcpListener::from_std(socket.into()))
}

fn prepare(listeners: Vec<TcpListener>) -> io::Result<Vec<(Arc<Waker>, Seat)>> {
    let seat = |mut listener: TcpListener| {
        let poll = Poll::new()?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        Ok((waker, (poll, listener)))
    };
    listeners.into_iter().map(seat).collect()
}
