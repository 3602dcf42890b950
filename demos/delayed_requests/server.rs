//! The server: one event loop per core. Most requests arrive on another core than that of their partition, where there are
//! several.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::board::Board;
use crate::broker::{Broker, Waiting};
use crate::event_loop::{CoreReport, EventLoop};
use crate::log::Log;
use crate::seats::{Listeners, Seats};

/// How long the cores may take to tell each other, at the end, which watches are over.
const SETTLING: Duration = Duration::from_secs(2);

pub(crate) struct Server {
    seats: Seats<CoreReport>,
    board: Arc<Board>,
}

impl Server {
    /// Starts a loop per core of the board.
    pub(crate) fn start(log: Log, board: &Arc<Board>) -> io::Result<Self> {
        let (waiting, log) = (Waiting::new(), Arc::new(log));
        let seats = Listeners::bind(0, board.cores.len())?.start({
            let board = Arc::clone(board);
            move |core, seat| {
                let broker = Broker::new(&waiting, &core, Arc::clone(&log), Arc::clone(&board));
                EventLoop::new(seat, broker, Arc::clone(&board)).run(&core)
            }
        })?;
        Ok(Self { seats, board: Arc::clone(board) })
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
        let asked = Instant::now();
        while !self.board.is_settled() && asked.elapsed() < SETTLING {
            thread::sleep(Duration::from_millis(1));
        }
        self.seats.stop()
    }
}
