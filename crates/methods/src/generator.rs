//! The generator of features of FedGen.

use std::ops::Range;

/// Batch normalisation as in PyTorch: the term added to the variance, and a new batch's share in the running
/// statistics.
const NORM_EPS: f32 = 1e-5;
const NORM_MOMENTUM: f32 = 0.1;

/// The sizes of the generator
///
///   z = W_2 relu(BN(W_1 [onehot(y); eps] + b_1)) + b_2.
///
/// It is small, so it is written out by hand on one flat buffer: the trainable parts first, then the running statistics
/// of batch normalisation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GeneratorShape {
    pub(crate) classes: usize,
    pub(crate) noise: usize,
    pub(crate) hidden: usize,
    pub(crate) features: usize,
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
    pub(crate) fn len(self) -> usize {
        self.parts()[7].end
    }

    /// How many of the first numbers are trained.
    pub(crate) fn trainable(self) -> usize {
        self.parts()[5].end
    }

    /// Fresh weights: PyTorch's default for each layer. `below` draws integers.
    pub(crate) fn init(self, mut below: impl FnMut(u32) -> u32) -> Vec<f32> {
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
pub(crate) struct Generator {
    shape: GeneratorShape,
    /// The labels of the batch. Fill them, then the noise, then run.
    pub(crate) labels: Vec<u16>,
    /// The noise, `[sample][noise]`.
    pub(crate) noise: Vec<f32>,
    /// The generated features, `[sample][feature]`.
    pub(crate) z: Vec<f32>,
    /// Normalised hidden values and their ReLU, `[sample][hidden]`.
    normal: Vec<f32>,
    active: Vec<f32>,
    d_hidden: Vec<f32>,
    /// One over the standard deviation, per hidden unit.
    inverse: Vec<f32>,
}

impl Generator {
    pub(crate) fn new(shape: GeneratorShape) -> Self {
        Self { shape, inverse: vec![0.0; shape.hidden], ..Self::default() }
    }

    /// Draws labels from `classes`, and noise for them. `below` draws integers.
    pub(crate) fn draw(&mut self, samples: usize, classes: &[u16], mut below: impl FnMut(u32) -> u32) {
        self.labels.clear();
        self.labels.extend((0..samples).map(|_| classes[below(classes.len() as u32) as usize]));
        self.draw_noise(below);
    }

    /// Draws noise for all labels.
    pub(crate) fn draw_noise(&mut self, mut below: impl FnMut(u32) -> u32) {
        self.noise.clear();
        self.noise.extend((0..self.labels.len() * self.shape.noise).map(|_| uniform(&mut below)));
    }

    /// Features in evaluation mode.
    pub(crate) fn generate(&mut self, params: &[f32]) {
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
    pub(crate) fn train(&mut self, params: &mut [f32]) {
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
    pub(crate) fn backward(&mut self, params: &[f32], d_z: &[f32], grad: &mut [f32]) {
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
pub(crate) fn diversity(noise: &[f32], z: &[f32], samples: usize, weight: f32, d_z: &mut [f32]) -> f32 {
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
    use fedelity_fl::rng::below;
    use fedelity_fl::{Purpose, stream};

    use super::*;

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
