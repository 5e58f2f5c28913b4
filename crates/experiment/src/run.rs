//! Runs a study into run folders: every method with every seed.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fedelity_files::{Claim, Lock, LockError};
use fedelity_fl::FlError;
use fedelity_nn::Card;
use fedelity_record::{
    ChosenBy, Header, Holdings, RecordError, RoundRecord, RunFolder, Salvage, Status, Summary, client_name, names,
    read_summary, salvage_rounds,
};
use fedelity_report::LoadedRun;
use fedelity_sim::Simulation;
use sha2::{Digest, Sha256};

use crate::assemble::Study;
use crate::checkpoint::{CheckpointFolder, Checkpoints, Identity, Restored, Writer};
use crate::config::MethodChoice;
use crate::error::Result;
use crate::incomplete::Incomplete;
use crate::progress::{RunProgress, RunRecord, accuracies};
use crate::saved::POSITIVE;
use crate::stop::StopSign;
use crate::{ExperimentError, machine};

/// The default folder for results.
const RUNS: &str = "runs";

/// As many rounds as may have no state on disk when a process is killed or its newest state is damaged.
const FEW: usize = 3;

/// The error of a front end.
pub type FrontError = Box<dyn std::error::Error + Send + Sync>;

/// A front end's view of runs, and its decisions about them. `()` ignores everything and never stops.
pub trait Observer {
    /// A run starts, or goes on after some rounds, in an existing folder.
    fn start(&mut self, _run: &Run<'_>, _folder: &RunFolder, _rounds: usize) -> Result<(), FrontError> {
        Ok(())
    }

