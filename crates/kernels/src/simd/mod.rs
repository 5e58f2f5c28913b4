//! Which instruction set runs, and the few vector operations the kernels are written in.
//!
//! A vector has eight lanes on every processor, and every operation rounds as IEEE 754 says, so all instruction sets
//! give the same bits. A kernel is a value that implements [`Kernel`]; [`Isa::run`] calls it inside a function compiled
//! for the chosen instruction set.

/// [`Arithmetic::relu`] and [`Arithmetic::masked`] with the masks of [`Simd`].
macro_rules! relu_by_masks {
    () => {
        #[inline(always)]
        fn relu(self, a: Self::Vector) -> Self::Vector {
            let zero = self.splat(0.0);
            self.select(self.less(a, zero), zero, a)
        }

        #[inline(always)]
        fn masked(self, a: Self::Vector, b: Self::Vector) -> Self::Vector {
            let zero = self.splat(0.0);
            self.select(self.less(zero, b), a, zero)
        }
    };
}

#[macro_use]
mod pair;
#[cfg(target_arch = "x86_64")]
mod avx;
#[cfg(target_arch = "aarch64")]
mod neon;
mod plain;

pub(crate) use pair::{Apart, Paired};
use plain::Plain;

/// Numbers in a vector, and samples side by side in memory.
pub const LANES: usize = 8;

/// Half of a vector: four samples.
pub(crate) const HALF: usize = LANES / 2;

/// An instruction set this program can run on. It decides how fast a kernel is, never what it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Isa {
    /// Plain Rust. Runs everywhere; slow where fused multiply-adds must be computed in software.
    Portable,
    /// x86-64 with AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// x86-64 with AVX-512 (F, BW, CD, DQ, VL): the same vectors in twice as many registers, or two in one.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// aarch64.
    #[cfg(target_arch = "aarch64")]
    Neon,
}

impl Isa {
    const ALL: &[Self] = &[
        Self::Portable,
        #[cfg(target_arch = "x86_64")]
        Self::Avx2,
        #[cfg(target_arch = "x86_64")]
        Self::Avx512,
        #[cfg(target_arch = "aarch64")]
        Self::Neon,
    ];

    /// The best instruction set of this machine.
    #[must_use]
    pub fn detect() -> Self {
        *Self::available().last().unwrap_or(&Self::Portable)
    }

    /// Every instruction set this machine can run, the best one last.
    #[must_use]
    pub fn available() -> Vec<Self> {
        Self::ALL.iter().copied().filter(|isa| isa.is_present()).collect()
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => "avx512",
            #[cfg(target_arch = "aarch64")]
            Self::Neon => "neon",
        }
    }

    /// The instruction set of that name, if this machine can run it.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::available().into_iter().find(|isa| isa.name() == name)
    }

    fn is_present(self) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => avx::has_avx2(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => avx::has_avx512(),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => neon::is_present(),
        }
    }

    /// Whether its kernels work on pairs: [`Simd::PAIRS`].
    pub(crate) fn pairs(self) -> bool {
        match self {
            Self::Portable => Plain::PAIRS,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => false,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => true,
            #[cfg(target_arch = "aarch64")]
            Self::Neon => false,
        }
    }

    /// Runs a kernel with this instruction set, or in plain Rust if the machine lacks it.
    #[inline]
    pub(crate) fn run<K: Kernel>(self, kernel: K) {
        if !self.is_present() {
            return kernel.run(Plain);
        }
        match self {
            Self::Portable => kernel.run(Plain),
            // SAFETY: the machine has these instructions, as was asked above.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { avx::run_avx2(kernel) },
            // SAFETY: as above; a machine with AVX-512 has AVX2.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 if K::NARROW => unsafe { avx::run_avx2(kernel) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => unsafe { avx::run_avx512(kernel) },
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            Self::Neon => unsafe { neon::run(kernel) },
        }
    }
}

