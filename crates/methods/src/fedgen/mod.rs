//! FedGen: Zhu, Hong, Zhou, "Data-Free Knowledge Distillation for Heterogeneous Federated Learning", ICML 2021,
//! arXiv:2105.10056, with the losses of the authors' code.
//!
//!   the server, after each round, trains a small generator G of features on the heads h_k of the uploads:
//!     min_G  sum_k mean_b( a_{y,k} * CE(h_k(G(y, eps)), y) )
//!            + eta * exp( -mean_{a,b} mean((eps_a - eps_b)^2) * mean(|z_a - z_b|) ),   z = G(y, eps),
//!     a_{y,k} the share of client k in the round's samples of class y, eps uniform in [0, 1)
//!   a client, from round 2 on:
//!     min_w  F_k(w) + alpha_t * B'/B * CE(h(G(y', eps)), y') + beta_t * KL( softmax(h(G(y, eps))) || softmax(f(w, x)) ),
//!     alpha_t = alpha * decay^t and beta_t = beta * decay^t, y' uniform over the classes of the federation
//!
//! What all heads agree to be a feature of a class stands for the data that a client does not have, and no sample
//! leaves anybody for it.
//!
//! Clients send how many samples of each class they hold; the server sends the generator, and for each class whether it
//! has been trained on it.
//!
//! Deviations:
//! - The server's loss weighs one loss per head, as in the authors' code; the paper takes the loss of the mean logits.
//! - Counts are the true ones of the client's samples. The code of Yao et al. (FedGKD) never updates them, so every
//!   client counts the same there; it also drops the KL term, which is `beta = 0` here.
//! - Classes that no client of any round has reported are never drawn; the generator has not seen them.
//! - The coefficients start at 0.1 each, the value of Yao et al. for CIFAR-10; the authors start at 10 on MNIST.

mod generator;

use fedelity_fl::rng::{SERVER, below};
use fedelity_fl::{
    Error, Gather, Local, Method, Needs, Outbox, Payload, Purpose, Result, Server, Step, Terms, Trained, Upload, stream,
};
use fedelity_nn::loss::{self, Kl};
use fedelity_nn::{Model, Params, elementwise};
use serde::{Deserialize, Serialize};

use self::generator::{Generator, Shape, diversity};
use crate::error::Range;
use crate::registry::{AtZero, Entry, Hyper, Identity, Parameter};

/// The last local epoch, counted from 1, in which the generator teaches. As in the authors' code.
const TEACHING_EPOCHS: usize = 20;
/// A coefficient does not decay below this. As in the authors' code.
const LEAST: f64 = 1e-4;
/// Factor on the generator's learning rate from one round to the next, and Adam's constants. As in the authors' code.
const LR_DECAY: f64 = 0.98;
const BETAS: (f32, f32) = (0.9, 0.999);
const EPS: f32 = 1e-8;

/// What random numbers are for.
const FRESH: Purpose = Purpose::Method(1);
const TRAINING: Purpose = Purpose::Method(2);

/// FedGen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct FedGen {
    /// alpha, 0 or more: the first factor on the cross-entropy of generated features. The authors take 10 on MNIST,
    /// Yao et al. 0.1 on CIFAR-10 and 1 on CIFAR-100. 0 leaves the term out.
    pub alpha: f64,
    /// beta, 0 or more: the first factor on the KL divergence from the answers to generated features. The authors take
    /// 10 on MNIST and 1 on EMNIST. 0 leaves the term out; with alpha = 0 as well this is FedAvg.
    pub beta: f64,
    /// Factor on alpha and beta from one round to the next, above 0 and at most 1. The authors take 0.98.
    pub decay: f64,
    /// eta, 0 or more: the factor on the diversity of generated features. The authors take 1. At 0 the noise may lose
    /// its meaning.
    pub diversity: f64,
    /// B', 2 or more: generated features a step. The authors take 32.
    pub batch: usize,
    /// Hidden units of the generator, 1 or more. The authors take 256 on MNIST and 512 on CIFAR.
    pub hidden: usize,
    /// Width of the noise, 1 or more. The authors take 32 on MNIST and 64 on CIFAR.
    pub noise: usize,
    /// Steps of the generator a round, 0 or more. The authors take 50. 0 keeps it random.
    pub iterations: usize,
    /// The generator's learning rate in the first round, 0 or more. The authors take 0.0001, on MNIST 0.0003.
    pub lr: f64,
    /// The generator's weight decay, 0 or more. The authors take 0.01.
    pub weight_decay: f64,
}

