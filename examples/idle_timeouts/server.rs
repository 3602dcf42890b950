//! The server: one event loop per core; a connection never leaves the core that accepted it.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use corewheel::{Core, TimerHandle};

use crate::event_loop::{CoreReport, EventLoop};
use crate::seats::{Listeners, Seats};

pub(crate) struct Server {
    seats: Seats<CoreReport>,
}

impl Server {
    /// Starts so many loops, each on a core. The receiver gets the handle of every connection's idle timer.
    pub(crate) fn start(
        cores: usize,
        idle: Duration,
    ) -> io::Result<(Self, Receiver<(u32, TimerHandle)>)> {
        let (handles, published) = mpsc::channel();
        let run = move |core: Core, seat| EventLoop::new(seat, idle, handles.clone()).run(&core);
        let seats = Listeners::bind(0, cores)?.start(run)?;
        Ok((Self { seats }, published))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.seats.address
    }

    /// Which core of the machine each loop is pinned to; `None` where that was not possible.
    pub(crate) fn pinned(&self) -> &[Option<usize>] {
        self.seats.pinned()
    }

    /// Ends the loops and gives what each has to say, or in words what has ended it before.
    pub(crate) fn stop(self) -> Vec<Result<CoreReport, String>> {
        self.seats.stop()
    }
}
