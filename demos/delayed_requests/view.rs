//! The live view: how far the run is and what each core is doing; with `--json` there is none.

use std::time::{Duration, Instant};

use crate::board::{Board, CoreFigures};
use crate::screen::{self, Frame};

/// Shows the board until the run is over, which is about at the end.
pub(crate) fn show_until(
    is_over: impl Fn() -> bool,
    end: Duration,
    start: Instant,
    board: &Board,
    quiet: bool,
) {
    screen::show_until(is_over, (start, Some(end)), quiet, || Frame {
        summary: summary(board),
        lines: board
            .cores
            .iter()
            .enumerate()
            .map(|(index, figures)| core_line(index, figures))
            .collect(),
    });
}

fn summary(board: &Board) -> String {
    let (sent, completed, timed_out) =
        (board.sent.get(), board.completed.get(), board.timed_out.get());
    format!("{sent} requests, {completed} completed, {timed_out} timed out")
}

fn core_line(index: usize, figures: &CoreFigures) -> String {
    format!("core {index:>3} {}", figures.describe())
}
