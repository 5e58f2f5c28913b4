//! The section `[server]` of a configuration.

use std::sync::Arc;

use fedelity_fl::Method;
use serde::{Deserialize, Serialize};

use super::{Composed, Rule, ServerOptimizer};

/// A server optimiser by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptimizerName {
    /// No optimiser.
    #[default]
    None,
    /// [`ServerOptimizer::FedAvgM`].
    FedAvgM,
    /// [`ServerOptimizer::FedAdam`].
    FedAdam,
    /// [`ServerOptimizer::FedYogi`].
    FedYogi,
}

/// A rule by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuleName {
    /// [`Rule::Mean`].
    #[default]
    Mean,
    /// [`Rule::Median`].
    Median,
    /// [`Rule::TrimmedMean`].
    TrimmedMean,
    /// [`Rule::Krum`].
    Krum,
}

/// The section as it is written. A key that the chosen optimiser or rule does not have is refused by
/// [`resolve`](Self::resolve).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ServerConfig {
    /// The optimiser: none, fedavgm, fedadam or fedyogi. Default none.
    pub optimizer: OptimizerName,
    /// The learning rate. Default 1 for fedavgm, 0.01 for fedadam and fedyogi.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lr: Option<f64>,
    /// The momentum of fedavgm. Default 0.9.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub momentum: Option<f64>,
    /// The decay of the mean of fedadam and fedyogi. Default 0.9.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beta1: Option<f64>,
    /// The decay of the squares of fedadam and fedyogi. Default 0.99.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beta2: Option<f64>,
    /// The adaptivity of fedadam and fedyogi. Default 0.001.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tau: Option<f64>,
    /// The rule: mean, median, trimmed-mean or krum. Default mean.
    pub rule: RuleName,
    /// The share that trimmed-mean leaves out at each end. Default 0.1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trim: Option<f64>,
    /// How many uploads of a round krum does not trust. Default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub byzantine: Option<usize>,
    /// How many uploads krum keeps. Default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep: Option<usize>,
}

/// The section, checked.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServerSettings {
    /// The optimiser.
    pub optimizer: ServerOptimizer,
    /// The rule.
    pub rule: Rule,
}

/// What is wrong with the section, with the key and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// A value is out of range.
    #[error("server.{key} = {value}: allowed is {allowed}")]
    Range {
        /// The key.
        key: &'static str,
        /// What was given.
        value: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// A key goes with another optimiser or rule.
    #[error("server.{key}: {what} '{chosen}' has no key '{key}'; it goes with {goes_with}")]
    Stray {
        /// The key.
        key: &'static str,
        /// `optimizer` or `rule`.
        what: &'static str,
        /// The one that was chosen.
        chosen: &'static str,
        /// Those that have the key.
        goes_with: &'static str,
    },
}

impl ServerConfig {
    /// The optimiser and the rule with their defaults, checked.
    pub fn resolve(&self) -> Result<ServerSettings, ServerError> {
        let settings = ServerSettings { optimizer: self.optimizer()?, rule: self.rule()? };
        let (optimizer, rule) = (settings.optimizer.name(), settings.rule.name());
        // What the chosen ones have is in the full section; what else is given is stray.
        let has = settings.config();
        let stray = |given: bool, known: bool, key, what, goes_with| {
            let chosen = if what == "optimizer" { optimizer } else { rule };
            if given && !known { Err(ServerError::Stray { key, what, chosen, goes_with }) } else { Ok(()) }
        };
        let adaptive = "fedadam and fedyogi";
        stray(self.lr.is_some(), has.lr.is_some(), "lr", "optimizer", "fedavgm, fedadam and fedyogi")?;
        stray(self.momentum.is_some(), has.momentum.is_some(), "momentum", "optimizer", "fedavgm")?;
        stray(self.beta1.is_some(), has.beta1.is_some(), "beta1", "optimizer", adaptive)?;
        stray(self.beta2.is_some(), has.beta2.is_some(), "beta2", "optimizer", adaptive)?;
        stray(self.tau.is_some(), has.tau.is_some(), "tau", "optimizer", adaptive)?;
        stray(self.trim.is_some(), has.trim.is_some(), "trim", "rule", "trimmed-mean")?;
        stray(self.byzantine.is_some(), has.byzantine.is_some(), "byzantine", "rule", "krum")?;
        stray(self.keep.is_some(), has.keep.is_some(), "keep", "rule", "krum")?;
        Ok(settings)
    }

    fn optimizer(&self) -> Result<ServerOptimizer, ServerError> {
        let lr = |default| above_zero("lr", self.lr.unwrap_or(default));
        let beta1 = || below_one("beta1", self.beta1.unwrap_or(0.9));
        let beta2 = || below_one("beta2", self.beta2.unwrap_or(0.99));
        let tau = || above_zero("tau", self.tau.unwrap_or(1e-3));
        Ok(match self.optimizer {
            OptimizerName::None => ServerOptimizer::None,
            OptimizerName::FedAvgM => {
                let momentum = below_one("momentum", self.momentum.unwrap_or(0.9))?;
                ServerOptimizer::FedAvgM { lr: lr(1.0)?, momentum }
            }
            OptimizerName::FedAdam => {
                ServerOptimizer::FedAdam { lr: lr(0.01)?, beta1: beta1()?, beta2: beta2()?, tau: tau()? }
            }
            OptimizerName::FedYogi => {
                ServerOptimizer::FedYogi { lr: lr(0.01)?, beta1: beta1()?, beta2: beta2()?, tau: tau()? }
            }
        })
    }

