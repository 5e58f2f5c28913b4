//! What can go wrong in a round.

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, with the values involved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    // Settings.
    /// A setting is out of range.
    #[error("{key} = {value}: allowed is {allowed}")]
    Setting {
        /// The setting, as a configuration names it.
        key: &'static str,
        /// What was given.
        value: String,
        /// What is allowed.
        allowed: String,
    },
    /// The model does not fit the data.
    #[error("the model '{model}' takes {what} {expected}, but the data have {found}")]
    Unfit {
        /// The model's name.
        model: String,
        /// What does not fit.
        what: &'static str,
        /// What the model has.
        expected: String,
        /// What the data have.
        found: String,
    },
    /// A method needs something that the federation does not offer.
    #[error("the method '{method}' needs {what}, and none was given")]
    Needs {
        /// The method's id.
        method: &'static str,
        /// What it needs.
        what: &'static str,
    },

    // Methods.
    /// A payload lacks an array.
    #[error("the payload has no array '{name}'; it has {}", if keys.is_empty() { "none".to_string() } else { keys.join(", ") })]
    Missing {
        /// The array that was asked for.
        name: String,
        /// The arrays that are there.
        keys: Vec<String>,
    },
    /// An array has the wrong length.
    #[error("{what} has {found} numbers where {expected} were expected")]
    Length {
        /// The array.
        what: String,
        /// How long it should be.
        expected: usize,
        /// How long it is.
        found: usize,
    },
    /// A method refuses to go on.
    #[error("the method '{method}': {reason}")]
    Method {
        /// The method's id.
        method: &'static str,
        /// Why.
        reason: String,
    },

    // Rounds.
    /// The training of a client left the finite numbers. Round, epoch and step are counted from 1.
    #[error("round {round}, client {client}: training diverged in epoch {epoch}, step {step} (loss {loss})")]
    Diverged {
        /// The round, counted from 1.
        round: usize,
        /// The client.
        client: usize,
        /// The local epoch, counted from 1.
        epoch: usize,
        /// The step of this client in this round, counted from 1.
        step: usize,
        /// The loss of that step. It is finite if the step itself broke the weights.
        loss: f32,
    },
    /// Training on the server left the finite numbers. Round, epoch and step are counted from 1.
    #[error("round {round}: training on the server diverged in epoch {epoch}, step {step} (loss {loss})")]
    ServerDiverged {
        /// The round, counted from 1.
        round: usize,
        /// The epoch, counted from 1.
        epoch: usize,
        /// The step, counted from 1.
        step: usize,
        /// The loss of that step.
        loss: f32,
    },
    /// The global model left the finite numbers: what it says of test samples has no finite loss.
    #[error("round {round}: the global model diverged: its loss on the test data is not finite")]
    GlobalDiverged {
        /// The round, counted from 1.
        round: usize,
    },
    /// A mean was asked for before anything was added, or all weights were 0.
    #[error("nothing to average: the uploads of this round weigh {weight} together")]
    NothingGathered {
        /// The total weight.
        weight: f64,
    },
    /// An upload came outside a round, or a round was opened or closed twice.
    #[error("{what}: round {round} is {state}")]
    Order {
        /// What was tried.
        what: &'static str,
        /// The round, counted from 1.
        round: usize,
        /// Open or not open.
        state: &'static str,
    },
}

impl Error {
    /// Whether training left the finite numbers: a result of the run, not a mistake in its settings.
    pub fn is_divergence(&self) -> bool {
        matches!(self, Self::Diverged { .. } | Self::ServerDiverged { .. } | Self::GlobalDiverged { .. })
    }
}
