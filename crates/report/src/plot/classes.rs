//! Accuracy per class in the last round, one mark per method.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::legend::{legend, mark, width};
use super::{Area, Drawn, FONT, SIZE, fit, paint, plot_text, room, trimmed};
use crate::figure::MethodStyle;

/// Maximum number of names below the drawing.
const NAMES: usize = 34;
/// Maximum room for them.
const ROOM: u32 = 104;

/// `series` is `[method][round][class]`.
pub(super) fn classes(
    area: &Area<'_>,
    (names, rounds): (&[String], &[u64]),
    series: &[Vec<Vec<Option<f64>>>],
    styles: &[MethodStyle],
) -> Drawn {
    area.fill(&WHITE)?;
    let labels = styles.iter().map(|style| style.label.as_str());
    let (plot, side) = area.split_horizontally(SIZE.0 as i32 - width(labels));
    let turned = names.len() > NAMES / 2 || names.iter().any(|name| name.chars().count() > 3);
    let below = if turned { room(area, names.iter(), 12, ROOM) + 34 } else { 42 };
    let title =
        rounds.last().map_or("Class accuracy".to_string(), |round| format!("Class accuracy after round {round}"));
    let mut chart = ChartBuilder::on(&plot)
        .margin(12)
        .caption(title, (FONT, 17))
        .x_label_area_size(below)
        .y_label_area_size(58)
        .build_cartesian_2d(-0.5..names.len() as f64 - 0.5, 0.0..100.0)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(0)
        .x_desc("class")
        .y_desc("accuracy (%)")
        .label_style((FONT, 13))
        .axis_desc_style((FONT, 14))
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .y_label_formatter(&|y| trimmed(*y))
        .draw()?;
    for (method, rounds) in series.iter().enumerate() {
        let (left, top) = plot.get_base_pixel();
        for (class, value) in rounds.last().into_iter().flatten().enumerate() {
            let Some(value) = value else { continue };
            let (x, y) = chart.plotting_area().map_coordinate(&(class as f64, 100.0 * value));
            mark(&plot, method, (x - left, y - top), paint(styles, method))?;
        }
    }
    // Names below their classes, as many as fit.
    let inner = chart.plotting_area();
    for (class, name) in names.iter().enumerate().step_by(names.len().div_ceil(NAMES).max(1)) {
        let (x, y) = inner.map_coordinate(&(class as f64, 0.0));
        let font = (FONT, 12).into_font();
        let (font, across, down) =
            if turned { (font.transform(FontTransform::Rotate270), HPos::Right, 6) } else { (font, HPos::Center, 11) };
        let short = fit(area, name, 12, ROOM);
        plot_text(&plot, &short, (x, y + down), font.color(&BLACK).pos(Pos::new(across, VPos::Center)))?;
    }
    let entries: Vec<(usize, String, bool)> =
        styles.iter().enumerate().map(|(method, style)| (method, style.label.clone(), false)).collect();
    legend(&side, &entries, styles, true)
}
