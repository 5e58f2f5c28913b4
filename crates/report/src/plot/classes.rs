//! Accuracy per class in the last round, one mark per method.

use super::axes::Frame;
use super::canvas::{Anchor, BLACK, Canvas, GRID};
use super::legend::{Sample, legend, mark};
use super::paint;
use super::typeface::{fit, longest};
use crate::figure::MethodStyle;

/// `series` is `[method][round][class]`.
pub(super) fn classes(
    canvas: &mut Canvas,
    font: f64,
    names: &[String],
    series: &[Vec<Vec<Option<f64>>>],
    styles: &[MethodStyle],
) {
    let shape = |method: usize| styles.get(method).map_or(0, |style| style.mark);
    let sample = |method: usize| Sample::Mark(paint(styles, method), shape(method));
    let entries: Vec<(String, Sample)> =
        styles.iter().enumerate().map(|(method, style)| (style.label.clone(), sample(method))).collect();
    let top = legend(canvas, font, font, 0.2 * font, &entries);
    let tall = 0.56 * canvas.width;
    let mut frame = Frame::with_y(canvas, font, top + 0.4 * font, tall, (0.0, 100.0), "accuracy (%)");
    frame.x = (-0.5, names.len().max(1) as f64 - 0.5);
    let cell = (frame.right - frame.left) / names.len().max(1) as f64;
    let upright = longest(names, font) + 0.5 * font;
    let turned = upright > cell;
    let needed = if turned { 1.1 * font } else { upright };
    let room = 0.3 * canvas.width;
    for (class, name) in names.iter().enumerate().step_by((needed / cell).ceil().max(1.0) as usize) {
        let (x, y) = frame.at(class as f64, 0.0);
        canvas.line(vec![(x, frame.top), (x, y)], GRID, 0.3, &[]);
        if turned {
            canvas.turned((x + 0.35 * font, y + 3.0), &fit(name, font, room), font, Anchor::End, BLACK);
        } else {
            canvas.text((x, y + font + 1.0), name, font, Anchor::Middle, BLACK);
        }
    }
    let down = if turned { longest(names, font).min(room) + 3.0 } else { font + 1.0 };
    frame.x_name(canvas, font, "class", down);
    // Marks of one class stand side by side.
    let (methods, spread) = (series.len().max(1) as f64, 0.6);
    for (method, rounds) in series.iter().enumerate() {
        let aside = spread * ((method as f64 + 0.5) / methods - 0.5);
        for (class, value) in rounds.last().into_iter().flatten().enumerate() {
            let Some(value) = value else { continue };
            let at = frame.at(class as f64 + aside, 100.0 * value);
            mark(canvas, shape(method), at, (0.22 * font).min(0.3 * cell), paint(styles, method));
        }
    }
    frame.spines(canvas);
}
