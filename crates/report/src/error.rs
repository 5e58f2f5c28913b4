//! What can go wrong with a report.

/// An error, with the values involved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    #[error("no runs in {paths}{reasons}")]
    NoRun { paths: String, reasons: String },
    #[error("the runs cannot be compared: {what}. --force compares them anyway")]
    Mismatch { what: String },
    /// The runs include no such method.
    #[error("no method '{name}' among the runs; the methods are {known}")]
    UnknownBaseline { name: String, known: String },
    #[error("cannot draw {figure}: {reason}")]
    Figure { figure: String, reason: String },
}
