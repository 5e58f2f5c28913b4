//! The options of every command that takes a configuration.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use fedelity_data::catalogue::{self, CatalogueEntry};
use fedelity_data::{DataSource, NamedSource, SetName, quoted};
use fedelity_experiment::{Document, ExperimentError, Settings, is_model_file};
use fedelity_keys::nearest;
use fedelity_record::names;

use crate::file_kind::FileKind;
use crate::latest::find as find_latest;
use crate::printer::Printer;

#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Overrides {
    /// Override a key of the configuration: a dotted path and a TOML value.
    ///
    /// Words need no quotes. May be repeated. Examples: rounds=5, optimizer.lr=0.05,
    /// model.name=ntd-cnn, seeds=[1,2,3]. `fedelity keys` lists all keys.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,

    /// Folder that holds the data sets [default: FEDELITY_DATA, then data.dir of the configuration, then data].
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,

    /// Skip images and rows that cannot be read and say how many, instead of failing at the first.
    ///
    /// These are damaged images, rows with a missing or misspelt value, and the like. The record counts them. Same as
    /// data.skip-bad = true.
    #[arg(long)]
    pub(crate) skip_bad: bool,
}

impl Overrides {
    /// Reads the file, if there is one, and applies the options.
    pub(crate) fn document(&self, file: Option<&Path>) -> Result<Document> {
        let mut document = match file {
            None => Document::default(),
            Some(file) => FileKind::Configuration.read(&configuration(file)?)?,
        };
        for assignment in &self.set {
            document.set(assignment)?;
        }
        self.place(&mut document)?;
        Ok(document)
    }

    /// Applies the options that say where data are and what becomes of bad ones.
    pub(crate) fn place(&self, document: &mut Document) -> Result<(), ExperimentError> {
        place_data(document, self.data_dir.as_deref())?;
        if self.skip_bad {
            document.put(&["data", "skip-bad"], toml::Value::Boolean(true), "--skip-bad")?;
        }
        Ok(())
    }

    /// The configuration for `what`: the name of data, a table, a folder of images or tables, or a configuration, given with
    /// `option`.
    pub(crate) fn data_document(&self, what: &str, option: &'static str) -> Result<Document> {
        let (file, own) = (Path::new(what), DataSource::own());
        if own.contains(&what) || SetName::from_name(what).is_some() {
            let mut document = self.document(None)?;
            document.put(&["data", "name"], what.into(), option)?;
            return Ok(document);
        }
        if let Some((name, key)) = DataSource::at(file) {
            let mut document = self.document(None)?;
            document.put(&["data", "name"], name.into(), option)?;
            document.put(&["data", key], path_value(file, option)?, option)?;
            return Ok(document);
        }
        let is_toml = file.extension().is_some_and(|end| end == "toml");
        if !is_toml && file.is_file() && Document::read(file).is_err() {
            bail!(
                "{option} {what}: neither a table nor a configuration: a table must be CSV or JSON lines, in a file that \
                 ends in .csv or .jsonl; save it as CSV"
            );
        }
        if is_toml || file.is_file() {
            return self.document(Some(file));
        }
        Err(find_or(what, &own).map_or_else(|error| error, |_| anyhow!("{option} {what}: no such data")))
    }

    /// A configuration for a model file that does not describe itself: a model and its data.
    pub(crate) fn foreign(&self, model: Option<&str>, data: Option<&str>) -> Result<Option<Document>> {
        let (Some(model), Some(data)) = (model, data) else { return Ok(None) };
        let mut document = self.data_document(data, "--data")?;
        let key = if is_model_file(model) { "file" } else { "name" };
        document.put(&["model", key], model.into(), "--model")?;
        Ok(Some(document))
    }
}

/// The path of a configuration. A folder is none, but a run folder has one.
fn configuration(file: &Path) -> Result<PathBuf> {
    let found = find_latest(file)?;
    if found.is_dir() {
        let inside = found.join(names::CONFIG);
        let hint = match inside.is_file() {
            true => format!("; its configuration is {}", quoted(&inside)),
            false => String::new(),
        };
        bail!("{}: a folder, not a configuration{hint}", found.display());
    }
    Ok(found)
}

/// Sets the data folder from an option or the environment.
pub fn place_data(document: &mut Document, data_dir: Option<&Path>) -> Result<(), ExperimentError> {
    let from_environment = std::env::var_os("FEDELITY_DATA").filter(|dir| !dir.is_empty());
    if let Some(dir) = data_dir {
        document.put(&["data", "dir"], path_value(dir, "--data-dir")?, "--data-dir")?;
    } else if let Some(dir) = from_environment
        && document.table().get("data").is_none_or(toml::Value::is_table)
    {
        document.put(&["data", "dir"], path_value(Path::new(&dir), "FEDELITY_DATA")?, "FEDELITY_DATA")?;
    }
    Ok(())
}

/// The folder that holds the data sets, by the same rule as for a configuration that does not name one.
pub(crate) fn data_dir(option: Option<&Path>) -> Result<PathBuf> {
    let mut document = Document::default();
    document.put(&["data", "name"], SetName::Mnist.name().into(), "NAME")?;
    place_data(&mut document, option)?;
    match Settings::read(&document)?.config.data.source {
        DataSource::Named(NamedSource { dir: Some(dir), .. }) => Ok(dir),
        _ => bail!("--data-dir: expected a folder"),
    }
}

/// The settings of a configuration; warns about decisions that the user may not expect.
pub(crate) fn settings(document: &Document, printer: &Printer) -> Result<Settings> {
    let settings = Settings::read(document)?;
    settings.notes.iter().for_each(|note| printer.warn(note));
    Ok(settings)
}

/// The catalogue entry with this name; the error suggests the nearest one.
pub(crate) fn find(name: &str) -> Result<&'static CatalogueEntry> {
    find_or(name, &[])
}

/// As [`find`], where the user's own data may be named too.
fn find_or(name: &str, own: &[&str]) -> Result<&'static CatalogueEntry> {
    let names = [&SetName::NAMES[..], own].concat();
    let begins: Vec<&str> = names.iter().filter(|known| known.starts_with(&format!("{name}-"))).copied().collect();
    let own = if own.is_empty() { String::new() } else { format!(", or {} for your own data", own.join(", ")) };
    catalogue::find(name).map_err(|error| match nearest(name, &names) {
        _ if !begins.is_empty() => anyhow!("{error}{own}; did you mean one of {}?", begins.join(", ")),
        Some(guess) => anyhow!("{error}{own}; did you mean '{guess}'?"),
        None => anyhow!("{error}{own}"),
    })
}

/// A path that an option gave, as a configuration value.
pub(crate) fn path_value(path: &Path, option: &str) -> Result<toml::Value, ExperimentError> {
    let no_text =
        || format!("{option} {}: the path is not UTF-8, and a configuration is text; rename it", path.display());
    let text = path.to_str().ok_or_else(|| ExperimentError::Config(no_text()))?;
    Ok(toml::Value::String(text.to_string()))
}
