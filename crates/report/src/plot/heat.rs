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
        let scale_labels = self.scale_labels();
        let scale_room = longest(scale_labels.iter().map(|(_, label)| label), font) + 1.2 * font + 4.0;
        let right = canvas.width - scale_room - 0.4 * font;
        let cell = (right - left) / across as f64;
        let high = match self.is_square() {
            true => cell,
            false => (1.25 * font).min(1.2 * canvas.width / down as f64),
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
        self.scale(canvas, font, (left + wide + 0.6 * font, top, bottom), &scale_labels);
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

    /// Places and texts of the scale.
    fn scale_labels(&self) -> Vec<(f64, String)> {
        if self.percent {
            let at = ticks((0.0, 100.0 * self.high), 5);
            return at.into_iter().map(|at| (self.share(at / 100.0), format!("{} %", trimmed(at)))).collect();
        }
        // 1, then round numbers that keep their distance on the scale, and the largest.
        let mut found = vec![(self.share(1.0), "1".to_string())];
        let steps = (0..9).flat_map(|power| [1.0, 2.0, 5.0].map(|part| part * libm::pow(10.0, f64::from(power))));
        for at in steps.filter(|at| *at > 1.0) {
            let share = self.share(at);
            let last = found.last().map_or(0.0, |(last, _)| *last);
            if at <= self.high && share - last > 0.14 && 1.0 - share > 0.14 {
                found.push((share, trimmed(at)));
            }
        }
        if self.high > 1.0 {
            found.push((1.0, trimmed(self.high)));
        }
        found
    }

    fn scale(&self, canvas: &mut Canvas, font: f64, (left, top, bottom): (f64, f64, f64), labels: &[(f64, String)]) {
        const STEPS: usize = 64;
        let (wide, tall) = (0.8 * font, bottom - top);
        for step in 0..STEPS {
            let share = (step as f64 + 0.5) / STEPS as f64;
            let high = tall / STEPS as f64;
            let at = (left, bottom - (step + 1) as f64 * high);
            let more = if step == 0 { 0.0 } else { OVERLAP };
            canvas.rectangle(at, (wide, high + more), Paint::solid(shade(share, !self.percent)));
        }
        for (share, label) in labels {
            let y = bottom - share * tall;
            canvas.line(vec![(left + wide, y), (left + wide + TICK, y)], AXIS, 0.5, &[]);
            let y = (y + 0.35 * font).clamp(top + 0.7 * font, bottom);
            let room = canvas.width - left - wide - TICK - 1.0;
            debug_assert!(width(label, font) <= room + 0.1, "{label}");
            canvas.text((left + wide + TICK + 1.0, y), label, font, Anchor::Start, BLACK);
        }
    }
}
