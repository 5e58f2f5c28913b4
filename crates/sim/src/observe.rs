//! Which measurements of local models to take in a round, within a time budget.

use fedelity_data::label_counts;
use fedelity_fl::observe::{self, LocalChange, Portrait, alignment, change, confusion, drift};
use fedelity_fl::{Finished, Samples, Trainer, sample_clients};
use fedelity_keys::Choice;
use fedelity_record::{ClientOwn, ClientRecord, FocusRecord, LocalEvaluation, LocalRecord, Scores, Spread};

use crate::Experiment;
use crate::score::scores;
use crate::sites::Sites;

/// How much is measured on local models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Choice)]
pub enum Metrics {
    /// Local models on all test samples in every round.
    All,
    /// Local models on as many test samples and in as many rounds as fit into a small share of the time.
    #[default]
    Standard,
    /// Local models are not evaluated; only what costs nothing is measured.
    Fast,
}

/// What is measured beyond the accuracy of the global model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// How much is measured on local models.
    pub metrics: Metrics,
    /// Rounds, counted from 1, with a confusion matrix of the global model. The last round always has one, unless the
    /// metrics are [`Metrics::Fast`].
    pub confusion: Vec<usize>,
    /// The client to examine closely; by default, the most skewed client of the last round.
    pub client: Option<usize>,
    /// The class to be found, if there are two.
    pub positive: Option<usize>,
}

/// The share of training time that the evaluation of local models may take. Reading images, comparing and the
/// evaluation before training are not included.
const SHARE: f64 = 0.09;
/// A training step costs about as much as this many forward passes.
pub(crate) const STEP: f64 = 3.0;
/// Fewer samples than this are not informative; fewer rounds are measured instead.
const LEAST: usize = 200;
/// Fewer samples of a class than this are not informative.
const LEAST_OF_A_CLASS: usize = 5;
/// With the standard metrics, layers are compared in every n-th evaluation of local models.
const ALIGN_EVERY: usize = 5;
/// The cost of a pass that compares layers, relative to a plain one.
const ALIGNED: f64 = 1.5;
/// Number of rounds used to estimate all of them.
const SEEN_ROUNDS: usize = 1_000;
/// Maximum number of per-class counts that a record holds for each client.
const CLASS_COUNTS: usize = 4_000;
/// Maximum number of test samples whose features are kept.
const FEATURE_SAMPLES: usize = 600;
/// Maximum number of values in a model's features.
const FEATURE_NUMBERS: usize = 150_000;

/// What to measure, and when.
#[derive(Clone, Debug)]
pub(crate) struct ObservationPlan {
    metrics: Metrics,
    /// The test samples for local models.
    pub(crate) indices: Vec<u32>,
    every: usize,
    rounds: usize,
    confusion: Vec<usize>,
    /// The round, counted from 0, and the client to examine closely.
    pub(crate) focus: Option<(usize, usize)>,
    /// The test samples whose features are kept.
    pub(crate) features: Vec<u32>,
}

impl ObservationPlan {
    pub(crate) fn new(experiment: &Experiment) -> Self {
        let (labels, observation) = (&experiment.data.test.labels, &experiment.observation);
        let classes = experiment.data.classes.len();
        let clients = &experiment.partition.clients;
        let mean = clients.iter().map(Vec::len).sum::<usize>() as f64 / clients.len().max(1) as f64;
        let affordable = (SHARE * STEP * mean * experiment.federation.training.epochs as f64) as usize;
        let least = LEAST.max(LEAST_OF_A_CLASS * classes).min(labels.len()).max(1);
        let (samples, every) = match observation.metrics {
            Metrics::All => (labels.len(), 1),
            Metrics::Standard if affordable >= least => (affordable, 1),
            // How long sites train is not known.
            Metrics::Standard if experiment.partition.is_of_sites() => (least, 1),
            Metrics::Standard => (least, least.div_ceil(affordable.max(1))),
            Metrics::Fast => (0, 1),
        };
        let some = |most: usize| match samples.min(most) {
            0 => Vec::new(),
            _ => observe::subset(labels, classes, most, experiment.federation.seed),
        };
        let kept =
            FEATURE_SAMPLES.min(FEATURE_NUMBERS / experiment.federation.model.features().max(1)).min(labels.len());
        Self {
            metrics: observation.metrics,
            indices: some(samples),
            every,
            rounds: experiment.rounds,
            confusion: observation.confusion.clone(),
            focus: if samples > 0 { focus(experiment) } else { None },
            features: some(kept),
        }
    }

