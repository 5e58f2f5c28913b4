//! A drawing: shapes in points (1/72 inch), from the top left corner, with fractions.

use std::fmt::Write as _;

use super::typeface::FAMILY;
use crate::figure::Rgb;

pub(super) type Point = (f64, f64);

/// A colour, and how opaque it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Paint {
    pub(super) rgb: Rgb,
    pub(super) opacity: f64,
}

pub(super) const BLACK: Paint = Paint { rgb: (26, 26, 26), opacity: 1.0 };
/// Axes and ticks.
pub(super) const AXIS: Paint = Paint { rgb: (90, 90, 90), opacity: 1.0 };
/// Lines behind a drawing.
pub(super) const GRID: Paint = Paint { rgb: (225, 225, 225), opacity: 1.0 };

impl Paint {
    pub(super) fn solid(rgb: Rgb) -> Self {
        Self { rgb, opacity: 1.0 }
    }
}

/// Which part of a text is at its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

#[derive(Clone, Debug)]
pub(super) enum Shape {
    Line { points: Vec<Point>, paint: Paint, width: f64, dash: Vec<f64> },
    Area { points: Vec<Point>, paint: Paint },
    Dot { at: Point, radius: f64, paint: Paint },
    Text { at: Point, text: String, size: f64, anchor: Anchor, turned: bool, paint: Paint },
}

#[derive(Clone, Debug, Default)]
pub(super) struct Canvas {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) shapes: Vec<Shape>,
}

/// Points per millimetre.
const POINTS: f64 = 72.0 / 25.4;

impl Canvas {
    pub(super) fn new(millimetres: f64) -> Self {
        Self { width: millimetres * POINTS, ..Self::default() }
    }

    pub(super) fn line(&mut self, points: Vec<Point>, paint: Paint, width: f64, dash: &[f64]) {
        self.shapes.push(Shape::Line { points, paint, width, dash: dash.to_vec() });
    }

    pub(super) fn area(&mut self, points: Vec<Point>, paint: Paint) {
        self.shapes.push(Shape::Area { points, paint });
    }

    pub(super) fn rectangle(&mut self, (left, top): Point, (width, height): Point, paint: Paint) {
        let (right, bottom) = (left + width, top + height);
        self.area(vec![(left, top), (right, top), (right, bottom), (left, bottom)], paint);
    }

    pub(super) fn dot(&mut self, at: Point, radius: f64, paint: Paint) {
        self.shapes.push(Shape::Dot { at, radius, paint });
    }

    /// Text on a line through `at`.
    pub(super) fn text(&mut self, at: Point, text: &str, size: f64, anchor: Anchor, paint: Paint) {
        let text = text.to_string();
        self.shapes.push(Shape::Text { at, text, size, anchor, turned: false, paint });
    }

    /// Text from the bottom to the top, on a line through `at`.
    pub(super) fn turned(&mut self, at: Point, text: &str, size: f64, anchor: Anchor, paint: Paint) {
        let text = text.to_string();
        self.shapes.push(Shape::Text { at, text, size, anchor, turned: true, paint });
    }

    /// The drawing as SVG. One unit is one point, so that a font size of 8 is 8 pt.
    pub(super) fn svg(&self, title: &str) -> String {
        let (w, h) = (number(self.width), number(self.height));
        let (wide, high) = (number(self.width / POINTS), number(self.height / POINTS));
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{wide}mm\" height=\"{high}mm\" viewBox=\"0 0 {w} {h}\" \
             font-family=\"{FAMILY}\">\n<title>{}</title>\n<rect width=\"{w}\" height=\"{h}\" fill=\"#fff\"/>\n",
            escape(title)
        );
        for shape in &self.shapes {
            let _ = match shape {
                Shape::Line { points, paint, width, dash } => {
                    let dash: Vec<String> = dash.iter().map(|part| number(*part)).collect();
                    let dash = if dash.is_empty() {
                        String::new()
                    } else {
                        format!(" stroke-dasharray=\"{}\"", dash.join(" "))
                    };
                    let (at, colour, width) = (path(points), hex(paint.rgb), number(*width));
                    writeln!(
                        out,
                        "<path d=\"{at}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" \
                         stroke-linejoin=\"round\"{dash}{}/>",
                        opacity("stroke", paint)
                    )
                }
                Shape::Area { points, paint } => {
                    let (at, colour) = (path(points), hex(paint.rgb));
                    writeln!(out, "<path d=\"{at}Z\" fill=\"{colour}\"{}/>", opacity("fill", paint))
                }
                Shape::Dot { at: (x, y), radius, paint } => {
                    let (x, y, r, colour) = (number(*x), number(*y), number(*radius), hex(paint.rgb));
                    writeln!(
                        out,
                        "<circle cx=\"{x}\" cy=\"{y}\" r=\"{r}\" fill=\"{colour}\"{}/>",
                        opacity("fill", paint)
                    )
                }
                Shape::Text { at: (x, y), text, size, anchor, turned, paint } => {
                    let anchor = match anchor {
                        Anchor::Start => "",
                        Anchor::Middle => " text-anchor=\"middle\"",
                        Anchor::End => " text-anchor=\"end\"",
                    };
                    let (x, y) = (number(*x), number(*y));
                    let turn = if *turned { format!(" transform=\"rotate(-90 {x} {y})\"") } else { String::new() };
                    let (size, colour, text) = (number(*size), hex(paint.rgb), escape(text));
                    writeln!(
                        out,
                        "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\" fill=\"{colour}\"{anchor}{turn}>{text}</text>"
                    )
                }
            };
        }
        out.push_str("</svg>\n");
        out
    }
}

/// A coordinate to a hundredth of a point.
fn number(x: f64) -> String {
    let text = format!("{x:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_string() } else { text.to_string() }
}

fn hex((r, g, b): Rgb) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

fn opacity(of: &str, paint: &Paint) -> String {
    if paint.opacity < 1.0 { format!(" {of}-opacity=\"{}\"", number(paint.opacity)) } else { String::new() }
}

fn path(points: &[Point]) -> String {
    let mut out = String::new();
    for (i, (x, y)) in points.iter().enumerate() {
        let _ = write!(out, "{}{} {}", if i == 0 { 'M' } else { 'L' }, number(*x), number(*y));
    }
    out
}

/// Text inside XML; control characters are not allowed there.
fn escape(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    crate::page::escape(&text)
}
