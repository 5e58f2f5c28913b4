//! FedCurv: Shoham, Avidor, Keren, Israel, Benditkis, Mor-Yosef, Zeitak, "Overcoming Forgetting in Federated Learning
//! on Non-IID Data", NeurIPS 2019 workshop on federated learning, arXiv:1910.07796.
//!
//!   client i minimises   L_i(w) + lambda * sum_{j != i} (w - w_j)^T diag(F_j) (w - w_j)
//!                      = L_i(w) + lambda * [ <U, w*w> - 2 <V, w> ] + const,
//!                        U = sum_{j != i} F_j,   V = sum_{j != i} F_j * w_j
//!
//! w_j are the weights of client j after its last training and F_j the diagonal of its Fisher information there:
//! elastic weight consolidation between clients, which holds still what matters to the others and lets the rest move.
//!
//! The server keeps and sends the sums over all clients, and each client takes its own part out of them: it remembers
//! the F_i and F_i * w_i it last sent, and sends the difference from them. So the server needs the memory of two models
//! and not of two for each client. No penalty in the first round; a client that has not trained yet is not in the sums.
//!
//! Deviations: F is the squared gradient of a mini-batch, averaged over batches of up to `samples` samples, as in
//! FedNTD's code; squares of single samples' gradients would be larger by about the batch size, so lambda belongs to
//! this choice. The label is the true one. Only trainable parameters have a Fisher information. Where the subtraction
//! of the own part leaves 0 or less, by rounding, there is no penalty. The constant does not travel, so the recorded
//! penalty is the difference from its value at w^t.

use std::sync::Arc;

use fedelity_fl::{
    Gather, Local, Method, Needs, Objective, Outbox, Payload, Result, Server, Step, Terms, Trained, Upload,
};
use fedelity_nn::{Layout, Params, loss};
use serde::{Deserialize, Serialize};

use crate::error::Range;
use crate::registry::{AtZero, Entry, Hyper, Identity, Parameter};
use crate::trainable;

/// F: on the server and in the broadcast the sum over all clients, in an upload a difference, in memory the own one.
const FISHER: &str = "fisher";
/// F * w, likewise.
const WEIGHTED: &str = "fisher-weights";

/// FedCurv.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct FedCurv {
    /// lambda: the strength of the pull towards the other clients' weights. 0 or more.
    ///
    /// At 0 this is FedAvg, and no Fisher information is computed or sent. The paper does not say how it scales its
    /// Fisher information; FedSSD uses 1e-3 on CIFAR-10, 1e-4 on CIFAR-100, FedNTD's code 1.
    pub lambda: f64,
    /// The most samples of a client that its Fisher information is computed from. 1 or more; FedNTD's code: 500.
    pub samples: usize,
}

impl Default for FedCurv {
    fn default() -> Self {
        Self { lambda: 1e-3, samples: 500 }
    }
}

impl Method for FedCurv {
    fn name(&self) -> &'static str {
        "fedcurv"
    }

    fn needs(&self) -> Needs {
        Needs { client_memory: self.lambda != 0.0, ..Needs::default() }
    }

    fn prepare(&self, _: &mut Server<'_>, state: &mut Payload, _: &Params) -> Result<Payload> {
        Ok(match (state.opt(FISHER), state.opt(WEIGHTED)) {
            (Some(u), Some(v)) => Payload::new().with(FISHER, u.clone()).with(WEIGHTED, v.clone()),
            _ => Payload::new(),
        })
    }

    fn adjust(&self, local: &mut Local<'_>, w: &[f32], grad: &mut [f32]) -> Result<Terms> {
        let layout = local.model.layout();
        let Some(sums) = Curvature::of(local.down, layout)? else { return Ok(Terms::default()) };
        if self.lambda == 0.0 {
            return Ok(Terms::default());
        }
        let own = Curvature::of(local.memory, layout)?;
        let pull = local.scratch.typed(|| Pull::new(self.lambda, sums, own));
        let pull = [&pull.slope[..], &pull.offset];
        let penalty = trainable::penalty(layout, grad, w, local.global, pull, |grad, w, start, [slope, offset]| {
            *grad += slope * w - offset;
            (w - start) * (slope * 0.5 * (w + start) - offset)
        });
        Ok(Terms::of("curvature", penalty as f32))
    }

    fn finish(&self, local: &mut Local<'_>, done: &mut Trained<'_>) -> Result<Outbox> {
        if self.lambda == 0.0 || done.samples.is_empty() {
            return Ok(Outbox { memory: local.memory.clone(), ..Outbox::default() });
        }
        let layout = local.model.layout();
        let fisher = fisher(layout, done, local.training.batch, self.samples)?;
        let weights = trainable::pack(layout, done.params);
        let weighted: Vec<f32> = fisher.iter().zip(&weights).map(|(f, w)| f * w).collect();
        let memory = Payload::new().with(FISHER, fisher).with(WEIGHTED, weighted);
        let upload = match Curvature::of(local.memory, layout)? {
            None => memory.clone(),
            Some(old) => {
                let minus = |name, old: &[f32]| -> Result<Arc<[f32]>> {
                    Ok(memory.get(name)?.iter().zip(old).map(|(new, old)| new - old).collect())
                };
                Payload::new().with(FISHER, minus(FISHER, old.fisher)?).with(WEIGHTED, minus(WEIGHTED, old.weighted)?)
            }
        };
        Ok(Outbox { upload, memory })
    }

    fn collect(
        &self,
        server: &mut Server<'_>,
        _: &mut Payload,
        _: &Params,
        gather: &mut Gather,
        upload: &Upload,
    ) -> Result<()> {
        if let Some(change) = Curvature::of(&upload.extra, server.model.layout())? {
            gather.also(FISHER).add(1.0, change.fisher)?;
            gather.also(WEIGHTED).add(1.0, change.weighted)?;
        }
        gather.mean.add(upload.weight, &upload.params)
    }

    fn conclude(&self, _: &mut Server<'_>, state: &mut Payload, _: &Params, gather: &mut Gather) -> Result<Params> {
        for name in [FISHER, WEIGHTED] {
            let changes = gather.also(name);
            if changes.added() > 0 {
                let sum = state.slot(name, changes.sums().len());
                sum.iter_mut().zip(changes.sums()).for_each(|(sum, change)| *sum = (f64::from(*sum) + change) as f32);
            }
        }
        gather.mean.finish()
    }
}

