//! The keys of a preset, and their meaning.

use fedelity_keys::{Choice, KeyError, Keys, Schema, keys};
use fedelity_report::{Departure, Quantity, QuantityKind, WhichModels, WhichRound};
use toml::{Table, Value};

/// A preset: a published table, and the configuration of each of its numbers.
#[keys]
pub(super) struct PresetKeys {
    /// What the table shows.
    pub(super) title: String,
    /// Where it was published.
    pub(super) source: String,
    /// What a reader should know about it.
    pub(super) about: Option<String>,
    /// The row to compare the others with.
    #[key(default = "fedavg")]
    pub(super) baseline: String,
    /// Seeds: every row of every cell runs once per seed.
    #[key(default = [1, 2, 3])]
    pub(super) seeds: Vec<u64>,
    /// The configuration that all runs share.
    #[key(default = {}, what = "a table [config]")]
    pub(super) config: Value,
    /// The quantities that the table shows, as `[[quantity]]`. Each gets verdicts of its own.
    #[key(what = "tables [[quantity]]")]
    pub(super) quantity: Value,
    /// The settings of the table, usually its columns, as `[[cell]]`.
    #[key(what = "tables [[cell]]")]
    pub(super) cell: Value,
    /// What is compared in every cell, usually methods, as `[[row]]`. Rows without published numbers run only if named.
    #[key(what = "tables [[row]]")]
    pub(super) row: Value,
    /// Where the configuration differs, or may differ, from the publication, as `[[departure]]`.
    #[key(default = [], what = "tables [[departure]]")]
    pub(super) departure: Value,
}

/// `[[departure]]`.
#[keys]
struct DepartureKeys {
    /// What the publication says.
    paper: String,
    /// What is done here, and why.
    here: String,
}

/// `[[quantity]]`.
#[keys]
struct QuantityKeys {
    /// What rows call the quantity in `published`.
    name: String,
    /// What tables call the quantity.
    title: Option<String>,
    #[key(flatten)]
    kind: QuantityRule,
}

/// How to compute the number from the records of a run.
#[keys(tag = "kind", default = "final")]
enum QuantityRule {
    /// Accuracy in the last round, in percent.
    Final,
    /// Mean accuracy of the last ten rounds, in percent.
    LastTen,
    /// The best accuracy of all rounds, in percent.
    Best,
    /// Accuracy in one round, in percent.
    Round {
        /// For `round`: the round, counted from 1.
        #[key(min = 1)]
        at: u64,
    },
    /// How far class accuracies are below their best in earlier rounds: the mean over classes, as a share.
    Forgetting {
        /// For `forgetting`: the round to measure it in.
        #[key(default = "final")]
        round: ForgettingRound,
    },
    /// The first round that reaches the target of the cell, or the baseline's final accuracy.
    ToTarget,
    /// The share of a layer's units that prefer the same class as before the round.
    Alignment {
        /// For `alignment`: the name of the layer.
        layer: String,
        /// For `alignment`: the models after the round, the clients' or the global one.
        #[key(default = "global")]
        models: AlignedModels,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Choice)]
enum ForgettingRound {
    Final,
    Best,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Choice)]
enum AlignedModels {
    Local,
    Global,
}

/// `[[cell]]`.
#[keys]
pub(super) struct CellKeys {
    /// Name of the cell, for the command line and for folders.
    pub(super) name: String,
    /// Title of the cell, for readers.
    pub(super) title: Option<String>,
    /// The target accuracy of `to-target`, in percent, instead of the baseline's final accuracy.
    #[key(above = 0, max = 100)]
    pub(super) target: Option<f64>,
    /// Keys of the configuration to set for the cell.
    #[key(default = {}, what = "a table [cell.set]")]
    pub(super) set: Value,
    /// By row: keys to set for the row only in this cell.
    #[key(default = {}, what = "a table [cell.rows]")]
    pub(super) rows: Value,
}

