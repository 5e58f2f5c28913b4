//! What a run does when nothing is said: every default of the configuration, in one place.

pub(crate) const ROUNDS: usize = 30;
pub(crate) const SEED: u64 = 1;
pub(crate) const DATA: &str = "fashion-mnist-mini";
pub(crate) const TEST_FRACTION: f64 = 0.2;
pub(crate) const LABEL: &str = "label";
pub(crate) const AUGMENTATION: &str = "none";
pub(crate) const PARTITION: &str = "dirichlet";
pub(crate) const CLIENTS: usize = 20;
pub(crate) const ALPHA: f64 = 0.1;
pub(crate) const MIN_SIZE: usize = 10;
pub(crate) const SHARDS: usize = 2;
pub(crate) const LABELS: usize = 2;
pub(crate) const PARTITION_SEED: u64 = 1;
/// Cut to the number of clients where there are fewer.
pub(crate) const PER_ROUND: usize = 10;
pub(crate) const EPOCHS: usize = 5;
pub(crate) const BATCH: usize = 32;
/// It never changes a bit of the result.
pub(crate) const TEACHER_CACHE: bool = true;
pub(crate) const OPTIMIZER: &str = "sgd";
pub(crate) const SGD_LR: f64 = 0.02;
pub(crate) const MOMENTUM: f64 = 0.9;
pub(crate) const ADAM_LR: f64 = 0.001;
pub(crate) const BETA1: f64 = 0.9;
pub(crate) const BETA2: f64 = 0.999;
pub(crate) const EPS: f64 = 1e-8;
pub(crate) const WEIGHT_DECAY: f64 = 1e-5;
/// Adam divides the gradient by its size: where a sample moves nothing, as words that no text has, decay alone would move
/// weights by the whole learning rate, however small it is.
pub(crate) const ADAM_WEIGHT_DECAY: f64 = 0.0;
pub(crate) const LR_DECAY: f64 = 1.0;
pub(crate) const MODEL: &str = "simple-cnn";
/// Tokens of a text (FedGKD).
pub(crate) const MAX_LENGTH: usize = 128;
pub(crate) const VOCABULARY: usize = 20_000;
pub(crate) const AUXILIARY: usize = 0;
pub(crate) const AUXILIARY_KEEP: bool = false;
pub(crate) const VALIDATION: f64 = 0.0;
pub(crate) const UNLABELLED: usize = 0;
pub(crate) const METHOD: &str = "fedavg";
pub(crate) const EVALUATE_EVERY: usize = 1;
