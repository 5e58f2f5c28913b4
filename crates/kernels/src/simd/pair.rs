//! Pairs of vectors.

#[cfg(doc)]
use super::LANES;
use super::{Arithmetic, Simd, load, store};

/// Pairs as two vectors, for instruction sets whose registers are no wider than one.
macro_rules! pairs_of_two {
    () => {
        pairs_of_two! {
            add_pair = add(a, b);
            sub_pair = sub(a, b);
            mul_pair = mul(a, b);
            fma_pair = fma(a, b, c);
            relu_pair = relu(a);
            masked_pair = masked(a, b);
        }

        #[inline(always)]
        fn splat_pair(self, x: f32) -> Self::Pair {
            [self.splat(x); 2]
        }

        #[inline(always)]
        fn couple(self, first: Self::Vector, second: Self::Vector) -> Self::Pair {
            [first, second]
        }

        #[inline(always)]
        fn twice(self, a: Self::Vector) -> Self::Pair {
            [a; 2]
        }

        #[inline(always)]
        fn parted(self, a: Self::Pair) -> [Self::Vector; 2] {
            a
        }
    };
    ($($name:ident = $single:ident($($x:ident),+);)+) => {$(
        #[inline(always)]
        fn $name(self, $($x: Self::Pair),+) -> Self::Pair {
            [self.$single($($x[0]),+), self.$single($($x[1]),+)]
        }
    )+};
}

/// The arithmetic of pairs.
#[derive(Clone, Copy)]
pub(crate) struct Paired<S>(pub(crate) S);

impl<S: Simd> Arithmetic for Paired<S> {
    const PLAIN: bool = S::PLAIN;

    type Vector = S::Pair;

    #[inline(always)]
    fn splat(self, x: f32) -> S::Pair {
        self.0.splat_pair(x)
    }

    #[inline(always)]
    fn add(self, a: S::Pair, b: S::Pair) -> S::Pair {
        self.0.add_pair(a, b)
    }

    #[inline(always)]
    fn sub(self, a: S::Pair, b: S::Pair) -> S::Pair {
        self.0.sub_pair(a, b)
    }

    #[inline(always)]
    fn mul(self, a: S::Pair, b: S::Pair) -> S::Pair {
        self.0.mul_pair(a, b)
    }

    #[inline(always)]
    fn fma(self, a: S::Pair, b: S::Pair, c: S::Pair) -> S::Pair {
        self.0.fma_pair(a, b, c)
    }

    #[inline(always)]
    fn relu(self, a: S::Pair) -> S::Pair {
        self.0.relu_pair(a)
    }

    #[inline(always)]
    fn masked(self, a: S::Pair, b: S::Pair) -> S::Pair {
        self.0.masked_pair(a, b)
    }
}

/// Vectors, or pairs of vectors that lie apart in memory.
pub(crate) trait Apart: Arithmetic {
    /// How many vectors a value holds.
    const VECTORS: usize;

    /// The arithmetic of one of them.
    type Single: Simd;

    /// Reads vectors that are `apart` floats apart.
    ///
    /// # Safety
    /// Each must be valid for reading [`LANES`] floats.
    unsafe fn read(self, p: *const f32, apart: usize) -> Self::Vector;

    /// Reads one vector, which is repeated.
    ///
    /// # Safety
    /// It must be valid for reading [`LANES`] floats.
    unsafe fn repeat(self, p: *const f32) -> Self::Vector;

    /// Reads the first `valid` lanes of vectors that are `apart` floats apart; the others are 0.
    ///
    /// # Safety
    /// Each must be valid for reading so many floats, of which there are at most [`LANES`].
    unsafe fn read_part(self, p: *const f32, apart: usize, valid: usize) -> Self::Vector;

    /// One vector, repeated.
    fn repeated(self, a: <Self::Single as Arithmetic>::Vector) -> Self::Vector;

    /// Writes vectors that are `apart` floats apart.
    ///
    /// # Safety
    /// Each must be valid for writing [`LANES`] floats.
    unsafe fn write(self, p: *mut f32, apart: usize, a: Self::Vector);

    /// [`Simd::sum`] of the first vector of each of four values, and of the second, or zeros.
    fn sum_vectors(self, all: [Self::Vector; 4]) -> [[f32; 4]; 2];
}

impl<S: Simd> Apart for S {
    const VECTORS: usize = 1;

    type Single = S;

    #[inline(always)]
    unsafe fn read(self, p: *const f32, _: usize) -> S::Vector {
        // SAFETY: by the contract.
        unsafe { load::<S>(p) }
    }

    #[inline(always)]
    unsafe fn repeat(self, p: *const f32) -> S::Vector {
        // SAFETY: by the contract.
        unsafe { load::<S>(p) }
    }

    #[inline(always)]
    unsafe fn read_part(self, p: *const f32, _: usize, valid: usize) -> S::Vector {
        // SAFETY: by the contract.
        self.load_part(unsafe { std::slice::from_raw_parts(p, valid) })
    }

    #[inline(always)]
    fn repeated(self, a: S::Vector) -> S::Vector {
        a
    }

    #[inline(always)]
    unsafe fn write(self, p: *mut f32, _: usize, a: S::Vector) {
        // SAFETY: by the contract.
        unsafe { store::<S>(p, a) }
    }

    #[inline(always)]
    fn sum_vectors(self, all: [S::Vector; 4]) -> [[f32; 4]; 2] {
        [self.sums(all), [0.0; 4]]
    }
}

impl<S: Simd> Apart for Paired<S> {
    const VECTORS: usize = 2;

    type Single = S;

    #[inline(always)]
    unsafe fn read(self, p: *const f32, apart: usize) -> S::Pair {
        // SAFETY: by the contract.
        unsafe { self.0.couple(load::<S>(p), load::<S>(p.add(apart))) }
    }

    #[inline(always)]
    unsafe fn repeat(self, p: *const f32) -> S::Pair {
        // SAFETY: by the contract.
        unsafe { self.0.twice(load::<S>(p)) }
    }

    #[inline(always)]
    unsafe fn read_part(self, p: *const f32, apart: usize, valid: usize) -> S::Pair {
        // SAFETY: by the contract.
        unsafe { self.0.couple(self.0.read_part(p, 0, valid), self.0.read_part(p.add(apart), 0, valid)) }
    }

    #[inline(always)]
    fn repeated(self, a: S::Vector) -> S::Pair {
        self.0.twice(a)
    }

    #[inline(always)]
    unsafe fn write(self, p: *mut f32, apart: usize, a: S::Pair) {
        let [first, second] = self.0.parted(a);
        // SAFETY: by the contract.
        unsafe {
            store::<S>(p, first);
            store::<S>(p.add(apart), second);
        }
    }

    #[inline(always)]
    fn sum_vectors(self, [a, b, c, d]: [S::Pair; 4]) -> [[f32; 4]; 2] {
        let ([a, a_2], [b, b_2]) = (self.0.parted(a), self.0.parted(b));
        let ([c, c_2], [d, d_2]) = (self.0.parted(c), self.0.parted(d));
        [self.0.sums([a, b, c, d]), self.0.sums([a_2, b_2, c_2, d_2])]
    }
}
