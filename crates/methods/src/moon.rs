//! MOON: Li, He, Song, "Model-Contrastive Federated Learning", CVPR 2021, arXiv:2103.16257, Algorithm 1.
//!
//!   loss = CE + mu * l_con
//!   l_con = -log( exp(sim(z, z_glob) / tau) / (exp(sim(z, z_glob) / tau) + exp(sim(z, z_prev) / tau)) )
//!
//! z are the features of the model in training, z_glob those of the global weights of the round and z_prev those of
//! this client's weights after its last training; sim is the cosine, and l_con the mean over the batch. The global
//! model has seen more data than the last local one, so its features are the better ones to move towards.
//!
//! The paper puts a two-layer projection head of 256 outputs before the classifier (model key `projection`); features
//! are its outputs. Without it they are what the classifier reads, as in FedNTD's code.
//!
//! Deviation: a client that has no last training yet has no contrastive term. The authors' code has none in the first
//! round either, and random networks in place of the last local weights after it, which say nothing.

use fedelity_fl::{Local, Method, Needs, Outbox, Payload, Result, Step, Teacher, Terms, Trained};
use fedelity_nn::loss;
use serde::{Deserialize, Serialize};

use crate::error::Range;
use crate::registry::{AtZero, Entry, Hyper, Identity, Parameter};

/// The client's weights after its last training, in its memory.
const PREVIOUS: &str = "previous";

/// MOON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Moon {
    /// mu: the weight of the contrastive term. 0 or more; at 0 this is FedAvg and clients remember nothing.
    ///
    /// The paper: 5 on CIFAR-10, 1 on CIFAR-100 and Tiny-ImageNet.
    pub mu: f64,
    /// tau: the temperature of the similarities. Above 0; the paper: 0.5.
    pub tau: f64,
}

impl Default for Moon {
    fn default() -> Self {
        Self { mu: 5.0, tau: 0.5 }
    }
}

impl Method for Moon {
    fn name(&self) -> &'static str {
        "moon"
    }

    fn needs(&self) -> Needs {
        let on = self.mu != 0.0;
        Needs { client_memory: on, projection: true, extra_passes: if on { 2 } else { 0 }, ..Needs::default() }
    }

    fn teachers(&self, local: &Local<'_>) -> Result<Vec<Teacher>> {
        if self.mu == 0.0 || local.memory.opt(PREVIOUS).is_none() {
            return Ok(Vec::new());
        }
        let previous = local.memory.get_sized(PREVIOUS, local.global.len())?.clone();
        Ok(vec![Teacher::global().with_features(), Teacher::given(previous).with_features()])
    }

    fn loss(&self, _: &mut Local<'_>, step: &mut Step<'_>) -> Result<Terms> {
        let ce = loss::cross_entropy(step.student.logits, step.labels, step.classes, 1.0, step.d_logits);
        let terms = Terms::of("ce", ce);
        if step.teachers() < 2 {
            return Ok(terms);
        }
        let (z, width) = (step.student.features, step.features);
        let (global, previous) = (step.teacher(0).features, step.teacher(1).features);
        let (tau, mu) = (self.tau as f32, self.mu as f32);
        let contrast = loss::contrast(z, global, previous, width, tau, mu, step.d_features());
        Ok(terms.with("contrast", contrast))
    }

    fn finish(&self, local: &mut Local<'_>, done: &mut Trained<'_>) -> Result<Outbox> {
        if self.mu == 0.0 || done.fitted.steps == 0 {
            return Ok(Outbox { memory: local.memory.clone(), ..Outbox::default() });
        }
        Ok(Outbox { memory: Payload::new().with(PREVIOUS, done.params), ..Outbox::default() })
    }
}

impl Hyper for Moon {
    const ENTRY: Entry = Entry::new::<Self>(
        "moon",
        "Move features towards those of the global model and away from those of the last local one.",
        "Li, He, Song, CVPR 2021, arXiv:2103.16257",
        "CE - mu * log(e^(sim(z, z_glob)/tau) / (e^(sim(z, z_glob)/tau) + e^(sim(z, z_prev)/tau)))",
        Identity::KeysAtZero,
        &[
            Parameter {
                name: "mu",
                symbol: "mu",
                summary: "weight of the contrastive term",
                default: "5",
                range: "0 or more",
                paper: "5 (CIFAR-10), 1 (CIFAR-100, Tiny-ImageNet)",
                at_zero: AtZero::FedAvg,
            },
            Parameter {
                name: "tau",
                symbol: "tau",
                summary: "temperature of the similarities",
                default: "0.5",
                range: "above 0",
                paper: "0.5",
                at_zero: AtZero::Refused,
            },
        ],
    );

    fn check(&self) -> Result<(), Range> {
        Range::check("mu", self.mu, self.mu.is_finite() && self.mu >= 0.0, "a finite number, 0 or more")?;
        Range::check("tau", self.tau, self.tau.is_finite() && self.tau > 0.0, "a finite number above 0")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FedAvg;
    use crate::trial;

    #[test]
    fn the_first_round_is_fedavg_and_every_client_remembers() {
        let run = trial::Run { rounds: 1, ..trial::Run::default() };
        assert_eq!(run.global(Moon::default()), run.global(FedAvg {}));
        let (coordinator, memories) = run.finish(Moon::default());
        let kept = memories.iter().filter(|memory| memory.opt(PREVIOUS).is_some()).count();
        assert_eq!(kept, run.per_round);
        assert!(coordinator.state().is_empty());
        assert_eq!(run.traffic(Moon::default()), run.traffic(FedAvg {}));
    }
}
