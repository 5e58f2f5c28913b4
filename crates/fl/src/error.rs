//! What can go wrong in a round.

use crate::Rejection;

pub type Result<T, E = FlError> = std::result::Result<T, E>;

/// An error, with the values involved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FlError {
    // Settings.
    #[error("{key} = {value}: expected {allowed}")]
    Setting { key: &'static str, value: String, allowed: String },
    #[error("the model '{model}' takes {what} {expected}, but the data have {found}")]
    Unfit { model: String, what: &'static str, expected: String, found: String },
    #[error("the method '{method}' needs {what}, but there are none")]
    Needs { method: &'static str, what: &'static str },

    // Methods.
    #[error("the payload has no array '{name}'; it has {}", if keys.is_empty() { "none".to_string() } else { keys.join(", ") })]
    Missing { name: String, keys: Vec<String> },
    #[error("{what} has {found} numbers, expected {expected}")]
    Length { what: String, expected: usize, found: usize },
    #[error("the method '{method}': {reason}")]
    Method { method: &'static str, reason: String },

    // Rounds.
    /// A client's training diverged. Round, epoch and step are counted from 1.
    #[error("round {round}, client {client}: training diverged in epoch {epoch}, step {step} (loss {loss})")]
    Diverged { round: usize, client: usize, epoch: usize, step: usize, loss: f32 },
    /// Training on the server diverged. Round, epoch and step are counted from 1.
    #[error("round {round}: training on the server diverged in epoch {epoch}, step {step} (loss {loss})")]
    ServerDiverged { round: usize, epoch: usize, step: usize, loss: f32 },
    /// The global model diverged: its loss on the test samples is not finite.
    #[error("round {round}: the global model diverged: its loss on the test data is not finite")]
    GlobalDiverged { round: usize },
    /// A trusted client sent an upload that the server rejects.
    #[error("round {round}: the upload of client {client} was rejected: {reason}")]
    Rejected { round: usize, client: usize, reason: Rejection },
    /// A client received something that its method does not send.
    #[error("the broadcast of round {round} cannot be used: {reason}")]
    Broadcast { round: usize, reason: Rejection },
    /// A teacher from the broadcast or the client's memory is not a valid model.
    #[error("round {round}, client {client}: teacher {teacher} cannot be used: {reason}")]
    Teacher { round: usize, client: usize, teacher: usize, reason: Rejection },
    /// Too few uploads could be used, however often the round was repeated.
    #[error(
        "round {round}: only {accepted} of at least {needed} uploads were accepted, although the round was repeated \
         {repeats} times; in the last attempt, {lost}"
    )]
    Quorum { round: usize, accepted: usize, needed: usize, repeats: usize, lost: String },
    /// A round was opened with unknown or duplicate clients.
    #[error("round {round}: expected different clients, each below {clients}")]
    Clients { round: usize, clients: usize },
    /// A mean was requested before anything was added, or all weights were 0.
    #[error("nothing to average: the total weight of this round's uploads is {weight}")]
    NothingGathered { weight: f64 },
    /// An upload arrived outside a round, or a round was opened or closed twice.
    #[error("{what}: round {round} is {state}")]
    Order { what: &'static str, round: usize, state: &'static str },
}

impl FlError {
    /// Whether training diverged: a result of the run, not a mistake in its settings.
    pub fn is_divergence(&self) -> bool {
        self.divergence().is_some()
    }

    /// The round, counted from 1, and the client in which training diverged, if that is the error.
    pub fn divergence(&self) -> Option<(usize, Option<usize>)> {
        match *self {
            Self::Diverged { round, client, .. }
            | Self::Rejected { round, client, reason: Rejection::NotFinite { .. } | Rejection::Enormous { .. } } => {
                Some((round, Some(client)))
            }
            Self::ServerDiverged { round, .. } | Self::GlobalDiverged { round } => Some((round, None)),
            Self::Rejected { .. }
            | Self::Setting { .. }
            | Self::Unfit { .. }
            | Self::Needs { .. }
            | Self::Missing { .. }
            | Self::Length { .. }
            | Self::Method { .. }
            | Self::Broadcast { .. }
            | Self::Teacher { .. }
            | Self::Quorum { .. }
            | Self::Clients { .. }
            | Self::NothingGathered { .. }
            | Self::Order { .. } => None,
        }
    }
}