    fn rule(&self) -> Result<Rule, ServerError> {
        Ok(match self.rule {
            RuleName::Mean => Rule::Mean,
            RuleName::Median => Rule::Median,
            RuleName::TrimmedMean => {
                let trim = self.trim.unwrap_or(0.1);
                Rule::TrimmedMean { trim: within("trim", trim, (0.0..0.5).contains(&trim), "from 0 to below 0.5")? }
            }
            RuleName::Krum => {
                let (byzantine, keep) = (self.byzantine.unwrap_or(1), self.keep.unwrap_or(1));
                Rule::Krum { byzantine, keep: within("keep", keep, keep >= 1, "1 or more")? }
            }
        })
    }
}

impl ServerSettings {
    /// The method with these settings; the method itself if they are the defaults.
    pub fn around(self, method: Arc<dyn Method>) -> Arc<dyn Method> {
        Composed::around(method, self.rule, self.optimizer)
    }

    /// The section with every key that the optimiser and the rule have.
    pub fn config(self) -> ServerConfig {
        let mut config = ServerConfig::default();
        match self.optimizer {
            ServerOptimizer::None => {}
            ServerOptimizer::FedAvgM { lr, momentum } => {
                config.optimizer = OptimizerName::FedAvgM;
                (config.lr, config.momentum) = (Some(lr), Some(momentum));
            }
            ServerOptimizer::FedAdam { lr, beta1, beta2, tau } => {
                config.optimizer = OptimizerName::FedAdam;
                (config.lr, config.beta1, config.beta2, config.tau) = (Some(lr), Some(beta1), Some(beta2), Some(tau));
            }
            ServerOptimizer::FedYogi { lr, beta1, beta2, tau } => {
                config.optimizer = OptimizerName::FedYogi;
                (config.lr, config.beta1, config.beta2, config.tau) = (Some(lr), Some(beta1), Some(beta2), Some(tau));
            }
        }
        match self.rule {
            Rule::Mean => {}
            Rule::Median => config.rule = RuleName::Median,
            Rule::TrimmedMean { trim } => (config.rule, config.trim) = (RuleName::TrimmedMean, Some(trim)),
            Rule::Krum { byzantine, keep } => {
                config.rule = RuleName::Krum;
                (config.byzantine, config.keep) = (Some(byzantine), Some(keep));
            }
        }
        config
    }
}

fn within<T: std::fmt::Display>(
    key: &'static str,
    value: T,
    fits: bool,
    allowed: &'static str,
) -> Result<T, ServerError> {
    if fits { Ok(value) } else { Err(ServerError::Range { key, value: value.to_string(), allowed }) }
}

fn above_zero(key: &'static str, value: f64) -> Result<f64, ServerError> {
    within(key, value, value.is_finite() && value > 0.0, "a finite number above 0")
}

fn below_one(key: &'static str, value: f64) -> Result<f64, ServerError> {
    within(key, value, (0.0..1.0).contains(&value), "from 0 to below 1")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> ServerConfig {
        toml::from_str(text).unwrap()
    }

    fn refused(text: &str) -> String {
        read(text).resolve().unwrap_err().to_string()
    }

    #[test]
    fn defaults_and_round_trips() {
        assert_eq!(read("").resolve().unwrap(), ServerSettings::default());
        let adam = read("optimizer = \"fedadam\"\nlr = 0.03\nrule = \"krum\"\nbyzantine = 2").resolve().unwrap();
        let (lr, beta1, beta2, tau) = (0.03, 0.9, 0.99, 1e-3);
        assert_eq!(adam.optimizer, ServerOptimizer::FedAdam { lr, beta1, beta2, tau });
        assert_eq!(adam.rule, Rule::Krum { byzantine: 2, keep: 1 });
        for text in [
            "",
            "optimizer = \"none\"\nrule = \"median\"",
            "optimizer = \"fedavgm\"\nrule = \"trimmed-mean\"\ntrim = 0.3",
            "optimizer = \"fedyogi\"\nrule = \"krum\"\nkeep = 4",
        ] {
            let settings = read(text).resolve().unwrap();
            let full = toml::to_string(&settings.config()).unwrap();
            assert_eq!(read(&full).resolve().unwrap(), settings, "{full}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(
            refused("optimizer = \"fedavgm\"\nbeta1 = 0.9"),
            "server.beta1: optimizer 'fedavgm' has no key 'beta1'; it goes with fedadam and fedyogi"
        );
        assert_eq!(refused("byzantine = 1"), "server.byzantine: rule 'mean' has no key 'byzantine'; it goes with krum");
        assert_eq!(
            refused("lr = 1.0"),
            "server.lr: optimizer 'none' has no key 'lr'; it goes with fedavgm, fedadam and fedyogi"
        );
        assert_eq!(refused("optimizer = \"fedadam\"\ntau = 0.0"), "server.tau = 0: allowed is a finite number above 0");
        assert_eq!(
            refused("optimizer = \"fedavgm\"\nmomentum = 1.0"),
            "server.momentum = 1: allowed is from 0 to below 1"
        );
        assert_eq!(refused("rule = \"trimmed-mean\"\ntrim = 0.5"), "server.trim = 0.5: allowed is from 0 to below 0.5");
        assert_eq!(refused("rule = \"krum\"\nkeep = 0"), "server.keep = 0: allowed is 1 or more");
        assert!(toml::from_str::<ServerConfig>("momentun = 1").is_err());
        assert!(toml::from_str::<ServerConfig>("rule = \"mode\"").is_err());
    }
}
