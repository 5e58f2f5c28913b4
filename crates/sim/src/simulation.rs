//! The simulation, round by round.

mod attempts;

use std::collections::BTreeMap;

use fedelity_data::label_counts;
use fedelity_fl::metrics::{Forgetting, class_accuracy_cosine};
use fedelity_fl::observe::{Diversity, Portrait, alignment, confusion};
use fedelity_fl::{
    Coordinator, Evaluation, Finished, FlError, Memories, Payload, Samples, Scaling, ServerState, Trainer, keep,
};
use fedelity_nn::Params;
use fedelity_record::{
    ClientsReport, LocalEvaluation, ProtectionRecord, RoundRecord, Seconds, Spread, Unlearnt, ValidationRecord,
    WeightHashes,
};

use attempts::Gathered;
pub use attempts::{Absent, Closing, OpenRound};

use crate::client_book::{ClientBook, Known};
use crate::faults::FaultPlan;
use crate::lookout::{GlobalSigns, Lookout};
use crate::observe::{self, Baseline, ObservationPlan};
use crate::{Experiment, Keeper, evaluate};

/// A federation in one process.
#[derive(Debug)]
pub struct Simulation {
    experiment: Experiment,
    coordinator: Coordinator,
    trainers: Vec<Trainer>,
    memories: Memories,
    spare: Vec<Params>,
    scaling: Scaling,
    test: Vec<u32>,
    forgetting: Forgetting,
    lookout: Lookout,
    plan: ObservationPlan,
    diversity: Diversity,
    book: ClientBook,
    /// The global model's predictions at its last evaluation.
    known: Option<Known>,
    /// Class accuracies of the last evaluation.
    classes: Option<Vec<Option<f64>>>,
    /// Features of the closely examined client.
    local_features: Option<Vec<f32>>,
    /// What goes wrong on purpose, if anything does.
    faults: Option<FaultPlan>,
    /// Clients whose uploads of the last round are still on their way.
    late: Vec<usize>,
    /// Clients whose uploads are in the last round's weights.
    counted: Vec<usize>,
}

/// What a simulation carries over between rounds, beside the records of its rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    pub server: ServerState,
    pub memories: Memories,
    /// Features of the closely examined client, if its round has been run.
    pub features: Option<Vec<f32>>,
}

/// Features of some test samples: the inputs of the last layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Features {
    pub labels: Vec<u16>,
    /// Numbers per sample.
    pub width: usize,
    /// Under the global model, as rows.
    pub global: Vec<f32>,
    /// Under one client's model after its training, as rows.
    pub local: Vec<f32>,
    pub client: usize,
    /// The round in which it trained, counted from 1.
    pub round: usize,
}

impl Simulation {
    /// A federation before its first round. Invalid experiments are refused.
    pub fn new(experiment: Experiment) -> Result<Self, FlError> {
        experiment.check()?;
        let coordinator = Coordinator::new(experiment.federation.clone())?;
        let plan = ObservationPlan::new(&experiment);
        let trainers = (0..experiment.threads).map(|_| Trainer::new(experiment.federation.model.clone())).collect();
        Ok(Self {
            coordinator,
            trainers,
            memories: Memories::new(),
            spare: Vec::new(),
            scaling: Scaling::from(&experiment.data.normalisation),
            test: (0..experiment.data.test.len() as u32).collect(),
            forgetting: Forgetting::default(),
            lookout: Lookout::new(experiment.guessing()),
            book: ClientBook::new(&experiment, &plan),
            plan,
            diversity: Diversity::default(),
            known: None,
            classes: None,
            local_features: None,
            faults: (!experiment.faults.is_none()).then(|| FaultPlan::new(&experiment)),
            late: Vec::new(),
            counted: Vec::new(),
            experiment,
        })
    }

    /// A federation after some rounds, as if it had run them: `records` are theirs.
    pub fn resume(experiment: Experiment, progress: Progress, records: &[RoundRecord]) -> Result<Self, FlError> {
        let coordinator = Coordinator::resume(experiment.federation.clone(), progress.server)?;
        let mut resumed = Self { coordinator, memories: progress.memories, ..Self::new(experiment)? };
        let features = resumed.plan.features.len() * resumed.experiment.federation.model.features();
        resumed.local_features = progress.features.filter(|found| found.len() == features);
        for record in records {
            if let Some(accuracies) = &record.class_accuracy {
                resumed.forgetting.push(accuracies);
                resumed.classes = Some(accuracies.clone());
            }
            resumed.lookout.recall(record);
            resumed.book.local.recall(record);
        }
        if resumed.faults.is_some() {
            resumed.late = records.last().map_or(Vec::new(), |last| attempts::late(&last.incidents, last.repeats));
        }
        Ok(resumed)
    }

