//! Notices clients that are out of line and a global model that collapses. `docs/notices.md` explains the rules.

use fedelity_record::{Guessing, LEARNT, Learning, Measure, Notice, RoundRecord, Unlearnt};

use crate::observe::Seen;

/// A client is out of line if its number is more than this many times the median of the round, ...
const TIMES: f64 = 10.0;
/// ... and more than this many robust standard deviations above it.
const DEVIATIONS: f64 = 10.0;
/// The median absolute deviation of a normal distribution times this is its standard deviation.
const MAD: f64 = 1.4826;
/// Fewer clients than this say nothing about one of them.
const LEAST_CLIENTS: usize = 3;
/// A smaller training loss is never out of line.
const LEAST_LOSS: f64 = 10.0;
/// This share of all predictions is nearly all.
const NEARLY_ALL: f64 = 0.95;
/// A model that is no better than guessing in this many evaluations is worth a notice before the end.
const PATIENCE: u64 = 10;
/// The share of the lead over guessing that a collapsed model has lost.
const LOST: f64 = 0.5;

/// What is known about one client's training.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientSigns {
    client: u64,
    samples: usize,
    drift: f64,
    loss: Option<f64>,
}

impl From<&Seen> for ClientSigns {
    fn from(seen: &Seen) -> Self {
        Self { client: seen.client as u64, samples: seen.samples, drift: seen.drift, loss: seen.loss }
    }
}

/// What an evaluation says about the global model.
#[derive(Clone, Debug)]
pub(crate) struct GlobalSigns {
    pub(crate) accuracy: f64,
    /// Predictions, per class.
    pub(crate) predicted: Vec<usize>,
    /// Test samples, per class.
    pub(crate) actual: Vec<usize>,
}

/// What earlier rounds say. It follows from their records alone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lookout {
    best: Option<f64>,
    /// Whether the model was ever better than guessing; nothing if that cannot be said of the test samples.
    learning: Option<Learning>,
    /// The first round, and its client, that was out of line since the last healthy evaluation.
    suspect: Option<(u64, u64)>,
}

impl Lookout {
    pub(crate) fn new(guessing: Option<Guessing>) -> Self {
        Self { learning: guessing.map(Learning::new), ..Self::default() }
    }

    /// That the model has never been better than guessing so far, if it never was.
    pub(crate) fn unlearnt(&self) -> Option<Unlearnt> {
        self.learning.and_then(|learning| learning.unlearnt())
    }

    /// What to say about a round, by its record, which has no notices yet.
    pub(crate) fn notices(
        &self,
        record: &RoundRecord,
        clients: &[ClientSigns],
        global: Option<&GlobalSigns>,
    ) -> Vec<Notice> {
        let mut notices = outliers(clients);
        let now = notices.iter().find_map(|notice| suspect(record.round, notice));
        if let Some(global) = global {
            let unlearnt = self.learning.and_then(|learning| learning.after(record).unlearnt());
            notices.extend(self.collapse(self.suspect.or(now), global, unlearnt));
        }
        notices
    }

    /// Adds the record of the next round.
    pub(crate) fn recall(&mut self, record: &RoundRecord) {
        self.suspect = self.suspect.or(record.notices.iter().find_map(|notice| suspect(record.round, notice)));
        self.learning = self.learning.map(|learning| learning.after(record));
        if let Some(accuracy) = record.accuracy {
            self.best = Some(self.best.map_or(accuracy, |best| best.max(accuracy)));
            if !record.notices.iter().any(|notice| notice.is_collapse() || notice.unlearnt().is_some()) {
                self.suspect = None;
            }
        }
    }

