//! Runs a study into run folders: every method with every seed.

use std::path::{Path, PathBuf};

use fedelity_fl::FlError;
use fedelity_record::{RunFolder, names};
use fedelity_report::LoadedRun;
use fedelity_sim::Simulation;

use crate::ExperimentError;
use crate::assemble::Study;
use crate::error::Result;
use crate::incomplete::Incomplete;
use crate::observer::Observer;
use crate::run::lock;

/// The default folder for results.
const RUNS: &str = "runs";

impl Study {
    /// A name for each method: its ID, with a number if it occurs again with other keys.
    pub fn labels(&self) -> Vec<String> {
        let mut labels: Vec<String> = Vec::new();
        for method in &self.settings.methods {
            let mut label = method.name.to_string();
            let mut n = 1;
            while labels.contains(&label) {
                n += 1;
                label = format!("{}-{n}", method.name);
            }
            labels.push(label);
        }
        labels
    }

    /// Creates the folder for the results: `output`, which must not exist yet, or a new one in `runs` named after the
    /// time and the study.
    pub fn folder(&self, output: Option<&Path>) -> Result<RunFolder> {
        if let Some(path) = output {
            return Ok(RunFolder::create(path)?);
        }
        let methods = match &self.labels()[..] {
            [one] => one.clone(),
            several => format!("{}-methods", several.len()),
        };
        let time = jiff::Zoned::now().strftime("%Y-%m-%d-%H%M%S");
        let base = Path::new(RUNS).join(format!("{time}-{methods}-{}", self.pool.dataset.name));
        // Two runs may start in the same second.
        let numbered = |n: usize| match n {
            1 => base.clone(),
            n => PathBuf::from(format!("{}-{n}", base.display())),
        };
        let mut n = 1;
        loop {
            match RunFolder::create(&numbered(n)) {
                Err(fedelity_record::RecordError::Exists { .. }) if n < 1_000 => n += 1,
                other => return Ok(other?),
            }
        }
    }

    /// Runs every method with every seed, one after the other, and returns the results. If there are several runs, each
    /// gets its own subfolder. Runs that the folder already has are not repeated, and unfinished ones go on. If too few
    /// uploads count in one of several runs, the others still run, and the error has their results.
    pub fn run(
        &self,
        folder: &RunFolder,
        threads: usize,
        observer: &mut dyn Observer,
    ) -> Result<fedelity_report::Results> {
        let (methods, seeds) = (&self.settings.methods, &self.settings.config.seeds);
        let several = methods.len() * seeds.len() > 1;
        let _lock = if several { Some(lock(folder.path())?) } else { None };
        let (sign, checkpoints) = (observer.stop(), observer.checkpoints());
        let labels = self.labels();
        let place = |label: &str, seed: u64| folder.path().join(label).join(format!("seed-{seed}"));
        if several {
            // What is there must be of this study before anything is written.
            for (method, label) in methods.iter().zip(&labels) {
                for &seed in seeds.iter().filter(|&&seed| place(label, seed).exists()) {
                    let own = RunFolder::open(&place(label, seed))?;
                    self.one(method, label, seed, threads, checkpoints).recorded(&own)?;
                }
            }
            folder.write_config(&self.settings.resolved_for(methods, seeds, names::PARTITION, Some(names::LAYERS)))?;
            self.write_layers(folder)?;
            self.pool.partition.write(&folder.file(names::PARTITION), true)?;
        }
        let (mut groups, mut stopped) = (Vec::new(), Vec::new());
        for (method, label) in methods.iter().zip(&labels) {
            let mut runs = Vec::new();
            for &seed in seeds {
                if sign.is_asked() {
                    break;
                }
                let path = place(label, seed);
                let own = match several {
                    true if path.exists() => RunFolder::open(&path)?,
                    true => RunFolder::create(&path)?,
                    false => folder.clone(),
                };
                let this = self.one(method, label, seed, threads, checkpoints);
                let mut run = match this.execute(&own, observer) {
                    Ok(ended) => LoadedRun::of(seed, ended.summary, &ended.accuracies),
                    // The other runs may have more luck.
                    Err(error @ ExperimentError::Federation(FlError::Quorum { .. })) if several => {
                        observer.stopped(&this, &error);
                        stopped.push((label.clone(), seed, error.to_string()));
                        LoadedRun::read(own.path())?.0
                    }
                    Err(error) => return Err(error),
                };
                run.header.classes = self.pool.dataset.classes.clone();
                run.header.client_names = self.pool.partition.names.clone();
                run.header.rounds = self.settings.config.rounds as u64;
                runs.push(run);
            }
            if !runs.is_empty() {
                groups.push((label.clone(), runs));
            }
        }
        let (results, of) = (fedelity_report::Results::of(groups), methods.len() * seeds.len());
        match stopped.is_empty() {
            true => Ok(results),
            false => Err(ExperimentError::Incomplete(Box::new(Incomplete { results, stopped, of }))),
        }
    }

    /// Rejects clients whose samples are elsewhere.
    pub(crate) fn simulates(&self) -> Result<()> {
        if self.pool.partition.is_of_sites() {
            let message = "partition.kind = \"sites\": the samples are at the sites, so there is nothing to simulate; this is the \
                           configuration of a server, which docs/flower.md starts";
            return Err(ExperimentError::Config(message.to_string()));
        }
        Ok(())
    }

    /// Writes the layers of a model of one's own, so that the folder reproduces the run.
    pub(crate) fn write_layers(&self, folder: &RunFolder) -> Result<()> {
        Ok(self.card.layers.as_ref().map_or(Ok(()), |text| folder.write(names::LAYERS, text.as_bytes()))?)
    }

    /// Rejects invalid runs before anything is written.
    pub fn check(&self, threads: usize) -> Result<()> {
        self.simulates()?;
        for method in &self.settings.methods {
            Simulation::new(self.experiment(method, self.settings.config.seeds[0], threads))?;
        }
        Ok(())
    }
}
