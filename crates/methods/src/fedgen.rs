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

use std::ops::Range;

use fedelity_fl::rng::{SERVER, below};
use fedelity_fl::{
    Extra, FlError, Gather, Local, Method, Needs, Outbox, Payload, Purpose, Received, Result, Server, Step, Terms,
    Trained, stream,
};
use fedelity_keys::method;
use fedelity_nn::loss::{self, Kl};
use fedelity_nn::{AdamStep, Model, Params};

/// The last local epoch, counted from 1, in which the generator teaches. From the authors' code.
const TEACHING_EPOCHS: usize = 20;
/// Lower bound of a decaying coefficient. From the authors' code.
const LEAST: f64 = 1e-4;
/// Per-round decay of the generator's learning rate, and Adam's constants. From the authors' code.
const LR_DECAY: f64 = 0.98;
const BETAS: (f32, f32) = (0.9, 0.999);
const EPS: f32 = 1e-8;
/// Batch normalisation as in PyTorch: the term added to the variance, and a new batch's share in the running
/// statistics.
const NORM_EPS: f32 = 1e-5;
const NORM_MOMENTUM: f32 = 0.1;

/// Purposes of the random streams.
const FRESH: Purpose = Purpose::Method(1);
const TRAINING: Purpose = Purpose::Method(2);

/// Train a small generator on all heads to give clients features of the classes they lack.
#[method(
    id = "fedgen",
    title = "FedGen",
    reference = "Zhu et al., ICML 2021, arXiv:2105.10056",
    equation = "L = CE + alpha * CE(h(G(y')), y') + beta * KL(softmax(h(G(y))) || softmax(z)), alpha and beta * decay^t",
    helps = "Rarely in the comparison of FedGKD, Table 3: on CIFAR-10 at Dirichlet 0.1 it equals FedAvg (69.2 %), on \
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
    /// Alpha and beta are multiplied by this after each round.
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
    /// The generator's learning rate in the first round. It decays by 0.98 per round.
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

/// The sizes of the generator
///
///   z = W_2 relu(BN(W_1 [onehot(y); eps] + b_1)) + b_2.
///
/// It is small, so it is written out by hand on one flat buffer: the trainable parts first, then the running statistics
/// of batch normalisation.
#[derive(Clone, Copy, Debug, Default)]
struct GeneratorShape {
    classes: usize,
    noise: usize,
    hidden: usize,
    features: usize,
}

impl GeneratorShape {
    /// The ranges of w1, b1, scale, shift, w2, b2, running mean and running variance. Matrices are `[input][output]`.
    fn parts(self) -> [Range<usize>; 8] {
        let (inputs, hidden, features) = (self.classes + self.noise, self.hidden, self.features);
        let mut end = 0;
        [inputs * hidden, hidden, hidden, hidden, hidden * features, features, hidden, hidden].map(|len| {
            end += len;
            end - len..end
        })
    }

    /// The size of the buffer; all of it is transmitted.
    fn len(self) -> usize {
        self.parts()[7].end
    }

    /// How many of the first numbers are trained.
    fn trainable(self) -> usize {
        self.parts()[5].end
    }

    /// Fresh weights: PyTorch's default for each layer. `below` draws integers.
    fn init(self, mut below: impl FnMut(u32) -> u32) -> Vec<f32> {
        let [w1, b1, scale, _, w2, b2, _, running_var] = self.parts();
        let mut params = vec![0.0; self.len()];
        let layers = [(w1, b1, self.classes + self.noise), (w2, b2, self.hidden)];
        for (weight, bias, fan_in) in layers {
            let bound = 1.0 / (fan_in as f32).sqrt();
            for range in [weight, bias] {
                params[range].iter_mut().for_each(|value| *value = (uniform(&mut below) * 2.0 - 1.0) * bound);
            }
        }
        params[scale].fill(1.0);
        params[running_var].fill(1.0);
        params
    }
}

/// A batch passing through a generator. Buffers grow to the largest batch and are then reused.
#[derive(Debug, Default)]
struct Generator {
    shape: GeneratorShape,
    /// The labels of the batch. Fill them, then the noise, then run.
    labels: Vec<u16>,
    /// The noise, `[sample][noise]`.
    noise: Vec<f32>,
    /// The generated features, `[sample][feature]`.
    z: Vec<f32>,
    /// Normalised hidden values and their ReLU, `[sample][hidden]`.
    normal: Vec<f32>,
    active: Vec<f32>,
    d_hidden: Vec<f32>,
    /// One over the standard deviation, per hidden unit.
    inverse: Vec<f32>,
}

