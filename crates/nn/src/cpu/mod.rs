//! The CPU engines, one for each instruction set of this machine.

mod compile;
mod memory;
mod plan;
mod sequence;
mod units;
mod workspace;

pub(crate) use compile::plan;

use std::sync::Arc;

use fedelity_kernels::affine::{self, DenseSizes};
use fedelity_kernels::{AdamStep, Isa, SgdStep, elementwise};

use crate::architecture::{Architecture, InputShape};
use crate::engine::{Engine, Program, Session};
use crate::error::NnError;
use crate::outline::Outline;
use plan::CpuPlan;
use workspace::Workspace;

/// The fastest CPU engine of this machine.
#[must_use]
pub fn cpu() -> Arc<dyn Engine> {
    Arc::new(Cpu(Isa::detect()))
}

/// Every engine of this machine, the fastest last.
#[must_use]
pub fn engines() -> Vec<Arc<dyn Engine>> {
    Isa::available().into_iter().map(|isa| Arc::new(Cpu(isa)) as Arc<dyn Engine>).collect()
}

#[derive(Debug)]
struct Cpu(Isa);

impl Engine for Cpu {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn compile(&self, arch: &Architecture, _: &Outline) -> Result<Arc<dyn Program>, NnError> {
        Ok(Arc::new(Compiled { plan: Arc::new(compile::plan(arch, self.0)?), isa: self.0, input: arch.input }))
    }

    fn sgd(&self, step: SgdStep<'_>) {
        elementwise::sgd_step(self.0, step);
    }

    fn adam(&self, step: AdamStep<'_>) {
        elementwise::adam_step(self.0, step);
    }

    fn squared_norm(&self, values: &[f32]) -> f64 {
        elementwise::squared_norm(self.0, values)
    }
}

#[derive(Debug)]
struct Compiled {
    plan: Arc<CpuPlan>,
    isa: Isa,
    input: InputShape,
}

impl Program for Compiled {
    fn session(&self, frozen: Arc<[f32]>) -> Box<dyn Session> {
        Box::new(Workspace::new(Arc::clone(&self.plan), self.isa, self.input, frozen))
    }

    fn head_forward(&self, params: &[f32], features: &[f32], logits: &mut [f32]) {
        let (inputs, outputs, weight, bias) = self.plan.head();
        let sizes = DenseSizes { samples: features.len() / inputs, inputs, outputs };
        affine::forward(self.isa, logits, features, &params[weight], &params[bias], sizes);
    }

    fn head_backward(
        &self,
        params: &[f32],
        features: &[f32],
        d_logits: &[f32],
        d_features: Option<&mut [f32]>,
        grad: Option<&mut [f32]>,
    ) {
        let (inputs, outputs, weight, bias) = self.plan.head();
        let sizes = DenseSizes { samples: features.len() / inputs, inputs, outputs };
        if let Some(grad) = grad {
            affine::weight_gradient(self.isa, &mut grad[weight.clone()], d_logits, features, sizes, true);
            affine::bias_gradient(&mut grad[bias], d_logits, sizes.samples, outputs);
        }
        if let Some(d_features) = d_features {
            affine::input_gradient(self.isa, d_features, d_logits, &params[weight], sizes, true);
        }
    }
}