impl Default for FedGen {
    fn default() -> Self {
        Self {
            alpha: 0.1,
            beta: 0.1,
            decay: 0.98,
            diversity: 1.0,
            batch: 32,
            hidden: 256,
            noise: 32,
            iterations: 50,
            lr: 1e-4,
            weight_decay: 1e-2,
        }
    }
}

impl FedGen {
    fn on(&self) -> bool {
        self.alpha != 0.0 || self.beta != 0.0
    }

    fn shape(&self, model: &Model) -> Shape {
        Shape { classes: model.classes(), noise: self.noise, hidden: self.hidden, features: model.features() }
    }

    /// A coefficient in a round.
    fn in_round(&self, coefficient: f64, round: usize) -> f32 {
        if coefficient == 0.0 {
            return 0.0;
        }
        (coefficient * self.decay.powf(round as f64)).max(LEAST) as f32
    }

    /// Trains the generator on the heads of this round's uploads.
    fn train_generator(&self, server: &Server<'_>, state: &mut Payload, uploads: &[Upload]) -> Result<()> {
        let (model, classes, shape) = (server.model, server.model.classes(), self.shape(server.model));
        let mut totals = vec![0.0; classes];
        for upload in uploads {
            let counts = upload.extra.get_sized("label-counts", classes)?;
            totals.iter_mut().zip(counts.iter()).for_each(|(total, count)| *total += count);
        }
        let present: Vec<u16> = (0..classes as u16).filter(|&y| totals[usize::from(y)] > 0.0).collect();
        if present.is_empty() {
            return Ok(());
        }
        let trained = state.slot("labels", classes);
        present.iter().for_each(|&y| trained[usize::from(y)] = 1.0);

        let mut params = state.get_sized("generator", shape.len())?.to_vec();
        let mut first = state.get_sized("adam-first", shape.trainable())?.to_vec();
        let mut second = state.get_sized("adam-second", shape.trainable())?.to_vec();
        let before = state.get_sized("adam-steps", 1)?[0] as usize;
        let lr = (self.lr * LR_DECAY.powf(server.round as f64)) as f32;
        let mut rng = stream(server.seed, TRAINING, server.round as u64, SERVER, 0);
        let mut generator = Generator::new(shape);
        let mut grad = vec![0.0; shape.trainable()];
        let mut d_z = vec![0.0; self.batch * shape.features];
        let (mut logits, mut d_logits) = (vec![0.0; self.batch * classes], vec![0.0; self.batch * classes]);
        let mut shares = Vec::with_capacity(self.batch);
        for iteration in 0..self.iterations {
            generator.labels.clear();
            generator.labels.extend((0..self.batch).map(|_| present[below(&mut rng, present.len() as u32) as usize]));
            generator.draw_noise(|| uniform(below(&mut rng, STEPS)));
            generator.train(&mut params);
            d_z.fill(0.0);
            let mut loss = diversity(&generator.noise, &generator.z, self.batch, self.diversity as f32, &mut d_z);
            for upload in uploads {
                let counts = upload.extra.get_sized("label-counts", classes)?;
                let share = |&y: &u16| counts[usize::from(y)] / totals[usize::from(y)];
                shares.clear();
                shares.extend(generator.labels.iter().map(share));
                d_logits.fill(0.0);
                model.head_forward(&upload.params, &generator.z, &mut logits);
                loss += loss::weighted_cross_entropy(&logits, &generator.labels, classes, &shares, &mut d_logits);
                model.head_backward(&upload.params, &generator.z, &d_logits, Some(&mut d_z), None);
            }
            let step = iteration + 1;
            if !loss.is_finite() {
                return Err(Error::ServerDiverged { round: server.round + 1, epoch: 1, step, loss });
            }
            grad.fill(0.0);
            generator.backward(&params, &d_z, &mut grad);
            let (w, t) = (&mut params[..shape.trainable()], i32::try_from(before + step).unwrap_or(i32::MAX));
            let decay = self.weight_decay as f32;
            elementwise::adam_step(model.isa(), w, &mut first, &mut second, &grad, lr, BETAS, EPS, decay, t);
        }
        state.put("generator", params);
        state.put("adam-first", first);
        state.put("adam-second", second);
        state.put("adam-steps", vec![(before + self.iterations) as f32]);
        Ok(())
    }
}

