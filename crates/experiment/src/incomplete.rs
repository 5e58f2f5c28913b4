//! A study some of whose runs could not be finished.

use std::fmt;

use fedelity_report::Results;

/// The results of a study some of whose rounds could not be closed: the runs stopped there, and the others went on.
#[derive(Debug)]
pub struct Incomplete {
    /// What there is, the first rounds of stopped runs included.
    pub results: Results,
    /// The runs that stopped: their method and seed, and why.
    pub stopped: Vec<(String, u64, String)>,
    /// The number of runs of the study.
    pub of: usize,
}

impl fmt::Display for Incomplete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said: Vec<String> =
            self.stopped.iter().map(|(label, seed, why)| format!("{label}, seed {seed}: {why}")).collect();
        write!(f, "{} of {} runs did not finish: {}", said.len(), self.of, said.join("; "))
    }
}
