//! How a run ended.

use serde::{Deserialize, Serialize};

use crate::guessing::Unlearnt;
use crate::header::Stamp;
use crate::incident::IncidentCounts;
use crate::notice::{Notice, RoundNotice};
use crate::protection::PrivacySpent;
use crate::round::{ChosenBy, EarlyStop, RoundRecord, Seconds};

/// How a run ended: `summary.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Summary {
    #[serde(flatten)]
    pub stamp: Stamp,
    pub status: Status,
    /// Finished rounds.
    pub rounds: u64,
    /// Accuracy at the last evaluation.
    pub final_accuracy: Option<f64>,
    pub final_loss: Option<f64>,
    /// The best accuracy and the first round that reached it.
    pub best: Option<Best>,
    /// The model that was kept beside the last one, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_model: Option<BestModel>,
    /// Forgetting after the last evaluation.
    pub forgetting: Option<f64>,
    /// Bytes from the server to clients, over all rounds.
    pub bytes_down: u64,
    /// Bytes from clients to the server, over all rounds.
    pub bytes_up: u64,
    /// Bytes in both directions, relative to FedAvg's: the mean over rounds. Older records lack it.
    #[serde(default)]
    pub traffic: Option<f64>,
    /// Time spent, over all rounds.
    pub seconds: Seconds,
    /// How many uploads did not count, and why; absent if all did.
    #[serde(default, skip_serializing_if = "IncidentCounts::is_none")]
    pub incidents: IncidentCounts,
    /// The round since which the global model is collapsed, if it is at the end.
    #[serde(default)]
    pub collapse: Option<u64>,
    /// The global model has never been better than guessing, if the run ended so or was noticed to be so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unlearnt: Option<Unlearnt>,
    /// How many notices the rounds have.
    #[serde(default)]
    pub noticed: u64,
    /// The first of them.
    #[serde(default)]
    pub notices: Vec<RoundNotice>,
    /// What the run reveals about one client at most, if there is noise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub privacy: Option<PrivacySpent>,
}

/// Maximum notices in a summary. The rounds have all of them.
const NOTICES: usize = 20;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Best {
    pub accuracy: f64,
    pub round: u64,
}

/// The model of the best round: `best.safetensors`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct BestModel {
    pub round: u64,
    pub chosen_by: ChosenBy,
    /// Its accuracy on the validation part, if there is one.
    pub validation: Option<f64>,
    /// Its accuracy on the test samples.
    pub accuracy: Option<f64>,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "kebab-case")]
pub enum Status {
    /// All rounds were run.
    #[default]
    Finished,
    /// The accuracy on the validation part did not improve any more: it is finished, too.
    StoppedEarly {
        /// The round of the last improvement.
        best: u64,
        /// Rounds without improvement that were allowed.
        patience: u64,
    },
    /// Training diverged.
    Diverged {
        /// In this round, counted from 1.
        round: u64,
        /// On this client; `null` means on the server.
        client: Option<u64>,
    },
    /// The user stopped it.
    Interrupted,
}

impl Status {
    /// Whether the run did all that it was to do.
    pub fn is_complete(self) -> bool {
        match self {
            Self::Finished | Self::StoppedEarly { .. } => true,
            Self::Diverged { .. } | Self::Interrupted => false,
        }
    }
}

impl Summary {
    /// That a run which is over never learnt anything, unless one of these notices has said so.
    pub fn learnt_nothing(&self, noticed: &[Notice]) -> Option<String> {
        let is_said = noticed.iter().any(|notice| notice.unlearnt().is_some());
        self.unlearnt.filter(|_| self.status.is_complete() && !is_said).map(|found| found.describe())
    }

