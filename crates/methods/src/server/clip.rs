//! A limit on the norm of a client's update, as a defence and as the basis of privacy.
//!
//! Sun, Kairouz, Suresh, McMahan, "Can You Really Backdoor Federated Learning?", 2019, arXiv:1911.07963, section 4 (norm
//! thresholding); McMahan, Ramage, Talwar, Zhang, "Learning Differentially Private Recurrent Language Models", ICLR 2018,
//! arXiv:1710.06963, section 2 (flat clipping):
//!
//!   w_i <- w^t + (w_i - w^t) * min(1, C / ||w_i - w^t||)
//!
//! A client that scales its update up gains nothing beyond C, and no client moves the sum by more than that.
//!
//! The norm is over all trainable weights together. Running statistics are not steps along a gradient and are not
//! clipped, nor are the arrays that a method sends beside the weights. An update within the limit keeps every bit.

use fedelity_fl::observe::drift;
use fedelity_nn::Layout;

use super::noise::Noise;

/// The largest norm of an update, and the noise that hides an update of that norm, if any.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clip {
    pub norm: f64,
    pub noise: Option<Noise>,
}

impl Clip {
    /// Scales the update from `global` to `params` down to the limit; returns whether it was larger.
    pub fn apply(self, layout: &Layout, global: &[f32], params: &mut [f32]) -> bool {
        let found = drift(global, params, layout.trainable());
        if found <= self.norm {
            return false;
        }
        let scale = self.norm / found;
        for range in layout.trainable() {
            for (new, old) in params[range.clone()].iter_mut().zip(&global[range.clone()]) {
                let old = f64::from(*old);
                *new = (old + scale * (f64::from(*new) - old)) as f32;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{trainable, trial};

    const CLIP: Clip = Clip { norm: 5.0, noise: None };

    #[test]
    fn a_long_update_by_hand() {
        let model = trial::six();
        let global = [1.0, 1.0, 1.0, 0.0, -2.0, 7.0];
        // The update is (6, 8, 0, 0, 0, 0), of norm 10.
        let mut params = [7.0, 9.0, 1.0, 0.0, -2.0, 7.0];
        assert!(CLIP.apply(model.layout(), &global, &mut params));
        assert_eq!(params, [4.0, 5.0, 1.0, 0.0, -2.0, 7.0]);
        // Its norm is now the limit itself.
        assert!(!CLIP.apply(model.layout(), &global, &mut params));
        let mut far = [f32::MAX, -f32::MAX, 1.0, 0.0, -2.0, 7.0];
        assert!(CLIP.apply(model.layout(), &global, &mut far));
        assert!((drift(&global, &far, model.layout().trainable()) - 5.0).abs() < 1e-5);
    }

    #[test]
    fn an_update_within_the_limit_keeps_its_bits() {
        let model = trial::six();
        let global = [0.1, -0.0, 1e-40, 3.0, -1e-40, 0.0];
        let wanted: [f32; 6] = [0.3, 0.0, -1e-40, 3.1, 1.7e-12, -0.0];
        let mut params = wanted;
        assert!(!CLIP.apply(model.layout(), &global, &mut params));
        assert_eq!(params.map(f32::to_bits), wanted.map(f32::to_bits));
    }

    #[test]
    fn statistics_are_neither_counted_nor_scaled() {
        let model = trial::model(true);
        let (layout, global) = (model.layout(), vec![0.5; model.layout().len()]);
        let mut params = global.clone();
        trainable::rest(layout).into_iter().for_each(|range| params[range].fill(1e6));
        assert!(!CLIP.apply(layout, &global, &mut params));
        params[layout.trainable()[0].start] = 10.5;
        assert!(CLIP.apply(layout, &global, &mut params));
        assert_eq!(params[layout.trainable()[0].start], 5.5);
        assert!(trainable::rest(layout).into_iter().all(|range| params[range].iter().all(|value| *value == 1e6)));
    }
}
