//! All keys of a configuration, with their descriptions, defaults and bounds.

use std::collections::BTreeSet;
use std::path::PathBuf;

use fedelity_data::Kind;
use fedelity_fl::Weighting;
use fedelity_keys::{Choice, KeyError, ValueType, keys, toml};
use fedelity_methods::{NoiseAt, Rule, ServerOptimizer};
use fedelity_nn::{Stem, zoo};
use fedelity_sim::{Faults, Metrics};

use super::DataKeys;

/// A whole configuration.
#[keys]
pub struct Config {
    /// Rounds of federated training.
    #[key(default = 30, min = 1)]
    pub rounds: usize,
    /// Seeds for weights, client sampling and training: one run per seed. The partition has its own seed.
    #[key(default = [1])]
    pub seeds: Vec<u64>,
    /// A single seed, instead of `seeds`.
    #[key(instead = "seeds")]
    pub seed: Option<u64>,
    /// Which data to use, and how to prepare them.
    pub data: DataKeys,
    /// Which client holds which samples.
    pub partition: PartitionKeys,
    /// What clients do in a round.
    pub clients: ClientKeys,
    /// How clients update their weights.
    pub optimizer: OptimizerKeys,
    /// The network.
    pub model: ModelKeys,
    /// What the server holds, and what it does with the uploads.
    pub server: ServerKeys,
    /// The method, or several as `[[method]]`: `fedelity methods` lists them, and `fedelity methods NAME` their keys.
    #[key(what = "a table [method] or tables [[method]]")]
    pub method: Option<toml::Value>,
    /// What to measure, and when.
    pub evaluation: EvaluationKeys,
    /// When to end a run before its last round.
    pub stop: StopKeys,
    /// Faults to simulate: clients that drop out, are late, send damaged uploads, or attack.
    pub faults: Faults,
    /// Noise that hides individual clients.
    pub privacy: PrivacyKeys,
}

#[keys(check = one_name_each)]
pub struct PartitionKeys {
    /// Who holds what.
    #[key(flatten)]
    pub kind: Kind,
    /// Number of clients. By default, a natural partition has one per key, and sites have one per name.
    #[key(default = 20, min = 1, unless("kind", names_clients))]
    pub clients: Option<usize>,
    /// Names of the sites, in the order of their numbers.
    #[key(what = "a list of different names", only("kind", is_sites))]
    pub names: Option<Vec<String>>,
    /// Seed of the partition, independent of the training seeds.
    #[key(default = 1)]
    pub seed: u64,
    /// A partition file written by `fedelity partition -o`, instead of all other keys.
    #[key(what = "the path of a partition file")]
    pub file: Option<PathBuf>,
}

fn names_clients(kind: &str) -> bool {
    kind == Kind::Natural.name() || is_sites(kind)
}

fn is_sites(kind: &str) -> bool {
    kind == Kind::Sites.name()
}

/// Rejects names that do not tell the sites apart.
fn one_name_each(partition: &PartitionKeys) -> Result<(), KeyError> {
    let Some(names) = &partition.names else {
        if partition.kind == Kind::Sites && partition.clients.is_none() {
            let message = "kind = \"sites\": how many? Set partition.names, such as names = [\"mercy\", \"north\"], or \
                           partition.clients";
            return Err(KeyError::new("kind", message));
        }
        return Ok(());
    };
    let (shown, different) = (format!("{names:?}"), names.iter().collect::<BTreeSet<_>>());
    if names.is_empty() || different.len() < names.len() || different.iter().any(|name| name.trim().is_empty()) {
        return Err(KeyError::expected("names", shown, "a list of different names, such as [\"mercy\", \"north\"]"));
    }
    if partition.clients.is_some_and(|clients| clients != names.len()) {
        let message = format!("clients: there are {} names; leave it out", names.len());
        return Err(KeyError::new("clients", message));
    }
    Ok(())
}

#[keys]
pub struct ClientKeys {
    /// Number of clients that train in each round, at most as many as there are. The default is 10, or all of them if
    /// there are fewer.
    #[key(default = 10, min = 1)]
    pub per_round: usize,
    /// Share of all clients that train in each round, instead of `per-round`.
    #[key(above = 0, max = 1, instead = "per-round")]
    pub fraction: Option<f64>,
    /// Passes of a client over its samples in each round.
    #[key(default = 5, min = 1)]
    pub epochs: usize,
    /// Samples per step.
    #[key(default = 32, min = 1)]
    pub batch: usize,
    /// How to weight uploads: by the client's number of samples, or all equally.
    #[key(default = "size")]
    pub weighting: Weighting,
    /// Whether to run teachers once per client and round instead of once per step. The result is the same.
    #[key(default = true)]
    pub teacher_cache: bool,
}

#[keys]
pub struct OptimizerKeys {
    #[key(flatten)]
    pub rule: StepRule,
    /// Factor applied to the learning rate after each round.
    #[key(default = 1.0, above = 0, max = 1)]
    pub lr_decay: f32,
    /// Largest gradient norm; larger gradients are scaled down to it.
    #[key(above = 0)]
    pub clip: Option<f32>,
}

