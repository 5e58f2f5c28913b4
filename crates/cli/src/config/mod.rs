//! The configuration: TOML and `--set`, checked, and written back in full.

mod data;
mod defaults;
mod document;
mod model;
mod partition;
mod resolved;
mod section;
mod server;
mod settings;

use std::path::{Path, PathBuf};

use anyhow::Result;
use fedelity_data::OWN;

pub(crate) use data::{Data, find, unfit};
pub(crate) use document::Document;
pub(crate) use model::TextModel;
pub(crate) use partition::Source;
pub(crate) use section::nearest;
pub(crate) use settings::{Method, PerRound, Settings, at_most};

/// The options of every command that takes a configuration.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Overrides {
    /// Override a key of the configuration: a dotted path and a TOML value.
    ///
    /// Words need no quotes. May be given several times. Examples: rounds=5, optimizer.lr=0.05,
    /// model.name=ntd-cnn, seeds=[1,2,3].
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,

    /// Folder that holds the data sets [default: FEDELITY_DATA, then data.dir of the configuration].
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,

    /// Leave out images and rows that cannot be used, and count them, instead of stopping at the first.
    #[arg(long)]
    pub(crate) skip_bad: bool,
}

impl Overrides {
    /// Reads the file, if there is one, and applies the options.
    pub(crate) fn document(&self, file: Option<&Path>) -> Result<Document> {
        let mut document = file.map_or_else(|| Ok(Document::default()), Document::read)?;
        for assignment in &self.set {
            document.set(assignment)?;
        }
        let from_environment = std::env::var_os("FEDELITY_DATA").filter(|dir| !dir.is_empty());
        if let Some(dir) = &self.data_dir {
            document.put(&["data", "dir"], path_value(dir), "--data-dir")?;
        } else if let Some(dir) = from_environment
            && document.table().get("data").is_none_or(toml::Value::is_table)
        {
            document.put(&["data", "dir"], path_value(Path::new(&dir)), "FEDELITY_DATA")?;
        }
        if self.skip_bad {
            document.put(&["data", "skip-bad"], toml::Value::Boolean(true), "--skip-bad")?;
        }
        Ok(document)
    }
}

impl Overrides {
    /// The configuration that `what` stands for: a file, or the name of data that `option` gave.
    pub(crate) fn data_document(&self, what: &str, option: &'static str) -> Result<Document> {
        let file = Path::new(what);
        let is_file = file.extension().is_some_and(|end| end == "toml") || file.is_file();
        let mut document = self.document(is_file.then_some(file))?;
        if !is_file {
            if !OWN.contains(&what) {
                find(what)?;
            }
            document.put(&["data", "name"], what.into(), option)?;
        }
        Ok(document)
    }
}

/// A path as a value of a configuration.
pub(crate) fn path_value(path: &Path) -> toml::Value {
    toml::Value::String(path.display().to_string())
}