    fn collapse(&self, suspect: Option<(u64, u64)>, global: &GlobalSigns, unlearnt: Option<Unlearnt>) -> Vec<Notice> {
        let Some((best, guessing)) = self.best.zip(Guessing::of(&global.actual)) else { return Vec::new() };
        let share = |count: usize| count as f64 / guessing.samples as f64;
        let (accuracy, chance, guessing) = (global.accuracy, guessing.accuracy, guessing.limit());
        // After a client was out of line, whatever was learnt can be lost; otherwise accuracy swings at first.
        let has_learnt = if suspect.is_some() { best > guessing } else { best >= chance + LEARNT * (1.0 - chance) };
        let mut notices = Vec::new();
        if let Some(found) = unlearnt.filter(|found| found.evaluations >= PATIENCE) {
            notices.push(Notice::Unlearnt(found));
        } else if !has_learnt {
            return notices;
        } else if accuracy <= guessing && best > guessing {
            notices.push(Notice::Chance { accuracy, best, chance });
        }
        // The first of the most predicted classes.
        let most = global.predicted.iter().enumerate().rev().max_by_key(|(_, count)| **count);
        if let Some((class, &count)) = most {
            let own = share(global.actual.get(class).copied().unwrap_or(0));
            if share(count) >= NEARLY_ALL.max((1.0 + own) / 2.0) {
                notices.push(Notice::OneClass { class: class as u64, share: share(count) });
            }
        }
        if let Some((since, client)) = suspect
            && best - accuracy > LOST * (best - chance)
        {
            notices.push(Notice::Fall { accuracy, best, client, since });
        }
        notices
    }
}

/// The client that a notice suspects.
fn suspect(round: u64, notice: &Notice) -> Option<(u64, u64)> {
    match notice {
        Notice::Outlier { client, .. } => Some((round, *client)),
        Notice::Chance { .. } | Notice::OneClass { .. } | Notice::Unlearnt(_) | Notice::Fall { .. } => None,
    }
}

/// Clients that are far out of line, the worst of each kind first.
fn outliers(clients: &[ClientSigns]) -> Vec<Notice> {
    let drifts: Vec<f64> = clients.iter().map(|client| client.drift).collect();
    // Clients with more samples take more steps and get further.
    let paced: Vec<f64> = clients.iter().map(|client| client.drift / (client.samples.max(1) as f64).sqrt()).collect();
    let losses: Vec<f64> = clients.iter().filter_map(|client| client.loss).collect();
    let mut found = Vec::new();
    if let (Some(plain), Some(usual_pace)) = (Usual::of(&drifts), Usual::of(&paced)) {
        for (client, paced) in clients.iter().zip(&paced) {
            if plain.is_far(client.drift) && usual_pace.is_far(*paced) {
                found.push((client.client, Measure::Drift, client.drift, plain.median));
            }
        }
    }
    if let Some(line) = Usual::of(&losses) {
        for (client, loss) in clients.iter().filter_map(|client| Some((client.client, client.loss?))) {
            if loss >= LEAST_LOSS && line.is_far(loss) {
                found.push((client, Measure::Loss, loss, line.median));
            }
        }
    }
    found.sort_by(|a, b| a.1.cmp(&b.1).then(b.2.total_cmp(&a.2)).then(a.0.cmp(&b.0)));
    let notice = |(client, measure, value, median)| Notice::Outlier { client, measure, value, median };
    found.into_iter().map(notice).collect()
}

/// What is usual among the clients of a round.
struct Usual {
    median: f64,
    /// A robust standard deviation.
    deviation: f64,
}

impl Usual {
    /// `None` for too few numbers, or if one is not finite.
    fn of(values: &[f64]) -> Option<Self> {
        if values.len() < LEAST_CLIENTS || values.iter().any(|value| !value.is_finite()) {
            return None;
        }
        let center = median(values.to_vec());
        let deviation = MAD * median(values.iter().map(|value| (value - center).abs()).collect());
        Some(Self { median: center, deviation })
    }

    fn is_far(&self, value: f64) -> bool {
        value > TIMES * self.median.max(0.0) && value > self.median + DEVIATIONS * self.deviation
    }
}

