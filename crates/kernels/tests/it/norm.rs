//! Group and batch normalisation against their plain version, and the plain version against finite differences.

use fedelity_kernels::group_norm::GroupNorm;
use fedelity_kernels::{Isa, LANES, NormGradient, Normalise, Planes, PlanesMut, batch_norm, group_norm};
use proptest::prelude::*;

use crate::common::*;
use crate::reference::{self, Shape, Sharing};

/// Input data for both normalisations.
struct Case {
    x: Vec<f64>,
    gamma: Vec<f64>,
    beta: Vec<f64>,
    d_y: Vec<f64>,
    y: Vec<f64>,
    d_x: Vec<f64>,
    d_gamma: Vec<f64>,
    d_beta: Vec<f64>,
}

/// Initial value of the accumulated gradients.
const OLD: f32 = 0.5;

impl Case {
    fn new(shape: Shape, sharing: Sharing, offset: f64, relu: bool, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let x: Vec<f64> = (0..shape.len()).map(|_| f64::from((offset + random.next()) as f32)).collect();
        let (gamma, beta) = (random.vector(shape.channels), random.vector(shape.channels));
        let mut d_y = random.vector(shape.len());
        let mut y = reference::normalise(&x, shape, sharing, &gamma, &beta);
        // No gradient where rounding decides what ReLU clips.
        for (d, _) in d_y.iter_mut().zip(&y).filter(|(_, y)| relu && y.abs() < 1e-3) {
            *d = 0.0;
        }
        let mut own = d_y.clone();
        if relu {
            y = reference::relu(&y);
            own = reference::relu_backward(&d_y, &y);
        }
        let (d_x, mut d_gamma, mut d_beta) = reference::normalise_backward(&own, &x, shape, sharing, &gamma);
        d_gamma.iter_mut().chain(&mut d_beta).for_each(|d| *d += f64::from(OLD));
        Self { x, gamma, beta, d_y, y, d_x, d_gamma, d_beta }
    }
}

fn halos() -> impl Strategy<Value = [usize; 4]> {
    prop_oneof![Just([0; 4]), [0usize..=2, 0usize..=2, 0usize..=2, 0usize..=2]]
}

/// Nearly equal values in a set magnify rounding errors of the mean: every set needs some variance.
fn has_spread(statistics: &[(f64, f64)]) -> bool {
    statistics.iter().all(|(_, variance)| *variance > 0.02)
}