    /// Runs one round. After an error no further round can run.
    pub fn step(&mut self) -> Result<RoundRecord, FlError> {
        let round = self.coordinator.rounds() + 1;
        self.step_from(Vec::new(), &())?.ok_or(FlError::Order { what: "a whole round", round, state: "stopped" })
    }

    /// Runs one round, or the rest of it: `kept` are the clients that have already finished it. Returns nothing, with
    /// everything as before the round, if the keeper stops it.
    pub fn step_from(&mut self, kept: Vec<Finished>, keeper: &dyn Keeper) -> Result<Option<RoundRecord>, FlError> {
        let mut round = self.open()?;
        let (number, weights) = (self.coordinator.rounds(), self.coordinator.global().len());
        let fits = |done: &Finished| done.upload.round == number && done.upload.params.len() == weights;
        let kept = kept.into_iter().filter(fits);
        let mut kept: BTreeMap<usize, Finished> = kept.map(|done| (done.upload.client, done)).collect();
        loop {
            let Some(found) = self.gather(&mut round, &mut kept, &Absent::new(), keeper)? else {
                self.abandon(round);
                return Ok(None);
            };
            if found.tally.accepted >= self.experiment.needed {
                return self.conclude(round, found).map(Some);
            }
            self.repeat(&mut round, found.tally)?;
        }
    }

    /// Closes a round that has enough uploads, and measures what it came to.
    fn conclude(&mut self, round: OpenRound, found: Gathered) -> Result<RoundRecord, FlError> {
        let number = self.coordinator.rounds();
        let OpenRound { start, looked, opened, baseline, clients, broadcast, attempt, incidents, .. } = round;
        let Gathered { tally, signs, drifts, local, features } = found;
        let trained = start.elapsed();
        let before = baseline.and_then(|baseline| baseline.layers);
        self.local_features = features.or(self.local_features.take());

        let clipped = self.coordinator.clipped().map(|clipped| clipped as u64);
        let refused = self.coordinator.close()?;
        self.counted = tally.memories.iter().map(|(client, _)| *client).filter(|id| !refused.contains(id)).collect();
        self.counted.sort_unstable();
        keep(&mut self.memories, &refused, tally.memories);
        let closed = start.elapsed();

        let confuses = self.plan.confuses(number);
        let due = (number + 1).is_multiple_of(self.experiment.evaluate_every) || self.done() || confuses;
        let evaluation = due.then(|| self.evaluate());
        if evaluation.as_ref().is_some_and(|found| found.loss().is_none()) && !self.test.is_empty() {
            return Err(FlError::GlobalDiverged { round: number + 1 });
        }
        let validation = if due { self.validate() } else { None };
        let known = self.known.as_ref().filter(|_| due);
        let scores = known.map(|known| ClientBook::global(&self.experiment, known));
        let client_accuracy = known.and_then(|known| self.book.accuracies(&self.experiment, known, self.done()));
        let accuracies = evaluation.as_ref().map(Evaluation::class_accuracy);
        let forgetting = accuracies.as_ref().and_then(|accuracies| self.forgetting.push(accuracies));
        let class_cosine = accuracies.as_ref().and_then(|now| cosine(self.classes.as_deref()?, now));
        self.classes = accuracies.or(self.classes.take());
        let global = evaluation.as_ref().and_then(|found| self.signs(found));
        let confusion = if confuses { self.confusion() } else { None };
        let after = before.as_ref().map(|_| self.layers());
        let alignment = before.zip(after).map_or(Vec::new(), |(before, after)| alignment(&before, &after));
        let ended = start.elapsed();
        let training = (trained - opened).saturating_sub(tally.folding).as_secs_f64();
        let all_busy = (tally.busy + tally.looking).as_secs_f64();
        let observed = if all_busy > 0.0 { training * tally.looking.as_secs_f64() / all_busy } else { 0.0 };
        let seconds = Seconds {
            train: training - observed,
            aggregate: (closed - looked).as_secs_f64() - training,
            evaluate: (ended - closed).as_secs_f64(),
            observe: observed + looked.as_secs_f64(),
        };
        let weights_both_ways = 2 * 4 * broadcast.global.len() * clients.len();
        let finite = |value: &f64| value.is_finite();
        let terms = tally.terms.iter().filter(|(_, mean)| finite(mean));
        let mut record = RoundRecord {
            round: number as u64 + 1,
            accuracy: evaluation.as_ref().map(Evaluation::accuracy),
            loss: evaluation.as_ref().and_then(Evaluation::loss),
            class_accuracy: evaluation.as_ref().map(Evaluation::class_accuracy),
            scores,
            client_accuracy,
            validation,
            kept: None,
            early_stop: None,
            class_forgetting: forgetting.map(|_| self.forgetting.by_class().to_vec()),
            forgetting,
            class_cosine,
            confusion,
            alignment: alignment.into_iter().collect(),
            local,
            drift: Spread::of(&drifts),
            gradient_diversity: tally.diversity,
            train_loss: tally.terms.total().filter(finite),
            train_terms: terms.map(|(name, mean)| (name.to_string(), mean)).collect(),
            trained_samples: tally.terms.samples(),
            teacher_samples: tally.teacher_passes,
            bytes_down: round.bytes_down,
            bytes_up: round.bytes_up,
            traffic: Some((round.bytes_down + round.bytes_up) as f64 / weights_both_ways as f64),
            seconds,
            clients: clients.iter().map(|&client| client as u64).collect(),
            accepted: (tally.accepted < clients.len()).then_some(tally.accepted as u64),
            incidents,
            repeats: attempt as u64,
            weights: Some(self.hashes()),
            notices: Vec::new(),
            protection: clipped.map(|_| ProtectionRecord { clipped, privacy: None }),
        };
        record.notices = self.lookout.notices(&record, &signs, global.as_ref());
        self.lookout.recall(&record);
        self.book.local.recall(&record);
        Ok(record)
    }