/// How many different numbers noise can be.
const STEPS: u32 = 1 << 24;

/// A number in [0, 1).
fn uniform(drawn: u32) -> f32 {
    drawn as f32 / STEPS as f32
}

/// What a client needs to generate features.
#[derive(Debug)]
struct Synthesis {
    generator: Generator,
    /// The classes that the generator has been trained on.
    classes: Vec<u16>,
    logits: Vec<f32>,
}

impl Method for FedGen {
    fn name(&self) -> &'static str {
        "fedgen"
    }

    fn needs(&self) -> Needs {
        Needs { each_upload: self.on(), label_counts_leave_client: self.on(), ..Needs::default() }
    }

    fn init(&self, server: &mut Server<'_>, _: &Params) -> Result<Payload> {
        if !self.on() {
            return Ok(Payload::new());
        }
        let shape = self.shape(server.model);
        let mut rng = stream(server.seed, FRESH, 0, SERVER, 0);
        Ok(Payload::new()
            .with("generator", shape.init(|| uniform(below(&mut rng, STEPS))))
            .with("adam-first", vec![0.0; shape.trainable()])
            .with("adam-second", vec![0.0; shape.trainable()])
            .with("adam-steps", vec![0.0]))
    }

    fn prepare(&self, _: &mut Server<'_>, state: &mut Payload, _: &Params) -> Result<Payload> {
        match state.opt("labels") {
            Some(labels) => {
                Ok(Payload::new().with("labels", labels.clone()).with("generator", state.get("generator")?.clone()))
            }
            None => Ok(Payload::new()),
        }
    }

    fn loss(&self, local: &mut Local<'_>, step: &mut Step<'_>) -> Result<Terms> {
        let classes = step.classes;
        let ce = loss::cross_entropy(step.student.logits, step.labels, classes, 1.0, step.d_logits);
        let terms = Terms::of("ce", ce);
        if local.down.opt("generator").is_none() || step.epoch >= TEACHING_EPOCHS {
            return Ok(terms);
        }
        let (alpha, beta) = (self.in_round(self.alpha, local.round), self.in_round(self.beta, local.round));
        let shape = self.shape(local.model);
        let params = local.down.get_sized("generator", shape.len())?;
        let trained = local.down.get_sized("labels", classes)?;
        let Synthesis { generator, classes: present, logits } = local.scratch.typed(|| Synthesis {
            generator: Generator::new(shape),
            classes: (0..classes as u16).filter(|&y| trained[usize::from(y)] > 0.0).collect(),
            logits: Vec::new(),
        });
        let mut terms = terms;
        if beta != 0.0 {
            generator.labels.clear();
            generator.labels.extend_from_slice(step.labels);
            generator.draw_noise(|| uniform(below(step.rng, STEPS)));
            generator.generate(params);
            logits.resize(step.labels.len() * classes, 0.0);
            step.student_head_values(&generator.z, logits);
            let how = Kl { weight: beta, ..Kl::default() };
            terms = terms.with("latent", loss::kl(step.student.logits, logits, classes, &how, step.d_logits));
        }
        if alpha != 0.0 && !present.is_empty() {
            generator.labels.clear();
            generator.labels.extend((0..self.batch).map(|_| present[below(step.rng, present.len() as u32) as usize]));
            generator.draw_noise(|| uniform(below(step.rng, STEPS)));
            generator.generate(params);
            let weight = alpha * self.batch as f32 / local.training.batch as f32;
            let labels = &generator.labels;
            let teach = |z: &[f32], d_z: &mut [f32]| loss::cross_entropy(z, labels, classes, weight, d_z);
            terms = terms.with("generated", step.student_head(&generator.z, teach));
        }
        Ok(terms)
    }

    fn finish(&self, local: &mut Local<'_>, _: &mut Trained<'_>) -> Result<Outbox> {
        if !self.on() {
            return Ok(Outbox::default());
        }
        let counts: Vec<f32> = local.counts.iter().map(|&count| count as f32).collect();
        Ok(Outbox { upload: Payload::new().with("label-counts", counts), memory: Payload::new() })
    }

    fn conclude(
        &self,
        server: &mut Server<'_>,
        state: &mut Payload,
        _: &Params,
        gather: &mut Gather,
    ) -> Result<Params> {
        if self.on() {
            self.train_generator(server, state, &gather.uploads)?;
        }
        gather.mean.finish()
    }
}