/// The optimiser on clients.
#[keys(tag = "kind", default = "sgd")]
pub enum StepRule {
    /// Stochastic gradient descent.
    Sgd {
        /// Learning rate in the first round.
        #[key(default = 0.02, above = 0)]
        lr: f32,
        /// Share of the previous step that is kept.
        #[key(default = 0.9, min = 0, below = 1)]
        momentum: f32,
        /// L2 weight decay, added to the gradient.
        #[key(default = 1e-5, min = 0)]
        weight_decay: f32,
    },
    /// Adam.
    Adam {
        /// Learning rate in the first round.
        #[key(default = 0.001, above = 0)]
        lr: f32,
        /// Decay of the running mean of gradients.
        #[key(default = 0.9, min = 0, below = 1)]
        beta1: f32,
        /// Decay of the running mean of squared gradients.
        #[key(default = 0.999, min = 0, below = 1)]
        beta2: f32,
        /// Added to the square root of the mean of squared gradients.
        #[key(default = 1e-8, above = 0)]
        eps: f32,
        /// L2 weight decay, added to the gradient. Adam divides by the size of the gradient, so weights without a
        /// gradient move by the full learning rate, however small the decay is.
        #[key(default = 0.0, min = 0)]
        weight_decay: f32,
    },
}

#[keys(check = needs_weights)]
pub struct ModelKeys {
    /// A file with the layers of your own model, instead of `name`. `fedelity keys layers` explains the kinds of
    /// layers, and `fedelity layers NAME` prints a model of the zoo as such a file.
    #[key(what = "the path of a model file", instead = "name")]
    pub file: Option<PathBuf>,
    /// The network; `fedelity check` reports whether it fits the data.
    #[key(default = "simple-cnn", unless("file", is_given))]
    pub name: Option<ModelName>,
    /// Whether to add two layers before the classifier, as in MOON and FedGKD+.
    #[key(default = false)]
    pub projection: bool,
    /// First layers of a residual network; by default, `cifar` up to 64 pixels and `imagenet` above.
    #[key(only("name", zoo::has_stem))]
    pub stem: Option<Stem>,
    /// Folder with a pretrained encoder and its tokenizer, in Hugging Face format.
    #[key(what = "the path of a folder", only("name", zoo::is_encoder))]
    pub weights: Option<PathBuf>,
    /// Maximum number of tokens per text; longer texts are truncated. Also for a model file whose first layer is an
    /// embedding.
    #[key(default = 128, min = 1, only("name", may_read_text))]
    pub max_length: Option<usize>,
    /// Number of encoder layers to freeze, in addition to the embeddings.
    #[key(only("name", zoo::is_encoder))]
    pub freeze: Option<usize>,
    /// Dropout inside the encoder, instead of the value in its folder.
    #[key(min = 0, below = 1, only("name", zoo::is_encoder))]
    pub dropout: Option<f32>,
    /// Number of words in the vocabulary, if there is no tokenizer. Also for a model file whose first layer is an
    /// embedding.
    #[key(default = 20000, min = 3, only("name", may_read_text), unless("weights", is_given))]
    pub vocabulary: Option<usize>,
}

/// Whether a model reads texts; one without a name has a file, which alone says so.
fn may_read_text(name: &str) -> bool {
    name.is_empty() || zoo::reads_text(name)
}

fn is_given(path: &str) -> bool {
    !path.is_empty()
}

fn needs_weights(model: &ModelKeys) -> Result<(), KeyError> {
    if model.freeze.is_some() && model.weights.is_none() {
        let message = "freeze: there is nothing to freeze without model.weights, the folder with trained weights";
        return Err(KeyError::new("freeze", message));
    }
    if model.weights.is_some() && model.vocabulary.is_some() {
        let message = "vocabulary: not allowed together with model.weights, whose tokenizer has its own";
        return Err(KeyError::new("vocabulary", message));
    }
    Ok(())
}

/// The name of a model in the zoo.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(transparent)]
pub struct ModelName(pub String);

impl fedelity_keys::Typed for ModelName {
    const TYPE: fedelity_keys::ValueType = fedelity_keys::ValueType::Word(zoo::NAMES);
}

