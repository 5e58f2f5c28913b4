//! What every engine agrees on about a model.

use fedelity_kernels::Isa;

use crate::architecture::Architecture;
use crate::cpu::plan;
use crate::error::NnError;
use crate::layout::Layout;

/// Where the weights of a model stand, and its sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct Outline {
    /// The parameters: what trains and travels.
    pub layout: Layout,
    /// The frozen weights, in a buffer of their own.
    pub frozen: Layout,
    /// Number of features: what the head reads. The head's weight and bias are the last two parameters.
    pub features: usize,
    /// Multiply-adds of the forward pass for one sample.
    pub multiply_adds: usize,
}

impl Outline {
    pub(crate) fn of(arch: &Architecture) -> Result<Self, NnError> {
        // It is the same for every instruction set.
        let plan = plan(arch, Isa::Portable)?;
        let features = plan.head().0;
        Ok(Self { layout: plan.layout, frozen: plan.frozen, features, multiply_adds: plan.multiply_adds })
    }
}
