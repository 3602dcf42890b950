//! The server: one event loop per core, each with a listener of its own on the same port. The kernel deals the
//! connections out, so a command's key is mostly another core's, where there are several.

use std::hash::RandomState;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use corewheel::{Config, Cores, Counts};
use mio::net::TcpListener;
use mio::{Interest, Poll, Waker};
use socket2::{Domain, Protocol, Socket, Type};

use crate::args::Args;
use crate::board::Board;
use crate::event_loop::{EventLoop, LISTENER, WAKER};
use crate::here::Setup;
use crate::keys::Room;
use crate::moment::Clock;
use crate::session::Service;

const BACKLOG: i32 = 4_096;

pub(crate) struct Server {
    cores: Cores<io::Result<Counts>>,
    wakers: Vec<Arc<Waker>>,
    pub(crate) address: SocketAddr,
    pub(crate) board: Arc<Board>,
}

impl Server {
    /// Starts a loop per core at this port of the loopback interface; 0 is a free one.
    pub(crate) fn start(args: &Args, port: u16) -> io::Result<Self> {
        let board = Arc::new(Board::new(args.cores()));
        let listeners = listen(port, args.cores())?;
        let address = listeners[0].local_addr()?;
        let (wakers, seats): (Vec<_>, Vec<_>) = prepare(listeners)?.into_iter().unzip();
        let setup =
            set_up(args, Service { board: Arc::clone(&board), port: address.port(), started: Instant::now() });
        let cores = Cores::builder()
            .config({
                let wakers = wakers.clone();
                move |index| wake_through(&wakers[index])
            })
            .start_with(seats, move |core, seat| EventLoop::new(seat, &core, setup.clone())?.run())?;
        Ok(Self { cores, wakers, address, board })
    }

    /// Which core of the machine each loop is pinned to; `None` where that was not possible.
    pub(crate) fn pinned(&self) -> &[Option<usize>] {
        self.cores.pinned()
    }

    /// Waits for the loops, which end only by an error.
    pub(crate) fn wait(self) -> Vec<Result<Counts, String>> {
        let ends = self.cores.join().into_iter();
        ends.map(|end| match end {
            Ok(counts) => counts.map_err(|error| format!("failed: {error}")),
            Err(_) => Err(String::from("panicked")),
        })
        .collect()
    }

    /// Ends the loops and gives what has become of each one's timers, or in words what has ended it before.
    pub(crate) fn stop(self) -> io::Result<Vec<Result<Counts, String>>> {
        self.board.call_it_over();
        self.wakers.iter().try_for_each(|waker| waker.wake())?;
        Ok(self.wait())
    }
}

/// Each core has its share of what there may be of everything.
fn set_up(args: &Args, service: Service) -> Setup {
    let cores = args.cores();
    Setup {
        clock: Clock::start(),
        hasher: RandomState::new(),
        room: Room { keys: args.max_keys().div_ceil(cores), bytes: args.max_memory() / cores },
        clients: args.max_clients().div_ceil(cores),
        idle: args.idle(),
        service,
    }
}

/// How a core is woken from its sleep when another one wants something of it.
fn wake_through(waker: &Arc<Waker>) -> Config {
    let waker = Arc::clone(waker);
    Config::new().on_wake(move || {
        waker.wake().expect("the poll lives as long as the core");
    })
}

/// Listeners on one port, which the first of them finds if need be.
fn listen(port: u16, count: usize) -> io::Result<Vec<TcpListener>> {
    let mut address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    (0..count)
        .map(|_| {
            let listener = listen_at(address)?;
            address = listener.local_addr()?;
            Ok(listener)
        })
        .collect()
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

/// What a core will poll, prepared before it starts: its waker must be there when its timer is configured.
type Seat = (Poll, TcpListener);

fn prepare(listeners: Vec<TcpListener>) -> io::Result<Vec<(Arc<Waker>, Seat)>> {
    let seat = |mut listener: TcpListener| {
        let poll = Poll::new()?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        Ok((waker, (poll, listener)))
    };
    listeners.into_iter().map(seat).collect()
}
