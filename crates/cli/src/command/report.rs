//! `fedelity report`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fedelity_report::{LoadedRuns, ReportPage as Page, Results, png, svg};

use crate::latest::resolve_all;
use crate::output::{Overwrite, exists};
use crate::printer::Printer;
use crate::status::ExitStatus;
use crate::view::units::{bytes, plural};

const EXAMPLES: &str = "\
Examples:
  fedelity report runs/latest                        the last run, as report.html
  fedelity report runs/three-seeds -o report.html    one page, for a browser
  fedelity report runs/a runs/b --figures figures    every figure as SVG and PNG
  fedelity report runs/a -o a.html --baseline fedprox
  fedelity report runs/a --clients 'mercy,charity'   single clients, by name or number

The page is a single file that works offline. An earlier page is replaced; any other existing file
only with --overwrite. Runs that differ only in their seed are one method:
curves are means over seeds, bands are one standard deviation. The client and the rounds of the
confusion matrices are set before the run: evaluation.client and evaluation.confusion.";

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

    /// A folder for the figures, as SVG and PNG.
    #[arg(long, value_name = "DIR")]
    figures: Option<PathBuf>,

    /// Clients to draw, by name or number, such as 'mercy,charity' or 0,3. May be repeated [default: up to 30 clients that
    /// have names].
    #[arg(long, value_name = "LIST")]
    clients: Vec<String>,

    /// The method that the others are compared with [default: fedavg, or the first].
    #[arg(long, value_name = "NAME")]
    baseline: Option<String>,

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
        let output = self.output.or_else(|| self.figures.is_none().then(|| PathBuf::from("report.html")));
        let page_over = output.as_deref().map_or(self.overwrite, |path| self.overwrite.or_page(path));
        output.iter().try_for_each(|path| page_over.check("-o", path))?;
        let study = Results::new(LoadedRuns::load(&resolve_all(&self.runs, printer)?)?);
        let page = Page::of_clients(&study, self.baseline, &self.clients)?;
        for out in &page.left_out {
            printer.warn(format_args!("{}: {}", out.path.display(), out.what));
        }
        let mut written = Vec::new();
        if let Some(folder) = &self.figures {
            written = figures(&page, folder, self.overwrite)?;
            printer.say(format_args!("Wrote {} to {}", plural(written.len() / 2, "figure"), folder.display()));
        }
        if let Some(path) = &output {
            let html = page.html(false);
            page_over.write("-o", path, html.as_bytes())?;
            printer.say(format_args!("Wrote {} ({})", path.display(), bytes(html.len() as u64)));
        }
        if self.json {
            printer.json(&serde_json::json!({
                "page": output,
                "figures": written,
                "methods": page.methods.iter().map(|method| &method.label).collect::<Vec<_>>(),
                "left-out": page.left_out,
            }))?;
        }
        Ok(ExitStatus::Done)
    }
}

/// Writes every figure in both formats; returns their paths.
fn figures(page: &Page, folder: &Path, overwrite: Overwrite) -> Result<Vec<PathBuf>> {
    let all: Vec<_> = page.cards.iter().flat_map(|card| &card.figures).collect();
    let path = |id: &str, ending: &str| {
        // IDs contain names of layers and loss terms.
        let name: String = id.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        folder.join(format!("{name}.{ending}"))
    };
    let paths = all.iter().flat_map(|figure| ["svg", "png"].map(|ending| path(&figure.id, ending)));
    let there: Vec<PathBuf> = paths.filter(|path| exists(path)).collect();
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
    for figure in all {
        let drawing = svg(figure, &page.methods)?;
        for (ending, content) in [("svg", drawing.clone().into_bytes()), ("png", png(&drawing, &figure.id)?)] {
            let path = path(&figure.id, ending);
            overwrite.write("--figures", &path, &content)?;
            written.push(path);
        }
    }
    Ok(written)
}
