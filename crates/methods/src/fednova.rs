//! FedNova: Wang, Liu, Liang, Joshi, Poor, "Tackling the Objective Inconsistency Problem in Heterogeneous Federated
//! Optimization", NeurIPS 2020, arXiv:2007.07481.
//!
//!   client i:    a_i = [tau_i - rho * (1 - rho^tau_i) / (1 - rho)] / (1 - rho)   after tau_i steps with momentum rho
//!                d_i = (w^t - w_i) / a_i
//!   the server:  w^{t+1} = w^t - (sum_i p_i a_i) * sum_i p_i d_i,   p_i = n_i / n
//!
//! A mean of weights favours clients that took more steps; a mean of directions per step does not.
//!
//! a_i is the norm of the vector that counts how often each gradient of the round went into the weights; without
//! momentum it is the number of steps. The server accumulates it relative to the first client: with r_i = a_1 / a_i and
//! k = (sum_i p_i / r_i) * (sum_i p_i r_i),
//!
//!   w^{t+1} = (1 - k) * w^t + k * (sum_i p_i r_i w_i) / (sum_i p_i r_i),
//!
//! so for equal numbers of steps every r_i and k are exactly 1 and the result is that of FedAvg, bit for bit.
//!
//! Deviations: clients send w_i and a_i instead of d_i and a_i, which carries the same information. Running statistics
//! are not steps along a gradient, and k above 1 could make a variance negative: they are averaged as in FedAvg. For
//! Adam the paper gives no a_i; we use the number of steps. The cross-client variance reduction in FedNTD's code is not
//! part of FedNova.

use fedelity_fl::{Extra, Gather, Local, Method, Outbox, Payload, Received, Result, Server, Trained};
use fedelity_keys::method;
use fedelity_nn::{Model, Params};

use crate::{steps, trainable};

/// In an upload: a_i.
const STEPS: &str = "effective-steps";
/// On the server: a_1 of the first client that moved.
const FIRST: &str = "fednova-first";
/// a_i / a_1 of all clients.
const RATIOS: &str = "fednova-ratios";
/// Parameters that no optimiser moves.
const REST: &str = "fednova-rest";

/// Average the updates per local step, so that clients with more steps do not count more.
#[method(
    id = "fednova",
    title = "FedNova",
    reference = "Wang et al., NeurIPS 2020, arXiv:2007.07481",
    equation = "w = w^t - (sum_i p_i a_i) * sum_i p_i (w^t - w_i) / a_i",
    helps = "Where clients take different numbers of steps because their sizes differ: FedAvg then favours clients \
             with many steps beyond their share of the data. Where all take the same number of steps, it is FedAvg.",
    identity = EqualSteps
)]
pub struct FedNova {}

impl Method for FedNova {
    fn sends(&self, _: &Model) -> Vec<Extra> {
        vec![Extra::always(STEPS, 1)]
    }

    fn finish(&self, local: &mut Local<'_>, done: &mut Trained<'_>) -> Result<Outbox> {
        let a = steps::taken(local, done) as f32;
        Ok(Outbox { upload: Payload::new().with(STEPS, vec![a]), ..Outbox::default() })
    }

    fn collect(&self, server: &mut Server<'_>, gather: &mut Gather, upload: &Received) -> Result<()> {
        let rest = trainable::rest(server.model.layout());
        if !rest.is_empty() {
            let values: Vec<f32> = rest.into_iter().flat_map(|range| &upload.params[range]).copied().collect();
            gather.also(REST).add(upload.weight, &values)?;
        }
        let a = upload.extra.get_sized(STEPS, 1)?[0];
        if a <= 0.0 {
            // It took no steps: it has no direction, and its share stays put.
            return gather.also(RATIOS).add(upload.weight, &[0.0]);
        }
        let first = gather.also(FIRST);
        if first.added() == 0 {
            first.add(1.0, &[a])?;
        }
        let first = first.sums()[0];
        gather.also(RATIOS).add(upload.weight, &[(f64::from(a) / first) as f32])?;
        gather.mean.add(upload.weight * (first / f64::from(a)), &upload.params)
    }

