//! Augmentation of training images: crop, flip, rotation, Cutout.
//!
//! A [`View`] is drawn from a random stream and holds everything random about one view of an image;
//! [`Augmenter::apply`] produces the image of a view. Changes follow the order of the published recipes, on bytes and
//! before normalisation: crop, flip, rotation. Cutout comes after normalisation and sets numbers to 0, which may not
//! correspond to any byte, so it is left to the code that normalises: [`View::hole`] gives the position.

mod recipe;

use std::ops::Range;

use fedelity_keys::{Choice, keys};
use rand_chacha::rand_core::Rng;

use crate::dataset::ImageShape;

pub use recipe::{Recipe, Treatment};

/// What fills the border of a shifted image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Choice)]
pub enum Padding {
    /// Black.
    #[default]
    Zero,
    /// The mirrored image, without repeating its edge.
    Reflect,
}

/// Which random changes to make.
#[keys]
#[derive(Copy)]
pub struct Augmentation {
    /// Shift the image by up to this many pixels in each direction.
    #[key(default = 0)]
    pub crop: usize,
    /// What fills the border of a shifted image.
    #[key(default = "zero")]
    pub padding: Padding,
    /// Flip the image horizontally half the time.
    #[key(default = false)]
    pub flip: bool,
    /// Rotate the image by up to this many degrees either way, with nearest-pixel sampling and black outside.
    #[key(default = 0.0, min = 0, max = 180)]
    pub rotation: f32,
    /// Side of a square of zeros (Cutout), after normalisation, centred anywhere in the image.
    #[key(default = 0)]
    pub cutout: usize,
}

/// The maximum side of an image that can be rotated: positions are 16.16 fixed-point numbers.
const LARGEST_SIDE: usize = 8_192;

impl Augmentation {
    pub fn is_none(&self) -> bool {
        self.crop == 0 && !self.flip && self.rotation == 0.0 && self.cutout == 0
    }

    /// Why images of this shape cannot be augmented this way, if they cannot.
    pub fn check(&self, shape: ImageShape) -> Result<(), String> {
        let least = shape.height.min(shape.width);
        if self.crop >= least {
            return Err(format!("crop = {}: expected less than {least}, the side of an image", self.crop));
        }
        if !(0.0..=180.0).contains(&self.rotation) {
            return Err(format!("rotation = {}: expected 0 to 180 degrees", self.rotation));
        }
        if self.rotation > 0.0 && shape.height.max(shape.width) > LARGEST_SIDE {
            return Err(format!(
                "rotation = {}: expected images of at most {LARGEST_SIDE} pixels per side",
                self.rotation
            ));
        }
        if self.cutout > 2 * least {
            return Err(format!("cutout = {}: expected at most {}", self.cutout, 2 * least));
        }
        Ok(())
    }

    /// A random view of an image of this shape.
    pub fn view(&self, shape: ImageShape, rng: &mut impl Rng) -> View {
        let mut below = |bound: usize| ((u64::from(rng.next_u32()) * bound as u64) >> 32) as usize;
        let mut view = View::default();
        if self.crop > 0 {
            view.down = below(2 * self.crop + 1) as isize - self.crop as isize;
            view.right = below(2 * self.crop + 1) as isize - self.crop as isize;
        }
        view.flip = self.flip && below(2) == 1;
        if self.rotation > 0.0 {
            let share = below(1 << 31) as f64 / f64::from(1u32 << 31);
            view.degrees = (2.0 * share - 1.0) * f64::from(self.rotation);
        }
        if self.cutout > 0 {
            let side = |centre: usize, most: usize| {
                centre.saturating_sub(self.cutout / 2)..(centre + self.cutout / 2).min(most)
            };
            let rows = side(below(shape.height), shape.height);
            view.hole = Some((rows, side(below(shape.width), shape.width)));
        }
        view
    }
}

/// Everything random about one view of an image.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    /// Rows by which the window moves down.
    pub down: isize,
    /// Columns by which the window moves right.
    pub right: isize,
    /// Whether left and right are swapped.
    pub flip: bool,
    /// Degrees of anticlockwise rotation.
    pub degrees: f64,
    /// Rows and columns set to 0 after normalisation.
    pub hole: Option<(Range<usize>, Range<usize>)>,
}

/// Produces the images of views. Reuse it: it allocates once.
#[derive(Clone, Debug, Default)]
pub struct Augmenter {
    /// An image as words of up to four channels, with a border that a rotation never leaves. The line length is a power
    /// of two.
    words: Vec<u32>,
    shape: Option<ImageShape>,
    line: Vec<u32>,
}

/// The part of a line inside the image, and where it starts there.
struct Inside {
    to: Range<usize>,
    from: usize,
}

impl Augmenter {
    /// Writes `image` as seen in `view` to `out`, both `[channel][row][column]`; the hole is not cut.
    ///
    /// # Panics
    ///
    /// If the lengths do not match the shape.
    pub fn apply(&mut self, shape: ImageShape, padding: Padding, image: &[u8], view: &View, out: &mut [u8]) {
        assert_eq!((image.len(), out.len()), (shape.pixels(), shape.pixels()), "images of another shape");
        if view.degrees == 0.0 {
            return crop(shape, padding, image, view, out);
        }
        let area = shape.height * shape.width;
        for (from, to) in image.chunks(4 * area).zip(out.chunks_mut(4 * area)) {
            self.rotate(shape, padding, from, view, to);
        }
    }

