//! FedGKD-VOTE: Yao, Pan, Dai, Wan, Ding, Jin, Xu, Sun, "Local-Global Knowledge Distillation in Heterogeneous Federated
//! Learning with Non-IID Data", 2021, arXiv:2107.00051, equation 5 and the unnumbered one for its coefficients.
//!
//!   min_w  F_k(w) + sum_{m=1..M} gamma_m / (2 n_k) * sum_i KL( h(w_{t-m+1}, x_i) || h(w, x_i) ),
//!   gamma_m / 2 = lambda * exp(-L_m / beta) / sum_j exp(-L_j / beta),   L_m the validation loss of w_{t-m+1}
//!
//! Each of the last M global models teaches by itself, and those that do better on held-out data count for more, so one
//! bad round does not spoil the teacher.
//!
//! The received model is the first teacher; the other M - 1 travel with it, and so do the M coefficients.
//!
//! Deviations:
//! - The term starts in round 2 and w_0 is never in the buffer, as for [FedGKD](crate::FedGkd). Until there are M
//!   models the sum is over those there are; lambda keeps its meaning because the coefficients add up to it.
//! - The authors' released code computes this loss without a gradient; here it reaches the student, as eq. 5 says.
//! - A temperature other than 1 multiplies the KL by its square; the paper has none.

use fedelity_fl::{Error, Local, Method, Needs, Payload, Result, Server, Step, Teacher, Terms};
use fedelity_nn::{Params, loss};
use serde::{Deserialize, Serialize};

use crate::error::Range;
use crate::fedgkd::{kl, remember};
use crate::registry::{AtZero, Entry, Hyper, Identity, Parameter};

/// beta: how sharply validation losses turn into coefficients.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a number or \"1/m\"")]
pub enum Sharpness {
    /// A number above 0. The smaller, the more the best model decides alone.
    Number(f64),
    /// The word "1/m".
    Word(InverseBuffer),
}

/// The word for a [`Sharpness`] that follows the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InverseBuffer {
    /// One over the length of the buffer.
    #[serde(rename = "1/m")]
    InverseBuffer,
}

/// FedGKD-VOTE.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct FedGkdVote {
    /// lambda, 0 or more: what the factors on the distances add up to. The paper takes 0.1. 0 is FedAvg.
    pub lambda: f64,
    /// M, 1 or more: how many of the last global models teach. The paper takes 5 for images and 3 for text.
    pub buffer: usize,
    /// beta, above 0 or "1/m": how sharply validation losses turn into coefficients. The paper takes 1/M.
    pub beta: Sharpness,
    /// The temperature of both softmaxes, above 0. The paper takes 1.
    pub temperature: f64,
}

impl Default for FedGkdVote {
    fn default() -> Self {
        Self { lambda: 0.1, buffer: 5, beta: Sharpness::Word(InverseBuffer::InverseBuffer), temperature: 1.0 }
    }
}

impl FedGkdVote {
    fn beta(&self) -> f64 {
        match self.beta {
            Sharpness::Number(beta) => beta,
            Sharpness::Word(InverseBuffer::InverseBuffer) => 1.0 / self.buffer as f64,
        }
    }
}

/// gamma_m / 2 = lambda * softmax_m(-L_m / beta). A loss that is not finite counts for nothing; if none is finite, all
/// count the same.
fn half_gammas(losses: &[f64], lambda: f64, beta: f64) -> Vec<f32> {
    let best = losses.iter().copied().filter(|loss| loss.is_finite()).fold(f64::INFINITY, f64::min);
    let share = |&loss: &f64| match (best.is_finite(), loss.is_finite()) {
        (true, true) => ((best - loss) / beta).exp(),
        (true, false) => 0.0,
        (false, _) => 1.0,
    };
    let total: f64 = losses.iter().map(share).sum();
    losses.iter().map(|loss| (lambda * share(loss) / total) as f32).collect()
}

impl Method for FedGkdVote {
    fn name(&self) -> &'static str {
        "fedgkd-vote"
    }

    fn needs(&self) -> Needs {
        let on = self.lambda != 0.0;
        Needs { validation: on, extra_passes: if on { self.buffer } else { 0 }, ..Needs::default() }
    }

    fn prepare(&self, server: &mut Server<'_>, state: &mut Payload, global: &Params) -> Result<Payload> {
        if self.lambda == 0.0 || server.round == 0 {
            return Ok(Payload::new());
        }
        let missing = Error::Needs { method: self.name(), what: "labelled validation samples on the server" };
        let validation = server.validation.ok_or(missing)?;
        // A model's validation loss is worked out once, when it enters the buffer; the newest comes first.
        let loss = server.trainer.score(global, validation).loss().unwrap_or(f64::INFINITY);
        let older = state.opt("losses").map_or(&[][..], |losses| &losses[..]);
        let losses: Vec<f32> = std::iter::once(loss as f32).chain(older.iter().copied()).take(self.buffer).collect();
        let models = remember(state, server.round, global, self.buffer);

        let known: Vec<f64> = losses.iter().map(|&loss| f64::from(loss)).take(models.len()).collect();
        state.put("losses", losses);
        let mut down = Payload::new().with("half-gammas", half_gammas(&known, self.lambda, self.beta()));
        for (m, model) in models.into_iter().enumerate().skip(1) {
            down.put(model_key(m), model);
        }
        Ok(down)
    }

    fn teachers(&self, local: &Local<'_>) -> Result<Vec<Teacher>> {
        let Some(half_gammas) = local.down.opt("half-gammas") else { return Ok(Vec::new()) };
        let older = (1..half_gammas.len()).map(|m| Ok(Teacher::given(local.down.get(&model_key(m))?.clone())));
        std::iter::once(Ok(Teacher::global())).chain(older).collect()
    }

    fn loss(&self, local: &mut Local<'_>, step: &mut Step<'_>) -> Result<Terms> {
        let ce = loss::cross_entropy(step.student.logits, step.labels, step.classes, 1.0, step.d_logits);
        let Some(half_gammas) = local.down.opt("half-gammas") else { return Ok(Terms::of("ce", ce)) };
        let mut kd = 0.0;
        for (m, &weight) in half_gammas.iter().enumerate() {
            let teacher = step.teacher(m).logits;
            kd += kl(step.student.logits, teacher, step.classes, weight.into(), self.temperature, step.d_logits);
        }
        Ok(Terms::of("ce", ce).with("kd", kd))
    }
}

