//! Optimisers on the server.
//!
//! FedAvgM: Hsu, Qi, Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated Visual
//! Classification", 2019, arXiv:1909.06335. FedAdam and FedYogi: Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar,
//! McMahan, "Adaptive Federated Optimization", ICLR 2021, arXiv:2003.00295, Algorithm 2. With delta = the method's
//! result - w^t:
//!
//!   FedAvgM:  v <- momentum * v + delta;    w^{t+1} = w^t + lr * v
//!   FedAdam:  m <- beta1 * m + (1 - beta1) * delta;    v <- beta2 * v + (1 - beta2) * delta^2
//!   FedYogi:  m as FedAdam;    v <- v - (1 - beta2) * delta^2 * sign(v - delta^2)
//!             both w^{t+1} = w^t + lr * m / (sqrt(v) + tau)
//!
//! The clients' mean change is a noisy gradient of the federation's loss, so what helps against noise elsewhere helps
//! here. m starts at 0 and v at tau^2, the least that Algorithm 2 allows; as there, there is no bias correction.
//!
//! Running statistics are not moved by gradients: they take the method's values. FedAvgM with lr 1 and momentum 0 is
//! the method itself, bit for bit.

use std::sync::Arc;

use fedelity_fl::Payload;
use fedelity_keys::keys;
use fedelity_nn::Layout;

use crate::trainable;

/// Name of m in the server's state.
const FIRST: &str = "server-optimizer/first";
/// Name of v.
const SECOND: &str = "server-optimizer/second";

/// How the server applies the method's result.
#[keys(tag = "optimizer", default = "none")]
#[derive(Copy)]
pub enum ServerOptimizer {
    /// No optimiser: the server takes the method's result.
    None,
    /// Momentum.
    #[key(name = "fedavgm")]
    FedAvgM {
        /// Learning rate of the server.
        #[key(default = 1.0, above = 0, paper = "1")]
        lr: f64,
        /// Share of the previous step that is kept. At 0 there is no memory.
        #[key(default = 0.9, min = 0, below = 1, paper = "0.9")]
        momentum: f64,
    },
    /// Adam: the mean of updates over the square root of the mean of their squares.
    #[key(name = "fedadam")]
    FedAdam(Adaptive),
    /// Like fedadam, with a mean of squares that changes more gradually.
    #[key(name = "fedyogi")]
    FedYogi(Adaptive),
}

#[keys]
#[derive(Copy)]
pub struct Adaptive {
    /// Learning rate of the server.
    #[key(symbol = "eta", default = 0.01, above = 0, paper = "tuned")]
    pub lr: f64,
    /// Decay of the mean of updates. At 0, only this round counts.
    #[key(default = 0.9, min = 0, below = 1, paper = "0.9")]
    pub beta1: f64,
    /// Decay of the mean of squares.
    #[key(default = 0.99, min = 0, below = 1, paper = "0.99")]
    pub beta2: f64,
    /// Degree of adaptivity: the smaller, the more adaptive.
    #[key(default = 0.001, above = 0, paper = "0.001")]
    pub tau: f64,
}

/// m and v, with trainable parameters packed.
#[derive(Debug, Default)]
pub(super) struct Moments {
    first: Option<Arc<[f32]>>,
    second: Option<Arc<[f32]>>,
}

impl Moments {
    /// Takes the moments out of the server's state.
    pub(super) fn take(state: &mut Payload) -> Self {
        Self { first: state.remove(FIRST), second: state.remove(SECOND) }
    }

    /// Puts them back.
    pub(super) fn put(self, state: &mut Payload) {
        for (name, values) in [(FIRST, self.first), (SECOND, self.second)] {
            if let Some(values) = values {
                state.put(name, values);
            }
        }
    }
}

impl ServerOptimizer {
    /// Turns `new`, the method's result starting from `global`, into the server's new weights.
    pub(super) fn step(self, layout: &Layout, moments: &mut Moments, global: &[f32], new: &mut [f32]) {
        let len = layout.trainable_len();
        match self {
            Self::None => {}
            Self::FedAvgM { lr, momentum } => {
                let v = slot(&mut moments.first, len, 0.0);
                for (range, packed) in trainable::parts(layout) {
                    let each = new[range.clone()].iter_mut().zip(&global[range]).zip(&mut v[packed]);
                    each.for_each(|((new, old), v)| momentum_step(new, *old, v, lr, momentum));
                }
            }
            Self::FedAdam(keys) => {
                let grow = |v: f64, square: f64| keys.beta2 * v + (1.0 - keys.beta2) * square;
                adaptive(layout, moments, global, new, keys, grow);
            }
            Self::FedYogi(keys) => {
                let sign = |v: f64, square: f64| f64::from(i8::from(v > square) - i8::from(v < square));
                let grow = |v: f64, square: f64| v - (1.0 - keys.beta2) * square * sign(v, square);
                adaptive(layout, moments, global, new, keys, grow);
            }
        }
    }
}

/// w + lr * (momentum * v + delta), written as a change to w + delta, so that a zero change keeps its bits.
fn momentum_step(new: &mut f32, old: f32, v: &mut f32, lr: f64, momentum: f64) {
    let delta = f64::from(*new) - f64::from(old);
    let kept = momentum * f64::from(*v);
    let change = lr * kept + (lr - 1.0) * delta;
    *v = (kept + delta) as f32;
    if change != 0.0 {
        *new = (f64::from(*new) + change) as f32;
    }
}

