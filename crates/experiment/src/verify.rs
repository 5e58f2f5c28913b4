//! Repeats a recorded run and compares it round by round.

use std::io::ErrorKind;
use std::path::Path;

use fedelity_fl::FlError;
use fedelity_nn::checkpoint;
use fedelity_record::{
    Header, RecordError, RoundRecord, Status, Summary, WeightHashes, names, read_holdings, read_summary, salvage_rounds,
};
use fedelity_sim::{Metrics, Observation, Simulation};
use serde_json::{Map, Value};

use crate::assemble::Study;
use crate::config::Document;
use crate::error::Result;
use crate::header::sha256;
use crate::privacy::PrivacyAccount;
use crate::stop::StopSign;
use crate::{Checkpoints, ExperimentError, Resources};

/// The result of repeating a run.
#[derive(Clone, Debug)]
pub struct Verification {
    /// The run as it was recorded.
    pub recorded: Header,
    /// The same run as it would be recorded now.
    pub repeated: Header,
    /// Rounds that were compared and are the same.
    pub same: u64,
    /// Rounds that could not be compared, because the record lacks them or their lines are damaged.
    pub missing: Vec<u64>,
    /// Whether the configuration in the folder is not the one that the run has written there.
    pub config_changed: bool,
    /// The first thing that differs.
    pub difference: Option<Difference>,
}