    /// Crops and flips up to four channels and rotates them about the centre, like the Python Imaging Library with
    /// nearest-pixel sampling.
    fn rotate(&mut self, shape: ImageShape, padding: Padding, image: &[u8], view: &View, out: &mut [u8]) {
        let (height, width) = (shape.height, shape.width);
        let area = height * width;
        // No position is farther from the centre than a corner.
        let border = ((height * height + width * width) as f64).sqrt() as usize / 2 + 2 - height.min(width) / 2;
        let stride = (width + 2 * border).next_power_of_two();
        if self.shape != Some(shape) {
            self.words.clear();
            self.words.resize((height + 2 * border) * stride, 0);
            self.line.resize(width, 0);
            self.shape = Some(shape);
        }
        let inside = Inside::new(view.right, width);
        for (row, words) in self.words.chunks_exact_mut(stride).skip(border).take(height).enumerate() {
            let words = &mut words[border..border + width];
            let Some(row) = source(row as isize + view.down, height, padding) else {
                words.fill(0);
                continue;
            };
            let line = |channel: usize| &image[channel * area + row * width..][..width];
            match image.len() / area {
                3 => pack(words, [line(0), line(1), line(2)], &inside, view.right, padding),
                1 => pack(words, [line(0)], &inside, view.right, padding),
                2 => pack(words, [line(0), line(1)], &inside, view.right, padding),
                _ => pack(words, [line(0), line(1), line(2), line(3)], &inside, view.right, padding),
            }
            if view.flip {
                words.reverse();
            }
        }
        let (sin, cos) = libm::sincos(-view.degrees.to_radians());
        let (x0, y0) = (width as f64 / 2.0, height as f64 / 2.0);
        let fixed = |value: f64| (value * 65_536.0 + 0.5).floor() as i32;
        let (dx, dy) = ((fixed(cos), fixed(-sin)), (fixed(sin), fixed(cos)));
        let first = |a: f64, b: f64, centre: f64| fixed(a * (0.5 - x0) + b * (0.5 - y0) + centre);
        let edge = (border << 16) as i32;
        let (mut left_x, mut left_y) = (first(cos, sin, x0) + edge, first(-sin, cos, y0) + edge);
        let shift = stride.trailing_zeros();
        let words = &self.words[..];
        for row in 0..height {
            let (mut x, mut y) = (left_x, left_y);
            for word in &mut self.line {
                *word = words[(((y >> 16) as usize) << shift) + (x >> 16) as usize];
                (x, y) = (x + dx.0, y + dx.1);
            }
            for (channel, plane) in out.chunks_exact_mut(area).enumerate() {
                let line = &mut plane[row * width..(row + 1) * width];
                line.iter_mut().zip(&self.line).for_each(|(pixel, word)| *pixel = (word >> (8 * channel)) as u8);
            }
            (left_x, left_y) = (left_x + dy.0, left_y + dy.1);
        }
    }
}

impl Inside {
    /// For a line of `width` that starts `shift` to the right in the image.
    fn new(shift: isize, width: usize) -> Self {
        let start = (-shift).clamp(0, width as isize) as usize;
        let end = (width as isize - shift).clamp(start as isize, width as isize) as usize;
        Self { to: start..end, from: (start as isize + shift).max(0) as usize }
    }
}

/// One line of several channels as words.
fn pack<const N: usize>(words: &mut [u32], lines: [&[u8]; N], inside: &Inside, shift: isize, padding: Padding) {
    let n = inside.to.len();
    let parts = lines.map(|line| &line[inside.from..inside.from + n]);
    for (i, word) in words[inside.to.clone()].iter_mut().enumerate() {
        *word = (0..N).fold(0, |word, channel| word | u32::from(parts[channel][i]) << (8 * channel));
    }
    let width = words.len();
    for column in (0..inside.to.start).chain(inside.to.end..width) {
        let from = source(column as isize + shift, width, padding);
        let byte = |line: &[u8]| from.map_or(0, |column| u32::from(line[column]));
        words[column] = (0..N).fold(0, |word, channel| word | byte(lines[channel]) << (8 * channel));
    }
}

/// The window of a view, flipped if requested.
fn crop(shape: ImageShape, padding: Padding, image: &[u8], view: &View, out: &mut [u8]) {
    let (height, width) = (shape.height, shape.width);
    let inside = Inside::new(view.right, width);
    for (from, to) in image.chunks_exact(height * width).zip(out.chunks_exact_mut(height * width)) {
        for (row, to) in to.chunks_exact_mut(width).enumerate() {
            let Some(row) = source(row as isize + view.down, height, padding) else {
                to.fill(0);
                continue;
            };
            let from = &from[row * width..(row + 1) * width];
            to[inside.to.clone()].copy_from_slice(&from[inside.from..inside.from + inside.to.len()]);
            for column in (0..inside.to.start).chain(inside.to.end..width) {
                to[column] = source(column as isize + view.right, width, padding).map_or(0, |column| from[column]);
            }
            if view.flip {
                to.reverse();
            }
        }
    }
}

/// The row or column of the image at a position, if any.
fn source(at: isize, length: usize, padding: Padding) -> Option<usize> {
    let last = length as isize - 1;
    match padding {
        _ if (0..=last).contains(&at) => Some(at as usize),
        Padding::Zero => None,
        Padding::Reflect if at < 0 => Some((-at).min(last) as usize),
        Padding::Reflect => Some((2 * last - at).max(0) as usize),
    }
}

#[cfg(test)]
mod tests;
