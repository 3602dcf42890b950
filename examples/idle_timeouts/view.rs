//! The live view: how far the run is and what each core is doing. On a terminal it is redrawn in place; elsewhere it
//! is a line now and then; with `--json` there is none.

use std::env;
use std::io::{self, IsTerminal};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::board::{Board, CoreFigures};

const REDRAW: Duration = Duration::from_millis(200);
const PLAIN_LINE: Duration = Duration::from_secs(3);

/// Shows the board until the run ends.
pub(crate) fn show_until(end: Duration, start: Instant, board: &Board, connections: u32, quiet: bool) {
    if quiet {
        thread::sleep(end.saturating_sub(start.elapsed()));
    } else if can_be_redrawn() {
        draw(end, start, board, connections);
    } else {
        print_lines(end, start, board, connections);
    }
}

/// A terminal, and not one that only takes lines.
fn can_be_redrawn() -> bool {
    io::stderr().is_terminal() && env::var_os("TERM").is_some_and(|term| term != "dumb")
}

fn draw(end: Duration, start: Instant, board: &Board, connections: u32) {
    let screen = MultiProgress::new();
    let progress = screen.add(ProgressBar::new(millis(end)).with_style(style("{elapsed:>4} {wide_bar} {msg}")));
    let lines: Vec<_> =
        (0..board.cores.len()).map(|_| screen.add(ProgressBar::no_length().with_style(style("{msg}")))).collect();
    each(REDRAW, end, start, || {
        progress.set_position(millis(start.elapsed()));
        progress.set_message(summary(board, connections));
        for (index, line) in lines.iter().enumerate() {
            line.set_message(core_line(index, &board.cores[index]));
        }
    });
    // The verdict follows; what was on the screen stays above it.
    progress.abandon();
    lines.iter().for_each(ProgressBar::abandon);
    eprintln!();
}

fn print_lines(end: Duration, start: Instant, board: &Board, connections: u32) {
    each(PLAIN_LINE, end, start, || {
        eprintln!("{:>5.1} s  {}", start.elapsed().as_secs_f64(), summary(board, connections));
        for (index, figures) in board.cores.iter().enumerate() {
            eprintln!("         {}", core_line(index, figures));
        }
    });
}

/// Does it once in a while until the end, and at the end.
fn each(pause: Duration, end: Duration, start: Instant, mut act: impl FnMut()) {
    while start.elapsed() < end {
        act();
        thread::sleep(pause.min(end.saturating_sub(start.elapsed())));
    }
    act();
}

fn summary(board: &Board, connections: u32) -> String {
    format!(
        "{} of {connections} connected, {} left, {} cancelled from elsewhere",
        board.connected.get(),
        board.left.get(),
        board.cancelled.get(),
    )
}

fn core_line(index: usize, figures: &CoreFigures) -> String {
    format!("core {index:>3} {}", figures.describe())
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the templates are constants, and right")
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
