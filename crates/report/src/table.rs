//! Comparison tables for other programs.

use std::fmt::Write as _;

use crate::compare::{Comparison, ComparisonRow};
use crate::mark::MarkKind;
use crate::statistics::MeanSd;

/// The format of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableSyntax {
    Markdown,
    /// A `tabular` with booktabs rules.
    Latex,
    Csv,
    Json,
}

pub fn render(comparison: &Comparison, format: TableSyntax) -> String {
    match format {
        TableSyntax::Markdown => markdown(comparison),
        TableSyntax::Latex => latex(comparison),
        TableSyntax::Csv => csv(comparison).unwrap_or_else(|error| error.to_string()),
        TableSyntax::Json => {
            serde_json::to_string_pretty(comparison).map_or_else(|error| error.to_string(), |text| text + "\n")
        }
    }
}

/// A mean with its standard deviation, formatted.
pub fn spread(found: Option<MeanSd>, scale: f64, digits: usize) -> String {
    match found {
        None => "-".to_string(),
        Some(MeanSd { mean, sd: Some(sd), .. }) => format!("{:.digits$} ± {:.digits$}", scale * mean, scale * sd),
        Some(MeanSd { mean, .. }) => format!("{:.digits$}", scale * mean),
    }
}

impl Comparison {
    /// The rows of each setting, and its label if there are several.
    pub fn by_setting(&self) -> Vec<(Option<&str>, Vec<&ComparisonRow>)> {
        let several = self.settings.len() > 1;
        let labels = self.settings.iter().map(|setting| several.then_some(setting.label.as_str()));
        let rows = |setting: usize| self.rows.iter().filter(move |row| row.setting == setting).collect();
        labels.enumerate().map(|(setting, label)| (label, rows(setting))).collect()
    }
}

impl ComparisonRow {
    /// Whether it can be the best of its setting: at least one of its runs has no mark, or marked ones count.
    fn is_eligible(&self) -> bool {
        let marked = |seed: &u64| self.marks.iter().any(|mark| mark.seed == *seed);
        self.rank.is_some() || self.seeds.iter().any(|seed| !marked(seed))
    }

    /// The difference from the baseline in points and its interval, formatted.
    pub fn difference_cells(&self) -> [String; 2] {
        let interval = self.difference.and_then(|found| found.interval);
        [
            self.difference.map_or("-".to_string(), |found| format!("{:+.2}", 100.0 * found.summary.mean)),
            interval
                .map_or("-".to_string(), |found| format!("[{:+.2}, {:+.2}]", 100.0 * found.low, 100.0 * found.high)),
        ]
    }

    /// The p-value and Holm's, formatted.
    pub fn p_cells(&self) -> [String; 2] {
        [self.difference.and_then(|found| found.p), self.difference.and_then(|found| found.p_holm)].map(p_value)
    }

    /// When the target was reached, and by how many seeds if not by all.
    pub fn to_target_cell(&self) -> String {
        self.to_target.map_or("-".to_string(), |found| match found.rounds {
            Some(rounds) if found.reached == found.of => format!("{rounds:.1}"),
            Some(rounds) => format!("{rounds:.1} ({}/{})", found.reached, found.of),
            None => "-".to_string(),
        })
    }

