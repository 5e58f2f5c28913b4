//! Every key of a configuration: what it does, its default and what is allowed.

use std::path::PathBuf;

use fedelity_data::Kind;
use fedelity_fl::Weighting;
use fedelity_keys::{KeyError, keys, toml};
use fedelity_methods::{Rule, ServerOptimizer};
use fedelity_nn::{Stem, zoo};
use fedelity_sim::Metrics;

use super::DataKeys;

/// A whole configuration.
#[keys]
pub struct Config {
    /// Rounds of federated training.
    #[key(default = 30, min = 1)]
    pub rounds: usize,
    /// Seeds of weights, client sampling and training: one run per seed. The partition has a seed of its own.
    #[key(default = [1])]
    pub seeds: Vec<u64>,
    /// One seed, instead of `seeds`.
    pub seed: Option<u64>,
    /// Which data are used, and what is done with them.
    pub data: DataKeys,
    /// Who holds which samples.
    pub partition: PartitionKeys,
    /// What clients do in a round.
    pub clients: ClientKeys,
    /// How a client's weights follow its gradients.
    pub optimizer: OptimizerKeys,
    /// The network.
    pub model: ModelKeys,
    /// What the server holds, and what it makes of the uploads.
    pub server: ServerKeys,
    /// The method, or several as `[[method]]`: `fedelity methods` lists them with their keys.
    #[key(what = "a table [method] or tables [[method]]")]
    pub method: Option<toml::Value>,
    /// What is measured, and when.
    pub evaluation: EvaluationKeys,
}

#[keys]
pub struct PartitionKeys {
    /// Who holds what.
    #[key(flatten)]
    pub kind: Kind,
    /// Number of clients. A natural partition has one per key unless this says otherwise.
    #[key(default = 20, min = 1, unless("kind", is_natural))]
    pub clients: Option<usize>,
    /// Seed of the partition, apart from the seeds of training.
    #[key(default = 1)]
    pub seed: u64,
    /// A partition that `fedelity partition -o` wrote, instead of all other keys.
    #[key(what = "the path of a partition file")]
    pub file: Option<PathBuf>,
}

fn is_natural(kind: &str) -> bool {
    kind == Kind::Natural.name()
}

#[keys]
pub struct ClientKeys {
    /// Clients that train in a round; all of them where there are fewer.
    #[key(default = 10, min = 1)]
    pub per_round: usize,
    /// The share of all clients that trains in a round, instead of `per-round`.
    #[key(above = 0, max = 1)]
    pub fraction: Option<f64>,
    /// Passes of a client over its samples in a round.
    #[key(default = 5, min = 1)]
    pub epochs: usize,
    /// Samples per step.
    #[key(default = 32, min = 1)]
    pub batch: usize,
    /// How much an upload counts: by its samples, or every client the same.
    #[key(default = "size")]
    pub weighting: Weighting,
    /// Whether teachers run once per client and round instead of once per step. The result is the same.
    #[key(default = true)]
    pub teacher_cache: bool,
}

#[keys]
pub struct OptimizerKeys {
    #[key(flatten)]
    pub rule: StepRule,
    /// Factor on the learning rate from one round to the next.
    #[key(default = 1.0, above = 0, max = 1)]
    pub lr_decay: f32,
    /// Largest norm of a gradient; longer ones are cut to it.
    #[key(above = 0)]
    pub clip: Option<f32>,
}

/// The optimiser on clients.
#[keys(tag = "kind", default = "sgd")]
pub enum StepRule {
    /// Stochastic gradient descent.
    Sgd {
        /// Learning rate of the first round.
        #[key(default = 0.02, above = 0)]
        lr: f32,
        /// Share of the last step that is kept.
        #[key(default = 0.9, min = 0, below = 1)]
        momentum: f32,
        /// L2 weight decay, added to the gradient.
        #[key(default = 1e-5, min = 0)]
        weight_decay: f32,
    },
    /// Adam.
    Adam {
        /// Learning rate of the first round.
        #[key(default = 0.001, above = 0)]
        lr: f32,
        /// Decay of the mean of gradients.
        #[key(default = 0.9, min = 0, below = 1)]
        beta1: f32,
        /// Decay of the mean of their squares.
        #[key(default = 0.999, min = 0, below = 1)]
        beta2: f32,
        /// Added to the root of that mean.
        #[key(default = 1e-8, above = 0)]
        eps: f32,
        /// L2 weight decay, added to the gradient. Adam divides by the size of the gradient, so where a sample moves
        /// nothing, decay alone moves weights by the whole learning rate, however small it is.
        #[key(default = 0.0, min = 0)]
        weight_decay: f32,
    },
}

