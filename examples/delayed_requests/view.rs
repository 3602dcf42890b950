//! The live view: how far the run is and what each core is doing. On a terminal it is redrawn in place; elsewhere it
//! is a line now and then; with `--json` there is none.

use std::env;
use std::io::{self, IsTerminal};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::board::{Board, CoreFigures};

const REDRAW: Duration = Duration::from_millis(200);
const PLAIN_LINE: Duration = Duration::from_secs(2);
/// How long it takes at most to see that the run is over.
const GLANCE: Duration = Duration::from_millis(20);

/// Shows the board until the run is over, which is about at the end.
pub(crate) fn show_until(is_over: impl Fn() -> bool, end: Duration, start: Instant, board: &Board, quiet: bool) {
    if quiet {
        each(REDRAW, is_over, || {});
    } else if can_be_redrawn() {
        draw(is_over, end, start, board);
    } else {
        each(PLAIN_LINE, is_over, || print_lines(start, board));
    }
}

/// A terminal, and not one that only takes lines.
fn can_be_redrawn() -> bool {
    io::stderr().is_terminal() && env::var_os("TERM").is_some_and(|term| term != "dumb")
}

fn draw(is_over: impl Fn() -> bool, end: Duration, start: Instant, board: &Board) {
    let screen = MultiProgress::new();
    let progress = screen.add(ProgressBar::new(millis(end)).with_style(style("{elapsed:>4} {wide_bar} {msg}")));
    let lines: Vec<_> =
        (0..board.cores.len()).map(|_| screen.add(ProgressBar::no_length().with_style(style("{msg}")))).collect();
    each(REDRAW, is_over, || {
        progress.set_position(millis(start.elapsed()));
        progress.set_message(summary(board));
        for (index, line) in lines.iter().enumerate() {
            line.set_message(core_line(index, &board.cores[index]));
        }
    });
    // The verdict follows; what was on the screen stays above it.
    progress.abandon();
    lines.iter().for_each(ProgressBar::abandon);
    eprintln!();
}

fn print_lines(start: Instant, board: &Board) {
    eprintln!("{:>5.1} s  {}", start.elapsed().as_secs_f64(), summary(board));
    for (index, figures) in board.cores.iter().enumerate() {
        eprintln!("         {}", core_line(index, figures));
    }
}

/// Does it once in a while until it is over, and then.
fn each(pause: Duration, is_over: impl Fn() -> bool, mut act: impl FnMut()) {
    while !is_over() {
        act();
        let acted = Instant::now();
        while !is_over() && acted.elapsed() < pause {
            thread::sleep(GLANCE);
        }
    }
    act();
}

fn summary(board: &Board) -> String {
    let (sent, completed, timed_out) = (board.sent.get(), board.completed.get(), board.timed_out.get());
    format!("{sent} requests, {completed} completed, {timed_out} timed out")
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
