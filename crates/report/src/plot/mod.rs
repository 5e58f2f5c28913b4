//! Figures for papers: PDF, SVG and PNG of one drawing, in the width and font size of the paper.

mod axes;
mod canvas;
mod classes;
mod heat;
mod legend;
mod lines;
mod pdf;
mod scatter;
mod typeface;

use std::sync::{Arc, LazyLock};

use resvg::{tiny_skia, usvg};

use canvas::{Canvas, Paint};

use crate::error::ReportError;
use crate::figure::{Drawing, Figure, MethodStyle, rgb};

/// The size of figures in a paper.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PaperSize {
    /// The width in millimetres.
    pub width: f64,
    /// The size of text in points.
    pub font: f64,
}

impl Default for PaperSize {
    /// One column of most journals.
    fn default() -> Self {
        Self { width: 88.0, font: 8.0 }
    }
}

impl PaperSize {
    /// Widths, and font sizes, that can be drawn.
    pub const WIDTHS: std::ops::RangeInclusive<f64> = 30.0..=1_000.0;
    pub const FONTS: std::ops::RangeInclusive<f64> = 3.0..=40.0;
}

/// Pixels of a PNG per inch.
const RESOLUTION: f32 = 600.0;

/// A figure, drawn.
#[derive(Clone, Debug)]
pub struct DrawnFigure {
    canvas: Canvas,
    id: String,
    title: String,
}

impl DrawnFigure {
    pub fn new(figure: &Figure, styles: &[MethodStyle], paper: PaperSize) -> Self {
        let mut canvas = Canvas::new(paper.width);
        let font = paper.font;
        match &figure.drawing {
            Drawing::Lines { x, y, percent, series, range } => {
                lines::lines(&mut canvas, font, (x, y), *percent, *range, series, styles)
            }
            Drawing::Heat { x, y, columns, rows, cells, high, percent, .. } => {
                let map =
                    heat::Map { title: &figure.title, x, y, columns, rows, cells, high: *high, percent: *percent };
                map.draw(&mut canvas, font);
            }
            Drawing::Points { classes, points, .. } => {
                scatter::scatter(&mut canvas, font, &figure.title, classes, points);
            }
            Drawing::Classes { classes: names, series, .. } => {
                classes::classes(&mut canvas, font, names, series, styles);
            }
        }
        Self { canvas, id: figure.id.clone(), title: figure.title.clone() }
    }

    pub fn svg(&self) -> String {
        self.canvas.svg(&self.title)
    }

    pub fn pdf(&self) -> Vec<u8> {
        pdf::pdf(&self.canvas, &self.title)
    }

    /// The drawing as PNG, at 600 dots per inch.
    pub fn png(&self) -> Result<Vec<u8>, ReportError> {
        static FONTS: LazyLock<Arc<usvg::fontdb::Database>> = LazyLock::new(|| {
            let mut fonts = usvg::fontdb::Database::new();
            fonts.load_font_data(typeface::BYTES.to_vec());
            fonts.set_sans_serif_family("Noto Sans");
            Arc::new(fonts)
        });
        let bad = |reason: String| ReportError::Figure { figure: self.id.clone(), reason };
        let options = usvg::Options {
            fontdb: Arc::clone(&FONTS),
            font_family: "Noto Sans".to_string(),
            ..usvg::Options::default()
        };
        let tree = usvg::Tree::from_str(&self.svg(), &options).map_err(|error| bad(error.to_string()))?;
        let scale = RESOLUTION / options.dpi;
        let pixels = |length: f32| (length * scale).round() as u32;
        let (width, height) = (pixels(tree.size().width()), pixels(tree.size().height()));
        let mut picture = tiny_skia::Pixmap::new(width, height).ok_or_else(|| bad("too large".to_string()))?;
        resvg::render(&tree, tiny_skia::Transform::from_scale(scale, scale), &mut picture.as_mut());
        picture.encode_png().map_err(|error| bad(error.to_string()))
    }
}

/// The colour of a method on paper; black if it has no style.
fn paint(styles: &[MethodStyle], method: usize) -> Paint {
    styles.get(method).map_or(canvas::BLACK, |style| Paint::solid(rgb(style.colour)))
}

