//! `fedelity data`.

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use clap::Subcommand;
use fedelity_data::{Dataset, Split, catalogue};

use crate::config::nearest;
use crate::printer::{Printer, Style};
use crate::status::Status;
use crate::table::{Align, Table};
use crate::units::{bytes, thousands};

const EXAMPLES: &str = "\
Examples:
  fedelity data list
  fedelity data show fashion-mnist-mini
  fedelity data show cifar10 --data-dir ~/data

A data set that is not part of the program is read from its official files: put them into a folder,
and name the folder with --data-dir, FEDELITY_DATA or data.dir of the configuration.";

/// Show the data sets that can be used
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Data {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List all data sets
    List,
    /// Load one data set and show what is in it
    Show {
        /// The data set.
        name: String,
        /// Folder that holds the data sets [default: FEDELITY_DATA].
        #[arg(long, value_name = "DIR")]
        data_dir: Option<PathBuf>,
    },
}

impl Data {
    pub(crate) fn run(self, printer: &Printer) -> Result<Status> {
        match self.action {
            Action::List => list(printer)?,
            Action::Show { name, data_dir } => show(printer, &name, data_dir)?,
        }
        Ok(Status::Done)
    }
}

fn list(printer: &Printer) -> Result<()> {
    let mut table = Table::new(&[
        ("name", Align::Left),
        ("train", Align::Right),
        ("test", Align::Right),
        ("classes", Align::Right),
        ("shape", Align::Left),
        ("files", Align::Left),
    ]);
    for entry in catalogue::entries() {
        let shape = entry.shape;
        table.row([
            entry.name.to_string(),
            thousands(entry.train),
            thousands(entry.test),
            entry.classes.to_string(),
            format!("{}x{}x{}", shape.channels, shape.height, shape.width),
            entry.folder.map_or("part of the program".to_string(), |folder| format!("{folder}/")),
        ]);
    }
    for line in table.lines(printer) {
        printer.line(line)?;
    }
    Ok(())
}

fn show(printer: &Printer, name: &str, data_dir: Option<PathBuf>) -> Result<()> {
    let names: Vec<&str> = catalogue::entries().iter().map(|entry| entry.name).collect();
    let entry = catalogue::find(name).map_err(|error| match nearest(name, &names) {
        Some(guess) => anyhow!("{error}; did you mean '{guess}'?"),
        None => anyhow!("{error}"),
    })?;
    let from_environment = || std::env::var_os("FEDELITY_DATA").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let dir = data_dir.or_else(from_environment);
    let dataset = catalogue::load(entry.name, dir.as_deref())?;
    let shape = dataset.shape;
    printer.line(printer.paint(Style::Heading, entry.title))?;
    printer.line(format!("name     {}", entry.name))?;
    printer.line(format!("task     {}", entry.task))?;
    printer.line(format!("images   {} x {} x {}, bytes", shape.channels, shape.height, shape.width))?;
    for (split, what) in [(&dataset.train, "train"), (&dataset.test, "test")] {
        let memory = bytes(split.pixels.len() as u64);
        printer.line(format!("{what:<8} {} images, {memory} in memory", thousands(split.len())))?;
    }
    printer.line(format!("licence  {}", entry.licence))?;
    printer.line(format!("source   {}", entry.source))?;
    printer.line(format!("sha256   {}", dataset.fingerprint()))?;
    printer.line("")?;
    for line in classes(&dataset).lines(printer) {
        printer.line(line)?;
    }
    Ok(())
}

fn classes(dataset: &Dataset) -> Table {
    let columns = [("label", Align::Right), ("class", Align::Left), ("train", Align::Right), ("test", Align::Right)];
    let mut table = Table::new(&columns);
    let counts = |split: &Split| split.label_counts(dataset.classes.len());
    let (train, test) = (counts(&dataset.train), counts(&dataset.test));
    for (label, class) in dataset.classes.iter().enumerate() {
        table.row([label.to_string(), class.clone(), thousands(train[label]), thousands(test[label])]);
    }
    table
}
