//! Which accuracy of a run is compared.

use serde::Serialize;

use crate::loaded::LoadedRun;

/// Rounds that the mean of the last ones is over.
const LAST: usize = 10;

/// The accuracy that stands for a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Judged {
    /// In the last round.
    #[default]
    Final,
    /// The mean of the last ten rounds.
    LastTen,
    /// In the best round.
    Best,
}

impl Judged {
    /// As a share.
    pub fn of(self, run: &LoadedRun) -> Option<f64> {
        match self {
            Self::Final => run.summary.final_accuracy,
            Self::LastTen => last_ten(run),
            Self::Best => run.summary.best.map(|best| best.accuracy),
        }
    }

    /// What a difference is in.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Final => "final accuracy",
            Self::LastTen => "the mean accuracy of the last ten rounds",
            Self::Best => "the accuracy of the best round, which the test data choose",
        }
    }
}

/// The mean accuracy of the last ten evaluated rounds, or of all if there are fewer.
fn last_ten(run: &LoadedRun) -> Option<f64> {
    let curve = run.curve(|record| record.accuracy);
    let last = &curve[curve.len().saturating_sub(LAST)..];
    (!last.is_empty()).then(|| last.iter().map(|(_, found)| found).sum::<f64>() / last.len() as f64)
}
