//! Which kind of file a user gave, and which command takes it.

use std::path::Path;

use anyhow::{Result, bail};
use fedelity_data::{DataSource, quoted};
use fedelity_experiment::{Config, Document, Preset, Sweep};
use fedelity_keys::{Keys, Schema};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    Configuration,
    Sweep,
    Preset,
}

impl FileKind {
    const ALL: [Self; 3] = [Self::Configuration, Self::Sweep, Self::Preset];

    fn has(self, name: &str) -> bool {
        let schema: &Schema = match self {
            Self::Configuration => Config::SCHEMA,
            Self::Sweep => Sweep::KEYS,
            Self::Preset => Preset::KEYS,
        };
        schema.keys.iter().any(|key| key.name == name)
    }

    /// What it is called, and the command that takes it.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Configuration => ("a configuration", "run"),
            Self::Sweep => ("a sweep file", "sweep"),
            Self::Preset => ("a preset", "reproduce"),
        }
    }

    /// Reads a file of this kind. If it is of another kind, the error names the command for it.
    pub(crate) fn read(self, file: &Path) -> Result<Document> {
        if file.is_file() && DataSource::at(file).is_some() {
            let (table, (kind, _)) = (quoted(file), self.words());
            bail!(
                "{}: a table, not {kind}: fedelity init mine.toml --data {table} writes a configuration for it",
                file.display()
            );
        }
        let document = Document::read(file)?;
        let given = || document.table().keys();
        // A key that only this kind has is a mistake in a file of this kind.
        let is_other = |other: &Self| {
            given().any(|key| other.has(key) && !self.has(key)) && !given().any(|key| self.has(key) && !other.has(key))
        };
        // Presets share keys with sweep files: the kind that has most of the file's keys is meant.
        let others = Self::ALL.into_iter().filter(|other| *other != self && is_other(other));
        if let Some(other) = others.max_by_key(|other| given().filter(|key| other.has(key)).count()) {
            let (name, command) = other.words();
            bail!("{}: this is {name}: fedelity {command} {}", file.display(), quoted(file));
        }
        Ok(document)
    }
}
