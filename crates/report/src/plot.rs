//! Figures for papers: SVG, and PNG from the same drawing.

use std::sync::{Arc, LazyLock, Once};

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::FontStyle;
use resvg::{tiny_skia, usvg};

use crate::error::Error;
use crate::figure::{Drawing, Figure, Series, Style, class_colour};

/// The size of a figure; a paper's column at 96 dots an inch, twice.
const SIZE: (u32, u32) = (720, 440);
const SQUARE: (u32, u32) = (560, 500);
/// The family of all text.
const FONT: &str = "sans-serif";
const FONT_BYTES: &[u8] = include_bytes!("../assets/font/NotoSans-Regular.ttf");
/// Pixels of a PNG for one of the SVG.
const SCALE: f32 = 3.0;

/// The figure as SVG. `None` for one that lives in the page only.
pub fn svg(figure: &Figure, styles: &[Style]) -> Result<Option<String>, Error> {
    static FONTS: Once = Once::new();
    // Text is measured with it; without it there would be no text at all.
    FONTS.call_once(|| {
        let _ = plotters::style::register_font(FONT, FontStyle::Normal, FONT_BYTES);
    });
    let mut text = String::new();
    let size = if matches!(figure.drawing, Drawing::Lines { .. }) { SIZE } else { SQUARE };
    let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
    let drawn = match &figure.drawing {
        Drawing::Lines { x, y, percent, series } => lines(&area, figure, (x, y), *percent, series, styles),
        Drawing::Heat { x, y, columns, rows, cells, high, percent, .. } => {
            heat(&area, &figure.title, (x, y), (columns, rows), cells, *high, *percent)
        }
        Drawing::Points { classes, points, .. } => scatter(&area, &figure.title, classes, points),
        Drawing::Classes { .. } => return Ok(None),
    };
    drawn
        .and_then(|()| area.present().map_err(|error| error.to_string()))
        .map_err(|reason| Error::Figure { figure: figure.id.clone(), reason })?;
    drop(area);
    Ok(Some(text))
}

/// The drawing as PNG, three pixels for one.
pub fn png(svg: &str, figure: &str) -> Result<Vec<u8>, Error> {
    static FONTS: LazyLock<Arc<usvg::fontdb::Database>> = LazyLock::new(|| {
        let mut fonts = usvg::fontdb::Database::new();
        fonts.load_font_data(FONT_BYTES.to_vec());
        fonts.set_sans_serif_family("Noto Sans");
        Arc::new(fonts)
    });
    let bad = |reason: String| Error::Figure { figure: figure.to_string(), reason };
    let options =
        usvg::Options { fontdb: Arc::clone(&FONTS), font_family: "Noto Sans".to_string(), ..usvg::Options::default() };
    let tree = usvg::Tree::from_str(svg, &options).map_err(|error| bad(error.to_string()))?;
    let size = tree.size().to_int_size();
    let (width, height) = ((size.width() as f32 * SCALE) as u32, (size.height() as f32 * SCALE) as u32);
    let mut pixels = tiny_skia::Pixmap::new(width, height).ok_or_else(|| bad("too large".to_string()))?;
    resvg::render(&tree, tiny_skia::Transform::from_scale(SCALE, SCALE), &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| bad(error.to_string()))
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), String>;

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn colour(text: &str) -> RGBColor {
    let part = |at: usize| text.get(at..at + 2).and_then(|hex| u8::from_str_radix(hex, 16).ok()).unwrap_or(0);
    RGBColor(part(1), part(3), part(5))
}