impl Hyper for FedGen {
    const ENTRY: Entry = Entry::new::<Self>(
        "fedgen",
        "A small generator, trained on all heads, gives clients features of the classes they lack.",
        "Zhu et al., ICML 2021, arXiv:2105.10056",
        "L = CE + alpha * CE(h(G(y')), y') + beta * KL(softmax(h(G(y))) || softmax(z)), alpha and beta * decay^t",
        Identity::KeysAtZero,
        PARAMETERS,
    );

    fn check(&self) -> Result<(), Range> {
        let not_negative = [
            ("alpha", self.alpha),
            ("beta", self.beta),
            ("diversity", self.diversity),
            ("lr", self.lr),
            ("weight-decay", self.weight_decay),
        ];
        for (key, value) in not_negative {
            Range::check(key, value, value.is_finite() && value >= 0.0, "a finite number 0 or more")?;
        }
        Range::check("decay", self.decay, self.decay > 0.0 && self.decay <= 1.0, "above 0 and at most 1")?;
        Range::check("batch", self.batch, self.batch >= 2, "2 or more")?;
        Range::check("hidden", self.hidden, self.hidden >= 1, "1 or more")?;
        Range::check("noise", self.noise, self.noise >= 1, "1 or more")
    }
}

/// What people read about the keys.
const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "alpha",
        symbol: "alpha",
        summary: "first factor on the cross-entropy of generated features",
        default: "0.1",
        range: "0 or more",
        paper: "10 (MNIST); 0.1 and 1 on CIFAR-10 and CIFAR-100 in the FedGKD paper",
        at_zero: AtZero::FedAvg,
    },
    Parameter {
        name: "beta",
        symbol: "beta",
        summary: "first factor on the KL divergence from the answers to generated features",
        default: "0.1",
        range: "0 or more",
        paper: "10 (MNIST), 1 (EMNIST); 0 in the code of the FedGKD paper",
        at_zero: AtZero::FedAvg,
    },
    Parameter {
        name: "decay",
        symbol: "",
        summary: "factor on alpha and beta from one round to the next",
        default: "0.98",
        range: "above 0 and at most 1",
        paper: "0.98",
        at_zero: AtZero::Refused,
    },
    Parameter {
        name: "diversity",
        symbol: "eta",
        summary: "factor on the diversity of generated features",
        default: "1.0",
        range: "0 or more",
        paper: "1",
        at_zero: AtZero::Does("the generator may ignore its noise"),
    },
    Parameter {
        name: "batch",
        symbol: "B'",
        summary: "generated features a step",
        default: "32",
        range: "2 or more",
        paper: "32",
        at_zero: AtZero::Refused,
    },
    Parameter {
        name: "hidden",
        symbol: "",
        summary: "hidden units of the generator",
        default: "256",
        range: "1 or more",
        paper: "256 (MNIST), 512 (CIFAR)",
        at_zero: AtZero::Refused,
    },
    Parameter {
        name: "noise",
        symbol: "",
        summary: "width of the generator's noise",
        default: "32",
        range: "1 or more",
        paper: "32 (MNIST), 64 (CIFAR)",
        at_zero: AtZero::Refused,
    },
    Parameter {
        name: "iterations",
        symbol: "",
        summary: "steps of the generator a round, on the server",
        default: "50",
        range: "0 or more",
        paper: "50",
        at_zero: AtZero::Does("the generator stays random"),
    },
    Parameter {
        name: "lr",
        symbol: "",
        summary: "the generator's learning rate in the first round; it decays by 0.98 a round",
        default: "0.0001",
        range: "0 or more",
        paper: "0.0001, 0.0003 (MNIST)",
        at_zero: AtZero::Does("the generator stays random"),
    },
    Parameter {
        name: "weight-decay",
        symbol: "",
        summary: "the generator's weight decay",
        default: "0.01",
        range: "0 or more",
        paper: "0.01",
        at_zero: AtZero::Does("no decay"),
    },
];

