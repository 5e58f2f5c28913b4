//! What a round did.

use fedelity_fl::{Evaluation, TermMeans};
use fedelity_record::{LocalRecord, RoundRecord, Seconds, Spread};

/// What a round did.
#[derive(Clone, Debug, PartialEq)]
pub struct Round {
    /// The round, counted from 1.
    pub round: usize,
    /// Its clients, in ascending order.
    pub clients: Vec<usize>,
    /// The terms of the loss of local training, averaged over all samples of all clients.
    pub terms: TermMeans,
    /// Optimiser steps of all clients.
    pub steps: u64,
    /// Bytes from the server to all clients of the round.
    pub bytes_down: u64,
    /// Bytes from all clients of the round to the server.
    pub bytes_up: u64,
    /// Bytes both ways, relative to FedAvg's, which sends the weights down and up.
    pub traffic: f64,
    /// Where the time went.
    pub seconds: Seconds,
    /// The global model on the test split, if this round was evaluated.
    pub evaluation: Option<Evaluation>,
    /// Forgetting so far, from the second evaluation on.
    pub forgetting: Option<f64>,
    /// Forgetting so far, by class, from the second evaluation on.
    pub class_forgetting: Option<Vec<Option<f64>>>,
    /// The cosine of the class accuracies of this evaluation and the one before.
    pub class_cosine: Option<f64>,
    /// Test samples of the global model, `[true class][predicted class]`, if this round was chosen for it.
    pub confusion: Option<Vec<Vec<u64>>>,
    /// The share of units of the new global model that prefer the same class as in the one before, by layer.
    pub alignment: Vec<(String, f64)>,
    /// Local models, if they were evaluated.
    pub local: Option<LocalRecord>,
    /// The distance of the clients' weights to the global ones.
    pub drift: Option<Spread>,
    /// How much the clients' changes differ.
    pub gradient_diversity: Option<f64>,
    /// Samples that went through teachers, counted once a teacher.
    pub teacher_samples: u64,
}

impl Round {
    /// As a run writes it down.
    pub fn record(&self) -> RoundRecord {
        let finite = |value: &f64| value.is_finite();
        RoundRecord {
            round: self.round as u64,
            accuracy: self.evaluation.as_ref().map(Evaluation::accuracy),
            loss: self.evaluation.as_ref().and_then(Evaluation::loss),
            class_accuracy: self.evaluation.as_ref().map(Evaluation::class_accuracy),
            forgetting: self.forgetting,
            class_forgetting: self.class_forgetting.clone(),
            class_cosine: self.class_cosine,
            confusion: self.confusion.clone(),
            alignment: self.alignment.iter().cloned().collect(),
            local: self.local.clone(),
            drift: self.drift,
            gradient_diversity: self.gradient_diversity,
            trained_samples: self.terms.samples(),
            teacher_samples: self.teacher_samples,
            train_loss: self.terms.total().filter(finite),
            train_terms: self
                .terms
                .iter()
                .filter(|(_, mean)| finite(mean))
                .map(|(name, mean)| (name.to_string(), mean))
                .collect(),
            bytes_down: self.bytes_down,
            bytes_up: self.bytes_up,
            traffic: Some(self.traffic),
            seconds: self.seconds,
            clients: self.clients.iter().map(|&client| client as u64).collect(),
        }
    }
}
