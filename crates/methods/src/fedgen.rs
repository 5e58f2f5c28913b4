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
//! Features on which all heads agree stand in for the data that a client lacks, and no sample leaves any client.
//!
//! Clients send how many samples of each class they hold; the server sends the generator and, per class, whether the
//! generator has been trained on it.
//!
//! Deviations:
//! - The server's loss weights one loss per head, as in the authors' code; the paper takes the loss of the mean logits.
//! - Counts are the true ones of the client's samples. The code of Yao et al. (FedGKD) never updates them, so all
//!   clients count the same there; it also drops the KL term, which is `beta = 0` here.
//! - Classes that no client has reported in any round are never drawn; the generator has not seen them.
//! - The coefficients start at 0.1 each, the value of Yao et al. for CIFAR-10; the authors start at 10 on MNIST.

use fedelity_fl::rng::{SERVER, below};
use fedelity_fl::{
    Extra, FlError, Gather, Local, Method, Needs, Outbox, Payload, Purpose, Received, Result, Server, Step, Terms,
    Trained, stream,
};
use fedelity_keys::method;
use fedelity_nn::loss::{self, Kl};
use fedelity_nn::{AdamStep, Model, Params};

use crate::generator::{Generator, GeneratorShape, diversity};

/// The last local epoch, counted from 1, in which the generator teaches. From the authors' code.
const TEACHING_EPOCHS: usize = 20;
/// Lower bound of a decaying coefficient. From the authors' code.
const LEAST: f64 = 1e-4;
/// Per-round decay of the generator's learning rate, and Adam's constants. From the authors' code.
const LR_DECAY: f64 = 0.98;
const BETAS: (f32, f32) = (0.9, 0.999);
const EPS: f32 = 1e-8;

/// Purposes of the random streams.
const FRESH: Purpose = Purpose::Method(1);
const TRAINING: Purpose = Purpose::Method(2);

/// Train a small generator on all heads to give clients features of the classes they lack.
#[method(
    id = "fedgen",
    title = "FedGen",
    reference = "Zhu et al., ICML 2021, arXiv:2105.10056",
    equation = "L = CE + alpha * CE(h(G(y')), y') + beta * KL(softmax(h(G(y))) || softmax(z)), alpha and beta * decay^t",
    helps = "Rarely, according to FedGKD, Table 3: on CIFAR-10 at Dirichlet 0.1 it equals FedAvg (69.2 %), on \
             CIFAR-100 it is below (33.1 % against 34.9 %), and on Tiny-ImageNet above (32.8 % against 29.0 %)."
)]
pub struct FedGen {
    /// Initial factor on the cross-entropy of generated features.
    #[key(default = 0.1, min = 0, zero = fedavg)]
    #[key(paper = "10 (MNIST); 0.1 and 1 on CIFAR-10 and CIFAR-100 in the FedGKD paper")]
    pub alpha: f64,
    /// Initial factor on the KL divergence from the outputs for generated features.
    #[key(default = 0.1, min = 0, paper = "10 (MNIST), 1 (EMNIST); 0 in the code of the FedGKD paper", zero = fedavg)]
    pub beta: f64,
    /// Factor applied to alpha and beta after each round.
    #[key(default = 0.98, above = 0, max = 1, paper = "0.98")]
    pub decay: f64,
    /// Factor on the diversity of generated features.
    #[key(symbol = "eta", default = 1.0, min = 0, paper = "1", zero = "the generator may ignore its noise")]
    pub diversity: f64,
    /// Generated features per step.
    #[key(symbol = "B'", default = 32, min = 2, paper = "32")]
    pub batch: usize,
    /// Hidden units of the generator.
    #[key(default = 256, min = 1, paper = "256 (MNIST), 512 (CIFAR)")]
    pub hidden: usize,
    /// Width of the generator's noise.
    #[key(default = 32, min = 1, paper = "32 (MNIST), 64 (CIFAR)")]
    pub noise: usize,
    /// Training steps of the generator per round, on the server.
    #[key(default = 50, min = 0, paper = "50", zero = "the generator stays random")]
    pub iterations: usize,
    /// The generator's learning rate in the first round. It decays by a factor of 0.98 per round.
    #[key(default = 0.0001, min = 0, paper = "0.0001, 0.0003 (MNIST)", zero = "the generator stays random")]
    pub lr: f64,
    /// The generator's weight decay.
    #[key(default = 0.01, min = 0, paper = "0.01", zero = "no decay")]
    pub weight_decay: f64,
}