fn lines(
    area: &Area<'_>,
    figure: &Figure,
    (x, y): (&str, &str),
    percent: bool,
    series: &[Series],
    styles: &[Style],
) -> Drawn {
    area.fill(&WHITE).map_err(said)?;
    let scale = if percent { 100.0 } else { 1.0 };
    let (mut left, mut right, mut low, mut high) = (f64::MAX, f64::MIN, f64::MAX, f64::MIN);
    for point in series.iter().flat_map(|series| &series.points) {
        left = left.min(point[0]);
        right = right.max(point[0]);
        low = low.min(scale * point[2]);
        high = high.max(scale * point[3]);
    }
    if left >= right {
        (left, right) = (left - 1.0, right + 1.0);
    }
    let margin = if high > low { 0.05 * (high - low) } else { 1.0_f64.max(high.abs()) * 0.1 };
    // The legend stands to the right of the drawing.
    let longest = series.iter().map(|series| name(series, styles).chars().count()).max().unwrap_or(0);
    let legend = (7 * longest as i32 + 50).clamp(90, 260);
    let (plot, side) = area.split_horizontally(SIZE.0 as i32 - legend);
    let mut chart = ChartBuilder::on(&plot)
        .margin(12)
        .caption(&figure.title, (FONT, 17))
        .x_label_area_size(42)
        .y_label_area_size(58)
        .build_cartesian_2d(left..right, low - margin..high + margin)
        .map_err(said)?;
    let y = if percent { format!("{y} (%)") } else { y.to_string() };
    chart
        .configure_mesh()
        .x_desc(x)
        .y_desc(y)
        .label_style((FONT, 13))
        .axis_desc_style((FONT, 14))
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .x_label_formatter(&|x| trimmed(*x))
        .y_label_formatter(&|y| trimmed(*y))
        .draw()
        .map_err(said)?;
    for curve in series {
        let style = styles.get(curve.method);
        let paint = colour(style.map_or("#000000", |style| style.colour));
        let strength = if curve.faint { 0.45 } else { 1.0 };
        if curve.points.iter().any(|point| point[2] < point[3]) && !curve.faint {
            let upper = curve.points.iter().map(|point| (point[0], scale * point[3]));
            let lower = curve.points.iter().rev().map(|point| (point[0], scale * point[2]));
            let outline: Vec<(f64, f64)> = upper.chain(lower).collect();
            chart.draw_series([Polygon::new(outline, paint.mix(0.15).filled())]).map_err(said)?;
        }
        let points = curve.points.iter().map(|point| (point[0], scale * point[1]));
        let pen = paint.mix(strength).stroke_width(2);
        if curve.points.len() == 1 {
            chart.draw_series(points.map(|at| Circle::new(at, 3, pen))).map_err(said)?;
        } else {
            match style.map_or(&[][..], |style| style.dash) {
                [] => chart.draw_series(LineSeries::new(points, pen)).map(|_| ()).map_err(said)?,
                [dash, gap, ..] => {
                    chart.draw_series(DashedLineSeries::new(points, *dash, *gap, pen)).map(|_| ()).map_err(said)?
                }
                [_] => {}
            }
        }
    }
    let step = (17_i32).min((SIZE.1 as i32 - 50) / series.len().max(1) as i32).max(8);
    for (i, curve) in series.iter().enumerate() {
        let style = styles.get(curve.method);
        let paint = colour(style.map_or("#000000", |style| style.colour)).mix(if curve.faint { 0.45 } else { 1.0 });
        let y = 44 + step * i as i32;
        let mut x = 4;
        // The sample of the line has the line's own dash.
        let dash = style.map_or(&[][..], |style| style.dash);
        while x < 30 {
            let (on, off) = match dash {
                [on, off, ..] => (*on as i32, *off as i32),
                _ => (26, 0),
            };
            let end = (x + on).min(30);
            side.draw(&PathElement::new(vec![(x, y), (end, y)], paint.stroke_width(2))).map_err(said)?;
            x = end + off.max(1);
        }
        let text = name(curve, styles);
        let label = Text::new(text, (36, y - 7), (FONT, 13.min(step)).into_font().color(&BLACK));
        side.draw(&label).map_err(said)?;
    }
    Ok(())
}

fn name(series: &Series, styles: &[Style]) -> String {
    let label = styles.get(series.method).map_or("", |style| style.label.as_str());
    if series.part.is_empty() { label.to_string() } else { format!("{label}, {}", series.part) }
}

