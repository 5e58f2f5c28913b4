//! Comparison tables for other programs.

use std::fmt::Write as _;

use fedelity_record::shown_epsilon;

use crate::compare::{Comparison, ComparisonRow};
use crate::judged::Judged;
use crate::mark::{MarkKind, signs};
use crate::statistics::MeanSd;

/// What a setting is called that gives no key.
pub const AS_IT_IS: &str = "as it is";

/// The format of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableSyntax {
    Markdown,
    /// A `tabular` with booktabs rules.
    Latex,
    Csv,
    Json,
}

/// A comparison as text. `columns` are those of Markdown and LaTeX, the usual ones if empty; the others have everything.
pub fn render(comparison: &Comparison, format: TableSyntax, columns: &[TableColumn]) -> String {
    let usual = TableColumn::usual(comparison, format);
    let columns = if columns.is_empty() { &usual } else { columns };
    match format {
        TableSyntax::Markdown => markdown(comparison, columns),
        TableSyntax::Latex => latex(comparison, columns),
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
    /// Whether there is a privacy account.
    pub fn has_epsilon(&self) -> bool {
        self.rows.iter().any(|row| row.epsilon.is_some())
    }

    /// Whether methods were tuned.
    pub fn has_chosen(&self) -> bool {
        self.rows.iter().any(|row| row.chosen.is_some())
    }

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

    /// One of its accuracies.
    fn accuracy(&self, by: Judged) -> Option<MeanSd> {
        match by {
            Judged::Final => self.final_accuracy,
            Judged::LastTen => self.last_ten,
            Judged::Best => self.best_accuracy,
        }
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
        format!("{}{}", self.seeds.len(), signs(&self.marks))
    }

    /// The title with what distinguishes its setting.
    pub(crate) fn full_title(&self) -> String {
        format!("{}{}", self.title, self.label.strip_prefix(&self.name).unwrap_or(""))
    }

    /// What was revealed about one client at most, if there is an account.
    pub fn epsilon_cell(&self) -> String {
        self.epsilon.map_or("-".to_string(), shown_epsilon)
    }

    /// What was chosen for the method.
    pub fn chosen_cell(&self) -> String {
        match self.chosen.as_deref() {
            None => "-".to_string(),
            Some("") => AS_IT_IS.to_string(),
            Some(chosen) => chosen.to_string(),
        }
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

/// A column of a table, beside the method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableColumn {
    Seeds,
    Final,
    LastTen,
    Best,
    Forgetting,
    Area,
    Difference,
    Interval,
    P,
    PHolm,
    ToTarget,
    Rank,
    Megabytes,
    Seconds,
    Epsilon,
    Chosen,
}

impl TableColumn {
    pub const ALL: [Self; 16] = [
        Self::Seeds,
        Self::Final,
        Self::LastTen,
        Self::Best,
        Self::Forgetting,
        Self::Area,
        Self::Difference,
        Self::Interval,
        Self::P,
        Self::PHolm,
        Self::ToTarget,
        Self::Rank,
        Self::Megabytes,
        Self::Seconds,
        Self::Epsilon,
        Self::Chosen,
    ];

    /// What it is called on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Seeds => "seeds",
            Self::Final => "final",
            Self::LastTen => "last-ten",
            Self::Best => "best",
            Self::Forgetting => "forgetting",
            Self::Area => "area",
            Self::Difference => "difference",
            Self::Interval => "interval",
            Self::P => "p",
            Self::PHolm => "p-holm",
            Self::ToTarget => "to-target",
            Self::Rank => "rank",
            Self::Megabytes => "mb",
            Self::Seconds => "seconds",
            Self::Epsilon => "epsilon",
            Self::Chosen => "chosen",
        }
    }

    pub fn heading(self) -> &'static str {
        match self {
            Self::Final => "final %",
            Self::LastTen => "last ten %",
            Self::Best => "best %",
            Self::Area => "area %",
            Self::Interval => "95 % interval",
            Self::PHolm => "p (Holm)",
            Self::ToTarget => "to target",
            Self::Megabytes => "MB",
            other => other.name(),
        }
    }

    /// Whether it has something to say about these rows: a method alone in its setting is compared with nothing, only noise has an
    /// epsilon, and only tuned methods have a choice.
    pub(crate) fn tells(self, comparison: &Comparison) -> bool {
        match self {
            Self::Difference | Self::Interval | Self::P | Self::PHolm | Self::Rank => comparison.has_rivals(),
            Self::Epsilon => comparison.has_epsilon(),
            Self::Chosen => comparison.has_chosen(),
            _ => true,
        }
    }

    pub fn cell(self, row: &ComparisonRow) -> String {
        let mean = |found: Option<MeanSd>, scale: f64| {
            found.map_or("-".to_string(), |found| format!("{:.1}", scale * found.mean))
        };
        let ([difference, interval], [p, p_holm]) = (row.difference_cells(), row.p_cells());
        match self {
            Self::Seeds => row.seeds_cell(),
            Self::Final => spread(row.final_accuracy, 100.0, 2),
            Self::LastTen => spread(row.last_ten, 100.0, 2),
            Self::Best => spread(row.best_accuracy, 100.0, 2),
            Self::Forgetting => spread(row.forgetting, 1.0, 3),
            Self::Area => spread(row.area, 100.0, 2),
            Self::Difference => difference,
            Self::Interval => interval,
            Self::P => p,
            Self::PHolm => p_holm,
            Self::ToTarget => row.to_target_cell(),
            Self::Rank => row.rank_cell(),
            Self::Megabytes => mean(row.bytes, 1e-6),
            Self::Seconds => mean(row.seconds, 1.0),
            Self::Epsilon => row.epsilon_cell(),
            Self::Chosen => row.chosen_cell(),
        }
    }

    /// The column of an accuracy.
    fn of(by: Judged) -> Self {
        match by {
            Judged::Final => Self::Final,
            Judged::LastTen => Self::LastTen,
            Judged::Best => Self::Best,
        }
    }

    /// The columns of a table if none are chosen.
    fn usual(comparison: &Comparison, format: TableSyntax) -> Vec<Self> {
        let all = match format {
            // They fit a column of a paper.
            TableSyntax::Latex if comparison.rows.len() < 2 => vec![Self::Final, Self::Best, Self::Forgetting],
            TableSyntax::Latex => vec![Self::of(comparison.by), Self::Forgetting, Self::Difference, Self::P],
            _ => {
                let shown = |column: &Self| match column {
                    Self::Megabytes | Self::Seconds | Self::Epsilon => false,
                    Self::Chosen => comparison.has_chosen(),
                    Self::LastTen => comparison.by == Judged::LastTen,
                    _ => true,
                };
                Self::ALL.into_iter().filter(shown).collect()
            }
        };
        // What a result costs in privacy belongs to it.
        let epsilon = comparison.has_epsilon().then_some(Self::Epsilon);
        // Where seeds are marked, the mark must be seen.
        let marked = comparison.rows.iter().any(|row| !row.marks.is_empty());
        let seeds = marked && !all.contains(&Self::Seeds);
        seeds.then_some(Self::Seeds).into_iter().chain(all).chain(epsilon).collect()
    }
}

