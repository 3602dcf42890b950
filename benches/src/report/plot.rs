//! Plots as SVG, legible on light and on dark pages: nothing behind them, and colours of middling brightness.

use std::{error::Error, path::Path};

use clap::ValueEnum;
use plotters::{
    prelude::{
        ChartBuilder, Circle, IntoDrawingArea, IntoLogRange, LineSeries, Rectangle, SVGBackend,
        Text,
    },
    style::{Color, HSLColor, IntoFont, RGBColor, TRANSPARENT, TextStyle},
};

use super::{Figure, Section, distinct, short};
use crate::plan::{Named, Peer, Workload};

/// Letters and axes.
const INK: RGBColor = RGBColor(128, 128, 128);
const SIZE: (u32, u32) = (860, 480);
/// Room for the names.
const MARGIN_RIGHT: i32 = 190;
/// The least distance of two names.
const NAME_STEP: i32 = 15;
/// The least time that is shown: what is subtracted from a time, such as a reading of the clock, is no more exact.
const LEAST_NANOS: f64 = 0.5;

/// Lines, each with its name at its right end. The axis of y is logarithmic.
pub(super) struct Plot {
    /// The name of the file, and of the figures or of the workload.
    pub(super) name: String,
    x: &'static str,
    y: String,
    /// What x = 0, 1, 2... is called; if empty, the axis of x is logarithmic too.
    places: Vec<String>,
    lines: Vec<Line>,
}

struct Line {
    peer: String,
    points: Vec<(f64, f64)>,
}

/// Draws the figures of a section into a directory.
///
/// # Errors
///
/// If a file cannot be written.
pub fn draw(section: &Section, directory: &Path) -> Result<(), Box<dyn Error>> {
    for plot in plots(section) {
        let path = directory.join(format!("{}.svg", plot.name));
        if section.workload == Some(Workload::Memory) {
            draw_bars(&path, &plot)?;
        } else {
            draw_lines(&path, &plot)?;
        }
    }
    Ok(())
}

/// Returns the plots of a section: time against the number of timers, the first kind of figures against its settings, the
/// distribution of the time that a turn takes, memory.
pub(super) fn plots(section: &Section) -> Vec<Plot> {
    let Some(first) = section.figures.first().map(|figure| &figure.sample) else {
        return Vec::new();
    };
    let workload = section.workload.map(|workload| workload.name()).unwrap_or_default();
    if section.workload == Some(Workload::Memory) {
        let places = ["memory-live", "memory-left"].map(str::to_owned).to_vec();
        let place = |figure: &Figure| places.iter().position(|it| *it == figure.sample.workload);
        let lines = lines(section, |figure| Some((place(figure)? as f64, figure.spread().median)));
        vec![Plot { name: workload, x: "", y: "bytes per timer".to_owned(), places, lines }]
    } else if !first.curve.is_empty() {
        let mut lines = lines(section, |_| None);
        for line in &mut lines {
            let of_peer = section.figures.iter().filter(|figure| figure.peer == line.peer);
            line.points = of_peer.flat_map(|figure| figure.sample.curve.clone()).collect();
        }
        let y = "ns that a turn takes".to_owned();
        vec![Plot {
            name: workload,
            x: "one turn in ... takes longer",
            y,
            places: Vec::new(),
            lines,
        }]
    } else if !first.setting.is_empty() {
        let of_kind = |figure: &&Figure| figure.sample.workload == first.workload;
        let figures = section.figures.iter().filter(of_kind);
        let places = distinct(figures.map(|figure| figure.sample.setting.clone()));
        let place = |figure: &Figure| places.iter().position(|it| *it == figure.sample.setting);
        let lines = lines(section, |figure| {
            let place = place(figure).filter(|_| of_kind(&figure))?;
            Some((place as f64, figure.spread().median))
        });
        vec![Plot { name: first.workload.clone(), x: "", y: first.unit.clone(), places, lines }]
    } else if section.is_profile() {
        Vec::new()
    } else {
        let times = section.names().into_iter().filter_map(|kind| {
            let of_kind = |figure: &&Figure| figure.sample.workload == kind;
            let figures = section.figures.iter().filter(of_kind);
            if distinct(figures.clone().map(|figure| figure.sample.n)).len() < 2
                || figures.clone().any(|figure| figure.sample.unit != "ns")
            {
                return None;
            }
            let lines = lines(section, |figure| {
                let n = Some(figure.sample.n as f64).filter(|_| of_kind(&figure))?;
                Some((n, figure.spread().median.max(LEAST_NANOS)))
            });
            let x = section.workload.map_or("timers", Workload::counted);
            Some(Plot { name: kind.to_owned(), x, y: "ns".to_owned(), places: Vec::new(), lines })
        });
        times.collect()
    }
}

/// Returns a line per peer.
fn lines(section: &Section, point: impl Fn(&Figure) -> Option<(f64, f64)>) -> Vec<Line> {
    let peers = distinct(section.figures.iter().map(|figure| &figure.peer));
    let line = |peer: &String| {
        let of_peer = section.figures.iter().filter(|figure| figure.peer == *peer);
        Line { peer: peer.clone(), points: of_peer.filter_map(&point).collect() }
    };
    peers.into_iter().map(line).collect()
}

