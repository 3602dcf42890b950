//! The live view: how many keys and clients there are, and what each core's timers do.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use crate::board::Board;
use crate::screen::{self, Frame};
use crate::timers::Timers;

/// Shows it on a thread of its own until the process ends.
pub(crate) fn start(board: &Arc<Board>) -> io::Result<()> {
    let board = Arc::clone(board);
    let show = move || {
        let mut timers = Timers::default();
        let look = || Frame { summary: summary(&board), lines: timers.lines() };
        screen::show_until(|| false, (Instant::now(), None), false, look);
    };
    thread::Builder::new().name(String::from("view")).spawn(show).map(drop)
}

fn summary(board: &Board) -> String {
    format!(
        "{} clients, {} keys, {} of them with a deadline, {} expired",
        board.total(|figures| &figures.clients),
        board.total(|figures| &figures.keys),
        board.total(|figures| &figures.expiring),
        board.total(|figures| &figures.expired),
    )
}
