//! Samples per client and class as shaded blocks: rows are clients, columns are classes.

use crate::printer::{Printer, Style};
use crate::view::units::{shortened, thousands, wrap};

pub(crate) struct Heatmap<'a> {
    /// Samples, `[client][class]`.
    pub(crate) counts: &'a [Vec<u32>],
    /// The names of the clients; empty if they have none.
    pub(crate) clients: &'a [String],
    pub(crate) classes: &'a [String],
    /// Available columns.
    pub(crate) width: usize,
    /// Maximum clients shown.
    pub(crate) rows: usize,
}

/// Shades from nothing to the maximum over all clients and classes.
const SHADES: [char; 5] = ['·', '░', '▒', '▓', '█'];
/// Colours of the 256-colour palette for the shades, from dark to light.
const COLOURS: [u8; 5] = [238, 60, 67, 114, 226];

/// Maximum width of a client's name.
const LONGEST_CLIENT: usize = 24;
/// Maximum width of a class whose name is shown.
const WIDEST_CELL: usize = 16;
/// Maximum lines with the names of classes.
const KEY_LINES: usize = 6;

impl Heatmap<'_> {
    /// The lines of the picture and its legend.
    pub(crate) fn lines(&self, printer: &Printer) -> Vec<String> {
        let classes = self.counts.first().map_or(0, Vec::len);
        let shown = self.counts.len().min(self.rows);
        let names: Vec<String> = (0..shown).map(|client| self.client(client)).collect();
        let label = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max(6);
        let size = self.counts.iter().map(|row| thousands(total(row)).len()).max().unwrap_or(0).max(7);
        let room = self.width.saturating_sub(label + size + 14).max(10);
        let classes_per_cell = classes.div_ceil(room).max(1);
        let cells = classes.div_ceil(classes_per_cell);
        let named = self.named_cell(room, cells, classes_per_cell);
        let cell_width = named.unwrap_or_else(|| room.checked_div(cells).map_or(1, |width| width.clamp(1, 4)));
        let joined: Vec<Vec<u64>> = self.counts.iter().map(|row| join(row, classes_per_cell)).collect();
        let most = joined.iter().flatten().copied().max().unwrap_or(0);

        let mut lines =
            vec![printer.paint(Style::Heading, &self.heading(label, size, cells, cell_width, classes_per_cell, named))];
        for ((client, row), name) in joined.iter().enumerate().zip(&names) {
            let picture: String = row.iter().map(|&n| block(n, most, cell_width, printer.colour())).collect();
            let held = self.counts[client].iter().filter(|&&n| n > 0).count();
            let name = if self.clients.is_empty() { format!("{name:>label$}") } else { format!("{name:<label$}") };
            lines.push(format!("{name}  {picture}  {:>size$}  {held:>7}", thousands(total(&self.counts[client]))));
        }
        if joined.len() > self.rows {
            lines.push(format!(
                "{:>label$}  {} more clients; --all shows them",
                "...",
                thousands(joined.len() - self.rows)
            ));
        }
        lines.push(String::new());
        lines.extend(legend(most, classes_per_cell, printer.colour()));
        if named.is_none() {
            lines.extend(self.key());
        }
        lines
    }

    fn client(&self, client: usize) -> String {
        self.clients.get(client).map_or_else(|| client.to_string(), |name| shortened(name, LONGEST_CLIENT))
    }

    /// Whether classes are called by their numbers anyway.
    fn numbered(&self) -> bool {
        self.classes.iter().enumerate().all(|(class, name)| *name == class.to_string())
    }

    /// The width of a class, if all names fit.
    fn named_cell(&self, room: usize, cells: usize, classes_per_cell: usize) -> Option<usize> {
        let longest = self.classes.iter().map(|name| name.chars().count()).max()? + 1;
        let fits = classes_per_cell == 1 && longest <= WIDEST_CELL && cells * longest <= room;
        (fits && !self.numbered()).then_some(longest.max(4))
    }

    /// The names of the classes by number.
    fn key(&self) -> Vec<String> {
        const START: &str = "Classes   ";
        if self.numbered() {
            return Vec::new();
        }
        // A name is not broken at its spaces.
        let whole = |(i, name): (usize, &String)| format!("{i} {name}").replace(' ', "\u{e000}");
        let names: Vec<String> = self.classes.iter().enumerate().map(whole).collect();
        let mut lines = wrap(&names.join(", "), self.width.saturating_sub(START.len()).max(20));
        if lines.len() > KEY_LINES {
            lines.truncate(KEY_LINES);
            lines.push("...; fedelity data show lists them".to_string());
        }
        let start = |at: usize| if at == 0 { START.to_string() } else { " ".repeat(START.len()) };
        lines.iter().enumerate().map(|(at, line)| start(at) + &line.replace('\u{e000}', " ")).collect()
    }

    fn heading(
        &self,
        label: usize,
        size: usize,
        cells: usize,
        cell_width: usize,
        classes_per_cell: usize,
        named: Option<usize>,
    ) -> String {
        let mut names = String::new();
        let mut cell = 0;
        if let Some(width) = named {
            names.extend(self.classes.iter().map(|name| format!("{name:<width$}")));
            cell = cells;
        }
        while cell < cells {
            let name = (cell * classes_per_cell).to_string();
            // A name needs its own width and a gap.
            let taken = (name.len() + 1).div_ceil(cell_width);
            if (cell + taken) * cell_width > cells * cell_width + 1 && cell > 0 && name.len() > cell_width {
                break;
            }
            names.push_str(&format!("{name:<width$}", width = taken * cell_width));
            cell += taken;
        }
        let width = cells * cell_width;
        let names: String = names.chars().take(width).collect();
        let client =
            if self.clients.is_empty() { format!("{:>label$}", "client") } else { format!("{:<label$}", "client") };
        format!("{client}  {names:<width$}  {:>size$}  {:>7}", "samples", "classes")
    }
}

