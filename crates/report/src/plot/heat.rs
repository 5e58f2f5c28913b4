//! Heat maps.

use super::axes::ticks;
use super::canvas::{AXIS, Anchor, BLACK, Canvas, Paint};
use super::trimmed;
use super::typeface::{fit, longest, width};
use crate::figure::{Rgb, ink, shade};

pub(super) struct Map<'a> {
    pub(super) title: &'a str,
    pub(super) x: &'a str,
    pub(super) y: &'a str,
    pub(super) columns: &'a [String],
    pub(super) rows: &'a [String],
    pub(super) cells: &'a [Vec<Option<f64>>],
    pub(super) high: f64,
    pub(super) percent: bool,
}

/// Cells without a number.
const MISSING: Rgb = (225, 225, 225);
/// Neighbours overlap by this much: viewers leave gaps between areas that only touch.
const OVERLAP: f64 = 0.3;
/// Numbers in cells are not smaller than this part of the font size.
const SMALLEST: f64 = 0.6;
const TICK: f64 = 2.0;
/// A map is at least this high, and labels of its scale are at least this far apart, in font sizes.
const LEAST: f64 = 5.0;
const APART: f64 = 1.1;
/// Maximum ticks of a scale of shares.
const TICKS: usize = 5;

impl Map<'_> {
    /// Where a number is on the scale. Counts have a square-root scale, so that small ones can be seen.
    fn share(&self, value: f64) -> f64 {
        let share = (value / self.high.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
        if self.percent { share } else { share.sqrt() }
    }

    /// The colour of a number; nothing for a count of 0.
    fn colour(&self, value: f64) -> Option<Rgb> {
        (self.percent || value > 0.0).then(|| shade(self.share(value), !self.percent))
    }

    fn is_square(&self) -> bool {
        self.rows == self.columns
    }

    pub(super) fn draw(&self, canvas: &mut Canvas, font: f64) {
        let (across, down) = (self.columns.len().max(1), self.rows.len().max(1));
        let beside = longest(self.rows, font).min(0.34 * canvas.width);
        let left = 1.5 * font + beside + 4.0;
        let candidates: Vec<(f64, String)> = (1..=TICKS).flat_map(|most| self.candidates(most)).collect();
        let scale_room = longest(candidates.iter().map(|(_, label)| label), font) + 1.2 * font + 4.0;
        // Large text on narrow paper leaves nothing: then the map sticks out.
        let right = (canvas.width - scale_room - 0.4 * font).max(left + font);
        let cell = (right - left) / across as f64;
        let high = match self.is_square() {
            true => cell.max(LEAST * font / down as f64),
            false => (1.25 * font).min(1.2 * canvas.width / down as f64).max(LEAST * font / down as f64),
        };
        let top = 1.7 * font;
        let (wide, tall) = (right - left, high * down as f64);
        let bottom = top + tall;
        // Above the cells, or further left if it is long.
        let title = fit(self.title, font, canvas.width - 0.6 * font);
        let at = left.min(canvas.width - 0.3 * font - width(&title, font));
        canvas.text((at, font), &title, font, Anchor::Start, BLACK);
        for (row, values) in self.cells.iter().enumerate() {
            for (column, value) in values.iter().enumerate() {
                let Some(colour) = value.map_or(Some(MISSING), |value| self.colour(value)) else { continue };
                let more = |last: bool| if last { 0.0 } else { OVERLAP };
                let size = (cell + more(column + 1 == across), high + more(row + 1 == down));
                let at = (left + column as f64 * cell, top + row as f64 * high);
                canvas.rectangle(at, size, Paint::solid(colour));
            }
        }
        self.numbers(canvas, font, (left, top), (cell, high));
        let frame = vec![(left, top), (right, top), (right, bottom), (left, bottom), (left, top)];
        canvas.line(frame, AXIS, 0.5, &[]);
        // Names in the middle of their cells, as many as fit.
        for row in (0..self.rows.len()).step_by((1.05 * font / high).ceil().max(1.0) as usize) {
            let y = top + (row as f64 + 0.5) * high;
            let name = fit(&self.rows[row], font, beside + 0.1);
            canvas.text((left - 3.0, y + 0.35 * font), &name, font, Anchor::End, BLACK);
        }
        let upright = longest(self.columns, font) + 0.5 * font;
        // Numbers may be left out in between; names are turned before that.
        let names = self.columns.iter().any(|name| name.parse::<f64>().is_err());
        let turned = names && upright > cell;
        let needed = if turned { 1.1 * font } else { upright };
        let room = 0.3 * canvas.width;
        for column in (0..self.columns.len()).step_by((needed / cell).ceil().max(1.0) as usize) {
            let x = left + (column as f64 + 0.5) * cell;
            if turned {
                let name = fit(&self.columns[column], font, room);
                canvas.turned((x + 0.35 * font, bottom + 3.0), &name, font, Anchor::End, BLACK);
            } else {
                canvas.text((x, bottom + font + 1.0), &self.columns[column], font, Anchor::Middle, BLACK);
            }
        }
        let below = if turned { longest(self.columns, font).min(room) + 3.0 } else { font + 1.0 };
        let middle = (left + right) / 2.0;
        canvas.text((middle, bottom + below + 1.25 * font), self.x, font, Anchor::Middle, BLACK);
        canvas.turned((font, top + tall / 2.0), self.y, font, Anchor::Middle, BLACK);
        canvas.height = bottom + below + 1.6 * font;
        self.scale(canvas, font, (left + wide + 0.6 * font, top, bottom));
    }

    /// The number of each cell, if all of them fit.
    fn numbers(&self, canvas: &mut Canvas, font: f64, (left, top): (f64, f64), (cell, high): (f64, f64)) {
        let text = |value: f64| if self.percent { format!("{:.0}", 100.0 * value) } else { trimmed(value) };
        let shown = |value: &Option<f64>| value.filter(|value| self.percent || *value > 0.0).map(text);
        let texts: Vec<Vec<Option<String>>> = self.cells.iter().map(|row| row.iter().map(shown).collect()).collect();
        let widest = longest(texts.iter().flatten().flatten(), 1.0).max(0.5);
        let size = font.min(0.88 * cell / widest).min(0.85 * high);
        if size < SMALLEST * font {
            return;
        }
        for (row, values) in texts.iter().enumerate() {
            for (column, text) in values.iter().enumerate() {
                let (Some(text), Some(value)) = (text, self.cells[row][column]) else { continue };
                let colour = Paint::solid(ink(self.colour(value).unwrap_or((255, 255, 255))));
                let (x, y) = (left + (column as f64 + 0.5) * cell, top + (row as f64 + 0.5) * high);
                canvas.text((x, y + 0.35 * size), text, size, Anchor::Middle, colour);
            }
        }
    }

    /// Places and texts that the scale may have, in order.
    fn candidates(&self, most: usize) -> Vec<(f64, String)> {
        if self.percent {
            let at = ticks((0.0, 100.0 * self.high), most);
            return at.into_iter().map(|at| (self.share(at / 100.0), format!("{} %", trimmed(at)))).collect();
        }
        // 1, then round numbers, and the largest.
        let steps = (0..9).flat_map(|power| [1.0, 2.0, 5.0].map(|part| part * libm::pow(10.0, f64::from(power))));
        let inside = steps.filter(|at| *at <= 1.0 || *at < self.high).chain((self.high > 1.0).then_some(self.high));
        inside.map(|at| (self.share(at), trimmed(at))).collect()
    }

    /// Places and texts of the scale: those that keep their distance, by where each text is. Shares have even steps; of
    /// counts, the smallest and the largest come first.
    fn scale_labels(&self, far: impl Fn(f64, f64) -> bool) -> Vec<(f64, String)> {
        if self.percent {
            let fits = |all: &Vec<(f64, String)>| all.windows(2).all(|pair| far(pair[0].0, pair[1].0));
            return (1..=TICKS).rev().map(|most| self.candidates(most)).find(fits).unwrap_or_default();
        }
        let mut all = self.candidates(TICKS);
        let Some(largest) = all.pop() else { return all };
        let mut found: Vec<(f64, String)> = Vec::new();
        for one in all {
            if found.last().is_none_or(|last| far(last.0, one.0)) && far(one.0, largest.0) {
                found.push(one);
            }
        }
        found.push(largest);
        found
    }

    fn scale(&self, canvas: &mut Canvas, font: f64, (left, top, bottom): (f64, f64, f64)) {
        const STEPS: usize = 64;
        let (wide, tall) = (0.8 * font, bottom - top);
        for step in 0..STEPS {
            let share = (step as f64 + 0.5) / STEPS as f64;
            let high = tall / STEPS as f64;
            let at = (left, bottom - (step + 1) as f64 * high);
            let more = if step == 0 { 0.0 } else { OVERLAP };
            canvas.rectangle(at, (wide, high + more), Paint::solid(shade(share, !self.percent)));
        }
        // The base of a text: it does not reach beyond the scale.
        let base = |share: f64| (bottom - share * tall + 0.35 * font).max(top + 0.7 * font).min(bottom);
        let far = |a: f64, b: f64| (base(a) - base(b)).abs() >= (APART * font).max(0.14 * tall);
        for (share, label) in self.scale_labels(far) {
            let y = bottom - share * tall;
            canvas.line(vec![(left + wide, y), (left + wide + TICK, y)], AXIS, 0.5, &[]);
            canvas.text((left + wide + TICK + 1.0, base(share)), &label, font, Anchor::Start, BLACK);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::canvas::Shape;

    /// The texts right of the map, from the bottom: where they are, and what they say.
    fn scale(canvas: &Canvas) -> Vec<(f64, String)> {
        let text = |shape: &Shape| match shape {
            Shape::Text { at, text, anchor: Anchor::Start, turned: false, .. } => Some((at.1, text.clone())),
            _ => None,
        };
        // The first is the title.
        canvas.shapes.iter().filter_map(text).skip(1).collect()
    }

    fn drawn(rows: usize, columns: usize, high: f64, percent: bool, (wide, font): (f64, f64)) -> Canvas {
        let names = |n: usize| (0..n).map(|i| i.to_string()).collect::<Vec<_>>();
        let (down, across) = (names(rows), names(columns));
        let cells = vec![vec![Some(high); columns]; rows];
        let map = Map { title: "t", x: "x", y: "y", columns: &across, rows: &down, cells: &cells, high, percent };
        let mut canvas = Canvas::new(wide);
        map.draw(&mut canvas, font);
        canvas
    }

    #[test]
    fn labels_of_a_scale_never_overlap() {
        for (rows, columns) in [(1, 1), (1, 8), (2, 2), (2, 8), (3, 2), (10, 10), (60, 10), (100, 100), (0, 0)] {
            for paper in [(88.0, 8.0), (180.0, 9.5), (40.0, 6.0), (30.0, 40.0), (1_000.0, 3.0)] {
                let counts = [0.0, 1.0, 2.0, 3.0, 7.0, 10.0, 12.0, 600.0, 123_456.0].map(|high| (high, false));
                for (high, percent) in counts.into_iter().chain([0.01, 0.37, 0.5, 1.0].map(|high| (high, true))) {
                    let said = scale(&drawn(rows, columns, high, percent, paper));
                    let case = format!("{rows} by {columns}, {high} on {paper:?}: {said:?}");
                    assert!(!said.is_empty() && said.iter().all(|(y, _)| y.is_finite()), "{case}");
                    assert!(said.windows(2).all(|pair| pair[0].0 - pair[1].0 >= paper.1), "{case}");
                    // Both ends are there.
                    assert!(said.len() > 1 || high <= 1.0 && !percent, "{case}");
                }
            }
        }
        let texts = |rows, high, percent| -> Vec<String> {
            scale(&drawn(rows, 8, high, percent, (88.0, 8.0))).into_iter().map(|(_, text)| text).collect()
        };
        assert_eq!(texts(2, 1.0, true), ["0 %", "50 %", "100 %"]);
        assert_eq!(texts(3, 10.0, false), ["1", "5", "10"]);
    }
}
