//! SCAFFOLD: Karimireddy, Kale, Mohri, Reddi, Stich, Suresh, "SCAFFOLD: Stochastic Controlled Averaging for Federated
//! Learning", ICML 2020, arXiv:1910.06378, Algorithm 1 with option II and eta_g = 1.
//!
//!   each step of client i:   y <- y - eta * (g_i(y) - c_i + c)
//!   after K steps:           c_i+ = c_i - c + (w^t - y) / (K * eta)
//!   the server:              w^{t+1} = mean of y,   c <- c + 1/N * sum_{i in S} (c_i+ - c_i)
//!
//! c_i is the direction a client took last time, c the direction all took: their difference removes the client's own
//! drift from every step. Both start at zero, so the first round is FedAvg.
//!
//! The step is a gradient step on g_i's loss plus <c - c_i, y - w^t>; that term is recorded.
//!
//! Deviations: the correction is added to the gradient, before momentum, and K is the number of plain steps that K
//! steps with momentum are worth (FedNova's a_i; K itself without momentum), as FedNTD's code pairs them: with momentum
//! rho the distance is about 1 / (1 - rho) times longer than K * eta gradients. The mean of y uses the federation's
//! weighting, by size by default; the paper's is uniform. Only trainable parameters are corrected. Before the first c
//! exists, nothing is sent or added. The rule is for SGD; other optimisers are refused, because the distance is then
//! not a multiple of a gradient.

use fedelity_fl::{
    Extra, FlError, Gather, Local, Method, Named, Needs, Outbox, Payload, Received, Result, Server, Terms, Trained,
};
use fedelity_keys::method;
use fedelity_nn::{Layout, Model, OptimizerKind, Params};

use crate::{steps, trainable};

/// The server's control variate c, and a client's c_i in its memory: trainable parameters, packed.
const CONTROL: &str = "control";
/// In an upload: c_i+ - c_i.
const CHANGE: &str = "control-change";

/// Correct every local step by how far the client's steps differ from the average.
#[method(
    id = "scaffold",
    title = "SCAFFOLD",
    reference = "Karimireddy et al., ICML 2020, arXiv:1910.06378",
    equation = "y <- y - eta * (g_i(y) - c_i + c)",
    helps = "With moderate skew: 66.2 % against FedAvg's 62.5 % on CIFAR-10 at Dirichlet 0.5 with 100 clients. With \
             strong skew it does harm: 23.1 % against 46.5 % at 0.1, and 10 %, as guessing gives, at 0.05 (FedNTD, \
             Table 1).",
    identity = FirstRound
)]
pub struct Scaffold {}

impl Method for Scaffold {
    fn needs(&self) -> Needs {
        Needs { client_memory: true, ..Needs::default() }
    }

    fn init(&self, server: &mut Server<'_>) -> Result<Payload> {
        match server.training.optimizer {
            OptimizerKind::Sgd { .. } => Ok(Payload::new()),
            OptimizerKind::Adam { .. } => {
                let reason = "its control variates need SGD on clients, not Adam".to_string();
                Err(FlError::Method { method: self.name(), reason })
            }
        }
    }

    fn sends(&self, model: &Model) -> Vec<Extra> {
        vec![Extra::sometimes(CHANGE, model.layout().trainable_len())]
    }

    fn receives(&self, model: &Model) -> Vec<Extra> {
        vec![Extra::sometimes(CONTROL, model.layout().trainable_len())]
    }

    fn prepare(&self, server: &mut Server<'_>) -> Result<Payload> {
        Ok(server.state.opt(CONTROL).map_or_else(Payload::new, |c| Payload::new().with(CONTROL, c.clone())))
    }

    fn adjust(&self, local: &mut Local<'_>, y: &[f32], grad: &mut [f32]) -> Result<Terms> {
        let layout = local.model.layout();
        let (c, c_i) = (control(local.down, layout)?, control(local.memory, layout)?);
        if c.is_none() && c_i.is_none() {
            return Ok(Terms::default());
        }
        let correction = local.scratch.typed(|| difference(layout.trainable_len(), c, c_i));
        let along = trainable::penalty(layout, grad, y, local.global, [correction], |grad, y, start, [c]| {
            *grad += c;
            c * (y - start)
        });
        Ok(Terms::of("control", along as f32))
    }

    fn finish(&self, local: &mut Local<'_>, done: &mut Trained<'_>) -> Result<Outbox> {
        let way = steps::taken(local, done) * f64::from(local.lr);
        if way <= 0.0 {
            // It did not move: this says nothing about its gradients.
            return Ok(Outbox::unchanged(local));
        }
        let layout = local.model.layout();
        let (c, c_i) = (control(local.down, layout)?, control(local.memory, layout)?);
        let (global, y) = (trainable::pack(layout, local.global), trainable::pack(layout, done.params));
        let new = client_control(&global, &y, c, c_i, way);
        let change = difference(new.len(), Some(&new), c_i);
        Ok(Outbox { upload: Payload::new().with(CHANGE, change), memory: Payload::new().with(CONTROL, new) })
    }

    fn collect(&self, _: &mut Server<'_>, gather: &mut Gather, upload: &Received) -> Result<()> {
        if let Some(change) = upload.extra.opt(CHANGE) {
            gather.also(CHANGE).add(1.0, change)?;
        }
        gather.mean.add(upload.weight, &upload.params)
    }

