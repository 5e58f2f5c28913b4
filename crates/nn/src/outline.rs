//! The engine-independent properties of a model.

use fedelity_kernels::Isa;

use crate::architecture::Architecture;
use crate::cpu::plan;
use crate::error::NnError;
use crate::layout::Layout;

/// Weight layouts and sizes of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Outline {
    /// The parameters, which are trained and sent.
    pub layout: Layout,
    /// The frozen weights, in a separate buffer.
    pub frozen: Layout,
    /// Number of features, the inputs of the head. The head's weight and bias are the last two parameters.
    pub features: usize,
    /// Multiply-adds of the forward pass for one sample.
    pub multiply_adds: usize,
}

impl Outline {
    pub(crate) fn of(arch: &Architecture) -> Result<Self, NnError> {
        // The same for every instruction set.
        let plan = plan(arch, Isa::Portable)?;
        let features = plan.head().0;
        Ok(Self { layout: plan.layout, frozen: plan.frozen, features, multiply_adds: plan.multiply_adds })
    }
}
