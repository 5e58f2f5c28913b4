//! Exit statuses of the program.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    Done,
    /// It ran, and training diverged.
    Diverged,
    /// An invalid configuration, missing data, a file that cannot be written.
    CouldNotRun,
    /// The user stopped it. Recorded rounds are kept.
    Interrupted,
}

impl ExitStatus {
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Diverged => 1,
            Self::CouldNotRun => 2,
            Self::Interrupted => 130,
        }
    }
}
