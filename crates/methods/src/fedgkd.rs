//! FedGKD: Yao, Pan, Dai, Wan, Ding, Jin, Xu, Sun, "Local-Global Knowledge Distillation in Heterogeneous Federated
//! Learning with Non-IID Data", 2021, arXiv:2107.00051, equation 4 and Algorithm 1.
//!
//!   min_w  F_k(w) + gamma / (2 n_k) * sum_i KL( h(w_bar_t, x_i) || h(w, x_i) ),
//!   w_bar_t = 1/M * sum_{m=1..M} w_{t-m+1},   F_k the cross-entropy, h the softmax of the logits
//!
//! The mean of the last global models knows all clients' classes and moves little from round to round; a client that
//! stays near its answers learns its own data without forgetting the others'.
//!
//! With M = 1 the teacher is the model a client receives anyway, and nothing else travels. With M > 1 the server keeps
//! the last M global models and sends their mean, one model more.
//!
//! Deviations:
//! - The term starts in round 2, as in the authors' code. In round 1 the teacher would be the random start itself.
//! - The first weights w_0 are never in the buffer, and until there are M models the mean is over those there are; both
//!   as in the authors' code. While there is one, the mean is the received model and does not travel.
//! - The squared error (Table 9) is summed over classes and averaged over samples, like every loss on logits here; the
//!   authors' code averages over classes too, so its coefficient is `classes` times ours.
//! - A temperature other than 1 multiplies the KL by its square, as in the authors' code; the paper has none.

use std::sync::Arc;

use fedelity_fl::{Local, Mean, Method, Needs, Payload, Result, Server, Step, Teacher, Terms};
use fedelity_nn::Params;
use fedelity_nn::loss::{self, Kl};
use serde::{Deserialize, Serialize};

use crate::error::Range;
use crate::registry::{AtZero, Entry, Hyper, Identity, Parameter};

/// How far the student is from its teacher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Distance {
    /// KL(teacher || student), the paper's choice.
    #[default]
    Kl,
    /// The squared difference of the logits (Table 9 of the paper).
    Mse,
}

/// FedGKD.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct FedGkd {
    /// gamma, 0 or more: twice the factor on the distance. The paper takes 0.2 for ResNet-8 and DistilBERT and 0.1
    /// for ResNet-50. 0 is FedAvg.
    pub gamma: f64,
    /// M, 1 or more: how many of the last global models are averaged. The paper's best M is between 1 and 7; 1 costs
    /// no traffic.
    pub buffer: usize,
    /// The distance. The paper takes the KL divergence.
    pub loss: Distance,
    /// The temperature of both softmaxes under the KL divergence, above 0. The paper takes 1.
    pub temperature: f64,
}

impl Default for FedGkd {
    fn default() -> Self {
        Self { gamma: 0.2, buffer: 1, loss: Distance::Kl, temperature: 1.0 }
    }
}

impl FedGkd {
    /// gamma / 2 times the distance between student and teacher; adds its gradient.
    fn distance(&self, z: &[f32], teacher: &[f32], classes: usize, d_z: &mut [f32]) -> f32 {
        let weight = self.gamma / 2.0;
        match self.loss {
            Distance::Kl => kl(z, teacher, classes, weight, self.temperature, d_z),
            Distance::Mse => loss::mse(z, teacher, (weight * classes as f64) as f32, d_z),
        }
    }
}

impl Method for FedGkd {
    fn name(&self) -> &'static str {
        "fedgkd"
    }

    fn needs(&self) -> Needs {
        Needs { extra_passes: usize::from(self.gamma != 0.0), ..Needs::default() }
    }

    fn prepare(&self, server: &mut Server<'_>, state: &mut Payload, global: &Params) -> Result<Payload> {
        if self.gamma == 0.0 || self.buffer == 1 || server.round == 0 {
            return Ok(Payload::new());
        }
        let models = remember(state, server.round, global, self.buffer);
        if models.len() == 1 {
            return Ok(Payload::new());
        }
        let mut mean = Mean::default();
        models.iter().try_for_each(|model| mean.add(1.0, model))?;
        Ok(Payload::new().with("teacher", mean.finish()?.0))
    }

    fn teachers(&self, local: &Local<'_>) -> Result<Vec<Teacher>> {
        if self.gamma == 0.0 || local.round == 0 {
            return Ok(Vec::new());
        }
        Ok(vec![match local.down.opt("teacher") {
            Some(mean) => Teacher::given(mean.clone()),
            None => Teacher::global(),
        }])
    }

    fn loss(&self, _: &mut Local<'_>, step: &mut Step<'_>) -> Result<Terms> {
        let ce = loss::cross_entropy(step.student.logits, step.labels, step.classes, 1.0, step.d_logits);
        if step.teachers() == 0 {
            return Ok(Terms::of("ce", ce));
        }
        let kd = self.distance(step.student.logits, step.teacher(0).logits, step.classes, step.d_logits);
        Ok(Terms::of("ce", ce).with("kd", kd))
    }
}