impl Generator {
    fn new(shape: GeneratorShape) -> Self {
        Self { shape, inverse: vec![0.0; shape.hidden], ..Self::default() }
    }

    /// Draws labels from `classes`, and noise for them. `below` draws integers.
    fn draw(&mut self, samples: usize, classes: &[u16], mut below: impl FnMut(u32) -> u32) {
        self.labels.clear();
        self.labels.extend((0..samples).map(|_| classes[below(classes.len() as u32) as usize]));
        self.draw_noise(below);
    }

    /// Draws noise for all labels.
    fn draw_noise(&mut self, mut below: impl FnMut(u32) -> u32) {
        self.noise.clear();
        self.noise.extend((0..self.labels.len() * self.shape.noise).map(|_| uniform(&mut below)));
    }

    /// Features in evaluation mode.
    fn generate(&mut self, params: &[f32]) {
        self.first_layer(params);
        let [.., mean, var] = self.shape.parts().map(|part| &params[part]);
        self.inverse.iter_mut().zip(var).for_each(|(inverse, var)| *inverse = (var + NORM_EPS).sqrt().recip());
        for row in self.normal.chunks_exact_mut(self.shape.hidden) {
            for ((x, mean), inverse) in row.iter_mut().zip(mean).zip(&self.inverse) {
                *x = (*x - mean) * inverse;
            }
        }
        self.second_layer(params);
    }

    /// Features in training mode; updates the running statistics in `params`.
    fn train(&mut self, params: &mut [f32]) {
        self.first_layer(params);
        let [.., running_mean, running_var] = self.shape.parts();
        let (hidden, samples) = (self.shape.hidden, self.labels.len());
        for unit in 0..hidden {
            let column = || self.normal.iter().skip(unit).step_by(hidden).map(|&x| f64::from(x));
            let mean = column().sum::<f64>() / samples as f64;
            let squares: f64 = column().map(|x| (x - mean) * (x - mean)).sum();
            let inverse = (squares / samples as f64 + f64::from(NORM_EPS)).sqrt().recip();
            let keep = |kept: &mut f32, new: f64| *kept += NORM_MOMENTUM * (new as f32 - *kept);
            keep(&mut params[running_mean.start + unit], mean);
            keep(&mut params[running_var.start + unit], squares / (samples.max(2) - 1) as f64);
            for x in self.normal.iter_mut().skip(unit).step_by(hidden) {
                *x = ((f64::from(*x) - mean) * inverse) as f32;
            }
            self.inverse[unit] = inverse as f32;
        }
        self.second_layer(params);
    }

    /// Adds the gradient of the last [`train`](Self::train), given the gradient with respect to the features.
    fn backward(&mut self, params: &[f32], d_z: &[f32], grad: &mut [f32]) {
        let GeneratorShape { classes, noise, hidden, features } = self.shape;
        let [w1, b1, scale, shift, w2, b2, ..] = self.shape.parts();
        let samples = self.labels.len();
        self.d_hidden.clear();
        self.d_hidden.resize(samples * hidden, 0.0);

        // Second layer, ReLU and the scale of the normalisation, back to the gradient with respect to the normalised
        // values.
        for (sample, d_z) in d_z.chunks_exact(features).enumerate() {
            add(&mut grad[b2.clone()], 1.0, d_z);
            for unit in 0..hidden {
                let at = sample * hidden + unit;
                if self.active[at] > 0.0 {
                    let column = unit * features..(unit + 1) * features;
                    add(&mut grad[w2.clone()][column.clone()], self.active[at], d_z);
                    let d_active: f32 = params[w2.clone()][column].iter().zip(d_z).map(|(w, d)| w * d).sum();
                    grad[scale.start + unit] += d_active * self.normal[at];
                    grad[shift.start + unit] += d_active;
                    self.d_hidden[at] = d_active * params[scale.start + unit];
                }
            }
        }
        // Batch normalisation: d_x = (d - mean(d) - x_hat * mean(d * x_hat)) / std.
        for unit in 0..hidden {
            let (mut mean, mut along) = (0.0, 0.0);
            for at in (unit..samples * hidden).step_by(hidden) {
                mean += self.d_hidden[at] / samples as f32;
                along += self.d_hidden[at] * self.normal[at] / samples as f32;
            }
            for at in (unit..samples * hidden).step_by(hidden) {
                self.d_hidden[at] = (self.d_hidden[at] - mean - self.normal[at] * along) * self.inverse[unit];
            }
        }
        // First layer: the label selects a row, the noise weights the others.
        for (sample, d) in self.d_hidden.chunks_exact(hidden).enumerate() {
            add(&mut grad[b1.clone()], 1.0, d);
            let w1 = &mut grad[w1.clone()];
            add(&mut w1[usize::from(self.labels[sample]) * hidden..][..hidden], 1.0, d);
            let drawn = &self.noise[sample * noise..][..noise];
            for (row, &eps) in w1[classes * hidden..].chunks_exact_mut(hidden).zip(drawn) {
                add(row, eps, d);
            }
        }
    }

