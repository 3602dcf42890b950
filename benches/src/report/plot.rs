//! Plots as SVG, legible on light and on dark pages: nothing behind them, and colours of middling brightness.

mod bars;
mod canvas;
mod lines;

use std::{io, path::Path};

use self::{
    bars::{Bars, draw_bars},
    canvas::{circle, colour},
    lines::{Axes, Line, draw_lines},
};
use super::{Figure, Results, distinct};
use crate::{
    plan::{Pass, Peer},
    schemes::{ROUTINES, Row, names},
};

/// What is subtracted from a time, such as the reading of the clock, is no more exact than this; in nanoseconds.
const LEAST: f64 = 0.5;

/// Draws all figures into a directory: time per operation against the number of timers, the distribution of the time a
/// turn takes, memory.
///
/// # Errors
///
/// If a file cannot be written.
pub fn draw(results: &Results, directory: &Path) -> io::Result<()> {
    for pass in distinct(results.figures.iter().map(|figure| figure.pass)) {
        let figures: Vec<&Figure> =
            results.figures.iter().filter(|figure| figure.pass == pass).collect();
        match pass {
            Pass::Memory => memory(&figures, directory)?,
            Pass::Within => by_setting(
                "within-wake-ups",
                ["wake-ups per second", "slack"],
                &figures,
                directory,
            )?,
            Pass::Spread => by_setting(
                "spread-most",
                ["the most timers in a tick", "range"],
                &figures,
                directory,
            )?,
            // Its sizes are those of a batch, and make no curve.
            Pass::Asked => {}
            Pass::Pause | Pass::PauseAllDue | Pass::PauseAfterReset | Pass::PauseAfterSleep => {
                turns(pass, &figures, directory)?;
            }
            _ if !pass.is_profile() => against_size(&figures, directory)?,
            _ => {}
        }
    }
    Ok(())
}

/// A plot per kind of figure, if it is a time and there are two sizes or more.
fn against_size(of_pass: &[&Figure], directory: &Path) -> io::Result<()> {
    for workload in distinct(of_pass.iter().map(|figure| figure.workload.as_str())) {
        let figures: Vec<&Figure> =
            of_pass.iter().copied().filter(|figure| figure.workload == workload).collect();
        let sizes = distinct(figures.iter().map(|figure| figure.n)).len();
        if figures[0].unit != "ns" || sizes < 2 {
            continue;
        }
        let lines = distinct(figures.iter().map(|figure| figure.peer)).into_iter().map(|peer| {
            let of_peer = figures.iter().filter(|figure| figure.peer == peer);
            line(peer, of_peer.map(|figure| (figure.n as f64, figure.spread().median)).collect())
        });
        let title = format!("{workload}: ns per operation");
        let axes = Axes { title: &title, x: "live timers", y: "ns", places: &[] };
        draw_lines(&directory.join(format!("{workload}.svg")), &axes, lines.collect())?;
    }
    Ok(())
}

/// How long a turn takes: one in `x` turns takes longer than `y`.
fn turns(pass: Pass, figures: &[&Figure], directory: &Path) -> io::Result<()> {
    let curves = figures.iter().filter(|figure| figure.curve.len() > 1);
    let lines: Vec<Line> = curves.map(|figure| line(figure.peer, figure.curve.clone())).collect();
    if lines.is_empty() {
        return Ok(());
    }
    let title = format!("{}: how long a turn takes", pass.name());
    let axes = Axes { title: &title, x: "one turn in ... takes longer", y: "ns", places: &[] };
    draw_lines(&directory.join(format!("{}.svg", pass.name())), &axes, lines)
}

/// Draws how the cost of each routine of each scheme grows, a plot per routine.
///
/// # Errors
///
/// If a file cannot be written.
pub fn draw_schemes(rows: &[Row], directory: &Path) -> io::Result<()> {
    let schemes = names();
    for routine in ROUTINES {
        let lines = schemes.iter().enumerate().map(|(place, &scheme)| {
            let of_scheme =
                rows.iter().filter(|row| (row.scheme, row.routine) == (scheme, routine));
            let points = of_scheme.map(|row| (row.n as f64, row.median.max(LEAST))).collect();
            Line {
                label: scheme.to_owned(),
                colour: circle(place, schemes.len()),
                bold: false,
                points,
            }
        });
        let title = format!("scheme-{routine}: ns, {LEAST} and less at the bottom");
        let axes = Axes { title: &title, x: "timers", y: "ns", places: &[] };
        draw_lines(&directory.join(format!("scheme-{routine}.svg")), &axes, lines.collect())?;
    }
    Ok(())
}

/// One kind of figure, against what the timers were asked for.
fn by_setting(
    workload: &str,
    [y, x]: [&str; 2],
    of_pass: &[&Figure],
    directory: &Path,
) -> io::Result<()> {
    let figures: Vec<&Figure> =
        of_pass.iter().copied().filter(|figure| figure.workload == workload).collect();
    let names = distinct(figures.iter().map(|figure| figure.setting.as_str()));
    let lines = distinct(figures.iter().map(|figure| figure.peer)).into_iter().map(|peer| {
        let at = |name| figures.iter().find(|figure| figure.peer == peer && figure.setting == name);
        let heights = names
            .iter()
            .zip(0_u32..)
            .filter_map(|(&name, place)| Some((place, at(name)?.spread().median)));
        line(peer, heights.map(|(place, y)| (f64::from(place), y)).collect())
    });
    let title = format!("{workload}: {y}, by {x}");
    let axes = Axes { title: &title, x, y, places: &names };
    draw_lines(&directory.join(format!("{workload}.svg")), &axes, lines.collect())
}

fn memory(figures: &[&Figure], directory: &Path) -> io::Result<()> {
    let of = |name: &str, peer: Peer| {
        let found = figures.iter().find(|figure| figure.peer == peer && figure.workload == name);
        found.map_or(0.0, |figure| figure.spread().median)
    };
    let rows = distinct(figures.iter().map(|figure| figure.peer)).into_iter().map(|peer| Bars {
        label: peer.name(),
        colour: colour(peer),
        live: of("memory-live", peer),
        left: of("memory-left", peer),
    });
    draw_bars(&directory.join("memory.svg"), &rows.collect::<Vec<_>>())
}

fn line(peer: Peer, points: Vec<(f64, f64)>) -> Line {
    Line { label: peer.name(), colour: colour(peer), bold: peer.is_corewheel(), points }
}
