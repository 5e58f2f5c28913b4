//! Iteration over the pixels of planes with different borders.

use pulp::Simd;

use crate::plane::{Plane, Planes, PlanesMut};
use crate::simd::{Isa, Kernel, fma, load, store};

/// Runs of pixels that are contiguous in every plane of a kernel.
#[derive(Clone, Copy)]
pub(crate) struct Lines {
    /// Runs per plane.
    pub(crate) count: usize,
    /// Pixels per run.
    pub(crate) pixels: usize,
}

impl Lines {
    /// A run is the whole plane if no plane has a border, else one row. All planes must have the same size.
    pub(crate) fn of(planes: &[Plane]) -> Self {
        let first = planes[0];
        assert!(
            planes.iter().all(|p| (p.height, p.width) == (first.height, first.width)),
            "planes of different sizes: {planes:?}"
        );
        if planes.iter().all(|p| p.halo == 0) {
            Self { count: 1, pixels: first.pixels() }
        } else {
            Self { count: first.height, pixels: first.width }
        }
    }
}

/// Offsets of the runs in a buffer, in floats.
#[derive(Clone, Copy)]
pub(crate) struct Steps {
    base: usize,
    plane: usize,
    line: usize,
}

impl Steps {
    pub(crate) fn new(plane: Plane, lanes: usize) -> Self {
        Self { base: plane.origin() * lanes, plane: plane.area() * lanes, line: plane.row() * lanes }
    }

    /// The offset of line `line` of plane `plane`.
    #[inline(always)]
    pub(crate) fn at(self, plane: usize, line: usize) -> usize {
        self.base + plane * self.plane + line * self.line
    }
}

/// Panics if `x` is too short for `planes` planes.
pub(crate) fn check(x: &[f32], plane: Plane, planes: usize, lanes: usize) {
    assert!(x.len() >= planes * plane.area() * lanes, "buffer of {} floats too small for {planes} {plane:?}", x.len());
}

/// Zeroes the border of `count` planes with vector stores: the runs are too short for `fill`.
pub fn clear_border(isa: Isa, to: &mut PlanesMut<'_>, count: usize) {
    check(to.data, to.plane, count, isa.lanes());
    if to.plane.halo > 0 {
        isa.run(ClearBorder { x: to.data, plane: to.plane, count });
    }
}

struct ClearBorder<'a> {
    x: &'a mut [f32],
    plane: Plane,
    count: usize,
}

impl Kernel for ClearBorder<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { x, plane, count } = self;
        let zero = simd.splat_f32s(0.0);
        let (lanes, area) = (S::F32_LANES, plane.area());
        for index in 0..count {
            // A run ends where a row's interior starts: the rows above, then both edges together, then the rows below.
            let mut start = 0;
            for row in 0..=plane.height {
                let end = if row < plane.height { plane.origin() + row * plane.row() } else { area };
                for pixel in start..end {
                    // SAFETY: `clear_border` checked that the planes exist, and a run stays inside its plane.
                    unsafe { store::<S>(x.as_mut_ptr().add((index * area + pixel) * lanes), zero) };
                }
                start = end + plane.width;
            }
        }
    }
}

/// A pointer to a buffer with the offsets of its planes. The constructor checks the buffer's length.
#[derive(Clone, Copy)]
pub(crate) struct SourceLines {
    pub(crate) x: *const f32,
    pub(crate) steps: Steps,
}

/// Mutable [`SourceLines`].
#[derive(Clone, Copy)]
pub(crate) struct TargetLines {
    pub(crate) x: *mut f32,
    pub(crate) steps: Steps,
}

impl SourceLines {
    pub(crate) fn new(from: Planes<'_>, count: usize, lanes: usize) -> Self {
        check(from.data, from.plane, count, lanes);
        Self { x: from.data.as_ptr(), steps: Steps::new(from.plane, lanes) }
    }

