//! Figures as data. Both the page and the files for papers are drawn from them.

use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Figure {
    /// Its name in the page and in file names.
    pub id: String,
    pub title: String,
    #[serde(flatten)]
    pub drawing: Drawing,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "kebab-case")]
pub enum Drawing {
    /// Curves with bands.
    Lines {
        x: String,
        y: String,
        /// Whether numbers are shares, shown in percent.
        percent: bool,
        series: Vec<Series>,
    },
    /// A heat map.
    Heat {
        /// The method it belongs to, if any.
        method: Option<usize>,
        x: String,
        y: String,
        columns: Vec<String>,
        /// The names of the rows, from the top.
        rows: Vec<String>,
        /// Numbers, `[row][column]`.
        cells: Vec<Vec<Option<f64>>>,
        /// The upper end of the scale, which starts at 0.
        high: f64,
        /// Whether numbers are shares, shown in percent.
        percent: bool,
    },
    /// Points in a plane, coloured by class.
    Points {
        method: usize,
        classes: Vec<String>,
        /// Position and class of each point.
        points: Vec<(f64, f64, usize)>,
    },
    /// Class accuracies of all methods in a selectable round.
    Classes {
        classes: Vec<String>,
        rounds: Vec<u64>,
        /// For each method, `[round][class]`.
        series: Vec<Vec<Vec<Option<f64>>>>,
    },
}

/// A curve: the mean over seeds, and their spread.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Series {
    pub method: usize,
    /// Its name in addition to the method's; empty if the method is enough.
    pub part: String,
    /// Whether it is drawn fainter, next to another one of the same method.
    pub faint: bool,
    /// x, mean, mean minus standard deviation, mean plus standard deviation.
    pub points: Vec<[f64; 4]>,
    /// The runs behind the mean, if there are several: thin lines that end in a dot.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub seeds: Vec<SeedLine>,
}

/// The curve of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct SeedLine {
    pub seed: u64,
    pub points: Vec<[f64; 2]>,
}

/// Figures that belong together.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct FigureCard {
    pub id: String,
    pub title: String,
    pub text: String,
    /// Whether a single figure is shown, selected from a list; otherwise all are shown.
    pub choice: bool,
    pub figures: Vec<Figure>,
}

/// How a method is drawn, the same everywhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct MethodStyle {
    pub label: String,
    pub colour: &'static str,
    /// Lengths of dash and gap; empty for a solid line.
    pub dash: &'static [u32],
}

/// Colours that people with any kind of colour vision can tell apart (Okabe and Ito 2008), on light and dark
/// backgrounds: grey instead of black, a darker yellow.
pub(crate) const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#808080", "#a89f00"];
const DASHES: [&[u32]; 4] = [&[], &[8, 4], &[2, 3], &[10, 3, 2, 3]];

/// The styles of methods, in order. Colours repeat with another dash.
pub(crate) fn styles(labels: &[&str]) -> Vec<MethodStyle> {
    let style = |(i, label): (usize, &&str)| MethodStyle {
        label: label.to_string(),
        colour: COLOURS[i % COLOURS.len()],
        dash: DASHES[i / COLOURS.len() % DASHES.len()],
    };
    labels.iter().enumerate().map(style).collect()
}

/// The colour of a class among `classes`: around the hue circle, with neighbours alternating in lightness.
pub(crate) fn class_colour(class: usize, classes: usize) -> (u8, u8, u8) {
    let hue = class as f64 / classes.max(1) as f64 * 6.0;
    let value = if class.is_multiple_of(2) { 0.85 } else { 0.6 };
    let x = 1.0 - (hue % 2.0 - 1.0).abs();
    let (r, g, b) = match hue as usize {
        0 => (1.0, x, 0.0),
        1 => (x, 1.0, 0.0),
        2 => (0.0, 1.0, x),
        3 => (0.0, x, 1.0),
        4 => (x, 0.0, 1.0),
        _ => (1.0, 0.0, x),
    };
    let byte = |part: f64| ((0.15 + 0.85 * part) * value * 255.0) as u8;
    (byte(r), byte(g), byte(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seventeen_methods_look_different() {
        let labels: Vec<String> = (0..17).map(|i| format!("m{i}")).collect();
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        let mut looks: Vec<(&str, &[u32])> = styles(&labels).iter().map(|style| (style.colour, style.dash)).collect();
        looks.sort_unstable();
        looks.dedup();
        assert_eq!(looks.len(), 17);
        let mut colours: Vec<_> = (0..100).map(|class| class_colour(class, 100)).collect();
        colours.sort_unstable();
        colours.dedup();
        assert!(colours.len() > 95, "{}", colours.len());
    }
}
