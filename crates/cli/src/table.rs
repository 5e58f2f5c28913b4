//! Plain tables: columns two spaces apart, no frame.

use crate::printer::{Printer, Style};

/// How a column is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

#[derive(Clone, Debug)]
pub(crate) struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(columns: &[(&str, Align)]) -> Self {
        Self { columns: columns.iter().map(|(name, align)| (name.to_string(), *align)).collect(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The lines, the heading first.
    pub(crate) fn lines(&self, printer: &Printer) -> Vec<String> {
        let heading: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|i| {
                let cells = self.rows.iter().filter_map(|row| row.get(i));
                cells.chain([&heading[i]]).map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect();
        let set = |row: &[String]| {
            let mut line = String::new();
            for (i, cell) in row.iter().enumerate() {
                let (width, gap) = (widths[i], if i == 0 { "" } else { "  " });
                match self.columns[i].1 {
                    Align::Left => line.push_str(&format!("{gap}{cell:<width$}")),
                    Align::Right => line.push_str(&format!("{gap}{cell:>width$}")),
                }
            }
            line.trim_end().to_string()
        };
        let mut lines = vec![printer.paint(Style::Heading, &set(&heading))];
        lines.extend(self.rows.iter().map(|row| set(row)));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::printer::When;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&[("name", Align::Left), ("n", Align::Right)]);
        table.row(["a".to_string(), "12".to_string()]);
        table.row(["long name".to_string(), "3".to_string()]);
        let printer = Printer::new(When::Never, false, false);
        assert_eq!(table.lines(&printer), ["name        n", "a          12", "long name   3"]);
    }
}
