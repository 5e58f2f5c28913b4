//! A published table as text, alone or with our numbers beside it.

use fedelity_report::{Departure, GAPS, PublishedTable, Replication, ReplicationSheet, published_cell};

use crate::printer::{Printer, Style};
use crate::view::table::{Align, Table};
use crate::view::units::wrap;
use crate::view::visible::visible;

/// Our numbers beside the published ones, at most `width` columns wide unless names are very long.
pub(crate) fn lines(replication: &Replication, printer: &Printer, width: usize) -> Vec<String> {
    let mut lines = heading(&replication.title, &replication.source, &replication.about, printer, width);
    if let Some(warning) = replication.warning() {
        lines.push(String::new());
        lines.extend(wrap(&warning, width).iter().map(|line| printer.paint(Style::Warning, line)));
    }
    for sheet in replication.sheets() {
        lines.push(String::new());
        lines.push(printer.paint(Style::Heading, &visible(&sheet.title)));
        lines.extend(table(&sheet).lines_within(printer, width, GAPS));
    }
    let order = replication.order_lines();
    for note in order.iter().chain(&replication.notes).chain(&replication.footnotes) {
        lines.push(String::new());
        lines.extend(wrap(note, width));
    }
    lines.extend(departures(&replication.departures, printer, width));
    lines
}

fn table(sheet: &ReplicationSheet) -> Table {
    let align = |(at, heading): (usize, &&'static str)| {
        let left = at == 0 || *heading == "verdict" || heading.ends_with("interval");
        (*heading, if left { Align::Left } else { Align::Right })
    };
    let mut table = Table::new(&sheet.headings.iter().enumerate().map(align).collect::<Vec<_>>());
    for (cell, rows) in &sheet.cells {
        table.heading(cell);
        rows.iter().for_each(|row| table.row(row.iter().cloned()));
    }
    table
}

/// Title and source of a table.
pub(crate) fn heading(title: &str, source: &str, about: &str, printer: &Printer, width: usize) -> Vec<String> {
    let mut lines = vec![printer.paint(Style::Heading, &visible(title))];
    lines.extend(wrap(source, width));
    if !about.is_empty() {
        lines.extend(wrap(about, width));
    }
    lines
}

/// The published numbers: one table per quantity, with a column per cell.
pub(crate) fn published(table: &PublishedTable, printer: &Printer, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for (at, quantity) in table.quantities.iter().enumerate() {
        let mut columns = vec![("published", Align::Left)];
        columns.extend(table.cells.iter().map(|cell| (cell.name.as_str(), Align::Right)));
        let mut shown = Table::new(&columns);
        for row in table.rows.iter().filter(|row| row.is_published()) {
            let cell = |cell: usize| {
                row.value(at, cell).map_or("-".to_string(), |value| published_cell(value, &quantity.kind))
            };
            shown.row(std::iter::once(row.title.clone()).chain((0..table.cells.len()).map(cell)));
        }
        lines.push(String::new());
        lines.push(printer.paint(Style::Heading, &visible(&quantity.title)));
        lines.extend(shown.lines_within(printer, width, columns.len().div_ceil(2)));
    }
    lines
}

/// What had to be chosen.
pub(crate) fn departures(all: &[Departure], printer: &Printer, width: usize) -> Vec<String> {
    if all.is_empty() {
        return Vec::new();
    }
    let title = "Where the settings are not, or not certainly, the published ones:";
    let mut lines = vec![String::new(), printer.paint(Style::Heading, title)];
    for Departure { paper, here } in all {
        for (at, line) in wrap(&format!("{paper} -> {here}"), width.saturating_sub(2)).into_iter().enumerate() {
            lines.push(format!("{} {line}", if at == 0 { "-" } else { " " }));
        }
    }
    lines
}
