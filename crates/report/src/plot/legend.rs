//! Legends above drawings: as many rows as they need.

use super::canvas::{Anchor, BLACK, Canvas, Paint, Point};
use super::typeface::{fit, width};

/// What an entry shows beside its name.
#[derive(Clone, Debug)]
pub(super) enum Sample {
    /// A line of this width and dash.
    Line(Paint, f64, Vec<f64>),
    /// A mark of this shape.
    Mark(Paint, usize),
    /// A dot.
    Dot(Paint),
}

/// Draws the entries from the left edge at `top`; returns where they end.
pub(super) fn legend(canvas: &mut Canvas, font: f64, left: f64, top: f64, entries: &[(String, Sample)]) -> f64 {
    let (row, gap, right) = (1.3 * font, 1.1 * font, canvas.width - 0.3 * font);
    let (mut x, mut y) = (left, top + font);
    for (name, sample) in entries {
        let before = match sample {
            Sample::Line(..) => 2.2 * font,
            Sample::Mark(..) | Sample::Dot(_) => font,
        };
        let name = fit(name, font, right - left - before);
        let needed = before + width(&name, font);
        if x > left && x + needed > right {
            (x, y) = (left, y + row);
        }
        let middle = y - 0.34 * font;
        match sample {
            Sample::Line(paint, width, dash) => {
                canvas.line(vec![(x, middle), (x + 1.8 * font, middle)], *paint, *width, dash);
            }
            Sample::Mark(paint, shape) => mark(canvas, *shape, (x + 0.4 * font, middle), 0.28 * font, *paint),
            Sample::Dot(paint) => canvas.dot((x + 0.4 * font, middle), 0.28 * font, *paint),
        }
        canvas.text((x + before, y), &name, font, Anchor::Start, BLACK);
        x += needed + gap;
    }
    if entries.is_empty() { top } else { y + 0.6 * font }
}

/// A mark, as in the page.
pub(super) fn mark(canvas: &mut Canvas, shape: usize, (x, y): Point, radius: f64, paint: Paint) {
    let corners = |by: &[Point]| by.iter().map(|(a, b)| (x + a * radius, y + b * radius)).collect::<Vec<_>>();
    match shape {
        0 => canvas.dot((x, y), radius, paint),
        1 => canvas.area(corners(&[(0.0, -1.2), (1.1, 0.9), (-1.1, 0.9)]), paint),
        2 => canvas.area(corners(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]), paint),
        _ => canvas.area(corners(&[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)]), paint),
    }
}
