//! `fedelity data fetch`.

use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use fedelity_fetch::{Event, FetchError, Fetched, Patience, by_hand, fetch};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::overrides::{data_dir, find};
use crate::printer::Printer;
use crate::view::units::bytes;

const EXAMPLES: &str = "\
Examples:
  fedelity data fetch mnist cifar10 --data-dir ~/data
  fedelity data fetch cifar100 --mirror https://mirror.example.org/cifar
  fedelity data fetch cifar10 --mirror /media/stick     from local files

Repeat the command to resume an interrupted download. If a data set has several mirrors, they are
tried in turn. Files are verified by SHA-256 (CINIC-10 by its published MD5); archives are unpacked
separately and moved into place once complete.

HTTPS_PROXY and HTTP_PROXY name a proxy; SSL_CERT_FILE names a PEM file of certificates to trust
instead of the usual ones.";

/// Download data sets from their public sources
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Fetch {
    /// The data sets to download.
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,

    /// Folder that holds the data sets [default: FEDELITY_DATA, then data].
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Get the files from this address or folder instead of the public sources.
    #[arg(long, value_name = "URL")]
    mirror: Option<String>,

    /// Print one JSON object per data set.
    #[arg(long)]
    json: bool,
}

impl Fetch {
    pub(super) fn run(self, printer: &Printer) -> Result<()> {
        let dir = data_dir(self.data_dir.as_deref())?;
        let entries = self.names.iter().map(|name| find(name)).collect::<Result<Vec<_>>>()?;
        if let Some(mirror) = &self.mirror
            && mirror.contains("://")
            && !["http://", "https://", "file://"].iter().any(|start| mirror.starts_with(start))
        {
            bail!("--mirror {mirror}: expected an address that starts with http:// or https://, or a folder");
        }
        for entry in entries {
            let mut told = Told::new(printer);
            let found =
                fetch(entry, &dir, self.mirror.as_deref(), Patience::default(), &mut |event| told.tell(printer, event));
            told.bar.finish_and_clear();
            if self.json {
                let (state, path) = match &found {
                    Ok(Fetched::PartOfTheProgram) => ("part of the program", None),
                    Ok(Fetched::WasThere(path)) => ("was there", Some(path)),
                    Ok(Fetched::New(path)) => ("new", Some(path)),
                    Err(_) => ("failed", None),
                };
                let path = path.map(|path| path.display().to_string());
                printer.json(&json!({ "name": entry.name, "state": state, "path": path }))?;
            }
            match found {
                Ok(Fetched::PartOfTheProgram) => printer.say(format_args!("{} is built into the program", entry.name)),
                Ok(Fetched::WasThere(path)) => {
                    printer.say(format_args!("{} already exists: {}", entry.name, path.display()));
                }
                Ok(Fetched::New(path)) => printer.say(format_args!("{} is in {}", entry.name, path.display())),
                Err(
                    error @ (FetchError::Unreachable { .. }
                    | FetchError::Status { .. }
                    | FetchError::Length { .. }
                    | FetchError::NotHere { .. }),
                ) => {
                    return Err(anyhow!("{error}\n{}", by_hand(entry, &dir)));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// The progress of a download: a bar on a terminal, a few plain lines elsewhere.
struct Told {
    bar: ProgressBar,
    /// The bar's current file.
    name: String,
    /// Tenths of it already printed.
    tenths: u64,
}

impl Told {
    fn new(printer: &Printer) -> Self {
        let bar = printer.bar(0);
        let style = ProgressStyle::with_template("{prefix}  {wide_bar}  {bytes} of {total_bytes}  {eta} left")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style);
        Self { bar, name: String::new(), tenths: 0 }
    }

    fn tell(&mut self, printer: &Printer, event: Event) {
        let say = |text: String| self.bar.suspend(|| printer.say(text));
        match event {
            Event::Bytes { name, have, total } => {
                if self.name != name {
                    self.bar.set_prefix(name.clone());
                    (self.name, self.tenths) = (name, 0);
                }
                if let Some(total) = total {
                    self.bar.set_length(total);
                    let tenths = (10 * have).checked_div(total).unwrap_or(0);
                    if !printer.live() && tenths > self.tenths {
                        self.tenths = tenths;
                        printer.say(format_args!("  {}  {} of {}", self.name, bytes(have), bytes(total)));
                    }
                }
                self.bar.set_position(have);
            }
            Event::Again { reason } => say(format!("  {reason}; trying again")),
            Event::Elsewhere { reason, url } => say(format!("  {reason}\n  trying {url}")),
            Event::Unchecked { name } => say(format!("  {name}: not verified, no checksum is known")),
            Event::Incomplete { path, missing } => {
                say(format!("  {} is empty ({missing}); fetching it", path.display()));
            }
            Event::Waiting { name } => say(format!("  another process is fetching {name}; waiting for it")),
            Event::Checking { name } => printer.detail(format_args!("  verifying {name}")),
            Event::Unpacking { name } => say(format!("  unpacking {name}")),
            _ => {}
        }
    }
}