/// The name of the m-th teacher of eq. 5, counted from 0. The one with number 0 is the received model.
fn model_key(m: usize) -> String {
    format!("model-{m}")
}

impl Hyper for FedGkdVote {
    const ENTRY: Entry = Entry::new::<Self>(
        "fedgkd-vote",
        "Stay near the answers of each of the last global models, the better ones more.",
        "Yao et al., 2021, arXiv:2107.00051, eq. 5",
        "L = CE + sum_m gamma_m/2 * KL(h(w_(t-m+1)) || h(w)), gamma_m/2 = lambda * softmax(-L_m / beta)",
        Identity::KeysAtZero,
        &[
            Parameter {
                name: "lambda",
                symbol: "lambda",
                summary: "what the factors on the distances add up to",
                default: "0.1",
                range: "0 or more",
                paper: "0.1",
                at_zero: AtZero::FedAvg,
            },
            Parameter {
                name: "buffer",
                symbol: "M",
                summary: "how many of the last global models teach; all of them travel down",
                default: "5",
                range: "1 or more",
                paper: "5 (images), 3 (text)",
                at_zero: AtZero::Refused,
            },
            Parameter {
                name: "beta",
                symbol: "beta",
                summary: "how sharply validation losses turn into factors; small lets the best model decide alone",
                default: "1/m",
                range: "above 0, or \"1/m\"",
                paper: "1/M",
                at_zero: AtZero::Refused,
            },
            Parameter {
                name: "temperature",
                symbol: "tau",
                summary: "temperature of both softmaxes, with a factor tau^2",
                default: "1.0",
                range: "above 0",
                paper: "1",
                at_zero: AtZero::Refused,
            },
        ],
    );

    fn check(&self) -> Result<(), Range> {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        let lambda = self.lambda;
        Range::check("lambda", lambda, lambda.is_finite() && lambda >= 0.0, "a finite number 0 or more")?;
        Range::check("buffer", self.buffer, self.buffer >= 1, "1 or more")?;
        Range::check("beta", self.beta(), positive(self.beta()), "a finite number above 0, or \"1/m\"")?;
        Range::check("temperature", self.temperature, positive(self.temperature), "a finite number above 0")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::{close, rules};

    #[test]
    fn golden_half_gammas() {
        for case in rules("fedgkd-vote-half-gammas") {
            let inputs = &case["inputs"];
            let losses = inputs["validation_losses"].as_array().unwrap();
            let losses: Vec<f64> = losses.iter().map(|loss| loss.as_f64().unwrap()).collect();
            let lambda = inputs["lambda"].as_f64().unwrap();
            let method = FedGkdVote { buffer: losses.len(), lambda, ..FedGkdVote::default() };
            close(&half_gammas(&losses, lambda, method.beta()), &case["expect"]["half_gammas"], 1e-6);
        }
    }

    #[test]
    fn equal_losses_count_the_same() {
        for loss in [0.0, 1.7, 1e300, f64::INFINITY, f64::NAN] {
            assert_eq!(half_gammas(&[loss; 4], 0.1, 0.25), [0.025; 4], "{loss}");
        }
        let found = half_gammas(&[f64::NAN, 2.0, 1e9, f64::INFINITY], 0.1, 0.25);
        assert_eq!(found, [0.0, 0.1, 0.0, 0.0]);
        assert_eq!(half_gammas(&[3.0], 0.1, 1.0), [0.1]);
    }

    #[test]
    fn beta_is_a_number_or_a_word() {
        let build = |text: &str| FedGkdVote::ENTRY.build(&text.parse().unwrap()).map(|built| built.settings);
        assert_eq!(build("").unwrap()["beta"].as_str(), Some("1/m"));
        assert_eq!(build("beta = 2").unwrap()["beta"].as_float(), Some(2.0));
        assert!(build("beta = 0.0").is_err());
        let error = build("beta = \"1/n\"").unwrap_err().to_string();
        assert_eq!(error, "method.beta = \"1/n\": a number or \"1/m\"");
    }
}
