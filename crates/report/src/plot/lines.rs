//! Curves with bands.

use std::collections::BTreeSet;

use plotters::prelude::*;

use super::legend::{legend, width};
use super::{Area, Drawn, FONT, SIZE, paint, trimmed};
use crate::figure::{Figure, MethodStyle, Series};

/// Maximum number of methods with bands: more would overlap.
const BANDS: usize = 6;

/// How strong the lines of single seeds are.
const SEED_STRENGTH: f64 = 0.4;

/// The ends of an axis.
const FARTHEST: f64 = 1e100;

/// Maximum number of labels along an axis.
const LABELS: usize = 11;

pub(super) fn lines(
    area: &Area<'_>,
    figure: &Figure,
    (x, y): (&str, &str),
    percent: bool,
    series: &[Series],
    styles: &[MethodStyle],
) -> Drawn {
    area.fill(&WHITE)?;
    let scale = if percent { 100.0 } else { 1.0 };
    let (mut left, mut right, mut low, mut high) = (f64::MAX, f64::MIN, f64::MAX, f64::MIN);
    let methods: BTreeSet<usize> = series.iter().map(|curve| curve.method).collect();
    let spread = |curve: &Series| !curve.faint && curve.points.iter().any(|point| point[2] < point[3]);
    let bands = methods.len() <= BANDS;
    for curve in series {
        let (below, above) = if bands && spread(curve) { (2, 3) } else { (1, 1) };
        for point in curve.seeds.iter().filter(|_| bands).flat_map(|line| &line.points) {
            left = left.min(point[0]);
            right = right.max(point[0]);
            low = low.min(scale * point[1]);
            high = high.max(scale * point[1]);
        }
        for point in &curve.points {
            left = left.min(point[0]);
            right = right.max(point[0]);
            low = low.min(scale * point[below]);
            high = high.max(scale * point[above]);
        }
    }
    let bare = !bands && series.iter().any(spread);
    let title = format!("{}{}", figure.title, if bare { " (means, no bands)" } else { "" });
    if left >= right {
        (left, right) = (left - 1.0, right + 1.0);
    }
    // Far beyond what is measured, but below where differences of two numbers overflow.
    let [left, right, low, high] = [left, right, low, high].map(|end| end.clamp(-FARTHEST, FARTHEST));
    let margin = if high > low { 0.05 * (high - low) } else { 1.0_f64.max(high.abs()) * 0.1 };
    // The legend is to the right of the drawing.
    let names: Vec<String> = series.iter().map(|series| name(series, styles)).collect();
    let (plot, side) = area.split_horizontally(SIZE.0 as i32 - width(names.iter().map(String::as_str)));
    let mut chart = ChartBuilder::on(&plot)
        .margin(12)
        .caption(title, (FONT, 17))
        .x_label_area_size(42)
        .y_label_area_size(58)
        .build_cartesian_2d(left..right, low - margin..high + margin)?;
    let y = if percent { format!("{y} (%)") } else { y.to_string() };
    chart
        .configure_mesh()
        .x_labels(if x == "round" { (right - left) as usize + 1 } else { LABELS }.clamp(2, LABELS))
        .x_desc(x)
        .y_desc(y)
        .label_style((FONT, 13))
        .axis_desc_style((FONT, 14))
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .x_label_formatter(&|x| trimmed(*x))
        .y_label_formatter(&|y| trimmed(*y))
        .draw()?;
    for curve in series {
        let paint = paint(styles, curve.method);
        let strength = if curve.faint { 0.45 } else { 1.0 };
        if bands && spread(curve) {
            let upper = curve.points.iter().map(|point| (point[0], scale * point[3]));
            let lower = curve.points.iter().rev().map(|point| (point[0], scale * point[2]));
            let outline: Vec<(f64, f64)> = upper.chain(lower).collect();
            chart.draw_series([Polygon::new(outline, paint.mix(0.15).filled())])?;
        }
        for line in curve.seeds.iter().filter(|_| bands) {
            let points = || line.points.iter().map(|point| (point[0], scale * point[1]));
            let thin = paint.mix(SEED_STRENGTH);
            chart.draw_series(LineSeries::new(points(), thin.stroke_width(1)))?;
            chart.draw_series(points().next_back().map(|at| Circle::new(at, 2, paint.filled())))?;
        }
        let points = curve.points.iter().map(|point| (point[0], scale * point[1]));
        let pen = paint.mix(strength).stroke_width(2);
        if curve.points.len() == 1 {
            chart.draw_series(points.map(|at| Circle::new(at, 3, pen)))?;
        } else {
            match styles.get(curve.method).map_or(&[][..], |style| style.dash) {
                [] => drop(chart.draw_series(LineSeries::new(points, pen))?),
                [dash, gap, ..] => drop(chart.draw_series(DashedLineSeries::new(points, *dash, *gap, pen))?),
                [_] => {}
            }
        }
    }
    let entries = series.iter().map(|curve| (curve.method, name(curve, styles), curve.faint)).collect::<Vec<_>>();
    legend(&side, &entries, styles, false)
}

fn name(series: &Series, styles: &[MethodStyle]) -> String {
    let label = styles.get(series.method).map_or("", |style| style.label.as_str());
    if series.part.is_empty() { label.to_string() } else { format!("{label}, {}", series.part) }
}
