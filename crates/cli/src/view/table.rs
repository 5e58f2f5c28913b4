//! Plain tables: columns two spaces apart, no frame.

use crate::printer::{Printer, Style};
use crate::view::visible::visible_cell;

/// How a column is aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

#[derive(Clone, Debug)]
pub(crate) struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<TableLine>,
}

#[derive(Clone, Debug)]
enum TableLine {
    Cells(Vec<String>),
    /// A heading of the rows below it.
    Heading(String),
}

impl Table {
    pub(crate) fn new(columns: &[(&str, Align)]) -> Self {
        Self { columns: columns.iter().map(|(name, align)| (name.to_string(), *align)).collect(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(TableLine::Cells(cells.into_iter().map(|cell| visible_cell(&cell).into_owned()).collect()));
    }

    /// A heading of the rows that follow, on a line of its own.
    pub(crate) fn heading(&mut self, text: &str) {
        self.rows.push(TableLine::Heading(visible_cell(text).into_owned()));
    }

    /// The lines, in one block if they are at most `width` wide. Otherwise the columns from `at` on follow in a second
    /// block, which repeats the first column.
    pub(crate) fn lines_within(&self, printer: &Printer, width: usize, at: usize) -> Vec<String> {
        if self.width() <= width || at >= self.columns.len() {
            return self.lines(printer);
        }
        let (left, right): (Vec<usize>, Vec<usize>) = ((0..at).collect(), (at..self.columns.len()).collect());
        let mut lines = self.some(&left).lines(printer);
        lines.push(String::new());
        lines.extend(self.some(&[&[0], &right[..]].concat()).lines(printer));
        lines
    }

    /// The width of the lines.
    pub(crate) fn width(&self) -> usize {
        // No gap follows the last column, and an empty one needs none before it.
        let widths = self.widths();
        let shown = widths.iter().rposition(|&width| width > 0).map_or(0, |last| last + 1);
        widths[..shown].iter().map(|width| width + 2).sum::<usize>().saturating_sub(2)
    }

    pub(crate) fn without(&self, column: usize) -> Self {
        let kept: Vec<usize> = (0..self.columns.len()).filter(|&i| i != column).collect();
        self.some(&kept)
    }

    fn some(&self, columns: &[usize]) -> Self {
        let pick = |line: &TableLine| match line {
            TableLine::Cells(row) => TableLine::Cells(columns.iter().filter_map(|&i| row.get(i).cloned()).collect()),
            TableLine::Heading(text) => TableLine::Heading(text.clone()),
        };
        Self {
            columns: columns.iter().map(|&i| self.columns[i].clone()).collect(),
            rows: self.rows.iter().map(pick).collect(),
        }
    }

    fn widths(&self) -> Vec<usize> {
        let width = |(i, (name, _)): (usize, &(String, Align))| {
            let cells = self.rows.iter().filter_map(|line| match line {
                TableLine::Cells(row) => row.get(i),
                TableLine::Heading(_) => None,
            });
            cells.chain([name]).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        self.columns.iter().enumerate().map(width).collect()
    }

    /// The lines, the heading first.
    pub(crate) fn lines(&self, printer: &Printer) -> Vec<String> {
        let heading: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let widths = self.widths();
        let set = |row: &[String]| {
            let mut line = String::new();
            for (i, cell) in row.iter().enumerate() {
                // The width of a formatted argument is limited, that of a cell is not.
                let pad = " ".repeat(widths[i].saturating_sub(cell.chars().count()));
                line.push_str(if i == 0 { "" } else { "  " });
                match self.columns[i].1 {
                    Align::Left => line.extend([cell.as_str(), &pad]),
                    Align::Right => line.extend([pad.as_str(), cell]),
                }
            }
            line.trim_end().to_string()
        };
        let mut lines = vec![printer.paint(Style::Heading, &set(&heading))];
        lines.extend(self.rows.iter().map(|line| match line {
            TableLine::Cells(row) => set(row),
            TableLine::Heading(text) => printer.paint(Style::Heading, text),
        }));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::printer::When;

    #[test]
    fn headings_do_not_widen_columns() {
        let mut table = Table::new(&[("a", Align::Left), ("b", Align::Right)]);
        table.heading("a very long heading");
        table.row(["x", "1"].map(String::from));
        let printer = Printer::new(When::Never, false, false);
        assert_eq!(table.lines(&printer), ["a  b", "a very long heading", "x  1"]);
        assert_eq!(table.without(0).lines(&printer), ["b", "a very long heading", "1"]);
    }

    #[test]
    fn cells_may_have_any_length_and_any_character() {
        let mut table = Table::new(&[("a", Align::Left), ("b", Align::Right)]);
        table.row(["x".repeat(70_000), "1".to_string()]);
        table.row(["y", "\x1b[2J\n2"].map(String::from));
        let lines = table.lines(&Printer::new(When::Never, false, false));
        assert!(lines.iter().all(|line| line.chars().count() == 70_014), "{}", lines[0].len());
        assert!(lines[2].starts_with("y  ") && lines[2].ends_with("  \\u{1b}[2J\\n2"));
    }

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&[("name", Align::Left), ("n", Align::Right)]);
        table.row(["a".to_string(), "12".to_string()]);
        table.row(["long name".to_string(), "3".to_string()]);
        let printer = Printer::new(When::Never, false, false);
        assert_eq!(table.lines(&printer), ["name        n", "a          12", "long name   3"]);
    }

    #[test]
    fn a_wide_table_continues_below() {
        let mut table = Table::new(&[("name", Align::Left), ("one", Align::Right), ("two", Align::Right)]);
        table.row(["a", "1", "2"].map(String::from));
        let printer = Printer::new(When::Never, false, false);
        assert_eq!(table.lines_within(&printer, 14, 2), ["name  one  two", "a       1    2"]);
        assert_eq!(table.lines_within(&printer, 13, 2), ["name  one", "a       1", "", "name  two", "a       2"]);
    }
}
