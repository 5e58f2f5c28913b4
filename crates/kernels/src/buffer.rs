//! Memory for activations, aligned to cache lines so that no vector load straddles two lines.

use std::ops::{Deref, DerefMut};

const LINE: usize = 16;

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct CacheLine([f32; LINE]);

/// A slice of floats aligned to a cache line.
#[derive(Clone, Debug, Default)]
pub struct Buffer {
    lines: Vec<CacheLine>,
    len: usize,
}

impl Buffer {
    /// A buffer of `len` zeros.
    #[must_use]
    pub fn zeros(len: usize) -> Self {
        Self { lines: vec![CacheLine([0.0; LINE]); len.div_ceil(LINE)], len }
    }
}

impl Deref for Buffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: a line is sixteen floats with no padding, and `len` floats fit into the lines.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_aligned_to_a_line_and_has_its_length() {
        for len in [0, 1, 15, 16, 17, 1000] {
            let mut buffer = Buffer::zeros(len);
            assert_eq!((buffer.len(), buffer.as_ptr() as usize % 64), (len, 0));
            buffer.fill(1.0);
            assert_eq!(buffer.clone().iter().sum::<f32>(), len as f32);
        }
        assert!(Buffer::default().is_empty());
    }
}
