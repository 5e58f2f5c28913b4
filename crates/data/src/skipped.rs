//! Samples that were skipped because they are unusable.

use std::path::Path;

use crate::error::DataError;

/// How unusable samples are handled: rejected, or skipped and counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Whether samples may be skipped.
    pub allowed: bool,
    /// How many were.
    pub count: usize,
    /// The locations and reasons of the first few.
    pub first: Vec<String>,
}

/// Maximum number of reasons kept.
const KEPT: usize = 5;

impl Skipped {
    /// Skips unusable samples if allowed, or rejects them.
    pub fn new(allowed: bool) -> Self {
        Self { allowed, ..Self::default() }
    }

    /// Counts an unusable sample, or returns the error to stop with.
    pub(crate) fn bad(&mut self, path: &Path, line: Option<u64>, reason: impl Into<String>) -> Result<(), DataError> {
        let (path, reason) = (path.to_path_buf(), reason.into());
        if !self.allowed {
            return Err(DataError::Bad { path, line, reason });
        }
        self.count += 1;
        if self.first.len() < KEPT {
            self.first.push(DataError::Unusable { path, line, reason }.to_string());
        }
        Ok(())
    }

    /// A row, or `None` if it is unusable and skipped.
    pub(crate) fn keep<T>(&mut self, path: &Path, line: u64, row: Result<T, String>) -> Result<Option<T>, DataError> {
        match row {
            Ok(row) => Ok(Some(row)),
            Err(reason) => self.bad(path, Some(line), reason).map(|()| None),
        }
    }

    /// The same as text, if anything was skipped.
    pub fn note(&self) -> Option<String> {
        let more = self.count.checked_sub(self.first.len())?;
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        (self.count > 0).then(|| format!("{} skipped: {}{more}", self.count, self.first.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counted_or_refused() {
        let mut strict = Skipped::default();
        let text = strict.bad(Path::new("a.csv"), Some(3), "no label").unwrap_err().to_string();
        assert!(text.starts_with("a.csv:3: no label; --skip-bad"), "{text}");
        assert_eq!(strict.note(), None);
        let mut lax = Skipped::new(true);
        (1..=7).for_each(|line| lax.bad(Path::new("a.csv"), Some(line), "no label").unwrap());
        let note = lax.note().unwrap();
        assert!(note.starts_with("7 skipped: a.csv:1: no label; ") && note.ends_with("; and 2 more"), "{note}");
    }
}
