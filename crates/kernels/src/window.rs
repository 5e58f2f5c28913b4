//! Geometry of pooling windows.

use crate::plane::Plane;
use crate::simd::LANES;

/// A square window that slides over an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Rows and columns of the window.
    pub kernel: usize,
    /// Pixels from one position to the next.
    pub stride: usize,
    /// Padding on each side of the image. At most half the kernel.
    pub pad: usize,
}

impl Window {
    /// Rows and columns of the output, without partial windows at the far edges. `None` if it is empty.
    #[must_use]
    pub fn output(self, input: Plane) -> Option<(usize, usize)> {
        if self.kernel == 0 || self.stride == 0 || self.pad > self.kernel / 2 || input.pixels() == 0 {
            return None;
        }
        let side = |size: usize| Some((size + 2 * self.pad).checked_sub(self.kernel)? / self.stride + 1);
        Some((side(input.height)?, side(input.width)?))
    }

    /// The taps of output `out` that lie inside an image of `size` pixels, and the pixel of the first one.
    #[inline(always)]
    pub(crate) fn taps(self, out: usize, size: usize) -> WindowTaps {
        let corner = out * self.stride;
        let first = self.pad.saturating_sub(corner);
        let end = self.kernel.min(size + self.pad - corner);
        WindowTaps { first, end, pixel: corner + first - self.pad }
    }

    /// Like [`Window::taps`]. A nonzero `TILE` states that windows of that size tile the image, so that nothing needs
    /// computing.
    #[inline(always)]
    pub(crate) fn taps_in<const TILE: usize>(self, out: usize, size: usize) -> WindowTaps {
        if TILE > 0 { WindowTaps { first: 0, end: TILE, pixel: out * TILE } } else { self.taps(out, size) }
    }

    /// Whether windows share no pixel.
    pub(crate) fn disjoint(self) -> bool {
        self.stride >= self.kernel
    }

    /// Whether every pixel lies in exactly one window.
    pub(crate) fn tiles(self, input: Plane) -> bool {
        self.stride == self.kernel
            && self.pad == 0
            && input.height.is_multiple_of(self.kernel)
            && input.width.is_multiple_of(self.kernel)
    }

    pub(crate) fn check(self, input: Plane, output: Plane) {
        assert_eq!(self.output(input), Some((output.height, output.width)), "{self:?} over {input:?}");
    }
}

/// The part of a window's rows or columns that lies inside the image.
#[derive(Clone, Copy)]
pub(crate) struct WindowTaps {
    pub(crate) first: usize,
    pub(crate) end: usize,
    pub(crate) pixel: usize,
}

impl WindowTaps {
    #[inline(always)]
    pub(crate) fn whole(self, kernel: usize) -> bool {
        self.first == 0 && self.end == kernel
    }
}

/// The strides of one side of a pooling pass, in floats.
#[derive(Clone, Copy)]
pub(crate) struct PoolSide {
    pub(crate) plane: Plane,
    pub(crate) base: usize,
    pub(crate) area: usize,
    pub(crate) row: usize,
}

impl PoolSide {
    pub(crate) fn new(plane: Plane) -> Self {
        Self { plane, base: plane.origin() * LANES, area: plane.area() * LANES, row: plane.row() * LANES }
    }
}