#[keys(check = needs_weights)]
pub struct ModelKeys {
    /// The network: `fedelity data show` and `check` say what fits which data.
    #[key(default = "simple-cnn")]
    pub name: ModelName,
    /// Whether two more layers stand before the classifier, as in MOON and FedGKD+.
    #[key(default = false)]
    pub projection: bool,
    /// How a residual network starts; without it, `cifar` up to 64 pixels and `imagenet` above.
    #[key(only("name", zoo::has_stem))]
    pub stem: Option<Stem>,
    /// Folder of a pretrained encoder with its tokenizer, as Hugging Face saves it.
    #[key(what = "the path of a folder", only("name", zoo::is_encoder))]
    pub weights: Option<PathBuf>,
    /// Tokens of a text, at most.
    #[key(default = 128, min = 1, only("name", zoo::reads_text))]
    pub max_length: Option<usize>,
    /// Blocks of the encoder, and with them its embeddings, that stay as they were loaded.
    #[key(only("name", zoo::is_encoder))]
    pub freeze: Option<usize>,
    /// Dropout inside the encoder, instead of what its folder says.
    #[key(min = 0, below = 1, only("name", zoo::is_encoder))]
    pub dropout: Option<f32>,
    /// Words of the vocabulary, where there is no tokenizer.
    #[key(default = 20000, min = 3, only("name", zoo::reads_text), unless("weights", is_given))]
    pub vocabulary: Option<usize>,
}

fn is_given(path: &str) -> bool {
    !path.is_empty()
}

fn needs_weights(model: &ModelKeys) -> Result<(), KeyError> {
    if model.freeze.is_some() && model.weights.is_none() {
        let message = "freeze: there is nothing to keep without model.weights, the folder with trained weights";
        return Err(KeyError::new("freeze", message));
    }
    if model.weights.is_some() && model.vocabulary.is_some() {
        let message = "vocabulary: not allowed beside model.weights, whose tokenizer has its own";
        return Err(KeyError::new("vocabulary", message));
    }
    Ok(())
}

/// The name of a model of the zoo.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(transparent)]
pub struct ModelName(pub String);

impl fedelity_keys::Typed for ModelName {
    const TYPE: fedelity_keys::ValueType = fedelity_keys::ValueType::Word(zoo::NAMES);
}

#[keys]
pub struct ServerKeys {
    /// Labelled training samples of each class that the server holds, such as 32 for FedCAD and 64 for FedSSD.
    #[key(default = 0)]
    pub auxiliary: usize,
    /// Whether clients hold the auxiliary samples too.
    #[key(default = false)]
    pub auxiliary_keep: bool,
    /// Share of the training samples that the server holds for validation, such as 0.1 for FedGKD-VOTE.
    #[key(default = 0.0, min = 0, below = 1)]
    pub validation: f64,
    /// Training samples that the server holds without their labels, such as 1000 for FedDF.
    #[key(default = 0)]
    pub unlabelled: usize,
    #[key(flatten)]
    pub optimizer: ServerOptimizer,
    #[key(flatten)]
    pub rule: Rule,
}

#[keys]
pub struct EvaluationKeys {
    /// Rounds from one test of the global model to the next. The last round is always tested.
    #[key(default = 1, min = 1)]
    pub every: usize,
    /// How much is measured of local models: `all` (each of them, on all test samples), `standard` (on as many as fit
    /// into a small share of the time) or `fast` (nothing that takes time).
    #[key(default = "standard")]
    pub metrics: Metrics,
    /// Rounds with a confusion matrix, besides the last one.
    #[key(default = [], min = 1)]
    pub confusion: Vec<usize>,
    /// The client to look at closely; without it, the most one-sided of the last round.
    pub client: Option<usize>,
}
