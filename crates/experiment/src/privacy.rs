//! The privacy account of a run: what its rounds will have revealed about one client, and what they have so far.

use fedelity_fl::{Accountant, sample_clients};
use fedelity_methods::{NoiseAt, refusal};
use fedelity_record::{Leaves, PrivacySpent, ProtectionRecord, RoundRecord};

use crate::assemble::Study;
use crate::config::{Document, MethodChoice};
use crate::error::Result;

/// What rounds with noise reveal about one client.
///
/// With noise at the server, every round counts, and that clients are drawn at random hides them further, unless they
/// remember something between rounds. With noise at the client, the server sees every upload and who sent it, so only
/// uploads count: those of the client that took part most often.
#[derive(Clone, Debug)]
pub struct PrivacyPlan {
    at: NoiseAt,
    noise: f64,
    delta: f64,
    clients: usize,
    per_round: usize,
    accountant: Accountant,
}

impl Study {
    /// The account of a method, if there is noise.
    pub fn privacy(&self, method: &MethodChoice) -> Option<PrivacyPlan> {
        let (at, noise) = self.settings.config.privacy.noise()?;
        let (clients, per_round) = (self.pool.partition.clients.len(), self.per_round);
        // What a client remembers depends on when it took part, so that rounds are not independent draws.
        // Nor are they if the same clients are always late.
        let always_late = self.settings.config.faults.deadline.is_some();
        let alike = at == NoiseAt::Client || method.method.needs().client_memory || always_late;
        let drawn = if alike { clients } else { per_round };
        let accountant = Accountant::fixed_size(noise, drawn, clients);
        Some(PrivacyPlan { at, noise, delta: self.settings.config.privacy.delta(), clients, per_round, accountant })
    }

    /// What leaves a client that runs a method.
    pub fn leaves(&self, method: &MethodChoice) -> Leaves {
        let config = &self.settings.config;
        let by_client = config.privacy.noise().filter(|(at, _)| *at == NoiseAt::Client);
        let clip = config.server.clip_update.filter(|_| by_client.is_some());
        let arrays = method.method.sends(&self.model);
        Leaves {
            weights: self.model.layout().len() as u64,
            arrays: arrays.into_iter().map(|extra| (extra.name.into_owned(), extra.len as u64)).collect(),
            label_counts: method.method.needs().label_counts_leave_client,
            counts_and_loss: by_client.is_none(),
            clip,
            noise: clip.zip(by_client).map(|(clip, (_, noise))| clip * noise),
        }
    }

    /// A remark if delta alone allows to give away a client.
    pub(crate) fn of_delta(&self) -> Option<String> {
        let (privacy, clients) = (&self.settings.config.privacy, self.pool.partition.clients.len());
        let (delta, one) = (privacy.delta(), 1.0 / clients as f64);
        (privacy.noise().is_some() && delta >= one).then(|| {
            format!(
                "privacy.delta = {delta}: not below 1 / {clients} clients, so the guarantee would allow to publish all data of \
                 one client; choose one well below, such as {:e}",
                one / 100.0
            )
        })
    }

    /// Rejects a model and methods whose clients noise would not hide.
    pub(crate) fn check_privacy(&self, document: &Document) -> Result<()> {
        let Some((at, _)) = self.settings.config.privacy.noise() else { return Ok(()) };
        let methods = &self.settings.methods;
        match methods.iter().find_map(|method| refusal(&*method.method, &self.model, at)) {
            Some(reason) => Err(document.error("privacy.noise", format!("privacy.noise: {reason}"))),
            None => Ok(()),
        }
    }
}

impl PrivacyPlan {
    /// What this many rounds reveal with any of these seeds. Nothing if there is no finite bound.
    pub fn after(&self, rounds: usize, seeds: &[u64]) -> Option<PrivacySpent> {
        let counted = |seed: &u64| {
            let mut account = PrivacyAccount::new(self.clone());
            for round in 0..rounds {
                let clients = match self.at {
                    NoiseAt::Server => Vec::new(),
                    NoiseAt::Client => sample_clients(*seed, round, self.clients, self.per_round),
                };
                account.count(clients.into_iter());
            }
            account.spent()
        };
        let spent = seeds.iter().map(counted).collect::<Option<Vec<_>>>()?;
        spent.into_iter().max_by(|a, b| a.epsilon.total_cmp(&b.epsilon))
    }

    /// As [`Self::after`], if each client took part by its own coin and one client were added or removed: what
    /// TensorFlow Privacy and Opacus report for these settings. Not with noise at the client.
    pub fn as_if_poisson(&self, rounds: usize) -> Option<f64> {
        let rate = self.per_round as f64 / self.clients as f64;
        let found = || Accountant::poisson(self.noise, rate).epsilon(rounds, self.delta);
        (self.at == NoiseAt::Server).then(found).filter(|epsilon| epsilon.is_finite())
    }

    /// The norm that the noise on the mean of the updates is expected to have, if they are clipped to this norm and have
    /// this many weights.
    pub fn norm(&self, clip: f64, weights: usize) -> f64 {
        let clients = self.per_round as f64;
        let of_mean = match self.at {
            NoiseAt::Server => clients,
            NoiseAt::Client => clients.sqrt(),
        };
        self.noise * clip * (weights as f64).sqrt() / of_mean
    }

    /// What the bound is about, in words.
    pub fn describe(&self) -> &'static str {
        match self.at {
            NoiseAt::Server => "for all data of any one client, if the server is trusted",
            NoiseAt::Client => "for all data of any one client, even against the server",
        }
    }
}

/// The account of a run on its way.
#[derive(Clone, Debug)]
pub(crate) struct PrivacyAccount {
    plan: PrivacyPlan,
    rounds: usize,
    /// How often each client has taken part.
    uploads: Vec<usize>,
}

impl PrivacyAccount {
    pub(crate) fn new(plan: PrivacyPlan) -> Self {
        Self { rounds: 0, uploads: vec![0; plan.clients], plan }
    }

    /// Counts a round of these clients.
    fn count(&mut self, clients: impl Iterator<Item = usize>) {
        self.rounds += 1;
        for client in clients {
            if let Some(uploads) = self.uploads.get_mut(client) {
                *uploads += 1;
            }
        }
    }

    /// Counts a recorded round. If it was repeated, any client may have sent its upload of the round to an earlier attempt.
    pub(crate) fn recall(&mut self, record: &RoundRecord) {
        match record.repeats {
            0 => self.count(record.clients.iter().map(|&client| client as usize)),
            _ => self.count(0..self.plan.clients),
        }
    }

    /// Counts a round, and puts what all rounds so far reveal into its record.
    pub(crate) fn add(&mut self, record: &mut RoundRecord) {
        self.recall(record);
        let privacy = self.spent();
        record.protection = Some(ProtectionRecord { privacy, ..record.protection.unwrap_or_default() });
    }

    fn spent(&self) -> Option<PrivacySpent> {
        let counted = match self.plan.at {
            NoiseAt::Server => self.rounds,
            NoiseAt::Client => self.uploads.iter().copied().max().unwrap_or(0),
        };
        let (epsilon, delta) = (self.plan.accountant.epsilon(counted, self.plan.delta), self.plan.delta);
        epsilon.is_finite().then_some(PrivacySpent { epsilon, delta })
    }
}
