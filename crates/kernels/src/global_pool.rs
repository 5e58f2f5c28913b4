//! Global average pooling.

use crate::lines::{Lines, SourceLines, TargetLines, clear_border, four};
use crate::plane::{Planes, PlanesMut};
use crate::simd::{Isa, Kernel, LANES, Simd, load, store};

/// y `[group][channel][lane]` = the average over the pixels of each of `count` planes.
pub fn global_forward(isa: Isa, y: &mut [f32], x: Planes<'_>, count: usize) {
    let lines = Lines::of(&[x.plane]);
    isa.run(GlobalForward { y: &mut y[..count * LANES], x: SourceLines::new(x, count), lines });
}

struct GlobalForward<'a> {
    y: &'a mut [f32],
    x: SourceLines,
    lines: Lines,
}

impl Kernel for GlobalForward<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let share = simd.splat(1.0 / (self.lines.count * self.lines.pixels) as f32);
        for (plane, y) in self.y.chunks_exact_mut(LANES).enumerate() {
            let mut sum = [simd.splat(0.0); 4];
            for line in 0..self.lines.count {
                // SAFETY: `SourceLines` checked the buffer.
                unsafe {
                    let x = self.x.line(plane, line);
                    let mut pixel = 0;
                    while pixel + 4 <= self.lines.pixels {
                        for (i, sum) in sum.iter_mut().enumerate() {
                            *sum = simd.add(*sum, load::<S>(x.add((pixel + i) * LANES)));
                        }
                        pixel += 4;
                    }
                    while pixel < self.lines.pixels {
                        sum[0] = simd.add(sum[0], load::<S>(x.add(pixel * LANES)));
                        pixel += 1;
                    }
                }
            }
            // SAFETY: a chunk is one vector.
            unsafe { store::<S>(y.as_mut_ptr(), simd.mul(four(simd, sum), share)) };
        }
    }
}

/// d_x = d_y `[group][channel][lane]` / pixels, for `count` planes. Clears the border of d_x.
pub fn global_backward(isa: Isa, mut d_x: PlanesMut<'_>, d_y: &[f32], count: usize) {
    clear_border(isa, &mut d_x, count);
    let (d_y, lines) = (&d_y[..count * LANES], Lines::of(&[d_x.plane]));
    isa.run(GlobalBackward { d_x: TargetLines::new(d_x, count), d_y, lines });
}

struct GlobalBackward<'a> {
    d_x: TargetLines,
    d_y: &'a [f32],
    lines: Lines,
}

impl Kernel for GlobalBackward<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let share = simd.splat(1.0 / (self.lines.count * self.lines.pixels) as f32);
        for (plane, d_y) in self.d_y.chunks_exact(LANES).enumerate() {
            // SAFETY: `TargetLines` checked the buffer, and a chunk is one vector.
            unsafe {
                let d = simd.mul(load::<S>(d_y.as_ptr()), share);
                for line in 0..self.lines.count {
                    let d_x = self.d_x.line(plane, line);
                    for pixel in 0..self.lines.pixels {
                        store::<S>(d_x.add(pixel * LANES), d);
                    }
                }
            }
        }
    }
}
