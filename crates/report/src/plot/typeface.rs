//! The typeface of figures: how wide text is, and which glyphs it has.

use std::sync::LazyLock;

use skrifa::prelude::{FontRef, LocationRef, MetadataProvider, Size};

/// Noto Sans, as a TrueType file.
pub(super) const BYTES: &[u8] = include_bytes!("../../assets/font/NotoSans-Regular.ttf");
/// Its name in SVG files, and what takes its place where it is not installed.
pub(super) const FAMILY: &str = "Noto Sans, Arial, Helvetica, sans-serif";

/// The typeface, or `None` if the file above were not one.
static FACE: LazyLock<Option<FontRef<'static>>> = LazyLock::new(|| FontRef::new(BYTES).ok());

/// The glyph of a character; 0, an empty box, if there is none.
pub(super) fn glyph(c: char) -> u16 {
    let found = FACE.as_ref().and_then(|face| face.charmap().map(c));
    found.and_then(|glyph| u16::try_from(glyph.to_u32()).ok()).unwrap_or(0)
}

/// The widths of all glyphs, in thousandths of the font size.
pub(super) fn widths() -> Vec<f32> {
    let Some(face) = FACE.as_ref() else { return Vec::new() };
    let metrics = face.glyph_metrics(Size::new(1_000.0), LocationRef::default());
    (0..metrics.glyph_count()).map(|glyph| metrics.advance_width(glyph.into()).unwrap_or(0.0)).collect()
}

/// How far letters reach above and below the line, and how high capitals are, in thousandths of the font size.
pub(super) fn heights() -> (f32, f32, f32) {
    FACE.as_ref().map_or((1_069.0, -293.0, 714.0), |face| {
        let found = face.metrics(Size::new(1_000.0), LocationRef::default());
        (found.ascent, found.descent, found.cap_height.unwrap_or(714.0))
    })
}

/// The width of a text.
pub(super) fn width(text: &str, size: f64) -> f64 {
    static WIDTHS: LazyLock<Vec<f32>> = LazyLock::new(widths);
    let of = |c: char| WIDTHS.get(usize::from(glyph(c))).copied().map_or(600.0, f64::from);
    text.chars().map(of).sum::<f64>() * size / 1_000.0
}

/// The width of the longest of these texts.
pub(super) fn longest<'a>(texts: impl IntoIterator<Item = &'a String>, size: f64) -> f64 {
    texts.into_iter().map(|text| width(text, size)).fold(0.0, f64::max)
}

/// A text, shortened if it needs more room than there is.
pub(super) fn fit(text: &str, size: f64, room: f64) -> String {
    if width(text, size) <= room {
        return text.to_string();
    }
    let mut short: Vec<char> = text.chars().take(400).collect();
    while short.pop().is_some() {
        let with: String = short.iter().chain(&['…']).collect();
        if width(&with, size) <= room {
            return with;
        }
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_the_width_of_its_glyphs() {
        // Noto Sans: 1,000 units to the em, digits of 572, a space of 260.
        assert!((width("10", 10.0) - 11.44).abs() < 0.01, "{}", width("10", 10.0));
        assert!((width(" ", 100.0) - 26.0).abs() < 0.1);
        assert!(glyph('α') > 0 && glyph('±') > 0 && glyph('\u{e000}') == 0);
        assert_eq!(fit("short", 8.0, 100.0), "short");
        let cut = fit("a name that is much too long", 8.0, 40.0);
        assert!(cut.ends_with('…') && width(&cut, 8.0) <= 40.0, "{cut}");
        assert_eq!(fit("wide", 8.0, 0.5), "");
    }
}