    /// normal = W_1 [onehot; eps] + b_1, not normalised yet.
    fn first_layer(&mut self, params: &[f32]) {
        let GeneratorShape { classes, noise, hidden, .. } = self.shape;
        let [w1, b1, ..] = self.shape.parts().map(|part| &params[part]);
        self.normal.clear();
        for (sample, &label) in self.labels.iter().enumerate() {
            self.normal.extend_from_slice(b1);
            let row = &mut self.normal[sample * hidden..];
            add(row, 1.0, &w1[usize::from(label) * hidden..][..hidden]);
            let drawn = &self.noise[sample * noise..][..noise];
            for (weights, &eps) in w1[classes * hidden..].chunks_exact(hidden).zip(drawn) {
                add(row, eps, weights);
            }
        }
    }

    /// z = W_2 relu(scale * normal + shift) + b_2.
    fn second_layer(&mut self, params: &[f32]) {
        let GeneratorShape { hidden, features, .. } = self.shape;
        let [_, _, scale, shift, w2, b2, ..] = self.shape.parts().map(|part| &params[part]);
        self.active.clear();
        self.z.clear();
        for (sample, normal) in self.normal.chunks_exact(hidden).enumerate() {
            let units = normal.iter().zip(scale).zip(shift);
            self.active.extend(units.map(|((x, scale), shift)| (scale * x + shift).max(0.0)));
            self.z.extend_from_slice(b2);
            let z = &mut self.z[sample * features..];
            for (weights, &active) in w2.chunks_exact(features).zip(&self.active[sample * hidden..]) {
                if active > 0.0 {
                    add(z, active, weights);
                }
            }
        }
    }
}

/// weight * exp(-mean_{a,b} mean((eps_a - eps_b)^2) * mean(|z_a - z_b|)) over all pairs of samples.
///
/// It is largest when different noise gives the same features. Its gradient is added to d_z.
fn diversity(noise: &[f32], z: &[f32], samples: usize, weight: f32, d_z: &mut [f32]) -> f32 {
    let (width, features) = (noise.len() / samples.max(1), z.len() / samples.max(1));
    if width == 0 || features == 0 {
        return 0.0;
    }
    let far = |a: usize, b: usize| {
        let pairs = noise[a * width..][..width].iter().zip(&noise[b * width..][..width]);
        pairs.map(|(a, b)| (a - b) * (a - b)).sum::<f32>() / width as f32
    };
    let pairs = (samples * samples) as f32;
    let mut spread = 0.0;
    for a in 0..samples {
        for b in 0..a {
            let rows = z[a * features..][..features].iter().zip(&z[b * features..][..features]);
            let apart = rows.map(|(a, b)| (a - b).abs()).sum::<f32>() / features as f32;
            spread += 2.0 * far(a, b) * apart / pairs;
        }
    }
    let value = weight * libm::expf(-spread);
    for a in 0..samples {
        for b in 0..a {
            let share = -value * 2.0 * far(a, b) / (pairs * features as f32);
            for k in 0..features {
                let (at, bt) = (a * features + k, b * features + k);
                let difference = z[at] - z[bt];
                let push = if difference == 0.0 { 0.0 } else { share * difference.signum() };
                d_z[at] += push;
                d_z[bt] -= push;
            }
        }
    }
    value
}

/// A number in [0, 1).
fn uniform(below: &mut impl FnMut(u32) -> u32) -> f32 {
    const STEPS: u32 = 1 << 24;
    below(STEPS) as f32 / STEPS as f32
}

