//! Everything that can go wrong in this crate.

use std::io;
use std::path::PathBuf;

/// An error of this crate. Each one carries the values that explain it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server was not reached, or was lost and not reached again.
    #[error("cannot get {url}: {reason}")]
    Unreachable {
        /// What was asked for.
        url: String,
        /// What went wrong last.
        reason: String,
    },
    /// The server says no.
    #[error("cannot get {url}: the server answers {status}")]
    Status {
        /// What was asked for.
        url: String,
        /// The answer.
        status: u16,
    },
    /// A folder of this machine does not have it.
    #[error("cannot get {}: {reason}", path.display())]
    NotHere {
        /// What was looked for.
        path: PathBuf,
        /// What is not there.
        reason: String,
    },
    /// The file is longer or shorter than the published one.
    #[error("{url}: expected {expected} bytes, found {found}")]
    Length {
        /// What was asked for.
        url: String,
        /// The length of the published file.
        expected: u64,
        /// What the server says or sends.
        found: u64,
    },
    /// The file, whose length is not known, is longer than any that is taken.
    #[error("{url}: expected at most {most} bytes, found {found}")]
    TooLong {
        /// What was asked for.
        url: String,
        /// The greatest length.
        most: u64,
        /// What the server says or sends.
        found: u64,
    },
    /// The content is not the published one.
    #[error("{what}: expected {kind} {expected}, found {found}; what was downloaded is removed")]
    Checksum {
        /// Which file.
        what: String,
        /// Which checksum.
        kind: &'static str,
        /// The published one.
        expected: String,
        /// What was computed.
        found: String,
    },
    /// There is no checksum, but this cannot be the published file.
    #[error("{what} {reason}; what was downloaded is removed")]
    NotData {
        /// Which file.
        what: String,
        /// What it is.
        reason: &'static str,
    },
    /// The archive is damaged, or does what no archive of data does.
    #[error("{}: {reason}; nothing of it is kept", path.display())]
    Archive {
        /// The archive.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The certificates to trust cannot be had.
    #[error("SSL_CERT_FILE={}: {reason}", path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The system refused something.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The system's answer.
        source: io::Error,
        /// The file.
        path: PathBuf,
    },
    /// There is something else where the data set should go.
    #[error("{} exists already and is not what was published: {reason}; move it away to fetch it anew", path.display())]
    InTheWay {
        /// The folder or file.
        path: PathBuf,
        /// How that is known.
        reason: String,
    },
    /// The data set cannot be downloaded.
    #[error("data set '{name}' cannot simply be downloaded: {how}")]
    ByHand {
        /// The data set.
        name: &'static str,
        /// What to do.
        how: String,
    },
}

impl Error {
    /// Whether another server could do better.
    pub(crate) fn is_of_the_server(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Status { .. } | Self::Length { .. } | Self::TooLong { .. } => true,
            Self::Checksum { .. } | Self::NotData { .. } | Self::Archive { .. } => true,
            Self::NotHere { .. }
            | Self::Certificates { .. }
            | Self::Io { .. }
            | Self::InTheWay { .. }
            | Self::ByHand { .. } => false,
        }
    }
}