impl Hyper for FedCurv {
    const ENTRY: Entry = Entry::new::<Self>(
        "fedcurv",
        "Hold still the weights that matter to the other clients (elastic weight consolidation between clients).",
        "Shoham et al., NeurIPS 2019 workshop, arXiv:1910.07796",
        "CE + lambda * sum_{j != i} (w - w_j)^T diag(F_j) (w - w_j)",
        Identity::KeysAtZero,
        &[
            Parameter {
                name: "lambda",
                symbol: "lambda",
                summary: "strength of the pull towards the other clients' weights",
                default: "0.001",
                range: "0 or more",
                paper: "not comparable; FedSSD 1e-3 (CIFAR-10), 1e-4 (CIFAR-100), FedNTD's code 1",
                at_zero: AtZero::FedAvg,
            },
            Parameter {
                name: "samples",
                symbol: "",
                summary: "the most samples of a client that its Fisher information is computed from",
                default: "500",
                range: "1 or more",
                paper: "FedNTD's code 500",
                at_zero: AtZero::Refused,
            },
        ],
    );

    fn check(&self) -> Result<(), Range> {
        let fits = self.lambda.is_finite() && self.lambda >= 0.0;
        Range::check("lambda", self.lambda, fits, "a finite number, 0 or more")?;
        Range::check("samples", self.samples, self.samples >= 1, "1 or more")
    }
}

/// F and F * w of one client or of all, packed.
#[derive(Clone, Copy, Debug)]
struct Curvature<'a> {
    fisher: &'a [f32],
    weighted: &'a [f32],
}

impl<'a> Curvature<'a> {
    fn of(payload: &'a Payload, layout: &Layout) -> Result<Option<Self>> {
        if payload.opt(FISHER).is_none() {
            return Ok(None);
        }
        let len = layout.trainable_len();
        let (fisher, weighted) = (payload.get_sized(FISHER, len)?, payload.get_sized(WEIGHTED, len)?);
        Ok(Some(Self { fisher, weighted }))
    }
}

/// The gradient of the penalty, slope * w - offset: slope = 2 lambda U, offset = 2 lambda V. The penalty itself is
/// slope / 2 * w^2 - offset * w and a constant.
#[derive(Debug)]
struct Pull {
    slope: Vec<f32>,
    offset: Vec<f32>,
}

impl Pull {
    /// From the sums over all clients and the own part in them.
    fn new(lambda: f64, sums: Curvature<'_>, own: Option<Curvature<'_>>) -> Self {
        let (mut slope, mut offset) = (sums.fisher.to_vec(), sums.weighted.to_vec());
        if let Some(own) = own {
            slope.iter_mut().zip(own.fisher).for_each(|(sum, own)| *sum -= own);
            offset.iter_mut().zip(own.weighted).for_each(|(sum, own)| *sum -= own);
        }
        let scale = (2.0 * lambda) as f32;
        for (slope, offset) in slope.iter_mut().zip(&mut offset) {
            let keep = if *slope > 0.0 { scale } else { 0.0 };
            *slope *= keep;
            *offset *= keep;
        }
        Self { slope, offset }
    }
}

/// The diagonal of the Fisher information: squared gradients of the log-likelihood, averaged over batches.
fn fisher(layout: &Layout, done: &mut Trained<'_>, batch: usize, most: usize) -> Result<Vec<f32>> {
    let mut sums = vec![0.0_f32; layout.trainable_len()];
    let mut batches = 0.0_f32;
    done.gradients(batch, most, &mut LogLikelihood, &mut |grad, _| {
        batches += 1.0;
        for (range, packed) in trainable::parts(layout) {
            sums[packed].iter_mut().zip(&grad[range]).for_each(|(sum, grad)| *sum += grad * grad);
        }
        Ok(())
    })?;
    sums.iter_mut().for_each(|sum| *sum /= batches.max(1.0));
    Ok(sums)
}

