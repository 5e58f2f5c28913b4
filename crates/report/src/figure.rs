//! Figures as data. Both the page and the files for papers are drawn from them.

use serde::Serialize;

use crate::results::Group;

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Figure {
    /// Its name in the page and in file names.
    pub id: String,
    pub title: String,
    /// What it shows, for readers who see nothing else of the report.
    #[serde(skip)]
    pub text: String,
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
        /// The smallest and the largest possible number, if there are such: bands end there.
        range: [Option<f64>; 2],
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
        /// Whether numbers are shares, shown in percent. Others are counts, on a square-root scale that shows small
        /// ones, with nothing where there are none.
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
    /// Whether it is drawn thinner and dotted, next to another one of the same method.
    pub faint: bool,
    /// x, mean, mean minus standard deviation, mean plus standard deviation.
    pub points: Vec<[f64; 4]>,
    /// The runs behind the mean, if there are several: thin lines that end in a dot.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub seeds: Vec<SeedLine>,
}

impl Series {
    /// Whether it has a band.
    pub(crate) fn has_spread(&self) -> bool {
        !self.faint && self.points.iter().any(|point| point[2] < point[3])
    }
}

impl Figure {
    /// The same, with this text.
    pub(crate) fn says(self, text: impl Into<String>) -> Self {
        Self { text: text.into(), ..self }
    }

    /// The same, for numbers that are never outside a range.
    pub(crate) fn within(mut self, low: Option<f64>, high: Option<f64>) -> Self {
        if let Drawing::Lines { range, .. } = &mut self.drawing {
            *range = [low, high];
        }
        self
    }
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

/// Maximum number of methods with bands and single seeds: more would overlap.
pub(crate) const BANDS: usize = 6;

/// How opaque the lines of single seeds are.
pub(crate) const SEED_STRENGTH: f64 = 0.75;

/// How a method is drawn, the same everywhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct MethodStyle {
    pub label: String,
    /// Its colour on light ground, and on paper.
    pub colour: &'static str,
    /// Its colour on dark ground.
    pub dark: &'static str,
    /// Lengths of dash and gap; empty for a solid line.
    pub dash: &'static [u32],
    /// The shape of its dots, from 0 to 3.
    pub mark: usize,
}

/// Colours on light and on dark ground. They differ for people with any kind of colour vision, and the lines of single
/// seeds keep a contrast of 3 to the ground.
pub(crate) const COLOURS: [(&str, &str); 8] = [
    ("#0072b2", "#56b4e9"),
    ("#dd1c1c", "#f14a48"),
    ("#0d5a5c", "#1cfba6"),
    ("#71704c", "#ffd021"),
    ("#cc0098", "#9e68ff"),
    ("#1e0a9b", "#c5d5ff"),
    ("#8f0000", "#ff8c07"),
    ("#580f61", "#b4b292"),
];
const DASHES: [&[u32]; 4] = [&[], &[8, 4], &[2, 3], &[10, 3, 2, 3]];

/// The styles of groups, in order. A method has one colour in all settings, which then differ in their dash; if there are too
/// many of either, every group has the next colour, and colours repeat with another dash.
pub(crate) fn styles(groups: &[Group]) -> Vec<MethodStyle> {
    let mut names: Vec<&str> = Vec::new();
    for Group { name, .. } in groups {
        if !names.contains(&&**name) {
            names.push(name);
        }
    }
    let settings = groups.iter().map(|group| group.setting + 1).max().unwrap_or(0);
    let shared = names.len() <= COLOURS.len() && settings <= DASHES.len();
    let style = |(i, group): (usize, &Group)| {
        let own = (i % COLOURS.len(), i / COLOURS.len() % DASHES.len());
        let place = names.iter().position(|name| **name == group.name).filter(|_| shared);
        let (colour, dash) = place.map_or(own, |place| (place, group.setting));
        // Dots have no dashes: their shape changes instead.
        let (mark, label) = (dash, group.title());
        MethodStyle { label, colour: COLOURS[colour].0, dark: COLOURS[colour].1, dash: DASHES[dash], mark }
    };
    groups.iter().enumerate().map(style).collect()
}

/// Red, green and blue.
pub(crate) type Rgb = (u8, u8, u8);

