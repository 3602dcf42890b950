//! The server: one event loop per core, each with a listener of its own on the same port. The kernel deals the
//! connections out, so most requests arrive on another core than that of their partition, where there are several.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use corewheel::{Config, Cores};
use mio::net::TcpListener;
use mio::{Interest, Poll, Waker};
use socket2::{Domain, Protocol, Socket, Type};

use crate::board::Board;
use crate::broker::{Broker, Waiting};
use crate::event_loop::{CoreReport, EventLoop, LISTENER, WAKER};
use crate::log::Log;

const BACKLOG: i32 = 4_096;
/// How long the cores may take to tell each other, at the end, which watches are over.
const SETTLING: Duration = Duration::from_secs(2);

pub(crate) struct Server {
    cores: Cores<io::Result<CoreReport>>,
    wakers: Vec<Arc<Waker>>,
    pub(crate) address: SocketAddr,
    board: Arc<Board>,
}

impl Server {
    /// Starts a loop per core of the board.
    pub(crate) fn start(log: Log, board: &Arc<Board>) -> io::Result<Self> {
        let listeners = listen(board.cores.len())?;
        let address = listeners[0].local_addr()?;
        let (wakers, seats): (Vec<_>, Vec<_>) = prepare(listeners)?.into_iter().unzip();
        let (waiting, log) = (Waiting::new(), Arc::new(log));
        let cores = Cores::builder()
            .config({
                let wakers = wakers.clone();
                move |index| wake_through(&wakers[index])
            })
            .start_with(seats, {
                let board = Arc::clone(board);
                move |core, seat| {
                    let broker = Broker::new(&waiting, &core, Arc::clone(&log), Arc::clone(&board));
                    EventLoop::new(seat, broker, Arc::clone(&board), core.index()).run()
                }
            })?;
        Ok(Self { cores, wakers, address, board: Arc::clone(board) })
    }

    /// Which core of the machine each loop is pinned to; `None` where that was not possible.
    pub(crate) fn pinned(&self) -> &[Option<usize>] {
        self.cores.pinned()
    }

    /// Ends the loops and gives what each has to say, or in words what has ended it before.
    pub(crate) fn stop(self) -> io::Result<Vec<Result<CoreReport, String>>> {
        let asked = Instant::now();
        while !self.board.is_settled() && asked.elapsed() < SETTLING {
            thread::sleep(Duration::from_millis(1));
        }
        self.board.call_it_over();
        self.wakers.iter().try_for_each(|waker| waker.wake())?;
        let ends = self.cores.join().into_iter();
        Ok(ends
            .map(|end| match end {
                Ok(report) => report.map_err(|error| format!("failed: {error}")),
                Err(_) => Err(String::from("panicked")),
            })
            .collect())
    }
}

/// How a core is woken from its sleep when another one wants something of its timers.
fn wake_through(waker: &Arc<Waker>) -> Config {
    let waker = Arc::clone(waker);
    Config::new().on_wake(move || {
        waker.wake().expect("the poll lives as long as the core");
    })
}

/// Listeners on one port that the first of them has found.
fn listen(count: usize) -> io::Result<Vec<TcpListener>> {
    let mut address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
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
