//! Conversion between rows of samples and `[group][channel][row][column][lane]`.

use crate::lines::{Lines, Steps, check};
use crate::plane::{Plane, Planes, PlanesMut};
use crate::simd::{Isa, Kernel, LANES, Simd};

/// A selection of byte images. A value is `pixel * scale[channel] + shift[channel]`.
#[derive(Clone, Copy, Debug)]
pub struct ByteImages<'a> {
    /// `[image][channel][row][column]`
    pub pixels: &'a [u8],
    pub indices: &'a [u32],
    /// One per channel.
    pub scale: &'a [f32],
    pub shift: &'a [f32],
}

/// x = the values of the picked images. Lanes past the last sample become zero; the border is left unchanged.
pub fn gather_u8(isa: Isa, x: PlanesMut<'_>, images: ByteImages<'_>) {
    let channels = images.scale.len();
    assert_eq!(images.shift.len(), channels);
    check(x.data, x.plane, images.indices.len().div_ceil(LANES) * channels);
    isa.run(GatherBytes { x: x.data, plane: x.plane, images });
}

struct GatherBytes<'a> {
    x: &'a mut [f32],
    plane: Plane,
    images: ByteImages<'a>,
}

impl Kernel for GatherBytes<'_> {
    const NARROW: bool = true;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self { x, plane, images } = self;
        let channels = images.scale.len();
        let (pixels, steps) = (plane.pixels(), Steps::new(plane));
        for (group, indices) in images.indices.chunks(LANES).enumerate() {
            // Missing lanes read the first image, times zero.
            let picked: [&[u8]; LANES] = std::array::from_fn(|lane| {
                let index = *indices.get(lane).unwrap_or(&indices[0]) as usize;
                &images.pixels[index * channels * pixels..][..channels * pixels]
            });
            for channel in 0..channels {
                let valid = |lane: usize, v: f32| if lane < indices.len() { v } else { 0.0 };
                let scale: [f32; LANES] = std::array::from_fn(|lane| valid(lane, images.scale[channel]));
                let shift: [f32; LANES] = std::array::from_fn(|lane| valid(lane, images.shift[channel]));
                for row in 0..plane.height {
                    let at = channel * pixels + row * plane.width;
                    let line: [*const u8; LANES] =
                        std::array::from_fn(|lane| picked[lane][at..][..plane.width].as_ptr());
                    let to = steps.at(group * channels + channel, row);
                    let to = x[to..to + plane.width * LANES].as_mut_ptr();
                    // SAFETY: each line has `width` bytes, and the target as many pixels.
                    unsafe { gather_line(to, line, plane.width, scale, shift) };
                }
            }
        }
    }
}

/// One row of all lanes. A word holds four pixels of a lane.
///
/// # Safety
/// Each line must hold `width` bytes, and `to` must hold `width` pixels.
#[inline(always)]
unsafe fn gather_line(to: *mut f32, line: [*const u8; LANES], width: usize, scale: [f32; LANES], shift: [f32; LANES]) {
    const WORD: usize = size_of::<u32>();
    let mut column = 0;
    while column < width {
        // The last word of a row overlaps the one before it, unless the row is shorter than a word.
        let start = column.min(width.saturating_sub(WORD));
        let count = WORD.min(width);
        // SAFETY: `start + count` does not pass `width`.
        unsafe {
            let words: [u32; LANES] = std::array::from_fn(|lane| {
                let from = line[lane].add(start);
                if width >= WORD {
                    u32::from_le(from.cast::<u32>().read_unaligned())
                } else {
                    (0..count).fold(0, |word, i| word | u32::from(*from.add(i)) << (8 * i))
                }
            });
            for i in 0..count {
                let pixel: [f32; LANES] = std::array::from_fn(|lane| {
                    let byte = words[lane] >> (8 * i) & 0xff;
                    byte as i32 as f32 * scale[lane] + shift[lane]
                });
                to.add((start + i) * LANES).cast::<[f32; LANES]>().write_unaligned(pixel);
            }
        }
        column = start + count;
    }
}

/// rows `[sample][channel * pixel]` = the values of the picked images.
pub fn gather_u8_rows(rows: &mut [f32], images: ByteImages<'_>, pixels_per_channel: usize) {
    let image = pixels_per_channel * images.scale.len();
    assert!(rows.len() >= images.indices.len() * image);
    for (row, &index) in rows.chunks_exact_mut(image.max(1)).zip(images.indices) {
        let from = &images.pixels[index as usize * image..][..image];
        let channels =
            row.chunks_exact_mut(pixels_per_channel.max(1)).zip(from.chunks_exact(pixels_per_channel.max(1)));
        for ((row, from), (scale, shift)) in channels.zip(images.scale.iter().zip(images.shift)) {
            for (to, from) in row.iter_mut().zip(from) {
                *to = f32::from(*from) * scale + shift;
            }
        }
    }
}

