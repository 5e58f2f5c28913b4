//! A drawing as PDF: one page of its size, text as text, the typeface inside.

use std::collections::BTreeMap;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use pdf_writer::types::{CidFontType, FontFlags, LineJoinStyle, SystemInfo, UnicodeCmap};
use pdf_writer::{Content, Filter, Finish, Name, Pdf, Rect, Ref, Str, TextStr};

use super::canvas::{Anchor, Canvas, Paint, Point, Shape};
use super::typeface::{BYTES, glyph, heights, width, widths};

const FONT: Name<'_> = Name(b"F");
const FONT_NAME: Name<'_> = Name(b"NotoSans-Regular");
const SYSTEM: SystemInfo<'_> = SystemInfo { registry: Str(b"Adobe"), ordering: Str(b"Identity"), supplement: 0 };

/// The circle's quarter as a Bézier curve: 4/3 (sqrt 2 - 1).
const ROUND: f64 = 0.552_284_749_8;

pub(super) fn pdf(canvas: &Canvas, title: &str) -> Vec<u8> {
    let mut next = 0;
    let mut id = || {
        next += 1;
        Ref::new(next)
    };
    let [catalogue, pages, page, contents, info] = [id(), id(), id(), id(), id()];
    let [font, cid_font, descriptor, file, unicode] = [id(), id(), id(), id(), id()];
    // Opacities in hundredths.
    let mut states: BTreeMap<u32, Ref> = BTreeMap::new();
    for shape in &canvas.shapes {
        states.entry(state(paint(shape))).or_insert_with(&mut id);
    }
    let mut glyphs: BTreeMap<u16, char> = BTreeMap::new();
    let drawn = packed(&content(canvas, &mut glyphs));

    let mut pdf = Pdf::new();
    pdf.catalog(catalogue).pages(pages);
    pdf.pages(pages).kids([page]).count(1);
    let title: String = title.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    pdf.document_info(info).title(TextStr(&title)).creator(TextStr("Fedelity"));
    let mut sheet = pdf.page(page);
    sheet.parent(pages).media_box(Rect::new(0.0, 0.0, canvas.width as f32, canvas.height as f32)).contents(contents);
    let mut resources = sheet.resources();
    resources.fonts().pair(FONT, font);
    let mut list = resources.ext_g_states();
    for (opacity, at) in &states {
        list.pair(Name(named(*opacity).as_bytes()), *at);
    }
    list.finish();
    resources.finish();
    sheet.finish();
    for (opacity, at) in &states {
        let share = *opacity as f32 / 100.0;
        pdf.ext_graphics(*at).stroking_alpha(share).non_stroking_alpha(share);
    }
    pdf.stream(contents, &drawn).filter(Filter::FlateDecode);

    let (ascent, descent, capitals) = heights();
    let embedded = packed(BYTES);
    pdf.type0_font(font)
        .base_font(FONT_NAME)
        .encoding_predefined(Name(b"Identity-H"))
        .descendant_font(cid_font)
        .to_unicode(unicode);
    let mut inner = pdf.cid_font(cid_font);
    inner.subtype(CidFontType::Type2).base_font(FONT_NAME).system_info(SYSTEM).font_descriptor(descriptor);
    inner.default_width(0.0).cid_to_gid_map_predefined(Name(b"Identity"));
    inner.widths().consecutive(0, widths());
    inner.finish();
    pdf.font_descriptor(descriptor)
        .name(FONT_NAME)
        .flags(FontFlags::SYMBOLIC)
        .bbox(Rect::new(-1_000.0, descent, 2_000.0, ascent))
        .italic_angle(0.0)
        .ascent(ascent)
        .descent(descent)
        .cap_height(capitals)
        .stem_v(80.0)
        .font_file2(file);
    let mut stream = pdf.stream(file, &embedded);
    stream.filter(Filter::FlateDecode);
    stream.pair(Name(b"Length1"), BYTES.len() as i32);
    stream.finish();
    let mut map: UnicodeCmap<u16> = UnicodeCmap::new(Name(b"Text"), SYSTEM);
    glyphs.iter().for_each(|(glyph, c)| map.pair(*glyph, *c));
    pdf.cmap(unicode, &map.finish()).finish();
    pdf.finish()
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    // Memory takes everything.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

fn paint(shape: &Shape) -> Paint {
    match shape {
        Shape::Line { paint, .. }
        | Shape::Area { paint, .. }
        | Shape::Dot { paint, .. }
        | Shape::Text { paint, .. } => *paint,
    }
}

fn state(paint: Paint) -> u32 {
    (100.0 * paint.opacity).round() as u32
}

fn named(opacity: u32) -> String {
    format!("G{opacity}")
}

/// The operators of the page. Characters that are shown go into `glyphs`.
fn content(canvas: &Canvas, glyphs: &mut BTreeMap<u16, char>) -> Vec<u8> {
    let mut out = Content::new();
    // From here on, y points down.
    out.transform([1.0, 0.0, 0.0, -1.0, 0.0, canvas.height as f32]);
    out.set_line_join(LineJoinStyle::RoundJoin);
    let mut opacity = 100;
    for shape in &canvas.shapes {
        let paint = paint(shape);
        if state(paint) != opacity {
            opacity = state(paint);
            out.set_parameters(Name(named(opacity).as_bytes()));
        }
        let (r, g, b) = paint.rgb;
        let [r, g, b] = [r, g, b].map(|part| f32::from(part) / 255.0);
        match shape {
            Shape::Line { points, width, dash, .. } => {
                out.set_stroke_rgb(r, g, b).set_line_width(*width as f32);
                out.set_dash_pattern(dash.iter().map(|part| *part as f32), 0.0);
                path(&mut out, points);
                out.stroke();
            }
            Shape::Area { points, .. } => {
                out.set_fill_rgb(r, g, b);
                path(&mut out, points);
                out.close_path().fill_nonzero();
            }
            Shape::Dot { at: (x, y), radius, .. } => {
                out.set_fill_rgb(r, g, b);
                let at = |dx: f64, dy: f64| ((x + dx * radius) as f32, (y + dy * radius) as f32);
                let (x0, y0) = at(1.0, 0.0);
                out.move_to(x0, y0);
                for (a, b, c) in [
                    ((1.0, ROUND), (ROUND, 1.0), (0.0, 1.0)),
                    ((-ROUND, 1.0), (-1.0, ROUND), (-1.0, 0.0)),
                    ((-1.0, -ROUND), (-ROUND, -1.0), (0.0, -1.0)),
                    ((ROUND, -1.0), (1.0, -ROUND), (1.0, 0.0)),
                ] {
                    let [(x1, y1), (x2, y2), (x3, y3)] = [a, b, c].map(|(dx, dy)| at(dx, dy));
                    out.cubic_to(x1, y1, x2, y2, x3, y3);
                }
                out.fill_nonzero();
            }
            Shape::Text { at: (x, y), text, size, anchor, turned, .. } => {
                let back = match anchor {
                    Anchor::Start => 0.0,
                    Anchor::Middle => width(text, *size) / 2.0,
                    Anchor::End => width(text, *size),
                };
                let mut codes = Vec::new();
                for c in text.chars() {
                    let found = glyph(c);
                    glyphs.entry(found).or_insert(c);
                    codes.extend(found.to_be_bytes());
                }
                let place = if *turned {
                    [0.0, -1.0, -1.0, 0.0, *x as f32, (y + back) as f32]
                } else {
                    [1.0, 0.0, 0.0, -1.0, (x - back) as f32, *y as f32]
                };
                out.set_fill_rgb(r, g, b);
                out.begin_text().set_font(FONT, *size as f32).set_text_matrix(place).show(Str(&codes)).end_text();
            }
        }
    }
    out.finish().into_vec()
}

fn path(out: &mut Content, points: &[Point]) {
    for (i, (x, y)) in points.iter().enumerate() {
        if i == 0 {
            out.move_to(*x as f32, *y as f32)
        } else {
            out.line_to(*x as f32, *y as f32)
        };
    }
}
