//! Exit statuses of the program.

use std::process::ExitCode;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    Done,
    /// It ran, and training diverged.
    Diverged,
    /// An invalid configuration, missing data, a file that cannot be written.
    CouldNotRun,
    /// The user stopped it. Recorded rounds are kept.
    Interrupted,
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        match status {
            ExitStatus::Done => Self::SUCCESS,
            ExitStatus::Diverged => Self::from(1),
            ExitStatus::CouldNotRun => Self::from(2),
            ExitStatus::Interrupted => Self::from(130),
        }
    }
}
