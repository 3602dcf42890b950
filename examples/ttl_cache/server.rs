//! The server: one event loop per core. A command's key is mostly another core's than its connection, where there are several.

use std::hash::RandomState;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use corewheel::Counts;

use crate::args::Args;
use crate::board::Board;
use crate::event_loop::EventLoop;
use crate::here::Setup;
use crate::keys::Room;
use crate::moment::Clock;
use crate::seats::{Listeners, Seats};
use crate::session::Service;

pub(crate) struct Server {
    seats: Seats<Counts>,
    pub(crate) board: Arc<Board>,
}

impl Server {
    /// Starts a loop per core at this port of the loopback interface; 0 is a free one.
    pub(crate) fn start(args: &Args, port: u16) -> io::Result<Self> {
        let board = Arc::new(Board::new(args.cores()));
        let listeners = Listeners::bind(port, args.cores())?;
        let port = listeners.address.port();
        let setup =
            set_up(args, Service { board: Arc::clone(&board), port, started: Instant::now() });
        let seats =
            listeners.start(move |core, seat| EventLoop::new(seat, &core, &setup)?.run(&core))?;
        Ok(Self { seats, board })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.seats.address
    }

    /// Which core of the machine each loop is pinned to; `None` where that was not possible.
    pub(crate) fn pinned(&self) -> &[Option<usize>] {
        self.seats.pinned()
    }

    /// Waits for the loops, which end only by an error.
    pub(crate) fn wait(self) -> Vec<Result<Counts, String>> {
        self.seats.join()
    }

    /// Ends the loops and gives what has become of each one's timers, or in words what has ended it before.
    pub(crate) fn stop(self) -> Vec<Result<Counts, String>> {
        self.seats.stop()
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