#[cfg(test)]
mod tests {
    use fedelity_fl::{Trainer, Training};

    use super::*;
    use crate::trial;

    /// What the heads of the uploads make of generated features: the server's loss without the diversity.
    fn surprise(method: &FedGen, model: &Model, state: &Payload, uploads: &[Upload]) -> f32 {
        let mut generator = Generator::new(method.shape(model));
        generator.labels.extend((0..200).map(|i| i % 3));
        let mut rng = stream(1, TRAINING, 9, 9, 9);
        generator.draw_noise(|| uniform(below(&mut rng, STEPS)));
        generator.generate(state.get("generator").unwrap());
        let mut logits = vec![0.0; 200 * model.classes()];
        let mut of = |upload: &Upload| {
            model.head_forward(&upload.params, &generator.z, &mut logits);
            let d_logits = &mut vec![0.0; logits.len()];
            loss::cross_entropy(&logits, &generator.labels, model.classes(), 1.0, d_logits)
        };
        uploads.iter().map(&mut of).sum::<f32>() / uploads.len() as f32
    }

    #[test]
    fn the_generator_learns_what_the_heads_agree_on() {
        let method = FedGen { hidden: 24, noise: 4, lr: 1e-2, iterations: 100, ..FedGen::default() };
        let model = trial::model(false);
        // Two heads that differ a little; nobody holds class 3, and only the first client class 0.
        let upload = |seed: u64, counts: [f32; 4]| {
            let params = model.init(&mut stream(seed, Purpose::Init, 0, 0, 0)).0;
            trial::upload(9, params, Payload::new().with("label-counts", counts.to_vec()))
        };
        let uploads = [upload(1, [5.0, 2.0, 2.0, 0.0]), upload(2, [0.0, 8.0, 1.0, 0.0])];
        let training = Training::default();
        let mut trainer = Trainer::new(model.clone());
        let mut server = Server {
            model: &model,
            training: &training,
            clients: 2,
            round: 0,
            seed: 4,
            auxiliary: None,
            validation: None,
            unlabelled: None,
            trainer: &mut trainer,
        };
        let mut state = method.init(&mut server, &uploads[0].params).unwrap();
        let before = surprise(&method, &model, &state, &uploads[..1]);
        for _ in 0..3 {
            method.train_generator(&server, &mut state, &uploads).unwrap();
        }
        let after = surprise(&method, &model, &state, &uploads[..1]);
        assert!(after < 0.5 * before, "{before} to {after}");
        assert_eq!(state.get("labels").unwrap()[..], [1.0, 1.0, 1.0, 0.0]);
        // Nobody holds anything: nothing to learn, nothing changes.
        let idle = [upload(1, [0.0; 4])];
        let kept = state.clone();
        method.train_generator(&server, &mut state, &idle).unwrap();
        assert_eq!(state, kept);
    }

    #[test]
    fn coefficients_decay_to_a_floor_and_0_stays_0() {
        let method = FedGen::default();
        assert_eq!(method.in_round(0.0, 3), 0.0);
        assert_eq!(method.in_round(10.0, 0), 10.0);
        assert_eq!(method.in_round(10.0, 2), 9.604);
        assert_eq!(method.in_round(10.0, 100_000), 1e-4);
    }
}
