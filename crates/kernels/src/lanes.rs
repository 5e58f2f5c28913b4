//! Between rows of plain samples and `[group][channel][row][column][lane]`.

#![allow(clippy::too_many_arguments, reason = "a kernel takes each buffer with its plane")]

use pulp::Simd;

use crate::lines::{Steps, check};
use crate::plane::Plane;
use crate::simd::{Isa, Kernel};

/// Samples and pixels that are transposed at a time.
const BLOCK: usize = 8;

/// x `[group][channel][row][column][lane]` = pixel * scale[channel] + shift[channel].
///
/// Sample i is the image `indices[i]` of `pixels` `[image][channel][row][column]`. Lanes past the last sample become
/// zero, and the border stays as it is.
pub fn gather_u8(
    isa: Isa,
    x: &mut [f32],
    plane: Plane,
    channels: usize,
    pixels: &[u8],
    indices: &[u32],
    scale: &[f32],
    shift: &[f32],
) {
    check(x, plane, indices.len().div_ceil(isa.lanes()) * channels, isa.lanes());
    isa.run(Gather { x, plane, pixels, indices, scale: &scale[..channels], shift: &shift[..channels] });
}

struct Gather<'a> {
    x: &'a mut [f32],
    plane: Plane,
    pixels: &'a [u8],
    indices: &'a [u32],
    scale: &'a [f32],
    shift: &'a [f32],
}

impl Kernel for Gather<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let lanes = S::F32_LANES;
        let channels = self.scale.len();
        let image = channels * self.plane.pixels();
        for (group, indices) in self.indices.chunks(lanes).enumerate() {
            for first in (0..lanes).step_by(BLOCK) {
                let part = indices.get(first..).unwrap_or_default();
                let own: [&[u8]; BLOCK] = std::array::from_fn(|i| match part.get(i) {
                    Some(&index) => &self.pixels[index as usize * image..][..image],
                    None => &[],
                });
                let valid = part.len().min(BLOCK);
                let x = &mut self.x[group * channels * self.plane.area() * lanes + first..];
                // The last block of a group may reach past the lanes of a narrow vector.
                if lanes.is_multiple_of(BLOCK) {
                    gather_block::<BLOCK>(x, self.plane, lanes, &own, valid, self.scale, self.shift);
                } else {
                    gather_block::<4>(x, self.plane, lanes, &own, valid, self.scale, self.shift);
                }
            }
        }
    }
}

/// The first WIDTH of eight lanes.
#[inline(always)]
fn gather_block<const WIDTH: usize>(
    x: &mut [f32],
    plane: Plane,
    lanes: usize,
    images: &[&[u8]; BLOCK],
    valid: usize,
    scale: &[f32],
    shift: &[f32],
) {
    let steps = Steps::new(plane, lanes);
    for (channel, (&scale, &shift)) in scale.iter().zip(shift).enumerate() {
        let scale: [f32; WIDTH] = std::array::from_fn(|i| if i < valid { scale } else { 0.0 });
        let shift: [f32; WIDTH] = std::array::from_fn(|i| if i < valid { shift } else { 0.0 });
        for row in 0..plane.height {
            let from = channel * plane.pixels() + row * plane.width;
            let to = steps.at(channel, row);
            let mut column = 0;
            while column < plane.width {
                // The last block of a row overlaps the one before it, unless the row is shorter than a block.
                let start = column.min(plane.width.saturating_sub(BLOCK));
                let count = BLOCK.min(plane.width);
                let mut rows = [0u64; BLOCK];
                for (bytes, image) in rows.iter_mut().zip(images).take(valid) {
                    let line = &image[from + start..][..count];
                    *bytes = match line.first_chunk::<BLOCK>() {
                        Some(line) => u64::from_le_bytes(*line),
                        None => {
                            let mut short = [0; BLOCK];
                            short[..count].copy_from_slice(line);
                            u64::from_le_bytes(short)
                        }
                    };
                }
                let columns = transpose(rows);
                for (i, column) in columns.iter().enumerate().take(count) {
                    let bytes = column.to_le_bytes();
                    let to = &mut x[to + (start + i) * lanes..][..WIDTH];
                    for lane in 0..WIDTH {
                        to[lane] = f32::from(bytes[lane]) * scale[lane] + shift[lane];
                    }
                }
                column = start + count;
            }
        }
    }
}