/// The numbers of `#rrggbb`.
#[cfg(any(feature = "figures", test))]
pub(crate) fn rgb(text: &str) -> Rgb {
    let part = |at: usize| text.get(at..at + 2).and_then(|hex| u8::from_str_radix(hex, 16).ok()).unwrap_or(0);
    (part(1), part(3), part(5))
}

/// The relative luminance of a colour, as WCAG defines it.
pub(crate) fn luminance((r, g, b): Rgb) -> f64 {
    let linear = |part: u8| {
        let share = f64::from(part) / 255.0;
        if share <= 0.040_45 { share / 12.92 } else { libm::pow((share + 0.055) / 1.055, 2.4) }
    };
    0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b)
}

/// What a page or a figure is drawn on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Theme {
    Light,
    Dark,
}

/// The colour of a class among `classes`: around the hue circle, neighbours alternate in lightness.
pub(crate) fn class_colour(class: usize, classes: usize, theme: Theme) -> Rgb {
    let hue = class as f64 / classes.max(1) as f64 * 6.0;
    let x = 1.0 - (hue % 2.0 - 1.0).abs();
    let (r, g, b) = match hue as usize {
        0 => (1.0, x, 0.0),
        1 => (x, 1.0, 0.0),
        2 => (0.0, 1.0, x),
        3 => (0.0, x, 1.0),
        4 => (x, 0.0, 1.0),
        _ => (1.0, 0.0, x),
    };
    let wanted = match (theme, class.is_multiple_of(2)) {
        (Theme::Light, true) => 0.25,
        (Theme::Light, false) => 0.09,
        (Theme::Dark, true) => 0.5,
        (Theme::Dark, false) => 0.24,
    };
    // From black over the pure colour to white, until it is as light as wanted.
    let at = |lightness: f64| {
        let byte = |part: f64| {
            let mixed =
                if lightness < 0.5 { 2.0 * lightness * part } else { part + (1.0 - part) * (2.0 * lightness - 1.0) };
            (255.0 * mixed).round() as u8
        };
        (byte(r), byte(g), byte(b))
    };
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..12 {
        let middle = (low + high) / 2.0;
        if luminance(at(middle)) < wanted { low = middle } else { high = middle }
    }
    at((low + high) / 2.0)
}

/// From dark to light (viridis at even steps).
pub(crate) const SHADES: [&str; 9] =
    ["#440154", "#472c7a", "#3b518b", "#2c718e", "#21908d", "#27ad81", "#5cc863", "#aadc32", "#fde725"];

/// A colour of a heat map on paper. Shares go from dark to light; counts from the middle to dark, so that the smallest
/// one stands out from the empty ground.
#[cfg(any(feature = "figures", test))]
pub(crate) fn shade(share: f64, counts: bool) -> Rgb {
    let share = share.clamp(0.0, 1.0);
    let at = (SHADES.len() - 1) as f64 * if counts { 0.5 * (1.0 - share) } else { share };
    let (i, part) = (at.floor() as usize, at.fract());
    let (a, b) = (rgb(SHADES[i]), rgb(SHADES[(i + 1).min(SHADES.len() - 1)]));
    let mix = |a: u8, b: u8| (f64::from(a) + part * (f64::from(b) - f64::from(a))).round() as u8;
    (mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2))
}