/// A number on an axis.
fn trimmed(x: f64) -> String {
    let text = format!("{x:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_string() } else { text.to_string() }
}

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

fn heat(
    area: &Area<'_>,
    title: &str,
    (x, y): (&str, &str),
    (columns, rows): (&[String], &[String]),
    cells: &[Vec<Option<f64>>],
    high: f64,
    percent: bool,
) -> Drawn {
    area.fill(&WHITE).map_err(said)?;
    let longest = rows.iter().map(|row| row.chars().count()).max().unwrap_or(0) as u32;
    let (plot, side) = area.split_horizontally(SQUARE.0 as i32 - 64);
    let (width, height) = (columns.len().max(1), rows.len().max(1));
    let tall = columns.iter().any(|column| column.chars().count() > 3) && width <= 40;
    let mut chart = ChartBuilder::on(&plot)
        .margin(12)
        .caption(title, (FONT, 16))
        .x_label_area_size(if tall { 84 } else { 40 })
        .y_label_area_size((30 + 7 * longest).clamp(46, 130))
        .build_cartesian_2d(0.0..width as f64, height as f64..0.0)
        .map_err(said)?;
    let named = |names: &[String], at: f64| {
        let whole = (at - 0.5).round();
        if (at - 0.5 - whole).abs() > 0.01 || whole < 0.0 {
            return String::new();
        }
        names.get(whole as usize).cloned().unwrap_or_default()
    };
    chart
        .configure_mesh()
        .disable_mesh()
        .x_desc(x)
        .y_desc(y)
        .axis_desc_style((FONT, 14))
        .x_labels(0)
        .y_labels(0)
        .draw()
        .map_err(said)?;
    for (row, values) in cells.iter().enumerate() {
        for (column, value) in values.iter().enumerate() {
            let paint = value.map_or(RGBColor(235, 235, 235), |value| shade(value / high.max(f64::MIN_POSITIVE)));
            let corners = [(column as f64, row as f64), (column as f64 + 1.0, row as f64 + 1.0)];
            chart.draw_series([Rectangle::new(corners, paint.filled())]).map_err(said)?;
        }
    }
    // Names in the middle of their cells, as many as there is room for.
    let (down, across) = (height.div_ceil(30).max(1), width.div_ceil(if tall { 40 } else { 16 }).max(1));
    let area = chart.plotting_area();
    let small = |anchor| {
        (FONT, 12)
            .into_font()
            .color(&BLACK)
            .pos(plotters::style::text_anchor::Pos::new(anchor, plotters::style::text_anchor::VPos::Center))
    };
    use plotters::style::text_anchor::HPos;
    for row in (0..rows.len()).step_by(down) {
        let (x, y) = area.map_coordinate(&(0.0, row as f64 + 0.5));
        plot_text(&plot, &named(rows, row as f64 + 0.5), (x - 6, y), small(HPos::Right))?;
    }
    for column in (0..columns.len()).step_by(across) {
        let (x, y) = area.map_coordinate(&(column as f64 + 0.5, height as f64));
        let text = named(columns, column as f64 + 0.5);
        if tall {
            let font = (FONT, 12).into_font().transform(FontTransform::Rotate270).color(&BLACK);
            let style = font
                .pos(plotters::style::text_anchor::Pos::new(HPos::Right, plotters::style::text_anchor::VPos::Center));
            plot_text(&plot, &text, (x, y + 6), style)?;
        } else {
            plot_text(&plot, &text, (x, y + 11), small(HPos::Center))?;
        }
    }
    // The scale.
    let (top, bottom) = (50, SQUARE.1 as i32 - if tall { 100 } else { 60 });
    for i in 0..64 {
        let from = bottom - (bottom - top) * i / 64;
        let to = bottom - (bottom - top) * (i + 1) / 64;
        let bar = Rectangle::new([(6, to), (20, from)], shade(f64::from(i) / 63.0).filled());
        side.draw(&bar).map_err(said)?;
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
        side.draw(&Text::new(text, (24, y), (FONT, 11).into_font().color(&BLACK))).map_err(said)?;
    }
    Ok(())
}

fn plot_text(area: &Area<'_>, text: &str, at: (i32, i32), style: TextStyle<'_>) -> Drawn {
    // Coordinates of a chart count from the whole drawing; an area counts from its own corner.
    let (left, top) = area.get_base_pixel();
    area.draw_text(text, &style, (at.0 - left, at.1 - top)).map_err(said)
}

fn scatter(area: &Area<'_>, title: &str, classes: &[String], points: &[(f64, f64, usize)]) -> Drawn {
    area.fill(&WHITE).map_err(said)?;
    let (plot, side) = area.split_horizontally(SQUARE.0 as i32 - 110);
    let bound = |of: &dyn Fn(&(f64, f64, usize)) -> f64| {
        let (low, high) = points.iter().fold((f64::MAX, f64::MIN), |(low, high), p| (low.min(of(p)), high.max(of(p))));
        let margin = 0.04 * (high - low).max(1e-9);
        low - margin..high + margin
    };
    let mut chart = ChartBuilder::on(&plot)
        .margin(12)
        .caption(title, (FONT, 16))
        .build_cartesian_2d(bound(&|p| p.0), bound(&|p| p.1))
        .map_err(said)?;
    let paint = |class: usize| {
        let (r, g, b) = class_colour(class, classes.len());
        RGBColor(r, g, b)
    };
    chart
        .draw_series(points.iter().map(|&(x, y, class)| Circle::new((x, y), 2, paint(class).mix(0.8).filled())))
        .map_err(said)?;
    chart
        .plotting_area()
        .draw(&Rectangle::new(
            [(bound(&|p| p.0).start, bound(&|p| p.1).start), (bound(&|p| p.0).end, bound(&|p| p.1).end)],
            BLACK.mix(0.3),
        ))
        .map_err(said)?;
    for (class, name) in classes.iter().enumerate().take(26) {
        let y = 40 + 17 * class as i32;
        side.draw(&Circle::new((8, y), 4, paint(class).filled())).map_err(said)?;
        let short: String = name.chars().take(13).collect();
        side.draw(&Text::new(short, (18, y - 7), (FONT, 12).into_font().color(&BLACK))).map_err(said)?;
    }
    if classes.len() > 26 {
        let text = format!("and {} more", classes.len() - 26);
        side.draw(&Text::new(text, (18, 40 + 17 * 26 - 7), (FONT, 12).into_font().color(&BLACK))).map_err(said)?;
    }
    Ok(())
}