    fn conclude(&self, server: &mut Server<'_>, gather: &mut Gather, state: &mut Payload) -> Result<Params> {
        let changes = gather.also(CHANGE);
        if changes.added() > 0 {
            let c = state.slot(CONTROL, changes.sums().len());
            for (c, change) in c.iter_mut().zip(changes.sums()) {
                *c = (f64::from(*c) + change / server.clients as f64) as f32;
            }
        }
        gather.mean.finish()
    }
}

/// A control variate, if there is one yet.
fn control<'a>(payload: &'a Payload, layout: &Layout) -> Result<Option<&'a [f32]>> {
    let there = payload.opt(CONTROL).map(|_| payload.get_sized(CONTROL, layout.trainable_len()));
    Ok(there.transpose()?.map(|c| &c[..]))
}

/// c - c_i, where a missing one is zero.
fn difference(len: usize, c: Option<&[f32]>, c_i: Option<&[f32]>) -> Vec<f32> {
    let mut out = c.map_or_else(|| vec![0.0; len], <[f32]>::to_vec);
    if let Some(c_i) = c_i {
        out.iter_mut().zip(c_i).for_each(|(out, c_i)| *out -= c_i);
    }
    out
}

/// Option II: c_i - c + (w^t - y) / way, with way = K * eta.
fn client_control(global: &[f32], y: &[f32], c: Option<&[f32]>, c_i: Option<&[f32]>, way: f64) -> Vec<f32> {
    let correction = difference(global.len(), c, c_i);
    let each = global.iter().zip(y).zip(correction);
    each.map(|((w, y), correction)| ((f64::from(*w) - f64::from(*y)) / way - f64::from(correction)) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FedAvg;
    use crate::trial::{self, close, numbers};

    #[test]
    fn golden_scaffold_client_control() {
        let cases = trial::rules("scaffold-client-control");
        assert_eq!(cases.len(), 2);
        for case in cases {
            let get = |name: &str| numbers(&case["inputs"][name]);
            let number = |name: &str| case["inputs"][name].as_f64().unwrap();
            let way = steps::effective(number("steps") as usize, number("momentum")) * number("lr");
            let (c, c_i) = (get("server_control"), get("client_control"));
            let found = client_control(&get("global"), &get("local"), Some(&c), Some(&c_i), way);
            close(&found, &case["expect"]["client_control"], 1e-6);
        }
    }

    #[test]
    fn golden_scaffold_server_control() {
        for case in trial::rules("scaffold-server-control") {
            let inputs = &case["inputs"];
            let rows = |name: &str| inputs[name].as_array().unwrap().iter().map(numbers).collect::<Vec<_>>();
            let uploads = rows("new").into_iter().zip(rows("old")).map(|(new, old)| {
                let change: Vec<f32> = new.iter().zip(&old).map(|(new, old)| new - old).collect();
                trial::upload(5, vec![0.0; 6], Payload::new().with(CHANGE, change))
            });
            let clients = inputs["clients_total"].as_u64().unwrap() as usize;
            let state = Payload::new().with(CONTROL, numbers(&inputs["server_control"]));
            let coordinator = trial::serve_among(clients, Scaffold {}, &[0.0; 6], state, uploads);
            close(coordinator.state().get(CONTROL).unwrap(), &case["expect"]["server_control"], 1e-6);
        }
    }

    #[test]
    fn the_servers_control_is_the_mean_of_the_clients() {
        let run = trial::TrialRun { rounds: 3, ..trial::TrialRun::default() };
        let (coordinator, memories) = run.finish(Scaffold {});
        let c = coordinator.state().get(CONTROL).unwrap();
        for (k, c) in c.iter().enumerate() {
            let mean: f32 = memories.values().map(|memory| memory.opt(CONTROL).map_or(0.0, |c_i| c_i[k])).sum();
            let mean = mean / run.sizes.len() as f32;
            assert!((c - mean).abs() <= 1e-5 * (1.0 + c.abs()), "{c} {mean}");
        }
    }

    #[test]
    fn one_client_alone_is_fedavg() {
        // With N = 1, c equals c_i and every correction is exactly zero.
        let alone = trial::TrialRun { sizes: &[40], per_round: 1, ..trial::TrialRun::default() };
        let (found, plain) = (alone.global(Scaffold {}), alone.global(FedAvg {}));
        assert!(found.iter().zip(plain.iter()).all(|(found, plain)| (found - plain).abs() < 1e-5));
    }

    #[test]
    fn adam_is_refused() {
        let run = trial::TrialRun { adam: true, ..trial::TrialRun::default() };
        let error = run.start(Scaffold {}).unwrap_err().to_string();
        assert_eq!(error, "the method 'scaffold': its control variates need SGD on clients, not Adam");
    }

    #[test]
    fn what_travels() {
        let (p, run) =
            (trial::model(true).layout().len(), trial::TrialRun { batch_norm: true, ..trial::TrialRun::default() });
        let trainable = trial::model(true).layout().trainable_len();
        let traffic = run.traffic(Scaffold {});
        assert_eq!(traffic[0], (4 * p, 4 * (p + trainable)));
        assert_eq!(traffic[1], (4 * (p + trainable), 4 * (p + trainable)));
    }
}
