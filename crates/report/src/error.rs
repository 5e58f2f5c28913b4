//! What can go wrong with a report.

/// An error, with the values involved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    #[error("no runs in {paths}{reasons}")]
    NoRun { paths: String, reasons: String },
    /// A key that cannot be mixed.
    #[error("--mix {name}: {what}")]
    Mix { name: String, what: String },
    /// The runs include no such method.
    #[error("no method '{name}' among the runs; the methods are {known}")]
    UnknownBaseline { name: String, known: String },
    /// The runs have no such client.
    #[error("no client '{name}' among the runs: {known}")]
    Client { name: String, known: String },
    #[error("cannot draw {figure}: {reason}")]
    Figure { figure: String, reason: String },
}