/// The median of at least one number.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let (lower, upper) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
    lower + (upper - lower) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clients(drifts: &[f64]) -> Vec<ClientSigns> {
        let one = |(client, &drift): (u64, &f64)| ClientSigns { client, samples: 100, drift, loss: Some(0.5) };
        (0..).zip(drifts).map(one).collect()
    }

    fn global(accuracy: f64, predicted: &[usize]) -> GlobalSigns {
        GlobalSigns { accuracy, predicted: predicted.to_vec(), actual: vec![100; predicted.len()] }
    }

    const EVEN: [usize; 4] = [100; 4];

    /// Runs rounds through a lookout: drifts, and an accuracy with predictions.
    fn watch(rounds: &[(&[f64], Option<GlobalSigns>)]) -> Vec<Vec<Notice>> {
        let mut lookout = Lookout::new(Guessing::of(&[100; 4]));
        let mut said = Vec::new();
        for (round, (drifts, global)) in (1..).zip(rounds) {
            let accuracy = global.as_ref().map(|global| global.accuracy);
            let record = RoundRecord { round, accuracy, ..RoundRecord::default() };
            let notices = lookout.notices(&record, &clients(drifts), global.as_ref());
            lookout.recall(&RoundRecord { notices: notices.clone(), ..record });
            said.push(notices);
        }
        said
    }

    #[test]
    fn one_client_far_from_the_others() {
        let drift = |value, median| Notice::Outlier { client: 3, measure: Measure::Drift, value, median };
        assert_eq!(outliers(&clients(&[2.0, 1.9, 2.1, 211.0, 2.0])), [drift(211.0, 2.0)]);
        // Skewed clients spread widely, and that is no reason for alarm.
        assert_eq!(outliers(&clients(&[0.3, 2.0, 1.0, 8.0, 2.5, 0.8])), []);
        assert_eq!(outliers(&clients(&[2.0, 2.0, 2.0, 19.0])), []);
        // Two clients cannot be told apart; numbers that are not finite are reported elsewhere.
        assert_eq!(outliers(&clients(&[2.0, 900.0])), []);
        assert_eq!(outliers(&clients(&[2.0, 2.0, f64::NAN, 900.0])), []);
        assert_eq!(outliers(&[]), []);
        // A client with 400 times the samples gets 15 times as far.
        let mut large = clients(&[1.0, 1.0, 1.0, 15.0]);
        large.iter_mut().take(3).for_each(|client| client.samples = 1);
        large[3].samples = 400;
        assert_eq!(outliers(&large), []);
    }

    #[test]
    fn one_loss_far_from_the_others() {
        let mut all = clients(&[1.0; 5]);
        all[2].loss = Some(9.0);
        assert_eq!(outliers(&all), []);
        all[2].loss = Some(40.0);
        let expected = Notice::Outlier { client: 2, measure: Measure::Loss, value: 40.0, median: 0.5 };
        assert_eq!(outliers(&all), [expected]);
    }

    #[test]
    fn a_model_that_falls_to_chance_or_to_one_class() {
        let calm: &[f64] = &[1.0; 5];
        let said = watch(&[
            (calm, Some(global(0.36, &EVEN))),
            (calm, Some(global(0.25, &[400, 0, 0, 0]))),
            (calm, Some(global(0.70, &EVEN))),
            (calm, Some(global(0.40, &EVEN))),
            (calm, Some(global(0.26, &EVEN))),
            (calm, Some(global(0.30, &[385, 5, 5, 5]))),
            (calm, None),
            (calm, Some(global(0.65, &EVEN))),
        ]);
        // Before it has learnt anything, a model may predict one class; a swing above chance is none of these.
        assert_eq!(said[..4], [vec![], vec![], vec![], vec![]]);
        assert_eq!(said[4], [Notice::Chance { accuracy: 0.26, best: 0.7, chance: 0.25 }]);
        assert_eq!(said[5], [Notice::OneClass { class: 0, share: 0.9625 }]);
        assert_eq!(said[6..], [vec![], vec![]]);
    }

    #[test]
    fn a_model_that_never_learns() {
        let calm: &[f64] = &[1.0; 5];
        let poor = || (calm, Some(global(0.25, &[400, 0, 0, 0])));
        let mut rounds: Vec<_> = (0..9).map(|_| poor()).collect();
        rounds.extend([
            (calm, None),
            poor(),
            (calm, Some(global(0.28, &EVEN))),
            (calm, Some(global(0.33, &EVEN))),
            poor(),
        ]);
        let said = watch(&rounds);
        assert!(said[..10].iter().all(Vec::is_empty), "{said:?}");
        let unlearnt = |accuracy, evaluations| Notice::Unlearnt(Unlearnt { accuracy, chance: 0.25, evaluations });
        assert_eq!(said[10], [unlearnt(0.25, 10), Notice::OneClass { class: 0, share: 1.0 }]);
        assert_eq!(said[11], [unlearnt(0.28, 11)]);
        // Once it has been better than guessing, it has begun to learn.
        assert_eq!(said[12..], [vec![], vec![]]);
        // How a run ends does not depend on how long it was: it follows from the records alone.
        let mut lookout = Lookout::new(Guessing::of(&[100; 4]));
        assert_eq!(lookout.unlearnt(), None);
        for (accuracy, evaluations) in [(0.25, Some(1)), (0.28, Some(2)), (0.33, None), (0.25, None)] {
            lookout.recall(&RoundRecord { accuracy: Some(accuracy), ..RoundRecord::default() });
            assert_eq!(lookout.unlearnt().map(|found| found.evaluations), evaluations);
        }
    }

    #[test]
    fn a_fall_after_a_client_was_out_of_line() {
        let (calm, wild): (&[f64], &[f64]) = (&[1.0; 5], &[1.0, 1.0, 90.0, 1.0, 1.0]);
        let said = watch(&[
            (calm, Some(global(0.75, &EVEN))),
            (calm, Some(global(0.45, &EVEN))),
            (wild, Some(global(0.70, &EVEN))),
            (calm, Some(global(0.45, &EVEN))),
            (wild, None),
            (calm, Some(global(0.45, &EVEN))),
            (calm, Some(global(0.46, &EVEN))),
            (calm, Some(global(0.55, &EVEN))),
            (calm, Some(global(0.45, &EVEN))),
        ]);
        let kinds: Vec<usize> = said.iter().map(Vec::len).collect();
        assert_eq!(kinds, [0, 0, 1, 0, 1, 1, 1, 0, 0], "{said:?}");
        assert_eq!(said[5], [Notice::Fall { accuracy: 0.45, best: 0.75, client: 2, since: 5 }]);
    }

    #[test]
    fn what_little_was_learnt_is_lost_with_a_client_out_of_line() {
        let (calm, wild): (&[f64], &[f64]) = (&[1.0; 5], &[1.0, 1.0, 90.0, 1.0, 1.0]);
        let run = |drifts, best| {
            let said = watch(&[(calm, Some(global(best, &EVEN))), (drifts, Some(global(0.25, &[400, 0, 0, 0])))]);
            said[1].iter().filter(|notice| notice.is_collapse()).count()
        };
        // At first, accuracy swings, and nobody was out of line; or there was nothing to lose.
        assert_eq!((run(calm, 0.31), run(wild, 0.29)), (0, 0));
        assert_eq!(run(wild, 0.31), 3);
    }

    #[test]
    fn a_rare_class_is_no_collapse() {
        // 90 % of the samples are of one class: a model that predicts it for 94 % is no worse than before.
        let at = |accuracy, predicted: &[usize]| GlobalSigns {
            accuracy,
            predicted: predicted.to_vec(),
            actual: vec![900, 100],
        };
        let lookout = Lookout { best: Some(1.0), ..Lookout::default() };
        let record = RoundRecord { round: 2, ..RoundRecord::default() };
        assert_eq!(lookout.notices(&record, &[], Some(&at(0.95, &[940, 60]))), []);
        assert_eq!(lookout.notices(&record, &[], Some(&at(0.90, &[1_000, 0]))).len(), 2);
        let empty = GlobalSigns { accuracy: 0.0, predicted: vec![0; 2], actual: vec![0; 2] };
        assert_eq!(lookout.notices(&record, &[], Some(&empty)), []);
    }
}
