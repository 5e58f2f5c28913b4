//! `fedelity data`.

mod fetch;
mod show;

use anyhow::Result;
use clap::Subcommand;
use fedelity_data::catalogue::{self, CatalogueEntry};
use serde_json::json;

use crate::printer::Printer;
use crate::status::ExitStatus;
use crate::view::table::{Align, Table};
use crate::view::units::thousands;

const EXAMPLES: &str = "\
Examples:
  fedelity data list
  fedelity data show fashion-mnist-mini --sheet clothes.png
  fedelity data fetch cifar10 --data-dir ~/data
  fedelity data show cifar10 --data-dir ~/data
  fedelity data show folder --set data.path=photos --set data.size=[32,32]
  fedelity data show experiment.toml --skip-bad

Data sets that are not built in are read from their official files. Every command looks for them in
the folder given by --data-dir, FEDELITY_DATA or data.dir in the configuration, in this order, or
else in ./data. Each set has its own subfolder there; see the column 'files' of fedelity data list.
Your own data can be a folder of images, a CSV file or a JSON Lines file.";

/// List, show and fetch data sets
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Data {
    #[command(subcommand)]
    action: DataAction,
}

#[derive(Debug, Subcommand)]
enum DataAction {
    /// List all data sets
    List {
        /// Print one JSON object per data set.
        #[arg(long)]
        json: bool,
    },
    Show(show::ShowData),
    Fetch(fetch::Fetch),
}

impl Data {
    pub(crate) fn run(self, printer: &Printer) -> Result<ExitStatus> {
        match self.action {
            DataAction::List { json } => list(printer, json)?,
            DataAction::Show(show) => show.run(printer)?,
            DataAction::Fetch(fetch) => fetch.run(printer)?,
        }
        Ok(ExitStatus::Done)
    }
}

fn list(printer: &Printer, json: bool) -> Result<()> {
    if json {
        return catalogue::entries().try_for_each(|entry| printer.json(&as_json(entry)));
    }
    let mut table = Table::new(&[
        ("name", Align::Left),
        ("train", Align::Right),
        ("test", Align::Right),
        ("classes", Align::Right),
        ("sample", Align::Left),
        ("files", Align::Left),
    ]);
    for entry in catalogue::entries() {
        table.row([
            entry.name.to_string(),
            entry.train.map_or("-".to_string(), thousands),
            entry.test.map_or("-".to_string(), thousands),
            entry.classes.to_string(),
            entry.shape.to_string(),
            entry.folder.map_or("built in".to_string(), |folder| format!("{folder}/")),
        ]);
    }
    let own = [
        ("folder", "images", "your own, one folder per class: data.path"),
        ("csv", "text or numbers", "your own: data.train"),
        ("jsonl", "text or numbers", "your own: data.train"),
    ];
    for (name, sample, files) in own {
        table.row([name, "-", "-", "-", sample, files].map(String::from));
    }
    printer.drawn(table.lines(printer))?;
    Ok(())
}

/// What is known about a data set without its files.
fn as_json(entry: &CatalogueEntry) -> serde_json::Value {
    json!({
        "name": entry.name,
        "title": entry.title,
        "task": entry.task,
        "classes": entry.classes,
        "train": entry.train,
        "test": entry.test,
        "sample": entry.shape.to_string(),
        "licence": entry.licence,
        "source": entry.source,
        "folder": entry.folder,
        "files": entry.files,
    })
}
