//! Axes with ticks at round numbers.

use super::canvas::{AXIS, Anchor, BLACK, Canvas, GRID, Point};
use super::trimmed;
use super::typeface::{longest, width};

/// Where numbers lie in a drawing.
pub(super) struct Frame {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) right: f64,
    pub(super) bottom: f64,
    pub(super) x: (f64, f64),
    pub(super) y: (f64, f64),
}

/// The width of axes.
const THIN: f64 = 0.5;
const TICK: f64 = 2.5;

impl Frame {
    pub(super) fn at(&self, x: f64, y: f64) -> Point {
        let across = (x - self.x.0) / (self.x.1 - self.x.0);
        let up = (y - self.y.0) / (self.y.1 - self.y.0);
        (self.left + across * (self.right - self.left), self.bottom - up * (self.bottom - self.top))
    }

    /// A frame `high` points high, with room for the labels of the vertical axis, which are drawn.
    pub(super) fn with_y(canvas: &mut Canvas, font: f64, top: f64, high: f64, y: (f64, f64), name: &str) -> Self {
        let most = (high / (2.2 * font)).clamp(2.0, 8.0) as usize;
        let at = ticks(y, most);
        let labels: Vec<String> = at.iter().map(|tick| trimmed(*tick)).collect();
        let left = 1.5 * font + longest(&labels, font) + TICK + 2.0;
        let frame = Self { left, top, right: canvas.width - 1.2 * font, bottom: top + high, x: (0.0, 1.0), y };
        for (tick, label) in at.iter().zip(&labels) {
            let (_, y) = frame.at(0.0, *tick);
            canvas.line(vec![(left, y), (frame.right, y)], GRID, THIN, &[]);
            canvas.line(vec![(left - TICK, y), (left, y)], AXIS, THIN, &[]);
            canvas.text((left - TICK - 1.5, y + 0.35 * font), label, font, Anchor::End, BLACK);
        }
        let middle = (frame.top + frame.bottom) / 2.0;
        canvas.turned((font, middle), name, font, Anchor::Middle, BLACK);
        frame
    }

    /// The horizontal axis with numbers; `whole` ones if there is nothing between them.
    pub(super) fn x_numbers(&self, canvas: &mut Canvas, font: f64, name: &str, whole: bool) {
        let room = self.right - self.left;
        let mut most = 10;
        let (mut at, mut labels);
        loop {
            at = ticks(self.x, most);
            at.retain(|tick| !whole || tick.fract() == 0.0);
            labels = at.iter().map(|tick| trimmed(*tick)).collect::<Vec<_>>();
            let needed: f64 = labels.iter().map(|label| width(label, font) + 0.8 * font).sum();
            if needed <= room || most <= 2 {
                break;
            }
            most -= 1;
        }
        for (tick, label) in at.iter().zip(&labels) {
            let (x, y) = self.at(*tick, self.y.0);
            canvas.line(vec![(x, y), (x, y + TICK)], AXIS, THIN, &[]);
            canvas.text((x, y + TICK + font), label, font, Anchor::Middle, BLACK);
        }
        self.x_name(canvas, font, name, TICK + font);
    }

    /// The name of the horizontal axis below labels that reach `down`.
    pub(super) fn x_name(&self, canvas: &mut Canvas, font: f64, name: &str, down: f64) {
        let middle = (self.left + self.right) / 2.0;
        canvas.text((middle, self.bottom + down + 1.25 * font), name, font, Anchor::Middle, BLACK);
        canvas.height = self.bottom + down + 1.6 * font;
    }

    /// The two axes, above the grid.
    pub(super) fn spines(&self, canvas: &mut Canvas) {
        let corners = vec![(self.left, self.top), (self.left, self.bottom), (self.right, self.bottom)];
        canvas.line(corners, AXIS, THIN, &[]);
    }
}

/// At most about `most` round numbers in a range.
pub(super) fn ticks((low, high): (f64, f64), most: usize) -> Vec<f64> {
    let span = high - low;
    if !(span > 0.0 && span.is_finite()) {
        return vec![low];
    }
    let raw = span / most.max(1) as f64;
    let unit = libm::pow(10.0, libm::floor(libm::log10(raw)));
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].iter().map(|part| part * unit).find(|step| *step >= raw * 0.999_999);
    let step = step.unwrap_or(10.0 * unit);
    let first = (low / step - 1e-9).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    (first..=last).map(|n| n as f64 * step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        let close = |a: &[f64], b: &[f64]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9);
        assert!(close(&ticks((0.0, 100.0), 5), &[0.0, 20.0, 40.0, 60.0, 80.0, 100.0]));
        assert!(close(&ticks((0.13, 0.29), 4), &[0.15, 0.2, 0.25]));
        assert!(close(&ticks((1.0, 30.0), 6), &[5.0, 10.0, 15.0, 20.0, 25.0, 30.0]));
        assert!(close(&ticks((-0.3, 0.3), 3), &[-0.2, 0.0, 0.2]));
        assert_eq!(ticks((2.0, 2.0), 5), [2.0]);
        assert_eq!(ticks((0.0, f64::INFINITY), 5), [0.0]);
    }
}