fn total(row: &[u32]) -> usize {
    row.iter().map(|&n| n as usize).sum()
}

fn join(row: &[u32], classes_per_cell: usize) -> Vec<u64> {
    row.chunks(classes_per_cell).map(|cell| cell.iter().map(|&n| u64::from(n)).sum()).collect()
}

/// The shade of a count. The scale is a square root, so that small holdings are visible.
fn shade(n: u64, most: u64) -> usize {
    (0..SHADES.len()).find(|&shade| n <= up_to(shade, most)).unwrap_or(SHADES.len() - 1)
}

/// The greatest count of a shade. If it equals that of the previous shade, the shade is not used.
fn up_to(shade: usize, most: u64) -> u64 {
    let (shade, steps) = (shade as u128, (SHADES.len() - 1) as u128);
    (u128::from(most) * shade * shade / (steps * steps)) as u64
}

fn block(n: u64, most: u64, width: usize, colour: bool) -> String {
    draw(shade(n, most), width, colour)
}

fn draw(shade: usize, width: usize, colour: bool) -> String {
    let picture: String = if shade == 0 {
        let mut cell = " ".repeat(width - 1);
        cell.insert(width / 2, SHADES[0]);
        cell
    } else {
        SHADES[shade].to_string().repeat(width)
    };
    if colour { format!("\x1b[38;5;{}m{picture}\x1b[0m", COLOURS[shade]) } else { picture }
}