/// What differs between a record and its repetition.
#[derive(Clone, Debug, PartialEq)]
pub enum Difference {
    /// The repetition is of something else: no round was run.
    Setting { what: &'static str, recorded: String, repeated: String },
    /// Tensors of the global model after a round, in their order.
    Weights { round: u64, tensors: Vec<String> },
    /// Something else of a round, with equal weights, as JSON.
    Measured { round: u64, what: String, recorded: String, repeated: String },
    /// A model file does not hold the weights after its round: the last one, or the best.
    Model { file: &'static str, round: u64, reason: String },
}

/// What a caller decides and hears about a repetition.
pub struct Repetition<'a> {
    pub threads: usize,
    /// How many rounds to compare; all that were recorded if absent.
    pub rounds: Option<u64>,
    pub stop: StopSign,
    /// Is told about every round that is the same.
    pub round: &'a mut dyn FnMut(u64),
}

/// What a repetition does not have, or not as it was: how long it took, what was chosen among rounds, and what there was to notice
/// in local models.
const OWN: [&str; 4] = ["seconds", "kept", "early-stop", "notices"];
/// What the server of a federation measures by itself. What sites do besides is theirs: one may have been away.
const OF_SERVER: [&str; 5] = ["accuracy", "loss", "class-accuracy", "scores", "validation"];
/// What follows from all evaluations so far.
const OF_HISTORY: [&str; 3] = ["forgetting", "class-forgetting", "class-cosine"];

/// Repeats the run in a folder from what the folder has, and compares the weights after every round, everything that is measured
/// of the global model and of training, and the model file. `prepare` makes final changes to the configuration, such as the
/// place of the data.
pub fn verify(
    folder: &Path,
    resources: &Resources,
    prepare: impl FnOnce(&mut Document) -> Result<()>,
    how: Repetition<'_>,
) -> Result<Verification> {
    let salvage = salvage_rounds(&folder.join(names::ROUNDS))?;
    let config = folder.join(names::CONFIG);
    // A configuration that a user names may come through a pipe, that of a run does not.
    let text = fedelity_files::read_text(&config, fedelity_files::TEXT)
        .map_err(|error| ExperimentError::path(&config, format!("cannot read: {error}")))?;
    let written = &salvage.header.config_sha256;
    let config_changed = !written.is_empty() && *written != sha256(text.as_bytes());
    let mut document = Document::parse(config.display().to_string(), folder.to_path_buf(), &text)?;
    prepare(&mut document)?;
    let study = Study::load_with(&document, resources)?;
    let (method, label) = (&study.settings.methods[0], &study.labels()[0]);
    let (seed, threads) = (salvage.header.seed, how.threads);
    let run = study.one(method, label, seed, threads, Checkpoints::Off);
    let (recorded, repeated) = (salvage.header, run.header());
    let mut found = Verification { recorded, repeated, same: 0, missing: Vec::new(), config_changed, difference: None };
    if let Some((what, recorded, repeated)) = found.recorded.first_difference(&found.repeated) {
        found.difference = Some(Difference::Setting { what, recorded, repeated });
        return Ok(found);
    }
    let rounds = salvage.rounds;
    if rounds.first().is_some_and(|first| first.weights.is_none()) {
        let path = folder.join(names::ROUNDS);
        return Err(ExperimentError::path(&path, "its rounds have no hashes of weights: an older version recorded it"));
    }
    let last = rounds.last().map_or(0, |last| last.round);
    // A run that has ended has all its rounds.
    let whole = read_summary(&folder.join(names::SUMMARY)).ok().filter(|summary| summary.status != Status::Interrupted);
    let last = whole.as_ref().map_or(last, |summary| summary.rounds.min(found.recorded.rounds).max(last));
    let mut experiment = study.experiment(method, seed, threads);
    // Measuring local models takes time and does not change the global one.
    experiment.observation = Observation { metrics: Metrics::Fast, ..Observation::default() };
    let mut simulation = Simulation::new(experiment)?;
    found.repeated.attackers = simulation.attackers().into_iter().map(|client| client as u64).collect();
    found.repeated.guessing = simulation.experiment().guessing();
    let said = found.recorded.first_contradiction(&found.repeated).or_else(|| held(folder, &study));
    if let Some((what, recorded, repeated)) = said {
        found.difference = Some(Difference::Setting { what, recorded, repeated });
        return Ok(found);
    }
    let mut best = None;
    let mut account = study.privacy(method).map(PrivacyAccount::new);
    let mut rounds = rounds.into_iter().peekable();
    let (mut alike, needed) = (true, simulation.experiment().needed);
    for number in 1..=how.rounds.unwrap_or(u64::MAX).min(last) {
        if how.stop.is_asked() {
            return Ok(found);
        }
        let recorded = rounds.next_if(|round| round.round == number);
        // The quorum may have been another one then. With as many uploads as counted, a round is repeated as often as it was.
        let uploads = |round: &RoundRecord| round.accepted.unwrap_or(round.clients.len() as u64) as usize;
        simulation.need(recorded.as_ref().map_or(needed, uploads).clamp(1, study.per_round));
        let mut repeated = match simulation.step() {
            Err(FlError::Quorum { accepted, .. }) if recorded.is_some() => {
                let then = recorded.as_ref().map_or(0, uploads).to_string();
                let (what, now) = ("number of uploads that counted".to_string(), accepted.to_string());
                found.difference = Some(Difference::Measured { round: number, what, recorded: then, repeated: now });
                return Ok(found);
            }
            other => other?,
        };
        account.iter_mut().for_each(|account| account.add(&mut repeated));
        let Some(recorded) = recorded else {
            alike = false;
            found.missing.push(number);
            continue;
        };
        // Rounds in which local models are examined are evaluated, too.
        alike &= recorded.accuracy.is_some() == repeated.accuracy.is_some();
        let counts = |name: &str| match found.recorded.federated {
            true => OF_SERVER.contains(&name),
            false => !OWN.contains(&name) && (alike || !OF_HISTORY.contains(&name)),
        };
        found.difference = difference(&recorded, &repeated, counts, &study);
        if found.difference.is_some() {
            return Ok(found);
        }
        if recorded.kept.is_some() {
            best = Some((number, simulation.global().hash()));
        }
        found.same += 1;
        (how.round)(number);
    }
    // What diverged is not the model of a round.
    let complete = whole.is_some_and(|summary| summary.status.is_complete());
    if complete && simulation.rounds() as u64 == last {
        let kept = best.and_then(|(round, hash)| model(folder, names::BEST, &study, &hash, round));
        found.difference = model(folder, names::MODEL, &study, &simulation.global().hash(), last).or(kept);
    }
    Ok(found)
}

/// What the folder says of the classes that clients hold, if it is not what they hold.
fn held(folder: &Path, study: &Study) -> Option<(&'static str, String, String)> {
    let what = "number of samples of each class";
    match read_holdings(&folder.join(names::HOLDINGS)) {
        Ok(recorded) if recorded.counts == study.holdings => None,
        Ok(recorded) => {
            let (then, now) = (&recorded.counts, &study.holdings);
            let other = (0..then.len().max(now.len())).find(|&client| then.get(client) != now.get(client))?;
            let of = |counts: &[Vec<u64>]| {
                format!("{:?} on client {other}", counts.get(other).map_or(&[][..], Vec::as_slice))
            };
            Some((what, of(then), of(now)))
        }
        // Federations know only some clients' classes, or none.
        Err(RecordError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => None,
        Err(error) => Some((what, format!("unreadable ({error})"), "readable".to_string())),
    }
}

/// The first difference between two records of a round in its weights or in fields that count.
fn difference(
    recorded: &RoundRecord,
    repeated: &RoundRecord,
    counts: impl Fn(&str) -> bool,
    study: &Study,
) -> Option<Difference> {
    let round = recorded.round;
    let (then, now) = recorded.weights.as_ref().zip(repeated.weights.as_ref())?;
    if then != now {
        let tensors = study.model.layout().tensors().iter().enumerate();
        let other = tensors.filter(|(at, _)| then.tensors.get(*at) != now.tensors.get(*at));
        return Some(Difference::Weights { round, tensors: other.map(|(_, tensor)| tensor.name.clone()).collect() });
    }
    let fields = |record: &RoundRecord| match serde_json::to_value(record) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    let (then, now) = (fields(recorded), fields(repeated));
    let mut both = now.iter().filter_map(|(name, now)| Some((name, then.get(name)?, now)));
    let (what, then, now) =
        both.find_map(|(name, then, now)| if counts(name) { first_part(name.clone(), then, now) } else { None })?;
    Some(Difference::Measured { round, what, recorded: then.to_string(), repeated: now.to_string() })
}

/// The first part in which two values differ, with its place. What only one of them has was not measured by the other.
fn first_part<'a>(what: String, then: &'a Value, now: &'a Value) -> Option<(String, &'a Value, &'a Value)> {
    match (then, now) {
        (Value::Object(then), Value::Object(now)) => {
            let mut both = now.iter().filter_map(|(name, now)| Some((name, then.get(name)?, now)));
            both.find_map(|(name, then, now)| first_part(format!("{what}.{name}"), then, now))
        }
        (Value::Array(then), Value::Array(now)) if then.len() == now.len() => {
            let mut pairs = then.iter().zip(now).enumerate();
            pairs.find_map(|(i, (then, now))| first_part(format!("{what}[{i}]"), then, now))
        }
        _ => (then != now).then_some((what, then, now)),
    }
}

/// Whether a model file holds the weights after a round.
fn model(folder: &Path, file: &'static str, study: &Study, hash: &str, round: u64) -> Option<Difference> {
    let path = folder.join(file);
    let reason = match checkpoint::load(&path, study.model.layout()) {
        Ok(params) if params.hash() == hash => return None,
        Ok(_) => "it has other weights".to_string(),
        Err(error) => error.to_string(),
    };
    Some(Difference::Model { file, round, reason })
}

/// What is wrong with a model of a run folder, if its weights are not those of its round in the record: the last one, or the last
/// whose model was kept as the best.
pub(crate) fn model_of_another_round(file: &Path, hash: &str) -> Option<String> {
    let folder = file.parent()?;
    let best = file.ends_with(names::BEST);
    let salvage = salvage_rounds(&folder.join(names::ROUNDS)).ok()?;
    let diverged = |summary: Summary| matches!(summary.status, Status::Diverged { .. });
    if !best && read_summary(&folder.join(names::SUMMARY)).is_ok_and(diverged) {
        return None;
    }
    let rounds = &salvage.rounds;
    let last = if best { rounds.iter().rfind(|round| round.kept.is_some())? } else { rounds.last()? };
    let has = |round: &RoundRecord| round.weights.as_ref().is_some_and(|WeightHashes { sha256, .. }| sha256 == hash);
    if last.weights.is_none() || has(last) {
        return None;
    }
    let (file, record, last) = (file.display(), names::ROUNDS, last.round);
    if best {
        let found = rounds
            .iter()
            .rev()
            .find(|round| has(round))
            .map_or("no round".to_string(), |round| format!("round {}", round.round));
        return Some(format!(
            "{file} has the weights of {found}, but the best round in {record} is round {last}: the file or the record was changed, \
             or is of another run"
        ));
    }
    Some(match rounds.iter().rev().find(|round| has(round)) {
        Some(round) => format!(
            "{file} is the model after round {}, but {record} goes to round {last}: 'fedelity resume' goes on with the run",
            round.round
        ),
        None => format!(
            "{file} has the weights of no round in {record}, which goes to round {last}: the file or the record was changed, or is of \
             another run",
        ),
    })
}
