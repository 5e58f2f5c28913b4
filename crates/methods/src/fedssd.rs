//! FedSSD: He, Chen, Yang, Yu, Huang, Gu, "Learning Critically: Selective Self Distillation in Federated Learning on
//! Non-IID Data", IEEE Transactions on Big Data, arXiv:2504.14694.
//!
//!   A            credibility matrix of w^t on the auxiliary samples: row true class, column predicted class    (2)
//!   L_SSD        = E ||M . z^g - M . z||^2                                                                     (3)
//!   M(x)[k]      = M_max * [M_class[k] * M_sample(x) - 0.1]^+                                                  (4)
//!   M_class[k]   = A_kk * (1 - max_{j != k} A_jk)
//!   M_sample(x)  = 1 - sqrt(1 - p^g_y(x))
//!   L            = L_CE + L_SSD                                                                                (6)
//!
//! Logits of the global model are kept only where it deserves it: for classes that it recognises and that it does not
//! mistake others for, and on samples that it gets right.
//!
//! Deviations. In (3) the weight stands inside the square, and with the published M_max = 0.01 the gradient would be
//! below 2e-4 of the difference: nothing. By default the weight is taken once, sum_k M_k (z_k - z^g_k)^2, which makes
//! the published values of M_max matter; `weight = "squared"` is equation (3) to the letter. The factor 1/2 of Lemma 1
//! is not used, as in the paper's own algorithm. A row of A whose class the auxiliary samples lack is 0, so the class
//! is not distilled. A is sent whole, as published, although clients only need M_class.

use fedelity_fl::{Error, Local, Method, Needs, Payload, Result, Server, Step, Teacher, Terms};
use fedelity_nn::{Params, loss};
use serde::{Deserialize, Serialize};

use crate::error::Range;
use crate::registry::{AtZero, Entry, Hyper, Identity, Parameter};

/// The array of the broadcast: A, by rows.
const CREDIBILITY: &str = "credibility";

/// What credibility must exceed to count.
const THRESHOLD: f32 = 0.1;

/// FedSSD.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct FedSsd {
    /// M_max, 0 or more: the largest weight is 0.9 of it. The paper has 0.01 for CIFAR-10, 0.001 for CIFAR-100 and
    /// Tiny-ImageNet. At 0 it is FedAvg.
    pub m_max: f32,
    /// How the weight enters the loss.
    pub weight: Weight,
    /// How the auxiliary samples are counted.
    pub credibility: Credibility,
}

/// How M enters the loss of FedSSD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weight {
    /// sum_k M_k (z_k - z^g_k)^2.
    #[default]
    Linear,
    /// sum_k (M_k (z_k - z^g_k))^2, equation (3) to the letter.
    Squared,
}

/// How the credibility matrix of FedSSD is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Credibility {
    /// Shares of predicted classes: the row-normalised confusion matrix.
    #[default]
    Hard,
    /// Mean predicted probabilities.
    Soft,
}

impl Default for FedSsd {
    fn default() -> Self {
        Self { m_max: 0.01, weight: Weight::Linear, credibility: Credibility::Hard }
    }
}

/// What a client computes once a round, and the weights of a batch.
struct Selection {
    by_class: Vec<f32>,
    weights: Vec<f32>,
}

impl FedSsd {
    fn is_off(&self) -> bool {
        self.m_max == 0.0
    }
}