    /// # Safety
    /// The plane and the line must exist.
    #[inline(always)]
    pub(crate) unsafe fn line(self, plane: usize, line: usize) -> *const f32 {
        // SAFETY: the caller's contract.
        unsafe { self.x.add(self.steps.at(plane, line)) }
    }
}

impl TargetLines {
    pub(crate) fn new(to: PlanesMut<'_>, count: usize, lanes: usize) -> Self {
        check(to.data, to.plane, count, lanes);
        Self { x: to.data.as_mut_ptr(), steps: Steps::new(to.plane, lanes) }
    }

    /// # Safety
    /// The plane and the line must exist.
    #[inline(always)]
    pub(crate) unsafe fn line(self, plane: usize, line: usize) -> *mut f32 {
        // SAFETY: the caller's contract.
        unsafe { self.x.add(self.steps.at(plane, line)) }
    }
}

/// max(x, 0); NaN stays NaN.
#[inline(always)]
pub(crate) fn relu<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let zero = simd.splat_f32s(0.0);
    simd.select_f32s(simd.less_than_f32s(x, zero), zero, x)
}

/// `d` where y > 0, else 0.
#[inline(always)]
pub(crate) fn masked<S: Simd>(simd: S, d: S::f32s, y: S::f32s) -> S::f32s {
    let zero = simd.splat_f32s(0.0);
    simd.select_f32s(simd.greater_than_f32s(y, zero), d, zero)
}

/// The first `valid` lanes of `x`, and zero in the others.
#[inline(always)]
pub(crate) fn first_lanes<S: Simd>(simd: S, x: S::f32s, valid: usize) -> S::f32s {
    const WIDEST: usize = 64;
    static STEP: [f32; 2 * WIDEST] = {
        let mut step = [0.0; 2 * WIDEST];
        let mut i = 0;
        while i < WIDEST {
            step[i] = 1.0;
            i += 1;
        }
        step
    };
    let from = &STEP[WIDEST - valid..][..S::F32_LANES];
    // SAFETY: the slice is one vector long.
    let mask = unsafe { load::<S>(from.as_ptr()) };
    masked(simd, x, mask)
}

/// Per lane, the sum and the sum of squares of x - shift over one plane.
///
/// # Safety
/// `x` must have plane `plane` with these lines.
#[inline(always)]
pub(crate) unsafe fn moments<S: Simd>(
    simd: S,
    x: SourceLines,
    plane: usize,
    lines: Lines,
    shift: S::f32s,
) -> (S::f32s, S::f32s) {
    const UNROLL: usize = 4;
    let lanes = S::F32_LANES;
    let zero = simd.splat_f32s(0.0);
    let (mut sum, mut squares) = ([zero; UNROLL], [zero; UNROLL]);
    for line in 0..lines.count {
        // SAFETY: the caller's contract; `pixel` stays inside the line.
        unsafe {
            let x = x.line(plane, line);
            let mut pixel = 0;
            while pixel + UNROLL <= lines.pixels {
                for i in 0..UNROLL {
                    let d = simd.sub_f32s(load::<S>(x.add((pixel + i) * lanes)), shift);
                    sum[i] = simd.add_f32s(sum[i], d);
                    squares[i] = fma(simd, d, d, squares[i]);
                }
                pixel += UNROLL;
            }
            while pixel < lines.pixels {
                let d = simd.sub_f32s(load::<S>(x.add(pixel * lanes)), shift);
                sum[0] = simd.add_f32s(sum[0], d);
                squares[0] = fma(simd, d, d, squares[0]);
                pixel += 1;
            }
        }
    }
    (four(simd, sum), four(simd, squares))
}

#[inline(always)]
pub(crate) fn four<S: Simd>(simd: S, v: [S::f32s; 4]) -> S::f32s {
    simd.add_f32s(simd.add_f32s(v[0], v[1]), simd.add_f32s(v[2], v[3]))
}
