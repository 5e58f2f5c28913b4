//! Maximum and average pooling over `[group][channel][row][column][lane]`.

use crate::lines::{check, clear_border};
use crate::plane::{Planes, PlanesMut};
use crate::simd::{Isa, Kernel, LANES, Simd, load, store};
use crate::window::{PoolSide, WindowTaps};

pub use crate::global_pool::{global_backward, global_forward};
pub use crate::window::Window;

/// y = the maximum over each window of x, or of relu(x), for `count` planes.
///
/// `choice` (no border) receives the index of the winning tap, row by row, or -1 where ReLU clipped the maximum.
/// Padding never wins. Ties go to the first. NaN wins over everything.
#[derive(Debug)]
pub struct MaxPool<'a> {
    pub y: PlanesMut<'a>,
    pub choice: &'a mut [f32],
    pub x: Planes<'a>,
    pub count: usize,
    pub window: Window,
    pub relu: bool,
}

pub fn max_forward(isa: Isa, pool: MaxPool<'_>) {
    let MaxPool { y, choice, x, count, window, .. } = &pool;
    window.check(x.plane, y.plane);
    check(y.data, y.plane, *count);
    check(choice, y.plane.with_halo(0), *count);
    check(x.data, x.plane, *count);
    isa.run(pool);
}

impl Kernel for MaxPool<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        match (self.window.kernel, self.window.tiles(self.x.plane)) {
            (2, true) => self.sweep::<S, 2, 2>(simd),
            (2, false) => self.sweep::<S, 2, 0>(simd),
            (3, _) => self.sweep::<S, 3, 0>(simd),
            _ => self.sweep::<S, 0, 0>(simd),
        }
    }
}

impl MaxPool<'_> {
    /// All windows. `K` is the kernel size, and `TILE` too if the windows tile the image; 0 if not known at compile
    /// time.
    #[inline(always)]
    fn sweep<S: Simd, const K: usize, const TILE: usize>(self, simd: S) {
        let window = self.window;
        let (from, to) = (PoolSide::new(self.x.plane), PoolSide::new(self.y.plane));
        let zero = simd.splat(0.0);
        let mut choice = self.choice.as_mut_ptr();
        for plane in 0..self.count {
            for row in 0..to.plane.height {
                let rows = window.taps_in::<TILE>(row, from.plane.height);
                for column in 0..to.plane.width {
                    let columns = window.taps_in::<TILE>(column, from.plane.width);
                    // SAFETY: the planes were checked; taps lie inside the image; each choice has its own element.
                    unsafe {
                        let corner = from.base + plane * from.area + rows.pixel * from.row + columns.pixel * LANES;
                        let x = self.x.data.as_ptr().add(corner);
                        let (mut best, mut tap) = if K > 0 && rows.whole(K) && columns.whole(K) {
                            let whole = WindowTaps { first: 0, end: K, pixel: 0 };
                            winner(simd, x, Taken { rows: whole, columns: whole, kernel: K, row_step: from.row })
                        } else {
                            winner(simd, x, Taken { rows, columns, kernel: window.kernel, row_step: from.row })
                        };
                        if self.relu {
                            let cut = simd.or(simd.less(best, zero), simd.equal(best, zero));
                            best = simd.select(cut, zero, best);
                            tap = simd.select(cut, simd.splat(-1.0), tap);
                        }
                        let y = to.base + plane * to.area + row * to.row + column * LANES;
                        store::<S>(self.y.data.as_mut_ptr().add(y), best);
                        store::<S>(choice, tap);
                        choice = choice.add(LANES);
                    }
                }
            }
        }
    }
}

/// The taps of a window that lie inside the image.
#[derive(Clone, Copy)]
struct Taken {
    rows: WindowTaps,
    columns: WindowTaps,
    kernel: usize,
    /// Floats from one row to the next.
    row_step: usize,
}

