//! The best round: whose model is kept, and when a run ends because no better one follows.

use fedelity_record::{ChosenBy, EarlyStop, RoundRecord};
use fedelity_sim::{Metrics, Simulation};

use crate::config::{BestRound, Config};

/// Judges rounds by their records. What it knows follows from the records alone.
pub(crate) struct RoundJudge {
    chosen_by: Option<ChosenBy>,
    patience: Option<u64>,
    min_delta: f64,
    /// Whether a run that ends early has a confusion matrix.
    confuses: bool,
    /// The best accuracy so far.
    best: Option<f64>,
    /// The round of the last improvement, and its accuracy.
    improved: Option<(u64, f64)>,
}

impl RoundJudge {
    pub(crate) fn new(config: &Config) -> Self {
        let chosen_by = match config.evaluation.best {
            Some(BestRound::Test) => Some(ChosenBy::Test),
            Some(BestRound::Validation) | None => (config.server.validation > 0.0).then_some(ChosenBy::Validation),
        };
        Self {
            chosen_by,
            patience: config.stop.patience.map(|rounds| rounds as u64),
            min_delta: config.stop.min_delta.unwrap_or(0.0),
            confuses: config.evaluation.metrics != Metrics::Fast,
            best: None,
            improved: None,
        }
    }

    /// Judges a round, and says in its record whether its model is to be kept and whether the run is to end.
    pub(crate) fn judge(&mut self, record: &mut RoundRecord, simulation: &Simulation) {
        self.mark(record, simulation.done());
        if record.early_stop.is_some() && record.confusion.is_none() && self.confuses {
            record.confusion = simulation.confusion();
        }
    }

    fn mark(&mut self, record: &mut RoundRecord, last: bool) {
        let validation = record.validation.map(|found| found.accuracy);
        let found = match self.chosen_by {
            Some(ChosenBy::Validation) => validation,
            Some(ChosenBy::Test) => record.accuracy,
            None => None,
        };
        let better = found.is_some_and(|accuracy| self.best.is_none_or(|best| accuracy > best));
        record.kept = self.chosen_by.filter(|_| better);
        self.recall(record);
        record.early_stop = self.stop_after(record).filter(|_| !last);
    }

    /// Why a run ends after a round, which is the last one it was told about, if others were to follow.
    pub(crate) fn stop_after(&self, record: &RoundRecord) -> Option<EarlyStop> {
        let (patience, (best, _)) = (self.patience?, self.improved?);
        record.validation.filter(|_| record.round.saturating_sub(best) >= patience)?;
        Some(EarlyStop { best, patience })
    }

    /// Whether a run ends after these rounds although more are planned now. The last one says so from then on.
    pub(crate) fn end(config: &Config, rounds: &mut [RoundRecord]) -> bool {
        let mut judge = Self::new(config);
        rounds.iter().for_each(|record| judge.recall(record));
        let Some(last) = rounds.last_mut().filter(|last| last.early_stop.is_none()) else { return false };
        last.early_stop = judge.stop_after(last);
        last.early_stop.is_some()
    }

    /// Adds the record of the next round.
    pub(crate) fn recall(&mut self, record: &RoundRecord) {
        let validation = record.validation.map(|found| found.accuracy);
        match record.kept {
            Some(ChosenBy::Validation) => self.best = validation,
            Some(ChosenBy::Test) => self.best = record.accuracy,
            None => {}
        }
        if let Some(accuracy) = validation
            && self.improved.is_none_or(|(_, best)| accuracy > best + self.min_delta)
        {
            self.improved = Some((record.round, accuracy));
        }
    }
}

#[cfg(test)]
mod tests {
    use fedelity_record::ValidationRecord;

    use super::*;

    fn judge(chosen_by: Option<ChosenBy>, patience: Option<u64>, min_delta: f64) -> RoundJudge {
        RoundJudge { chosen_by, patience, min_delta, confuses: false, best: None, improved: None }
    }

    /// The rounds whose models are kept, and the one after which the run ends.
    fn judged(mut judge: RoundJudge, rounds: &[Option<f64>]) -> (Vec<u64>, Option<(u64, EarlyStop)>) {
        let (mut kept, mut stop) = (Vec::new(), None);
        for (round, found) in (1..).zip(rounds) {
            let validation = found.map(|accuracy| ValidationRecord { accuracy, loss: None });
            // Test accuracy falls all the time.
            let accuracy = Some(1.0 / round as f64);
            let mut record = RoundRecord { round, validation, accuracy, ..RoundRecord::default() };
            judge.mark(&mut record, round as usize == rounds.len());
            kept.extend(record.kept.map(|_| round));
            if let Some(early) = record.early_stop {
                stop = Some((round, early));
                break;
            }
        }
        (kept, stop)
    }

    #[test]
    fn the_first_best_round_counts_and_patience_is_in_rounds() {
        let of = [0.5, 0.6, 0.6, 0.0, 0.59, 0.7, 0.61, 0.6, 0.5, 0.4];
        let rounds = of.map(|accuracy| (accuracy > 0.0).then_some(accuracy));
        let by_validation = |patience, delta| judged(judge(Some(ChosenBy::Validation), patience, delta), &rounds);
        assert_eq!(by_validation(None, 0.0), (vec![1, 2, 6], None));
        assert_eq!(by_validation(Some(4), 0.0), (vec![1, 2, 6], None), "the last round ends the run anyway");
        assert_eq!(by_validation(Some(3), 0.0), (vec![1, 2], Some((5, EarlyStop { best: 2, patience: 3 }))));
        // With a larger step, 0.6 is no improvement over 0.5, but it is kept as the better model.
        assert_eq!(by_validation(Some(2), 0.15), (vec![1, 2], Some((3, EarlyStop { best: 1, patience: 2 }))));
        assert_eq!(by_validation(Some(5), 0.15), (vec![1, 2, 6], None));
    }

    #[test]
    fn test_accuracy_chooses_only_on_request() {
        let rounds = [Some(0.5), Some(0.6)];
        assert_eq!(judged(judge(Some(ChosenBy::Test), None, 0.0), &rounds).0, [1]);
        assert_eq!(judged(judge(None, None, 0.0), &rounds).0, Vec::<u64>::new());
    }
}