    /// The number of seeds, with the signs of marked ones.
    pub fn seeds_cell(&self) -> String {
        let mut kinds: Vec<MarkKind> = self.marks.iter().map(|mark| mark.kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds.iter().fold(self.seeds.len().to_string(), |cell, kind| cell + kind.sign())
    }

    pub fn rank_cell(&self) -> String {
        self.rank.map_or("-".to_string(), |rank| format!("{rank:.1}"))
    }
}

fn p_value(p: Option<f64>) -> String {
    match p {
        None => "-".to_string(),
        Some(p) if p < 0.001 => "<0.001".to_string(),
        Some(p) => format!("{p:.3}"),
    }
}

const HEADINGS: [&str; 11] = [
    "method",
    "seeds",
    "final %",
    "best %",
    "forgetting",
    "area %",
    "difference [95 %]",
    "p",
    "p (Holm)",
    "to target",
    "rank",
];

fn cells(row: &ComparisonRow) -> Vec<String> {
    let [difference, interval] = row.difference_cells();
    let interval = if interval == "-" { String::new() } else { format!(" {interval}") };
    let [p, p_holm] = row.p_cells();
    vec![
        row.name.clone(),
        row.seeds_cell(),
        spread(row.final_accuracy, 100.0, 2),
        spread(row.best_accuracy, 100.0, 2),
        spread(row.forgetting, 1.0, 3),
        spread(row.area, 100.0, 2),
        format!("{difference}{interval}"),
        p,
        p_holm,
        row.to_target_cell(),
        row.rank_cell(),
    ]
}

fn markdown(comparison: &Comparison) -> String {
    let escape =
        |text: &str| plain(text).replace('\\', "\\\\").replace('|', "\\|").replace('<', "&lt;").replace('*', "\\*");
    let mut out = String::new();
    let line = |out: &mut String, cells: &[String]| {
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    };
    line(&mut out, &HEADINGS.map(String::from));
    let rules: Vec<String> = (0..HEADINGS.len()).map(|i| if i == 0 { "---" } else { "---:" }.to_string()).collect();
    line(&mut out, &rules);
    for (setting, rows) in comparison.by_setting() {
        if let Some(setting) = setting {
            let mut heading = vec![String::new(); HEADINGS.len()];
            heading[0] = format!("**{}**", escape(setting));
            line(&mut out, &heading);
        }
        for row in rows {
            line(&mut out, &cells(row).iter().map(|cell| escape(cell)).collect::<Vec<_>>());
        }
    }
    for note in comparison.notes.iter().chain(&comparison.footnotes) {
        let _ = write!(out, "\n{}\n", escape(note));
    }
    out
}

fn latex(comparison: &Comparison) -> String {
    let escape = |text: &str| {
        let mut out = String::new();
        for c in plain(text).chars() {
            match c {
                '\\' => out.push_str("\\textbackslash{}"),
                '&' | '%' | '$' | '#' | '_' | '{' | '}' => {
                    out.push('\\');
                    out.push(c);
                }
                '~' => out.push_str("\\textasciitilde{}"),
                '^' => out.push_str("\\textasciicircum{}"),
                '<' => out.push_str("$<$"),
                '±' => out.push_str("$\\pm$"),
                '†' => out.push_str("$\\dagger$"),
                c => out.push(c),
            }
        }
        out
    };
    let mut out = String::from("% \\usepackage{booktabs}\n\\begin{tabular}{lrrrrrrrrrr}\n\\toprule\n");
    let headings: Vec<String> = HEADINGS.iter().map(|heading| escape(heading)).collect();
    let _ = writeln!(out, "{} \\\\", headings.join(" & "));
    for (setting, rows) in comparison.by_setting() {
        out.push_str("\\midrule\n");
        if let Some(setting) = setting {
            let _ = writeln!(out, "\\multicolumn{{{}}}{{l}}{{\\emph{{{}}}}} \\\\", HEADINGS.len(), escape(setting));
        }
        let eligible = || rows.iter().filter(|row| row.is_eligible());
        let best = eligible().filter_map(|row| Some(row.final_accuracy?.mean)).fold(f64::MIN, f64::max);
        for row in &rows {
            let mut cells: Vec<String> = cells(row).iter().map(|cell| escape(cell)).collect();
            cells[1..].iter_mut().for_each(|cell| *cell = minus(cell));
            let wins = row.is_eligible() && row.final_accuracy.is_some_and(|found| found.mean == best);
            if wins && eligible().count() > 1 {
                cells[2] = format!("\\textbf{{{}}}", cells[2]);
            }
            let _ = writeln!(out, "{} \\\\", cells.join(" & "));
        }
    }
    out.push_str("\\bottomrule\n");
    for note in &comparison.footnotes {
        let text = escape(note);
        let _ = writeln!(out, "\\multicolumn{{{}}}{{p{{\\linewidth}}}}{{\\footnotesize {text}}} \\\\", HEADINGS.len());
    }
    out.push_str("\\end{tabular}\n");
    for note in &comparison.notes {
        let _ = writeln!(out, "% {}", plain(note));
    }
    out
}

/// Text on one line: a name from a file may have others.
fn plain(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// Hyphens in a numeric cell become minus signs; a lone hyphen becomes a dash.
fn minus(cell: &str) -> String {
    if cell == "-" { "--".to_string() } else { cell.replace('-', "$-$") }
}

const CSV_COLUMNS: &str = "method,seeds,final-accuracy,final-accuracy-sd,best-accuracy,best-accuracy-sd,forgetting,\
    forgetting-sd,area,area-sd,difference,difference-sd,difference-low,difference-high,p,p-holm,test,rounds-to-target,\
    seeds-at-target,rank,bytes,seconds,setting,baseline,unfinished,collapsed";

fn csv(comparison: &Comparison) -> Result<String, csv::Error> {
    let number = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
    let mut out = csv::Writer::from_writer(Vec::new());
    out.write_record(CSV_COLUMNS.split(','))?;
    for row in &comparison.rows {
        let marked = |kind: MarkKind| {
            let seeds = row.marks.iter().filter(|mark| mark.kind == kind).map(|mark| mark.seed.to_string());
            seeds.collect::<Vec<_>>().join(" ")
        };
        let mut cells = vec![row.name.clone(), row.seeds.len().to_string()];
        for found in [row.final_accuracy, row.best_accuracy, row.forgetting, row.area] {
            cells.extend([number(found.map(|found| found.mean)), number(found.and_then(|found| found.sd))]);
        }
        let difference = row.difference;
        cells.extend([
            number(difference.map(|found| found.summary.mean)),
            number(difference.and_then(|found| found.summary.sd)),
            number(difference.and_then(|found| Some(found.interval?.low))),
            number(difference.and_then(|found| Some(found.interval?.high))),
            number(difference.and_then(|found| found.p)),
            number(difference.and_then(|found| found.p_holm)),
            difference.filter(|found| found.p.is_some()).map_or(String::new(), |found| found.test.name().to_string()),
            number(row.to_target.and_then(|found| found.rounds)),
            row.to_target.map_or(String::new(), |found| found.reached.to_string()),
            number(row.rank),
            number(row.bytes.map(|found| found.mean)),
            number(row.seconds.map(|found| found.mean)),
            comparison.settings.get(row.setting).map_or(String::new(), |setting| setting.label.clone()),
            row.baseline.clone().unwrap_or_default(),
            marked(MarkKind::Unfinished),
            marked(MarkKind::Collapsed),
        ]);
        out.write_record(cells)?;
    }
    let bytes = out.into_inner().map_err(|error| csv::Error::from(error.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