/// The maximum over some taps, and the winning tap. `x` points to the first tap.
#[inline(always)]
unsafe fn winner<S: Simd>(
    simd: S,
    x: *const f32,
    Taken { rows, columns, kernel, row_step }: Taken,
) -> (S::Vector, S::Vector) {
    // SAFETY: the caller's taps lie inside the image.
    unsafe {
        let mut best = load::<S>(x);
        let mut tap = simd.splat((rows.first * kernel + columns.first) as f32);
        for row in rows.first..rows.end {
            let line = x.add((row - rows.first) * row_step);
            // The initial best is the first tap.
            for column in columns.first + usize::from(row == rows.first)..columns.end {
                let v = load::<S>(line.add((column - columns.first) * LANES));
                // Later NaNs win too, as in PyTorch; only another NaN wins over a NaN.
                let wins = simd.or(simd.less(best, v), simd.not(simd.equal(v, v)));
                best = simd.select(wins, v, best);
                tap = simd.select(wins, simd.splat((row * kernel + column) as f32), tap);
            }
        }
        (best, tap)
    }
}

/// d_x = the gradient of the input of [`max_forward`] given its choices, or of [`average_forward`] without choices:
/// each window passes its gradient to the chosen tap, or evenly to all. Writes every pixel, including zeros, and clears
/// the border.
#[derive(Debug)]
pub struct PoolGradient<'a> {
    pub d_x: PlanesMut<'a>,
    pub d_y: Planes<'a>,
    pub choice: Option<&'a [f32]>,
    pub count: usize,
    pub window: Window,
}

pub fn backward(isa: Isa, mut gradient: PoolGradient<'_>) {
    let PoolGradient { d_x, d_y, choice, count, window } = &mut gradient;
    window.check(d_x.plane, d_y.plane);
    check(d_x.data, d_x.plane, *count);
    check(d_y.data, d_y.plane, *count);
    if let Some(choice) = choice {
        check(choice, d_y.plane.with_halo(0), *count);
    }
    if window.tiles(d_x.plane) {
        clear_border(isa, d_x, *count);
    } else {
        d_x.data[..*count * d_x.plane.area() * LANES].fill(0.0);
    }
    isa.run(gradient);
}

