//! How good the models are for each client, kept up to date over rounds.

use std::collections::BTreeMap;

use fedelity_data::label_counts;
use fedelity_fl::metrics::in_out_local;
use fedelity_record::{ClientReport, ClientsReport, LocalScores, RoundRecord, Scores, TestedOn};

use crate::Experiment;
use crate::observe::ObservationPlan;
use crate::score::scores;
use crate::sites::Sites;

/// Maximum number of per-class counts in a report; of more clients and classes, only sums are kept.
const CLASS_COUNTS: usize = 300_000;
/// With more clients than this, their accuracies are recorded after the last round only.
const MOST_CLIENTS: usize = 500;

/// The global model's predictions for all test samples.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// The number of rounds before it.
    pub(crate) rounds: usize,
    pub(crate) predictions: Vec<u16>,
    /// The second of two classes' logit minus the first's; otherwise empty.
    pub(crate) margins: Vec<f32>,
}

impl Known {
    /// How good they are on some of the test samples.
    fn scores_on(&self, indices: &[u32], labels: &[u16], classes: usize, positive: Option<usize>) -> Scores {
        let pairs: Vec<(u16, u16)> =
            indices.iter().map(|&i| (labels[i as usize], self.predictions[i as usize])).collect();
        let margins: Vec<f32> = indices.iter().filter_map(|&i| self.margins.get(i as usize)).copied().collect();
        scores(&pairs, &margins, classes, positive)
    }
}

/// What is known about each client.
#[derive(Clone, Debug)]
pub(crate) struct ClientBook {
    /// Their own test samples, if they have any.
    pub(crate) sites: Option<Sites>,
    pub(crate) local: LocalBook,
}

/// Each client's own model when it was last measured. It follows from the records alone.
#[derive(Clone, Debug)]
pub(crate) struct LocalBook {
    by_client: BTreeMap<usize, LocalScores>,
    /// The training samples that each client had then.
    samples: BTreeMap<usize, u64>,
    /// Whether there are few enough clients and classes to keep per-class counts.
    by_class: bool,
}

impl LocalBook {
    /// Adds the record of the next round.
    pub(crate) fn recall(&mut self, record: &RoundRecord) {
        for client in record.local.iter().flat_map(|local| &local.clients) {
            self.samples.insert(client.client as usize, client.samples);
            let Some(scores) = client.scores.clone() else { continue };
            let mut found = LocalScores { round: record.round, scores, accuracy_in: client.in_after };
            self.trim(&mut found.scores);
            self.by_client.insert(client.client as usize, found);
        }
    }

    fn trim(&self, scores: &mut Scores) {
        if !self.by_class {
            (scores.class_samples, scores.class_correct) = (Vec::new(), Vec::new());
        }
    }
}

impl ClientBook {
    pub(crate) fn new(experiment: &Experiment, plan: &ObservationPlan) -> Self {
        let by_class = experiment.partition.clients.len() * experiment.data.classes.len() <= CLASS_COUNTS;
        let local = LocalBook { by_client: BTreeMap::new(), samples: BTreeMap::new(), by_class };
        Self { sites: Sites::new(experiment, plan), local }
    }

    /// The global model on the whole test set, without what the record has elsewhere.
    pub(crate) fn global(experiment: &Experiment, known: &Known) -> Scores {
        let (labels, classes) = (&experiment.data.test.labels, experiment.data.classes.len());
        let pairs: Vec<(u16, u16)> = labels.iter().copied().zip(known.predictions.iter().copied()).collect();
        let found = scores(&pairs, &known.margins, classes, experiment.observation.positive);
        Scores { class_samples: Vec::new(), class_correct: Vec::new(), ..found }
    }

    /// The accuracy of the global model on each client's own test samples. With very many clients, only the last round
    /// has it.
    pub(crate) fn accuracies(&self, experiment: &Experiment, known: &Known, last: bool) -> Option<Vec<Option<f64>>> {
        let sites = self.sites.as_ref().filter(|sites| last || sites.own.len() <= MOST_CLIENTS)?;
        let labels = &experiment.data.test.labels;
        let share = |own: &Vec<u32>| {
            let right = own.iter().filter(|&&i| labels[i as usize] == known.predictions[i as usize]).count();
            (!own.is_empty()).then(|| right as f64 / own.len() as f64)
        };
        Some(sites.own.iter().map(share).collect())
    }

    /// All clients, with the global model as it was last tested.
    pub(crate) fn report(&self, experiment: &Experiment, plan: &ObservationPlan, known: &Known) -> ClientsReport {
        let (data, partition, positive) = (&experiment.data, &experiment.partition, experiment.observation.positive);
        let (labels, classes) = (&data.test.labels, data.classes.len());
        let on = |indices: &[u32]| known.scores_on(indices, labels, classes, positive);
        // Without local models, the common samples are all test samples.
        let all: Vec<u32> = if plan.indices.is_empty() { (0..labels.len() as u32).collect() } else { Vec::new() };
        let common = on(if plan.indices.is_empty() { &all } else { &plan.indices });
        let accuracy = common.class_accuracy();
        let client = |client: usize| {
            let held = label_counts(partition.clients[client].iter().map(|&i| data.train.labels[i as usize]), classes);
            let tested: Vec<usize> = (0..classes).filter(|&class| accuracy[class].is_some()).collect();
            let counts: Vec<usize> = tested.iter().map(|&class| held[class]).collect();
            let shares: Vec<f64> = tested.iter().filter_map(|&class| accuracy[class]).collect();
            let mut found = ClientReport {
                client: client as u64,
                name: partition.names.get(client).cloned().unwrap_or_default(),
                samples: partition.clients[client].len() as u64,
                held: held.into_iter().map(|n| n as u64).collect(),
                global: self.sites.as_ref().map(|sites| on(&sites.own[client])).filter(|found| found.samples > 0),
                global_in: in_out_local(&counts, &shares).map(|found| found.in_accuracy),
                own: self.local.by_client.get(&client).cloned(),
            };
            found.global.iter_mut().for_each(|scores| self.local.trim(scores));
            if partition.is_of_sites() {
                found.samples = self.local.samples.get(&client).copied().unwrap_or(0);
            }
            if !self.local.by_class || partition.is_of_sites() {
                found.held.clear();
            }
            found
        };
        ClientsReport {
            round: known.rounds as u64,
            tested_on: if self.sites.is_some() { TestedOn::Own } else { TestedOn::Common },
            positive: positive.filter(|_| classes == 2).map(|class| class as u64),
            clients: (0..partition.clients.len()).map(client).collect(),
            common: Some(common),
            ..ClientsReport::default()
        }
    }
}
