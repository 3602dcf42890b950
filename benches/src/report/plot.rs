//! Plots as SVG, legible on light and on dark pages: no background, and medium brightness.

use std::error::Error;
use std::path::Path;

use plotters::prelude::{
    ChartBuilder, Circle, IntoDrawingArea, IntoLogRange, LineSeries, SVGBackend, Text,
};
use plotters::style::{Color, HSLColor, IntoFont, RGBColor, TRANSPARENT, TextStyle};

use super::{Chart, Columns, Measured, Section, format_short};
use crate::plan::{Named, Peer};

const GREY: RGBColor = RGBColor(128, 128, 128);
const SIZE: (u32, u32) = (860, 480);
const MARGIN_RIGHT: i32 = 190;
const NAME_STEP: i32 = 15;
/// The smallest time that is shown; smaller times are noise.
const MIN_SHOWN_NANOS: f64 = 0.5;

pub fn draw(section: &Section, directory: &Path) -> Result<(), Box<dyn Error>> {
    for chart in section.charts().iter().filter(|chart| chart.is_drawn) {
        let path = directory.join(format!("{}.svg", chart.name));
        draw_lines(&path, chart, section.workload.counted())?;
    }
    Ok(())
}

/// Draws a line per peer, with its name at the right. Both axes are logarithmic.
fn draw_lines(path: &Path, chart: &Chart<'_>, counted: &str) -> Result<(), Box<dyn Error>> {
    let has_sizes = chart.columns == Columns::Sizes;
    let x_title = if has_sizes { counted } else { "one turn in ... takes longer" };
    let points = |figures: &[Option<&Measured>]| -> Vec<(f64, f64)> {
        let point = |figure: &&Measured| {
            let size = (figure.sample.n as f64, figure.summary().median.max(MIN_SHOWN_NANOS));
            if has_sizes { vec![size] } else { figure.sample.curve.clone() }
        };
        // A logarithmic axis cannot show zero.
        let points = figures.iter().flatten().flat_map(point).filter(|&(x, y)| x.min(y) > 0.0);
        points.map(|(x, y)| (x.log10(), y)).collect()
    };
    let label = |x: f64| {
        let is_whole = (x - x.round()).abs() <= 1e-6;
        if is_whole { format_short(10f64.powf(x.round())) } else { String::new() }
    };
    let points_of_all_peers: Vec<(f64, f64)> =
        chart.rows.iter().flat_map(|row| points(&row.1)).collect();
    let (left, right) = range(points_of_all_peers.iter().map(|point| point.0));
    let (bottom, top) = range(points_of_all_peers.iter().map(|point| point.1));
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    let mut plot = ChartBuilder::on(&root)
        .caption(format!("{}, {}", chart.name, chart.unit), text_style(18, GREY))
        .margin(8)
        .margin_right(MARGIN_RIGHT)
        .x_label_area_size(42)
        .y_label_area_size(64)
        .build_cartesian_2d(left..right, (bottom * 0.8..top * 1.25).log_scale())?;
    plot.configure_mesh()
        .axis_style(GREY)
        .bold_line_style(GREY.mix(0.25))
        .light_line_style(TRANSPARENT)
        .label_style(text_style(13, GREY))
        .x_desc(x_title)
        .y_desc(chart.unit)
        .x_labels((right - left) as usize + 2)
        .x_label_formatter(&|x| label(*x))
        .y_label_formatter(&|y| format_short(*y))
        .draw()?;
    let mut names = Vec::new();
    for &(peer, ref figures) in &chart.rows {
        let (points, colour) = (points(figures), colour(peer));
        let width = if peer.is_corewheel() { 3 } else { 1 };
        let Some(last) = points.last() else { continue };
        names.push((plot.backend_coord(last).1, peer, colour));
        let dots = points.iter().map(|&point| Circle::new(point, width + 1, colour.filled()));
        plot.draw_series(dots)?;
        plot.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(width)))?;
    }
    names.sort_by_key(|&(y, ..)| y);
    // Moves a peer's name down if it would overlap the name above it, but leaves room for the names
    // below.
    let mut name_y = 0;
    let mut name_y_max = SIZE.1.cast_signed() - NAME_STEP * (4 + names.len() as i32);
    for (y, peer, colour) in names {
        name_y_max += NAME_STEP;
        name_y = (name_y + NAME_STEP).max(y - NAME_STEP / 2).min(name_y_max);
        let name_position = (SIZE.0.cast_signed() - MARGIN_RIGHT + 8, name_y);
        root.draw(&Text::new(peer.name(), name_position, text_style(14, colour)))?;
    }
    root.present()?;
    Ok(())
}

/// Returns the minimum and the maximum, and widens an empty range.
fn range(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let (low, high) = (values.clone().fold(f64::MAX, f64::min), values.fold(f64::MIN, f64::max));
    if high > low { (low, high) } else { (low, low + low.abs().max(1.0)) }
}

fn text_style(height: i32, colour: RGBColor) -> TextStyle<'static> {
    ("sans-serif", height).into_font().color(&colour)
}

/// Returns a peer's color: red to yellow for corewheel, gray for `floor` and `floor-cas`, and
/// distinct hues for other adjacent peers.
fn colour(peer: Peer) -> RGBColor {
    let peer_index = f64::from(peer as u8);
    let hue = match peer {
        Peer::Floor | Peer::FloorCas => return GREY,
        peer if peer.is_corewheel() => (0.94 + 0.04 * peer_index).fract(),
        _ => 0.17 + 0.6 * (peer_index * 0.618).fract(),
    };
    // Blue looks darker than green of the same lightness.
    let lightness = if hue > 0.5 { 0.62 } else { 0.45 };
    let (red, green, blue) = HSLColor(hue, 0.6, lightness).to_rgba().rgb();
    RGBColor(red, green, blue)
}
