use std::sync::Arc;

use fedelity_data::{Dataset, ImageShape, Partition, Shape, label_counts};
use fedelity_fl::{Federation, FlError};
use fedelity_nn::InputShape;
use fedelity_record::Guessing;

use crate::{Faults, Observation};

/// An experiment to simulate. [`Simulation::new`](crate::Simulation::new) checks it.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Model, method, training and seed. The partition has its own seed.
    pub federation: Federation,
    /// Clients hold its training split; the global model is tested on its test split.
    pub data: Arc<Dataset>,
    /// Which client holds which training samples.
    pub partition: Arc<Partition>,
    /// Clients per round.
    pub per_round: usize,
    pub rounds: usize,
    /// Rounds between evaluations of the global model; it is also evaluated after the last round.
    pub evaluate_every: usize,
    /// Worker threads, one client each. Results do not depend on them.
    pub threads: usize,
    /// What is measured beyond the accuracy of the global model. It does not change training.
    pub observation: Observation,
    /// What goes wrong on purpose.
    pub faults: Faults,
    /// How many of a round's uploads must count; otherwise the round is repeated with other clients.
    pub needed: usize,
}

impl Experiment {
    /// Rejects what cannot run.
    pub fn check(&self) -> Result<(), FlError> {
        let clients = self.partition.clients.len();
        range("partition.clients", clients, 1, usize::MAX)?;
        range("clients", self.federation.clients, clients, clients)?;
        range("per-round", self.per_round, 1, clients)?;
        range("rounds", self.rounds, 1, usize::MAX)?;
        range("evaluation.every", self.evaluate_every, 1, usize::MAX)?;
        range("threads", self.threads, 1, usize::MAX)?;
        range("server.quorum", self.needed, 1, self.per_round)?;
        if let Some(client) = self.observation.client {
            range("evaluation.client", client, 0, clients - 1)?;
        }
        for &round in &self.observation.confusion {
            range("evaluation.confusion", round, 1, self.rounds)?;
        }
        self.federation.check()?;
        self.check_shapes()?;
        let samples = self.data.train.len();
        let outside = |&&index: &&u32| index as usize >= samples;
        if let Some(index) = self.partition.clients.iter().flatten().find(outside) {
            let (value, allowed) =
                (format!("sample {index}"), format!("below {samples}, the number of training samples"));
            return Err(FlError::Setting { key: "partition", value, allowed });
        }
        Ok(())
    }

    /// What guessing gives on the test samples, if anything can be said.
    pub fn guessing(&self) -> Option<Guessing> {
        Guessing::of(&label_counts(self.data.test.labels.iter().copied(), self.federation.model.classes()))
    }

    fn check_shapes(&self) -> Result<(), FlError> {
        let model = &self.federation.model;
        let unfit = |what, expected: String, found: String| {
            Err(FlError::Unfit { model: model.name().to_string(), what, expected, found })
        };
        let (takes, has) = (model.input(), self.data.shape);
        let (channels, height, width) = takes.sides();
        let sides = format!("{channels}x{height}x{width}");
        match (takes, has) {
            (InputShape::Image { .. }, Shape::Image(ImageShape { channels: c, height: h, width: w })) => {
                if (channels, height, width) != (c, h, w) {
                    return unfit("images of", sides, has.to_string());
                }
            }
            (InputShape::Image { .. }, Shape::Numbers(columns)) if channels * height * width == columns => {}
            (InputShape::Tokens { .. }, Shape::Text) if self.data.splits().iter().all(|split| split.has_tokens()) => {}
            (InputShape::Tokens { .. }, _) => return unfit("inputs of", "tokens".to_string(), has.to_string()),
            _ => return unfit("inputs of", sides, has.to_string()),
        }
        if model.classes() != self.data.classes.len() {
            return unfit("classes", model.classes().to_string(), self.data.classes.len().to_string());
        }
        let augmentation = &self.federation.training.augmentation;
        let fits = match has.image() {
            _ if augmentation.is_none() => Ok(()),
            None => Err(format!("images, but the data are {has}")),
            Some(shape) => augmentation.check(shape),
        };
        fits.map_err(|allowed| FlError::Setting { key: "augmentation", value: "on".to_string(), allowed })
    }
}

fn range(key: &'static str, value: usize, least: usize, most: usize) -> Result<(), FlError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let allowed = if most == usize::MAX { format!("{least} or more") } else { format!("from {least} to {most}") };
    Err(FlError::Setting { key, value: value.to_string(), allowed })
}