/// Text for Markdown.
pub(crate) fn markdown_text(text: &str) -> String {
    plain(text).replace('\\', "\\\\").replace('|', "\\|").replace('<', "&lt;").replace('*', "\\*")
}

fn markdown(comparison: &Comparison, columns: &[TableColumn]) -> String {
    let escape = markdown_text;
    let mut out = String::new();
    let line = |out: &mut String, cells: &[String]| {
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    };
    let headings = columns.iter().map(|column| column.heading().to_string());
    line(&mut out, &[String::from("method")].into_iter().chain(headings).collect::<Vec<_>>());
    let rules: Vec<String> = (0..=columns.len()).map(|i| if i == 0 { "---" } else { "---:" }.to_string()).collect();
    line(&mut out, &rules);
    for (setting, rows) in comparison.by_setting() {
        if let Some(setting) = setting {
            let mut heading = vec![String::new(); columns.len() + 1];
            heading[0] = format!("**{}**", escape(setting));
            line(&mut out, &heading);
        }
        for row in rows {
            let cells = columns.iter().map(|column| column.cell(row));
            let cells = [row.title.clone()].into_iter().chain(cells).map(|cell| escape(&cell));
            line(&mut out, &cells.collect::<Vec<_>>());
        }
    }
    for note in comparison.notes.iter().chain(&comparison.footnotes) {
        let _ = write!(out, "\n{}\n", escape(note));
    }
    out
}

