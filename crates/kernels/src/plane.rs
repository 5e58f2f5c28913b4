//! The memory layout of activations.
//!
//! A spatial activation is `[group][channel][row][column][lane]`: a group interleaves one sample per vector lane, so
//! that every operation on pixels is one vector operation, whatever the channel count or the image size: no unfolding, no
//! ragged edges, and statistics over pixels never cross lanes. Rows and columns carry a border of zeros (`halo`) as wide as
//! the convolution reading the activation needs.
//!
//! There are eight lanes on every processor: one register with AVX2, two with NEON, and half of one with AVX-512, which
//! holds two such vectors, of neighbouring pixels, patches, channels or rows. A chunk of groups runs through all spatial
//! layers at a time, so that activations stay in cache. Dense layers work on plain rows, and texts follow one another,
//! `[token][width]`, without padding or masks.

/// Rows and columns of one channel, with the border of zeros around them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plane {
    pub height: usize,
    pub width: usize,
    /// Width of the border on each side.
    pub halo: usize,
}

impl Plane {
    /// A plane with no border.
    #[must_use]
    pub fn bare(height: usize, width: usize) -> Self {
        Self { height, width, halo: 0 }
    }

    /// The same pixels with another border.
    #[must_use]
    pub fn with_halo(self, halo: usize) -> Self {
        Self { halo, ..self }
    }

    /// Pixels, excluding the border.
    #[must_use]
    pub fn pixels(self) -> usize {
        self.height * self.width
    }

    /// Pixels from one row to the next.
    #[must_use]
    pub fn row(self) -> usize {
        self.width + 2 * self.halo
    }

    /// Pixels including the border: the distance from one channel to the next.
    #[must_use]
    pub fn area(self) -> usize {
        self.row() * (self.height + 2 * self.halo)
    }

    /// The offset of the first pixel inside the border.
    #[must_use]
    pub fn origin(self) -> usize {
        self.halo * self.row() + self.halo
    }
}

/// A buffer of planes, `[group][channel][row][column][lane]`.
#[derive(Clone, Copy, Debug)]
pub struct Planes<'a> {
    pub data: &'a [f32],
    pub plane: Plane,
}

/// Mutable [`Planes`].
#[derive(Debug)]
pub struct PlanesMut<'a> {
    pub data: &'a mut [f32],
    pub plane: Plane,
}
