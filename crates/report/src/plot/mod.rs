//! Figures for papers: SVG, and PNG from the same drawing.

mod classes;
mod heat;
mod legend;
mod lines;
mod scatter;

use std::sync::{Arc, LazyLock, Once};

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::FontStyle;
use resvg::{tiny_skia, usvg};

use classes::classes;
use heat::heat;
use lines::lines;
use scatter::scatter;

use crate::error::ReportError;
use crate::figure::{Drawing, Figure, MethodStyle};

/// The size of a figure: twice a paper's column at 96 dots per inch.
const SIZE: (u32, u32) = (720, 440);
const SQUARE: (u32, u32) = (560, 500);
/// The font family of all text.
const FONT: &str = "sans-serif";
const FONT_BYTES: &[u8] = include_bytes!("../../assets/font/NotoSans-Regular.ttf");
/// Pixels of a PNG per pixel of the SVG.
const SCALE: f32 = 3.0;

pub fn svg(figure: &Figure, styles: &[MethodStyle]) -> Result<String, ReportError> {
    static FONTS: Once = Once::new();
    // Text is measured with it; without it there would be no text at all.
    FONTS.call_once(|| {
        let _ = plotters::style::register_font(FONT, FontStyle::Normal, FONT_BYTES);
    });
    let mut text = String::new();
    let size = if matches!(figure.drawing, Drawing::Lines { .. } | Drawing::Classes { .. }) { SIZE } else { SQUARE };
    let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
    let drawn = match &figure.drawing {
        Drawing::Lines { x, y, percent, series } => lines(&area, figure, (x, y), *percent, series, styles),
        Drawing::Heat { x, y, columns, rows, cells, high, percent, .. } => {
            heat(&area, &figure.title, (x, y), (columns, rows), cells, *high, *percent)
        }
        Drawing::Points { classes, points, .. } => scatter(&area, &figure.title, classes, points),
        Drawing::Classes { classes: names, rounds, series } => classes(&area, (names, rounds), series, styles),
    };
    drawn
        .and_then(|()| Ok(area.present()?))
        .map_err(|error| ReportError::Figure { figure: figure.id.clone(), reason: error.to_string() })?;
    drop(area);
    Ok(text)
}

/// The drawing as PNG, at three times the size.
pub fn png(svg: &str, figure: &str) -> Result<Vec<u8>, ReportError> {
    static FONTS: LazyLock<Arc<usvg::fontdb::Database>> = LazyLock::new(|| {
        let mut fonts = usvg::fontdb::Database::new();
        fonts.load_font_data(FONT_BYTES.to_vec());
        fonts.set_sans_serif_family("Noto Sans");
        Arc::new(fonts)
    });
    let bad = |reason: String| ReportError::Figure { figure: figure.to_string(), reason };
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
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// The colour of a method; black if it has no style.
fn paint(styles: &[MethodStyle], method: usize) -> RGBColor {
    let text = styles.get(method).map_or("#000000", |style| style.colour);
    let part = |at: usize| text.get(at..at + 2).and_then(|hex| u8::from_str_radix(hex, 16).ok()).unwrap_or(0);
    RGBColor(part(1), part(3), part(5))
}

/// A number on an axis.
fn trimmed(x: f64) -> String {
    let text = format!("{x:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_string() } else { text.to_string() }
}

/// A name, shortened to fit.
fn fit(area: &Area<'_>, name: &str, size: u32, room: u32) -> String {
    let style = (FONT, size).into_font().color(&BLACK);
    let fits = |text: &str| area.estimate_text_size(text, &style).is_ok_and(|(width, _)| width <= room);
    if fits(name) {
        return name.to_string();
    }
    let mut short: Vec<char> = name.chars().take(room as usize).collect();
    while short.pop().is_some() {
        let text: String = short.iter().chain(&['…']).collect();
        if fits(&text) {
            return text;
        }
    }
    String::new()
}

/// The room that the longest of these names takes, up to `most`.
fn room<'a>(area: &Area<'_>, names: impl Iterator<Item = &'a String>, size: u32, most: u32) -> u32 {
    let style = (FONT, size).into_font().color(&BLACK);
    let of = |name: &String| area.estimate_text_size(name, &style).map_or(most, |(width, _)| width);
    names.map(of).max().unwrap_or(0).min(most)
}

fn plot_text(area: &Area<'_>, text: &str, at: (i32, i32), style: TextStyle<'_>) -> Drawn {
    // Chart coordinates are relative to the whole drawing; area coordinates to the area's own corner.
    let (left, top) = area.get_base_pixel();
    Ok(area.draw_text(text, &style, (at.0 - left, at.1 - top))?)
}
