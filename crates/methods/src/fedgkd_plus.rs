//! FedGKD+: Yao et al., "Local-Global Knowledge Distillation in Heterogeneous Federated Learning with Non-IID Data",
//! 2021, arXiv:2107.00051, section 5.
//!
//! [FedGKD](crate::FedGkd), equation 4, on a model with a projection head between its features and its classifier
//! (d -> d, ReLU, d -> 256, then 256 -> classes), so that it can be compared with MOON, which needs that head.
//!
//! The head only changes the model: the distance is still between logits. The published effect is mixed; it helped on
//! CIFAR-10 and hurt on CIFAR-100.

use fedelity_fl::{Local, Method, Needs, Payload, Result, Server, Step, Teacher, Terms};
use fedelity_nn::Params;
use serde::{Deserialize, Serialize};

use crate::FedGkd;
use crate::error::Range;
use crate::fedgkd;
use crate::registry::{Entry, Hyper, Identity};

/// FedGKD+. Its hyper-parameters are those of [`FedGkd`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FedGkdPlus(
    /// What runs on the model with the head.
    pub FedGkd,
);

impl Method for FedGkdPlus {
    fn name(&self) -> &'static str {
        "fedgkd-plus"
    }

    fn needs(&self) -> Needs {
        Needs { projection: true, ..self.0.needs() }
    }

    fn prepare(&self, server: &mut Server<'_>, state: &mut Payload, global: &Params) -> Result<Payload> {
        self.0.prepare(server, state, global)
    }

    fn teachers(&self, local: &Local<'_>) -> Result<Vec<Teacher>> {
        self.0.teachers(local)
    }

    fn loss(&self, local: &mut Local<'_>, step: &mut Step<'_>) -> Result<Terms> {
        self.0.loss(local, step)
    }
}

impl Hyper for FedGkdPlus {
    const ENTRY: Entry = Entry::new::<Self>(
        "fedgkd-plus",
        "FedGKD on a model with a projection head before its classifier.",
        "Yao et al., 2021, arXiv:2107.00051, eq. 4 and section 5",
        "L = CE + gamma/2 * KL(h(w_bar) || h(w)), w_bar = mean of the last M global models",
        Identity::KeysAtZero,
        fedgkd::PARAMETERS,
    );

    fn check(&self) -> Result<(), Range> {
        self.0.check()
    }
}
