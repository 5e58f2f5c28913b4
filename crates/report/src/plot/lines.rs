//! Curves with bands.

use std::collections::BTreeSet;

use super::axes::Frame;
use super::canvas::{AXIS, Canvas, Paint, Point};
use super::legend::{Sample, legend};
use super::paint;
use crate::figure::{BANDS, MethodStyle, SEED_STRENGTH, Series};

/// Widths of means, of what they are compared with, and of single seeds.
const MEAN: f64 = 1.2;
const FAINT: f64 = 0.8;
const SEED: f64 = 0.35;
/// The height of the drawing, relative to the width of the figure.
const HEIGHT: f64 = 0.56;
const BAND_STRENGTH: f64 = 0.15;

/// The ends of an axis.
const FARTHEST: f64 = 1e100;

pub(super) fn lines(
    canvas: &mut Canvas,
    font: f64,
    (x, y): (&str, &str),
    percent: bool,
    range: [Option<f64>; 2],
    series: &[Series],
    styles: &[MethodStyle],
) {
    let scale = if percent { 100.0 } else { 1.0 };
    let within = |value: f64| scale * value.max(range[0].unwrap_or(f64::MIN)).min(range[1].unwrap_or(f64::MAX));
    let methods: BTreeSet<usize> = series.iter().map(|curve| curve.method).collect();
    let bands = methods.len() <= BANDS;
    let banded = |curve: &Series| bands && curve.has_spread();
    let (mut left, mut right, mut low, mut high) = (f64::MAX, f64::MIN, f64::MAX, f64::MIN);
    let mut cover = |x: f64, y: f64| {
        (left, right, low, high) = (left.min(x), right.max(x), low.min(y), high.max(y));
    };
    for curve in series {
        curve.seeds.iter().filter(|_| bands).flat_map(|line| &line.points).for_each(|p| cover(p[0], scale * p[1]));
        for point in &curve.points {
            cover(point[0], scale * point[1]);
            if banded(curve) {
                cover(point[0], within(point[2]));
                cover(point[0], within(point[3]));
            }
        }
    }
    if left >= right {
        (left, right) = (left - 1.0, right + 1.0);
    }
    // Far beyond what is measured, but below where differences of two numbers overflow.
    let [left, right, low, high] = [left, right, low, high].map(|end| end.clamp(-FARTHEST, FARTHEST));
    let margin = if high > low { 0.04 * (high - low) } else { 1.0_f64.max(high.abs()) * 0.1 };
    let low = (low - margin).max(range[0].map_or(f64::MIN, |low| scale * low));
    let high = (high + margin).min(range[1].map_or(f64::MAX, |high| scale * high));
    let top = legend(canvas, font, font, 0.2 * font, &entries(series, styles));
    let y = if percent { format!("{y} (%)") } else { y.to_string() };
    let tall = HEIGHT * canvas.width;
    let mut frame = Frame::with_y(canvas, font, top + 0.4 * font, tall, (low, high), &y);
    frame.x = (left, right);
    frame.x_numbers(canvas, font, x, x == "round");
    for curve in series.iter().filter(|curve| banded(curve)) {
        let upper = curve.points.iter().map(|p| frame.at(p[0], within(p[3])));
        let lower = curve.points.iter().rev().map(|p| frame.at(p[0], within(p[2])));
        let colour = Paint { opacity: BAND_STRENGTH, ..paint(styles, curve.method) };
        canvas.area(upper.chain(lower).collect(), colour);
    }
    for curve in series.iter().filter(|_| bands) {
        let colour = paint(styles, curve.method);
        for line in &curve.seeds {
            let points: Vec<Point> = line.points.iter().map(|p| frame.at(p[0], scale * p[1])).collect();
            if let Some(end) = points.last() {
                canvas.dot(*end, 0.9, colour);
            }
            canvas.line(points, Paint { opacity: SEED_STRENGTH, ..colour }, SEED, &[]);
        }
    }
    for curve in series {
        let colour = paint(styles, curve.method);
        let points: Vec<Point> = curve.points.iter().map(|p| frame.at(p[0], scale * p[1])).collect();
        let (width, dash) = pen(curve.faint, styles.get(curve.method));
        match points[..] {
            [at] => canvas.dot(at, 1.8, colour),
            _ => canvas.line(points, colour, width, &dash),
        }
    }
    frame.spines(canvas);
}

/// The width and the dash of a curve.
fn pen(faint: bool, style: Option<&MethodStyle>) -> (f64, Vec<f64>) {
    if faint {
        return (FAINT, vec![1.2, 1.4]);
    }
    (MEAN, style.map_or(Vec::new(), |style| style.dash.iter().map(|part| 0.5 * f64::from(*part)).collect()))
}

/// The methods, and once for all of them what solid and dotted lines mean.
fn entries(series: &[Series], styles: &[MethodStyle]) -> Vec<(String, Sample)> {
    let methods: BTreeSet<usize> = series.iter().map(|curve| curve.method).collect();
    let of = |method: usize| {
        let (width, dash) = pen(false, styles.get(method));
        let label = styles.get(method).map_or(String::new(), |style| style.label.clone());
        (label, Sample::Line(paint(styles, method), width, dash))
    };
    let mut all: Vec<(String, Sample)> = methods.into_iter().map(of).collect();
    let mut parts: Vec<(&str, bool)> = Vec::new();
    for curve in series.iter().filter(|curve| !curve.part.is_empty()) {
        if !parts.contains(&(&curve.part, curve.faint)) {
            parts.push((&curve.part, curve.faint));
        }
    }
    all.extend(parts.into_iter().map(|(part, faint)| {
        let (width, dash) = pen(faint, None);
        (part.to_string(), Sample::Line(AXIS, width, dash))
    }));
    all
}
