//! Bars: bytes per timer while all are live (full), and after all were cancelled (hollow).

use std::{io, path::Path};

use plotters::prelude::{IntoDrawingArea, RGBColor, Rectangle, SVGBackend, Text};
use plotters::style::Color;

use super::canvas::{failed, letters};

const WIDTH: u32 = 860;
const HEAD: i32 = 40;
const ROW: i32 = 34;
const LEFT: i32 = 190;
const LONGEST: f64 = 560.0;

/// One peer's two bars.
pub(super) struct Bars {
    pub(super) label: String,
    pub(super) colour: RGBColor,
    pub(super) live: f64,
    pub(super) left: f64,
}

/// Draws them into a file.
pub(super) fn draw_bars(path: &Path, rows: &[Bars]) -> io::Result<()> {
    let height = HEAD + ROW * i32::try_from(rows.len()).unwrap_or(i32::MAX / ROW);
    let root = SVGBackend::new(path, (WIDTH, height.cast_unsigned())).into_drawing_area();
    let title = "bytes per timer: full, while all are live; hollow, after all were cancelled";
    root.draw(&Text::new(title, (10, 10), letters(16))).map_err(failed)?;
    let greatest = rows.iter().map(|row| row.live.max(row.left)).fold(1.0, f64::max);
    for (row, top) in rows.iter().zip((HEAD..).step_by(ROW.unsigned_abs() as usize)) {
        root.draw(&Text::new(row.label.as_str(), (10, top + 6), letters(14).color(&row.colour)))
            .map_err(failed)?;
        for (value, top, style) in
            [(row.live, top, row.colour.filled()), (row.left, top + 14, row.colour.stroke_width(1))]
        {
            let end = LEFT + pixels(value, greatest);
            root.draw(&Rectangle::new([(LEFT, top), (end, top + 12)], style)).map_err(failed)?;
            root.draw(&Text::new(format!("{value:.0}"), (end + 6, top), letters(12)))
                .map_err(failed)?;
        }
    }
    root.present().map_err(failed)
}

fn pixels(value: f64, greatest: f64) -> i32 {
    (value.max(0.0) / greatest * LONGEST) as i32
}
