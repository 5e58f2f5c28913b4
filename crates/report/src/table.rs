//! A comparison as text for other programs.

use std::fmt::Write as _;

use crate::compare::{Comparison, Row};
use crate::statistics::Summary;

/// What a table is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A table of Markdown.
    Markdown,
    /// A `tabular` with the rules of booktabs.
    Latex,
    /// Comma-separated values, all digits.
    Csv,
    /// One JSON object, all digits.
    Json,
}

/// The comparison in a format.
pub fn render(comparison: &Comparison, format: Format) -> String {
    match format {
        Format::Markdown => markdown(comparison),
        Format::Latex => latex(comparison),
        Format::Csv => csv(comparison),
        Format::Json => {
            serde_json::to_string_pretty(comparison).map_or_else(|error| error.to_string(), |text| text + "\n")
        }
    }
}

/// A mean with its standard deviation, as people read it.
pub(crate) fn spread(summary: Option<Summary>, scale: f64, digits: usize, plus_minus: &str) -> String {
    match summary {
        None => "-".to_string(),
        Some(Summary { mean, sd: Some(sd), .. }) => {
            format!("{:.digits$}{plus_minus}{:.digits$}", scale * mean, scale * sd)
        }
        Some(Summary { mean, .. }) => format!("{:.digits$}", scale * mean),
    }
}

/// A p-value as people read it.
pub(crate) fn p_value(p: Option<f64>) -> String {
    match p {
        None => "-".to_string(),
        Some(p) if p < 0.001 => "<0.001".to_string(),
        Some(p) => format!("{p:.3}"),
    }
}

const HEADINGS: [&str; 11] = [
    "method",
    "n",
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

fn cells(row: &Row, plus_minus: &str) -> Vec<String> {
    let difference = row.difference.map_or("-".to_string(), |found| {
        let mean = format!("{:+.2}", 100.0 * found.summary.mean);
        match found.interval {
            Some(interval) => format!("{mean} [{:+.2}, {:+.2}]", 100.0 * interval.low, 100.0 * interval.high),
            None => mean,
        }
    });
    let to_target = row.to_target.map_or("-".to_string(), |found| match found.rounds {
        Some(rounds) if found.reached == found.of => format!("{rounds:.1}"),
        Some(rounds) => format!("{rounds:.1} ({}/{})", found.reached, found.of),
        None => format!("- (0/{})", found.of),
    });
    vec![
        row.label.clone(),
        row.seeds.len().to_string(),
        spread(row.final_accuracy, 100.0, 2, plus_minus),
        spread(row.best_accuracy, 100.0, 2, plus_minus),
        spread(row.forgetting, 1.0, 3, plus_minus),
        spread(row.area, 100.0, 2, plus_minus),
        difference,
        p_value(row.difference.and_then(|found| found.p)),
        p_value(row.difference.and_then(|found| found.p_holm)),
        to_target,
        row.rank.map_or("-".to_string(), |rank| format!("{rank:.1}")),
    ]
}

fn markdown(comparison: &Comparison) -> String {
    let escape = |text: &str| text.replace('\\', "\\\\").replace('|', "\\|").replace('<', "&lt;");
    let mut out = String::new();
    let line = |out: &mut String, cells: &[String]| {
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    };
    line(&mut out, &HEADINGS.map(String::from));
    let rules: Vec<String> = (0..HEADINGS.len()).map(|i| if i == 0 { "---" } else { "---:" }.to_string()).collect();
    line(&mut out, &rules);
    for row in &comparison.rows {
        line(&mut out, &cells(row, " ± ").iter().map(|cell| escape(cell)).collect::<Vec<_>>());
    }
    for note in &comparison.notes {
        let _ = write!(out, "\n{note}\n");
    }
    out
}

fn latex(comparison: &Comparison) -> String {
    let escape = |text: &str| {
        let mut out = String::new();
        for c in text.chars() {
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
                c => out.push(c),
            }
        }
        out
    };
    let best = comparison.rows.iter().filter_map(|row| Some(row.final_accuracy?.mean)).fold(f64::MIN, f64::max);
    let mut out = String::from("% \\usepackage{booktabs}\n\\begin{tabular}{lrrrrrrrrrr}\n\\toprule\n");
    let headings: Vec<String> = HEADINGS.iter().map(|heading| escape(heading)).collect();
    let _ = writeln!(out, "{} \\\\\n\\midrule", headings.join(" & "));
    for row in &comparison.rows {
        let mut cells: Vec<String> = cells(row, " ± ").iter().map(|cell| escape(cell)).collect();
        cells[1..].iter_mut().for_each(|cell| *cell = minus(cell));
        if comparison.rows.len() > 1 && row.final_accuracy.is_some_and(|found| found.mean == best) {
            cells[2] = format!("\\textbf{{{}}}", cells[2]);
        }
        let _ = writeln!(out, "{} \\\\", cells.join(" & "));
    }
    out.push_str("\\bottomrule\n\\end{tabular}\n");
    for note in &comparison.notes {
        let _ = writeln!(out, "% {note}");
    }
    out
}

/// Hyphens of a cell of numbers as minus signs; a hyphen alone as a dash.
fn minus(cell: &str) -> String {
    if cell == "-" { "--".to_string() } else { cell.replace('-', "$-$") }
}

fn csv(comparison: &Comparison) -> String {
    let quote = |text: &str| {
        if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_string() }
    };
    let mut out = String::from(
        "method,seeds,final-accuracy,final-accuracy-sd,best-accuracy,best-accuracy-sd,forgetting,forgetting-sd,area,\
         area-sd,difference,difference-sd,difference-low,difference-high,p,p-holm,test,rounds-to-target,seeds-at-target,\
         rank,bytes,seconds\n",
    );
    let number = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
    for row in &comparison.rows {
        let mut cells = vec![quote(&row.label), row.seeds.len().to_string()];
        for summary in [row.final_accuracy, row.best_accuracy, row.forgetting, row.area] {
            cells.extend([number(summary.map(|found| found.mean)), number(summary.and_then(|found| found.sd))]);
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
        ]);
        let _ = writeln!(out, "{}", cells.join(","));
    }
    out
}