/// Minus the log-likelihood of the labels.
struct LogLikelihood;

impl Objective for LogLikelihood {
    fn loss(&mut self, step: &mut Step<'_>) -> Result<Terms> {
        let ce = loss::cross_entropy(step.student.logits, step.labels, step.classes, 1.0, step.d_logits);
        Ok(Terms::of("ce", ce))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FedAvg;
    use crate::trial::{self, close, numbers};

    fn curvature(fisher: &[f32], w: &[f32]) -> Payload {
        let weighted: Vec<f32> = fisher.iter().zip(w).map(|(f, w)| f * w).collect();
        Payload::new().with(FISHER, fisher.to_vec()).with(WEIGHTED, weighted)
    }

    #[test]
    fn golden_fedcurv_penalty() {
        for case in trial::rules("fedcurv-penalty") {
            let inputs = &case["inputs"];
            let rows = |name: &str| inputs[name].as_array().unwrap().iter().map(numbers).collect::<Vec<_>>();
            let (w, weights, fishers) = (numbers(&inputs["weights"]), rows("others_weights"), rows("others_fisher"));
            let method = FedCurv { lambda: inputs["lambda"].as_f64().unwrap(), ..FedCurv::default() };

            // The others send theirs and so does this client, whose own part must not count.
            let own = curvature(&[0.3, 0.0, 2.0, 0.7, 0.1, 0.9], &[5.0, -4.0, 3.0, 2.0, -1.0, 0.5]);
            let others = fishers.iter().zip(&weights).map(|(f, w)| curvature(f, w));
            let uploads = others.chain([own.clone()]).map(|extra| trial::upload(3, vec![0.0; 6], extra));
            let coordinator = trial::serve(method.clone(), &[0.0; 6], Payload::new(), uploads);
            let sums = coordinator.state();

            // From weights of zero the recorded penalty lacks the constant, which no gradient needs.
            let mut grad = vec![0.0; w.len()];
            let mut loss = 0.0;
            trial::with_local(&trial::six(), &[0.0; 6], |local| {
                let mut local = Local { down: sums, memory: &own, scratch: Default::default(), ..*local };
                loss = method.adjust(&mut local, &w, &mut grad).unwrap().total();
            });
            close(&grad, &case["expect"]["gradient"], 1e-5);
            let pairs = fishers.iter().flatten().zip(weights.iter().flatten());
            let constant: f64 = pairs.map(|(f, w)| f64::from(*f) * f64::from(*w).powi(2)).sum();
            let loss = f64::from(loss) + method.lambda * constant;
            assert!((loss / case["expect"]["loss"].as_f64().unwrap() - 1.0).abs() < 1e-5, "{loss}");
        }
    }

    #[test]
    fn the_first_round_is_fedavg_and_the_second_is_not() {
        for batch_norm in [false, true] {
            let method = || FedCurv { lambda: 0.1, ..FedCurv::default() };
            let first = trial::Run { rounds: 1, batch_norm, ..trial::Run::default() };
            assert_eq!(first.global(method()), first.global(FedAvg {}));
            let second = trial::Run { rounds: 2, ..first };
            assert_ne!(second.global(method()), second.global(FedAvg {}));
        }
    }

    #[test]
    fn the_server_keeps_the_sum_of_what_the_clients_remember() {
        let (coordinator, memories) = trial::Run { rounds: 4, ..trial::Run::default() }.finish(FedCurv::default());
        for name in [FISHER, WEIGHTED] {
            let sum = coordinator.state().get(name).unwrap();
            let largest = sum.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
            assert!(largest > 0.0);
            for (k, sum) in sum.iter().enumerate() {
                let parts = memories.iter().filter_map(|memory| memory.opt(name)).map(|part| part[k]);
                assert!((sum - parts.sum::<f32>()).abs() <= 1e-5 * largest);
            }
        }
        assert_eq!(coordinator.state().len(), 2);
    }

    #[test]
    fn alone_there_is_no_penalty() {
        let alone = trial::Run { sizes: &[40], per_round: 1, rounds: 2, ..trial::Run::default() };
        let method = FedCurv { lambda: 10.0, ..FedCurv::default() };
        assert_eq!(alone.global(method), alone.global(FedAvg {}));
    }

    #[test]
    fn what_travels() {
        let (p, trainable) = (trial::model(true).layout().len(), trial::model(true).layout().trainable_len());
        let traffic = trial::Run { batch_norm: true, ..trial::Run::default() }.traffic(FedCurv::default());
        assert_eq!(traffic[0], (4 * p, 4 * (p + 2 * trainable)));
        assert_eq!(traffic[1], (4 * (p + 2 * trainable), 4 * (p + 2 * trainable)));
    }
}
