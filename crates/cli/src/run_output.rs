//! The output of a command that trains: its reader may leave, and training goes on.

use std::io::ErrorKind;
use std::sync::{Mutex, PoisonError};

use anyhow::{Error, Result};
use serde::Serialize;

use crate::printer::{Printer, io_kind};
use crate::status::ExitStatus;

/// Prints until it fails: a program that ends, such as head, must not end the training that it looks at.
pub(crate) struct RunOutput<'a> {
    printer: &'a Printer,
    /// Why nothing is printed any more.
    lost: Mutex<Option<Error>>,
}

impl<'a> RunOutput<'a> {
    pub(crate) fn new(printer: &'a Printer) -> Self {
        Self { printer, lost: Mutex::default() }
    }

    /// One JSON object on one line.
    pub(crate) fn json(&self, value: &impl Serialize) {
        self.print(|| self.printer.json(value));
    }

    /// Lines of a table.
    pub(crate) fn drawn(&self, lines: Vec<String>) {
        self.print(|| self.printer.drawn(lines));
    }

    fn print(&self, print: impl FnOnce() -> Result<()>) {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        if lost.is_some() {
            return;
        }
        if let Err(error) = print() {
            let why = match io_kind(&error) {
                Some(ErrorKind::BrokenPipe) => "nobody reads the output any more".to_string(),
                _ => format!("cannot write the output: {error}"),
            };
            self.printer.warn(format_args!("{why}; training goes on, and Ctrl-C stops it"));
            *lost = Some(error);
        }
    }

    /// The status of the command. A reader that has left changes nothing; output that could not be written is an
    /// error, whatever became of the training.
    pub(crate) fn end(self, status: ExitStatus) -> Result<ExitStatus> {
        let lost = self.lost.into_inner().unwrap_or_else(PoisonError::into_inner);
        match lost {
            Some(error) if io_kind(&error) != Some(ErrorKind::BrokenPipe) => {
                Err(error.context("the output is incomplete, but the run folder is not"))
            }
            _ => Ok(status),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::printer::When;

    #[test]
    fn only_a_reader_that_leaves_is_forgiven() {
        let printer = Printer::new(When::Never, true, false);
        let ended = |error: io::Error| {
            let output = RunOutput::new(&printer);
            let mut calls = 0;
            output.print(|| {
                calls += 1;
                Err(error.into())
            });
            output.print(|| {
                calls += 1;
                Ok(())
            });
            assert_eq!(calls, 1);
            output.end(ExitStatus::Diverged)
        };
        assert_eq!(ended(ErrorKind::BrokenPipe.into()).unwrap(), ExitStatus::Diverged);
        assert!(ended(ErrorKind::StorageFull.into()).is_err());
        assert_eq!(RunOutput::new(&printer).end(ExitStatus::Done).unwrap(), ExitStatus::Done);
    }
}