impl Method for FedSsd {
    fn name(&self) -> &'static str {
        "fedssd"
    }

    fn needs(&self) -> Needs {
        Needs { auxiliary: !self.is_off(), extra_passes: usize::from(!self.is_off()), ..Needs::default() }
    }

    fn prepare(&self, server: &mut Server<'_>, _state: &mut Payload, global: &Params) -> Result<Payload> {
        if self.is_off() {
            return Ok(Payload::new());
        }
        let what = "labelled auxiliary samples on the server";
        let auxiliary = server.auxiliary.ok_or(Error::Needs { method: self.name(), what })?;
        let classes = server.model.classes();
        let mut sums = vec![0.0f64; classes * classes];
        let mut totals = vec![0u32; classes];
        let mut p = Vec::new();
        server.trainer.evaluate(global, auxiliary, &mut |outputs, labels| {
            p.resize(outputs.logits.len(), 0.0);
            loss::softmax_rows(&mut p, outputs.logits, classes, 1.0);
            for ((p, logits), &label) in p.chunks_exact(classes).zip(outputs.logits.chunks_exact(classes)).zip(labels) {
                let label = usize::from(label);
                totals[label] += 1;
                let row = &mut sums[label * classes..][..classes];
                match self.credibility {
                    Credibility::Hard => row[largest(logits)] += 1.0,
                    Credibility::Soft => row.iter_mut().zip(p).for_each(|(sum, &p)| *sum += f64::from(p)),
                }
            }
        });
        let share = |(i, &sum): (usize, &f64)| (sum / f64::from(totals[i / classes].max(1))) as f32;
        let matrix: Vec<f32> = sums.iter().enumerate().map(share).collect();
        Ok(Payload::new().with(CREDIBILITY, matrix))
    }

    fn teachers(&self, _local: &Local<'_>) -> Result<Vec<Teacher>> {
        Ok(if self.is_off() { Vec::new() } else { vec![Teacher::global()] })
    }

    fn loss(&self, local: &mut Local<'_>, step: &mut Step<'_>) -> Result<Terms> {
        let (z, classes) = (step.student.logits, step.classes);
        let ce = loss::cross_entropy(z, step.labels, classes, 1.0, step.d_logits);
        if self.is_off() {
            return Ok(Terms::of("ce", ce));
        }
        let matrix = local.down.get_sized(CREDIBILITY, classes * classes)?;
        let Selection { by_class, weights } =
            local.scratch.typed(|| Selection { by_class: class_credibility(matrix, classes), weights: Vec::new() });
        let teacher = step.teacher(0).logits;
        weights.resize(z.len(), 0.0);
        loss::softmax_rows(weights, teacher, classes, 1.0);
        for (weights, &label) in weights.chunks_exact_mut(classes).zip(step.labels) {
            let by_sample = sample_credibility(weights, usize::from(label));
            for (weight, by_class) in weights.iter_mut().zip(&*by_class) {
                let m = self.m_max * (by_class * by_sample - THRESHOLD).max(0.0);
                *weight = match self.weight {
                    Weight::Linear => m,
                    Weight::Squared => m * m,
                };
            }
        }
        let ssd = loss::squares(z, teacher, classes, weights, step.d_logits);
        Ok(Terms::of("ce", ce).with("ssd", ssd))
    }
}

/// M_class from A.
fn class_credibility(matrix: &[f32], classes: usize) -> Vec<f32> {
    let mistaken = |k| (0..classes).filter(|&j| j != k).map(|j| matrix[j * classes + k]).fold(0.0, f32::max);
    (0..classes).map(|k| matrix[k * classes + k] * (1.0 - mistaken(k))).collect()
}

/// M_sample from the teacher's probabilities. 1 - p_y is summed, so that it does not cancel where p_y is near 1.
fn sample_credibility(p: &[f32], label: usize) -> f32 {
    let others: f32 = p.iter().enumerate().filter(|&(k, _)| k != label).map(|(_, p)| p).sum();
    1.0 - others.min(1.0).sqrt()
}

/// The predicted class. Equal logits go to the lower one.
fn largest(logits: &[f32]) -> usize {
    let better = |best: usize, class: usize| if logits[class] > logits[best] { class } else { best };
    (1..logits.len()).fold(0, better)
}

impl Hyper for FedSsd {
    const ENTRY: Entry = Entry::new::<Self>(
        "fedssd",
        "Keep the global model's logits where it is credible, by class and by sample.",
        "He et al., IEEE Transactions on Big Data, arXiv:2504.14694, eqs. 2 to 6",
        "L = CE + sum_k M_k (z_k - z^g_k)^2,  M_k = M_max [M_class[k] (1 - sqrt(1 - p^g_y)) - 0.1]^+",
        Identity::KeysAtZero,
        &[
            Parameter {
                name: "m-max",
                symbol: "M_max",
                summary: "the scale of the weights; the largest is 0.9 of it",
                default: "0.01",
                range: "a finite number, 0 or more",
                paper: "0.01 (CIFAR-10), 0.001 (CIFAR-100, Tiny-ImageNet)",
                at_zero: AtZero::FedAvg,
            },
            Parameter {
                name: "weight",
                symbol: "M",
                summary: "whether the weight stands outside the square (linear) or inside it (squared)",
                default: "\"linear\"",
                range: "\"linear\" or \"squared\"",
                paper: "squared in eq. 3, where the published M_max does next to nothing",
                at_zero: AtZero::None,
            },
            Parameter {
                name: "credibility",
                symbol: "A",
                summary: "whether the matrix counts predictions (hard) or averages probabilities (soft)",
                default: "\"hard\"",
                range: "\"hard\" or \"soft\"",
                paper: "hard, by its name confusion matrix",
                at_zero: AtZero::None,
            },
        ],
    );

    fn check(&self) -> Result<(), Range> {
        Range::check("m-max", self.m_max, self.m_max.is_finite() && self.m_max >= 0.0, "a finite number, 0 or more")
    }
}