/// Text for LaTeX.
pub(crate) fn latex_text(text: &str) -> String {
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
            '>' => out.push_str("$>$"),
            '±' => out.push_str("$\\pm$"),
            '†' => out.push_str("$\\dagger$"),
            '‡' => out.push_str("$\\ddagger$"),
            '−' => out.push_str("$-$"),
            '…' => out.push_str("\\ldots{}"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

fn latex(comparison: &Comparison, columns: &[TableColumn]) -> String {
    let wide = columns.len() + 1;
    let mut out = String::from("% \\usepackage{booktabs}\n\\begingroup\\footnotesize\\setlength{\\tabcolsep}{3pt}%\n");
    let _ = write!(out, "\\begin{{tabular}}{{@{{}}l{}@{{}}}}\n\\toprule\n", "r".repeat(columns.len()));
    let headings: Vec<String> = columns.iter().map(|column| latex_text(column.heading())).collect();
    let _ = writeln!(out, "method & {} \\\\", headings.join(" & "));
    for (setting, rows) in comparison.by_setting() {
        out.push_str("\\midrule\n");
        if let Some(setting) = setting {
            let _ = writeln!(out, "\\multicolumn{{{wide}}}{{@{{}}l@{{}}}}{{\\emph{{{}}}}} \\\\", latex_text(setting));
        }
        let eligible = || rows.iter().filter(|row| row.is_eligible());
        let judged = |row: &ComparisonRow| row.accuracy(comparison.by).map(|found| found.mean);
        let best = eligible().filter_map(|row| judged(row)).fold(f64::MIN, f64::max);
        for row in &rows {
            let wins = row.is_eligible() && judged(row) == Some(best);
            let bold = |column: TableColumn| column == TableColumn::of(comparison.by) && wins && eligible().count() > 1;
            let cell = |column: &TableColumn| {
                let text = latex_text(&column.cell(row));
                let text = if *column == TableColumn::Chosen { text } else { minus(&text) };
                if bold(*column) { format!("\\textbf{{{text}}}") } else { text }
            };
            let cells: Vec<String> = columns.iter().map(cell).collect();
            let _ = writeln!(out, "{} & {} \\\\", latex_text(&row.title), cells.join(" & "));
        }
    }
    out.push_str("\\bottomrule\n\\end{tabular}\n");
    for note in &comparison.footnotes {
        let _ = writeln!(out, "\\par\\smallskip\\noindent {}", latex_text(note));
    }
    out.push_str("\\endgroup\n");
    for note in &comparison.notes {
        let _ = writeln!(out, "% {}", plain(note));
    }
    out
}

/// Text on one line: a name from a file may have others.
pub(crate) fn plain(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// Hyphens in a numeric cell become minus signs; a lone hyphen becomes a dash.
pub(crate) fn minus(cell: &str) -> String {
    if cell == "-" { "--".to_string() } else { cell.replace('-', "$-$") }
}

const CSV_COLUMNS: &str = "method,seeds,final-accuracy,final-accuracy-sd,best-accuracy,best-accuracy-sd,forgetting,\
    forgetting-sd,area,area-sd,difference,difference-sd,difference-low,difference-high,p,p-holm,test,rounds-to-target,\
    seeds-at-target,rank,bytes,seconds,setting,baseline,unfinished-seeds,collapsed-seeds,unlearnt-seeds,epsilon,chosen,last-ten,last-ten-sd,by";

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
        ]);
        cells.extend(MarkKind::ALL.map(marked));
        cells.extend([number(row.epsilon), row.chosen.clone().unwrap_or_default()]);
        cells.extend([number(row.last_ten.map(|found| found.mean)), number(row.last_ten.and_then(|found| found.sd))]);
        cells.push(TableColumn::of(comparison.by).name().to_string());
        out.write_record(cells)?;
    }
    let bytes = out.into_inner().map_err(|error| csv::Error::from(error.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
