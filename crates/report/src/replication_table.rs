//! A replication as text: sheets that every format shows, and the formats for other programs.

use std::fmt::Write as _;

use crate::mark::signs;
use crate::page::escape;
use crate::published::{PublishedValue, QuantityKind};
use crate::replication::{ReplicatedRow, Replication};
use crate::statistics::Interval;
use crate::table::{TableSyntax, latex_text, markdown_text, minus, plain, spread};

/// A part of a replication: rows of text, below the cells they belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicationSheet {
    pub title: String,
    /// The first column is the method.
    pub headings: Vec<&'static str>,
    /// Title and rows of each cell.
    pub cells: Vec<(String, Vec<Vec<String>>)>,
}

/// The columns of a quantity. The second half compares with the baseline.
const QUANTITY: [&str; 9] =
    ["method", "seeds", "published", "ours", "95 % interval", "published gap", "our gap", "95 % interval", "verdict"];
/// Where a sheet of a quantity is split if it is too wide.
pub const GAPS: usize = 5;

const ACCURACY: [&str; 6] = ["method", "seeds", "final %", "last ten %", "best %", "forgetting"];

const CSV_COLUMNS: &str = "table,cell,method,quantity,published,published-sd,ours,ours-sd,ours-low,ours-high,seeds,\
    published-gap,gap,gap-low,gap-high,verdict,final-accuracy,last-ten,best-accuracy,forgetting,rounds,published-rounds";

impl Replication {
    /// One sheet per quantity and, at the end, one with all three accuracies.
    pub fn sheets(&self) -> Vec<ReplicationSheet> {
        let mut sheets: Vec<ReplicationSheet> = Vec::new();
        for (at, quantity) in self.quantities.iter().enumerate() {
            let row = |row: &ReplicatedRow| quantity_cells(row, at, &quantity.kind);
            sheets.push(self.sheet(quantity.title.clone(), &QUANTITY, row));
        }
        let accuracy = |row: &ReplicatedRow| {
            vec![
                row.title.clone(),
                row.seeds_cell(),
                spread(row.final_accuracy, 100.0, 2),
                spread(row.last_ten, 100.0, 2),
                spread(row.best_accuracy, 100.0, 2),
                spread(row.forgetting, 1.0, 3),
            ]
        };
        sheets.push(self.sheet("Ours: last round, mean of the last ten, best round".to_string(), &ACCURACY, accuracy));
        sheets
    }

