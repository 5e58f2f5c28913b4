//! Why a server rejects an upload.

use crate::wire::WireError;

/// Why an upload or a broadcast is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// Its bytes are not an upload.
    #[error("it cannot be read: {reason}")]
    Unreadable { reason: WireError },
    /// The client was not selected.
    #[error("client {client} does not take part in this round")]
    Stranger { client: usize },
    /// The client's upload has already arrived.
    #[error("client {client} has already sent an upload in this round")]
    Twice { client: usize },
    /// Another round is open. Rounds are counted from 1.
    #[error("it belongs to round {found}, but round {expected} is open")]
    Round { expected: usize, found: usize },
    /// More samples than any client can hold.
    #[error("it claims {found} samples, but a client holds at most {most}")]
    Samples { found: usize, most: u32 },
    /// It belongs to another model.
    #[error("it has {found} weights, but the model has {expected}")]
    Weights { expected: usize, found: usize },
    /// An array is missing.
    #[error("it lacks the array '{name}'")]
    Missing { name: String },
    /// An array that the method did not declare.
    #[error("it has an array '{name}', which is not part of the method")]
    Undeclared { name: String },
    /// An array is too long or too short.
    #[error("its array '{name}' has {found} numbers, expected {expected}")]
    Length { name: String, expected: usize, found: usize },
    /// A number is infinite or NaN.
    #[error("the numbers of its {what} are not all finite")]
    NotFinite { what: String },
    /// A variance is negative.
    #[error("its '{name}' has a negative number, which a variance cannot have")]
    Variance { name: String },
    /// A weight is so large that adding it up would leave nothing of the others.
    #[error("its largest weight is more than {times} times that of the global model")]
    Enormous { times: u32 },
}
