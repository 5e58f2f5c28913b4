//! A sweep file: its keys, and the configurations of its runs.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::Sweep;
use super::job::{Assignment, OPTION, PlannedJob, SweepKeys, SweepPlan};
use crate::ExperimentError;
use crate::config::{Document, Origin, Settings};
use crate::error::Result;

/// A sweep file and the configuration that its runs share.
pub(crate) struct SweepFile {
    path: PathBuf,
    pub(super) document: Document,
    pub(super) plan: SweepPlan,
    base: Document,
    output: PathBuf,
    /// The option that gave the values which are not in the file.
    option: &'static str,
}

impl SweepFile {
    /// Runs that another kind of file describes, which says what they share and has no base of its own.
    pub(crate) fn of(path: &Path, document: &Document, output: &Path, option: &'static str) -> Self {
        let (path, output, document) = (path.to_path_buf(), output.to_path_buf(), document.clone());
        let plan = SweepPlan { keys: fedelity_keys::defaults(), options: Vec::new() };
        Self { path, document, plan, base: Document::default(), output, option }
    }

    /// Reads a sweep file. `set` are assignments from the command line: of keys that all runs share, or of the seeds.
    pub(super) fn read(path: &Path, output: &Path, set: &[String]) -> Result<Self> {
        let mut document = Document::read(path)?;
        let mut options = Vec::new();
        for text in set {
            let (key, value) = Document::assignment(text)?;
            match key {
                "seeds" => document.set(text)?,
                _ => options.push(Assignment { key: key.to_string(), value, at: OPTION.to_string() }),
            }
        }
        let (mut keys, _) = fedelity_keys::read::<SweepKeys>(document.table(), "", &mut ())
            .map_err(|error| document.key_error(&error))?;
        let base = match &keys.config {
            None => Document::default(),
            Some(config) => {
                let config = document.folder_of("config").join(config);
                if !config.is_file() {
                    return Err(document.error("config", format!("config = \"{}\": no such file", config.display())));
                }
                Document::read(&config)?
            }
        };
        if !document.gives("seeds")
            && let Some((key, seeds)) = ["seeds", "seed"].iter().find_map(|key| base.table().get_key_value(*key))
        {
            let whole = |seed: &toml::Value| seed.as_integer().and_then(|seed| u64::try_from(seed).ok());
            let seeds = seeds.as_array().map_or(std::slice::from_ref(seeds), |seeds| seeds);
            let seeds: Option<Vec<u64>> = seeds.iter().map(whole).collect();
            keys.seeds =
                seeds.ok_or_else(|| base.error(key, format!("{key}: expected whole numbers of at least 0")))?;
        }
        let (path, output) = (path.to_path_buf(), output.to_path_buf());
        let plan = SweepPlan { keys, options };
        Ok(Self { path, document, plan, base, output, option: "sweep" })
    }

    /// A sweep of these runs, each checked.
    pub(crate) fn sweep(&self, jobs: Vec<PlannedJob>, prepare: &impl Fn(&mut Document) -> Result<()>) -> Result<Sweep> {
        let of_base = match self.base.table().get("method") {
            Some(toml::Value::Array(methods)) => methods.len(),
            _ => 1,
        };
        let mut documents = Vec::new();
        let mut checked = None;
        for (job, assignments) in &jobs {
            let mut document = self.base.clone();
            let chosen = assignments.iter().find(|one| one.key == "method" || one.key.starts_with("method."));
            if of_base > 1 || (chosen.is_some() && self.base.gives("method.0")) {
                let (at, key) = chosen.map_or(("config", "config"), |one| (&one.at, &one.key));
                let message = format!(
                    "{key}: {} has [[method]] tables, but a run of a sweep has one method: write one [method] there, and \
                     name several in the sweep: \"method.name\" = [\"fedavg\", \"fedntd\"] in [grid]",
                    self.plan.keys.config.as_deref().unwrap_or(Path::new("")).display()
                );
                return Err(self.document.error(at, message));
            }
            let seeds = toml::Value::Array(vec![toml::Value::Integer(job.seed as i64)]);
            let settings = assignments.iter().map(|one| (&*one.key, one.value.clone(), &*one.at));
            for (key, value, at) in settings.chain([("seeds", seeds, "seeds")]) {
                let option = if at == OPTION || self.document.is_from(at, OPTION) { OPTION } else { self.option };
                let origin = self.document.place(at).unwrap_or(Origin::Option(option));
                document.put_from(&key.split('.').collect::<Vec<_>>(), value, origin)?;
            }
            prepare(&mut document)?;
            // Runs that differ only in their seed follow each other.
            if checked.replace(job.setting()) == Some(job.setting()) {
                documents.push(document);
                continue;
            }
            let settings = Settings::read(&document).map_err(|error| {
                let with = if job.set.is_empty() { String::new() } else { format!(" with {}", job.set.join(" ")) };
                ExperimentError::Config(format!("{error} (in a run of {}{with})", self.path.display()))
            })?;
            if settings.methods.len() > 1 {
                let (at, key) = chosen.map_or(("config", "config"), |one| (&one.at, &one.key));
                let message = format!("{key}: a run of a sweep has one method: set \"method.name\"");
                return Err(self.document.error(at, message));
            }
            documents.push(document);
        }
        let jobs = jobs.into_iter().map(|(job, _)| job).collect();
        Ok(Sweep {
            jobs,
            documents,
            output: self.output.clone(),
            sources: OnceLock::new(),
            compared: None,
            places: OnceLock::new(),
        })
    }
}
