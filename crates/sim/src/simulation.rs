//! The simulation, one round at a time.

use std::time::Instant;

use fedelity_fl::metrics::Forgetting;
use fedelity_fl::{Coordinator, Error, Evaluation, Payload, Samples, Scaling, Trainer, longest_first, sample_clients};
use fedelity_nn::Params;
use fedelity_record::Seconds;

use crate::workers::{self, Clients, Memories};
use crate::{Experiment, Round, evaluate};

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
}

impl Simulation {
    /// A federation before its first round. What cannot run is refused.
    pub fn new(experiment: Experiment) -> Result<Self, Error> {
        experiment.check()?;
        let coordinator = Coordinator::new(experiment.federation())?;
        let trainers = (0..experiment.threads).map(|_| Trainer::new(experiment.model.clone())).collect();
        Ok(Self {
            coordinator,
            trainers,
            memories: Memories::new(),
            spare: Vec::new(),
            scaling: Scaling::from(&experiment.data.normalisation),
            test: (0..experiment.data.test.len() as u32).collect(),
            forgetting: Forgetting::default(),
            experiment,
        })
    }

    /// Runs one round. After an error there is no next round.
    pub fn step(&mut self) -> Result<Round, Error> {
        let (experiment, start) = (&self.experiment, Instant::now());
        let number = self.coordinator.rounds();
        let sizes = &experiment.partition.clients;
        let clients = sample_clients(experiment.seed, number, sizes.len(), experiment.per_round);
        let schedule = longest_first(&clients, |client| sizes[client].len());
        let broadcast = self.coordinator.open()?;
        let opened = start.elapsed();

        let train = Samples { split: &experiment.data.train, indices: &[], scaling: &self.scaling };
        let all = Clients { experiment, broadcast: &broadcast, train, schedule: &schedule };
        let tally = workers::run(&all, &mut self.trainers, &mut self.coordinator, &self.memories, &mut self.spare)?;
        let trained = start.elapsed();

        let refused = self.coordinator.close()?;
        for (client, memory) in tally.memories {
            if refused.contains(&client) {
                continue;
            }
            if memory.is_empty() {
                self.memories.remove(&client);
            } else {
                self.memories.insert(client, memory);
            }
        }
        let closed = start.elapsed();

        let due = (number + 1).is_multiple_of(experiment.evaluate_every) || self.done();
        let evaluation = due.then(|| self.evaluate());
        let forgetting = evaluation.as_ref().and_then(|found| self.forgetting.push(&found.class_accuracy()));
        let training = (trained - opened).saturating_sub(tally.folding);
        let seconds = Seconds {
            train: training.as_secs_f64(),
            aggregate: (closed - training).as_secs_f64(),
            evaluate: (start.elapsed() - closed).as_secs_f64(),
        };
        let bytes_down = broadcast.bytes() * clients.len() as u64;
        let weights_both_ways = 2 * 4 * broadcast.global.len() * clients.len();
        Ok(Round {
            round: number + 1,
            bytes_down,
            bytes_up: tally.bytes_up,
            traffic: (bytes_down + tally.bytes_up) as f64 / weights_both_ways as f64,
            clients,
            terms: tally.terms,
            steps: tally.steps,
            seconds,
            evaluation,
            forgetting,
        })
    }

    /// The global model on the test split, now.
    pub fn evaluate(&mut self) -> Evaluation {
        let samples = Samples { split: &self.experiment.data.test, indices: &self.test, scaling: &self.scaling };
        evaluate::evaluate(&mut self.trainers, self.coordinator.global(), samples, self.experiment.model.classes())
    }

    /// The global weights.
    pub fn global(&self) -> &Params {
        self.coordinator.global()
    }

    /// Whether all rounds are run.
    pub fn done(&self) -> bool {
        self.coordinator.rounds() >= self.experiment.rounds
    }

    /// The rounds that are run.
    pub fn rounds(&self) -> usize {
        self.coordinator.rounds()
    }

    /// What is simulated.
    pub fn experiment(&self) -> &Experiment {
        &self.experiment
    }

    /// What a client remembers from its last upload that the server did not leave out, if anything.
    pub fn memory(&self, client: usize) -> Option<&Payload> {
        self.memories.get(&client)
    }

    /// The clients that remember something, in ascending order.
    pub fn remembering(&self) -> impl Iterator<Item = usize> {
        self.memories.keys().copied()
    }

    /// The method's state on the server.
    pub fn state(&self) -> &Payload {
        self.coordinator.state()
    }
}
