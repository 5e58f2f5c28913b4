//! How the program ends.

use std::process::ExitCode;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Done,
    /// It ran, and training left the finite numbers.
    Diverged,
    /// A wrong configuration, data that are not there, a file that cannot be written.
    CouldNotRun,
    /// The user stopped it. What was recorded is kept.
    Interrupted,
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        match status {
            Status::Done => Self::SUCCESS,
            Status::Diverged => Self::from(1),
            Status::CouldNotRun => Self::from(2),
            Status::Interrupted => Self::from(130),
        }
    }
}