/// `[[row]]`.
#[keys]
pub(super) struct RowKeys {
    /// Name of the row, for the command line and for folders; without `set.method.name`, also the method.
    pub(super) name: String,
    /// What tables call the row; by default, the method's name in papers.
    pub(super) title: Option<String>,
    /// Keys of the configuration to set for the row, such as `method.mu`.
    #[key(default = {}, what = "a table [row.set]")]
    pub(super) set: Value,
    /// The published numbers: for each quantity, one value per cell in the order of the cells. "-" stands for a value that the
    /// table lacks, and "never" for a target that was not reached.
    #[key(default = {}, what = "a table [row.published]")]
    pub(super) published: Value,
    /// Their standard deviations, in the same form.
    #[key(default = {}, what = "a table [row.sd]")]
    pub(super) sd: Value,
}

/// The tables of a list such as `[[cell]]`, with their paths.
pub(super) fn tables<'v>(name: &str, value: &'v Value) -> Result<Vec<(String, &'v Table)>, KeyError> {
    let items = value.as_array().filter(|items| items.iter().all(Value::is_table));
    let items = items.ok_or_else(|| KeyError::new(name, format!("{name}: expected tables [[{name}]]")))?;
    Ok(items.iter().filter_map(Value::as_table).enumerate().map(|(i, item)| (format!("{name}.{i}"), item)).collect())
}

/// The entries of a table.
pub(super) fn entries<'v>(at: &str, value: &'v Value) -> Result<&'v Table, KeyError> {
    value.as_table().ok_or_else(|| KeyError::expected(at, value, "a table"))
}

pub(super) fn departures(value: &Value) -> Result<Vec<Departure>, KeyError> {
    let one = |(at, table): (String, &Table)| {
        let DepartureKeys { paper, here } = fedelity_keys::read(table, &at, &mut ())?.0;
        Ok(Departure { paper, here })
    };
    tables("departure", value)?.into_iter().map(one).collect()
}

pub(super) fn quantities(value: &Value) -> Result<Vec<Quantity>, KeyError> {
    let one = |(at, table): (String, &Table)| {
        let QuantityKeys { name, title, kind } = fedelity_keys::read(table, &at, &mut ())?.0;
        let (kind, usual) = match kind {
            QuantityRule::Final => (QuantityKind::Final, "final accuracy, %".to_string()),
            QuantityRule::LastTen => (QuantityKind::LastTen, "mean accuracy of the last ten rounds, %".to_string()),
            QuantityRule::Best => (QuantityKind::Best, "best accuracy, %".to_string()),
            QuantityRule::Round { at } => (QuantityKind::Round(at), format!("accuracy in round {at}, %")),
            QuantityRule::Forgetting { round: ForgettingRound::Final } => {
                (QuantityKind::Forgetting(WhichRound::Final), "forgetting, last round".to_string())
            }
            QuantityRule::Forgetting { round: ForgettingRound::Best } => {
                (QuantityKind::Forgetting(WhichRound::Best), "forgetting, best round".to_string())
            }
            QuantityRule::ToTarget => (QuantityKind::ToTarget, "rounds to target".to_string()),
            QuantityRule::Alignment { layer, models } => {
                let (models, whose) = match models {
                    AlignedModels::Local => (WhichModels::Local, "the clients'"),
                    AlignedModels::Global => (WhichModels::Global, "the next global"),
                };
                let title = format!("alignment of {layer} with {whose} models");
                (QuantityKind::Alignment { layer, models }, title)
            }
        };
        Ok(Quantity { name, title: title.unwrap_or(usual), kind })
    };
    tables("quantity", value)?.into_iter().map(one).collect()
}

/// The parts of a preset, by their names.
pub(super) const PARTS: [(&str, &Schema); 4] = [
    ("quantity", QuantityKeys::SCHEMA),
    ("cell", CellKeys::SCHEMA),
    ("row", RowKeys::SCHEMA),
    ("departure", DepartureKeys::SCHEMA),
];
