//! How clients train and how uploads are weighted.

use fedelity_data::Augmentation;
use fedelity_keys::Choice;
use fedelity_nn::OptimizerKind;

use crate::{FlError, Result};

/// How one client trains in one round.
#[derive(Clone, Debug, PartialEq)]
pub struct Training {
    /// Passes over the local samples. With 0 the weights are sent back unchanged.
    pub epochs: usize,
    /// Samples per step. The last step of an epoch takes the remainder.
    pub batch: usize,
    /// The optimiser. Its state is reset for each client and round.
    pub optimizer: OptimizerKind,
    /// The learning rate of the first round.
    pub lr: f32,
    /// L2 weight decay, added to the gradient.
    pub weight_decay: f32,
    /// The learning rate is multiplied by this after each round.
    pub lr_decay: f32,
    /// The maximum gradient norm, if limited.
    pub clip: Option<f32>,
    /// Whether teachers run once per client and round instead of once per step. The result is bit-identical.
    pub teacher_cache: bool,
    /// Augmentation of the clients' images. With it, teachers run on each batch and see the same view as the student.
    pub augmentation: Augmentation,
}

impl Default for Training {
    /// One epoch in batches of 64, plain SGD with learning rate 0.01.
    fn default() -> Self {
        Self {
            epochs: 1,
            batch: 64,
            optimizer: OptimizerKind::Sgd { momentum: 0.0 },
            lr: 0.01,
            weight_decay: 0.0,
            lr_decay: 1.0,
            clip: None,
            teacher_cache: true,
            augmentation: Augmentation::default(),
        }
    }
}

impl Training {
    /// The learning rate in a round, counted from 0.
    pub fn lr_at(&self, round: usize) -> f32 {
        if self.lr_decay == 1.0 {
            return self.lr;
        }
        (f64::from(self.lr) * libm::pow(self.lr_decay.into(), round as f64)) as f32
    }

    /// Whether every number is in range.
    pub fn check(&self) -> Result<()> {
        at_least("batch", self.batch, 1)?;
        number("lr", self.lr, self.lr >= 0.0, "0 or more")?;
        number("weight-decay", self.weight_decay, self.weight_decay >= 0.0, "0 or more")?;
        number("lr-decay", self.lr_decay, self.lr_decay > 0.0, "above 0")?;
        if let Some(clip) = self.clip {
            number("clip", clip, clip > 0.0, "above 0")?;
        }
        match self.optimizer {
            OptimizerKind::Sgd { momentum } => {
                number("momentum", momentum, (0.0..1.0).contains(&momentum), "from 0 to below 1")
            }
            OptimizerKind::Adam { beta1, beta2, eps } => {
                number("beta1", beta1, (0.0..1.0).contains(&beta1), "from 0 to below 1")?;
                number("beta2", beta2, (0.0..1.0).contains(&beta2), "from 0 to below 1")?;
                number("eps", eps, eps > 0.0, "above 0")
            }
        }
    }
}

/// How much an upload counts in the mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Choice)]
pub enum Weighting {
    /// By the number of samples of the client, as FedAvg.
    #[default]
    Size,
    /// All clients equally.
    Uniform,
}

impl Weighting {
    /// The weight of a client with this many samples.
    pub fn weight(self, examples: usize) -> f64 {
        match self {
            Self::Size => examples as f64,
            Self::Uniform => 1.0,
        }
    }
}

/// Rejects an integer below `least`.
pub(crate) fn at_least(key: &'static str, value: usize, least: usize) -> Result<()> {
    if value < least {
        return Err(FlError::Setting { key, value: value.to_string(), allowed: format!("{least} or more") });
    }
    Ok(())
}

fn number(key: &'static str, value: f32, fits: bool, allowed: &str) -> Result<()> {
    if !(value.is_finite() && fits) {
        return Err(FlError::Setting { key, value: value.to_string(), allowed: format!("a finite number, {allowed}") });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn learning_rate_decays_per_round() {
        let training = Training { lr: 0.1, lr_decay: 0.5, ..Training::default() };
        assert_eq!(training.lr_at(0), 0.1);
        assert_eq!(training.lr_at(2), 0.025);
        assert_eq!(Training { lr_decay: 1.0, ..training }.lr_at(1_000_000), 0.1);
    }

    #[test]
    fn out_of_range_names_the_key() {
        let bad = |change: fn(&mut Training)| {
            let mut training = Training::default();
            training.check().unwrap();
            change(&mut training);
            training.check().unwrap_err().to_string()
        };
        assert_eq!(bad(|t| t.batch = 0), "batch = 0: expected 1 or more");
        assert_eq!(bad(|t| t.lr = f32::NAN), "lr = NaN: expected a finite number, 0 or more");
        assert!(bad(|t| t.optimizer = OptimizerKind::Sgd { momentum: 1.0 }).starts_with("momentum = 1"));
        assert!(bad(|t| t.clip = Some(0.0)).starts_with("clip = 0"));
        assert!(bad(|t| t.lr_decay = f32::INFINITY).starts_with("lr-decay = inf"));
        assert!(bad(|t| t.weight_decay = -1.0).starts_with("weight-decay = -1"));
    }

    #[test]
    fn weights() {
        assert_eq!(Weighting::Size.weight(7), 7.0);
        assert_eq!(Weighting::Uniform.weight(7), 1.0);
    }
}
