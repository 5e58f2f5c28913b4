//! Repeats a recorded run and compares it round by round.

use std::path::Path;

use fedelity_record::{Header, RoundRecord, names, salvage_rounds};
use fedelity_sim::{Metrics, Observation, Simulation};

use crate::assemble::Study;
use crate::config::Document;
use crate::error::Result;
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
    /// A number that was measured after a round, with equal weights.
    Measured { round: u64, what: &'static str, recorded: Option<f64>, repeated: Option<f64> },
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

/// Repeats the run in a folder from what the folder has, and compares the weights after every round. `prepare` makes
/// final changes to the configuration, such as the place of the data.
pub fn verify(
    folder: &Path,
    resources: &Resources,
    prepare: impl FnOnce(&mut Document) -> Result<()>,
    how: Repetition<'_>,
) -> Result<Verification> {
    let salvage = salvage_rounds(&folder.join(names::ROUNDS))?;
    let mut document = Document::read(&folder.join(names::CONFIG))?;
    prepare(&mut document)?;
    let study = Study::load_with(&document, resources)?;
    let (method, label) = (&study.settings.methods[0], &study.labels()[0]);
    let (seed, threads) = (salvage.header.seed, how.threads);
    let run = study.one(method, label, seed, threads, Checkpoints::Off);
    let repeated = run.header();
    let mut found = Verification { recorded: salvage.header, repeated, same: 0, difference: None };
    if let Some((what, recorded, repeated)) = found.recorded.first_difference(&found.repeated) {
        found.difference = Some(Difference::Setting { what, recorded, repeated });
        return Ok(found);
    }
    let rounds: Vec<RoundRecord> =
        (1..).zip(salvage.rounds).take_while(|(n, round)| *n == round.round).map(|(_, round)| round).collect();
    if rounds.first().is_some_and(|first| first.weights.is_none()) {
        let path = folder.join(names::ROUNDS);
        return Err(ExperimentError::path(&path, "its rounds have no hashes of weights: an older version recorded it"));
    }
    let mut experiment = study.experiment(method, seed, threads);
    // Measuring local models takes time and does not change the global one.
    experiment.observation = Observation { metrics: Metrics::Fast, ..Observation::default() };
    let mut simulation = Simulation::new(experiment)?;
    let most = how.rounds.unwrap_or(u64::MAX);
    for recorded in rounds.iter().take_while(|recorded| recorded.round <= most) {
        if how.stop.is_asked() {
            break;
        }
        let repeated = simulation.step()?;
        found.difference = difference(recorded, &repeated, &study);
        if found.difference.is_some() {
            break;
        }
        found.same = recorded.round;
        (how.round)(recorded.round);
    }
    Ok(found)
}

fn difference(recorded: &RoundRecord, repeated: &RoundRecord, study: &Study) -> Option<Difference> {
    let round = recorded.round;
    let (then, now) = recorded.weights.as_ref().zip(repeated.weights.as_ref())?;
    if then != now {
        let tensors = study.model.layout().tensors().iter().enumerate();
        let other = tensors.filter(|(at, _)| then.tensors.get(*at) != now.tensors.get(*at));
        return Some(Difference::Weights { round, tensors: other.map(|(_, tensor)| tensor.name.clone()).collect() });
    }
    let measured = [("accuracy", recorded.accuracy, repeated.accuracy), ("loss", recorded.loss, repeated.loss)];
    let other = measured.into_iter().find(|(_, then, now)| then.is_some() && now.is_some() && then != now);
    other.map(|(what, recorded, repeated)| Difference::Measured { round, what, recorded, repeated })
}