impl Hyper for FedGkd {
    const ENTRY: Entry = Entry::new::<Self>(
        "fedgkd",
        "Stay near the answers of the mean of the last global models.",
        "Yao et al., 2021, arXiv:2107.00051, eq. 4",
        "L = CE + gamma/2 * KL(h(w_bar) || h(w)), w_bar = mean of the last M global models",
        Identity::KeysAtZero,
        PARAMETERS,
    );

    fn check(&self) -> Result<(), Range> {
        Range::check("gamma", self.gamma, self.gamma.is_finite() && self.gamma >= 0.0, "a finite number 0 or more")?;
        Range::check("buffer", self.buffer, self.buffer >= 1, "1 or more")?;
        let fits = self.temperature.is_finite() && self.temperature > 0.0;
        Range::check("temperature", self.temperature, fits, "a finite number above 0")
    }
}

/// What people read about the keys of FedGKD and FedGKD+.
pub(crate) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "gamma",
        symbol: "gamma",
        summary: "twice the factor on the distance to the teacher",
        default: "0.2",
        range: "0 or more",
        paper: "0.2 (ResNet-8, DistilBERT), 0.1 (ResNet-50)",
        at_zero: AtZero::FedAvg,
    },
    Parameter {
        name: "buffer",
        symbol: "M",
        summary: "how many of the last global models are averaged; above 1 a second model travels down",
        default: "1",
        range: "1 or more",
        paper: "best of 1, 3, 5, 7 by data set",
        at_zero: AtZero::Refused,
    },
    Parameter {
        name: "loss",
        symbol: "",
        summary: "the distance: KL divergence of the classes or squared difference of the logits",
        default: "kl",
        range: "kl, mse",
        paper: "kl",
        at_zero: AtZero::None,
    },
    Parameter {
        name: "temperature",
        symbol: "tau",
        summary: "temperature of both softmaxes under kl, with a factor tau^2",
        default: "1.0",
        range: "above 0",
        paper: "1",
        at_zero: AtZero::Refused,
    },
];

/// weight * tau^2 * KL(teacher || student) at temperature tau; adds its gradient.
pub(crate) fn kl(z: &[f32], teacher: &[f32], classes: usize, weight: f64, tau: f64, d_z: &mut [f32]) -> f32 {
    let how = Kl { weight: weight as f32, tau: tau as f32, tau_squared: true, ..Kl::default() };
    loss::kl(z, teacher, classes, &how, d_z)
}

/// Puts the global weights of a round into the server's buffer and gives the last `most`, the newest first.
///
/// Call it in every round but the first, whose weights w_0 are not to be remembered.
pub(crate) fn remember(state: &mut Payload, round: usize, global: &[f32], most: usize) -> Vec<Arc<[f32]>> {
    let key = |round: usize| format!("global-{round}");
    state.put(key(round), global);
    if let Some(old) = round.checked_sub(most) {
        state.remove(&key(old));
    }
    (1..=round).rev().take(most).filter_map(|round| state.opt(&key(round)).cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buffer_holds_the_newest() {
        let mut state = Payload::new().with("other", vec![9.0]);
        let heads = |models: Vec<Arc<[f32]>>| models.iter().map(|model| model[0]).collect::<Vec<f32>>();
        assert_eq!(heads(remember(&mut state, 1, &[1.0], 3)), [1.0]);
        assert_eq!(heads(remember(&mut state, 2, &[2.0], 3)), [2.0, 1.0]);
        assert_eq!(heads(remember(&mut state, 3, &[3.0], 3)), [3.0, 2.0, 1.0]);
        assert_eq!(heads(remember(&mut state, 4, &[4.0], 3)), [4.0, 3.0, 2.0]);
        assert_eq!(state.keys().collect::<Vec<_>>(), ["global-2", "global-3", "global-4", "other"]);
    }
}