impl FedGen {
    fn shape(&self, model: &Model) -> GeneratorShape {
        GeneratorShape { classes: model.classes(), noise: self.noise, hidden: self.hidden, features: model.features() }
    }

    /// A coefficient's value in a round.
    fn in_round(&self, coefficient: f64, round: usize) -> f32 {
        if coefficient == 0.0 {
            return 0.0;
        }
        (coefficient * libm::pow(self.decay, round as f64)).max(LEAST) as f32
    }

    /// Trains the generator on the heads of this round's uploads.
    fn train_generator(&self, server: &Server<'_>, state: &mut Payload, uploads: &[Received]) -> Result<()> {
        let (model, classes, shape) = (server.model, server.model.classes(), self.shape(server.model));
        let mut totals = vec![0.0; classes];
        for upload in uploads {
            let counts = upload.extra.get_sized("label-counts", classes)?;
            totals.iter_mut().zip(counts.iter()).for_each(|(total, count)| *total += count);
        }
        let present = positive(&totals);
        if present.is_empty() {
            return Ok(());
        }
        let trained = state.slot("labels", classes);
        present.iter().for_each(|&y| trained[usize::from(y)] = 1.0);

        let mut params = state.get_sized("generator", shape.len())?.to_vec();
        let mut first = state.get_sized("adam-first", shape.trainable())?.to_vec();
        let mut second = state.get_sized("adam-second", shape.trainable())?.to_vec();
        let before = state.get_sized("adam-steps", 1)?[0] as usize;
        let lr = (self.lr * libm::pow(LR_DECAY, server.round as f64)) as f32;
        let mut rng = stream(server.seed, TRAINING, server.round as u64, SERVER, 0);
        let mut generator = Generator::new(shape);
        let mut grad = vec![0.0; shape.trainable()];
        let mut d_z = vec![0.0; self.batch * shape.features];
        let (mut logits, mut d_logits) = (vec![0.0; self.batch * classes], vec![0.0; self.batch * classes]);
        let mut shares = Vec::with_capacity(self.batch);
        for iteration in 0..self.iterations {
            generator.draw(self.batch, &present, |bound| below(&mut rng, bound));
            generator.train(&mut params);
            d_z.fill(0.0);
            let mut loss = diversity(&generator.noise, &generator.z, self.batch, self.diversity as f32, &mut d_z);
            for upload in uploads {
                let counts = upload.extra.get_sized("label-counts", classes)?;
                shares.clear();
                shares.extend(generator.labels.iter().map(|&y| counts[usize::from(y)] / totals[usize::from(y)]));
                d_logits.fill(0.0);
                model.head_forward(&upload.params, &generator.z, &mut logits);
                loss += loss::weighted_cross_entropy(&logits, &generator.labels, classes, &shares, &mut d_logits);
                model.head_backward(&upload.params, &generator.z, &d_logits, Some(&mut d_z), None);
            }
            let step = iteration + 1;
            if !loss.is_finite() {
                return Err(FlError::ServerDiverged { round: server.round + 1, epoch: 1, step, loss });
            }
            grad.fill(0.0);
            generator.backward(&params, &d_z, &mut grad);
            let (w, t) = (&mut params[..shape.trainable()], i32::try_from(before + step).unwrap_or(i32::MAX));
            let (m, v, g, weight_decay) = (&mut first[..], &mut second[..], &grad[..], self.weight_decay as f32);
            model.engine().adam(AdamStep { w, m, v, g, lr, betas: BETAS, eps: EPS, weight_decay, t });
        }
        state.put("generator", params);
        state.put("adam-first", first);
        state.put("adam-second", second);
        state.put("adam-steps", vec![(before + self.iterations) as f32]);
        Ok(())
    }
}

/// The classes with a value above 0.
fn positive(by_class: &[f32]) -> Vec<u16> {
    (0..by_class.len() as u16).filter(|&y| by_class[usize::from(y)] > 0.0).collect()
}

impl Method for FedGen {
    fn needs(&self) -> Needs {
        Needs { each_upload: true, label_counts_leave_client: true, ..Needs::default() }
    }

    fn init(&self, server: &mut Server<'_>) -> Result<Payload> {
        let shape = self.shape(server.model);
        let mut rng = stream(server.seed, FRESH, 0, SERVER, 0);
        Ok(Payload::new()
            .with("generator", shape.init(|bound| below(&mut rng, bound)))
            .with("adam-first", vec![0.0; shape.trainable()])
            .with("adam-second", vec![0.0; shape.trainable()])
            .with("adam-steps", vec![0.0]))
    }

    fn sends(&self, model: &Model) -> Vec<Extra> {
        vec![Extra::always("label-counts", model.classes())]
    }