proptest! {
    #![proptest_config(cases(160))]

    #[test]
    fn group_normalisation(
        shape in shapes(4000), divisor in 1usize..=8, halos in halos(), relu in any::<bool>(), seed in any::<u64>(),
        offset in prop::sample::select(vec![0.0, -3.0, 10.0]),
    ) {
        let groups_of_channels = (1..=divisor.min(shape.channels)).rev().find(|g| shape.channels % g == 0).unwrap();
        let norm = GroupNorm { channels: shape.channels, groups_of_channels };
        let sharing = Sharing::GroupsOfChannels(groups_of_channels);
        let case = Case::new(shape, sharing, offset, relu, seed);
        let statistics = reference::statistics(&case.x, shape, sharing);
        prop_assume!(has_spread(&statistics));
        let (gamma, beta) = (single(&case.gamma), single(&case.beta));
        let mut same = SameBits::default();
        for isa in Isa::available() {
            let (lanes, groups) = (LANES, groups(shape));
            let x = laid(&case.x, shape, halos[0]);
            let mut y = blank(shape, halos[1]);
            let mut stats = vec![CANARY; norm.stats(groups)];
            let pass = Normalise { y: planes_mut(&mut y), x: planes(&x), gamma: &gamma, beta: &beta, relu };
            group_norm::forward(isa, pass, &mut stats, norm, groups);
            close_lanes(&y, shape, &case.y, CANARY, "output")?;
            same.check(&y.0, "output")?;
            for (set, (mean, variance)) in statistics.iter().enumerate() {
                let (n, g) = (set / groups_of_channels, set % groups_of_channels);
                let at = (n / lanes * groups_of_channels + g) * 2 * lanes + n % lanes;
                let rstd = 1.0 / (variance + 1e-5).sqrt();
                prop_assert!((f64::from(stats[at]) - mean).abs() < 1e-5 * (1.0 + mean.abs()), "mean of set {set}");
                prop_assert!((f64::from(stats[at + lanes]) / rstd - 1.0).abs() < 1e-3, "deviation of set {set}");
            }

            let d_y = laid_gradient(&case.d_y, shape, halos[2]);
            let mut d_x = blank(shape, halos[3]);
            let (mut d_gamma, mut d_beta) = (vec![OLD; shape.channels], vec![OLD; shape.channels]);
            let gradient = NormGradient {
                d_x: planes_mut(&mut d_x),
                d_gamma: &mut d_gamma,
                d_beta: &mut d_beta,
                d_y: planes(&d_y),
                relu: relu.then_some((&beta, planes(&y).plane)),
                x: planes(&x),
                gamma: &gamma,
            };
            group_norm::backward(isa, gradient, &stats, norm, groups);
            close_lanes(&d_x, shape, &case.d_x, 0.0, "input gradient")?;
            same.check(&d_x.0, "input gradient")?;
            missing_are_zero(&d_x, shape, "input gradient")?;
            close(&double(&d_gamma), &case.d_gamma, "gradient of gamma")?;
            same.check(&d_gamma, "gradient of gamma")?;
            close(&double(&d_beta), &case.d_beta, "gradient of beta")?;
            same.check(&d_beta, "gradient of beta")?;
        }
    }

    #[test]
    fn batch_normalisation(
        shape in shapes(4000), halos in halos(), relu in any::<bool>(), seed in any::<u64>(),
        offset in prop::sample::select(vec![0.0, -3.0, 10.0]),
    ) {
        let case = Case::new(shape, Sharing::Batch, offset, relu, seed);
        let statistics = reference::statistics(&case.x, shape, Sharing::Batch);
        prop_assume!(has_spread(&statistics));
        let (gamma, beta) = (single(&case.gamma), single(&case.beta));
        let (channels, samples) = (shape.channels, shape.samples);
        let count = (samples * shape.height * shape.width) as f64;
        let mut same = SameBits::default();
        for isa in Isa::available() {
            let x = laid(&case.x, shape, halos[0]);
            let mut y = blank(shape, halos[1]);
            let (mut stats, mut mean, mut var) = (vec![CANARY; 2 * channels], vec![1.0; channels], vec![2.0; channels]);
            let pass = Normalise { y: planes_mut(&mut y), x: planes(&x), gamma: &gamma, beta: &beta, relu };
            batch_norm::forward_training(isa, pass, &mut stats, (&mut mean, &mut var), samples);
            close_lanes(&y, shape, &case.y, CANARY, "output")?;
            same.check(&y.0, "output")?;
            for (c, (own_mean, own_var)) in statistics.iter().enumerate() {
                prop_assert!((f64::from(stats[c]) - own_mean).abs() < 1e-5 * (1.0 + own_mean.abs()), "mean of channel {c}");
                let rstd = 1.0 / (own_var + 1e-5).sqrt();
                prop_assert!((f64::from(stats[channels + c]) / rstd - 1.0).abs() < 1e-3, "deviation of channel {c}");
                close(&[f64::from(mean[c])], &[0.9 + 0.1 * own_mean], "running mean")?;
                close(&[f64::from(var[c])], &[1.8 + 0.1 * own_var * count / (count - 1.0)], "running variance")?;
            }

            let d_y = laid_gradient(&case.d_y, shape, halos[2]);
            let mut d_x = blank(shape, halos[3]);
            let (mut d_gamma, mut d_beta) = (vec![OLD; channels], vec![OLD; channels]);
            let gradient = NormGradient {
                d_x: planes_mut(&mut d_x),
                d_gamma: &mut d_gamma,
                d_beta: &mut d_beta,
                d_y: planes(&d_y),
                relu: relu.then_some((&beta, planes(&y).plane)),
                x: planes(&x),
                gamma: &gamma,
            };
            batch_norm::backward(isa, gradient, &stats, samples);
            close_lanes(&d_x, shape, &case.d_x, 0.0, "input gradient")?;
            same.check(&d_x.0, "input gradient")?;
            missing_are_zero(&d_x, shape, "input gradient")?;
            close(&double(&d_gamma), &case.d_gamma, "gradient of gamma")?;
            same.check(&d_gamma, "gradient of gamma")?;
            close(&double(&d_beta), &case.d_beta, "gradient of beta")?;
            same.check(&d_beta, "gradient of beta")?;
        }
    }

    #[test]
    fn batch_normalisation_with_running_statistics(
        shape in shapes(2000), halos in halos(), relu in any::<bool>(), seed in any::<u64>(),
    ) {
        let mut random = Random::new(seed);
        let channels = shape.channels;
        let x = random.vector(shape.len());
        let (gamma, beta, mean) = (random.vector(channels), random.vector(channels), random.vector(channels));
        let variance: Vec<f64> = random.vector(channels).iter().map(|v| f64::from(v.abs() as f32 + 0.1)).collect();
        let pixels = shape.height * shape.width;
        let mut expected: Vec<f64> = x
            .iter()
            .enumerate()
            .map(|(i, x)| {
                let c = i / pixels % channels;
                gamma[c] * (x - mean[c]) / (variance[c] + 1e-5).sqrt() + beta[c]
            })
            .collect();
        if relu {
            expected = reference::relu(&expected);
        }
        let mut same = SameBits::default();
        for isa in Isa::available() {
            let x = laid(&x, shape, halos[0]);
            let mut y = blank(shape, halos[1]);
            let (gamma, beta) = (single(&gamma), single(&beta));
            let pass = Normalise { y: planes_mut(&mut y), x: planes(&x), gamma: &gamma, beta: &beta, relu };
            let running = (&single(&mean)[..], &single(&variance)[..]);
            batch_norm::forward_evaluation(isa, pass, running, groups(shape));
            close_lanes(&y, shape, &expected, CANARY, "output")?;
            same.check(&y.0, "output")?;
        }
    }
}