    fn conclude(&self, server: &mut Server<'_>, gather: &mut Gather, _: &mut Payload) -> Result<Params> {
        let ratios = gather.also(RATIOS);
        let (total, ratios) = (ratios.weight(), ratios.sums().first().copied().unwrap_or(0.0));
        if gather.mean.added() == 0 && total > 0.0 {
            return Ok(server.global.clone());
        }
        let k = (ratios * gather.mean.weight()) / (total * total);
        let mut new = gather.mean.finish()?;
        if k != 1.0 {
            for range in server.model.layout().trainable() {
                for (new, old) in new[range.clone()].iter_mut().zip(&server.global[range.clone()]) {
                    // (1 - k) * old + k * new.
                    let to = f64::from(*new);
                    *new = (to + (k - 1.0) * (to - f64::from(*old))) as f32;
                }
            }
        }
        let rest = trainable::rest(server.model.layout());
        if !rest.is_empty() {
            let values = gather.also(REST).finish()?;
            rest.into_iter().flatten().zip(values.iter()).for_each(|(slot, value)| new[slot] = *value);
        }
        Ok(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FedAvg;
    use crate::trial::{self, close, numbers};

    #[test]
    fn golden_fednova() {
        for case in trial::rules("fednova") {
            let inputs = &case["inputs"];
            let rho = inputs["momentum"].as_f64().unwrap();
            let steps = inputs["local_steps"].as_array().unwrap().iter().map(|steps| steps.as_u64().unwrap() as usize);
            let steps: Vec<f32> = steps.map(|steps| steps::effective(steps, rho) as f32).collect();
            close(&steps, &case["expect"]["effective_steps"], 1e-6);
            let (locals, sizes) = (inputs["locals"].as_array().unwrap(), numbers(&inputs["sizes"]));
            let uploads = locals.iter().zip(sizes).zip(steps).map(|((local, size), a)| {
                trial::upload(size as usize, numbers(local), Payload::new().with(STEPS, vec![a]))
            });
            let coordinator = trial::serve(FedNova {}, &numbers(&inputs["global"]), Payload::new(), uploads);
            close(coordinator.global(), &case["expect"]["global"], 1e-6);
        }
    }

    #[test]
    fn golden_weighted_average() {
        for case in trial::rules("weighted-average") {
            let (sizes, vectors) = (numbers(&case["inputs"]["weights"]), case["inputs"]["vectors"].as_array().unwrap());
            let uploads = || sizes.iter().zip(vectors).map(|(&size, vector)| (size as usize, numbers(vector)));
            let plain = uploads().map(|(size, vector)| trial::upload(size, vector, Payload::new()));
            let plain = trial::serve(FedAvg {}, &[0.0; 6], Payload::new(), plain);
            close(plain.global(), &case["expect"]["average"], 1e-6);
            let equal = Payload::new().with(STEPS, vec![7.3]);
            let nova = uploads().map(|(size, vector)| trial::upload(size, vector, equal.clone()));
            let nova = trial::serve(FedNova {}, &[0.0; 6], Payload::new(), nova);
            assert_eq!(nova.global(), plain.global());
        }
    }

    #[test]
    fn equal_steps_are_fedavg() {
        for (batch_norm, momentum) in [(false, 0.0), (true, 0.9)] {
            let equal =
                trial::TrialRun { sizes: &[21, 24, 17, 19], batch_norm, momentum, ..trial::TrialRun::default() };
            assert_eq!(equal.global(FedNova {}), equal.global(FedAvg {}));
            let uneven = trial::TrialRun { batch_norm, momentum, ..trial::TrialRun::default() };
            assert_ne!(uneven.global(FedNova {}), uneven.global(FedAvg {}));
        }
    }

    #[test]
    fn clients_that_do_not_move() {
        let still = trial::TrialRun { epochs: 0, ..trial::TrialRun::default() };
        assert_eq!(still.global(FedNova {}), still.global(FedAvg {}));
        let empty = trial::TrialRun { sizes: &[0, 24, 20, 0], ..trial::TrialRun::default() };
        let found = empty.global(FedNova {});
        assert!(found.iter().all(|value| value.is_finite()));
        assert_eq!(found, empty.global(FedAvg {}));
    }

    #[test]
    fn statistics_take_the_plain_mean() {
        let uneven = trial::TrialRun { batch_norm: true, rounds: 1, ..trial::TrialRun::default() };
        let (nova, plain) = (uneven.global(FedNova {}), uneven.global(FedAvg {}));
        let model = trial::model(true);
        for range in trainable::rest(model.layout()) {
            assert_eq!(nova[range.clone()], plain[range]);
        }
    }
}
