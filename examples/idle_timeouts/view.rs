//! The live view: how far the run is, and what each core's timers do; with `--json` there is none.

use std::time::{Duration, Instant};

use crate::args::Args;
use crate::board::Board;
use crate::screen::{self, Frame};
use crate::timers::Timers;

/// Shows the board until the run ends.
pub(crate) fn show_until(end: Duration, start: Instant, board: &Board, args: &Args) {
    let is_over = || start.elapsed() >= end;
    let mut timers = Timers::default();
    screen::show_until(is_over, (start, Some(end)), args.json, || Frame {
        summary: summary(board, args.connections),
        lines: timers.lines(),
    });
}

fn summary(board: &Board, connections: u32) -> String {
    format!(
        "{} of {connections} connected, {} left, {} cancelled from elsewhere",
        board.connected.get(),
        board.left.get(),
        board.cancelled.get(),
    )
}