    /// Whether local models are evaluated in a round, counted from 0. Always in the first and last rounds.
    pub(crate) fn is_due(&self, round: usize) -> bool {
        let last = round + 1 == self.rounds || self.focus.is_some_and(|(at, _)| at == round);
        !self.indices.is_empty() && (last || round.is_multiple_of(self.every))
    }

    /// Whether layers are compared in a round that evaluates local models.
    pub(crate) fn aligns(&self, round: usize) -> bool {
        let last = round + 1 == self.rounds;
        self.metrics == Metrics::All || last || (round / self.every).is_multiple_of(ALIGN_EVERY)
    }

    /// Whether a round, counted from 0, has a confusion matrix of the global model.
    pub(crate) fn confuses(&self, round: usize) -> bool {
        self.confusion.contains(&(round + 1)) || (round + 1 == self.rounds && self.metrics != Metrics::Fast)
    }

    /// The plan as recorded.
    pub(crate) fn record(&self, labels: &[u16], classes: usize) -> LocalEvaluation {
        let class_samples = label_counts(self.indices.iter().map(|&i| labels[i as usize]), classes);
        LocalEvaluation {
            metrics: self.metrics.name().to_string(),
            samples: self.indices.len() as u64,
            of: labels.len() as u64,
            every: self.every as u64,
            alignment_every: (self.every * if self.metrics == Metrics::All { 1 } else { ALIGN_EVERY }) as u64,
            class_samples: class_samples.into_iter().map(|samples| samples as u64).collect(),
        }
    }
}

/// Approximate number of samples that models process over all rounds to measure local models.
pub fn observed_samples(experiment: &Experiment) -> f64 {
    let plan = ObservationPlan::new(experiment);
    let seen = experiment.rounds.min(SEEN_ROUNDS);
    let of = |round: usize| plan.indices.len() as f64 * if plan.aligns(round) { ALIGNED } else { 1.0 };
    let due: f64 = (0..seen).filter(|&round| plan.is_due(round)).map(of).sum();
    due * (experiment.per_round + 1) as f64 * experiment.rounds as f64 / seen.max(1) as f64
}

/// The chosen client's last round, or the last round and its most skewed client: the one whose largest class has the
/// largest share of its samples.
fn focus(experiment: &Experiment) -> Option<(usize, usize)> {
    let clients = &experiment.partition.clients;
    let sampled = |round| sample_clients(experiment.federation.seed, round, clients.len(), experiment.per_round);
    if let Some(client) = experiment.observation.client {
        return (0..experiment.rounds).rev().find(|&round| sampled(round).contains(&client)).map(|r| (r, client));
    }
    let labels = &experiment.data.train.labels;
    let one_sided = |&client: &usize| {
        let own = clients[client].iter().map(|&i| labels[i as usize]);
        let counts = label_counts(own, experiment.data.classes.len());
        let largest = counts.iter().max().copied().unwrap_or(0);
        // In millionths, so that it can be ordered; ties go to more samples, then to the lower number.
        (largest * 1_000_000 / clients[client].len().max(1), clients[client].len(), std::cmp::Reverse(client))
    };
    let last = experiment.rounds - 1;
    sampled(last).into_iter().max_by_key(one_sided).map(|client| (last, client))
}

/// The global model's predictions before a round that evaluates local models.
#[derive(Debug)]
pub(crate) struct Baseline {
    /// Its predictions for the test samples of the plan.
    pub(crate) predictions: Vec<u16>,
    /// Its units' preferences, if layers are compared.
    pub(crate) layers: Option<Portrait>,
    /// The client to examine closely.
    pub(crate) focus: Option<usize>,
    /// Its predictions for all test samples, if they are known. With a focus, they are.
    pub(crate) whole: Option<Vec<u16>>,
}

