//! `fedelity report`.

use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fedelity_report::{DrawnFigure, Figure, LoadedRuns, PaperSize, ReportPage as Page};

use super::compare::mixing;
use crate::command::methods::paper_name;
use crate::latest::resolve_all;
use crate::output::{Overwrite, exists};
use crate::printer::Printer;
use crate::status::ExitStatus;
use crate::view::units::{bytes, plural};

const EXAMPLES: &str = "\
Examples:
  fedelity report runs/latest                        the last run, as report.html
  fedelity report runs/three-seeds -o report.html    one page, for a browser
  fedelity report runs/a runs/b --figures figures    every figure as PDF, SVG and PNG
  fedelity report runs/a --figures f --width 180 --font 9
  fedelity report runs/a -o a.html --baseline fedprox
  fedelity report runs/attack --mix server           compare defences with each other
  fedelity report runs/a --clients 'mercy,charity'   draw single clients, by name or number

The page is a single file that works offline. An earlier page is replaced; any other existing file
is replaced only with --overwrite. Runs that differ only in their seed are one method: curves are
means over seeds, bands are one standard deviation. Set the client and the rounds of the confusion
matrices before the run, with evaluation.client and evaluation.confusion.

Figures are one column wide (88 mm) with text of 8 pt, so that they go into a paper as they are;
captions.txt and figures.tex next to them say what each one shows. Numbers inside cells can be
smaller than the text.";

/// Write a page with tables and figures
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Report {
    /// Run folders, or folders that contain runs.
    #[arg(required = true, value_name = "RUNS")]
    runs: Vec<PathBuf>,

    /// The page to write [default: report.html, unless --figures is given].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Write the figures to this folder as PDF, SVG and PNG, with captions.
    #[arg(long, value_name = "DIR")]
    figures: Option<PathBuf>,

    /// Clients to draw, by name or number, such as 'mercy,charity' or 0,3. May be repeated [default: up to 30 clients
    /// with names].
    #[arg(long, value_name = "LIST")]
    clients: Vec<String>,
    /// The width of figures in millimetres.
    #[arg(long, value_name = "MM", default_value_t = PaperSize::default().width, requires = "figures")]
    width: f64,

    /// The size of text in figures, in points.
    #[arg(long, value_name = "PT", default_value_t = PaperSize::default().font, requires = "figures")]
    font: f64,

    /// The method to compare the others with [default: fedavg, or the first].
    #[arg(long, value_name = "NAME")]
    baseline: Option<String>,

    /// Keys or sections that may differ between compared runs, such as partition.alpha or server.
    #[arg(long, value_name = "KEYS", value_delimiter = ',')]
    mix: Vec<String>,

    #[command(flatten)]
    overwrite: Overwrite,

    /// Print one JSON object that lists what was written and what was left out.
    #[arg(long)]
    json: bool,
}

impl Report {
    pub(crate) fn run(self, printer: &Printer) -> Result<ExitStatus> {
        if let Some(folder) = self.figures.as_deref().filter(|folder| folder.exists() && !folder.is_dir()) {
            bail!("--figures {}: not a folder", folder.display());
        }
        let paper = PaperSize { width: self.width, font: self.font };
        within("--width", paper.width, PaperSize::WIDTHS, "millimetres")?;
        within("--font", paper.font, PaperSize::FONTS, "points")?;
        let output = self.output.or_else(|| self.figures.is_none().then(|| PathBuf::from("report.html")));
        let page_over = output.as_deref().map_or(self.overwrite, |path| self.overwrite.or_page(path));
        output.iter().try_for_each(|path| page_over.check("-o", path))?;
        let source = LoadedRuns::load(&resolve_all(&self.runs, printer)?)?;
        let study = mixing(source, &self.mix, printer)?.named(paper_name);
        let page = Page::of_clients(&study, self.baseline, &self.clients)?;
        for out in &page.left_out {
            printer.warn(format_args!("{}: {}", out.path.display(), out.what));
        }
        let mut written = Vec::new();
        if let Some(folder) = &self.figures {
            written = figures(&page, folder, paper, self.overwrite)?;
            let drawn = page.cards.iter().map(|card| card.figures.len()).sum();
            printer.say(format_args!("Wrote {} to {}", plural(drawn, "figure"), folder.display()));
        }
        if let Some(path) = &output {
            let html = page.html();
            page_over.write("-o", path, html.as_bytes())?;
            printer.say(format_args!("Wrote {} ({})", path.display(), bytes(html.len() as u64)));
        }
        if self.json {
            let shown = |path: &PathBuf| path.display().to_string();
            printer.json(&serde_json::json!({
                "page": output.as_ref().map(shown),
                "figures": written.iter().map(shown).collect::<Vec<_>>(),
                "methods": page.methods.iter().map(|method| &method.label).collect::<Vec<_>>(),
                "left-out": page.left_out,
            }))?;
        }
        Ok(ExitStatus::Done)
    }
}

fn within(option: &str, value: f64, range: RangeInclusive<f64>, unit: &str) -> Result<()> {
    if !range.contains(&value) {
        bail!("{option} {value}: expected {} to {} {unit}", range.start(), range.end());
    }
    Ok(())
}

/// The name of a figure's files. IDs contain names of layers and loss terms.
fn file_name(figure: &Figure) -> String {
    figure.id.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

/// Writes every figure in all formats, and the captions; returns their paths.
fn figures(page: &Page, folder: &Path, paper: PaperSize, overwrite: Overwrite) -> Result<Vec<PathBuf>> {
    let all: Vec<&Figure> = page.cards.iter().flat_map(|card| &card.figures).collect();
    let path = |figure: &Figure, ending: &str| folder.join(format!("{}.{ending}", file_name(figure)));
    let texts = [
        (folder.join("captions.txt"), page.captions(file_name)),
        (folder.join("figures.tex"), page.latex_figures(paper.width, file_name)),
    ];
    let paths = all.iter().flat_map(|figure| ["pdf", "svg", "png"].map(|ending| path(figure, ending)));
    let there: Vec<PathBuf> =
        paths.chain(texts.iter().map(|(path, _)| path.clone())).filter(|path| exists(path)).collect();
    if let ([first, ..], false) = (&there[..], overwrite.overwrite) {
        let (folder, n) = (folder.display(), there.len());
        bail!(
            "--figures {folder}: {} already there, such as {}; --overwrite replaces them",
            plural(n, "file"),
            first.display()
        );
    }
    fs::create_dir_all(folder).with_context(|| format!("{}: cannot create", folder.display()))?;
    let mut written = Vec::new();
    let mut put = |path: PathBuf, content: &[u8]| -> Result<()> {
        overwrite.write("--figures", &path, content)?;
        written.push(path);
        Ok(())
    };
    for figure in all {
        let drawn = DrawnFigure::new(figure, &page.methods, paper);
        put(path(figure, "pdf"), &drawn.pdf())?;
        put(path(figure, "svg"), drawn.svg().as_bytes())?;
        put(path(figure, "png"), &drawn.png()?)?;
    }
    for (path, text) in texts {
        put(path, text.as_bytes())?;
    }
    Ok(written)
}
