//! The average over all pixels of a channel.

use pulp::Simd;

use crate::lines::{Lines, Source, Target, clear_border};
use crate::plane::Plane;
use crate::simd::{Isa, Kernel, load, store};

/// y `[group][channel][lane]` = the average over the pixels of x `[group][channel][row][column][lane]`.
pub fn global_forward(isa: Isa, y: &mut [f32], x: &[f32], x_plane: Plane, channels: usize, groups: usize) {
    let (lanes, planes) = (isa.lanes(), groups * channels);
    let x = Source::new(x, x_plane, planes, lanes);
    isa.run(GlobalForward { y: &mut y[..planes * lanes], x, lines: Lines::of(&[x_plane]) });
}

struct GlobalForward<'a> {
    y: &'a mut [f32],
    x: Source,
    lines: Lines,
}

impl Kernel for GlobalForward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let lanes = S::F32_LANES;
        let share = simd.splat_f32s(1.0 / (self.lines.count * self.lines.pixels) as f32);
        for (plane, y) in self.y.chunks_exact_mut(lanes).enumerate() {
            let mut sum = [simd.splat_f32s(0.0); 4];
            for line in 0..self.lines.count {
                // SAFETY: `Source` checked the buffer.
                unsafe {
                    let x = self.x.line(plane, line);
                    let mut pixel = 0;
                    while pixel + 4 <= self.lines.pixels {
                        for (i, sum) in sum.iter_mut().enumerate() {
                            *sum = simd.add_f32s(*sum, load::<S>(x.add((pixel + i) * lanes)));
                        }
                        pixel += 4;
                    }
                    while pixel < self.lines.pixels {
                        sum[0] = simd.add_f32s(sum[0], load::<S>(x.add(pixel * lanes)));
                        pixel += 1;
                    }
                }
            }
            let sum = simd.add_f32s(simd.add_f32s(sum[0], sum[1]), simd.add_f32s(sum[2], sum[3]));
            // SAFETY: a chunk is one vector.
            unsafe { store::<S>(y.as_mut_ptr(), simd.mul_f32s(sum, share)) };
        }
    }
}

/// d_x `[group][channel][row][column][lane]` = d_y `[group][channel][lane]` / pixels. Clears the border of d_x.
pub fn global_backward(isa: Isa, d_x: &mut [f32], dx_plane: Plane, d_y: &[f32], channels: usize, groups: usize) {
    let (lanes, planes) = (isa.lanes(), groups * channels);
    clear_border(isa, d_x, dx_plane, planes);
    let d_x = Target::new(d_x, dx_plane, planes, lanes);
    isa.run(GlobalBackward { d_x, d_y: &d_y[..planes * lanes], lines: Lines::of(&[dx_plane]) });
}

struct GlobalBackward<'a> {
    d_x: Target,
    d_y: &'a [f32],
    lines: Lines,
}

impl Kernel for GlobalBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let lanes = S::F32_LANES;
        let share = simd.splat_f32s(1.0 / (self.lines.count * self.lines.pixels) as f32);
        for (plane, d_y) in self.d_y.chunks_exact(lanes).enumerate() {
            // SAFETY: `Target` checked the buffer, and a chunk is one vector.
            unsafe {
                let d = simd.mul_f32s(load::<S>(d_y.as_ptr()), share);
                for line in 0..self.lines.count {
                    let d_x = self.d_x.line(plane, line);
                    for pixel in 0..self.lines.pixels {
                        store::<S>(d_x.add(pixel * lanes), d);
                    }
                }
            }
        }
    }
}