    fn receives(&self, model: &Model) -> Vec<Extra> {
        let generator = Extra::sometimes("generator", self.shape(model).len());
        vec![generator, Extra::sometimes("labels", model.classes())]
    }

    fn prepare(&self, server: &mut Server<'_>) -> Result<Payload> {
        let Some(labels) = server.state.opt("labels") else { return Ok(Payload::new()) };
        Ok(Payload::new().with("labels", labels.clone()).with("generator", server.state.get("generator")?.clone()))
    }

    fn loss(&self, local: &mut Local<'_>, step: &mut Step<'_>) -> Result<Terms> {
        let mut terms = step.cross_entropy();
        if local.down.opt("generator").is_none() || step.epoch >= TEACHING_EPOCHS {
            return Ok(terms);
        }
        let (classes, shape) = (step.classes, self.shape(local.model));
        let params = local.down.get_sized("generator", shape.len())?;
        let trained = local.down.get_sized("labels", classes)?;
        let (generator, present, logits) =
            local.scratch.typed(|| (Generator::new(shape), positive(trained), Vec::new()));
        let (alpha, beta) = (self.in_round(self.alpha, local.round), self.in_round(self.beta, local.round));
        if beta != 0.0 {
            generator.labels.clear();
            generator.labels.extend_from_slice(step.labels);
            generator.draw_noise(|bound| below(step.rng, bound));
            generator.generate(params);
            logits.resize(step.labels.len() * classes, 0.0);
            step.student_head_values(&generator.z, logits);
            let how = Kl { weight: beta, ..Kl::default() };
            terms = terms.with("latent", loss::kl(step.student.logits, logits, classes, &how, step.d_logits));
        }
        if alpha != 0.0 && !present.is_empty() {
            generator.draw(self.batch, present, |bound| below(step.rng, bound));
            generator.generate(params);
            let weight = alpha * self.batch as f32 / local.training.batch as f32;
            let labels = &generator.labels;
            let teach = |z: &[f32], d_z: &mut [f32]| loss::cross_entropy(z, labels, classes, weight, d_z);
            terms = terms.with("generated", step.student_head(&generator.z, teach));
        }
        Ok(terms)
    }

    fn finish(&self, local: &mut Local<'_>, _: &mut Trained<'_>) -> Result<Outbox> {
        let counts: Vec<f32> = local.counts.iter().map(|&count| count as f32).collect();
        Ok(Outbox { upload: Payload::new().with("label-counts", counts), memory: Payload::new() })
    }

    fn conclude(&self, server: &mut Server<'_>, gather: &mut Gather, state: &mut Payload) -> Result<Params> {
        self.train_generator(server, state, &gather.uploads)?;
        gather.mean.finish()
    }
}

#[cfg(test)]
mod tests {
    use fedelity_fl::{Trainer, Training};

    use super::*;
    use crate::trial;

    /// The server's loss on generated features, without the diversity term.
    fn surprise(method: &FedGen, model: &Model, state: &Payload, uploads: &[Received]) -> f32 {
        let mut generator = Generator::new(method.shape(model));
        generator.labels.extend((0..200).map(|i| i % 3));
        let mut rng = stream(1, TRAINING, 9, 9, 9);
        generator.draw_noise(|bound| below(&mut rng, bound));
        generator.generate(state.get("generator").unwrap());
        let mut logits = vec![0.0; 200 * model.classes()];
        let mut of = |upload: &Received| {
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
        // Two slightly different heads; nobody holds class 3, and only the first client holds class 0.
        let upload = |seed: u64, counts: [f32; 4]| {
            let params = model.init(&mut stream(seed, Purpose::Init, 0, 0, 0)).0;
            let upload = trial::upload(9, params, Payload::new().with("label-counts", counts.to_vec()));
            Received { upload, weight: 9.0 }
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
            global: &uploads[0].params,
            state: &Payload::new(),
            scratch: &mut Payload::new(),
            auxiliary: None,
            validation: None,
            unlabelled: None,
            trainer: &mut trainer,
        };
        let mut state = method.init(&mut server).unwrap();
        let before = surprise(&method, &model, &state, &uploads[..1]);
        for _ in 0..3 {
            method.train_generator(&server, &mut state, &uploads).unwrap();
        }
        let after = surprise(&method, &model, &state, &uploads[..1]);
        assert!(after < 0.5 * before, "{before} to {after}");
        assert_eq!(state.get("labels").unwrap()[..], [1.0, 1.0, 1.0, 0.0]);
        // Nobody holds anything, so nothing changes.
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