/// What the local models of a round are compared with.
pub(crate) struct Observed<'a> {
    pub(crate) plan: &'a ObservationPlan,
    /// All test samples.
    pub(crate) test: Samples<'a>,
    pub(crate) baseline: &'a Baseline,
    /// The clients' own test samples, if they have any.
    pub(crate) sites: Option<&'a Sites>,
    /// The class to be found, if there are two.
    pub(crate) positive: Option<usize>,
}

impl<'a> Observed<'a> {
    /// The test samples for local models.
    fn samples(&self) -> Samples<'a> {
        self.test.at(&self.plan.indices)
    }

    /// How good a client's model is, given its predictions for the test samples of all local models: on those of the
    /// client's own site, if there are any, and otherwise on all of them.
    fn scored(
        &self,
        trainer: &mut Trainer,
        client: usize,
        params: &[f32],
        all: &Portrait,
    ) -> (Scores, Option<ClientOwn>) {
        let classes = trainer.model().classes();
        let pairs = |samples: Samples<'_>, found: &Portrait| -> Vec<(u16, u16)> {
            samples.labels().zip(found.predictions.iter().copied()).collect()
        };
        let common = pairs(self.samples(), all);
        let Some(sites) = self.sites else {
            return (scores(&common, &all.margins, classes, self.positive), None);
        };
        let (shared, extra) = (&sites.shared[client], self.test.at(&sites.extra[client]));
        let further = trainer.portrait(params, extra, false);
        let mut own: Vec<(u16, u16)> = shared.iter().map(|&place| common[place as usize]).collect();
        own.extend(pairs(extra, &further));
        let margins = shared.iter().filter_map(|&place| all.margins.get(place as usize));
        let margins: Vec<f32> = margins.chain(&further.margins).copied().collect();
        let found = scores(&own, &margins, classes, self.positive);
        let before = self.baseline.whole.as_ref().map(|whole| {
            let samples =
                shared.iter().map(|&place| self.plan.indices[place as usize]).chain(extra.indices.iter().copied());
            let right = samples.zip(&own).filter(|(sample, (label, _))| whole[*sample as usize] == *label).count();
            right as f64 / own.len().max(1) as f64
        });
        let own = found.accuracy.map(|after| ClientOwn { samples: found.samples, before, after: after.value });
        (found, own)
    }
}

/// The measurements of one client.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) client: usize,
    /// Its training samples.
    pub(crate) samples: usize,
    pub(crate) drift: f64,
    /// Its mean training loss.
    pub(crate) loss: Option<f64>,
    local: Option<SeenLocal>,
}

#[derive(Debug)]
struct SeenLocal {
    record: ClientRecord,
    alignment: Vec<(String, f64)>,
    focus: Option<(FocusRecord, Vec<f32>)>,
}

/// Measures one client's model.
pub(crate) fn look(
    trainer: &mut Trainer,
    global: &[f32],
    done: &Finished,
    own: Samples<'_>,
    observed: Option<&Observed<'_>>,
) -> Seen {
    let upload = &done.upload;
    let model = trainer.model().clone();
    // Of the samples of a site, only the number that it sends is known here.
    let samples = if own.is_empty() { upload.examples } else { own.len() };
    let drift = drift(global, &upload.params, model.layout().trainable());
    let local = observed.map(|observed| {
        let Observed { plan, test, baseline, .. } = observed;
        let portrait = trainer.portrait(&upload.params, observed.samples(), baseline.layers.is_some());
        let counts = own.label_counts(model.classes());
        let whole = baseline.whole.as_ref().filter(|_| baseline.focus == Some(upload.client));
        let focus = whole.map(|before| {
            let after = trainer.portrait(&upload.params, *test, false);
            let matrix = |predictions: &[u16]| confusion(test.labels(), predictions, model.classes());
            let (before, after) = (matrix(before), matrix(&after.predictions));
            let record = FocusRecord { client: upload.client as u64, before, after };
            (record, features(trainer, &upload.params, test.at(&plan.features)))
        });
        let LocalChange { forgot, learnt, inside, outside } =
            change(observed.samples(), &baseline.predictions, &portrait, &counts);
        let (scores, own) = observed.scored(trainer, upload.client, &upload.params, &portrait);
        let record = ClientRecord {
            client: upload.client as u64,
            samples: samples as u64,
            accuracy: portrait.evaluation.accuracy(),
            drift,
            in_before: inside.map(|(before, _)| before),
            in_after: inside.map(|(_, after)| after),
            out_before: outside.map(|(before, _)| before),
            out_after: outside.map(|(_, after)| after),
            scores: Some(scores),
            own,
            forgot,
            learnt,
        };
        let alignment = baseline.layers.as_ref().map_or(Vec::new(), |global| alignment(global, &portrait));
        SeenLocal { record, alignment, focus }
    });
    Seen { client: upload.client, samples, drift, loss: upload.terms.total(), local }
}