    fn sheet(
        &self,
        title: String,
        headings: &[&'static str],
        row: impl Fn(&ReplicatedRow) -> Vec<String>,
    ) -> ReplicationSheet {
        let cells = self.cells.iter().map(|cell| (cell.heading(), cell.rows.iter().map(&row).collect()));
        ReplicationSheet { title, headings: headings.to_vec(), cells: cells.collect() }
    }

    /// What was changed, as a warning; none if nothing was.
    pub fn warning(&self) -> Option<String> {
        (!self.changes.is_empty())
            .then(|| format!("This is not the published setting, and no replication: {}.", self.changes.join("; ")))
    }

    /// For another program.
    pub fn render(&self, format: TableSyntax) -> String {
        match format {
            TableSyntax::Markdown => self.markdown(),
            TableSyntax::Latex => self.latex(),
            TableSyntax::Csv => self.csv().unwrap_or_else(|error| error.to_string()),
            TableSyntax::Json => {
                serde_json::to_string_pretty(self).map_or_else(|error| error.to_string(), |text| text + "\n")
            }
        }
    }

    fn markdown(&self) -> String {
        let mut out = format!("**{}** ({})\n", markdown_text(&self.title), markdown_text(&self.source));
        for text in Some(&self.about).filter(|text| !text.is_empty()).cloned().into_iter().chain(self.warning()) {
            let _ = write!(out, "\n{}\n", markdown_text(&text));
        }
        for sheet in self.sheets() {
            let _ = write!(out, "\n{}\n\n| {} |\n|", markdown_text(&sheet.title), sheet.headings.join(" | "));
            for (at, heading) in sheet.headings.iter().enumerate() {
                out.push_str(if at == 0 || *heading == "verdict" { " --- |" } else { " ---: |" });
            }
            out.push('\n');
            for (cell, rows) in &sheet.cells {
                let empty = " |".repeat(sheet.headings.len() - 1);
                let _ = writeln!(out, "| **{}** |{empty}", markdown_text(cell));
                for row in rows {
                    let cells: Vec<String> = row.iter().map(|text| markdown_text(text)).collect();
                    let _ = writeln!(out, "| {} |", cells.join(" | "));
                }
            }
        }
        for note in self.order_lines().iter().chain(&self.notes).chain(&self.footnotes) {
            let _ = write!(out, "\n{}\n", markdown_text(note));
        }
        if !self.departures.is_empty() {
            out.push_str("\nWhere the settings are not, or not certainly, the published ones:\n\n");
            for one in &self.departures {
                let _ = writeln!(out, "- {} {}", markdown_text(&one.paper), markdown_text(&one.here));
            }
        }
        out
    }

    fn latex(&self) -> String {
        let mut out = format!("% \\usepackage{{booktabs}}\n% {}, {}\n", plain(&self.title), plain(&self.source));
        out.push_str("\\begingroup\\footnotesize\\setlength{\\tabcolsep}{3pt}%\n");
        for sheet in self.sheets() {
            let wide = sheet.headings.len();
            let align: String =
                sheet.headings[1..].iter().map(|one| if *one == "verdict" { 'l' } else { 'r' }).collect();
            let headings: Vec<String> = sheet.headings.iter().map(|heading| latex_text(heading)).collect();
            let _ = write!(
                out,
                "\\begin{{tabular}}{{@{{}}l{align}@{{}}}}\n\\multicolumn{{{wide}}}{{@{{}}l@{{}}}}{{{}}} \\\\\n\\toprule\n{} \\\\\n",
                latex_text(&sheet.title),
                headings.join(" & ")
            );
            for (cell, rows) in &sheet.cells {
                let _ = write!(
                    out,
                    "\\midrule\n\\multicolumn{{{wide}}}{{@{{}}l@{{}}}}{{\\emph{{{}}}}} \\\\\n",
                    latex_text(cell)
                );
                for row in rows {
                    let cells: Vec<String> = row[1..].iter().map(|text| minus(&latex_text(text))).collect();
                    let _ = writeln!(out, "{} & {} \\\\", latex_text(&row[0]), cells.join(" & "));
                }
            }
            out.push_str("\\bottomrule\n\\end{tabular}\\par\\medskip\n");
        }
        for note in self.warning().iter().chain(&self.footnotes) {
            let _ = writeln!(out, "\\par\\smallskip\\noindent {}", latex_text(note));
        }
        out.push_str("\\endgroup\n");
        for note in self.order_lines().iter().chain(&self.notes) {
            let _ = writeln!(out, "% {}", plain(note));
        }
        for one in &self.departures {
            let _ = writeln!(out, "% {} {}", plain(&one.paper), plain(&one.here));
        }
        out
    }

    fn csv(&self) -> Result<String, csv::Error> {
        let number = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
        let mut out = csv::Writer::from_writer(Vec::new());
        out.write_record(CSV_COLUMNS.split(','))?;
        for cell in &self.cells {
            for row in &cell.rows {
                for (quantity, value) in self.quantities.iter().zip(&row.values) {
                    let (published, sd) = match value.published {
                        Some(PublishedValue::Number { value, sd }) => (value.to_string(), number(sd)),
                        Some(PublishedValue::Never) => ("never".to_string(), String::new()),
                        None => (String::new(), String::new()),
                    };
                    let gap = value.gap.and_then(|gap| gap.interval);
                    let verdict = value.verdict.map(serde_json::to_value).and_then(Result::ok);
                    out.write_record([
                        self.table.clone(),
                        cell.name.clone(),
                        row.name.clone(),
                        quantity.name.clone(),
                        published,
                        sd,
                        number(value.ours.map(|ours| ours.mean)),
                        number(value.ours.and_then(|ours| ours.sd)),
                        number(value.interval.map(|found| found.low)),
                        number(value.interval.map(|found| found.high)),
                        value.ours.map_or(0, |ours| ours.n).to_string(),
                        number(value.published_gap),
                        number(value.gap.map(|gap| gap.summary.mean)),
                        number(gap.map(|found| found.low)),
                        number(gap.map(|found| found.high)),
                        verdict.as_ref().and_then(|verdict| verdict.as_str()).unwrap_or_default().to_string(),
                        number(row.final_accuracy.map(|found| found.mean)),
                        number(row.last_ten.map(|found| found.mean)),
                        number(row.best_accuracy.map(|found| found.mean)),
                        number(row.forgetting.map(|found| found.mean)),
                        cell.rounds.to_string(),
                        cell.published_rounds.to_string(),
                    ])?;
                }
            }
        }
        let bytes = out.into_inner().map_err(|error| csv::Error::from(error.into_error()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The part of a page that shows it.
    pub(crate) fn html(&self) -> String {
        let mut out = format!("<section id=published><h2>{}</h2>", escape(&self.title));
        let _ = write!(out, "<p class=text>{}</p>", escape(&self.source));
        if !self.about.is_empty() {
            let _ = write!(out, "<p class=text>{}</p>", escape(&self.about));
        }
        if let Some(warning) = self.warning() {
            let _ = write!(out, "<p class=warning>{}</p>", escape(&warning));
        }
        for sheet in self.sheets() {
            let wide = sheet.headings.len();
            let _ = write!(out, "<h3>{}</h3><div class=wide><table class=published><thead><tr>", escape(&sheet.title));
            let class = |heading: &str| if heading == "verdict" { " class=verdict" } else { "" };
            for heading in &sheet.headings {
                let _ = write!(out, "<th{}>{}</th>", class(heading), escape(heading));
            }
            out.push_str("</tr></thead><tbody>");
            for (cell, rows) in &sheet.cells {
                let _ = write!(out, "<tr class=setting-of><th colspan={wide}>{}</th></tr>", escape(cell));
                for row in rows {
                    let _ = write!(out, "<tr><th>{}</th>", escape(&row[0]));
                    for (text, heading) in row.iter().zip(&sheet.headings).skip(1) {
                        let _ = write!(out, "<td{}>{}</td>", class(heading), escape(text));
                    }
                    out.push_str("</tr>");
                }
            }
            out.push_str("</tbody></table></div>");
        }
        for note in self.order_lines().iter().chain(&self.notes).chain(&self.footnotes) {
            let _ = write!(out, "<p class=note>{}</p>", escape(note));
        }
        if !self.departures.is_empty() {
            out.push_str(
                "<details open><summary>Where the settings are not, or not certainly, the published ones</summary><ul>",
            );
            for one in &self.departures {
                let _ = write!(out, "<li>{} <b>{}</b></li>", escape(&one.paper), escape(&one.here));
            }
            out.push_str("</ul></details>");
        }
        out.push_str("</section>");
        out
    }
}

impl crate::replication::ReplicatedCell {
    /// Its name, title and rounds.
    fn heading(&self) -> String {
        let rounds = if self.rounds == 1 { "round" } else { "rounds" };
        format!("{}: {}, {} {rounds}", self.name, self.title, self.rounds)
    }
}

impl ReplicatedRow {
    /// The number of seeds, with the signs of marked ones.
    fn seeds_cell(&self) -> String {
        format!("{}{}", self.seeds.len(), signs(&self.marks))
    }
}

fn quantity_cells(row: &ReplicatedRow, at: usize, kind: &QuantityKind) -> Vec<String> {
    let (value, digits) = (&row.values[at], kind.digits());
    let dash = || "-".to_string();
    let ours = match value.ours {
        None => dash(),
        // Not every seed reached its target.
        Some(found) if found.n < row.seeds.len() => {
            format!("{:.digits$} ({}/{})", found.mean, found.n, row.seeds.len())
        }
        found => spread(found, 1.0, digits),
    };
    let within = |found: Option<Interval>| {
        found.map_or_else(dash, |found| format!("[{:.digits$}, {:.digits$}]", found.low, found.high))
    };
    let signed = |found: Option<Interval>| {
        found.map_or_else(dash, |found| format!("[{:+.digits$}, {:+.digits$}]", found.low, found.high))
    };
    vec![
        row.title.clone(),
        row.seeds_cell(),
        value.published.map_or_else(dash, |published| published_cell(published, kind)),
        ours,
        within(value.interval),
        value.published_gap.map_or_else(dash, |gap| signed_number(gap, kind)),
        value.gap.map_or_else(dash, |gap| format!("{:+.digits$}", gap.summary.mean)),
        signed(value.gap.and_then(|gap| gap.interval)),
        value.verdict_cell(),
    ]
}

/// Published rounds are whole.
fn signed_number(value: f64, kind: &QuantityKind) -> String {
    let digits = if *kind == QuantityKind::ToTarget { 0 } else { kind.digits() };
    format!("{value:+.digits$}")
}

/// A published value as text.
pub fn published_cell(value: PublishedValue, kind: &QuantityKind) -> String {
    let digits = if *kind == QuantityKind::ToTarget { 0 } else { kind.digits() };
    match value {
        PublishedValue::Number { value, sd: Some(sd) } => format!("{value:.digits$} ± {sd:.digits$}"),
        PublishedValue::Number { value, sd: None } => format!("{value:.digits$}"),
        PublishedValue::Never => "never".to_string(),
    }
}
