//! The live view: how far the run is and what each core's timer says of itself. On a terminal it is redrawn in place;
//! elsewhere it is a line now and then; with `--json` there is none.

use std::env;
use std::io::{self, IsTerminal};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use corewheel::metrics::{self, ShardMetrics};

use crate::args::Args;
use crate::board::Board;

const REDRAW: Duration = Duration::from_millis(200);
const PLAIN_LINE: Duration = Duration::from_secs(3);

/// Shows the board until the run ends.
pub(crate) fn show_until(end: Duration, start: Instant, board: &Board, args: &Args) {
    if args.json {
        thread::sleep(end.saturating_sub(start.elapsed()));
    } else if can_be_redrawn() {
        draw(end, start, board, args);
    } else {
        print_lines(end, start, board, args);
    }
}

/// A terminal, and not one that only takes lines.
fn can_be_redrawn() -> bool {
    io::stderr().is_terminal() && env::var_os("TERM").is_some_and(|term| term != "dumb")
}

fn draw(end: Duration, start: Instant, board: &Board, args: &Args) {
    let screen = MultiProgress::new();
    let progress = screen.add(ProgressBar::new(millis(end)).with_style(style("{elapsed:>4} {wide_bar} {msg}")));
    let lines: Vec<_> =
        (0..args.cores()).map(|_| screen.add(ProgressBar::no_length().with_style(style("{msg}")))).collect();
    each(REDRAW, end, start, || {
        progress.set_position(millis(start.elapsed()));
        progress.set_message(summary(board, args.connections));
        for (line, core) in lines.iter().zip(cores()) {
            line.set_message(core_line(&core));
        }
    });
    // The verdict follows; what was on the screen stays above it.
    progress.abandon();
    lines.iter().for_each(ProgressBar::abandon);
    eprintln!();
}

fn print_lines(end: Duration, start: Instant, board: &Board, args: &Args) {
    each(PLAIN_LINE, end, start, || {
        eprintln!("{:>5.1} s  {}", start.elapsed().as_secs_f64(), summary(board, args.connections));
        for core in cores() {
            eprintln!("         {}", core_line(&core));
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

/// What the timers of all cores say, in the order of the cores.
fn cores() -> Vec<ShardMetrics> {
    let mut cores = metrics::shards();
    cores.sort_by_key(|core| (core.name.len(), core.name.clone()));
    cores
}

/// A core's timers: what has become of them, how late the loop is for them, and how long they keep it.
fn core_line(core: &ShardMetrics) -> String {
    let late = |percent| core.loop_lateness.percentile(percent).as_micros();
    format!(
        "{} {:>6} live {:>6} fired {:>6} cancelled; {:>4} us late by the median, {:>5} by p99.9; longest turn {:>5} us",
        core.name,
        core.counts.live,
        core.counts.fired,
        core.counts.cancelled,
        late(50.0),
        late(99.9),
        core.longest_turn.as_micros(),
    )
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the templates are constants, and right")
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
