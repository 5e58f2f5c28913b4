//! A published table: what others measured, in which settings, and how to get the same numbers from our runs.

use serde::Serialize;

use crate::judged::Judged;
use crate::loaded::LoadedRun;

/// A table as it was published.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PublishedTable {
    /// What it is called on the command line.
    pub name: String,
    pub title: String,
    /// Where it was published.
    pub source: String,
    /// What a reader should know about it.
    pub about: String,
    /// The place in `rows` of what the other rows are compared with.
    pub baseline: usize,
    pub quantities: Vec<Quantity>,
    pub cells: Vec<PublishedCell>,
    pub rows: Vec<PublishedRow>,
    pub departures: Vec<Departure>,
}

/// A setting of the table, in which all rows were measured: usually a column.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PublishedCell {
    pub name: String,
    pub title: String,
    /// The accuracy to reach, in percent, if it is not the baseline's final one.
    pub target: Option<f64>,
    /// The published number of rounds.
    pub rounds: u64,
}

/// What is compared within a cell: usually a method.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PublishedRow {
    pub name: String,
    pub title: String,
    /// Values by quantity and cell.
    pub values: Vec<Vec<Option<PublishedValue>>>,
}

impl PublishedRow {
    pub fn value(&self, quantity: usize, cell: usize) -> Option<PublishedValue> {
        *self.values.get(quantity)?.get(cell)?
    }

    /// Whether the table has it. Other rows can be added to the table's cells.
    pub fn is_published(&self) -> bool {
        self.values.iter().flatten().any(Option::is_some)
    }
}

/// A number of the table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PublishedValue {
    /// With its standard deviation, if that was published.
    Number { value: f64, sd: Option<f64> },
    /// A target that was not reached.
    Never,
}

impl PublishedValue {
    pub fn number(self) -> Option<f64> {
        match self {
            Self::Number { value, .. } => Some(value),
            Self::Never => None,
        }
    }
}

/// Where a setting here is not, or not certainly, the publication's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Departure {
    /// What the publication says.
    pub paper: String,
    /// What is done here, and why.
    pub here: String,
}

/// What is measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Quantity {
    pub name: String,
    pub title: String,
    pub kind: QuantityKind,
}

/// A round that a number is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhichRound {
    Final,
    /// The first with the best accuracy on the test samples.
    Best,
}

/// The models that are compared with the global model before the round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhichModels {
    /// The clients' models after training: the mean over clients.
    Local,
    /// The global model after the round.
    Global,
}

/// How a number follows from the records of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum QuantityKind {
    /// Accuracy in the last round, in percent.
    Final,
    /// Mean accuracy of the last ten rounds, in percent.
    LastTen,
    /// The best accuracy of all rounds, in percent.
    Best,
    /// Accuracy in this round, in percent.
    Round(u64),
    /// How far class accuracies are below their best in earlier rounds: the mean over classes, as a share.
    Forgetting(WhichRound),
    /// The first round whose accuracy reaches the target.
    ToTarget,
    /// The share of a layer's units that prefer the same class as before the round, where it was measured last.
    Alignment { layer: String, models: WhichModels },
}

impl QuantityKind {
    /// Decimal places.
    pub(crate) fn digits(&self) -> usize {
        match self {
            Self::Final | Self::LastTen | Self::Best | Self::Round(_) => 2,
            Self::Forgetting(_) | Self::Alignment { .. } => 3,
            Self::ToTarget => 1,
        }
    }

    /// The values that can have been published.
    pub fn range(&self) -> std::ops::RangeInclusive<f64> {
        match self {
            Self::Final | Self::LastTen | Self::Best | Self::Round(_) => 0.0..=100.0,
            Self::Forgetting(_) => -1.0..=1.0,
            Self::Alignment { .. } => 0.0..=1.0,
            Self::ToTarget => 1.0..=1e6,
        }
    }

    /// Whether a run with fewer rounds than published has the same number.
    pub(crate) fn is_within(&self, rounds: u64) -> bool {
        matches!(self, Self::Round(round) if *round <= rounds)
    }

    /// The number of a run; `target` is an accuracy as a share.
    pub(crate) fn of(&self, run: &LoadedRun, target: Option<f64>) -> Option<f64> {
        match self {
            Self::Final => Judged::Final.of(run).map(|found| 100.0 * found),
            Self::LastTen => Judged::LastTen.of(run).map(|found| 100.0 * found),
            Self::Best => Judged::Best.of(run).map(|found| 100.0 * found),
            Self::Round(round) => {
                let found = run.rounds.iter().find(|record| record.round == *round)?;
                found.accuracy.map(|found| 100.0 * found)
            }
            Self::Forgetting(WhichRound::Final) => run.summary.forgetting,
            Self::Forgetting(WhichRound::Best) => {
                let best = run.summary.best?.round;
                run.rounds.iter().find(|record| record.round == best)?.forgetting
            }
            Self::ToTarget => {
                let target = target?;
                let curve = run.curve(|record| record.accuracy);
                curve.iter().find(|(_, found)| *found >= target).map(|(round, _)| *round as f64)
            }
            Self::Alignment { layer, models } => run.rounds.iter().rev().find_map(|record| match models {
                WhichModels::Global => record.alignment.get(layer).copied(),
                WhichModels::Local => record.local.as_ref()?.alignment.get(layer).copied(),
            }),
        }
    }
}