/// Code that is compiled once for every instruction set. Mark `run` and all it calls `#[inline(always)]`.
pub(crate) trait Kernel {
    /// Whether AVX-512 machines run it with AVX2, for which the compiler makes faster code of it.
    const NARROW: bool = false;

    fn run<S: Simd>(self, simd: S);
}

/// Plain loops, which the compiler turns into vector code. Mark the closure `#[inline(always)]`.
pub(crate) struct Loops<F>(pub(crate) F);

impl<F: FnOnce()> Kernel for Loops<F> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        (self.0)();
    }
}

/// Arithmetic on vectors of some width. A value of this type is proof that the machine has it.
pub(crate) trait Arithmetic: Copy {
    /// Whether every lane takes instructions of its own, so that unrolled code would be long and no faster.
    const PLAIN: bool;

    /// Floats in a row, without padding.
    type Vector: Copy;

    fn splat(self, x: f32) -> Self::Vector;
    fn add(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    fn sub(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    fn mul(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// a * b + c, rounded once.
    fn fma(self, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;

    /// max(a, 0); NaN stays NaN.
    fn relu(self, a: Self::Vector) -> Self::Vector;
    /// `a` where b > 0, else 0.
    fn masked(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
}

/// Vectors of [`LANES`] numbers and their operations.
pub(crate) trait Simd: Arithmetic {
    /// Vectors that the registers hold, 16 or 32. Decides the size of tiles, never the order of a sum.
    const REGISTERS: usize;

    /// Whether kernels work on pairs where they can, because a register holds one. Plain Rust does too, so that their code
    /// is tested on every machine.
    const PAIRS: bool;

    /// Two vectors in a row, in one register if it is wide enough.
    type Pair: Copy;
    type Mask: Copy;

    fn div(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    fn sqrt(self, a: Self::Vector) -> Self::Vector;

    fn splat_pair(self, x: f32) -> Self::Pair;
    fn add_pair(self, a: Self::Pair, b: Self::Pair) -> Self::Pair;
    fn sub_pair(self, a: Self::Pair, b: Self::Pair) -> Self::Pair;
    fn mul_pair(self, a: Self::Pair, b: Self::Pair) -> Self::Pair;
    /// [`Arithmetic::relu`] of both.
    fn relu_pair(self, a: Self::Pair) -> Self::Pair;
    /// [`Arithmetic::masked`] of both.
    fn masked_pair(self, a: Self::Pair, b: Self::Pair) -> Self::Pair;
    /// a * b + c, rounded once.
    fn fma_pair(self, a: Self::Pair, b: Self::Pair, c: Self::Pair) -> Self::Pair;
    /// One vector, then another.
    fn couple(self, first: Self::Vector, second: Self::Vector) -> Self::Pair;
    /// The same vector twice.
    fn twice(self, a: Self::Vector) -> Self::Pair;
    fn parted(self, a: Self::Pair) -> [Self::Vector; 2];

    /// The sum of all lanes: ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)).
    fn sum(self, a: Self::Vector) -> f32;

    /// [`Simd::sum`] of each of four vectors.
    fn sums(self, all: [Self::Vector; 4]) -> [f32; 4];

    /// a < b, false for NaN.
    fn less(self, a: Self::Vector, b: Self::Vector) -> Self::Mask;
    /// a == b, false for NaN.
    fn equal(self, a: Self::Vector, b: Self::Vector) -> Self::Mask;
    fn or(self, a: Self::Mask, b: Self::Mask) -> Self::Mask;
    fn not(self, a: Self::Mask) -> Self::Mask;
    /// `a` where the mask is set, else `b`.
    fn select(self, mask: Self::Mask, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// Four floats, then four others.
    ///
    /// # Safety
    /// Both pointers must be valid for reading [`HALF`] floats.
    unsafe fn join(self, low: *const f32, high: *const f32) -> Self::Vector;
    /// The first four lanes and the last four, each followed by zeros.
    fn split(self, a: Self::Vector) -> [Self::Vector; 2];

    /// Hints that the cache line of this address will be read soon. Any address will do.
    fn prefetch(self, p: *const f32);

    /// The floats of a slice of at most [`LANES`], then zeros.
    fn load_part(self, from: &[f32]) -> Self::Vector;
    /// The first lanes, as many as the slice holds, which are at most [`LANES`].
    fn store_part(self, to: &mut [f32], a: Self::Vector);
}

/// [`Simd::sum`] of each of at most four vectors, then zeros.
#[inline(always)]
pub(crate) fn sum_each<S: Simd, const N: usize>(simd: S, some: [S::Vector; N]) -> [f32; 4] {
    let mut all = [simd.splat(0.0); 4];
    all[..N].copy_from_slice(&some);
    simd.sums(all)
}

/// Reads one vector.
///
/// # Safety
/// `p` must be valid for reading [`LANES`] floats.
#[inline(always)]
pub(crate) unsafe fn load<S: Simd>(p: *const f32) -> S::Vector {
    // SAFETY: by the contract; a vector is plain floats, and no alignment is asked for.
    unsafe { p.cast::<S::Vector>().read_unaligned() }
}

/// Reads two vectors.
///
/// # Safety
/// `p` must be valid for reading twice [`LANES`] floats.
#[inline(always)]
pub(crate) unsafe fn load_pair<S: Simd>(p: *const f32) -> S::Pair {
    // SAFETY: as for `load`.
    unsafe { p.cast::<S::Pair>().read_unaligned() }
}

/// Writes two vectors.
///
/// # Safety
/// `p` must be valid for writing twice [`LANES`] floats.
#[inline(always)]
pub(crate) unsafe fn store_pair<S: Simd>(p: *mut f32, v: S::Pair) {
    // SAFETY: as for `load`.
    unsafe { p.cast::<S::Pair>().write_unaligned(v) }
}

/// Writes one vector.
///
/// # Safety
/// `p` must be valid for writing [`LANES`] floats.
#[inline(always)]
pub(crate) unsafe fn store<S: Simd>(p: *mut f32, v: S::Vector) {
    // SAFETY: as for `load`.
    unsafe { p.cast::<S::Vector>().write_unaligned(v) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPERATIONS: usize = 34;

    /// Every operation on three vectors, as bits.
    struct Everything<'a> {
        values: [[f32; LANES]; 3],
        found: &'a mut Vec<[u32; LANES]>,
    }

    impl Kernel for Everything<'_> {
        #[inline(always)]
        fn run<S: Simd>(self, simd: S) {
            // SAFETY: arrays of one vector.
            let [a, b, c] = self.values.map(|v| unsafe { load::<S>(v.as_ptr()) });
            let one = simd.splat(1.0);
            let shown = |mask| simd.select(mask, one, c);
            let short = simd.load_part(&self.values[0][..5]);
            let results: [S::Vector; OPERATIONS] = [
                simd.add(a, b),
                simd.sub(a, b),
                simd.mul(a, b),
                simd.div(a, b),
                simd.sqrt(a),
                simd.fma(a, b, c),
                simd.splat(simd.sum(a)),
                shown(simd.less(a, b)),
                shown(simd.equal(a, b)),
                shown(simd.or(simd.less(a, b), simd.equal(b, c))),
                shown(simd.not(simd.less(a, b))),
                simd.select(simd.less(b, c), a, b),
                short,
                simd.fma(short, b, short),
                self.pairs(simd, 0),
                self.pairs(simd, 1),
                simd.load_part(&simd.sums([a, b, c, short])),
                // SAFETY: an array of one vector, read from its middle at most.
                unsafe { simd.join(self.values[0].as_ptr().add(HALF), self.values[1].as_ptr()) },
                simd.split(a)[0],
                simd.split(a)[1],
                self.paired(simd, |x, y| simd.add_pair(x, y))[0],
                self.paired(simd, |x, y| simd.add_pair(x, y))[1],
                self.paired(simd, |x, y| simd.sub_pair(x, y))[0],
                self.paired(simd, |x, y| simd.sub_pair(x, y))[1],
                self.paired(simd, |x, y| simd.mul_pair(x, y))[0],
                self.paired(simd, |x, y| simd.mul_pair(x, y))[1],
                self.paired(simd, |x, y| simd.masked_pair(x, simd.relu_pair(y)))[0],
                self.paired(simd, |x, y| simd.masked_pair(x, simd.relu_pair(y)))[1],
                self.paired(simd, |x, _| simd.relu_pair(x))[0],
                simd.masked(a, simd.relu(b)),
                simd.parted(simd.couple(a, b))[0],
                simd.parted(simd.couple(a, b))[1],
                simd.parted(simd.twice(c))[0],
                simd.parted(simd.twice(c))[1],
            ];
            for result in results {
                let (mut bits, mut part) = ([0.0f32; LANES], [0.0f32; 3]);
                // SAFETY: an array of one vector.
                unsafe { store::<S>(bits.as_mut_ptr(), result) };
                simd.store_part(&mut part, result);
                // Which NaN comes out is nobody's business.
                let same = |v: f32| if v.is_nan() { f32::NAN.to_bits() } else { v.to_bits() };
                assert_eq!(part.map(same), [bits[0], bits[1], bits[2]].map(same));
                self.found.push(bits.map(same));
            }
        }
    }

    impl Everything<'_> {
        /// Both halves of an operation on two pairs.
        #[inline(always)]
        fn paired<S: Simd>(&self, simd: S, operation: impl Fn(S::Pair, S::Pair) -> S::Pair) -> [S::Vector; 2] {
            // SAFETY: arrays of one vector.
            let [a, b, c] = self.values.map(|v| unsafe { load::<S>(v.as_ptr()) });
            simd.parted(operation(simd.couple(a, b), simd.couple(b, c)))
        }

        /// One half of `a * x + b`, where the second half of each pair is the next vector.
        #[inline(always)]
        fn pairs<S: Simd>(&self, simd: S, half: usize) -> S::Vector {
            let [a, b, c] = self.values;
            let mut found = [[0.0; LANES]; 2];
            // SAFETY: arrays of two vectors, of which `half` is one.
            unsafe {
                let [first, second] = [[a, b], [b, c]].map(|pair| load_pair::<S>(pair.as_flattened().as_ptr()));
                let sum = simd.fma_pair(first, simd.splat_pair(c[0]), second);
                store_pair::<S>(found.as_flattened_mut().as_mut_ptr(), sum);
                load::<S>(found[half].as_ptr())
            }
        }
    }

    #[test]
    fn every_instruction_set_gives_the_same_bits() {
        let special = [0.0, -0.0, 1.0, -1.5, f32::MIN_POSITIVE, -1e-41, f32::MAX, f32::INFINITY, f32::NAN, 1e-30];
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let bits = (state >> 32) as u32;
            match bits % 16 {
                0 => special[(bits >> 4) as usize % special.len()],
                // Any number at all, a number of few bits, so that sums are ties or nearly so, or numbers near each other.
                1..=4 => f32::from_bits(bits),
                5..=8 => {
                    let power = f32::from_bits((97 + (bits >> 8) % 60) << 23);
                    power * if bits & 64 == 0 { 1.0 } else { 1.0 + f32::EPSILON }
                }
                _ => (bits as f32 / u32::MAX as f32 - 0.5) * 4.0,
            }
        };
        for _ in 0..20_000 {
            let values = std::array::from_fn(|_| std::array::from_fn(|_| next()));
            let mut expected = Vec::new();
            Isa::Portable.run(Everything { values, found: &mut expected });
            for isa in Isa::available() {
                let mut found = Vec::new();
                isa.run(Everything { values, found: &mut found });
                assert_eq!(found, expected, "{} on {values:?}", isa.name());
            }
        }
    }
}