    /// Adds a finished round. Call it for each round in order; the status is set at the end, unless the round ended it.
    pub fn add(&mut self, round: &RoundRecord) {
        self.rounds = round.round;
        self.bytes_down = self.bytes_down.saturating_add(round.bytes_down);
        self.bytes_up = self.bytes_up.saturating_add(round.bytes_up);
        self.traffic = round.traffic.map(|new| {
            let mean = self.traffic.unwrap_or(new);
            mean + (new - mean) / round.round as f64
        });
        self.seconds.train += round.seconds.train;
        self.seconds.aggregate += round.seconds.aggregate;
        self.seconds.evaluate += round.seconds.evaluate;
        self.seconds.observe += round.seconds.observe;
        self.incidents.add(&round.incidents, round.repeats);
        for notice in &round.notices {
            self.noticed += 1;
            if self.notices.len() < NOTICES {
                self.notices.push(RoundNotice { round: round.round, notice: notice.clone() });
            }
        }
        self.privacy = round.protection.and_then(|protection| protection.privacy);
        if let Some(chosen_by) = round.kept {
            let validation = round.validation.map(|found| found.accuracy);
            self.best_model = Some(BestModel { round: round.round, chosen_by, validation, accuracy: round.accuracy });
        }
        if let Some(EarlyStop { best, patience }) = round.early_stop {
            self.status = Status::StoppedEarly { best, patience };
        }
        if let Some(accuracy) = round.accuracy {
            self.unlearnt = round.notices.iter().find_map(Notice::unlearnt);
            // What was never any good cannot collapse.
            let collapsed = self.unlearnt.is_none() && round.notices.iter().any(Notice::is_collapse);
            self.collapse = collapsed.then(|| self.collapse.unwrap_or(round.round));
            self.final_accuracy = Some(accuracy);
            self.final_loss = round.loss;
            self.forgetting = round.forgetting;
            if self.best.is_none_or(|best| accuracy > best.accuracy) {
                self.best = Some(Best { accuracy, round: round.round });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collapse_ends_with_the_recovery() {
        let mut summary = Summary::default();
        let mut add = |round, accuracy, notices| {
            summary.add(&RoundRecord { round, accuracy, notices, ..RoundRecord::default() });
            summary.collapse
        };
        let fell = || vec![Notice::Chance { accuracy: 0.1, best: 0.7, chance: 0.1 }];
        assert_eq!(add(1, Some(0.7), Vec::new()), None);
        assert_eq!(add(2, Some(0.1), fell()), Some(2));
        assert_eq!(add(3, None, Vec::new()), Some(2));
        assert_eq!(add(4, Some(0.1), fell()), Some(2));
        assert_eq!(add(5, Some(0.6), Vec::new()), None);
        for round in 6..40 {
            assert_eq!(add(round, Some(0.1), fell()), Some(6));
        }
        assert_eq!((summary.noticed, summary.notices.len(), summary.notices[0].round), (36, NOTICES, 2));
    }

    #[test]
    fn a_model_that_learnt_nothing_did_not_collapse() {
        let mut summary = Summary::default();
        let unlearnt = Unlearnt { accuracy: 0.1, chance: 0.1, evaluations: 10 };
        let notices = vec![Notice::Unlearnt(unlearnt), Notice::OneClass { class: 0, share: 1.0 }];
        summary.add(&RoundRecord { round: 10, accuracy: Some(0.1), notices, ..RoundRecord::default() });
        assert_eq!((summary.collapse, summary.unlearnt), (None, Some(unlearnt)));
        let text = serde_json::to_string(&summary).unwrap();
        assert_eq!(serde_json::from_str::<Summary>(&text).unwrap(), summary);
        summary.add(&RoundRecord { round: 11, accuracy: Some(0.4), ..RoundRecord::default() });
        assert_eq!((summary.collapse, summary.unlearnt), (None, None));
    }

    #[test]
    fn sums_and_the_first_best() {
        let mut summary = Summary::default();
        for (round, accuracy) in [(1, Some(0.5)), (2, Some(0.7)), (3, Some(0.7)), (4, None), (5, Some(0.6))] {
            let seconds = Seconds { train: 1.0, aggregate: 0.5, evaluate: 0.125, observe: 0.125 };
            summary.add(&RoundRecord {
                round,
                accuracy,
                bytes_down: 3,
                bytes_up: 2,
                traffic: Some(round as f64),
                seconds,
                ..RoundRecord::default()
            });
        }
        assert_eq!(summary.best, Some(Best { accuracy: 0.7, round: 2 }));
        assert_eq!((summary.final_accuracy, summary.rounds), (Some(0.6), 5));
        assert_eq!((summary.bytes_down, summary.bytes_up, summary.seconds.total()), (15, 10, 8.75));
        assert_eq!(summary.traffic, Some(3.0));
        let text = serde_json::to_string(&Status::Diverged { round: 3, client: Some(7) }).unwrap();
        assert_eq!(text, r#"{"kind":"diverged","round":3,"client":7}"#);
    }
}
