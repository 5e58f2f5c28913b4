//! Heat maps.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Area, Drawn, FONT, SQUARE, fit, plot_text, room, trimmed};

/// Maximum room for names beside and below the cells.
const ROOM: u32 = 104;

/// From dark to light (viridis at even steps), as in the page.
const SHADES: [(u8, u8, u8); 9] = [
    (68, 1, 84),
    (71, 44, 122),
    (59, 81, 139),
    (44, 113, 142),
    (33, 144, 141),
    (39, 173, 129),
    (92, 200, 99),
    (170, 220, 50),
    (253, 231, 37),
];

fn shade(share: f64) -> RGBColor {
    let at = share.clamp(0.0, 1.0) * (SHADES.len() - 1) as f64;
    let (i, part) = (at.floor() as usize, at.fract());
    let (a, b) = (SHADES[i], SHADES[(i + 1).min(SHADES.len() - 1)]);
    let mix = |a: u8, b: u8| (f64::from(a) + part * (f64::from(b) - f64::from(a))).round() as u8;
    RGBColor(mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2))
}

pub(super) fn heat(
    area: &Area<'_>,
    title: &str,
    (x, y): (&str, &str),
    (columns, rows): (&[String], &[String]),
    cells: &[Vec<Option<f64>>],
    high: f64,
    percent: bool,
) -> Drawn {
    area.fill(&WHITE)?;
    let (plot, side) = area.split_horizontally(SQUARE.0 as i32 - 64);
    let (width, height) = (columns.len().max(1), rows.len().max(1));
    let tall = columns.iter().any(|column| column.chars().count() > 3);
    let (beside, below) = (room(area, rows.iter(), 12, ROOM), room(area, columns.iter(), 12, ROOM));
    let mut chart = ChartBuilder::on(&plot)
        .margin(12)
        .caption(title, (FONT, 16))
        .x_label_area_size(if tall { below + 34 } else { 40 })
        .y_label_area_size((beside + 32).max(46))
        .build_cartesian_2d(0.0..width as f64, height as f64..0.0)?;
    chart
        .configure_mesh()
        .disable_mesh()
        .x_desc(x)
        .y_desc(y)
        .axis_desc_style((FONT, 14))
        .x_labels(0)
        .y_labels(0)
        .draw()?;
    for (row, values) in cells.iter().enumerate() {
        for (column, value) in values.iter().enumerate() {
            let paint = value.map_or(RGBColor(235, 235, 235), |value| shade(value / high.max(f64::MIN_POSITIVE)));
            let corners = [(column as f64, row as f64), (column as f64 + 1.0, row as f64 + 1.0)];
            chart.draw_series([Rectangle::new(corners, paint.filled())])?;
        }
    }
    // Names in the middle of their cells, as many as fit.
    let (down, across) = (height.div_ceil(30).max(1), width.div_ceil(if tall { 28 } else { 16 }).max(1));
    let inner = chart.plotting_area();
    let small = |anchor| (FONT, 12).into_font().color(&BLACK).pos(Pos::new(anchor, VPos::Center));
    for row in (0..rows.len()).step_by(down) {
        let (x, y) = inner.map_coordinate(&(0.0, row as f64 + 0.5));
        plot_text(&plot, &fit(area, &rows[row], 12, ROOM), (x - 6, y), small(HPos::Right))?;
    }
    for column in (0..columns.len()).step_by(across) {
        let (x, y) = inner.map_coordinate(&(column as f64 + 0.5, height as f64));
        let text = fit(area, &columns[column], 12, ROOM);
        if tall {
            let font = (FONT, 12).into_font().transform(FontTransform::Rotate270).color(&BLACK);
            let style = font.pos(Pos::new(HPos::Right, VPos::Center));
            plot_text(&plot, &text, (x, y + 6), style)?;
        } else {
            plot_text(&plot, &text, (x, y + 11), small(HPos::Center))?;
        }
    }
    // The scale.
    let (top, bottom) = (50, SQUARE.1 as i32 - if tall { below as i32 + 50 } else { 60 });
    for i in 0..64 {
        let from = bottom - (bottom - top) * i / 64;
        let to = bottom - (bottom - top) * (i + 1) / 64;
        let bar = Rectangle::new([(6, to), (20, from)], shade(f64::from(i) / 63.0).filled());
        side.draw(&bar)?;
    }
    for i in 0..=2 {
        let share = f64::from(i) / 2.0;
        let value = share * high;
        let text = if percent {
            format!("{} %", trimmed((100.0 * value * 10.0).round() / 10.0))
        } else {
            trimmed(value.round())
        };
        let y = bottom - (f64::from(bottom - top) * share) as i32 - 6;
        side.draw(&Text::new(text, (24, y), (FONT, 11).into_font().color(&BLACK)))?;
    }
    Ok(())
}