    /// Evaluates the current global model on the test split.
    pub fn evaluate(&mut self) -> Evaluation {
        let found = self.portrait(&self.test.clone());
        let Portrait { predictions, margins, evaluation, .. } = found;
        self.known = Some(Known { rounds: self.coordinator.rounds(), predictions, margins });
        evaluation
    }

    /// That the global model has never been better than guessing so far, if it never was.
    pub fn unlearnt(&self) -> Option<Unlearnt> {
        self.lookout.unlearnt()
    }

    /// The global model on the validation part, if there is one.
    fn validate(&mut self) -> Option<ValidationRecord> {
        let (federation, global) = (&self.experiment.federation, self.coordinator.global());
        let samples = federation.server_data.validation.as_ref()?.samples();
        let found = evaluate::evaluate(&mut self.trainers, global, samples, federation.model.classes()).evaluation;
        Some(ValidationRecord { accuracy: found.accuracy(), loss: found.loss() })
    }

    /// How good the models are for each client, with the global model as it was last tested.
    pub fn clients(&mut self) -> Option<ClientsReport> {
        let tested = self.coordinator.rounds().is_multiple_of(self.experiment.evaluate_every) || self.done();
        if self.known.is_none() && self.coordinator.rounds() > 0 && tested {
            // It was tested before the run was resumed.
            self.evaluate();
        }
        Some(self.book.report(&self.experiment, &self.plan, self.known.as_ref()?))
    }

    /// How local models are measured, for the record.
    pub fn local_evaluation(&self) -> LocalEvaluation {
        self.plan.record(&self.experiment.data.test.labels, self.experiment.federation.model.classes())
    }

    /// Features of some test samples under the global model and the closely examined client, if its round has been run.
    pub fn features(&mut self) -> Option<Features> {
        let (local, (round, client)) = (self.local_features.clone()?, self.plan.focus?);
        let (test, indices) = (&self.experiment.data.test, &self.plan.features);
        let samples = Samples { split: test, indices, scaling: &self.scaling };
        let (labels, global) = (samples.labels().collect(), self.coordinator.global());
        let global = observe::features(&mut self.trainers[0], global, samples);
        Some(Features {
            labels,
            width: self.experiment.federation.model.features(),
            global,
            local,
            client,
            round: round + 1,
        })
    }