fn legend(most: u64, classes_per_cell: usize, colour: bool) -> [String; 2] {
    let mut parts = vec![format!("{} none", draw(0, 1, colour))];
    for step in 1..SHADES.len() {
        let (from, to) = (up_to(step - 1, most) + 1, up_to(step, most));
        let range = if from == to { from.to_string() } else { format!("{from}-{to}") };
        parts.extend((from <= to).then(|| format!("{} {range}", draw(step, 1, colour))));
    }
    let unit = match classes_per_cell {
        1 => "samples per class".to_string(),
        n => format!("samples per {n} neighbouring classes"),
    };
    [format!("Shade     {}", parts.join("  ")), format!("          {unit}")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::printer::When;

    fn draw_lines(counts: &[Vec<u32>], rows: usize) -> Vec<String> {
        draw_named(counts, rows, &[], &[])
    }

    fn draw_named(counts: &[Vec<u32>], rows: usize, clients: &[String], classes: &[String]) -> Vec<String> {
        Heatmap { counts, clients, classes, width: 80, rows }.lines(&Printer::new(When::Never, false, false))
    }

    #[test]
    fn names_in_place_of_numbers() {
        let sites = ["mercy".to_string(), "a hospital with a name that is far too long".to_string()];
        let classes = ["healthy".to_string(), "ill".to_string()];
        let lines = draw_named(&[vec![3, 0], vec![1, 9]], 9, &sites, &classes);
        assert!(lines[0].starts_with("client ") && lines[0].contains("healthy ill "), "{}", lines[0]);
        assert!(lines[1].starts_with("mercy  ") && lines[2].starts_with("a hospital with a name … "), "{lines:?}");
        // Names that do not fit above their columns are listed below.
        let many: Vec<String> = (0..10).map(|class| format!("a long name {class}")).collect();
        let lines = draw_named(&vec![vec![1; 10]; 3], 9, &[], &many);
        assert!(lines[0].contains("0   1   2"), "{}", lines[0]);
        let key = lines.iter().position(|line| line.starts_with("Classes   0 a long name 0, 1 a long name 1")).unwrap();
        assert!(lines[key + 1].starts_with("          "), "{lines:?}");
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:?}");
        // Digits need no key.
        let digits: Vec<String> = (0..10).map(|class| class.to_string()).collect();
        assert!(!draw_named(&vec![vec![1; 10]; 3], 9, &[], &digits).iter().any(|line| line.starts_with("Classes")));
    }

    #[test]
    fn fits_into_the_width_whatever_the_classes() {
        for classes in [1, 2, 3, 10, 37, 62, 100, 1_000] {
            for scale in [1, 7, 1_000] {
                let counts: Vec<Vec<u32>> =
                    (0..12).map(|c| (0..classes).map(|k| (c * k) % 5 * scale).collect()).collect();
                for line in draw_lines(&counts, 100) {
                    assert!(line.chars().count() <= 80, "{classes} classes: {} {line}", line.chars().count());
                }
            }
        }
    }

    #[test]
    fn long_lists_are_truncated_with_a_note() {
        let counts = vec![vec![1, 0]; 30];
        let lines = draw_lines(&counts, 5);
        assert!(lines.iter().any(|line| line.contains("25 more clients")));
        assert!(lines[1].contains("████") && lines[1].contains('·'), "{}", lines[1]);
    }

    #[test]
    fn shades_grow_with_counts() {
        let shades: Vec<usize> = [0, 1, 7, 30, 60, 100].iter().map(|&n| shade(n, 100)).collect();
        assert_eq!(shades, [0, 1, 2, 3, 4, 4]);
        assert_eq!(shade(0, 0), 0);
    }

    #[test]
    fn the_legend_has_the_shades_of_the_picture() {
        for most in 1..40 {
            let text = legend(most, 1, false)[0].clone();
            for n in 1..=most {
                let step = SHADES[shade(n, most)];
                let range = text.split(step).nth(1).unwrap_or_else(|| panic!("{n} of {most}: no {step} in {text}"));
                let range = range.split_whitespace().next().unwrap();
                let (from, to) = range.split_once('-').unwrap_or((range, range));
                assert!((from.parse().unwrap()..=to.parse().unwrap()).contains(&n), "{n} of {most}: {text}");
            }
        }
    }
}
