//! The clients of a round, and others if too few of their uploads can be used.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use fedelity_fl::{Broadcast, Finished, FlError, Samples, longest_first, sample_clients, sample_others};
use fedelity_record::{Incident, IncidentCounts, IncidentKind, LocalRecord};

use super::Simulation;
use crate::lookout::ClientSigns;
use crate::observe::{self, Baseline, Observed};
use crate::workers::{self, Clients, Folding, Tally};
use crate::{Keeper, faults};

/// How often a round is repeated with other clients before the run is given up.
const REPEATS: usize = 20;

/// What a round has gathered, before it is closed.
pub(super) struct Gathered {
    pub(super) clients: Vec<usize>,
    pub(super) broadcast: Broadcast,
    pub(super) tally: Tally,
    /// What went wrong, in all attempts.
    pub(super) incidents: Vec<Incident>,
    pub(super) repeats: usize,
    pub(super) bytes_down: u64,
    pub(super) bytes_up: u64,
    /// When the first attempt was opened.
    pub(super) opened: Duration,
    pub(super) signs: Vec<ClientSigns>,
    pub(super) drifts: Vec<f64>,
    pub(super) local: Option<LocalRecord>,
    /// Features of the closely examined client, if it took part.
    pub(super) features: Option<Vec<f32>>,
}

impl Simulation {
    /// Runs the clients of a round until enough uploads count. Nothing, with everything as before, if the keeper stops it.
    pub(super) fn gather(
        &mut self,
        start: Instant,
        kept: Vec<Finished>,
        keeper: &dyn Keeper,
        baseline: Option<&Baseline>,
    ) -> Result<Option<Gathered>, FlError> {
        let (experiment, number) = (&self.experiment, self.coordinator.rounds());
        let (sizes, seed, per_round) =
            (&experiment.partition.clients, experiment.federation.seed, experiment.per_round);
        let weights = self.coordinator.global().len();
        let fits = |done: &Finished| done.upload.round == number && done.upload.params.len() == weights;
        let kept = kept.into_iter().filter(fits);
        let mut kept: BTreeMap<usize, Finished> = kept.map(|done| (done.upload.client, done)).collect();

        let scaling = &self.scaling;
        let train = Samples { split: &experiment.data.train, indices: &[], scaling };
        let test = Samples { split: &experiment.data.test, indices: &self.test, scaling };
        let observed = baseline.map(|baseline| Observed {
            plan: &self.plan,
            test,
            baseline,
            sites: self.book.sites.as_ref(),
            positive: experiment.observation.positive,
        });
        let (observed, faults) = (observed.as_ref(), self.faults.as_ref());
        let before = self.late.clone();
        let (mut tried, mut incidents) = (BTreeSet::new(), Vec::new());
        let (mut bytes_down, mut bytes_up, mut opened) = (0, 0, None);
        let mut attempt = 0;
        loop {
            let clients = match attempt {
                0 => sample_clients(seed, number, sizes.len(), per_round),
                _ => sample_others(seed, number, attempt, sizes.len(), per_round, &tried),
            };
            let schedule = &longest_first(&clients, |client| sizes[client].len())[..];
            let broadcast = self.coordinator.open(&clients)?;
            let opened = *opened.get_or_insert_with(|| start.elapsed());
            for client in std::mem::take(&mut self.late) {
                // A client that was late for the last attempt and is drawn again trains again.
                let of = if attempt == 0 { number.saturating_sub(1) } else { number };
                let again = attempt > 0 && clients.contains(&client);
                if !again && let Err(reason) = self.coordinator.accept(faults::stale(of, client))? {
                    let (kind, reason) = (IncidentKind::Refused, reason.to_string());
                    incidents.push(Incident { client: client as u64, kind, reason, repeat: attempt as u64 });
                }
            }
            let all = Clients { experiment, broadcast: &broadcast, train, schedule, observed, keeper, faults, attempt };
            let folding = Folding {
                coordinator: &mut self.coordinator,
                memories: &self.memories,
                spare: &mut self.spare,
                diversity: &mut self.diversity,
            };
            let Some(mut tally) = workers::run(&all, &mut self.trainers, folding, &mut kept)? else {
                self.coordinator.abandon();
                self.late = before;
                return Ok(None);
            };
            bytes_down += broadcast.bytes() * tally.reached as u64;
            bytes_up += tally.bytes_up;
            incidents.append(&mut tally.incidents);
            self.late = late(&incidents, attempt as u64);
            let (accepted, needed) = (tally.accepted, experiment.needed);
            if accepted >= needed {
                let signs = tally.seen.iter().map(ClientSigns::from).collect();
                let drifts = tally.seen.iter().map(|seen| seen.drift).collect();
                let (local, features) = observe::together(std::mem::take(&mut tally.seen), observed);
                return Ok(Some(Gathered {
                    clients,
                    broadcast,
                    tally,
                    incidents,
                    repeats: attempt,
                    bytes_down,
                    bytes_up,
                    opened,
                    signs,
                    drifts,
                    local,
                    features,
                }));
            }
            self.coordinator.abandon();
            // If training fails everywhere, other clients do not help.
            let failed = tally.failures.len();
            if let Some(error) = tally.failures.into_iter().next().filter(|_| failed == clients.len()) {
                return Err(error);
            }
            if attempt == REPEATS {
                let last = incidents.iter().filter(|one| one.repeat == attempt as u64);
                let lost = IncidentCounts::of(last).describe();
                return Err(FlError::Quorum { round: number + 1, accepted, needed, repeats: REPEATS, lost });
            }
            tried.extend(clients);
            attempt += 1;
        }
    }
}

/// The clients that were late for an attempt.
pub(super) fn late(incidents: &[Incident], attempt: u64) -> Vec<usize> {
    let late = incidents.iter().filter(|one| one.kind == IncidentKind::Late && one.repeat == attempt);
    late.map(|one| one.client as usize).collect()
}