#[test]
fn a_large_common_mean_does_not_cancel() {
    let shape = Shape { samples: 3, channels: 4, height: 5, width: 7 };
    let mut random = Random::new(5);
    // At 3e4 the spacing of f32 is 0.002: the oracle must use values on that grid too.
    let x: Vec<f64> = random.vector(shape.len()).iter().map(|v| f64::from((3e4 + v) as f32)).collect();
    let (ones, zeros) = (vec![1.0; 4], vec![0.0; 4]);
    for isa in Isa::available() {
        let (x_lanes, plane) = laid(&x, shape, 1);
        let (mut y, groups) = (blank(shape, 1).0, groups(shape));
        let norm = GroupNorm { channels: 4, groups_of_channels: 2 };
        let mut stats = vec![0.0; norm.stats(groups)];
        let close = |y: &[f32], sharing| {
            let found = reference::from_lanes(y, shape, plane, LANES);
            let expected = reference::normalise(&x, shape, sharing, &double(&ones), &double(&zeros));
            let worst = found.iter().zip(&expected).fold(0.0f64, |a, (f, e)| a.max((f - e).abs()));
            assert!(worst < 5e-3, "{isa:?} {sharing:?}: off by {worst}");
        };
        let (x, gamma, beta, relu) = (Planes { data: &x_lanes, plane }, &ones, &zeros, false);
        let pass = Normalise { y: PlanesMut { data: &mut y, plane }, x, gamma, beta, relu };
        group_norm::forward(isa, pass, &mut stats, norm, groups);
        close(&y, Sharing::GroupsOfChannels(2));
        let (mut stats, mut mean, mut var) = (vec![0.0; 8], vec![0.0; 4], vec![0.0; 4]);
        let pass = Normalise { y: PlanesMut { data: &mut y, plane }, x, gamma, beta, relu };
        batch_norm::forward_training(isa, pass, &mut stats, (&mut mean, &mut var), 3);
        close(&y, Sharing::Batch);
    }
}

#[test]
fn the_oracle_agrees_with_finite_differences() {
    let shape = Shape { samples: 3, channels: 4, height: 2, width: 3 };
    for sharing in [Sharing::GroupsOfChannels(1), Sharing::GroupsOfChannels(2), Sharing::Batch] {
        let mut random = Random::new(11);
        let (x, d_y) = (random.vector(shape.len()), random.vector(shape.len()));
        let (gamma, beta) = (random.vector(4), random.vector(4));
        let loss = |x: &[f64], gamma: &[f64], beta: &[f64]| -> f64 {
            reference::normalise(x, shape, sharing, gamma, beta).iter().zip(&d_y).map(|(y, d)| y * d).sum()
        };
        let difference = |v: &[f64], i: usize, loss: &dyn Fn(&[f64]) -> f64| {
            let (mut up, mut down) = (v.to_vec(), v.to_vec());
            up[i] += 1e-5;
            down[i] -= 1e-5;
            (loss(&up) - loss(&down)) / 2e-5
        };
        let (d_x, d_gamma, d_beta) = reference::normalise_backward(&d_y, &x, shape, sharing, &gamma);
        let near = |found: f64, expected: f64, what: &str| {
            assert!((found - expected).abs() < 1e-7, "{sharing:?}: {what} is {found}, not {expected}");
        };
        for (i, d) in d_x.iter().enumerate() {
            near(*d, difference(&x, i, &|x| loss(x, &gamma, &beta)), "the gradient of x");
        }
        for c in 0..4 {
            near(d_gamma[c], difference(&gamma, c, &|gamma| loss(&x, gamma, &beta)), "the gradient of gamma");
            near(d_beta[c], difference(&beta, c, &|beta| loss(&x, &gamma, beta)), "the gradient of beta");
        }
    }
}