    /// The global model's predictions before this round, if it evaluates local models.
    fn baseline(&mut self) -> Option<Baseline> {
        let round = self.coordinator.rounds();
        if !self.plan.is_due(round) {
            return None;
        }
        let focus = self.plan.focus.filter(|&(at, _)| at == round).map(|(_, client)| client);
        let known = self.known.as_ref().filter(|known| known.rounds == round).map(|known| known.predictions.clone());
        let whole = match known {
            None if focus.is_some() => Some(self.portrait(&self.test.clone()).predictions),
            known => known,
        };
        let predictions = match &whole {
            Some(whole) => self.plan.indices.iter().map(|&i| whole[i as usize]).collect(),
            None => self.portrait(&self.plan.indices.clone()).predictions,
        };
        let layers = self.plan.aligns(round).then(|| self.layers());
        Some(Baseline { predictions, layers, focus, whole })
    }

    /// The preferences of the global model's units.
    fn layers(&mut self) -> Portrait {
        let samples =
            Samples { split: &self.experiment.data.test, indices: &self.plan.indices, scaling: &self.scaling };
        self.trainers[0].portrait(self.coordinator.global(), samples, true)
    }

    /// The global model's predictions for test samples.
    fn portrait(&mut self, indices: &[u32]) -> Portrait {
        let samples = Samples { split: &self.experiment.data.test, indices, scaling: &self.scaling };
        let classes = self.experiment.federation.model.classes();
        evaluate::evaluate(&mut self.trainers, self.coordinator.global(), samples, classes)
    }

    /// What the last evaluation says about the health of the global model.
    fn signs(&self, evaluation: &Evaluation) -> Option<GlobalSigns> {
        let Known { predictions, .. } = self.known.as_ref()?;
        let classes = self.experiment.federation.model.classes();
        Some(GlobalSigns {
            accuracy: evaluation.accuracy(),
            predicted: label_counts(predictions.iter().copied(), classes),
            actual: label_counts(self.experiment.data.test.labels.iter().copied(), classes),
        })
    }

    /// What identifies the global weights.
    fn hashes(&self) -> WeightHashes {
        let global = self.coordinator.global();
        let tensors = self.experiment.federation.model.layout().short_hashes(global);
        WeightHashes { sha256: global.hash(), tensors }
    }

    /// The confusion matrix of the global model as it was last tested.
    pub fn confusion(&self) -> Option<Vec<Vec<u64>>> {
        let Known { predictions, .. } = self.known.as_ref()?;
        let labels = self.experiment.data.test.labels.iter().copied();
        Some(confusion(labels, predictions, self.experiment.federation.model.classes()))
    }

    pub fn global(&self) -> &Params {
        self.coordinator.global()
    }

    /// The clients that attack, in ascending order.
    pub fn attackers(&self) -> Vec<usize> {
        self.faults.as_ref().map_or(Vec::new(), FaultPlan::attackers)
    }

    /// Sets how many uploads the next rounds need.
    pub fn need(&mut self, uploads: usize) {
        self.experiment.needed = uploads;
    }

    /// Whether all rounds have been run.
    pub fn done(&self) -> bool {
        self.coordinator.rounds() >= self.experiment.rounds
    }

    /// The number of rounds run.
    pub fn rounds(&self) -> usize {
        self.coordinator.rounds()
    }

    pub fn experiment(&self) -> &Experiment {
        &self.experiment
    }

    /// The clients whose uploads are in the weights of the last round that was run, in ascending order.
    pub fn counted(&self) -> &[usize] {
        &self.counted
    }

    /// What clients remember from their last uploads that the server included.
    pub fn memories(&self) -> &Memories {
        &self.memories
    }

    /// What the server carries over to the next round.
    pub fn server(&self) -> &ServerState {
        self.coordinator.kept()
    }

    /// Features of the closely examined client, if its round has been run.
    pub fn local_features(&self) -> Option<&[f32]> {
        self.local_features.as_deref()
    }

    pub fn state(&self) -> &Payload {
        self.coordinator.state()
    }
}

/// The cosine of class accuracies, over the classes present in both.
fn cosine(before: &[Option<f64>], now: &[Option<f64>]) -> Option<f64> {
    let pairs: Vec<(f64, f64)> = before.iter().zip(now).filter_map(|(a, b)| a.zip(*b)).collect();
    let (before, now): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
    class_accuracy_cosine(&before, &now)
}