/// Transposes eight by eight bytes: byte j of word i becomes byte i of word j.
#[inline(always)]
fn transpose(mut words: [u64; BLOCK]) -> [u64; BLOCK] {
    for (distance, mask) in [(4, 0x0000_0000_ffff_ffff), (2, 0x0000_ffff_0000_ffff), (1, 0x00ff_00ff_00ff_00ff)] {
        for i in 0..BLOCK {
            if i & distance == 0 {
                let swap = ((words[i] >> (8 * distance)) ^ words[i + distance]) & mask;
                words[i] ^= swap << (8 * distance);
                words[i + distance] ^= swap;
            }
        }
    }
    words
}

/// rows `[sample][channel * pixel]` = pixel * scale[channel] + shift[channel], of the images `indices` of `pixels`.
pub fn gather_u8_rows(
    rows: &mut [f32],
    pixels_per_channel: usize,
    channels: usize,
    pixels: &[u8],
    indices: &[u32],
    scale: &[f32],
    shift: &[f32],
) {
    let image = pixels_per_channel * channels;
    assert!(rows.len() >= indices.len() * image && scale.len() >= channels && shift.len() >= channels);
    for (row, &index) in rows.chunks_exact_mut(image.max(1)).zip(indices) {
        let from = &pixels[index as usize * image..][..image];
        for channel in 0..channels {
            let range = channel * pixels_per_channel..(channel + 1) * pixels_per_channel;
            let (scale, shift) = (scale[channel], shift[channel]);
            for (to, from) in row[range.clone()].iter_mut().zip(&from[range]) {
                *to = f32::from(*from) * scale + shift;
            }
        }
    }
}

/// x `[group][channel][row][column][lane]` = rows `[sample][channel][row][column]`.
///
/// Lanes past the last sample become zero, and the border stays as it is.
pub fn from_rows(isa: Isa, x: &mut [f32], plane: Plane, channels: usize, rows: &[f32], samples: usize) {
    check(x, plane, samples.div_ceil(isa.lanes()) * channels, isa.lanes());
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
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let (plane, lanes) = (self.plane, S::F32_LANES);
        let features = self.channels * plane.pixels();
        let steps = Steps::new(plane, lanes);
        for group in 0..self.samples.div_ceil(lanes) {
            let valid = lanes.min(self.samples - group * lanes);
            for channel in 0..self.channels {
                for row in 0..plane.height {
                    let at = channel * plane.pixels() + row * plane.width;
                    let to = steps.at(group * self.channels + channel, row);
                    let to = &mut self.x[to..to + plane.width * lanes];
                    for lane in 0..valid {
                        let from = &self.rows[(group * lanes + lane) * features + at..][..plane.width];
                        for (column, v) in from.iter().enumerate() {
                            to[column * lanes + lane] = *v;
                        }
                    }
                    if valid < lanes {
                        for pixel in to.chunks_exact_mut(lanes) {
                            pixel[valid..].fill(0.0);
                        }
                    }
                }
            }
        }
    }
}

/// rows `[sample][channel][row][column]` = x `[group][channel][row][column][lane]`.
pub fn to_rows(isa: Isa, rows: &mut [f32], x: &[f32], plane: Plane, channels: usize, samples: usize) {
    check(x, plane, samples.div_ceil(isa.lanes()) * channels, isa.lanes());
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
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let (plane, lanes) = (self.plane, S::F32_LANES);
        let features = self.channels * plane.pixels();
        let steps = Steps::new(plane, lanes);
        for group in 0..self.samples.div_ceil(lanes) {
            let valid = lanes.min(self.samples - group * lanes);
            for channel in 0..self.channels {
                for row in 0..plane.height {
                    let at = channel * plane.pixels() + row * plane.width;
                    let from = steps.at(group * self.channels + channel, row);
                    let from = &self.x[from..from + plane.width * lanes];
                    for lane in 0..valid {
                        let to = &mut self.rows[(group * lanes + lane) * features + at..][..plane.width];
                        for (column, v) in to.iter_mut().enumerate() {
                            *v = from[column * lanes + lane];
                        }
                    }
                }
            }
        }
    }
}
