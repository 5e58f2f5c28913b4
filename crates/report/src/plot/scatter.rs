//! Points in a plane, coloured by class.

use std::collections::BTreeSet;

use super::canvas::{AXIS, Anchor, BLACK, Canvas, Paint};
use super::legend::{Sample, legend};
use super::typeface::fit;
use crate::figure::{Theme, class_colour};

/// Names in the legend.
const MOST_NAMES: usize = 200;

pub(super) fn scatter(canvas: &mut Canvas, font: f64, title: &str, classes: &[String], points: &[(f64, f64, usize)]) {
    let (left, top) = (0.5 * font, 1.7 * font);
    let (wide, tall) = (canvas.width - font, 0.8 * canvas.width);
    let bound = |of: &dyn Fn(&(f64, f64, usize)) -> f64| {
        let (low, high) = points.iter().fold((f64::MAX, f64::MIN), |(low, high), p| (low.min(of(p)), high.max(of(p))));
        let margin = 0.03 * (high - low).max(1e-9);
        (low - margin, high + margin)
    };
    let ((x0, x1), (y0, y1)) = (bound(&|p| p.0), bound(&|p| p.1));
    let paint = |class: usize| Paint::solid(class_colour(class, classes.len(), Theme::Light));
    canvas.text((left, font), &fit(title, font, wide), font, Anchor::Start, BLACK);
    for &(x, y, class) in points {
        let at = (left + (x - x0) / (x1 - x0) * wide, top + (y1 - y) / (y1 - y0) * tall);
        canvas.dot(at, 0.12 * font, paint(class));
    }
    let (right, bottom) = (left + wide, top + tall);
    canvas.line(vec![(left, top), (right, top), (right, bottom), (left, bottom), (left, top)], AXIS, 0.5, &[]);
    // A class without a point needs no name, and no legend helps to tell more classes than this apart.
    let there: BTreeSet<usize> = points.iter().map(|&(.., class)| class).collect();
    let named = there.into_iter().filter_map(|class| Some((classes.get(class)?.clone(), Sample::Dot(paint(class)))));
    let entries: Vec<(String, Sample)> = named.take(MOST_NAMES).collect();
    canvas.height = legend(canvas, font, left, bottom + 0.4 * font, &entries);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_legend_has_the_classes_that_are_there_and_no_more_than_can_be_told_apart() {
        let names: Vec<String> = (0..30_000).map(|class| format!("class {class}")).collect();
        let drawn = |points: &[(f64, f64, usize)]| {
            let mut canvas = Canvas::new(88.0);
            scatter(&mut canvas, 8.0, "title", &names, points);
            canvas.height
        };
        let few = drawn(&[(0.0, 0.0, 3), (1.0, 1.0, 29_999)]);
        assert_eq!(few, drawn(&[(0.0, 0.0, 3), (1.0, 1.0, 4), (0.5, 0.1, 3)]));
        let all: Vec<(f64, f64, usize)> = (0..30_000).map(|class| (class as f64, 0.0, class)).collect();
        assert!(few < drawn(&all[..50]) && drawn(&all[..50]) < drawn(&all[..200]));
        assert_eq!(drawn(&all[..200]), drawn(&all));
    }
}
