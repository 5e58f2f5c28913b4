//! What a front end sees of runs, and what it decides about them.

use std::sync::Arc;

use fedelity_files::Claim;
use fedelity_record::{RoundRecord, RunFolder};

use crate::ExperimentError;
use crate::checkpoint::Checkpoints;
use crate::error::Result;
use crate::run::{Outcome, Run};
use crate::stop::StopSign;

/// The error of a front end.
pub type FrontError = Box<dyn std::error::Error + Send + Sync>;

/// A front end's view of runs, and its decisions about them. `()` ignores everything and never stops.
pub trait Observer {
    /// A run starts, or goes on after some rounds, in an existing folder.
    fn start(&mut self, _run: &Run<'_>, _folder: &RunFolder, _rounds: usize) -> Result<(), FrontError> {
        Ok(())
    }

    /// A run had already ended.
    fn skip(&mut self, _run: &Run<'_>, _outcome: &Outcome) {}

    /// A round has been recorded. If this fails, the record is completed before the error is returned.
    fn round(&mut self, _run: &Run<'_>, _record: &RoundRecord) -> Result<(), FrontError> {
        Ok(())
    }

    /// A run ended.
    fn end(&mut self, _run: &Run<'_>, _outcome: &Outcome) {}

    /// A run stopped because too few uploads counted; others follow.
    fn stopped(&mut self, _run: &Run<'_>, _error: &ExperimentError) {}

    /// Something that the user should know about the run.
    fn note(&mut self, _note: &str) {}

    /// How much of an unfinished run to keep on disk.
    fn checkpoints(&self) -> Checkpoints {
        Checkpoints::default()
    }

    /// The claim on the run, if processes share work: once another process has it, nothing is written any more.
    fn claim(&self) -> Option<Arc<Claim>> {
        None
    }

    /// A sign that is asked when runs should stop: those clients that are training finish first.
    fn stop(&self) -> StopSign {
        StopSign::default()
    }
}

impl Observer for () {}