/// x `[group][channel][row][column][lane]` = rows `[sample][channel][row][column]`.
///
/// Lanes past the last sample become zero; the border is left unchanged.
pub fn from_rows(isa: Isa, PlanesMut { data: x, plane }: PlanesMut<'_>, channels: usize, rows: &[f32], samples: usize) {
    check(x, plane, samples.div_ceil(LANES) * channels);
    let rows = &rows[..samples * channels * plane.pixels()];
    isa.run(FromRows { x, plane, channels, rows, samples });
}

struct FromRows<'a> {
    x: &'a mut [f32],
    plane: Plane,
    channels: usize,
    rows: &'a [f32],
    samples: usize,
}

impl Kernel for FromRows<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let plane = self.plane;
        let features = self.channels * plane.pixels();
        let (lines, steps) = (Lines::of(&[plane]), Steps::new(plane));
        for group in 0..self.samples.div_ceil(LANES) {
            let valid = LANES.min(self.samples - group * LANES);
            for index in 0..self.channels * lines.count {
                let to = steps.at(group * self.channels + index / lines.count, index % lines.count);
                let to = &mut self.x[to..to + lines.pixels * LANES];
                if valid < LANES {
                    to.fill(0.0);
                }
                let from = &self.rows[group * LANES * features + index * lines.pixels..];
                assert!(from.len() >= (valid - 1) * features + lines.pixels);
                // SAFETY: `to` holds `pixels` pixels of `lanes` lanes, and `from` the lines of `valid` samples.
                unsafe { transpose((to.as_mut_ptr(), LANES), (from.as_ptr(), features), (valid, lines.pixels)) };
            }
        }
    }
}

/// to[column][row] = from[row][column]. Each pointer comes with the stride of its first index.
///
/// # Safety
/// Both matrices must be valid and must not overlap.
#[inline(always)]
unsafe fn transpose(
    (to, to_step): (*mut f32, usize),
    (from, from_step): (*const f32, usize),
    (rows, columns): (usize, usize),
) {
    const SIDE: usize = 4;
    let (whole_rows, whole_columns) = (rows / SIDE * SIDE, columns / SIDE * SIDE);
    // SAFETY: the caller's contract; every index is below `rows` or `columns`.
    unsafe {
        for column in (0..whole_columns).step_by(SIDE) {
            for row in (0..whole_rows).step_by(SIDE) {
                let block: [[f32; SIDE]; SIDE] = std::array::from_fn(|i| {
                    from.add((row + i) * from_step + column).cast::<[f32; SIDE]>().read_unaligned()
                });
                for j in 0..SIDE {
                    let line = block.map(|line| line[j]);
                    to.add((column + j) * to_step + row).cast::<[f32; SIDE]>().write_unaligned(line);
                }
            }
        }
        for row in 0..rows {
            let first = if row < whole_rows { whole_columns } else { 0 };
            for column in first..columns {
                *to.add(column * to_step + row) = *from.add(row * from_step + column);
            }
        }
    }
}

/// rows `[sample][channel][row][column]` = x `[group][channel][row][column][lane]`.
pub fn to_rows(isa: Isa, rows: &mut [f32], Planes { data: x, plane }: Planes<'_>, channels: usize, samples: usize) {
    check(x, plane, samples.div_ceil(LANES) * channels);
    let rows = &mut rows[..samples * channels * plane.pixels()];
    isa.run(ToRows { rows, x, plane, channels, samples });
}

struct ToRows<'a> {
    rows: &'a mut [f32],
    x: &'a [f32],
    plane: Plane,
    channels: usize,
    samples: usize,
}

impl Kernel for ToRows<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let plane = self.plane;
        let features = self.channels * plane.pixels();
        let (lines, steps) = (Lines::of(&[plane]), Steps::new(plane));
        for group in 0..self.samples.div_ceil(LANES) {
            let valid = LANES.min(self.samples - group * LANES);
            for index in 0..self.channels * lines.count {
                let from = steps.at(group * self.channels + index / lines.count, index % lines.count);
                let from = &self.x[from..from + lines.pixels * LANES];
                let to = &mut self.rows[group * LANES * features + index * lines.pixels..];
                assert!(to.len() >= (valid - 1) * features + lines.pixels);
                // SAFETY: `from` holds `pixels` pixels of `lanes` lanes, and `to` the lines of `valid` samples.
                unsafe { transpose((to.as_mut_ptr(), features), (from.as_ptr(), LANES), (lines.pixels, valid)) };
            }
        }
    }
}
