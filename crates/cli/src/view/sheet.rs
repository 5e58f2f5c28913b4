//! A contact sheet: some images of each class, one row per class.

use std::io::Cursor;
use std::path::Path;

use anyhow::{Result, bail};
use base64::Engine;
use fedelity_data::{ImageShape, Split};
use font8x8::UnicodeFonts;
use image::{ImageFormat, Rgb, RgbImage};

pub(crate) struct Sheet<'a> {
    pub(crate) classes: &'a [String],
    pub(crate) split: &'a Split,
    pub(crate) shape: ImageShape,
}

/// Images per row.
const COLUMNS: usize = 10;
/// Images are enlarged to about this many pixels per side.
const SIDE: usize = 64;
/// Pixels between images.
const GAP: usize = 4;
/// Size of a letter in pixels.
const LETTER: usize = 8;
/// Maximum letters of a class name.
const LETTERS: usize = 20;

/// Measures of the picture, in pixels.
struct Measures {
    scale: usize,
    cell: (usize, usize),
    label: usize,
    size: (usize, usize),
}

impl Sheet<'_> {
    /// The sheet as PNG or SVG, depending on the extension of the file.
    pub(crate) fn bytes(&self, path: &Path) -> Result<Vec<u8>> {
        let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default().to_ascii_lowercase();
        match end.as_str() {
            "png" => png(&self.draw(true)),
            "svg" => Ok(self.svg()?.into_bytes()),
            _ => bail!("--sheet {}: expected a file name ending in .png or .svg", path.display()),
        }
    }

    fn measures(&self) -> Measures {
        let scale = (SIDE / self.shape.height.max(self.shape.width).max(1)).max(1);
        let cell = (self.shape.height * scale + GAP, self.shape.width * scale + GAP);
        let letters = self.classes.iter().map(|class| class.chars().count().min(LETTERS)).max().unwrap_or(0);
        let label = letters * LETTER + 2 * GAP;
        let size = (self.classes.len() * cell.0 + GAP, label + COLUMNS * cell.1 + GAP);
        Measures { scale, cell, label, size }
    }

    /// The first images of each class.
    fn rows(&self) -> Vec<Vec<usize>> {
        let mut rows = vec![Vec::new(); self.classes.len()];
        for (i, &label) in self.split.labels.iter().enumerate() {
            if let Some(row) = rows.get_mut(usize::from(label)).filter(|row| row.len() < COLUMNS) {
                row.push(i);
            }
        }
        rows
    }

    fn draw(&self, names: bool) -> RgbImage {
        let Measures { scale, cell, label, size } = self.measures();
        let mut sheet = RgbImage::from_pixel(size.1 as u32, size.0 as u32, Rgb([255; 3]));
        let area = self.shape.height * self.shape.width;
        for (class, images) in self.rows().iter().enumerate() {
            let top = GAP + class * cell.0;
            if names {
                let middle = top + (cell.0 - GAP).saturating_sub(LETTER) / 2;
                text(&mut sheet, &self.classes[class], GAP, middle);
            }
            for (column, &i) in images.iter().enumerate() {
                let image = self.split.image(i);
                let left = label + column * cell.1;
                let pixel = |y: usize, x: usize| {
                    let at =
                        |channel: usize| image[channel.min(self.shape.channels - 1) * area + y * self.shape.width + x];
                    Rgb([at(0), at(1), at(2)])
                };
                for y in 0..self.shape.height * scale {
                    for x in 0..self.shape.width * scale {
                        sheet.put_pixel((left + x) as u32, (top + y) as u32, pixel(y / scale, x / scale));
                    }
                }
            }
        }
        sheet
    }

    /// The images as one embedded PNG, the class names as text.
    fn svg(&self) -> Result<String> {
        let Measures { cell, size: (height, width), .. } = self.measures();
        let picture = base64::engine::general_purpose::STANDARD.encode(png(&self.draw(false))?);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\">\n\
             <image width=\"{width}\" height=\"{height}\" href=\"data:image/png;base64,{picture}\"/>\n\
             <g font-family=\"monospace\" font-size=\"12\" fill=\"#000\">\n"
        );
        for (class, name) in self.classes.iter().enumerate() {
            let name: String = name.chars().take(LETTERS).collect();
            let name = name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            let middle = GAP + class * cell.0 + (cell.0 - GAP) / 2 + 4;
            out.push_str(&format!("<text x=\"{GAP}\" y=\"{middle}\">{name}</text>\n"));
        }
        out.push_str("</g>\n</svg>\n");
        Ok(out)
    }
}

fn png(picture: &RgbImage) -> Result<Vec<u8>> {
    let mut bytes = Cursor::new(Vec::new());
    picture.write_to(&mut bytes, ImageFormat::Png)?;
    Ok(bytes.into_inner())
}

/// Draws letters of 8x8 pixels; those missing from the font become question marks.
fn text(sheet: &mut RgbImage, text: &str, left: usize, top: usize) {
    for (i, letter) in text.chars().take(LETTERS).enumerate() {
        let glyph = font8x8::BASIC_FONTS.get(letter).or_else(|| font8x8::LATIN_FONTS.get(letter));
        let glyph = glyph.or_else(|| font8x8::BASIC_FONTS.get('?')).unwrap_or_default();
        for (y, bits) in glyph.iter().enumerate() {
            for x in (0..LETTER).filter(|x| bits >> x & 1 == 1) {
                let (x, y) = ((left + i * LETTER + x) as u32, (top + y) as u32);
                if x < sheet.width() && y < sheet.height() {
                    sheet.put_pixel(x, y, Rgb([0; 3]));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    fn sheet(classes: &[String], split: &Split) -> RgbImage {
        Sheet { classes, split, shape: ImageShape { channels: 1, height: 2, width: 3 } }.draw(true)
    }

    #[test]
    fn one_row_per_class_with_enlarged_images() {
        let classes = ["a".to_string(), "b & <c>".to_string()];
        let split = Split::images(vec![10, 20, 30, 40, 50, 60, 7, 7, 7, 7, 7, 7], vec![1, 0]);
        let drawn = sheet(&classes, &split);
        // Three columns of 21 pixels fit into 64; names take 7 letters.
        let (label, cell) = (7 * 8 + 8, 2 * 21 + GAP);
        assert_eq!(drawn.height() as usize, 2 * cell + GAP);
        assert_eq!(drawn.get_pixel(label as u32, GAP as u32).0, [7; 3]);
        let at = |row: usize, column: usize| {
            drawn.get_pixel((label + column * 21 + 20) as u32, (GAP + cell + row * 21 + 20) as u32).0[0]
        };
        assert_eq!([at(0, 0), at(0, 2), at(1, 1)], [10, 30, 50]);
        assert!((0..label as u32).any(|x| (0..cell as u32).any(|y| drawn.get_pixel(x, y).0 == [0; 3])), "no name");
    }

    #[test]
    fn the_extension_is_the_format() {
        let classes = ["b & <c>".to_string()];
        let split = Split::images(vec![0; 6], vec![0]);
        let sheet = Sheet { classes: &classes, split: &split, shape: ImageShape { channels: 1, height: 2, width: 3 } };
        let bytes = |name: &str| sheet.bytes(Path::new(name));
        assert!(image::load_from_memory(&bytes("x.PNG").unwrap()).is_ok());
        let svg = String::from_utf8(bytes("x.svg").unwrap()).unwrap();
        assert!(svg.contains(">b &amp; &lt;c&gt;</text>") && svg.contains("data:image/png;base64,iVBOR"), "{svg}");
        assert!(bytes("x.gif").is_err());
    }
}