#[keys]
pub struct ServerKeys {
    /// Labelled training samples per class that the server holds, such as 32 for FedCAD and 64 for FedSSD.
    #[key(default = 0)]
    pub auxiliary: usize,
    /// Whether clients also hold the auxiliary samples.
    #[key(default = false)]
    pub auxiliary_keep: bool,
    /// Share of the training samples that the server holds for validation, such as 0.1. No client trains on them. They
    /// choose the best round, whose model is kept as best.safetensors. `[stop]` and FedGKD-VOTE need them; FedDF can use
    /// them.
    #[key(default = 0.0, min = 0, below = 1)]
    pub validation: f64,
    /// Training samples that the server holds without their labels, such as 1000 for FedDF.
    #[key(default = 0)]
    pub unlabelled: usize,
    /// Share of a round's clients whose uploads must arrive and be accepted; otherwise the round is repeated with other
    /// clients. Matters with `[faults]`: without them, all uploads arrive.
    #[key(default = 0.5, min = 0, max = 1)]
    pub quorum: f64,
    #[key(flatten)]
    pub optimizer: ServerOptimizer,
    #[key(flatten)]
    pub rule: Rule,
    /// Largest norm of a client's update over its trainable weights; larger updates are scaled down to it before the rule sees
    /// them. Running statistics and other arrays that a method sends are not limited.
    #[key(symbol = "C", above = 0)]
    pub clip_update: Option<f64>,
}

#[keys]
pub struct EvaluationKeys {
    /// Rounds between tests of the global model. The last round is always tested.
    #[key(default = 1, min = 1)]
    pub every: usize,
    /// How much to measure on local models: `all` (every model, on all test samples), `standard` (on as many samples as
    /// fit into a small share of the time) or `fast` (nothing that takes time).
    #[key(default = "standard")]
    pub metrics: Metrics,
    /// Rounds with a confusion matrix, besides the last one.
    #[key(default = [], min = 1)]
    pub confusion: Vec<usize>,
    /// Share of the training samples to test on instead of the test data, to choose settings without the test data.
    /// These samples are not used for training. `fedelity sweep` uses this key for `[tune]`.
    #[key(default = 0.0, min = 0, below = 1)]
    pub held_out: f64,
    /// The client to examine closely, by number or name; by default, the most skewed client of the last round.
    #[key(what = "the number or the name of a client")]
    pub client: Option<ClientChoice>,
    /// With two classes, the one to detect: sensitivity, specificity, F1 and AUC refer to it. By default, the last one,
    /// such as `yes` of `no` and `yes`.
    #[key(what = "the name of a class")]
    pub positive: Option<String>,
    /// How to choose the best round, whose model is kept as best.safetensors. By default, by the validation part
    /// (server.validation); without one, no model is kept. With `test`, by the accuracy on the test samples, which is
    /// then too high an estimate for that model.
    pub best: Option<BestRound>,
}

/// What the best round is chosen by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Choice)]
pub enum BestRound {
    Validation,
    Test,
}

/// A client by its number or its name.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(untagged)]
pub enum ClientChoice {
    Number(usize),
    Name(String),
}

impl fedelity_keys::Typed for ClientChoice {
    const TYPE: ValueType = ValueType::Either(&[ValueType::Whole, ValueType::Text]);
}

#[keys(check = StopKeys::has_patience)]
pub struct StopKeys {
    /// End a run once the accuracy on the validation part (server.validation) has not improved for this many rounds. By
    /// default, all rounds run.
    #[key(min = 1)]
    pub patience: Option<usize>,
    /// How much the accuracy must rise to count as an improvement, as a share; 0 by default.
    #[key(min = 0, below = 1)]
    pub min_delta: Option<f64>,
}

impl StopKeys {
    fn has_patience(&self) -> Result<(), KeyError> {
        if self.min_delta.is_some() && self.patience.is_none() {
            let message = "min-delta: only allowed with stop.patience, the rounds to wait for an improvement";
            return Err(KeyError::new("min-delta", message));
        }
        Ok(())
    }
}

#[keys(check = PrivacyKeys::has_noise)]
pub struct PrivacyKeys {
    /// Standard deviation of the Gaussian noise on the sum of the updates, as a multiple of server.clip-update. Needs that key
    /// and clients.weighting = "uniform". By default, or at 0, there is no noise and no guarantee.
    #[key(symbol = "z", min = 0)]
    pub noise: Option<f64>,
    /// Who adds the noise: the `server`, to the mean of the updates, or each `client`, to its own update. By default,
    /// the server.
    pub at: Option<NoiseAt>,
    /// The delta at which epsilon is reported; 1e-5 by default. It should be well below 1 / clients.
    #[key(above = 0, below = 1)]
    pub delta: Option<f64>,
}

impl PrivacyKeys {
    /// Who adds noise, and how much; nothing if there is none.
    pub fn noise(&self) -> Option<(NoiseAt, f64)> {
        self.noise.filter(|noise| *noise > 0.0).map(|noise| (self.at.unwrap_or_default(), noise))
    }

    pub fn delta(&self) -> f64 {
        self.delta.unwrap_or(1e-5)
    }

    fn has_noise(&self) -> Result<(), KeyError> {
        let stray = [("at", self.at.is_some()), ("delta", self.delta.is_some())];
        match stray.into_iter().find(|(_, given)| *given && self.noise.is_none()) {
            Some((key, _)) => {
                let message = format!("{key}: only allowed with privacy.noise, such as privacy.noise = 1.0");
                Err(KeyError::new(key, message))
            }
            None => Ok(()),
        }
    }
}
