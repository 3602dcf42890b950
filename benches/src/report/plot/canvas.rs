//! What all plots share: colours and letters.

use std::{fmt::Display, io};

use clap::ValueEnum;
use plotters::style::{Color, HSLColor, IntoFont, RGBAColor, RGBColor, TextStyle};

use crate::plan::Peer;

/// Letters and axes.
pub(super) const INK: RGBColor = RGBColor(128, 128, 128);

/// The lines behind the figures.
pub(super) fn grid() -> RGBAColor {
    INK.mix(0.25)
}

/// Letters of a height in pixels.
pub(super) fn letters(height: i32) -> TextStyle<'static> {
    ("sans-serif", height).into_font().color(&INK)
}

/// Always the same one for a peer. Ours are red, the floors grey, the others go round the rest of the circle.
pub(super) fn colour(peer: Peer) -> RGBColor {
    match peer {
        Peer::CorewheelWheel => RGBColor(214, 48, 49),
        Peer::CorewheelShard => RGBColor(225, 112, 40),
        Peer::CorewheelLocal => RGBColor(200, 60, 130),
        Peer::CorewheelLocalFast => RGBColor(150, 60, 200),
        Peer::Floor => RGBColor(120, 120, 120),
        Peer::FloorCas => RGBColor(150, 150, 150),
        _ => {
            // Those of one core, and those of two, which hardly ever meet.
            let others = Peer::value_variants()[6..].split_at(10);
            let others = if others.0.contains(&peer) { others.0 } else { others.1 };
            circle(others.iter().position(|&other| other == peer).unwrap_or(0), others.len())
        }
    }
}

/// One of so many colours around the circle, without its red.
pub(super) fn circle(place: usize, of: usize) -> RGBColor {
    let hue = 0.15 + 0.65 * place as f64 / of as f64;
    // Blue looks darker than green of the same lightness.
    let lightness = if hue > 0.5 { 0.62 } else { 0.45 };
    let (red, green, blue) = HSLColor(hue, 0.6, lightness).to_rgba().rgb();
    RGBColor(red, green, blue)
}

/// What a drawing library has to say, for those who only want the file.
pub(super) fn failed(error: impl Display) -> io::Error {
    io::Error::other(error.to_string())
}
