//! Iteration over the pixels of planes with different borders.

use crate::plane::{Plane, Planes, PlanesMut};
use crate::simd::{Apart, Arithmetic, Isa, Kernel, LANES, Paired, Simd, load, store};

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
    pub(crate) fn new(plane: Plane) -> Self {
        Self { base: plane.origin() * LANES, plane: plane.area() * LANES, line: plane.row() * LANES }
    }

    /// The offset of line `line` of plane `plane`.
    #[inline(always)]
    pub(crate) fn at(self, plane: usize, line: usize) -> usize {
        self.base + plane * self.plane + line * self.line
    }
}

/// Panics if `x` is too short for `planes` planes.
pub(crate) fn check(x: &[f32], plane: Plane, planes: usize) {
    assert!(x.len() >= planes * plane.area() * LANES, "buffer of {} floats too small for {planes} {plane:?}", x.len());
}

/// Zeroes the border of `count` planes with vector stores: the runs are too short for `fill`.
pub fn clear_border(isa: Isa, to: &mut PlanesMut<'_>, count: usize) {
    check(to.data, to.plane, count);
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
        let zero = simd.splat(0.0);
        let area = plane.area();
        for index in 0..count {
            // A run ends where a row's interior starts: the rows above, then both edges together, then the rows below.
            let mut start = 0;
            for row in 0..=plane.height {
                let end = if row < plane.height { plane.origin() + row * plane.row() } else { area };
                for pixel in start..end {
                    // SAFETY: `clear_border` checked that the planes exist, and a run stays inside its plane.
                    unsafe { store::<S>(x.as_mut_ptr().add((index * area + pixel) * LANES), zero) };
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
    pub(crate) fn new(from: Planes<'_>, count: usize) -> Self {
        check(from.data, from.plane, count);
        Self { x: from.data.as_ptr(), steps: Steps::new(from.plane) }
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
    pub(crate) fn new(to: PlanesMut<'_>, count: usize) -> Self {
        check(to.data, to.plane, count);
        Self { x: to.data.as_mut_ptr(), steps: Steps::new(to.plane) }
    }

    /// # Safety
    /// The plane and the line must exist.
    #[inline(always)]
    pub(crate) unsafe fn line(self, plane: usize, line: usize) -> *mut f32 {
        // SAFETY: the caller's contract.
        unsafe { self.x.add(self.steps.at(plane, line)) }
    }
}

/// The first `valid` lanes of `x`, and zero in the others.
#[inline(always)]
pub(crate) fn first_lanes<S: Simd>(simd: S, x: S::Vector, valid: usize) -> S::Vector {
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
    let from = &STEP[WIDEST - valid..][..LANES];
    // SAFETY: the slice is one vector long.
    let mask = unsafe { load::<S>(from.as_ptr()) };
    simd.masked(x, mask)
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
    shift: S::Vector,
) -> (S::Vector, S::Vector) {
    // SAFETY: the caller's contract.
    unsafe {
        if S::PAIRS && lines.pixels.is_multiple_of(4) {
            let (sum, squares) = moments_by::<_, 2>(Paired(simd), x, plane, lines, shift);
            (two_pairs(simd, sum), two_pairs(simd, squares))
        } else {
            let (sum, squares) = moments_by::<_, 4>(simd, x, plane, lines, shift);
            (four(simd, sum), four(simd, squares))
        }
    }
}

/// The moments of every fourth pixel; those after the last four count as the first. N values hold four vectors.
#[inline(always)]
unsafe fn moments_by<A: Apart, const N: usize>(
    simd: A,
    x: SourceLines,
    plane: usize,
    lines: Lines,
    shift: <A::Single as Arithmetic>::Vector,
) -> ([A::Vector; N], [A::Vector; N]) {
    let (zero, shift) = (simd.splat(0.0), simd.repeated(shift));
    let (mut sum, mut squares) = ([zero; N], [zero; N]);
    for line in 0..lines.count {
        // SAFETY: the caller's contract; `pixel` stays inside the line.
        unsafe {
            let x = x.line(plane, line);
            let mut pixel = 0;
            while pixel + 4 <= lines.pixels {
                for i in 0..N {
                    let d = simd.sub(simd.read(x.add((pixel + i * A::VECTORS) * LANES), LANES), shift);
                    sum[i] = simd.add(sum[i], d);
                    squares[i] = simd.fma(d, d, squares[i]);
                }
                pixel += 4;
            }
            while A::VECTORS == 1 && pixel < lines.pixels {
                let d = simd.sub(simd.read(x.add(pixel * LANES), LANES), shift);
                sum[0] = simd.add(sum[0], d);
                squares[0] = simd.fma(d, d, squares[0]);
                pixel += 1;
            }
        }
    }
    (sum, squares)
}

/// [`four`] of two pairs.
#[inline(always)]
pub(crate) fn two_pairs<S: Simd>(simd: S, [first, second]: [S::Pair; 2]) -> S::Vector {
    let ([a, b], [c, d]) = (simd.parted(first), simd.parted(second));
    four(simd, [a, b, c, d])
}

#[inline(always)]
pub(crate) fn four<S: Simd>(simd: S, v: [S::Vector; 4]) -> S::Vector {
    simd.add(simd.add(v[0], v[1]), simd.add(v[2], v[3]))
}