impl PoolGradient<'_> {
    /// All windows. `K` is the kernel size, and `TILE` too if the windows tile the image; 0 if not known at compile
    /// time.
    #[inline(always)]
    fn sweep<S: Simd, const K: usize, const TILE: usize, const CHOICE: bool, const ADD: bool>(self, simd: S) {
        let window = self.window;
        let (to, from) = (PoolSide::new(self.d_x.plane), PoolSide::new(self.d_y.plane));
        let share = simd.splat(1.0 / (window.kernel * window.kernel) as f32);
        let mut choice = self.choice.unwrap_or_default().as_ptr();
        for plane in 0..self.count {
            for row in 0..from.plane.height {
                let rows = window.taps_in::<TILE>(row, to.plane.height);
                for column in 0..from.plane.width {
                    let columns = window.taps_in::<TILE>(column, to.plane.width);
                    // SAFETY: the planes were checked; taps lie inside the image; each choice has its own element.
                    unsafe {
                        let d_y = from.base + plane * from.area + row * from.row + column * LANES;
                        let d = load::<S>(self.d_y.data.as_ptr().add(d_y));
                        let (d, tap) = if CHOICE {
                            let tap = load::<S>(choice);
                            choice = choice.add(LANES);
                            (d, tap)
                        } else {
                            (simd.mul(d, share), d)
                        };
                        let corner = to.base + plane * to.area + rows.pixel * to.row + columns.pixel * LANES;
                        let d_x = self.d_x.data.as_mut_ptr().add(corner);
                        if K > 0 && rows.whole(K) && columns.whole(K) {
                            let whole = WindowTaps { first: 0, end: K, pixel: 0 };
                            let taps = Taken { rows: whole, columns: whole, kernel: K, row_step: to.row };
                            spread::<S, CHOICE, ADD>(simd, d_x, taps, d, tap);
                        } else {
                            let taps = Taken { rows, columns, kernel: window.kernel, row_step: to.row };
                            spread::<S, CHOICE, ADD>(simd, d_x, taps, d, tap);
                        }
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn kernels<S: Simd, const CHOICE: bool>(self, simd: S) {
        match (self.window.kernel, self.window.disjoint()) {
            (2, true) if self.window.tiles(self.d_x.plane) => self.sweep::<S, 2, 2, CHOICE, false>(simd),
            (2, true) => self.sweep::<S, 2, 0, CHOICE, false>(simd),
            (_, true) => self.sweep::<S, 0, 0, CHOICE, false>(simd),
            (3, false) => self.sweep::<S, 3, 0, CHOICE, true>(simd),
            (_, false) => self.sweep::<S, 0, 0, CHOICE, true>(simd),
        }
    }
}

impl Kernel for PoolGradient<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        if self.choice.is_some() { self.kernels::<S, true>(simd) } else { self.kernels::<S, false>(simd) }
    }
}

/// Writes or adds `d` to some taps, or only to the chosen one. `d_x` points to the first tap.
#[inline(always)]
unsafe fn spread<S: Simd, const CHOICE: bool, const ADD: bool>(
    simd: S,
    d_x: *mut f32,
    Taken { rows, columns, kernel, row_step }: Taken,
    d: S::Vector,
    tap: S::Vector,
) {
    for row in rows.first..rows.end {
        for column in columns.first..columns.end {
            // SAFETY: the caller's taps lie inside the image.
            unsafe {
                let to = d_x.add((row - rows.first) * row_step + (column - columns.first) * LANES);
                let mut v = d;
                if CHOICE {
                    let own = simd.splat((row * kernel + column) as f32);
                    v = simd.select(simd.equal(tap, own), d, simd.splat(0.0));
                }
                store::<S>(to, if ADD { simd.add(load::<S>(to), v) } else { v });
            }
        }
    }
}

/// y = the average over each window of x, for `count` planes. Padding counts as zeros.
pub fn average_forward(isa: Isa, y: PlanesMut<'_>, x: Planes<'_>, count: usize, window: Window) {
    window.check(x.plane, y.plane);
    check(y.data, y.plane, count);
    check(x.data, x.plane, count);
    isa.run(AverageForward { y, x, count, window });
}

struct AverageForward<'a> {
    y: PlanesMut<'a>,
    x: Planes<'a>,
    count: usize,
    window: Window,
}

impl Kernel for AverageForward<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        match self.window.kernel {
            2 => self.sweep::<S, 2>(simd),
            3 => self.sweep::<S, 3>(simd),
            _ => self.sweep::<S, 0>(simd),
        }
    }
}

impl AverageForward<'_> {
    /// All windows. `K` is the kernel size, or 0 if not known at compile time.
    #[inline(always)]
    fn sweep<S: Simd, const K: usize>(self, simd: S) {
        let window = self.window;
        let (from, to) = (PoolSide::new(self.x.plane), PoolSide::new(self.y.plane));
        let share = simd.splat(1.0 / (window.kernel * window.kernel) as f32);
        for plane in 0..self.count {
            for row in 0..to.plane.height {
                let rows = window.taps(row, from.plane.height);
                for column in 0..to.plane.width {
                    let columns = window.taps(column, from.plane.width);
                    // SAFETY: the planes were checked, and taps lie inside the image.
                    unsafe {
                        let corner = from.base + plane * from.area + rows.pixel * from.row + columns.pixel * LANES;
                        let x = self.x.data.as_ptr().add(corner);
                        let sum = if K > 0 && rows.whole(K) && columns.whole(K) {
                            total(simd, x, from.row, K, K)
                        } else {
                            total(simd, x, from.row, rows.end - rows.first, columns.end - columns.first)
                        };
                        let y = to.base + plane * to.area + row * to.row + column * LANES;
                        store::<S>(self.y.data.as_mut_ptr().add(y), simd.mul(sum, share));
                    }
                }
            }
        }
    }
}

/// The sum over some rows and columns. `x` points to the first pixel.
#[inline(always)]
unsafe fn total<S: Simd>(simd: S, x: *const f32, row_step: usize, rows: usize, columns: usize) -> S::Vector {
    let mut sum = simd.splat(0.0);
    for row in 0..rows {
        for column in 0..columns {
            // SAFETY: the caller's pixels lie inside the image.
            sum = simd.add(sum, unsafe { load::<S>(x.add(row * row_step + column * LANES)) });
        }
    }
    sum
}