/// out += factor * values.
fn add(out: &mut [f32], factor: f32, values: &[f32]) {
    out.iter_mut().zip(values).for_each(|(out, value)| *out += factor * value);
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

    // The generator.

    const SHAPE: GeneratorShape = GeneratorShape { classes: 3, noise: 4, hidden: 7, features: 5 };

    fn batch(labels: &[u16]) -> (Generator, Vec<f32>) {
        let mut rng = stream(5, Purpose::Method(7), 0, 0, 0);
        let mut below = |bound| below(&mut rng, bound);
        let mut params = SHAPE.init(&mut below);
        // Away from the initial values, so that every part has its own gradient.
        params.iter_mut().for_each(|value| *value += 0.3 * uniform(&mut below));
        let mut generator = Generator::new(SHAPE);
        generator.labels.extend(labels);
        generator.draw_noise(below);
        (generator, params)
    }

    /// sum_i c_i z_i + diversity, and its gradients with respect to the weights and z.
    fn objective(generator: &mut Generator, params: &[f32]) -> (f64, Vec<f32>) {
        let mut params = params.to_vec();
        generator.train(&mut params);
        let weights: Vec<f32> = (0..generator.z.len()).map(|i| ((i * 7 % 11) as f32 - 5.0) / 5.0).collect();
        let mut d_z = weights.clone();
        let spread = diversity(&generator.noise, &generator.z, generator.labels.len(), 2.0, &mut d_z);
        let value: f64 = generator.z.iter().zip(&weights).map(|(&z, &c)| f64::from(z) * f64::from(c)).sum();
        let mut grad = vec![0.0; SHAPE.trainable()];
        generator.backward(&params, &d_z, &mut grad);
        (value + f64::from(spread), grad)
    }

    #[test]
    fn gradient_by_finite_differences() {
        let (mut generator, params) = batch(&[0, 2, 1, 1, 0, 2, 2, 0]);
        let (_, grad) = objective(&mut generator, &params);
        let largest = grad.iter().fold(0.0f32, |top, g| top.max(g.abs()));
        let (h, mut checked) = (2e-3, 0);
        for i in 0..SHAPE.trainable() {
            let mut moved = |by: f32| {
                let mut params = params.clone();
                params[i] += by;
                let value = objective(&mut generator, &params).0;
                (value, generator.active.iter().map(|&a| a > 0.0).collect::<Vec<_>>())
            };
            let ((up, kinks_up), (down, kinks_down)) = (moved(h), moved(-h));
            if kinks_up != kinks_down {
                continue;
            }
            let expected = ((up - down) / (2.0 * f64::from(h))) as f32;
            assert!((grad[i] - expected).abs() < 3e-3 * largest, "{i}: {} {expected}", grad[i]);
            checked += 1;
        }
        assert!(checked * 10 > SHAPE.trainable() * 9, "{checked}");
    }

    #[test]
    fn diversity_gradient_and_one_sample() {
        let (mut generator, mut params) = batch(&[0, 1, 2, 0]);
        generator.train(&mut params);
        let mut d_z = vec![0.0; generator.z.len()];
        let value = |z: &[f32]| f64::from(diversity(&generator.noise, z, 4, 1.5, &mut vec![0.0; z.len()]));
        let exact = diversity(&generator.noise, &generator.z, 4, 1.5, &mut d_z);
        assert!(exact > 0.0 && exact < 1.5);
        for i in 0..d_z.len() {
            let (mut up, mut down) = (generator.z.clone(), generator.z.clone());
            up[i] += 1e-2;
            down[i] -= 1e-2;
            let expected = ((value(&up) - value(&down)) / 2e-2) as f32;
            assert!((d_z[i] - expected).abs() < 2e-4, "{i}: {} {expected}", d_z[i]);
        }
        let mut one = [0.0; 5];
        assert_eq!(diversity(&generator.noise[..4], &generator.z[..5], 1, 1.0, &mut one), 1.0);
        assert_eq!(one, [0.0; 5]);
    }

    #[test]
    fn running_statistics_take_over() {
        // The same batch over and over: the running statistics converge to the batch's own, so both modes agree.
        let (mut generator, mut params) = batch(&[0, 1, 2, 0, 1, 1, 2, 0, 0, 1]);
        for _ in 0..200 {
            generator.train(&mut params);
        }
        let trained = generator.z.clone();
        generator.generate(&params);
        let apart = trained.iter().zip(&generator.z).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        // They differ by the factor 10/9 of the unbiased variance.
        assert!(apart > 0.0 && apart < 0.3, "{apart}");
        let (mut one, mut params) = batch(&[1]);
        one.train(&mut params);
        assert!(one.z.iter().chain(&params).all(|value| value.is_finite()));
    }
}