/// The features of samples, as rows.
pub(crate) fn features(trainer: &mut Trainer, params: &[f32], samples: Samples<'_>) -> Vec<f32> {
    let mut rows = Vec::new();
    trainer.evaluate(params, samples, &mut |outputs, _| rows.extend_from_slice(outputs.features));
    rows
}

/// Combines the clients of a round, in folding order. The features are those of the closely examined client.
pub(crate) fn together(seen: Vec<Seen>, observed: Option<&Observed<'_>>) -> (Option<LocalRecord>, Option<Vec<f32>>) {
    let Some(observed) = observed else { return (None, None) };
    let (samples, predictions) = (observed.samples(), &observed.baseline.predictions);
    let mut locals: Vec<SeenLocal> = seen.into_iter().filter_map(|seen| seen.local).collect();
    locals.sort_by_key(|local| local.record.client);
    let (focus, features) = locals.iter_mut().find_map(|local| local.focus.take()).unzip();
    let accuracies: Vec<f64> = locals.iter().map(|local| local.record.accuracy).collect();
    let Some(accuracy) = Spread::of(&accuracies) else { return (None, None) };
    let n = locals.len() as f64;
    let classes = locals.first().map_or(0, |local| local.record.forgot.len());
    let totals = samples.label_counts(classes);
    let mean = |of: fn(&ClientRecord) -> Option<f64>| {
        let values: Option<Vec<f64>> = locals.iter().map(|local| of(&local.record)).collect();
        values.map(|values| values.iter().sum::<f64>() / n)
    };
    let by_class = |of: fn(&ClientRecord) -> &[u64]| -> Vec<Option<f64>> {
        let share = |class: usize| {
            let sum: u64 = locals.iter().map(|local| of(&local.record)[class]).sum();
            (totals[class] > 0).then(|| sum as f64 / (n * totals[class] as f64))
        };
        (0..classes).map(share).collect()
    };
    let layers = locals.first().map_or(Vec::new(), |local| local.alignment.clone());
    let of_layer = |layer: usize| locals.iter().map(|local| local.alignment[layer].1).sum::<f64>() / n;
    let right = label_counts(
        samples.labels().zip(predictions).filter(|(label, found)| label == *found).map(|(label, _)| label),
        classes,
    );
    let mut record = LocalRecord {
        samples: samples.len() as u64,
        accuracy_before: right.iter().sum::<usize>() as f64 / samples.len().max(1) as f64,
        accuracy,
        class_correct_before: right.into_iter().map(|n| n as u64).collect(),
        in_before: mean(|client| client.in_before),
        in_after: mean(|client| client.in_after),
        out_before: mean(|client| client.out_before),
        out_after: mean(|client| client.out_after),
        class_forgot: by_class(|client| &client.forgot),
        class_learnt: by_class(|client| &client.learnt),
        alignment: layers.into_iter().enumerate().map(|(at, (name, _))| (name, of_layer(at))).collect(),
        clients: locals.into_iter().map(|local| local.record).collect(),
        focus,
    };
    if record.clients.len() * classes > CLASS_COUNTS {
        for client in &mut record.clients {
            (client.forgot, client.learnt) = (Vec::new(), Vec::new());
            if let Some(scores) = &mut client.scores {
                (scores.class_samples, scores.class_correct) = (Vec::new(), Vec::new());
            }
        }
    }
    (Some(record), features)
}
