//! Selection of the instruction set, and the few vector operations the kernels are written in.
//!
//! A kernel is a value that implements [`Kernel`]; [`Isa::run`] calls it inside a function compiled for the chosen
//! instruction set. The vector operations come from `pulp`, so the same kernel source serves AVX2, AVX-512, NEON and
//! plain Rust.

use std::any::TypeId;

use pulp::Simd;

/// An instruction set. Its vector width is also the number of samples interleaved in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Isa {
    /// Plain Rust, eight lanes. Runs everywhere.
    Portable,
    /// Plain Rust, sixteen lanes: the vector width of AVX-512 without its instructions.
    PortableWide,
    /// x86-64 with AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// x86-64 with AVX-512 (F, BW, CD, DQ, VL).
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// aarch64.
    #[cfg(target_arch = "aarch64")]
    Neon,
}

impl Isa {
    /// The best instruction set of this machine.
    #[must_use]
    pub fn detect() -> Self {
        *Self::available().last().unwrap_or(&Self::Portable)
    }

    /// Every instruction set this machine can run, the best one last.
    #[must_use]
    pub fn available() -> Vec<Self> {
        #[allow(unused_mut, reason = "no vector instruction set is known for some targets")]
        let mut found = vec![Self::PortableWide, Self::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            if pulp::x86::V3::try_new().is_some() {
                found.push(Self::Avx2);
            }
            if pulp::x86::V4::try_new().is_some() {
                found.push(Self::Avx512);
            }
        }
        #[cfg(target_arch = "aarch64")]
        if pulp::aarch64::Neon::try_new().is_some() {
            found.push(Self::Neon);
        }
        found
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        self.vectors().name
    }

    /// The instruction set with this name, if this machine supports it.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::available().into_iter().find(|isa| isa.name() == name)
    }

    /// Samples per vector.
    #[must_use]
    pub fn lanes(self) -> usize {
        self.vectors().lanes
    }

    /// Whether there are 32 vector registers instead of 16.
    pub(crate) fn has_many_registers(self) -> bool {
        self.vectors().registers >= 32
    }

    fn vectors(self) -> Vectors {
        match self {
            Self::Portable => Vectors::of::<pulp::Scalar256b>("portable"),
            Self::PortableWide => Vectors::of::<pulp::Scalar512b>("portable-wide"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => Vectors::of::<pulp::x86::V3>("avx2"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => Vectors::of::<pulp::x86::V4>("avx512"),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => Vectors::of::<pulp::aarch64::Neon>("neon"),
        }
    }

    /// Runs a kernel with this instruction set, or with plain Rust of the same width if the machine lacks it.
    #[inline]
    pub(crate) fn run(self, kernel: impl Kernel) {
        let op = WithKernel(kernel);
        match self {
            Self::Portable => Simd::vectorize(pulp::Scalar256b, op),
            Self::PortableWide => Simd::vectorize(pulp::Scalar512b, op),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => match pulp::x86::V3::try_new() {
                Some(simd) => Simd::vectorize(simd, op),
                None => Simd::vectorize(pulp::Scalar256b, op),
            },
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => match pulp::x86::V4::try_new() {
                Some(simd) => Simd::vectorize(simd, op),
                None => Simd::vectorize(pulp::Scalar512b, op),
            },
            #[cfg(target_arch = "aarch64")]
            Self::Neon => match pulp::aarch64::Neon::try_new() {
                Some(simd) => Simd::vectorize(simd, op),
                None => Simd::vectorize(pulp::Scalar128b, op),
            },
        }
    }
}

/// Properties of an instruction set's vectors.
struct Vectors {
    name: &'static str,
    lanes: usize,
    registers: usize,
}

impl Vectors {
    fn of<S: Simd>(name: &'static str) -> Self {
        Self { name, lanes: S::F32_LANES, registers: S::REGISTER_COUNT }
    }
}

/// Code compiled once per instruction set. Mark `run` and everything it calls `#[inline(always)]`.
pub(crate) trait Kernel {
    fn run<S: Simd>(self, simd: S);
}

/// Plain loops that the compiler vectorises. Mark the closure `#[inline(always)]`.
pub(crate) struct Loops<F>(pub(crate) F);

impl<F: FnOnce()> Kernel for Loops<F> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        (self.0)();
    }
}

struct WithKernel<K>(K);

impl<K: Kernel> pulp::WithSimd for WithKernel<K> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        self.0.run(simd);
    }
}

/// a * b + c, fused if the instruction set supports it. Plain Rust rounds twice: fusing would cost a library call.
#[inline(always)]
pub(crate) fn fma<S: Simd>(simd: S, a: S::f32s, b: S::f32s, c: S::f32s) -> S::f32s {
    if is_portable::<S>() { simd.add_f32s(simd.mul_f32s(a, b), c) } else { simd.mul_add_e_f32s(a, b, c) }
}

/// Whether `S` is plain Rust. Known at compile time.
#[inline(always)]
pub(crate) fn is_portable<S: Simd>() -> bool {
    let own = TypeId::of::<S>();
    own == TypeId::of::<pulp::Scalar256b>() || own == TypeId::of::<pulp::Scalar512b>()
}

/// Reads one vector.
///
/// # Safety
/// `p` must be valid for reading `S::F32_LANES` floats.
#[inline(always)]
pub(crate) unsafe fn load<S: Simd>(p: *const f32) -> S::f32s {
    // SAFETY: the caller's contract; a vector is plain floats, and no alignment is required.
    unsafe { p.cast::<S::f32s>().read_unaligned() }
}

/// Writes one vector.
///
/// # Safety
/// `p` must be valid for writing `S::F32_LANES` floats.
#[inline(always)]
pub(crate) unsafe fn store<S: Simd>(p: *mut f32, v: S::f32s) {
    // SAFETY: as for `load`.
    unsafe { p.cast::<S::f32s>().write_unaligned(v) }
}
