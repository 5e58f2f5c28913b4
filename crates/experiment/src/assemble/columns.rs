//! The form of a table's rows, in the data and in the description of a model.

use fedelity_data::{Column, ColumnKind, TableForm};
use fedelity_nn::{Card, ColumnCard, ColumnValues, TableCard};

/// The form as a model file describes it.
pub(crate) fn describe(form: &TableForm) -> TableCard {
    let column = |column: &Column| ColumnCard {
        name: column.name.clone(),
        values: match &column.kind {
            ColumnKind::Number { mean, std } => ColumnValues::Number { mean: *mean, std: *std },
            ColumnKind::Categories(names) => ColumnValues::Categories(names.clone()),
        },
    };
    TableCard {
        label: form.label.clone(),
        text: form.text.clone(),
        columns: form.columns.iter().map(column).collect(),
        others: form.others.clone(),
    }
}

/// The form of the rows that a model reads, if its file says so.
pub fn table_form(card: &Card) -> Option<TableForm> {
    let table = card.table.as_ref()?;
    let column = |column: &ColumnCard| Column {
        name: column.name.clone(),
        kind: match &column.values {
            ColumnValues::Number { mean, std } => ColumnKind::Number { mean: *mean, std: *std },
            ColumnValues::Categories(names) => ColumnKind::Categories(names.clone()),
        },
    };
    Some(TableForm {
        label: table.label.clone(),
        text: table.text.clone(),
        columns: table.columns.iter().map(column).collect(),
        others: table.others.clone(),
        constant: Vec::new(),
        notes: Vec::new(),
    })
}