fn draw_lines(path: &Path, plot: &Plot) -> Result<(), Box<dyn Error>> {
    let is_log = plot.places.is_empty();
    let position = |x: f64| if is_log { x.log10() } else { x };
    let label = |position: f64| match plot.places.get(position.round() as usize) {
        _ if (position - position.round()).abs() > 1e-6 => String::new(),
        Some(place) => place.clone(),
        None if is_log => short(10f64.powf(position.round())),
        None => String::new(),
    };
    // A logarithm has no place for what was too quick to measure.
    let points = |line: &Line| {
        let points = line.points.iter().map(|&(x, y)| (position(x), y));
        points.filter(|&(x, y)| x.is_finite() && y > 0.0).collect::<Vec<_>>()
    };
    let all: Vec<(f64, f64)> = plot.lines.iter().flat_map(points).collect();
    let (left, right) = range(all.iter().map(|point| point.0));
    let (bottom, top) = range(all.iter().map(|point| point.1));
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    let mut chart = ChartBuilder::on(&root)
        .caption(format!("{}: {}", plot.name, plot.y), letters(18, INK))
        .margin(8)
        .margin_right(MARGIN_RIGHT)
        .x_label_area_size(42)
        .y_label_area_size(64)
        .build_cartesian_2d(left..right, (bottom * 0.8..top * 1.25).log_scale())?;
    chart
        .configure_mesh()
        .axis_style(INK)
        .bold_line_style(INK.mix(0.25))
        .light_line_style(TRANSPARENT)
        .label_style(letters(13, INK))
        .x_desc(plot.x)
        .y_desc(&plot.y)
        .x_labels((right - left) as usize + 2)
        .x_label_formatter(&|x| label(*x))
        .y_label_formatter(&|y| short(*y))
        .draw()?;
    let mut names = Vec::new();
    for (place, line) in plot.lines.iter().enumerate() {
        let (points, colour, width) = (points(line), colour(&line.peer, place), width(&line.peer));
        let Some(last) = points.last() else { continue };
        names.push((chart.backend_coord(last).1, &line.peer, colour));
        let dots = points.iter().map(|&point| Circle::new(point, width + 1, colour.filled()));
        chart.draw_series(dots)?;
        chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(width)))?;
    }
    names.sort_unstable_by_key(|&(y, ..)| y);
    // A name is pushed down by those above, but never so far that those below have no room.
    let mut lowest = 0;
    let mut room = SIZE.1.cast_signed() - NAME_STEP * (4 + names.len() as i32);
    for (y, peer, colour) in names {
        room += NAME_STEP;
        lowest = (lowest + NAME_STEP).max(y - NAME_STEP / 2).min(room);
        let place = (SIZE.0.cast_signed() - MARGIN_RIGHT + 8, lowest);
        root.draw(&Text::new(peer.as_str(), place, letters(14, colour)))?;
    }
    root.present()?;
    Ok(())
}

/// Draws two bars for each peer: the first point is full, the second one hollow.
fn draw_bars(path: &Path, plot: &Plot) -> Result<(), Box<dyn Error>> {
    const HEAD: i32 = 40;
    const ROW: i32 = 34;
    const LEFT: i32 = 190;
    const LONGEST: f64 = 560.0;
    let height = HEAD + ROW * plot.lines.len() as i32;
    let root = SVGBackend::new(path, (SIZE.0, height.cast_unsigned())).into_drawing_area();
    let title = format!("{}: full, while all are live; hollow, after all were cancelled", plot.y);
    root.draw(&Text::new(title, (10, 10), letters(16, INK)))?;
    let values = plot.lines.iter().flat_map(|line| line.points.iter().map(|point| point.1));
    let greatest = values.fold(1.0, f64::max);
    for (place, line) in plot.lines.iter().enumerate() {
        let (top, colour) = (HEAD + ROW * place as i32, colour(&line.peer, place));
        root.draw(&Text::new(line.peer.as_str(), (10, top + 6), letters(14, colour)))?;
        for &(x, value) in &line.points {
            let (top, full) = (top + 14 * x as i32, x == 0.0);
            let style = if full { colour.filled() } else { colour.stroke_width(1) };
            let end = LEFT + (value.max(0.0) / greatest * LONGEST) as i32;
            root.draw(&Rectangle::new([(LEFT, top), (end, top + 12)], style))?;
            root.draw(&Text::new(format!("{value:.0}"), (end + 6, top), letters(12, INK)))?;
        }
    }
    root.present()?;
    Ok(())
}

/// Returns least and greatest; a little apart if they are equal.
fn range(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let (low, high) = (values.clone().fold(f64::MAX, f64::min), values.fold(f64::MIN, f64::max));
    if high > low { (low, high) } else { (low, low + low.abs().max(1.0)) }
}

fn letters(height: i32, colour: RGBColor) -> TextStyle<'static> {
    ("sans-serif", height).into_font().color(&colour)
}

fn width(peer: &str) -> u32 {
    let is_corewheel = Peer::from_str(peer, false).is_ok_and(Peer::is_corewheel);
    if is_corewheel { 3 } else { 1 }
}

/// Returns the colour of a peer, the same in all plots: corewheel's are red, the floors grey, the others go round the
/// rest of the circle. Neighbours are far apart. A scheme's colour goes by its place.
fn colour(peer: &str, place: usize) -> RGBColor {
    let known = Peer::from_str(peer, false).ok();
    let place = known.map_or(place, |peer| peer as usize) as f64;
    let hue = match known {
        Some(Peer::Floor | Peer::FloorCas) => return INK,
        Some(peer) if peer.is_corewheel() => (0.94 + 0.04 * place).fract(),
        _ => 0.17 + 0.6 * (place * 0.618).fract(),
    };
    // Blue looks darker than green of the same lightness.
    let lightness = if hue > 0.5 { 0.62 } else { 0.45 };
    let (red, green, blue) = HSLColor(hue, 0.6, lightness).to_rgba().rgb();
    RGBColor(red, green, blue)
}
