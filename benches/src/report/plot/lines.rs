//! Lines, each with its name at its right end.

use std::{io, path::Path};

use plotters::prelude::{
    ChartBuilder, Circle, IntoDrawingArea, IntoLogRange, LineSeries, RGBColor, SVGBackend, Text,
};
use plotters::style::Color;

use super::canvas::{INK, failed, grid, letters};

const SIZE: (u32, u32) = (860, 480);
/// Room for the names.
const MARGIN_RIGHT: i32 = 190;
/// The least distance of two names.
const NAME_STEP: i32 = 15;

/// What stands around the lines. The axis of y is logarithmic.
pub(super) struct Axes<'a> {
    pub(super) title: &'a str,
    pub(super) x: &'a str,
    pub(super) y: &'a str,
    /// What x = 0, 1, 2... is called; if empty, the axis of x is logarithmic too.
    pub(super) places: &'a [&'a str],
}

impl Axes<'_> {
    fn position(&self, x: f64) -> f64 {
        if self.places.is_empty() { x.log10() } else { x }
    }

    /// What stands at a position, if it is a whole one.
    fn label(&self, position: f64) -> String {
        let whole = position.round();
        match self.places.get(whole as usize) {
            _ if (position - whole).abs() > 1e-6 => String::new(),
            Some(&place) => place.to_owned(),
            None => short(10f64.powf(whole)),
        }
    }
}

/// One peer's line.
pub(super) struct Line {
    pub(super) label: String,
    pub(super) colour: RGBColor,
    pub(super) bold: bool,
    pub(super) points: Vec<(f64, f64)>,
}

/// Draws them into a file.
pub(super) fn draw_lines(path: &Path, axes: &Axes<'_>, mut lines: Vec<Line>) -> io::Result<()> {
    for line in &mut lines {
        // A logarithm has no place for what was too quick to measure.
        line.points.iter_mut().for_each(|(x, _)| *x = axes.position(*x));
        line.points.retain(|&(x, y)| x.is_finite() && y > 0.0);
    }
    lines.retain(|line| !line.points.is_empty());
    let all = || lines.iter().flat_map(|line| line.points.iter().copied());
    let (xs, ys) = (range(all().map(|(x, _)| x)), range(all().map(|(_, y)| y)));
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    let mut chart = ChartBuilder::on(&root)
        .caption(axes.title, letters(18))
        .margin(8)
        .margin_right(MARGIN_RIGHT)
        .x_label_area_size(42)
        .y_label_area_size(64)
        .build_cartesian_2d(xs.0..xs.1, (ys.0 * 0.8..ys.1 * 1.25).log_scale())
        .map_err(failed)?;
    chart
        .configure_mesh()
        .axis_style(INK)
        .bold_line_style(grid())
        .light_line_style(plotters::style::TRANSPARENT)
        .label_style(letters(13))
        .x_desc(axes.x)
        .y_desc(axes.y)
        .x_labels((xs.1 - xs.0) as usize + 2)
        .x_label_formatter(&|x| axes.label(*x))
        .y_label_formatter(&|y| short(*y))
        .draw()
        .map_err(failed)?;
    let mut names = Vec::new();
    for Line { label, colour, bold, points } in &lines {
        let width = if *bold { 3 } else { 1 };
        let style = colour.stroke_width(width);
        chart.draw_series(LineSeries::new(points.iter().copied(), style)).map_err(failed)?;
        let dots = points.iter().map(|&point| Circle::new(point, width + 1, colour.filled()));
        chart.draw_series(dots).map_err(failed)?;
        let (_, y) = chart.backend_coord(&points[points.len() - 1]);
        names.push((y, label, *colour));
    }
    names.sort_unstable_by_key(|&(y, ..)| y);
    // Pushed down by those above, but never so far that those below have no room.
    let mut lowest = 0;
    let bottom = SIZE.1.cast_signed() - NAME_STEP * 4;
    let rooms =
        (0..).map(|below| bottom - NAME_STEP * below).take(names.len()).collect::<Vec<i32>>();
    for ((y, label, colour), &room) in names.iter().zip(rooms.iter().rev()) {
        lowest = (lowest + NAME_STEP).max(y - NAME_STEP / 2).min(room);
        let place = (SIZE.0.cast_signed() - MARGIN_RIGHT + 8, lowest);
        root.draw(&Text::new(label.as_str(), place, letters(14).color(colour))).map_err(failed)?;
    }
    root.present().map_err(failed)
}

/// Least and greatest; a little apart if they are one.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) =
        values.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
    if high > low { (low, high) } else { (low, low + low.abs().max(1.0)) }
}

/// `1M`, `20k`, `5`, `0.2`.
fn short(value: f64) -> String {
    match value {
        1e6.. => format!("{}M", value / 1e6),
        1e3.. => format!("{}k", value / 1e3),
        _ => format!("{value}"),
    }
}
