//! Captions that explain a figure by itself, for people and for LaTeX.

use std::fmt::Write as _;

use crate::figure::{BANDS, Drawing, Figure, Series};
use crate::page::ReportPage;
use crate::table::latex_text;

impl ReportPage {
    /// What a figure shows, how it is drawn, and of which runs.
    pub fn caption(&self, figure: &Figure) -> String {
        let mut text = if figure.text.is_empty() { format!("{}.", figure.title) } else { figure.text.clone() };
        let drawn = match &figure.drawing {
            Drawing::Lines { series, .. } => self.of_lines(series),
            Drawing::Classes { rounds, .. } => {
                rounds.last().map_or(String::new(), |round| format!("The round is {round}."))
            }
            Drawing::Heat { percent: true, .. } => "Numbers are percentages.".to_string(),
            Drawing::Heat { .. } | Drawing::Points { .. } => String::new(),
        };
        for part in [drawn.as_str(), self.setting()] {
            if !part.is_empty() {
                let _ = write!(text, " {part}");
            }
        }
        text
    }

    /// What lines are in the figures of the page, with several seeds. Its reader may hide methods, until there are few
    /// enough for bands.
    pub(crate) fn of_figures(&self) -> String {
        let drawings = self.figures().map(|figure| &figure.drawing);
        let series = drawings
            .filter_map(|drawing| if let Drawing::Lines { series, .. } = drawing { Some(series) } else { None });
        let more = beside_means(series.flatten());
        match more.is_empty() {
            true => "In the figures, lines are means over seeds.".to_string(),
            false if self.methods.len() <= BANDS => format!("In the figures, lines are means over seeds, {more}."),
            false => format!(
                "In the figures, lines are means over seeds. If at most {BANDS} methods are shown, there is more: {more}. Hide \
                 some methods to see it."
            ),
        }
    }

    /// What lines and bands are.
    fn of_lines(&self, series: &[Series]) -> String {
        let methods = series.iter().map(|one| one.method).collect::<std::collections::BTreeSet<_>>().len();
        let more = beside_means(series.iter());
        let seeds = self.comparison.rows.iter().map(|row| row.seeds.len());
        let (fewest, most) = (seeds.clone().min().unwrap_or(0), seeds.max().unwrap_or(0));
        let of = if fewest == most { most.to_string() } else { format!("{fewest} to {most}") };
        match (more.is_empty(), methods <= BANDS) {
            (true, _) if most > 1 => format!("Lines are means over {of} seeds."),
            (true, _) => "Lines are single runs.".to_string(),
            (false, true) => format!("Lines are means over {of} seeds, {more}."),
            (false, false) => format!("Lines are means over {of} seeds, without bands."),
        }
    }

    /// All captions as plain text, by the names of the figures' files.
    pub fn captions(&self, name: impl Fn(&Figure) -> String) -> String {
        let mut out = String::new();
        for figure in self.figures() {
            let _ = write!(out, "{}\n{}\n\n", name(figure), self.caption(figure));
        }
        out
    }

    /// One LaTeX figure for each file, in this width in millimetres.
    pub fn latex_figures(&self, width: f64, name: impl Fn(&Figure) -> String) -> String {
        let mut out = String::from("% \\usepackage{graphicx}\n");
        for figure in self.figures() {
            let (name, text) = (name(figure), latex_text(&self.caption(figure)));
            let _ = write!(
                out,
                "\n\\begin{{figure}}\n  \\centering\n  \\includegraphics[width={width}mm]{{{name}}}\n  \
                 \\caption{{{text}}}\n  \\label{{fig:{name}}}\n\\end{{figure}}\n"
            );
        }
        out
    }

    fn figures(&self) -> impl Iterator<Item = &Figure> {
        self.cards.iter().flat_map(|card| &card.figures)
    }
}

/// What is drawn beside means where there is room: bands, and single seeds, of which very many are left out.
fn beside_means<'a>(series: impl Iterator<Item = &'a Series>) -> String {
    let (mut spread, mut seeds) = (false, false);
    for one in series {
        spread |= one.has_spread();
        seeds |= !one.seeds.is_empty();
    }
    let bands = spread.then_some("bands one standard deviation");
    let thin = seeds.then_some("thin lines that end in a dot are single seeds");
    bands.into_iter().chain(thin).collect::<Vec<_>>().join("; ")
}