    /// A run had already ended.
    fn skip(&mut self, _run: &Run<'_>, _outcome: &Outcome) {}

    /// A round has been recorded. If this fails, the record is completed before the error is returned.
    fn round(&mut self, _run: &Run<'_>, _record: &RoundRecord) -> Result<(), FrontError> {
        Ok(())
    }

    /// A run ended.
    fn end(&mut self, _run: &Run<'_>, _outcome: &Outcome) {}

    /// A run stopped because too few uploads counted; others follow.
    fn stopped(&mut self, _run: &Run<'_>, _error: &ExperimentError) {}

    /// Something that the user should know about the run.
    fn note(&mut self, _note: &str) {}

    /// How much of an unfinished run to keep on disk.
    fn checkpoints(&self) -> Checkpoints {
        Checkpoints::default()
    }

    /// The claim on the run, if processes share work: once another process has it, nothing is written any more.
    fn claim(&self) -> Option<Arc<Claim>> {
        None
    }

    /// A sign that is asked when runs should stop: those clients that are training finish first.
    fn stop(&self) -> StopSign {
        StopSign::default()
    }
}

impl Observer for () {}

/// One method with one seed.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    pub study: &'a Study,
    pub method: &'a MethodChoice,
    /// The method's name in this study.
    pub label: &'a str,
    pub seed: u64,
    pub threads: usize,
    pub checkpoints: Checkpoints,
    /// Whether clients run elsewhere and keep their memory themselves.
    pub federated: bool,
}

/// How a run ended.
pub struct Outcome {
    pub summary: Summary,
    /// Evaluated rounds, and their accuracy.
    pub accuracies: Vec<(u64, f64)>,
    /// Why training diverged, if it did.
    pub divergence: Option<String>,
}

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
        if several {
            folder.write_config(&self.settings.resolved_for(methods, seeds, names::PARTITION, Some(names::LAYERS)))?;
            self.write_layers(folder)?;
            self.pool.partition.write(&folder.file(names::PARTITION), true)?;
        }
        let labels = self.labels();
        let (mut groups, mut stopped) = (Vec::new(), Vec::new());
        for (method, label) in methods.iter().zip(&labels) {
            let mut runs = Vec::new();
            for &seed in seeds {
                if sign.is_asked() {
                    break;
                }
                let path = folder.path().join(label).join(format!("seed-{seed}"));
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
    fn simulates(&self) -> Result<()> {
        if self.pool.partition.is_of_sites() {
            let message = "partition.kind = \"sites\": the samples are at the sites, so there is nothing to simulate; this is the \
                           configuration of a server, which docs/flower.md starts";
            return Err(ExperimentError::Config(message.to_string()));
        }
        Ok(())
    }

    /// One method with one seed, in one process.
    pub(crate) fn one<'a>(
        &'a self,
        method: &'a MethodChoice,
        label: &'a str,
        seed: u64,
        threads: usize,
        checkpoints: Checkpoints,
    ) -> Run<'a> {
        Run { study: self, method, label, seed, threads, checkpoints, federated: false }
    }

    /// Writes the layers of a model of one's own, so that the folder reproduces the run.
    fn write_layers(&self, folder: &RunFolder) -> Result<()> {
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

impl Run<'_> {
    /// Runs all rounds and writes them into the folder. If the folder has a part of this run, it goes on from there;
    /// the results are the same.
    pub fn execute(&self, folder: &RunFolder, observer: &mut dyn Observer) -> Result<Outcome> {
        self.study.simulates()?;
        let stopped = |error: FrontError| ExperimentError::Stopped(error);
        let claim = observer.claim();
        let _lock = match (lock(folder.path()), &claim) {
            // Some network file systems have no locks; claims need none.
            (Err(ExperimentError::Lock { .. }), Some(_)) => None,
            (locked, _) => Some(locked?),
        };
        still_ours(claim.as_deref())?;
        let place = CheckpointFolder::of(folder.path(), self.identity());
        let earlier = self.earlier(folder, &place)?;
        if let Earlier { ended: Some(outcome), .. } = earlier {
            observer.skip(self, &outcome);
            return Ok(outcome);
        }
        let mut progress = self.begin(folder, earlier, place, claim)?;
        observer.start(self, folder, progress.simulation.rounds()).map_err(stopped)?;
        progress.notes.iter().for_each(|note| observer.note(note));
        let sign = observer.stop();
        let (mut failed, mut short) = (None, None);
        while !progress.is_done() {
            let record = match progress.step(self, &sign) {
                Ok(Some(record)) => record,
                Ok(None) => break,
                // What there is stays, and can be resumed with another quorum.
                Err(error @ ExperimentError::Federation(FlError::Quorum { .. })) => {
                    progress.summary.status = Status::Interrupted;
                    short = Some(error);
                    break;
                }
                Err(error) => return Err(error),
            };
            if let Err(error) = observer.round(self, &record) {
                progress.summary.status = Status::Interrupted;
                failed = Some(error);
                break;
            }
        }
        let outcome = progress.end(self, &mut |note| observer.note(note))?;
        if let Some(error) = short.or(failed.map(stopped)) {
            return Err(error);
        }
        observer.end(self, &outcome);
        Ok(outcome)
    }

    /// What the folder already has of this run.
    pub(crate) fn earlier(&self, folder: &RunFolder, place: &CheckpointFolder) -> Result<Earlier> {
        let path = folder.file(names::ROUNDS);
        let planned = self.study.settings.config.rounds as u64;
        let salvage = match salvage_rounds(&path) {
            Ok(salvage) => salvage,
            // The run was stopped before its first round.
            Err(RecordError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                return Ok(Earlier::default());
            }
            Err(RecordError::NoHeader { .. }) => {
                folder.remove(names::ROUNDS)?;
                return Ok(Earlier::default());
            }
            Err(error) => return Err(error.into()),
        };
        let Salvage { header, mut rounds, problems } = salvage;
        self.belongs(&header, &path)?;
        let recorded = rounds.len();
        let whole = (1..).zip(&rounds).take_while(|(n, round)| *n == round.round).count();
        rounds.truncate(whole);
        if whole as u64 > planned {
            let more = format!("rounds = {planned}: the run already has {whole} rounds");
            return Err(ExperimentError::path(folder.path(), more));
        }
        let summary = read_summary(&folder.file(names::SUMMARY)).ok();
        let ended = summary.filter(|summary| match summary.status {
            Status::Finished => whole as u64 == planned,
            Status::Diverged { .. } | Status::StoppedEarly { .. } => true,
            Status::Interrupted => false,
        });
        let ended = ended.map(|summary| Outcome { summary, accuracies: accuracies(&rounds), divergence: None });
        let mut restored = if ended.is_some() { Restored::default() } else { place.restore(whole)? };
        let mut again = 0;
        if ended.is_none() {
            rounds.truncate(restored.rounds());
            again = recorded - rounds.len();
        }
        if whole < recorded {
            restored.notes.extend(problems.iter().map(|problem| format!("{}: {problem}", path.display())));
        }
        Ok(Earlier { header: Some(header), rounds, again, restored, ended })
    }

    /// Rejects a record of another run.
    fn belongs(&self, header: &Header, path: &Path) -> Result<()> {
        if header.federated != self.federated {
            let reason = match header.federated {
                true => "it is the record of a federation whose clients ran elsewhere: its server goes on with it",
                false => {
                    "it is the record of a simulation, which 'fedelity resume' goes on with; choose another folder"
                }
            };
            return Err(ExperimentError::path(path, reason));
        }
        if let Some((what, then, now)) = header.first_difference(&self.header()) {
            let reason = format!("the run cannot be resumed: its {what} was {then} and is now {now}");
            return Err(ExperimentError::path(path, reason));
        }
        Ok(())
    }

    /// Writes what describes the run, and goes on from what there is.
    pub(crate) fn begin(
        &self,
        folder: &RunFolder,
        earlier: Earlier,
        place: CheckpointFolder,
        claim: Option<Arc<Claim>>,
    ) -> Result<RunProgress> {
        let study = self.study;
        let Earlier { header, rounds, again, restored, .. } = earlier;
        let experiment = study.experiment(self.method, self.seed, self.threads);
        let writer = match self.checkpoints {
            Checkpoints::Clients => Some(Writer::start(&place, &restored, claim.clone())?),
            Checkpoints::Off => {
                place.tidy(&restored);
                None
            }
        };
        let Restored { progress, finished, mut notes, .. } = restored;
        let simulation = match progress {
            Some(progress) => Simulation::resume(experiment, progress, &rounds)?,
            None => Simulation::new(experiment)?,
        };
        let method = std::slice::from_ref(self.method);
        let config = study.settings.resolved_for(method, &[self.seed], names::PARTITION, Some(names::LAYERS));
        folder.write_config(&config)?;
        study.write_layers(folder)?;
        if !study.pool.partition.is_of_sites() {
            study.pool.partition.write(&folder.file(names::PARTITION), true)?;
            folder.write_holdings(&Holdings::new(study.holdings.clone()))?;
        }
        folder.remove(names::SUMMARY)?;
        let file = match header {
            // What describes the first part of the run stays.
            Some(header) => {
                if again > FEW {
                    folder.set_aside_rounds()?;
                    let kept = folder.file(names::BEFORE);
                    notes.push(format!(
                        "{} keeps the {again} rounds that are run again, until the run ends",
                        kept.display()
                    ));
                }
                let guessing = header.guessing.or(simulation.experiment().guessing());
                let header = Header { rounds: study.settings.config.rounds as u64, guessing, ..header };
                folder.resume_rounds(&header, rounds.len())?
            }
            None => {
                let attackers = simulation.attackers().into_iter().map(|client| client as u64).collect();
                let local_evaluation = Some(simulation.local_evaluation());
                let guessing = simulation.experiment().guessing();
                let header = Header { local_evaluation, attackers, guessing, ..self.header() };
                folder.start_rounds(&header)?
            }
        };
        let record = Some(RunRecord { folder: folder.clone(), place, file, writer, claim });
        Ok(RunProgress { record, finished, notes, ..RunProgress::new(self, simulation, &rounds) })
    }

    /// What tells its checkpoints from those of other runs.
    pub(crate) fn identity(&self) -> Identity {
        let study = self.study;
        let mut hasher = Sha256::new();
        hasher.update(study.settings.identity(self.method, self.seed));
        for part in [&study.pool.fingerprint, &study.partition_fingerprint] {
            hasher.update(part);
        }
        hasher.update(study.model.layout().len().to_le_bytes());
        if self.federated {
            hasher.update("federated");
        }
        hasher.finalize().into()
    }

    pub(crate) fn header(&self) -> Header {
        let Study { settings, pool, model, per_round, card, .. } = self.study;
        let as_json = |value: &toml::Value| serde_json::to_value(value).unwrap_or_default();
        Header {
            fedelity: env!("CARGO_PKG_VERSION").to_string(),
            method: self.method.name.to_string(),
            method_settings: self.method.keys.iter().map(|(key, value)| (key.clone(), as_json(value))).collect(),
            dataset: pool.dataset.name.clone(),
            dataset_fingerprint: pool.fingerprint.clone(),
            data_gaps: pool.dataset.gaps(),
            partition: pool.partition.spec.clone(),
            model: card.model.clone(),
            parameters: model.layout().trainable_len() as u64,
            seed: self.seed,
            rounds: settings.config.rounds as u64,
            clients: pool.partition.clients.len() as u64,
            per_round: *per_round as u64,
            threads: self.threads as u64,
            isa: model.engine().name().to_string(),
            classes: pool.dataset.classes.clone(),
            client_names: pool.partition.names.clone(),
            positive: self.study.positive.map(|class| class as u64),
            validation_samples: pool.held_out.validation.len() as u64,
            partition_fingerprint: self.study.partition_fingerprint.clone(),
            left_out: pool.skipped.count as u64,
            machine: machine::describe(),
            command: match pool.partition.is_of_sites() {
                true => String::new(),
                false => format!("fedelity run {}", names::CONFIG),
            },
            leaves: Some(self.study.leaves(self.method)),
            federated: self.federated,
            ..Header::default()
        }
    }

    /// A message about a client, with its name if it has one.
    pub(crate) fn named(&self, message: String, client: Option<u64>) -> String {
        let names = &self.study.pool.partition.names;
        let of = |client: u64| message.replacen(&format!("client {client}"), &client_name(names, client), 1);
        client.map_or_else(|| message.clone(), of)
    }

    /// The description of the model of the best round: the round, and how it was chosen.
    pub(crate) fn best_card(&self, round: u64, chosen_by: ChosenBy) -> Card {
        let mut card = self.card();
        let how = match chosen_by {
            ChosenBy::Validation => {
                format!("accuracy on {} validation samples", self.study.pool.held_out.validation.len())
            }
            ChosenBy::Test => "accuracy on the test samples".to_string(),
        };
        card.origin.insert("round".to_string(), round.to_string());
        card.origin.insert("chosen-by".to_string(), how);
        card
    }

    /// The model file's description of itself. It is the same in every repetition.
    pub(crate) fn card(&self) -> Card {
        let mut card = self.study.card.clone();
        card.origin.insert("method".to_string(), self.method.name.to_string());
        card.origin.insert("seed".to_string(), self.seed.to_string());
        if let Some(name) = &self.study.settings.config.evaluation.positive {
            card.origin.insert(POSITIVE.to_string(), name.clone());
        }
        card
    }
}

/// What a folder already has of a run.
#[derive(Default)]
pub(crate) struct Earlier {
    pub(crate) header: Option<Header>,
    /// The rounds before it goes on.
    pub(crate) rounds: Vec<RoundRecord>,
    /// How many more were recorded, and are run again.
    pub(crate) again: usize,
    pub(crate) restored: Restored,
    /// How it ended, if it did.
    pub(crate) ended: Option<Outcome>,
}

/// Makes this process the only one that writes to a folder.
pub(crate) fn lock(folder: &Path) -> Result<Lock> {
    Lock::acquire(folder).map_err(|error| match error {
        LockError::Held(holder) => ExperimentError::path(
            folder,
            format!("{holder} is writing to this folder; wait for it, or choose another folder"),
        ),
        LockError::Io(source) => ExperimentError::Lock { path: folder.to_path_buf(), source },
    })
}

/// An error if another process has taken over what was claimed.
pub(crate) fn still_ours(claim: Option<&Claim>) -> Result<()> {
    if claim.is_none_or(Claim::holds) { Ok(()) } else { Err(ExperimentError::TakenOver) }
}
