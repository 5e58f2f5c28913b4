//! Everything that can go wrong in this crate.

use std::io;
use std::path::{Path, PathBuf};

/// An error, with the values involved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The server could not be reached, or the connection was lost for good.
    #[error("cannot get {url}: {reason}")]
    Unreachable { url: String, reason: String },
    /// The server refused.
    #[error("cannot get {url}: the server responded with status {status}")]
    Status { url: String, status: u16 },
    /// A local folder does not have it.
    #[error("cannot get {}: {reason}", path.display())]
    NotHere { path: PathBuf, reason: String },
    /// The file is longer or shorter than the published one.
    #[error("{url}: expected {expected} bytes, found {found}")]
    Length { url: String, expected: u64, found: u64 },
    /// A file of unknown length is longer than allowed.
    #[error("{url}: expected at most {most} bytes, found {found}")]
    TooLong { url: String, most: u64, found: u64 },
    /// The content is not the published one.
    #[error("{what}: expected {kind} {expected}, found {found}; the download was removed")]
    Checksum { what: String, kind: &'static str, expected: String, found: String },
    /// There is no checksum, but this cannot be the published file.
    #[error("{what} {reason}; the download was removed")]
    NotData { what: String, reason: &'static str },
    /// The archive is damaged or malicious.
    #[error("{}: {reason}; nothing was kept", path.display())]
    Archive { path: PathBuf, reason: String },
    /// The certificates to trust cannot be read.
    #[error("SSL_CERT_FILE={}: {reason}", path.display())]
    Certificates { path: PathBuf, reason: String },
    /// A file operation failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, source: io::Error, path: PathBuf },
    /// Something else is where the data set should go.
    #[error("{} already exists and is not what was published: {reason}; move it away to fetch it again", path.display())]
    InTheWay { path: PathBuf, reason: String },
    /// The data set cannot be downloaded.
    #[error("data set '{name}' cannot be downloaded automatically: {how}")]
    ByHand { name: &'static str, how: String },
}

impl FetchError {
    /// For `map_err` after a call that touches a file.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Io { action, source, path: path.to_path_buf() }
    }

    /// Whether another server may help.
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