fn adaptive(
    layout: &Layout,
    moments: &mut Moments,
    global: &[f32],
    new: &mut [f32],
    Adaptive { lr, beta1, tau, .. }: Adaptive,
    grow: impl Fn(f64, f64) -> f64,
) {
    let len = layout.trainable_len();
    let m = slot(&mut moments.first, len, 0.0);
    let v = slot(&mut moments.second, len, (tau * tau) as f32);
    for (range, packed) in trainable::parts(layout) {
        let weights = new[range.clone()].iter_mut().zip(&global[range]);
        let moments = m[packed.clone()].iter_mut().zip(&mut v[packed]);
        for ((new, old), (m, v)) in weights.zip(moments) {
            let delta = f64::from(*new) - f64::from(*old);
            let mean = beta1 * f64::from(*m) + (1.0 - beta1) * delta;
            let square = grow(f64::from(*v), delta * delta).max(0.0);
            *new = (f64::from(*old) + lr * mean / (square.sqrt() + tau)) as f32;
            (*m, *v) = (mean as f32, square as f32);
        }
    }
}

/// The array to write to; filled with `start` if there is none of this length.
fn slot(values: &mut Option<Arc<[f32]>>, len: usize, start: f32) -> &mut [f32] {
    if values.as_ref().is_none_or(|values| values.len() != len) {
        *values = Some(vec![start; len].into());
    }
    Arc::make_mut(values.as_mut().expect("the array was put in just above"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial;

    /// Two rounds on the six-parameter model, from zeros, each adding `delta`.
    fn two_steps(optimizer: ServerOptimizer, delta: f32) -> (f64, f64) {
        let (model, mut moments) = (trial::six(), Moments::default());
        let mut step = |global: f32| {
            let mut new = [global + delta; 6];
            optimizer.step(model.layout(), &mut moments, &[global; 6], &mut new);
            assert!(new.iter().all(|value| *value == new[0]));
            new[0]
        };
        let first = step(0.0);
        (f64::from(first), f64::from(step(first)))
    }

    fn close((a, b): (f64, f64), (c, d): (f64, f64)) {
        assert!((a / c - 1.0).abs() < 1e-5 && (b / d - 1.0).abs() < 1e-5, "{a} {b} for {c} {d}");
    }

    #[test]
    fn steps_by_hand() {
        close(two_steps(ServerOptimizer::FedAvgM { lr: 0.5, momentum: 0.9 }, 1.0), (0.5, 0.5 + 0.5 * 1.9));

        let (lr, tau) = (0.1, 1e-3);
        let by_hand = |v1: f64, v2: f64| {
            let first = lr * 0.2 / (v1.sqrt() + tau);
            (first, first + lr * (0.9 * 0.2 + 0.2) / (v2.sqrt() + tau))
        };
        // delta = 2: (1 - beta1) * delta = 0.2, (1 - beta2) * delta^2 = 0.04.
        let v1 = 0.99 * 1e-6 + 0.04;
        let keys = Adaptive { lr, ..Adaptive::default() };
        let adam = two_steps(ServerOptimizer::FedAdam(keys), 2.0);
        close(adam, by_hand(v1, 0.99 * v1 + 0.04));
        let yogi = two_steps(ServerOptimizer::FedYogi(keys), 2.0);
        close(yogi, by_hand(1e-6 + 0.04, 1e-6 + 0.08));
    }

    #[test]
    fn statistics_become_what_the_method_says() {
        let model = trial::model(true);
        let (layout, global) = (model.layout(), vec![0.25; model.layout().len()]);
        let mut new = vec![-7.5; layout.len()];
        let mut moments = Moments::default();
        let optimizer = ServerOptimizer::FedAdam(Adaptive { lr: 0.1, ..Adaptive::default() });
        optimizer.step(layout, &mut moments, &global, &mut new);
        for range in trainable::rest(layout) {
            assert!(new[range].iter().all(|value| *value == -7.5));
        }
        for range in layout.trainable() {
            assert!(new[range.clone()].iter().all(|value| *value > -1.0));
        }
        let mut state = Payload::new();
        moments.put(&mut state);
        assert_eq!(state.keys().collect::<Vec<_>>(), [FIRST, SECOND]);
        assert_eq!(state.get(FIRST).unwrap().len(), layout.trainable_len());
        let moments = Moments::take(&mut state);
        assert!(state.is_empty() && moments.second.is_some());
    }

    #[test]
    fn a_full_step_keeps_every_bit() {
        let model = trial::six();
        let optimizer = ServerOptimizer::FedAvgM { lr: 1.0, momentum: 0.0 };
        let global = [1e30, -0.1, 0.0, 3.0, -1e-40, 0.0];
        let wanted: [f32; 6] = [0.1, -0.0, -0.0, 1e-40, 1e30, 0.3];
        let (mut new, mut moments) = (wanted, Moments::default());
        for _ in 0..3 {
            new = wanted;
            optimizer.step(model.layout(), &mut moments, &global, &mut new);
        }
        assert_eq!(new.map(f32::to_bits), wanted.map(f32::to_bits));
    }
}