/// Black or white, whichever is easier to read on a colour.
#[cfg(any(feature = "figures", test))]
pub(crate) fn ink(ground: Rgb) -> Rgb {
    if luminance(ground) > 0.179 { (0, 0, 0) } else { (255, 255, 255) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Results;

    /// Groups of methods in settings.
    fn groups(methods: usize, settings: usize) -> Vec<Group> {
        let group = |setting: usize, method: usize| {
            let study = Results::of(vec![(format!("m{method}"), Vec::new())]);
            study.groups.into_iter().map(move |group| Group { setting, ..group })
        };
        (0..settings).flat_map(|setting| (0..methods).flat_map(move |method| group(setting, method))).collect()
    }

    #[test]
    fn groups_look_different_and_methods_keep_their_colour() {
        for (methods, settings) in [(18, 1), (8, 4), (3, 2), (5, 6), (10, 3)] {
            let found = styles(&groups(methods, settings));
            let mut looks: Vec<(&str, &[u32], usize)> =
                found.iter().map(|style| (style.colour, style.dash, style.mark)).collect();
            looks.sort_unstable();
            looks.dedup();
            assert_eq!(looks.len(), methods * settings, "{methods} in {settings}");
            if methods <= COLOURS.len() && (2..=DASHES.len()).contains(&settings) {
                assert!((0..methods).all(|at| found[at].colour == found[methods + at].colour));
            }
        }
        for theme in [Theme::Light, Theme::Dark] {
            let mut colours: Vec<_> = (0..100).map(|class| class_colour(class, 100, theme)).collect();
            colours.sort_unstable();
            colours.dedup();
            assert!(colours.len() > 90, "{}", colours.len());
        }
    }

    /// The contrast of two colours, as WCAG 2 defines it.
    fn contrast(a: Rgb, b: Rgb) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    /// The value of a variable in a block of the style sheet.
    fn variable(block: &str, name: &str) -> Rgb {
        let start = block.find(&format!("--{name}: #")).unwrap_or_else(|| panic!("no --{name} in {block}"));
        let text = block[start..].split_once('#').unwrap().1.split(';').next().unwrap();
        let text = if text.len() == 3 { text.chars().flat_map(|c| [c, c]).collect() } else { text.to_string() };
        rgb(&format!("#{text}"))
    }

    #[test]
    fn contrast_is_as_wcag_defines_it() {
        assert!((contrast((0, 0, 0), (255, 255, 255)) - 21.0).abs() < 1e-9);
        // #767676 is the lightest grey that passes on white, and #777777 does not.
        assert!(contrast(rgb("#767676"), (255, 255, 255)) > 4.5 && contrast(rgb("#777777"), (255, 255, 255)) < 4.5);
    }

    #[test]
    fn text_and_lines_can_be_read_in_both_themes() {
        let sheet = include_str!("../assets/page.css");
        let mut blocks = sheet.split(":root {").skip(1).map(|block| block.split('}').next().unwrap());
        let themes = [(Theme::Light, blocks.next().unwrap()), (Theme::Dark, blocks.next().unwrap())];
        for (theme, block) in themes {
            let grounds = ["ground", "card"].map(|name| variable(block, name));
            for ground in grounds {
                for text in ["text", "faint", "link"] {
                    let found = contrast(variable(block, text), ground);
                    assert!(found >= 4.5, "{theme:?}: --{text} {found}");
                }
                for line in ["axis", "edge"] {
                    let found = contrast(variable(block, line), ground);
                    assert!(found >= 3.0, "{theme:?}: --{line} {found}");
                }
                for (light, dark) in COLOURS {
                    let colour = rgb(if theme == Theme::Light { light } else { dark });
                    // Single seeds let the ground through.
                    let part =
                        |a: u8, b: u8| (SEED_STRENGTH * f64::from(a) + (1.0 - SEED_STRENGTH) * f64::from(b)) as u8;
                    let thin = (part(colour.0, ground.0), part(colour.1, ground.1), part(colour.2, ground.2));
                    let found = contrast(thin, ground);
                    assert!(found >= 3.0, "{theme:?}: {light} {dark} {found}");
                }
                for (class, classes) in (1..=100).flat_map(|n| (0..n).map(move |class| (class, n))) {
                    let found = contrast(class_colour(class, classes, theme), ground);
                    assert!(found >= 3.0, "{theme:?}: class {class} of {classes} {found}");
                }
                // Counts: from the middle shade to the end that is far from the ground.
                let ends = if theme == Theme::Light { &SHADES[..5] } else { &SHADES[4..] };
                for shade in ends {
                    let found = contrast(rgb(shade), ground);
                    assert!(found >= 3.0, "{theme:?}: {shade} {found}");
                }
            }
            let found = contrast(variable(block, "warn"), variable(block, "warnground"));
            assert!(found >= 4.5, "{theme:?}: warnings {found}");
        }
    }

    #[test]
    fn numbers_in_cells_can_be_read() {
        for share in 0..=100 {
            for counts in [false, true] {
                let ground = shade(f64::from(share) / 100.0, counts);
                assert!(contrast(ink(ground), ground) >= 4.5, "{share} {counts}");
            }
        }
        assert_eq!((shade(0.0, false), shade(1.0, false)), (rgb(SHADES[0]), rgb(SHADES[8])));
        assert_eq!((shade(0.0, true), shade(1.0, true)), (rgb(SHADES[4]), rgb(SHADES[0])));
    }
}