/// A number on an axis.
fn trimmed(x: f64) -> String {
    let text = format!("{x:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    match text {
        "-0" => "0".to_string(),
        "0" if x != 0.0 => format!("{x:.0e}"),
        _ => text.replace('-', "−"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Series, styles};
    use crate::results::{Group, Results};

    fn fedavg() -> Vec<Group> {
        Results::of(vec![("FedAvg".to_string(), Vec::new())]).groups
    }

    fn figure(drawing: Drawing) -> Figure {
        Figure { id: "a".to_string(), title: "FedAvg & <others>".to_string(), text: String::new(), drawing }
    }

    fn curve(points: Vec<[f64; 4]>) -> Figure {
        let series = vec![Series { method: 0, part: String::new(), faint: false, points, seeds: Vec::new() }];
        let range = [Some(0.0), Some(1.0)];
        figure(Drawing::Lines { x: "round".to_string(), y: "accuracy".to_string(), percent: true, series, range })
    }

    #[test]
    fn text_has_the_size_that_was_asked_for() {
        let figure = curve((1..=30).map(|i| [f64::from(i), 0.5, 0.4, 0.6]).collect());
        for (width, font) in [(88.0, 8.0), (180.0, 9.5), (40.0, 6.0)] {
            let drawn = DrawnFigure::new(&figure, &styles(&fedavg()), PaperSize { width, font });
            let svg = drawn.svg();
            assert!(svg.contains(&format!("width=\"{}mm\"", width)), "{svg}");
            // One unit is one point: the view box has as many as there are points in the width.
            let points = format!("{:.2}", width * 72.0 / 25.4);
            assert!(svg.contains(&format!("viewBox=\"0 0 {} ", points.trim_end_matches('0'))), "{points} {svg}");
            let sizes: Vec<&str> =
                svg.split("font-size=\"").skip(1).map(|part| part.split('"').next().unwrap()).collect();
            assert!(sizes.len() > 5 && sizes.iter().all(|size| size.parse() == Ok(font)), "{sizes:?}");
            // Nothing sticks out.
            let shapes = drawn.canvas.shapes.iter();
            for shape in shapes {
                if let canvas::Shape::Line { points, .. } | canvas::Shape::Area { points, .. } = shape {
                    let inside = |&(x, y): &(f64, f64)| {
                        (0.0..=drawn.canvas.width).contains(&x) && (0.0..=drawn.canvas.height).contains(&y)
                    };
                    assert!(points.iter().all(inside), "{shape:?}");
                }
            }
            let pdf = drawn.pdf();
            let media = pdf.windows(9).position(|part| part == b"/MediaBox").unwrap();
            let said = String::from_utf8_lossy(&pdf[media..media + 60]).into_owned();
            let wide: f64 = said.split_whitespace().nth(3).unwrap().parse().unwrap();
            assert!((wide - width * 72.0 / 25.4).abs() < 0.01, "{said}");
            assert!(pdf.windows(10).any(|part| part == b"/FontFile2"));
        }
    }

    #[test]
    fn coordinates_have_fractions_and_bands_stay_in_range() {
        let figure = curve((1..=30).map(|i| [f64::from(i), 0.97, 0.90, 1.04]).collect());
        let drawn = DrawnFigure::new(&figure, &styles(&fedavg()), PaperSize::default());
        let band = drawn.canvas.shapes.iter().find_map(|shape| match shape {
            canvas::Shape::Area { points, paint } if paint.opacity < 1.0 => Some(points.clone()),
            _ => None,
        });
        let band = band.unwrap();
        let fractions = band.iter().filter(|(x, _)| (x - x.round()).abs() > 0.01).count();
        assert!(fractions > band.len() / 2);
        // The upper edge is at 100 %, where the axis ends; the mean is 3 points lower, the lower edge 10.
        let top = band.iter().map(|at| at.1).fold(f64::MAX, f64::min);
        let bottom = band.iter().map(|at| at.1).fold(f64::MIN, f64::max);
        let mean = drawn.canvas.shapes.iter().rev().find_map(|shape| match shape {
            canvas::Shape::Line { points, width, .. } if points.len() == 30 && *width > 1.0 => Some(points[0].1),
            _ => None,
        });
        let part = (mean.unwrap() - top) / (bottom - top);
        assert!((part - 0.3).abs() < 1e-6, "{part}");
    }

    #[test]
    fn matrices_have_numbers_and_hostile_names_stay_text() {
        let cells = vec![vec![Some(0.75), Some(0.25)], vec![Some(0.0), None]];
        let names = vec!["<a>".to_string(), "b\u{0}".to_string()];
        let drawn = DrawnFigure::new(
            &figure(Drawing::Heat {
                method: Some(0),
                x: "predicted".to_string(),
                y: "true class".to_string(),
                columns: names.clone(),
                rows: names,
                cells,
                high: 1.0,
                percent: true,
            }),
            &styles(&fedavg()),
            PaperSize::default(),
        );
        let svg = drawn.svg();
        assert!([">75<", ">25<", ">0<"].iter().all(|number| svg.contains(number)), "{svg}");
        assert!(svg.contains("&lt;a&gt;") && !svg.contains("<a>") && !svg.contains('\u{0}'));
        assert!(drawn.png().is_ok_and(|bytes| bytes.starts_with(b"\x89PNG")));
    }
}
