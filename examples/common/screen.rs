//! A live view: on a terminal it is redrawn in place, elsewhere its lines are printed now and then.

use std::env;
use std::io::{self, IsTerminal};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

const REDRAW: Duration = Duration::from_millis(250);
const PLAIN_LINES: Duration = Duration::from_secs(3);
/// How long it takes at most to see that it is over.
const GLANCE: Duration = Duration::from_millis(20);

/// What there is to see at a moment.
pub(crate) struct Frame {
    pub(crate) summary: String,
    pub(crate) lines: Vec<String>,
}

/// Shows what `look` sees until it is over, or nothing if it is to be quiet; that is about at the end, counted from the start.
pub(crate) fn show_until(
    is_over: impl Fn() -> bool,
    (start, end): (Instant, Option<Duration>),
    quiet: bool,
    mut look: impl FnMut() -> Frame,
) {
    if quiet {
        each(REDRAW, is_over, || {});
    } else if can_be_redrawn() {
        draw(is_over, (start, end), look);
    } else {
        each(PLAIN_LINES, is_over, || print_lines(start, &look()));
    }
}

/// A terminal, and not one that only takes lines.
fn can_be_redrawn() -> bool {
    io::stderr().is_terminal() && env::var_os("TERM").is_some_and(|term| term != "dumb")
}

fn draw(
    is_over: impl Fn() -> bool,
    (start, end): (Instant, Option<Duration>),
    mut look: impl FnMut() -> Frame,
) {
    let screen = MultiProgress::new();
    let template =
        if end.is_some() { "{elapsed:>4} {wide_bar} {msg}" } else { "{elapsed:>4} {msg}" };
    let progress = screen.add(ProgressBar::new(end.map_or(0, millis)).with_style(style(template)));
    let mut lines: Vec<ProgressBar> = Vec::new();
    each(REDRAW, is_over, || {
        let frame = look();
        progress.set_position(millis(start.elapsed()));
        progress.set_message(frame.summary);
        while lines.len() < frame.lines.len() {
            lines.push(screen.add(ProgressBar::no_length().with_style(style("{msg}"))));
        }
        lines.iter().zip(frame.lines).for_each(|(line, text)| line.set_message(text));
    });
    // What follows is printed below; what was on the screen stays above it.
    progress.abandon();
    lines.iter().for_each(ProgressBar::abandon);
    eprintln!();
}

fn print_lines(start: Instant, frame: &Frame) {
    eprintln!("{:>5.1} s  {}", start.elapsed().as_secs_f64(), frame.summary);
    frame.lines.iter().for_each(|line| eprintln!("         {line}"));
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

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the templates are constants, and right")
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
